#include "convert/rebuild.h"

#include <math.h>
#include <string.h>

#include "compute/lbfgs.h"
#include "compute/linalg.h"
#include "convert/rebuild_parts.h"
#include "convert/tensors.h"
#include "engine/causal.h"

/* Rows that go through at once, in whole windows. */
#define BATCH_ROWS 2048
#define MEMORY     10
/* Evaluations with the patterns as they are, and with all. */
#define EVALUATIONS_VALUES 24
#define EVALUATIONS_ALL    36
/* Pulls the variables towards where they start, relative to how the error curves. */
#define PULL_VALUES 0.1
#define PULL_ALL    0.3

/* --- memory ---------------------------------------------------------------------------------- */

static void take_batch(struct convert_rebuild *r, const struct converter *c, int window,
                       struct arena *arena)
{
    const uint64_t rows = (uint64_t)r->n_batch * (uint64_t)window;
    const uint64_t padded = (uint64_t)causal_padded_length(window);
    const int n_threads = pool_n_threads(c->spec->pool);
    r->qkv = convert_take_floats(arena, rows, r->qkv_dim);
    r->dqkv = convert_take_floats(arena, rows, r->qkv_dim);
    r->results = convert_take_floats(arena, rows, r->heads_dim);
    r->dresults = convert_take_floats(arena, rows, r->heads_dim);
    r->rest = convert_take_floats(arena, rows, r->d);
    r->softmax =
        convert_take_floats(arena, (uint64_t)r->n_batch * (uint64_t)c->n_heads, (int)(2 * padded));
    r->row_loss = arena_take(arena, rows, sizeof *r->row_loss);
    r->scratch_floats = causal_scratch(&c->config, window);
    r->scratch = arena_take(arena, (uint64_t)n_threads, r->scratch_floats * sizeof(float));
}

static void take_heads(struct convert_rebuild *r, const struct converter *c, struct arena *arena)
{
    const int n = rebuild_heads(c);
    const int dim = c->qk.dim > c->ov.dim ? c->qk.dim : c->ov.dim;
    r->heads = arena_take(arena, (uint64_t)n, sizeof *r->heads);
    for (int i = 0; i < n; i++) {
        double *root = convert_take_doubles(arena, dim, dim);
        if (r->heads)
            r->heads[i].root = root;
    }
}

struct convert_rebuild *convert_rebuild_take(const struct converter *c, struct arena *arena)
{
    struct convert_rebuild *out = arena_take(arena, 1, sizeof *out), r = {.d = c->d};
    const int window = convert_window_tokens(c);
    const uint64_t n_windows = c->spec->n_tokens / (uint64_t)window;
    /* At most; blocks with fewer K/V heads need less. */
    r.qkv_dim = c->qk.width + c->n_groups * (c->qk.dim + c->ov.dim);
    r.heads_dim = c->ov.width;
    r.n_batch = window < BATCH_ROWS ? BATCH_ROWS / window : 1;
    const uint64_t used =
        n_windows < 2 * CONVERT_JUDGED
            ? n_windows
            : n_windows / (uint64_t)rebuild_sparse(c->spec->refit == CONVERT_REFIT_BLOCK) + 1;
    r.x = convert_take_floats(arena, used * (uint64_t)window, r.d);
    r.y = convert_take_floats(arena, used * (uint64_t)window, r.d);
    r.mean = convert_take_doubles(arena, r.d, 1);
    r.root = convert_take_doubles(arena, r.d, r.d);
    take_heads(&r, c, arena);
    r.out_root = convert_take_doubles(arena, r.heads_dim, r.heads_dim);
    r.wt = convert_take_floats(arena, (uint64_t)r.d, r.qkv_dim);
    r.bias = convert_take_floats(arena, (uint64_t)r.qkv_dim, 1);
    r.o = convert_take_floats(arena, (uint64_t)r.heads_dim, r.d);
    r.ot = convert_take_floats(arena, (uint64_t)r.heads_dim, r.d);
    r.bo = convert_take_floats(arena, (uint64_t)r.d, 1);
    take_batch(&r, c, window, arena);
    const int rows = r.qkv_dim > r.heads_dim ? r.qkv_dim : r.heads_dim;
    r.part = convert_take_floats(arena, (uint64_t)rows, r.d);
    r.part_bias = convert_take_floats(arena, (uint64_t)rows + (uint64_t)r.d, 1);
    r.theta = arena_take(arena, rebuild_variables(&r), sizeof(double));
    r.start = arena_take(arena, rebuild_variables(&r), sizeof(double));
    r.gradient = arena_take(arena, rebuild_variables(&r), sizeof(double));
    r.lbfgs = arena_take(arena, lbfgs_scratch(rebuild_variables(&r), MEMORY), sizeof(double));
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
    uint64_t used = 0;
    for (int w = 0; w < c->calibration->n_windows; w++)
        used += rebuild_uses(c, w, patterns);
    return used * (uint64_t)evaluations(patterns);
}

/* --- the function ---------------------------------------------------------------------------- */

/* The weights in floats from the variables, which are scaled in r->theta's copy `from`. */
static void set_weights(struct convert_rebuild *r, double *from)
{
    const size_t d = (size_t)r->d, qkv = (size_t)r->qkv_dim, heads = (size_t)r->heads_dim;
    rebuild_scale(r, from, false);
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
    const size_t d = (size_t)r->d, qkv = (size_t)r->qkv_dim, n = rebuild_variables(r);
    const double scale = 2 / r->energy;
    for (size_t j = 0; j < qkv && !r->has_biases; j++)
        r->gradient[j * (d + 1) + d] = 0;
    if (!r->has_out_bias)
        memset(r->gradient + n - d, 0, d * sizeof *r->gradient);
    rebuild_scale(r, r->gradient, true);
    linalg_solve_lower(r->out_root, r->heads_dim, r->gradient + qkv * (d + 1), r->d);
    for (size_t i = 0; i < n; i++)
        r->gradient[i] *= scale;
}

/* What the variables x have moved, as an error, whose gradient is added. */
static double add_pull(struct convert_rebuild *r, const double *x)
{
    const size_t n = rebuild_variables(r) - r->first;
    const double rows = (double)r->n_windows * (double)r->c->calibration->window;
    const double pull = (r->patterns ? PULL_ALL : PULL_VALUES) * rows / r->energy,
                 *start = r->start + r->first;
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
    const size_t n = rebuild_variables(r), varied = n - r->first;
    double *copy = r->gradient; /* free until the batches */
    memcpy(copy, r->theta, r->first * sizeof *copy);
    memcpy(copy + r->first, x, varied * sizeof *copy);
    set_weights(r, copy);
    if (!rebuild_pass(r))
        return false;
    finish_gradient(r);
    *value = r->loss / r->energy + add_pull(r, x);
    memcpy(gradient, r->gradient + r->first, varied * sizeof *gradient);
    return true;
}

/* --- the run --------------------------------------------------------------------------------- */

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
    if (!rebuild_begin(r))
        return STATUS_OK;
    r->first = patterns ? 0 : (size_t)(c->qk.width + c->n_groups * c->qk.dim) * ((size_t)r->d + 1);
    const struct lbfgs p = {.n = rebuild_variables(r) - r->first,
                            .memory = MEMORY,
                            .evaluations = evaluations(patterns),
                            .evaluate = evaluate,
                            .arg = r};
    const double best = lbfgs_minimise(&p, r->theta + r->first, r->lbfgs);
    if (r->stopped)
        return STATUS_INTERRUPTED;
    if (isfinite(best))
        rebuild_end(r);
    return convert_windows_done(c, (int)(end > c->windows_done ? end - c->windows_done : 0));
}
