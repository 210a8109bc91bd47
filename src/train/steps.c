#include "train/steps.h"

#include <math.h>
#include <stdio.h>

/* --- windows --------------------------------------------------------------------------------- */

struct windows trainer_windows(const struct tokens *tokens, size_t n, int length)
{
    const size_t whole = (size_t)length;
    const bool cover = n < 2 || n * whole + whole >= tokens->n;
    return (struct windows){tokens, n, cover ? 0 : tokens->n - 1 - whole};
}

static size_t window_start(const struct windows *w, size_t index, size_t length)
{
    return w->last ? (size_t)((double)index / (double)(w->n - 1) * (double)w->last)
                   : index * length;
}

/* Whether the window at `start` has a token, or a token's successor, of these. */
static bool meets(const struct windows *w, size_t start, size_t length)
{
    if (w->n == 0)
        return false;
    const double step = w->n > 1 ? (double)window_start(w, 1, length) : 1;
    const size_t nearest = (size_t)((double)start / step);
    for (size_t i = nearest ? nearest - 1 : 0; i <= nearest + 1 && i < w->n; i++) {
        const size_t other = window_start(w, i, length);
        if (start <= other + length && other <= start + length)
            return true;
    }
    return false;
}

static void draw_batch(struct trainer *t)
{
    const size_t length = (size_t)t->spec->length;
    const size_t starts = t->data.train.n - length;
    for (int row = 0; row < t->spec->batch; row++) {
        size_t start;
        do
            start = (size_t)(rng_unit(&t->progress.rng) * (double)starts);
        while (meets(&t->aside, start, length));
        train_data_window(&t->data.train, start, row, (int)length, t->inputs, t->targets);
    }
}

double trainer_loss(struct trainer *t, const struct windows *w)
{
    const size_t length = (size_t)t->spec->length;
    double sum = 0;
    for (size_t done = 0; done < w->n;) {
        int rows = 0;
        for (; rows < t->spec->batch && done + (size_t)rows < w->n; rows++)
            train_data_window(w->tokens, window_start(w, done + (size_t)rows, length), rows,
                              (int)length, t->inputs, t->targets);
        const struct backprop_batch batch = {
            .inputs = t->inputs, .targets = t->targets, .n_sequences = rows};
        sum += rows * backprop_loss(t->engine, &t->optimizer.weights, &batch);
        done += (size_t)rows;
    }
    return sum / (double)w->n;
}

/* --- a step ---------------------------------------------------------------------------------- */

enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e)
{
    char saved[600] = "nothing has been saved yet";
    if (t->saved_step >= 0)
        snprintf(saved, sizeof saved, "%.400s.state has step %d", t->spec->out, t->saved_step);
    return err_set(e, STATUS_FAILED,
                   "the %s of step %d is %f, not a finite number; %s; a lower --lr, a longer "
                   "--warmup or a smaller --clip may help",
                   what, t->progress.step + 1, value, saved);
}

/* One for each step, whatever came before. */
static uint64_t dropout_key(const struct trainer *t)
{
    struct rng r;
    rng_seed(&r, t->spec->seed, STREAM_DROPOUT + (uint64_t)t->progress.step);
    const uint64_t high = rng_u32(&r);
    return high << 32 | rng_u32(&r);
}

enum status trainer_step(struct trainer *t, struct made_step *made, struct err *e)
{
    draw_batch(t);
    const struct backprop_batch batch = {.inputs = t->inputs,
                                         .targets = t->targets,
                                         .n_sequences = t->spec->batch,
                                         .dropout = {t->spec->dropout, dropout_key(t)},
                                         .attn_dropout = t->spec->attn_dropout,
                                         .label_smoothing = (float)t->spec->label_smoothing};
    const struct backprop_teacher teacher = {t->teacher, &t->teacher_weights,
                                             (float)t->spec->teacher_share};
    struct optimizer *o = &t->optimizer;
    const double loss = backprop_gradient(t->engine, &o->weights, &batch,
                                          t->teacher ? &teacher : NULL, &o->gradient);
    if (!isfinite(loss))
        return trainer_not_finite(t, "loss", loss, e);
    const double norm = optimizer_norm(o);
    if (!isfinite(norm))
        return trainer_not_finite(t, "gradient's norm", norm, e);
    const double lr = train_rate(t->spec, o->step);
    optimizer_step(o, norm);
    t->progress.step = o->step;
    *made = (struct made_step){loss, lr, norm};
    return STATUS_OK;
}
