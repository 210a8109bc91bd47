/*
 * cmd_convert - decode convert: a checkpoint from a checkpoint, with fewer K/V heads, in another
 * weight type, or both.
 */
#include "base/numbers.h"
#include "base/replace.h"
#include "cli/help_texts.h"
#include "cli/job.h"
#include "convert/quantize.h"
#include "formats/gguf_write.h"
#include "formats/json_write.h"
#include "model/config_keys.h"
#include "model/kv_cache.h"

#define NOTICEABLE_BITS 0.1               /* a rise of bits per byte that deserves a warning */
#define TEXT_MAX        ((size_t)1 << 30) /* more text is refused before it is read */

struct convert_options {
    struct common_options common;
    const char *cache_bytes;
    int type;          /* an enum storage + 1; 0: none */
    int method;        /* an enum convert_method */
    const char *calib; /* a file, "self", "self:N", "none", or NULL */
    int calib_tokens;  /* 0: the default */
    const char *range; /* of the calibration text */
    int grouping;      /* of `groupings` */
    int refit;         /* an enum convert_refit + 1; 0: what fits */
    const char *eval;
    bool requantize;
};

#define VALUES struct convert_options

enum { GROUP_AUTO, GROUP_ADJACENT, GROUP_CLUSTER };
static const char *const groupings[] = {"auto", "adjacent", "cluster", NULL};

#define FEWER_HEADS "kv-heads|cache-bytes"

static const struct option result_options[] = {
    OPT_OUT,
    OPT_STRING("kv-heads", common.kv_heads, "G|G,G,...|auto",
               "to G K/V heads, a divisor of the query heads and at most as many as there are; to "
               "these, layer by layer; or to those that do best for --cache-bytes"),
    OPT_STRING("cache-bytes", cache_bytes, "B",
               "what the K/V heads of all layers may take together, in bytes a token (f32)"),
    OPT_CHOICE("type", type, "TYPE", storage_names, "the type of the weight matrices",
               .otherwise = "as in MODEL"),
    OPT_FLAG("requantize", requantize,
             "accept a MODEL that is quantized; what is new is rounded once more"),
    OPT_FORCE,
    OPT_END,
};

static const struct option method_options[] = {
    OPT_CHOICE("method", method, "METHOD", convert_methods,
               "what the heads of a group come to share: their mean, the first, random numbers "
               "(the GQA paper's), the mean after alignment, or the best fit",
               .fallback = "fit", .needs = FEWER_HEADS),
    OPT_CHOICE("group", grouping, "HOW", groupings,
               "which heads share: neighbours, or those that lose least; auto: cluster for fit and "
               "procrustes, but with ALiBi, whose slopes keep heads in their places",
               .fallback = "auto", .needs = FEWER_HEADS),
    OPT_STRING("calib", calib, "TEXT|self[:N]|none",
               "a file of text to calibrate on; or N tokens that the model writes itself (16384); "
               "or nothing, so that the weights alone decide",
               .otherwise = "self for fit where there is a vocabulary, else none",
               .needs = FEWER_HEADS, .reads = "the text of --calib"),
    OPT_INT("calib-tokens", calib_tokens, "N", CONVERT_MIN_TOKENS, INT_MAX,
            "how many of its tokens are used, in windows of the context, of 256 at most, spread "
            "over the text",
            .otherwise = "65536", .needs = "calib"),
    OPT_STRING("range", range, "A:B",
               "a share of the calibration text's bytes, fractions from 0 to 1: 0:0.9 leaves the "
               "last tenth out",
               .otherwise = "0:1, all", .needs = "calib"),
    OPT_CHOICE("refit", refit, "WHAT", convert_refits,
               "what is fitted to the calibration text beyond the shared heads: nothing, or the "
               "output matrix, where that lowers the error on windows held out",
               .otherwise = "wo for fit on a text, else none", .needs = FEWER_HEADS),
    OPT_U64("seed", common.seed, "S", "of the method random, and of the text that the model writes",
            .otherwise = "a random one, printed; 0 for the text"),
    OPT_END,
};

static const struct option report_options[] = {
    OPT_STRING("eval", eval, "TEXT",
               "a file of text on which bits per byte are measured before and after; of the "
               "calibration text itself what comes after --range",
               .reads = "the text of --eval"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

/* Figures of the checkpoint before, or after. */
struct convert_figures {
    char variant[16]; /* "MHA", "GQA-4" */
    uint64_t kv_bytes_per_token_f32, kv_bytes_per_token_f16;
    uint64_t parameters, file_bytes;
    double divergence;           /* from the checkpoint before, on text held out; else NaN */
    double bits_per_byte;        /* NaN: not measured */
    struct quantize_error error; /* of numbers that changed their type, `after`; else NaN */
    double seconds;              /* that the conversion took, `after`; NaN before */
};

/* A run. */
struct conversion {
    struct job *job; /* its checkpoint is without a model; its tokens are those of --eval's text */
    const struct convert_options *options;
    struct config config; /* the checkpoint's */
    bool fewer;           /* K/V heads */
    struct convert_spec spec;
    int layers[CONFIG_MAX_LAYERS];                   /* K/V heads by layer */
    enum { TEXT_NONE, TEXT_SELF, TEXT_FILE } source; /* of the calibration text */
    int n_self;                                      /* tokens, if the model writes it itself */
    struct calibration text;
    struct convert converted;
    /* Where the type changes, too: the converted checkpoint, which is still to be written. */
    struct file_map file;
    struct gguf *gguf;
    struct quantize retyped;
    struct convert_figures before, after;
};

static enum status check_convert(struct job *j, void *values, struct err *e)
{
    const struct convert_options *o = values;
    const bool is_auto = o->common.kv_heads && str_is(o->common.kv_heads, "auto");
    (void)j;
    if (is_auto && !o->cache_bytes)
        return err_usage(e, "--kv-heads auto: expected --cache-bytes too, found none");
    if (o->cache_bytes && o->common.kv_heads && !is_auto)
        return err_usage(e, "--cache-bytes and --kv-heads are both given: expected one of them, or "
                            "--kv-heads auto");
    if (!o->common.kv_heads && !o->cache_bytes && !o->type)
        return err_usage(e, "nothing to convert is named; expected --kv-heads G, --type TYPE, or "
                            "both");
    return STATUS_OK;
}

/* --- what is asked for ------------------------------------------------------------------------ */

/* Refuses a quantized MODEL, unless --requantize is given: new heads would be rounded once more. */
static enum status check_types(const struct conversion *c, struct err *e)
{
    const struct gguf *g = c->job->checkpoint.gguf;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (t->type->block_elements > 1 && !c->options->requantize)
            return err_usage(e,
                             "%.200s: tensor %.*s is quantized (%s); --requantize converts it all "
                             "the same, but better start from the F32 or F16 file",
                             c->job->path, text_width(t->name), t->name.data, t->type->name);
    }
    return STATUS_OK;
}

/* Where the calibration text is from, and what is fitted to it. */
static enum status plan_text(struct conversion *c, struct err *e)
{
    static const char self[] = "self";
    const struct convert_options *o = c->options;
    const char *calib = o->calib, *number = calib ? calib + strlen(self) : NULL;
    const bool fits = o->method == CONVERT_FIT;
    c->n_self = o->calib_tokens ? o->calib_tokens : CALIBRATION_SELF_TOKENS;
    if (!calib) {
        const bool can_write =
            c->job->checkpoint.tokenizer && c->config.n_ctx >= CALIBRATION_SELF_CTX;
        c->source = fits && can_write ? TEXT_SELF : TEXT_NONE;
    } else if (str_is(calib, "none")) {
        c->source = TEXT_NONE;
    } else if (strncmp(calib, self, strlen(self)) == 0 && (!*number || *number == ':')) {
        c->source = TEXT_SELF;
        if (*number && !parse_int(number + 1, CONVERT_MIN_TOKENS, INT_MAX, &c->n_self))
            return err_usage(e, "--calib: expected self:N with N from %d on, found '%.200s'",
                             CONVERT_MIN_TOKENS, calib);
    } else {
        c->source = TEXT_FILE;
    }
    c->spec.refit = c->source != TEXT_NONE && fits ? CONVERT_REFIT_WO : CONVERT_REFIT_NONE;
    if (o->refit)
        c->spec.refit = o->refit - 1;
    if (c->source == TEXT_NONE && (o->cache_bytes || c->spec.refit))
        return err_usage(e, "--%s needs a text: expected --calib too",
                         o->cache_bytes ? "cache-bytes" : "refit");
    return STATUS_OK;
}

/* Which K/V heads, and how they are made: c->fewer, and c->spec but for its text. */
static enum status plan_heads(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    const struct variant_request q = job_variant(c->job);
    TRY(job_config(c->job->path, &c->job->checkpoint, &c->config, e));
    c->spec = variant_spec(&q, &c->config);
    c->spec.method = o->method;
    c->spec.widens = o->type != 0;
    if (o->grouping == GROUP_AUTO)
        c->spec.cluster &= o->method == CONVERT_FIT || o->method == CONVERT_PROCRUSTES;
    else
        c->spec.cluster = o->grouping == GROUP_CLUSTER;
    c->fewer = o->cache_bytes;
    if (o->cache_bytes && !parse_bytes(o->cache_bytes, &c->spec.cache_bytes))
        return err_usage(e,
                         "--cache-bytes: expected a number of bytes, as 8192 or 8KiB, found '%s'",
                         o->cache_bytes);
    if (!o->cache_bytes && o->common.kv_heads)
        TRY(variant_parse(o->common.kv_heads, &c->config, c->layers, &c->spec, &c->fewer, e));
    if (!c->fewer)
        return STATUS_OK;
    TRY(plan_text(c, e));
    TRY(check_types(c, e));
    if (o->method != CONVERT_RANDOM)
        return STATUS_OK;
    TRY(job_seed(c->job, e));
    c->spec.seed = c->job->seed;
    log_info(&o->common, "seed %" PRIu64, c->spec.seed);
    return STATUS_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* --eval's text to the job's tokens, if there is one: found out before the work whether it can be
 * measured at all. */
static enum status read_eval(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct job *j = c->job;
    struct input_range range;
    if (!o->eval)
        return STATUS_OK;
    TRY(input_await(o->eval, TEXT_MAX, &j->text_bytes, &j->text.len, e));
    j->text.data = j->text_bytes;
    TRY(input_parse_range(o->range, &range, e));
    if (o->range && str_is(o->calib, o->eval))
        j->text = input_range_of((struct input_range){range.to, 1}, j->text);
    TRY(input_needs_tokenizer(j->checkpoint.tokenizer, j->path, "--eval", e));
    TRY(err_in(e, job_tokenize(j, e), "--eval"));
    return err_in(e, eval_check_length(j->n_tokens, e), "--eval");
}

/* The seed of what the model writes. */
static uint64_t seed_of_text(const struct convert_options *o)
{
    return o->common.seed.given ? o->common.seed.value : 0;
}

/* What the model itself writes. */
static enum status write_text(struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    return calibration_write(
        &(struct calibration_writer){.path = j->path,
                                     .checkpoint = &j->checkpoint,
                                     .kernels = j->kernels,
                                     .pool = j->pool,
                                     .seed = seed_of_text(c->options),
                                     .n_tokens = c->n_self,
                                     .callbacks = job_callbacks(j, "tokens of its own")},
        &c->text, e);
}

static enum status read_text(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    const struct checkpoint *k = &c->job->checkpoint;
    const size_t wanted = o->calib_tokens ? o->calib_tokens : CALIBRATION_TOKENS;
    struct input_range range;
    char *bytes;
    size_t len;
    TRY(input_parse_range(o->range, &range, e));
    TRY(input_needs_tokenizer(k->tokenizer, c->job->path, "--calib", e));
    TRY(input_await(o->calib, TEXT_MAX, &bytes, &len, e));
    const struct text text = input_range_of(range, text_span(bytes, len));
    const enum status s = calibration_of_text(&o->common, k->tokenizer, &c->config, text, o->calib,
                                              wanted, &c->text, e);
    free(bytes);
    return err_in(e, s, "--calib");
}

/* --- the stages ------------------------------------------------------------------------------- */

/* Converts to fewer K/V heads, if that is asked for. */
static enum status convert_heads(struct conversion *c, struct err *e)
{
    if (!c->fewer)
        return STATUS_OK;
    if (c->source != TEXT_NONE)
        TRY(c->source == TEXT_SELF ? write_text(c, e) : read_text(c, e));
    const struct variant_request q = job_variant(c->job);
    c->spec.tokens = c->text.tokens;
    c->spec.n_tokens = c->text.n;
    c->spec.callbacks = job_callbacks(c->job, "windows");
    TRY(variant_convert(&q, &c->options->common, &c->spec, &c->converted, e));
    if (c->source == TEXT_SELF)
        log_info(&c->options->common,
                 "calibrated on %zu tokens that the model wrote itself, seed %" PRIu64
                 "; a text of its use is better: --calib TEXT",
                 c->text.n, seed_of_text(c->options));
    if (c->converted.n_retyped > 0 && !c->options->type)
        log_info(
            &c->options->common, "%d new tensors are of a type that is only read: %s becomes %s",
            c->converted.n_retyped, c->converted.read_type->name, c->converted.written_type->name);
    return STATUS_OK;
}

/* Plans another weight type, if that is asked for, of what the stage before has made. */
static enum status change_type(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct job *j = c->job;
    struct quantize_params p = {.requantize = o->requantize,
                                .gguf = j->checkpoint.gguf,
                                .source = &j->checkpoint.file,
                                .pool = j->pool};
    if (!o->type)
        return STATUS_OK;
    p.type = tensor_type_named(text_of(storage_names[o->type - 1]))->type;
    p.callbacks = job_callbacks(j, NULL);
    if (c->fewer) {
        TRY(gguf_write_map(c->converted.writer, &c->file, e));
        TRY(gguf_parse_file(&c->file, &c->gguf, e));
        p.gguf = c->gguf;
        p.source = &c->file;
    }
    return job_blame(j->path, quantize_plan(&p, &c->retyped, e), e);
}

/* Bits per byte of the checkpoint at `path` on --eval's text; NaN without one. */
static enum status measure_bits(struct job *j, const char *path, double *out, struct err *e)
{
    struct checkpoint k;
    struct eval_result result;
    *out = NO_FIGURE;
    if (!j->tokens)
        return STATUS_OK;
    enum status s = job_open(path, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL, &k, e);
    if (s != STATUS_OK) /* what was just written is no bad input */
        return s == STATUS_BAD_FILE && path != j->path ? STATUS_FAILED : s;
    struct eval_spec spec = job_eval_spec(j, &k);
    spec.callbacks = job_callbacks(j, "tokens");
    s = err_in(e, eval_run(&spec, &result, e), "--eval");
    if (s == STATUS_OK)
        *out = result.bits_per_byte;
    checkpoint_close(&k);
    return s;
}

/* Tells what a user of --type may not expect. */
static void tell_types(const struct conversion *c)
{
    const struct common_options *o = &c->options->common;
    const struct quantize *q = &c->retyped;
    const struct quantize_tensor *first = NULL; /* of those whose rows do not fit the type */
    size_t n_changed = 0, n_fallbacks = 0, n_become = 0;
    for (size_t i = 0; i < q->params.gguf->n_tensors; i++) {
        const struct quantize_tensor *t = &q->tensors[i];
        const bool changed = t->to != t->from->type;
        n_changed += changed;
        n_fallbacks += t->fallback;
        n_become += t->fallback && changed;
        if (!first && t->fallback)
            first = t;
    }
    if (first)
        log_info(o,
                 "rows of %zu tensor%s are no multiple of 32 (%.*s: rows of %" PRIu64
                 "): %zu become F16, %zu stay as they are",
                 n_fallbacks, plural(n_fallbacks), text_width(first->from->name),
                 first->from->name.data, first->from->dims[0], n_become, n_fallbacks - n_become);
    if (n_changed == 0)
        log_info(o, "no tensor changes its type%s", c->fewer ? "" : ": OUT is a copy");
}

static void set_sizes(const struct config *c, struct convert_figures *f)
{
    config_variant_name(c, c->n_kv_heads, f->variant);
    f->kv_bytes_per_token_f32 = kv_cache_bytes_per_token(c, c->n_kv_heads, STORAGE_F32);
    f->kv_bytes_per_token_f16 = kv_cache_bytes_per_token(c, c->n_kv_heads, STORAGE_F16);
}

/* Writes OUT; `started_ns` is when the work began. */
static enum status write_out(struct conversion *c, uint64_t started_ns, struct err *e)
{
    struct job *j = c->job;
    const struct quantize_error none = {NO_FIGURE, NO_FIGURE, NO_FIGURE};
    struct convert_figures *before = &c->before, *after = &c->after;
    struct gguf_writer *writer = c->options->type ? c->retyped.writer : c->converted.writer;
    TRY(job_blame(j->path, gguf_write(writer, j->common->out, e), e));
    progress_end(&j->progress);
    if (c->options->type)
        tell_types(c);
    set_sizes(&c->config, before);
    set_sizes(c->fewer ? &c->converted.config : &c->config, after);
    before->parameters = convert_count_params(j->checkpoint.gguf);
    after->parameters = c->fewer ? c->converted.n_params : before->parameters;
    before->file_bytes = j->checkpoint.file.len;
    after->file_bytes = job_out_bytes(j);
    before->divergence = c->spec.n_tokens ? 0 : NO_FIGURE;
    after->divergence = c->fewer ? c->converted.divergence : NO_FIGURE;
    before->error = none;
    after->error = c->options->type ? c->retyped.error : none;
    before->seconds = NO_FIGURE;
    after->seconds = (clock_ns() - started_ns) * 1e-9;
    return STATUS_OK;
}

/* MODEL to OUT as it is. */
static enum status copy_checkpoint(const struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    const struct file_map *file = &j->checkpoint.file;
    struct file_writer *w;
    char variant[16];
    TRY(file_writer_open(&w, j->common->out, e));
    file_writer_put(w, file->data, file->len);
    TRY(file_writer_commit(w, e));
    config_variant_name(&c->config, c->config.n_kv_heads, variant);
    log_info(j->common, "%.200s is a copy: the checkpoint has these K/V heads already (%s)",
             j->common->out, variant);
    return STATUS_OK;
}

/* --- the report ------------------------------------------------------------------------------- */

static struct figure figure_of_seconds(double seconds)
{
    return figure_duration(seconds * 1e9);
}

/* When fields are shown: JSON has a layer's place for its number, and the seconds elsewhere. */
enum { IN_TABLE = 1 };

/* The rows of the table of figures. */
static const struct report_field figure_fields[] = {
    {"variant", "variant", MEMBER(convert_figures, variant)},
    {"kv_bytes_per_token_f32", "cache a token, f32",
     MEMBER(convert_figures, kv_bytes_per_token_f32), .figure = figure_bytes},
    {"kv_bytes_per_token_f16", "cache a token, f16",
     MEMBER(convert_figures, kv_bytes_per_token_f16), .figure = figure_bytes},
    {"parameters", "parameters", MEMBER(convert_figures, parameters)},
    {"file_bytes", "file", MEMBER(convert_figures, file_bytes), .figure = figure_bytes},
    {"divergence", "divergence", MEMBER(convert_figures, divergence), "%.4f"},
    {"bits_per_byte", "bits per byte", MEMBER(convert_figures, bits_per_byte), "%.4f"},
    {"rms_error", "rms error", MEMBER(convert_figures, error.rms), "%.7f"},
    {"relative_error", "relative error", MEMBER(convert_figures, error.relative), "%.7f"},
    {"max_error", "largest error", MEMBER(convert_figures, error.max), "%.7f"},
    {"seconds", "seconds", MEMBER(convert_figures, seconds), .figure = figure_of_seconds,
     .when = IN_TABLE},
};
#define N_FIGURES LENGTH(figure_fields)

static const struct report_field layer_fields[] = {
    {"layer", "layer", MEMBER(convert_layer, layer), .when = IN_TABLE},
    {"score_lost", "score_lost", MEMBER(convert_layer, score), "%.5f"},
    {"output_lost", "output_lost", MEMBER(convert_layer, output), "%.5f"},
};

/* One object, over several lines or (JSON lines) on one. */
static void print_json(const struct conversion *c)
{
    struct output *out = c->job->out;
    struct json j;
    json_init(&j, out, c->job->common->format == TABLE_JSONL ? 0 : 1);
    json_begin_object(&j, NULL);
    if (c->fewer) {
        json_string(&j, "method", convert_methods[c->spec.method]);
        json_string(&j, "grouping", c->spec.cluster ? "cluster" : "adjacent");
        json_string(&j, "refit", convert_refits[c->spec.refit]);
        json_u64(&j, "calibration_tokens", c->spec.n_tokens);
    }
    if (c->options->type)
        json_string(&j, "type", storage_names[c->options->type - 1]);
    json_begin_array(&j, "layers");
    for (int i = 0; i < c->converted.n_layers; i++)
        report_object(&j, NULL, layer_fields, LENGTH(layer_fields), 0, &c->converted.layers[i]);
    json_end(&j);
    report_object(&j, "before", figure_fields, N_FIGURES, 0, &c->before);
    report_object(&j, "after", figure_fields, N_FIGURES, 0, &c->after);
    json_double(&j, "seconds", c->after.seconds);
    json_end(&j);
    output_puts(out, "\n");
}

/* The figures, in which people see the change of fractions, and no row that says nothing. */
static enum status print_figures(const struct conversion *c, struct err *e)
{
    static const struct report_field columns[] = {
        {"figure", "figure", .type = REPORT_TEXT},
        {"before", "before", .type = REPORT_DOUBLE},
        {"after", "after", .type = REPORT_DOUBLE},
        {NULL, "change", REPORT_DOUBLE, .format = "%+.4f"}};
    const enum table_format format = c->job->common->format;
    const bool people = table_is_for_people(format);
    struct report t;
    report_begin(&t, format, columns, LENGTH(columns), 0, c->job->out);
    for (int i = 0; i < N_FIGURES; i++) {
        const struct report_field *f = &figure_fields[i];
        double before = NO_FIGURE, after = NO_FIGURE;
        if (f->format) {
            before = *(const double *)((const char *)&c->before + f->offset);
            after = *(const double *)((const char *)&c->after + f->offset);
        }
        if (people && f->format && isnan(after))
            continue;
        report_string(&t, report_name(format, f));
        report_cell(&t, f, &c->before);
        report_cell(&t, f, &c->after);
        if (people)
            report_cell(&t, &columns[3], &(double){after - before});
    }
    return report_end(&t, e);
}

/* A table of the layers, if heads were converted, and one of the figures. */
static enum status print_conversion(const struct conversion *c, struct err *e)
{
    struct table layers = TABLE_OF(layer_fields, c->converted.layers, c->converted.n_layers);
    if (table_is_json(c->job->common->format)) {
        print_json(c);
        return STATUS_OK;
    }
    layers.shown = IN_TABLE;
    if (c->fewer) {
        TRY(job_print(c->job, &layers, e));
        output_puts(c->job->out, "\n");
    }
    TRY(print_figures(c, e));
    const double rise = c->after.bits_per_byte - c->before.bits_per_byte;
    if (rise > NOTICEABLE_BITS)
        log_info(
            c->job->common,
            "warning: bits per byte rise by %.3f; uptraining makes good for it: decode train TEXT "
            "--from %s",
            rise, c->job->common->out);
    return STATUS_OK;
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum status convert_and_print(struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    TRY(job_start_threads(j, e));
    TRY(plan_heads(c, e));
    if (!c->fewer && !c->options->type)
        return copy_checkpoint(c, e);
    TRY(read_eval(c, e));
    TRY(measure_bits(j, j->path, &c->before.bits_per_byte, e));
    const uint64_t started_ns = clock_ns();
    TRY(convert_heads(c, e));
    TRY(change_type(c, e));
    TRY(write_out(c, started_ns, e));
    const enum status s = measure_bits(j, j->common->out, &c->after.bits_per_byte, e);
    if (s == STATUS_INTERRUPTED) {
        j->out_is_written = true;
        log_info(j->common, "interrupted; %s is written", j->common->out);
    }
    if (s == STATUS_OK || s == STATUS_INTERRUPTED)
        TRY(print_conversion(c, e));
    return s;
}

static enum status run_convert(struct job *j, void *values, struct err *e)
{
    struct conversion c = {.job = j, .options = values};
    const enum status s = convert_and_print(&c, e);
    quantize_free(&c.retyped);
    gguf_free(c.gguf);
    file_map_close(&c.file);
    convert_free(&c.converted);
    free(c.text.tokens);
    return s;
}

const struct command command_convert = {
    .name = "convert",
    .summary = "a checkpoint from a checkpoint: fewer K/V heads, another type, or both",
    .usage = "MODEL -o OUT [--kv-heads G] [--type TYPE] [options]",
    .examples = "./decode convert models/shakespeare-mha.gguf -o gqa2.gguf --kv-heads 2\n"
                "./decode convert models/shakespeare-mha.gguf -o q8.gguf --type q8_0\n",
    .notes = help_of_convert,
    .spec = {.groups = {{"Result", result_options, 0},
                        {"Fewer K/V heads", method_options, 0},
                        {"Report", report_options, 0},
                        GENERAL_GROUP},
             .everyday = "output kv-heads type method calib eval force",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_STOPS | JOB_WORKERS | JOB_CHECKPOINT,
    .check = check_convert,
    .run = run_convert,
};
