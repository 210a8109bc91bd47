#include "cli/variant.h"

#include "base/figures.h"
#include "base/numbers.h"
#include "cli/input.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "engine/own_text.h"
#include "engine/schedule.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"
#include "model/selection.h"

#define CALIB_MAX          ((size_t)1 << 30) /* more text is refused before it is read */
#define CALIB_TOKENS       65536
#define SELF_TOKENS        16384 /* that a model writes itself */
#define LEAST_SELF_CONTEXT 16

/* Which variant; `layers` is room for K/V heads by layer: [CONFIG_MAX_LAYERS]. */
static enum status read_target(const struct variant_options *o, const struct config *c, int *layers,
                               struct convert_spec *spec, struct err *e)
{
    const char *rest = o->kv_heads;
    const bool is_auto = rest && str_is(rest, "auto");
    int n = 0;
    if (is_auto != (rest && o->cache_bytes))
        return err_usage(e, is_auto ? "--kv-heads auto: expected --cache-bytes too, found none"
                                    : "--cache-bytes and --kv-heads are both given: expected one "
                                      "of them, or --kv-heads auto");
    if (o->cache_bytes)
        return parse_bytes(o->cache_bytes, &spec->cache_bytes)
                   ? STATUS_OK
                   : err_usage(
                         e,
                         "--cache-bytes: expected a number of bytes, as 8192 or 8KiB, found '%s'",
                         o->cache_bytes);
    for (char item[48]; list_item(&rest, item, sizeof item); n++) {
        int x;
        if (!parse_heads(item, c->n_heads, &x))
            return err_usage(
                e, "--kv-heads: expected an integer from 1 on, or MHA, GQA-G, MQA, found '%s'",
                item);
        for (int l = n; l < c->n_layers; l++)
            layers[l] = x;
    }
    const bool by_layer = n > 1;
    if (by_layer && n != c->n_layers)
        return err_usage(e, "--kv-heads: expected one number, or one for each layer, %d; found %d",
                         c->n_layers, n);
    bool fewer = false;
    for (int l = 0; l < c->n_layers; l++) {
        const int g = layers[l], own = by_layer ? config_kv_heads(c, l) : c->n_kv_heads;
        const int heads = config_heads(c, l);
        if (heads % (by_layer ? g : config_variant_heads(c, g, l)) != 0)
            return err_usage(
                e, "--kv-heads: expected a divisor of the checkpoint's %d query heads%s, found %d",
                heads, config_same_heads(c) ? "" : " of a layer", g);
        if (g > own || (!by_layer && g == own))
            return err_usage(
                e, "--kv-heads: expected less than the checkpoint's %d K/V head%s, found %d", own,
                plural(own), g);
        fewer |= g < own;
    }
    if (!fewer)
        return err_usage(e, "--kv-heads: the checkpoint has these already");
    spec->n_kv_heads = layers[0];
    spec->layer_kv_heads = by_layer ? layers : NULL;
    return STATUS_OK;
}

/* Whether it is self, or self:N. */
static bool parse_self(const char *calib, int *n)
{
    static const char self[] = "self";
    const size_t len = strlen(self);
    return strncmp(calib, self, len) == 0 &&
           (!calib[len] ||
            (calib[len] == ':' && parse_int(calib + len + 1, CONVERT_MIN_TOKENS, INT_MAX, n)));
}

struct calibration {
    int32_t *tokens; /* [n] malloc'd, also on failure */
    size_t n;
};

/* The seed of the text that the model writes itself. In memory --seed is the sampler's, and the
 * variant is the same model whatever it is. */
static uint64_t seed_of_own(const struct variant_request *q)
{
    return q->common->out && q->common->seed.given ? q->common->seed.value : 0;
}

/* Whole windows of what the model itself writes. */
static enum status write_calibration(const struct variant_request *q, const struct config *c,
                                     int wanted, struct calibration *out, struct err *e)
{
    TRY(input_needs_tokenizer(q->checkpoint->tokenizer, q->path, "--calib self", e));
    if (c->n_ctx < LEAST_SELF_CONTEXT)
        return err_usage(
            e, "--calib self: expected a checkpoint with a context of at least %d, found %d",
            LEAST_SELF_CONTEXT, c->n_ctx);
    const size_t window = convert_window_size(c->n_ctx, wanted), n = wanted / window;
    struct model *model = NULL;
    out->n = n * window;
    out->tokens = malloc(out->n * sizeof *out->tokens);
    if (!out->tokens)
        return err_no_memory(e, "the calibration text", out->n * sizeof *out->tokens);
    TRY(err_in(e, model_create(q->checkpoint->gguf, NULL, &q->checkpoint->file, &model, e), "%s",
               q->path));
    model->name = q->path;
    struct progress progress = progress_start(q->common, "tokens of its own");
    const struct own_text text = {.model = model,
                                  .tokenizer = q->checkpoint->tokenizer,
                                  .kernels = q->kernels,
                                  .pool = q->pool,
                                  .seed = seed_of_own(q),
                                  .length = window,
                                  .n = n,
                                  .callbacks = {progress_stop, progress_show, &progress}};
    const enum status s = own_text_write(&text, out->tokens, e);
    progress_end(&progress);
    model_free(model);
    return s;
}

static enum status read_calibration(const struct variant_request *q, const struct config *c,
                                    struct calibration *out, struct err *e)
{
    const struct variant_options *o = &q->common->variant;
    char *bytes = NULL;
    struct text text = o->calib_text;
    struct input_range range;
    TRY(input_parse_range(o->calib_range, &range, e));
    TRY(input_needs_tokenizer(q->checkpoint->tokenizer, q->path, "--calib", e));
    if (!text.data) {
        TRY(input_await(o->calib, CALIB_MAX, &bytes, &text.len, e));
        text = input_range_of(range, text_span(bytes, text.len));
    }
    const size_t wanted = o->calib_tokens ? o->calib_tokens : CALIB_TOKENS;
    const enum status s =
        tokens_of_sample(q->checkpoint->tokenizer, text, wanted, &out->tokens, &out->n, e);
    free(bytes);
    TRY(s);
    if (out->n == 0)
        return err_usage(e, "--calib: there is no text in '%.200s'", o->calib);
    if (out->n < CONVERT_MIN_TOKENS)
        return err_usage(e, "--calib: expected at least %d tokens in '%.200s', found %zu",
                         CONVERT_MIN_TOKENS, o->calib, out->n);
    if (out->n > wanted) { /* whole windows, at equal distances */
        const size_t window = convert_window_size(c->n_ctx, wanted);
        const size_t n_windows = wanted / window, step = (out->n - window) / (n_windows - 1);
        for (size_t i = 1; i < n_windows; i++)
            memmove(out->tokens + i * window, out->tokens + i * step, window * sizeof *out->tokens);
        out->n = n_windows * window;
    }
    if (out->n < (size_t)c->d_model)
        say(q->common,
            "warning: --calib: %zu tokens are too few for a model of width %d, and may make it "
            "worse; expected thousands",
            out->n, c->d_model);
    return STATUS_OK;
}

/* Progress that says once how long all of it will take, when a hundredth is done. */
struct foretold {
    struct progress progress;
    const struct variant_request *request;
    const struct common_options *common; /* NULL: it is said, or need not be */
};

static void show_and_foretell(void *arg, uint64_t done, uint64_t all)
{
    struct foretold *f = arg;
    const struct variant_request *q = f->request;
    const double ns = clock_ns() - f->progress.started_ns;
    if (f->common && done > 0 && done >= all / 100) {
        say(f->common, "--refit block: about %s in all", figure_duration(ns * all / done).text);
        f->common = NULL;
    }
    if (q->progress)
        progress_show(q->progress, q->nth * all + done, q->n_conversions * all);
    else
        progress_show(&f->progress, done, all);
}

/* Plans and converts, with progress. */
static enum status run_shown(const struct variant_request *q, struct convert_spec *spec,
                             struct convert *out, struct err *e)
{
    struct foretold shown = {
        .progress = progress_start(q->common, "windows"),
        .request = q,
        .common = spec->refit == CONVERT_REFIT_BLOCK ? q->common : NULL,
    };
    size_t bytes;
    spec->callbacks = (struct callbacks){progress_stop, show_and_foretell, &shown};
    enum status s = convert_plan(spec, &bytes, e);
    if (s == STATUS_OK) {
        say_verbose(
            q->common,
            "memory: the conversion takes %s beside the model; fewer --calib-tokens take less",
            figure_bytes(bytes).text);
        s = convert_run(spec, out, e);
    }
    progress_end(&shown.progress);
    /* What runs into numbers that are not finite fails because of those in the file. */
    return s == STATUS_BAD_FILE || s == STATUS_FAILED ? err_in(e, s, "%s", q->path) : s;
}

enum status variant_convert(const struct variant_request *q, struct convert_spec *spec,
                            struct convert *out, struct err *e)
{
    const struct variant_options *o = &q->common->variant;
    const bool fits = o->method == CONVERT_FIT;
    struct config config;
    int layers[CONFIG_MAX_LAYERS], n_self = o->calib_tokens ? o->calib_tokens : SELF_TOKENS;
    struct calibration text = {NULL, 0};
    *out = (struct convert){.n_layers = 0};
    TRY(err_in(e, config_read(q->checkpoint->gguf, &config, e), "%s", q->path));
    const bool none = o->calib && str_is(o->calib, "none");
    const bool self = o->calib
                          ? parse_self(o->calib, &n_self)
                          : fits && q->checkpoint->tokenizer && config.n_ctx >= LEAST_SELF_CONTEXT;
    const bool has_text = !none && (o->calib || self);
    if (o->calib && !self && strncmp(o->calib, "self:", 5) == 0)
        return err_usage(e, "--calib: expected self:N with N from %d on, found '%.200s'",
                         CONVERT_MIN_TOKENS, o->calib);
    if (!has_text && (o->cache_bytes || o->refit > 1))
        return err_usage(e, "--%s needs a text: expected --calib too",
                         o->cache_bytes ? "cache-bytes" : "refit");
    *spec = (struct convert_spec){
        .gguf = q->checkpoint->gguf,
        .source = &q->checkpoint->file,
        .source_name = path_name(q->path),
        .version = DECODE_VERSION,
        .method = o->method,
        .cluster = o->grouping == VARIANT_AUTO ? (fits || o->method == CONVERT_PROCRUSTES) &&
                                                     config.position != POSITION_ALIBI
                                               : o->grouping == VARIANT_CLUSTER,
        .refit = !has_text                  ? CONVERT_REFIT_NONE
                 : o->refit != VARIANT_AUTO ? o->refit - 1
                 : self                     ? CONVERT_REFIT_WO
                 : fits                     ? CONVERT_REFIT_ALL
                                            : CONVERT_REFIT_NONE,
        .seed = q->seed,
        .kernels = q->kernels,
        .pool = q->pool,
    };
    TRY(read_target(o, &config, layers, spec, e));
    enum status s = STATUS_OK;
    if (has_text)
        s = self ? write_calibration(q, &config, n_self, &text, e)
                 : read_calibration(q, &config, &text, e);
    spec->tokens = text.tokens;
    spec->n_tokens = text.n;
    if (s == STATUS_OK)
        s = run_shown(q, spec, out, e);
    if (s == STATUS_OK && self && (q->common->out || q->common->verbose))
        say(q->common,
            "calibrated on %zu tokens that the model wrote itself, seed %" PRIu64
            "; a text of its use is "
            "better: --calib TEXT",
            text.n, seed_of_own(q));
    free(text.tokens);
    spec->tokens = NULL;
    spec->layer_kv_heads = NULL;
    return s;
}

bool variant_is_there(const struct variant_options *o, const struct config *c)
{
    int heads;
    return o->kv_heads && parse_heads(o->kv_heads, c->n_heads, &heads) && c->n_kv_heads == heads;
}

enum status variant_load(const struct variant_request *q, struct model **out, struct err *e)
{
    const struct variant_options *o = &q->common->variant;
    const struct checkpoint *c = q->checkpoint;
    struct config config;
    struct convert_spec spec;
    struct convert converted;
    unsigned char *bytes = NULL;
    struct gguf *gguf = NULL;
    size_t len = 0;
    enum status s;
    TRY(err_in(e, config_read(c->gguf, &config, e), "%s", q->path));
    if (variant_is_there(o, &config)) {
        s = err_in(e, model_create(c->gguf, NULL, &c->file, out, e), "%s", q->path);
    } else {
        TRY(variant_convert(q, &spec, &converted, e));
        s = gguf_write_memory(converted.writer, &bytes, &len, e);
        convert_free(&converted);
        if (s == STATUS_OK)
            s = gguf_parse(bytes, len, &gguf, e);
        if (s == STATUS_OK)
            s = model_create(gguf, NULL, NULL, out, e);
        gguf_free(gguf);
        free(bytes);
    }
    if (s == STATUS_OK)
        (*out)->name = q->path;
    return s;
}
