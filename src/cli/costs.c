#include "cli/costs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/limits.h"
#include "cli/numbers.h"
#include "cli/program.h"
#include "show/paragraph.h"

/* --- a transformer's shape ------------------------------------------------------------------- */

#define FORM "LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]"

const char *const shape_archs[] = {"gpt2", "llama", "transformer", "decode", NULL};

void shape_complete(struct config *c)
{
    /* Gated kinds have three matrices where the others have two. */
    const int step = 32, gated = (8 * c->d_model / 3 + step - 1) / step * step;
    if (c->n_vocab == 0)
        c->n_vocab = 50257;
    if (c->n_ctx == 0)
        c->n_ctx = 1024;
    if (c->d_ff == 0)
        c->d_ff = ffn_is_gated(c->ffn) ? gated : 4 * c->d_model;
    c->norm_eps = 1e-5f;
    config_complete(c);
}

/* The first three in this order, the others by name in any. */
static const struct {
    const char *name;
    int max;
    size_t offset; /* in struct config */
} sizes[] = {{"layers", CONFIG_MAX_LAYERS, offsetof(struct config, n_layers)},
             {"d_model", CONFIG_MAX_WIDTH, offsetof(struct config, d_model)},
             {"heads", CONFIG_MAX_WIDTH, offsetof(struct config, n_heads)},
             {"ff", CONFIG_MAX_FF, offsetof(struct config, d_ff)},
             {"vocab", CONFIG_MAX_VOCAB, offsetof(struct config, n_vocab)},
             {"ctx", CONFIG_MAX_CTX, offsetof(struct config, n_ctx)}};
enum { N_ORDERED = 3, N_SIZES = 6 };

enum status shape_parse(const char *text, const struct arch *arch, struct config *c, struct err *e)
{
    char part[48], end = 'x';
    *c = (struct config){.arch = NULL};
    for (int i = 0; end; i++) {
        const char *number = part;
        int at = i;
        end = list_next(&text, i < N_ORDERED ? "x," : ",", part, sizeof part);
        if (i < N_ORDERED && (end == 'x') != (i < N_ORDERED - 1))
            return err_set(e, STATUS_USAGE, "--shape: expected " FORM);
        if (i >= N_ORDERED) {
            const size_t len = strcspn(part, "=");
            at = N_ORDERED;
            while (at < N_SIZES && (strncmp(part, sizes[at].name, len) != 0 || sizes[at].name[len]))
                at++;
            if (at == N_SIZES || !part[len])
                return err_set(e, STATUS_USAGE, "--shape: expected ff=, vocab= or ctx=, found '%s'",
                               part);
            number = part + len + 1;
        }
        if (!parse_int(number, 1, sizes[at].max, (int *)((char *)c + sizes[at].offset)))
            return err_set(e, STATUS_USAGE,
                           "--shape: %s: expected an integer from 1 to %d, found '%s'",
                           sizes[at].name, sizes[at].max, number);
    }
    if (c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_USAGE,
                       "--shape: heads: expected a divisor of d_model %d, found %d", c->d_model,
                       c->n_heads);
    config_set_arch(c, arch);
    shape_complete(c);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_set(e, STATUS_USAGE,
                       "--shape: expected heads of an even size, whose pairs turn, found %d",
                       c->head_dim);
    return STATUS_OK;
}

#define VALUES struct shape_options
const struct option shape_options[] = {
    OPT_STRING("shape", shape, "SHAPE",
               "sizes: " FORM ", by default ff 4 * D_MODEL (llama: 8/3), vocab 50257, ctx 1024",
               .excludes = "draft"),
    OPT_CHOICE("arch", arch, "ARCH", shape_archs,
               "what --shape is of; transformer is the original's decoder", .otherwise = "gpt2",
               .needs = "shape"),
    OPT_END,
};

enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e)
{
    if (common->positional || common->model)
        return err_set(e, STATUS_USAGE,
                       "a checkpoint and --shape are both named; expected one of them");
    const char *arch = shape_archs[o->arch ? o->arch - 1 : 0];
    return shape_parse(o->shape, arch_preset(text_of(arch)), c, e);
}

/* --- what its variants cost ------------------------------------------------------------------ */

/* For which this machine is measured. */
#define MEASURE_SECONDS 2.0

#define CACHE(member) MEMBER(inspect_variant, member)
static const struct report_field cache_fields[] = {
    {"variant", "KV cache of", CACHE(name)},
    {"n_kv_heads", "K/V heads", CACHE(config.n_kv_heads), .rank = 3},
    {"parameters", "parameters", CACHE(weights.parameters), .grouped = true, .rank = 5},
    {"bytes_per_token_f32", "bytes/token f32", CACHE(token_bytes[0]), .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", CACHE(token_bytes[1]), .grouped = true, .rank = 4},
    {"bytes_per_token_q8_0", "bytes/token q8_0", CACHE(token_bytes[2]), .grouped = true, .rank = 6},
    {"bytes_full_context_f32", "context f32", CACHE(full_bytes[0]), .figure = figure_bytes,
     .rank = 2},
    {"bytes_full_context_f16", "context f16", CACHE(full_bytes[1]), .figure = figure_bytes,
     .rank = 7},
    {"bytes_full_context_q8_0", "context q8_0", CACHE(full_bytes[2]), .figure = figure_bytes,
     .rank = 8},
};

#define STEP(member)    MEMBER(cost_step, member)
#define N_MEMORY_FIELDS 11 /* those without times */
static const struct report_field step_fields[] = {
    {"variant", "a step of", STEP(of.variant)},
    {"n_kv_heads", NULL, STEP(of.n_kv_heads)},
    {"depth", "depth", STEP(of.depth)},
    {"batch", "batch", STEP(of.batch)},
    {"kv_type", "KV", STEP(of.kv_type), .rank = 6},
    {"cache_bytes", "cache", STEP(of.cache_bytes), .figure = figure_bytes, .rank = 5},
    {"memory_bytes", "with weights", STEP(of.memory_bytes), .figure = figure_bytes, .rank = 3},
    {NULL, "fits", STEP(fits_word), .rank = 2},
    {"fits", NULL, STEP(fits)},
    {"step_bytes", "read", STEP(of.step_bytes), .figure = figure_bytes, .rank = 4},
    {"step_flops", "Mflop", STEP(of.flops), .figure = figure_millions, .rank = 9},
    {"predicted_us", "µs", STEP(of.predicted.us), "%.1f", .rank = 1},
    {"limit_tokens_per_s", "tokens/s", STEP(of.predicted.tokens_per_s), .figure = figure_rate},
    {"bandwidth_gb_per_s", "GB/s", STEP(of.bandwidth_gb_per_s), "%.1f", .rank = 8},
    {"limited_by", "waits for", STEP(of.predicted.limited_by), .rank = 7},
};

enum status costs_plan(struct costs *c, struct err *e)
{
    struct machine machine = {0};
    TRY(inspect_list_variants(&c->shape, c->ranks.items, c->ranks.n, &c->variants, e));
    c->cache_table = (struct table)TABLE_OF(cache_fields, c->variants.items, c->variants.n);
    const int n_variants = c->variants.n, n_batches = c->batches.n,
              n = n_variants * c->depths.n * n_batches;
    if (n == 0)
        return STATUS_OK;
    c->available = available_memory();
    c->steps = calloc((size_t)n, sizeof *c->steps);
    if (!c->steps)
        return err_no_memory(e, "the list of steps", (size_t)n * sizeof *c->steps);
    c->step_table = (struct table)TABLE_OF(step_fields, c->steps, n);
    for (int i = 0; i < n; i++) {
        struct cost_step *s = &c->steps[i];
        const int row = i / n_variants;
        s->of = inspect_step(&c->variants.items[i % n_variants], c->kv_type,
                             c->depths.items[row / n_batches], c->batches.items[row % n_batches]);
        s->fits = s->of.memory_bytes <= c->available;
        s->fits_word = s->fits ? "yes" : "no";
        if (c->kernels)
            machine_want(&machine, s->of.step_bytes);
    }
    if (c->kernels) {
        TRY(machine_measure(&machine, c->kernels, c->pool, MEASURE_SECONDS, e));
        machine_settle(&machine);
    } else if (c->limits.bytes_per_s <= 0) {
        c->step_table.n = N_MEMORY_FIELDS;
        return STATUS_OK;
    }
    for (int i = 0; i < n; i++) {
        const struct roofline limits =
            c->kernels ? machine_limits(&machine, c->steps[i].of.step_bytes) : c->limits;
        inspect_predict(&c->steps[i].of, &limits);
    }
    return STATUS_OK;
}

void costs_free(struct costs *c)
{
    free(c->steps);
    free(c->variants.items);
}

void costs_explain_caches(const struct costs *cost, struct output *out)
{
    const struct config *c = cost->shape.config;
    struct paragraph p = paragraph_begin(out, 0);
    int64_t all = 0;
    const bool latent = config_is_latent(c);
    for (int l = 0; l < c->n_layers; l++)
        all += latent ? config_latent(c, l) : config_kv_heads(c, l);
    paragraph_printf(&p, "One token takes %s all layers (%" PRId64 " in %d layers",
                     latent ? "the numbers that all heads share in" : "K/V heads of", all,
                     c->n_layers);
    if (!latent)
        paragraph_printf(&p, ") x numbers of a key and a value (%d + %d", c->head_dim,
                         config_value_dim(c));
    paragraph_puts(&p, ")\vx bytes of a number (f32 4, f16 2, q8_0 34/32); the cache is that x "
                       "tokens x sequences.\n\n");
    paragraph_end(&p);
}

void costs_explain_steps(const struct costs *c, struct output *out)
{
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_puts(&p, "A step takes one token of each sequence of the batch: it reads the "
                       "weights once, and every\vsequence's cache");
    if (c->limits.bytes_per_s > 0)
        paragraph_printf(&p, ", at %s GB/s", figure_exact(c->limits.bytes_per_s / 1e9).text);
    if (c->kernels)
        paragraph_puts(&p, ", or waits for its arithmetic, as fast as was measured here");
    else if (isinf(c->limits.fma_flops_per_s))
        paragraph_puts(&p, "; arithmetic is not counted (--flops GFLOP/s counts it)");
    else if (c->limits.bytes_per_s > 0)
        paragraph_printf(&p, ", or waits for its arithmetic, at %s GFLOP/s",
                         figure_exact(c->limits.fma_flops_per_s / 1e9).text);
    paragraph_puts(&p, ".");
    if (c->available != AVAILABLE_UNKNOWN)
        paragraph_printf(&p, " Free: %s.", figure_bytes((double)c->available).text);
    paragraph_puts(&p, "\n\n");
    paragraph_end(&p);
}

/* --- what was measured ----------------------------------------------------------------------- */

/* Repeats whose medians differ by more than this say that the machine was busy. */
#define NOISY 0.15
/* Of its threads' time a row gets less only where other work has the processors, too. */
#define LEAST_SHARE 0.65

static struct figure figure_percent(double share)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f%%", share * 100);
    return f;
}

#define ROW(member) MEMBER(bench_row, member)
/* What only programs get: of a row, and of how it is shown. */
#define KEYED(name)                                                                                \
    {                                                                                              \
        .key = #name, ROW(name)                                                                    \
    }
#define SHOWN(name)                                                                                \
    {                                                                                              \
        .key = #name, ROW(shown.name)                                                              \
    }
static const struct report_field bench_fields[] = {
    {NULL, "", ROW(shown.best), .accent = ACCENT_ROW},
    {"variant", "variant", ROW(step.variant)},
    {"n_kv_heads", NULL, ROW(step.n_kv_heads)},
    {"type", "type", ROW(shown.type), .rank = 1},
    {"kv_type", "KV", ROW(step.kv_type), .rank = 1},
    {"threads", "threads", ROW(threads), .rank = 1},
    {"depth", "depth", ROW(step.depth)},
    {"batch", "batch", ROW(step.batch)},
    SHOWN(n),
    KEYED(repeats),
    SHOWN(warmup),
    KEYED(p10_us),
    {"p50_us", "p50 µs", ROW(p50_us), "%.1f"},
    KEYED(p90_us),
    {"p99_us", "p99 µs", ROW(p99_us), "%.1f", .rank = 8},
    KEYED(max_us),
    KEYED(mean_us),
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
    KEYED(load_ms),
    {"peak_rss_bytes", "peak RSS", ROW(peak_rss_bytes), .figure = figure_bytes, .rank = 10},
    {"logits_hash", NULL, ROW(shown.hash)},
    SHOWN(isa),
    SHOWN(noisy),
    KEYED(cpu_share),
    /* What predicted_us was made of. */
    {"bandwidth_gb_per_s", NULL, ROW(step.bandwidth_gb_per_s)},
    {"flops_per_s", NULL, ROW(step.limits.fma_flops_per_s)},
    {"dot_flops_per_s", NULL, ROW(step.limits.dot_flops_per_s)},
    /* What joins two runs. */
    SHOWN(model),
    SHOWN(shape),
    SHOWN(architecture),
    SHOWN(cpu),
    SHOWN(version),
    SHOWN(compiler),
    SHOWN(date),
    {NULL, "note", ROW(shown.note), .rank = 1, .accent = ACCENT_CELL},
};
#define N_FIELDS REPORT_LENGTH(bench_fields)

/* A line of the plot: "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_spec *spec, struct bench_row *row)
{
    char part[BENCH_AXES][24];
    const int size = sizeof *part;
    snprintf(part[BENCH_TYPES], size, " %s", row->shown.type);
    snprintf(part[BENCH_KV_TYPES], size, ", %s KV", row->step.kv_type);
    snprintf(part[BENCH_THREADS], size, ", %d threads", row->threads);
    snprintf(part[BENCH_BATCHES], size, ", batch %d", row->step.batch);
    for (int a = 0; a < BENCH_AXES; a++)
        if (spec->axes[a].n == 1 || a == (int)bench_x_axis(spec))
            part[a][0] = 0;
    snprintf(row->shown.line, sizeof row->shown.line, "%s%s%s%s%s", row->step.variant,
             part[BENCH_TYPES], part[BENCH_KV_TYPES], part[BENCH_THREADS], part[BENCH_BATCHES]);
}

/* What row has beside figures; `run` is what it shares with all of them. */
static void fill_in(const struct bench *b, const struct bench_shown *run, struct bench_row *row)
{
    struct bench_shown *s = &row->shown;
    *s = *run;
    s->best = "*";
    for (const struct bench_row *other = b->rows; other < b->rows + b->n_rows; other++)
        if (other->step.depth == row->step.depth && other->step.batch == row->step.batch &&
            other->p50_us < row->p50_us)
            s->best = "";
    s->type = storage_name(row->type);
    s->noisy = row->spread > NOISY || row->cpu_share < LEAST_SHARE;
    name_line(b->spec, row);
    snprintf(s->hash, sizeof s->hash, "%016" PRIx64, row->logits_hash);
    if (row->repeats < b->spec->repeats)
        snprintf(s->note, sizeof s->note, "%d of %d repeats", row->repeats, b->spec->repeats);
    else if (row->cpu_share < LEAST_SHARE)
        snprintf(s->note, sizeof s->note, "busy: %.0f%%", row->cpu_share * 100);
    else if (s->noisy)
        snprintf(s->note, sizeof s->note, "noisy: %.0f%%", row->spread * 100);
}

enum status bench_print(struct bench *b, const char *subject, const char *cpu, struct job *j,
                        struct err *e)
{
    /* People are not shown what says something of other runs only: of one sequence, of batches, of
     * latent caches, which are short and take more arithmetic. */
    enum { ONE, BATCHES, LATENT, RUNS };
    static const char *const hidden[RUNS][6] = {
        [ONE] = {"batch", "µs/token", "predicted", "limited by", "attention Mflop"},
        [BATCHES] = {"by bytes", "attention Mflop"},
        [LATENT] = {"batch", "µs/token", "predicted"}};
    const struct bench_spec *spec = b->spec;
    const struct int_list *variants = &spec->axes[BENCH_VARIANTS];
    const time_t now = time(NULL);
    struct tm utc = {0};
    struct bench_shown run = {.isa = spec->kernels->name,
                              .model = spec->gguf ? subject : NULL,
                              .shape = spec->gguf ? NULL : subject,
                              .architecture = spec->config.arch->name,
                              .version = DECODE_VERSION,
                              .compiler = COMPILER_NAME,
                              .cpu = cpu,
                              .n = spec->n,
                              .warmup = spec->warmup};
    struct report_field chosen[N_FIELDS];
    const struct table table = TABLE_OF(chosen, b->rows, b->n_rows);
    int of = config_is_latent(&spec->config) ? LATENT : ONE;
    for (int i = 0; i < variants->n; i++)
        of = variants->items[i] < 0 ? LATENT : of;
    of = b->most_sequences > 1 ? BATCHES : of;
    for (int f = 0; f < N_FIELDS; f++) {
        chosen[f] = bench_fields[f];
        if (chosen[f].heading && names_find(hidden[of], chosen[f].heading) >= 0)
            chosen[f].heading = NULL;
    }
    gmtime_r(&now, &utc);
    strftime(run.date, sizeof run.date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (int i = 0; i < b->n_rows; i++)
        fill_in(b, &run, &b->rows[i]);
    return job_print(j, &table, e);
}
