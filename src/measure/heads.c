#include "measure/heads.h"

#include <math.h>

#include "base/mem.h"
#include "engine/session.h"
#include "model/pack.h"

struct heads_run {
    const struct heads_spec *spec;
    const struct config *config;
    struct eval_plan plan;
    struct heads_result *result;
    struct probe *probe;
    struct arena arena;
    float *stream, *next; /* [n_scored, d_model] before the layer in work, and after */
    float *heads;         /* [ctx, heads_dim of the most] a window's results of the layer's heads */
    float *mean;          /* [n_layers, heads_dim] their means, of the layers so far */
    double *sum;          /* [heads_dim] */
    float *row;           /* [heads_dim] of the output matrix */
    double *gram;         /* [n_heads, value_dim, value_dim] of its columns */
    double *whole_nll, *nll;   /* [n_scored] of the model, and without a head */
    unsigned char *off;        /* [n_layers, n_heads] */
    struct head_ablation left; /* out: `off` and, by means, `mean` */
    struct eval_spec eval;     /* the next prediction of the text */
};

/* --- the plan -------------------------------------------------------------------------------- */

static void take_streams(struct heads_run *r)
{
    const struct config *c = r->config;
    struct arena *a = &r->arena;
    const uint64_t n = r->plan.n_scored, width = config_heads_dim(c);
    ARENA_TAKE(r->stream, a, n * c->d_model);
    ARENA_TAKE(r->next, a, n * c->d_model);
    ARENA_TAKE(r->heads, a, r->plan.ctx * width);
    ARENA_TAKE(r->mean, a, c->n_layers * width);
    ARENA_TAKE(r->sum, a, width);
    ARENA_TAKE(r->row, a, width);
    ARENA_TAKE(r->gram, a, width * config_value_dim(c));
    ARENA_TAKE(r->whole_nll, a, n);
    ARENA_TAKE(r->nll, a, n);
    ARENA_TAKE(r->off, a, (uint64_t)c->n_layers * c->n_heads);
}

/* Counts what a run takes. */
static enum status plan_heads(const struct heads_spec *spec, struct heads_run *r, struct err *e)
{
    *r = (struct heads_run){.spec = spec, .config = &spec->eval.model->config, .eval = spec->eval};
    TRY(eval_make_plan(&spec->eval, &r->plan, e));
    if (r->plan.n_scored < (uint64_t)r->plan.ctx)
        r->plan.ctx = r->plan.n_scored;
    take_streams(r);
    return STATUS_OK;
}

enum status heads_plan(const struct heads_spec *spec, uint64_t *bytes, struct err *e)
{
    struct heads_run r;
    TRY(plan_heads(spec, &r, e));
    *bytes = u64_sum(r.arena.used, u64_sum(r.plan.kv_bytes, r.plan.scratch_bytes));
    return STATUS_OK;
}

/* --- what heads write ------------------------------------------------------------------------- */

/* The gram matrices W_h W_h^T [n_heads, value_dim, value_dim] of the heads' columns of a layer's
 * output matrix; `row` is scratch [n_heads * value_dim]. */
static void fill_gram(const struct model *m, int layer, float *row, double *gram)
{
    const struct matrix *out = &m->blocks[layer].w[ROLE_ATTN_OUTPUT].matrix;
    const size_t dim = config_value_dim(&m->config), width = out->n_in;
    memset(gram, 0, width * dim * sizeof *gram);
    for (int r = 0; r < out->n_out; r++) {
        pack_read_row(out, r, row);
        for (size_t i = 0; i < width; i++) {
            const float *head = row + i / dim * dim;
            for (size_t j = 0; j < dim; j++)
                gram[i * dim + j] += (double)row[i] * (double)head[j];
        }
    }
}

/* The length of what the head of this gram adds to the residual stream: the result z [dim] through
 * its columns. */
static double written_length(const double *gram, const float *z, size_t dim)
{
    double sum = 0;
    for (size_t i = 0; i < dim; i++) {
        double of_row = 0;
        for (size_t j = 0; j < dim; j++)
            of_row += gram[i * dim + j] * (double)z[j];
        sum += of_row * (double)z[i];
    }
    return sqrt(fmax(sum, 0));
}

/* The figures of the layer's heads, each off in its turn. */
static enum status leave_out_heads(struct heads_run *r, int layer, struct head_worth *heads,
                                   struct err *e)
{
    const struct eval_result *whole = &r->result->whole;
    r->eval.entry = (struct eval_entry){layer, r->stream};
    r->eval.nll = r->nll;
    r->eval.params.without = &r->left;
    for (int head = 0; head < r->config->n_heads; head++) {
        struct head_worth *h = &heads[head];
        unsigned char *off = &r->off[layer * r->config->n_heads + head];
        struct eval_result without;
        r->eval.before += r->plan.n_scored;
        *off = 1;
        const enum status s = eval_run(&r->eval, &without, e);
        *off = 0;
        TRY(s == STATUS_FAILED ? err_in(e, s, "without head %d.%d", layer, head) : s);
        for (uint64_t t = 0; t < r->plan.n_scored; t++)
            r->nll[t] -= r->whole_nll[t];
        h->delta_nll = without.nll - whole->nll;
        h->delta_nll_stderr = eval_mean_error(r->nll, r->plan.n_scored, h->delta_nll);
        h->delta_bits_per_byte = without.bits_per_byte - whole->bits_per_byte;
    }
    return STATUS_OK;
}

/* Runs the whole layer, window by window, and measures what its heads [n_heads] write. */
static enum status run_layer(struct heads_run *r, int layer, struct head_worth *heads)
{
    const struct eval_spec *eval = &r->eval;
    const size_t d = r->config->d_model, width = config_heads_dim(r->config);
    const size_t dim = config_value_dim(r->config), n_heads = r->config->n_heads;
    float *mean = r->mean + layer * r->config->n_heads * dim;
    const uint64_t ctx = r->plan.ctx, n_scored = r->plan.n_scored;
    fill_gram(eval->model, layer, r->row, r->gram);
    memset(r->sum, 0, width * sizeof *r->sum);
    for (size_t h = 0; h < n_heads; h++)
        heads[h] = (struct head_worth){.layer = layer, .head = h};
    for (uint64_t first = 0; first < n_scored; first += ctx) {
        const size_t n = MIN(n_scored - first, ctx);
        const float *stream = r->stream + first * d;
        const struct block_taps taps = {
            .at = {[TAP_HEADS] = r->heads, [TAP_OUT] = r->next + first * d}};
        if (callbacks_stop(&eval->callbacks))
            return STATUS_INTERRUPTED;
        probe_run(r->probe, &eval->model->blocks[layer], layer, stream, n, &taps);
        for (size_t t = 0; t < n; t++) {
            const float *row = r->heads + t * width;
            for (size_t i = 0; i < width; i++)
                r->sum[i] += (double)row[i];
            for (size_t h = 0; h < n_heads; h++)
                heads[h].written += written_length(r->gram + h * dim * dim, row + h * dim, dim);
        }
    }
    /* From sums to means. */
    for (size_t i = 0; i < width; i++)
        mean[i] = (float)(r->sum[i] / n_scored);
    for (size_t i = 0; i < n_heads; i++)
        heads[i].written /= n_scored;
    return STATUS_OK;
}

/* By delta_nll; of equal ones in the model's order. */
static int compare_worths(const void *a, const void *b)
{
    const struct head_worth *x = a, *y = b;
    if (x->delta_nll != y->delta_nll)
        return x->delta_nll < y->delta_nll ? -1 : 1;
    return x->layer != y->layer ? x->layer - y->layer : x->head - y->head;
}

/* The text without 0, 1, 2, 4, ... and all heads; the first is measured already. */
static enum status measure_curve(struct heads_run *r, struct err *e)
{
    struct heads_result *result = r->result;
    const int n_heads = result->n_heads;
    struct eval_result without = result->whole;
    const struct head_worth *next = result->heads;
    qsort(result->heads, n_heads, sizeof *next, compare_worths);
    r->eval.entry = (struct eval_entry){0, NULL};
    r->eval.nll = NULL;
    for (int n = 0;; n = n == 0 ? 1 : MIN(2 * n, n_heads)) {
        for (; next < result->heads + n; next++)
            r->off[next->layer * r->config->n_heads + next->head] = 1;
        if (n > 0) {
            r->eval.before += r->plan.n_scored;
            TRY(err_in(e, eval_run(&r->eval, &without, e), "without %d heads", n));
        }
        result->points[result->n_points++] = (struct heads_point){
            n, without.nll, without.nll - result->whole.nll, without.bits_per_byte};
        if (n == n_heads)
            return STATUS_OK;
    }
}

static enum status measure_layers(struct heads_run *r, struct err *e)
{
    const struct model *m = r->eval.model;
    struct heads_result *result = r->result;
    result->n_heads = r->config->n_layers * r->config->n_heads;
    TRY(arena_allocate(&r->arena, "the residual streams", e));
    take_streams(r);
    TRY_ZEROED(result->heads, result->n_heads, "the heads' figures", e);
    r->left = (struct head_ablation){r->off, r->spec->to_mean ? r->mean : NULL};
    TRY(probe_create(r->config, m->w[ROLE_ROPE_FREQS].table, r->plan.ctx, r->eval.params.kernels,
                     r->eval.pool, &r->probe, e));

    r->eval.nll = r->whole_nll;
    uint64_t n_runs = 1 + (uint64_t)result->n_heads;
    if (r->spec->curve)
        for (int n = 1; n < 2 * result->n_heads; n *= 2)
            n_runs++;
    r->eval.all = n_runs * r->plan.n_scored;
    TRY(eval_run(&r->eval, &result->whole, e));
    for (uint64_t t = 0; t < r->plan.n_scored; t++) {
        const int at = t % r->plan.ctx;
        probe_embed(r->probe, m, eval_input(&r->eval, t, at), at,
                    r->stream + t * r->config->d_model);
    }
    struct head_worth *heads = result->heads; /* of the layer */
    for (int layer = 0; layer < r->config->n_layers; layer++) {
        TRY(run_layer(r, layer, heads));
        TRY(leave_out_heads(r, layer, heads, e));
        heads += r->config->n_heads;
        float *next = r->next;
        r->next = r->stream;
        r->stream = next;
    }
    return r->spec->curve ? measure_curve(r, e) : STATUS_OK;
}

enum status heads_run(const struct heads_spec *spec, struct heads_result *result, struct err *e)
{
    struct heads_run r;
    *result = (struct heads_result){.n_heads = 0};
    TRY(plan_heads(spec, &r, e));
    r.result = result;
    const enum status s = measure_layers(&r, e);
    probe_free(r.probe);
    arena_free(&r.arena);
    if (s != STATUS_OK)
        heads_free(result);
    return s;
}

void heads_free(struct heads_result *r)
{
    free(r->heads);
    *r = (struct heads_result){.n_heads = 0};
}
