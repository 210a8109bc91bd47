/*
 * One block of the model, forwards and backwards, a block of rows at a time where a token is all
 * that counts. Causal attention is over whole windows; an item of it is a window and a K/V head.
 *
 * The keys and values of every head that a latent cache stands for: what inference multiplies into
 * queries and results, k_b and v_b, is multiplied into the cached vectors here, as over whole
 * windows heads of their own size attend with fewer operations than heads of the rank's. To
 * attention a block is then one with a K/V head for each query head.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/causal.h"
#include "train/private.h"

/* --- attention ------------------------------------------------------------------------------- */

/* The query heads of an item. */
struct item_heads {
    const struct pass *p;
    int layer, window, first;
};

static void drop_columns(const void *arg, int head, int first, int n_keys, float *columns)
{
    const struct item_heads *d = arg;
    const struct backprop *b = d->p->b;
    const uint64_t of_window = (uint64_t)d->window * (uint64_t)b->config.n_heads;
    const uint64_t at = (of_window + (uint64_t)(d->first + head)) * (uint64_t)b->length;
    const uint64_t width = (uint64_t)causal_padded_length(b->length);
    for (int t = 0; t < n_keys; t++) {
        float *row = columns + (size_t)t * CAUSAL_WIDTH;
        dropout_apply(&d->p->attn_dropout, 2 * b->config.n_layers + 1 + d->layer, row, NULL, row,
                      (at + (uint64_t)t) * width + (uint64_t)first, CAUSAL_WIDTH);
    }
}

static bool head_bias(const void *arg, int head, struct attend_bias *bias)
{
    const struct item_heads *d = arg;
    const struct config *c = &d->p->b->config;
    const int h = d->first + head;
    const float *rel = d->p->w->blocks[d->layer].w[ROLE_ATTN_REL].weight;
    if (c->position == POSITION_ALIBI)
        *bias = positions_alibi(h, c->n_heads);
    else if (c->position == POSITION_QUADRATIC)
        *bias = positions_quadratic(rel[2 * h], rel[2 * h + 1]);
    else
        return false;
    return true;
}

/* The K/V heads of a layer as attention has them here: what is latent is made into those of each
 * query head. */
static int kv_heads_of(const struct config *c, int l)
{
    return config_is_latent(c) ? c->n_heads : config_kv_heads(c, l);
}

/* The gradient of block l's qkv, in rows as long as those: layers may differ. */
static struct view dqkv_of(const struct backprop *b, int l)
{
    const struct view qkv = b->blocks[l].qkv;
    return (struct view){b->dqkv.x, qkv.n_rows, qkv.n, qkv.stride};
}

static void run_item(const struct pass *p, int l, int index, float *scratch,
                     void (*run)(const struct causal_window *w))
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct saved *saved = &b->blocks[l];
    const bool latent = config_is_latent(c);
    const int kv_heads = kv_heads_of(c, l), group = c->n_heads / kv_heads;
    const int kv_head = index % kv_heads, window = index / kv_heads, head = kv_head * group;
    const int key = c->head_dim, value = config_value_dim(c);
    const struct rows r = {window * b->length, (window + 1) * b->length};
    /* Where the head's are in a row: qkv has all queries, all keys, all values; kv the last two. */
    const int k = (latent ? 0 : config_q_dim(c)) + kv_head * key;
    const int v = (latent ? 0 : config_q_dim(c)) + kv_heads * key + kv_head * value;
    const struct view q = view_rows(saved->qkv, r), heads = view_rows(saved->heads, r);
    const struct view kv = view_rows(latent ? saved->kv : saved->qkv, r);
    const size_t all_heads = (size_t)window * (size_t)c->n_heads + (size_t)head;
    const struct item_heads item = {p, l, window, head};
    struct causal_window w = {
        .kernels = b->kernels,
        .grad = b->grad,
        .positions = &b->positions,
        .rope_dims = c->rope.n_dims,
        .length = b->length,
        .n_heads = group,
        .key_dim = key,
        .value_dim = value,
        .scale = 1.0f / sqrtf((float)key),
        .q = q.x + head * key,
        .k = kv.x + k,
        .v = kv.x + v,
        .q_stride = q.stride,
        .kv_stride = kv.stride,
        .heads = heads.x + head * value,
        .heads_stride = heads.stride,
        .softmax = saved->softmax + all_heads * 2 * (size_t)causal_padded_length(b->length),
        .drel = b->drel ? b->drel + 2 * all_heads : NULL,
        .drop = p->gradient && p->attn_dropout.share > 0 ? drop_columns : NULL,
        .bias = head_bias,
        .arg = &item,
        .scratch = scratch,
    };
    if (!b->forward_only) {
        const struct view dkv = view_rows(latent ? b->dkv : dqkv_of(b, l), r);
        w.dheads = view_rows(b->dheads, r).x + head * value;
        w.dq = view_rows(dqkv_of(b, l), r).x + head * key;
        w.dk = dkv.x + k;
        w.dv = dkv.x + v;
    }
    run(&w);
}

/* This thread's share of the windows and K/V heads of block l: qkv -> heads, or dheads -> dqkv and,
 * of quadratic positions, drel. Of a latent cache keys and values are in kv, their gradient in dkv.
 */
static void attend(const struct pass *p, int l, int thread,
                   void (*run)(const struct causal_window *w))
{
    const int n_items = p->n_sequences * kv_heads_of(&p->b->config, l);
    const struct rows share = rows_share(p, (struct rows){0, n_items}, thread);
    for (int index = share.begin; index < share.end; index++)
        run_item(p, l, index, pass_scratch(p->b, thread), run);
}

/* Whether a later layer has been at the block's gradients. */
static bool adds_to_sums(const struct pass *p, int l)
{
    return p->b->config.shared && l + 1 < p->b->config.n_layers;
}

/* This thread's share of the gradient of block l's quadratic positions, if there are such. */
static void position_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    float *gradient = p->gradient->blocks[l].w[ROLE_ATTN_REL].weight;
    int begin, end;
    pool_share(c->n_heads, thread, b->n_threads, &begin, &end);
    for (int i = 2 * begin; i < 2 * end && b->drel; i++) {
        double sum = adds_to_sums(p, l) ? (double)gradient[i] : 0;
        for (int window = 0; window < p->n_sequences; window++)
            sum += b->drel[2 * (size_t)window * (size_t)c->n_heads + (size_t)i];
        gradient[i] = (float)sum;
    }
}

/* --- latent caches --------------------------------------------------------------------------- */

/* In rows r of a buffer as qkv: what is latent, after the queries. */
static struct view latent_of(const struct config *c, int l, struct view qkv, struct rows r)
{
    return view_columns(view_rows(qkv, r), config_q_dim(c), config_latent(c, l));
}

/* In rows r of a buffer as kv: the keys of a head; and the values of all. */
static struct view keys_of(const struct config *c, struct view kv, struct rows r, int head)
{
    return view_columns(view_rows(kv, r), head * c->head_dim, c->head_dim);
}

static struct view values_of(const struct config *c, struct view kv, struct rows r)
{
    return view_columns(view_rows(kv, r), config_q_dim(c), config_heads_dim(c));
}

/* kv of the rows r from what is latent in qkv. */
static void expand(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct view latent = latent_of(c, l, b->blocks[l].qkv, r);
    const struct view kv = b->blocks[l].kv;
    struct affine map = {.panels = b->panels[ROLE_ATTN_K_B]};
    for (int h = 0; h < c->n_heads; h++) {
        backprop_multiply(b, map, latent, keys_of(c, kv, r, h));
        map.panels += (size_t)kernel_padded(c->head_dim) * (size_t)latent.n;
    }
    map.panels = b->panels[ROLE_ATTN_V_B];
    backprop_multiply(b, map, latent, values_of(c, kv, r));
}

/* And the gradient of what is latent, in dqkv, from dkv. */
static void expand_backward(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct view dlatent = latent_of(c, l, dqkv_of(b, l), r);
    struct affine map = {.panels = b->panels[ROLE_ATTN_V_B]};
    backprop_multiply(b, map, values_of(c, b->dkv, r), dlatent);
    map = (struct affine){.panels = b->panels[ROLE_ATTN_K_B], .start = dlatent.x};
    for (int h = 0; h < c->n_heads; h++) {
        backprop_multiply(b, map, keys_of(c, b->dkv, r, h), dlatent);
        map.panels += (size_t)kernel_padded(dlatent.n) * (size_t)c->head_dim;
    }
}

/* This thread's share of the gradients of k_b and v_b of block l. */
static void expand_sums(const struct pass *p, int l, int thread)
{
    const bool add = adds_to_sums(p, l);
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct param_pair *gradient = p->gradient->blocks[l].w;
    const struct rows all = all_rows(p);
    const struct view latent = latent_of(c, l, b->blocks[l].qkv, all);
    struct weight_sums keys = {.gradient = gradient[ROLE_ATTN_K_B], .dy = latent, .add = add};
    for (int h = 0; h < c->n_heads; h++) {
        keys.x = keys_of(c, b->dkv, all, h);
        backprop_weight_sums(b, &keys, thread);
        keys.gradient.weight += (size_t)latent.n * (size_t)c->head_dim;
    }
    const struct weight_sums values = {gradient[ROLE_ATTN_V_B], values_of(c, b->dkv, all), latent,
                                       add};
    backprop_weight_sums(b, &values, thread);
}

/* --- forwards -------------------------------------------------------------------------------- */

/* The block's matrices, for one direction. */
static void pack_block(const struct pass *p, int l, bool backward, int thread)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
        if (p->b->panels[role])
            backprop_pack(p, role, l, backward, thread);
    pool_barrier(p->b->pool, thread);
}

/* Where norms stand after the residuals, what is added to a branch is what the branch reads. */
static bool adds_norm(const struct pass *p)
{
    return p->b->config.placement == PLACEMENT_AFTER;
}

/* A role's map in this direction: start + x W^T + b, or start + dy W. */
static struct affine map_of(const struct pass *p, int l, enum tensor_role role, const float *start)
{
    return (struct affine){p->b->panels[role], p->w->blocks[l].w[role].bias, start};
}

static struct affine map_back(const struct pass *p, enum tensor_role role, const float *start)
{
    return (struct affine){.panels = p->b->panels[role], .start = start};
}

/* What a thread has for itself of a block of rows: the norm, and behind it the activations. */
static struct view norm_scratch(const struct pass *p, struct rows r, int thread)
{
    const int d = p->b->config.d_model;
    return (struct view){pass_scratch(p->b, thread), rows_n(r), d, (size_t)d};
}

/* x -> qkv, and kv of what is latent */
static void project_qkv(const struct pass *p, int l, struct rows r, int thread)
{
    const struct backprop *b = p->b;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    const struct view norm = norm_scratch(p, r, thread), qkv = view_rows(b->blocks[l].qkv, r);
    backprop_norm(p, 2 * l, r, norm.x);
    for (const struct qkv_part *part = parts; part < parts + n_parts; part++)
        backprop_multiply(b, map_of(p, l, part->role, NULL), norm,
                          view_columns(qkv, part->first, part->rows));
    if (config_is_latent(&b->config))
        expand(p, l, r);
}

/* The stream's rows r at `point` = start + x times the role's matrix, the product without what is
 * dropped. */
static void add_branch(const struct pass *p, int point, enum tensor_role role, struct view x,
                       const float *start, struct rows r)
{
    const struct view y = view_rows(pass_stream(p->b, point), r);
    backprop_multiply(p->b, map_of(p, (point - 1) / 2, role, pass_drops(p) ? NULL : start), x, y);
    if (pass_drops(p))
        backprop_drop(p, point, y.x, start, y.x, r);
}

/* act [r, ff] = what the down matrix takes. */
static void activate(const struct backprop *b, int l, float *act, struct rows r)
{
    const struct view up = view_rows(b->blocks[l].up, r), gate = b->blocks[l].gate;
    b->grad->ffn[b->config.ffn](act, up.x, gate.x ? view_rows(gate, r).x : NULL,
                                (size_t)up.n_rows * up.stride);
}

/* heads -> mid, up, gate and the stream after the block: attention's output matrix and all that
 * follows it */
static void attn_output_and_ffn(const struct pass *p, int l, struct rows r, int thread)
{
    const struct backprop *b = p->b;
    const struct saved *saved = &b->blocks[l];
    const int ff = b->config.d_ff;
    const struct view norm = norm_scratch(p, r, thread);
    const struct view act = {norm.x + ROW_BLOCK * norm.stride, rows_n(r), ff, (size_t)ff};
    if (adds_norm(p))
        backprop_norm(p, 2 * l, r, norm.x);
    add_branch(p, 2 * l + 1, ROLE_ATTN_OUTPUT, view_rows(saved->heads, r),
               adds_norm(p) ? norm.x : view_rows(saved->x, r).x, r);
    backprop_norm(p, 2 * l + 1, r, norm.x);
    backprop_multiply(b, map_of(p, l, ROLE_FFN_UP, NULL), norm, view_rows(saved->up, r));
    if (saved->gate.x)
        backprop_multiply(b, map_of(p, l, ROLE_FFN_GATE, NULL), norm, view_rows(saved->gate, r));
    activate(b, l, act.x, r);
    add_branch(p, 2 * l + 2, ROLE_FFN_DOWN, act, adds_norm(p) ? norm.x : view_rows(saved->mid, r).x,
               r);
}

void backprop_block(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, false, thread);
    rows_each(p, all_rows(p), l, thread, project_qkv);
    pool_barrier(pool, thread);
    attend(p, l, thread, causal_forward);
    pool_barrier(pool, thread);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn);
    pool_barrier(pool, thread);
}

/* --- backwards ------------------------------------------------------------------------------- */

/* The stream's gradient after a branch, `gradient`, goes before it round the branch's norm or,
 * with what comes from the branch, through it. */
static struct view round_norm(const struct pass *p, struct view gradient)
{
    return adds_norm(p) ? (struct view){.x = NULL} : gradient;
}

static const float *through_norm(const struct pass *p, struct view gradient, struct rows r)
{
    return adds_norm(p) ? view_rows(gradient, r).x : NULL;
}

/* In the rows r, the gradient of a sum becomes that of the branch: without what was dropped. */
static struct view drop_gradient(const struct pass *p, int point, struct view gradient,
                                 struct view dropped, struct rows r)
{
    const struct view in = view_rows(gradient, r), out = view_rows(dropped, r);
    if (pass_drops(p))
        backprop_drop(p, point, out.x, NULL, in.x, r);
    else if (out.x != in.x)
        memcpy(out.x, in.x, (size_t)in.n_rows * in.stride * sizeof *in.x);
    return out;
}

/* dx of the stream after the block -> dmid and dheads; norm, act, dup, dgate, dnorm and stats for
 * the sums */
static void attn_output_and_ffn_backward(const struct pass *p, int l, struct rows r, int thread)
{
    const struct backprop *b = p->b;
    const struct saved *saved = &b->blocks[l];
    (void)thread;
    const struct view dup = view_rows(b->dup, r), dnorm = view_rows(b->dnorm, r);
    const bool gated = b->dgate.x;
    const struct view dgate = gated ? view_rows(b->dgate, r) : b->dgate;
    backprop_norm(p, 2 * l + 1, r, view_rows(b->norm, r).x);
    activate(b, l, view_rows(b->act, r).x, r);
    backprop_multiply(b, map_back(p, ROLE_FFN_DOWN, NULL),
                      drop_gradient(p, 2 * l + 2, b->dx, b->dx_dropped, r), dup);
    b->grad->ffn_backward[b->config.ffn](dup.x, dgate.x, dup.x, view_rows(saved->up, r).x,
                                         gated ? view_rows(saved->gate, r).x : NULL,
                                         (size_t)dup.n_rows * dup.stride);
    backprop_multiply(b, map_back(p, ROLE_FFN_UP, through_norm(p, b->dx, r)), dup, dnorm);
    if (gated)
        backprop_multiply(b, map_back(p, ROLE_FFN_GATE, dnorm.x), dgate, dnorm);
    backprop_norm_backward(p, 2 * l + 1, round_norm(p, b->dx), b->dmid, r);
    backprop_multiply(b, map_back(p, ROLE_ATTN_OUTPUT, NULL),
                      drop_gradient(p, 2 * l + 1, b->dmid, b->dmid_dropped, r),
                      view_rows(b->dheads, r));
}

/* This thread's share of the gradient of a role's weight and bias, y = x W^T + b, over all rows. */
static void weight_sums(const struct pass *p, int l, enum tensor_role role, struct view dy,
                        struct view x, int thread)
{
    const struct weight_sums sums = {p->gradient->blocks[l].w[role], view_rows(dy, all_rows(p)),
                                     view_rows(x, all_rows(p)), adds_to_sums(p, l)};
    backprop_weight_sums(p->b, &sums, thread);
}

static void ffn_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    weight_sums(p, l, ROLE_FFN_DOWN, b->dx_dropped, b->act, thread);
    weight_sums(p, l, ROLE_FFN_UP, b->dup, b->norm, thread);
    if (b->dgate.x)
        weight_sums(p, l, ROLE_FFN_GATE, b->dgate, b->norm, thread);
    backprop_norm_sums(p, 2 * l + 1, thread);
}

/* dqkv and dmid -> dx of the stream before the block; norm, dnorm and stats for the sums */
static void project_qkv_backward(const struct pass *p, int l, struct rows r, int thread)
{
    const struct backprop *b = p->b;
    (void)thread;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    const struct view dnorm = view_rows(b->dnorm, r), dqkv = view_rows(dqkv_of(b, l), r);
    backprop_norm(p, 2 * l, r, view_rows(b->norm, r).x);
    if (config_is_latent(&b->config))
        expand_backward(p, l, r);
    for (int i = 0; i < n_parts; i++)
        backprop_multiply(
            b, map_back(p, parts[i].role, i == 0 ? through_norm(p, b->dmid, r) : dnorm.x),
            view_columns(dqkv, parts[i].first, parts[i].rows), dnorm);
    backprop_norm_backward(p, 2 * l, round_norm(p, b->dmid), b->dx, r);
}

static void attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    weight_sums(p, l, ROLE_ATTN_OUTPUT, b->dmid_dropped, b->blocks[l].heads, thread);
    for (int i = 0; i < n_parts; i++)
        weight_sums(p, l, parts[i].role, view_columns(dqkv_of(b, l), parts[i].first, parts[i].rows),
                    b->norm, thread);
    if (config_is_latent(&b->config))
        expand_sums(p, l, thread);
    backprop_norm_sums(p, 2 * l, thread);
    position_sums(p, l, thread);
}

void backprop_block_backward(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(p->gradient && !p->b->forward_only && l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, true, thread);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn_backward);
    pool_barrier(pool, thread);
    attend(p, l, thread, causal_backward);
    ffn_sums(p, l, thread);
    pool_barrier(pool, thread);
    rows_each(p, all_rows(p), l, thread, project_qkv_backward);
    pool_barrier(pool, thread);
    attention_sums(p, l, thread);
    pool_barrier(pool, thread);
}
