#include "cli/bench_report.h"

#include "cli/paths.h"
#include "cli/program.h"
#include "cli/terminal.h"
#include "measure/verdicts.h"
#include "show/plot.h"
#include "show/report.h"

/* --- a row as it is shown -------------------------------------------------------------------- */

/* What is the same in all rows. */
struct circumstances {
    const char *model, *shape; /* NULL: not one */
    const char *isa, *architecture, *version, *compiler, *cpu, *date;
    const char *warning; /* NULL: none */
    int n, warmup;
    double cpu_share;
    uint64_t peak_rss_bytes;
};

struct shown_row {
    struct circumstances run;
    struct bench_row of;
    struct bench_advice advice; /* only with a text */
    const char *checkpoint;     /* its file's name */
    const char *mark, *verdict; /* what it is at its depth and batch: see print_footer */
    const char *variant, *type;
    double load_ms;
    bool noisy;
    char hash[20], note[160], speedup[16], speedup_range[32];
};

/* When fields are shown: to programs always, but what is of a text; to people where that says
 * something. */
enum {
    VERBOSE = 1 << 0,
    SUBJECTS = 1 << 1, /* there are several */
    TYPES = 1 << 2,
    KV_TYPES = 1 << 3,
    THREADS = 1 << 4,
    BATCHES = 1 << 5,  /* other than one sequence */
    RATES = 1 << 6,    /* there is no text, so that they are what is wanted */
    OF_BYTES = 1 << 7, /* predictions of one sequence */
    OF_TIMES = 1 << 8, /* and of several */
    PREFILL = 1 << 9,
    TEXT = 1 << 10,
};

static struct figure figure_percent(double share)
{
    struct figure f;
    chars_printf(f.text, "%.0f%%", share * 100);
    return f;
}

static const struct report_field bench_fields[] = {
    {NULL, "", MEMBER(shown_row, mark)},
    {NULL, "checkpoint", MEMBER(shown_row, checkpoint), .when = SUBJECTS},
    {"variant", "variant", MEMBER(shown_row, variant)},
    {"n_kv_heads", NULL, MEMBER(shown_row, of.plan.n_kv_heads)},
    {"type", "type", MEMBER(shown_row, type), .when = TYPES | VERBOSE},
    {"kv_type", "KV", MEMBER(shown_row, of.plan.kv_type), .when = KV_TYPES | VERBOSE},
    {"threads", "threads", MEMBER(shown_row, of.threads), .when = THREADS | VERBOSE},
    {"depth", "depth", MEMBER(shown_row, of.plan.depth)},
    {"batch", "batch", MEMBER(shown_row, of.plan.batch), .when = BATCHES | VERBOSE},
    {"n", NULL, MEMBER(shown_row, run.n)},
    {"repeats", NULL, MEMBER(shown_row, of.repeats)},
    {"warmup", NULL, MEMBER(shown_row, run.warmup)},
    {"p10_us", NULL, MEMBER(shown_row, of.p10_us)},
    {"p50_us", "p50 µs", MEMBER(shown_row, of.p50_us), "%.1f"},
    {"p50_low_us", NULL, MEMBER(shown_row, of.p50_low_us)},
    {"p50_high_us", NULL, MEMBER(shown_row, of.p50_high_us)},
    {"p90_us", NULL, MEMBER(shown_row, of.p90_us)},
    {"p99_us", "p99 µs", MEMBER(shown_row, of.p99_us), "%.1f", .when = RATES, .detail = true},
    {"max_us", NULL, MEMBER(shown_row, of.max_us)},
    {"mean_us", NULL, MEMBER(shown_row, of.mean_us)},
    {"us_per_token", "µs/token", MEMBER(shown_row, of.us_per_token), "%.1f", .when = OF_TIMES},
    {"tokens_per_s", "tokens/s", MEMBER(shown_row, of.tokens_per_s), .figure = figure_rate,
     .when = RATES, .detail = true},
    {"prefill_tokens_per_s", "prefill tok/s", MEMBER(shown_row, of.prefill_tokens_per_s),
     .figure = figure_rate, .when = PREFILL},
    {"speedup", NULL, MEMBER(shown_row, of.speedup)},
    {NULL, "speed-up", MEMBER(shown_row, speedup), .right = true},
    {"speedup_low", NULL, MEMBER(shown_row, of.speedup_low)},
    {"speedup_high", NULL, MEMBER(shown_row, of.speedup_high)},
    {NULL, "interval", MEMBER(shown_row, speedup_range), .right = true, .when = RATES},
    {"predicted_speedup", NULL, MEMBER(shown_row, of.predicted_speedup)},
    {NULL, "by bytes", MEMBER(shown_row, of.predicted_speedup), "%.2fx", .when = OF_BYTES},
    {NULL, "predicted", MEMBER(shown_row, of.predicted_speedup), "%.2fx", .when = OF_TIMES},
    {"weight_bytes", "weights read", MEMBER(shown_row, of.plan.weight_bytes),
     .figure = figure_bytes, .when = VERBOSE},
    {"kv_bytes", "KV read", MEMBER(shown_row, of.plan.kv_bytes), .figure = figure_bytes,
     .when = VERBOSE},
    {"flops", NULL, MEMBER(shown_row, of.plan.flops)},
    {"attention_flops", NULL, MEMBER(shown_row, of.plan.attention_flops)},
    {"gb_per_s", "GB/s", MEMBER(shown_row, of.gb_per_s), "%.1f", .when = VERBOSE},
    {"predicted_us", "predicted µs", MEMBER(shown_row, of.plan.predicted.us), "%.1f",
     .when = VERBOSE | TEXT},
    {"limit_tokens_per_s", NULL, MEMBER(shown_row, of.plan.predicted.tokens_per_s)},
    {"share_of_limit", "of limit", MEMBER(shown_row, of.share_of_limit), .figure = figure_percent,
     .when = VERBOSE},
    {"limited_by", "limited by", MEMBER(shown_row, of.plan.predicted.limited_by), .when = VERBOSE},
    {"load_ms", NULL, MEMBER(shown_row, load_ms)},
    {"memory_bytes", "memory", MEMBER(shown_row, of.plan.memory_bytes), .figure = figure_bytes,
     .when = VERBOSE},
    {"peak_rss_bytes", NULL, MEMBER(shown_row, run.peak_rss_bytes)},
    {"logits_hash", NULL, MEMBER(shown_row, hash)},
    {"isa", NULL, MEMBER(shown_row, run.isa)},
    {"noisy", NULL, MEMBER(shown_row, noisy)},
    {"cpu_share", NULL, MEMBER(shown_row, of.cpu_share)},
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, MEMBER(shown_row, of.plan.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, MEMBER(shown_row, of.plan.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, MEMBER(shown_row, of.plan.limits.dot_flops_per_s)},
    {"limits_cpu_share", NULL, MEMBER(shown_row, of.limits_cpu_share)},
    /* What joins two runs. */
    {"model", NULL, MEMBER(shown_row, run.model)},
    {"shape", NULL, MEMBER(shown_row, run.shape)},
    {"architecture", NULL, MEMBER(shown_row, run.architecture)},
    {"cpu", NULL, MEMBER(shown_row, run.cpu)},
    {"version", NULL, MEMBER(shown_row, run.version)},
    {"compiler", NULL, MEMBER(shown_row, run.compiler)},
    {"date", NULL, MEMBER(shown_row, run.date)},
    {"run_cpu_share", NULL, MEMBER(shown_row, run.cpu_share)},
    {"warning", NULL, MEMBER(shown_row, run.warning)},
    {"verdict", NULL, MEMBER(shown_row, verdict)},
    {"cache_bytes", "cache", MEMBER(shown_row, of.plan.allocated_bytes), .figure = figure_bytes,
     .when = TEXT},
    {"bits_per_byte", "bits/byte", MEMBER(shown_row, advice.bits_per_byte), "%.4f", .when = TEXT,
     .detail = true},
    {"lost_bits_per_byte", "lost", MEMBER(shown_row, advice.lost), "%+.4f", .when = TEXT},
    {"lost_stderr", "stderr", MEMBER(shown_row, advice.lost_error), "%.4f", .when = TEXT,
     .detail = true},
    {"beyond", "beyond", MEMBER(shown_row, advice.beyond), .when = TEXT},
    {"chosen", NULL, MEMBER(shown_row, advice.chosen), .when = TEXT},
    {"undominated", NULL, MEMBER(shown_row, advice.undominated), .when = TEXT},
    {"note", "note", MEMBER(shown_row, note)},
};

static bool is_busy(const struct bench_row *row)
{
    return row->cpu_share < VERDICT_LEAST_SHARE;
}

static bool is_uneven(const struct bench_row *row)
{
    return fabs(row->mean_us / row->p50_us - 1) > VERDICT_UNEVEN;
}

/* Why the row's figures may not be taken at their word, or not together; "" if they may. */
static void write_note(struct shown_row *s, int repeats)
{
    const struct bench_row *row = &s->of;
    if (row->repeats < repeats)
        chars_append(s->note, ", %d of %d repeats", row->repeats, repeats);
    if (is_busy(row))
        chars_append(s->note, ", got %.0f%% of its processors", row->cpu_share * 100);
    if (row->spread > VERDICT_NOISY)
        chars_append(s->note, ", noisy: %.0f%%", row->spread * 100);
    if (is_uneven(row))
        chars_append(s->note, ", mean %.2f of p50", row->mean_us / row->p50_us);
    if (row->limits_cpu_share < VERDICT_LEAST_SHARE)
        chars_append(s->note, ", limits measured with %.0f%%", row->limits_cpu_share * 100);
    if (s->note[0])
        memmove(s->note, s->note + 2, strlen(s->note + 2) + 1);
}

static const char *mark_of(const struct bench_row *row, const struct bench_advice *advice)
{
    static const char *const marks[] = {
        [BENCH_UNJUDGED] = "", [BENCH_SLOWER] = "", [BENCH_TOSS_UP] = "~", [BENCH_FASTEST] = "*"};
    if (!advice)
        return marks[row->verdict];
    return advice->chosen ? "*" : advice->undominated ? "+" : "";
}

static struct shown_row show_row(const struct circumstances *run, const struct bench_row *row,
                                 const struct bench_advice *advice, int repeats)
{
    static const char *const verdicts[] = {[BENCH_UNJUDGED] = NULL,
                                           [BENCH_SLOWER] = "slower",
                                           [BENCH_TOSS_UP] = "toss-up",
                                           [BENCH_FASTEST] = "fastest"};
    const struct bench_subject *subject = row->model->subject;
    struct shown_row s = {.run = *run,
                          .of = *row,
                          .checkpoint = path_name(subject->name),
                          .mark = mark_of(row, advice),
                          .verdict = verdicts[row->verdict],
                          .variant = row->model->variant.name,
                          .type = storage_name(row->type),
                          .load_ms = row->model->load_ms,
                          .noisy = is_busy(row) || row->spread > VERDICT_NOISY};
    if (advice)
        s.advice = *advice;
    s.run.model = subject->gguf ? subject->name : NULL;
    s.run.shape = subject->gguf ? NULL : subject->name;
    s.run.architecture = subject->config.arch->name;
    chars_printf(s.hash, "%016" PRIx64, row->logits_hash);
    write_note(&s, repeats);
    /* What is not told apart is not shown as faster or slower. */
    if (row->like_base)
        chars_printf(s.speedup, "~1x");
    else if (isfinite(row->speedup))
        chars_printf(s.speedup, "%.2fx", row->speedup);
    if (isfinite(row->speedup_low))
        chars_printf(s.speedup_range, "%.2f to %.2f", row->speedup_low, row->speedup_high);
    return s;
}

/* --- the table ------------------------------------------------------------------------------- */

static unsigned fields_shown(const struct bench_run *r)
{
    const struct bench_options *o = r->o;
    const struct int_list *axes = r->spec.axes;
    const bool batches = r->bench.most_sequences > 1, text = r->advice;
    const struct {
        bool holds;
        unsigned field;
    } people[] = {
        {o->common.verbose, VERBOSE},
        {axes[BENCH_SUBJECTS].n > 1, SUBJECTS},
        {axes[BENCH_TYPES].n > 1, TYPES},
        {axes[BENCH_KV_TYPES].n > 1, KV_TYPES},
        {axes[BENCH_THREADS].n > 1, THREADS},
        {batches, BATCHES},
        {!text, RATES},
        {!text && !batches, OF_BYTES},
        {!text && batches, OF_TIMES},
        {(!text && o->prompt > 0) || o->common.verbose, PREFILL},
        {text, TEXT},
    };
    unsigned shown = 0;
    if (!table_is_for_people(o->common.format))
        return text ? ~0u : ~(unsigned)TEXT;
    for (int i = 0; i < LENGTH(people); i++)
        shown |= people[i].holds ? people[i].field : 0;
    return shown;
}

/* The rows, or those of a text in the order of its advice. */
static enum status print_table(const struct bench_run *r, const struct circumstances *run,
                               struct err *e)
{
    struct report report;
    report_begin(&report, r->o->common.format, bench_fields, LENGTH(bench_fields), fields_shown(r),
                 r->job->out);
    for (int i = 0; i < r->bench.n_rows; i++) {
        const struct bench_advice *advice = r->advice ? &r->advice[i] : NULL;
        const struct shown_row row =
            show_row(run, advice ? advice->row : &r->bench.rows[i], advice, r->spec.repeats);
        report_row(&report, &row);
    }
    return report_end(&report, e);
}

/* --- what else is shown ---------------------------------------------------------------------- */

/* The indent of lines above and below the table that go on in a second line. */
#define INDENT 2

static void print_subjects(const struct bench_run *r, struct paragraph *p)
{
    for (int i = 0; i <= r->o->others.n; i++) {
        const struct config *c = &r->subjects[i].config;
        char name[512]; /* a path may have control characters */
        chars_printf(name, "%s", r->subjects[i].name);
        utf8_strip(name);
        paragraph_printf(p,
                         "%s: layers %d, d_model %d, heads %d of size %d, d_ff %d, vocabulary %d, "
                         "context %d\n",
                         name, c->n_layers, c->d_model, c->n_heads, c->head_dim, c->d_ff,
                         c->n_vocab, c->n_ctx);
    }
}

/* The limits of each number of threads: a bandwidth for each class of working sets. */
static void print_limits(const struct bench_run *r, struct paragraph *p)
{
    for (int i = 0; i < r->bench.n_pools; i++) {
        const struct machine *m = &r->bench.machines[i];
        const int threads = r->spec.axes[BENCH_THREADS].items[i];
        const char *comma = ": reads";
        double before = 0;
        paragraph_puts(p, "roofline");
        if (r->bench.n_pools > 1)
            paragraph_printf(p, " of %d thread%s", threads, plural(threads));
        if (m->cpu_share < VERDICT_LEAST_SHARE)
            paragraph_printf(p, ", measured with %.0f%% of the processors and too low",
                             m->cpu_share * 100);
        for (int power = 0; power < MACHINE_POWERS; power++) {
            const double rate = m->bytes_per_s[power];
            if (rate <= 0 || rate == before)
                continue;
            paragraph_printf(p, "%s %.1f GB/s from %s", comma, rate / 1e9,
                             figure_bytes(ldexp(1, power)).text);
            before = rate;
            comma = ",";
        }
        paragraph_printf(p, "; multiplies %.0f GFLOP/s, with quantised weights %.0f\n",
                         m->fma_flops_per_s / 1e9, m->dot_flops_per_s / 1e9);
    }
}

static void print_header(const struct bench_run *r, const struct circumstances *run,
                         const char *machine)
{
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    if (run->warning)
        paragraph_printf(&p, "WARNING: %s\n\n", run->warning);
    print_subjects(r, &p);
    paragraph_printf(&p, "%s\n", machine);
    print_limits(r, &p);
    paragraph_printf(
        &p,
        "%d repeats, each of %d steps of every row at exactly its depth, after %d to warm up\n\n",
        r->spec.repeats, r->spec.n, r->spec.warmup);
    paragraph_end(&p);
}

/* Which rows are chosen, and what else is marked. */
static void print_advice(const struct bench_run *r, struct paragraph *p)
{
    const bool limited = advice_is_limited(r->o);
    const char *said = "";
    char name[512];
    chars_printf(name, "%s", r->subjects[0].name);
    utf8_strip(name);
    for (int i = 0; i < r->bench.n_rows; i++) {
        const struct bench_advice *a = &r->advice[i];
        const int n_kv_heads = a->row->plan.n_kv_heads;
        const char *variant = a->row->model->variant.name;
        if (!a->chosen || str_is(said, variant))
            continue;
        said = variant;
        if (n_kv_heads == r->subjects[0].config.n_kv_heads)
            paragraph_printf(p, "\n%s, the checkpoint as it is\n", said);
        else
            paragraph_printf(p, "\n%s: decode convert %s -o OUT --kv-heads %d --calib TEXT\n", said,
                             name, n_kv_heads);
    }
    if (!limited)
        paragraph_puts(p, "\n--max-loss, --max-us or --max-cache say what may be lost, taken and "
                          "held, and choose a row\n");
    else if (!said[0])
        paragraph_puts(p, "\nno row is within the limits\n");
    paragraph_printf(p,
                     "\n%s+ no other row of its depth and batch is as good in loss, time and cache "
                     "and better in one\n",
                     limited ? "* the smallest cache within the limits at its depth and batch; "
                               "beyond: the limits that a row exceeds\n"
                             : "");
    paragraph_puts(p,
                   "cache: of all sequences; lost: bits per byte more than the checkpoint on the "
                   "text's last tenth, converted\vby fit on the others\n");
}

static void print_legend(const struct bench_run *r, struct paragraph *p)
{
    const struct config *base = &r->subjects[0].config;
    char name[16];
    config_variant_name(base, base->n_kv_heads, name);
    if (r->bench.cpu_share >= VERDICT_HALF)
        paragraph_puts(p, "\n* the fastest at its depth and number of sequences in every repeat; "
                          "~ a toss-up: it, or another, may be the fastest\n");
    paragraph_printf(
        p,
        "%sspeed-up: p50 of %s%s%s over the row's, ~1x where the two are not told apart; "
        "interval: of the repeats;\v%s: what the plan says\n",
        r->bench.cpu_share >= VERDICT_HALF ? "" : "\n", name, r->o->others.n > 0 ? " of " : "",
        r->o->others.n > 0 ? path_name(r->subjects[0].name) : "",
        r->bench.most_sequences > 1 ? "predicted" : "by bytes");
    if (r->o->common.verbose)
        paragraph_puts(p, "of limit: the time at the roofline of a step's bytes and operations, "
                          "over the median\n");
}

/* What the columns' names leave open. */
static void print_footer(const struct bench_run *r)
{
    const struct bench *b = &r->bench;
    const struct int_list *depths = &b->spec->axes[BENCH_DEPTHS];
    const int n_ctx = r->subjects[0].config.n_ctx;
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    bool noisy = false, uneven = false;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        noisy |= is_busy(row) || row->spread > VERDICT_NOISY;
        uneven |= is_uneven(row);
    }
    if (r->advice)
        print_advice(r, &p);
    else
        print_legend(r, &p);
    if (noisy)
        paragraph_puts(&p, "noisy: the repeats' medians differ by so much; got: the rest of the "
                           "processors' time went\vto other work; a quieter machine says more\n");
    if (uneven)
        paragraph_puts(&p, "mean of p50: some steps took much longer than the others; tokens/s "
                           "goes by the mean of all,\vspeed-up and the limit by the median\n");
    if (depths->n == 1 && depths->items[0] == 0 && n_ctx > 1)
        paragraph_printf(
            &p, "depth 0: an empty KV cache; --depth 0,%d shows what attention costs as it fills\n",
            n_ctx - 1);
    paragraph_end(&p);
}

/* --- the picture ----------------------------------------------------------------------------- */

/* "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_run *r, const struct bench_row *row, char *out,
                      size_t size)
{
    char part[BENCH_AXES][64] = {""};
    chars_printf(part[BENCH_SUBJECTS], " of %.50s", path_name(row->model->subject->name));
    chars_printf(part[BENCH_TYPES], " %s", storage_name(row->type));
    chars_printf(part[BENCH_KV_TYPES], ", %s KV", row->plan.kv_type);
    chars_printf(part[BENCH_THREADS], ", %d threads", row->threads);
    chars_printf(part[BENCH_BATCHES], ", batch %d", row->plan.batch);
    for (int a = 0; a < BENCH_AXES; a++)
        if (r->spec.axes[a].n == 1 || a == (int)bench_x_axis(&r->spec))
            part[a][0] = 0;
    snprintf(out, size, "%s%s%s%s%s%s", row->model->variant.name, part[BENCH_SUBJECTS],
             part[BENCH_TYPES], part[BENCH_KV_TYPES], part[BENCH_THREADS], part[BENCH_BATCHES]);
}

/* Rows as points of one line, whose first one is not taken yet; how many. */
static int take_line(const struct bench_run *r, int line, struct plot_point *points,
                     struct shown_row *rows)
{
    const struct bench *b = &r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    static const struct circumstances none;
    int n = 0;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        const double batch = row->plan.batch;
        if (bench_line(b->spec, row) != line)
            continue;
        rows[i] = show_row(&none, row, NULL, r->spec.repeats);
        points[n++] = (struct plot_point){.x = over_batch ? batch : row->plan.depth,
                                          .low = row->p10_us / batch,
                                          .mid = row->us_per_token,
                                          .high = row->p90_us / batch,
                                          .predicted = row->plan.predicted.us / batch,
                                          .mark = rows[i].mark,
                                          .doubt = rows[i].note};
    }
    return n;
}

/* Median microseconds a token, a step's divided by its tokens, against depth or batch
 * (bench_x_axis). A series is a line of which something was measured. */
static enum status write_plot(const struct bench_run *r, const struct circumstances *run,
                              const char *machine, struct err *e)
{
    const struct bench *b = &r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    const size_t n_rows = b->n_rows;
    char label[64] = "depth (tokens in the KV cache)", subtitle[1024];
    struct plot_point *points = calloc(n_rows, sizeof *points), *next = points;
    struct plot_series *series = calloc(n_rows, sizeof *series);
    struct shown_row *rows = calloc(n_rows, sizeof *rows);
    char(*names)[256] = calloc(n_rows, sizeof *names);
    struct plot plot = {.title = r->subjects[0].name,
                        .subtitle = subtitle,
                        .x_label = label,
                        .x_doubles = over_batch,
                        .y_label = "latency (µs per token)",
                        .mid_label = "median (* fastest, ~ toss-up)",
                        .band_label = "p10 to p90",
                        .predicted_label = "limit by measured bandwidth and arithmetic",
                        .doubt_label = "not to be trusted (its note in the table)",
                        .series = series};
    enum status s = STATUS_OK;
    if (run->warning)
        chars_printf(subtitle, "%s; %s", machine, run->warning);
    else
        chars_printf(subtitle, "%s; this run got %.0f%% of its processors", machine,
                     run->cpu_share * 100);
    if (!points || !series || !rows || !names)
        s = err_no_memory(e, "the plot", n_rows * sizeof *rows);
    if (over_batch)
        chars_printf(label, "batch (sequences in a step, each at depth %d)",
                     b->spec->axes[BENCH_DEPTHS].items[0]);
    for (size_t i = 0; i < n_rows && s == STATUS_OK; i++) {
        const int line = bench_line(b->spec, &b->rows[i]);
        bool drawn = false;
        for (size_t k = 0; k < i; k++)
            drawn |= bench_line(b->spec, &b->rows[k]) == line;
        if (drawn)
            continue;
        struct plot_series *of = &series[plot.n_series];
        name_line(r, &b->rows[i], names[plot.n_series], sizeof names[0]);
        *of = (struct plot_series){names[plot.n_series++], next, take_line(r, line, next, rows)};
        next += of->n_points;
    }
    if (s == STATUS_OK)
        s = plot_write(&plot, r->o->svg, e);
    free(points);
    free(series);
    free(rows);
    free(names);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

static void read_cpu(char *out, size_t size)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, size, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *name = strstr(line, ": ");
        if (strncmp(line, "model name", 10) == 0 && name) {
            snprintf(out, size, "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

/* The table, and the files. Forms for people begin with a few lines about the machine; the other
 * ones hold the documented keys and nothing else. */
enum status bench_report(struct bench_run *r, struct err *e)
{
    const bool people = table_is_for_people(r->o->common.format);
    const struct int_list *threads = &r->spec.axes[BENCH_THREADS];
    const time_t now = time(NULL);
    char cpu[128], date[24], machine[512], warning[160];
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    read_cpu(cpu, sizeof cpu);
    chars_printf(machine, "%s, %s, threads %d%s; decode %s, %s", cpu, r->spec.kernels->name,
                 threads->items[0], threads->n > 1 ? " and other" : "", DECODE_VERSION,
                 COMPILER_NAME);
    chars_printf(warning,
                 "this run got %.0f%% of its processors, other work the rest: no row is called "
                 "the fastest",
                 r->bench.cpu_share * 100);
    const struct circumstances run = {.isa = r->spec.kernels->name,
                                      .version = DECODE_VERSION,
                                      .compiler = COMPILER_NAME,
                                      .cpu = cpu,
                                      .date = date,
                                      .warning = r->bench.cpu_share < VERDICT_HALF ? warning : NULL,
                                      .n = r->spec.n,
                                      .warmup = r->spec.warmup,
                                      .cpu_share = r->bench.cpu_share,
                                      .peak_rss_bytes = r->bench.peak_rss_bytes};
    if (people)
        print_header(r, &run, machine);
    else
        say(&r->o->common, "%s: %s", r->subjects[0].name, machine);
    TRY(print_table(r, &run, e));
    if (people)
        print_footer(r);
    return r->o->svg ? write_plot(r, &run, machine, e) : STATUS_OK;
}
