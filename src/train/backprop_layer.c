/* One layer, forwards and backwards. */
#include <string.h>

#include "train/backprop_private.h"

/* --- forwards -------------------------------------------------------------------------------- */

static void pack_layer(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const int d = b->config.d_model, ff = b->config.d_ff, n = pool_n_threads(b->pool);
    backprop_pack_forward(b->packed.qkv, w->w[ROLE_ATTN_QKV].weight, backprop_qkv(b), d, thread, n);
    backprop_pack_forward(b->packed.attn_out, w->w[ROLE_ATTN_OUTPUT].weight, d, d, thread, n);
    backprop_pack_forward(b->packed.up, w->w[ROLE_FFN_UP].weight, ff, d, thread, n);
    backprop_pack_forward(b->packed.down, w->w[ROLE_FFN_DOWN].weight, d, ff, thread, n);
}

static void project_qkv(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const int d = b->config.d_model, qkv = backprop_qkv(b);
    float *norm = backprop_scratch(b, thread);
    int begin, end;
    rows_share(p, thread, &begin, &end);
    for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end)) {
        backprop_norm(b, &w->w[ROLE_ATTN_NORM], rows_at(b->layers[l].x, r, d), norm, rows_n(r));
        backprop_multiply(b, b->packed.qkv, w->w[ROLE_ATTN_QKV].bias, norm, rows_n(r), d, NULL,
                          rows_at(b->layers[l].qkv, r, qkv), qkv);
    }
}

/* y = start + x * panels + bias, the product without what is dropped; scratch is [rows, d]. */
static void add_branch(const struct pass *p, int site, const float *panels, const float *bias,
                       const float *x, int n_in, const float *start, float *y, float *scratch,
                       struct rows r)
{
    const struct backprop *b = p->b;
    const int d = b->config.d_model;
    if (!backprop_drops(p)) {
        backprop_multiply(b, panels, bias, x, rows_n(r), n_in, start, y, d);
        return;
    }
    backprop_multiply(b, panels, bias, x, rows_n(r), n_in, NULL, scratch, d);
    backprop_drop(p, site, y, start, scratch, r);
}

static void feed_forward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const struct kept *kept = &b->layers[l];
    const int d = b->config.d_model, ff = b->config.d_ff;
    float *norm = backprop_scratch(b, thread), *act = norm + ROW_BLOCK * (size_t)d;
    float *next = l + 1 < b->config.n_layers ? b->layers[l + 1].x : b->out;
    int begin, end;
    rows_share(p, thread, &begin, &end);
    for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end)) {
        const int n = rows_n(r);
        float *mid = rows_at(kept->mid, r, d), *pre = rows_at(kept->pre, r, ff),
              *out = rows_at(next, r, d);
        add_branch(p, 2 * l + 1, b->packed.attn_out, w->w[ROLE_ATTN_OUTPUT].bias,
                   rows_at(kept->heads, r, d), d, rows_at(kept->x, r, d), mid, norm, r);
        backprop_norm(b, &w->w[ROLE_FFN_NORM], mid, norm, n);
        backprop_multiply(b, b->packed.up, w->w[ROLE_FFN_UP].bias, norm, n, d, NULL, pre, ff);
        b->grad->ffn[b->config.ffn](act, pre, (size_t)n * (size_t)ff);
        add_branch(p, 2 * l + 2, b->packed.down, w->w[ROLE_FFN_DOWN].bias, act, ff, mid, out, norm,
                   r);
    }
}

void backprop_layer(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    pack_layer(p, l, thread);
    pool_barrier(pool, thread);
    project_qkv(p, l, thread);
    pool_barrier(pool, thread);
    backprop_attention(p, l, thread);
    pool_barrier(pool, thread);
    feed_forward(p, l, thread);
    pool_barrier(pool, thread);
}

/* --- backwards ------------------------------------------------------------------------------- */

static void pack_layer_backward(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const int d = b->config.d_model, ff = b->config.d_ff, n = pool_n_threads(b->pool);
    backprop_pack_backward(b->packed.qkv, w->w[ROLE_ATTN_QKV].weight, backprop_qkv(b), d, thread,
                           n);
    backprop_pack_backward(b->packed.attn_out, w->w[ROLE_ATTN_OUTPUT].weight, d, d, thread, n);
    backprop_pack_backward(b->packed.up, w->w[ROLE_FFN_UP].weight, ff, d, thread, n);
    backprop_pack_backward(b->packed.down, w->w[ROLE_FFN_DOWN].weight, d, ff, thread, n);
}

/* The gradient of a sum becomes that of the branch: without what was dropped. */
static void keep(const struct pass *p, int site, float *gradient, float *kept, struct rows r)
{
    const int d = p->b->config.d_model;
    if (backprop_drops(p))
        backprop_drop(p, site, rows_at(kept, r, d), NULL, rows_at(gradient, r, d), r);
    else if (kept != gradient)
        memcpy(rows_at(kept, r, d), rows_at(gradient, r, d),
               (size_t)rows_n(r) * (size_t)d * sizeof *kept);
}

/* dx of the layer's output -> dmid and dheads; norm, act, dpre, dnorm and stats for the sums. */
static void feed_forward_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const struct kept *kept = &b->layers[l];
    const int d = b->config.d_model, ff = b->config.d_ff;
    int begin, end;
    rows_share(p, thread, &begin, &end);
    for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end)) {
        const int n = rows_n(r);
        const float *pre = rows_at(kept->pre, r, ff), *mid = rows_at(kept->mid, r, d);
        float *dpre = rows_at(b->dpre, r, ff);
        backprop_norm(b, &w->w[ROLE_FFN_NORM], mid, rows_at(b->norm, r, d), n);
        b->grad->ffn[b->config.ffn](rows_at(b->act, r, ff), pre, (size_t)n * (size_t)ff);
        keep(p, 2 * l + 2, b->dx, b->dx_kept, r);
        backprop_multiply(b, b->packed.down, NULL, rows_at(b->dx_kept, r, d), n, d, NULL, dpre, ff);
        b->grad->ffn_backward[b->config.ffn](dpre, dpre, pre, (size_t)n * (size_t)ff);
        backprop_multiply(b, b->packed.up, NULL, dpre, n, ff, NULL, rows_at(b->dnorm, r, d), d);
        backprop_norm_backward(b, &w->w[ROLE_FFN_NORM], kept->mid, b->dx, b->dmid, r);
        keep(p, 2 * l + 1, b->dmid, b->dmid_kept, r);
        backprop_multiply(b, b->packed.attn_out, NULL, rows_at(b->dmid_kept, r, d), n, d, NULL,
                          rows_at(b->dheads, r, d), d);
    }
}

static void feed_forward_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct param_block *gradient = &p->gradient->blocks[l];
    const int d = b->config.d_model, ff = b->config.d_ff, rows = backprop_rows(p);
    const struct weight_sums down = {.gradient = &gradient->w[ROLE_FFN_DOWN],
                                     .dy = b->dx_kept,
                                     .dy_stride = (size_t)d,
                                     .x = b->act,
                                     .n_rows = rows,
                                     .n_out = d,
                                     .n_in = ff};
    backprop_weight_sums(b, &down, thread);
    const struct weight_sums up = {.gradient = &gradient->w[ROLE_FFN_UP],
                                   .dy = b->dpre,
                                   .dy_stride = (size_t)ff,
                                   .x = b->norm,
                                   .n_rows = rows,
                                   .n_out = ff,
                                   .n_in = d};
    backprop_weight_sums(b, &up, thread);
    backprop_norm_sums(p, &gradient->w[ROLE_FFN_NORM], b->layers[l].mid, thread);
}

/* dqkv and dmid -> dx of the layer's input; norm, dnorm and stats for the sums. */
static void project_qkv_backward(const struct pass *p, int l, int thread)
{
    struct backprop *b = p->b;
    const struct param_block *w = &p->w->blocks[l];
    const struct kept *kept = &b->layers[l];
    const int d = b->config.d_model, qkv = backprop_qkv(b);
    int begin, end;
    rows_share(p, thread, &begin, &end);
    for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end)) {
        const int n = rows_n(r);
        backprop_norm(b, &w->w[ROLE_ATTN_NORM], rows_at(kept->x, r, d), rows_at(b->norm, r, d), n);
        backprop_multiply(b, b->packed.qkv, NULL, rows_at(b->dqkv, r, qkv), n, qkv, NULL,
                          rows_at(b->dnorm, r, d), d);
        backprop_norm_backward(b, &w->w[ROLE_ATTN_NORM], kept->x, b->dmid, b->dx, r);
    }
}

static void attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct param_block *gradient = &p->gradient->blocks[l];
    const int d = b->config.d_model, rows = backprop_rows(p);
    const struct weight_sums out = {.gradient = &gradient->w[ROLE_ATTN_OUTPUT],
                                    .dy = b->dmid_kept,
                                    .dy_stride = (size_t)d,
                                    .x = b->layers[l].heads,
                                    .n_rows = rows,
                                    .n_out = d,
                                    .n_in = d};
    backprop_weight_sums(b, &out, thread);
    const struct weight_sums qkv = {.gradient = &gradient->w[ROLE_ATTN_QKV],
                                    .dy = b->dqkv,
                                    .dy_stride = (size_t)backprop_qkv(b),
                                    .x = b->norm,
                                    .n_rows = rows,
                                    .n_out = backprop_qkv(b),
                                    .n_in = d};
    backprop_weight_sums(b, &qkv, thread);
    backprop_norm_sums(p, &gradient->w[ROLE_ATTN_NORM], b->layers[l].x, thread);
}

void backprop_layer_backward(const struct pass *p, int l, int thread)
{
    struct pool *pool = p->b->pool;
    pack_layer_backward(p, l, thread);
    pool_barrier(pool, thread);
    feed_forward_backward(p, l, thread);
    pool_barrier(pool, thread);
    backprop_attention_backward(p, l, thread);
    feed_forward_sums(p, l, thread);
    pool_barrier(pool, thread);
    project_qkv_backward(p, l, thread);
    pool_barrier(pool, thread);
    attention_sums(p, l, thread);
    pool_barrier(pool, thread);
}
