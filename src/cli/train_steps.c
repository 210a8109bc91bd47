#include "cli/train_steps.h"

#include <limits.h>

#define VALUES struct train_spec

const struct option train_step_options[] = {
    OPT_INT("steps", n_steps, "N", 1, 100000000, "steps", .fallback = "2000"),
    OPT_INT("batch", batch, "B", 1, 65536, "windows a step", .fallback = "8"),
    OPT_DOUBLE("lr", lr, "X", 0, 10,
               "learning rate after the warm-up; it ends at a tenth, by a cosine",
               .otherwise = "0.001; with --from the best tried", .above_min = true),
    OPT_INT("warmup", warmup, "N", -1, INT_MAX,
            "steps of linear warm-up; -1: a tenth of all, with --from half, at most 100",
            .fallback = "-1"),
    OPT_DOUBLE("beta2", beta2, "X", 0, 0.999999, "AdamW's decay of the second moment",
               .fallback = "0.99"),
    OPT_DOUBLE("weight-decay", weight_decay, "X", 0, 10, "AdamW's, of matrices only",
               .fallback = "0.1"),
    OPT_DOUBLE("dropout", dropout, "X", 0, 0.9,
               "share of embeddings and of what layers add that is left out in each step",
               .fallback = "0"),
    OPT_DOUBLE("attn-dropout", attn_dropout, "X", 0, 0.9,
               "share of attention's probabilities that is left out in each step", .fallback = "0"),
    OPT_DOUBLE("label-smoothing", label_smoothing, "X", 0, 0.9,
               "share of the loss that asks for all tokens alike; the original Transformer: 0.1",
               .fallback = "0"),
    OPT_DOUBLE("clip", clip, "X", 0, 1e6, "limit of the gradient's norm; 0: none", .fallback = "1"),
    OPT_END,
};

const struct option train_held_out_options[] = {
    OPT_DOUBLE("val-fraction", val_fraction, "X", 0, 0.9,
               "the last part of each text, held out; 0: none", .fallback = "0.1"),
    OPT_END,
};
