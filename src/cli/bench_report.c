#include "cli/bench_report.h"
#include "cli/program.h"

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* A row whose threads had a smaller share of the processors' time than this was disturbed by other
 * work. */
#define LEAST_SHARE 0.65
/* A mean further from the median than this says that some steps took much longer. */
#define UNEVEN 0.1
/* A table is no wider, unless all of it is asked for. */
#define WIDEST 100
/* A table with a time of so many microseconds is in milliseconds. */
#define LONG_US 1e6

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

static const struct report_field bench_fields[] = {
    {NULL, "", MEMBER(bench_run, mark)},
    {"variant", "variant", MEMBER(bench_run, row.step.variant)},
    {"n_kv_heads", NULL, MEMBER(bench_run, row.step.n_kv_heads)},
    {"type", "type", MEMBER(bench_run, type), .detail = true},
    {"kv_type", "KV", MEMBER(bench_run, row.step.kv_type), .detail = true},
    {"threads", "threads", MEMBER(bench_run, row.threads), .detail = true},
    {"depth", "depth", MEMBER(bench_run, row.step.depth)},
    {"batch", "batch", MEMBER(bench_run, row.step.batch)},
    {"n", NULL, MEMBER(bench_run, spec.n)},
    {"repeats", NULL, MEMBER(bench_run, row.repeats)},
    {"warmup", NULL, MEMBER(bench_run, spec.warmup)},
    {"p10_us", NULL, MEMBER(bench_run, row.p10_us)},
    {"p50_us", "p50 µs", MEMBER(bench_run, row.p50_us), "%.1f"},
    {"p50_low_us", NULL, MEMBER(bench_run, row.p50_low_us)},
    {"p50_high_us", NULL, MEMBER(bench_run, row.p50_high_us)},
    {"p90_us", NULL, MEMBER(bench_run, row.p90_us)},
    {"p99_us", "p99 µs", MEMBER(bench_run, row.p99_us), "%.1f", .detail = true},
    {"max_us", NULL, MEMBER(bench_run, row.max_us)},
    {"mean_us", NULL, MEMBER(bench_run, row.mean_us)},
    {"us_per_token", "µs/token", MEMBER(bench_run, row.us_per_token), "%.1f", .detail = true},
    {"tokens_per_s", "tokens/s", MEMBER(bench_run, row.tokens_per_s), .figure = figure_rate,
     .detail = true},
    {"prefill_tokens_per_s", "prefill tok/s", MEMBER(bench_run, row.prefill_tokens_per_s),
     .figure = figure_rate, .detail = true},
    {"speedup", "speed-up", MEMBER(bench_run, row.speedup), "%.2fx"},
    {"speedup_low", NULL, MEMBER(bench_run, row.speedup_low)},
    {"speedup_high", NULL, MEMBER(bench_run, row.speedup_high)},
    {NULL, "interval", MEMBER(bench_run, speedup_range), .right = true, .detail = true},
    {"predicted_speedup", "by bytes", MEMBER(bench_run, row.predicted_speedup), "%.2fx",
     .detail = true},
    {NULL, "predicted", MEMBER(bench_run, row.predicted_speedup), "%.2fx", .detail = true},
    {"weight_bytes", "weights read", MEMBER(bench_run, row.step.cost.weight_bytes),
     .figure = figure_bytes, .detail = true},
    {"kv_bytes", "KV read", MEMBER(bench_run, row.step.cost.kv_bytes), .figure = figure_bytes,
     .detail = true},
    {"flops", NULL, MEMBER(bench_run, row.step.flops)},
    {"attention_flops", NULL, MEMBER(bench_run, row.step.attention_flops)},
    {"gb_per_s", "GB/s", MEMBER(bench_run, row.gb_per_s), "%.1f", .detail = true},
    {"predicted_us", "predicted µs", MEMBER(bench_run, row.step.predicted.us), "%.1f"},
    {"limit_tokens_per_s", NULL, MEMBER(bench_run, row.step.predicted.tokens_per_s)},
    {"share_of_limit", "of limit", MEMBER(bench_run, row.share_of_limit), .figure = figure_percent,
     .detail = true},
    {"limited_by", "limited by", MEMBER(bench_run, row.step.predicted.limited_by), .detail = true},
    {"load_ms", NULL, MEMBER(bench_run, row.load_ms)},
    {"peak_rss_bytes", "peak RSS", MEMBER(bench_run, row.peak_rss_bytes), .figure = figure_bytes,
     .detail = true},
    {"logits_hash", NULL, MEMBER(bench_run, hash)},
    {"isa", NULL, MEMBER(bench_run, isa)},
    {"noisy", NULL, MEMBER(bench_run, noisy)},
    {"cpu_share", NULL, MEMBER(bench_run, row.cpu_share)},
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, MEMBER(bench_run, row.step.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, MEMBER(bench_run, row.step.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, MEMBER(bench_run, row.step.limits.dot_flops_per_s)},
    /* What joins two runs. */
    {"model", NULL, MEMBER(bench_run, model)},
    {"shape", NULL, MEMBER(bench_run, shape.shape)},
    {"architecture", NULL, MEMBER(bench_run, architecture)},
    {"cpu", NULL, MEMBER(bench_run, cpu)},
    {"version", NULL, MEMBER(bench_run, version)},
    {"compiler", NULL, MEMBER(bench_run, compiler)},
    {"date", NULL, MEMBER(bench_run, date)},
    {"verdict", NULL, MEMBER(bench_run, verdict)},
    /* With --text. */
    {"cache_bytes", "cache", MEMBER(bench_run, row.step.allocated_bytes), .figure = figure_bytes},
    {"bits_per_byte", "bits/byte", MEMBER(bench_run, advised.bits_per_byte), "%.4f",
     .detail = true},
    {"lost_bits_per_byte", "lost", MEMBER(bench_run, advised.lost), "%+.4f"},
    {"lost_stderr", "stderr", MEMBER(bench_run, advised.lost_error), "%.4f", .detail = true},
    {"beyond", "beyond", MEMBER(bench_run, advised.beyond)},
    {"chosen", NULL, MEMBER(bench_run, advised.chosen)},
    {"undominated", NULL, MEMBER(bench_run, advised.undominated)},
    {"note", "note", MEMBER(bench_run, note)},
};
#define N_FIELDS LENGTH(bench_fields)
/* Columns before the last one. */
#define N_ADVICE 7

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
    struct bench_run *r = arg;
    const struct bench *b = &r->bench;
    if (i >= b->n_rows)
        return NULL;
    if (r->advice)
        r->advised = r->advice[i];
    const struct bench_row *row = r->advice ? r->advised.row : &b->rows[i];
    const bool busy = row->cpu_share < LEAST_SHARE;
    static const char *const verdicts[] = {[BENCH_UNJUDGED] = NULL,
                                           [BENCH_SLOWER] = "slower",
                                           [BENCH_TOSS_UP] = "toss-up",
                                           [BENCH_FASTEST] = "fastest"};
    static const char *const marks[] = {
        [BENCH_UNJUDGED] = "", [BENCH_SLOWER] = "", [BENCH_TOSS_UP] = "~", [BENCH_FASTEST] = "*"};
    r->row = *row;
    r->verdict = verdicts[row->verdict];
    r->mark = marks[row->verdict];
    if (r->advice)
        r->mark = r->advised.chosen ? "*" : r->advised.undominated ? "+" : "";
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
    return r;
}

static enum status print_table(struct bench_run *r, struct err *e)
{
    /* People are not shown what says something of other runs only: of one sequence, of batches. */
    enum { ONE, BATCHES, ADVICE, RUNS };
    static const char *const hidden[RUNS][16] = {
        [ONE] = {"predicted µs", "batch", "µs/token", "predicted"},
        [BATCHES] = {"predicted µs", "by bytes"},
        [ADVICE] = {"µs/token", "p99 µs", "tokens/s", "prefill tok/s", "interval", "by bytes",
                    "predicted", "KV read"}};
    /* These explain a time, for whoever asks for more. */
    static const char *const verbose[] = {"weights read", "GB/s",     "of limit",
                                          "limited by",   "peak RSS", NULL};
    static const char *const in_us[] = {"p50 µs", "p99 µs", "µs/token", "predicted µs", NULL};
    static const char *const in_ms[] = {"p50 ms", "p99 ms", "ms/token", "predicted ms"};
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
        if (!r->advice && from_end > 0 && from_end <= N_ADVICE)
            continue;
        *field = bench_fields[f];
        n++;
        if (field->heading && (names_find(hidden[of], field->heading) >= 0 ||
                               (!r->common.verbose && names_find(verbose, field->heading) >= 0)))
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
    return job_print(r->job, &(struct table){chosen, .n = n, .row = next_row, .arg = r}, e);
}

/* --- what else is shown ---------------------------------------------------------------------- */

/* The indent of lines above and below the table that go on in a second line. */
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
        "%d repeats, each of %d steps of every row at exactly its depth, after %d to warm up\n\n",
        spec->repeats, spec->n, spec->warmup);
    paragraph_end(&p);
}

/* Which rows are chosen, and what else is marked. */
static void print_advice(const struct bench_run *r, struct paragraph *p)
{
    const bool limited = advice_is_limited(r);
    const char *said = "";
    for (int i = 0; i < r->bench.n_rows; i++) {
        const struct bench_advice *a = &r->advice[i];
        const struct bench_row *row = a->row;
        const int n_kv_heads = row->step.n_kv_heads;
        if (!a->chosen || str_is(said, row->step.variant))
            continue;
        said = row->step.variant;
        if (n_kv_heads == r->spec.config.n_kv_heads)
            paragraph_printf(p, "\n%s, the checkpoint as it is\n", said);
        else
            paragraph_printf(p, "\n%s: decode convert %s -o OUT --kv-heads %d --calib TEXT\n", said,
                             r->title, n_kv_heads);
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

/* What the columns' names leave open. */
static void print_footer(const struct bench_run *r)
{
    const struct bench *b = &r->bench;
    const struct int_list *depths = &b->spec->axes[BENCH_DEPTHS];
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    char base[16];
    config_variant_name(&r->spec.config, r->spec.config.n_kv_heads, base);
    bool noisy = false, uneven = false;
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        noisy |= is_noisy(row);
        uneven |= is_uneven(row);
    }
    if (r->advice)
        print_advice(r, &p);
    else
        paragraph_printf(
            &p,
            "\n* the fastest at its depth and number of sequences in every repeat; ~ a toss-up: "
            "which "
            "of these is the\vfastest differs between repeats; p50 and p99 of a step, KV read of "
            "each "
            "sequence;\vspeed-up over %s, measured and predicted; its interval is that of the "
            "repeats\n",
            base);
    if (!r->advice && r->common.verbose)
        paragraph_puts(&p, "of limit: the time at the roofline of a step's bytes and operations, "
                           "over the median\n");
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
        for (size_t i = 0; i < n_rows; i++) {
            const struct bench_row *row = &b->rows[i];
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
    if (s == STATUS_OK)
        s = plot_write(&plot, r->plot, e);
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
    int *columns = &r->job->out->columns;
    char line[256];
    if (r->common.format == TABLE_ALIGNED && !r->common.verbose &&
        (*columns == 0 || *columns > WIDEST))
        *columns = WIDEST;
    chars_printf(r->title, "%s", r->subject);
    utf8_strip(r->title);
    chars_printf(r->cpu, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (f) {
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "model name : %127[^\n]", r->cpu) == 1)
                break;
        fclose(f);
    }
    chars_printf(r->machine, "%s, %s, threads %d%s; decode %s, %s", r->cpu, r->spec.kernels->name,
                 threads->items[0], threads->n > 1 ? " and other" : "", DECODE_VERSION,
                 COMPILER_NAME);
    if (people)
        print_header(r);
    else
        say(&r->common, "%s: %s", r->subject, r->machine);
    TRY(print_table(r, e));
    if (people)
        print_footer(r);
    return r->plot ? write_plot(r, e) : STATUS_OK;
}
