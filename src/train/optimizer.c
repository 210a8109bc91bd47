/* Initialisation, learning rate, clipping and AdamW. */
#include <assert.h>
#include <math.h>

#include "train/private.h"

#define BETA1          0.9
#define ADAM_EPS       1e-8f
#define INIT_DEVIATION 0.02
#define LEAST_RATE     0.1 /* of the full one, at the last step */

/* Floats whose squares are summed by one kernel call. */
#define SHARD ((size_t)4096)

static size_t n_shards(const struct param_list *list)
{
    return (list->n_floats + SHARD - 1) / SHARD;
}

void optimizer_take(struct optimizer *o, struct arena *arena, const struct config *c)
{
    o->weights = param_view_take(arena, o->list, c);
    o->gradient = param_view_take(arena, o->list, c);
    o->m = arena_take(arena, o->list->n_floats, sizeof(float));
    o->v = arena_take(arena, o->list->n_floats, sizeof(float));
    o->partials = arena_take(arena, n_shards(o->list), sizeof(double));
}

/* --- initialisation -------------------------------------------------------------------------- */

/* Box and Muller 1958. */
static double normal(struct rng *r)
{
    const double radius = sqrt(-2 * log(1 - rng_unit(r)));
    return radius * cos(2 * 3.14159265358979323846 * rng_unit(r));
}

/* Of a tensor with two dimensions. */
static double deviation_of(const struct tensor_spec *spec, const struct config *c)
{
    const bool original = c->placement == PLACEMENT_AFTER || c->position == POSITION_SINUSOIDAL;
    if (original && spec->role == ROLE_TOKEN_EMBD)
        return 1 / sqrt(c->d_model);
    if (original && spec->form == FORM_MATRIX)
        return sqrt(2.0 / (spec->rows + spec->cols));
    return spec->flags & SPEC_RESIDUAL ? INIT_DEVIATION / sqrt(2.0 * c->n_layers) : INIT_DEVIATION;
}

void optimizer_initialise(struct optimizer *o, const struct config *c, struct rng *r)
{
    for (int i = 0; i < o->list->n; i++) {
        const struct tensor_spec *spec = &o->list->items[i].spec;
        float *w = o->weights.flat + o->list->items[i].offset;
        const double deviation = deviation_of(spec, c);
        for (int h = 0; h < spec->rows && spec->role == ROLE_ATTN_REL; h++) {
            w[2 * h] = 0.5f / (float)((h + 1) * (h + 1)); /* alpha */
            w[2 * h + 1] = (float)h;                      /* centre */
        }
        for (size_t j = 0; j < spec_elements(spec) && spec->role != ROLE_ATTN_REL; j++)
            w[j] = spec->n_dims > 1 ? (float)(deviation * normal(r)) : !spec->is_bias;
    }
}

/* --- a step ---------------------------------------------------------------------------------- */

double train_rate(const struct train_spec *spec, int step)
{
    if (step < spec->warmup)
        return spec->lr * (step + 1) / spec->warmup;
    /* The last step has the least rate. */
    const double done = (double)(step + 1 - spec->warmup) / (spec->n_steps - spec->warmup);
    const double wave = 0.5 * (1 + cos(3.14159265358979323846 * done));
    return spec->lr * (LEAST_RATE + (1 - LEAST_RATE) * wave);
}

static void sum_shards(void *arg, int thread)
{
    const struct optimizer *o = arg;
    int begin, end;
    pool_share((int)n_shards(o->list), thread, pool_n_threads(o->spec->pool), &begin, &end);
    for (int i = begin; i < end; i++) {
        const size_t first = (size_t)i * SHARD, left = o->list->n_floats - first;
        o->partials[i] =
            (double)o->kernels->squares(o->gradient.flat + first, left < SHARD ? left : SHARD);
    }
}

double optimizer_norm(struct optimizer *o)
{
    pool_run(o->spec->pool, sum_shards, o);
    double sum = 0;
    for (size_t i = 0; i < n_shards(o->list); i++)
        sum += o->partials[i];
    return sqrt(sum);
}

struct update {
    const struct optimizer *o;
    struct adamw step;
    float decay;
};

static void update_share(void *arg, int thread)
{
    const struct update *u = arg;
    const struct optimizer *o = u->o;
    for (int i = 0; i < o->list->n; i++) {
        const struct param *p = &o->list->items[i];
        int begin, end;
        pool_share(p->spec.rows, thread, pool_n_threads(o->spec->pool), &begin, &end);
        if (begin == end || p->spec.flags & SPEC_FIXED)
            continue;
        struct adamw step = u->step;
        step.decay = p->spec.flags & SPEC_DECAYS ? u->decay : 0;
        const size_t first = p->offset + (size_t)begin * (size_t)p->spec.cols;
        o->kernels->adamw(&step, o->weights.flat + first, o->m + first, o->v + first,
                          o->gradient.flat + first, (size_t)(end - begin) * (size_t)p->spec.cols);
    }
}

void optimizer_step(struct optimizer *o, double norm)
{
    const struct train_spec *spec = o->spec;
    const double lr = train_rate(spec, o->step);
    assert(isfinite(norm) && o->step < spec->n_steps);
    o->step++;
    const bool clipped = spec->clip > 0 && norm > spec->clip;
    struct update u = {
        .o = o,
        .step = {.scale = clipped ? (float)(spec->clip / norm) : 1,
                 .beta1 = (float)BETA1,
                 .beta2 = (float)spec->beta2,
                 .rate = (float)(lr / (1 - pow(BETA1, o->step))),
                 .root = (float)(1 / sqrt(1 - pow(spec->beta2, o->step))),
                 .eps = ADAM_EPS},
        .decay = (float)(lr * spec->weight_decay),
    };
    pool_run(spec->pool, update_share, &u);
}
