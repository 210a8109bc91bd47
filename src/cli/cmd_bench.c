/*
 * cmd_bench - decode bench: per-token latency across attention variants.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/bench_advice.h"
#include "cli/bench_report.h"
#include "cli/help_texts.h"
#include "cli/signals.h"

#define DEFAULT_PROMPT   128
#define ROOFLINE_SECONDS 1.0
/* The share of the free memory that the rows of a group may take. */
#define GROUP_SHARE 0.9

#define VALUES struct bench_run

static const struct option matrix_options[] = {
    OPT_STRING("kv-heads", kv_heads, "all|G,G,...",
               "numbers of K/V heads: as many as query heads is MHA, 1 is MQA; all: every divisor",
               .fallback = "all"),
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
    OPT_INT("repeat", spec.repeats, "R", 1, 10000,
            "repeats; each measures every row once, with new threads", .fallback = "5"),
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
    OPT_END,
};

static const struct option advice_options[] = {
    OPT_TEXT("also what each variant loses on the last tenth of this text, converted by fit on the "
             "rest",
             .excludes = "shape"),
    OPT_DOUBLE("max-loss", max_loss, "X", 0, HUGE_VAL, "bits per byte that may be lost at most",
               .above_min = true, .otherwise = "any", .needs = "text"),
    OPT_DOUBLE("max-us", max_us, "Y", 0, HUGE_VAL, "microseconds that a step may take at most",
               .above_min = true, .otherwise = "any", .needs = "text"),
    OPT_STRING("max-cache", max_cache, "BYTES", "that the caches may take at most, as 64MiB",
               .otherwise = "any", .needs = "text"),
    OPT_INT("calib-tokens", calib_tokens, "N", CONVERT_MIN_TOKENS, INT_MAX,
            "tokens of the text that a variant is calibrated on; fewer take less time",
            .otherwise = "65536", .needs = "text"),
    OPT_END,
};

/* --- from options to a specification --------------------------------------------------------- */

/* A row says what ran: more threads than processors are never started, so such a row would be one
 * of fewer. */
static enum status read_threads(struct bench_run *r, struct err *e)
{
    const char *source = r->common.threads ? "-t" : "DECODE_THREADS";
    const char *text = r->common.threads ? r->common.threads : environment("DECODE_THREADS");
    const int usable = cpus_usable(), most = MIN(usable, POOL_MAX_THREADS);
    struct int_list asked = {.n = 0};
    struct int_list *threads = &r->spec.axes[BENCH_THREADS];
    bool has_most = false;
    r->job->threads_are_auto = !text || str_is(text, "auto");
    if (r->job->threads_are_auto)
        return list_add(source, most, threads, e);
    TRY(list_ints(source, text, 1, POOL_MAX_THREADS, &asked, e));
    for (int i = 0; i < asked.n; i++) {
        const int n = asked.items[i];
        r->threads_asked = MAX(n, r->threads_asked);
        if (n < most || !has_most)
            TRY(list_add(source, MIN(n, most), threads, e));
        has_most |= n >= most;
    }
    return STATUS_OK;
}

/* What rows differ in but threads, of a config that is known. */
static enum status read_axes(struct bench_run *r, struct err *e)
{
    const struct config *c = &r->spec.config;
    struct int_list *axes = r->spec.axes, *variants = &axes[BENCH_VARIANTS];
    struct int_list depths = {.n = 0};
    const bool all = str_is(r->kv_heads, "all");
    if (!all)
        TRY(list_heads("--kv-heads", r->kv_heads, c->n_heads, variants, e));
    else
        for (int g = c->n_kv_heads; g >= 1; g--)
            if (c->n_kv_heads % g == 0 && config_has_variant(c, g) &&
                (r->shape.shape || c->score == SCORE_DOT || g == c->n_kv_heads))
                TRY(list_add("--kv-heads", g, variants, e));
    /* The context is what people ask for who want to know what it costs full. */
    TRY(list_ints("--depth", r->depths, 0, INT_MAX, &depths, e));
    for (int i = 0; i < depths.n; i++) {
        const int depth = depths.items[i];
        const bool full = depth == c->n_ctx;
        r->fills_context |= full;
        TRY(list_add("--depth", depth - full, &axes[BENCH_DEPTHS], e));
    }
    TRY(list_ints("--batch", r->batches, 1, INT_MAX, &axes[BENCH_BATCHES], e));
    TRY(r->types ? list_names("--type", r->types, storage_names, &axes[BENCH_TYPES], e)
                 : list_add("--type", r->shape.shape ? STORAGE_F32 : BENCH_AS_FILE,
                            &axes[BENCH_TYPES], e));
    TRY(list_names("--kv-type", r->kv_types, kv_type_names, &axes[BENCH_KV_TYPES], e));
    for (int i = 0; i < axes[BENCH_KV_TYPES].n; i++) {
        int *type = &axes[BENCH_KV_TYPES].items[i];
        *type = kv_type_storage[*type];
    }
    return STATUS_OK;
}

static enum status specify_bench(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    struct bench_spec *spec = &r->spec;
    if (r->shape.shape) {
        TRY(shape_of_options(&r->shape, &r->common, &spec->config, e));
    } else {
        TRY(job_open(j->path, r->common.file ? CHECKPOINT_TEXTS : 0, &j->checkpoint, e));
        TRY(job_config(j->path, &j->checkpoint, &spec->config, e));
        spec->gguf = j->checkpoint.gguf;
        spec->source = &j->checkpoint.file;
        r->model = j->path;
    }
    r->subject = r->model ? r->model : r->shape.shape;
    TRY(read_axes(r, e));
    if (r->common.file) {
        job_warn_vocabulary(&r->common, j->path, j->checkpoint.tokenizer);
        TRY(advice_prepare(r, e));
    }
    TRY(read_threads(r, e));
    TRY(job_choose_kernels(&r->common, &spec->kernels, e));
    if (spec->prompt < 0)
        spec->prompt = MIN(spec->config.n_ctx, DEFAULT_PROMPT);
    spec->roofline_seconds = ROOFLINE_SECONDS;
    spec->callbacks = job_callbacks(j, "rows");
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

/* The peak memory of row i, in a process of its own, which leaves in `said`, memory that both see,
 * what failed. Before threads are started; what the caller has resident counts, too. */
static enum status measure_memory(struct bench *b, int i, struct err *said, struct err *e)
{
    struct rusage usage = {0};
    int ended = 0;
    const pid_t pid = fork();
    if (pid < 0)
        return err_failed(e, "cannot start a process to measure memory: %s", strerror(errno));
    if (pid == 0)
        _exit(bench_load_row(b, i, said)); /* nothing of the parent's is closed or flushed */
    while (wait4(pid, &ended, 0, &usage) < 0 && errno == EINTR)
        if (signals_interrupted())
            kill(pid, SIGKILL); /* it has nothing to leave behind */
    if (!WIFEXITED(ended) && signals_interrupted())
        return STATUS_INTERRUPTED;
    if (!WIFEXITED(ended))
        return err_failed(e, "the process that measures memory was ended; was it out of memory?");
    const enum status s = WEXITSTATUS(ended);
    if (s == STATUS_BAD_FILE && !said->text[0])
        _exit(STATUS_BAD_FILE); /* a mapped file was cut short: the child has said which */
    b->rows[i].peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (s != STATUS_OK)
        *e = *said;
    return s;
}

/* Where rows are others than those that were asked for. */
static void say_changes(const struct bench_run *r)
{
    const int n_ctx = r->spec.config.n_ctx, most = MIN(cpus_usable(), POOL_MAX_THREADS);
    for (int i = 0; i < r->spec.axes[BENCH_TYPES].n; i++)
        if (r->spec.axes[BENCH_TYPES].items[i] != BENCH_AS_FILE)
            job_say_fallback(&r->common, &r->spec.config, r->spec.axes[BENCH_TYPES].items[i]);
    if (r->fills_context)
        say(&r->common,
            "--depth %d fills the context: measured at %d, with the last token's place left", n_ctx,
            n_ctx - 1);
    if (r->threads_asked > most)
        say(&r->common, "%s %d: this process has %d processors, measured with as many",
            r->common.threads ? "-t" : "DECODE_THREADS", r->threads_asked, most);
}

/* What was measured until an interruption is shown. */
static enum status measure(struct bench_run *r, struct err *e)
{
    const struct common_options *o = &r->common;
    struct job *j = r->job;
    struct bench *b = &r->bench;
    struct bench_spec *spec = &r->spec;
    int *threads = &spec->axes[BENCH_THREADS].items[0];
    bool prefers_one = false;
    const uint64_t left = available_memory();
    spec->most_bytes = left * GROUP_SHARE;
    TRY(bench_plan(spec, b, e));
    /* Before anything is taken: a cache that goes to swap measures a disk, and one that no memory
     * backs ends the process. */
    const char *advice = "fewer or smaller --batch, --depth, --kv-heads, --type take less";
    if (b->bytes > left)
        return err_set(
            e, STATUS_NO_MEMORY,
            "out of memory: a row and the one that it is compared with need %s together, "
            "and %s are free; %s",
            figure_bytes(b->bytes).text, figure_bytes(left).text, advice);
    say_changes(r);
    if (b->n_groups > 1)
        say(o,
            "memory: the rows are measured in %d groups, each with those that it is compared with, "
            "as not all fit together",
            b->n_groups);
    if (o->verbose || b->bytes > (uint64_t)1 << 30)
        say(o, "memory: %d rows take %s%s; %s", b->n_rows, figure_bytes(b->bytes).text,
            b->n_groups > 1 ? " at most" : " together", advice);
    /* As every command does: one thread where the first row's model is faster so. */
    if (j->threads_are_auto && *threads > 1)
        TRY(bench_prefers_one_thread(b, &prefers_one, e));
    if (prefers_one) {
        say_verbose(o, "threads: 1, as %d are slower for this model here", *threads);
        *threads = 1;
        bench_free(b);
        TRY(bench_plan(spec, b, e));
    }
    struct progress *p = job_progress(j, "rows");
    struct err *said =
        mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED)
        return err_no_memory(e, "what the process that measures memory says", sizeof *said);
    enum status s = STATUS_OK;
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++) {
        progress_show(p, i, b->n_rows);
        s = signals_interrupted() ? STATUS_INTERRUPTED : measure_memory(b, i, said, e);
    }
    munmap(said, sizeof *said);
    if (s != STATUS_OK)
        return s;
    job_progress(j, "repeats of rows");
    s = bench_run(b, e);
    progress_end(&j->progress);
    if (s != STATUS_OK && (s != STATUS_INTERRUPTED || b->n_rows == 0))
        return s;
    if (s == STATUS_OK && r->common.file) /* whatever comes of it, the times are shown */
        s = advice_measure(r, e);
    TRY(bench_report(r, e));
    return s;
}

static enum status check_bench(struct job *j, void *values, struct err *e)
{
    const struct bench_run *r = values;
    (void)e;
    if (r->shape.shape)
        j->needs &= ~JOB_PATH;
    if (r->common.file)
        j->needs |= JOB_TEXT;
    return STATUS_OK;
}

static enum status run_bench(struct job *j, void *values, struct err *e)
{
    struct bench_run *r = values;
    r->job = j;
    const enum status specified = specify_bench(r, e);
    const enum status s = specified == STATUS_OK ? measure(r, e) : specified;
    bench_free(&r->bench);
    free(r->advice);
    return specified == STATUS_OK ? job_blame(j->path, s, e) : s;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "per-token latency across attention variants",
    .usage = "(MODEL | --shape SHAPE) [options]",
    .examples = "./decode bench models/shakespeare-mha.gguf --depth 0,255 -n 16\n"
                "./decode bench models/shakespeare-mha.gguf --type f32,q8_0\n"
                "./decode bench models/shakespeare-mha.gguf --text LICENSE --kv-heads 2\n",
    .notes = help_of_bench,
    .spec = {.groups = {{"Random weights of a shape instead of a checkpoint", shape_options,
                         offsetof(VALUES, shape)},
                        {"What is compared (one row for every combination)", matrix_options, 0},
                        {"Measuring", measuring_options, 0},
                        {"Which variant to choose", advice_options, 0},
                        {"Results", result_options, 0},
                        GENERAL_GROUP},
             .everyday = "shape kv-heads depth batch n format text max-loss",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_STOPS,
    .check = check_bench,
    .run = run_bench,
};
