/*
 * fuzz_convert - converts the input, a checkpoint, to fewer K/V heads or a latent cache. How is in
 * the input too: the keys fuzz.kv_heads, fuzz.method, fuzz.tokens (of calibration text),
 * fuzz.cluster, fuzz.refit, fuzz.latent (a rank) and fuzz.cache_bytes. What is refused is refused
 * with one clean line; what is converted must be written, read again and run, with the K/V heads or
 * ranks asked for and nothing else changed.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert.h"
#include "engine/session.h"
#include "model/layout.h"
#include "target.h"

#define MAX_TOKENS 24

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

/* Whether a tensor of this name may change: attention's and the feed-forward part's, but for norms.
 */
static int may_change(const struct config *c, struct text name)
{
    struct tensor_spec spec;
    return layout_named(c, name, &spec) && spec.form != FORM_NORM && spec.role >= ROLE_ATTN_QKV &&
           spec.role <= ROLE_FFN_DOWN;
}

/* A latent checkpoint leaves it out, or has one of its own by this name. */
static int stands_for_nothing(const struct config *c, struct text name)
{
    struct tensor_spec spec;
    return text_starts_with(name, "blk.") && !layout_named(c, name, &spec);
}

static void compare(const struct config *c, const struct gguf *old, const struct gguf *new,
                    bool latent)
{
    require(latent || new->n_tensors >= old->n_tensors);
    for (size_t i = 0; i < old->n_tensors; i++) {
        const struct gguf_tensor *a = &old->tensors[i];
        if (latent && stands_for_nothing(c, a->name))
            continue;
        char name[65];
        memcpy(name, a->name.data, a->name.len);
        name[a->name.len] = 0;
        const struct gguf_tensor *b = gguf_find_tensor(new, name);
        if (!may_change(c, a->name))
            require(b && b->n_bytes == a->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0);
        require(latent ? !b || b->type == a->type || may_change(c, a->name)
                       : b && b->type == a->type);
    }
}

static void run(const struct gguf *g, int n_kv_heads, int rank)
{
    struct model *m;
    struct session *s;
    struct err e = {{0}};
    const struct session_params p = {.n_ctx = 1};
    const int32_t token = 0;
    require(model_create(g, NULL, NULL, &m, &e) == STATUS_OK);
    require(m->config.n_kv_heads == n_kv_heads);
    require(rank ? config_latent(&m->config, 0) == rank : !config_is_latent(&m->config));
    require(session_create(m, &p, NULL, &s, &e) == STATUS_OK);
    require(session_feed(s, 0, &token, 1, NULL, &e) == STATUS_OK);
    session_free(s);
    model_free(m);
}

static void check_result(const struct convert_spec *spec, const struct convert *c)
{
    unsigned char *bytes;
    size_t len;
    struct gguf *out;
    struct err e = {{0}};
    struct text method;
    struct config config;
    const enum status s = gguf_write_memory(c->writer, &bytes, &len, &e);
    require(s == STATUS_OK ? writable(spec->gguf)
                           : s == STATUS_USAGE && !writable(spec->gguf) && e.text[0]);
    if (s != STATUS_OK)
        return;
    require(gguf_parse(bytes, len, &out, &e) == STATUS_OK);
    require(config_read(spec->gguf, &config, &e) == STATUS_OK);
    const int rank = config_latent(&c->config, 0);
    require((rank > 0) == (spec->latent || spec->cache_bytes));
    require(!spec->latent || rank == spec->latent[0]);
    compare(&config, spec->gguf, out, rank > 0);
    run(out, rank ? 1 : spec->n_kv_heads, rank);
    require(gguf_get_text(out, "decode.convert.method", &method, NULL, &e) == STATUS_OK);
    require(text_is(method, rank ? "latent" : convert_methods[spec->method]));
    gguf_free(out);
    free(bytes);
}

static void convert(const struct convert_spec *spec)
{
    struct convert c;
    struct err e = {{0}};
    size_t planned = 0;
    enum status s = convert_plan(spec, &planned, &e);
    if (s != STATUS_OK) {
        require_refusal(s, &e);
        require(convert_run(spec, &c, &e) == s);
        return;
    }
    s = convert_run(spec, &c, &e);
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
static int is_small(const struct config *c, bool cluster)
{
    return c->d_model <= 32 && c->n_layers <= 4 && !(cluster && c->n_heads > 8 && c->n_heads <= 12);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct config config;
    int32_t tokens[MAX_TOKENS];
    int ranks[CONFIG_MAX_LAYERS];
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    struct convert_spec spec = {
        .gguf = g,
        .source_name = "in.gguf",
        .version = "0",
        .n_kv_heads = (int)number(g, "fuzz.kv_heads", 70000, 1),
        .method = (enum convert_method)number(g, "fuzz.method", CONVERT_FIT, CONVERT_FIT),
        .cluster = number(g, "fuzz.cluster", 1, 0),
        .refit = (enum convert_refit)number(g, "fuzz.refit", CONVERT_REFIT_BLOCK, 0),
        .seed = size,
        .tokens = tokens,
        .n_tokens = number(g, "fuzz.tokens", MAX_TOKENS, 0),
    };
    const int rank = (int)number(g, "fuzz.latent", 70000, 0);
    for (int l = 0; l < CONFIG_MAX_LAYERS; l++)
        ranks[l] = rank;
    spec.latent = rank ? ranks : NULL;
    spec.cache_bytes = rank ? 0 : number(g, "fuzz.cache_bytes", 1 << 20, 0);
    const bool known = config_read(g, &config, NULL) == STATUS_OK;
    for (int i = 0; i < MAX_TOKENS; i++)
        tokens[i] = known ? i * 7 % config.n_vocab : i;
    if (!known || is_small(&config, spec.cluster))
        convert(&spec);
    gguf_free(g);
    return 0;
}
