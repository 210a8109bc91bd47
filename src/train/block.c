/* One block of the model, forwards and backwards, a block of rows at a time where a token is all
 * that counts. */
#include <assert.h>
#include <string.h>

#include "train/backprop_pass.h"

static struct rows all_rows(const struct pass *p)
{
    return (struct rows){0, pass_rows(p)};
}

/* The block's matrices, for one direction. */
static void pack_block(const struct pass *p, int l, bool backward, int thread)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
        if (p->b->panels[role])
            backprop_pack(p, role, l, backward, thread);
    pool_barrier(p->b->pool, thread);
}

/* --- forwards -------------------------------------------------------------------------------- */

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
    struct backprop *b = p->b;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    const struct view norm = norm_scratch(p, r, thread);
    const struct view qkv = view_of(b->blocks[l].qkv, r, config_qkv_dim(&b->config, l));
    backprop_norm(p, 2 * l, r, norm.x);
    for (const struct qkv_part *part = parts; part < parts + n_parts; part++)
        backprop_multiply(b, map_of(p, l, part->role, NULL), norm,
                          view_columns(qkv, part->first, part->rows));
    if (config_is_latent(&b->config))
        backprop_expand(p, l, r);
}

/* The stream's rows r at `point` = start + x times the role's matrix, the product without what is
 * dropped. */
static void add_branch(const struct pass *p, int point, enum tensor_role role, struct view x,
                       const float *start, struct rows r)
{
    const struct backprop *b = p->b;
    const struct view y = view_of(pass_stream(b, point), r, b->config.d_model);
    const struct affine map = map_of(p, (point - 1) / 2, role, pass_drops(p) ? NULL : start);
    backprop_multiply(b, map, x, y);
    if (pass_drops(p))
        backprop_drop(p, point, y.x, start, y.x, r);
}

/* act [r, d_ff] = what the down matrix takes. */
static void activate(const struct backprop *b, int l, float *act, struct rows r)
{
    const struct saved *saved = &b->blocks[l];
    const int ff = b->config.d_ff;
    const float *gate = saved->gate ? rows_at(saved->gate, r, ff) : NULL;
    b->grad->ffn[b->config.ffn](act, rows_at(saved->up, r, ff), gate,
                                (size_t)rows_n(r) * (size_t)ff);
}

/* heads -> mid, up, gate and the stream after the block: attention's output matrix and all that
 * follows it */
static void attn_output_and_ffn(const struct pass *p, int l, struct rows r, int thread)
{
    struct backprop *b = p->b;
    const struct saved *saved = &b->blocks[l];
    const int d = b->config.d_model, ff = b->config.d_ff;
    const struct view norm = norm_scratch(p, r, thread);
    const struct view act = {norm.x + ROW_BLOCK * norm.stride, rows_n(r), ff, (size_t)ff};
    if (adds_norm(p))
        backprop_norm(p, 2 * l, r, norm.x);
    add_branch(p, 2 * l + 1, ROLE_ATTN_OUTPUT,
               view_of(saved->heads, r, config_heads_dim(&b->config)),
               adds_norm(p) ? norm.x : rows_at(saved->x, r, d), r);
    backprop_norm(p, 2 * l + 1, r, norm.x);
    backprop_multiply(b, map_of(p, l, ROLE_FFN_UP, NULL), norm, view_of(saved->up, r, ff));
    if (saved->gate)
        backprop_multiply(b, map_of(p, l, ROLE_FFN_GATE, NULL), norm, view_of(saved->gate, r, ff));
    activate(b, l, act.x, r);
    add_branch(p, 2 * l + 2, ROLE_FFN_DOWN, act, adds_norm(p) ? norm.x : rows_at(saved->mid, r, d),
               r);
}

void backprop_block(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, false, thread);
    rows_each(p, all_rows(p), l, thread, project_qkv);
    pool_barrier(pool, thread);
    backprop_attention(p, l, thread);
    pool_barrier(pool, thread);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn);
    pool_barrier(pool, thread);
}

/* --- backwards ------------------------------------------------------------------------------- */

/* The stream's gradient after a branch, `gradient`, goes before it round the branch's norm or,
 * with what comes from the branch, through it. */
static const float *round_norm(const struct pass *p, const float *gradient)
{
    return adds_norm(p) ? NULL : gradient;
}

static const float *through_norm(const struct pass *p, float *gradient, struct rows r)
{
    return adds_norm(p) ? rows_at(gradient, r, p->b->config.d_model) : NULL;
}

/* In the rows r, the gradient of a sum becomes that of the branch: without what was dropped. */
static struct view drop_gradient(const struct pass *p, int point, float *gradient, float *dropped,
                                 struct rows r)
{
    const struct view out = view_of(dropped, r, p->b->config.d_model);
    if (pass_drops(p))
        backprop_drop(p, point, out.x, NULL, rows_at(gradient, r, out.n), r);
    else if (dropped != gradient)
        memcpy(out.x, rows_at(gradient, r, out.n),
               (size_t)rows_n(r) * out.stride * sizeof *dropped);
    return out;
}

/* dx of the stream after the block -> dmid and dheads; norm, act, dup, dgate, dnorm and stats for
 * the sums */
static void attn_output_and_ffn_backward(const struct pass *p, int l, struct rows r, int thread)
{
    struct backprop *b = p->b;
    (void)thread;
    const int d = b->config.d_model, ff = b->config.d_ff;
    const struct view dup = view_of(b->dup, r, ff), dnorm = view_of(b->dnorm, r, d);
    const float *gate = b->dgate ? rows_at(b->blocks[l].gate, r, ff) : NULL;
    float *dgate = b->dgate ? rows_at(b->dgate, r, ff) : NULL;
    backprop_norm(p, 2 * l + 1, r, rows_at(b->norm, r, d));
    activate(b, l, rows_at(b->act, r, ff), r);
    backprop_multiply(b, map_back(p, ROLE_FFN_DOWN, NULL),
                      drop_gradient(p, 2 * l + 2, b->dx, b->dx_dropped, r), dup);
    b->grad->ffn_backward[b->config.ffn](dup.x, dgate, dup.x, rows_at(b->blocks[l].up, r, ff), gate,
                                         (size_t)rows_n(r) * (size_t)ff);
    backprop_multiply(b, map_back(p, ROLE_FFN_UP, through_norm(p, b->dx, r)), dup, dnorm);
    if (dgate)
        backprop_multiply(b, map_back(p, ROLE_FFN_GATE, dnorm.x), view_of(b->dgate, r, ff), dnorm);
    backprop_norm_backward(p, 2 * l + 1, round_norm(p, b->dx), b->dmid, r);
    backprop_multiply(b, map_back(p, ROLE_ATTN_OUTPUT, NULL),
                      drop_gradient(p, 2 * l + 1, b->dmid, b->dmid_dropped, r),
                      view_of(b->dheads, r, config_heads_dim(&b->config)));
}

/* Whether a later layer has been at the block's gradients. */
static bool adds_to_sums(const struct pass *p, int l)
{
    return p->b->config.shared && l + 1 < p->b->config.n_layers;
}

/* This thread's share of the gradient of a role's weight and bias: y = x W^T + b. */
static void weight_sums(const struct pass *p, int l, enum tensor_role role, struct view dy,
                        struct view x, int thread)
{
    const struct weight_sums sums = {p->gradient->blocks[l].w[role], dy, x, adds_to_sums(p, l)};
    backprop_weight_sums(p->b, &sums, thread);
}

static void ffn_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct rows all = all_rows(p);
    const int d = b->config.d_model, ff = b->config.d_ff;
    const struct view norm = view_of(b->norm, all, d);
    weight_sums(p, l, ROLE_FFN_DOWN, view_of(b->dx_dropped, all, d), view_of(b->act, all, ff),
                thread);
    weight_sums(p, l, ROLE_FFN_UP, view_of(b->dup, all, ff), norm, thread);
    if (b->dgate)
        weight_sums(p, l, ROLE_FFN_GATE, view_of(b->dgate, all, ff), norm, thread);
    backprop_norm_sums(p, 2 * l + 1, thread);
}

/* dqkv and dmid -> dx of the stream before the block; norm, dnorm and stats for the sums */
static void project_qkv_backward(const struct pass *p, int l, struct rows r, int thread)
{
    struct backprop *b = p->b;
    (void)thread;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts), d = b->config.d_model;
    const struct view dnorm = view_of(b->dnorm, r, d);
    const struct view dqkv = view_of(b->dqkv, r, config_qkv_dim(&b->config, l));
    backprop_norm(p, 2 * l, r, rows_at(b->norm, r, d));
    if (config_is_latent(&b->config))
        backprop_expand_backward(p, l, r);
    for (int i = 0; i < n_parts; i++)
        backprop_multiply(
            b, map_back(p, parts[i].role, i == 0 ? through_norm(p, b->dmid, r) : dnorm.x),
            view_columns(dqkv, parts[i].first, parts[i].rows), dnorm);
    backprop_norm_backward(p, 2 * l, round_norm(p, b->dmid), b->dx, r);
}

static void attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct rows all = all_rows(p);
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(c, l, parts);
    const struct view dqkv = view_of(b->dqkv, all, config_qkv_dim(c, l));
    weight_sums(p, l, ROLE_ATTN_OUTPUT, view_of(b->dmid_dropped, all, c->d_model),
                view_of(b->blocks[l].heads, all, config_heads_dim(c)), thread);
    for (int i = 0; i < n_parts; i++)
        weight_sums(p, l, parts[i].role, view_columns(dqkv, parts[i].first, parts[i].rows),
                    view_of(b->norm, all, c->d_model), thread);
    if (config_is_latent(c))
        backprop_expand_sums(p, l, adds_to_sums(p, l), thread);
    backprop_norm_sums(p, 2 * l, thread);
    backprop_attention_sums(p, l, thread);
}

void backprop_block_backward(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(p->gradient && !p->b->forward_only && l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, true, thread);
    rows_each(p, all_rows(p), l, thread, attn_output_and_ffn_backward);
    pool_barrier(pool, thread);
    backprop_attention_backward(p, l, thread);
    ffn_sums(p, l, thread);
    pool_barrier(pool, thread);
    rows_each(p, all_rows(p), l, thread, project_qkv_backward);
    pool_barrier(pool, thread);
    attention_sums(p, l, thread);
    pool_barrier(pool, thread);
}
