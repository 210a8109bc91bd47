/*
 * cmd_convert - decode convert: an MHA checkpoint to GQA or MQA.
 */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "cli/convert_report.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/say.h"
#include "cli/signals.h"
#include "cli/variant.h"
#include "convert/convert.h"
#include "measure/eval.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"

/* A rise of bits per byte from here on is worth a warning. */
#define NOTICEABLE_BITS 0.1
/* More text than this is refused before it is read. */
#define EVAL_MAX ((size_t)1 << 30)

struct convert_options {
    struct common_options common;
    const char *eval, *drop_heads;
    bool requantize;
};

#define VALUES struct convert_options

static const struct option drop_options[] = {
    OPT_STRING("drop-heads", drop_heads, "L.H,...",
               "instead: make these heads' columns of the output matrix zero; layer and head, "
               "from 0"),
    OPT_END,
};

static const struct option own_options[] = {
    OPT_OUT,
    OPT_FORCE,
    OPT_FLAG("requantize", requantize,
             "take a MODEL that is quantized; its new tensors are rounded once more"),
    OPT_U64("seed", common.seed, "S", "of the method random", .otherwise = "a random one, printed"),
    OPT_STRING("eval", eval, "TEXT",
               "a file of text on which bits per byte are measured before and after",
               .reads = "the text of --eval"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

/* What a run holds. */
struct conversion {
    const struct convert_options *options;
    struct job *job; /* its checkpoint is without a model */
    struct convert_spec spec;
    char *eval_text; /* --eval's, malloc'd */
    size_t eval_len;
    int32_t *eval_tokens; /* malloc'd */
    size_t n_eval_tokens;
    struct convert_report report;
};

/* --- before ---------------------------------------------------------------------------------- */

/* What --drop-heads does is not a conversion of heads to other heads. */
static enum status check_drop_options(const struct convert_options *o, struct err *e)
{
    if (variant_is_wanted(&o->common.variant))
        return err_set(e, STATUS_USAGE,
                       "--drop-heads and --%s are both given; expected one of them: the second run "
                       "takes what the first wrote",
                       o->common.variant.kv_heads ? "kv-heads"
                       : o->common.variant.latent ? "latent"
                                                  : "cache-bytes");
    if (o->eval)
        return err_set(e, STATUS_USAGE,
                       "--drop-heads and --eval are both given; decode eval measures OUT");
    return STATUS_OK;
}

static enum status check_convert(struct job *j, void *values, struct err *e)
{
    const struct convert_options *o = values;
    (void)j;
    if (o->drop_heads)
        return check_drop_options(o, e);
    if (!variant_is_wanted(&o->common.variant))
        return err_set(e, STATUS_USAGE,
                       "no number of K/V heads is named; expected --kv-heads G, or --latent R or "
                       "--cache-bytes B");
    return STATUS_OK;
}

/* Found out before the work, too: whether the text of --eval can be measured at all. */
static enum status read_eval_tokens(struct conversion *c, struct err *e)
{
    const struct tokenizer *t = c->job->checkpoint.tokenizer;
    const char *path = c->options->eval;
    if (!path)
        return STATUS_OK;
    TRY(input_await(path, EVAL_MAX, &c->eval_text, &c->eval_len, e));
    TRY(input_check_text(path, (struct text){c->eval_text, c->eval_len}, e));
    TRY(input_needs_tokenizer(t, c->job->path, "--eval", e));
    const struct text text = {c->eval_text, c->eval_len};
    enum status s =
        tokens_of_text(t, text, tokenizer_adds_bos(t), &c->eval_tokens, &c->n_eval_tokens, e);
    if (s == STATUS_OK)
        s = eval_check_length(c->n_eval_tokens, e);
    if (s != STATUS_OK)
        err_prefix(e, "--eval");
    return s;
}

/* --- bits per byte --------------------------------------------------------------------------- */

/* Bits per byte of the checkpoint at `path` on --eval's text; NaN without one. */
static enum status measure_bits(const struct conversion *c, const char *path, double *out,
                                struct err *e)
{
    struct checkpoint k;
    *out = (double)NAN;
    if (!c->options->eval)
        return STATUS_OK;
    enum status s = job_open(path, CHECKPOINT_TOKENIZER | CHECKPOINT_MODEL, &k, e);
    if (s != STATUS_OK) /* what was just written is no bad input */
        return s == STATUS_BAD_FILE && path != c->job->path ? STATUS_FAILED : s;
    const struct eval_spec spec = {
        .model = k.model,
        .params = {.kernels = c->job->kernels},
        .pool = c->job->pool,
        .tokens = c->eval_tokens,
        .n_tokens = c->n_eval_tokens,
        .tokenizer = k.tokenizer,
        .stop = progress_stop,
        .progress = progress_show,
        .arg = job_progress(c->job, "tokens"),
    };
    struct eval_result result;
    s = eval_run(&spec, &result, e);
    if (s == STATUS_OK)
        *out = result.bits_per_byte;
    else
        err_prefix(e, "--eval");
    checkpoint_close(&k);
    return s;
}

/* --- after ----------------------------------------------------------------------------------- */

static void fill_figures(const struct config *config, int n_kv_heads, uint64_t n_params,
                         struct convert_figures *f)
{
    config_variant_name(config, n_kv_heads, f->variant);
    f->kv_bytes_per_token_f32 = kv_cache_bytes_per_token(config, n_kv_heads, STORAGE_F32);
    f->kv_bytes_per_token_f16 = kv_cache_bytes_per_token(config, n_kv_heads, STORAGE_F16);
    f->parameters = n_params;
}

static enum status write_and_report(struct conversion *c, struct convert *converted,
                                    uint64_t started_ns, struct err *e)
{
    const struct convert_options *o = c->options;
    struct convert_report *r = &c->report;
    const uint64_t measured_ns = clock_ns();
    /* First, because logits may not be finite, and OUT is still as it was. */
    enum status s = measure_bits(c, c->job->path, &r->before.bits_per_byte, e);
    started_ns += clock_ns() - measured_ns;
    if (s == STATUS_OK)
        s = gguf_write(converted->writer, o->common.out, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, c->job->path);
    if (s != STATUS_OK)
        return s;
    r->spec = &c->spec;
    r->converted = converted;
    r->before.seconds = (double)NAN;
    r->after.seconds = (double)(clock_ns() - started_ns) * 1e-9;
    struct config config;
    TRY(config_read(c->job->checkpoint.gguf, &config, e));
    fill_figures(&config, config.n_kv_heads, converted->n_params_before, &r->before);
    fill_figures(&converted->config, converted->config.n_kv_heads, converted->n_params_after,
                 &r->after);
    r->before.divergence = c->spec.n_tokens ? 0 : (double)NAN;
    r->after.divergence = converted->divergence;
    struct stat st;
    r->before.file_bytes = c->job->checkpoint.file.len;
    if (stat(o->common.out, &st) == 0)
        r->after.file_bytes = (uint64_t)st.st_size;
    const enum status measured = measure_bits(c, o->common.out, &r->after.bits_per_byte, e);
    if (measured != STATUS_OK && measured != STATUS_INTERRUPTED)
        return measured;
    progress_end(&c->job->progress);
    TRY(convert_report_print(r, (enum table_format)o->common.format, c->job->out, e));
    if (converted->divergence > converted->plain_divergence)
        say(&o->common,
            "warning: the plain mean (--method mean --refit none) diverges less on text that was "
            "kept aside: %.4f nats a token, not %.4f",
            converted->plain_divergence, converted->divergence);
    const double rise = r->after.bits_per_byte - r->before.bits_per_byte;
    if (rise > NOTICEABLE_BITS)
        say(&o->common,
            "warning: bits per byte rise by %.3f; uptraining makes good for it: decode train TEXT "
            "--from %s",
            rise, o->common.out);
    return measured;
}

static enum status convert_and_tell(struct conversion *c, struct err *e)
{
    const struct convert_options *o = c->options;
    struct variant_source source = {
        .common = &o->common,
        .path = c->job->path,
        .checkpoint = &c->job->checkpoint,
        .kernels = c->job->kernels,
        .pool = c->job->pool,
    };
    TRY(job_seed(c->job, e));
    source.seed = c->job->seed;
    const uint64_t started_ns = clock_ns();
    struct convert converted;
    enum status s = variant_convert(&o->common.variant, &source, &c->spec, &converted, e);
    if (s == STATUS_OK) {
        if (o->common.variant.kv_heads && o->common.variant.method == CONVERT_RANDOM)
            say(&o->common, "seed %llu", (unsigned long long)source.seed);
        s = write_and_report(c, &converted, started_ns, e);
        convert_free(&converted);
    }
    if (s == STATUS_INTERRUPTED && c->report.spec) {
        say(&o->common, "interrupted; %s is written", o->common.out);
        c->job->needs &= ~(unsigned)JOB_OUT;
    }
    return s;
}

/* --- without heads --------------------------------------------------------------------------- */

static enum status write_without(const struct conversion *c, const unsigned char *off,
                                 struct err *e)
{
    const struct drop_spec spec = {.gguf = c->job->checkpoint.gguf,
                                   .off = off,
                                   .names = c->options->drop_heads,
                                   .version = DECODE_VERSION};
    struct drop dropped;
    TRY(drop_heads(&spec, &dropped, e));
    const enum status s = gguf_write(dropped.writer, c->options->common.out, e);
    drop_free(&dropped);
    return s;
}

static enum status drop_and_tell(const struct conversion *c, struct err *e)
{
    struct config config;
    unsigned char *off;
    TRY(job_config(c->job->path, &c->job->checkpoint, &config, e));
    TRY(heads_of_option("--drop-heads", c->options->drop_heads, &config, &off, e));
    const enum status s = write_without(c, off, e);
    free(off);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, c->job->path);
    if (s == STATUS_OK)
        say(&c->options->common, "%s: the output columns of heads %s are zero",
            c->options->common.out, c->options->drop_heads);
    return s;
}

static enum status run_convert(struct job *j, void *values, struct err *e)
{
    struct conversion c = {.options = values, .job = j};
    enum status s = STATUS_OK;
    TRY(job_start_threads(j, e));
    if (!c.options->requantize && !c.options->drop_heads)
        TRY(variant_check_types(j->checkpoint.gguf, j->path, e));
    s = read_eval_tokens(&c, e);
    if (s == STATUS_OK)
        s = c.options->drop_heads ? drop_and_tell(&c, e) : convert_and_tell(&c, e);
    free(c.eval_text);
    free(c.eval_tokens);
    return s;
}

const struct command command_convert = {
    .name = "convert",
    .summary = "MHA checkpoint to GQA, MQA or a latent cache",
    .usage = "MODEL -o OUT (--kv-heads G | --latent R | --cache-bytes B | --drop-heads L.H,...) "
             "[options]",
    .notes =
        "The heads of a group come to share one K and one V head, and the KV cache shrinks by as\n"
        "much. `fit` finds the shared heads that lose least of the attention scores and of what\n"
        "attention adds to the output; with --calib it then refits, layer by layer, what follows "
        "to\n"
        "what is left: values and output matrix together, and what the feed-forward part takes "
        "and\n"
        "gives. `--refit block` fits queries, keys, values and output matrix by their gradients, "
        "too,\n"
        "and takes several times as long. Each piece is kept only if it lowers the error on "
        "windows\n"
        "of the text that nothing was fitted to, of which there is one in eight. The other methods "
        "are\n"
        "for comparison.\n"
        "--latent makes a cache of one vector a position instead, which every head takes as key "
        "and\n"
        "as value (architecture decode; not with rotary positions): at equal bytes it loses less\n"
        "than shared heads, and attention takes more arithmetic. --cache-bytes chooses its ranks\n"
        "layer by layer, by the divergence from MODEL's predictions.\n"
        "Printed are, for each layer, the shares of score and output energy that are lost, then "
        "cache,\n"
        "parameters, with --calib the divergence from MODEL's predictions on the windows kept "
        "aside,\n"
        "in nats a token, and with --eval bits per byte before and after. Weights keep their "
        "types;\n"
        "metadata say how the file was made. Layers that have no more K/V heads than G keep "
        "theirs.\n"
        "--drop-heads writes the checkpoint as it is but for the output matrix, where the columns\n"
        "of the heads named become zero: what --without of eval and generate computes, as a file.\n"
        "With --format csv the layers come first, then, after an empty line, the other figures "
        "under a\n"
        "header of their own: exact, in bytes and seconds, with the names they have in JSON.\n",
    .spec = {.groups = {{"Conversion", variant_options, offsetof(VALUES, common.variant)},
                        {"More of it", conversion_options, offsetof(VALUES, common.variant)},
                        {"Heads", drop_options, 0},
                        {"Output", own_options, 0},
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_STOPS | JOB_WORKERS | JOB_CHECKPOINT,
    .check = check_convert,
    .run = run_convert,
};
