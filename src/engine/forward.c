#include "engine/forward.h"

void forward_norm_row(const struct forward *f, const struct norm *norm, int r, int i, int thread)
{
    const struct config *c = f->config;
    const size_t d = (size_t)c->d_model;
    f->kernels->norm[c->norm](workspace_input(f->work, thread) + (size_t)i * d,
                              f->work->x + (size_t)r * d, norm->gain, norm->bias, c->d_model,
                              c->norm_eps);
}

float *forward_norm(const struct forward *f, const struct norm *norm, int thread)
{
    for (int r = 0; r < f->batch->n_rows; r++)
        forward_norm_row(f, norm, r, r, thread);
    return workspace_input(f->work, thread);
}

struct matmul forward_product(const struct forward *f, const struct matrix *w, const float *x,
                              int n_rows, float *y, enum epilogue epilogue, int thread)
{
    struct matmul m = {
        .w = w,
        .x = x,
        .x_stride = (size_t)w->n_in,
        .n_tokens = n_rows,
        .y = y,
        .y_stride = (size_t)w->n_out,
        .epilogue = epilogue,
    };
    if (storage_is_quantised(w->storage)) {
        void *quants = workspace_quants(f->work, thread);
        f->kernels->quantize(quants, x, m.x_stride, n_rows, w->n_in);
        m.quants = quants;
    }
    return m;
}

void forward_multiply(const struct forward *f, const struct matrix *w, const float *x, int n_rows,
                      float *y, enum epilogue epilogue, int thread)
{
    int begin, end;
    pool_share(matrix_panels(w->n_out), thread, pool_n_threads(f->pool), &begin, &end);
    if (begin == end)
        return;
    const struct matmul m = forward_product(f, w, x, n_rows, y, epilogue, thread);
    f->kernels->matmul(&m, begin, end);
}
