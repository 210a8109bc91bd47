#include "cli/train_steps.h"

#include <limits.h>

#include "cli/job.h"
#include "cli/signals.h"

#define DEFAULT_LR    1e-3
#define DEFAULT_SHARE 0.5
/* Parts of the steps that warm up: further training starts with AdamW's moments empty beside
 * weights that have something to lose. */
#define WARMUP           10
#define WARMUP_FROM      2
#define LONGEST_WARMUP   100
#define LEAST_INTERVAL   25
#define LARGEST_INTERVAL 250

#define VALUES struct train_spec

const struct option train_step_options[] = {
    OPT_INT("steps", n_steps, "N", 1, 100000000, "steps", .fallback = "2000"),
    OPT_INT("batch", batch, "B", 1, 65536, "windows a step", .fallback = "8"),
    OPT_DOUBLE("lr", lr, "X", 0, TRAIN_MOST_RATE,
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

static int between(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

static enum status open_origin(struct train_spec *spec, const struct train_shape *shape,
                               struct checkpoint *from, struct err *e)
{
    const char *given = train_shape_given(shape);
    spec->length = shape->n_ctx ? shape->n_ctx : TRAIN_SHAPE_CTX;
    if (!spec->from_path)
        return train_shape_config(shape, &spec->shape, e);
    if (given)
        return err_set(e, STATUS_USAGE,
                       "--%s and --from are both given: the checkpoint has its own shape and "
                       "vocabulary (decode convert changes its K/V heads)",
                       given);
    TRY(job_open(spec->from_path, JOB_TOKENIZES, from, e));
    TRY(job_config(spec->from_path, from, &spec->shape, e));
    spec->from = from->gguf;
    if (!shape->n_ctx && spec->shape.n_ctx < spec->length)
        spec->length = spec->shape.n_ctx;
    return STATUS_OK;
}

enum status train_spec_complete(struct train_spec *spec, const struct train_shape *shape,
                                struct checkpoint *from, struct checkpoint *teacher, struct err *e)
{
    const bool further = spec->from_path;
    if (spec->warmup < 0)
        spec->warmup = between(spec->n_steps / (further ? WARMUP_FROM : WARMUP), 0, LONGEST_WARMUP);
    if (spec->lr == 0)
        spec->lr = further ? 0 : DEFAULT_LR; /* 0: what a probe finds */
    const int interval = between(spec->n_steps / 20, LEAST_INTERVAL, LARGEST_INTERVAL);
    if (spec->eval_every == 0)
        spec->eval_every = interval;
    if (spec->save_every == 0)
        spec->save_every = spec->eval_every > 0 ? spec->eval_every : interval;
    TRY(open_origin(spec, shape, from, e));
    if (!spec->teacher_path && spec->teacher_share > 0)
        return err_set(e, STATUS_USAGE, "--teacher-weight is for --teacher, which is not given");
    if (!spec->teacher_path)
        return STATUS_OK;
    if (spec->teacher_share == 0)
        spec->teacher_share = DEFAULT_SHARE;
    TRY(job_open(spec->teacher_path, CHECKPOINT_TOKENIZER, teacher, e));
    spec->teacher = teacher->gguf;
    if (further) /* from here on it may be either */
        signals_mapping(NULL);
    return STATUS_OK;
}
