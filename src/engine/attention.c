#include "engine/attention.h"

#include "compute/pool.h"

/* A part: out [head_dim], max, sum. */
static size_t part_size(int head_dim)
{
    return (size_t)head_dim + 2;
}

uint64_t attention_parts(const struct config *c, int n_rows, int cap)
{
    return (uint64_t)n_rows * (uint64_t)c->n_heads * (uint64_t)kv_cache_chunks(cap) *
           part_size(c->head_dim);
}

uint64_t attention_scratch(const struct config *c)
{
    uint64_t group = 0; /* the largest */
    for (int l = 0; l < c->n_layers; l++)
        if ((uint64_t)config_group(c, l) > group)
            group = (uint64_t)config_group(c, l);
    /* scaled queries, out, max, sum, scores */
    return group * (2 * (uint64_t)c->head_dim + 2 + KERNEL_CHUNK);
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
    return a->parts + index * part_size(c->head_dim);
}

/* --- new keys and values --------------------------------------------------------------------- */

static void store_row(const struct attention *a, int kv_head, int row)
{
    const struct config *c = &a->kv->config;
    const struct batch_row *r = &a->batch->rows[row];
    const float *k = row_qkv(a, row) + config_q_dim(c) + (size_t)kv_head * (size_t)c->head_dim;
    const float *v = k + (size_t)a->n_kv_heads * (size_t)c->head_dim;
    kv_cache_put(a->kv, a->kernels, (struct kv_place){r->sequence, a->layer, kv_head}, r->position,
                 k, v);
}

void attention_store(const struct attention *a, int thread, int n_threads)
{
    const int n_rows = a->batch->n_rows;
    int begin, end;
    pool_share(a->n_kv_heads * n_rows, thread, n_threads, &begin, &end);
    for (int item = begin; item < end; item++)
        store_row(a, item / n_rows, item % n_rows);
}

/* --- work items ------------------------------------------------------------------------------ */

/* One group of query heads of one row against one chunk of its sequence. */
static void attend_chunk(const struct attention *a, const struct batch_span *span, int kv_head,
                         int chunk, int row_of_span, float *scratch)
{
    const struct config *c = &a->kv->config;
    const int row = span->first_row + row_of_span;
    const int position = span->first_position + row_of_span;
    const int chunk_first = chunk * KERNEL_CHUNK;
    if (chunk_first > position)
        return;
    /* Only this item reads the newest position, so nobody has to be waited for. */
    if (!a->batch->stores_first && chunk == position / KERNEL_CHUNK)
        store_row(a, kv_head, row);

    int n = position + 1 - chunk_first;
    n = n < KERNEL_CHUNK ? n : KERNEL_CHUNK;
    const size_t dim = (size_t)c->head_dim, group = (size_t)a->group;
    const float *q = row_qkv(a, row) + (size_t)kv_head * group * dim;
    float *scaled = scratch;
    for (size_t i = 0; i < group * dim; i++)
        scaled[i] = q[i] * a->scale;

    const struct kv_place place = {span->sequence, a->layer, kv_head};
    const struct attend args = {
        .kv = kv_cache_chunk(a->kv, place, chunk_first, n),
        .n_heads = (int)group,
        .q = scaled,
        .out = scaled + group * dim,
        .max = scaled + 2 * group * dim,
        .sum = scaled + 2 * group * dim + group,
        .scores = scaled + 2 * group * dim + 2 * group,
    };
    a->kernels->attend(&args);
    for (size_t h = 0; h < group; h++) {
        float *part = part_of(a, row, (int)((size_t)kv_head * group + h), chunk);
        for (size_t i = 0; i < dim; i++)
            part[i] = args.out[h * dim + i];
        part[dim] = args.max[h];
        part[dim + 1] = args.sum[h];
    }
}

/* The items [begin, end) of one K/V head. Rows vary fastest: a chunk of the cache stays near while
 * the span's rows pass it. */
static void attend_items(const struct attention *a, int kv_head, int begin, int end, float *scratch)
{
    while (begin < end) {
        const struct batch_span *span = batch_span_of_item(a->batch, begin);
        const int first = span->first_item, after = first + span->n_chunks * span->n_rows;
        for (; begin < end && begin < after; begin++)
            attend_chunk(a, span, kv_head, (begin - first) / span->n_rows,
                         (begin - first) % span->n_rows, scratch);
    }
}

void attention_run(const struct attention *a, float *scratch, int thread, int n_threads)
{
    const int per_head = a->batch->items_per_head;
    int begin, end;
    pool_share(a->n_kv_heads * per_head, thread, n_threads, &begin, &end);
    while (begin < end) {
        const int kv_head = begin / per_head, first = kv_head * per_head;
        const int stop = end < first + per_head ? end : first + per_head;
        attend_items(a, kv_head, begin - first, stop - first, scratch);
        begin = stop;
    }
}

void attention_merge(const struct attention *a, int row, float *out)
{
    const struct config *c = &a->kv->config;
    const int dim = c->head_dim;
    const int n_chunks = kv_cache_chunks(a->batch->rows[row].position + 1);
    for (int h = 0; h < c->n_heads; h++) {
        const float *part = part_of(a, row, h, 0);
        a->kernels->merge(out + (size_t)h * (size_t)dim, part, part + dim, part + dim + 1, n_chunks,
                          part_size(dim), dim);
    }
}
