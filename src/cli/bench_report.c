#include "cli/bench_report.h"

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* Of its threads' time a row gets less only where other work has the processors, too. */
#define LEAST_SHARE 0.65
/* A mean further from the median than this says that some steps took much longer. */
#define UNEVEN 0.1
/* A table with a time of so many microseconds is in milliseconds. */
#define LONG_US 1e6

/* --- a former benchmark ---------------------------------------------------------------------- */

/* The row of the same setting, which is marked as found; NULL: there is none. */
static const struct former_row *find_former(struct former *f, const struct bench_row *row)
{
    const struct inspect_step *s = &row->step;
    FOR_EACH (struct former_row, old, f->rows, f->n) {
        if (str_is(old->variant, s->variant) && str_is(old->kv_type, s->kv_type) &&
            str_is(old->type, storage_name(row->type)) && old->threads == row->threads &&
            old->depth == s->depth && old->batch == s->batch) {
            old->found = true;
            return old;
        }
    }
    return NULL;
}

/* What is left out of the comparison: settings that only one of the two has; and another model. */
static void say_what_differs(struct bench_run *r)
{
#define SETTING "%s, %s weights, %s KV, %d threads, depth %d, batch %d"
    const struct bench *b = &r->bench;
    struct former *f = &r->former;
    char subject[sizeof f->subject];
    chars_printf(subject, "%s", r->subject);
    utf8_strip(subject);
    if (f->subject[0] && !str_is(f->subject, subject))
        say(&r->common, "--against: its rows are of %s, these of %s", f->subject, subject);
    FOR_EACH (const struct bench_row, row, b->rows, b->n_rows)
        if (!find_former(f, row))
            say(&r->common, "--against has no row of " SETTING, row->step.variant,
                storage_name(row->type), row->step.kv_type, row->threads, row->step.depth,
                row->step.batch);
    FOR_EACH (const struct former_row, old, f->rows, f->n)
        if (!old->found)
            say(&r->common, "only --against has " SETTING, old->variant, old->type, old->kv_type,
                old->threads, old->depth, old->batch);
}

/* --- the table ------------------------------------------------------------------------------- */

static struct figure figure_percent(double share)
{
    struct figure f;
    chars_printf(f.text, "%.0f%%", share * 100);
    return f;
}

static struct figure figure_ms(double us)
{
    struct figure f;
    chars_printf(f.text, "%.2f", us / 1e3);
    return f;
}

#define RUN(member)     MEMBER(bench_run, member)
#define ROW(member)     MEMBER(bench_run, row.member)
#define RUN_KEY(member) KEY(bench_run, member)
#define ROW_KEY(member) #member, NULL, ROW(member)
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
    {ROW_KEY(repeats)},
    {"warmup", NULL, RUN(spec.warmup)},
    {ROW_KEY(p10_us)},
    {"p50_us", "p50 µs", ROW(p50_us), "%.1f"},
    {ROW_KEY(p50_low_us)},
    {ROW_KEY(p50_high_us)},
    {ROW_KEY(p90_us)},
    {"p99_us", "p99 µs", ROW(p99_us), "%.1f", .rank = 8},
    {ROW_KEY(max_us)},
    {ROW_KEY(mean_us)},
    {"us_per_token", "µs/token", ROW(us_per_token), "%.1f", .rank = 4},
    {"tokens_per_s", "tokens/s", ROW(tokens_per_s), .figure = figure_rate, .rank = 3},
    {"prefill_tokens_per_s", "prefill tok/s", ROW(prefill_tokens_per_s), .figure = figure_rate,
     .rank = 2},
    {"speedup", "speed-up", ROW(speedup), "%.2fx"},
    {ROW_KEY(speedup_low)},
    {ROW_KEY(speedup_high)},
    {NULL, "interval", RUN(speedup_range), .right = true, .rank = 3},
    {"predicted_speedup", "by bytes", ROW(predicted_speedup), "%.2fx", .rank = 4},
    {NULL, "predicted", ROW(predicted_speedup), "%.2fx", .rank = 4},
    {"weight_bytes", "weights read", ROW(step.cost.weight_bytes), .figure = figure_bytes,
     .rank = 9},
    {"kv_bytes", "KV read", ROW(step.cost.kv_bytes), .figure = figure_bytes, .rank = 7},
    {"flops", NULL, ROW(step.flops)},
    {"attention_flops", NULL, ROW(step.attention_flops)},
    {"gb_per_s", "GB/s", ROW(gb_per_s), "%.1f", .rank = 5},
    {"predicted_us", "predicted µs", ROW(step.predicted.us), "%.1f"},
    {"limit_tokens_per_s", NULL, ROW(step.predicted.tokens_per_s)},
    {"share_of_limit", "of limit", ROW(share_of_limit), .figure = figure_percent, .rank = 2},
    {"limited_by", "limited by", ROW(step.predicted.limited_by), .rank = 6},
    {ROW_KEY(load_ms)},
    {"peak_rss_bytes", "peak RSS", ROW(peak_rss_bytes), .figure = figure_bytes, .rank = 10},
    {"logits_hash", NULL, RUN(hash)},
    {RUN_KEY(isa)},
    {RUN_KEY(noisy)},
    {ROW_KEY(cpu_share)},
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, ROW(step.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, ROW(step.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, ROW(step.limits.dot_flops_per_s)},
    /* What joins two runs. */
    {RUN_KEY(model)},
    {"shape", NULL, RUN(shape.shape)},
    {RUN_KEY(architecture)},
    {RUN_KEY(cpu)},
    {RUN_KEY(version)},
    {RUN_KEY(compiler)},
    {RUN_KEY(date)},
    /* With --text. */
    {"cache_bytes", "cache", ROW(step.allocated_bytes), .figure = figure_bytes},
    {"bits_per_byte", "bits/byte", RUN(advised.bits_per_byte), "%.4f", .rank = 3},
    {"lost_bits_per_byte", "lost", RUN(advised.lost), "%+.4f"},
    {"lost_stderr", "stderr", RUN(advised.lost_error), "%.4f", .rank = 2},
    {"beyond", "beyond", RUN(advised.beyond)},
    /* With --against. */
    {"old_p50_us", "old p50 µs", RUN(old_p50_us), "%.1f"},
    {"ratio", "new/old", RUN(ratio), "%.3f"},
    {RUN_KEY(ratio_low)},
    {RUN_KEY(ratio_high)},
    {NULL, "its interval", RUN(ratio_range), .right = true},
    {"note", "note", RUN(note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS LENGTH(bench_fields)
/* Before the last. */
#define N_AGAINST 5
#define N_ADVICE  5

static bool is_noisy(const struct bench_row *row)
{
    return row->spread > NOISY || row->cpu_share < LEAST_SHARE;
}

static bool is_uneven(const struct bench_row *row)
{
    return fabs(row->mean_us / row->p50_us - 1) > UNEVEN;
}

/* "0.97 to 1.04"; "" where there is none. */
static void write_range(char *out, size_t size, double low, double high)
{
    out[0] = 0;
    if (isfinite(low) && isfinite(high))
        snprintf(out, size, "%.2f to %.2f", low, high);
}

static const void *next_row(void *arg, int i)
{
    static const struct former_row none = {
        .p50_us = NO_FIGURE, .p50_low_us = NO_FIGURE, .p50_high_us = NO_FIGURE};
    struct bench_run *r = arg;
    const struct bench *b = &r->bench;
    if (i >= b->n_rows)
        return NULL;
    if (r->advice)
        r->advised = r->advice[i];
    const struct bench_row *row = r->advice ? r->advised.row : &b->rows[i];
    const bool busy = row->cpu_share < LEAST_SHARE;
    r->row = *row;
    r->best = r->advice && (i > 0 || r->advised.beyond[0]) ? "" : "*";
    FOR_EACH (const struct bench_row, other, b->rows, r->advice ? 0 : b->n_rows)
        if (other->step.depth == row->step.depth && other->step.batch == row->step.batch &&
            other->p50_us < row->p50_us)
            r->best = "";
    r->type = storage_name(row->type);
    r->noisy = is_noisy(row);
    chars_printf(r->hash, "%016" PRIx64, row->logits_hash);
    /* Why the row's figures may not be taken at their word, or not together. */
    r->note[0] = 0;
    if (row->repeats < r->spec.repeats)
        chars_printf(r->note, "%d of %d repeats", row->repeats, r->spec.repeats);
    if (r->noisy)
        chars_append(r->note, "%s%s: %.0f%%", r->note[0] ? ", " : "", busy ? "busy" : "noisy",
                     (busy ? row->cpu_share : row->spread) * 100);
    if (is_uneven(row))
        chars_append(r->note, "%smean %.2f of p50", r->note[0] ? ", " : "",
                     row->mean_us / row->p50_us);
    write_range(r->speedup_range, sizeof r->speedup_range, row->speedup_low, row->speedup_high);
    const struct former_row *found = find_former(&r->former, row), *old = found ? found : &none;
    r->old_p50_us = old->p50_us;
    r->ratio = row->p50_us / old->p50_us;
    r->ratio_low = row->p50_low_us / old->p50_high_us;
    r->ratio_high = row->p50_high_us / old->p50_low_us;
    write_range(r->ratio_range, sizeof r->ratio_range, r->ratio_low, r->ratio_high);
    return r;
}

static enum status print_table(struct bench_run *r, struct err *e)
{
    /* People are not shown what says something of other runs only: of one sequence, of batches. */
    enum { ONE, BATCHES, ADVICE, RUNS };
    static const char *const hidden[RUNS][16] = {
        [ONE] = {"predicted µs", "batch", "µs/token", "predicted", "limited by"},
        [BATCHES] = {"predicted µs", "by bytes"},
        [ADVICE] = {"µs/token", "p99 µs", "tokens/s", "prefill tok/s", "interval", "by bytes",
                    "predicted", "weights read", "KV read", "GB/s", "of limit", "limited by",
                    "peak RSS"}};
    static const char *const in_us[] = {"p50 µs",     "p99 µs",       "µs/token",
                                        "old p50 µs", "predicted µs", NULL};
    static const char *const in_ms[] = {"p50 ms", "p99 ms", "ms/token", "old p50 ms",
                                        "predicted ms"};
    const time_t now = time(NULL);
    struct tm utc = {0};
    struct report_field chosen[N_FIELDS];
    const int of = r->advice ? ADVICE : r->bench.most_sequences > 1 ? BATCHES : ONE;
    int n = 0;
    bool is_long = false;
    for (int i = 0; i < r->bench.n_rows; i++)
        is_long |= r->bench.rows[i].p99_us >= LONG_US;
    for (int f = 0; f < N_FIELDS; f++) {
        struct report_field *field = &chosen[n];
        const int from_end = N_FIELDS - 1 - f;
        if ((!r->against && from_end > 0 && from_end <= N_AGAINST) ||
            (!r->advice && from_end > N_AGAINST && from_end <= N_AGAINST + N_ADVICE))
            continue;
        *field = bench_fields[f];
        n++;
        if (field->heading && names_find(hidden[of], field->heading) >= 0)
            field->heading = NULL;
        const int time = is_long && field->heading ? names_find(in_us, field->heading) : -1;
        if (time >= 0) {
            field->heading = in_ms[time];
            field->figure = figure_ms;
        }
    }
    r->isa = r->spec.kernels->name;
    r->architecture = r->spec.config.arch->name;
    r->version = DECODE_VERSION;
    r->compiler = COMPILER_NAME;
    gmtime_r(&now, &utc);
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return job_print(r->job, &(struct table){chosen, n, .row = next_row, .arg = r}, e);
}

/* --- what else is shown ---------------------------------------------------------------------- */

/* Of the lines above and below the table, where a terminal breaks them. */
#define INDENT 2

static void print_header(const struct bench_run *r)
{
    const struct bench_spec *spec = &r->spec;
    const struct config *c = &spec->config;
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    paragraph_printf(
        &p,
        "%s: layers %d, d_model %d, heads %d of size %d, d_ff %d, vocabulary %d, context %d\n%s\n",
        r->title, c->n_layers, c->d_model, c->n_heads, c->head_dim, c->d_ff, c->n_vocab, c->n_ctx,
        r->machine);
    /* The limits of each number of threads: a bandwidth for each class of working sets. */
    for (int i = 0; i < r->bench.n_machines; i++) {
        const struct machine *m = &r->bench.machines[i];
        const int threads = spec->axes[BENCH_THREADS].items[i];
        const char *comma = ": reads";
        double before = 0;
        paragraph_puts(&p, "roofline");
        if (r->bench.n_machines > 1)
            paragraph_printf(&p, " of %d thread%s", threads, plural(threads));
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
    paragraph_printf(
        &p,
        "%d x %d steps, each at exactly its depth, after %d to warm up; the rows take turns\n\n",
        spec->repeats, spec->n, spec->warmup);
    paragraph_end(&p);
}

/* What the columns' names leave open. */
static void print_footer(const struct bench_run *r)
{
    const struct bench *b = &r->bench;
    const struct int_list *depths = &b->spec->axes[BENCH_DEPTHS];
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    bool noisy = false, uneven = false;
    FOR_EACH (const struct bench_row, row, b->rows, b->n_rows) {
        noisy |= is_noisy(row);
        uneven |= is_uneven(row);
    }
    if (r->advice) {
        const struct inspect_step *step = &r->advice->row->step;
        const int variant = r->spec.axes[BENCH_VARIANTS].items[r->advice->row->at[BENCH_VARIANTS]];
        if (r->advice->beyond[0])
            paragraph_puts(&p, "\nno row is within the limits\n");
        else if (variant == r->spec.config.n_kv_heads)
            paragraph_printf(&p, "\n%s, the checkpoint as it is\n", step->variant);
        else
            paragraph_printf(&p, "\n%s: decode convert %s -o OUT --kv-heads %d --calib TEXT\n",
                             step->variant, r->title, variant);
        paragraph_puts(&p, "\n* the smallest cache within the limits; beyond: the limits that a "
                           "row exceeds; cache: of all sequences\n");
        paragraph_puts(&p, "lost: bits per byte more than the checkpoint on the text's last tenth, "
                           "converted by fit on the others\n");
    } else {
        paragraph_puts(&p, "\n* fastest at its depth and number of sequences; p50 and p99 of a "
                           "step, KV read of each sequence;\vspeed-up over MHA, measured and "
                           "predicted; its interval is that of the repeats\n");
        paragraph_puts(&p, "of limit: the time at the roofline of a step's bytes and operations, "
                           "over the median\n");
    }
    if (noisy)
        paragraph_puts(
            &p, "noisy: the repeats' medians differ by so much; busy: so much of the processors' "
                "time was left\vfor the row by other work; a quieter machine says more\n");
    if (uneven)
        paragraph_puts(&p, "mean of p50: a few steps took much longer than the others; tokens/s "
                           "goes by the mean of all,\vspeed-up and the limit by the median\n");
    if (depths->n == 1 && depths->items[0] == 0 && b->spec->config.n_ctx > 1)
        paragraph_printf(
            &p, "depth 0: an empty KV cache; --depth 0,%d shows what attention costs as it fills\n",
            b->spec->config.n_ctx - 1);
    paragraph_end(&p);
}

/* Median microseconds a token, a step's divided by its tokens, against depth or batch
 * (bench_x_axis). A series is a line of which something was measured. */
static enum status write_plot(const struct bench_run *r, struct err *e)
{
    const struct bench *b = &r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    const size_t n_rows = b->n_rows, n_lines = b->n_lines;
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
        chars_printf(label, "batch (sequences in a step, each at depth %d)",
                     b->spec->axes[BENCH_DEPTHS].items[0]);
    for (int line = 0; line < b->n_lines && s == STATUS_OK; line++) {
        struct plot_series *of = &series[plot.n_series];
        *of = (struct plot_series){.name = names[line], .points = p};
        FOR_EACH (const struct bench_row, row, b->rows, n_rows) {
            const double batch = row->step.batch;
            if (row->line != line)
                continue;
            of->n_points++;
            /* "MHA", and what else tells the lines of this run apart. */
            char part[BENCH_AXES][24] = {""};
            chars_printf(part[BENCH_TYPES], " %s", storage_name(row->type));
            chars_printf(part[BENCH_KV_TYPES], ", %s KV", row->step.kv_type);
            chars_printf(part[BENCH_THREADS], ", %d threads", row->threads);
            chars_printf(part[BENCH_BATCHES], ", batch %d", row->step.batch);
            for (int a = 0; a < BENCH_AXES; a++)
                if (b->spec->axes[a].n == 1 || a == (int)bench_x_axis(b->spec))
                    part[a][0] = 0;
            chars_printf(names[line], "%s%s%s%s%s", row->step.variant, part[BENCH_TYPES],
                         part[BENCH_KV_TYPES], part[BENCH_THREADS], part[BENCH_BATCHES]);
            *p++ = (struct plot_point){over_batch ? batch : row->step.depth, row->p10_us / batch,
                                       row->us_per_token, row->p90_us / batch,
                                       row->step.predicted.us / batch};
        }
        plot.n_series += of->n_points > 0;
    }
    THEN(s, plot_write(&plot, r->plot, e));
    free(points);
    free(series);
    free(names);
    return s;
}

/* The table, and the files. Forms for people begin with a few lines about the machine; the other
 * ones hold the documented keys and nothing else. */
enum status bench_report(struct bench_run *r, struct err *e)
{
    const bool people = table_is_for_people(r->common.format);
    const struct int_list *threads = &r->spec.axes[BENCH_THREADS];
    char line[256];
    chars_printf(r->title, "%s", r->subject);
    utf8_strip(r->title);
    chars_printf(r->cpu, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", r->cpu) == 1)
            break;
    if (f)
        fclose(f);
    chars_printf(r->machine, "%s, %s, threads %d%s; decode %s, %s", r->cpu, r->spec.kernels->name,
                 threads->items[0], threads->n > 1 ? " and other" : "", DECODE_VERSION,
                 COMPILER_NAME);
    if (people)
        print_header(r);
    else
        say(&r->common, "%s: %s", r->subject, r->machine);
    if (r->against)
        say_what_differs(r);
    TRY(print_table(r, e));
    if (people)
        print_footer(r);
    return r->plot ? write_plot(r, e) : STATUS_OK;
}
