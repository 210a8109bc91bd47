#include "convert/work.h"

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

/* --- memory ---------------------------------------------------------------------------------- */

static double *take_numbers(struct arena *arena, int rows, int cols)
{
    return arena_take(arena, (uint64_t)rows * (uint64_t)cols, sizeof(double));
}

static struct convert_weights take_weights(const struct converter *c, struct arena *arena,
                                           int n_kv_heads)
{
    const int k = n_kv_heads * c->qk.dim, v = n_kv_heads * c->ov.dim;
    return (struct convert_weights){
        .q = take_numbers(arena, c->qk.width, c->d),
        .k = take_numbers(arena, k, c->d),
        .v = take_numbers(arena, v, c->d),
        .o = take_numbers(arena, c->ov.width, c->d),
        .bq = take_numbers(arena, c->qk.width, 1),
        .bk = take_numbers(arena, k, 1),
        .bv = take_numbers(arena, v, 1),
        .bo = take_numbers(arena, c->d, 1),
    };
}

static struct convert_ffn take_ffn(const struct converter *c, struct arena *arena)
{
    const bool gated = ffn_is_gated(c->config.ffn);
    const int d_ff = c->config.d_ff;
    return (struct convert_ffn){
        .up = take_numbers(arena, d_ff, c->d),
        .gate = gated ? take_numbers(arena, d_ff, c->d) : NULL,
        .down = take_numbers(arena, d_ff, c->d),
        .bup = take_numbers(arena, d_ff, 1),
        .bgate = gated ? take_numbers(arena, d_ff, 1) : NULL,
        .bdown = take_numbers(arena, c->d, 1),
    };
}

static struct convert_moments take_moments(const struct converter *c, struct arena *arena)
{
    return (struct convert_moments){
        .keys = take_numbers(arena, c->widest, c->d),
        .values = take_numbers(arena, c->widest, c->widest),
        .mean = take_numbers(arena, c->d, 1),
    };
}

static void take_circuit(const struct converter *c, struct arena *arena, struct convert_circuit *s)
{
    const int kv = c->n_kv_heads * s->dim;
    s->mean = take_numbers(arena, kv, 1);
    s->new_mean = take_numbers(arena, kv, 1);
    s->gram = take_numbers(arena, kv, kv);
    s->metric = take_numbers(arena, s->width, s->dim);
    s->root = take_numbers(arena, s->width, s->dim);
    s->white = take_numbers(arena, s->width, s->width);
    s->in = take_numbers(arena, s->width, s->dim);
    s->out = take_numbers(arena, s->width, s->dim);
}

/* What a group's eigenproblem needs, or its alignment. */
static struct convert_eigen take_eigen(const struct converter *c, struct arena *arena, int dim)
{
    const int n = dim * largest_group(c);
    const uint64_t own = linalg_eigen_scratch(n, true), least = 2 * (uint64_t)dim * (uint64_t)dim;
    return (struct convert_eigen){
        .matrix = take_numbers(arena, n, n),
        .values = take_numbers(arena, n, 1),
        .vectors = take_numbers(arena, dim, n),
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
    c->square = take_numbers(arena, c->widest, c->d);
    c->square2 = take_numbers(arena, c->widest, c->d);
    c->blocks = take_numbers(arena, CONVERT_BLOCKS * dim, dim);
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
