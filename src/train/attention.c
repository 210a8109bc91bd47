/*
 * In blocks of CAUSAL_WIDTH queries: scores are transposed, a column a query, so that softmax works
 * on whole lanes.
 * An item is a window and a K/V head, whose keys and values are copied side by side once for all
 * query heads of the group; their gradients add up over those heads in order.
 */
#include "train/attention.h"

#include <math.h>
#include <string.h>

/* The memory of one item, and where it is. */
struct item {
    const struct backprop *b;
    const struct saved *saved;
    int length, dim, padded; /* padded: floats between rows of keys and values */
    int window, kv_head;
    int q_dim, kv_dim, qkv_dim; /* of the layer */
    float scale;
    float *k, *v;             /* [length, padded] */
    float *scores, *gradient; /* [padded length, CAUSAL_WIDTH] */
    float *qt, *doutt;        /* q^T, scaled, and dout^T [dim, CAUSAL_WIDTH] */
    float *q, *dout;          /* [CAUSAL_WIDTH, padded] */
    float *dk, *dv;           /* [length, padded] */
};

/* One block of queries of one head. */
struct query_block {
    int head, first, n; /* queries first .. first + n - 1 */
    int n_keys;
};

size_t backprop_attention_scratch(const struct config *c, int length)
{
    const size_t padded = (size_t)kernel_padded(c->head_dim);
    return 4 * (size_t)length * padded +
           2 * (size_t)activations_padded_length(length) * CAUSAL_WIDTH +
           2 * (size_t)c->head_dim * CAUSAL_WIDTH + 2 * CAUSAL_WIDTH * padded;
}

static float *take_floats(float **scratch, size_t n)
{
    float *piece = *scratch;
    *scratch += n;
    return piece;
}

/* A row of q, k, v of the item's window, at position t. */
static size_t window_row(const struct item *it, int t)
{
    return (size_t)it->window * (size_t)it->length + (size_t)t;
}

static void copy_rows(const struct item *it, float *out, const float *from, size_t stride, int n)
{
    for (int t = 0; t < n; t++)
        memcpy(out + (size_t)t * (size_t)it->padded, from + (size_t)t * stride,
               (size_t)it->dim * sizeof *out);
}

static struct item make_item(const struct pass *p, int l, int index, float *scratch)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    struct item it = {.b = b,
                      .saved = &b->blocks[l],
                      .length = b->length,
                      .dim = c->head_dim,
                      .padded = kernel_padded(c->head_dim),
                      .window = index / config_kv_heads(c, l),
                      .kv_head = index % config_kv_heads(c, l),
                      .q_dim = config_q_dim(c),
                      .kv_dim = config_k_dim(c, l),
                      .qkv_dim = config_qkv_dim(c, l),
                      .scale = 1.0f / sqrtf((float)c->head_dim)};
    const size_t rows = (size_t)it.length * (size_t)it.padded;
    const size_t square = (size_t)activations_padded_length(it.length) * CAUSAL_WIDTH;
    it.k = take_floats(&scratch, rows);
    it.v = take_floats(&scratch, rows);
    it.scores = take_floats(&scratch, square);
    it.gradient = take_floats(&scratch, square);
    it.q = take_floats(&scratch, CAUSAL_WIDTH * (size_t)it.padded);
    it.dout = take_floats(&scratch, CAUSAL_WIDTH * (size_t)it.padded);
    it.dk = take_floats(&scratch, rows);
    it.dv = take_floats(&scratch, rows);
    it.qt = take_floats(&scratch, (size_t)it.dim * CAUSAL_WIDTH);
    it.doutt = take_floats(&scratch, (size_t)it.dim * CAUSAL_WIDTH);
    const size_t stride = (size_t)it.qkv_dim;
    const float *k = it.saved->qkv + window_row(&it, 0) * stride + (size_t)it.q_dim +
                     (size_t)it.kv_head * (size_t)it.dim;
    copy_rows(&it, it.k, k, stride, it.length);
    copy_rows(&it, it.v, k + it.kv_dim, stride, it.length);
    return it;
}

static struct query_block make_block(const struct item *it, int head, int first)
{
    const int left = it->length - first;
    const int n = left < CAUSAL_WIDTH ? left : CAUSAL_WIDTH;
    return (struct query_block){.head = head, .first = first, .n = n, .n_keys = first + n};
}

/* out [dim, CAUSAL_WIDTH] = scale * rows^T; columns past n are zero. */
static void transpose(const struct item *it, float *out, const float *rows, size_t stride, int n,
                      float scale)
{
    for (int i = 0; i < it->dim; i++)
        for (int q = n; q < CAUSAL_WIDTH; q++)
            out[i * CAUSAL_WIDTH + q] = 0;
    for (int q = 0; q < n; q++)
        for (int i = 0; i < it->dim; i++)
            out[i * CAUSAL_WIDTH + q] = scale * rows[(size_t)q * stride + (size_t)i];
}

/* out [n_keys, CAUSAL_WIDTH] = keys * columns, where keys is [length, padded]. */
static void scores(const struct item *it, const struct query_block *at, const float *keys,
                   const float *columns, float *out)
{
    const struct product p = {.m = at->n_keys,
                              .n = CAUSAL_WIDTH,
                              .k = it->dim,
                              .a = keys,
                              .a_row = (size_t)it->padded,
                              .a_col = 1,
                              .b = columns,
                              .b_row = CAUSAL_WIDTH,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = CAUSAL_WIDTH};
    it->b->grad->product(&p);
}

/* out [n, dim] = columns^T * values: a sum over the keys that each query sees. */
static void gather(const struct item *it, const struct query_block *at, const float *columns,
                   const float *values, float *out, size_t stride)
{
    const struct product p = {.m = at->n,
                              .n = it->dim,
                              .k = at->n_keys,
                              .a = columns,
                              .a_row = 1,
                              .a_col = CAUSAL_WIDTH,
                              .b = values,
                              .b_row = (size_t)it->padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = stride};
    it->b->grad->product(&p);
}

/* out [n_keys, padded] += columns * rows: a sum over the block's queries. */
static void scatter(const struct item *it, const struct query_block *at, const float *columns,
                    const float *rows, float *out)
{
    const struct product p = {.m = at->n_keys,
                              .n = it->dim,
                              .k = at->n,
                              .a = columns,
                              .a_row = CAUSAL_WIDTH,
                              .a_col = 1,
                              .b = rows,
                              .b_row = (size_t)it->padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = (size_t)it->padded,
                              .start = out};
    it->b->grad->product(&p);
}

static struct causal causal_of(const struct item *it, const struct query_block *at)
{
    const size_t padded = (size_t)activations_padded_length(it->length);
    const size_t head = (size_t)it->window * (size_t)it->b->config.n_heads + (size_t)at->head;
    float *max = it->saved->softmax + head * 2 * padded + at->first;
    return (struct causal){.n_keys = at->n_keys,
                           .first = at->first,
                           .scores = it->scores,
                           .gradient = it->gradient,
                           .max = max,
                           .inverse = max + padded,
                           .scale = it->scale};
}

/* The block's queries and their scores against the keys, before softmax. */
static const float *block_scores(const struct item *it, const struct query_block *at)
{
    const size_t stride = (size_t)it->qkv_dim;
    const float *q = it->saved->qkv + window_row(it, at->first) * stride + at->head * it->dim;
    transpose(it, it->qt, q, stride, at->n, it->scale);
    scores(it, at, it->k, it->qt, it->scores);
    return q;
}

static void forward_block(const struct item *it, const struct query_block *at)
{
    const size_t stride = (size_t)it->q_dim;
    block_scores(it, at);
    const struct causal c = causal_of(it, at);
    it->b->grad->causal_softmax(&c);
    float *out = it->saved->heads + window_row(it, at->first) * stride + at->head * it->dim;
    gather(it, at, it->scores, it->v, out, stride);
    for (int q = 0; q < at->n; q++)
        for (int i = 0; i < it->dim; i++)
            out[(size_t)q * stride + (size_t)i] *= c.inverse[q];
}

static void backward_block(const struct item *it, const struct query_block *at)
{
    const size_t width = (size_t)it->q_dim, stride = (size_t)it->qkv_dim;
    const float *q = block_scores(it, at);
    const float *dout = it->b->dheads + window_row(it, at->first) * width + at->head * it->dim;
    transpose(it, it->doutt, dout, width, at->n, 1);
    copy_rows(it, it->q, q, stride, at->n);
    copy_rows(it, it->dout, dout, width, at->n);
    scores(it, at, it->v, it->doutt, it->gradient);
    const struct causal c = causal_of(it, at);
    it->b->grad->causal_backward(&c);
    scatter(it, at, it->scores, it->dout, it->dv);
    scatter(it, at, it->gradient, it->q, it->dk);
    float *dq = it->b->dqkv + window_row(it, at->first) * stride + at->head * it->dim;
    gather(it, at, it->gradient, it->k, dq, stride);
}

/* The window's rows of dqkv that belong to this K/V head. */
static void store_kv_gradient(const struct item *it)
{
    const size_t stride = (size_t)it->qkv_dim;
    for (int t = 0; t < it->length; t++) {
        float *dk = it->b->dqkv + window_row(it, t) * stride + it->q_dim + it->kv_head * it->dim;
        memcpy(dk, it->dk + (size_t)t * (size_t)it->padded, (size_t)it->dim * sizeof *dk);
        memcpy(dk + it->kv_dim, it->dv + (size_t)t * (size_t)it->padded,
               (size_t)it->dim * sizeof *dk);
    }
}

static void share_items(const struct pass *p, int l, int thread, int *begin, int *end)
{
    pool_share(p->n_sequences * config_kv_heads(&p->b->config, l), thread, p->b->n_threads, begin,
               end);
}

void backprop_attention(const struct pass *p, int l, int thread)
{
    const int group = config_group(&p->b->config, l);
    int begin, end;
    share_items(p, l, thread, &begin, &end);
    for (int index = begin; index < end; index++) {
        const struct item it = make_item(p, l, index, activations_scratch(p->b, thread));
        for (int h = it.kv_head * group; h < (it.kv_head + 1) * group; h++)
            for (int first = 0; first < it.length; first += CAUSAL_WIDTH) {
                const struct query_block at = make_block(&it, h, first);
                forward_block(&it, &at);
            }
    }
}

void backprop_attention_backward(const struct pass *p, int l, int thread)
{
    const int group = config_group(&p->b->config, l);
    int begin, end;
    share_items(p, l, thread, &begin, &end);
    for (int index = begin; index < end; index++) {
        const struct item it = make_item(p, l, index, activations_scratch(p->b, thread));
        const size_t bytes = (size_t)it.length * (size_t)it.padded * sizeof(float);
        memset(it.dk, 0, bytes);
        memset(it.dv, 0, bytes);
        for (int h = it.kv_head * group; h < (it.kv_head + 1) * group; h++)
            for (int first = 0; first < it.length; first += CAUSAL_WIDTH) {
                const struct query_block at = make_block(&it, h, first);
                backward_block(&it, &at);
            }
        store_kv_gradient(&it);
    }
}
