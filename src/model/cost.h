/*
 * cost - the byte model: what one decoded token must read.
 *
 * Decoding one token at a time reads every weight once, and of the cache every position before
 * it; on one core or two that, not arithmetic, sets the pace. Counted as the kernels lay it out:
 * weight matrices in whole panels, V rows padded to whole lanes.
 */
#ifndef DECODE_MODEL_COST_H
#define DECODE_MODEL_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/kernels.h"
#include "model/config.h"
#include "model/model.h"

/* A shape with n_kv_heads K/V heads (as c, or a variant of it), its matrices in one type. */
struct cost_shape {
    const struct config *config;
    int n_kv_heads;
    enum storage storage;
    bool biases;
    bool tied;
};

/* The shape of a checkpoint's file, with its own K/V heads; the type is the output matrix's. False
 * if that is none that runs here: then all but `storage` holds. */
bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out);

/* All numbers in the checkpoint, each once. */
uint64_t cost_parameters(const struct cost_shape *s);

/* Bytes of weights that a step reads: the layers, the last norm, the output matrix, one row of
 * the embedding and one of the positions. */
uint64_t cost_weight_bytes(const struct cost_shape *s);

/* The same, counted over a loaded model, whose matrices may be of several types. */
uint64_t cost_model_bytes(const struct model *m);

/* Bytes of the cache that a step reads at `depth`, the number of positions already in it. The
 * token's own key and value, just written, are not counted. */
uint64_t cost_kv_bytes(const struct config *c, int n_kv_heads, enum storage kv, int depth);

/* Floating-point operations of a step at `depth`: two for every multiply-add of the products
 * and of attention. */
uint64_t cost_flops(const struct config *c, int n_kv_heads, int depth);

#endif
