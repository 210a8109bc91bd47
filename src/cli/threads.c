#include "cli/job.h"

#include "base/limits.h"
#include "base/numbers.h"

/* Never more threads than the process has processors: they would wait for each other. */
enum status job_choose_threads(struct job *j, struct err *e)
{
    const char *flag = j->common->threads;
    const char *source = flag ? "-t" : "DECODE_THREADS";
    const char *text = flag ? flag : environment("DECODE_THREADS");
    const int usable = cpus_usable();
    int wanted = MIN(usable, POOL_MAX_THREADS);
    j->threads_are_auto = !text || str_is(text, "auto");
    if (!j->threads_are_auto && !parse_int(text, 1, POOL_MAX_THREADS, &wanted))
        return err_usage(e, "%s: expected auto or an integer from 1 to %d, found '%.60s'", source,
                         POOL_MAX_THREADS, text);
    j->n_threads = MIN(wanted, usable);
    if (j->n_threads < wanted)
        log_verbose(j->common, "threads: %d, not %d (%s): this process has %d processors", usable,
                    wanted, source, usable);
    else
        log_verbose(j->common, "threads: %d (%s)", wanted, j->threads_are_auto ? "auto" : source);
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
