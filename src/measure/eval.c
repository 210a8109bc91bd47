/*
 * Windows do not depend on each other. Short ones go through the model together, each a sequence of
 * its own, as many as fit in a block: a turn. Where there are many windows and the model is small,
 * each thread takes whole turns, with sessions of its own: nobody waits at the barriers of a layer.
 * Else one worker takes them one after another, and all threads share its matrix products and its
 * softmax rows.
 */
#include "measure/eval.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/figures.h"
#include "base/mem.h"
#include "engine/sampler.h"
#include "measure/eval_stats.h"

/* Tokens that a session takes at once, and rows of logits that are held, unless it is said. */
#define DEFAULT_BLOCK 96
/* With fewer turns a thread, too many threads would wait for the last ones. */
#define TURNS_A_WORKER 8
/* Sessions for all threads may take as much as the weights, and this. */
#define WORKERS_BYTES ((uint64_t)64 << 20)
/* The model and the other. */
#define MAX_MODELS 2

struct eval_worker {
    struct session *sessions[MAX_MODELS];
    float *logits[MAX_MODELS]; /* [block, n_vocab] */
    struct batch_row *rows;    /* [block] */
    struct pool *pool;         /* that shares its work */
    enum status status;
    size_t window; /* the first of the turn that failed */
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

/* Input tokens of every window but the last. A cache need not be longer than the text. */
static int window_rows(const struct eval_plan *plan)
{
    return plan->n_scored < (uint64_t)plan->ctx ? (int)plan->n_scored : plan->ctx;
}

static int block_rows(const struct eval_spec *spec)
{
    return spec->params.block > 0 ? spec->params.block : DEFAULT_BLOCK;
}

/* Windows of a turn: those that fit in a block, up to `most`, but at least one. */
static int windows_together(const struct eval_spec *spec, const struct eval_plan *plan,
                            uint64_t most)
{
    const int fit = block_rows(spec) / window_rows(plan);
    const int together = most < (uint64_t)fit ? (int)most : fit;
    return together > 1 ? together : 1;
}

static struct session_params session_params_of(const struct eval_spec *spec,
                                               const struct eval_plan *plan)
{
    struct session_params p = spec->params;
    p.n_ctx = window_rows(plan);
    p.n_sequences = plan->n_together;
    p.block = block_rows(spec);
    if (p.block / p.n_sequences > p.n_ctx)
        p.block = p.n_ctx * p.n_sequences;
    return p;
}

/* One worker's bytes, its sessions on n_threads. */
static enum status worker_bytes(const struct eval_spec *spec, const struct eval_plan *plan,
                                int n_threads, uint64_t *kv, uint64_t *scratch, struct err *e)
{
    const struct session_params params = session_params_of(spec, plan);
    struct arena logits = {0};
    *kv = *scratch = 0;
    for (int m = 0; m < n_models(spec); m++) {
        struct session_memory memory;
        TRY(session_plan(model_at(spec, m), &params, n_threads, &memory, e));
        *kv += memory.kv_bytes;
        *scratch += memory.scratch_bytes;
        arena_take(&logits, (uint64_t)params.block * (uint64_t)spec->model->config.n_vocab,
                   sizeof(float));
    }
    *scratch += logits.used;
    return STATUS_OK;
}

/* The results by token, and the workers with their rows; or their count. */
static void take_results(struct eval_run *r, struct arena *a)
{
    const uint64_t n = r->plan.n_scored, n_workers = (uint64_t)r->plan.n_workers;
    const uint64_t block = (uint64_t)session_params_of(r->spec, &r->plan).block;
    r->workers = arena_take(a, n_workers, sizeof *r->workers);
    for (uint64_t i = 0; i < n_workers; i++) {
        struct batch_row *rows = arena_take(a, block, sizeof *rows);
        if (r->workers)
            r->workers[i].rows = rows;
    }
    r->each.nll = arena_take(a, n, sizeof *r->each.nll);
    if (r->spec->other) {
        r->each.other_nll = arena_take(a, n, sizeof *r->each.other_nll);
        r->each.kl = arena_take(a, n, sizeof *r->each.kl);
        r->each.same_top = arena_take(a, n, sizeof *r->each.same_top);
    }
}

/* How many workers, of how many windows a turn, and a worker's bytes. */
static enum status choose_workers(const struct eval_spec *spec, struct eval_plan *plan,
                                  uint64_t *kv, uint64_t *scratch, struct err *e)
{
    const uint64_t n_threads = (uint64_t)pool_n_threads(spec->pool);
    const uint64_t turns = plan->n_windows / n_threads / TURNS_A_WORKER;
    uint64_t weights = 0;
    for (int m = 0; m < n_models(spec); m++)
        weights += model_at(spec, m)->weights.cap;
    if (n_threads > 1 && turns > 0) {
        plan->n_together = windows_together(spec, plan, turns);
        TRY(worker_bytes(spec, plan, 1, kv, scratch, e));
        plan->n_workers = (int)n_threads;
        if (*kv + *scratch <= (weights + WORKERS_BYTES) / n_threads)
            return STATUS_OK;
    }
    plan->n_workers = 1;
    plan->n_together = windows_together(spec, plan, plan->n_windows);
    return worker_bytes(spec, plan, (int)n_threads, kv, scratch, e);
}

enum status eval_make_plan(const struct eval_spec *spec, struct eval_plan *plan, struct err *e)
{
    uint64_t kv, scratch;
    *plan = (struct eval_plan){0};
    TRY(check_eval_tokens(spec, e));
    TRY(choose_windows(spec, plan, e));
    TRY(choose_workers(spec, plan, &kv, &scratch, e));
    plan->kv_bytes = kv * (uint64_t)plan->n_workers;
    struct eval_run counted = {.spec = spec, .plan = *plan};
    take_results(&counted, &counted.arena);
    plan->scratch_bytes = scratch * (uint64_t)plan->n_workers + counted.arena.used;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

static enum status create_worker(struct eval_run *r, struct eval_worker *w, struct err *e)
{
    const struct eval_spec *spec = r->spec;
    struct session_params params = session_params_of(spec, &r->plan);
    w->pool = r->plan.n_workers > 1 ? NULL : spec->pool;
    w->status = STATUS_OK;
    for (int m = 0; m < r->n_models; m++) {
        if (m > 0) /* the other has all its heads */
            params.without = NULL;
        const enum status s =
            session_create(model_at(spec, m), &params, w->pool, &w->sessions[m], e);
        if (s != STATUS_OK)
            return s;
        const int block = session_block(w->sessions[m]);
        r->block = r->block && r->block < block ? r->block : block;
        size_t bytes;
        if (!size_of_array((uint64_t)block * (uint64_t)r->n_vocab, sizeof(float), &bytes))
            return err_set(e, STATUS_NO_MEMORY, "out of memory: the logits of %d tokens", block);
        w->logits[m] = malloc(bytes);
        if (!w->logits[m])
            return err_no_memory(e, "the logits of a block", bytes);
    }
    return STATUS_OK;
}

static void free_eval(struct eval_run *r)
{
    for (int i = 0; r->workers && i < r->plan.n_workers; i++) {
        for (int m = 0; m < r->n_models; m++) {
            session_free(r->workers[i].sessions[m]);
            free(r->workers[i].logits[m]);
        }
    }
    arena_free(&r->arena);
}

static enum status create_eval(struct eval_run *r, struct err *e)
{
    take_results(r, &r->arena);
    enum status s = arena_allocate(&r->arena, "the results of all tokens", e);
    if (s != STATUS_OK)
        return s;
    take_results(r, &r->arena);
    for (int i = 0; i < r->plan.n_workers && s == STATUS_OK; i++)
        s = create_worker(r, &r->workers[i], e);
    return s;
}

/* --- one turn -------------------------------------------------------------------------------- */

/* Rows of logits and the tokens they predict. */
struct rows {
    struct eval_run *run;
    struct eval_worker *worker;
    size_t first; /* scored token that row 0 predicts: tokens[first + 1] */
    int n;
};

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
    const struct rows *rows = arg;
    const struct eval_run *r = rows->run;
    const struct eval_worker *w = rows->worker;
    const size_t n_vocab = (size_t)r->n_vocab;
    int begin, end;
    pool_share(rows->n, thread, pool_n_threads(w->pool), &begin, &end);
    for (int i = begin; i < end; i++) {
        const size_t at = rows->first + (size_t)i;
        const int32_t token = r->spec->tokens[at + 1];
        const float *logits = w->logits[0] + (size_t)i * n_vocab;
        double log_sum, other_log_sum;
        r->each.nll[at] = score_row(logits, r->n_vocab, token, &log_sum);
        if (r->n_models == 1)
            continue;
        const float *other = w->logits[1] + (size_t)i * n_vocab;
        r->each.other_nll[at] = score_row(other, r->n_vocab, token, &other_log_sum);
        if (isnan(r->each.nll[at]) || isnan(r->each.other_nll[at]))
            continue;
        r->each.kl[at] = logits_divergence(other, other_log_sum, logits, log_sum, r->n_vocab);
        r->each.same_top[at] =
            logits_argmax(logits, r->n_vocab) == logits_argmax(other, r->n_vocab);
    }
}

/* The message about the first row that is not finite. */
static enum status check_scored_rows(const struct rows *rows, struct err *e)
{
    const struct eval_run *r = rows->run;
    for (int i = 0; i < rows->n; i++) {
        const size_t at = rows->first + (size_t)i;
        for (int m = 0; m < r->n_models; m++) {
            if (!isnan(m ? r->each.other_nll[at] : r->each.nll[at]))
                continue;
            const float *logits = rows->worker->logits[m] + (size_t)i * (size_t)r->n_vocab;
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

/* Between blocks: the caller's thread asks whether to go on. */
static bool goes_on(struct eval_run *r, const struct eval_worker *w)
{
    const struct eval_spec *spec = r->spec;
    if (w == r->workers && spec->stop && spec->stop(spec->arg)) {
        atomic_store(&r->stopped, true);
        atomic_store(&r->halt, true);
    }
    return !atomic_load(&r->stopped);
}

/* Where a turn is. */
struct turn {
    size_t first, end; /* its windows; window first + i is sequence i */
    size_t window;     /* of the next row */
    int at;            /* the row's position in it */
    size_t scored;     /* token that the next row to be scored predicts, less one */
};

/* The next rows of a turn, at most a block; *n_scored of them are scored. Those are of tokens that
 * follow one another, because a window scores on where the one before it ends. */
static int next_rows(const struct eval_run *r, struct turn *t, struct batch_row *rows,
                     int *n_scored)
{
    const struct eval_plan *plan = &r->plan;
    int n = 0;
    *n_scored = 0;
    while (n < r->block && t->window < t->end) {
        const size_t token = t->window * (size_t)plan->stride + (size_t)t->at;
        const bool scored = t->window == 0 || t->at >= plan->ctx - plan->stride;
        rows[n++] = (struct batch_row){.token = r->spec->tokens[token],
                                       .sequence = (int)(t->window - t->first),
                                       .position = t->at,
                                       .wants_logits = scored};
        *n_scored += scored;
        t->at++;
        if (t->at == plan->ctx || token + 1 == (size_t)plan->n_scored) {
            t->window++;
            t->at = 0;
        }
    }
    return n;
}

/* Windows from `first` on that a worker has sequences for. */
static struct turn begin_turn(const struct eval_run *r, const struct eval_worker *w, size_t first)
{
    const struct eval_plan *plan = &r->plan;
    const size_t left = (size_t)plan->n_windows - first, together = (size_t)plan->n_together;
    for (int m = 0; m < r->n_models; m++)
        for (int i = 0; i < plan->n_together; i++)
            session_rewind(w->sessions[m], i, 0);
    return (struct turn){.first = first,
                         .end = first + (left < together ? left : together),
                         .window = first,
                         .scored = first * (size_t)plan->stride +
                                   (first ? (size_t)(plan->ctx - plan->stride) : 0)};
}

static enum status score_step(struct eval_run *r, struct eval_worker *w, size_t first, int n,
                              struct err *e)
{
    struct rows rows = {r, w, first, n};
    pool_run(w->pool, score_rows, &rows);
    TRY(check_scored_rows(&rows, e));
    const uint64_t done = atomic_fetch_add(&r->done, (uint64_t)n) + (uint64_t)n;
    if (w == r->workers && r->spec->progress)
        r->spec->progress(r->spec->arg, done, r->plan.n_scored);
    return STATUS_OK;
}

/* Where windows do not overlap, the rows are the tokens that they score, one on. */
static enum status step_model(const struct eval_run *r, struct eval_worker *w,
                              const struct turn *turn, int n, struct err *e)
{
    const struct eval_entry *entry = &r->spec->entry;
    if (!entry->stream)
        return session_step(w->sessions[0], w->rows, n, w->logits[0], e);
    const float *x = entry->stream + turn->scored * (size_t)r->spec->model->config.d_model;
    return session_enter(w->sessions[0], entry->layer, x, w->rows, n, w->logits[0], e);
}

static enum status run_turn(struct eval_run *r, struct eval_worker *w, size_t first, struct err *e)
{
    struct turn turn = begin_turn(r, w, first);
    while (turn.window < turn.end) {
        if (!goes_on(r, w))
            return STATUS_INTERRUPTED;
        int n_scored;
        const int n = next_rows(r, &turn, w->rows, &n_scored);
        TRY(step_model(r, w, &turn, n, e));
        if (r->spec->other)
            TRY(session_step(w->sessions[1], w->rows, n, w->logits[1], e));
        if (n_scored > 0)
            TRY(score_step(r, w, turn.scored, n_scored, e));
        turn.scored += (size_t)n_scored;
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
    while (!atomic_load(&r->halt)) {
        const size_t window = atomic_fetch_add(&r->next_window, (size_t)r->plan.n_together);
        if (window >= r->plan.n_windows)
            return;
        w->status = run_turn(r, w, window, &w->err);
        if (w->status != STATUS_OK) {
            w->window = window;
            atomic_store(&r->halt, true);
            return;
        }
    }
}

/* What the workers say together: the earliest failure, else an interruption. */
static enum status joint_status(const struct eval_run *r, struct err *e)
{
    const struct eval_worker *failed = NULL;
    for (int i = 0; i < r->plan.n_workers; i++) {
        const struct eval_worker *w = &r->workers[i];
        if (w->status != STATUS_OK && w->status != STATUS_INTERRUPTED &&
            (!failed || w->window < failed->window))
            failed = w;
    }
    if (failed) {
        if (e)
            *e = failed->err;
        return failed->status;
    }
    return atomic_load(&r->stopped) ? STATUS_INTERRUPTED : STATUS_OK;
}

static uint64_t text_bytes(const struct eval_spec *spec)
{
    uint64_t bytes = 0;
    for (size_t i = 1; spec->tokenizer && i < spec->n_tokens; i++)
        bytes += tokenizer_bytes(spec->tokenizer, spec->tokens[i]).len;
    return bytes;
}

enum status eval_run(const struct eval_spec *spec, struct eval_result *result, struct err *e)
{
    struct eval_run r = {
        .spec = spec, .n_models = n_models(spec), .n_vocab = spec->model->config.n_vocab};
    TRY(eval_make_plan(spec, &r.plan, e));
    assert(!spec->entry.stream || r.plan.stride == r.plan.ctx);
    enum status s = create_eval(&r, e);
    if (s == STATUS_OK) {
        const uint64_t start = clock_ns();
        if (r.plan.n_workers > 1)
            pool_run(spec->pool, run_turns, &r);
        else
            run_turns(&r, 0);
        *result = (struct eval_result){.tokens = r.plan.n_scored,
                                       .bytes = text_bytes(spec),
                                       .seconds = (double)(clock_ns() - start) / 1e9};
        s = joint_status(&r, e);
    }
    if (s == STATUS_OK) {
        eval_summarise(&r.each, result);
        if (spec->nll)
            memcpy(spec->nll, r.each.nll, (size_t)r.plan.n_scored * sizeof *spec->nll);
    }
    free_eval(&r);
    return s;
}
