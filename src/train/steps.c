/*
 * What a run is made of: the first weights, a step (a batch of windows, its gradient, clipping and
 * AdamW), and the mean loss on windows.
 */
#include "train/private.h"

#include <math.h>

#include "base/figures.h"

#define BETA1          0.9
#define BETA2          0.99
#define ADAM_EPS       1e-8f
#define INIT_DEVIATION 0.02
#define PI             3.14159265358979323846
#define LEAST_RATE     0.1 /* of the full one, at the last step */
/* Centres of quadratic positions are distances in tokens and have to move by several, so their rate
 * is the others' times this. (Heads had to get from 0 and 1 to 1 and 4: with three seeds of three
 * they did; at the others' own rate, and at ten times it, one seed stopped at 2.) */
#define CENTRE_RATE 3

/* An evaluation predicts at most about so many tokens, evenly spread over the held-out part. */
#define VAL_TOKENS 131072

/* Floats of the gradient whose squares are summed by one kernel call. */
#define SHARD ((size_t)4096)

static size_t n_shards(const struct trainer *t)
{
    return (t->list.n_trained + SHARD - 1) / SHARD;
}

void trainer_take(struct trainer *t)
{
    struct arena *arena = &t->arena;
    const uint64_t rows = (uint64_t)t->spec.batch * t->spec.length;
    t->weights = param_view_take(arena, &t->list, t->list.n_floats, &t->config);
    t->gradient = param_view_take(arena, &t->list, t->list.n_trained, &t->config);
    ARENA_TAKE(t->m, arena, t->list.n_trained);
    ARENA_TAKE(t->v, arena, t->list.n_trained);
    ARENA_TAKE(t->partials, arena, n_shards(t));
    if (t->spec.optimizer == OPTIMIZER_MUON)
        muon_take(&t->muon, arena, &t->list);
    if (t->spec.teacher)
        t->teacher_weights =
            param_view_take(arena, &t->teacher_list, t->teacher_list.n_floats, &t->teacher_config);
    ARENA_TAKE(t->inputs, arena, rows);
    ARENA_TAKE(t->targets, arena, rows);
}

void trainer_initialise(struct trainer *t)
{
    const struct config *c = &t->config;
    struct rng r;
    rng_seed(&r, t->spec.seed, STREAM_WEIGHTS);
    const bool original = c->placement == PLACEMENT_AFTER || c->position == POSITION_SINUSOIDAL;
    for (int i = 0; i < t->list.n; i++) {
        const struct tensor_spec *spec = &t->list.items[i].spec;
        float *w = t->weights.flat + t->list.items[i].offset;
        double deviation = INIT_DEVIATION; /* of a tensor with two dimensions */
        if (original && spec->role == ROLE_TOKEN_EMBD)
            deviation = 1 / sqrt(c->d_model);
        else if (original && spec->form == FORM_MATRIX)
            deviation = sqrt(2.0 / (spec->rows + spec->cols));
        else if (spec->flags & SPEC_RESIDUAL)
            deviation = INIT_DEVIATION / sqrt(2.0 * c->n_layers);
        if (spec->role == ROLE_ATTN_REL) {
            for (int h = 0; h < spec->rows; h++) {
                w[2 * h] = 0.5f / (float)((h + 1) * (h + 1)); /* alpha */
                w[2 * h + 1] = (float)h;                      /* centre */
            }
            continue;
        }
        for (size_t j = 0; j < spec_elements(spec); j++) {
            if (spec->n_dims == 1) {
                w[j] = !spec->is_bias;
                continue;
            }
            /* Box and Muller 1958. */
            const double radius = sqrt(-2 * log(1 - rng_unit(&r)));
            w[j] = (float)(deviation * (radius * cos(2 * PI * rng_unit(&r))));
        }
    }
}

/* Returns STATUS_FAILED. The message says what was not finite, after which step, and what may help;
 * it names the checkpoint if no step was made. */
static enum status not_finite(const struct trainer *t, const char *what, double value,
                              struct err *e)
{
    const bool is_given = t->spec.from && t->progress.step == 0;
    char saved[600] = "nothing has been saved yet";
    if (t->saved_step >= 0)
        chars_printf(saved, "%.400s.state has step %d", t->spec.out, (int)t->saved_step);
    err_format(e, "the %s after step %d is %f, not a finite number; %s; %s", what,
               (int)t->progress.step, figure_unsigned_nan(value), saved,
               is_given ? "info --check tells whether the checkpoint is sound"
                        : "a lower --lr, a longer --warmup or a smaller --clip may help");
    return is_given && t->spec.from_path ? err_in(e, STATUS_FAILED, "%s", t->spec.from_path)
                                         : STATUS_FAILED;
}

/* --- windows --------------------------------------------------------------------------------- */

size_t trainer_val_windows(const struct trainer *t)
{
    const size_t length = t->spec.length, most = VAL_TOKENS / length + 1;
    const size_t all = t->spec.val_fraction > 0 ? (t->val.n - 1) / length : 0;
    return MIN(all, most);
}

/* Where window `index` of the n that an evaluation scores begins: one after the other if they cover
 * the held-out part, else spread evenly. */
static size_t val_window_start(const struct trainer *t, size_t index, size_t n)
{
    const size_t length = t->spec.length, tokens = t->val.n;
    if (n < 2 || n * length + length >= tokens)
        return index * length;
    return (size_t)((double)index / (n - 1) * (tokens - 1 - length));
}

/* The window that starts at token `start` becomes row `row` of the batch. */
static void put_window(struct trainer *t, const struct tokens *tokens, size_t start, int row)
{
    const size_t n = t->spec.length;
    assert(tokens->n > n && start < tokens->n - n);
    memcpy(t->inputs + row * n, tokens->ids + start, n * sizeof *t->inputs);
    memcpy(t->targets + row * n, tokens->ids + start + 1, n * sizeof *t->targets);
}

enum status trainer_val_loss(struct trainer *t, double *loss, struct err *e)
{
    const size_t n = trainer_val_windows(t);
    double sum = 0;
    for (size_t done = 0; done < n;) {
        int rows = 0;
        for (; rows < t->spec.batch && done + rows < n; rows++)
            put_window(t, &t->val, val_window_start(t, done + rows, n), rows);
        const struct backprop_batch batch = {
            .inputs = t->inputs, .targets = t->targets, .n_sequences = rows};
        sum += rows * backprop_run(t->engine, &t->weights, &batch, NULL);
        done += rows;
    }
    *loss = sum / n;
    return isfinite(*loss) ? STATUS_OK : not_finite(t, "held-out loss", *loss, e);
}

/* --- a step ---------------------------------------------------------------------------------- */

double train_rate(const struct train_spec *spec, int step)
{
    if (step < spec->warmup)
        return spec->lr * (step + 1) / spec->warmup;
    /* The last step has the least rate. */
    const double done = (double)(step + 1 - spec->warmup) / (spec->n_steps - spec->warmup);
    const double wave = 0.5 * (1 + cos(PI * done));
    return spec->lr * (LEAST_RATE + (1 - LEAST_RATE) * wave);
}

/* This thread's shards of the gradient, and of the weights that they move. */
static struct range own_shards(const struct trainer *t, int thread)
{
    return pool_range(n_shards(t), thread, pool_n_threads(t->spec.pool));
}

static void sum_shards(void *arg, int thread)
{
    const struct trainer *t = arg;
    const struct range own = own_shards(t, thread);
    for (int i = own.begin; i < own.end; i++) {
        const size_t first = i * SHARD, left = t->list.n_trained - first;
        t->partials[i] = (double)t->grad->squares(t->gradient.flat + first, MIN(left, SHARD));
    }
}

static void update_floats(const struct trainer *t, const struct adamw *step, size_t first, size_t n)
{
    t->grad->adamw(step, t->weights.flat + first, t->m + first, t->v + first,
                   t->gradient.flat + first, n);
}

static void update_share(void *arg, int thread)
{
    const struct trainer *t = arg;
    const struct range own = own_shards(t, thread);
    for (int i = 0; i < t->list.n; i++) {
        const struct param *p = &t->list.items[i];
        size_t first = MAX(p->offset, own.begin * SHARD);
        const size_t end = MIN(p->offset + spec_elements(&p->spec), own.end * SHARD);
        if (first >= end || p->spec.flags & SPEC_FIXED || !param_is_trained(&t->list, p) ||
            muon_moves(&t->spec, &p->spec))
            continue;
        struct adamw step = t->adamw;
        if (!(p->spec.flags & SPEC_DECAYS))
            step.decay = 0;
        if (p->spec.role != ROLE_ATTN_REL) {
            update_floats(t, &step, first, end - first);
            continue;
        }
        struct adamw centre = step; /* of a head behind its alpha */
        centre.rate *= CENTRE_RATE;
        for (; first < end; first += 2) {
            update_floats(t, &step, first, 1);
            update_floats(t, &centre, first + 1, 1);
        }
    }
    if (t->spec.optimizer == OPTIMIZER_MUON)
        muon_step(t, thread);
}

/* Returns the failure of a step; if it is the teacher's, whose predictions of the step's windows
 * are not finite, STATUS_BAD_FILE. */
static enum status blame_teacher(const struct trainer *t, const struct backprop_batch *batch,
                                 enum status s, struct err *e)
{
    if (s != STATUS_FAILED || !t->teacher ||
        isfinite(backprop_run(t->teacher, &t->teacher_weights, batch, NULL)))
        return s;
    return err_bad_file(e,
                        "%s: what the teacher predicts is not finite (info --check finds tensors "
                        "that are not)",
                        t->spec.teacher_path ? t->spec.teacher_path : "--teacher");
}

enum status trainer_update(struct trainer *t, struct train_event *event, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    const int step = t->progress.step;
    double squares = 0;
    pool_run(spec->pool, sum_shards, t);
    for (size_t i = 0; i < n_shards(t); i++)
        squares += t->partials[i];
    event->norm = sqrt(squares);
    if (!isfinite(event->norm))
        return not_finite(t, "gradient's norm", event->norm, e);
    event->lr = train_rate(spec, step);
    assert(step < spec->n_steps);
    const bool clipped = spec->clip > 0 && event->norm > spec->clip;
    t->adamw = (struct adamw){.scale = clipped ? (float)(spec->clip / event->norm) : 1,
                              .beta1 = (float)BETA1,
                              .beta2 = (float)BETA2,
                              .rate = (float)(event->lr / (1 - pow(BETA1, step + 1))),
                              .root = (float)(1 / sqrt(1 - pow(BETA2, step + 1))),
                              .eps = ADAM_EPS,
                              .decay = (float)(event->lr * spec->weight_decay)};
    t->muon.rate = event->lr;
    pool_run(spec->pool, update_share, t);
    t->progress.step++;
    return STATUS_OK;
}

enum status trainer_step(struct trainer *t, struct train_event *event, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    const size_t length = spec->length, n_starts = t->train.n - length;
    const int step = t->progress.step;
    struct rng r; /* of this step, whatever came before */
    rng_seed(&r, spec->seed, STREAM_DROPOUT + step);
    const uint64_t high = rng_u32(&r);
    const struct backprop_batch batch = {.inputs = t->inputs,
                                         .targets = t->targets,
                                         .n_sequences = spec->batch,
                                         .dropout = {spec->dropout, high << 32 | rng_u32(&r)},
                                         .attn_dropout = spec->attn_dropout,
                                         .label_smoothing = (float)spec->label_smoothing,
                                         .teacher = t->teacher,
                                         .loss = spec->loss,
                                         .teacher_weights = &t->teacher_weights};
    for (int row = 0; row < spec->batch; row++) {
        const size_t start = rng_unit(&t->progress.rng) * n_starts;
        put_window(t, &t->train, start, row);
    }
    event->loss = backprop_run(t->engine, &t->weights, &batch, &t->gradient);
    const enum status s =
        isfinite(event->loss) ? trainer_update(t, event, e) : not_finite(t, "loss", event->loss, e);
    return blame_teacher(t, &batch, s, e);
}
