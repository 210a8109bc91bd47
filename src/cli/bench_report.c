#include "cli/bench_report.h"

#include "base/limits.h"
#include "cli/program.h"
#include "show/plot.h"
#include "show/report.h"

/* --- a row as it is shown -------------------------------------------------------------------- */

struct shown_row {
    /* The same in all rows; NULL: none. */
    const char *isa, *version, *compiler, *cpu, *date, *warning;
    int warmup;
    uint64_t peak_rss_bytes;
    /* The row's own. */
    const char *model, *shape, *architecture; /* one of the first two is NULL */
    struct bench_row of;
    const char *checkpoint;     /* its file's name */
    const char *mark, *verdict; /* what it is at its depth and batch: see print_legend */
    const char *variant, *type;
    double load_ms;
    char hash[20], speedup[16], line[352]; /* the last: what its line in the plot is called */
};

/* When people are shown a field: where the axis has several items (or a batch more than one
 * sequence), with -v, with --text, or without it. Programs are shown all fields; those of a text
 * where there is one. */
#define VARIES(axis) (1u << (axis))
enum {
    VERBOSE = 1 << BENCH_AXES,
    TEXT = 2 << BENCH_AXES,
    NO_TEXT = 4 << BENCH_AXES,
    CACHES = 8 << BENCH_AXES, /* caches differ in size */
};

static struct figure figure_percent(double share)
{
    struct figure f;
    chars_printf(f.text, "%.0f%%", share * 100);
    return f;
}

static const struct report_field bench_fields[] = {
    {NULL, "", MEMBER(shown_row, mark)},
    {NULL, "checkpoint", MEMBER(shown_row, checkpoint), .when = VARIES(BENCH_SUBJECTS)},
    {"variant", "variant", MEMBER(shown_row, variant)},
    {"n_kv_heads", NULL, MEMBER(shown_row, of.plan.n_kv_heads)},
    {"type", "type", MEMBER(shown_row, type), .when = VARIES(BENCH_TYPES) | VERBOSE},
    {"kv_type", "KV", MEMBER(shown_row, of.plan.kv_type.text),
     .when = VARIES(BENCH_KV_TYPES) | VERBOSE},
    {"threads", "threads", MEMBER(shown_row, of.threads), .when = VARIES(BENCH_THREADS) | VERBOSE},
    {"depth", "depth", MEMBER(shown_row, of.plan.depth)},
    {"batch", "batch", MEMBER(shown_row, of.plan.batch), .when = VARIES(BENCH_BATCHES) | VERBOSE},
    {"n", NULL, MEMBER(shown_row, of.n)},
    {"repeats", NULL, MEMBER(shown_row, of.repeats)},
    {"warmup", NULL, MEMBER(shown_row, warmup)},
    {"p10_us", NULL, MEMBER(shown_row, of.p10_us)},
    {"p50_us", "p50 µs", MEMBER(shown_row, of.p50_us), "%.1f"},
    {"p90_us", NULL, MEMBER(shown_row, of.p90_us)},
    {"p99_us", "p99 µs", MEMBER(shown_row, of.p99_us), "%.1f", .when = NO_TEXT, .detail = true},
    {"max_us", NULL, MEMBER(shown_row, of.max_us)},
    {"mean_us", NULL, MEMBER(shown_row, of.mean_us)},
    {"us_per_token", "µs/token", MEMBER(shown_row, of.us_per_token), "%.1f",
     .when = VARIES(BENCH_BATCHES), .detail = true},
    {"tokens_per_s", "tokens/s", MEMBER(shown_row, of.tokens_per_s), .figure = figure_rate,
     .when = NO_TEXT, .detail = true},
    {"prefill_tokens_per_s", "prefill tok/s", MEMBER(shown_row, of.prefill_tokens_per_s),
     .figure = figure_rate, .when = NO_TEXT, .detail = true},
    {"prefill_share_of_limit", "prefill of limit", MEMBER(shown_row, of.prefill_share),
     .figure = figure_percent, .when = VERBOSE},
    {"speedup", NULL, MEMBER(shown_row, of.speedup)},
    {NULL, "speed-up", MEMBER(shown_row, speedup), .right = true},
    {"predicted_speedup", "predicted", MEMBER(shown_row, of.predicted_speedup), "%.2fx",
     .when = NO_TEXT},
    {"weight_bytes", "weights read", MEMBER(shown_row, of.plan.weight_bytes),
     .figure = figure_bytes, .when = VERBOSE},
    {"kv_bytes", "KV read", MEMBER(shown_row, of.plan.kv_bytes), .figure = figure_bytes,
     .when = VERBOSE},
    {"flops", NULL, MEMBER(shown_row, of.plan.flops)},
    {"gb_per_s", "GB/s", MEMBER(shown_row, of.gb_per_s), "%.1f", .when = VERBOSE},
    {"predicted_us", "predicted µs", MEMBER(shown_row, of.plan.predicted.us), "%.1f",
     .when = VERBOSE | TEXT},
    {"limit_tokens_per_s", NULL, MEMBER(shown_row, of.plan.predicted.tokens_per_s)},
    {"share_of_limit", "of limit", MEMBER(shown_row, of.share_of_limit), .figure = figure_percent,
     .when = VERBOSE},
    {"load_ms", NULL, MEMBER(shown_row, load_ms)},
    {"memory_bytes", "memory", MEMBER(shown_row, of.plan.memory_bytes), .figure = figure_bytes,
     .when = VERBOSE},
    {"peak_rss_bytes", NULL, MEMBER(shown_row, peak_rss_bytes)},
    {"logits_hash", NULL, MEMBER(shown_row, hash)},
    {"isa", NULL, MEMBER(shown_row, isa)},
    {"cpu_share", NULL, MEMBER(shown_row, of.cpu_share)},
    {"bandwidth_gb_per_s", NULL, MEMBER(shown_row, of.plan.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, MEMBER(shown_row, of.plan.limits.fma_flops_per_s)},
    {"model", NULL, MEMBER(shown_row, model)},
    {"shape", NULL, MEMBER(shown_row, shape)},
    {"architecture", NULL, MEMBER(shown_row, architecture)},
    {"cpu", NULL, MEMBER(shown_row, cpu)},
    {"version", NULL, MEMBER(shown_row, version)},
    {"compiler", NULL, MEMBER(shown_row, compiler)},
    {"date", NULL, MEMBER(shown_row, date)},
    {"warning", NULL, MEMBER(shown_row, warning)},
    {"verdict", NULL, MEMBER(shown_row, verdict)},
    {"cache_bytes", "cache", MEMBER(shown_row, of.plan.allocated_bytes), .figure = figure_bytes,
     .when = TEXT | CACHES},
    {"bits_per_byte", "bits/byte", MEMBER(shown_row, of.loss.bits_per_byte), "%.4f", .when = TEXT,
     .detail = true},
    {"lost_bits_per_byte", "lost", MEMBER(shown_row, of.loss.lost), "%+.4f", .when = TEXT},
    {"lost_stderr", "stderr", MEMBER(shown_row, of.loss.lost_error), "%.4f", .when = TEXT,
     .detail = true},
    {"beyond", "beyond", MEMBER(shown_row, of.beyond), .when = TEXT},
    {"chosen", NULL, MEMBER(shown_row, of.chosen), .when = TEXT},
    {"note", "note", MEMBER(shown_row, of.note)},
};

/* Names the row's line in the plot: "MHA", and whatever else differs between lines. */
static void name_line(const struct bench_run *r, struct shown_row *s)
{
    const struct bench_row *row = &s->of;
    char part[BENCH_AXES][64] = {""};
    chars_printf(part[BENCH_SUBJECTS], " of %.50s", path_name(row->model->subject->name));
    chars_printf(part[BENCH_TYPES], " %s", storage_names[row->type]);
    chars_printf(part[BENCH_KV_TYPES], ", %s KV", row->plan.kv_type.text);
    chars_printf(part[BENCH_THREADS], ", %d threads", row->threads);
    chars_printf(part[BENCH_BATCHES], ", batch %d", row->plan.batch);
    for (int a = 0; a < BENCH_AXES; a++)
        if (r->spec.axes[a].n == 1 || a == (int)bench_x_axis(&r->spec))
            part[a][0] = 0;
    chars_printf(s->line, "%s%s%s%s%s%s", row->model->variant.name, part[BENCH_SUBJECTS],
                 part[BENCH_TYPES], part[BENCH_KV_TYPES], part[BENCH_THREADS], part[BENCH_BATCHES]);
}

/* A row as it is shown; `run` has the fields that are the same in all rows. */
static struct shown_row show_row(const struct bench_run *r, const struct shown_row *run,
                                 const struct bench_row *row)
{
    static const struct {
        const char *mark, *verdict;
    } judged[] = {[BENCH_UNJUDGED] = {"", NULL},
                  [BENCH_SLOWER] = {"", "slower"},
                  [BENCH_TOSS_UP] = {"~", "toss-up"},
                  [BENCH_FASTEST] = {"*", "fastest"}};
    const struct bench_subject *subject = row->model->subject;
    struct shown_row s = *run;
    s.of = *row;
    s.checkpoint = path_name(subject->name);
    *(subject->gguf ? &s.model : &s.shape) = subject->name;
    s.architecture = subject->config.arch->name;
    s.mark = !r->has_losses ? judged[row->verdict].mark : row->chosen ? "*" : "";
    s.verdict = judged[row->verdict].verdict;
    s.variant = row->model->variant.name;
    s.type = storage_names[row->type];
    s.load_ms = row->model->load_ms;
    chars_printf(s.hash, "%016" PRIx64, row->logits_hash);
    name_line(r, &s);
    /* What is not told apart is not shown as faster or slower. */
    if (row->unsure)
        chars_printf(s.speedup, "?");
    else if (row->like_base)
        chars_printf(s.speedup, "~1x");
    else if (isfinite(row->speedup))
        chars_printf(s.speedup, "%.2fx", row->speedup);
    return s;
}

/* --- for people ------------------------------------------------------------------------------ */

static unsigned fields_shown(const struct bench_run *r)
{
    unsigned shown = r->has_losses ? TEXT : NO_TEXT;
    if (!table_is_for_people(r->o->common.format))
        return shown | ~(unsigned)(TEXT | CACHES);
    for (int i = 1; i < r->bench.n_rows; i++)
        if (r->bench.rows[i].plan.allocated_bytes != r->bench.rows[0].plan.allocated_bytes)
            shown |= CACHES;
    for (int a = 0; a < BENCH_AXES; a++)
        if (r->spec.axes[a].n > 1 || (a == BENCH_BATCHES && r->bench.most_sequences > 1))
            shown |= VARIES(a);
    return shown | (r->o->common.verbose ? VERBOSE : 0);
}

/* The indent of lines above and below the table that go on in a second line. */
#define INDENT 2

static void print_header(const struct bench_run *r, const struct shown_row *run,
                         const char *machine)
{
    struct paragraph p = paragraph_begin(r->job->out, INDENT);
    if (run->warning)
        paragraph_printf(&p, "WARNING: %s\n\n", run->warning);
    for (int i = 0; i <= r->o->others.n; i++) {
        char name[512]; /* a path may have control characters */
        chars_printf(name, "%s", r->subjects[i].name);
        utf8_strip(name);
        paragraph_printf(&p, "%s\n", name);
    }
    paragraph_printf(
        &p,
        "%s\n%d repeat%s, each of %s%d step%s of every row at exactly its depth, after %d "
        "to warm up\n\n",
        machine, r->spec.repeats, plural(r->spec.repeats), r->spec.settles ? "at most " : "",
        r->spec.n, plural(r->spec.n), r->spec.warmup);
    paragraph_end(&p);
}

/* Prints a word of a command line, quoted as a shell needs it. */
static void put_word(struct output *out, const char *word)
{
    if (!word[strspn(word,
                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%")]) {
        output_printf(out, " %s", word);
        return;
    }
    output_puts(out, " '");
    for (; *word; word++)
        output_printf(out, *word == '\'' ? "'\\''" : "%c", *word);
    output_puts(out, "'");
}

/* Prints how to have a row that is chosen: the command that makes its checkpoint, never broken, and
 * the type of its cache. */
static void print_advice(const struct bench_run *r, const struct bench_row *row)
{
    struct output *out = r->job->out;
    const struct bench_subject *of = row->model->subject;
    const int type = r->spec.axes[BENCH_TYPES].items[row->at[BENCH_TYPES]];
    const bool fewer = row->plan.n_kv_heads != of->config.n_kv_heads;
    const bool retypes = type != BENCH_AS_IS;
    const char *kv_type = row->plan.kv_type.text;
    output_printf(out, "\n%s at depth %d", row->model->variant.name, row->plan.depth);
    if (row->plan.batch > 1)
        output_printf(out, " and batch %d", row->plan.batch);
    output_puts(out, fewer || retypes ? "" : ": the checkpoint as it is");
    if (!str_is(kv_type, cache_type_names[CACHE_F32]))
        output_printf(out, ", run with --kv-type %s", kv_type);
    output_puts(out, "\n");
    if (!fewer && !retypes)
        return;
    output_puts(out, "  decode convert");
    put_word(out, of->name);
    output_puts(out, " -o OUT.gguf");
    if (fewer) {
        output_printf(out, " --kv-heads %d --calib", row->plan.n_kv_heads);
        put_word(out, r->o->common.file);
        output_puts(out, " --range 0:0.9");
        if (r->o->calib_tokens)
            output_printf(out, " --calib-tokens %d", r->o->calib_tokens);
    }
    if (retypes)
        output_printf(out, " --type %s", storage_names[type]);
    output_puts(out, job_find_quantized(of->gguf) ? " --requantize\n" : "\n");
}

/* Says of the row that exceeds the limits by the least how far it is beyond each. */
static void print_nearest(const struct bench_run *r, struct paragraph *p)
{
    static const char *const options[BENCH_LIMITS] = {"--max-loss", "--max-us", "--max-cache"};
    const struct bench_row *row = bench_nearest(&r->bench);
    const double of[BENCH_LIMITS] = {row->loss.lost, row->p50_us, row->plan.allocated_bytes};
    const char *before = " exceeds";
    paragraph_printf(p, "\nno row is within the limits; the nearest, %s with a cache of %s,",
                     row->model->variant.name, row->plan.kv_type.text);
    for (int i = 0; i < BENCH_LIMITS; i++) {
        const double limit = r->limits.at[i];
        if (limit <= 0 || of[i] <= limit)
            continue;
        paragraph_printf(p, "%s %s by ", before, options[i]);
        paragraph_printf(p, i == BENCH_CACHE ? "%.0f bytes" : "%.4f", of[i] - limit);
        before = " and";
    }
    paragraph_puts(p, "\n");
}

/* Prints how to have the rows that are chosen, or why there is none. */
static void print_choice(const struct bench_run *r, struct paragraph *p)
{
    const double *at = r->limits.at;
    const bool limited = at[BENCH_LOST] > 0 || at[BENCH_US] > 0 || at[BENCH_CACHE] > 0;
    bool chosen = false;
    for (int i = 0; i < r->bench.n_rows; i++)
        if (r->bench.rows[i].chosen) {
            print_advice(r, &r->bench.rows[i]);
            chosen = true;
        }
    if (!limited)
        paragraph_puts(p, "\n--max-loss, --max-us or --max-cache say what may be lost, taken and "
                          "held, and choose a row\n");
    else if (!chosen && at[BENCH_US] > 0 && !bench_may_choose(&r->bench))
        paragraph_puts(p, "\nno row is chosen: --max-us needs times that can be trusted\n");
    else if (!chosen)
        print_nearest(r, p);
    paragraph_puts(p, "\n");
    if (chosen)
        paragraph_puts(p, "* the smallest cache within the limits at its depth and batch; ");
    paragraph_puts(p,
                   "beyond: the limits that a row exceeds; cache: of all sequences;\vlost: bits "
                   "per byte more than the checkpoint's on the text's last tenth, with the row's "
                   "K/V heads (converted by fit on the rest), type and cache\n");
}

static void print_legend(const struct bench_run *r, struct paragraph *p)
{
    paragraph_puts(p, "\n");
    if (bench_may_choose(&r->bench))
        paragraph_puts(p, "* the fastest at its depth and batch in every repeat; ~ a toss-up: it, "
                          "or another, may be the fastest\n");
    paragraph_puts(p,
                   "speed-up: p50 of the first checkpoint as it is over the row's, ~1x where the "
                   "two are not told apart, ? where other work hides it;\vpredicted: of one "
                   "sequence by the bytes read, of "
                   "several by the limits\n");
}

/* --- the picture ----------------------------------------------------------------------------- */

/* Draws the median microseconds a token, which are a step's over its batch, against depth or batch
 * (bench_x_axis). */
static enum status write_plot(const struct bench_run *r, const struct shown_row *run,
                              const char *machine, const struct shown_row *rows, struct err *e)
{
    const struct bench *b = &r->bench;
    const bool over_batch = bench_x_axis(b->spec) == BENCH_BATCHES;
    const size_t n_rows = b->n_rows;
    char label[64] = "depth (tokens in the KV cache)", subtitle[1024];
    struct plot_point *points;
    TRY_ZEROED(points, n_rows, "the plot", e);
    const struct plot plot = {.title = r->subjects[0].name,
                              .subtitle = subtitle,
                              .x_label = label,
                              .x_doubles = over_batch,
                              .y_label = "latency (µs per token)",
                              .mid_label = r->has_losses         ? "median (* within the limits)"
                                           : bench_may_choose(b) ? "median (* fastest, ~ toss-up)"
                                                                 : "median",
                              .band_label = "p10 to p90",
                              .predicted_label = "limit by measured bandwidth and arithmetic",
                              .doubt_label = "not to be trusted (its note in the table)",
                              .points = points,
                              .n_points = n_rows};
    if (run->warning)
        chars_printf(subtitle, "%s; %s", machine, run->warning);
    else
        chars_printf(subtitle, "%s; this run got %.0f%% of its processors", machine,
                     b->cpu_share * 100);
    if (over_batch)
        chars_printf(label, "batch (sequences in a step, each at depth %d)",
                     b->spec->axes[BENCH_DEPTHS].items[0]);
    for (size_t i = 0; i < n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        const double batch = row->plan.batch;
        points[i] = (struct plot_point){.line = bench_line(b->spec, row),
                                        .name = rows[i].line,
                                        .x = over_batch ? batch : row->plan.depth,
                                        .low = row->p10_us / batch,
                                        .mid = row->us_per_token,
                                        .high = row->p90_us / batch,
                                        .predicted = row->plan.predicted.us / batch,
                                        .mark = rows[i].mark,
                                        .doubt = row->note};
    }
    const enum status s = plot_write(&plot, r->o->svg, e);
    free(points);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Lines about the machine above the table, and what its columns mean below it, are for people; the
 * other forms hold the documented keys and nothing else. */
static enum status show(const struct bench_run *r, const struct shown_row *run,
                        struct shown_row *rows, struct err *e)
{
    const bool people = table_is_for_people(r->o->common.format);
    struct table table = TABLE_OF(bench_fields, rows, r->bench.n_rows);
    char machine[512];
    table.shown = fields_shown(r);
    for (int i = 0; i < r->bench.n_rows; i++)
        rows[i] = show_row(r, run, &r->bench.rows[i]);
    chars_printf(machine, "%s, %s, threads %d%s; decode %s, %s", run->cpu, run->isa,
                 rows[0].of.threads, r->bench.n_pools > 1 ? " and other" : "", run->version,
                 run->compiler);
    if (people)
        print_header(r, run, machine);
    else
        log_info(&r->o->common, "%s: %s", r->subjects[0].name, machine);
    TRY(job_print(r->job, &table, e));
    if (people) {
        struct paragraph p = paragraph_begin(r->job->out, INDENT);
        (r->has_losses ? print_choice : print_legend)(r, &p);
        paragraph_end(&p);
    }
    return r->o->svg ? write_plot(r, run, machine, rows, e) : STATUS_OK;
}

enum status bench_report(struct bench_run *r, struct err *e)
{
    const time_t now = time(NULL);
    char cpu[128], date[24], warning[160];
    struct tm utc = {0};
    struct shown_row *rows;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cpus_name(cpu, sizeof cpu);
    chars_printf(
        warning,
        "this run got %.0f%% of its processors, other programs had the rest; no row is marked "
        "fastest",
        r->bench.cpu_share * 100);
    const struct shown_row run = {.isa = r->spec.kernels->name,
                                  .version = DECODE_VERSION,
                                  .compiler = COMPILER_NAME,
                                  .cpu = cpu,
                                  .date = date,
                                  .warning = bench_may_choose(&r->bench) ? NULL : warning,
                                  .warmup = r->spec.warmup,
                                  .peak_rss_bytes = r->bench.peak_rss_bytes};
    TRY_ZEROED(rows, r->bench.n_rows, "the table", e);
    const enum status s = show(r, &run, rows, e);
    free(rows);
    return s;
}
