/*
 * config_keys - a config as the keys of a GGUF file say it: read, checked and written.
 */
#pragma once

#include "formats/gguf.h"
#include "formats/gguf_write.h"
#include "model/config.h"

/* STATUS_BAD_FILE for a file that says (general.type) that it is no model, but an adapter, an
 * importance matrix or a projector; the message says which. config_parse looks, too. */
enum status config_check_kind(const struct gguf *g, struct err *e);

/*
 * Reads and checks the keys. head_dim is the key attention.key_length or, without it,
 * d_model / n_heads. n_vocab is the row count of token_embd.weight, which must equal the length of
 * tokenizer.ggml.tokens where that is present. Every value is bounded so that no product of two
 * overflows an int64. STATUS_BAD_FILE names the key, what was expected and what was found. Keys
 * that ask for what does not run here (rotary positions that are not scaled linearly,
 * experts, soft caps) are STATUS_BAD_FILE to config_read, and passed over by config_parse.
 */
enum status config_read(const struct gguf *g, struct config *c, struct err *e);
enum status config_parse(const struct gguf *g, struct config *c, struct err *e);

/* Adds the architecture's keys to a file. */
void config_write(const struct config *c, struct gguf_writer *w);

/* Adds only the key of the K/V heads. */
void config_write_kv_heads(const struct config *c, struct gguf_writer *w);

/* Whether `key` is the one that config_write_kv_heads adds. */
bool config_is_kv_heads_key(const struct config *c, struct text key);
