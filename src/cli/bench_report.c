#include "cli/bench_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/figures.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/columns.h"
#include "cli/version.h"
#include "show/paragraph.h"
#include "show/plot.h"
#include "show/report.h"

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* Of its threads' time a row gets less only where other work has the processors, too. */
#define LEAST_SHARE 0.65

/* --- the machine ----------------------------------------------------------------------------- */

/* The processor's name as the system gives it. */
static void processor_name(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            value += strspn(value, ": \t");
            snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
            break;
        }
    }
    fclose(f);
}

void bench_machine(const struct bench_report *r, char line[512])
{
    const struct int_list *list = &r->spec->axes[BENCH_THREADS];
    char processor[128], threads[256];
    size_t used = 0;
    for (int i = 0; i < list->n && used < sizeof threads; i++)
        used += (size_t)snprintf(threads + used, sizeof threads - used, "%s%d", i ? ", " : "",
                                 list->items[i]);
    processor_name(processor, sizeof processor);
    snprintf(line, 512, "%s, %s, threads %s; decode %s, %s", processor, r->spec->kernels->name,
             threads, DECODE_VERSION, compiler_name());
}

/* Of the lines above and below the table, where a terminal breaks them. */
#define INDENT 2

/* The limits of one number of threads: a bandwidth for each class of working sets. */
static void print_limits(const struct bench_report *r, int at, struct paragraph *p)
{
    const struct machine *m = &r->bench->machines[at];
    const int threads = r->spec->axes[BENCH_THREADS].items[at];
    struct machine_class classes[MACHINE_POWERS];
    const int n = machine_classes(m, classes);
    paragraph_puts(p, "roofline");
    if (r->bench->n_machines > 1)
        paragraph_printf(p, " of %d thread%s", threads, plural((uint64_t)threads));
    for (int i = 0; i < n; i++) {
        const struct machine_class *c = &classes[i];
        paragraph_printf(p, "%s %.1f GB/s of %s", i ? "," : ": reads", c->bytes_per_s / 1e9,
                         figure_bytes((double)c->from).text);
        if (c->to > c->from)
            paragraph_printf(p, " to %s", figure_bytes((double)c->to).text);
    }
    paragraph_printf(p, "; multiplies %.0f GFLOP/s, with quantised weights %.0f\n",
                     m->fma_flops_per_s / 1e9, m->dot_flops_per_s / 1e9);
}

static void print_header(const struct bench_report *r, struct output *out)
{
    const struct config *c = &r->spec->config;
    struct paragraph p = paragraph_begin(out, INDENT);
    char machine[512];
    bench_machine(r, machine);
    char subject[512]; /* a file's name may have control characters */
    snprintf(subject, sizeof subject, "%s", r->subject);
    utf8_strip(subject);
    paragraph_printf(&p,
                     "%s: %d layer%s, d_model %d, %d head%s of %d, d_ff %d, vocabulary %d, "
                     "context %d\n%s\n",
                     subject, c->n_layers, plural((uint64_t)c->n_layers), c->d_model, c->n_heads,
                     plural((uint64_t)c->n_heads), c->head_dim, c->d_ff, c->n_vocab, c->n_ctx,
                     machine);
    for (int i = 0; i < r->bench->n_machines; i++)
        print_limits(r, i, &p);
    paragraph_printf(&p,
                     "%d repeat%s of %d step%s, each at exactly its depth, after %d warm-up "
                     "step%s; the rows take turns\n\n",
                     r->spec->repeats, plural((uint64_t)r->spec->repeats), r->spec->n,
                     plural((uint64_t)r->spec->n), r->spec->warmup,
                     plural((uint64_t)r->spec->warmup));
    paragraph_end(&p);
}

/* --- rows ------------------------------------------------------------------------------------ */

/* A row as it is shown, with what is the same for all. */
struct shown_row {
    struct bench_row row;
    const char *type, *kv_type, *isa;
    int n, warmup;
    uint64_t flops, attention_flops; /* of a step */
    double attention_mflop, bandwidth_gb_per_s;
    bool noisy;
    char hash[20], note[64];
    const char *best;          /* "*" or "" */
    const char *model, *shape; /* NULL: the other one */
    const char *architecture, *version, *compiler;
    char cpu[128], date[24];
    char line[96]; /* of the plot, that it is in */
};

static struct figure figure_percent(double share)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f%%", share * 100);
    return f;
}

/* What people read in another place is in the list twice. */
static const struct report_field fields[] = {
    {NULL, "", MEMBER(shown_row, best), .accent = ACCENT_ROW},
    {"variant", "variant", MEMBER(shown_row, row.variant)},
    {"n_kv_heads", NULL, MEMBER(shown_row, row.n_kv_heads)},
    {"type", "type", MEMBER(shown_row, type), .rank = 7},
    {"kv_type", "KV", MEMBER(shown_row, kv_type), .rank = 7},
    {"threads", "threads", MEMBER(shown_row, row.threads), .rank = 6},
    {"depth", "depth", MEMBER(shown_row, row.depth)},
    {"batch", "batch", MEMBER(shown_row, row.batch)},
    {"n", NULL, MEMBER(shown_row, n)},
    {"repeats", NULL, MEMBER(shown_row, row.repeats)},
    {"warmup", NULL, MEMBER(shown_row, warmup)},
    {"p10_us", NULL, MEMBER(shown_row, row.p10_us)},
    {"p50_us", "p50 µs", MEMBER(shown_row, row.p50_us), "%.1f"},
    {"p90_us", NULL, MEMBER(shown_row, row.p90_us)},
    {"p99_us", "p99 µs", MEMBER(shown_row, row.p99_us), "%.1f", .rank = 8},
    {"max_us", NULL, MEMBER(shown_row, row.max_us)},
    {"mean_us", NULL, MEMBER(shown_row, row.mean_us)},
    {"us_per_token", "µs/token", MEMBER(shown_row, row.us_per_token), "%.1f", .rank = 4},
    {"tokens_per_s", "tokens/s", MEMBER(shown_row, row.tokens_per_s), .figure = figure_rate,
     .rank = 3},
    {NULL, "speed-up", MEMBER(shown_row, row.speedup), "%.2fx"},
    {NULL, "by bytes", MEMBER(shown_row, row.predicted_speedup), "%.2fx", .rank = 4},
    {NULL, "predicted", MEMBER(shown_row, row.predicted_speedup), "%.2fx", .rank = 4},
    {"weight_bytes", "weights read", MEMBER(shown_row, row.cost.weight_bytes),
     .figure = figure_bytes, .rank = 9},
    {"kv_bytes", "KV read", MEMBER(shown_row, row.cost.kv_bytes), .figure = figure_bytes,
     .rank = 7},
    {NULL, "attention Mflop", MEMBER(shown_row, attention_mflop), "%.1f", .rank = 9},
    {"flops", NULL, MEMBER(shown_row, flops)},
    {"gb_per_s", "GB/s", MEMBER(shown_row, row.gb_per_s), "%.1f", .rank = 5},
    {"predicted_us", NULL, MEMBER(shown_row, row.predicted.us)},
    {"speedup", NULL, MEMBER(shown_row, row.speedup)},
    {"predicted_speedup", NULL, MEMBER(shown_row, row.predicted_speedup)},
    {NULL, "of limit", MEMBER(shown_row, row.share_of_limit), .figure = figure_percent, .rank = 2},
    {"limited_by", "limited by", MEMBER(shown_row, row.predicted.limited_by), .rank = 6},
    {"prefill_tokens_per_s", "prefill tok/s", MEMBER(shown_row, row.prefill_tokens_per_s),
     .figure = figure_rate, .rank = 10},
    {"load_ms", NULL, MEMBER(shown_row, row.load_ms)},
    {"peak_rss_bytes", "peak RSS", MEMBER(shown_row, row.peak_rss_bytes), .figure = figure_bytes,
     .rank = 10},
    {"logits_hash", NULL, MEMBER(shown_row, hash)},
    {"isa", NULL, MEMBER(shown_row, isa)},
    {"limit_tokens_per_s", NULL, MEMBER(shown_row, row.predicted.tokens_per_s)},
    {"share_of_limit", NULL, MEMBER(shown_row, row.share_of_limit)},
    {"noisy", NULL, MEMBER(shown_row, noisy)},
    {"cpu_share", NULL, MEMBER(shown_row, row.cpu_share)},
    /* What predicted_us was made of. */
    {"attention_flops", NULL, MEMBER(shown_row, attention_flops)},
    {"bandwidth_gb_per_s", NULL, MEMBER(shown_row, bandwidth_gb_per_s)},
    {"flops_per_s", NULL, MEMBER(shown_row, row.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, MEMBER(shown_row, row.limits.dot_flops_per_s)},
    /* What joins two runs. */
    {"model", NULL, MEMBER(shown_row, model)},
    {"shape", NULL, MEMBER(shown_row, shape)},
    {"architecture", NULL, MEMBER(shown_row, architecture)},
    {"cpu", NULL, MEMBER(shown_row, cpu)},
    {"version", NULL, MEMBER(shown_row, version)},
    {"compiler", NULL, MEMBER(shown_row, compiler)},
    {"date", NULL, MEMBER(shown_row, date)},
    {NULL, "note", MEMBER(shown_row, note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS REPORT_LENGTH(fields)

/* Columns for people that say something only of some runs: of one sequence, of batches, of latent
 * caches, which are short and take more arithmetic (it may be what a step of one waits for); or
 * that are never left out where rows differ in them. */
enum { OF_ONE = 1, OF_BATCHES = 2, OF_LATENT = 4, OF_ANY = 7 };
static const struct {
    const char *heading;
    unsigned of;
    enum bench_axis axis; /* of OF_ANY */
} column_rules[] = {{"type", OF_ANY, BENCH_TYPES},      {"KV", OF_ANY, BENCH_KV_TYPES},
                    {"threads", OF_ANY, BENCH_THREADS}, {"by bytes", OF_ONE, 0},
                    {"batch", OF_BATCHES, 0},           {"µs/token", OF_BATCHES, 0},
                    {"predicted", OF_BATCHES, 0},       {"limited by", OF_BATCHES | OF_LATENT, 0},
                    {"attention Mflop", OF_LATENT, 0}};

static bool is_batched(const struct bench_spec *spec)
{
    return spec->axes[BENCH_BATCHES].n > 1 || spec->axes[BENCH_BATCHES].items[0] > 1;
}

static void choose_columns(const struct bench_spec *spec, struct report_field chosen[N_FIELDS])
{
    unsigned run = is_batched(spec) ? OF_BATCHES : OF_ONE;
    run |= config_is_latent(&spec->config) ? OF_LATENT : 0;
    for (int i = 0; i < spec->axes[BENCH_VARIANTS].n; i++)
        run |= spec->axes[BENCH_VARIANTS].items[i] < 0 ? OF_LATENT : 0;
    memcpy(chosen, fields, sizeof fields);
    for (int f = 0; f < N_FIELDS; f++)
        for (size_t i = 0; i < sizeof column_rules / sizeof *column_rules; i++) {
            if (!fields[f].heading || strcmp(fields[f].heading, column_rules[i].heading) != 0)
                continue;
            if (!(column_rules[i].of & run))
                chosen[f].heading = NULL;
            else if (column_rules[i].of == OF_ANY && spec->axes[column_rules[i].axis].n > 1)
                chosen[f].rank = 0;
        }
}

int bench_tables(const void *values, struct table *tables)
{
    (void)values;
    *tables = (struct table){.fields = fields, .n = N_FIELDS};
    return 1;
}

/* Whether no other row at the same depth and batch has a lower median. */
static bool is_best(const struct bench_report *r, const struct bench_row *row)
{
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct bench_row *other = &r->bench->rows[i];
        if (other->samples && other->depth == row->depth && other->batch == row->batch &&
            other->p50_us < row->p50_us)
            return false;
    }
    return true;
}

/* "MHA", and what else tells the lines of this run's plot apart. */
static void name_plot_line(const struct bench_spec *spec, struct shown_row *s)
{
    const size_t size = sizeof s->line;
    size_t used = (size_t)snprintf(s->line, size, "%s", s->row.variant);
    if (spec->axes[BENCH_TYPES].n > 1)
        used += (size_t)snprintf(s->line + used, size - used, " %s", s->type);
    if (spec->axes[BENCH_KV_TYPES].n > 1)
        used += (size_t)snprintf(s->line + used, size - used, ", %s KV", s->kv_type);
    if (spec->axes[BENCH_THREADS].n > 1)
        used += (size_t)snprintf(s->line + used, size - used, ", %d threads", s->row.threads);
    if (spec->axes[BENCH_BATCHES].n > 1 && bench_x_axis(spec) != BENCH_BATCHES)
        snprintf(s->line + used, size - used, ", batch %d", s->row.batch);
}

/* All but what is the same for all rows, which *s has. */
static void show_row(const struct bench_report *r, const struct bench_row *row, struct shown_row *s)
{
    s->row = *row;
    s->type = storage_name(row->type);
    s->kv_type = storage_name(row->kv_type);
    s->flops = cost_step_flops(&row->cost, row->batch);
    s->attention_flops = (uint64_t)row->batch * row->cost.flops.attention;
    s->attention_mflop = (double)s->attention_flops / 1e6;
    s->bandwidth_gb_per_s = row->limits.bytes_per_s / 1e9;
    s->noisy = row->spread > NOISY || row->cpu_share < LEAST_SHARE;
    s->best = is_best(r, row) ? "*" : "";
    snprintf(s->hash, sizeof s->hash, "%016" PRIx64, row->logits_hash);
    if (row->repeats < r->spec->repeats)
        snprintf(s->note, sizeof s->note, "%d of %d repeats", row->repeats, r->spec->repeats);
    else if (row->cpu_share < LEAST_SHARE)
        snprintf(s->note, sizeof s->note, "busy: %.0f%%", row->cpu_share * 100);
    else if (s->noisy)
        snprintf(s->note, sizeof s->note, "noisy: %.0f%%", row->spread * 100);
    name_plot_line(r->spec, s);
}

/* Rows with samples, and room for what is drawn of them. */
struct shown {
    struct shown_row *rows; /* [n] */
    int n;
    struct plot_series *series;
    struct plot_point *points;
};

static void show_rows(const struct bench_report *r, struct shown *shown)
{
    struct shown_row same = {.isa = r->spec->kernels->name,
                             .n = r->spec->n,
                             .warmup = r->spec->warmup,
                             .model = r->spec->gguf ? r->subject : NULL,
                             .shape = r->spec->gguf ? NULL : r->subject,
                             .architecture = r->spec->config.arch->name,
                             .version = DECODE_VERSION,
                             .compiler = compiler_name()};
    const time_t now = time(NULL);
    struct tm utc;
    processor_name(same.cpu, sizeof same.cpu);
    if (gmtime_r(&now, &utc))
        strftime(same.date, sizeof same.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (int i = 0; i < r->bench->n_rows; i++) {
        if (!r->bench->rows[i].samples)
            continue;
        shown->rows[shown->n] = same;
        show_row(r, &r->bench->rows[i], &shown->rows[shown->n++]);
    }
}

/* What the columns' names leave open. */
static void print_footer(const struct bench_spec *spec, bool noisy, struct output *out)
{
    const struct int_list *depths = &spec->axes[BENCH_DEPTHS];
    struct paragraph p = paragraph_begin(out, INDENT);
    paragraph_puts(
        &p, is_batched(spec)
                ? "\n* fastest at its depth and batch; p50 and p99 of a step, KV read of each "
                  "sequence;\vspeed-up over MHA at the same batch, measured and predicted\n"
                : "\n* fastest at its depth; speed-up over MHA, measured and by bytes read\n");
    paragraph_puts(&p, "of limit: the time at the roofline of a step's bytes and operations, over "
                       "the median\n");
    if (noisy)
        paragraph_puts(&p, "noisy: the repeats' medians differ by so much; busy: so much of the "
                           "processors' time was left\vfor the row by other work; a quieter "
                           "machine says more\n");
    if (depths->n == 1 && depths->items[0] == 0 && spec->config.n_ctx > 1)
        paragraph_printf(
            &p, "depth 0: an empty KV cache; --depth 0,%d shows what attention costs as it fills\n",
            spec->config.n_ctx - 1);
    paragraph_end(&p);
}

/* --- the files ------------------------------------------------------------------------------- */

static enum status write_trace(const char *path, const struct shown *shown, struct err *e)
{
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    static const char header[] = "variant,type,kv_type,threads,depth,batch,repeat,index,ns\n";
    file_writer_put(w, header, sizeof header - 1);
    for (const struct shown_row *s = shown->rows; s < shown->rows + shown->n; s++) {
        for (int k = 0; k < s->row.samples; k++) {
            char line[160];
            const int len =
                snprintf(line, sizeof line, "%s,%s,%s,%d,%d,%d,%d,%d,%" PRIu64 "\n", s->row.variant,
                         s->type, s->kv_type, s->row.threads, s->row.depth, s->row.batch, k / s->n,
                         k % s->n, s->row.times_ns[k]);
            file_writer_put(w, line, (size_t)len);
        }
    }
    return file_writer_commit(w, e);
}

/* Microseconds a token, a step's divided by its tokens, against depth or batch. A series is a line
 * of which something was measured; there is room for n_lines of them, and n points. */
static enum status write_plot(const struct bench_report *r, const struct shown *shown,
                              struct err *e)
{
    const bool over_batch = bench_x_axis(r->spec) == BENCH_BATCHES;
    char machine[512], label[64] = "depth (tokens in the KV cache)";
    struct plot_point *p = shown->points;
    struct plot plot = {.title = r->subject,
                        .subtitle = machine,
                        .x_label = label,
                        .x_doubles = over_batch,
                        .y_label = "latency (µs per token)",
                        .mid_label = "median",
                        .band_label = "p10 to p90",
                        .predicted_label = "limit by measured bandwidth and arithmetic",
                        .series = shown->series};
    bench_machine(r, machine);
    if (over_batch)
        snprintf(label, sizeof label, "batch (sequences in a step, each at depth %d)",
                 r->spec->axes[BENCH_DEPTHS].items[0]);
    for (int line = 0; line < r->bench->n_lines; line++) {
        struct plot_series *series = &shown->series[plot.n_series];
        series->points = p;
        for (int i = 0; i < shown->n; i++) {
            const struct bench_row *row = &shown->rows[i].row;
            const double b = row->batch;
            if (row->line != line)
                continue;
            series->name = shown->rows[i].line;
            *p++ = (struct plot_point){over_batch ? b : row->depth, row->p10_us / b,
                                       row->us_per_token, row->p90_us / b, row->predicted.us / b};
            series->n_points++;
        }
        plot.n_series += series->n_points > 0;
    }
    return plot_write(&plot, r->plot, e);
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum status print_rows(const struct bench_report *r, const struct shown *shown,
                              struct output *out, struct err *e)
{
    const bool people = table_is_for_people(r->format);
    struct report_field chosen[N_FIELDS];
    struct table table = TABLE_OF(chosen, shown->rows, shown->n);
    bool noisy = false;
    choose_columns(r->spec, chosen);
    if (r->columns)
        table.fields = fields;
    for (int i = 0; i < shown->n; i++)
        noisy |= shown->rows[i].noisy;
    if (people)
        print_header(r, out);
    TRY(table_print(&table, r->columns, r->format, out, e));
    if (people && !r->columns)
        print_footer(r->spec, noisy, out);
    if (r->trace)
        TRY(write_trace(r->trace, shown, e));
    return r->plot ? write_plot(r, shown, e) : STATUS_OK;
}

enum status bench_print(const struct bench_report *r, struct output *out, struct err *e)
{
    const size_t n = (size_t)r->bench->n_rows, n_lines = (size_t)r->bench->n_lines;
    struct shown shown = {calloc(n, sizeof *shown.rows), 0, calloc(n_lines, sizeof *shown.series),
                          calloc(n, sizeof *shown.points)};
    enum status s;
    if (shown.rows && shown.series && shown.points) {
        show_rows(r, &shown);
        s = print_rows(r, &shown, out, e);
    } else {
        s = err_no_memory(e, "the report", n * sizeof *shown.rows);
    }
    free(shown.rows);
    free(shown.series);
    free(shown.points);
    return s;
}
