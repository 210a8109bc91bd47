/*
 * fuzz_convert - converts the input, a checkpoint, to fewer K/V heads. How is in the input too: the
 * keys fuzz.kv_heads, fuzz.method, fuzz.tokens (of calibration text, by eights), fuzz.cluster,
 * fuzz.refit and fuzz.cache_bytes. What is refused is refused with one clean line; what is
 * converted must be written, read again and run, with the K/V heads asked for and nothing else
 * changed.
 */
#include <math.h>

#include "convert/convert.h"
#include "engine/session.h"
#include "formats/gguf_values.h"
#include "model/config_keys.h"
#include "model/layout.h"
#include "target.h"

#define MAX_TOKENS 192

/* A number up to `max` from the input; where there is none, `otherwise`. */
static uint64_t number(const struct gguf *g, const char *key, uint64_t max, uint64_t otherwise)
{
    uint64_t value = otherwise;
    bool yes = false, found = false;
    if (gguf_get_bool(g, key, &yes, &found, NULL) == STATUS_OK && found)
        return yes;
    gguf_get_u64(g, key, 0, max, &value, &found, NULL);
    return value;
}

/* Attention's tensors may change, but for norms. */
static void compare(const struct config *c, const struct gguf *old, const struct gguf *new)
{
    require(new->n_tensors == old->n_tensors);
    for (const struct gguf_tensor *a = old->tensors; a < old->tensors + old->n_tensors; a++) {
        struct tensor_spec spec;
        const bool known = layout_named(c, a->name, &spec);
        char name[65];
        memcpy(name, a->name.data, a->name.len);
        name[a->name.len] = 0;
        const struct gguf_tensor *b = gguf_find_tensor(new, name);
        const bool may_change = known && spec.form != FORM_NORM && spec.role >= ROLE_ATTN_QKV &&
                                spec.role <= ROLE_ATTN_OUTPUT;
        require(b && b->type == a->type);
        if (!may_change)
            require(b->n_bytes == a->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0);
    }
}

static void run(const struct gguf *g, const struct convert_spec *spec)
{
    struct model *m;
    struct session *s;
    const struct session_params p = {.n_ctx = 1};
    const int32_t token = 0;
    require(model_create(g, NULL, NULL, &m, NULL) == STATUS_OK);
    const struct config *c = &m->config;
    const uint64_t numbers = (uint64_t)(c->head_dim + config_value_dim(c));
    const uint64_t cached = (uint64_t)config_all_kv_heads(c) * numbers * sizeof(float);
    require(spec->cache_bytes ? cached <= spec->cache_bytes : c->n_kv_heads == spec->n_kv_heads);
    require(session_create(m, &p, NULL, &s, NULL) == STATUS_OK);
    require(session_feed(s, 0, &token, 1, NULL, NULL) == STATUS_OK);
    session_free(s);
    model_free(m);
}

static void check_result(const struct convert_spec *spec, const struct convert *c)
{
    unsigned char *bytes;
    size_t len;
    struct text method;
    struct config config;
    struct err e = {{0}};
    if (!writable(spec->gguf)) {
        require_refused(gguf_write_memory(c->writer, &bytes, &len, &e), STATUS_USAGE, &e);
        return;
    }
    struct gguf *out = require_written(c->writer, &bytes);
    require(config_read(spec->gguf, &config, NULL) == STATUS_OK);
    compare(&config, spec->gguf, out);
    run(out, spec);
    require(gguf_get_text(out, "decode.convert.method", &method, NULL, NULL) == STATUS_OK);
    require(text_is(method, convert_methods[spec->method]));
    gguf_free(out);
    free(bytes);
}

static void convert(const struct convert_spec *spec)
{
    struct convert c;
    struct err e = {{0}};
    size_t bytes = 0;
    const enum status planned = convert_plan(spec, &bytes, &e);
    if (planned != STATUS_OK)
        require_refusal(planned, &e);
    const enum status s = convert_run(spec, &c, &e);
    require(planned == STATUS_OK || s == planned);
    if (s != STATUS_OK) {
        require_refusal(s, &e);
        return;
    }
    for (int l = 0; l < c.n_layers; l++)
        require(c.layers[l].score >= 0 && c.layers[l].output >= 0);
    check_result(spec, &c);
    convert_free(&c);
}

/*
 * Work grows with the cube of the width and with the sets of heads that are compared (of 12 heads
 * 924, each for 4096 masks; of more than 12 only the pairs): what takes more than some milliseconds
 * is left to the tests. The file's size bounds everything else.
 */
static bool is_small(const struct config *c, bool cluster)
{
    return c->d_model <= 32 && c->n_layers <= 4 && !(cluster && c->n_heads > 8 && c->n_heads <= 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct config config;
    int32_t tokens[MAX_TOKENS];
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    const struct convert_spec spec = {
        .gguf = g,
        .source_name = "in.gguf",
        .version = "0",
        .n_kv_heads = (int)number(g, "fuzz.kv_heads", 70000, 1),
        .method = (enum convert_method)number(g, "fuzz.method", CONVERT_FIT, CONVERT_FIT),
        .cluster = number(g, "fuzz.cluster", 1, 0),
        .refit = (enum convert_refit)number(g, "fuzz.refit", CONVERT_REFIT_WO, 0),
        .seed = size,
        .tokens = tokens,
        .n_tokens = 8 * number(g, "fuzz.tokens", MAX_TOKENS / 8, 0),
        .cache_bytes = number(g, "fuzz.cache_bytes", 1 << 20, 0),
    };
    const bool known = config_read(g, &config, NULL) == STATUS_OK;
    for (int i = 0; i < MAX_TOKENS; i++)
        tokens[i] = known ? i * 7 % config.n_vocab : i;
    if (!known || is_small(&config, spec.cluster))
        convert(&spec);
    gguf_free(g);
    return 0;
}
