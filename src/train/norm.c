#include "train/norm.h"

#include <string.h>

#include "train/affine.h"

/* The norm's part of a view; NULL: none. */
static const struct param_pair *norm_at(const struct config *c, const struct param_view *v,
                                        int point)
{
    const bool attention = point % 2 == 0;
    if (c->placement == PLACEMENT_AFTER)
        return point == 0 ? NULL
                          : &v->blocks[(point - 1) / 2]
                                 .w[attention ? ROLE_LAYER_OUTPUT_NORM : ROLE_ATTN_OUTPUT_NORM];
    if (point == 2 * c->n_layers)
        return &v->w[ROLE_OUTPUT_NORM];
    return &v->blocks[point / 2].w[attention ? ROLE_ATTN_NORM : ROLE_FFN_NORM];
}

void backprop_norm(const struct pass *p, int point, struct rows r, float *out)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct param_pair *norm = norm_at(c, p->w, point);
    const float *x = rows_at(activations_stream(b, point), r, c->d_model);
    const size_t d = (size_t)c->d_model, n = (size_t)rows_n(r);
    if (!norm)
        memcpy(out, x, n * d * sizeof *out);
    for (size_t t = 0; t < n && norm; t++)
        b->kernels->norm[c->norm](out + t * d, x + t * d, norm->weight, norm->bias, c->d_model,
                                  c->norm_eps);
}

void backprop_norm_backward(const struct pass *p, int point, const float *around, float *dx,
                            struct rows r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct param_pair *norm = norm_at(c, p->w, point);
    const float *x = activations_stream(b, point);
    const size_t d = (size_t)c->d_model;
    if (!around) {
        memset(rows_at(dx, r, c->d_model), 0, (size_t)rows_n(r) * d * sizeof *dx);
        around = dx;
    }
    for (size_t t = (size_t)r.begin; t < (size_t)r.end && norm; t++)
        b->grad->norm_backward[c->norm](dx + t * d, around + t * d, b->dnorm + t * d, x + t * d,
                                        norm->weight, c->d_model, c->norm_eps, b->stats + 2 * t);
    for (size_t i = (size_t)r.begin * d; i < (size_t)r.end * d && !norm; i++)
        dx[i] = around[i] + b->dnorm[i];
}

void backprop_norm_sums(const struct pass *p, int point, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct param_pair *gradient = norm_at(c, p->gradient, point);
    /* Of norms in blocks that layers share, those of the last layer, two, are summed first. */
    const int last = 2 * c->n_layers - (c->placement == PLACEMENT_BEFORE);
    int begin, end;
    pool_share(c->d_model, thread, b->n_threads, &begin, &end);
    if (!gradient)
        return;
    struct row_sums sums = {.out = gradient->weight + begin,
                            .dy = b->dnorm + begin,
                            .x = activations_stream(b, point) + begin,
                            .stats = b->stats,
                            .stride = (size_t)c->d_model,
                            .n_rows = pass_rows(p),
                            .n = end - begin,
                            .add = c->shared && point + 2 <= last};
    backprop_row_sums(b, &sums);
    if (!gradient->bias)
        return;
    sums.out = gradient->bias + begin;
    sums.stats = NULL;
    backprop_row_sums(b, &sums);
}
