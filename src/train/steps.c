/* A step of a run, the mean loss on windows, and the rate to step with where none is given. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/private.h"

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
    for (size_t i = 0; i < w->n; i++) {
        const size_t other = window_start(w, i, length);
        if (start <= other + length && other <= start + length)
            return true;
    }
    return false;
}

double trainer_loss(struct trainer *t, const struct windows *w)
{
    const size_t length = (size_t)t->spec.length;
    double sum = 0;
    for (size_t done = 0; done < w->n;) {
        int rows = 0;
        for (; rows < t->spec.batch && done + (size_t)rows < w->n; rows++)
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

void trainer_rewind(struct trainer *t)
{
    struct optimizer *o = &t->optimizer;
    param_list_read(&t->list, t->spec.from, o->weights.flat);
    memset(o->m, 0, t->list.n_floats * sizeof *o->m);
    memset(o->v, 0, t->list.n_floats * sizeof *o->v);
    o->step = t->progress.step = 0;
    rng_seed(&t->progress.rng, t->spec.seed, STREAM_WINDOWS);
}

enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e)
{
    const bool is_given = t->spec.from && t->progress.step == 0;
    char saved[600] = "nothing has been saved yet";
    if (t->saved_step >= 0)
        snprintf(saved, sizeof saved, "%.400s.state has step %d", t->spec.out, t->saved_step);
    return err_set(e, STATUS_FAILED, "the %s after step %d is %f, not a finite number; %s; %s",
                   what, t->progress.step, value, saved,
                   is_given ? "info --check tells whether the checkpoint is sound"
                            : "a lower --lr, a longer --warmup or a smaller --clip may help");
}

static void draw_batch(struct trainer *t)
{
    const size_t length = (size_t)t->spec.length;
    const size_t starts = t->data.train.n - length;
    for (int row = 0; row < t->spec.batch; row++) {
        size_t start;
        do
            start = (size_t)(rng_unit(&t->progress.rng) * (double)starts);
        while (meets(&t->aside, start, length));
        train_data_window(&t->data.train, start, row, (int)length, t->inputs, t->targets);
    }
}

enum status trainer_step(struct trainer *t, struct train_event *made, struct err *e)
{
    struct optimizer *o = &t->optimizer;
    struct rng r; /* of this step, whatever came before */
    rng_seed(&r, t->spec.seed, STREAM_DROPOUT + (uint64_t)t->progress.step);
    const uint64_t high = rng_u32(&r);
    const struct backprop_batch batch = {.inputs = t->inputs,
                                         .targets = t->targets,
                                         .n_sequences = t->spec.batch,
                                         .dropout = {t->spec.dropout, high << 32 | rng_u32(&r)},
                                         .attn_dropout = t->spec.attn_dropout,
                                         .label_smoothing = (float)t->spec.label_smoothing};
    const struct backprop_teacher teacher = {t->teacher, &t->teacher_weights,
                                             (float)t->spec.teacher_share};
    draw_batch(t);
    made->loss = backprop_gradient(t->engine, &o->weights, &batch, t->teacher ? &teacher : NULL,
                                   &o->gradient);
    if (!isfinite(made->loss))
        return trainer_not_finite(t, "loss", made->loss, e);
    made->norm = optimizer_norm(o);
    if (!isfinite(made->norm))
        return trainer_not_finite(t, "gradient's norm", made->norm, e);
    made->lr = train_rate(&t->spec, o->step);
    optimizer_step(o, made->norm);
    t->progress.step = o->step;
    return STATUS_OK;
}

/* --- the rate -------------------------------------------------------------------------------- */

/* Tried from the second and third on, towards where the loss falls, until it does not. */
static const double rates[] = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3};
#define N_RATES    ((int)(sizeof rates / sizeof *rates))
#define FIRST_RATE 1

/* Of a text without a window to spare. */
#define RATE_UNTRIED 3e-5

/* Windows kept aside: at most so many, and this share of those that the training part has. */
#define ASIDE_MOST  64
#define ASIDE_SHARE 12

/* Steps of a trial: this share of the run's, within bounds; all, if there are fewer. */
#define TRIAL_SHARE 10
#define TRIAL_LEAST 10
#define TRIAL_MOST  20

/* In a run as short as its trials the smallest rate that gains this share of the best is taken:
 * what a higher one gains on the training part it tends to lose on other text, and no steps are
 * left that it could pay in. */
#define ENOUGH 0.8

struct probe {
    struct trainer *t;
    int n_steps;  /* of a trial */
    double start; /* the checkpoint's own loss */
    double losses[N_RATES];
};

static void tell_tried(const struct probe *p, double rate, double loss)
{
    train_tell(&p->t->spec, (struct train_event){.kind = TRAIN_TRIED,
                                                 .step = p->n_steps,
                                                 .all = p->t->aside.n,
                                                 .lr = rate,
                                                 .loss = loss});
}

/* The steps of a trial, with the rate and the warm-up that the spec has; a loss that is not finite
 * ends it. */
static enum status make_trial(struct probe *p, double *loss)
{
    struct trainer *t = p->t;
    struct train_event made;
    trainer_rewind(t);
    rng_seed(&t->progress.rng, t->spec.seed, STREAM_PROBE);
    *loss = HUGE_VAL;
    for (int i = 0; i < p->n_steps; i++) {
        if (train_stopped(&t->spec))
            return STATUS_INTERRUPTED;
        if (trainer_step(t, &made, NULL) != STATUS_OK)
            return STATUS_OK;
    }
    const double found = trainer_loss(t, &t->aside);
    *loss = isfinite(found) ? found : HUGE_VAL;
    return STATUS_OK;
}

/* Tries a rate as a run of so many steps has it. */
static enum status try_rate(struct probe *p, int index)
{
    struct train_spec *spec = &p->t->spec;
    const int n_steps = spec->n_steps, warmup = spec->warmup;
    spec->lr = rates[index];
    spec->n_steps = p->n_steps;
    spec->warmup = (int)((int64_t)warmup * p->n_steps / n_steps);
    const enum status s = make_trial(p, &p->losses[index]);
    spec->n_steps = n_steps;
    spec->warmup = warmup;
    spec->lr = 0;
    if (s == STATUS_OK)
        tell_tried(p, rates[index], p->losses[index]);
    return s;
}

static enum status search(struct probe *p)
{
    for (int i = 0; i < N_RATES; i++)
        p->losses[i] = HUGE_VAL;
    TRY(try_rate(p, FIRST_RATE));
    TRY(try_rate(p, FIRST_RATE + 1));
    const bool rising = p->losses[FIRST_RATE + 1] < p->losses[FIRST_RATE];
    const int step = rising ? 1 : -1;
    for (int i = rising ? FIRST_RATE + 2 : FIRST_RATE - 1; i >= 0 && i < N_RATES; i += step) {
        TRY(try_rate(p, i));
        if (!(p->losses[i] < p->losses[i - step]))
            break;
    }
    return STATUS_OK;
}

/* The rate to be taken; 0: none gains anything. */
static double choose(const struct probe *p)
{
    const bool is_short = p->n_steps == p->t->spec.n_steps;
    double best = 0;
    for (int i = 0; i < N_RATES; i++)
        best = fmax(best, p->start - p->losses[i]);
    for (int i = 0; i < N_RATES && best > 0; i++)
        if (p->start - p->losses[i] >= (is_short ? ENOUGH : 1) * best)
            return rates[i];
    return 0;
}

enum status trainer_probe(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    const size_t all = (t->data.train.n - 1) / (size_t)spec->length, share = all / ASIDE_SHARE;
    struct probe p = {.t = t, .n_steps = spec->n_steps / TRIAL_SHARE};
    p.n_steps = p.n_steps < TRIAL_LEAST ? TRIAL_LEAST : p.n_steps;
    p.n_steps = p.n_steps > TRIAL_MOST ? TRIAL_MOST : p.n_steps;
    p.n_steps = p.n_steps > spec->n_steps ? spec->n_steps : p.n_steps;
    double rate = RATE_UNTRIED;
    t->aside =
        trainer_windows(&t->data.train, share < ASIDE_MOST ? share : ASIDE_MOST, spec->length);
    if (share > 0) {
        p.start = trainer_loss(t, &t->aside);
        if (!isfinite(p.start))
            return trainer_not_finite(t, "loss", p.start, e);
        tell_tried(&p, 0, p.start);
        const enum status s = search(&p);
        t->aside.n = 0;
        if (s != STATUS_OK)
            return s;
        rate = choose(&p);
    }
    t->progress.rate = rate;
    train_tell(spec, (struct train_event){.kind = TRAIN_CHOSEN, .lr = rate});
    return STATUS_OK;
}
