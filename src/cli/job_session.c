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

/* What work may take of what is available now: that is an estimate, and others want some. */
static double spare_bytes(void)
{
    return available_memory() * AVAILABLE_SHARE;
}

void job_say_memory(const struct job *j, const struct job_memory *m)
{
    const char *of = m->of, *advice = m->advice && m->advice[0] ? m->advice : NULL;
    if (!j->common->verbose && m->cache + m->scratch <= LARGE_MEMORY)
        return;
    const struct figure cache = figure_bytes(m->cache);
    say(j->common, "%s: weights %s%s%s%s%s%s, scratch %s%s%s", m->name ? m->name : "memory",
        figure_bytes(m->weights).text, m->cache ? ", KV cache " : "", m->cache ? cache.text : "",
        of ? " (" : "", of ? of : "", of ? ")" : "", figure_bytes(m->scratch).text,
        advice ? "; " : "", advice ? advice : "");
}

enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e)
{
    const double needed = (double)m->cache + m->scratch, spare = spare_bytes();
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

/* What lowers the cache, "A and B lower the cache"; "" if nothing does. */
struct cache_advice {
    char text[96];
};

static struct cache_advice advise(const struct job *j, const char *option)
{
    struct cache_advice advice = {""};
    const char *type = kv_type_advice[j->common->kv_type];
    const bool both = option && type[0];
    if (option || type[0])
        snprintf(advice.text, sizeof advice.text, "%s%s%s lower%s the cache", option ? option : "",
                 both ? " and " : "", type, both ? "" : "s");
    return advice;
}

enum status job_fit_sequences(const struct job *j, struct session_params *p,
                              const struct sequences_wanted *w, struct err *e)
{
    const double spare = spare_bytes();
    double needed = 0; /* by all */
    for (int n = w->n;; n--) {
        struct session_memory plan;
        p->n_sequences = n > 0 ? n : 1;
        TRY(session_plan(j->checkpoint.model, p, j->n_threads, &plan, e));
        const double bytes = (double)plan.kv_bytes + plan.scratch_bytes + (double)w->more_bytes * n;
        if (n == w->n)
            needed = bytes;
        if (n > 0 && bytes > spare)
            continue;
        if (n == w->n || !w->all)
            return STATUS_OK;
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %d sequences need %s, %s are available, %d would fit; %s",
                       w->n, figure_bytes(needed).text, figure_bytes(spare).text, n,
                       advise(j, w->option).text);
    }
}

enum status job_create_session(struct job *j, const char *name, const struct model *m,
                               const struct session_params *p, const char *option,
                               struct session **out, struct err *e)
{
    const int kv_type = j->common->kv_type;
    const uint64_t per_token =
        kv_cache_bytes_per_token(&m->config, m->config.n_kv_heads, kv_type_storage[kv_type]);
    const struct cache_advice advice = advise(j, option);
    struct session_memory plan;
    char sequences[40] = "", of[128];
    TRY(session_plan(m, p, j->n_threads, &plan, e));
    if (p->n_sequences > 1)
        snprintf(sequences, sizeof sequences, "%d sequences of ", p->n_sequences);
    snprintf(of, sizeof of, "%s%d tokens of %s, %s", sequences, p->n_ctx,
             figure_bytes(per_token).text, kv_type_names[kv_type]);
    job_say_memory(j, &(struct job_memory){.name = name,
                                           .weights = m->weights.cap,
                                           .cache = plan.kv_bytes,
                                           .scratch = plan.scratch_bytes,
                                           .of = of,
                                           .advice = advice.text});
    return session_create(m, p, j->pool, out, e);
}

enum status job_start_session(struct job *j, const struct session_params *p, const char *option,
                              struct err *e)
{
    TRY(job_start_threads(j, e));
    TRY(job_create_session(j, NULL, j->checkpoint.model, p, option, &j->session, e));
    const int rows = p->n_sequences > 0 ? p->n_sequences : 1;
    if (j->threads_are_auto && session_prefers_one_thread(j->session, rows)) {
        session_set_pool(j->session, NULL);
        pool_free(j->pool);
        j->pool = NULL;
        say_verbose(j->common, "threads: 1, as %d are slower for this model here", j->n_threads);
        j->n_threads = 1;
    }
    return STATUS_OK;
}
