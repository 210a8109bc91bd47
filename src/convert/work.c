#include "convert/work.h"

#include "compute/linalg.h"

/* --- sizes ----------------------------------------------------------------------------------- */

static int most_kv_heads(const struct config *c)
{
    int most = 0;
    for (int l = 0; l < c->n_layers; l++)
        most = config_kv_heads(c, l) > most ? config_kv_heads(c, l) : most;
    return most;
}

enum status convert_work_describe(struct converter *c, const struct convert_spec *spec,
                                  struct err *e)
{
    *c = (struct converter){.spec = spec};
    enum status s = config_read(spec->gguf, &c->config, e);
    if (s == STATUS_OK)
        s = convert_spec_check(spec, &c->config, e);
    if (s != STATUS_OK)
        return s;
    c->converted = c->config;
    c->converted.n_kv_heads = spec->n_kv_heads;
    c->d = c->config.d_model;
    c->dim = c->config.head_dim;
    c->n_heads = c->config.n_heads;
    c->q_dim = config_q_dim(&c->config);
    c->n_kv_heads = most_kv_heads(&c->config);
    c->n_groups = spec->n_kv_heads;
    c->group = c->n_heads / c->n_groups;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

static double *take_numbers(struct arena *arena, int rows, int cols)
{
    return arena_take(arena, (uint64_t)rows * (uint64_t)cols, sizeof(double));
}

static struct convert_weights take_weights(const struct converter *c, struct arena *arena,
                                           int n_kv_heads)
{
    const int kv = n_kv_heads * c->dim;
    return (struct convert_weights){
        .q = take_numbers(arena, c->q_dim, c->d),
        .k = take_numbers(arena, kv, c->d),
        .v = take_numbers(arena, kv, c->d),
        .o = take_numbers(arena, c->q_dim, c->d),
        .bq = take_numbers(arena, c->q_dim, 1),
        .bk = take_numbers(arena, kv, 1),
        .bv = take_numbers(arena, kv, 1),
        .bo = take_numbers(arena, c->d, 1),
    };
}

static struct convert_moments take_moments(const struct converter *c, struct arena *arena)
{
    const int most = c->q_dim > c->d ? c->q_dim : c->d;
    return (struct convert_moments){
        .second = take_numbers(arena, most, most),
        .keys = take_numbers(arena, most, c->d),
        .values = take_numbers(arena, c->d, c->d),
        .mean = take_numbers(arena, c->d, 1),
    };
}

static struct convert_circuit take_circuit(const struct converter *c, struct arena *arena)
{
    const int kv = c->n_kv_heads * c->dim;
    return (struct convert_circuit){
        .gram = take_numbers(arena, kv, kv),
        .metric = take_numbers(arena, c->q_dim, c->dim),
        .root = take_numbers(arena, c->q_dim, c->dim),
        .white = take_numbers(arena, c->q_dim, c->q_dim),
        .in = take_numbers(arena, c->q_dim, c->dim),
        .out = take_numbers(arena, c->q_dim, c->dim),
    };
}

/* What a group's eigenproblem needs, or its alignment. */
static struct convert_eigen take_eigen(const struct converter *c, struct arena *arena)
{
    const int dim = c->dim, n = dim * c->group;
    const uint64_t own = linalg_eigen_scratch(n, true), least = 2 * (uint64_t)dim * (uint64_t)dim;
    return (struct convert_eigen){
        .matrix = c->group > 1 ? take_numbers(arena, n, n) : take_numbers(arena, 3 * dim, dim),
        .values = take_numbers(arena, n, 1),
        .vectors = take_numbers(arena, dim, n),
        .scratch = arena_take(arena, own > least ? own : least, sizeof(double)),
    };
}

void convert_work_take(struct converter *c, struct arena *arena)
{
    const uint64_t n_heads = (uint64_t)c->n_heads;
    const uint64_t n_threads = (uint64_t)pool_n_threads(c->spec->pool);
    c->from = take_weights(c, arena, c->n_kv_heads);
    c->to = take_weights(c, arena, c->n_groups);
    c->moments = take_moments(c, arena);
    c->qk = take_circuit(c, arena);
    c->ov = take_circuit(c, arena);
    c->square = take_numbers(arena, c->q_dim, c->d);
    c->square2 = take_numbers(arena, c->q_dim, c->d);
    c->blocks = take_numbers(arena, CONVERT_BLOCKS * c->dim, c->dim);
    c->order = arena_take(arena, n_heads, sizeof *c->order);
    c->group_of = arena_take(arena, n_heads, sizeof *c->group_of);
    c->diverged = arena_take(arena, n_threads, sizeof *c->diverged);
    c->eigen = arena_take(arena, n_threads, sizeof *c->eigen);
    for (uint64_t i = 0; i < n_threads; i++) {
        const struct convert_eigen eigen = take_eigen(c, arena);
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
