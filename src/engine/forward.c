#include "engine/forward.h"

void forward_rows(const struct forward *f, int n_rows, int thread, int *begin, int *end)
{
    if (workspace_shares(n_rows))
        pool_share(n_rows, thread, pool_n_threads(f->pool), begin, end);
    else
        *begin = 0, *end = n_rows;
}

void forward_norm_row(const struct forward *f, const struct norm *norm, int r, float *out)
{
    const struct config *c = f->config;
    f->kernels->norm[c->norm](out, f->work->x + (size_t)r * (size_t)c->d_model, norm->gain,
                              norm->bias, c->d_model, c->norm_eps);
}

float *forward_norm(const struct forward *f, const struct norm *norm, int thread)
{
    float *input = workspace_input(f->work, f->batch->n_rows, thread);
    int begin, end;
    forward_rows(f, f->batch->n_rows, thread, &begin, &end);
    for (int r = begin; r < end; r++)
        forward_norm_row(f, norm, r, input + (size_t)r * (size_t)f->config->d_model);
    return input;
}

/* Quantises the thread's rows. */
static void *quantise_rows(const struct forward *f, const float *x, int n_rows, int n, int thread)
{
    unsigned char *quants = workspace_quants(f->work, n_rows, thread);
    int begin, end;
    forward_rows(f, n_rows, thread, &begin, &end);
    if (begin < end)
        f->kernels->quantize(quants + (size_t)begin * quant_row_bytes(n),
                             x + (size_t)begin * (size_t)n, (size_t)n, end - begin, n);
    return quants;
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
    if (storage_is_quantised(w->storage))
        m.quants = quantise_rows(f, x, n_rows, w->n_in, thread);
    if (workspace_shares(n_rows))
        pool_barrier(f->pool, thread);
    return m;
}

void forward_multiply(const struct forward *f, const struct matrix *w, const float *x, int n_rows,
                      float *y, enum epilogue epilogue, int thread)
{
    const struct matmul m = forward_product(f, w, x, n_rows, y, epilogue, thread);
    int begin, end;
    pool_share(matrix_panels(w->n_out), thread, pool_n_threads(f->pool), &begin, &end);
    f->kernels->matmul(&m, begin, end);
}
