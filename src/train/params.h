/*
 * params - the trainable numbers of a checkpoint as one flat run of F32.
 *
 * Weights, their gradient and an optimizer's moments share one layout: each tensor starts on a
 * cache line; the few floats between tensors are zero and stay so. The views give the tensors by
 * role.
 */
#pragma once

#include "model/pack.h"

/* In which order the tensors lie. */
enum param_order {
    PARAMS_OF_FILE,         /* that of the file, row-major */
    PARAMS_ATTENTION_FIRST, /* the same, but attention and norms, which are trained alone, first */
    PARAMS_PANELS,          /* that of the file; a matrix is F32 panels [cols][16], one after the
                               other, as products read them: of a list that is only read */
};

/* One tensor of the flat run. */
struct param {
    struct tensor_spec spec;
    size_t offset; /* floats from the start */
};

/* Which tensors there are, and where. */
struct param_list {
    struct param *items;
    int n;
    enum param_order order;
    size_t n_floats;   /* of the flat run, gaps included */
    size_t n_trained;  /* of those at its beginning, which training moves */
    uint64_t n_params; /* without the gaps */
    bool tied;         /* output.weight is token_embd.weight and not listed */
};

/*
 * Lists the tensors of a checkpoint of shape `c`. Biases are listed if `g` has them, with g NULL
 * the usual ones; output.weight is unless it is tied (layout_output_tied; with g NULL unless the
 * architecture's files need one). STATUS_BAD_FILE as pack_find; STATUS_NO_MEMORY. param_list_free
 * frees the list.
 */
enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              enum param_order order, struct err *e);
void param_list_free(struct param_list *list); /* legal on a zeroed struct and twice */

static inline bool param_is_trained(const struct param_list *list, const struct param *p)
{
    return p->offset < list->n_trained;
}

/* Reads all tensors of g, which the list was made from, into flat [n_floats], zeroed before. */
void param_list_read(const struct param_list *list, const struct gguf *g, float *flat);

/* A role's part of a flat run; the bias is NULL where there is none. */
struct param_pair {
    float *weight; /* [rows, cols], or its panels */
    float *bias;
};

struct param_block {
    struct param_pair w[TENSOR_ROLES]; /* by role; those outside of the blocks stay zero */
};

struct param_view {
    float *flat;
    struct param_pair w[TENSOR_ROLES]; /* outside of the blocks; output's is the embedding's where
                                          tied */
    struct param_block *blocks;        /* [n_layers]; layers that share a block have the same */
};

/* Takes the first n floats of a flat run, n_floats or n_trained, and its view from an arena, or
 * counts them (see base/mem.h). The view has no tensors from float n on. */
struct param_view param_view_take(struct arena *arena, const struct param_list *list, size_t n,
                                  const struct config *c);
