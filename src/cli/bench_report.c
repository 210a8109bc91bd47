#include "cli/bench_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/figures.h"
#include "cli/program.h"
#include "show/paragraph.h"
#include "show/plot.h"

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* Of its threads' time a row gets less only where other work has the processors, too. */
#define LEAST_SHARE 0.65

/* --- columns --------------------------------------------------------------------------------- */

static struct figure figure_percent(double share)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f%%", share * 100);
    return f;
}

#define ROW(member) MEMBER(bench_row, member)
static const struct report_field fields[] = {
    {NULL, "", ROW(shown.best), .accent = ACCENT_ROW},
    {"variant", "variant", ROW(variant)},
    {"n_kv_heads", NULL, ROW(n_kv_heads)},
    {"type", "type", ROW(shown.type), .rank = 1},
    {"kv_type", "KV", ROW(shown.kv_type), .rank = 1},
    {"threads", "threads", ROW(threads), .rank = 1},
    {"depth", "depth", ROW(depth)},
    {"batch", "batch", ROW(batch)},
    {"n", NULL, ROW(shown.n)},
    {"repeats", NULL, ROW(repeats)},
    {"warmup", NULL, ROW(shown.warmup)},
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
    {"weight_bytes", "weights read", ROW(cost.weight_bytes), .figure = figure_bytes, .rank = 9},
    {"kv_bytes", "KV read", ROW(cost.kv_bytes), .figure = figure_bytes, .rank = 7},
    {"flops", NULL, ROW(shown.flops)},
    {"attention_flops", "attention Mflop", ROW(shown.attention_flops), .figure = figure_millions,
     .rank = 9},
    {"gb_per_s", "GB/s", ROW(gb_per_s), "%.1f", .rank = 5},
    {"predicted_us", NULL, ROW(predicted.us)},
    {"limit_tokens_per_s", NULL, ROW(predicted.tokens_per_s)},
    {"share_of_limit", "of limit", ROW(share_of_limit), .figure = figure_percent, .rank = 2},
    {"limited_by", "limited by", ROW(predicted.limited_by), .rank = 6},
    {"prefill_tokens_per_s", "prefill tok/s", ROW(prefill_tokens_per_s), .figure = figure_rate,
     .rank = 10},
    {"load_ms", NULL, ROW(load_ms)},
    {"peak_rss_bytes", "peak RSS", ROW(peak_rss_bytes), .figure = figure_bytes, .rank = 10},
    {"logits_hash", NULL, ROW(shown.hash)},
    {"isa", NULL, ROW(shown.isa)},
    {"noisy", NULL, ROW(shown.noisy)},
    {"cpu_share", NULL, ROW(cpu_share)},
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, ROW(shown.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, ROW(limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, ROW(limits.dot_flops_per_s)},
    /* What joins two runs. */
    {"model", NULL, ROW(shown.model)},
    {"shape", NULL, ROW(shown.shape)},
    {"architecture", NULL, ROW(shown.architecture)},
    {"cpu", NULL, ROW(shown.cpu)},
    {"version", NULL, ROW(shown.version)},
    {"compiler", NULL, ROW(shown.compiler)},
    {"date", NULL, ROW(shown.date)},
    {NULL, "note", ROW(shown.note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS REPORT_LENGTH(fields)

static bool is_batched(const struct bench_spec *spec)
{
    return spec->axes[BENCH_BATCHES].n > 1 || spec->axes[BENCH_BATCHES].items[0] > 1;
}

/* Leaves out what people read of other runs only: of one sequence, of batches, of latent caches,
 * which are short and take more arithmetic (it may be what a step of one waits for). */
static void choose_columns(const struct bench_spec *spec, struct report_field chosen[N_FIELDS])
{
    enum { ONE = 1, BATCHES = 2, LATENT = 4 };
    static const struct {
        const char *heading;
        unsigned of;
    } rules[] = {{"by bytes", ONE},
                 {"batch", BATCHES},
                 {"µs/token", BATCHES},
                 {"predicted", BATCHES},
                 {"limited by", BATCHES | LATENT},
                 {"attention Mflop", LATENT}};
    unsigned run = is_batched(spec) ? BATCHES : ONE;
    run |= config_is_latent(&spec->config) ? LATENT : 0;
    for (int i = 0; i < spec->axes[BENCH_VARIANTS].n; i++)
        run |= spec->axes[BENCH_VARIANTS].items[i] < 0 ? LATENT : 0;
    memcpy(chosen, fields, sizeof fields);
    for (int f = 0; f < N_FIELDS; f++)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if (fields[f].heading && strcmp(fields[f].heading, rules[i].heading) == 0 &&
                !(rules[i].of & run))
                chosen[f].heading = NULL;
}

/* --- around the table ------------------------------------------------------------------------ */

/* The processor's name as the system gives it. */
static void processor_name(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        found = value && strncmp(line, "model name", 10) == 0;
        if (!found)
            continue;
        value += strspn(value, ": \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (f)
        fclose(f);
}

void bench_machine(const struct bench_spec *spec, char line[512])
{
    const struct int_list *list = &spec->axes[BENCH_THREADS];
    char processor[128], threads[256];
    size_t used = 0;
    for (int i = 0; i < list->n && used < sizeof threads; i++)
        used += (size_t)snprintf(threads + used, sizeof threads - used, "%s%d", i ? ", " : "",
                                 list->items[i]);
    processor_name(processor, sizeof processor);
    snprintf(line, 512, "%s, %s, threads %s; decode %s, %s", processor, spec->kernels->name,
             threads, DECODE_VERSION, COMPILER_NAME);
}

/* Of the lines above and below the table, where a terminal breaks them. */
#define INDENT 2

static void print_header(const struct bench_report *r, struct output *out)
{
    const struct bench_spec *spec = r->bench->spec;
    const struct config *c = &spec->config;
    struct paragraph p = paragraph_begin(out, INDENT);
    char machine[512], subject[512]; /* a file's name may have control characters */
    bench_machine(spec, machine);
    snprintf(subject, sizeof subject, "%s", r->subject);
    utf8_strip(subject);
    paragraph_printf(&p,
                     "%s: %d layer%s, d_model %d, %d head%s of %d, d_ff %d, vocabulary %d, "
                     "context %d\n%s\n",
                     subject, c->n_layers, plural((uint64_t)c->n_layers), c->d_model, c->n_heads,
                     plural((uint64_t)c->n_heads), c->head_dim, c->d_ff, c->n_vocab, c->n_ctx,
                     machine);
    /* The limits of each number of threads: a bandwidth for each class of working sets. */
    for (int i = 0; i < r->bench->n_machines; i++) {
        const struct machine *m = &r->bench->machines[i];
        const int threads = spec->axes[BENCH_THREADS].items[i];
        struct machine_class classes[MACHINE_POWERS];
        const int n = machine_classes(m, classes);
        paragraph_puts(&p, "roofline");
        if (r->bench->n_machines > 1)
            paragraph_printf(&p, " of %d thread%s", threads, plural((uint64_t)threads));
        for (int k = 0; k < n; k++) {
            paragraph_printf(&p, "%s %.1f GB/s of %s", k ? "," : ": reads",
                             classes[k].bytes_per_s / 1e9,
                             figure_bytes((double)classes[k].from).text);
            if (classes[k].to > classes[k].from)
                paragraph_printf(&p, " to %s", figure_bytes((double)classes[k].to).text);
        }
        paragraph_printf(&p, "; multiplies %.0f GFLOP/s, with quantised weights %.0f\n",
                         m->fma_flops_per_s / 1e9, m->dot_flops_per_s / 1e9);
    }
    paragraph_printf(&p,
                     "%d repeat%s of %d step%s, each at exactly its depth, after %d warm-up "
                     "step%s; the rows take turns\n\n",
                     spec->repeats, plural((uint64_t)spec->repeats), spec->n,
                     plural((uint64_t)spec->n), spec->warmup, plural((uint64_t)spec->warmup));
    paragraph_end(&p);
}

/* What the columns' names leave open. */
static void print_footer(const struct bench *b, struct output *out)
{
    const struct int_list *depths = &b->spec->axes[BENCH_DEPTHS];
    struct paragraph p = paragraph_begin(out, INDENT);
    bool noisy = false;
    for (int i = 0; i < b->n_rows; i++)
        noisy |= b->rows[i].shown.noisy;
    paragraph_puts(
        &p, is_batched(b->spec)
                ? "\n* fastest at its depth and batch; p50 and p99 of a step, KV read of each "
                  "sequence;\vspeed-up over MHA at the same batch, measured and predicted\n"
                : "\n* fastest at its depth; speed-up over MHA, measured and by bytes read\n");
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

/* --- the files ------------------------------------------------------------------------------- */

static enum status write_trace(const struct bench *b, const char *path, struct err *e)
{
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    static const char header[] = "variant,type,kv_type,threads,depth,batch,repeat,index,ns\n";
    file_writer_put(w, header, sizeof header - 1);
    for (const struct bench_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        for (int k = 0; k < r->samples; k++) {
            char line[160];
            const int len =
                snprintf(line, sizeof line, "%s,%s,%s,%d,%d,%d,%d,%d,%" PRIu64 "\n", r->variant,
                         r->shown.type, r->shown.kv_type, r->threads, r->depth, r->batch,
                         k / b->spec->n, k % b->spec->n, r->times_ns[k]);
            file_writer_put(w, line, (size_t)len);
        }
    }
    return file_writer_commit(w, e);
}

/* Microseconds a token, a step's divided by its tokens, against depth or batch. A series is a line
 * of which something was measured. */
static enum status write_plot(const struct bench_report *r, struct err *e)
{
    const struct bench *b = r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    const size_t n_rows = (size_t)b->n_rows, n_lines = (size_t)b->n_lines;
    char machine[512], label[64] = "depth (tokens in the KV cache)";
    struct plot_point *points = calloc(n_rows, sizeof *points), *p = points;
    struct plot_series *series = calloc(n_lines, sizeof *series);
    struct plot plot = {.title = r->subject,
                        .subtitle = machine,
                        .x_label = label,
                        .x_doubles = over_batch,
                        .y_label = "latency (µs per token)",
                        .mid_label = "median",
                        .band_label = "p10 to p90",
                        .predicted_label = "limit by measured bandwidth and arithmetic",
                        .series = series};
    enum status s = STATUS_OK;
    if (!points || !series)
        s = err_no_memory(e, "the plot", n_rows * sizeof *points);
    bench_machine(b->spec, machine);
    if (over_batch)
        snprintf(label, sizeof label, "batch (sequences in a step, each at depth %d)",
                 b->spec->axes[BENCH_DEPTHS].items[0]);
    for (int line = 0; line < b->n_lines && s == STATUS_OK; line++) {
        struct plot_series *of = &series[plot.n_series];
        *of = (struct plot_series){.points = p};
        for (int i = 0; i < b->n_rows; i++) {
            const struct bench_row *row = &b->rows[i];
            const double batch = row->batch;
            if (row->line != line)
                continue;
            of->name = row->shown.line;
            *p++ = (struct plot_point){over_batch ? batch : row->depth, row->p10_us / batch,
                                       row->us_per_token, row->p90_us / batch,
                                       row->predicted.us / batch};
            of->n_points++;
        }
        plot.n_series += of->n_points > 0;
    }
    if (s == STATUS_OK)
        s = plot_write(&plot, r->plot, e);
    free(points);
    free(series);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* A line of the plot: "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_spec *spec, struct bench_row *row)
{
    char parts[BENCH_AXES][40];
    const int size = sizeof *parts;
    snprintf(parts[BENCH_TYPES], size, " %s", row->shown.type);
    snprintf(parts[BENCH_KV_TYPES], size, ", %s KV", row->shown.kv_type);
    snprintf(parts[BENCH_THREADS], size, ", %d threads", row->threads);
    snprintf(parts[BENCH_BATCHES], size, ", batch %d", row->batch);
    char *name = row->shown.line;
    const size_t room = sizeof row->shown.line;
    size_t used = (size_t)snprintf(name, room, "%s", row->variant);
    for (int a = BENCH_AXES - 1; a > BENCH_VARIANTS && used < room; a--)
        if (spec->axes[a].n > 1 && a != BENCH_DEPTHS && a != (int)bench_x_axis(spec))
            used += (size_t)snprintf(name + used, room - used, "%s", parts[a]);
}

/* What the columns show beside the figures. */
static void fill_in(const struct bench_report *r, const char *cpu)
{
    const struct bench_spec *spec = r->bench->spec;
    const time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    struct bench_row *rows = r->bench->rows, *end = rows + r->bench->n_rows;
    for (struct bench_row *row = rows; row < end; row++) {
        struct bench_shown *s = &row->shown;
        *s = (struct bench_shown){.best = "*",
                                  .type = storage_name(row->type),
                                  .kv_type = storage_name(row->kv_type),
                                  .isa = spec->kernels->name,
                                  .model = spec->gguf ? r->subject : NULL,
                                  .shape = spec->gguf ? NULL : r->subject,
                                  .architecture = spec->config.arch->name,
                                  .version = DECODE_VERSION,
                                  .compiler = COMPILER_NAME,
                                  .cpu = cpu,
                                  .n = spec->n,
                                  .warmup = spec->warmup,
                                  .flops = cost_step_flops(&row->cost, row->batch),
                                  .attention_flops =
                                      (uint64_t)row->batch * row->cost.flops.attention,
                                  .bandwidth_gb_per_s = row->limits.bytes_per_s / 1e9,
                                  .noisy = row->spread > NOISY || row->cpu_share < LEAST_SHARE};
        for (const struct bench_row *other = rows; other < end; other++)
            if (other->depth == row->depth && other->batch == row->batch &&
                other->p50_us < row->p50_us)
                s->best = "";
        name_line(spec, row);
        snprintf(s->hash, sizeof s->hash, "%016" PRIx64, row->logits_hash);
        strftime(s->date, sizeof s->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
        if (row->repeats < spec->repeats)
            snprintf(s->note, sizeof s->note, "%d of %d repeats", row->repeats, spec->repeats);
        else if (row->cpu_share < LEAST_SHARE)
            snprintf(s->note, sizeof s->note, "busy: %.0f%%", row->cpu_share * 100);
        else if (s->noisy)
            snprintf(s->note, sizeof s->note, "noisy: %.0f%%", row->spread * 100);
    }
}

enum status bench_print(const struct bench_report *r, struct output *out, struct err *e)
{
    const struct bench *b = r->bench;
    const bool people = table_is_for_people(r->format);
    struct report_field chosen[N_FIELDS];
    const struct table table = TABLE_OF(chosen, b->rows, b->n_rows);
    char cpu[128];
    processor_name(cpu, sizeof cpu);
    fill_in(r, cpu);
    choose_columns(b->spec, chosen);
    if (people)
        print_header(r, out);
    TRY(table_print(&table, r->format, out, e));
    if (people)
        print_footer(b, out);
    if (r->trace)
        TRY(write_trace(b, r->trace, e));
    return r->plot ? write_plot(r, e) : STATUS_OK;
}
