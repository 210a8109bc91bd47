#include "cli/bench_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/figures.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/columns.h"
#include "cli/numbers.h"
#include "cli/version.h"
#include "show/paragraph.h"
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

void bench_machine(const struct bench_report *r, char *line, size_t size)
{
    char processor[128], threads[256];
    size_t used = 0;
    for (int i = 0; i < r->spec->threads.n && used < sizeof threads; i++)
        used += (size_t)snprintf(threads + used, sizeof threads - used, "%s%d", i ? ", " : "",
                                 r->spec->threads.items[i]);
    processor_name(processor, sizeof processor);
    snprintf(line, size, "%s, %s, threads %s; decode %s, %s", processor, r->spec->kernels->name,
             threads, DECODE_VERSION, compiler_name());
}

/* Of the lines above and below the table, where a terminal breaks them. */
#define INDENT 2

/* The limits of one number of threads: a bandwidth for each class of working sets. */
static void print_limits(const struct bench_report *r, int at, struct paragraph *p)
{
    const struct machine *m = &r->bench->machines[at];
    const int threads = r->spec->threads.items[at];
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
    bench_machine(r, machine, sizeof machine);
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

/* The same for all rows. */
struct run_facts {
    const char *model, *shape; /* NULL: the other one */
    const char *architecture, *version, *compiler;
    char cpu[128], date[24];
};

static struct run_facts run_facts(const struct bench_report *r)
{
    struct run_facts f = {.model = r->spec->gguf ? r->subject : NULL,
                          .shape = r->spec->gguf ? NULL : r->subject,
                          .architecture = r->spec->config.arch->name,
                          .version = DECODE_VERSION,
                          .compiler = compiler_name()};
    processor_name(f.cpu, sizeof f.cpu);
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(f.date, sizeof f.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return f;
}

struct shown_row {
    struct bench_row row;
    char variant[16];
    const char *type, *kv_type, *isa, *limited_by;
    int n, warmup;
    uint64_t flops, attention_flops; /* of a step */
    double attention_mflop;
    double bandwidth_gb_per_s;
    char hash[20];
    const char *best; /* "*" or "" */
    double percent_of_limit;
    bool noisy;
    char note[64];
    struct run_facts run;
};

/* What people read in another place is in the list twice. */
static const struct report_field fields[] = {
    {NULL, "", MEMBER(shown_row, best), .accent = ACCENT_ROW},
    {"variant", "variant", MEMBER(shown_row, variant)},
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
    {"predicted_us", NULL, MEMBER(shown_row, row.predicted_us)},
    {"speedup", NULL, MEMBER(shown_row, row.speedup)},
    {"predicted_speedup", NULL, MEMBER(shown_row, row.predicted_speedup)},
    {NULL, "of limit", MEMBER(shown_row, percent_of_limit), "%.0f%%", .rank = 2},
    {"limited_by", "limited by", MEMBER(shown_row, limited_by), .rank = 6},
    {"prefill_tokens_per_s", "prefill tok/s", MEMBER(shown_row, row.prefill_tokens_per_s),
     .figure = figure_rate, .rank = 10},
    {"load_ms", NULL, MEMBER(shown_row, row.load_ms)},
    {"peak_rss_bytes", "peak RSS", MEMBER(shown_row, row.peak_rss_bytes), .figure = figure_bytes,
     .rank = 10},
    {"logits_hash", NULL, MEMBER(shown_row, hash)},
    {"isa", NULL, MEMBER(shown_row, isa)},
    {"limit_tokens_per_s", NULL, MEMBER(shown_row, row.limit_tokens_per_s)},
    {"share_of_limit", NULL, MEMBER(shown_row, row.share_of_limit)},
    {"noisy", NULL, MEMBER(shown_row, noisy)},
    {"cpu_share", NULL, MEMBER(shown_row, row.cpu_share)},
    /* What predicted_us was made of. */
    {"attention_flops", NULL, MEMBER(shown_row, attention_flops)},
    {"bandwidth_gb_per_s", NULL, MEMBER(shown_row, bandwidth_gb_per_s)},
    {"flops_per_s", NULL, MEMBER(shown_row, row.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, MEMBER(shown_row, row.limits.dot_flops_per_s)},
    /* What joins two runs. */
    {"model", NULL, MEMBER(shown_row, run.model)},
    {"shape", NULL, MEMBER(shown_row, run.shape)},
    {"architecture", NULL, MEMBER(shown_row, run.architecture)},
    {"cpu", NULL, MEMBER(shown_row, run.cpu)},
    {"version", NULL, MEMBER(shown_row, run.version)},
    {"compiler", NULL, MEMBER(shown_row, run.compiler)},
    {"date", NULL, MEMBER(shown_row, run.date)},
    {NULL, "note", MEMBER(shown_row, note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS REPORT_LENGTH(fields)

/* Columns for people that say something only of one sequence, or only of several. */
static const char *const headings_of_one[] = {"by bytes", NULL};
static const char *const headings_of_batches[] = {"batch", "µs/token", "predicted", "limited by",
                                                  NULL};

/* Latent caches are short, and take more arithmetic: it may be what a step of one waits for. */
static const char *const headings_of_latent[] = {"attention Mflop", "limited by", NULL};

static const char footer_of_one[] =
    "\n* fastest at its depth; speed-up over MHA, measured and by bytes read\n";
static const char footer_of_batches[] =
    "\n* fastest at its depth and batch; p50 and p99 of a step, KV read of each sequence;\v"
    "speed-up over MHA at the same batch, measured and predicted\n";
static const char footer_of_all[] =
    "of limit: the time at the roofline of a step's bytes and operations, over the median\n";
static const char footer_of_noise[] = "noisy: the repeats' medians differ by so much; busy: so "
                                      "much of the processors' time was left\v"
                                      "for the row by other work; a quieter machine says more\n";

static bool is_batched(const struct bench_report *r)
{
    return r->spec->batches.n > 1 || r->spec->batches.items[0] > 1;
}

/* Whether a row is of a latent cache, the checkpoint's own or one made for it. */
static bool has_latent(const struct bench_report *r)
{
    bool has = config_is_latent(&r->spec->config);
    for (int i = 0; i < r->spec->kv_heads.n; i++)
        has |= r->spec->kv_heads.items[i] < 0;
    return has;
}

int bench_tables(const void *values, struct table *tables)
{
    (void)values;
    *tables = (struct table){.fields = fields, .n = N_FIELDS};
    return 1;
}

/* Whether the rows differ in it, so that it is never left out. */
static bool tells_rows_apart(const struct bench_report *r, const char *heading)
{
    const struct {
        const char *heading;
        int n;
    } lists[] = {
        {"type", r->spec->types.n}, {"KV", r->spec->kv_types.n}, {"threads", r->spec->threads.n}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(lists[i].heading, heading) == 0)
            return lists[i].n > 1;
    return false;
}

static void choose_columns(const struct bench_report *r, enum table_format format,
                           struct columns *chosen)
{
    const bool batched = is_batched(r), latent = has_latent(r);
    columns_choose(r->columns, format, fields, N_FIELDS, chosen);
    for (int i = 0; i < chosen->n && !r->columns; i++) {
        const char *heading = chosen->fields[i].heading;
        if (heading && tells_rows_apart(r, heading))
            chosen->fields[i].rank = 0;
        if (!heading || (latent && names_find(headings_of_latent, heading) >= 0))
            continue;
        if (names_find(batched ? headings_of_one : headings_of_batches, heading) >= 0 ||
            strcmp(heading, headings_of_latent[0]) == 0)
            chosen->fields[i].heading = NULL;
    }
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

static struct shown_row shown_row(const struct bench_report *r, const struct bench_row *row,
                                  const struct run_facts *run)
{
    struct shown_row s = {.row = *row,
                          .type = storage_name(row->type),
                          .kv_type = storage_name(row->kv_type),
                          .isa = r->spec->kernels->name,
                          .limited_by = cost_part_names[row->limited_by],
                          .n = r->spec->n,
                          .warmup = r->spec->warmup,
                          .flops = cost_step_flops(&row->cost, row->batch),
                          .attention_flops = (uint64_t)row->batch * row->cost.flops.attention,
                          .attention_mflop = row->batch * (double)row->cost.flops.attention / 1e6,
                          .bandwidth_gb_per_s = row->limits.bytes_per_s / 1e9,
                          .noisy = row->spread > NOISY || row->cpu_share < LEAST_SHARE,
                          .run = *run,
                          .best = is_best(r, row) ? "*" : "",
                          .percent_of_limit = row->share_of_limit * 100};
    const struct config variant = bench_variant(r->spec, row->variant);
    config_variant_name(&variant, row->n_kv_heads, s.variant);
    snprintf(s.hash, sizeof s.hash, "%016" PRIx64, row->logits_hash);
    if (row->repeats < r->spec->repeats)
        snprintf(s.note, sizeof s.note, "%d of %d repeats", row->repeats, r->spec->repeats);
    else if (row->cpu_share < LEAST_SHARE)
        snprintf(s.note, sizeof s.note, "busy: %.0f%%", row->cpu_share * 100);
    else if (s.noisy)
        snprintf(s.note, sizeof s.note, "noisy: %.0f%%", row->spread * 100);
    return s;
}

/* What the columns' names leave open. */
static void print_footer(const struct bench_report *r, bool noisy, struct output *out)
{
    const struct bench_list *depths = &r->spec->depths;
    struct paragraph p = paragraph_begin(out, INDENT);
    paragraph_puts(&p, is_batched(r) ? footer_of_batches : footer_of_one);
    paragraph_puts(&p, footer_of_all);
    paragraph_puts(&p, noisy ? footer_of_noise : "");
    if (depths->n == 1 && depths->items[0] == 0 && r->spec->config.n_ctx > 1)
        paragraph_printf(
            &p, "depth 0: an empty KV cache; --depth 0,%d shows what attention costs as it fills\n",
            r->spec->config.n_ctx - 1);
    paragraph_end(&p);
}

enum status bench_print(const struct bench_report *r, enum table_format format, struct output *out,
                        struct err *e)
{
    const bool people = table_is_for_people(format);
    bool noisy = false;
    struct report report;
    struct columns chosen;
    const struct run_facts run = run_facts(r);
    choose_columns(r, format, &chosen);
    if (people)
        print_header(r, out);
    report_begin(&report, format, chosen.fields, chosen.n, out);
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct shown_row row = shown_row(r, &r->bench->rows[i], &run);
        if (row.row.samples)
            report_row(&report, &row);
        noisy |= row.row.samples && row.noisy;
    }
    const enum status s = report_end(&report, e);
    if (people && !r->columns)
        print_footer(r, noisy, out);
    return s;
}

/* --- every sample ---------------------------------------------------------------------------- */

enum status bench_write_trace(const struct bench_report *r, const char *path, struct err *e)
{
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    static const char header[] = "variant,type,kv_type,threads,depth,batch,repeat,index,ns\n";
    const struct run_facts run = {.model = NULL};
    file_writer_put(w, header, sizeof header - 1);
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct shown_row s = shown_row(r, &r->bench->rows[i], &run);
        for (int k = 0; k < s.row.samples; k++) {
            char line[160];
            const int len = snprintf(line, sizeof line, "%s,%s,%s,%d,%d,%d,%d,%d,%" PRIu64 "\n",
                                     s.variant, s.type, s.kv_type, s.row.threads, s.row.depth,
                                     s.row.batch, k / s.n, k % s.n, s.row.times_ns[k]);
            file_writer_put(w, line, (size_t)len);
        }
    }
    return file_writer_commit(w, e);
}
