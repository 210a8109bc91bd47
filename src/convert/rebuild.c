/*
 * Attention of the block in work, fitted to what the checkpoint's added: the squared error of its
 * output over some of the windows, by its gradients.
 *
 * Variables are the rows of Q, K and V, each with its bias as element d, then those of the output
 * matrix (which are its inputs), and its bias. They are in coordinates in which the error curves
 * alike: inputs are white, and a head's rows are scaled by what they are multiplied with: queries
 * by keys, keys by queries, values by rows of the output matrix.
 *
 * The gradient goes a batch of windows at a time: rows and heads are shared by the threads, then
 * rows of the gradient, whose sums over a batch are floats and over batches doubles.
 */
#include "convert/rebuild.h"

#include <math.h>

#include "compute/lbfgs.h"
#include "convert/calibrate.h"
#include "convert/memory.h"
#include "convert/products.h"
#include "convert/tensors.h"
#include "engine/causal.h"

#define BATCH_ROWS 2048 /* that go through at once, in whole windows */
#define MEMORY     10   /* pairs of steps and gradients that L-BFGS keeps */
/* For progress: one window forwards and backwards takes as long as this many through a layer. */
#define EVALUATION 3
/* Added to a metric's diagonal, relative to its mean. */
#define METRIC_RIDGE 1e-4
#define INPUT_RIDGE  1e-6

/* How it is fitted while the patterns of attention stay as they are ([0]), and while they vary, too
 * ([1]). */
static const struct rebuild_schedule {
    int evaluations;
    double enough; /* a step that lowers the error by less than this share of it is the last */
    double pull;   /* of variables to where they start, relative to how the error curves */
    int sparse;    /* where there are many windows, one in so many is used */
} schedules[] = {{24, 0.003, 0.1, 4}, {36, 0, 0.3, 2}};

/* Rows that are scaled together by root^-T: a head's of Q, K or V, or all of the output matrix. */
struct row_block {
    size_t at, dim, stride; /* among the variables; rows, and numbers of each */
    double *root;           /* [dim, dim] lower triangular */
};

struct convert_rebuild {
    size_t qkv_dim;
    int n_windows, n_batch; /* that are used; in a batch, at most */
    bool has_biases, has_out_bias;
    bool patterns;            /* vary, too */
    float *x, *y;             /* [rows, d] white inputs and targets */
    double *mean, *root;      /* input = root x + mean: [d], [d, d] */
    struct row_block *blocks; /* [n_heads + 2 groups + 1] in the order of the variables */
    double *roots;            /* theirs, one after another */
    /* The weights, in floats: W^T [d, qkv_dim], bias, O [heads_dim, d], O^T, bias. */
    float *wt, *bias, *o, *ot, *bo;
    /* A batch's: [rows, qkv_dim], the same, [rows, heads_dim], the same, [rows, d]. */
    float *qkv, *dqkv, *results, *dresults, *rest;
    float *softmax;      /* [windows, n_heads, 2, padded length] */
    double *row_loss;    /* [rows] */
    float *product;      /* [the larger of qkv_dim and heads_dim, d] */
    float *product_bias; /* the same [..] */
    float *scratch;      /* [threads, scratch_floats] */
    size_t scratch_floats;
    double *theta, *start, *gradient; /* all variables, where they start, their gradient */
    double *weights;                  /* of the variables: rows unscaled */
    double *moments;                  /* [heads_dim, heads_dim] second ones of the heads' results */
    double *lbfgs;                    /* its scratch */
    size_t n, first;                  /* variables, and the first that is varied */
    double energy;                    /* of the targets */
    int first_window, batch_windows;
    bool stopped;
};

/* Heads of Q, K and V together, and the output matrix. */
static size_t n_blocks(const struct converter *c)
{
    return c->block.n_heads + 2 * c->block.n_groups + 1;
}

static size_t count_variables(const struct converter *c, const struct convert_rebuild *r)
{
    return r->qkv_dim * (c->d + 1) + (c->circuits.ov.width + 1) * c->d;
}

/* The next window after win->w that is fitted to; false if there is none. */
static bool next_sampled(const struct converter *c, bool patterns, struct convert_window *win)
{
    const int step =
        c->calib.n_windows < 2 * CONVERT_HELD_OUT_EVERY ? 1 : schedules[patterns].sparse;
    for (int w = win->w + 1; w < c->calib.n_windows; w++) {
        *win = convert_window_at(c, w);
        if (win->n == c->calib.window && !win->held_out && w % step == 0)
            return true;
    }
    return false;
}

uint64_t convert_rebuild_windows(const struct converter *c, bool patterns)
{
    uint64_t used = 0;
    for (struct convert_window win = {.w = -1}; next_sampled(c, patterns, &win);)
        used++;
    return used * schedules[patterns].evaluations * EVALUATION;
}

void convert_rebuild_take(struct converter *c)
{
    struct convert_rebuild counted;
    struct convert_rebuild *r = arena_take(&c->arena, 1, sizeof *r);
    const size_t window = c->calib.window, d = c->d, n_windows = c->spec->n_tokens / window;
    const int sparse = schedules[c->spec->refit == CONVERT_REFIT_BLOCK].sparse;
    c->rebuild = r;
    r = r ? r : &counted;
    /* At most; blocks with fewer K/V heads need less. */
    const size_t qkv = c->circuits.qk.width +
                       c->block.n_groups * (c->circuits.qk.dim + c->circuits.ov.dim),
                 heads = c->circuits.ov.width;
    const size_t widest = MAX(qkv, heads);
    const size_t batch = window < BATCH_ROWS ? BATCH_ROWS / window : 1, rows = batch * window;
    const size_t used = n_windows < 2 * CONVERT_HELD_OUT_EVERY ? n_windows : n_windows / sparse + 1;
    *r = (struct convert_rebuild){
        .qkv_dim = qkv,
        .n_batch = batch,
        .x = convert_floats(c, used * window, d),
        .y = convert_floats(c, used * window, d),
        .mean = convert_doubles(c, d, 1),
        .root = convert_doubles(c, d, d),
        .blocks = arena_take(&c->arena, n_blocks(c), sizeof *r->blocks),
        .roots = convert_doubles(
            c, qkv * c->circuits.qk.dim + qkv * c->circuits.ov.dim + heads * heads, 1),
        .wt = convert_floats(c, d, qkv),
        .bias = convert_floats(c, qkv, 1),
        .o = convert_floats(c, heads, d),
        .ot = convert_floats(c, heads, d),
        .bo = convert_floats(c, d, 1),
        .qkv = convert_floats(c, rows, qkv),
        .dqkv = convert_floats(c, rows, qkv),
        .results = convert_floats(c, rows, heads),
        .dresults = convert_floats(c, rows, heads),
        .rest = convert_floats(c, rows, d),
        .softmax = convert_floats(c, batch * c->block.n_heads, 2 * causal_padded_length(window)),
        .row_loss = convert_doubles(c, rows, 1),
        .product = convert_floats(c, widest, d),
        .product_bias = convert_floats(c, widest, 1),
        .scratch_floats = causal_scratch(&c->config, window),
    };
    r->scratch = convert_floats(c, c->n_threads, r->scratch_floats);
    const size_t n = count_variables(c, r);
    r->theta = convert_doubles(c, n, 1);
    r->start = convert_doubles(c, n, 1);
    r->gradient = convert_doubles(c, n, 1);
    r->weights = convert_doubles(c, n, 1);
    r->moments = convert_doubles(c, heads, heads);
    r->lbfgs = convert_doubles(c, lbfgs_scratch(n, MEMORY), 1);
}

/* --- the error and its gradient by the weights ------------------------------------------------ */

static void multiply(const struct converter *c, struct product p, const float *bias)
{
    p.bias = bias;
    c->grad->product(&p);
}

/* What distances do to scores: of query heads from arg's on. */
static bool bias_of_head(const void *arg, int head, struct attend_bias *out)
{
    *out = ((const struct attend_bias *)arg)[head];
    return true;
}

/* Attention of this thread's share of the batch's windows and K/V heads. */
static void run_items(const struct converter *c, int thread,
                      void (*run)(const struct causal_window *w))
{
    const struct convert_rebuild *r = c->rebuild;
    const struct attend_bias *bias = c->block.loaded.bias;
    const size_t key_dim = c->circuits.qk.dim, value_dim = c->circuits.ov.dim, qkv = r->qkv_dim;
    const size_t keys = c->circuits.qk.width, values = keys + c->block.n_groups * key_dim;
    const int padded = causal_padded_length(c->calib.window);
    int i, end;
    pool_range(r->batch_windows * c->block.n_groups, thread, c->n_threads, &i, &end);
    for (; i < end; i++) {
        const size_t window = i / c->block.n_groups, g = i % c->block.n_groups,
                     head = g * c->block.group;
        const size_t row = window * c->calib.window,
                     heads_at = row * c->circuits.ov.width + head * value_dim;
        const size_t q = row * qkv + head * key_dim, k = row * qkv + keys + g * key_dim;
        const size_t v = row * qkv + values + g * value_dim;
        run(&(struct causal_window){
            .kernels = c->kernels,
            .grad = c->grad,
            .positions = probe_positions(c->calib.probe),
            .rope_dims = c->config.rope.n_dims,
            .length = c->calib.window,
            .n_heads = c->block.group,
            .key_dim = key_dim,
            .value_dim = value_dim,
            .scale = config_score_scale(&c->config),
            .q = r->qkv + q,
            .k = r->qkv + k,
            .v = r->qkv + v,
            .stride = qkv,
            .heads = r->results + heads_at,
            .heads_stride = c->circuits.ov.width,
            .softmax = r->softmax + (window * c->block.n_heads + head) * 2 * padded,
            .dheads = r->dresults + heads_at,
            .dq = r->dqkv + q,
            .dk = r->dqkv + k,
            .dv = r->dqkv + v,
            .bias = bias ? bias_of_head : NULL,
            .arg = bias ? bias + head : NULL,
            .scratch = r->scratch + thread * r->scratch_floats,
        });
    }
    pool_barrier(c->pool, thread);
}

/* The error of this thread's rows of the batch, and its rows of the gradient. */
static void run_batch(void *arg, int thread)
{
    const struct converter *c = arg;
    const struct convert_rebuild *r = c->rebuild;
    const size_t n = r->batch_windows * c->calib.window, d = c->d, heads = c->circuits.ov.width,
                 qkv = r->qkv_dim;
    const size_t first = r->first_window * c->calib.window * d;
    int begin, end;
    pool_range(n, thread, c->n_threads, &begin, &end);
    const size_t own = end - begin;
    const float *x = r->x + first, *y = r->y + first + begin * d;
    const float *own_results = r->results + begin * heads;
    float *rest = r->rest + begin * d;
    multiply(c, convert_product(r->qkv + begin * qkv, x + begin * d, r->wt, own, d, qkv), r->bias);
    pool_barrier(c->pool, thread);
    run_items(c, thread, causal_forward);
    multiply(c, convert_product(rest, own_results, r->o, own, heads, d), r->bo);
    for (int t = begin; t < end; t++) {
        double sum = 0;
        for (size_t i = 0; i < d; i++, rest++) {
            *rest -= *y++;
            sum += (double)*rest * (double)*rest;
        }
        r->row_loss[t] = sum;
    }
    multiply(
        c, convert_product(r->dresults + begin * heads, r->rest + begin * d, r->ot, own, d, heads),
        NULL);
    pool_barrier(c->pool, thread);
    run_items(c, thread, causal_backward);

    /* Of the rows that vary. */
    const size_t fixed = r->first / (d + 1);
    struct product of_rows = convert_product_transposed(r->product, r->dqkv, x, qkv, n, d);
    of_rows.a += fixed;
    of_rows.m -= fixed;
    convert_add_transposed(c, r->gradient + fixed * (d + 1), d + 1, of_rows, thread);
    pool_range(qkv, thread, c->n_threads, &begin, &end);
    c->grad->column_sums(r->product_bias + begin, r->dqkv + begin, qkv, n, end - begin);
    for (int j = begin; j < end; j++)
        r->gradient[j * (d + 1) + d] += (double)r->product_bias[j];
    pool_barrier(c->pool, thread); /* its parts of the batch's gradient are other rows */
    convert_add_transposed(c, r->gradient + qkv * (d + 1), d,
                           convert_product_transposed(r->product, r->results, r->rest, heads, n, d),
                           thread);
}

/* --- the error by the variables --------------------------------------------------------------- */

/* Rows of each block of all variables = root^-T rows, or, of a gradient, root^-1 rows. */
static void scale_rows(const struct converter *c, double *variables, bool gradient)
{
    for (size_t i = 0; i < n_blocks(c); i++) {
        const struct row_block *p = &c->rebuild->blocks[i];
        if (gradient)
            linalg_solve_lower(p->root, p->dim, variables + p->at, p->stride);
        else
            linalg_solve_lower_transposed(p->root, p->dim, variables + p->at, p->stride);
    }
}

static bool evaluate(void *arg, const double *variables, double *value, double *gradient)
{
    struct converter *c = arg;
    struct convert_rebuild *r = c->rebuild;
    const size_t d = c->d, qkv = r->qkv_dim, heads = c->circuits.ov.width, varied = r->n - r->first;
    double *w = r->weights, *o = w + qkv * (d + 1), *bo = o + heads * d;
    double *bo_gradient = r->gradient + qkv * (d + 1) + heads * d;
    double loss = 0, sum = 0;
    memcpy(w, r->theta, r->first * sizeof *w);
    memcpy(w + r->first, variables, varied * sizeof *w);
    scale_rows(c, w, false);
    for (size_t j = 0; j < qkv; j++) {
        for (size_t i = 0; i < d; i++)
            r->wt[i * qkv + j] = (float)w[j * (d + 1) + i];
        r->bias[j] = (float)w[j * (d + 1) + d];
    }
    for (size_t j = 0; j < heads; j++)
        for (size_t i = 0; i < d; i++)
            r->o[j * d + i] = r->ot[i * heads + j] = (float)o[j * d + i];
    for (size_t i = 0; i < d; i++)
        r->bo[i] = (float)bo[i];

    convert_zero(r->gradient, r->n);
    for (int first = 0; first < r->n_windows; first += r->batch_windows) {
        const int left = r->n_windows - first;
        r->first_window = first;
        r->batch_windows = MIN(left, r->n_batch);
        const size_t rows = r->batch_windows * c->calib.window;
        pool_run(c->pool, run_batch, c);
        for (size_t t = 0; t < rows; t++)
            loss += r->row_loss[t];
        convert_add_rows(bo_gradient, r->rest, rows, d);
        if (convert_windows_done(c, r->batch_windows * EVALUATION) != STATUS_OK) {
            r->stopped = true;
            return false;
        }
    }

    /* Gradients by weights to those by variables, and none of what the file has not. */
    if (!r->has_biases)
        for (size_t j = 0; j < qkv; j++)
            r->gradient[j * (d + 1) + d] = 0;
    if (!r->has_out_bias)
        convert_zero(bo_gradient, d);
    scale_rows(c, r->gradient, true);
    linalg_scale(r->gradient, 2 / r->energy, r->n);

    /* What the variables have moved is an error, too. */
    const double rows = r->n_windows * (double)c->calib.window;
    const double pull = schedules[r->patterns].pull * rows / r->energy;
    for (size_t i = 0; i < varied; i++) {
        const double moved = variables[i] - r->start[r->first + i];
        sum += moved * moved;
        r->gradient[r->first + i] += 2 * pull * moved;
    }
    *value = loss / r->energy + pull * sum;
    memcpy(gradient, r->gradient + r->first, varied * sizeof *gradient);
    return true;
}

/* --- inputs and targets ---------------------------------------------------------------------- */

/* Gathers the windows that are fitted to: white inputs root^-1 (x - mean), with mean and root from
 * their moments, and targets with their energy. */
static void gather_windows(struct converter *c)
{
    struct convert_rebuild *r = c->rebuild;
    const size_t d = c->d, size = c->calib.window * d;
    convert_zero(r->root, d * d);
    convert_zero(r->mean, d);
    r->energy = 0;
    r->n_windows = 0;
    for (struct convert_window win = {.w = -1}; next_sampled(c, r->patterns, &win);
         r->n_windows++) {
        float *x = r->x + r->n_windows * size, *y = r->y + r->n_windows * size;
        convert_norm_rows(c, ROLE_ATTN_NORM, x, win.from, c->calib.window);
        convert_subtract(y, win.middle, win.from, size);
        convert_add_gram(
            c, r->root,
            convert_product_transposed(c->scratch.float_product, x, x, d, c->calib.window, d));
        convert_add_rows(r->mean, x, c->calib.window, d);
        for (size_t i = 0; i < size; i++)
            c->scratch.x[i] = (double)y[i];
        r->energy += linalg_dot(c->scratch.x, c->scratch.x, size);
    }
    const double n = r->n_windows * (double)c->calib.window;
    convert_sums_to_moments(r->root, r->has_biases ? r->mean : NULL, r->mean, n, d, d);
    for (size_t i = 0; i < d; i++)
        r->mean[i] = r->has_biases ? r->mean[i] / n : 0;
    convert_cholesky(r->root, r->root, d, INPUT_RIDGE);

    float *inverse_transposed = c->scratch.float_product; /* root^-T */
    double *inverse = c->scratch.square;
    linalg_identity(inverse, d);
    linalg_solve_lower(r->root, d, inverse, d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            inverse_transposed[j * d + i] = (float)inverse[i * d + j];
    for (int w = 0; w < r->n_windows; w++) {
        float *x = r->x + w * size;
        for (size_t i = 0; i < size; i++)
            c->scratch.rows[i] = (float)((double)x[i] - r->mean[i % d]);
        multiply(c, convert_product(x, c->scratch.rows, inverse_transposed, c->calib.window, d, d),
                 NULL);
    }
}

/* --- weights to variables -------------------------------------------------------------------- */

static void set_root(const struct row_block *p, const double *metric)
{
    convert_cholesky(p->root, metric, p->dim, METRIC_RIDGE);
    if (!(linalg_trace(metric, p->dim) > 0)) /* nothing comes of it: any scale will do */
        linalg_identity(p->root, p->dim);
}

/* m [dim, dim] += scale times the dot products of a block's rows with each other, over d numbers.
 */
static void add_dots(double *m, const struct row_block *p, const double *rows, size_t d,
                     double scale)
{
    convert_add_dots(m, rows, rows, (struct convert_dots){p->dim, d, p->stride}, scale);
}

/* The row blocks of the variables theta, rows over white inputs, and their metrics; with the second
 * moments [heads_dim, heads_dim] of the heads' results. */
static void set_roots(const struct converter *c, const double *results)
{
    const struct convert_rebuild *r = c->rebuild;
    const size_t d = c->d, n = c->block.n_heads, kv = c->block.n_groups, k_dim = c->circuits.qk.dim,
                 v_dim = c->circuits.ov.dim;
    const size_t k_size = k_dim * k_dim, v_size = v_dim * v_dim, width = c->circuits.ov.width;
    double *of_o = c->scratch.blocks, *of_v = of_o + v_size;
    double *q_metric = of_v + v_size, *k_metric = q_metric + k_size, *v_metric = k_metric + k_size;
    struct row_block *out = &r->blocks[n + 2 * kv];
    size_t at = 0;
    double *root = r->roots;
    for (struct row_block *p = r->blocks; p <= out; p++) {
        const size_t dim = p == out ? width : p < &r->blocks[n + kv] ? k_dim : v_dim;
        *p = (struct row_block){at, dim, p == out ? d : d + 1, root};
        at += dim * p->stride;
        root += dim * dim;
    }
    for (size_t g = 0; g < kv; g++) {
        const struct row_block *k = &r->blocks[n + g], *v = k + kv;
        convert_zero(of_v, v_size);
        convert_zero(k_metric, k_size);
        convert_zero(v_metric, v_size);
        add_dots(of_v, v, r->theta + v->at, d, 1);
        for (size_t h = g * c->block.group; h < (g + 1) * c->block.group; h++) {
            const struct row_block *q = &r->blocks[h];
            const double *o_rows = r->theta + out->at + h * v_dim * d;
            const double *own = results + h * v_dim * (width + 1);
            convert_zero(of_o, v_size);
            convert_zero(q_metric, k_size);
            convert_add_dots(of_o, o_rows, o_rows, (struct convert_dots){v_dim, d, d}, 1);
            /* Of sum_i x_i^T metric x_i where values differ from their mean, what reaches the
             * head's result: the share that averaging leaves. */
            double energy = 0, after = 0;
            for (size_t i = 0; i < v_size; i++) {
                energy += of_o[i] * of_v[i];
                after += of_o[i] * own[i / v_dim * width + i % v_dim];
            }
            const double left = energy > 0 ? after / energy : 1;
            const double share = left > 1 ? 1 : left < 1e-3 ? 1e-3 : left;
            const double scale = share * energy / k_dim;
            linalg_add_scaled(v_metric, share, of_o, v_size);
            add_dots(q_metric, k, r->theta + k->at, d, scale);
            add_dots(k_metric, q, r->theta + q->at, d + 1, scale);
            set_root(q, q_metric);
        }
        set_root(k, k_metric);
        set_root(v, v_metric);
    }
    set_root(out, results);
}

static void set_variables(struct converter *c)
{
    const struct convert_rebuild *r = c->rebuild;
    const size_t d = c->d, n = c->circuits.ov.width;
    const double n_rows = r->n_windows * (double)c->calib.window;
    double *to = r->theta, *moments = r->moments;
    /* Rows with their bias, over white inputs: w root, b + w mean. */
    for (enum convert_weight p = WEIGHT_Q; p <= WEIGHT_V; p++)
        for (size_t j = 0; j < c->block.to.at[p].rows; j++, to += d + 1) {
            const double *w = c->block.to.at[p].w + j * d;
            convert_zero(to, d);
            for (size_t t = 0; t < d; t++)
                linalg_add_scaled(to, w[t], r->root + t * d, t + 1);
            to[d] = c->block.to.at[p].bias[j] + linalg_dot(w, r->mean, d);
        }
    memcpy(to, c->block.to.o.w, n * d * sizeof *to);
    memcpy(to + n * d, c->block.to.o.bias, d * sizeof *to);
    /* Moments of the heads' results, as the weights are. */
    convert_zero(moments, n * n);
    convert_zero(c->scratch.x_sum, n);
    for (struct convert_window win = {.w = -1}; next_sampled(c, r->patterns, &win);) {
        convert_run_layer(c, c->block.index, &win,
                          (struct block_taps){.at = {[TAP_HEADS] = c->scratch.rows}});
        convert_add_gram(c, moments,
                         convert_product_transposed(c->scratch.float_product, c->scratch.rows,
                                                    c->scratch.rows, n, c->calib.window, n));
        convert_add_rows(c->scratch.x_sum, c->scratch.rows, c->calib.window, n);
    }
    convert_sums_to_moments(moments, c->scratch.x_sum, c->scratch.x_sum, n_rows, n, n);
    set_roots(c, moments);
    /* Rows = root^T rows; row i takes only rows from i on. */
    for (const struct row_block *p = r->blocks; p < r->blocks + n_blocks(c); p++)
        for (size_t i = 0; i < p->dim; i++)
            for (size_t t = 0; t < p->stride; t++) {
                double *rows = r->theta + p->at + t;
                double sum = 0;
                for (size_t j = i; j < p->dim; j++)
                    sum += p->root[j * p->dim + i] * rows[j * p->stride];
                rows[i * p->stride] = sum;
            }
    memcpy(r->start, r->theta, r->n * sizeof *r->start);
}

/* --- the run --------------------------------------------------------------------------------- */

enum status convert_rebuild_run(struct converter *c, bool patterns)
{
    struct convert_rebuild *r = c->rebuild;
    const size_t d = c->d;
    const uint64_t end = c->done + convert_rebuild_windows(c, patterns);
    struct qkv_part parts[QKV_PARTS];
    layout_qkv(&c->converted, c->block.index, parts);
    r->stopped = false;
    r->patterns = patterns;
    r->qkv_dim = config_qkv_dim(&c->converted, c->block.index);
    r->n = count_variables(c, r);
    r->first =
        patterns ? 0 : (c->circuits.qk.width + c->block.n_groups * c->circuits.qk.dim) * (d + 1);
    r->has_biases = convert_new(c, parts[0].role, true)->bytes;
    r->has_out_bias = convert_new(c, ROLE_ATTN_OUTPUT, true)->bytes;
    gather_windows(c);
    if (!(r->energy > 0)) /* attention adds nothing */
        return STATUS_OK;
    set_variables(c);
    const struct lbfgs search = {.n = r->n - r->first,
                                 .memory = MEMORY,
                                 .evaluations = schedules[patterns].evaluations,
                                 .enough = schedules[patterns].enough,
                                 .evaluate = evaluate,
                                 .arg = c};
    const double best = lbfgs_minimise(&search, r->theta + r->first, r->lbfgs);
    if (r->stopped)
        return STATUS_INTERRUPTED;
    if (isfinite(best)) {                                         /* variables to weights */
        double *from = r->theta, *transposed = c->scratch.square; /* [d, rows] */
        scale_rows(c, from, false);
        for (enum convert_weight p = WEIGHT_Q; p <= WEIGHT_V; p++) {
            const struct convert_matrix *m = &c->block.to.at[p];
            linalg_copy(m->w, d, from, d + 1, m->rows, d);
            linalg_transpose(transposed, m->w, m->rows, d);
            linalg_solve_lower_transposed(r->root, d, transposed, m->rows);
            linalg_transpose(m->w, transposed, d, m->rows);
            for (size_t j = 0; j < m->rows; j++, from += d + 1)
                m->bias[j] = r->has_biases ? from[d] - linalg_dot(m->w + j * d, r->mean, d) : 0;
        }
        memcpy(c->block.to.o.w, from, c->circuits.ov.width * d * sizeof *from);
        memcpy(c->block.to.o.bias, from + c->circuits.ov.width * d, d * sizeof *from);
    }
    return convert_windows_done(c, (int)(end > c->done ? end - c->done : 0));
}
