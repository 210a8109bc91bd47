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
#include "cli/head_choice.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/shape.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/variant.h"
#include "compute/pool.h"
#include "model/checkpoint.h"

#define DEFAULT_PROMPT   128
#define ROOFLINE_SECONDS 1.0

struct bench_options {
    struct common_options common;
    struct shape_options shape;
    const char *kv_heads, *latent, *depths, *batches, *types, *kv_types;
    struct bench_spec spec; /* its numbers; specify_bench adds the rest */
    int method;             /* an enum convert_method */
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
    OPT_CHOICE("method", method, "METHOD", convert_methods,
               "how a checkpoint's variants are made, see decode convert; as fast, whichever it is",
               .fallback = "mean"),
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
    OPT_STRING("without", common.without, "L.H,...", WITHOUT_HELP),
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
    OPT_COLUMNS,
    OPT_STRING("plot", plot, "FILE.svg",
               "draw latency against depth, or, of several batches at one depth, against batch; a "
               "line for each variant",
               .writes = WRITES_FILE),
    OPT_STRING("trace", trace, "FILE.csv", "write every single token's time",
               .writes = WRITES_FILE),
    OPT_END,
};

/* --- from options to a specification --------------------------------------------------------- */

/* What the specification borrows. */
struct bench_inputs {
    struct checkpoint checkpoint;
    struct int_list kv_heads, depths, batches, types, kv_types, threads;
    bool threads_are_auto;
    const char *subject;
    struct variant_file converted[LIST_MAX]; /* by kv_heads, of --method; [0, kv_heads.n) */
    const struct gguf *variants[LIST_MAX];
    unsigned char *off; /* malloc'd, of --without; NULL: not given */
    struct head_ablation without;
    struct progress progress;
};

static enum status all_divisors(int n, struct int_list *list, struct err *e)
{
    for (int g = n; g >= 1; g--)
        if (n % g == 0)
            TRY(list_add("--kv-heads", g, list, e));
    return STATUS_OK;
}

/* A row says what ran: more threads than processors are never started, so such a row would be one
 * of fewer. */
static enum status read_thread_list(const struct bench_options *o, struct bench_inputs *in,
                                    struct err *e)
{
    const char *source = o->common.threads ? "-t" : "DECODE_THREADS";
    const char *text = o->common.threads ? o->common.threads : environment("DECODE_THREADS");
    const int usable = cpus_usable(), most = usable < POOL_MAX_THREADS ? usable : POOL_MAX_THREADS;
    struct int_list asked = {.n = 0};
    in->threads_are_auto = !text || strcmp(text, "auto") == 0;
    if (in->threads_are_auto)
        return list_add(source, most, &in->threads, e);
    TRY(list_ints(source, text, 1, POOL_MAX_THREADS, &asked, e));
    for (int i = 0; i < asked.n; i++) {
        const int n = asked.items[i] < most ? asked.items[i] : most;
        bool again = false;
        for (int k = 0; k < in->threads.n; k++)
            again |= in->threads.items[k] == n;
        if (n < asked.items[i])
            say(&o->common, "%s %d: this process has %d processor%s: %s", source, asked.items[i],
                most, plural((uint64_t)most), again ? "left out" : "measured with as many threads");
        if (!again)
            TRY(list_add(source, n, &in->threads, e));
    }
    return STATUS_OK;
}

static enum status read_types(const struct bench_options *o, struct bench_inputs *in, struct err *e)
{
    if (o->types)
        TRY(list_names("--type", o->types, storage_names, &in->types, e));
    else
        TRY(list_add("--type", o->shape.shape ? STORAGE_F32 : BENCH_AS_FILE, &in->types, e));
    TRY(list_names("--kv-type", o->kv_types, kv_type_names, &in->kv_types, e));
    for (int i = 0; i < in->kv_types.n; i++)
        in->kv_types.items[i] = (int)kv_type_storage[in->kv_types.items[i]];
    return STATUS_OK;
}

/* As the negative numbers that they are among K/V heads. */
static enum status read_ranks(const char *text, struct int_list *list, struct err *e)
{
    struct int_list ranks = {.n = 0};
    TRY(list_ints("--latent", text, 1, CONFIG_MAX_WIDTH, &ranks, e));
    for (int i = 0; i < ranks.n; i++)
        TRY(list_add("--latent", -ranks.items[i], list, e));
    return STATUS_OK;
}

/* The context is what people ask for who want to know what it costs full. */
static enum status read_depths(const struct bench_options *o, const struct config *c,
                               struct int_list *list, struct err *e)
{
    struct int_list depths = {.n = 0};
    TRY(list_ints("--depth", o->depths, 0, INT_MAX, &depths, e));
    for (int i = 0; i < depths.n; i++) {
        const bool full = depths.items[i] == c->n_ctx;
        if (full)
            say(&o->common,
                "--depth %d fills the context: measured at %d, with the last token's "
                "place left",
                c->n_ctx, c->n_ctx - 1);
        TRY(list_add("--depth", depths.items[i] - full, list, e));
    }
    return STATUS_OK;
}

static enum status read_lists(const struct bench_options *o, const struct config *c,
                              struct bench_inputs *in, struct err *e)
{
    if (strcmp(o->kv_heads, "all") == 0)
        TRY(all_divisors(c->n_kv_heads, &in->kv_heads, e));
    else
        TRY(list_heads("--kv-heads", o->kv_heads, c->n_heads, &in->kv_heads, e));
    if (o->latent)
        TRY(read_ranks(o->latent, &in->kv_heads, e));
    TRY(read_depths(o, c, &in->depths, e));
    TRY(list_ints("--batch", o->batches, 1, INT_MAX, &in->batches, e));
    TRY(read_types(o, in, e));
    return read_thread_list(o, in, e);
}

/* in->subject is the checkpoint's path, or NULL. */
static enum status read_subject(const struct bench_options *o, struct bench_inputs *in,
                                struct bench_spec *spec, struct err *e)
{
    if (o->shape.shape) {
        if (o->method != CONVERT_MEAN)
            return err_set(e, STATUS_USAGE,
                           "--method is for a checkpoint; the weights of --shape are random");
        in->subject = o->shape.shape;
        return shape_of_options(&o->shape, &o->common, &spec->config, e);
    }
    TRY(job_open(in->subject, 0, &in->checkpoint, e));
    spec->gguf = in->checkpoint.gguf;
    spec->source = &in->checkpoint.file;
    return job_config(in->subject, &in->checkpoint, &spec->config, e);
}

static enum status specify_bench(const struct bench_options *o, struct bench_inputs *in,
                                 struct bench_spec *spec, struct err *e)
{
    TRY(read_subject(o, in, spec, e));
    TRY(read_lists(o, &spec->config, in, e));
    if (o->common.without) {
        TRY(heads_of_option("--without", o->common.without, &spec->config, &in->off, e));
        in->without.off = in->off;
        spec->without = &in->without;
    }
    TRY(job_choose_kernels(&o->common, &spec->kernels, e));
    spec->kv_heads = (struct bench_list){in->kv_heads.items, in->kv_heads.n};
    spec->types = (struct bench_list){in->types.items, in->types.n};
    spec->kv_types = (struct bench_list){in->kv_types.items, in->kv_types.n};
    spec->threads = (struct bench_list){in->threads.items, in->threads.n};
    spec->depths = (struct bench_list){in->depths.items, in->depths.n};
    spec->batches = (struct bench_list){in->batches.items, in->batches.n};
    if (spec->prompt < 0)
        spec->prompt = spec->config.n_ctx < DEFAULT_PROMPT ? spec->config.n_ctx : DEFAULT_PROMPT;
    spec->roofline_seconds = ROOFLINE_SECONDS;
    spec->seed = 1;
    spec->stop = progress_stop;
    spec->progress = progress_show;
    spec->arg = &in->progress;
    return STATUS_OK;
}

/* Converts the checkpoint to each variant, unless averaging while loading does. */
static enum status convert_variants(const struct bench_options *o, struct bench_inputs *in,
                                    struct bench_spec *spec, struct err *e)
{
    if (!spec->gguf || o->method == CONVERT_MEAN)
        return STATUS_OK;
    const struct variant_source source = {.common = &o->common,
                                          .path = in->subject,
                                          .checkpoint = &in->checkpoint,
                                          .kernels = spec->kernels,
                                          .seed = spec->seed};
    spec->converted = in->variants;
    for (int i = 0; i < in->kv_heads.n; i++) {
        char heads[16];
        snprintf(heads, sizeof heads, "%d", in->kv_heads.items[i]);
        const struct variant_options v = {.kv_heads = heads, .method = o->method};
        if (in->kv_heads.items[i] > 0 && in->kv_heads.items[i] != spec->config.n_kv_heads)
            TRY(variant_file_create(&v, &source, &in->converted[i], e));
        in->variants[i] = in->converted[i].gguf;
    }
    return STATUS_OK;
}

/* --- load time and peak memory of a row, in a process of its own ----------------------------- */

/* What the process leaves in memory that both see. */
struct child_answer {
    bool complete;
    enum status status;
    struct err err;
    struct bench_row row;
};

static enum status take_answer(pid_t pid, const struct child_answer *a, struct bench_row *row,
                               struct err *e)
{
    struct rusage usage = {0};
    int ended = 0;
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
    row->load_ms = a->row.load_ms;
    row->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (a->status != STATUS_OK)
        *e = a->err;
    return a->status;
}

/* Before threads are started. What the caller has resident counts, too. */
static enum status measure_in_child(const struct bench_spec *spec, struct bench_row *row,
                                    struct err *e)
{
    struct child_answer *a =
        mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED)
        return err_no_memory(e, "the answer of the process that measures memory", sizeof *a);
    a->row = *row;
    const pid_t pid = fork();
    if (pid == 0) {
        a->status = bench_load_row(spec, &a->row, &a->err);
        a->complete = true;
        _exit(STATUS_OK); /* nothing of the parent's is closed or flushed on the way out */
    }
    const enum status s =
        pid > 0 ? take_answer(pid, a, row, e)
                : err_set(e, STATUS_FAILED, "cannot start a process to measure memory: %s",
                          strerror(errno));
    munmap(a, sizeof *a);
    return s;
}

static enum status measure_in_children(const struct bench_options *o, const struct bench_spec *spec,
                                       struct bench *b, struct err *e)
{
    struct progress p = progress_start(&o->common, "rows");
    enum status s = STATUS_OK;
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++) {
        progress_show(&p, (uint64_t)i, (uint64_t)b->n_rows);
        s = signals_interrupted() ? STATUS_INTERRUPTED : measure_in_child(spec, &b->rows[i], e);
    }
    progress_end(&p);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status report_rows(const struct bench_options *o, const struct bench_report *r,
                               struct output *out, struct err *e)
{
    char machine[512];
    if (!table_is_for_people((enum table_format)o->common.format)) {
        bench_machine(r, machine, sizeof machine);
        say(&o->common, "%s: %s", r->subject, machine);
    }
    TRY(bench_print(r, (enum table_format)o->common.format, out, e));
    if (o->trace)
        TRY(bench_write_trace(r, o->trace, e));
    if (o->plot)
        TRY(bench_write_plot(r, o->plot, e));
    return STATUS_OK;
}

static bool has_samples(const struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].samples > 0)
            return true;
    return false;
}

/* Before anything is taken: a cache that goes to swap measures a disk, and one that no memory backs
 * ends the process. */
static enum status check_bench_memory(const struct bench_options *o, const struct bench_spec *spec,
                                      const struct bench *b, struct err *e)
{
    const uint64_t needed = bench_memory(spec, b), left = available_memory();
    if (needed > left)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %d rows need %s together, and %s are free; fewer or smaller "
                       "--batch, --depth, --kv-heads, --type need less",
                       b->n_rows, figure_bytes((double)needed).text,
                       figure_bytes((double)left).text);
    if (o->common.verbose || needed > (uint64_t)1 << 30)
        say(&o->common,
            "memory: %d rows take %s together; fewer or smaller --batch, --depth, --kv-heads, "
            "--type take less",
            b->n_rows, figure_bytes((double)needed).text);
    return STATUS_OK;
}

/* As every command does: one thread where the first row's model is faster so. */
static enum status choose_threads(const struct bench_options *o, struct bench_inputs *in,
                                  const struct bench_spec *spec, struct bench *b, struct err *e)
{
    int *threads = &in->threads.items[0];
    bool prefers_one = false;
    if (in->threads_are_auto && *threads > 1)
        TRY(bench_prefers_one_thread(spec, &b->rows[0], &prefers_one, e));
    if (!prefers_one)
        return STATUS_OK;
    say_verbose(&o->common, "threads: 1, as %d are slower for this model here", *threads);
    *threads = 1;
    bench_free(b);
    return bench_plan(spec, b, e);
}

static enum status measure_rows(const struct bench_options *o, struct bench_inputs *in,
                                const struct bench_spec *spec, struct output *out, struct err *e)
{
    struct bench b;
    TRY(bench_plan(spec, &b, e));
    enum status s = check_bench_memory(o, spec, &b, e);
    if (s == STATUS_OK)
        s = choose_threads(o, in, spec, &b, e);
    if (s == STATUS_OK)
        s = measure_in_children(o, spec, &b, e);
    in->progress = progress_start(&o->common, "turns");
    if (s == STATUS_OK)
        s = bench_run(spec, &b, e);
    progress_end(&in->progress);
    if (s == STATUS_OK || (s == STATUS_INTERRUPTED && has_samples(&b))) {
        const struct bench_report r = {spec, &b, in->subject, o->common.columns};
        const enum status reported = report_rows(o, &r, out, e);
        s = reported == STATUS_OK ? s : reported;
    }
    bench_free(&b);
    return s;
}

static enum status prepare_and_bench(const struct bench_options *o, struct bench_inputs *in,
                                     struct output *out, struct err *e)
{
    struct bench_spec spec = o->spec;
    TRY(specify_bench(o, in, &spec, e));
    TRY(convert_variants(o, in, &spec, e));
    const enum status s = measure_rows(o, in, &spec, out, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, in->subject);
    return s;
}

static enum status check_bench(struct job *j, void *values, struct err *e)
{
    const struct bench_options *o = values;
    (void)e;
    if (o->shape.shape)
        j->needs &= ~(unsigned)JOB_PATH;
    return STATUS_OK;
}

static enum status run_bench(struct job *j, void *values, struct err *e)
{
    const struct bench_options *o = values;
    struct bench_inputs in = {.subject = j->path};
    const enum status s = prepare_and_bench(o, &in, j->out, e);
    for (int i = 0; i < in.kv_heads.n; i++)
        variant_file_free(&in.converted[i]);
    checkpoint_close(&in.checkpoint);
    free(in.off);
    return s;
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
        "of a checkpoint average its K/V heads, or are converted by --method (then peak RSS\n"
        "counts the converted file, too).\n"
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
    .tables = bench_tables,
    .run = run_bench,
};
