#include "model/config.h"

#include <stdio.h>
#include <string.h>

struct key_name {
    char text[96];
};

static struct key_name arch_key(const struct config *c, const char *suffix)
{
    struct key_name key;
    snprintf(key.text, sizeof key.text, "%s.%s", c->arch->name, suffix);
    return key;
}

void config_set_arch(struct config *c, const struct arch *arch)
{
    c->arch = arch;
    c->norm = arch->norm;
    c->position = arch->position;
    c->ffn = arch->ffn;
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* Keys of one size each, in the order of a file that is written. */
enum { CONTEXT, WIDTH, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, HEAD_DIM, SIZE_KEYS };
static const struct size_key {
    const char *suffix;
    size_t offset; /* of an int in struct config */
    int max;
    bool required;
} size_keys[SIZE_KEYS] = {
    [CONTEXT] = {"context_length", offsetof(struct config, n_ctx), CONFIG_MAX_CTX, true},
    [WIDTH] = {"embedding_length", offsetof(struct config, d_model), CONFIG_MAX_WIDTH, true},
    [FEED_FORWARD] = {"feed_forward_length", offsetof(struct config, d_ff), CONFIG_MAX_FF, false},
    [LAYERS] = {"block_count", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS, true},
    [HEADS] = {"attention.head_count", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH, true},
    [KV_HEADS] = {"attention.head_count_kv", offsetof(struct config, n_kv_heads), CONFIG_MAX_WIDTH,
                  false},
    [HEAD_DIM] = {"attention.key_length", offsetof(struct config, head_dim), CONFIG_MAX_WIDTH,
                  false},
};

static int *size_of_key(struct config *c, const struct size_key *k)
{
    return (int *)(void *)((char *)c + k->offset);
}

/* A size that a file need not state stays 0. */
static enum status read_size(const struct gguf *g, struct config *c, int key, struct err *e)
{
    const struct size_key *k = &size_keys[key];
    uint64_t value = 0;
    bool found = true;
    TRY(gguf_get_u64(g, arch_key(c, k->suffix).text, 1, (uint64_t)k->max, &value,
                     k->required ? NULL : &found, e));
    *size_of_key(c, k) = found ? (int)value : 0;
    return STATUS_OK;
}

/* Rows of a two-dimensional tensor that gives a size no key holds. */
static enum status rows_of(const struct gguf *g, enum tensor_role role, int max, int *out,
                           struct err *e)
{
    const struct tensor_name name = arch_tensor_name(role, 0, false);
    const struct gguf_tensor *t = gguf_find_tensor(g, name.text);
    if (!t)
        return err_set(e, STATUS_BAD_FILE, "tensor %s: missing", name.text);
    if (t->n_dims != 2 || t->dims[1] > (uint64_t)max)
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %s: expected 2 dimensions and at most %d rows, found %d dimensions "
                       "and %llu rows",
                       name.text, max, t->n_dims, (unsigned long long)t->dims[1]);
    *out = (int)t->dims[1];
    return STATUS_OK;
}

/* --- what the keys together must be ---------------------------------------------------------- */

static enum status complete_heads(struct config *c, struct err *e)
{
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected a divisor of embedding_length %d, found %d",
                       arch_key(c, "attention.head_count").text, c->d_model, c->n_heads);
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(e, STATUS_BAD_FILE, "%s: expected a divisor of head_count %d, found %d",
                       arch_key(c, "attention.head_count_kv").text, c->n_heads, c->n_kv_heads);
    if (!c->head_dim)
        c->head_dim = c->d_model / c->n_heads;
    if (c->head_dim > CONFIG_MAX_WIDTH / c->n_heads)
        return err_set(e, STATUS_BAD_FILE, "%s: expected at most %d for %d heads, found %d",
                       arch_key(c, "attention.key_length").text, CONFIG_MAX_WIDTH / c->n_heads,
                       c->n_heads, c->head_dim);
    return STATUS_OK;
}

static enum status read_eps(const struct gguf *g, struct config *c, struct err *e)
{
    const struct key_name key = arch_key(c, arch_norm_eps_key(c->norm));
    double eps = 0;
    const enum status s = gguf_get_f64(g, key.text, &eps, NULL, e);
    if (s != STATUS_OK)
        return s;
    if (!(eps > 0 && eps < 1))
        return err_set(e, STATUS_BAD_FILE, "%s: expected a number between 0 and 1, found %g",
                       key.text, eps);
    c->norm_eps = (float)eps;
    return STATUS_OK;
}

static enum status read_vocab(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(rows_of(g, ROLE_TOKEN_EMBD, CONFIG_MAX_VOCAB, &c->n_vocab, e));
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != (uint64_t)c->n_vocab)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.tokens: expected as many tokens as token_embd.weight has "
                       "rows, %d, found %llu",
                       c->n_vocab, (unsigned long long)tokens->count);
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* "gpt2 or starcoder" */
static void list_archs(char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; arch_at(i) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0           ? ""
                                 : arch_at(i + 1) ? ", "
                                                  : " or ",
                                 arch_at(i)->name);
}

static enum status read_arch(const struct gguf *g, struct config *c, struct err *e)
{
    struct text name;
    const enum status s = gguf_get_text(g, "general.architecture", &name, NULL, e);
    if (s != STATUS_OK)
        return s;
    const struct arch *arch = arch_find(name);
    if (!arch) {
        char known[128];
        list_archs(known, sizeof known);
        return err_set(e, STATUS_BAD_FILE, "general.architecture: expected %s, found \"%.*s\"",
                       known, text_width(name), name.data);
    }
    config_set_arch(c, arch);
    return STATUS_OK;
}

enum status config_read(const struct gguf *g, struct config *c, struct err *e)
{
    *c = (struct config){.arch = NULL};
    TRY(read_arch(g, c, e));
    TRY(read_size(g, c, LAYERS, e));
    TRY(read_size(g, c, WIDTH, e));
    TRY(read_size(g, c, CONTEXT, e));
    TRY(read_size(g, c, HEADS, e));
    TRY(read_size(g, c, KV_HEADS, e));
    TRY(read_size(g, c, HEAD_DIM, e));
    TRY(complete_heads(c, e));
    TRY(read_size(g, c, FEED_FORWARD, e));
    if (!c->d_ff)
        TRY(rows_of(g, ROLE_FFN_UP, CONFIG_MAX_FF, &c->d_ff, e));
    TRY(read_eps(g, c, e));
    return read_vocab(g, c, e);
}

void config_write(const struct config *c, struct gguf_writer *w)
{
    struct config copy = *c;
    for (int key = 0; key < SIZE_KEYS; key++) {
        /* The one that follows from others is for those who chose it. */
        if (key != HEAD_DIM || config_q_dim(c) != c->d_model)
            gguf_add_u32(w, arch_key(c, size_keys[key].suffix).text,
                         (uint32_t)*size_of_key(&copy, &size_keys[key]));
    }
    gguf_add_f32(w, arch_key(c, arch_norm_eps_key(c->norm)).text, c->norm_eps);
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
