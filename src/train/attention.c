/*
 * In blocks of CAUSAL_WIDTH queries: scores are transposed, a column a query, so that softmax works
 * on whole lanes.
 * An item is a window and a K/V head, whose keys and values are copied side by side once for all
 * query heads of the group; their gradients add up over those heads in order.
 */
#include "train/attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A head's rows of keys or values: elements, and floats between copies of them. */
struct width {
    int dim, padded;
};

/* The memory of one item, and where it is. */
struct item {
    const struct pass *p;
    const struct backprop *b;
    const struct saved *saved;
    int layer, length;
    struct width key, value;
    int window, kv_head, group;
    const float *kv; /* [rows, kv_dim] where the keys and values are, and their gradient */
    float *dkv;
    int k_at, v_at, kv_dim; /* in a row of kv: the item's key, its value, the end */
    int qkv_dim;
    float scale;
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

size_t backprop_attention_scratch(const struct config *c, int length)
{
    const struct width key = width_of(c->head_dim), value = width_of(config_value_dim(c));
    const size_t dims = (size_t)key.dim + (size_t)value.dim;
    const size_t padded = (size_t)key.padded + (size_t)value.padded;
    return 2 * (size_t)length * padded +
           2 * (size_t)activations_padded_length(length) * CAUSAL_WIDTH +
           (dims + padded) * CAUSAL_WIDTH;
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

static void copy_rows(float *out, struct width w, const float *from, size_t stride, int n)
{
    for (int t = 0; t < n; t++)
        memcpy(out + (size_t)t * (size_t)w.padded, from + (size_t)t * stride,
               (size_t)w.dim * sizeof *out);
}

/* Rows of queries or keys at positions from `first` on, turned to them, or `back`; out may be x. */
static void turn_rows(const struct item *it, float *out, size_t out_stride, const float *x,
                      size_t stride, int first, int n, bool back)
{
    const struct backprop *b = it->b;
    for (int t = 0; t < n; t++) {
        const float *from = x + (size_t)t * stride;
        float *to = out + (size_t)t * out_stride;
        const float *turn = positions_turn(&b->positions, first + t);
        if (turn)
            b->kernels->rotate(to, from, turn, b->config.rope.n_dims, it->key.dim, 1, back);
        else if (to != from)
            memcpy(to, from, (size_t)it->key.dim * sizeof *to);
    }
}

static void take_memory(struct item *it, float *scratch)
{
    const size_t length = (size_t)it->length, queries = CAUSAL_WIDTH;
    const size_t keys = (size_t)it->key.padded, values = (size_t)it->value.padded;
    const size_t square = (size_t)activations_padded_length(it->length) * queries;
    it->k = take_floats(&scratch, length * keys);
    it->v = take_floats(&scratch, length * values);
    it->scores = take_floats(&scratch, square);
    it->gradient = take_floats(&scratch, square);
    it->q = take_floats(&scratch, queries * keys);
    it->dout = take_floats(&scratch, queries * values);
    it->dk = take_floats(&scratch, length * keys);
    it->dv = take_floats(&scratch, length * values);
    it->qt = take_floats(&scratch, (size_t)it->key.dim * queries);
    it->doutt = take_floats(&scratch, (size_t)it->value.dim * queries);
}

static struct item make_item(const struct pass *p, int l, int index, float *scratch)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const int kv_heads = activations_kv_heads(c, l), kv_head = index % kv_heads;
    const bool latent = config_is_latent(c);
    const int k_first = latent ? 0 : config_q_dim(c);
    const int v_first = k_first + kv_heads * c->head_dim;
    struct item it = {.p = p,
                      .b = b,
                      .saved = &b->blocks[l],
                      .layer = l,
                      .length = b->length,
                      .key = width_of(c->head_dim),
                      .value = width_of(config_value_dim(c)),
                      .window = index / kv_heads,
                      .kv_head = kv_head,
                      .group = c->n_heads / kv_heads,
                      .kv = latent ? b->blocks[l].kv : b->blocks[l].qkv,
                      .dkv = latent ? b->dkv : b->dqkv,
                      .k_at = k_first + kv_head * c->head_dim,
                      .v_at = v_first + kv_head * config_value_dim(c),
                      .kv_dim = latent ? activations_kv_dim(c) : config_qkv_dim(c, l),
                      .qkv_dim = config_qkv_dim(c, l),
                      .scale = 1.0f / sqrtf((float)c->head_dim)};
    take_memory(&it, scratch);
    const size_t stride = (size_t)it.kv_dim;
    const float *kv = it.kv + window_row(&it, 0) * stride;
    turn_rows(&it, it.k, (size_t)it.key.padded, kv + it.k_at, stride, 0, it.length, false);
    copy_rows(it.v, it.value, kv + it.v_at, stride, it.length);
    return it;
}

static struct query_block make_block(const struct item *it, int head,
                                     const struct attend_bias *bias, int first)
{
    const int left = it->length - first;
    const int n = left < CAUSAL_WIDTH ? left : CAUSAL_WIDTH;
    return (struct query_block){
        .head = head, .first = first, .n = n, .n_keys = first + n, .bias = bias};
}

/* out [dim, CAUSAL_WIDTH] = scale * rows^T; columns past n are zero. */
static void transpose(float *out, const float *rows, struct width w, int n, float scale)
{
    for (int i = 0; i < w.dim; i++)
        for (int q = n; q < CAUSAL_WIDTH; q++)
            out[i * CAUSAL_WIDTH + q] = 0;
    for (int q = 0; q < n; q++)
        for (int i = 0; i < w.dim; i++)
            out[i * CAUSAL_WIDTH + q] = scale * rows[(size_t)q * (size_t)w.padded + (size_t)i];
}

/* out [n_keys, CAUSAL_WIDTH] = keys * columns, where keys is [length, padded]. */
static void scores(const struct item *it, const struct query_block *at, const float *keys,
                   struct width w, const float *columns, float *out)
{
    const struct product p = {.m = at->n_keys,
                              .n = CAUSAL_WIDTH,
                              .k = w.dim,
                              .a = keys,
                              .a_row = (size_t)w.padded,
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
                   const float *values, struct width w, float *out, size_t stride)
{
    const struct product p = {.m = at->n,
                              .n = w.dim,
                              .k = at->n_keys,
                              .a = columns,
                              .a_row = 1,
                              .a_col = CAUSAL_WIDTH,
                              .b = values,
                              .b_row = (size_t)w.padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = stride};
    it->b->grad->product(&p);
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
                              .b_row = (size_t)w.padded,
                              .b_panel = KERNEL_LANES,
                              .c = out,
                              .c_row = (size_t)w.padded,
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
                           .scale = it->scale,
                           .bias = at->bias};
}

/* Leaves probabilities out of columns [n_keys, CAUSAL_WIDTH], or out of their gradient. */
static void drop_columns(const struct item *it, const struct query_block *at, float *columns)
{
    const struct dropout *d = &it->p->attn_dropout;
    const uint64_t head =
        (uint64_t)it->window * (uint64_t)it->b->config.n_heads + (uint64_t)at->head;
    const uint64_t width = (uint64_t)activations_padded_length(it->length);
    if (!it->p->gradient || d->share <= 0)
        return;
    for (int t = 0; t < at->n_keys; t++) {
        float *row = columns + (size_t)t * CAUSAL_WIDTH;
        const uint64_t first = (head * (uint64_t)it->length + (uint64_t)t) * width;
        dropout_apply(d, 2 * it->b->config.n_layers + 1 + it->layer, row, NULL, row,
                      first + (uint64_t)at->first, CAUSAL_WIDTH);
    }
}

/* The block's queries, turned, and their scores against the keys, before softmax. */
static void block_scores(const struct item *it, const struct query_block *at)
{
    const size_t stride = (size_t)it->qkv_dim;
    const float *q = it->saved->qkv + window_row(it, at->first) * stride + at->head * it->key.dim;
    turn_rows(it, it->q, (size_t)it->key.padded, q, stride, at->first, at->n, false);
    transpose(it->qt, it->q, it->key, at->n, it->scale);
    scores(it, at, it->k, it->key, it->qt, it->scores);
}

/* The block's rows of the head in a buffer [rows, heads]. */
static float *block_heads(const struct item *it, const struct query_block *at, float *heads)
{
    return heads + window_row(it, at->first) * (size_t)config_heads_dim(&it->b->config) +
           at->head * it->value.dim;
}

static void forward_block(const struct item *it, const struct query_block *at)
{
    const size_t stride = (size_t)config_heads_dim(&it->b->config);
    block_scores(it, at);
    const struct causal c = causal_of(it, at);
    it->b->grad->causal_softmax(&c);
    drop_columns(it, at, it->scores);
    float *out = block_heads(it, at, it->saved->heads);
    gather(it, at, it->scores, it->v, it->value, out, stride);
    for (int q = 0; q < at->n; q++)
        for (int i = 0; i < it->value.dim; i++)
            out[(size_t)q * stride + (size_t)i] *= c.inverse[q];
}

/* A head's row of drel: alpha and centre. */
static double *head_drel(const struct backprop *b, int window, int head)
{
    return b->drel + 2 * ((size_t)window * (size_t)b->config.n_heads + (size_t)head);
}

/* Adds a block's part of the gradient of score - alpha (distance - centre)^2: each query's sum over
 * the keys, then those of the queries in order. */
static void add_drel(const struct item *it, const struct query_block *at)
{
    double squares[CAUSAL_WIDTH] = {0}, sums[CAUSAL_WIDTH] = {0};
    assert(at->bias);
    const double centre = (double)at->bias->centre, alpha = -(double)at->bias->square;
    for (int t = 0; t < at->n_keys; t++) {
        const float *gradient = it->gradient + (size_t)t * CAUSAL_WIDTH;
        for (int q = 0; q < CAUSAL_WIDTH; q++) {
            const double x = at->first + q - t - centre, g = (double)gradient[q];
            squares[q] += g * x * x;
            sums[q] += g * x;
        }
    }
    double *drel = head_drel(it->b, it->window, at->head);
    if (at->first == 0)
        drel[0] = drel[1] = 0;
    for (int q = 0; q < at->n; q++) {
        drel[0] -= squares[q] / (double)it->scale;
        drel[1] += 2 * alpha * sums[q] / (double)it->scale;
    }
}

static void backward_block(const struct item *it, const struct query_block *at)
{
    const size_t width = (size_t)config_heads_dim(&it->b->config), stride = (size_t)it->qkv_dim;
    block_scores(it, at);
    copy_rows(it->dout, it->value, block_heads(it, at, it->b->dheads), width, at->n);
    transpose(it->doutt, it->dout, it->value, at->n, 1);
    scores(it, at, it->v, it->value, it->doutt, it->gradient);
    drop_columns(it, at, it->gradient);
    const struct causal c = causal_of(it, at);
    it->b->grad->causal_backward(&c);
    if (it->b->drel)
        add_drel(it, at);
    drop_columns(it, at, it->scores);
    scatter(it, at, it->scores, it->dout, it->value, it->dv);
    scatter(it, at, it->gradient, it->q, it->key, it->dk);
    float *dq = it->b->dqkv + window_row(it, at->first) * stride + at->head * it->key.dim;
    gather(it, at, it->gradient, it->k, it->key, dq, stride);
    turn_rows(it, dq, stride, dq, stride, at->first, at->n, true);
}

/* The window's rows of dkv that belong to this K/V head. */
static void store_kv_gradient(const struct item *it)
{
    const size_t stride = (size_t)it->kv_dim;
    float *dkv = it->dkv + window_row(it, 0) * stride;
    turn_rows(it, dkv + it->k_at, stride, it->dk, (size_t)it->key.padded, 0, it->length, true);
    for (int t = 0; t < it->length; t++)
        memcpy(dkv + (size_t)t * stride + it->v_at, it->dv + (size_t)t * (size_t)it->value.padded,
               (size_t)it->value.dim * sizeof *dkv);
}

/* --- items ----------------------------------------------------------------------------------- */

/* What distances do to a head's scores; false: nothing. */
static bool head_bias(const struct pass *p, int l, int head, struct attend_bias *bias)
{
    const struct config *c = &p->b->config;
    const float *rel = p->w->blocks[l].w[ROLE_ATTN_REL].weight;
    if (c->position == POSITION_ALIBI)
        *bias = positions_alibi(head, c->n_heads);
    else if (c->position == POSITION_QUADRATIC)
        *bias = positions_quadratic(rel[2 * head], rel[2 * head + 1]);
    else
        return false;
    return true;
}

/* All blocks of queries of the heads that share the item's keys and values. */
static void each_block(const struct item *it,
                       void (*run)(const struct item *it, const struct query_block *at))
{
    for (int h = it->kv_head * it->group; h < (it->kv_head + 1) * it->group; h++) {
        struct attend_bias bias;
        const bool biased = head_bias(it->p, it->layer, h, &bias);
        for (int first = 0; first < it->length; first += CAUSAL_WIDTH) {
            const struct query_block at = make_block(it, h, biased ? &bias : NULL, first);
            run(it, &at);
        }
    }
}

static void share_items(const struct pass *p, int l, int thread, int *begin, int *end)
{
    pool_share(p->n_sequences * activations_kv_heads(&p->b->config, l), thread, p->b->n_threads,
               begin, end);
}

void backprop_attention(const struct pass *p, int l, int thread)
{
    int begin, end;
    share_items(p, l, thread, &begin, &end);
    for (int index = begin; index < end; index++) {
        const struct item it = make_item(p, l, index, activations_scratch(p->b, thread));
        each_block(&it, forward_block);
    }
}

void backprop_attention_backward(const struct pass *p, int l, int thread)
{
    int begin, end;
    share_items(p, l, thread, &begin, &end);
    for (int index = begin; index < end; index++) {
        const struct item it = make_item(p, l, index, activations_scratch(p->b, thread));
        const size_t length = (size_t)it.length;
        memset(it.dk, 0, length * (size_t)it.key.padded * sizeof *it.dk);
        memset(it.dv, 0, length * (size_t)it.value.padded * sizeof *it.dv);
        each_block(&it, backward_block);
        store_kv_gradient(&it);
    }
}

void backprop_attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    float *gradient = p->gradient->blocks[l].w[ROLE_ATTN_REL].weight;
    int begin, end;
    pool_share(c->n_heads, thread, b->n_threads, &begin, &end);
    for (int i = 2 * begin; i < 2 * end && b->drel; i++) {
        double sum = c->shared && l + 1 < c->n_layers ? (double)gradient[i] : 0;
        for (int window = 0; window < p->n_sequences; window++)
            sum += head_drel(b, window, i / 2)[i % 2];
        gradient[i] = (float)sum;
    }
}
