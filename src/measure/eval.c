/*
 * Windows do not depend on each other. Short ones go through the model together, each a sequence of
 * its own, as many as fit in a block: a turn. Where there are many windows and the model is small,
 * each thread takes whole turns, with sessions of its own: nobody waits at the barriers of a layer.
 * Else one worker takes them one after another, and all threads share its matrix products and its
 * softmax rows.
 */
#include "measure/eval.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/figures.h"
#include "base/mem.h"
#include "base/stats.h"
#include "engine/sampler.h"

/* Tokens that a session takes at once, and rows of logits that are held, unless it is said. */
#define DEFAULT_BLOCK 96
/* With fewer turns a thread, too many threads would wait for the last ones. */
#define TURNS_A_WORKER 8
/* Sessions for all threads may take as much as the weights, and this. */
#define WORKERS_BYTES ((uint64_t)64 << 20)
/* The model and the other. */
#define MAX_MODELS 2

/* Takes turns; the one that it is at. */
struct eval_worker {
    struct eval_run *run;
    struct pool *pool; /* that shares its work */
    struct session *sessions[MAX_MODELS];
    float *logits[MAX_MODELS]; /* [block, n_vocab] */
    struct batch_row *rows;    /* [block] */
    size_t first, end;         /* the turn's windows; window first + i is sequence i */
    size_t window;             /* of the next row */
    int at;                    /* the row's position in it */
    size_t scored;             /* token that the next row to be scored predicts, less one */
    int n_scored;              /* rows of logits that there are */
    enum status status;
    struct err err;
};

struct eval_run {
    const struct eval_spec *spec;
    struct eval_plan plan;
    int n_models, n_vocab, block;
    struct arena arena;
    struct eval_worker *workers; /* [plan.n_workers] */
    struct eval_tokens each;     /* [plan.n_scored] */
    atomic_size_t next_window;
    atomic_uint_fast64_t done; /* tokens scored */
    atomic_bool halt;          /* somebody failed, or stop said so: take no further turn */
    atomic_bool stopped;
};

/* --- the plan -------------------------------------------------------------------------------- */

static int n_models(const struct eval_spec *spec)
{
    return spec->other ? 2 : 1;
}

static const struct model *model_at(const struct eval_spec *spec, int i)
{
    return i ? spec->other : spec->model;
}

enum status eval_check_length(size_t n_tokens, struct err *e)
{
    if (n_tokens < 2)
        return err_set(e, STATUS_USAGE,
                       "the text has %zu token%s; expected at least 2, because nothing predicts "
                       "the first",
                       n_tokens, plural(n_tokens));
    return STATUS_OK;
}

static enum status check_eval_tokens(const struct eval_spec *spec, struct err *e)
{
    const int n_vocab = spec->model->config.n_vocab;
    if (spec->other && spec->other->config.n_vocab != n_vocab)
        return err_set(e, STATUS_USAGE,
                       "the other checkpoint has a vocabulary of %d tokens; expected %d, as in the "
                       "checkpoint",
                       spec->other->config.n_vocab, n_vocab);
    TRY(eval_check_length(spec->n_tokens, e));
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i] < 0 || spec->tokens[i] >= n_vocab)
            return err_set(e, STATUS_USAGE, "token %zu is %d; expected ids from 0 to %d", i,
                           (int)spec->tokens[i], n_vocab - 1);
    return STATUS_OK;
}

static enum status choose_windows(const struct eval_spec *spec, struct eval_plan *plan,
                                  struct err *e)
{
    int limit = spec->model->config.n_ctx;
    const bool others = spec->other && spec->other->config.n_ctx < limit;
    if (others)
        limit = spec->other->config.n_ctx;
    plan->ctx = spec->ctx ? spec->ctx : limit;
    if (plan->ctx < 1 || plan->ctx > limit)
        return err_set(e, STATUS_USAGE,
                       "windows of %d tokens: expected 1 to %d, the context of the %scheckpoint",
                       plan->ctx, limit, others ? "other " : "");
    plan->stride = spec->stride ? spec->stride : plan->ctx;
    if (plan->stride < 1 || plan->stride > plan->ctx)
        return err_set(e, STATUS_USAGE,
                       "a stride of %d tokens: expected 1 to %d, the tokens of a window",
                       plan->stride, plan->ctx);
    plan->n_scored = spec->n_tokens - 1;
    plan->n_windows = 1;
    if (plan->n_scored > (uint64_t)plan->ctx)
        plan->n_windows += (plan->n_scored - (uint64_t)plan->ctx - 1) / (uint64_t)plan->stride + 1;
    return STATUS_OK;
}

/* A cache need not be longer than the text, nor a block than all windows of a turn. */
static struct session_params session_params_of(const struct eval_spec *spec,
                                               const struct eval_plan *plan)
{
    struct session_params p = spec->params;
    p.n_ctx = plan->n_scored < (uint64_t)plan->ctx ? (int)plan->n_scored : plan->ctx;
    p.n_sequences = plan->n_together;
    p.block = p.block > 0 ? p.block : DEFAULT_BLOCK;
    if (p.block / p.n_sequences > p.n_ctx)
        p.block = p.n_ctx * p.n_sequences;
    return p;
}

/* Turns of as many windows as fit in a block, up to `most`, but at least one; and a worker's bytes,
 * its sessions on n_threads. */
static enum status plan_worker(const struct eval_spec *spec, struct eval_plan *plan, uint64_t most,
                               int n_threads, uint64_t *bytes, struct err *e)
{
    plan->n_together = 1;
    const struct session_params one = session_params_of(spec, plan);
    const int fit = (spec->params.block > 0 ? spec->params.block : DEFAULT_BLOCK) / one.n_ctx;
    if (fit > 1 && most > 1)
        plan->n_together = most < (uint64_t)fit ? (int)most : fit;
    const struct session_params params = session_params_of(spec, plan);
    plan->kv_bytes = plan->scratch_bytes = 0;
    for (int m = 0; m < n_models(spec); m++) {
        struct session_memory memory;
        TRY(session_plan(model_at(spec, m), &params, n_threads, &memory, e));
        plan->kv_bytes += memory.kv_bytes;
        plan->scratch_bytes += memory.scratch_bytes;
    }
    const uint64_t rows = (uint64_t)n_models(spec) * (uint64_t)params.block;
    *bytes = plan->kv_bytes + plan->scratch_bytes +
             rows * (uint64_t)spec->model->config.n_vocab * sizeof(float);
    return STATUS_OK;
}

/* How many workers, of how many windows a turn. */
static enum status choose_workers(const struct eval_spec *spec, struct eval_plan *plan,
                                  struct err *e)
{
    const uint64_t n_threads = (uint64_t)pool_n_threads(spec->pool);
    const uint64_t turns = plan->n_windows / n_threads / TURNS_A_WORKER;
    uint64_t weights = 0, bytes;
    for (int m = 0; m < n_models(spec); m++)
        weights += model_at(spec, m)->weights.cap;
    if (n_threads > 1 && turns > 0) {
        TRY(plan_worker(spec, plan, turns, 1, &bytes, e));
        plan->n_workers = (int)n_threads;
        if (bytes <= (weights + WORKERS_BYTES) / n_threads)
            return STATUS_OK;
    }
    plan->n_workers = 1;
    return plan_worker(spec, plan, plan->n_windows, (int)n_threads, &bytes, e);
}

/* The workers with their rows and logits, and the results by token; or their count. */
static void take_results(struct eval_run *r, struct arena *a)
{
    const uint64_t n = r->plan.n_scored, n_workers = (uint64_t)r->plan.n_workers;
    const uint64_t block = (uint64_t)session_params_of(r->spec, &r->plan).block;
    const uint64_t vocab_bytes = (uint64_t)r->spec->model->config.n_vocab * sizeof(float);
    r->workers = arena_take(a, n_workers, sizeof *r->workers);
    for (uint64_t i = 0; i < n_workers; i++) {
        struct eval_worker counted, *w = r->workers ? &r->workers[i] : &counted;
        w->rows = arena_take(a, block, sizeof *w->rows);
        for (int m = 0; m < n_models(r->spec); m++)
            w->logits[m] = arena_take(a, block, vocab_bytes);
    }
    r->each.nll = arena_take(a, n, sizeof *r->each.nll);
    if (r->spec->other) {
        r->each.other_nll = arena_take(a, n, sizeof *r->each.other_nll);
        r->each.kl = arena_take(a, n, sizeof *r->each.kl);
        r->each.same_top = arena_take(a, n, sizeof *r->each.same_top);
    }
}

enum status eval_make_plan(const struct eval_spec *spec, struct eval_plan *plan, struct err *e)
{
    *plan = (struct eval_plan){0};
    TRY(check_eval_tokens(spec, e));
    TRY(choose_windows(spec, plan, e));
    TRY(choose_workers(spec, plan, e));
    struct eval_run counted = {.spec = spec, .plan = *plan};
    take_results(&counted, &counted.arena);
    plan->kv_bytes *= (uint64_t)plan->n_workers;
    plan->scratch_bytes = plan->scratch_bytes * (uint64_t)plan->n_workers + counted.arena.used;
    return STATUS_OK;
}

static enum status create_worker(struct eval_run *r, struct eval_worker *w, struct err *e)
{
    struct session_params params = session_params_of(r->spec, &r->plan);
    w->run = r;
    w->pool = r->plan.n_workers > 1 ? NULL : r->spec->pool;
    for (int m = 0; m < r->n_models; m++) {
        if (m > 0) /* the other has all its heads */
            params.without = NULL;
        TRY(session_create(model_at(r->spec, m), &params, w->pool, &w->sessions[m], e));
        const int block = session_block(w->sessions[m]);
        r->block = block < r->block ? block : r->block;
    }
    return STATUS_OK;
}

/* --- one turn -------------------------------------------------------------------------------- */

/* NaN for logits that are not finite: see check_scored_rows. */
static double score_row(const float *logits, int n_vocab, int32_t token, double *log_sum)
{
    if (logits_log_sum(logits, n_vocab, log_sum, NULL) != STATUS_OK)
        return (double)NAN;
    return *log_sum - (double)logits[token];
}

/* A thread's share of the rows. */
static void score_rows(void *arg, int thread)
{
    const struct eval_worker *w = arg;
    const struct eval_run *r = w->run;
    int begin, end;
    pool_share(w->n_scored, thread, pool_n_threads(w->pool), &begin, &end);
    for (int i = begin; i < end; i++) {
        const size_t at = w->scored + (size_t)i, row = (size_t)i * (size_t)r->n_vocab;
        const int32_t token = r->spec->tokens[at + 1];
        const float *logits = w->logits[0] + row;
        double log_sum, other_log_sum;
        r->each.nll[at] = score_row(logits, r->n_vocab, token, &log_sum);
        if (r->n_models == 1)
            continue;
        const float *other = w->logits[1] + row;
        r->each.other_nll[at] = score_row(other, r->n_vocab, token, &other_log_sum);
        if (isnan(r->each.nll[at]) || isnan(r->each.other_nll[at]))
            continue;
        r->each.kl[at] = logits_divergence(other, other_log_sum, logits, log_sum, r->n_vocab);
        r->each.same_top[at] =
            logits_argmax(logits, r->n_vocab) == logits_argmax(other, r->n_vocab);
    }
}

/* The message about the first row that is not finite. */
static enum status check_scored_rows(const struct eval_worker *w, struct err *e)
{
    const struct eval_run *r = w->run;
    for (int i = 0; i < w->n_scored; i++) {
        const size_t at = w->scored + (size_t)i;
        for (int m = 0; m < r->n_models; m++) {
            if (!isnan(m ? r->each.other_nll[at] : r->each.nll[at]))
                continue;
            const float *logits = w->logits[m] + (size_t)i * (size_t)r->n_vocab;
            const enum status s = logits_check(logits, r->n_vocab, e);
            char where[64];
            snprintf(where, sizeof where, "%safter token %zu", m ? "the other checkpoint, " : "",
                     at);
            err_prefix(e, where);
            return s;
        }
    }
    return STATUS_OK;
}

/* The next rows of the turn, at most a block; w->n_scored of them are scored. Those are of tokens
 * that follow one another, because a window scores on where the one before it ends. */
static int next_rows(struct eval_worker *w)
{
    const struct eval_run *r = w->run;
    const struct eval_plan *plan = &r->plan;
    int n = 0;
    w->n_scored = 0;
    while (n < r->block && w->window < w->end) {
        const size_t token = w->window * (size_t)plan->stride + (size_t)w->at;
        const bool scored = w->window == 0 || w->at >= plan->ctx - plan->stride;
        w->rows[n++] = (struct batch_row){.token = r->spec->tokens[token],
                                          .sequence = (int)(w->window - w->first),
                                          .position = w->at,
                                          .wants_logits = scored};
        w->n_scored += scored;
        w->at++;
        if (w->at == plan->ctx || token + 1 == (size_t)plan->n_scored) {
            w->window++;
            w->at = 0;
        }
    }
    return n;
}

/* The caller's thread asks between blocks whether to go on, and says how far all are. */
static enum status run_turn(struct eval_worker *w, struct err *e)
{
    struct eval_run *r = w->run;
    const struct eval_spec *spec = r->spec;
    const struct eval_entry *entry = &spec->entry;
    const bool is_callers = w == r->workers;
    while (w->window < w->end) {
        if (is_callers && spec->stop && spec->stop(spec->arg)) {
            atomic_store(&r->stopped, true);
            atomic_store(&r->halt, true);
        }
        if (atomic_load(&r->stopped))
            return STATUS_INTERRUPTED;
        const int n = next_rows(w);
        if (entry->stream) /* windows do not overlap: the rows are the tokens they score, one on */
            TRY(session_enter(w->sessions[0], entry->layer,
                              entry->stream + w->scored * (size_t)spec->model->config.d_model,
                              w->rows, n, w->logits[0], e));
        else
            TRY(session_step(w->sessions[0], w->rows, n, w->logits[0], e));
        if (spec->other)
            TRY(session_step(w->sessions[1], w->rows, n, w->logits[1], e));
        if (w->n_scored == 0)
            continue;
        const uint64_t n_scored = (uint64_t)w->n_scored;
        pool_run(w->pool, score_rows, w);
        TRY(check_scored_rows(w, e));
        w->scored += n_scored;
        const uint64_t done = atomic_fetch_add(&r->done, n_scored) + n_scored;
        if (is_callers && spec->progress)
            spec->progress(spec->arg, done, r->plan.n_scored);
    }
    return STATUS_OK;
}

/* --- all turns ------------------------------------------------------------------------------- */

/* One worker: the next turn, until there is none. Turns are handed out in order and none is
 * left half done by another's failure, so the first that fails is always found. */
static void run_turns(void *arg, int thread)
{
    struct eval_run *r = arg;
    struct eval_worker *w = &r->workers[thread];
    const struct eval_plan *plan = &r->plan;
    const size_t together = (size_t)plan->n_together;
    while (!atomic_load(&r->halt) && w->status == STATUS_OK) {
        w->first = w->window = atomic_fetch_add(&r->next_window, together);
        if (w->first >= plan->n_windows)
            return;
        const size_t left = (size_t)plan->n_windows - w->first;
        w->end = w->first + (left < together ? left : together);
        w->scored =
            w->first * (size_t)plan->stride + (w->first ? (size_t)(plan->ctx - plan->stride) : 0);
        w->at = 0;
        for (int m = 0; m < r->n_models; m++)
            for (int i = 0; i < plan->n_together; i++)
                session_rewind(w->sessions[m], i, 0);
        w->status = run_turn(w, &w->err);
        if (w->status != STATUS_OK)
            atomic_store(&r->halt, true);
    }
}

/* What the workers say together: the earliest failure, else an interruption. */
static enum status joint_status(const struct eval_run *r, struct err *e)
{
    const struct eval_worker *failed = NULL;
    for (int i = 0; i < r->plan.n_workers; i++) {
        const struct eval_worker *w = &r->workers[i];
        if (w->status != STATUS_OK && w->status != STATUS_INTERRUPTED &&
            (!failed || w->first < failed->first))
            failed = w;
    }
    if (!failed)
        return atomic_load(&r->stopped) ? STATUS_INTERRUPTED : STATUS_OK;
    if (e)
        *e = failed->err;
    return failed->status;
}

static enum status run_workers(struct eval_run *r, struct eval_result *result, struct err *e)
{
    const struct eval_spec *spec = r->spec;
    for (int i = 0; i < r->plan.n_workers; i++)
        TRY(create_worker(r, &r->workers[i], e));
    const uint64_t start = clock_ns();
    if (r->plan.n_workers > 1)
        pool_run(spec->pool, run_turns, r);
    else
        run_turns(r, 0);
    *result = (struct eval_result){.tokens = r->plan.n_scored,
                                   .seconds = (double)(clock_ns() - start) / 1e9};
    TRY(joint_status(r, e));
    for (size_t i = 1; spec->tokenizer && i < spec->n_tokens; i++)
        result->bytes += tokenizer_bytes(spec->tokenizer, spec->tokens[i]).len;
    eval_summarise(&r->each, result);
    if (spec->nll)
        memcpy(spec->nll, r->each.nll, (size_t)r->plan.n_scored * sizeof *spec->nll);
    return STATUS_OK;
}

enum status eval_run(const struct eval_spec *spec, struct eval_result *result, struct err *e)
{
    struct eval_run r = {.spec = spec,
                         .n_models = n_models(spec),
                         .n_vocab = spec->model->config.n_vocab,
                         .block = INT_MAX};
    TRY(eval_make_plan(spec, &r.plan, e));
    assert(!spec->entry.stream || r.plan.stride == r.plan.ctx);
    take_results(&r, &r.arena);
    TRY(arena_allocate(&r.arena, "the results of all tokens", e));
    take_results(&r, &r.arena);
    const enum status s = run_workers(&r, result, e);
    for (int i = 0; i < r.plan.n_workers; i++)
        for (int m = 0; m < r.n_models; m++)
            session_free(r.workers[i].sessions[m]);
    arena_free(&r.arena);
    return s;
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

/* By means of batches of floor(sqrt(n)) neighbours. A shorter last batch counts by its length. */
double eval_mean_error(const double *x, uint64_t n, double mean)
{
    const uint64_t batch = (uint64_t)sqrt((double)n);
    uint64_t batches = 0;
    double squares = 0;
    for (uint64_t begin = 0; begin < n; begin += batch, batches++) {
        const uint64_t len = n - begin < batch ? n - begin : batch;
        const double off = sum_of(x + begin, len) - mean * (double)len;
        squares += off * off;
    }
    if (batches < 2)
        return (double)NAN;
    return sqrt(squares * (double)batches / (double)(batches - 1)) / (double)n;
}

/* The numbers are >= 0, so that their bits order as they do. */
static double percentile_in_place(double *x, uint64_t n, double p)
{
    uint64_t *bits = (void *)x;
    for (uint64_t i = 0; i < n; i++) {
        const double value = x[i];
        memcpy(&bits[i], &value, sizeof value);
    }
    stats_sort(bits, (size_t)n);
    const uint64_t found = stats_percentile(bits, (size_t)n, p);
    double value;
    memcpy(&value, &found, sizeof value);
    return value;
}

static double bits_per_byte(double nll, uint64_t bytes)
{
    return bytes ? nll / LOG2 / (double)bytes : (double)NAN;
}

void eval_summarise(struct eval_tokens *t, struct eval_result *r)
{
    const uint64_t n = r->tokens;
    const double nll = sum_of(t->nll, n);
    r->nll = nll / (double)n;
    r->nll_stderr = eval_mean_error(t->nll, n, r->nll);
    r->perplexity = exp(r->nll);
    r->bits_per_byte = bits_per_byte(nll, r->bytes);
    r->kl_mean = r->kl_p99 = r->top1_agreement = r->bits_per_byte_other = (double)NAN;
    if (!t->kl)
        return;
    uint64_t same = 0;
    for (uint64_t i = 0; i < n; i++)
        same += t->same_top[i];
    r->kl_mean = sum_of(t->kl, n) / (double)n;
    r->kl_p99 = percentile_in_place(t->kl, n, 0.99);
    r->top1_agreement = (double)same / (double)n;
    r->bits_per_byte_other = bits_per_byte(sum_of(t->other_nll, n), r->bytes);
}
