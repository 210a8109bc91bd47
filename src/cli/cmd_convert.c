/*
 * cmd_convert - decode convert: an MHA checkpoint to GQA or MQA.
 */
#include "base/replace.h"
#include "cli/help_texts.h"
#include "cli/job.h"
#include "convert/drop.h"
#include "formats/gguf_write.h"
#include "formats/json_write.h"
#include "model/kv_cache.h"

#define NOTICEABLE_BITS 0.1               /* a rise of bits per byte that is worth a warning */
#define EVAL_MAX        ((size_t)1 << 30) /* more text is refused before it is read */

struct convert_options {
    struct common_options common;
    const char *eval, *drop_heads;
    bool requantize;
};

#define VALUES struct convert_options

static const struct option drop_options[] = {
    OPT_STRING("drop-heads", drop_heads, "L.H,...",
               "take these heads out of MODEL, alone or before its K/V heads become fewer; layer "
               "and head, from 0"),
    OPT_END,
};

static const struct option own_options[] = {
    OPT_OUT,
    OPT_FORCE,
    OPT_FLAG("requantize", requantize,
             "take a MODEL that is quantized; its new tensors are rounded once more"),
    OPT_U64("seed", common.seed, "S", "of the method random", .otherwise = "a random one, printed"),
    OPT_STRING(
        "range", common.variant.calib_range, "A:B",
        "a share of the calibration text's bytes, fractions from 0 to 1: 0:0.9 leaves the last "
        "tenth out",
        .otherwise = "0:1, all", .needs = "calib"),
    OPT_STRING("eval", eval, "TEXT",
               "a file of text on which bits per byte are measured before and after; of the "
               "calibration text itself what comes after --range",
               .reads = "the text of --eval"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

/* Figures of the checkpoint before conversion, or after. */
struct convert_figures {
    char variant[16]; /* "MHA", "GQA-4" */
    uint64_t kv_bytes_per_token_f32, kv_bytes_per_token_f16;
    uint64_t parameters, file_bytes;
    double divergence;    /* from the checkpoint before, on calibration text held out; else NaN */
    double bits_per_byte; /* NaN: not measured */
    double seconds;       /* that the conversion took, `after`; NaN before */
};

/* A run. */
struct conversion {
    struct job *job; /* its checkpoint is without a model; its tokens are those of --eval's text */
    struct convert_spec spec;
    struct convert converted;
    struct convert_figures before, after;
    uint64_t n_dropped; /* parameters that --drop-heads took out before */
};

static enum status check_convert(struct job *j, void *values, struct err *e)
{
    const struct convert_options *o = values;
    (void)j;
    const bool converts = variant_is_wanted(&o->common.variant);
    if (o->drop_heads && !converts && o->eval)
        return err_usage(e, "--drop-heads and --eval are both given; decode eval measures OUT");
    if (!o->drop_heads && !converts)
        return err_usage(
            e, "no number of K/V heads is named; expected --kv-heads G or --cache-bytes B");
    return STATUS_OK;
}

/* --- the report ------------------------------------------------------------------------------ */

static struct figure figure_of_seconds(double seconds)
{
    return figure_duration(seconds * 1e9);
}

/* When fields are shown. */
enum {
    IN_TABLE = 1,  /* JSON has a layer's place for its number, and the seconds elsewhere */
    WITH_TEXT = 2, /* to people only with a text, without which they have no value */
};

/* The rows of the table of figures; JSON has the seconds beside them. */
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
    {"seconds", "seconds", MEMBER(convert_figures, seconds), .figure = figure_of_seconds,
     .when = IN_TABLE},
};
#define N_FIGURES LENGTH(figure_fields)

static const struct report_field layer_fields[] = {
    {"layer", "layer", MEMBER(convert_layer, layer), .when = IN_TABLE},
    {"score_lost", "score_lost", MEMBER(convert_layer, score), "%.5f"},
    {"output_lost", "output_lost", MEMBER(convert_layer, output), "%.5f"},
    {"own_lost", "own_lost", MEMBER(convert_layer, own), "%.5f", .when = WITH_TEXT},
    {"own_first", "own_first", MEMBER(convert_layer, own_first), "%.3f", .when = WITH_TEXT},
    {"gathered", "gathered", MEMBER(convert_layer, gathered), "%.5f", .when = WITH_TEXT},
};

/* One object, over several lines or (JSON lines) on one. */
static void print_json(const struct conversion *c)
{
    struct output *out = c->job->out;
    struct json j;
    json_init(&j, out, c->job->common->format == TABLE_JSONL ? 0 : 1);
    json_begin_object(&j, NULL);
    json_string(&j, "method", convert_methods[c->spec.method]);
    json_string(&j, "grouping", c->spec.cluster ? "cluster" : "adjacent");
    json_string(&j, "refit", convert_refits[c->spec.refit]);
    json_u64(&j, "calibration_tokens", c->spec.n_tokens);
    json_begin_array(&j, "layers");
    for (int i = 0; i < c->converted.n_layers; i++) {
        const struct convert_layer *layer = &c->converted.layers[i];
        report_object(&j, NULL, layer_fields, LENGTH(layer_fields), WITH_TEXT, layer);
    }
    json_end(&j);
    report_object(&j, "before", figure_fields, N_FIGURES, 0, &c->before);
    report_object(&j, "after", figure_fields, N_FIGURES, 0, &c->after);
    json_double(&j, "seconds", c->after.seconds);
    json_end(&j);
    output_puts(out, "\n");
}

/* A table of the layers, and one of the figures, in which people see the change of fractions. */
static enum status print_conversion(const struct conversion *c, struct err *e)
{
    static const struct report_field columns[] = {
        {"figure", "figure", .type = REPORT_TEXT},
        {"before", "before", .type = REPORT_DOUBLE},
        {"after", "after", .type = REPORT_DOUBLE},
        {NULL, "change", REPORT_DOUBLE, .format = "%+.4f"}};
    const enum table_format format = c->job->common->format;
    const bool people = table_is_for_people(format);
    struct table layers = TABLE_OF(layer_fields, c->converted.layers, c->converted.n_layers);
    struct report t;
    if (table_is_json(format)) {
        print_json(c);
        return STATUS_OK;
    }
    layers.shown = IN_TABLE | (!people || c->spec.n_tokens > 0 ? WITH_TEXT : 0);
    TRY(table_print(&layers, format, c->job->out, e));
    output_puts(c->job->out, "\n");
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

/* --- the run --------------------------------------------------------------------------------- */

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

static void set_sizes(const struct config *c, struct convert_figures *f)
{
    config_variant_name(c, c->n_kv_heads, f->variant);
    f->kv_bytes_per_token_f32 = kv_cache_bytes_per_token(c, c->n_kv_heads, STORAGE_F32);
    f->kv_bytes_per_token_f16 = kv_cache_bytes_per_token(c, c->n_kv_heads, STORAGE_F16);
}

/* Writes what was converted, measures it and prints the report. */
static enum status write_and_report(struct conversion *c, uint64_t started_ns, struct err *e)
{
    struct job *j = c->job;
    const char *out = j->common->out;
    const struct convert *converted = &c->converted;
    struct convert_figures *before = &c->before, *after = &c->after;
    const uint64_t measured_ns = clock_ns();
    /* First, because logits may not be finite, and OUT is still as it was. */
    enum status s = measure_bits(j, j->path, &before->bits_per_byte, e);
    started_ns += clock_ns() - measured_ns;
    if (s == STATUS_OK)
        s = gguf_write(converted->writer, out, e);
    TRY(job_blame(j->path, s, e));
    set_sizes(&converted->config, after);
    before->parameters = converted->n_params_before + c->n_dropped;
    after->parameters = converted->n_params_after;
    after->file_bytes = job_out_bytes(j);
    before->divergence = c->spec.n_tokens ? 0 : NO_FIGURE;
    after->divergence = converted->divergence;
    before->seconds = NO_FIGURE;
    after->seconds = (clock_ns() - started_ns) * 1e-9;
    s = measure_bits(j, out, &after->bits_per_byte, e);
    if (s == STATUS_INTERRUPTED) {
        j->needs &= ~JOB_OUT;
        say(j->common, "interrupted; %s is written", out);
    } else if (s != STATUS_OK) {
        return s;
    }
    progress_end(&j->progress);
    TRY(print_conversion(c, e));
    const double rise = after->bits_per_byte - before->bits_per_byte;
    if (rise > NOTICEABLE_BITS)
        say(j->common,
            "warning: bits per byte rise by %.3f; uptraining makes good for it: decode train TEXT "
            "--from %s",
            rise, out);
    return s;
}

/* What became of the heads that were to go. */
static void tell_dropped(const struct job *j, const struct drop *d)
{
    const struct config *c = &d->before, *now = &d->config;
    const bool same = now->arch == c->arch;
    char names[512] = "";
    int n_named = 0;
    for (int i = 0; n_named < d->n_zero && strlen(names) + 32 < sizeof names; i++)
        if (d->fates[i] == DROP_ZERO)
            chars_append(names, "%s%d.%d", n_named++ ? "," : "", i / c->n_heads, i % c->n_heads);
    if (d->n_zero)
        say(j->common, "%s%s stay%s as zeros: %s", names, n_named < d->n_zero ? " and others" : "",
            d->n_zero == 1 ? "s" : "",
            c->position == POSITION_ALIBI
                ? "the slopes of ALiBi follow the number of heads"
                : "the groups of a layer need equally many heads, one at least");
    if (d->n_gone)
        say(j->common,
            "%d head%s removed%s%s; parameters %" PRIu64 " to %" PRIu64
            ", cache a token, f32, %s to %s",
            d->n_gone, plural(d->n_gone),
            same ? "" : ", which only architecture decode can say, not ", same ? "" : c->arch->name,
            d->n_params_before, d->n_params_after,
            figure_bytes(kv_cache_bytes_per_token(c, c->n_kv_heads, STORAGE_F32)).text,
            figure_bytes(kv_cache_bytes_per_token(now, now->n_kv_heads, STORAGE_F32)).text);
}

/* The checkpoint without these heads to OUT, or, to be converted, in its place. */
static enum status drop_and_tell(struct conversion *c, const char *heads, bool converts,
                                 struct err *e)
{
    struct job *j = c->job;
    struct config config;
    unsigned char *off = NULL;
    struct drop dropped = {.writer = NULL};
    struct file_map file;
    TRY(job_config(j->path, &j->checkpoint, &config, e));
    enum status s = heads_of_option("--drop-heads", heads, &config, &off, e);
    const struct drop_spec spec = {
        .gguf = j->checkpoint.gguf, .off = off, .names = heads, .version = DECODE_VERSION};
    if (s == STATUS_OK)
        s = drop_heads(&spec, &dropped, e);
    if (s == STATUS_OK)
        s = converts ? gguf_write_map(dropped.writer, &file, e)
                     : gguf_write(dropped.writer, j->common->out, e);
    if (s == STATUS_OK)
        tell_dropped(j, &dropped);
    c->n_dropped = dropped.n_params_before - dropped.n_params_after;
    drop_free(&dropped);
    free(off);
    TRY(job_blame(j->path, s, e));
    if (!converts)
        return STATUS_OK;
    checkpoint_close(&j->checkpoint);
    return checkpoint_take(&file, j->path, 0, &j->checkpoint, e);
}

/* MODEL to OUT as it is, where GQA with as many K/V heads as asked for is what it has. */
static enum status copy_and_tell(struct job *j, const struct config *c, struct err *e)
{
    const struct file_map *file = &j->checkpoint.file;
    struct file_writer *w;
    char variant[16];
    TRY(file_writer_open(&w, j->common->out, e));
    file_writer_put(w, file->data, file->len);
    TRY(file_writer_commit(w, e));
    config_variant_name(c, c->n_kv_heads, variant);
    say(j->common, "%.200s is a copy: the checkpoint has these K/V heads already (%s)",
        j->common->out, variant);
    return STATUS_OK;
}

static enum status run_convert(struct job *j, void *values, struct err *e)
{
    const struct convert_options *o = values;
    const struct gguf *g = j->checkpoint.gguf;
    struct conversion c = {.job = j};
    const bool converts = variant_is_wanted(&o->common.variant);
    struct config config;
    TRY(job_start_threads(j, e));
    if (!converts)
        return drop_and_tell(&c, o->drop_heads, false, e);
    TRY(job_config(j->path, &j->checkpoint, &config, e));
    if (!o->drop_heads && variant_is_there(&o->common.variant, &config))
        return copy_and_tell(j, &config, e);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (t->type->block_elements > 1 && !o->requantize)
            return err_usage(e,
                             "%.200s: tensor %.*s is quantized (%s); --requantize converts it all "
                             "the same, but better convert first and quantize then",
                             j->path, text_width(t->name), t->name.data, t->type->name);
    }
    TRY(job_seed(j, e));
    if (o->eval) { /* found out before the work: whether its text can be measured at all */
        TRY(input_await(o->eval, EVAL_MAX, &j->text_bytes, &j->text.len, e));
        j->text.data = j->text_bytes;
        const struct variant_options *of = &o->common.variant;
        struct input_range range;
        TRY(input_parse_range(of->calib_range, &range, e));
        if (of->calib_range && str_is(of->calib, o->eval))
            j->text = input_range_of((struct input_range){range.to, 1}, j->text);
        TRY(input_needs_tokenizer(j->checkpoint.tokenizer, j->path, "--eval", e));
        TRY(err_in(e, job_tokenize(j, e), "--eval"));
        TRY(err_in(e, eval_check_length(j->n_tokens, e), "--eval"));
    }
    set_sizes(&config, &c.before);
    c.before.file_bytes = j->checkpoint.file.len;
    if (o->drop_heads)
        TRY(drop_and_tell(&c, o->drop_heads, true, e));
    const uint64_t started_ns = clock_ns();
    const struct variant_request q = job_variant(j);
    enum status s = variant_convert(&q, &c.spec, &c.converted, e);
    if (s == STATUS_OK && o->common.variant.method == CONVERT_RANDOM)
        say(&o->common, "seed %" PRIu64, j->seed);
    if (s == STATUS_OK)
        s = write_and_report(&c, started_ns, e);
    convert_free(&c.converted);
    return s;
}

const struct command command_convert = {
    .name = "convert",
    .summary = "MHA checkpoint to GQA or MQA",
    .usage = "MODEL -o OUT (--kv-heads G | --cache-bytes B | --drop-heads L.H,...) [options]",
    .examples = "./decode convert models/shakespeare-mha.gguf -o gqa2.gguf --kv-heads 2\n"
                "./decode convert models/shakespeare-mha.gguf -o f.gguf --drop-heads 1.3\n",
    .notes = help_of_convert,
    .spec = {.groups = {{"Conversion", variant_options, offsetof(VALUES, common.variant)},
                        {"More of it", conversion_options, offsetof(VALUES, common.variant)},
                        {"Heads", drop_options, 0},
                        {"Output", own_options, 0},
                        GENERAL_GROUP},
             .everyday = "output kv-heads method calib eval force",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_STOPS | JOB_WORKERS | JOB_CHECKPOINT,
    .check = check_convert,
    .run = run_convert,
};
