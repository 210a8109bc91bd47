#include "cli/variant.h"

#include "base/figures.h"
#include "cli/input.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"
#include "model/selection.h"

struct convert_spec variant_spec(const struct job *j, const struct config *c)
{
    return (struct convert_spec){.gguf = j->checkpoint.gguf,
                                 .source = &j->checkpoint.file,
                                 .source_name = path_name(j->path),
                                 .version = DECODE_VERSION,
                                 .method = CONVERT_FIT,
                                 .cluster = c->position != POSITION_ALIBI,
                                 .kernels = j->kernels,
                                 .pool = j->pool};
}

enum status variant_parse(const char *kv_heads, const struct config *c, int *layers,
                          struct convert_spec *spec, bool *fewer, struct err *e)
{
    int n;
    TRY(heads_of_layers(kv_heads, c, layers, &n, e));
    const bool by_layer = n > 1;
    *fewer = false;
    for (int l = 0; l < c->n_layers; l++) {
        const int g = layers[l], own = by_layer ? config_kv_heads(c, l) : c->n_kv_heads;
        if (c->n_heads % (by_layer ? g : config_variant_heads(c, g, l)) != 0)
            return err_usage(
                e, "--kv-heads: expected a divisor of the checkpoint's %d query heads, found %d",
                c->n_heads, g);
        if (g > own)
            return err_usage(
                e, "--kv-heads: expected at most the checkpoint's %d K/V head%s, found %d", own,
                plural(own), g);
        *fewer |= g < own;
    }
    spec->n_kv_heads = layers[0];
    spec->layer_kv_heads = by_layer ? layers : NULL;
    return STATUS_OK;
}

enum status variant_convert(const struct job *j, const struct convert_spec *spec,
                            struct convert *out, struct err *e)
{
    size_t bytes;
    enum status s = convert_plan(spec, &bytes, e);
    if (s == STATUS_OK) {
        log_verbose(j->common,
                    "memory: the conversion needs %s beside the model; fewer --calib-tokens need "
                    "less",
                    figure_bytes(bytes).text);
        s = convert_run(spec, out, e);
    }
    /* What runs into numbers that are not finite fails because of those in the file. */
    return s == STATUS_BAD_FILE || s == STATUS_FAILED ? err_in(e, s, "%s", j->path) : s;
}

/* The model that a converted checkpoint is. */
static enum status load_converted(const struct convert *converted, struct model **out,
                                  struct err *e)
{
    unsigned char *bytes = NULL;
    struct gguf *gguf = NULL;
    size_t len = 0;
    enum status s = gguf_write_memory(converted->writer, &bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &gguf, e);
    if (s == STATUS_OK)
        s = model_create(gguf, NULL, NULL, out, e);
    gguf_free(gguf);
    free(bytes);
    return s;
}

enum status variant_load(const struct job *j, const char *kv_heads, const struct calibration *text,
                         struct callbacks callbacks, struct model **out, struct err *e)
{
    const struct checkpoint *k = &j->checkpoint;
    struct config config;
    struct convert converted;
    int layers[CONFIG_MAX_LAYERS];
    bool fewer;
    enum status s;
    TRY(err_in(e, config_read(k->gguf, &config, e), "%s", j->path));
    struct convert_spec spec = variant_spec(j, &config);
    spec.callbacks = callbacks;
    TRY(variant_parse(kv_heads, &config, layers, &spec, &fewer, e));
    if (text) {
        spec.tokens = text->tokens;
        spec.n_tokens = text->n;
        spec.refit = CONVERT_REFIT_WO;
    }
    if (fewer) {
        TRY(variant_convert(j, &spec, &converted, e));
        s = load_converted(&converted, out, e);
        convert_free(&converted);
    } else {
        s = err_in(e, model_create(k->gguf, NULL, &k->file, out, e), "%s", j->path);
    }
    if (s == STATUS_OK)
        (*out)->name = j->path;
    return s;
}

/* --- the text that a conversion is fitted to -------------------------------------------------- */

/* Of a text that is longer than this, and than so many bytes a token, only the beginning is read.
 */
#define TEXT_BYTES  ((size_t)16 << 20)
#define TOKEN_BYTES 64

enum status calibration_of_text(const struct common_options *o, const struct tokenizer *t,
                                const struct config *c, struct text text, const char *name,
                                size_t wanted, struct calibration *out, struct err *e)
{
    const size_t most = MAX(TEXT_BYTES, TOKEN_BYTES * wanted);
    if (text.len > most)
        for (text.len = most;
             text.len > 0 && (text.data[text.len] & 0xc0) == 0x80;) /* to the end of a character */
            text.len--;
    TRY(tokenizer_encode(t, text, &out->tokens, &out->n, e));
    if (out->n == 0)
        return err_usage(e, "there is no text in '%.200s'", name);
    if (out->n < CONVERT_MIN_TOKENS)
        return err_usage(e, "expected at least %d tokens in '%.200s', found %zu",
                         CONVERT_MIN_TOKENS, name, out->n);
    if (out->n > wanted)
        out->n = convert_spread_windows(out->tokens, out->n, wanted, c->n_ctx);
    if (out->n < (size_t)c->d_model)
        log_info(
            o,
            "warning: %zu tokens to calibrate on are too few for a model of width %d, and may make "
            "it worse; expected thousands",
            out->n, c->d_model);
    return STATUS_OK;
}
