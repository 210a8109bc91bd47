/*
 * In blocks of CAUSAL_WIDTH queries: scores are transposed, a column a query, so that softmax works
 * on whole lanes. Keys and values are copied side by side once for all query heads that share them;
 * their gradients add up over those heads in order.
 */
#include "engine/causal.h"

/* A head's rows: elements, and floats from row to row. */
struct rows {
    float *at;
    int dim;
    size_t stride;
};

/* A window and its memory. */
struct item {
    const struct causal_window *w;
    struct rows k, v;         /* [length]; keys are rotated by their positions */
    struct rows q;            /* [CAUSAL_WIDTH] queries that are rotated */
    struct rows dk, dv;       /* [length] */
    float *scores, *gradient; /* [padded length, CAUSAL_WIDTH] */
    float *qt, *doutt;        /* q^T, scaled, and dout^T [dim, CAUSAL_WIDTH] */
    float *row;               /* [2, key_dim] of queries or keys on its way */
};

/* One block of queries of one head. */
struct query_block {
    int head, first, n;             /* queries first .. first + n - 1 */
    int first_key, n_keys;          /* all keys that a query of the block sees */
    const struct attend_bias *bias; /* of the head; NULL: none */
};

/* Takes or counts (see base/mem.h) a window's buffers. */
static void take_memory(struct item *it, struct arena *a, int key_dim, int value_dim, int n)
{
    const uint64_t square = (uint64_t)causal_padded_length(n) * CAUSAL_WIDTH;
    it->k = it->q = it->dk = (struct rows){NULL, key_dim, kernel_padded(key_dim)};
    it->v = it->dv = (struct rows){NULL, value_dim, kernel_padded(value_dim)};
    ARENA_TAKE(it->k.at, a, n * it->k.stride);
    ARENA_TAKE(it->v.at, a, n * it->v.stride);
    ARENA_TAKE(it->scores, a, square);
    ARENA_TAKE(it->gradient, a, square);
    ARENA_TAKE(it->q.at, a, CAUSAL_WIDTH * it->q.stride);
    ARENA_TAKE(it->dk.at, a, n * it->dk.stride);
    ARENA_TAKE(it->dv.at, a, n * it->dv.stride);
    ARENA_TAKE(it->qt, a, CAUSAL_WIDTH * key_dim);
    ARENA_TAKE(it->doutt, a, CAUSAL_WIDTH * MAX(key_dim, value_dim));
    ARENA_TAKE(it->row, a, 2 * key_dim);
}

size_t causal_scratch(const struct config *c, int length)
{
    struct item it;
    struct arena counted = {0};
    take_memory(&it, &counted, c->head_dim, config_value_dim(c), length);
    return counted.used / sizeof(float);
}

/* A row is so short that a call of memcpy for the whole would take longer than the copy. */
static void copy_row(float *out, const float *from, int n)
{
    int i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES)
        memcpy(out + i, from + i, KERNEL_LANES * sizeof *from);
    memcpy(out + i, from + i, (n - i) * sizeof *from);
}

static void copy_rows(struct rows out, const float *from, size_t stride, int n)
{
    for (int t = 0; t < n; t++)
        copy_row(out.at + t * out.stride, from + t * stride, out.dim);
}

/* The rows from the block's first key on. */
static struct rows from_key(struct rows rows, const struct query_block *at)
{
    rows.at += at->first_key * rows.stride;
    return rows;
}

/* Whether scores take rows of queries or keys as they are. */
static bool turns_nothing(const struct head_turn *t)
{
    return !t->config->parts.qk_norms && t->config->position != POSITION_ROPE;
}

/* A row of queries or keys as scores take it. */
static void turn_row(const struct item *it, const struct head_turn *t, int position, const float *x,
                     float *out)
{
    const struct config *c = t->config;
    const int n_halves = it->w->halves;
    if (turns_nothing(t)) {
        copy_row(out, x, c->head_dim);
        return;
    }
    if (c->parts.qk_norms) {
        t->kernels->norm(c->norm, it->row, x, t->gain, t->bias, c->head_dim, c->norm_eps);
        x = it->row;
    }
    for (int i = 0; i < c->head_dim && n_halves; i++)
        out[i] = x[layout_half(i, n_halves)];
    positions_rotate(t, position, n_halves ? out : x, 1, false, out);
}

/* The backward pass of turn_row: x becomes its gradient, from dy, the gradient of what scores take.
 * Adds the gradients of the norm's gain and bias to sums [2, dim]; NULL: not wanted. */
static void turn_back(const struct item *it, const struct head_turn *t, int position,
                      const float *dy, double *sums, float *x)
{
    const struct config *c = t->config;
    const int n_halves = it->w->halves, dim = c->head_dim;
    float *turned = it->row, *own = it->row + dim, stats[2];
    if (turns_nothing(t)) {
        copy_row(x, dy, dim);
        return;
    }
    positions_rotate(t, position, dy, 1, true, turned);
    for (int i = 0; i < dim; i++)
        own[layout_half(i, n_halves)] = turned[i];
    if (!c->parts.qk_norms) {
        memcpy(x, own, dim * sizeof *x);
        return;
    }
    memset(turned, 0, dim * sizeof *turned);
    it->w->grad->norm_backward(c->norm, turned, turned, own, x, t->gain, dim, c->norm_eps, stats);
    for (int i = 0; i < dim && sums; i++) {
        sums[i] += (double)own[i] * ((double)x[i] - (double)stats[0]) * (double)stats[1];
        sums[dim + i] += (double)own[i];
    }
    memcpy(x, turned, dim * sizeof *x);
}

/* out [dim, CAUSAL_WIDTH] = scale * rows^T; columns past n are zero. */
static void transpose(const struct item *it, float *out, struct rows rows, int n, float scale)
{
    it->w->grad->transpose(out, CAUSAL_WIDTH, rows.at, rows.stride, n, rows.dim, scale);
}

/* out = p.a * b, behind p.start. */
static void multiply(const struct item *it, struct product p, struct rows b, struct rows out)
{
    p.n = b.dim;
    p.b = b.at;
    p.b_row = b.stride;
    p.b_panel = KERNEL_LANES;
    p.c = out.at;
    p.c_row = out.stride;
    it->w->grad->product(&p);
}

/* out [n_keys, CAUSAL_WIDTH] = keys * columns. */
static void scores(const struct item *it, int n_keys, struct rows keys, float *columns, float *out)
{
    const struct rows b = {columns, CAUSAL_WIDTH, CAUSAL_WIDTH}, c = {out, b.dim, b.stride};
    const struct product p = {
        .m = n_keys, .k = keys.dim, .a = keys.at, .a_row = keys.stride, .a_col = 1};
    multiply(it, p, b, c);
}

/* out [n] = columns^T * values: a sum over the keys that each query sees. */
static void gather(const struct item *it, const struct query_block *at, const float *columns,
                   struct rows values, struct rows out)
{
    const struct product p = {
        .m = at->n, .k = at->n_keys, .a = columns, .a_row = 1, .a_col = CAUSAL_WIDTH};
    multiply(it, p, values, out);
}

/* out [n_keys] += columns * rows: a sum over the block's queries. */
static void scatter(const struct item *it, const struct query_block *at, const float *columns,
                    struct rows rows, struct rows out)
{
    const struct product p = {.m = at->n_keys,
                              .k = at->n,
                              .a = columns,
                              .a_row = CAUSAL_WIDTH,
                              .a_col = 1,
                              .start = out.at};
    multiply(it, p, rows, out);
}

static struct causal causal_of(const struct item *it, const struct query_block *at)
{
    const size_t padded = causal_padded_length(it->w->length);
    float *max = it->w->softmax + (size_t)at->head * 2 * padded + at->first;
    return (struct causal){.n_keys = at->n_keys,
                           .first = at->first - at->first_key,
                           .window = it->w->window,
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
        it->w->drop(it->w->arg, at->head, at->first, at->first_key, at->n_keys, columns);
}

/* Backwards the gradient of its queries takes the place of the queries, [dim, CAUSAL_WIDTH]. */
static struct additive additive_of(const struct item *it, const struct query_block *at)
{
    return (struct additive){.n_keys = at->n_keys,
                             .dim = it->k.dim,
                             .weight = it->w->additive + (size_t)at->head * it->k.dim,
                             .keys = from_key(it->k, at).at,
                             .queries = it->qt,
                             .stride = it->k.stride,
                             .scores = it->scores,
                             .gradient = it->gradient,
                             .dkeys = from_key(it->dk, at).at,
                             .dqueries = it->q.at,
                             .dweight = it->doutt};
}

/* From the gradient of additive scores w.tanh(q + k) to the gradients of the block's q (into dq), k
 * and w. */
static void additive_backward(const struct item *it, const struct query_block *at, struct rows dq)
{
    const struct additive a = additive_of(it, at);
    double *dtable = it->w->dtable ? it->w->dtable + (size_t)at->head * a.dim : NULL;
    it->w->grad->additive_backward(&a);
    for (int t = 0; t < at->n; t++)
        for (int i = 0; i < a.dim; i++)
            dq.at[t * dq.stride + i] = a.dqueries[i * CAUSAL_WIDTH + t];
    for (int i = 0; dtable && i < a.dim; i++)
        dtable[i] = (at->first ? dtable[i] : 0) + (double)a.dweight[i];
}

/* Where the block's queries are in q. */
static struct rows block_queries(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    return (struct rows){w->q + at->first * w->stride + at->head * w->key_dim, w->key_dim,
                         w->stride};
}

/* Scores of the block's queries against the keys, before softmax; returns the queries as scores
 * take them. */
static struct rows block_scores(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    struct rows q = block_queries(it, at);
    if (!turns_nothing(&w->q_turn)) {
        for (int t = 0; t < at->n; t++)
            turn_row(it, &w->q_turn, at->first + t, q.at + t * q.stride,
                     it->q.at + t * it->q.stride);
        q = it->q;
    }
    transpose(it, it->qt, q, at->n, w->scale);
    if (w->additive) {
        const struct additive a = additive_of(it, at);
        w->grad->additive_scores(&a);
    } else {
        scores(it, at->n_keys, from_key(it->k, at), it->qt, it->scores);
    }
    return q;
}

/* Where the block's rows of the head are in a buffer of heads. */
static size_t heads_at(const struct item *it, const struct query_block *at)
{
    return at->first * it->w->heads_stride + at->head * it->w->value_dim;
}

static void forward_block(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    const struct rows out = {w->heads + heads_at(it, at), w->value_dim, w->heads_stride};
    block_scores(it, at);
    const struct causal c = causal_of(it, at);
    w->grad->causal_softmax(&c);
    drop_columns(it, at, it->scores);
    gather(it, at, it->scores, from_key(it->v, at), out);
    for (int q = 0; q < at->n; q++)
        for (int i = 0; i < out.dim; i++)
            out.at[q * out.stride + i] *= c.inverse[q];
}

static void backward_block(const struct item *it, const struct query_block *at)
{
    const struct causal_window *w = it->w;
    const struct rows queries = block_scores(it, at);
    const struct rows dout = {w->dheads + heads_at(it, at), w->value_dim, w->heads_stride};
    transpose(it, it->doutt, dout, at->n, 1);
    scores(it, at->n_keys, from_key(it->v, at), it->doutt, it->gradient);
    drop_columns(it, at, it->gradient);
    const struct causal c = causal_of(it, at);
    w->grad->causal_backward(&c);
    if (w->dtable && !w->additive) {
        /* The block's part of the gradient of score - alpha (distance - centre)^2: each query's sum
         * over the keys, then those of the queries in order. */
        double squares[CAUSAL_WIDTH] = {0}, sums[CAUSAL_WIDTH] = {0};
        double *drel = w->dtable + 2 * at->head;
        const double centre = (double)at->bias->centre, alpha = -(double)at->bias->square;
        for (int t = 0; t < at->n_keys; t++) {
            const float *gradient = it->gradient + (size_t)t * CAUSAL_WIDTH;
            for (int q = 0; q < CAUSAL_WIDTH; q++) {
                const double x = at->first - at->first_key + q - t - centre,
                             g = (double)gradient[q];
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
    scatter(it, at, it->scores, dout, from_key(it->dv, at));
    const struct rows q = block_queries(it, at);
    if (w->additive) {
        additive_backward(it, at, q);
        return;
    }
    scatter(it, at, it->gradient, queries, from_key(it->dk, at));
    gather(it, at, it->gradient, from_key(it->k, at), queries);
    for (int t = 0; t < at->n && queries.at != q.at; t++)
        turn_back(it, &w->q_turn, at->first + t, queries.at + t * queries.stride, w->dnorms,
                  q.at + t * q.stride);
}

/* All blocks of queries of the heads that share the keys and values; backwards item's dk and dv are
 * their sums. */
static struct item each_block(const struct causal_window *w, bool back)
{
    struct item it = {.w = w};
    struct arena scratch = {.base = (unsigned char *)w->scratch, .cap = SIZE_MAX};
    take_memory(&it, &scratch, w->key_dim, w->value_dim, w->length);
    for (int t = 0; t < w->length; t++)
        turn_row(&it, &w->k_turn, t, w->k + t * w->stride, it.k.at + t * it.k.stride);
    copy_rows(it.v, w->v, w->stride, w->length);
    if (back) {
        memset(it.dk.at, 0, w->length * it.dk.stride * sizeof(float));
        memset(it.dv.at, 0, w->length * it.dv.stride * sizeof(float));
        if (w->dnorms)
            memset(w->dnorms, 0, 4 * w->key_dim * sizeof *w->dnorms);
    }
    for (int h = 0; h < w->n_heads; h++) {
        struct attend_bias bias;
        const bool biased = w->bias && w->bias(w->arg, h, &bias);
        for (int first = 0; first < w->length; first += CAUSAL_WIDTH) {
            const int n = MIN(w->length - first, CAUSAL_WIDTH);
            const int first_key = w->window && first >= w->window ? first - w->window + 1 : 0;
            const struct query_block at = {
                h, first, n, first_key, first + n - first_key, biased ? &bias : NULL};
            if (back)
                backward_block(&it, &at);
            else
                forward_block(&it, &at);
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
    const struct rows dv = {w->v, w->value_dim, w->stride};
    for (int t = 0; t < w->length; t++)
        turn_back(&it, &w->k_turn, t, it.dk.at + t * it.dk.stride,
                  w->dnorms ? w->dnorms + 2 * w->key_dim : NULL, w->k + t * w->stride);
    copy_rows(dv, it.dv.at, it.dv.stride, w->length);
}
