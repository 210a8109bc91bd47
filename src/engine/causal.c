/*
 * In blocks of CAUSAL_WIDTH queries: scores are transposed, a column a query, so that softmax works
 * on whole lanes. Keys and values are copied side by side once for all query heads that share them;
 * their gradients add up over those heads in order.
 */
#include "engine/causal.h"

#include <string.h>

/* A head's rows of keys or values: elements, and floats between copies of them. */
struct width {
    int dim, padded;
};

/* A window and its memory. */
struct item {
    const struct causal_window *w;
    struct width key, value;
    float *k, *v;             /* [length, padded]; keys are turned to their positions */
    float *scores, *gradient; /* [padded length, CAUSAL_WIDTH] */
    float *qt, *doutt;        /* q^T, scaled, and dout^T [dim, CAUSAL_WIDTH] */
    float *q, *dout;          /* [CAUSAL_WIDTH, padded]; queries are turned */
    float *dk, *dv;           /* [length, padded] */
};

/* One block of queries of one head. */
struct query_block {
    int head, first, n; /* queries first .. first + n - 1 */
    int n_keys;
    const struct attend_bias *bias; /* of the head; NULL: none */
};

static struct width width_of(int dim)
{
    return (struct width){dim, kernel_padded(dim)};
}

/* Gives a window's buffers their places in scratch, or only counts its floats where that is NULL.
 */
static size_t take_memory(struct item *it, int n, float *scratch)
{
    const size_t length = n, queries = CAUSAL_WIDTH;
    const size_t keys = it->key.padded, values = it->value.padded;
    const size_t square = (size_t)causal_padded_length(n) * queries;
    const struct {
        float **buffer;
        size_t n;
    } buffers[] = {{&it->k, length * keys},
                   {&it->v, length * values},
                   {&it->scores, square},
                   {&it->gradient, square},
                   {&it->q, queries * keys},
                   {&it->dout, queries * values},
                   {&it->dk, length * keys},
                   {&it->dv, length * values},
                   {&it->qt, (size_t)it->key.dim * queries},
                   {&it->doutt, (size_t)it->value.dim * queries}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; used += buffers[i++].n)
        *buffers[i].buffer = scratch ? scratch + used : NULL;
    return used;
}

size_t causal_scratch(const struct config *c, int length)
{
    struct item it = {.key = width_of(c->head_dim), .value = width_of(config_value_dim(c))};
    return take_memory(&it, length, NULL);
}

static void copy_rows(float *out, struct width w, const float *from, size_t stride, int n)
{
    for (int t = 0; t < n; t++)
        memcpy(out + (size_t)t * w.padded, from + t * stride, w.dim * sizeof *out);
}

/* Rows of queries or keys at positions from `first` on, turned to them, or `back`; out may be x. */
static void turn_rows(const struct item *it, float *out, size_t out_stride, const float *x,
                      size_t stride, int first, int n, bool back)
{
    const struct causal_window *w = it->w;
    for (int t = 0; t < n; t++) {
        const float *from = x + t * stride;
        float *to = out + t * out_stride;
        const float *turn = positions_turn(w->positions, first + t);
        if (turn)
            w->kernels->rotate(to, from, turn, w->rope_dims, it->key.dim, 1, back);
        else if (to != from)
            memcpy(to, from, it->key.dim * sizeof *to);
    }
}

/* out [dim, CAUSAL_WIDTH] = scale * rows^T; columns past n are zero. */
static void transpose(float *out, const float *rows, struct width w, int n, float scale)
{
    for (int i = 0; i < w.dim; i++)
        for (int q = n; q < CAUSAL_WIDTH; q++)
            out[i * CAUSAL_WIDTH + q] = 0;
    for (int q = 0; q < n; q++)
        for (int i = 0; i < w.dim; i++)
            out[i * CAUSAL_WIDTH + q] = scale * rows[(size_t)q * w.padded + i];
}

/* out [n_keys, CAUSAL_WIDTH] = keys * columns, where keys is [length, padded]. */
static void scores(const struct item *it, const struct query_block *at, const float *keys,
                   struct width w, const float *columns, float *out)
{
    const struct product p = {.m = at->n_keys,
                              .n = CAUSAL_WIDTH,
                              .k = w.dim,
                              .a = keys,
                              .a_row = w.padded,
                              .a_col = 1,
                              .b = columns,
                              .b_row = CAUSAL_WIDTH,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = CAUSAL_WIDTH};
    it->w->grad->product(&p);
}

/* out [n, dim] = columns^T * values: a sum over the keys that each query sees. */
static void gather(const struct item *it, const struct query_block *at, const float *columns,
                   const float *values, struct width w, float *out, size_t stride)
{
    const struct product p = {.m = at->n,
                              .n = w.dim,
                              .k = at->n_keys,
                              .a = columns,
                              .a_row = 1,
                              .a_col = CAUSAL_WIDTH,
                              .b = values,
                              .b_row = w.padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = stride};
    it->w->grad->product(&p);
}

/* out [n_keys, padded] += columns * rows: a sum over the block's queries. */
static void scatter(const struct item *it, const struct query_block *at, const float *columns,
                    const float *rows, struct width w, float *out)
{
    const struct product p = {.m = at->n_keys,
                              .n = w.dim,
                              .k = at->n,
                              .a = columns,
                              .a_row = CAUSAL_WIDTH,
                              .a_col = 1,
                              .b = rows,
                              .b_row = w.padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = w.padded,
                              .start = out};
    it->w->grad->product(&p);
}

static struct causal causal_of(const struct item *it, const struct query_block *at)
{
    const size_t padded = causal_padded_length(it->w->length);
    float *max = it->w->softmax + (size_t)at->head * 2 * padded + at->first;
    return (struct causal){.n_keys = at->n_keys,
                           .first = at->first,
                           .scores = it->scores,
                           .gradient = it->gradient,
                           .max = max,
                           .inverse = max + padded,
                           .scale = it->w->scale,
                           .bias = at->bias};
}

static void drop_columns(const struct item *it, const struct query_block *at, float *columns)
{
    if (it->w->drop)
        it->w->drop(it->w->arg, at->head, at->first, at->n_keys, columns);
}

/* The block's queries, turned, and their scores against the keys, before softmax. */
static void block_scores(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    const float *q = w->q + at->first * w->q_stride + at->head * it->key.dim;
    turn_rows(it, it->q, it->key.padded, q, w->q_stride, at->first, at->n, false);
    transpose(it->qt, it->q, it->key, at->n, w->scale);
    scores(it, at, it->k, it->key, it->qt, it->scores);
}

/* Where the block's rows of the head are in a buffer of heads. */
static size_t heads_at(const struct item *it, const struct query_block *at)
{
    return at->first * it->w->heads_stride + at->head * it->value.dim;
}

static void forward_block(const struct item *it, const struct query_block *at)
{
    const size_t stride = it->w->heads_stride;
    block_scores(it, at);
    const struct causal c = causal_of(it, at);
    it->w->grad->causal_softmax(&c);
    drop_columns(it, at, it->scores);
    float *out = it->w->heads + heads_at(it, at);
    gather(it, at, it->scores, it->v, it->value, out, stride);
    for (int q = 0; q < at->n; q++)
        for (int i = 0; i < it->value.dim; i++)
            out[q * stride + i] *= c.inverse[q];
}

static void backward_block(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    block_scores(it, at);
    copy_rows(it->dout, it->value, w->dheads + heads_at(it, at), w->heads_stride, at->n);
    transpose(it->doutt, it->dout, it->value, at->n, 1);
    scores(it, at, it->v, it->value, it->doutt, it->gradient);
    drop_columns(it, at, it->gradient);
    const struct causal c = causal_of(it, at);
    it->w->grad->causal_backward(&c);
    if (w->drel) {
        /* The block's part of the gradient of score - alpha (distance - centre)^2: each query's sum
         * over the keys, then those of the queries in order. */
        double squares[CAUSAL_WIDTH] = {0}, sums[CAUSAL_WIDTH] = {0},
               *drel = w->drel + 2 * at->head;
        const double centre = (double)at->bias->centre, alpha = -(double)at->bias->square;
        for (int t = 0; t < at->n_keys; t++) {
            const float *gradient = it->gradient + (size_t)t * CAUSAL_WIDTH;
            for (int q = 0; q < CAUSAL_WIDTH; q++) {
                const double x = at->first + q - t - centre, g = (double)gradient[q];
                squares[q] += g * x * x;
                sums[q] += g * x;
            }
        }
        if (at->first == 0)
            drel[0] = drel[1] = 0;
        for (int q = 0; q < at->n; q++) {
            drel[0] -= squares[q] / (double)w->scale;
            drel[1] += 2 * alpha * sums[q] / (double)w->scale;
        }
    }
    drop_columns(it, at, it->scores);
    scatter(it, at, it->scores, it->dout, it->value, it->dv);
    scatter(it, at, it->gradient, it->q, it->key, it->dk);
    float *dq = w->dq + at->first * w->q_stride + at->head * it->key.dim;
    gather(it, at, it->gradient, it->k, it->key, dq, w->q_stride);
    turn_rows(it, dq, w->q_stride, dq, w->q_stride, at->first, at->n, true);
}

/* All blocks of queries of the heads that share the keys and values; backwards item's dk and dv are
 * their sums. */
static struct item each_block(const struct causal_window *w, bool back)
{
    struct item it = {.w = w, .key = width_of(w->key_dim), .value = width_of(w->value_dim)};
    const size_t length = w->length;
    take_memory(&it, w->length, w->scratch);
    turn_rows(&it, it.k, it.key.padded, w->k, w->kv_stride, 0, w->length, false);
    copy_rows(it.v, it.value, w->v, w->kv_stride, w->length);
    if (back) {
        memset(it.dk, 0, length * it.key.padded * sizeof *it.dk);
        memset(it.dv, 0, length * it.value.padded * sizeof *it.dv);
    }
    for (int h = 0; h < w->n_heads; h++) {
        struct attend_bias bias;
        const bool biased = w->bias && w->bias(w->arg, h, &bias);
        for (int first = 0; first < w->length; first += CAUSAL_WIDTH) {
            const int left = w->length - first, n = left < CAUSAL_WIDTH ? left : CAUSAL_WIDTH;
            const struct query_block at = {h, first, n, first + n, biased ? &bias : NULL};
            (back ? backward_block : forward_block)(&it, &at);
        }
    }
    return it;
}

void causal_forward(const struct causal_window *w)
{
    each_block(w, false);
}

void causal_backward(const struct causal_window *w)
{
    const struct item it = each_block(w, true);
    turn_rows(&it, w->dk, w->kv_stride, it.dk, it.key.padded, 0, w->length, true);
    for (int t = 0; t < w->length; t++)
        memcpy(w->dv + t * w->kv_stride, it.dv + (size_t)t * it.value.padded,
               it.value.dim * sizeof *w->dv);
}
