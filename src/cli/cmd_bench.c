/*
 * cmd_bench - decode bench: per-token latency across attention variants.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/limits.h"
#include "cli/bench_report.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/shape.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "compute/pool.h"
#include "model/model.h"

#define DEFAULT_PROMPT   128
#define ROOFLINE_SECONDS 1.0

struct bench_options {
    struct common_options common;
    struct shape_options shape;
    const char *kv_heads, *latent, *depths, *batches, *types, *kv_types;
    struct bench_spec spec; /* its numbers; specify_bench adds the rest */
    const char *plot, *trace;
};

#define VALUES struct bench_options

static const struct option matrix_options[] = {
    OPT_STRING("kv-heads", kv_heads, "all|G,G,...",
               "numbers of K/V heads: as many as query heads is MHA, 1 is MQA; all: every divisor",
               .fallback = "all"),
    OPT_STRING("latent", latent, "R,R,...",
               "latent caches of these ranks as more variants; their weights are random, and the "
               "times those of converted ones"),
    OPT_STRING("depth", depths, "D,D,...", "positions in the KV cache before the timed token",
               .fallback = "0"),
    OPT_STRING("batch", batches, "B,B,...",
               "sequences that a step serves, each with its own cache of that depth",
               .fallback = "1"),
    OPT_STRING("type", types, "TYPE,...",
               "types of the weight matrices: f32, f16, bf16, q8_0, q4_0",
               .otherwise = "as in the checkpoint; f32 with --shape", .choices = storage_names),
    OPT_STRING("kv-type", kv_types, "KV,...", "types of the cache: f32, f16, q8_0",
               .fallback = "f32", .choices = kv_type_names),
    OPT_STRING("threads", common.threads, "T,T,...",
               "numbers of threads; auto: as many processors as this process may use",
               .letter = 't', .otherwise = "DECODE_THREADS, else auto"),
    OPT_END,
};

static const struct option measuring_options[] = {
    OPT_INT("n", spec.n, "N", 1, 1000000, "timed tokens a repeat", .letter = 'n', .fallback = "64"),
    OPT_INT("repeat", spec.repeats, "R", 1, 10000, "repeats; in each, all rows take their turn",
            .fallback = "5"),
    OPT_INT("warmup", spec.warmup, "N", 0, 1000000,
            "steps before the timed ones of a row, in every repeat", .fallback = "8"),
    OPT_INT("prompt", spec.prompt, "P", -1, INT_MAX,
            "tokens of the prefill measurement; 0: none; -1: 128, or the context if less",
            .fallback = "-1"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_FORMAT,
    OPT_STRING("plot", plot, "FILE.svg",
               "draw latency against depth, or, of several batches at one depth, against batch; a "
               "line for each variant",
               .writes = WRITES_FILE),
    OPT_STRING("trace", trace, "FILE.csv", "write every single token's time",
               .writes = WRITES_FILE),
    OPT_END,
};

/* --- from options to a specification --------------------------------------------------------- */

/* A row says what ran: more threads than processors are never started, so such a row would be one
 * of fewer. */
static enum status read_threads(struct job *j, const struct bench_options *o,
                                struct int_list *threads, struct err *e)
{
    const char *source = o->common.threads ? "-t" : "DECODE_THREADS";
    const char *text = o->common.threads ? o->common.threads : environment("DECODE_THREADS");
    const int usable = cpus_usable(), most = usable < POOL_MAX_THREADS ? usable : POOL_MAX_THREADS;
    struct int_list asked = {.n = 0};
    j->threads_are_auto = !text || strcmp(text, "auto") == 0;
    if (j->threads_are_auto)
        return list_add(source, most, threads, e);
    TRY(list_ints(source, text, 1, POOL_MAX_THREADS, &asked, e));
    for (int i = 0; i < asked.n; i++) {
        const int n = asked.items[i] < most ? asked.items[i] : most;
        bool again = false;
        for (int k = 0; k < threads->n; k++)
            again |= threads->items[k] == n;
        if (n < asked.items[i])
            say(&o->common, "%s %d: this process has %d processor%s: %s", source, asked.items[i],
                most, plural((uint64_t)most), again ? "left out" : "measured with as many threads");
        if (!again)
            TRY(list_add(source, n, threads, e));
    }
    return STATUS_OK;
}

/* What rows differ in but threads, of a config that is known. */
static enum status read_axes(const struct bench_options *o, struct bench_spec *spec, struct err *e)
{
    const struct config *c = &spec->config;
    struct int_list *axes = spec->axes, *variants = &axes[BENCH_VARIANTS], ranks = {.n = 0},
                    depths = {.n = 0};
    const bool all = strcmp(o->kv_heads, "all") == 0;
    if (!all)
        TRY(list_heads("--kv-heads", o->kv_heads, c->n_heads, variants, e));
    for (int g = c->n_kv_heads; g >= 1 && all; g--)
        if (c->n_kv_heads % g == 0)
            TRY(list_add("--kv-heads", g, variants, e));
    /* Ranks are the negative numbers that they are among K/V heads. */
    if (o->latent)
        TRY(list_ints("--latent", o->latent, 1, CONFIG_MAX_WIDTH, &ranks, e));
    for (int i = 0; i < ranks.n; i++)
        TRY(list_add("--latent", -ranks.items[i], variants, e));
    /* The context is what people ask for who want to know what it costs full. */
    TRY(list_ints("--depth", o->depths, 0, INT_MAX, &depths, e));
    for (int i = 0; i < depths.n; i++) {
        const bool full = depths.items[i] == c->n_ctx;
        if (full)
            say(&o->common,
                "--depth %d fills the context: measured at %d, with the last token's place left",
                c->n_ctx, c->n_ctx - 1);
        TRY(list_add("--depth", depths.items[i] - full, &axes[BENCH_DEPTHS], e));
    }
    TRY(list_ints("--batch", o->batches, 1, INT_MAX, &axes[BENCH_BATCHES], e));
    TRY(o->types ? list_names("--type", o->types, storage_names, &axes[BENCH_TYPES], e)
                 : list_add("--type", o->shape.shape ? STORAGE_F32 : BENCH_AS_FILE,
                            &axes[BENCH_TYPES], e));
    TRY(list_names("--kv-type", o->kv_types, kv_type_names, &axes[BENCH_KV_TYPES], e));
    for (int i = 0; i < axes[BENCH_KV_TYPES].n; i++)
        axes[BENCH_KV_TYPES].items[i] = (int)kv_type_storage[axes[BENCH_KV_TYPES].items[i]];
    return STATUS_OK;
}

static enum status specify_bench(struct job *j, struct bench_options *o, struct err *e)
{
    struct bench_spec *spec = &o->spec;
    if (o->shape.shape) {
        TRY(shape_of_options(&o->shape, &o->common, &spec->config, e));
    } else {
        TRY(job_open(j->path, 0, &j->checkpoint, e));
        TRY(job_config(j->path, &j->checkpoint, &spec->config, e));
        spec->gguf = j->checkpoint.gguf;
        spec->source = &j->checkpoint.file;
    }
    TRY(read_axes(o, spec, e));
    TRY(read_threads(j, o, &spec->axes[BENCH_THREADS], e));
    TRY(job_choose_kernels(&o->common, &spec->kernels, e));
    if (spec->prompt < 0)
        spec->prompt = spec->config.n_ctx < DEFAULT_PROMPT ? spec->config.n_ctx : DEFAULT_PROMPT;
    spec->roofline_seconds = ROOFLINE_SECONDS;
    spec->seed = 1;
    spec->stop = progress_stop;
    spec->progress = progress_show;
    spec->arg = &j->progress;
    return STATUS_OK;
}

/* --- before the rows are measured ------------------------------------------------------------ */

/* Before anything is taken: a cache that goes to swap measures a disk, and one that no memory backs
 * ends the process. */
static enum status check_memory(const struct bench *b, const struct common_options *common,
                                struct err *e)
{
    const uint64_t needed = bench_memory(b), left = available_memory();
    if (needed > left)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %d rows need %s together, and %s are free; fewer or smaller "
                       "--batch, --depth, --kv-heads, --type need less",
                       b->n_rows, figure_bytes((double)needed).text,
                       figure_bytes((double)left).text);
    if (common->verbose || needed > (uint64_t)1 << 30)
        say(common,
            "memory: %d rows take %s together; fewer or smaller --batch, --depth, --kv-heads, "
            "--type take less",
            b->n_rows, figure_bytes((double)needed).text);
    return STATUS_OK;
}

/* What a process leaves in memory that both see. */
struct child_answer {
    bool complete;
    enum status status;
    struct err err;
    double load_ms;
};

/* Load time and peak memory of row i, in a process of its own. Before threads are started; what the
 * caller has resident counts, too. */
static enum status measure_in_child(struct bench *b, int i, struct child_answer *a, struct err *e)
{
    struct rusage usage = {0};
    int ended = 0;
    a->complete = false;
    const pid_t pid = fork();
    if (pid < 0)
        return err_set(e, STATUS_FAILED, "cannot start a process to measure memory: %s",
                       strerror(errno));
    if (pid == 0) {
        a->status = bench_load_row(b, i, &a->err);
        a->load_ms = b->rows[i].load_ms;
        a->complete = true;
        _exit(STATUS_OK); /* nothing of the parent's is closed or flushed on the way out */
    }
    while (wait4(pid, &ended, 0, &usage) < 0 && errno == EINTR)
        if (signals_interrupted())
            kill(pid, SIGKILL); /* it has nothing to leave behind */
    if (!a->complete && signals_interrupted())
        return STATUS_INTERRUPTED;
    /* A mapped file was cut short: the child has said which. */
    if (!a->complete && WIFEXITED(ended) && WEXITSTATUS(ended) == STATUS_BAD_FILE)
        _exit(STATUS_BAD_FILE);
    if (!a->complete)
        return err_set(e, STATUS_FAILED,
                       "the process that measures memory was ended; was it out of memory?");
    b->rows[i].load_ms = a->load_ms;
    b->rows[i].peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (a->status != STATUS_OK)
        *e = a->err;
    return a->status;
}

static enum status measure_in_children(struct job *j, struct bench *b, struct err *e)
{
    struct progress *p = job_progress(j, "rows");
    struct child_answer *a =
        mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    enum status s = STATUS_OK;
    if (a == MAP_FAILED)
        return err_no_memory(e, "the answer of the process that measures memory", sizeof *a);
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++) {
        progress_show(p, (uint64_t)i, (uint64_t)b->n_rows);
        s = signals_interrupted() ? STATUS_INTERRUPTED : measure_in_child(b, i, a, e);
    }
    munmap(a, sizeof *a);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

/* bench_free is due in every case. What was measured until an interruption is shown. */
static enum status measure_and_print(struct job *j, struct bench_options *o, struct bench *b,
                                     struct err *e)
{
    struct bench_spec *spec = &o->spec;
    int *threads = &spec->axes[BENCH_THREADS].items[0];
    const struct bench_report r = {.bench = b,
                                   .subject = o->shape.shape ? o->shape.shape : j->path,
                                   .format = (enum table_format)o->common.format,
                                   .trace = o->trace,
                                   .plot = o->plot};
    char machine[512];
    bool prefers_one = false;
    TRY(bench_plan(spec, b, e));
    TRY(check_memory(b, &o->common, e));
    /* As every command does: one thread where the first row's model is faster so. */
    if (j->threads_are_auto && *threads > 1)
        TRY(bench_prefers_one_thread(b, &prefers_one, e));
    if (prefers_one) {
        say_verbose(&o->common, "threads: 1, as %d are slower for this model here", *threads);
        *threads = 1;
        bench_free(b);
        TRY(bench_plan(spec, b, e));
    }
    TRY(measure_in_children(j, b, e));
    job_progress(j, "turns");
    const enum status s = bench_run(b, e);
    progress_end(&j->progress);
    if (s != STATUS_OK && (s != STATUS_INTERRUPTED || b->n_rows == 0))
        return s;
    bench_machine(spec, machine);
    if (!table_is_for_people(r.format))
        say(&o->common, "%s: %s", r.subject, machine);
    TRY(bench_print(&r, j->out, e));
    return s;
}

static enum status check_bench(struct job *j, void *values, struct err *e)
{
    (void)e;
    const struct bench_options *o = values;
    if (o->shape.shape)
        j->needs &= ~(unsigned)JOB_PATH;
    return STATUS_OK;
}

static enum status run_bench(struct job *j, void *values, struct err *e)
{
    struct bench_options *o = values;
    struct bench b = {.n_rows = 0};
    TRY(specify_bench(j, o, e));
    const enum status s = measure_and_print(j, o, &b, e);
    bench_free(&b);
    return s == STATUS_BAD_FILE ? err_in(e, s, "%s", j->path) : s;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "per-token latency across attention variants",
    .usage = "(MODEL | --shape SHAPE) [options]",
    .notes =
        "A timed step takes one token of each of the batch's sequences in and gives their\n"
        "logits; sampling and tokenization are left out. Every timed token is taken at exactly\n"
        "its row's depth: the position goes back after it. The caches below have synthetic\n"
        "content, which does not change how long a step takes. A step reads the weights once\n"
        "and every sequence's cache. Its prediction adds, for the products and for attention,\n"
        "the larger of bytes over bandwidth and operations over peak, all measured once for\n"
        "each number of threads. Bandwidth goes by the bytes that a step reads: one for all that\n"
        "fit the same cache, or none, and between two such classes in proportion. Variants\n"
        "of a checkpoint average its K/V heads; how heads are merged changes no time.\n"
        "Ctrl-C prints what was measured so far.\n",
    .spec = {.groups = {{"Random weights of a shape instead of a checkpoint", shape_options,
                         offsetof(VALUES, shape)},
                        {"What is compared (one row for every combination)", matrix_options, 0},
                        {"Measuring", measuring_options, 0},
                        {"Results", result_options, 0},
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_STOPS,
    .check = check_bench,
    .run = run_bench,
};
