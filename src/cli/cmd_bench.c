/*
 * cmd_bench - decode bench: per-token latency across attention variants.
 */
#include "base/limits.h"
#include "cli/bench_report.h"
#include "measure/eval.h"
#include "measure/verdicts.h"
#include "model/config_keys.h"
#include "model/selection.h"

/* The share of the text that is for calibration; the rest is measured. */
#define CALIBRATED       0.9
#define DEFAULT_N        64
#define DEFAULT_PROMPT   128
#define ROOFLINE_SECONDS 0.2

#define VALUES struct bench_options

static const struct option matrix_options[] = {
    OPT_STRING("shape", shape, "SHAPE", "random weights instead of a checkpoint; " SHAPE_HELP),
    OPT_STRING("kv-heads", kv_heads, "all|G,G,...",
               "numbers of K/V heads: as many as query heads is MHA, 1 is MQA; all: every divisor",
               .otherwise = "all; of several checkpoints their own"),
    OPT_STRING("depth", depths, "D,D,...",
               "positions in the KV cache before the timed token; of the whole context one less",
               .fallback = "0"),
    OPT_STRING("batch", batches, "B,B,...",
               "sequences that a step serves, each with its own cache of that depth",
               .fallback = "1"),
    OPT_STRING("type", types, "TYPE,...",
               "types of the weight matrices: f32, f16, bf16, q8_0, q4_0",
               .otherwise = "as in the checkpoint; f32 with --shape"),
    OPT_KV_TYPE("KV,...", KV_TYPE_HELP),
    OPT_STRING("threads", common.threads, "T,T,...",
               "numbers of threads; auto: as many processors as this process may use",
               .letter = 't', .otherwise = "DECODE_THREADS, else auto"),
    OPT_END,
};

static const struct option measuring_options[] = {
    OPT_INT("n", n, "N", 1, 1000000, "timed tokens a repeat", .letter = 'n',
            .otherwise = "64, or as few as settle a row's median"),
    OPT_INT("repeat", repeats, "R", 1, 10000,
            "repeats; each measures every row once, with new threads", .fallback = "5"),
    OPT_INT("warmup", warmup, "N", 0, 1000000,
            "steps before the timed ones of a row, in every repeat", .fallback = "8"),
    OPT_INT("prompt", prompt, "P", -1, INT_MAX,
            "tokens of the prefill measurement; 0: none; -1: 128, or the context if less",
            .fallback = "-1"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_FORMAT,
    OPT_STRING("svg", svg, "FILE.svg",
               "draw latency against depth, or, of several batches at one depth, against batch; a "
               "line for each variant",
               .writes = WRITES_SVG),
    OPT_END,
};

static const struct option advice_options[] = {
    OPT_STRING(
        "text", common.file, "FILE",
        "also what each row loses on the last tenth of this text: its K/V heads, converted by "
        "fit on the rest, its type and its cache",
        .letter = 'f', .reads = "the text", .excludes = "shape"),
    OPT_DOUBLE("max-loss", max_loss, "X", 0, HUGE_VAL, "bits per byte that may be lost at most",
               .above_min = true, .otherwise = "any", .needs = "text"),
    OPT_DOUBLE("max-us", max_us, "Y", 0, HUGE_VAL, "microseconds that a step may take at most",
               .above_min = true, .otherwise = "any", .needs = "text"),
    OPT_STRING("max-cache", max_cache, "BYTES", "that the caches may take at most, as 64MiB",
               .otherwise = "any", .needs = "text"),
    OPT_INT("calib-tokens", calib_tokens, "N", CONVERT_MIN_TOKENS, INT_MAX,
            "tokens of the text that a variant is calibrated on; fewer take less time",
            .otherwise = "65536", .needs = "text"),
    OPT_END,
};

/* --- what is measured ------------------------------------------------------------------------ */

static enum status open_subject(const char *path, unsigned parts, struct checkpoint *k,
                                struct bench_subject *out, struct err *e)
{
    TRY(job_open(path, parts, NULL, k, e));
    *out = (struct bench_subject){.name = path, .gguf = k->gguf, .source = &k->file};
    return err_in_file(e, config_read(k->gguf, &out->config, e), path);
}

static enum status open_subjects(struct bench_run *r, struct err *e)
{
    const struct bench_options *o = r->o;
    struct job *j = r->job;
    const int n = o->others.n;
    TRY_ZEROED(r->subjects, n + 1, "the list of checkpoints", e);
    TRY_ZEROED(r->others, n + 1, "the list of checkpoints", e);
    r->spec.subjects = r->subjects;
    if (o->shape) {
        r->subjects[0].name = o->shape;
        TRY(shape_parse(o->shape, &r->subjects[0].config, e));
    } else {
        TRY(open_subject(j->path, o->common.file ? CHECKPOINT_TEXTS : 0, &j->checkpoint,
                         &r->subjects[0], e));
    }
    for (int i = 0; i < n; i++)
        TRY(open_subject(o->others.items[i], 0, &r->others[i], &r->subjects[i + 1], e));
    for (int i = 0; i <= n; i++)
        TRY(list_add("checkpoints", i, &r->spec.axes[BENCH_SUBJECTS], e));
    return STATUS_OK;
}

static enum status read_variants(struct bench_run *r, struct err *e)
{
    const struct config *c = &r->subjects[0].config;
    struct int_list *variants = &r->spec.axes[BENCH_VARIANTS];
    const char *text = r->o->kv_heads ? r->o->kv_heads : "all";
    if (!r->o->kv_heads && r->o->others.n > 0)
        return list_add("--kv-heads", BENCH_AS_IS, variants, e);
    if (!str_is(text, "all"))
        return list_heads("--kv-heads", text, c->n_heads, variants, e);
    for (int g = c->n_kv_heads; g >= 1; g--)
        if (config_has_variant(c, g) &&
            (r->o->shape || c->score == SCORE_DOT || g == c->n_kv_heads))
            TRY(list_add("--kv-heads", g, variants, e));
    return STATUS_OK;
}

static enum status read_settings(struct bench_run *r, struct err *e)
{
    const struct bench_options *o = r->o;
    struct bench_spec *spec = &r->spec;
    TRY(read_variants(r, e));
    TRY(list_ints("--depth", o->depths, 0, INT_MAX, &spec->axes[BENCH_DEPTHS], e));
    TRY(list_ints("--batch", o->batches, 1, INT_MAX, &spec->axes[BENCH_BATCHES], e));
    if (o->types)
        TRY(list_names("--type", o->types, storage_names, &spec->axes[BENCH_TYPES], e));
    else
        TRY(list_add("--type", o->shape ? STORAGE_F32 : BENCH_AS_IS, &spec->axes[BENCH_TYPES], e));
    spec->axes[BENCH_KV_TYPES] = r->job->kv_types;
    TRY(job_choose_threads(r->job, &spec->axes[BENCH_THREADS], e));
    TRY(job_choose_kernels(&o->common, &r->job->kernels, e));
    spec->kernels = r->job->kernels;
    spec->n = o->n ? o->n : DEFAULT_N;
    spec->settles = !o->n;
    spec->repeats = o->repeats;
    spec->warmup = o->warmup;
    spec->prompt = o->prompt;
    for (int i = 0; i <= o->others.n && o->prompt < 0; i++)
        spec->prompt = MIN(i == 0 ? DEFAULT_PROMPT : spec->prompt, r->subjects[i].config.n_ctx);
    spec->roofline_seconds = ROOFLINE_SECONDS;
    return STATUS_OK;
}

/* --- what variants lose on a text ------------------------------------------------------------- */

/* Divides the job's text: the first nine tenths become the calibration text, the last tenth the
 * job's text and tokens, which are measured. STATUS_USAGE for a text that is too short, for
 * several checkpoints and a --max-cache that is no number; the failures of job_tokenize. */
static enum status prepare_text(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    const struct bench_options *o = r->o;
    const size_t len = j->text.len * CALIBRATED;
    size_t cache = 0;
    if (o->others.n > 0)
        return err_usage(e, "--text is for one checkpoint, whose variants it compares; found %d",
                         o->others.n + 1);
    if (o->max_cache && !parse_bytes(o->max_cache, &cache))
        return err_usage(e, "--max-cache: expected a number of bytes, as 8192 or 8MiB, found '%s'",
                         o->max_cache);
    r->limits = (struct bench_limits){{o->max_loss, o->max_us, cache}};
    job_warn_vocabulary(&o->common, j->path, j->checkpoint.tokenizer);
    TRY(err_in(e,
               text_sample_take(j->checkpoint.tokenizer, r->subjects[0].config.n_ctx,
                                text_span(j->text.data, len),
                                o->calib_tokens ? o->calib_tokens : CALIBRATION_TOKENS,
                                &r->calibration, e),
               "--text, its first nine tenths"));
    j->text = text_span(j->text.data + len, j->text.len - len);
    TRY(err_in(e, job_tokenize(j, e), "--text"));
    return err_in(e, eval_check_length(j->n_tokens, e), "--text, its last tenth");
}

/* What rows of one model and cache lose on the text. */
struct measured_loss {
    int type, variant; /* places on the axes of the model */
    struct model *model;
    double *whole, *own; /* [n_tokens - 1] what each token costs the checkpoint, and this row */
    struct eval_result before; /* the checkpoint as it is, with a cache of F32 */
};

static enum status load_variant(const struct bench_run *r, int n_kv_heads, int type,
                                struct model **out, struct err *e)
{
    struct job *j = r->job;
    const struct model_options how = {
        .convert = type != BENCH_AS_IS, .storage = MAX(type, 0), .pool = j->pool};
    char number[16];
    chars_printf(number, "%d", n_kv_heads);
    return variant_load(j, number, &how, &r->calibration, job_callbacks(j, "window"), out, e);
}

static enum status evaluate(const struct bench_run *r, const struct model *m, struct kv_type kv,
                            double *nll, struct eval_result *out, struct err *e)
{
    struct eval_spec spec = job_eval_spec(r->job, &r->job->checkpoint);
    spec.model = m;
    spec.params.kv_type = kv;
    spec.nll = nll;
    spec.callbacks = job_callbacks(r->job, "token");
    return eval_run(&spec, out, e);
}

/* Evaluates the model with each type of cache, and gives its rows what they lose, with the standard
 * error of that: the one of the tokens' differences. */
static enum status measure_caches(struct bench_run *r, const struct measured_loss *l, struct err *e)
{
    const size_t n = r->job->n_tokens - 1;
    for (int k = 0; k < r->spec.axes[BENCH_KV_TYPES].n; k++) {
        struct eval_result after;
        TRY(evaluate(r, l->model, kv_type_at(r->spec.axes[BENCH_KV_TYPES].items[k]), l->own, &after,
                     e));
        for (size_t t = 0; t < n; t++)
            l->own[t] -= l->whole[t];
        const struct bench_loss loss = {.bits_per_byte = after.bits_per_byte,
                                        .lost = after.bits_per_byte - l->before.bits_per_byte,
                                        .lost_error =
                                            eval_mean_error(l->own, n, after.nll - l->before.nll) *
                                            after.tokens / log(2) / after.bytes};
        for (struct bench_row *row = r->bench.rows; row < r->bench.rows + r->bench.n_rows; row++)
            if (row->at[BENCH_TYPES] == l->type && row->at[BENCH_VARIANTS] == l->variant &&
                row->at[BENCH_KV_TYPES] == k)
                row->loss = loss;
    }
    return STATUS_OK;
}

/* Converts and evaluates every variant in every type, one after the other. */
static enum status measure_losses(struct bench_run *r, struct measured_loss *l, struct err *e)
{
    const struct int_list *types = &r->spec.axes[BENCH_TYPES];
    const struct int_list *variants = &r->spec.axes[BENCH_VARIANTS];
    TRY(load_variant(r, r->subjects[0].config.n_kv_heads, BENCH_AS_IS, &l->model, e));
    enum status s = evaluate(r, l->model, kv_type_of(CACHE_F32), l->whole, &l->before, e);
    model_free(l->model);
    for (l->type = 0; l->type < types->n && s == STATUS_OK; l->type++)
        for (l->variant = 0; l->variant < variants->n && s == STATUS_OK; l->variant++) {
            TRY(load_variant(r, variants->items[l->variant], types->items[l->type], &l->model, e));
            s = measure_caches(r, l, e);
            model_free(l->model);
        }
    return s;
}

/* Measures what the rows lose, with the first number of threads, and chooses among them. */
static enum status choose_rows(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    struct measured_loss l;
    TRY_ZEROED(l.whole, 2 * j->n_tokens, "what each token costs", e);
    l.own = l.whole + j->n_tokens;
    enum status s = job_start_threads(j, e);
    if (s == STATUS_OK)
        s = measure_losses(r, &l, e);
    free(l.whole);
    TRY(s);
    r->has_losses = true;
    bench_choose(&r->bench, &r->limits);
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

/* Plans the rows and checks their memory before anything is taken: a cache in swap would measure
 * the disk, and one that no memory backs would end the process. */
static enum status plan_rows(struct bench_run *r, struct err *e)
{
    const struct bench *b = &r->bench;
    char rows[40];
    const char *advice = "fewer or smaller --batch, --depth, --kv-heads, --type take less";
    TRY(bench_plan(&r->spec, &r->bench, e));
    if (job_take_one_thread(r->job, &b->rows[0].plan, r->subjects[0].config.n_layers)) {
        r->spec.axes[BENCH_THREADS].items[0] = 1;
        bench_free(&r->bench);
        TRY(bench_plan(&r->spec, &r->bench, e));
    }
    chars_printf(rows, "%d rows", b->n_rows);
    TRY(memory_check(b->bytes, rows, advice, e));
    if (memory_is_worth_saying(&r->o->common, b->bytes))
        log_info(&r->o->common, "memory: %d rows take %s together; %s", b->n_rows,
                 figure_bytes(b->bytes).text, advice);
    return STATUS_OK;
}

static void log_stages(const struct bench_run *r)
{
    char line[160] = "time";
    for (int i = 0; i < BENCH_STAGES; i++)
        chars_append(line, "%s %s %s", i ? "," : ":", bench_stage_names[i],
                     figure_duration(r->bench.stage_ns[i]).text);
    log_verbose(&r->o->common, "%s", line);
}

/* Measures the rows. With STATUS_INTERRUPTED some of them may be measured. */
static enum status measure_rows(struct bench_run *r, struct err *e)
{
    const struct int_list *types = &r->spec.axes[BENCH_TYPES];
    for (int i = 0; i < types->n; i++)
        if (types->items[i] != BENCH_AS_IS)
            job_say_fallback(&r->o->common, &r->subjects[0].config, types->items[i]);
    r->spec.callbacks = job_callbacks(r->job, "row repeat");
    const enum status s = bench_run(&r->bench, e);
    progress_end(&r->job->progress);
    if (s == STATUS_OK || s == STATUS_INTERRUPTED)
        bench_conclude(&r->bench);
    log_stages(r);
    return s;
}

/* The whole run. After an interruption, and after a failure on the text, what was measured is still
 * shown. */
static enum status run_stages(struct bench_run *r, struct err *e)
{
    const bool has_text = r->o->common.file;
    TRY(open_subjects(r, e));
    TRY(read_settings(r, e));
    if (has_text)
        TRY(prepare_text(r, e));
    TRY(plan_rows(r, e));
    enum status s = measure_rows(r, e);
    if (s != STATUS_OK && (s != STATUS_INTERRUPTED || r->bench.n_rows == 0))
        return s;
    if (s == STATUS_OK && has_text)
        s = choose_rows(r, e);
    TRY(bench_report(r, e));
    return s;
}

static enum status run_bench(struct job *j, void *values, struct err *e)
{
    struct bench_run r = {.o = values, .job = j};
    const enum status s = run_stages(&r, e);
    bench_free(&r.bench);
    for (int i = 0; r.others && i < r.o->others.n; i++)
        checkpoint_close(&r.others[i]);
    free(r.others);
    free(r.subjects);
    free(r.calibration.tokens);
    return s;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "per-token latency across attention variants",
    .usage = "(MODEL... | --shape SHAPE) [options]",
    .examples = "./decode bench models/shakespeare-mha.gguf --depth 0,255 -n 16\n"
                "./decode bench models/shakespeare-mha.gguf --type f32,q8_0\n"
                "./decode bench models/shakespeare-mha.gguf --text LICENSE --kv-heads 2\n",
    .notes = help_of_bench,
    .spec = {.groups = {{"What is compared (one row for every combination)", matrix_options, 0},
                        {"Measuring", measuring_options, 0},
                        {"Which variant to choose", advice_options, 0},
                        {"Results", result_options, 0},
                        {"", general_options, 0}},
             .everyday = "shape kv-heads depth batch n format text max-loss",
             .positionals = {MODEL_POSITIONAL,
                             OPT_STRINGS("MODEL...", others, NULL, NULL, .reads = "a checkpoint")}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_TEXT | JOB_STOPS | JOB_KV_TYPES,
    .run = run_bench,
};
