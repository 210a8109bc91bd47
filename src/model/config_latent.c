/* What a config says of latent caches. */
#include <stdio.h>

#include "model/config_keys.h"

int config_most_latent(const struct config *c)
{
    int most = 0;
    for (int l = 0; l < c->n_layers; l++)
        most = c->latent[l] > most ? c->latent[l] : most;
    return most;
}

static bool config_same_latent(const struct config *c)
{
    for (int l = 1; l < c->n_layers; l++)
        if (c->latent[l] != c->latent[0])
            return false;
    return true;
}

void config_set_latent(struct config *c, int rank)
{
    c->arch = arch_find(text_of("decode"));
    c->n_kv_heads = 1;
    for (int l = 0; l < c->n_layers; l++) {
        c->latent[l] = rank;
        c->layer_kv_heads[l] = 0;
    }
}

/* A cached vector is a product of the d_model numbers of its position. */
static int largest_rank(const struct config *c)
{
    const int by_heads = CONFIG_MAX_LATENT / c->n_heads;
    return c->d_model < by_heads ? c->d_model : by_heads;
}

enum status config_check_rank(const struct config *c, int rank, struct err *e)
{
    if (c->position == POSITION_ROPE)
        return err_set(e, STATUS_USAGE,
                       "a latent cache of rank %d: expected positions that do not turn keys, found "
                       "rotary ones, for which only K/V heads can be fewer",
                       rank);
    if (rank < 1 || rank > largest_rank(c))
        return err_set(e, STATUS_USAGE, "a latent cache of rank %d: expected a rank from 1 to %d",
                       rank, largest_rank(c));
    return STATUS_OK;
}

static enum status check_latent(const struct config *c, int64_t rank, struct err *e)
{
    const struct key_name key = arch_key(c, LATENT_KEY);
    const int most = largest_rank(c);
    if (rank < 1 || rank > most)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected a rank from 1 to %d in every layer, or 0 for none in all; "
                       "found %lld",
                       key.text, most, (long long)rank);
    if (c->position == POSITION_ROPE)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected none with rotary positions, whose turns of keys a cache for "
                       "all heads cannot have; found %lld",
                       key.text, (long long)rank);
    return STATUS_OK;
}

/* Keys and values are those of one head, whatever the file says of K/V heads. */
enum status config_read_latent(const struct gguf *g, struct config *c, struct err *e)
{
    const struct key_name key = arch_key(c, LATENT_KEY);
    const struct gguf_value *value = gguf_find(g, key.text);
    const bool is_array = value && value->kind == GGUF_ARRAY;
    if (!value || (!is_array && gguf_is_integer(value->kind) && gguf_int_at(value, 0) == 0))
        return STATUS_OK;
    if (is_array)
        TRY(config_check_layers(value, c, &key, e));
    else if (!gguf_is_integer(value->kind))
        return err_set(e, STATUS_BAD_FILE, "%s: expected an integer, or one a layer, found %s",
                       key.text, gguf_kind_name(value->kind));
    for (int l = 0; l < c->n_layers; l++) {
        const int64_t rank = gguf_int_at(value, is_array ? (uint64_t)l : 0);
        TRY(check_latent(c, rank, e));
        c->latent[l] = (int32_t)rank;
        c->layer_kv_heads[l] = 0;
    }
    c->n_kv_heads = 1;
    if (c->shared && !config_same_latent(c))
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected the same number in all layers, which share one block; found "
                       "several",
                       key.text);
    return STATUS_OK;
}

bool config_is_latent_key(const struct config *c, struct text key)
{
    return text_is(key, arch_key(c, LATENT_KEY).text);
}

void config_write_latent(const struct config *c, struct gguf_writer *w)
{
    const struct key_name key = arch_key(c, LATENT_KEY);
    if (!config_is_latent(c))
        return;
    if (config_same_latent(c))
        gguf_add_u32(w, key.text, (uint32_t)c->latent[0]);
    else
        gguf_add_i32s(w, key.text, c->latent, (uint64_t)c->n_layers);
}

void config_variant_name(const struct config *c, int n_kv_heads, char *name)
{
    bool is_mixed = false;
    for (int l = 0; l < c->n_layers; l++)
        is_mixed |= config_variant_heads(c, n_kv_heads, l) != n_kv_heads;
    if (config_is_latent(c))
        snprintf(name, 16, "MLA-%.6s%u", config_same_latent(c) ? "" : "mixed-",
                 (unsigned)config_most_latent(c) % (CONFIG_MAX_WIDTH + 1u));
    else if (is_mixed)
        snprintf(name, 16, "GQA-mixed-%d", n_kv_heads);
    else if (n_kv_heads == c->n_heads)
        snprintf(name, 16, "MHA");
    else if (n_kv_heads == 1)
        snprintf(name, 16, "MQA");
    else
        snprintf(name, 16, "GQA-%d", n_kv_heads);
}
