/*
 * Variables are the rows of Q, K and V, then those of the output matrix (which are its inputs),
 * and last its bias. A row has d numbers and, but for the output matrix, its bias.
 */
#include "convert/rebuild.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/lbfgs.h"
#include "compute/linalg.h"
#include "convert/products.h"
#include "convert/tensors.h"
#include "engine/causal.h"

/* Every one of so many windows is used, where there are many: more variables want more of them. */
#define SPARSE_VALUES 4
#define SPARSE_ALL    2
/* Rows that go through at once, in whole windows. */
#define BATCH_ROWS 2048
#define MEMORY     10
/* Evaluations with the patterns as they are, and with all. */
#define EVALUATIONS_VALUES 24
#define EVALUATIONS_ALL    36
/* Added to a metric's diagonal, relative to its mean. */
#define METRIC_RIDGE 1e-4
#define INPUT_RIDGE  1e-6
/* Pulls the variables towards where they start, relative to how the error curves. */
#define PULL 0.3

/* A head's rows of Q, K and V together, scaled by root^-T. */
struct rebuilt_head {
    int first, dim;
    double *root; /* [dim, dim] lower triangular */
};

struct convert_rebuild {
    struct converter *c;
    int qkv_dim, heads_dim, d;
    int n_windows, n_batch; /* that are used; in a batch, at most */
    bool has_biases, has_out_bias;
    bool patterns;              /* vary, too */
    float *x, *y;               /* [rows, d] white inputs and targets */
    double *mean, *root;        /* input = root x + mean: [d], [d, d] */
    struct rebuilt_head *heads; /* [n_heads + 2 groups] */
    double *out_root;           /* [heads_dim, heads_dim] of the output matrix */
    /* The weights, in floats: W^T [d, qkv_dim], bias, O [heads_dim, d], O^T, bias. */
    float *wt, *bias, *o, *ot, *bo;
    /* A batch's: [rows, qkv_dim], the same, [rows, heads_dim], the same, [rows, d]. */
    float *qkv, *dqkv, *results, *dresults, *rest;
    float *softmax;   /* [windows, n_heads, 2, padded length] */
    double *row_loss; /* [rows] */
    float *part;      /* [the larger of qkv_dim and heads_dim, d] */
    float *part_bias; /* the same [..] */
    float *scratch;   /* [threads, scratch_floats] */
    size_t scratch_floats;
    /* Variables, where they start, and their gradient: all of them. */
    double *theta, *start, *gradient, *lbfgs;
    double *square; /* [widest of heads_dim and d, d] */
    /* Of an evaluation. */
    size_t first; /* of the variables that are varied */
    double loss, energy;
    int first_window, batch_windows;
    bool stopped;
};

/* --- memory ---------------------------------------------------------------------------------- */

static int sparse(bool patterns)
{
    return patterns ? SPARSE_ALL : SPARSE_VALUES;
}

static bool is_used(const struct convert_calibration *k, const struct convert_spec *spec, int w,
                    bool patterns)
{
    const size_t end = convert_window_first(k, w) + (size_t)k->window;
    return end <= spec->n_tokens && !convert_is_judged(k, w) &&
           (k->n_windows < 2 * CONVERT_JUDGED || w % sparse(patterns) == 0);
}

static int count_used(const struct converter *c, const struct convert_calibration *k, bool patterns)
{
    int n = 0;
    for (int w = 0; w < k->n_windows; w++)
        n += is_used(k, c->spec, w, patterns);
    return n;
}

static size_t n_variables(const struct convert_rebuild *r)
{
    return (size_t)r->qkv_dim * ((size_t)r->d + 1) + ((size_t)r->heads_dim + 1) * (size_t)r->d;
}

static float *take_floats(struct arena *arena, uint64_t rows, int cols)
{
    return arena_take(arena, rows, (uint64_t)cols * sizeof(float));
}

static double *take_doubles(struct arena *arena, uint64_t rows, int cols)
{
    return arena_take(arena, rows, (uint64_t)cols * sizeof(double));
}

static void take_batch(struct convert_rebuild *r, const struct converter *c, int window,
                       struct arena *arena)
{
    const uint64_t rows = (uint64_t)r->n_batch * (uint64_t)window;
    const uint64_t padded = (uint64_t)causal_padded_length(window);
    const int n_threads = pool_n_threads(c->spec->pool);
    r->qkv = take_floats(arena, rows, r->qkv_dim);
    r->dqkv = take_floats(arena, rows, r->qkv_dim);
    r->results = take_floats(arena, rows, r->heads_dim);
    r->dresults = take_floats(arena, rows, r->heads_dim);
    r->rest = take_floats(arena, rows, r->d);
    r->softmax = take_floats(arena, (uint64_t)r->n_batch * (uint64_t)c->n_heads, (int)(2 * padded));
    r->row_loss = take_doubles(arena, rows, 1);
    r->scratch_floats = causal_scratch(&c->config, window);
    r->scratch = arena_take(arena, (uint64_t)n_threads, r->scratch_floats * sizeof(float));
}

static void take_heads(struct convert_rebuild *r, const struct converter *c, struct arena *arena)
{
    const int kv = c->n_groups, n = c->n_heads + 2 * kv;
    const int dim = c->qk.dim > c->ov.dim ? c->qk.dim : c->ov.dim;
    r->heads = arena_take(arena, (uint64_t)n, sizeof *r->heads);
    for (int i = 0; i < n; i++) {
        double *root = take_doubles(arena, (uint64_t)dim, dim);
        if (r->heads)
            r->heads[i].root = root;
    }
}

struct convert_rebuild *convert_rebuild_take(const struct converter *c, struct arena *arena)
{
    struct convert_rebuild *out = arena_take(arena, 1, sizeof *out), r = {.d = c->d};
    const uint64_t n = c->spec->n_tokens;
    const int window = (uint64_t)c->config.n_ctx < n ? c->config.n_ctx : (int)n;
    const uint64_t n_windows = n / (uint64_t)window;
    /* At most; blocks with fewer K/V heads need less. */
    r.qkv_dim = c->qk.width + c->n_groups * (c->qk.dim + c->ov.dim);
    r.heads_dim = c->ov.width;
    r.n_batch = window < BATCH_ROWS ? BATCH_ROWS / window : 1;
    const uint64_t used =
        n_windows < 2 * CONVERT_JUDGED
            ? n_windows
            : n_windows / (uint64_t)sparse(c->spec->refit == CONVERT_REFIT_BLOCK) + 1;
    r.x = take_floats(arena, used * (uint64_t)window, r.d);
    r.y = take_floats(arena, used * (uint64_t)window, r.d);
    r.mean = take_doubles(arena, (uint64_t)r.d, 1);
    r.root = take_doubles(arena, (uint64_t)r.d, r.d);
    take_heads(&r, c, arena);
    r.out_root = take_doubles(arena, (uint64_t)r.heads_dim, r.heads_dim);
    r.wt = take_floats(arena, (uint64_t)r.d, r.qkv_dim);
    r.bias = take_floats(arena, (uint64_t)r.qkv_dim, 1);
    r.o = take_floats(arena, (uint64_t)r.heads_dim, r.d);
    r.ot = take_floats(arena, (uint64_t)r.heads_dim, r.d);
    r.bo = take_floats(arena, (uint64_t)r.d, 1);
    take_batch(&r, c, window, arena);
    const int rows = r.qkv_dim > r.heads_dim ? r.qkv_dim : r.heads_dim;
    r.part = take_floats(arena, (uint64_t)rows, r.d);
    r.part_bias = take_floats(arena, (uint64_t)rows + (uint64_t)r.d, 1);
    r.theta = arena_take(arena, n_variables(&r), sizeof(double));
    r.start = arena_take(arena, n_variables(&r), sizeof(double));
    r.gradient = arena_take(arena, n_variables(&r), sizeof(double));
    r.lbfgs = arena_take(arena, lbfgs_scratch(n_variables(&r), MEMORY), sizeof(double));
    const int most = rows > r.d ? rows : r.d;
    r.square = take_doubles(arena, (uint64_t)most, most);
    if (out)
        *out = r;
    return out;
}

static int evaluations(bool patterns)
{
    return patterns ? EVALUATIONS_ALL : EVALUATIONS_VALUES;
}

uint64_t convert_rebuild_windows(const struct converter *c, bool patterns)
{
    return (uint64_t)count_used(c, c->calibration, patterns) *
           (uint64_t)(1 + evaluations(patterns));
}

/* --- an evaluation, on all threads ----------------------------------------------------------- */

/* y [n, columns] = x [n, inner] b [inner, columns] + bias, rows close together. */
static void multiply_rows(const struct convert_rebuild *r, float *y, const float *x, const float *b,
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
struct item_heads {
    const struct attend_bias *bias;
};

static bool head_bias(const void *arg, int head, struct attend_bias *out)
{
    const struct item_heads *heads = arg;
    if (!heads->bias)
        return false;
    *out = heads->bias[head];
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
    const struct item_heads heads = {bias ? bias + head : NULL};
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
        .bias = head_bias,
        .arg = &heads,
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
    multiply_rows(r, r->qkv + (size_t)begin * qkv, r->x + (first + (size_t)begin) * d, r->wt,
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
    multiply_rows(r, rest, r->results + (size_t)begin * heads, r->o, r->bo, end - begin,
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
    multiply_rows(r, r->dresults + (size_t)begin * heads, r->rest + (size_t)begin * d, r->ot, NULL,
                  end - begin, r->d, r->heads_dim);
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
    add_gradient(r, of_o, d, r->results, r->rest, r->heads_dim, n, thread);
}

/* Sums over all batches; false if that was stopped. */
static bool run_batches(struct convert_rebuild *r)
{
    struct converter *c = r->c;
    const size_t d = (size_t)r->d;
    double *of_bo = r->gradient + n_variables(r) - d;
    r->loss = 0;
    memset(r->gradient, 0, n_variables(r) * sizeof *r->gradient);
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

/* --- coordinates ----------------------------------------------------------------------------- */

static int n_scaled(const struct converter *c)
{
    return c->n_heads + 2 * c->n_groups;
}

/* rows of each head = root^-T rows, or, of a gradient, root^-1 rows. */
static void scale_heads(const struct convert_rebuild *r, double *rows, bool gradient)
{
    const size_t stride = (size_t)r->d + 1;
    for (int i = 0; i < n_scaled(r->c); i++) {
        const struct rebuilt_head *h = &r->heads[i];
        (gradient ? linalg_solve_lower : linalg_solve_lower_transposed)(
            h->root, h->dim, rows + (size_t)h->first * stride, r->d + 1);
    }
}

/* The weights in floats from the variables, which are scaled in r->theta's copy `from`. */
static void set_weights(struct convert_rebuild *r, double *from)
{
    const size_t d = (size_t)r->d, qkv = (size_t)r->qkv_dim, heads = (size_t)r->heads_dim;
    scale_heads(r, from, false);
    for (size_t j = 0; j < qkv; j++) {
        for (size_t i = 0; i < d; i++)
            r->wt[i * qkv + j] = (float)from[j * (d + 1) + i];
        r->bias[j] = (float)from[j * (d + 1) + d];
    }
    double *o = from + qkv * (d + 1);
    linalg_solve_lower_transposed(r->out_root, r->heads_dim, o, r->d);
    for (size_t j = 0; j < heads; j++)
        for (size_t i = 0; i < d; i++)
            r->o[j * d + i] = r->ot[i * heads + j] = (float)o[j * d + i];
    for (size_t i = 0; i < d; i++)
        r->bo[i] = (float)o[heads * d + i];
}

/* Gradients by weights to those by variables, and none of what the file has not. */
static void finish_gradient(struct convert_rebuild *r)
{
    const size_t d = (size_t)r->d, qkv = (size_t)r->qkv_dim, n = n_variables(r);
    const double scale = 2 / r->energy;
    for (size_t j = 0; j < qkv && !r->has_biases; j++)
        r->gradient[j * (d + 1) + d] = 0;
    if (!r->has_out_bias)
        memset(r->gradient + n - d, 0, d * sizeof *r->gradient);
    scale_heads(r, r->gradient, true);
    linalg_solve_lower(r->out_root, r->heads_dim, r->gradient + qkv * (d + 1), r->d);
    for (size_t i = 0; i < n; i++)
        r->gradient[i] *= scale;
}

/* What the variables x have moved, as an error, whose gradient is added. */
static double add_pull(struct convert_rebuild *r, const double *x)
{
    const size_t n = n_variables(r) - r->first;
    const double rows = (double)r->n_windows * (double)r->c->calibration->window;
    const double pull = PULL * rows / r->energy, *start = r->start + r->first;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double moved = x[i] - start[i];
        sum += moved * moved;
        r->gradient[r->first + i] += 2 * pull * moved;
    }
    return pull * sum;
}

static bool evaluate(void *arg, const double *x, double *value, double *gradient)
{
    struct convert_rebuild *r = arg;
    const size_t n = n_variables(r), varied = n - r->first;
    double *copy = r->gradient; /* free until the batches */
    memcpy(copy, r->theta, r->first * sizeof *copy);
    memcpy(copy + r->first, x, varied * sizeof *copy);
    set_weights(r, copy);
    if (!run_batches(r))
        return false;
    finish_gradient(r);
    *value = r->loss / r->energy + add_pull(r, x);
    memcpy(gradient, r->gradient + r->first, varied * sizeof *gradient);
    return true;
}

/* --- metrics --------------------------------------------------------------------------------- */

/* m [dim, dim] += scale * rows rows^T for rows [dim, n], `stride` apart. */
static void add_moments(double *m, const double *rows, size_t stride, int n, int dim, double scale)
{
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim; j++)
            m[i * dim + j] +=
                scale * linalg_dot(rows + (size_t)i * stride, rows + (size_t)j * stride, (size_t)n);
}

static void set_root(struct rebuilt_head *h, const double *metric)
{
    const double trace = linalg_trace(metric, h->dim);
    linalg_cholesky(h->root, metric, h->dim, METRIC_RIDGE * trace / h->dim);
    if (trace > 0)
        return;
    for (int i = 0; i < h->dim * h->dim; i++) /* nothing comes of it: any scale will do */
        h->root[i] = i % (h->dim + 1) == 0;
}

static void place_heads(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    int first = 0;
    for (int i = 0; i < n_scaled(c); i++) {
        struct rebuilt_head *h = &r->heads[i];
        h->dim = i < c->n_heads + c->n_groups ? c->qk.dim : c->ov.dim;
        h->first = first;
        first += h->dim;
    }
}

/* Of sum_i x_i^T metric x_i where values differ from their mean, what reaches the head's result:
 * the share that averaging leaves, from the moments of results. */
static double share_left(const double *o, const double *results, size_t stride, const double *v,
                         int dim)
{
    double before = 0, after = 0;
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim; j++) {
            before += o[i * dim + j] * v[i * dim + j];
            after += o[i * dim + j] * results[(size_t)i * stride + (size_t)j];
        }
    const double share = before > 0 ? after / before : 1;
    return share > 1 ? 1 : share < 1e-3 ? 1e-3 : share;
}

/* Metrics of the heads from the rows w [qkv_dim, d + 1] over white inputs and their results'
 * moments; o [heads_dim, d]. */
static void set_roots(struct convert_rebuild *r, const double *w, const double *o,
                      const double *results)
{
    const struct converter *c = r->c;
    const int d = r->d, n = c->n_heads, kv = c->n_groups, k_dim = c->qk.dim, v_dim = c->ov.dim;
    const size_t stride = (size_t)d + 1;
    double *of_o = c->blocks, *of_v = of_o + v_dim * v_dim;
    double *q_metric = of_v + v_dim * v_dim, *k_metric = q_metric + k_dim * k_dim;
    double *v_metric = c->square2;
    place_heads(r);
    for (int g = 0; g < kv; g++) {
        struct rebuilt_head *k = &r->heads[n + g], *v = &r->heads[n + kv + g];
        memset(of_v, 0, (size_t)(v_dim * v_dim) * sizeof *of_v);
        memset(k_metric, 0, (size_t)(k_dim * k_dim) * sizeof *k_metric);
        memset(v_metric, 0, (size_t)(v_dim * v_dim) * sizeof *v_metric);
        add_moments(of_v, w + (size_t)v->first * stride, stride, d, v_dim, 1);
        for (int h = g * c->group; h < (g + 1) * c->group; h++) {
            struct rebuilt_head *q = &r->heads[h];
            const size_t at = (size_t)(h * v_dim);
            memset(of_o, 0, (size_t)(v_dim * v_dim) * sizeof *of_o);
            memset(q_metric, 0, (size_t)(k_dim * k_dim) * sizeof *q_metric);
            add_moments(of_o, o + at * (size_t)d, (size_t)d, d, v_dim, 1);
            const double share = share_left(of_o, results + at * (size_t)r->heads_dim + at,
                                            (size_t)r->heads_dim, of_v, v_dim);
            double energy = 0;
            for (int i = 0; i < v_dim * v_dim; i++) {
                v_metric[i] += share * of_o[i];
                energy += of_o[i] * of_v[i];
            }
            const double scale = share * energy / k_dim;
            add_moments(q_metric, w + (size_t)k->first * stride, stride, d, k_dim, scale);
            add_moments(k_metric, w + (size_t)q->first * stride, stride, d + 1, k_dim, scale);
            set_root(q, q_metric);
        }
        set_root(k, k_metric);
        set_root(v, v_metric);
    }
}

/* --- before and after ------------------------------------------------------------------------ */

/* Inputs, not yet white, and targets of the windows that are used. */
static void gather(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const size_t size = (size_t)k->window * (size_t)r->d;
    r->n_windows = 0;
    for (int w = 0; w < k->n_windows; w++) {
        if (!is_used(k, c->spec, w, r->patterns))
            continue;
        const float *stream = convert_stream(c, w);
        const float *middle = k->middle + convert_window_first(k, w) * (size_t)r->d;
        float *x = r->x + (size_t)r->n_windows * size, *y = r->y + (size_t)r->n_windows * size;
        convert_norm_rows(c, ROLE_ATTN_NORM, x, stream, k->window);
        for (size_t i = 0; i < size; i++)
            y[i] = middle[i] - stream[i];
        r->n_windows++;
    }
}

/* Moments of the inputs to r->mean and r->root; the targets' energy. */
static void measure_inputs(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const int d = r->d;
    const size_t width = (size_t)d, size = (size_t)k->window * width;
    const double n = (double)r->n_windows * (double)k->window;
    memset(r->root, 0, width * width * sizeof *r->root);
    memset(r->mean, 0, width * sizeof *r->mean);
    r->energy = 0;
    for (int w = 0; w < r->n_windows; w++) {
        const float *x = r->x + (size_t)w * size;
        convert_add_outer_floats(c->spec->pool, k->grad, r->root, x, x, k->window, d, d, r->part);
        convert_add_rows(r->mean, x, k->window, width);
        convert_widen(k->x, r->y + (size_t)w * size, size);
        r->energy += linalg_dot(k->x, k->x, size);
    }
    for (size_t i = 0; i < width; i++)
        r->mean[i] = r->has_biases ? r->mean[i] / n : 0;
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < width; j++)
            r->root[i * width + j] = r->root[i * width + j] / n - r->mean[i] * r->mean[j];
    linalg_cholesky(r->root, r->root, d, INPUT_RIDGE * linalg_trace(r->root, d) / d);
}

/* x = root^-1 (x - mean) of every row. */
static void whiten_inputs(struct convert_rebuild *r)
{
    const struct convert_calibration *k = r->c->calibration;
    const size_t d = (size_t)r->d;
    float *inverse = r->part; /* root^-T */
    memset(r->square, 0, d * d * sizeof *r->square);
    for (size_t i = 0; i < d; i++)
        r->square[i * d + i] = 1;
    linalg_solve_lower(r->root, r->d, r->square, r->d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            inverse[j * d + i] = (float)r->square[i * d + j];
    for (int t = 0; t < r->n_windows * k->window; t += k->window) {
        float *x = r->x + (size_t)t * d;
        for (size_t i = 0; i < (size_t)k->window * d; i++)
            k->rows[i] = (float)((double)x[i] - r->mean[i % d]);
        multiply_rows(r, x, k->rows, inverse, NULL, k->window, r->d, r->d);
    }
}

/* The rows of a matrix with its bias, over white inputs: w root, b + w mean. */
static void whiten_rows(const struct convert_rebuild *r, const double *w, const double *bias,
                        int rows, double *out)
{
    const size_t d = (size_t)r->d;
    for (size_t j = 0; j < (size_t)rows; j++) {
        double *to = out + j * (d + 1);
        memset(to, 0, d * sizeof *to);
        for (size_t t = 0; t < d; t++)
            for (size_t i = 0; i <= t; i++)
                to[i] += w[j * d + t] * r->root[t * d + i];
        to[d] = bias[j] + linalg_dot(w + j * d, r->mean, d);
    }
}

/* And back. */
static void restore_rows(const struct convert_rebuild *r, const double *from, int rows, double *w,
                         double *bias)
{
    const size_t d = (size_t)r->d;
    double *turned = r->square; /* [d, rows] */
    for (size_t j = 0; j < (size_t)rows; j++)
        for (size_t i = 0; i < d; i++)
            turned[i * (size_t)rows + j] = from[j * (d + 1) + i];
    linalg_solve_lower_transposed(r->root, r->d, turned, rows);
    for (size_t j = 0; j < (size_t)rows; j++) {
        for (size_t i = 0; i < d; i++)
            w[j * d + i] = turned[i * (size_t)rows + j];
        bias[j] = r->has_biases ? from[j * (d + 1) + d] - linalg_dot(w + j * d, r->mean, d) : 0;
    }
}

/* Q, K and V of `to` as variables or back. */
struct part {
    double *w, *bias;
    int rows;
};

static void list_parts(const struct convert_rebuild *r, struct part parts[3])
{
    const struct converter *c = r->c;
    const int k = c->n_groups * c->qk.dim, v = c->n_groups * c->ov.dim;
    parts[0] = (struct part){c->to.q, c->to.bq, c->qk.width};
    parts[1] = (struct part){c->to.k, c->to.bk, k};
    parts[2] = (struct part){c->to.v, c->to.bv, v};
}

/* out = root^T in for the head's rows: from weights to variables. */
static void unscale_rows(const double *root, double *rows, size_t stride, int dim, int n)
{
    for (int i = 0; i < dim; i++) /* row i takes only rows from i on */
        for (int t = 0; t < n; t++) {
            double sum = 0;
            for (int j = i; j < dim; j++)
                sum += root[j * dim + i] * rows[(size_t)j * stride + (size_t)t];
            rows[(size_t)i * stride + (size_t)t] = sum;
        }
}

/* Moments of the heads' results, as the weights are: c->moments.values, free by now. */
static void measure_results(struct convert_rebuild *r, double *moments)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const size_t n = (size_t)r->heads_dim;
    struct convert_ridge sums = {
        .features = moments, .targets = c->moments.keys, .f_sum = k->x_sum, .t_sum = k->y_sum};
    convert_ridge_begin(&sums, r->heads_dim, r->d);
    for (int w = 0, i = 0; w < k->n_windows; w++) {
        if (!is_used(k, c->spec, w, r->patterns))
            continue;
        probe_run(k->probe2, &k->used.block, c->block, convert_stream(c, w), k->window,
                  &(struct block_taps){.at = {[TAP_HEADS] = k->rows}});
        convert_ridge_add(&sums, &k->summing, k->rows,
                          r->y + (size_t)i++ * (size_t)k->window * (size_t)r->d, k->window);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            moments[i * n + j] =
                moments[i * n + j] / sums.n - sums.f_sum[i] / sums.n * (sums.f_sum[j] / sums.n);
}

static void set_variables(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const size_t d = (size_t)r->d, heads = (size_t)r->heads_dim;
    double *w = r->theta, *o = r->theta + (size_t)r->qkv_dim * (d + 1);
    struct part parts[3];
    list_parts(r, parts);
    for (int i = 0; i < 3; i++) {
        whiten_rows(r, parts[i].w, parts[i].bias, parts[i].rows, w);
        w += (size_t)parts[i].rows * (d + 1);
    }
    memcpy(o, c->to.o, heads * d * sizeof *o);
    memcpy(o + heads * d, c->to.bo, d * sizeof *o);
    measure_results(r, c->moments.values);
    set_roots(r, r->theta, o, c->moments.values);
    const double trace = linalg_trace(c->moments.values, r->heads_dim);
    linalg_cholesky(r->out_root, c->moments.values, r->heads_dim,
                    METRIC_RIDGE * trace / r->heads_dim);
    for (int i = 0; i < n_scaled(c); i++) {
        const struct rebuilt_head *h = &r->heads[i];
        unscale_rows(h->root, r->theta + (size_t)h->first * (d + 1), d + 1, h->dim, r->d + 1);
    }
    unscale_rows(r->out_root, o, d, r->heads_dim, r->d);
}

static void take_variables(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const size_t d = (size_t)r->d, heads = (size_t)r->heads_dim;
    double *w = r->theta, *o = r->theta + (size_t)r->qkv_dim * (d + 1);
    struct part parts[3];
    scale_heads(r, w, false);
    linalg_solve_lower_transposed(r->out_root, r->heads_dim, o, r->d);
    list_parts(r, parts);
    for (int i = 0; i < 3; i++) {
        restore_rows(r, w, parts[i].rows, parts[i].w, parts[i].bias);
        w += (size_t)parts[i].rows * (d + 1);
    }
    memcpy(c->to.o, o, heads * d * sizeof *o);
    memcpy(c->to.bo, o + heads * d, d * sizeof *o);
}

enum status convert_rebuild_run(struct converter *c, struct convert_rebuild *r, bool patterns)
{
    const struct convert_pair *pairs = c->tensors[c->block].pairs;
    const uint64_t end = c->windows_done + convert_rebuild_windows(c, patterns);
    r->c = c;
    r->stopped = false;
    r->patterns = patterns;
    r->qkv_dim = config_qkv_dim(&c->converted, c->block);
    r->has_biases = pairs[0].bias.bytes;
    r->has_out_bias = pairs[PAIR_OUT].bias.bytes;
    gather(r);
    measure_inputs(r);
    if (!(r->energy > 0)) /* attention adds nothing */
        return STATUS_OK;
    whiten_inputs(r);
    set_variables(r);
    r->first = patterns ? 0 : (size_t)(c->qk.width + c->n_groups * c->qk.dim) * ((size_t)r->d + 1);
    const struct lbfgs p = {.n = n_variables(r) - r->first,
                            .memory = MEMORY,
                            .evaluations = evaluations(patterns),
                            .evaluate = evaluate,
                            .arg = r};
    memcpy(r->start, r->theta, n_variables(r) * sizeof *r->start);
    const double best = lbfgs_minimise(&p, r->theta + r->first, r->lbfgs);
    if (r->stopped)
        return STATUS_INTERRUPTED;
    if (isfinite(best))
        take_variables(r);
    return convert_windows_done(c, (int)(end > c->windows_done ? end - c->windows_done : 0));
}
