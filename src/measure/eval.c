/*
 * Short windows go through the model together, each a sequence of its own, as many as fit in a
 * block: a batch of windows. All threads share the work of a batch.
 */
#include "measure/eval.h"

#include <math.h>

#include "base/figures.h"
#include "base/mem.h"
#include "base/times.h"
#include "engine/sampler.h"

/* The model and the one that it is compared with. */
#define EVAL_MODELS 2

struct eval_run {
    const struct eval_spec *spec;
    const struct model *models[EVAL_MODELS]; /* [n_models] the model, and the other */
    int n_models, n_vocab;
    struct eval_plan plan;
    struct session_params params[EVAL_MODELS]; /* their block: of both sessions */
    struct arena arena;
    struct session *sessions[EVAL_MODELS];
    float *logits[EVAL_MODELS]; /* [block, n_vocab] */
    struct batch_row *rows;     /* [block] */
    /* [plan.n_scored] of each scored token, in the order of the text; NULL without another model:
     * all but the first. */
    double *nll[EVAL_MODELS], *kl;
    unsigned char *same_top; /* whether both models' most likely tokens are one */

    /* Where the run is. */
    size_t first, end; /* the windows of the batch; window first + i is sequence i */
    size_t window;     /* of the next row; `end` once a batch is done */
    int at;            /* the row's position in it */
    size_t scored;     /* token that the next row to be scored predicts, less one */
    int n_scored;      /* rows of logits that there are */
};

/* --- the plan -------------------------------------------------------------------------------- */

enum status eval_check_length(size_t n_tokens, struct err *e)
{
    if (n_tokens < 2)
        return err_usage(
            e, "the text has %zu token%s; expected at least 2, because nothing predicts the first",
            n_tokens, plural(n_tokens));
    return STATUS_OK;
}

/* Chooses the windows of a batch: as many as fit in a block, but at least one. No cache is longer
 * than the text, and no block than a batch. */
static enum status plan_sessions(struct eval_run *r, struct err *e)
{
    struct eval_plan *plan = &r->plan;
    struct session_params *p = &r->params[0];
    *p = r->spec->params;
    p->n_ctx = MIN(plan->n_scored, (uint64_t)plan->ctx);
    p->block = p->block > 0 ? p->block : SESSION_BLOCK;
    const uint64_t fit = p->block / p->n_ctx, wanted = MIN(plan->n_windows, fit);
    p->n_sequences = plan->n_together = MAX(wanted, 1);
    p->block = MIN(p->block, p->n_ctx * p->n_sequences);
    /* The reference has all its heads, and a cache that loses nothing. */
    r->params[1] = *p;
    r->params[1].without = NULL;
    r->params[1].kv_type = kv_type_of(CACHE_F32);
    for (int m = 0; m < r->n_models; m++) {
        struct session_memory memory;
        TRY(session_plan(r->models[m], &r->params[m], pool_n_threads(r->spec->pool), &memory, e));
        plan->kv_bytes += memory.kv_bytes;
        plan->scratch_bytes += memory.scratch_bytes;
    }
    return STATUS_OK;
}

/* Takes, or on the first call counts, the rows with their logits, and the results of all tokens. */
static void take_results(struct eval_run *r)
{
    struct arena *a = &r->arena;
    const uint64_t n = r->plan.n_scored, block = r->params[0].block;
    ARENA_TAKE(r->rows, a, block);
    for (int m = 0; m < r->n_models; m++)
        ARENA_TAKE(r->logits[m], a, block * r->n_vocab);
    for (int m = 0; m < r->n_models; m++)
        ARENA_TAKE(r->nll[m], a, n);
    if (r->n_models > 1) {
        ARENA_TAKE(r->kl, a, n);
        ARENA_TAKE(r->same_top, a, n);
    }
}

/* Plans the run. Nothing is taken yet, but all memory is counted, in r->arena and r->plan. */
static enum status plan_windows(const struct eval_spec *spec, struct eval_run *r, struct err *e)
{
    const struct config *own = &spec->model->config;
    const struct config *other = spec->other ? &spec->other->config : own;
    const int limit = MIN(other->n_ctx, own->n_ctx);
    struct eval_plan *plan = &r->plan;
    *r = (struct eval_run){.spec = spec,
                           .models = {spec->model, spec->other},
                           .n_models = spec->other ? 2 : 1,
                           .n_vocab = own->n_vocab};
    if (other->n_vocab != own->n_vocab)
        return err_usage(
            e,
            "the other checkpoint has a vocabulary of %d tokens; expected %d, as in the checkpoint",
            other->n_vocab, own->n_vocab);
    TRY(eval_check_length(spec->n_tokens, e));
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i] < 0 || spec->tokens[i] >= own->n_vocab)
            return err_usage(e, "token %zu is %d; expected ids from 0 to %d", i, spec->tokens[i],
                             own->n_vocab - 1);
    plan->ctx = spec->ctx ? spec->ctx : limit;
    plan->stride = spec->stride ? spec->stride : plan->ctx;
    if (plan->ctx < 1 || plan->ctx > limit)
        return err_usage(e, "--ctx: expected 1 to %d, the context of the %scheckpoint, found %d",
                         limit, other->n_ctx < own->n_ctx ? "other " : "", plan->ctx);
    if (plan->stride < 1 || plan->stride > plan->ctx)
        return err_usage(e, "--stride: expected 1 to %d, the tokens of a window, found %d",
                         plan->ctx, plan->stride);
    plan->n_scored = spec->n_tokens - 1;
    plan->n_windows = 1;
    if (plan->n_scored > (uint64_t)plan->ctx)
        plan->n_windows += (plan->n_scored - plan->ctx - 1) / plan->stride + 1;
    TRY(plan_sessions(r, e));
    take_results(r);
    plan->scratch_bytes += r->arena.used;
    return STATUS_OK;
}

enum status eval_make_plan(const struct eval_spec *spec, struct eval_plan *plan, struct err *e)
{
    struct eval_run r;
    TRY(plan_windows(spec, &r, e));
    *plan = r.plan;
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

/* Scores this thread's range of the rows. Rows whose logits are not finite get NaN, which
 * run_windows then reports. */
static void score_rows(void *arg, int thread)
{
    const struct eval_run *r = arg;
    const int n_vocab = r->n_vocab;
    const struct range rows = pool_range(r->n_scored, thread, pool_n_threads(r->spec->pool));
    for (int i = rows.begin; i < rows.end; i++) {
        const size_t at = r->scored + i;
        const float *x[EVAL_MODELS];
        double log_sum[EVAL_MODELS];
        bool finite = r->n_models > 1;
        for (int m = 0; m < r->n_models; m++) {
            x[m] = r->logits[m] + (size_t)i * n_vocab;
            const bool ok = logits_log_sum(x[m], n_vocab, &log_sum[m], NULL) == STATUS_OK;
            r->nll[m][at] = ok ? log_sum[m] - (double)x[m][r->spec->tokens[at + 1]] : NO_FIGURE;
            finite &= ok;
        }
        if (!finite)
            continue;
        r->kl[at] = logits_divergence(x[1], log_sum[1], x[0], log_sum[0], n_vocab);
        r->same_top[at] = logits_argmax(x[0], n_vocab) == logits_argmax(x[1], n_vocab);
    }
}

/* Fails with the message of a row of model m's logits, after token r->scored, that is not finite.
 */
static enum status blame(const struct eval_run *r, int m, int row, struct err *e)
{
    char where[40];
    chars_printf(where, "after token %zu", r->scored);
    const enum status s = logits_check(r->logits[m] + (size_t)row * r->n_vocab, r->n_vocab, e);
    return session_explain(r->sessions[m], s, where, e);
}

/* Begins the next batch, of as many windows as go through the model together. */
static void begin_batch(struct eval_run *r)
{
    const struct eval_plan *plan = &r->plan;
    r->first = r->window;
    r->end = MIN(plan->n_windows, r->first + plan->n_together);
    for (int m = 0; m < r->n_models; m++)
        for (int i = 0; i < plan->n_together; i++)
            session_rewind(r->sessions[m], i, 0);
}

/* Asks between blocks whether to go on, and says how far it is. */
static enum status run_windows(struct eval_run *r, struct err *e)
{
    const struct eval_spec *spec = r->spec;
    const struct eval_plan *plan = &r->plan;
    const struct eval_entry *entry = &spec->entry;
    while (r->window < plan->n_windows) {
        if (r->window == r->end)
            begin_batch(r);
        if (callbacks_stop(&spec->callbacks))
            return STATUS_INTERRUPTED;
        /* The next rows, at most a block. Scored tokens follow one another: a window scores on
         * where the one before it ends. */
        int n = 0;
        r->n_scored = 0;
        while (n < r->params[0].block && r->window < r->end) {
            const size_t token = r->window * plan->stride + r->at;
            const bool scored = r->window == 0 || r->at >= plan->ctx - plan->stride;
            r->rows[n++] = (struct batch_row){.token = eval_input(spec, token, r->at),
                                              .sequence = r->window - r->first,
                                              .position = r->at,
                                              .wants_logits = scored};
            r->n_scored += scored;
            r->at++;
            if (r->at == plan->ctx || token + 1 == plan->n_scored) {
                r->window++;
                r->at = 0;
            }
        }
        /* Where there is a stream, windows do not overlap: rows are the tokens before the scored.
         */
        const float *x =
            entry->stream ? entry->stream + r->scored * spec->model->config.d_model : NULL;
        TRY(session_enter(r->sessions[0], entry->layer, x, r->rows, n, r->logits[0], e));
        if (spec->other)
            TRY(session_step(r->sessions[1], r->rows, n, r->logits[1], e));
        if (r->n_scored == 0)
            continue;
        pool_run(spec->pool, score_rows, r);
        for (int i = 0; i < r->n_scored; i++, r->scored++)
            for (int m = 0; m < r->n_models; m++)
                if (isnan(r->nll[m][r->scored]))
                    return blame(r, m, i, e);
        callbacks_progress(&spec->callbacks, spec->before + r->scored,
                           spec->all ? spec->all : plan->n_scored);
    }
    return STATUS_OK;
}

/* --- from single tokens to the figures of a text --------------------------------------------- */

#define LOG2 0.69314718055994530942

static double sum_of(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* Takes batches of floor(sqrt(n)) neighbours; a shorter last batch counts by its length. */
double eval_mean_error(const double *x, uint64_t n, double mean)
{
    const uint64_t batch = sqrt(n);
    uint64_t batches = 0;
    double squares = 0;
    for (uint64_t begin = 0; begin < n; begin += batch, batches++) {
        const uint64_t len = MIN(n - begin, batch);
        const double off = sum_of(x + begin, len) - mean * len;
        squares += off * off;
    }
    if (batches < 2)
        return NO_FIGURE;
    return sqrt(squares * batches / (batches - 1)) / n;
}

static double bits_per_byte(double nll, uint64_t bytes)
{
    return bytes ? nll / LOG2 / bytes : NO_FIGURE;
}

/* The bytes of the text that the tokens behind the first one stand for, without the space that a
 * tokenizer puts before a text. */
static uint64_t count_bytes(const struct tokenizer *t, const int32_t *tokens, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 1; i < n; i++)
        bytes += tokenizer_bytes(t, tokens[i]).len;
    return tokenizer_is_special(t, tokens[0])
               ? bytes - tokenizer_added(t, tokenizer_bytes(t, tokens[1]))
               : bytes;
}

/* The order of the divergences is lost. */
static void summarise(struct eval_run *r, struct eval_result *result)
{
    const struct eval_spec *spec = r->spec;
    const uint64_t n = result->tokens = r->plan.n_scored;
    const double nll = sum_of(r->nll[0], n);
    if (spec->tokenizer)
        result->bytes = count_bytes(spec->tokenizer, spec->tokens, spec->n_tokens);
    result->nll = nll / n;
    result->nll_stderr = eval_mean_error(r->nll[0], n, result->nll);
    result->perplexity = exp(result->nll);
    result->bits_per_byte = bits_per_byte(nll, result->bytes);
    result->kl_mean = result->kl_p99 = NO_FIGURE;
    result->top1_agreement = result->bits_per_byte_other = NO_FIGURE;
    if (spec->nll)
        memcpy(spec->nll, r->nll[0], n * sizeof *spec->nll);
    if (!spec->other)
        return;
    uint64_t same = 0;
    uint64_t *bits = (void *)r->kl; /* of numbers >= 0, which order as these do */
    result->kl_mean = sum_of(r->kl, n) / n;
    for (uint64_t i = 0; i < n; i++) {
        const double value = r->kl[i];
        memcpy(&bits[i], &value, sizeof value);
        same += r->same_top[i];
    }
    stats_sort(bits, n);
    const uint64_t found = stats_percentile(bits, n, 0.99);
    memcpy(&result->kl_p99, &found, sizeof found);
    result->top1_agreement = same / (double)n;
    result->bits_per_byte_other = bits_per_byte(sum_of(r->nll[1], n), result->bytes);
}

enum status eval_run(const struct eval_spec *spec, struct eval_result *result, struct err *e)
{
    struct eval_run r;
    TRY(plan_windows(spec, &r, e));
    assert(!spec->entry.stream || r.plan.stride == r.plan.ctx);
    TRY(arena_allocate(&r.arena, "the results of all tokens", e));
    take_results(&r);
    enum status s = STATUS_OK;
    for (int m = 0; m < r.n_models && s == STATUS_OK; m++)
        s = session_create(r.models[m], &r.params[m], spec->pool, &r.sessions[m], e);
    const uint64_t start = clock_ns();
    if (s == STATUS_OK)
        s = run_windows(&r, e);
    const double ns = clock_ns() - start;
    *result = (struct eval_result){.tokens_per_s = r.plan.n_scored * 1e9 / ns};
    if (s == STATUS_OK)
        summarise(&r, result);
    for (int m = 0; m < r.n_models; m++)
        session_free(r.sessions[m]);
    arena_free(&r.arena);
    return s;
}
