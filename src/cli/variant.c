#include "cli/variant.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/signals.h"
#include "show/figures.h"

/* Fewer tokens say nothing about the model's inputs. */
#define CALIB_MIN_TOKENS 16
/* More text than this is refused before it is read. */
#define CALIB_MAX ((size_t)1 << 30)

#define AT(member) .offset = offsetof(struct variant_options, member)

static const char *const groupings[] = {"auto", "adjacent", "cluster", NULL};

const struct option variant_options[] = {
    {.kind = OPTION_INT,
     .name = "kv-heads",
     AT(kv_heads),
     .value = "G",
     .min = 1,
     .max = INT_MAX,
     .help = "convert to G K/V heads, a divisor of the query heads and fewer than there are"},
    {.kind = OPTION_CHOICE,
     .name = "method",
     AT(method),
     .fallback = "fit",
     .choices = convert_methods,
     .needs = "kv-heads",
     .help = "what the heads of a group come to share: their mean, the first, random numbers (the "
             "GQA paper's), the mean after alignment, or the best fit"},
    {.kind = OPTION_STRING,
     .name = "calib",
     AT(calib),
     .value = "TEXT",
     .needs = "kv-heads",
     .help = "a file of text to calibrate on; without it the weights alone decide"},
    {.kind = OPTION_INT,
     .name = "calib-tokens",
     AT(calib_tokens),
     .value = "N",
     .fallback = "65536",
     .min = CALIB_MIN_TOKENS,
     .max = INT_MAX,
     .needs = "calib",
     .help = "how many of its tokens are used, in windows of the context spread over the text"},
    {.kind = OPTION_CHOICE,
     .name = "group",
     AT(grouping),
     .fallback = "auto",
     .choices = groupings,
     .needs = "kv-heads",
     .help = "which heads share: neighbours, or those that lose least; auto: cluster for fit and "
             "procrustes"},
    {.kind = OPTION_FLAG,
     .name = "no-refit",
     AT(no_refit),
     .needs = "calib",
     .help = "fit: leave the output matrix as the closed form has it"},
    {.kind = OPTION_FLAG,
     .name = "refit",
     AT(refit),
     .needs = "kv-heads",
     .help = "other methods: refit the output matrix to the calibration text, too"},
    {.kind = OPTION_END},
};

/* --- the specification ----------------------------------------------------------------------- */

static enum status check_options(const struct variant_options *o, const struct config *c,
                                 struct err *e)
{
    if (o->kv_heads < 1 || c->n_heads % o->kv_heads != 0)
        return err_set(e, STATUS_USAGE,
                       "--kv-heads: expected a divisor of the checkpoint's %d query heads, found "
                       "%d",
                       c->n_heads, o->kv_heads);
    if (o->kv_heads >= c->n_kv_heads)
        return err_set(e, STATUS_USAGE,
                       "--kv-heads: expected less than the checkpoint's %d K/V head%s, found %d",
                       c->n_kv_heads, c->n_kv_heads == 1 ? "" : "s", o->kv_heads);
    if (o->refit && o->no_refit)
        return err_set(e, STATUS_USAGE, "--refit and --no-refit are both given; expected one");
    if (o->refit && !o->calib)
        return err_set(e, STATUS_USAGE, "--refit needs a text: expected --calib too");
    return STATUS_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static struct convert_spec make_spec(const struct variant_options *o,
                                     const struct variant_source *source)
{
    const bool fits = o->method == CONVERT_FIT;
    return (struct convert_spec){
        .gguf = source->checkpoint->gguf,
        .source = &source->checkpoint->file,
        .source_name = base_name(source->path),
        .version = DECODE_VERSION,
        .n_kv_heads = o->kv_heads,
        .method = (enum convert_method)o->method,
        .cluster = o->grouping == VARIANT_AUTO ? fits || o->method == CONVERT_PROCRUSTES
                                               : o->grouping == VARIANT_CLUSTER,
        .refit = o->calib && (fits ? !o->no_refit : o->refit),
        .seed = source->seed,
        .kernels = source->kernels,
        .pool = source->pool,
    };
}

/* --- calibration text ------------------------------------------------------------------------ */

/* Keeps `wanted` of n tokens: whole windows, the first from the start, the others at equal
 * distances behind it. Returns how many are kept. */
static size_t spread_windows(int32_t *tokens, size_t n, size_t wanted, size_t window)
{
    const size_t n_windows = wanted / window;
    if (n <= wanted)
        return n;
    if (n_windows < 2)
        return wanted;
    const size_t step = (n - window) / (n_windows - 1);
    for (size_t i = 1; i < n_windows; i++)
        memmove(tokens + i * window, tokens + i * step, window * sizeof *tokens);
    return n_windows * window;
}

/* *tokens is malloc'd. */
static enum status read_calibration(const struct variant_options *o,
                                    const struct variant_source *source, const struct config *c,
                                    int32_t **tokens, size_t *n, struct err *e)
{
    const struct tokenizer *t = source->checkpoint->tokenizer;
    char *text;
    size_t len;
    *tokens = NULL;
    if (!t)
        return err_set(e, STATUS_BAD_FILE,
                       "%.200s: it has no tokenizer, which --calib needs for its text",
                       source->path);
    /* Standard input may be long in coming, and Ctrl-C still ends the wait. */
    if (signals_end_at_once())
        return STATUS_INTERRUPTED;
    enum status s = file_read_all(o->calib, CALIB_MAX, &text, &len, e);
    signals_defer();
    if (s == STATUS_OK)
        s = tokenizer_encode(t, (struct text){text, len}, tokens, n, e);
    free(text);
    if (s == STATUS_OK && *n == 0)
        s = err_set(e, STATUS_USAGE, "--calib: there is no text in '%.200s'", o->calib);
    if (s == STATUS_OK && *n < CALIB_MIN_TOKENS)
        s = err_set(e, STATUS_USAGE, "--calib: expected at least %d tokens in '%.200s', found %zu",
                    CALIB_MIN_TOKENS, o->calib, *n);
    if (s != STATUS_OK)
        return s;
    *n = spread_windows(*tokens, *n, (size_t)o->calib_tokens, (size_t)c->n_ctx);
    if (*n < (size_t)c->d_model)
        say(source->common,
            "warning: --calib: %zu tokens are too few for a model of width %d, and may make it "
            "worse; expected thousands",
            *n, c->d_model);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static void show(void *arg, int done, int all)
{
    progress_show(arg, "windows", done, all);
}

static enum status run(const struct variant_source *source, struct convert_spec *spec,
                       struct convert *out, struct err *e)
{
    struct progress p = progress_start(source->common);
    spec->stop = progress_stop;
    spec->progress = show;
    spec->arg = &p;
    size_t bytes;
    enum status s = convert_plan(spec, &bytes, e);
    if (s != STATUS_OK)
        return s;
    say_verbose(source->common, "memory: the conversion takes %s beside the model; fewer %s",
                figure_bytes((double)bytes).text, "--calib-tokens take less");
    s = convert_run(spec, out, e);
    progress_end(&p);
    return s;
}

enum status variant_convert(const struct variant_options *o, const struct variant_source *source,
                            struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct config config;
    int32_t *tokens = NULL;
    size_t n = 0;
    *out = (struct convert){.n_layers = 0};
    enum status s = config_read(source->checkpoint->gguf, &config, e);
    if (s != STATUS_OK) {
        err_prefix(e, source->path);
        return s;
    }
    s = check_options(o, &config, e);
    if (s == STATUS_OK && o->calib)
        s = read_calibration(o, source, &config, &tokens, &n, e);
    if (s == STATUS_OK) {
        *spec = make_spec(o, source);
        spec->tokens = tokens;
        spec->n_tokens = n;
        s = run(source, spec, out, e);
        spec->tokens = NULL;
        if (s == STATUS_BAD_FILE)
            err_prefix(e, source->path);
    }
    free(tokens);
    return s;
}

enum status variant_file_create(const struct variant_options *o,
                                const struct variant_source *source, struct variant_file *out,
                                struct err *e)
{
    struct convert_spec spec;
    struct convert converted;
    size_t len = 0;
    *out = (struct variant_file){NULL, NULL};
    enum status s = variant_convert(o, source, &spec, &converted, e);
    if (s != STATUS_OK)
        return s;
    s = gguf_write_memory(converted.writer, &out->bytes, &len, e);
    convert_free(&converted);
    if (s == STATUS_OK)
        s = gguf_parse(out->bytes, len, &out->gguf, e);
    if (s != STATUS_OK)
        variant_file_free(out);
    return s;
}

void variant_file_free(struct variant_file *f)
{
    gguf_free(f->gguf);
    free(f->bytes);
    *f = (struct variant_file){NULL, NULL};
}

/* Converts in memory. */
static enum status load_converted(const struct variant_options *o,
                                  const struct variant_source *source, struct model **out,
                                  struct err *e)
{
    struct variant_file f;
    enum status s = variant_file_create(o, source, &f, e);
    if (s != STATUS_OK)
        return s;
    s = model_create(f.gguf, NULL, NULL, out, e);
    variant_file_free(&f);
    return s;
}

enum status variant_load(const struct variant_options *o, const struct variant_source *source,
                         struct model **out, struct err *e)
{
    struct config config;
    *out = NULL;
    enum status s = config_read(source->checkpoint->gguf, &config, e);
    if (s == STATUS_OK && config.n_kv_heads != o->kv_heads)
        return load_converted(o, source, out, e);
    if (s == STATUS_OK)
        s = model_create(source->checkpoint->gguf, NULL, &source->checkpoint->file, out, e);
    if (s != STATUS_OK)
        err_prefix(e, source->path);
    return s;
}
