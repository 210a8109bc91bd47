#include "convert/work.h"

#include <string.h>

#include "compute/linalg.h"

/* --- sizes ----------------------------------------------------------------------------------- */

/* Heads a group, where heads come to share most. */
static int largest_group(const struct converter *c)
{
    int most = 1;
    for (int l = 0; l < c->config.n_layers; l++) {
        const int group = config_group(&c->converted, l);
        most = group > most ? group : most;
    }
    return most;
}

enum status convert_work_describe(struct converter *c, const struct convert_spec *spec,
                                  struct err *e)
{
    *c = (struct converter){.spec = spec};
    TRY(config_read(spec->gguf, &c->config, e));
    TRY(convert_spec_check(spec, &c->config, e));
    const struct config *f = &c->config;
    c->converted = *f;
    c->converted.n_kv_heads = spec->n_kv_heads;
    if (spec->latent)
        config_set_latent(&c->converted, spec->latent[0]);
    for (int l = 0; l < f->n_layers; l++)
        if (spec->latent)
            c->converted.latent[l] = (int32_t)spec->latent[l];
        else if (spec->layer_kv_heads)
            c->converted.layer_kv_heads[l] = spec->layer_kv_heads[l];
    c->d = f->d_model;
    c->n_heads = f->n_heads;
    c->n_kv_heads = f->n_kv_heads;
    c->n_groups = c->converted.n_kv_heads;
    c->qk.dim = f->head_dim;
    c->qk.width = config_q_dim(f);
    c->ov.dim = config_value_dim(f);
    c->ov.width = config_heads_dim(f);
    c->widest = c->qk.width > c->ov.width ? c->qk.width : c->ov.width;
    c->widest = c->widest > c->d ? c->widest : c->d;
    if (convert_refits_block(c) && f->d_ff > c->widest)
        c->widest = f->d_ff;
    return STATUS_OK;
}

void convert_work_begin(struct converter *c, int block)
{
    c->block = block;
    c->first = block;
    c->end = c->config.shared ? c->config.n_layers : block + 1;
    c->n_kv_heads = config_kv_heads(&c->config, block);
    c->n_groups = config_kv_heads(&c->converted, block);
    c->group = c->n_heads / c->n_groups;
}

/* --- copies ---------------------------------------------------------------------------------- */

void convert_copy_numbers(double *to, const double *from, int rows, int cols)
{
    if (to)
        memcpy(to, from, (size_t)rows * (size_t)cols * sizeof *to);
}

void convert_copy_weights(const struct converter *c, const struct convert_weights *to,
                          const struct convert_weights *from)
{
    const int k = c->n_groups * c->qk.dim, v = c->n_groups * c->ov.dim;
    convert_copy_numbers(to->q, from->q, c->qk.width, c->d);
    convert_copy_numbers(to->k, from->k, k, c->d);
    convert_copy_numbers(to->v, from->v, v, c->d);
    convert_copy_numbers(to->o, from->o, c->ov.width, c->d);
    convert_copy_numbers(to->bq, from->bq, c->qk.width, 1);
    convert_copy_numbers(to->bk, from->bk, k, 1);
    convert_copy_numbers(to->bv, from->bv, v, 1);
    convert_copy_numbers(to->bo, from->bo, c->d, 1);
}

/* --- memory ---------------------------------------------------------------------------------- */

static struct convert_weights take_weights(const struct converter *c, struct arena *arena,
                                           int n_kv_heads)
{
    const int k = n_kv_heads * c->qk.dim, v = n_kv_heads * c->ov.dim;
    return (struct convert_weights){
        .q = convert_take_doubles(arena, c->qk.width, c->d),
        .k = convert_take_doubles(arena, k, c->d),
        .v = convert_take_doubles(arena, v, c->d),
        .o = convert_take_doubles(arena, c->ov.width, c->d),
        .bq = convert_take_doubles(arena, c->qk.width, 1),
        .bk = convert_take_doubles(arena, k, 1),
        .bv = convert_take_doubles(arena, v, 1),
        .bo = convert_take_doubles(arena, c->d, 1),
    };
}

static struct convert_ffn take_ffn(const struct converter *c, struct arena *arena)
{
    const bool gated = ffn_is_gated(c->config.ffn);
    const int d_ff = c->config.d_ff;
    return (struct convert_ffn){
        .up = convert_take_doubles(arena, d_ff, c->d),
        .gate = gated ? convert_take_doubles(arena, d_ff, c->d) : NULL,
        .down = convert_take_doubles(arena, d_ff, c->d),
        .bup = convert_take_doubles(arena, d_ff, 1),
        .bgate = gated ? convert_take_doubles(arena, d_ff, 1) : NULL,
        .bdown = convert_take_doubles(arena, c->d, 1),
    };
}

static struct convert_moments take_moments(const struct converter *c, struct arena *arena)
{
    return (struct convert_moments){
        .keys = convert_take_doubles(arena, c->widest, c->d),
        .values = convert_take_doubles(arena, c->widest, c->widest),
        .mean = convert_take_doubles(arena, c->d, 1),
    };
}

static void take_circuit(const struct converter *c, struct arena *arena, struct convert_circuit *s)
{
    const int kv = c->n_kv_heads * s->dim;
    s->mean = convert_take_doubles(arena, kv, 1);
    s->new_mean = convert_take_doubles(arena, kv, 1);
    s->gram = convert_take_doubles(arena, kv, kv);
    s->metric = convert_take_doubles(arena, s->width, s->dim);
    s->root = convert_take_doubles(arena, s->width, s->dim);
    s->white = convert_take_doubles(arena, s->width, s->width);
    s->in = convert_take_doubles(arena, s->width, s->dim);
    s->out = convert_take_doubles(arena, s->width, s->dim);
}

/* What a group's eigenproblem needs, or its alignment. */
static struct convert_eigen take_eigen(const struct converter *c, struct arena *arena, int dim)
{
    const int n = dim * largest_group(c);
    const uint64_t own = linalg_eigen_scratch(n, true), least = 2 * (uint64_t)dim * (uint64_t)dim;
    return (struct convert_eigen){
        .matrix = convert_take_doubles(arena, n, n),
        .values = convert_take_doubles(arena, n, 1),
        .vectors = convert_take_doubles(arena, dim, n),
        .scratch = arena_take(arena, own > least ? own : least, sizeof(double)),
    };
}

void convert_work_take(struct converter *c, struct arena *arena)
{
    const uint64_t n_heads = (uint64_t)c->n_heads;
    const uint64_t n_threads = (uint64_t)pool_n_threads(c->spec->pool);
    const int dim = c->qk.dim > c->ov.dim ? c->qk.dim : c->ov.dim;
    c->from = take_weights(c, arena, c->n_kv_heads);
    c->to = take_weights(c, arena, c->n_groups);
    if (c->spec->refit)
        c->kept = take_weights(c, arena, c->n_groups);
    if (convert_refits_block(c)) {
        c->ffn = take_ffn(c, arena);
        c->kept_ffn = take_ffn(c, arena);
    }
    c->moments = take_moments(c, arena);
    take_circuit(c, arena, &c->qk);
    take_circuit(c, arena, &c->ov);
    c->square = convert_take_doubles(arena, c->widest, c->d);
    c->square2 = convert_take_doubles(arena, c->widest, c->d);
    c->blocks = convert_take_doubles(arena, CONVERT_BLOCKS * dim, dim);
    c->order = arena_take(arena, n_heads, sizeof *c->order);
    c->group_of = arena_take(arena, n_heads, sizeof *c->group_of);
    c->diverged = arena_take(arena, n_threads, sizeof *c->diverged);
    c->eigen = arena_take(arena, n_threads, sizeof *c->eigen);
    for (uint64_t i = 0; i < n_threads; i++) {
        const struct convert_eigen eigen = take_eigen(c, arena, dim);
        if (c->eigen)
            c->eigen[i] = eigen;
    }
}

bool convert_any_diverged(const struct converter *c)
{
    bool any = false;
    for (int thread = 0; thread < pool_n_threads(c->spec->pool); thread++)
        any |= c->diverged[thread];
    return any;
}

enum status convert_diverged(const struct converter *c, const char *advice, struct err *e)
{
    return err_set(e, STATUS_FAILED,
                   "layer %d: the eigenvalues of its attention cannot be computed: weights of "
                   "attention or its norm are not finite or too large%s",
                   c->block, advice);
}
