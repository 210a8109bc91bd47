/*
 * expand - a checkpoint with a latent cache as the one with a K/V head for each query head that it
 * stands for.
 */
#ifndef DECODE_CONVERT_EXPAND_H
#define DECODE_CONVERT_EXPAND_H

#include <stddef.h>

#include "base/status.h"
#include "gguf/gguf.h"

/*
 * The bytes of a GGUF file (malloc'd) in which attn_k and attn_v, F32, are the products of attn_k_b
 * and attn_v_b with attn_kv_a, and attn_kv_a is gone: the same function, up to rounding, with heads
 * that can be looked at. g is a latent checkpoint that model_check has seen (asserted).
 * STATUS_NO_MEMORY; *bytes is NULL on failure.
 */
enum status convert_expand(const struct gguf *g, unsigned char **bytes, size_t *len, struct err *e);

#endif
