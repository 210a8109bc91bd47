#include "train/block.h"

#include <assert.h>
#include <string.h>

#include "train/affine.h"
#include "train/attention.h"
#include "train/norm.h"

/* The block's matrices, for one direction. */
static void pack_block(const struct pass *p, int l, bool backward, int thread)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
        if (p->b->panels[role])
            backprop_pack(p, role, l, backward, p->b->panels[role], thread);
}

/* --- forwards -------------------------------------------------------------------------------- */

static void project_qkv(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *block = &p->w->blocks[l];
    const int d = b->config.d_model, qkv = config_qkv_dim(&b->config, l);
    float *norm = activations_scratch(b, thread);
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        backprop_norm(b, &block->w[ROLE_ATTN_NORM], rows_at(b->blocks[l].x, r, d), norm, rows_n(r));
        backprop_multiply(b, b->panels[ROLE_ATTN_QKV], block->w[ROLE_ATTN_QKV].bias, norm,
                          rows_n(r), d, NULL, rows_at(b->blocks[l].qkv, r, qkv), qkv);
    }
}

/* y = start + x * panels + bias, the product without what is dropped; scratch is [rows, d]. */
static void add_branch(const struct pass *p, int site, const float *panels, const float *bias,
                       const float *x, int n_in, const float *start, float *y, float *scratch,
                       struct rows r)
{
    const struct backprop *b = p->b;
    const int d = b->config.d_model;
    if (!pass_drops(p)) {
        backprop_multiply(b, panels, bias, x, rows_n(r), n_in, start, y, d);
        return;
    }
    backprop_multiply(b, panels, bias, x, rows_n(r), n_in, NULL, scratch, d);
    pass_drop(p, site, y, start, scratch, r);
}

/* Attention's output matrix and all that follows it. */
static void attn_output_and_ffn(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *block = &p->w->blocks[l];
    const struct saved *saved = &b->blocks[l];
    const int d = b->config.d_model, q = config_q_dim(&b->config), ff = b->config.d_ff;
    float *norm = activations_scratch(b, thread), *act = norm + ROW_BLOCK * (size_t)d;
    float *next = l + 1 < b->config.n_layers ? b->blocks[l + 1].x : b->out;
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        const int n = rows_n(r);
        float *mid = rows_at(saved->mid, r, d), *pre = rows_at(saved->pre, r, ff),
              *out = rows_at(next, r, d);
        add_branch(p, 2 * l + 1, b->panels[ROLE_ATTN_OUTPUT], block->w[ROLE_ATTN_OUTPUT].bias,
                   rows_at(saved->heads, r, q), q, rows_at(saved->x, r, d), mid, norm, r);
        backprop_norm(b, &block->w[ROLE_FFN_NORM], mid, norm, n);
        backprop_multiply(b, b->panels[ROLE_FFN_UP], block->w[ROLE_FFN_UP].bias, norm, n, d, NULL,
                          pre, ff);
        b->grad->ffn[b->config.ffn](act, pre, NULL, (size_t)n * (size_t)ff);
        add_branch(p, 2 * l + 2, b->panels[ROLE_FFN_DOWN], block->w[ROLE_FFN_DOWN].bias, act, ff,
                   mid, out, norm, r);
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

/* The gradient of a sum becomes that of the branch: without what was dropped. */
static void drop_gradient(const struct pass *p, int site, float *gradient, float *dropped,
                          struct rows r)
{
    const int d = p->b->config.d_model;
    if (pass_drops(p))
        pass_drop(p, site, rows_at(dropped, r, d), NULL, rows_at(gradient, r, d), r);
    else if (dropped != gradient)
        memcpy(rows_at(dropped, r, d), rows_at(gradient, r, d),
               (size_t)rows_n(r) * (size_t)d * sizeof *dropped);
}

/* dx of the block's output -> dmid and dheads; norm, act, dpre, dnorm and stats for the sums. */
static void attn_output_and_ffn_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *block = &p->w->blocks[l];
    const struct saved *saved = &b->blocks[l];
    const int d = b->config.d_model, q = config_q_dim(&b->config), ff = b->config.d_ff;
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        const int n = rows_n(r);
        const float *pre = rows_at(saved->pre, r, ff), *mid = rows_at(saved->mid, r, d);
        float *dpre = rows_at(b->dpre, r, ff);
        backprop_norm(b, &block->w[ROLE_FFN_NORM], mid, rows_at(b->norm, r, d), n);
        b->grad->ffn[b->config.ffn](rows_at(b->act, r, ff), pre, NULL, (size_t)n * (size_t)ff);
        drop_gradient(p, 2 * l + 2, b->dx, b->dx_dropped, r);
        backprop_multiply(b, b->panels[ROLE_FFN_DOWN], NULL, rows_at(b->dx_dropped, r, d), n, d,
                          NULL, dpre, ff);
        b->grad->ffn_backward[b->config.ffn](dpre, NULL, dpre, pre, NULL, (size_t)n * (size_t)ff);
        backprop_multiply(b, b->panels[ROLE_FFN_UP], NULL, dpre, n, ff, NULL,
                          rows_at(b->dnorm, r, d), d);
        backprop_norm_backward(b, &block->w[ROLE_FFN_NORM], saved->mid, b->dx, b->dmid, r);
        drop_gradient(p, 2 * l + 1, b->dmid, b->dmid_dropped, r);
        backprop_multiply(b, b->panels[ROLE_ATTN_OUTPUT], NULL, rows_at(b->dmid_dropped, r, d), n,
                          d, NULL, rows_at(b->dheads, r, q), q);
    }
}

/* This thread's share of the gradient of a role's weight and bias: y = x W^T + b. */
static void weight_sums(const struct pass *p, int l, enum tensor_role role, const float *dy,
                        const float *x, int thread)
{
    const struct tensor_spec spec = layout_weight(&p->b->config, role, l);
    const struct weight_sums sums = {.gradient = &p->gradient->blocks[l].w[role],
                                     .dy = dy,
                                     .x = x,
                                     .n_rows = pass_rows(p),
                                     .n_out = spec.rows,
                                     .n_in = spec.cols};
    backprop_weight_sums(p->b, &sums, thread);
}

static void ffn_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    weight_sums(p, l, ROLE_FFN_DOWN, b->dx_dropped, b->act, thread);
    weight_sums(p, l, ROLE_FFN_UP, b->dpre, b->norm, thread);
    backprop_norm_sums(p, &p->gradient->blocks[l].w[ROLE_FFN_NORM], b->blocks[l].mid, thread);
}

/* dqkv and dmid -> dx of the block's input; norm, dnorm and stats for the sums. */
static void project_qkv_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *block = &p->w->blocks[l];
    const struct saved *saved = &b->blocks[l];
    const int d = b->config.d_model, qkv = config_qkv_dim(&b->config, l);
    const struct rows share = rows_share(p, thread);
    for (struct rows r = rows_first(share.begin, share.end); rows_n(r) > 0;
         r = rows_next(r, share.end)) {
        const int n = rows_n(r);
        backprop_norm(b, &block->w[ROLE_ATTN_NORM], rows_at(saved->x, r, d), rows_at(b->norm, r, d),
                      n);
        backprop_multiply(b, b->panels[ROLE_ATTN_QKV], NULL, rows_at(b->dqkv, r, qkv), n, qkv, NULL,
                          rows_at(b->dnorm, r, d), d);
        backprop_norm_backward(b, &block->w[ROLE_ATTN_NORM], saved->x, b->dmid, b->dx, r);
    }
}

static void attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    weight_sums(p, l, ROLE_ATTN_OUTPUT, b->dmid_dropped, b->blocks[l].heads, thread);
    weight_sums(p, l, ROLE_ATTN_QKV, b->dqkv, b->norm, thread);
    backprop_norm_sums(p, &p->gradient->blocks[l].w[ROLE_ATTN_NORM], b->blocks[l].x, thread);
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
