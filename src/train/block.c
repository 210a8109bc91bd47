/*
 * One block of the model, forwards and backwards, a block of rows at a time where a token is all
 * that counts. Causal attention is over whole windows; an item of it is a window and a K/V head.
 */

#include "train/backprop_pass.h"

#include <math.h>

#include "engine/causal.h"

/* --- attention ------------------------------------------------------------------------------- */

/* The query heads of an item. */
struct item_heads {
    const struct pass *p;
    int layer, window, first;
};

static void drop_head_columns(const void *arg, int head, int first, int first_key, int n_keys,
                              float *columns)
{
    const struct item_heads *d = arg;
    const struct backprop *b = d->p->b;
    const uint64_t window = d->p->windows.begin + d->window;
    const uint64_t of_window = window * b->config.n_heads;
    const uint64_t at = (of_window + d->first + head) * b->length;
    const uint64_t width = causal_padded_length(b->length);
    const struct dropout dropout = {d->p->batch->attn_dropout, d->p->batch->dropout.key};
    for (int t = 0; t < n_keys; t++) {
        float *row = columns + t * CAUSAL_WIDTH;
        dropout_apply(&dropout, 2 * b->config.n_layers + 1 + d->layer, row, NULL,
                      (at + first_key + t) * width + first, CAUSAL_WIDTH);
    }
}

static bool head_bias(const void *arg, int head, struct attend_bias *bias)
{
    const struct item_heads *d = arg;
    return positions_bias(&d->p->b->config, d->first + head,
                          d->p->w->blocks[d->layer].w[ROLE_ATTN_REL].weight, bias);
}

/* Where a column of the first of some rows is. */
static float *place_weights(struct matrix_view v, struct range r, int column)
{
    return view_columns(rows_view(v, r), column, 1).x;
}

static struct head_turn head_turn(const struct pass *p, int l, enum tensor_role role)
{
    const struct param_pair *norm = &p->w->blocks[l].w[role];
    return (struct head_turn){&p->b->positions, p->b->kernels, &p->b->config, l,
                              norm->weight,     norm->bias};
}

/* Where an item's queries, keys and values are in qkv. */
struct item_place {
    int window, kv_head;
    struct range rows;
    int q, k, v; /* their first columns: keys and values are behind all queries */
};

static struct item_place place_item(const struct backprop *b, int l, int index)
{
    const struct config *c = &b->config;
    const int kv_heads = config_kv_heads(c, l), group = config_group(c, l);
    const int kv_head = index % kv_heads, window = index / kv_heads;
    const int keys = config_q_dim(c), values = keys + kv_heads * c->head_dim;
    return (struct item_place){window,
                               kv_head,
                               {window * b->length, (window + 1) * b->length},
                               kv_head * group * c->head_dim,
                               keys + kv_head * c->head_dim,
                               values + kv_head * config_value_dim(c)};
}

/* Asks for n columns of some rows. */
static void ask_for(struct matrix_view v, struct range r, int column, int n)
{
    for (int t = r.begin; t < r.end; t++)
        for (int i = 0; i < n; i += KERNEL_LANES)
            __builtin_prefetch(v.x + t * v.stride + column + i, 0, 2);
}

/* Rows of an item that are asked for: more would take the place of what is in use. */
#define ASKED_ROWS 128

/* Asks for what a thread's next item reads: its rows lie farther apart than a processor expects. */
static void ask_for_item(const struct backprop *b, int l, int index)
{
    const struct config *c = &b->config;
    const struct matrix_view qkv = b->blocks[l].qkv;
    struct item_place at = place_item(b, l, index);
    at.rows.end = MIN(at.rows.end, at.rows.begin + ASKED_ROWS);
    ask_for(qkv, at.rows, at.q, config_group(c, l) * c->head_dim);
    ask_for(qkv, at.rows, at.k, c->head_dim);
    ask_for(qkv, at.rows, at.v, config_value_dim(c));
}

/* An item of block l: qkv -> heads or, on the way back, dheads -> the gradient of qkv and, of a
 * table of heads, dtable. */
static void attend_item(const struct pass *p, int l, int index, int thread, bool back)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct saved *saved = &b->blocks[l];
    const int group = config_group(c, l), key = c->head_dim, value = config_value_dim(c);
    const float *additive = p->w->blocks[l].w[ROLE_ATTN_SCORE].weight;
    const struct matrix_view qkv = saved->qkv, heads = saved->heads, dheads = b->dheads;
    const struct item_place at = place_item(b, l, index);
    const struct range r = at.rows;
    const int head = at.kv_head * group;
    const size_t all_heads = (size_t)at.window * c->n_heads + head;
    const struct item_heads item = {p, l, at.window, head};
    const struct causal_window w = {
        .grad = b->grad,
        .q_turn = head_turn(p, l, ROLE_ATTN_Q_NORM),
        .k_turn = head_turn(p, l, ROLE_ATTN_K_NORM),
        .halves = c->position == POSITION_ROPE && c->parts.rope_halves ? c->rope.n_dims : 0,
        .window = c->layer_window[l],
        .length = b->length,
        .n_heads = group,
        .key_dim = key,
        .value_dim = value,
        .scale = config_score_scale(c),
        .q = place_weights(qkv, r, at.q),
        .k = place_weights(qkv, r, at.k),
        .v = place_weights(qkv, r, at.v),
        .stride = qkv.stride,
        .heads = place_weights(heads, r, head * value),
        .heads_stride = heads.stride,
        .softmax = saved->softmax + all_heads * 2 * causal_padded_length(b->length),
        .dheads = place_weights(dheads, r, head * value),
        .additive = additive ? additive + (size_t)head * key : NULL,
        .dnorms = b->dnorms ? b->dnorms + (size_t)index * 4 * key : NULL,
        .dtable = b->dtable ? b->dtable + all_heads * b->table_cols : NULL,
        .drop = p->gradient && p->batch->attn_dropout > 0 ? drop_head_columns : NULL,
        .bias = head_bias,
        .arg = &item,
        .scratch = pass_scratch(b, thread),
    };
    (back ? causal_backward : causal_forward)(&w);
}

/* The windows and K/V heads of block l, which threads share out. */
static void attend(const struct pass *p, int l, int thread, bool back)
{
    const struct backprop *b = p->b;
    const int n_items = rows_n(p->windows) * config_kv_heads(&b->config, l);
    struct pool_items items = pool_items(b->pool, thread, n_items, 1);
    struct range some;
    while (pool_items_next(&items, &some))
        for (int i = some.begin; i < some.end; i++) {
            if (back && i + 1 < n_items)
                ask_for_item(b, l, i + 1);
            attend_item(p, l, i, thread, back);
        }
}

/* --- branches -------------------------------------------------------------------------------- */

/* What is added to the residual stream: attention, or the feed-forward part. It reads the norm of
 * the stream by some matrices, and `inner`, what follows from these, goes through one more. */
struct branch {
    int layer, point; /* it is added to the stream at this point, which gives the next one */
    struct norm_use norm;
    struct matrix_view reads; /* the norm's output, or the stream itself where there is no norm */
    int n_in;
    struct {
        enum tensor_role role;
        struct matrix_view y, dy; /* of the matrix; its gradient */
    } in[QKV_PARTS];
    enum tensor_role out;
    struct matrix_view inner, d_inner;
    /* Where what is added is normed: that norm, whose x is the last matrix's product, the gradient
     * of this, and the norm's stats. */
    struct norm_use added;
    struct matrix_view d_added, added_stats;
    /* Gradients: of the stream behind the branch; the same as it reaches the matrix `out`; what
     * goes round the branch to where its norm reads; and of the stream there. */
    struct matrix_view after, dropped, around, before;
};

/* Returns the role of the norm that a branch reads, which belongs to *block; TENSOR_ROLES: the
 * branch reads the stream itself. */
static enum tensor_role norm_role(const struct config *c, bool attention, int *block)
{
    if (!attention)
        return layout_ffn_norm(c);
    if (c->placement != PLACEMENT_AFTER)
        return ROLE_ATTN_NORM;
    return (*block)-- > 0 ? ROLE_LAYER_OUTPUT_NORM : TENSOR_ROLES;
}

/* `d_inner` of the feed-forward part is dup: what is not linear is taken back in place. In parallel
 * both branches read the stream before the block, and the gradients of its two readers add up in
 * dmid. */
static struct branch branch_of(const struct pass *p, int l, bool attention)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const bool parallel = c->placement == PLACEMENT_PARALLEL;
    const struct saved *saved = &b->blocks[l];
    struct qkv_part parts[QKV_PARTS];
    int block = l;
    const enum tensor_role norm = norm_role(c, attention, &block);
    struct branch br = {
        .layer = l,
        .point = 2 * l + !attention,
        .norm = backprop_norm_of(p, norm, block, attention || parallel ? saved->x : saved->mid),
        .out = attention ? ROLE_ATTN_OUTPUT : ROLE_FFN_DOWN,
        .inner = attention ? saved->heads : saved->up,
        .d_inner = attention ? b->dheads : b->dup,
        .d_added = b->dadded[!attention],
        .added_stats = b->added_stats[!attention],
        .after = attention && !parallel ? b->dmid : b->dx,
        .dropped = attention ? b->dmid_dropped : b->dx_dropped,
        .around = attention ? b->dmid : b->dx,
        .before = attention ? b->dx : b->dmid};
    br.reads = br.norm.is_norm ? b->norm : br.norm.x;
    if (c->parts.added_norms)
        br.added = backprop_norm_of(p, attention ? ROLE_ATTN_POST_NORM : ROLE_FFN_POST_NORM, l,
                                    saved->added[!attention]);
    if (!attention) {
        br.n_in = saved->gate.x ? 2 : 1;
        br.in[0].role = ROLE_FFN_UP;
        br.in[0].y = saved->up;
        br.in[0].dy = b->dup;
        br.in[1].role = ROLE_FFN_GATE;
        br.in[1].y = saved->gate;
        br.in[1].dy = saved->gate;
        return br;
    }
    br.n_in = layout_qkv(c, l, parts);
    for (int i = 0; i < br.n_in; i++) {
        br.in[i].role = parts[i].role;
        br.in[i].y = view_columns(saved->qkv, parts[i].first, parts[i].rows);
        br.in[i].dy = br.in[i].y;
    }
    return br;
}

/* Where norms stand after the residuals, what is added to a branch is what the branch reads. */
static bool adds_norm(const struct pass *p)
{
    return p->b->config.placement == PLACEMENT_AFTER;
}

/* A role's map forwards, start + x W^T + b. */
static struct affine map_of(const struct pass *p, const struct branch *br, enum tensor_role role,
                            const float *start)
{
    return (struct affine){.panels = pass_panels(p->b, p->w, role, br->layer),
                           .bias = p->w->blocks[br->layer].w[role].bias,
                           .start = start};
}

/* The map of its gradient, start + dy W. */
static struct affine map_back(const struct pass *p, const struct branch *br, enum tensor_role role,
                              const float *start)
{
    return (struct affine){.matrix = p->w->blocks[br->layer].w[role].weight, .start = start};
}

/* The rows r of what the branch reads, and its matrices' products with them. */
static void read_stream(const struct pass *p, const struct branch *br, struct range r)
{
    const struct matrix_view reads = rows_view(br->reads, r);
    if (br->norm.is_norm)
        backprop_norm(p, &br->norm, r, reads.x);
    for (int i = 0; i < br->n_in; i++)
        backprop_multiply(p->b, map_of(p, br, br->in[i].role, NULL), reads,
                          rows_view(br->in[i].y, r));
}

/* The stream's rows r behind the branch = before it + inner [r] through the last matrix, normed
 * where the model norms what is added, without what is dropped. */
static void add_branch(const struct pass *p, const struct branch *br, struct matrix_view inner,
                       struct range r)
{
    const struct matrix_view y = rows_view(pass_stream(p->b, br->point + 1), r);
    const float *start = adds_norm(p)                 ? rows_view(br->reads, r).x
                         : config_adds(&p->b->config) ? rows_view(pass_stream(p->b, br->point), r).x
                                                      : NULL;
    const bool is_last = !pass_drops(p) && !br->added.is_norm;
    backprop_multiply(p->b, map_of(p, br, br->out, is_last ? start : NULL), inner,
                      br->added.is_norm ? rows_view(br->added.x, r) : y);
    if (br->added.is_norm)
        backprop_norm(p, &br->added, r, y.x);
    if (pass_drops(p))
        backprop_drop(p, br->point + 1, y.x, start, r);
    else if (!is_last && start)
        for (size_t i = 0; i < y.n_rows * y.stride; i++)
            y.x[i] += start[i];
}

/* The gradient of the last matrix's product. */
static struct matrix_view d_product(const struct branch *br)
{
    return br->added.is_norm ? br->d_added : br->dropped;
}

/* The backward pass of add_branch: from the gradient behind the branch to that of `inner`. */
static void add_branch_backward(const struct pass *p, const struct branch *br, struct range r)
{
    const struct matrix_view after = rows_view(br->after, r), dropped = rows_view(br->dropped, r);
    const struct matrix_view none = {.x = NULL};
    if (dropped.x != after.x)
        memcpy(dropped.x, after.x, after.n_rows * after.stride * sizeof *after.x);
    if (pass_drops(p))
        backprop_drop(p, br->point + 1, dropped.x, NULL, r);
    if (br->added.is_norm)
        backprop_norm_backward(p, &br->added, br->dropped, br->added_stats, none, br->d_added, r);
    backprop_multiply(p->b, map_back(p, br, br->out, NULL), rows_view(d_product(br), r),
                      rows_view(br->d_inner, r));
}

/* From the gradients of the products of the branch's matrices to the gradient of the stream before
 * the branch. The gradient from behind goes round the branch's norm or, added to the branch's own,
 * through it. dnorm and stats stay for the sums. */
static void read_stream_backward(const struct pass *p, const struct branch *br, struct range r)
{
    const struct matrix_view dnorm = rows_view(p->b->dnorm, r), none = {.x = NULL};
    const float *start = adds_norm(p) ? rows_view(br->after, r).x : NULL;
    for (int i = 0; i < br->n_in; i++, start = dnorm.x)
        backprop_multiply(p->b, map_back(p, br, br->in[i].role, start), rows_view(br->in[i].dy, r),
                          dnorm);
    if (br->norm.is_norm)
        backprop_norm(p, &br->norm, r, rows_view(br->reads, r).x);
    const bool goes_round = config_adds(&p->b->config) && !adds_norm(p);
    backprop_norm_backward(p, &br->norm, p->b->dnorm, p->b->stats, goes_round ? br->around : none,
                           br->before, r);
}

/* This thread's share of the gradients of the branch's tensors, over all rows. */
static void branch_sums(const struct pass *p, const struct branch *br, int thread)
{
    const struct param_pair *gradient = p->gradient->blocks[br->layer].w;
    const struct range rows = all_rows(p);
    backprop_weight_sums(p->b, gradient[br->out], rows_view(d_product(br), rows),
                         rows_view(br->inner, rows), thread);
    for (int i = 0; i < br->n_in; i++)
        backprop_weight_sums(p->b, gradient[br->in[i].role], rows_view(br->in[i].dy, rows),
                             rows_view(br->reads, rows), thread);
    backprop_norm_sums(p, &br->norm, p->b->dnorm, p->b->stats, thread);
    if (br->added.is_norm)
        backprop_norm_sums(p, &br->added, br->dropped, br->added_stats, thread);
}

/* --- forwards -------------------------------------------------------------------------------- */

/* x -> qkv */
static void project_qkv(const struct pass *p, int l, struct range r, int thread)
{
    const struct branch attention = branch_of(p, l, true);
    (void)thread;
    read_stream(p, &attention, r);
}

/* heads -> mid, up, gate and the stream after the block: attention's output matrix and all that
 * follows it */
static void attn_output_and_ffn(const struct pass *p, int l, struct range r, int thread)
{
    const struct backprop *b = p->b;
    const struct branch attention = branch_of(p, l, true), ffn = branch_of(p, l, false);
    const int ff = b->config.d_ff;
    const struct matrix_view act = {pass_scratch(b, thread), rows_n(r), ff, ff};
    add_branch(p, &attention, rows_view(attention.inner, r), r);
    read_stream(p, &ffn, r);
    b->grad->ffn[b->config.ffn](act.x, rows_view(b->blocks[l].up, r).x,
                                rows_view(b->blocks[l].gate, r).x, act.n_rows * act.stride);
    add_branch(p, &ffn, act, r);
}

void backprop_block(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(l >= 0 && l < p->b->config.n_layers);
    if (!p->b->forward_only && !backprop_in_parts(p->b)) {
        backprop_pack_block(p, l, thread);
        pool_barrier(pool, thread);
    }
    rows_each(p, all_rows(p), l, thread, project_qkv);
    pool_barrier(pool, thread);
    attend(p, l, thread, false);
    pool_barrier(pool, thread);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn);
    pool_barrier(pool, thread);
}

/* --- backwards ------------------------------------------------------------------------------- */

/* Adds to dx [r, d] the gradient of the loss by the stream behind block l itself. */
static void add_stream_gradient(const struct pass *p, int l, struct range r)
{
    const struct backprop *b = p->b, *teacher = p->batch->teacher;
    const float weight = p->batch->loss.streams;
    if (!teacher || weight <= 0)
        return;
    const int n_layers = b->config.n_layers, d = b->config.d_model;
    const struct matrix_view to = pass_stream(teacher, 2 * l + 2), from = pass_stream(b, 2 * l + 2);
    const float step = 2 * weight / ((float)n_layers * (float)pass_batch_rows(p));
    for (int t = r.begin; t < r.end; t++) {
        const float *x = from.x + t * from.stride, *y = to.x + t * to.stride;
        float *dx = b->dx.x + t * b->dx.stride, dot = 0;
        const float least = (float)d * b->config.norm_eps;
        const float xx = b->grad->squares(x, d) + least, yy = b->grad->squares(y, d) + least;
        for (int i = 0; i < d; i++)
            dot += x[i] * y[i];
        /* Of 2 - 2 cos + longer^2: the cosine changes by y / |x||y| - cos x / |x|^2, the logarithm
         * by x / |x|^2. */
        const float lengths = sqrtf(xx) * sqrtf(yy), longer = 0.5f * logf(xx / yy);
        for (int i = 0; i < d; i++)
            dx[i] += step * ((dot / lengths + longer) / xx * x[i] - y[i] / lengths);
    }
}

/* dx of the stream after the block -> dmid and dheads; dup, up and gate in place, norm, dnorm and
 * stats for the sums */
static void attn_output_and_ffn_backward(const struct pass *p, int l, struct range r, int thread)
{
    const struct backprop *b = p->b;
    const struct branch attention = branch_of(p, l, true), ffn = branch_of(p, l, false);
    const struct matrix_view dup = rows_view(b->dup, r);
    (void)thread;
    add_stream_gradient(p, l, r);
    add_branch_backward(p, &ffn, r);
    b->grad->ffn_backward[b->config.ffn](dup.x, rows_view(b->blocks[l].up, r).x,
                                         rows_view(b->blocks[l].gate, r).x,
                                         dup.n_rows * dup.stride);
    read_stream_backward(p, &ffn, r);
    add_branch_backward(p, &attention, r);
}

/* The gradient of qkv and dmid -> dx of the stream before the block; norm, dnorm and stats for the
 * sums */
static void project_qkv_backward(const struct pass *p, int l, struct range r, int thread)
{
    const struct branch attention = branch_of(p, l, true);
    (void)thread;
    read_stream_backward(p, &attention, r);
}

/* Adds the gradients of the norms of queries and keys, window by window and head by head. */
static void add_head_norms(const struct pass *p, int l)
{
    const struct config *c = &p->b->config;
    const struct param_pair *gradient = p->gradient->blocks[l].w;
    float *const sums[] = {gradient[ROLE_ATTN_Q_NORM].weight, gradient[ROLE_ATTN_Q_NORM].bias,
                           gradient[ROLE_ATTN_K_NORM].weight, gradient[ROLE_ATTN_K_NORM].bias};
    const int n_items = rows_n(p->windows) * config_kv_heads(c, l), dim = c->head_dim;
    for (int k = 0; k < 4; k++)
        for (int i = 0; sums[k] && i < dim; i++) {
            double sum = (double)sums[k][i];
            for (int item = 0; item < n_items; item++)
                sum += p->b->dnorms[((size_t)item * 4 + k) * dim + i];
            sums[k][i] = (float)sum;
        }
}

void backprop_block_backward(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct branch attention = branch_of(p, l, true), ffn = branch_of(p, l, false);
    const struct param_pair *gradient = p->gradient->blocks[l].w;
    float *table = gradient[b->table].weight;
    assert(!b->forward_only && l >= 0 && l < c->n_layers);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn_backward);
    pool_barrier(b->pool, thread);
    attend(p, l, thread, true);
    branch_sums(p, &ffn, thread);
    pool_barrier(b->pool, thread);
    rows_each(p, all_rows(p), l, thread, project_qkv_backward);
    pool_barrier(b->pool, thread);
    branch_sums(p, &attention, thread);
    if (b->dnorms && thread == 0)
        add_head_norms(p, l);
    const struct range heads = pool_range(c->n_heads, thread, b->n_threads);
    const int cols = b->table_cols;
    if (b->dtable)
        for (int i = cols * heads.begin; i < cols * heads.end; i++) {
            double sum = (double)table[i];
            for (int window = 0; window < rows_n(p->windows); window++)
                sum += b->dtable[(size_t)window * cols * c->n_heads + i];
            table[i] = (float)sum;
        }
    pool_barrier(b->pool, thread);
}
