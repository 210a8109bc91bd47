/*
 * shape - the options that say a model's shape, instead of a checkpoint.
 */
#pragma once

#include "cli/common.h"
#include "model/shape.h"

#define SHAPE_HELP                                                                                 \
    "sizes: " SHAPE_FORM                                                                           \
    ", by default ff 4 * D_MODEL (llama: 8/3), vocab 50257, ctx 1024, dk and dv (a head's key "    \
    "and value) D_MODEL / HEADS, kv (K/V heads) HEADS, score dot or additive; or a name, as "      \
    "llama-7b,ctx=4096 (info --shape help lists them)"
#define OPT_SHAPE_ARCH(member)                                                                     \
    OPT_CHOICE("arch", member, "ARCH", shape_archs,                                                \
               "what --shape is of; transformer is the original's decoder", .otherwise = "gpt2",   \
               .needs = "shape")

struct shape_options {
    const char *shape;
    int arch; /* of shape_archs, and 1 more; 0: not given */
};
extern const struct option shape_options[];

/* The shape of --shape, which is given. STATUS_USAGE also if a checkpoint is named beside it. */
enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e);
