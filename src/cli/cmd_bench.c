/*
 * cmd_bench - decode bench: per-token latency across attention variants.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "cli/job.h"
#include "cli/program.h"
#include "cli/shape.h"
#include "cli/signals.h"
#include "measure/bench.h"
#include "show/paragraph.h"
#include "show/plot.h"

#define DEFAULT_PROMPT   128
#define ROOFLINE_SECONDS 1.0
/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* Of its threads' time a row gets less only where other work has the processors, too. */
#define LEAST_SHARE 0.65

/* The options; the run; and what is printed of one row beside it. */
struct bench_run {
    struct common_options common;
    struct shape_options shape;
    const char *kv_heads, *latent, *depths, *batches, *types, *kv_types;
    struct bench_spec spec; /* its numbers; specify_bench adds the rest */
    const char *plot, *trace;

    struct job *job;
    struct bench bench;
    const char *subject;         /* the checkpoint's path, or the shape as given */
    const char *model;           /* the path; NULL: a shape */
    char cpu[128], machine[512]; /* the processor's name; it, threads and what they run */
    const char *isa, *architecture, *version, *compiler;
    char date[24];

    struct bench_row row;
    const char *best; /* "*": of the lowest median at its depth and batch; or "" */
    const char *type;
    bool noisy;
    char hash[20], note[64];
};

#define VALUES struct bench_run

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
static enum status read_threads(struct bench_run *r, struct err *e)
{
    const char *source = r->common.threads ? "-t" : "DECODE_THREADS";
    const char *text = r->common.threads ? r->common.threads : environment("DECODE_THREADS");
    const int usable = cpus_usable(), most = usable < POOL_MAX_THREADS ? usable : POOL_MAX_THREADS;
    struct int_list asked = {.n = 0}, *threads = &r->spec.axes[BENCH_THREADS];
    bool has_most = false;
    r->job->threads_are_auto = !text || strcmp(text, "auto") == 0;
    if (r->job->threads_are_auto)
        return list_add(source, most, threads, e);
    TRY(list_ints(source, text, 1, POOL_MAX_THREADS, &asked, e));
    for (int i = 0; i < asked.n; i++) {
        const int n = asked.items[i];
        if (n > most)
            say(&r->common, "%s %d: this process has %d processors, measured with as many", source,
                n, most);
        if (n < most || !has_most)
            TRY(list_add(source, n < most ? n : most, threads, e));
        has_most |= n >= most;
    }
    return STATUS_OK;
}

/* What rows differ in but threads, of a config that is known. */
static enum status read_axes(struct bench_run *r, struct err *e)
{
    const struct config *c = &r->spec.config;
    struct int_list *axes = r->spec.axes, *variants = &axes[BENCH_VARIANTS], ranks = {.n = 0},
                    depths = {.n = 0};
    const bool all = strcmp(r->kv_heads, "all") == 0;
    if (!all)
        TRY(list_heads("--kv-heads", r->kv_heads, c->n_heads, variants, e));
    for (int g = c->n_kv_heads; g >= 1 && all; g--)
        if (c->n_kv_heads % g == 0 && config_has_variant(c, g))
            TRY(list_add("--kv-heads", g, variants, e));
    /* Ranks are the negative numbers that they are among K/V heads. */
    if (r->latent)
        TRY(list_ints("--latent", r->latent, 1, CONFIG_MAX_WIDTH, &ranks, e));
    for (int i = 0; i < ranks.n; i++)
        TRY(list_add("--latent", -ranks.items[i], variants, e));
    /* The context is what people ask for who want to know what it costs full. */
    TRY(list_ints("--depth", r->depths, 0, INT_MAX, &depths, e));
    for (int i = 0; i < depths.n; i++) {
        const bool full = depths.items[i] == c->n_ctx;
        if (full)
            say(&r->common,
                "--depth %d fills the context: measured at %d, with the last token's place left",
                c->n_ctx, c->n_ctx - 1);
        TRY(list_add("--depth", depths.items[i] - full, &axes[BENCH_DEPTHS], e));
    }
    TRY(list_ints("--batch", r->batches, 1, INT_MAX, &axes[BENCH_BATCHES], e));
    TRY(r->types ? list_names("--type", r->types, storage_names, &axes[BENCH_TYPES], e)
                 : list_add("--type", r->shape.shape ? STORAGE_F32 : BENCH_AS_FILE,
                            &axes[BENCH_TYPES], e));
    TRY(list_names("--kv-type", r->kv_types, kv_type_names, &axes[BENCH_KV_TYPES], e));
    for (int i = 0; i < axes[BENCH_KV_TYPES].n; i++)
        axes[BENCH_KV_TYPES].items[i] = (int)kv_type_storage[axes[BENCH_KV_TYPES].items[i]];
    return STATUS_OK;
}

static enum status specify_bench(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    struct bench_spec *spec = &r->spec;
    if (r->shape.shape) {
        TRY(shape_of_options(&r->shape, &r->common, &spec->config, e));
    } else {
        TRY(job_open(j->path, 0, &j->checkpoint, e));
        TRY(job_config(j->path, &j->checkpoint, &spec->config, e));
        spec->gguf = j->checkpoint.gguf;
        spec->source = &j->checkpoint.file;
        r->model = j->path;
    }
    r->subject = r->model ? r->model : r->shape.shape;
    TRY(read_axes(r, e));
    TRY(read_threads(r, e));
    TRY(job_choose_kernels(&r->common, &spec->kernels, e));
    if (spec->prompt < 0)
        spec->prompt = spec->config.n_ctx < DEFAULT_PROMPT ? spec->config.n_ctx : DEFAULT_PROMPT;
    spec->roofline_seconds = ROOFLINE_SECONDS;
    spec->stop = progress_stop;
    spec->progress = progress_show;
    spec->arg = &j->progress;
    return STATUS_OK;
}

/* --- the table ------------------------------------------------------------------------------- */

static struct figure figure_percent(double share)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f%%", share * 100);
    return f;
}

#define RUN(member) MEMBER(bench_run, member)
#define ROW(member) MEMBER(bench_run, row.member)
static const struct report_field bench_fields[] = {
    {NULL, "", RUN(best), .accent = ACCENT_ROW},
    {"variant", "variant", ROW(step.variant)},
    {"n_kv_heads", NULL, ROW(step.n_kv_heads)},
    {"type", "type", RUN(type), .rank = 1},
    {"kv_type", "KV", ROW(step.kv_type), .rank = 1},
    {"threads", "threads", ROW(threads), .rank = 1},
    {"depth", "depth", ROW(step.depth)},
    {"batch", "batch", ROW(step.batch)},
    {"n", NULL, RUN(spec.n)},
    {"repeats", NULL, ROW(repeats)},
    {"warmup", NULL, RUN(spec.warmup)},
    {"p10_us", NULL, ROW(p10_us)},
    {"p50_us", "p50 µs", ROW(p50_us), "%.1f"},
    {"p90_us", NULL, ROW(p90_us)},
    {"p99_us", "p99 µs", ROW(p99_us), "%.1f", .rank = 8},
    {"max_us", NULL, ROW(max_us)},
    {"mean_us", NULL, ROW(mean_us)},
    {"us_per_token", "µs/token", ROW(us_per_token), "%.1f", .rank = 4},
    {"tokens_per_s", "tokens/s", ROW(tokens_per_s), .figure = figure_rate, .rank = 3},
    {"speedup", "speed-up", ROW(speedup), "%.2fx"},
    {"predicted_speedup", "by bytes", ROW(predicted_speedup), "%.2fx", .rank = 4},
    {NULL, "predicted", ROW(predicted_speedup), "%.2fx", .rank = 4},
    {"weight_bytes", "weights read", ROW(step.cost.weight_bytes), .figure = figure_bytes,
     .rank = 9},
    {"kv_bytes", "KV read", ROW(step.cost.kv_bytes), .figure = figure_bytes, .rank = 7},
    {"flops", NULL, ROW(step.flops)},
    {"attention_flops", "attention Mflop", ROW(step.attention_flops), .figure = figure_millions,
     .rank = 9},
    {"gb_per_s", "GB/s", ROW(gb_per_s), "%.1f", .rank = 5},
    {"predicted_us", NULL, ROW(step.predicted.us)},
    {"limit_tokens_per_s", NULL, ROW(step.predicted.tokens_per_s)},
    {"share_of_limit", "of limit", ROW(share_of_limit), .figure = figure_percent, .rank = 2},
    {"limited_by", "limited by", ROW(step.predicted.limited_by), .rank = 6},
    {"prefill_tokens_per_s", "prefill tok/s", ROW(prefill_tokens_per_s), .figure = figure_rate,
     .rank = 10},
    {"load_ms", NULL, ROW(load_ms)},
    {"peak_rss_bytes", "peak RSS", ROW(peak_rss_bytes), .figure = figure_bytes, .rank = 10},
    {"logits_hash", NULL, RUN(hash)},
    {"isa", NULL, RUN(isa)},
    {"noisy", NULL, RUN(noisy)},
    {"cpu_share", NULL, ROW(cpu_share)},
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, ROW(step.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, ROW(step.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, ROW(step.limits.dot_flops_per_s)},
    /* What joins two runs. */
    {"model", NULL, RUN(model)},
    {"shape", NULL, RUN(shape.shape)},
    {"architecture", NULL, RUN(architecture)},
    {"cpu", NULL, RUN(cpu)},
    {"version", NULL, RUN(version)},
    {"compiler", NULL, RUN(compiler)},
    {"date", NULL, RUN(date)},
    {NULL, "note", RUN(note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS REPORT_LENGTH(bench_fields)

static bool is_noisy(const struct bench_row *row)
{
    return row->spread > NOISY || row->cpu_share < LEAST_SHARE;
}

static const void *next_row(void *arg, int i)
{
    struct bench_run *r = arg;
    const struct bench *b = &r->bench;
    const struct bench_row *row = &b->rows[i];
    if (i >= b->n_rows)
        return NULL;
    r->row = *row;
    r->best = "*";
    for (const struct bench_row *other = b->rows; other < b->rows + b->n_rows; other++)
        if (other->step.depth == row->step.depth && other->step.batch == row->step.batch &&
            other->p50_us < row->p50_us)
            r->best = "";
    r->type = storage_name(row->type);
    r->noisy = is_noisy(row);
    snprintf(r->hash, sizeof r->hash, "%016" PRIx64, row->logits_hash);
    r->note[0] = 0;
    if (row->repeats < r->spec.repeats)
        snprintf(r->note, sizeof r->note, "%d of %d repeats", row->repeats, r->spec.repeats);
    else if (row->cpu_share < LEAST_SHARE)
        snprintf(r->note, sizeof r->note, "busy: %.0f%%", row->cpu_share * 100);
    else if (r->noisy)
        snprintf(r->note, sizeof r->note, "noisy: %.0f%%", row->spread * 100);
    return r;
}

static enum status print_table(struct bench_run *r, struct err *e)
{
    /* People are not shown what says something of other runs only: of one sequence, of batches, of
     * latent caches, which are short and take more arithmetic. */
    enum { ONE, BATCHES, LATENT, RUNS };
    static const char *const hidden[RUNS][6] = {
        [ONE] = {"batch", "µs/token", "predicted", "limited by", "attention Mflop"},
        [BATCHES] = {"by bytes", "attention Mflop"},
        [LATENT] = {"batch", "µs/token", "predicted"}};
    const struct int_list *variants = &r->spec.axes[BENCH_VARIANTS];
    const time_t now = time(NULL);
    struct tm utc = {0};
    struct report_field chosen[N_FIELDS];
    int of = config_is_latent(&r->spec.config) ? LATENT : ONE;
    for (int i = 0; i < variants->n; i++)
        of = variants->items[i] < 0 ? LATENT : of;
    of = r->bench.most_sequences > 1 ? BATCHES : of;
    for (int f = 0; f < N_FIELDS; f++) {
        chosen[f] = bench_fields[f];
        if (chosen[f].heading && names_find(hidden[of], chosen[f].heading) >= 0)
            chosen[f].heading = NULL;
    }
    r->isa = r->spec.kernels->name;
    r->architecture = r->spec.config.arch->name;
    r->version = DECODE_VERSION;
    r->compiler = COMPILER_NAME;
    gmtime_r(&now, &utc);
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return job_print(r->job, &(struct table){chosen, N_FIELDS, .row = next_row, .arg = r}, e);
}

/* --- what else is shown ---------------------------------------------------------------------- */

/* Of the lines above and below the table, where a terminal breaks them. */
#define INDENT 2

static void print_header(const struct bench_run *r)
{
    const struct bench_spec *spec = &r->spec;
    const struct config *c = &spec->config;
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    char subject[512]; /* a file's name may have control characters */
    snprintf(subject, sizeof subject, "%s", r->subject);
    utf8_strip(subject);
    paragraph_printf(&p,
                     "%s: layers %d, d_model %d, heads %d of %d, d_ff %d, vocabulary %d, "
                     "context %d\n%s\n",
                     subject, c->n_layers, c->d_model, c->n_heads, c->head_dim, c->d_ff, c->n_vocab,
                     c->n_ctx, r->machine);
    /* The limits of each number of threads: a bandwidth for each class of working sets. */
    for (int i = 0; i < r->bench.n_machines; i++) {
        const struct machine *m = &r->bench.machines[i];
        const int threads = spec->axes[BENCH_THREADS].items[i];
        const char *comma = ": reads";
        double before = 0;
        paragraph_puts(&p, "roofline");
        if (r->bench.n_machines > 1)
            paragraph_printf(&p, " of %d thread%s", threads, plural((uint64_t)threads));
        for (int power = 0; power < MACHINE_POWERS; power++) {
            const double rate = m->bytes_per_s[power];
            if (rate <= 0 || rate == before)
                continue;
            paragraph_printf(&p, "%s %.1f GB/s from %s", comma, rate / 1e9,
                             figure_bytes(ldexp(1, power)).text);
            before = rate;
            comma = ",";
        }
        paragraph_printf(&p, "; multiplies %.0f GFLOP/s, with quantised weights %.0f\n",
                         m->fma_flops_per_s / 1e9, m->dot_flops_per_s / 1e9);
    }
    paragraph_printf(&p,
                     "%d x %d steps, each at exactly its depth, after %d to warm up; the rows take "
                     "turns\n\n",
                     spec->repeats, spec->n, spec->warmup);
    paragraph_end(&p);
}

/* What the columns' names leave open. */
static void print_footer(const struct bench_run *r)
{
    const struct bench *b = &r->bench;
    const struct int_list *depths = &b->spec->axes[BENCH_DEPTHS];
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    bool noisy = false;
    for (int i = 0; i < b->n_rows; i++)
        noisy |= is_noisy(&b->rows[i]);
    paragraph_puts(&p, "\n* fastest at its depth and number of sequences; p50 and p99 of a step, "
                       "KV read of each sequence;\vspeed-up over MHA, measured and predicted\n");
    paragraph_puts(&p, "of limit: the time at the roofline of a step's bytes and operations, over "
                       "the median\n");
    if (noisy)
        paragraph_puts(&p, "noisy: the repeats' medians differ by so much; busy: so much of the "
                           "processors' time was left\vfor the row by other work; a quieter "
                           "machine says more\n");
    if (depths->n == 1 && depths->items[0] == 0 && b->spec->config.n_ctx > 1)
        paragraph_printf(
            &p, "depth 0: an empty KV cache; --depth 0,%d shows what attention costs as it fills\n",
            b->spec->config.n_ctx - 1);
    paragraph_end(&p);
}

/* Every sample, one CSV line each: the row's setting, repeat, index in it, nanoseconds. */
static enum status write_trace(const struct bench *b, const char *path, struct err *e)
{
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    static const char header[] = "variant,type,kv_type,threads,depth,batch,repeat,index,ns\n";
    file_writer_put(w, header, sizeof header - 1);
    for (const struct bench_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        const struct inspect_step *s = &r->step;
        for (int k = 0; k < r->samples; k++) {
            char line[160];
            const int len =
                snprintf(line, sizeof line, "%s,%s,%s,%d,%d,%d,%d,%d,%" PRIu64 "\n", s->variant,
                         storage_name(r->type), s->kv_type, r->threads, s->depth, s->batch,
                         k / b->spec->n, k % b->spec->n, r->times_ns[k]);
            file_writer_put(w, line, (size_t)len);
        }
    }
    return file_writer_commit(w, e);
}

/* A line of the plot: "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_spec *spec, const struct bench_row *row, char *name,
                      size_t size)
{
    char part[BENCH_AXES][24] = {""};
    snprintf(part[BENCH_TYPES], sizeof *part, " %s", storage_name(row->type));
    snprintf(part[BENCH_KV_TYPES], sizeof *part, ", %s KV", row->step.kv_type);
    snprintf(part[BENCH_THREADS], sizeof *part, ", %d threads", row->threads);
    snprintf(part[BENCH_BATCHES], sizeof *part, ", batch %d", row->step.batch);
    for (int a = 0; a < BENCH_AXES; a++)
        if (spec->axes[a].n == 1 || a == (int)bench_x_axis(spec))
            part[a][0] = 0;
    snprintf(name, size, "%s%s%s%s%s", row->step.variant, part[BENCH_TYPES], part[BENCH_KV_TYPES],
             part[BENCH_THREADS], part[BENCH_BATCHES]);
}

/* Median microseconds a token, a step's divided by its tokens, against depth or batch
 * (bench_x_axis). A series is a line of which something was measured. */
static enum status write_plot(const struct bench_run *r, struct err *e)
{
    const struct bench *b = &r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    const size_t n_rows = (size_t)b->n_rows, n_lines = (size_t)b->n_lines;
    char label[64] = "depth (tokens in the KV cache)";
    struct plot_point *points = calloc(n_rows, sizeof *points), *p = points;
    struct plot_series *series = calloc(n_lines, sizeof *series);
    char(*names)[128] = calloc(n_lines, sizeof *names);
    struct plot plot = {.title = r->subject,
                        .subtitle = r->machine,
                        .x_label = label,
                        .x_doubles = over_batch,
                        .y_label = "latency (µs per token)",
                        .mid_label = "median",
                        .band_label = "p10 to p90",
                        .predicted_label = "limit by measured bandwidth and arithmetic",
                        .series = series};
    enum status s = STATUS_OK;
    if (!points || !series || !names)
        s = err_no_memory(e, "the plot", n_rows * sizeof *points);
    if (over_batch)
        snprintf(label, sizeof label, "batch (sequences in a step, each at depth %d)",
                 b->spec->axes[BENCH_DEPTHS].items[0]);
    for (int line = 0; line < b->n_lines && s == STATUS_OK; line++) {
        struct plot_series *of = &series[plot.n_series];
        *of = (struct plot_series){.name = names[line], .points = p};
        for (const struct bench_row *row = b->rows; row < b->rows + n_rows; row++) {
            const double batch = row->step.batch;
            if (row->line != line)
                continue;
            if (of->n_points++ == 0)
                name_line(b->spec, row, names[line], sizeof names[line]);
            *p++ = (struct plot_point){over_batch ? batch : row->step.depth, row->p10_us / batch,
                                       row->us_per_token, row->p90_us / batch,
                                       row->step.predicted.us / batch};
        }
        plot.n_series += of->n_points > 0;
    }
    if (s == STATUS_OK)
        s = plot_write(&plot, r->plot, e);
    free(points);
    free(series);
    free(names);
    return s;
}

/* The table, and the files. Forms for people begin with a few lines about the machine; the other
 * ones hold the documented keys and nothing else. */
static enum status print_run(struct bench_run *r, struct err *e)
{
    const bool people = table_is_for_people(r->common.format);
    const struct int_list *threads = &r->spec.axes[BENCH_THREADS];
    char line[256];
    snprintf(r->cpu, sizeof r->cpu, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", r->cpu) == 1)
            break;
    if (f)
        fclose(f);
    snprintf(r->machine, sizeof r->machine, "%s, %s, threads %d%s; decode %s, %s", r->cpu,
             r->spec.kernels->name, threads->items[0], threads->n > 1 ? " and other" : "",
             DECODE_VERSION, COMPILER_NAME);
    if (people)
        print_header(r);
    else
        say(&r->common, "%s: %s", r->subject, r->machine);
    TRY(print_table(r, e));
    if (people)
        print_footer(r);
    if (r->trace)
        TRY(write_trace(&r->bench, r->trace, e));
    return r->plot ? write_plot(r, e) : STATUS_OK;
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
        return err_set(e, STATUS_FAILED, "cannot start a process to measure memory: %s",
                       strerror(errno));
    if (pid == 0)
        _exit((int)bench_load_row(b, i, said)); /* nothing of the parent's is closed or flushed */
    while (wait4(pid, &ended, 0, &usage) < 0 && errno == EINTR)
        if (signals_interrupted())
            kill(pid, SIGKILL); /* it has nothing to leave behind */
    if (!WIFEXITED(ended) && signals_interrupted())
        return STATUS_INTERRUPTED;
    if (!WIFEXITED(ended))
        return err_set(e, STATUS_FAILED,
                       "the process that measures memory was ended; was it out of memory?");
    const enum status s = (enum status)WEXITSTATUS(ended);
    if (s == STATUS_BAD_FILE && !said->text[0])
        _exit(STATUS_BAD_FILE); /* a mapped file was cut short: the child has said which */
    b->rows[i].peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    if (s != STATUS_OK)
        *e = *said;
    return s;
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
    TRY(bench_plan(spec, b, e));
    /* Before anything is taken: a cache that goes to swap measures a disk, and one that no memory
     * backs ends the process. */
    const uint64_t left = available_memory();
    const char *advice = "fewer or smaller --batch, --depth, --kv-heads, --type take less";
    if (b->bytes > left)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %d rows need %s together, and %s are free; %s", b->n_rows,
                       figure_bytes((double)b->bytes).text, figure_bytes((double)left).text,
                       advice);
    if (o->verbose || b->bytes > (uint64_t)1 << 30)
        say(o, "memory: %d rows take %s together; %s", b->n_rows,
            figure_bytes((double)b->bytes).text, advice);
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
        progress_show(p, (uint64_t)i, (uint64_t)b->n_rows);
        s = signals_interrupted() ? STATUS_INTERRUPTED : measure_memory(b, i, said, e);
    }
    munmap(said, sizeof *said);
    if (s != STATUS_OK)
        return s;
    job_progress(j, "turns");
    s = bench_run(b, e);
    progress_end(&j->progress);
    if (s != STATUS_OK && (s != STATUS_INTERRUPTED || b->n_rows == 0))
        return s;
    TRY(print_run(r, e));
    return s;
}

static enum status check_bench(struct job *j, void *values, struct err *e)
{
    (void)e;
    if (((const struct bench_run *)values)->shape.shape)
        j->needs &= ~(unsigned)JOB_PATH;
    return STATUS_OK;
}

static enum status run_bench(struct job *j, void *values, struct err *e)
{
    struct bench_run *r = values;
    r->job = j;
    TRY(specify_bench(r, e));
    const enum status s = measure(r, e);
    bench_free(&r->bench);
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
