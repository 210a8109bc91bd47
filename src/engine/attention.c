#include "engine/attention.h"

#include <string.h>

#include "compute/angles.h"
#include "compute/pool.h"

/* A part: out [average_dim], max, sum. */
static size_t part_size(const struct attention *a)
{
    return (size_t)a->average_dim + 2;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

uint64_t attention_parts(const struct config *c, int n_rows, int cap)
{
    size_t dim = 0;
    for (int l = 0; l < c->n_layers; l++)
        dim = largest(dim, (size_t)config_average_dim(c, l));
    return (uint64_t)n_rows * (uint64_t)c->n_heads * (uint64_t)kv_cache_chunks(cap) * (dim + 2);
}

uint64_t attention_scratch(const struct config *c)
{
    size_t group = 0, dim = 0; /* the largest */
    for (int l = 0; l < c->n_layers; l++) {
        group = largest(group, (size_t)config_group(c, l));
        dim = largest(dim, (size_t)config_key_dim(c, l));
    }
    /* Scaled queries, scores, a key or the copies of panels. */
    return group * (dim + KERNEL_CHUNK) +
           dim * (config_is_latent(c) ? LATENT_PATCHES * KERNEL_LANES : 1);
}

static const float *row_qkv(const struct attention *a, int row)
{
    return a->qkv + (size_t)row * a->qkv_dim;
}

static float *part_of(const struct attention *a, int row, int head, int chunk)
{
    const struct config *c = &a->kv->config;
    const size_t index =
        ((size_t)row * (size_t)c->n_heads + (size_t)head) * (size_t)a->max_chunks + (size_t)chunk;
    return a->parts + index * part_size(a);
}

/* --- new keys and values --------------------------------------------------------------------- */

/* A head's row of queries or keys as scores take it: turned to its position, times a scale. */
static void place_row(const struct attention *a, int position, const float *x, float scale,
                      float *out)
{
    const float *turn = positions_turn(a->positions, position);
    if (turn) {
        a->kernels->rotate(out, x, turn, a->kv->config.rope.n_dims, a->key_dim, scale, false);
        return;
    }
    for (int i = 0; i < a->key_dim; i++)
        out[i] = x[i] * scale;
}

/* scratch is [key_dim]. */
static void store_row(const struct attention *a, int kv_head, int row, float *scratch)
{
    const struct config *c = &a->kv->config;
    const struct batch_row *r = &a->batch->rows[row];
    const float *keys = row_qkv(a, row) + config_q_dim(c);
    const float *k = keys + (size_t)kv_head * (size_t)a->key_dim;
    const float *v = keys + (size_t)a->n_kv_heads * (size_t)a->key_dim +
                     (size_t)kv_head * (size_t)a->average_dim;

    if (positions_turn(a->positions, r->position)) {
        place_row(a, r->position, k, 1, scratch);
        k = scratch;
    }
    kv_cache_put(a->kv, a->kernels, (struct kv_place){r->sequence, a->layer, kv_head}, r->position,
                 k, v);
}

void attention_store(const struct attention *a, float *scratch, int thread, int n_threads)
{
    const int n_rows = a->batch->n_rows;
    int begin, end;
    pool_share(a->n_kv_heads * n_rows, thread, n_threads, &begin, &end);
    for (int item = begin; item < end; item++)
        store_row(a, item / n_rows, item % n_rows, scratch);
}

/* --- weights --------------------------------------------------------------------------------- */

static float *weights_of(const struct attention *a, int row, int head)
{
    const size_t index = (size_t)row * (size_t)a->kv->config.n_heads + (size_t)head;
    return a->weights + index * (size_t)a->kv->shape.cap;
}

/* What attend left in `scores` of a group's heads for n positions of a chunk. */
static void keep_weights(const struct attention *a, int row, int first_head, int chunk, int n,
                         const float *scores)
{
    for (int h = 0; h < a->group; h++)
        memcpy(weights_of(a, row, first_head + h) + chunk * KERNEL_CHUNK,
               scores + (size_t)h * KERNEL_CHUNK, (size_t)n * sizeof *scores);
}

/* exp of a number that is not positive; the same wherever it runs. */
static double exp_of(double x)
{
    return angles_power(2.718281828459045235, x);
}

/* A chunk's exponentials are relative to its own largest score: the factors, one a chunk, bring
 * them all to the largest of all and divide by the sum (as the merge of the values does). */
static void finish_head(const struct attention *a, int row, int head)
{
    const size_t dim = (size_t)a->average_dim;
    const int n = a->batch->rows[row].position + 1, n_chunks = kv_cache_chunks(n);
    const float *part = part_of(a, row, head, 0) + dim; /* max, sum */
    const size_t stride = part_size(a);
    float *weights = weights_of(a, row, head);
    float most = part[0];
    double sum = 0;
    for (int c = 1; c < n_chunks; c++)
        most = part[(size_t)c * stride] > most ? part[(size_t)c * stride] : most;
    for (int c = 0; c < n_chunks; c++)
        sum += exp_of((double)part[(size_t)c * stride] - (double)most) *
               (double)part[(size_t)c * stride + 1];
    for (int c = 0; c < n_chunks; c++) {
        const double factor = exp_of((double)part[(size_t)c * stride] - (double)most) / sum;
        for (int i = c * KERNEL_CHUNK; i < n && i < (c + 1) * KERNEL_CHUNK; i++)
            weights[i] = (float)((double)weights[i] * factor);
    }
}

void attention_finish_weights(const struct attention *a, int row)
{
    for (int h = 0; h < a->kv->config.n_heads; h++)
        finish_head(a, row, h);
}

/* --- work items ------------------------------------------------------------------------------ */

static struct kv_place place_of(const struct attention *a, const struct batch_span *span, int group)
{
    return (struct kv_place){span->sequence, a->layer, a->latent ? 0 : group};
}

/* The keys that are read after a span's last chunk: of the next sequence, or group; NULL where they
 * follow in memory. (With many rows they are those of the chunk itself, which are near.) */
static const void *keys_after(const struct attention *a, const struct batch_span *span, int group,
                              int chunk)
{
    const struct batch *b = a->batch;
    if (span->n_rows > 1 || chunk + 1 < span->n_chunks)
        return NULL;
    if (++span == b->spans + b->n_spans) {
        span = b->spans;
        if (++group == a->n_groups)
            return NULL;
    }
    const struct kv_chunk next = kv_cache_chunk(a->kv, place_of(a, span, group), 0, 1);
    return next.piece[next.split == 0].k;
}

/* One group of query heads of one row against one chunk of its sequence. */
static void attend_chunk(const struct attention *a, const struct batch_span *span, int group,
                         int chunk, int row_of_span, float *scratch)
{
    const int row = span->first_row + row_of_span;
    const int position = span->first_position + row_of_span;
    const int chunk_first = chunk * KERNEL_CHUNK;
    /* Only this item reads the newest position, so nobody has to be waited for. */
    if (!a->stores_first && chunk == position / KERNEL_CHUNK)
        store_row(a, group, row, scratch);

    int n = position + 1 - chunk_first;
    n = n < KERNEL_CHUNK ? n : KERNEL_CHUNK;
    const size_t dim = (size_t)a->key_dim, n_heads = (size_t)a->group;
    const float *q = a->queries + (size_t)row * a->queries_dim + (size_t)group * n_heads * dim;
    float *scaled = scratch;
    for (size_t h = 0; h < n_heads; h++)
        place_row(a, position, q + h * dim, a->scale, scaled + h * dim);

    float *part = part_of(a, row, group * a->group, chunk);
    const struct attend args = {
        .kv = kv_cache_chunk(a->kv, place_of(a, span, group), chunk_first, n),
        .n_heads = a->group,
        .q = scaled,
        .scores = scaled + n_heads * dim,
        .out = part,
        .max = part + a->average_dim,
        .sum = part + a->average_dim + 1,
        .stride = (size_t)a->max_chunks * part_size(a),
        .bias = a->bias ? a->bias + (size_t)group * n_heads : NULL,
        .distance = position - chunk_first,
        .next = keys_after(a, span, group, chunk),
        .patches = scaled + n_heads * (dim + KERNEL_CHUNK),
    };
    if (a->latent)
        a->kernels->attend_latent(&args);
    else
        a->kernels->attend(&args);
    if (a->weights)
        keep_weights(a, row, group * a->group, chunk, n, args.scores);
}

/* Of the items of one group of heads, one after the other on a line as long as they cost, those of
 * a span that start in [begin, end). Rows vary fastest: a chunk of the cache stays near while they
 * pass.
 */
static void attend_span(const struct attention *a, const struct batch_span *span, int64_t at,
                        int group, int64_t begin, int64_t end, float *scratch)
{
    for (int chunk = 0; chunk < span->n_chunks; chunk++) {
        for (int row = 0; row < span->n_rows && at < end; row++) {
            const int cost = batch_item_cost(span, chunk, row);
            if (cost > 0 && at >= begin)
                attend_chunk(a, span, group, chunk, row, scratch);
            at += cost;
        }
    }
}

static void attend_group(const struct attention *a, int group, int64_t begin, int64_t end,
                         float *scratch)
{
    int64_t at = 0;
    for (int i = 0; i < a->batch->n_spans; i++) {
        const struct batch_span *span = &a->batch->spans[i];
        if (at < end && span->cost > begin)
            attend_span(a, span, at, group, begin, end, scratch);
        at = span->cost;
    }
}

/* Threads with as many heads as the others get just these: their costs are equal. */
void attention_run(const struct attention *a, float *scratch, int thread, int n_threads)
{
    const int64_t per_head = a->batch->cost_per_head, all = a->n_groups * per_head;
    const int64_t begin = all * thread / n_threads, end = all * (thread + 1) / n_threads;
    for (int h = (int)(begin / per_head); h * per_head < end; h++)
        attend_group(a, h, begin - h * per_head, end - h * per_head, scratch);
}

void attention_merge(const struct attention *a, int row, int head, float *out)
{
    const int dim = a->average_dim;
    const int n_chunks = kv_cache_chunks(a->batch->rows[row].position + 1);
    const float *part = part_of(a, row, head, 0);
    a->kernels->merge(out, part, part + dim, part + dim + 1, n_chunks, part_size(a), dim);
}
