#include "convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/private.h"
#include "gguf/blocks.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};

/* --- on all threads -------------------------------------------------------------------------- */

struct product_rows {
    struct linalg_product product;
    int rows, n_threads;
};

static void add_rows(void *arg, int thread)
{
    const struct product_rows *job = arg;
    int begin, end;
    pool_share(job->rows, thread, job->n_threads, &begin, &end);
    linalg_add_product(&job->product, begin, end);
}

static void add_product(struct pool *pool, const struct linalg_product *p, int rows)
{
    struct product_rows job = {.product = *p, .rows = rows, .n_threads = pool_n_threads(pool)};
    pool_run(pool, add_rows, &job);
}

void convert_multiply(struct pool *pool, double *c, const double *a, const double *b, int m, int k,
                      int n)
{
    const struct linalg_product p = {.c = c,
                                     .c_stride = (size_t)n,
                                     .a = a,
                                     .a_row = (size_t)k,
                                     .a_inner = 1,
                                     .b = b,
                                     .b_stride = (size_t)n,
                                     .inner = k,
                                     .columns = n};
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
    add_product(pool, &p, m);
}

void convert_multiply_transposed(struct pool *pool, double *c, const double *a, const double *b,
                                 int m, int k, int n, double *scratch)
{
    linalg_transpose(scratch, b, n, k);
    convert_multiply(pool, c, a, scratch, m, k, n);
}

void convert_add_outer(struct pool *pool, double *c, const double *a, const double *b, int n, int d)
{
    const struct linalg_product p = {.c = c,
                                     .c_stride = (size_t)d,
                                     .a = a,
                                     .a_row = 1,
                                     .a_inner = (size_t)d,
                                     .b = b,
                                     .b_stride = (size_t)d,
                                     .inner = n,
                                     .columns = d};
    add_product(pool, &p, d);
}

/* --- memory ---------------------------------------------------------------------------------- */

void *convert_carve(struct convert_carver *c, uint64_t count, uint64_t size)
{
    if (c->arena)
        return arena_take(c->arena, count, size);
    mem_plan_add(&c->plan, count, size);
    return NULL;
}

static double *carve_numbers(struct convert_carver *carver, uint64_t count)
{
    return convert_carve(carver, count, sizeof(double));
}

static void carve_weights(const struct converter *c, struct convert_carver *carver,
                          struct convert_weights *w, int kv_heads)
{
    const uint64_t d = (uint64_t)c->d, kv = (uint64_t)(kv_heads * c->dim);
    w->q = carve_numbers(carver, d * d);
    w->k = carve_numbers(carver, kv * d);
    w->v = carve_numbers(carver, kv * d);
    w->o = carve_numbers(carver, d * d);
    w->bq = carve_numbers(carver, d);
    w->bk = carve_numbers(carver, kv);
    w->bv = carve_numbers(carver, kv);
    w->bo = carve_numbers(carver, d);
}

static void carve_side(const struct converter *c, struct convert_carver *carver,
                       struct convert_side *s)
{
    const uint64_t d = (uint64_t)c->d, kv = (uint64_t)(c->n_units * c->dim);
    const uint64_t blocks = d * (uint64_t)c->dim;
    s->gram = carve_numbers(carver, kv * kv);
    s->metric = carve_numbers(carver, blocks);
    s->root = carve_numbers(carver, blocks);
    s->white = carve_numbers(carver, d * d);
    s->in = carve_numbers(carver, blocks);
    s->out = carve_numbers(carver, blocks);
}

static void carve_moments(const struct converter *c, struct convert_carver *carver,
                          struct convert_moments *m)
{
    const uint64_t d = (uint64_t)c->d;
    m->second = carve_numbers(carver, d * d);
    m->keys = carve_numbers(carver, d * d);
    m->values = carve_numbers(carver, d * d);
    m->mean = carve_numbers(carver, d);
}

/* What a group's eigenproblem needs, or its alignment. */
static void carve_eigen(const struct converter *c, struct convert_carver *carver,
                        struct convert_eigen *eigen)
{
    const uint64_t dim = (uint64_t)c->dim, n = dim * (uint64_t)c->group;
    const uint64_t own = linalg_eigen_scratch((int)n, true);
    double *matrix = carve_numbers(carver, n * n > 3 * dim * dim ? n * n : 3 * dim * dim);
    double *values = carve_numbers(carver, n);
    double *vectors = carve_numbers(carver, dim * n);
    double *scratch = carve_numbers(carver, own > 2 * dim * dim ? own : 2 * dim * dim);
    if (carver->arena)
        *eigen = (struct convert_eigen){matrix, values, vectors, scratch};
}

/* Everything that convert_run works in. */
static void carve_work(struct converter *c, struct convert_carver *carver)
{
    const uint64_t d = (uint64_t)c->d, n_threads = (uint64_t)pool_n_threads(c->spec->pool);
    carve_weights(c, carver, &c->from, c->n_units);
    carve_weights(c, carver, &c->to, c->n_groups);
    carve_moments(c, carver, &c->moments);
    carve_side(c, carver, &c->keys);
    carve_side(c, carver, &c->values);
    c->square = carve_numbers(carver, d * d);
    c->square2 = carve_numbers(carver, d * d);
    c->blocks = carve_numbers(carver, CONVERT_BLOCKS * (uint64_t)c->dim * (uint64_t)c->dim);
    c->order = convert_carve(carver, (uint64_t)c->n_heads, sizeof *c->order);
    c->group_of = convert_carve(carver, (uint64_t)c->n_heads, sizeof *c->group_of);
    c->diverged = convert_carve(carver, n_threads, sizeof *c->diverged);
    c->eigen = convert_carve(carver, n_threads, sizeof *c->eigen);
    for (uint64_t i = 0; i < n_threads; i++)
        carve_eigen(c, carver, carver->arena ? &c->eigen[i] : NULL);
    if (c->spec->cluster) {
        const uint64_t n = convert_group_costs(c->n_heads, c->group);
        const uint64_t size = (uint64_t)(c->group > 2 ? c->group : 2);
        c->costs = convert_carve(carver, n, sizeof *c->costs);
        c->sets = convert_carve(carver, n * size, sizeof *c->sets);
    }
    if (c->spec->n_tokens)
        convert_carve_calibration(c, carver);
}

static void carve_result(struct converter *c, struct convert_carver *carver, struct convert *out,
                         struct convert_tensors **tensors)
{
    const uint64_t n = (uint64_t)c->config.n_layers;
    out->layers = convert_carve(carver, n, sizeof *out->layers);
    *tensors = convert_carve(carver, n, sizeof **tensors);
    convert_carve_tensors(c, carver, *tensors);
}

/* --- the specification ----------------------------------------------------------------------- */

static enum status check_tensors(const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!blocks_runs(g->tensors[i].type->type))
            return err_set(e, STATUS_BAD_FILE,
                           "tensor %.*s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                           text_width(g->tensors[i].name), g->tensors[i].name.data,
                           g->tensors[i].type->name);
    return STATUS_OK;
}

static enum status check_spec(const struct convert_spec *spec, const struct config *config,
                              struct err *e)
{
    const int g = spec->n_kv_heads;
    if (g < 1 || config->n_heads % g != 0)
        return err_set(e, STATUS_USAGE, "%d K/V heads: expected a divisor of the %d query heads", g,
                       config->n_heads);
    if (g > config->n_kv_heads)
        return err_set(e, STATUS_USAGE, "%d K/V heads: the checkpoint has only %d", g,
                       config->n_kv_heads);
    if (spec->refit && spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "the output matrix can only be refitted on text");
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i] < 0 || spec->tokens[i] >= config->n_vocab)
            return err_set(e, STATUS_USAGE, "token %zu: expected an id from 0 to %d, found %d", i,
                           config->n_vocab - 1, (int)spec->tokens[i]);
    return STATUS_OK;
}

static enum status begin(const struct convert_spec *spec, struct converter *c, struct err *e)
{
    *c = (struct converter){.spec = spec};
    enum status s = config_read(spec->gguf, &c->config, e);
    if (s == STATUS_OK)
        s = check_spec(spec, &c->config, e);
    if (s == STATUS_OK)
        s = check_tensors(spec->gguf, e);
    if (s != STATUS_OK)
        return s;
    c->d = c->config.d_model;
    c->dim = c->config.head_dim;
    c->n_heads = c->config.n_heads;
    c->n_units = c->config.n_kv_heads;
    c->n_groups = spec->n_kv_heads;
    c->group = c->n_heads / c->n_groups;
    return STATUS_OK;
}

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    struct converter c;
    const enum status s = begin(spec, &c, e);
    if (s != STATUS_OK)
        return s;
    struct convert out;
    struct convert_tensors *tensors;
    struct convert_carver carver = {.arena = NULL};
    carve_work(&c, &carver);
    carve_result(&c, &carver, &out, &tensors);
    if (carver.plan.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    *bytes = carver.plan.bytes;
    return STATUS_OK;
}

/* --- the conversion -------------------------------------------------------------------------- */

static enum status diverged(int layer, struct err *e)
{
    return err_set(
        e, STATUS_FAILED,
        "layer %d: the eigenvalues of its attention cannot be computed: weights of attention "
        "or its norm are not finite or too large; the methods mean and first need none",
        layer);
}

/* to.q, k, v and o with their heads in the new order. */
static enum status convert_heads(struct converter *c, int layer, struct convert_layer *lost,
                                 struct err *e)
{
    convert_measure(c);
    if (!convert_group(c) || !convert_map(c))
        return diverged(layer, e);
    convert_apply(c, layer);
    lost->score = convert_score_loss(c);
    lost->output = convert_output_loss(c);
    convert_permute(c);
    return STATUS_OK;
}

static enum status convert_one(struct converter *c, int layer, struct convert_layer *lost,
                               struct convert_tensors *tensors, struct err *e)
{
    enum status s = STATUS_OK;
    convert_load(c, layer);
    if (c->calibration)
        s = convert_calibrate(c, layer);
    else
        convert_assume(c, layer);
    if (s == STATUS_OK)
        s = convert_heads(c, layer, lost, e);
    if (s == STATUS_OK)
        s = convert_store_qkv(c, layer, tensors, e);
    if (s == STATUS_OK && c->spec->refit)
        s = convert_refit(c, layer, &tensors[layer]);
    if (s == STATUS_OK)
        s = convert_store_out(c, layer, tensors, e);
    if (s == STATUS_OK && c->calibration)
        s = convert_advance(c, layer, &tensors[layer], &lost->output);
    return s;
}

static enum status convert_all(struct converter *c, struct convert *out,
                               struct convert_tensors *tensors, struct err *e)
{
    enum status s = c->spec->n_tokens ? convert_calibration_start(c, e) : STATUS_OK;
    for (int l = 0; l < c->config.n_layers && s == STATUS_OK; l++) {
        if (c->spec->stop && c->spec->stop(c->spec->arg))
            s = STATUS_INTERRUPTED;
        else
            s = convert_one(c, l, &out->layers[l], tensors, e);
    }
    if (s == STATUS_OK)
        s = convert_write(c, tensors, &out->writer, e);
    return s;
}

static enum status take_memory(struct converter *c, struct convert *out,
                               struct convert_tensors **tensors, struct err *e)
{
    struct convert_carver work = {.arena = NULL}, result = {.arena = NULL};
    carve_work(c, &work);
    carve_result(c, &result, out, tensors);
    enum status s = arena_create(&c->arena, &work.plan, "the conversion", e);
    if (s == STATUS_OK)
        s = arena_create(&out->arena, &result.plan, "the new tensors", e);
    if (s != STATUS_OK)
        return s;
    work.arena = &c->arena;
    result.arena = &out->arena;
    carve_work(c, &work);
    carve_result(c, &result, out, tensors);
    return STATUS_OK;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    struct converter c;
    struct convert_tensors *tensors;
    enum status s = begin(spec, &c, e);
    if (s != STATUS_OK)
        return s;
    /* Also checks every tensor's shape. */
    s = model_create(spec->gguf, NULL, spec->source, &c.model, e);
    if (s == STATUS_OK)
        s = take_memory(&c, out, &tensors, e);
    if (s == STATUS_OK)
        s = convert_all(&c, out, tensors, e);
    convert_calibration_end(&c);
    model_free(c.model);
    arena_free(&c.arena);
    out->n_layers = c.config.n_layers;
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}
