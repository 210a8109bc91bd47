#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static enum status read_architecture(const struct gguf *g, struct config *c, struct err *e)
{
    static const char *const known[] = {"gpt2", "starcoder"};
    struct text name;
    enum status s = gguf_get_text(g, "general.architecture", &name, NULL, e);
    if (s != STATUS_OK)
        return s;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (text_is(name, known[i])) {
            c->architecture = known[i];
            return STATUS_OK;
        }
    }
    return err_set(e, STATUS_BAD_FILE,
                   "general.architecture: expected gpt2 or starcoder, found \"%.*s\"",
                   text_width(name), name.data);
}

/* The key "<architecture>.<suffix>" as an int in [1, max]. */
static enum status read_size(const struct gguf *g, const struct config *c, const char *suffix,
                             int max, int *out, bool *found, struct err *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", c->architecture, suffix);
    uint64_t value = 0;
    bool present = true;
    const enum status s =
        gguf_get_u64(g, key, 1, (uint64_t)max, &value, found ? &present : NULL, e);
    if (s != STATUS_OK)
        return s;
    if (found)
        *found = present;
    if (present)
        *out = (int)value;
    return STATUS_OK;
}

static enum status read_eps(const struct gguf *g, struct config *c, struct err *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", c->architecture);
    double eps = 0;
    const enum status s = gguf_get_f64(g, key, &eps, NULL, e);
    if (s != STATUS_OK)
        return s;
    if (!(eps > 0 && eps < 1))
        return err_set(e, STATUS_BAD_FILE, "%s: expected a number between 0 and 1, found %g", key,
                       eps);
    c->norm_eps = (float)eps;
    return STATUS_OK;
}

/* Rows of a two-dimensional tensor that gives a size no key holds. */
static enum status rows_of(const struct gguf *g, const char *name, int max, int *out, struct err *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t)
        return err_set(e, STATUS_BAD_FILE, "tensor %s: missing", name);
    if (t->n_dims != 2 || t->dims[1] > (uint64_t)max)
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %s: expected 2 dimensions and at most %d rows, found %d dimensions "
                       "and %llu rows",
                       name, max, t->n_dims, (unsigned long long)t->dims[1]);
    *out = (int)t->dims[1];
    return STATUS_OK;
}

static enum status read_heads(const struct gguf *g, struct config *c, struct err *e)
{
    enum status s = read_size(g, c, "attention.head_count", CONFIG_MAX_WIDTH, &c->n_heads, NULL, e);
    if (s != STATUS_OK)
        return s;
    bool found;
    s = read_size(g, c, "attention.head_count_kv", CONFIG_MAX_WIDTH, &c->n_kv_heads, &found, e);
    if (s != STATUS_OK)
        return s;
    if (!found)
        c->n_kv_heads = c->n_heads;
    if (c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s.attention.head_count: expected a divisor of embedding_length %d, found "
                       "%d",
                       c->architecture, c->d_model, c->n_heads);
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s.attention.head_count_kv: expected a divisor of head_count %d, found %d",
                       c->architecture, c->n_heads, c->n_kv_heads);
    c->head_dim = c->d_model / c->n_heads;
    return STATUS_OK;
}

static enum status read_vocab(const struct gguf *g, struct config *c, struct err *e)
{
    enum status s = rows_of(g, "token_embd.weight", CONFIG_MAX_VOCAB, &c->n_vocab, e);
    if (s != STATUS_OK)
        return s;
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != (uint64_t)c->n_vocab)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.tokens: expected as many tokens as token_embd.weight has "
                       "rows, %d, found %llu",
                       c->n_vocab, (unsigned long long)tokens->count);
    return STATUS_OK;
}

enum status config_read(const struct gguf *g, struct config *c, struct err *e)
{
    *c = (struct config){.norm = NORM_LAYER,
                         .norm_placement = NORM_BEFORE,
                         .position = POSITION_LEARNED,
                         .ffn = FFN_GELU};
    enum status s = read_architecture(g, c, e);
    if (s == STATUS_OK)
        s = read_size(g, c, "block_count", CONFIG_MAX_LAYERS, &c->n_layers, NULL, e);
    if (s == STATUS_OK)
        s = read_size(g, c, "embedding_length", CONFIG_MAX_WIDTH, &c->d_model, NULL, e);
    if (s == STATUS_OK)
        s = read_size(g, c, "context_length", CONFIG_MAX_CTX, &c->n_ctx, NULL, e);
    if (s == STATUS_OK)
        s = read_heads(g, c, e);
    bool found = true;
    if (s == STATUS_OK)
        s = read_size(g, c, "feed_forward_length", CONFIG_MAX_FF, &c->d_ff, &found, e);
    if (s == STATUS_OK && !found)
        s = rows_of(g, "blk.0.ffn_up.weight", CONFIG_MAX_FF, &c->d_ff, e);
    if (s == STATUS_OK)
        s = read_eps(g, c, e);
    if (s == STATUS_OK)
        s = read_vocab(g, c, e);
    return s;
}

void config_variant_name(const struct config *c, int n_kv_heads, char *name)
{
    if (n_kv_heads == c->n_heads)
        snprintf(name, 16, "MHA");
    else if (n_kv_heads == 1)
        snprintf(name, 16, "MQA");
    else
        snprintf(name, 16, "GQA-%d", n_kv_heads);
}
