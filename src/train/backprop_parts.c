/* What layers and the head share: matrices in panels, products, norms, and sums over rows. */
#include <string.h>

#include "train/backprop_private.h"

/* --- matrices -------------------------------------------------------------------------------- */

void backprop_pack_forward(float *panels, const float *w, int n_out, int n_in, int thread,
                           int n_threads)
{
    int begin, end;
    pool_share(matrix_panels(n_out), thread, n_threads, &begin, &end);
    for (int p = begin; p < end; p++) {
        float *out = panels + (size_t)p * (size_t)n_in * KERNEL_LANES;
        for (int lane = 0; lane < KERNEL_LANES; lane++) {
            const int r = p * KERNEL_LANES + lane;
            const float *row = w + (size_t)r * (size_t)n_in;
            for (int i = 0; i < n_in; i++)
                out[(size_t)i * KERNEL_LANES + (size_t)lane] = r < n_out ? row[i] : 0;
        }
    }
}

void backprop_pack_backward(float *panels, const float *w, int n_out, int n_in, int thread,
                            int n_threads)
{
    int begin, end;
    pool_share(matrix_panels(n_in), thread, n_threads, &begin, &end);
    for (int p = begin; p < end; p++) {
        float *out = panels + (size_t)p * (size_t)n_out * KERNEL_LANES;
        const int left = n_in - p * KERNEL_LANES;
        const size_t width = (size_t)(left < KERNEL_LANES ? left : KERNEL_LANES);
        for (int r = 0; r < n_out; r++)
            memcpy(out + (size_t)r * KERNEL_LANES,
                   w + (size_t)r * (size_t)n_in + (size_t)p * KERNEL_LANES, width * sizeof *out);
    }
}

void backprop_multiply(const struct backprop *b, const float *panels, const float *bias,
                       const float *x, int n_rows, int n_in, const float *start, float *y,
                       int n_out)
{
    const struct product p = {.m = n_rows,
                              .n = n_out,
                              .k = n_in,
                              .a = x,
                              .a_row = (size_t)n_in,
                              .a_col = 1,
                              .b = panels,
                              .b_row = KERNEL_LANES,
                              .b_panel = (size_t)n_in * KERNEL_LANES,
                              .c = y,
                              .c_row = (size_t)n_out,
                              .bias = bias,
                              .start = start};
    b->grad->product(&p);
}

void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread)
{
    int begin, end;
    pool_share(s->n_out, thread, pool_n_threads(b->pool), &begin, &end);
    const size_t n_in = (size_t)s->n_in;
    for (int row = 0; row < s->n_rows; row += SUM_BLOCK) {
        const int left = s->n_rows - row;
        float *out = s->gradient->weight + (size_t)begin * n_in;
        const struct product p = {.m = end - begin,
                                  .n = s->n_in,
                                  .k = left < SUM_BLOCK ? left : SUM_BLOCK,
                                  .a = s->dy + (size_t)row * s->dy_stride + begin,
                                  .a_row = 1,
                                  .a_col = s->dy_stride,
                                  .b = s->x + (size_t)row * n_in,
                                  .b_row = n_in,
                                  .b_panel = KERNEL_LANES,
                                  .c = out,
                                  .c_row = n_in,
                                  .start = s->add || row > 0 ? out : NULL};
        b->grad->product(&p);
    }
    if (s->gradient->bias)
        b->grad->column_sums(s->gradient->bias + begin, s->dy + begin, s->dy_stride, s->n_rows,
                             end - begin);
}

void backprop_norm_sums(const struct pass *p, const struct param_pair *gradient, const float *x,
                        int thread)
{
    const struct backprop *b = p->b;
    const int d = b->config.d_model, rows = backprop_rows(p);
    int begin, end;
    pool_share(d, thread, pool_n_threads(b->pool), &begin, &end);
    b->grad->gain_sums(gradient->weight + begin, b->dnorm + begin, x + begin, b->stats, (size_t)d,
                       rows, end - begin);
    if (gradient->bias)
        b->grad->column_sums(gradient->bias + begin, b->dnorm + begin, (size_t)d, rows,
                             end - begin);
}

/* --- norms ----------------------------------------------------------------------------------- */

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
