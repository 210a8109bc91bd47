/*
 * config_keys - the names of an architecture's keys, and the keys of latent caches (private to the
 * config).
 */
#ifndef DECODE_MODEL_CONFIG_KEYS_H
#define DECODE_MODEL_CONFIG_KEYS_H

#include <stdio.h>

#include "model/config.h"

struct key_name {
    char text[96];
};

static inline struct key_name arch_key(const struct config *c, const char *suffix)
{
    struct key_name key;
    snprintf(key.text, sizeof key.text, "%s.%s", c->arch->name, suffix);
    return key;
}

/* Whether an array has an integer for each layer. STATUS_BAD_FILE. */
enum status config_check_layers(const struct gguf_value *array, const struct config *c,
                                const struct key_name *key, struct err *e);

#define LATENT_KEY "attention.latent" /* one rank, or one for each layer */

/* The ranks, if the file has such; heads, width and position are known. */
enum status config_read_latent(const struct gguf *g, struct config *c, struct err *e);
void config_write_latent(const struct config *c, struct gguf_writer *w);

#endif
