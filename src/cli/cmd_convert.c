/*
 * cmd_convert - decode convert: a checkpoint from a checkpoint, with fewer K/V heads, in another
 * weight type, or both.
 */
#include <sys/stat.h>

#include "base/file.h"
#include "base/numbers.h"
#include "cli/job.h"
#include "convert/quantize.h"
#include "engine/own_text.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"
#include "model/cost.h"
#include "model/kv_cache.h"

#define TEXT_MAX    ((size_t)1 << 30) /* more text is refused before it is read */
#define SELF_TOKENS 16384             /* that the model writes where no number is given */
#define SELF_CTX    16                /* the least context of a model that can write */

struct convert_options {
    struct common_options common;
    const char *cache_bytes;
    int type;          /* an enum storage; CHOICE_NONE */
    int method;        /* an enum convert_method */
    const char *calib; /* a file, "self", "self:N", "none", or NULL */
    int calib_tokens;  /* 0: the default */
    const char *range; /* of the calibration text */
    int grouping;      /* of `groupings` */
    int refit;         /* an index of convert_refits; CHOICE_NONE: what fits */
    const char *eval;
    bool requantize;
};

#define VALUES struct convert_options

enum { GROUP_AUTO, GROUP_ADJACENT, GROUP_CLUSTER };
static const char *const groupings[] = {"auto", "adjacent", "cluster", NULL};

static const struct option result_options[] = {
    OPT_STRING("output", common.out, "OUT", "the new checkpoint; required", .letter = 'o',
               .writes = WRITES_FILE),
    OPT_STRING("kv-heads", common.kv_heads, "G|G,G,...|auto",
               "to G K/V heads, a divisor of the query heads and at most as many as there are; to "
               "these, layer by layer; or to those that do best for --cache-bytes"),
    OPT_STRING("cache-bytes", cache_bytes, "B",
               "with auto: what the K/V heads of all layers may take together, in bytes a token "
               "(f32)"),
    OPT_CHOICE("type", type, "TYPE", storage_names, "the type of the weight matrices",
               .otherwise = "as in MODEL"),
    OPT_FLAG("requantize", requantize,
             "accept a MODEL that is quantized; what is new is rounded once more"),
    OPT_FLAG("force", common.force, "replace OUT if it exists"),
    OPT_END,
};

static const struct option method_options[] = {
    OPT_CHOICE("method", method, "METHOD", convert_methods,
               "what the heads of a group come to share: their mean, the first, random numbers "
               "(the GQA paper's), the mean after alignment, or the best fit",
               .fallback = "fit", .needs = "kv-heads"),
    OPT_CHOICE("group", grouping, "HOW", groupings,
               "which heads share: neighbours, or those that lose least; auto: cluster for fit and "
               "procrustes, but with ALiBi, whose slopes keep heads in their places",
               .fallback = "auto", .needs = "kv-heads"),
    OPT_STRING("calib", calib, "TEXT|self[:N]|none",
               "a file of text to calibrate on; or N tokens that the model writes itself (16384); "
               "or nothing, so that the weights alone decide",
               .otherwise = "self for fit where there is a vocabulary, else none",
               .needs = "kv-heads", .reads = "the text of --calib"),
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
               .otherwise = "wo for fit on a text, else none", .needs = "kv-heads"),
    OPT_U64("seed", common.seed, "S", "of the method random, and of the text that the model writes",
            .otherwise = "a random one, printed; 0 for the text", .needs = "kv-heads"),
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

struct conversion {
    struct job *job; /* its checkpoint is without a model; its tokens are those of --eval's text */
    const struct convert_options *options;
    struct config config; /* the checkpoint's */
    bool fewer;           /* K/V heads */
    struct convert_spec spec;
    int layers[CONFIG_MAX_LAYERS];                   /* K/V heads by layer */
    enum { TEXT_NONE, TEXT_SELF, TEXT_FILE } source; /* of the calibration text */
    int n_self;                                      /* tokens, if the model writes it itself */
    struct input_range range;                        /* of the calibration text */
    struct text_sample text;
    struct convert converted;
    /* The converted checkpoint in memory, where its type is still to be changed. */
    unsigned char *bytes;
    struct gguf *gguf;
    struct quantize retyped;
    double bits_before, bits_after; /* per byte of --eval's text; NaN without one */
    double seconds;                 /* that the conversion took */
};

static enum status check_convert(const struct job *j, const void *values, struct err *e)
{
    const struct convert_options *o = values;
    const bool is_auto = o->common.kv_heads && str_is(o->common.kv_heads, "auto");
    (void)j;
    if (is_auto != (o->cache_bytes != NULL))
        return err_usage(e, "--kv-heads auto and --cache-bytes B: expected both, found only one");
    if (!o->common.kv_heads && o->type == CHOICE_NONE)
        return err_usage(e, "nothing to convert is named; expected --kv-heads G, --type TYPE, or "
                            "both");
    return STATUS_OK;
}

/* --- what is asked for ------------------------------------------------------------------------ */

/* Refuses a MODEL with quantized matrices, unless --requantize is given, because new numbers would
 * be rounded a second time. (Vectors are never quantized; their reader refuses that.) */
static enum status check_types(const struct conversion *c, struct err *e)
{
    const struct gguf_tensor *t = job_find_quantized(c->job->checkpoint.gguf);
    if (!t || c->options->requantize)
        return STATUS_OK;
    return err_usage(
        e,
        "%.200s: tensor %.*s is quantized (%s); --requantize converts it all the same, "
        "but better start from the F32 or F16 file",
        c->job->path, text_width(t->name), t->name.data, t->type->name);
}

/* Decides where the calibration text comes from, and what is fitted to it. */
static enum status plan_text(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    const bool fits = o->method == CONVERT_FIT;
    const bool can_write = c->job->checkpoint.tokenizer && c->config.n_ctx >= SELF_CTX;
    const char *calib = o->calib ? o->calib : fits && can_write ? "self" : "none";
    const bool counted = text_starts_with(text_of(calib), "self:");
    c->source = str_is(calib, "none")              ? TEXT_NONE
                : counted || str_is(calib, "self") ? TEXT_SELF
                                                   : TEXT_FILE;
    c->n_self = o->calib_tokens ? o->calib_tokens : SELF_TOKENS;
    if (counted && !parse_int(calib + strlen("self:"), CONVERT_MIN_TOKENS, INT_MAX, &c->n_self))
        return err_usage(e, "--calib: expected self:N with N from %d on, found '%.200s'",
                         CONVERT_MIN_TOKENS, calib);
    if ((o->range && c->source != TEXT_FILE) ||
        (o->calib_tokens && (counted || c->source == TEXT_NONE)))
        return err_usage(e, "--calib %.200s has no use for --%s; leave it out", calib,
                         o->range ? "range" : "calib-tokens");
    c->spec.refit = c->source != TEXT_NONE && fits;
    if (o->refit != CHOICE_NONE)
        c->spec.refit = o->refit;
    if (c->source == TEXT_NONE && (o->cache_bytes || c->spec.refit))
        return err_usage(e, "--%s needs a text: expected --calib TEXT or self%s",
                         o->cache_bytes ? "cache-bytes" : "refit", o->calib ? ", found none" : "");
    return STATUS_OK;
}

/* Decides which K/V heads are wanted and how they are made: c->fewer and c->spec without its text.
 */
static enum status plan_heads(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    TRY(err_in_file(e, config_read(c->job->checkpoint.gguf, &c->config, e), c->job->path));
    c->spec = variant_spec(c->job, &c->config);
    c->spec.method = o->method;
    c->spec.widens = o->type != CHOICE_NONE;
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
    if (c->fewer)
        TRY(plan_text(c, e));
    if (c->fewer || o->type != CHOICE_NONE)
        TRY(check_types(c, e));
    if (!c->fewer || o->method != CONVERT_RANDOM)
        return STATUS_OK;
    TRY(job_seed(c->job, e));
    c->spec.seed = c->job->seed;
    log_info(&o->common, "seed %" PRIu64, c->spec.seed);
    return STATUS_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Reads --eval's text, if there is one, into the job's tokens before the work begins, so that a
 * text that cannot be measured is refused early. */
static enum status read_eval(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct job *j = c->job;
    if (!o->eval)
        return STATUS_OK;
    TRY(input_read(o->eval, TEXT_MAX, &j->text_bytes, &j->text.len, e));
    j->text.data = j->text_bytes;
    if (o->range && path_same(o->calib, o->eval))
        j->text = input_range_of((struct input_range){c->range.to, 1}, j->text);
    TRY(input_needs_tokenizer(j->checkpoint.tokenizer, j->path, "--eval", e));
    TRY(err_in(e, job_tokenize(j, e), "--eval"));
    return err_in(e, eval_check_length(j->n_tokens, e), "--eval");
}

/* Lets the model write the calibration text, in whole windows, at temperature 1. */
static enum status write_text(struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    const int window = convert_window_size(c->config.n_ctx, c->n_self);
    struct own_text text = {.tokenizer = j->checkpoint.tokenizer,
                            .kernels = j->kernels,
                            .pool = j->pool,
                            .seed = j->common->seed.value, /* 0 if none is given */
                            .length = window,
                            .n = c->n_self / window};
    struct model *model;
    TRY(input_needs_tokenizer(text.tokenizer, j->path, "--calib self", e));
    if (c->config.n_ctx < SELF_CTX)
        return err_usage(e, "--calib self: expected a context of at least %d, found %d", SELF_CTX,
                         c->config.n_ctx);
    c->text.n = (size_t)text.n * window;
    TRY_ZEROED(c->text.tokens, c->text.n, "the text that is written", e);
    TRY(variant_load(j, NULL, &(struct model_options){.pool = j->pool}, NULL,
                     (struct callbacks){.arg = NULL}, &model, e));
    text.model = model;
    text.callbacks = job_callbacks(j, "own token");
    const enum status s = own_text_write(&text, c->text.tokens, e);
    model_free(model);
    return s;
}

static enum status read_text(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    const struct checkpoint *k = &c->job->checkpoint;
    const size_t wanted = o->calib_tokens ? o->calib_tokens : CALIBRATION_TOKENS;
    char *bytes;
    size_t len;
    TRY(input_needs_tokenizer(k->tokenizer, c->job->path, "--calib", e));
    TRY(input_read(o->calib, TEXT_MAX, &bytes, &len, e));
    const struct text text = input_range_of(c->range, text_span(bytes, len));
    const enum status s =
        text_sample_take(k->tokenizer, c->config.n_ctx, text, wanted, &c->text, e);
    free(bytes);
    return err_in(e, s, "--calib %.200s", o->calib);
}

/* --- the stages ------------------------------------------------------------------------------- */

/* Converts to fewer K/V heads, if that is asked for. */
static enum status convert_heads(struct conversion *c, struct err *e)
{
    if (!c->fewer)
        return STATUS_OK;
    if (c->source != TEXT_NONE)
        TRY(c->source == TEXT_SELF ? write_text(c, e) : read_text(c, e));
    c->spec.tokens = c->text.tokens;
    c->spec.n_tokens = c->text.n;
    c->spec.callbacks = job_callbacks(c->job, "window");
    TRY(variant_convert(c->job, &c->spec, &c->converted, e));
    if (c->source == TEXT_SELF)
        log_info(c->job->common,
                 "calibrated on %zu tokens that the model wrote itself, seed %" PRIu64
                 "; a text of its use is better: --calib TEXT",
                 c->text.n, c->job->common->seed.value);
    return STATUS_OK;
}

/* Plans the change of the converted checkpoint's weight type, if that is asked for. */
static enum status change_type(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct job *j = c->job;
    struct quantize_params p = {
        .gguf = j->checkpoint.gguf, .source = &j->checkpoint.file, .pool = j->pool};
    size_t len;
    if (o->type == CHOICE_NONE)
        return STATUS_OK;
    p.type = tensor_type_named(text_of(storage_names[o->type]))->type;
    p.callbacks = job_callbacks(j, NULL);
    if (c->fewer) {
        TRY(gguf_write_memory(c->converted.writer, &c->bytes, &len, e));
        TRY(gguf_parse(c->bytes, len, &c->gguf, e));
        p.gguf = c->gguf;
        p.source = NULL;
    }
    job_say_fallback(&o->common, &c->config, o->type);
    return err_in_file(e, quantize_plan(&p, &c->retyped, e), j->path);
}

static enum status copy_checkpoint(const struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    const struct file_map *file = &j->checkpoint.file;
    struct file_writer *w;
    char variant[16];
    TRY(file_writer_open(&w, j->common->out, e));
    file_writer_put(w, file->data, file->len);
    TRY(file_writer_commit(w, e));
    config_variant_name(&c->config, variant);
    log_info(j->common, "%.200s is a copy: the checkpoint has these K/V heads already (%s)",
             j->common->out, variant);
    return STATUS_OK;
}

static enum status write_out(struct conversion *c, struct err *e)
{
    const bool retypes = c->options->type != CHOICE_NONE;
    struct gguf_writer *writer = retypes ? c->retyped.writer : c->converted.writer;
    TRY(c->fewer || retypes
            ? err_in_file(e, gguf_write(writer, c->job->common->out, e), c->job->path)
            : copy_checkpoint(c, e));
    c->job->out_is_written = true;
    return STATUS_OK;
}

/* Measures the bits per byte of the checkpoint at `path` on --eval's text; NaN without one. */
static enum status measure_bits(struct job *j, const char *path, double *out, struct err *e)
{
    struct checkpoint k;
    struct eval_result result;
    *out = NO_FIGURE;
    if (!j->tokens)
        return STATUS_OK;
    enum status s = job_open(path, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL, j->pool, &k, e);
    if (s != STATUS_OK) /* what was just written is no bad input */
        return s == STATUS_BAD_FILE && path != j->path ? STATUS_FAILED : s;
    struct eval_spec spec = job_eval_spec(j, &k);
    spec.callbacks = job_callbacks(j, "token");
    s = err_in(e, eval_run(&spec, &result, e), "--eval");
    if (s == STATUS_OK)
        *out = result.bits_per_byte;
    checkpoint_close(&k);
    return s;
}

/* --- the report ------------------------------------------------------------------------------- */

static struct figure figure_of_seconds(double seconds)
{
    return figure_duration(seconds * 1e9);
}

/* A row of the report: the checkpoint before or after the conversion. Unknown fields are NaN or
 * NULL. */
struct convert_row {
    const char *checkpoint;                /* "before", "after" */
    const char *method, *grouping, *refit; /* of new heads */
    const char *type;                      /* of matrices that are new, or whose type changed */
    char variant[16];                      /* "MHA", "GQA-4" */
    uint64_t kv_bytes_per_token_f32, kv_bytes_per_token_f16;
    uint64_t parameters, file_bytes;
    uint64_t calibration_tokens;
    double divergence;           /* from the checkpoint before, on text held out */
    double bits_per_byte;        /* of --eval's text */
    struct quantize_error error; /* of numbers that changed their type */
    double seconds;              /* that the conversion took */
    struct report_list layers;   /* of struct convert_layer */
};

/* When fields are shown. Programs get all; CSV has the layers in a table of their own. */
enum { IN_JSON = 1, WITH_TEXT = 2, WITH_EVAL = 4, WITH_TYPE = 8, RETYPED = 16 };

static const struct report_field layer_fields[] = {
    {"layer", "layer", MEMBER(convert_layer, layer)},
    {"score_lost", "score_lost", MEMBER(convert_layer, score), "%.5f"},
    {"output_lost", "output_lost", MEMBER(convert_layer, output), "%.5f"},
};

#define ROW(member) MEMBER(convert_row, member)
static const struct report_field row_fields[] = {
    {"checkpoint", "checkpoint", ROW(checkpoint)},
    {"method", NULL, ROW(method), .when = IN_JSON},
    {"grouping", NULL, ROW(grouping), .when = IN_JSON},
    {"refit", NULL, ROW(refit), .when = IN_JSON},
    {"calibration_tokens", NULL, ROW(calibration_tokens), .when = IN_JSON},
    {"variant", "variant", ROW(variant)},
    {"type", "type", ROW(type), .when = RETYPED},
    {"kv_bytes_per_token_f32", "cache f32", ROW(kv_bytes_per_token_f32), .figure = figure_bytes},
    {"kv_bytes_per_token_f16", "cache f16", ROW(kv_bytes_per_token_f16), .figure = figure_bytes,
     .detail = true},
    {"parameters", "parameters", ROW(parameters), .detail = true},
    {"file_bytes", "file", ROW(file_bytes), .figure = figure_bytes},
    {"divergence", "divergence", ROW(divergence), "%.4f", .when = WITH_TEXT},
    {"bits_per_byte", "bits per byte", ROW(bits_per_byte), "%.4f", .when = WITH_EVAL},
    {"rms_error", "rms error", ROW(error.rms), "%.7f", .when = WITH_TYPE, .detail = true},
    {"relative_error", "relative error", ROW(error.relative), "%.7f", .when = WITH_TYPE,
     .detail = true},
    {"max_error", "largest error", ROW(error.max), "%.7f", .when = WITH_TYPE, .detail = true},
    {"seconds", "seconds", ROW(seconds), .figure = figure_of_seconds, .detail = true},
    {"layers", NULL, ROW(layers), .items = layer_fields, .n_items = LENGTH(layer_fields),
     .item_size = sizeof(struct convert_layer), .when = IN_JSON},
};

/* Lists the names of a set of storages, with commas. */
static void name_types(unsigned types, char out[32])
{
    size_t len = 0;
    for (int s = 0; s < STORAGE_COUNT; s++)
        if (types & 1u << s)
            len += snprintf(out + len, 32 - len, "%s%s", len ? "," : "", storage_names[s]);
}

/* Returns the row of a checkpoint with the tensors of g and this config. */
static struct convert_row describe(const char *checkpoint, const struct gguf *g,
                                   const struct config *c, uint64_t file_bytes,
                                   double bits_per_byte)
{
    const struct cost_shape shape = {c, .tied = layout_output_tied(g), .gguf = g};
    struct convert_row row = {
        .checkpoint = checkpoint,
        .kv_bytes_per_token_f32 = kv_cache_bytes_per_token(c, kv_type_of(CACHE_F32)),
        .kv_bytes_per_token_f16 = kv_cache_bytes_per_token(c, kv_type_of(CACHE_F16)),
        .parameters = cost_weights(&shape).parameters,
        .file_bytes = file_bytes,
        .divergence = NO_FIGURE,
        .bits_per_byte = bits_per_byte,
        .error = {NO_FIGURE, NO_FIGURE, NO_FIGURE},
        .seconds = NO_FIGURE};
    config_variant_name(c, row.variant);
    return row;
}

/* Prints a table of the layers, if heads were converted, and one of the checkpoints. */
static enum status print_conversion(const struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    const enum table_format format = j->common->format;
    const struct convert *k = &c->converted;
    const struct gguf *g = j->checkpoint.gguf;
    struct stat st;
    const uint64_t out_bytes = stat(j->common->out, &st) == 0 ? st.st_size : 0;
    struct convert_row rows[] = {
        describe("before", g, &c->config, j->checkpoint.file.len, c->bits_before),
        describe("after", g, c->fewer ? &k->config : &c->config, out_bytes, c->bits_after)};
    struct convert_row *after = &rows[1];
    char new_types[32];
    after->seconds = c->seconds;
    if (c->spec.n_tokens > 0)
        rows[0].divergence = 0;
    if (c->fewer) {
        after->method = convert_methods[c->spec.method];
        after->grouping = c->spec.cluster ? "cluster" : "adjacent";
        after->refit = convert_refits[c->spec.refit];
        name_types(k->new_types, new_types);
        after->type = new_types;
        after->calibration_tokens = c->spec.n_tokens;
        after->divergence = k->divergence;
        after->layers = (struct report_list){k->layers, k->n_layers};
    }
    if (c->options->type != CHOICE_NONE) {
        after->type = storage_names[c->options->type];
        after->error = c->retyped.error;
    }
    const struct table layers = TABLE_OF(layer_fields, k->layers, k->n_layers);
    struct table figures = TABLE_OF(row_fields, rows, LENGTH(rows));
    figures.shown =
        WITH_TEXT | WITH_EVAL | WITH_TYPE | RETYPED | (table_is_json(format) ? IN_JSON : 0);
    if (table_is_for_people(format))
        figures.shown = (c->spec.n_tokens > 0 ? WITH_TEXT : 0) | (j->tokens ? WITH_EVAL : 0) |
                        (c->options->type != CHOICE_NONE ? WITH_TYPE
                         : k->retyped                    ? RETYPED
                                                         : 0);
    if (c->fewer && !config_same_kv_heads(&k->config))
        log_info(j->common, "layers have different numbers of K/V heads, which llama.cpp runs in "
                            "few architectures");
    if (c->fewer && table_is_for_people(format)) {
        TRY(job_print(j, &layers, e));
        output_puts(j->out, "\n");
    }
    return job_print(j, &figures, e);
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum status convert_and_print(struct conversion *c, struct err *e)
{
    struct job *j = c->job;
    TRY(input_parse_range(c->options->range, &c->range, e));
    TRY(job_start_threads(j, e));
    TRY(plan_heads(c, e));
    TRY(read_eval(c, e));
    TRY(measure_bits(j, j->path, &c->bits_before, e));
    const uint64_t started_ns = clock_ns();
    TRY(convert_heads(c, e));
    TRY(change_type(c, e));
    TRY(write_out(c, e));
    c->seconds = (clock_ns() - started_ns) * 1e-9;
    TRY(measure_bits(j, j->common->out, &c->bits_after, e));
    return print_conversion(c, e);
}

static enum status run_convert(struct job *j, void *values, struct err *e)
{
    struct conversion c = {.job = j, .options = values};
    const enum status s = convert_and_print(&c, e);
    quantize_free(&c.retyped);
    gguf_free(c.gguf);
    free(c.bytes);
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
                        {"", general_options, 0}},
             .everyday = "output kv-heads type method calib eval force",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_STOPS | JOB_WORKERS | JOB_CHECKPOINT,
    .check = check_convert,
    .run = run_convert,
};
