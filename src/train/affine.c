#include "train/affine.h"

#include <assert.h>
#include <string.h>

/* Tokens summed at once for a weight's gradient: two operands' blocks stay in the cache. */
#define SUM_BLOCK 256

/* [n_out / 16][n_in][16], the last panel filled up with zeros. */
static void pack_forward(float *panels, const float *w, int n_out, int n_in, int thread,
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

/* [n_in / 16][n_out][16] */
static void pack_backward(float *panels, const float *w, int n_out, int n_in, int thread,
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

void backprop_pack_matrix(const struct pass *p, const float *w, int n_out, int n_in, bool backward,
                          float *panels, int thread)
{
    if (backward)
        pack_backward(panels, w, n_out, n_in, thread, p->b->n_threads);
    else
        pack_forward(panels, w, n_out, n_in, thread, p->b->n_threads);
}

void backprop_pack(const struct pass *p, enum tensor_role role, int l, bool backward, float *panels,
                   int thread)
{
    const struct tensor_spec spec = layout_weight(&p->b->config, role, l);
    const struct param_pair *of_role = role_in_block(role) ? p->w->blocks[l].w : p->w->w;
    assert(spec.form == FORM_MATRIX);
    backprop_pack_matrix(p, of_role[role].weight, spec.rows, spec.cols, backward, panels, thread);
}

void backprop_multiply(const struct backprop *b, const struct rows_product *m)
{
    const struct product p = {.m = m->n_rows,
                              .n = m->n_out,
                              .k = m->n_in,
                              .a = m->x,
                              .a_row = m->x_stride ? m->x_stride : (size_t)m->n_in,
                              .a_col = 1,
                              .b = m->panels,
                              .b_row = KERNEL_LANES,
                              .b_panel = (size_t)m->n_in * KERNEL_LANES,
                              .c = m->y,
                              .c_row = m->y_stride ? m->y_stride : (size_t)m->n_out,
                              .bias = m->bias,
                              .start = m->start};
    b->grad->product(&p);
}

static void sum_rows(const struct grad_kernels *g, const struct row_sums *s, float *out, int first,
                     int n)
{
    if (s->stats)
        g->gain_sums(out, s->dy + first, s->x + first, s->stats, s->stride, s->n_rows, n);
    else
        g->column_sums(out, s->dy + first, s->stride, s->n_rows, n);
}

void backprop_row_sums(const struct backprop *b, const struct row_sums *s)
{
    float sums[128];
    const int most = (int)(sizeof sums / sizeof *sums);
    if (!s->add) {
        sum_rows(b->grad, s, s->out, 0, s->n);
        return;
    }
    for (int first = 0; first < s->n; first += most) {
        const int n = s->n - first < most ? s->n - first : most;
        sum_rows(b->grad, s, sums, first, n);
        for (int i = 0; i < n; i++)
            s->out[first + i] += sums[i];
    }
}

void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread)
{
    int begin, end;
    pool_share(s->n_out, thread, b->n_threads, &begin, &end);
    const size_t n_in = (size_t)s->n_in, x_stride = s->x_stride ? s->x_stride : n_in;
    const size_t stride = s->dy_stride ? s->dy_stride : (size_t)s->n_out;
    for (int row = 0; row < s->n_rows; row += SUM_BLOCK) {
        const int left = s->n_rows - row;
        float *out = s->gradient->weight + (size_t)begin * n_in;
        const struct product p = {.m = end - begin,
                                  .n = s->n_in,
                                  .k = left < SUM_BLOCK ? left : SUM_BLOCK,
                                  .a = s->dy + (size_t)row * stride + begin,
                                  .a_row = 1,
                                  .a_col = stride,
                                  .b = s->x + (size_t)row * x_stride,
                                  .b_row = x_stride,
                                  .b_panel = KERNEL_LANES,
                                  .c = out,
                                  .c_row = n_in,
                                  .start = s->add || row > 0 ? out : NULL};
        b->grad->product(&p);
    }
    if (!s->gradient->bias)
        return;
    const struct row_sums bias = {.out = s->gradient->bias + begin,
                                  .dy = s->dy + begin,
                                  .stride = stride,
                                  .n_rows = s->n_rows,
                                  .n = end - begin,
                                  .add = s->add};
    backprop_row_sums(b, &bias);
}
