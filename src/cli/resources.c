#include "cli/job.h"

#include "base/figures.h"
#include "base/limits.h"
#include "base/numbers.h"

/* --- threads --------------------------------------------------------------------------------- */

/* More threads than the process has processors would wait for each other. */
enum status job_choose_threads(struct job *j, struct int_list *several, struct err *e)
{
    const char *flag = j->common->threads, *source = flag ? "-t" : "DECODE_THREADS";
    const char *text = flag ? flag : environment("DECODE_THREADS");
    const int most = MIN(cpus_usable(), POOL_MAX_THREADS);
    struct int_list asked = {{most}, 1}, one = {.n = 0};
    struct int_list *threads = several ? several : &one;
    bool has_most = false;
    j->threads_are_auto = !text || str_is(text, "auto");
    if (!j->threads_are_auto && several) {
        asked.n = 0;
        TRY(list_ints(source, text, 1, POOL_MAX_THREADS, &asked, e));
    } else if (!j->threads_are_auto && !parse_int(text, 1, POOL_MAX_THREADS, asked.items)) {
        return err_usage(e, "%s: expected auto or an integer from 1 to %d, found '%.60s'", source,
                         POOL_MAX_THREADS, text);
    }
    for (int i = 0; i < asked.n; i++) {
        const int n = MIN(asked.items[i], most);
        if (n < most || !has_most)
            TRY(list_add(source, n, threads, e));
        has_most |= n == most;
    }
    j->n_threads = threads->items[0];
    log_verbose(j->common, "threads: %d (%s%s)", j->n_threads,
                j->threads_are_auto ? "auto" : source,
                j->n_threads < asked.items[0] ? "; there are no more processors" : "");
    return STATUS_OK;
}

enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e)
{
    const char *name = environment("DECODE_ISA");
    TRY(err_in(e, kernels_choose(name, out, e), "DECODE_ISA"));
    log_verbose(c, "instruction set: %s (%s)", (*out)->name,
                name ? "DECODE_ISA" : "the fastest here");
    return STATUS_OK;
}

enum status job_start_threads(struct job *j, struct err *e)
{
    if (j->pool)
        return STATUS_OK;
    TRY(pool_create(j->n_threads, &j->pool, e));
    if (pool_n_threads(j->pool) < j->n_threads)
        log_info(j->common,
                 "only %d of %d threads could be started; results are the same, but later",
                 pool_n_threads(j->pool), j->n_threads);
    j->n_threads = pool_n_threads(j->pool);
    return STATUS_OK;
}

/* --- memory and sessions --------------------------------------------------------------------- */

/* The share of the available memory that work may take: it is an estimate, and others want some. */
#define AVAILABLE_SHARE 0.9
/* Memory beyond this is announced even without -v. */
#define LARGE_MEMORY ((uint64_t)1 << 30)

bool memory_is_worth_saying(const struct common_options *o, uint64_t bytes)
{
    return o->verbose || bytes > LARGE_MEMORY;
}

static double spare_memory(void)
{
    return available_memory() * AVAILABLE_SHARE;
}

enum status memory_check(double bytes, const char *what, const char *advice, struct err *e)
{
    const double spare = spare_memory();
    if (bytes <= spare)
        return STATUS_OK;
    return err_set(e, STATUS_NO_MEMORY, "out of memory: %s need %s, %s are available%s%s", what,
                   figure_bytes(bytes).text, figure_bytes(spare).text, advice[0] ? "; " : "",
                   advice);
}

/* Prints a line about the memory, if it is worth saying. */
static void say_memory(const struct job *j, const struct job_memory *m)
{
    char line[512];
    if (!memory_is_worth_saying(j->common, m->cache + m->scratch))
        return;
    chars_printf(line, "memory: weights %s", figure_bytes(m->weights).text);
    if (m->cache)
        chars_append(line, ", KV cache %s", figure_bytes(m->cache).text);
    if (m->most_cache > m->cache)
        chars_append(line, " that may grow to %s", figure_bytes(m->most_cache).text);
    chars_append(line, ", scratch %s", figure_bytes(m->scratch).text);
    if (m->advice[0])
        chars_append(line, "; %s", m->advice);
    log_info(j->common, "%s", line);
}

enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e)
{
    TRY(memory_check((double)m->cache + m->scratch, what, m->advice, e));
    say_memory(j, m);
    return STATUS_OK;
}

struct session_params job_session_params(const struct job *j)
{
    return (struct session_params){.kv_type = kv_type_at(j->kv_types.items[0]),
                                   .kernels = j->kernels,
                                   .without = j->without.off ? &j->without : NULL};
}

struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k)
{
    return (struct eval_spec){.model = k->model,
                              .params = job_session_params(j),
                              .pool = j->pool,
                              .tokens = j->tokens,
                              .n_tokens = j->n_tokens,
                              .tokenizer = k->tokenizer};
}

enum status job_fit_sequences(const struct job *j, struct session_params *p, int n, struct err *e)
{
    const struct model *m = j->checkpoint.model;
    const double logits_bytes = (double)m->config.n_vocab * sizeof(float), spare = spare_memory();
    struct session_memory plan;
    for (p->n_sequences = n; p->n_sequences > 1; p->n_sequences--) {
        TRY(session_plan(m, p, j->n_threads, &plan, e));
        if ((double)plan.kv_bytes + plan.scratch_bytes + logits_bytes * p->n_sequences <= spare)
            break;
    }
    return STATUS_OK;
}

bool job_take_one_thread(struct job *j, const struct cost_plan *step, int n_layers)
{
    if (!j->threads_are_auto || j->n_threads == 1 || !cost_prefers_one_thread(step, n_layers))
        return false;
    log_verbose(j->common, "threads: 1, as %d would be slower for a model so small", j->n_threads);
    pool_free(j->pool);
    j->pool = NULL;
    j->n_threads = 1;
    return true;
}

enum status job_start_session(struct job *j, const struct session_params *p, int most_ctx,
                              const char *advice, struct err *e)
{
    const struct model *m = j->checkpoint.model;
    struct session_params most = *p;
    struct session_memory plan, grown;
    const struct cost_shape shape = {
        .config = &m->config, .storage = m->w[ROLE_OUTPUT].matrix.storage, .tied = m->tied};
    const struct cost_weights weights = cost_weights(&shape);
    const struct cost_plan step =
        cost_plan(&shape, &weights, p->kv_type, 0, MAX(p->n_sequences, 1));
    job_take_one_thread(j, &step, m->config.n_layers);
    most.n_ctx = MAX(p->n_ctx, most_ctx);
    TRY(job_start_threads(j, e));
    TRY(session_plan(m, p, j->n_threads, &plan, e));
    TRY(session_plan(m, &most, j->n_threads, &grown, e));
    TRY(job_check_memory(j,
                         &(struct job_memory){.weights = m->weights.cap,
                                              .cache = plan.kv_bytes,
                                              .most_cache = grown.kv_bytes,
                                              .scratch = plan.scratch_bytes,
                                              .advice = advice},
                         "the cache and scratch memory", e));
    return session_create(m, p, j->pool, &j->session, e);
}

enum status job_grow_session(struct job *j, int n_ctx, const char *advice, struct err *e)
{
    struct session_params p = job_session_params(j);
    struct session_memory plan;
    p.n_ctx = n_ctx;
    TRY(session_plan(j->checkpoint.model, &p, j->n_threads, &plan, e));
    TRY(memory_check((double)plan.kv_bytes + plan.scratch_bytes,
                     "a cache of twice the text and scratch memory", advice, e));
    return session_grow(j->session, n_ctx, e);
}
