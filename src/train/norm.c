#include "train/norm.h"

void backprop_norm(const struct backprop *b, const struct param_pair *norm, const float *x,
                   float *out, int n_rows)
{
    const int d = b->config.d_model;
    for (int t = 0; t < n_rows; t++)
        b->kernels->norm[b->config.norm](out + (size_t)t * (size_t)d, x + (size_t)t * (size_t)d,
                                         norm->weight, norm->bias, d, b->config.norm_eps);
}

void backprop_norm_backward(const struct backprop *b, const struct param_pair *norm, const float *x,
                            const float *residual, float *dx, struct rows r)
{
    const size_t d = (size_t)b->config.d_model;
    for (int t = r.begin; t < r.end; t++)
        b->grad->norm_backward[b->config.norm](
            dx + (size_t)t * d, residual + (size_t)t * d, b->dnorm + (size_t)t * d,
            x + (size_t)t * d, norm->weight, (int)d, b->config.norm_eps, b->stats + 2 * t);
}

void backprop_norm_sums(const struct pass *p, const struct param_pair *gradient, const float *x,
                        int thread)
{
    const struct backprop *b = p->b;
    const int d = b->config.d_model, rows = pass_rows(p);
    int begin, end;
    pool_share(d, thread, b->n_threads, &begin, &end);
    b->grad->gain_sums(gradient->weight + begin, b->dnorm + begin, x + begin, b->stats, (size_t)d,
                       rows, end - begin);
    if (gradient->bias)
        b->grad->column_sums(gradient->bias + begin, b->dnorm + begin, (size_t)d, rows,
                             end - begin);
}
