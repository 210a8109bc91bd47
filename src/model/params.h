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
#include "model/config.h"

/* One tensor of the layout. */
struct param {
    char name[64];
    int n_dims;     /* 1 or 2 */
    int rows, cols; /* a vector has one row */
    size_t offset;  /* floats from the start */
};

/* The layout: which tensors there are, and where. */
struct param_list {
    struct param *items;
    int n;
    size_t n_floats;   /* of the flat run, gaps included */
    uint64_t n_params; /* without the gaps */
    bool tied;         /* output.weight is token_embd.weight and not listed */
};

/*
 * The tensors of a checkpoint of shape `c`. Biases are optional: they are listed if `g` has them,
 * all with g NULL. output.weight is listed if g has one with other numbers than
 * token_embd.weight; else the two are tied. STATUS_BAD_FILE names a tensor of g with another shape
 * or a type that cannot be read as F32, expected and found; STATUS_NO_MEMORY. Freed by
 * param_list_free.
 */
enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              struct err *e);
void param_list_free(struct param_list *list); /* legal on a zeroed struct and twice */

/* Reads all tensors of g, which the list was made from, into flat [n_floats], as F32. */
void param_list_read(const struct param_list *list, const struct gguf *g, float *flat);

/* Adds all tensors to a GGUF file as F32; flat is borrowed until it is written. Tied ones are
 * written twice, because llama.cpp asks for output.weight in this architecture. */
void param_list_write(const struct param_list *list, const float *flat, struct gguf_writer *w);

/* An affine map's or a norm's part of a flat run; the bias is NULL where there is none. */
struct param_pair {
    float *weight; /* matrix [n_out, n_in], or gain [d_model] */
    float *bias;
};

struct param_layer {
    struct param_pair attn_norm, qkv, attn_out, ffn_norm, up, down;
};

struct param_view {
    float *flat;
    float *embed;               /* [n_vocab, d_model] */
    float *position;            /* [n_ctx, d_model] */
    struct param_layer *layers; /* [n_layers] */
    struct param_pair output_norm;
    float *output; /* [n_vocab, d_model]; embed's where tied */
};

/* Adds to a plan, or makes from its arena, a flat run with its view. */
void param_view_plan(struct mem_plan *plan, const struct param_list *list, const struct config *c);
struct param_view param_view_take(struct arena *arena, const struct param_list *list,
                                  const struct config *c);

#endif
