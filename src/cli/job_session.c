#include <stdio.h>

#include "base/figures.h"
#include "base/limits.h"
#include "cli/job.h"
#include "model/kv_cache.h"

/* Of what is available. */
#define AVAILABLE_SHARE 0.9
/* Memory beyond this is announced even without -v. */
#define LARGE_MEMORY ((uint64_t)1 << 30)

/* --- memory ---------------------------------------------------------------------------------- */

double job_spare_bytes(void)
{
    return (double)available_memory() * AVAILABLE_SHARE;
}

void job_say_memory(const struct job *j, const struct job_memory *m)
{
    const char *of = m->of, *advice = m->advice;
    if (!j->common->verbose && m->cache + m->scratch <= LARGE_MEMORY)
        return;
    const struct figure cache = figure_bytes((double)m->cache);
    say(j->common, "memory: weights %s%s%s%s%s%s, scratch %s%s%s",
        figure_bytes((double)m->weights).text, m->cache ? ", KV cache " : "",
        m->cache ? cache.text : "", of ? " (" : "", of ? of : "", of ? ")" : "",
        figure_bytes((double)m->scratch).text, advice ? "; " : "", advice ? advice : "");
}

enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e)
{
    const double needed = (double)m->cache + (double)m->scratch, spare = job_spare_bytes();
    if (needed > spare)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: %s need %s, %s are available; %s", what,
                       figure_bytes(needed).text, figure_bytes(spare).text, m->advice);
    job_say_memory(j, m);
    return STATUS_OK;
}

/* --- sessions -------------------------------------------------------------------------------- */

struct session_params job_session_params(const struct job *j)
{
    return (struct session_params){.kv_storage = kv_type_storage[j->common->kv_type],
                                   .block = j->common->block,
                                   .kernels = j->kernels,
                                   .without = j->without.off ? &j->without : NULL};
}

static struct session_params params_of(const struct job *j, const struct session_wanted *w)
{
    struct session_params p = job_session_params(j);
    p.n_sequences = w->n_sequences;
    p.n_ctx = w->n_ctx;
    p.n_shared = w->n_shared;
    return p;
}

/* What lowers the cache, "A and B lower the cache"; "" if nothing does. */
struct cache_advice {
    char text[96];
};

static struct cache_advice advise(const struct job *j, const char *option)
{
    struct cache_advice advice = {""};
    const char *type = kv_type_advice[j->common->kv_type];
    if (option && type[0])
        snprintf(advice.text, sizeof advice.text, "%s and %s lower the cache", option, type);
    else if (option || type[0])
        snprintf(advice.text, sizeof advice.text, "%s lowers the cache", option ? option : type);
    return advice;
}

/* All that the session and the command take. */
static enum status bytes_wanted(const struct job *j, const struct session_wanted *w, double *bytes,
                                struct err *e)
{
    const struct session_params params = params_of(j, w);
    struct session_memory plan;
    TRY(session_plan(j->checkpoint.model, &params, j->n_threads, &plan, e));
    *bytes = (double)plan.kv_bytes + (double)plan.scratch_bytes +
             (double)w->more_bytes * (w->n_sequences > 0 ? w->n_sequences : 1);
    return STATUS_OK;
}

enum status job_fitting(const struct job *j, const struct session_wanted *w, int most, int *fitting,
                        struct err *e)
{
    const double available = job_spare_bytes();
    struct session_wanted try = *w;
    double bytes;
    int low = 0, high = most;
    try.n_sequences = 1;
    TRY(bytes_wanted(j, &try, &bytes, e));
    while (low < high) {
        try.n_sequences = low + (high - low + 1) / 2;
        if (bytes_wanted(j, &try, &bytes, NULL) == STATUS_OK && bytes <= available)
            low = try.n_sequences;
        else
            high = try.n_sequences - 1;
    }
    *fitting = low;
    return STATUS_OK;
}

enum status job_check_sequences(const struct job *j, const struct session_wanted *w,
                                const char *option, struct err *e)
{
    int fitting;
    double bytes;
    TRY(bytes_wanted(j, w, &bytes, e));
    TRY(job_fitting(j, w, w->n_sequences, &fitting, e));
    if (fitting == w->n_sequences)
        return STATUS_OK;
    const struct cache_advice advice = advise(j, w->option);
    return err_set(
        e, STATUS_NO_MEMORY,
        "out of memory: %d sequences need %s, %s are available, %d would fit: lower %s%s%s",
        w->n_sequences, figure_bytes(bytes).text, figure_bytes((double)available_memory()).text,
        fitting, option, advice.text[0] ? "; " : "", advice.text);
}

enum status job_start_session(struct job *j, const struct session_wanted *w, struct err *e)
{
    const struct session_params params = params_of(j, w);
    struct session_memory plan;
    TRY(session_plan(j->checkpoint.model, &params, j->n_threads, &plan, e));
    const int kv_type = j->common->kv_type;
    const struct config *c = &j->checkpoint.model->config;
    const double per_token =
        (double)kv_cache_bytes_per_token(c, c->n_kv_heads, kv_type_storage[kv_type]);
    const struct cache_advice advice = advise(j, w->option);
    char sequences[40] = "", of[128];
    if (w->n_sequences > 1)
        snprintf(sequences, sizeof sequences, "%d sequences of ", w->n_sequences);
    snprintf(of, sizeof of, "%s%d tokens of %s, %s", sequences, w->n_ctx,
             figure_bytes(per_token).text, kv_type_names[kv_type]);
    job_say_memory(j, &(struct job_memory){.weights = j->checkpoint.model->weights.cap,
                                           .cache = plan.kv_bytes,
                                           .scratch = plan.scratch_bytes,
                                           .of = of,
                                           .advice = advice.text[0] ? advice.text : NULL});
    TRY(job_start_threads(j, e));
    TRY(session_create(j->checkpoint.model, &params, j->pool, &j->session, e));
    const int rows = w->n_sequences > 0 ? w->n_sequences : 1;
    if (j->threads_are_auto && session_prefers_one_thread(j->session, rows)) {
        session_set_pool(j->session, NULL);
        pool_free(j->pool);
        j->pool = NULL;
        say_verbose(j->common, "threads: 1, as %d are slower for this model here", j->n_threads);
        j->n_threads = 1;
    }
    return STATUS_OK;
}
