#include "cli/job.h"

#include "base/figures.h"
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
    for (int l = 0; l < c->n_layers; l++)
        *fewer |= layers[l] != (by_layer ? config_kv_heads(c, l) : c->n_kv_heads);
    spec->n_kv_heads = layers[0];
    spec->layer_kv_heads = by_layer ? layers : NULL;
    return *fewer ? config_needs_dot(c, "fewer K/V heads", e) : STATUS_OK;
}

enum status variant_convert(const struct job *j, const struct convert_spec *spec,
                            struct convert *out, struct err *e)
{
    size_t bytes;
    enum status s = convert_plan(spec, &bytes, e);
    if (s == STATUS_OK) {
        log_verbose(j->common, "memory: the conversion needs %s beside the model%s",
                    figure_bytes(bytes).text,
                    spec->n_tokens > 0 ? "; fewer tokens to calibrate on need less" : "");
        s = convert_run(spec, out, e);
    }
    /* Work that runs into numbers that are not finite fails because of those in the file. */
    return s == STATUS_BAD_FILE || s == STATUS_FAILED ? err_in(e, s, "%s", j->path) : s;
}

enum status variant_load(const struct job *j, const char *kv_heads, const struct model_options *how,
                         const struct text_sample *text, struct callbacks callbacks,
                         struct model **out, struct err *e)
{
    const struct checkpoint *k = &j->checkpoint;
    struct config config;
    struct convert converted;
    int layers[CONFIG_MAX_LAYERS];
    bool fewer = false;
    enum status s;
    TRY(err_in(e, config_read(k->gguf, &config, e), "%s", j->path));
    struct convert_spec spec = variant_spec(j, &config);
    spec.callbacks = callbacks;
    spec.widens = how->convert;
    if (kv_heads)
        TRY(variant_parse(kv_heads, &config, layers, &spec, &fewer, e));
    if (text) {
        spec.tokens = text->tokens;
        spec.n_tokens = text->n;
        spec.refit = true;
    }
    if (fewer) {
        TRY(variant_convert(j, &spec, &converted, e));
        s = convert_model(&converted, how, out, e);
        convert_free(&converted);
    } else {
        s = err_in(e, model_create(k->gguf, how, &k->file, out, e), "%s", j->path);
    }
    if (s == STATUS_OK)
        (*out)->name = j->path;
    return s;
}
