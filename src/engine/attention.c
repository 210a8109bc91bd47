#include "engine/attention.h"

#include <math.h>

#include "compute/pool.h"

int attention_chunks(int n_positions)
{
    return (n_positions + KERNEL_CHUNK - 1) / KERNEL_CHUNK;
}

/* A part: out [head_dim], max, sum. */
static size_t part_size(int head_dim)
{
    return (size_t)head_dim + 2;
}

size_t attention_parts(const struct config *c, int n_tokens, int cap)
{
    return (size_t)n_tokens * (size_t)c->n_heads * (size_t)attention_chunks(cap) *
           part_size(c->head_dim);
}

size_t attention_scratch(const struct config *c)
{
    const size_t group = (size_t)config_group(c, 0);
    /* scaled queries, scores, out, max, sum */
    return group * (2 * (size_t)c->head_dim + KERNEL_CHUNK + 2);
}

static float *part_of(const struct attention *a, int token, int head, int chunk)
{
    const size_t index =
        ((size_t)token * (size_t)a->n_heads + (size_t)head) * (size_t)a->max_chunks + (size_t)chunk;
    return a->parts + index * part_size(a->kv->head_dim);
}

static void store(const struct attention *a, int kv_head, int token)
{
    const size_t dim = (size_t)a->kv->head_dim;
    const float *k =
        a->qkv + (size_t)token * a->qkv_stride + (size_t)a->n_heads * dim + (size_t)kv_head * dim;
    const float *v = k + (size_t)a->kv->n_kv_heads * dim;
    kv_cache_put(a->kv, a->kernels, a->layer, kv_head, a->first + token, k, v);
}

void attention_store(const struct attention *a, int thread, int n_threads)
{
    int begin, end;
    pool_share(a->kv->n_kv_heads * a->n_tokens, thread, n_threads, &begin, &end);
    for (int item = begin; item < end; item++)
        store(a, item / a->n_tokens, item % a->n_tokens);
}

/* One group of query heads of one token against one chunk. */
static void run_item(const struct attention *a, int kv_head, int chunk, int token, float *scratch)
{
    const int position = a->first + token;
    const int chunk_first = chunk * KERNEL_CHUNK;
    if (chunk_first > position)
        return;
    /* Only this item reads the newest position, so nobody has to be waited for. */
    if (a->n_tokens == 1 && chunk == position / KERNEL_CHUNK)
        store(a, kv_head, token);

    int n = position + 1 - chunk_first;
    n = n < KERNEL_CHUNK ? n : KERNEL_CHUNK;
    const size_t dim = (size_t)a->kv->head_dim;
    const size_t group = (size_t)(a->n_heads / a->kv->n_kv_heads);
    const float *q = a->qkv + (size_t)token * a->qkv_stride + (size_t)kv_head * group * dim;
    float *scaled = scratch;
    const float scale = 1.0f / sqrtf((float)dim);
    for (size_t i = 0; i < group * dim; i++)
        scaled[i] = q[i] * scale;

    const struct attend args = {
        .kv = kv_cache_chunk(a->kv, a->layer, kv_head, chunk_first, n),
        .n_heads = (int)group,
        .q = scaled,
        .out = scaled + group * dim,
        .max = scaled + 2 * group * dim,
        .sum = scaled + 2 * group * dim + group,
        .scores = scaled + 2 * group * dim + 2 * group,
    };
    a->kernels->attend(&args);
    for (size_t h = 0; h < group; h++) {
        float *part = part_of(a, token, (int)((size_t)kv_head * group + h), chunk);
        for (size_t i = 0; i < dim; i++)
            part[i] = args.out[h * dim + i];
        part[dim] = args.max[h];
        part[dim + 1] = args.sum[h];
    }
}

void attention_run(const struct attention *a, float *scratch, int thread, int n_threads)
{
    /* Tokens vary fastest: a chunk of the cache stays near while the block's tokens pass it. */
    const int n_chunks = attention_chunks(a->first + a->n_tokens);
    int begin, end;
    pool_share(a->kv->n_kv_heads * n_chunks * a->n_tokens, thread, n_threads, &begin, &end);
    for (int item = begin; item < end; item++)
        run_item(a, item / a->n_tokens / n_chunks, item / a->n_tokens % n_chunks,
                 item % a->n_tokens, scratch);
}

void attention_merge(const struct attention *a, int token, float *out)
{
    const int dim = a->kv->head_dim;
    const int n_chunks = attention_chunks(a->first + token + 1);
    for (int h = 0; h < a->n_heads; h++) {
        const float *part = part_of(a, token, h, 0);
        a->kernels->merge(out + (size_t)h * (size_t)dim, part, part + dim, part + dim + 1, n_chunks,
                          part_size(dim), dim);
    }
}
