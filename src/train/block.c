#include "train/block.h"

#include <assert.h>
#include <string.h>

#include "train/affine.h"
#include "train/attention.h"
#include "train/latent.h"
#include "train/norm.h"

/* The block's matrices, for one direction. */
static void pack_block(const struct pass *p, int l, bool backward, int thread)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
        if (role == ROLE_ATTN_K_B && p->b->panels[role])
            latent_pack_keys(p, l, backward, p->b->panels[role], thread);
        else if (p->b->panels[role])
            backprop_pack(p, role, l, backward, p->b->panels[role], thread);
    }
}

/* --- forwards -------------------------------------------------------------------------------- */

/* Where norms stand after the residuals, what is added to a branch is what the branch reads. */
static bool adds_norm(const struct pass *p)
{
    return p->b->config.placement == PLACEMENT_AFTER;
}

static void project_qkv(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *block = &p->w->blocks[l];
    const int d = b->config.d_model, qkv = config_qkv_dim(&b->config, l);
    float *norm = activations_scratch(b, thread);
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        backprop_norm(p, 2 * l, r, norm);
        for (const struct qkv_part *part = parts; part < parts + n_parts; part++) {
            const struct rows_product m = {.n_rows = rows_n(r),
                                           .n_in = d,
                                           .n_out = part->rows,
                                           .panels = b->panels[part->role],
                                           .bias = block->w[part->role].bias,
                                           .x = norm,
                                           .y = rows_at(b->blocks[l].qkv, r, qkv) + part->first,
                                           .y_stride = (size_t)qkv};
            backprop_multiply(b, &m);
        }
        if (config_is_latent(&b->config))
            latent_expand(p, l, r);
    }
}

/* The stream's rows r at `point` = start + x [r, n_in] times the role's matrix, the product without
 * what is dropped. */
static void add_branch(const struct pass *p, int point, enum tensor_role role, const float *x,
                       int n_in, const float *start, struct rows r)
{
    const struct backprop *b = p->b;
    const int d = b->config.d_model;
    const bool drops = pass_drops(p);
    float *y = rows_at(activations_stream(b, point), r, d);
    const struct rows_product m = {.n_rows = rows_n(r),
                                   .n_in = n_in,
                                   .n_out = d,
                                   .panels = b->panels[role],
                                   .bias = p->w->blocks[(point - 1) / 2].w[role].bias,
                                   .start = drops ? NULL : start,
                                   .x = x,
                                   .y = y};
    backprop_multiply(b, &m);
    if (drops)
        pass_drop(p, point, y, start, y, r);
}

/* y [r, d_ff] = x [r, d_model] times the role's matrix; without a buffer nothing. */
static void project_ffn(const struct pass *p, int l, enum tensor_role role, const float *x,
                        float *y, struct rows r)
{
    const struct backprop *b = p->b;
    const int ff = b->config.d_ff;
    if (!y)
        return;
    const struct rows_product m = {.n_rows = rows_n(r),
                                   .n_in = b->config.d_model,
                                   .n_out = ff,
                                   .panels = b->panels[role],
                                   .bias = p->w->blocks[l].w[role].bias,
                                   .x = x,
                                   .y = rows_at(y, r, ff)};
    backprop_multiply(b, &m);
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

/* Attention's output matrix and all that follows it. */
static void attn_output_and_ffn(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct saved *saved = &b->blocks[l];
    const int d = b->config.d_model, heads = config_heads_dim(&b->config);
    float *norm = activations_scratch(b, thread), *act = norm + ROW_BLOCK * (size_t)d;
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        if (adds_norm(p))
            backprop_norm(p, 2 * l, r, norm);
        add_branch(p, 2 * l + 1, ROLE_ATTN_OUTPUT, rows_at(saved->heads, r, heads), heads,
                   adds_norm(p) ? norm : rows_at(saved->x, r, d), r);
        backprop_norm(p, 2 * l + 1, r, norm);
        project_ffn(p, l, ROLE_FFN_UP, norm, saved->up, r);
        project_ffn(p, l, ROLE_FFN_GATE, norm, saved->gate, r);
        activate(b, l, act, r);
        add_branch(p, 2 * l + 2, ROLE_FFN_DOWN, act, b->config.d_ff,
                   adds_norm(p) ? norm : rows_at(saved->mid, r, d), r);
    }
}

void backprop_block(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, false, thread);
    pool_barrier(pool, thread);
    project_qkv(p, l, thread);
    pool_barrier(pool, thread);
    backprop_attention(p, l, thread);
    pool_barrier(pool, thread);
    attn_output_and_ffn(p, l, thread);
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
static void drop_gradient(const struct pass *p, int point, float *gradient, float *dropped,
                          struct rows r)
{
    const int d = p->b->config.d_model;
    if (pass_drops(p))
        pass_drop(p, point, rows_at(dropped, r, d), NULL, rows_at(gradient, r, d), r);
    else if (dropped != gradient)
        memcpy(rows_at(dropped, r, d), rows_at(gradient, r, d),
               (size_t)rows_n(r) * (size_t)d * sizeof *dropped);
}

/* dx [rows, n_in] = start + dy [rows, n_out] times the role's matrix, which is packed backwards. */
static void multiply_backward(const struct backprop *b, enum tensor_role role, const float *dy,
                              int n_out, const float *start, float *dx, int n_in, int n_rows)
{
    const struct rows_product m = {.n_rows = n_rows,
                                   .n_in = n_out,
                                   .n_out = n_in,
                                   .panels = b->panels[role],
                                   .start = start,
                                   .x = dy,
                                   .y = dx};
    backprop_multiply(b, &m);
}

/* dx of the stream after the block -> dmid; norm, act, dup, dgate, dnorm and stats for the sums. */
static void ffn_backward(const struct pass *p, int l, struct rows r)
{
    struct backprop *b = p->b;
    const struct saved *saved = &b->blocks[l];
    const int n = rows_n(r), d = b->config.d_model, ff = b->config.d_ff;
    float *dup = rows_at(b->dup, r, ff), *dnorm = rows_at(b->dnorm, r, d);
    float *dgate = b->dgate ? rows_at(b->dgate, r, ff) : NULL;
    const float *gate = b->dgate ? rows_at(saved->gate, r, ff) : NULL;
    backprop_norm(p, 2 * l + 1, r, rows_at(b->norm, r, d));
    activate(b, l, rows_at(b->act, r, ff), r);
    drop_gradient(p, 2 * l + 2, b->dx, b->dx_dropped, r);
    multiply_backward(b, ROLE_FFN_DOWN, rows_at(b->dx_dropped, r, d), d, NULL, dup, ff, n);
    b->grad->ffn_backward[b->config.ffn](dup, dgate, dup, rows_at(saved->up, r, ff), gate,
                                         (size_t)n * (size_t)ff);
    multiply_backward(b, ROLE_FFN_UP, dup, ff, through_norm(p, b->dx, r), dnorm, d, n);
    if (dgate)
        multiply_backward(b, ROLE_FFN_GATE, dgate, ff, dnorm, dnorm, d, n);
    backprop_norm_backward(p, 2 * l + 1, round_norm(p, b->dx), b->dmid, r);
}

/* dx -> dmid and dheads */
static void attn_output_and_ffn_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const int d = b->config.d_model, heads = config_heads_dim(&b->config);
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        ffn_backward(p, l, r);
        drop_gradient(p, 2 * l + 1, b->dmid, b->dmid_dropped, r);
        multiply_backward(b, ROLE_ATTN_OUTPUT, rows_at(b->dmid_dropped, r, d), d, NULL,
                          rows_at(b->dheads, r, heads), heads, rows_n(r));
    }
}

/* Whether a later layer has been at the block's gradients. */
static bool adds_to_sums(const struct pass *p, int l)
{
    return p->b->config.shared && l + 1 < p->b->config.n_layers;
}

/* This thread's share of the gradient of a role's weight and bias: y = x W^T + b, where dy's rows
 * are dy_stride floats apart (0: as long as they are). */
static void weight_sums(const struct pass *p, int l, enum tensor_role role, const float *dy,
                        int dy_stride, const float *x, int thread)
{
    const struct config *c = &p->b->config;
    const struct tensor_spec spec = layout_weight(c, role, l);
    const struct weight_sums sums = {.gradient = &p->gradient->blocks[l].w[role],
                                     .dy = dy,
                                     .x = x,
                                     .dy_stride = (size_t)dy_stride,
                                     .n_rows = pass_rows(p),
                                     .n_out = spec.rows,
                                     .n_in = spec.cols,
                                     .add = adds_to_sums(p, l)};
    backprop_weight_sums(p->b, &sums, thread);
}

static void ffn_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    weight_sums(p, l, ROLE_FFN_DOWN, b->dx_dropped, 0, b->act, thread);
    weight_sums(p, l, ROLE_FFN_UP, b->dup, 0, b->norm, thread);
    if (b->dgate)
        weight_sums(p, l, ROLE_FFN_GATE, b->dgate, 0, b->norm, thread);
    backprop_norm_sums(p, 2 * l + 1, thread);
}

/* dqkv and dmid -> dx of the stream before the block; norm, dnorm and stats for the sums. */
static void project_qkv_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const int d = b->config.d_model, qkv = config_qkv_dim(&b->config, l);
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts);
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        float *dnorm = rows_at(b->dnorm, r, d);
        const float *start = through_norm(p, b->dmid, r);
        backprop_norm(p, 2 * l, r, rows_at(b->norm, r, d));
        if (config_is_latent(&b->config))
            latent_expand_backward(p, l, r);
        for (int i = 0; i < n_parts; i++) {
            const struct rows_product m = {.n_rows = rows_n(r),
                                           .n_in = parts[i].rows,
                                           .n_out = d,
                                           .panels = b->panels[parts[i].role],
                                           .start = i == 0 ? start : dnorm,
                                           .x = rows_at(b->dqkv, r, qkv) + parts[i].first,
                                           .x_stride = (size_t)qkv,
                                           .y = dnorm};
            backprop_multiply(b, &m);
        }
        backprop_norm_backward(p, 2 * l, round_norm(p, b->dmid), b->dx, r);
    }
}

static void attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(&b->config, l, parts), qkv = config_qkv_dim(&b->config, l);
    weight_sums(p, l, ROLE_ATTN_OUTPUT, b->dmid_dropped, 0, b->blocks[l].heads, thread);
    for (int i = 0; i < n_parts; i++)
        weight_sums(p, l, parts[i].role, b->dqkv + parts[i].first, qkv, b->norm, thread);
    if (config_is_latent(&b->config))
        latent_sums(p, l, adds_to_sums(p, l), thread);
    backprop_norm_sums(p, 2 * l, thread);
    backprop_attention_sums(p, l, thread);
}

void backprop_block_backward(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    assert(p->gradient && !p->b->forward_only && l >= 0 && l < p->b->config.n_layers);
    pack_block(p, l, true, thread);
    pool_barrier(pool, thread);
    attn_output_and_ffn_backward(p, l, thread);
    pool_barrier(pool, thread);
    backprop_attention_backward(p, l, thread);
    ffn_sums(p, l, thread);
    pool_barrier(pool, thread);
    project_qkv_backward(p, l, thread);
    pool_barrier(pool, thread);
    attention_sums(p, l, thread);
    pool_barrier(pool, thread);
}
