/*
 * A batch of windows at a time: rows and heads are shared by the threads, then rows of the
 * gradient, whose sums over a batch are floats and over batches doubles.
 */
#include <math.h>
#include <string.h>

#include "convert/products.h"
#include "convert/rebuild_parts.h"
#include "engine/causal.h"

void rebuild_multiply(const struct convert_rebuild *r, float *y, const float *x, const float *b,
                      const float *bias, int n, int inner, int columns)
{
    const struct product p = {.m = n,
                              .n = columns,
                              .k = inner,
                              .a = x,
                              .a_row = (size_t)inner,
                              .a_col = 1,
                              .b = b,
                              .b_row = (size_t)columns,
                              .b_panel = KERNEL_LANES,
                              .c = y,
                              .c_row = (size_t)columns,
                              .bias = bias};
    r->c->calibration->grad->product(&p);
}

/* What distances do to scores: of query heads from arg's on. */
static bool head_bias(const void *arg, int head, struct attend_bias *out)
{
    *out = ((const struct attend_bias *)arg)[head];
    return true;
}

static void run_item(const struct convert_rebuild *r, int index, int thread,
                     void (*run)(const struct causal_window *w))
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const int window = index / c->n_groups, g = index % c->n_groups, head = g * c->group;
    const size_t row = (size_t)window * (size_t)k->window, at = row * (size_t)r->qkv_dim;
    const size_t q_at = at + (size_t)(head * c->qk.dim);
    const size_t k_at = at + (size_t)(c->qk.width + g * c->qk.dim);
    const size_t v_at = at + (size_t)(c->qk.width + c->n_groups * c->qk.dim + g * c->ov.dim);
    const size_t heads_at = row * (size_t)r->heads_dim + (size_t)(head * c->ov.dim);
    const size_t padded = (size_t)causal_padded_length(k->window);
    const struct attend_bias *bias = k->used.block.bias;
    const struct causal_window w = {
        .kernels = k->kernels,
        .grad = k->grad,
        .positions = probe_positions(k->probe),
        .rope_dims = c->config.rope.n_dims,
        .length = k->window,
        .n_heads = c->group,
        .key_dim = c->qk.dim,
        .value_dim = c->ov.dim,
        .scale = 1.0f / sqrtf((float)c->qk.dim),
        .q = r->qkv + q_at,
        .k = r->qkv + k_at,
        .v = r->qkv + v_at,
        .q_stride = (size_t)r->qkv_dim,
        .kv_stride = (size_t)r->qkv_dim,
        .heads = r->results + heads_at,
        .heads_stride = (size_t)r->heads_dim,
        .softmax = r->softmax + ((size_t)window * (size_t)c->n_heads + (size_t)head) * 2 * padded,
        .dheads = r->dresults + heads_at,
        .dq = r->dqkv + q_at,
        .dk = r->dqkv + k_at,
        .dv = r->dqkv + v_at,
        .bias = bias ? head_bias : NULL,
        .arg = bias ? bias + head : NULL,
        .scratch = r->scratch + (size_t)thread * r->scratch_floats,
    };
    run(&w);
}

static void run_items(const struct convert_rebuild *r, int thread,
                      void (*run)(const struct causal_window *w))
{
    struct pool *pool = r->c->spec->pool;
    int begin, end;
    pool_share(r->batch_windows * r->c->n_groups, thread, pool_n_threads(pool), &begin, &end);
    for (int i = begin; i < end; i++)
        run_item(r, i, thread, run);
    pool_barrier(pool, thread);
}

/* Heads' results of the batch. */
static void run_forwards(const struct convert_rebuild *r, int begin, int end, int thread)
{
    const size_t d = (size_t)r->d, qkv = (size_t)r->qkv_dim;
    const size_t first = convert_window_first(r->c->calibration, r->first_window);
    rebuild_multiply(r, r->qkv + (size_t)begin * qkv, r->x + (first + (size_t)begin) * d, r->wt,
                     r->bias, end - begin, r->d, r->qkv_dim);
    pool_barrier(r->c->spec->pool, thread);
    run_items(r, thread, causal_forward);
}

/* Errors, and the gradient of heads' results. */
static void run_output(const struct convert_rebuild *r, int begin, int end, int thread)
{
    const size_t d = (size_t)r->d, heads = (size_t)r->heads_dim;
    const size_t first = convert_window_first(r->c->calibration, r->first_window);
    float *rest = r->rest + (size_t)begin * d;
    rebuild_multiply(r, rest, r->results + (size_t)begin * heads, r->o, r->bo, end - begin,
                     r->heads_dim, r->d);
    for (int t = begin; t < end; t++) {
        const float *y = r->y + (first + (size_t)t) * d;
        double sum = 0;
        for (size_t i = 0; i < d; i++, rest++) {
            *rest -= y[i];
            sum += (double)*rest * (double)*rest;
        }
        r->row_loss[t] = sum;
    }
    rebuild_multiply(r, r->dresults + (size_t)begin * heads, r->rest + (size_t)begin * d, r->ot,
                     NULL, end - begin, r->d, r->heads_dim);
    pool_barrier(r->c->spec->pool, thread);
}

/* sums [rows, stride] += a^T b for a [n, rows] and b [n, d] of the batch: this thread's share of
 * the rows; and to the number behind each row the sum of a's column. */
static void add_gradient(const struct convert_rebuild *r, double *sums, size_t stride,
                         const float *a, const float *b, int rows, int n, int thread)
{
    const size_t d = (size_t)r->d;
    int begin, end;
    pool_share(rows, thread, pool_n_threads(r->c->spec->pool), &begin, &end);
    float *part = r->part + (size_t)begin * d;
    const struct grad_kernels *grad = r->c->calibration->grad;
    const struct product p = {.m = end - begin,
                              .n = r->d,
                              .k = n,
                              .a = a + begin,
                              .a_row = 1,
                              .a_col = (size_t)rows,
                              .b = b,
                              .b_row = d,
                              .b_panel = KERNEL_LANES,
                              .c = part,
                              .c_row = d};
    grad->product(&p);
    for (int j = begin; j < end; j++)
        for (size_t i = 0; i < d; i++)
            sums[(size_t)j * stride + i] += (double)r->part[(size_t)j * d + i];
    if (stride == d)
        return;
    grad->column_sums(r->part_bias + begin, a + begin, (size_t)rows, n, end - begin);
    for (int j = begin; j < end; j++)
        sums[(size_t)j * stride + d] += (double)r->part_bias[j];
}

static void run_batch(void *arg, int thread)
{
    const struct convert_rebuild *r = arg;
    const int n_threads = pool_n_threads(r->c->spec->pool);
    const int n = r->batch_windows * r->c->calibration->window;
    const size_t d = (size_t)r->d, first = convert_window_first(r->c->calibration, r->first_window);
    double *of_o = r->gradient + (size_t)r->qkv_dim * (d + 1);
    int begin, end;
    pool_share(n, thread, n_threads, &begin, &end);
    run_forwards(r, begin, end, thread);
    run_output(r, begin, end, thread);
    run_items(r, thread, causal_backward);
    add_gradient(r, r->gradient, d + 1, r->dqkv, r->x + first * d, r->qkv_dim, n, thread);
    pool_barrier(r->c->spec->pool, thread); /* its parts of the batch's gradient are other rows */
    add_gradient(r, of_o, d, r->results, r->rest, r->heads_dim, n, thread);
}

bool rebuild_pass(struct convert_rebuild *r)
{
    struct converter *c = r->c;
    const size_t d = (size_t)r->d;
    double *of_bo = r->gradient + rebuild_variables(r) - d;
    r->loss = 0;
    memset(r->gradient, 0, rebuild_variables(r) * sizeof *r->gradient);
    for (int w = 0; w < r->n_windows && !r->stopped; w += r->batch_windows) {
        const int left = r->n_windows - w;
        r->first_window = w;
        r->batch_windows = left < r->n_batch ? left : r->n_batch;
        pool_run(c->spec->pool, run_batch, r);
        for (int t = 0; t < r->batch_windows * c->calibration->window; t++)
            r->loss += r->row_loss[t];
        convert_add_rows(of_bo, r->rest, r->batch_windows * c->calibration->window, d);
        r->stopped = convert_windows_done(c, r->batch_windows) != STATUS_OK;
    }
    return !r->stopped;
}
