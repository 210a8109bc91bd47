/*
 * shape - the option that says a model's shape, instead of a checkpoint.
 */
#pragma once

#include "cli/common.h"
#include "model/shape.h"

#define SHAPE_HELP                                                                                 \
    "sizes: " SHAPE_FORM                                                                           \
    ", by default arch gpt2 (llama, transformer, decode), ff 4 * D_MODEL (llama: 8/3), vocab "     \
    "50257, ctx 1024, dk and dv (a head's key and value) D_MODEL / HEADS, kv (K/V heads) HEADS, "  \
    "score dot or additive; or a name, as llama-7b,ctx=4096 (info --shape help lists them)"

/* The shape that --shape gives. STATUS_USAGE also if a checkpoint is named beside it. */
static inline enum status shape_of_option(const char *shape, const struct common_options *common,
                                          struct config *c, struct err *e)
{
    if (common->positional || common->model)
        return err_usage(e, "a checkpoint and --shape are both named; expected one of them");
    return shape_parse(shape, c, e);
}
