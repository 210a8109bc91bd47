/*
 * shape - the options that say a model's shape, instead of a checkpoint.
 */
#pragma once

#include "cli/options.h"
#include "model/shape.h"
#include "train/train.h"

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

/* --- train_options.c -------------------------------------------------------------------------- */

/*
 * The options of a training: the model that is made new, its sizes and what it is made of; the
 * steps; and the specification that they come to.
 */

#define TRAIN_KINDS 5

/* What options say of a new model; 0 and NULL are what was not given. */
struct train_shape {
    int n_layers, d_model, n_heads, head_dim, value_dim, d_ff, n_ctx, n_vocab;
    double eps;
    const char *kv_heads, *score_scale;
    int arch, kinds[TRAIN_KINDS]; /* norm, placement, position, ffn, score; from 1 on */
    bool no_bias, no_norm_bias, share_layers;
};
extern const struct option train_size_options[], train_head_options[], train_kind_options[];

/* Their values are those of a struct train_spec, as far as they are given: a rate of 0 is none. */
extern const struct option train_step_options[], train_held_out_options[];

/* Fills in what options left open: the rate, the warm-up, the intervals, the windows' length; and
 * where the model comes from, spec->from_path or a new one of this shape, and the teacher. *from
 * and *teacher, zeroed before, are for the caller to close in any case. STATUS_USAGE names an
 * option that cannot be with the others; the failures of job_open. */
enum status train_spec_complete(struct train_spec *spec, const struct train_shape *shape,
                                struct checkpoint *from, struct checkpoint *teacher, struct err *e);
