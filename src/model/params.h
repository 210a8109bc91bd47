/*
 * params - the trainable numbers of a checkpoint as one flat run of F32.
 *
 * Weights, their gradient and an optimizer's moments share one layout: each tensor in file order
 * and row-major, starting on a cache line; the few floats between tensors are zero and stay so.
 * The views give the tensors by name.
 */
#ifndef DECODE_MODEL_PARAMS_H
#define DECODE_MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "model/layout.h"

/* One tensor of the flat run. */
struct param {
    struct tensor_spec spec;
    size_t offset; /* floats from the start */
};

/* Which tensors there are, and where. */
struct param_list {
    struct param *items;
    int n;
    size_t n_floats;   /* of the flat run, gaps included */
    uint64_t n_params; /* without the gaps */
    bool tied;         /* output.weight is token_embd.weight and not listed */
};

/*
 * The tensors of a checkpoint of shape `c`. Biases are optional: they are listed if `g` has them,
 * the usual
 * ones with g NULL; output.weight is if it is not tied (layout_output_tied). STATUS_BAD_FILE names
 * a tensor of g with another shape or a type that cannot be read as F32, expected and found;
 * STATUS_NO_MEMORY. Freed by param_list_free.
 */
enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              struct err *e);
void param_list_free(struct param_list *list); /* legal on a zeroed struct and twice */

/* Reads all tensors of g, which the list was made from, into flat [n_floats], as F32. */
void param_list_read(const struct param_list *list, const struct gguf *g, float *flat);

/* Adds all tensors to a GGUF file as F32; flat is borrowed until it is written. */
void param_list_write(const struct param_list *list, const float *flat, struct gguf_writer *w);

/* A role's part of a flat run; the bias is NULL where there is none. */
struct param_pair {
    float *weight; /* [rows, cols] */
    float *bias;
};

struct param_block {
    struct param_pair w[TENSOR_ROLES]; /* by role; those outside of the blocks stay zero */
};

struct param_view {
    float *flat;
    struct param_pair w[TENSOR_ROLES]; /* outside of the blocks; output's is the embedding's where
                                          tied */
    struct param_block *blocks;        /* [n_layers], of which all may have the same parts */
};

/* Takes a flat run and its view from an arena, or counts them (see base/mem.h). */
struct param_view param_view_take(struct arena *arena, const struct param_list *list,
                                  const struct config *c);

#endif
