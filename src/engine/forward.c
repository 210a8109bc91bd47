#include "engine/forward.h"

#include <string.h>

void forward_rows(const struct forward *f, int n_rows, int thread, int *begin, int *end)
{
    if (workspace_shares(n_rows))
        pool_share(n_rows, thread, pool_n_threads(f->pool), begin, end);
    else
        *begin = 0, *end = n_rows;
}

static void norm_row(const struct forward *f, const struct norm *norm, const float *x, float *out)
{
    const struct config *c = f->config;
    f->kernels->norm[c->norm](out, x, norm->gain, norm->bias, c->d_model, c->norm_eps);
}

void forward_input_row(const struct forward *f, const struct norm *norm, int r, float *out)
{
    const size_t d = (size_t)f->config->d_model;
    const float *x = f->work->x + (size_t)r * d;
    if (f->config->placement == PLACEMENT_BEFORE)
        norm_row(f, norm, x, out);
    else
        memcpy(out, x, d * sizeof *out);
}

const float *forward_input(const struct forward *f, const struct norm *norm, int thread)
{
    if (f->config->placement != PLACEMENT_BEFORE)
        return f->work->x;
    float *input = workspace_input(f->work, f->batch->n_rows, thread);
    int begin, end;
    forward_rows(f, f->batch->n_rows, thread, &begin, &end);
    for (int r = begin; r < end; r++)
        forward_input_row(f, norm, r, input + (size_t)r * (size_t)f->config->d_model);
    return input;
}

void forward_end_residual(const struct forward *f, const struct norm *norm, float *sums, int thread)
{
    const size_t d = (size_t)f->config->d_model;
    int begin, end;
    pool_barrier(f->pool, thread);
    pool_share(f->batch->n_rows, thread, pool_n_threads(f->pool), &begin, &end);
    if (sums && begin < end)
        memcpy(sums + (size_t)begin * d, f->work->x + (size_t)begin * d,
               (size_t)(end - begin) * d * sizeof *sums);
    if (f->config->placement != PLACEMENT_AFTER)
        return;
    for (int r = begin; r < end; r++)
        norm_row(f, norm, f->work->x + (size_t)r * d, f->work->x + (size_t)r * d);
    pool_barrier(f->pool, thread);
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

void forward_gate(const struct forward *f, const struct matrix *gate, const struct matrix *up,
                  const float *x, int n_rows, float *y, enum epilogue activation, int thread)
{
    struct matmul m = forward_product(f, gate, x, n_rows, y, activation, thread);
    int begin, end;
    pool_share(matrix_panels(gate->n_out), thread, pool_n_threads(f->pool), &begin, &end);
    f->kernels->matmul(&m, begin, end);
    /* Both read the same rows, unless only one of them wants these quantised. */
    if (storage_is_quantised(up->storage) && !m.quants)
        m = forward_product(f, up, x, n_rows, y, EPILOGUE_MUL, thread);
    m.w = up;
    m.epilogue = EPILOGUE_MUL;
    f->kernels->matmul(&m, begin, end);
}

void forward_multiply(const struct forward *f, const struct matrix *w, const float *x, int n_rows,
                      float *y, enum epilogue epilogue, int thread)
{
    const struct matmul m = forward_product(f, w, x, n_rows, y, epilogue, thread);
    int begin, end;
    pool_share(matrix_panels(w->n_out), thread, pool_n_threads(f->pool), &begin, &end);
    f->kernels->matmul(&m, begin, end);
}

void forward_end_head(const struct forward *f, int layer, int head, float *result)
{
    const struct head_ablation *w = f->without;
    const size_t index = (size_t)layer * (size_t)f->config->n_heads + (size_t)head;
    const size_t dim = (size_t)config_value_dim(f->config);
    if (!w || !w->off[index])
        return;
    if (w->mean)
        memcpy(result, w->mean + index * dim, dim * sizeof *result);
    else
        memset(result, 0, dim * sizeof *result);
}
