/*
 * pack - tensors of a file in memory: in the layouts that the kernels read, or all of them as one
 * flat run of F32 that training changes.
 *
 * Tensors are of the types that run here (pack_storage) and may lie at any address. Targets are
 * panels as struct matrix describes them, zeroed before, of n_out, n_in and storage of `w` (its
 * panels are not read); each function fills whole rows.
 */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "formats/gguf_write.h"
#include "model/layout.h"

/* The storage that a tensor's type has in memory (blocks_in_memory); false for types that do not
 * run. */
bool pack_storage(const struct tensor_type_info *type, enum storage *out);
/* The enum tensor_type that a storage is written as: the inverse of the above. */
uint32_t pack_type(enum storage s);
/* The storage that rows of n >= 1 tensors of types that run have in one matrix: that of all, else
 * F16 if each is F16 or widened, else F32, which holds any. */
enum storage pack_common_storage(const struct gguf_tensor *const *tensors, int n);

/* "32 x 96": sizes of up to GGUF_MAX_DIMS dimensions. */
struct shape_text {
    char text[GGUF_MAX_DIMS * 24];
};
struct shape_text pack_shape_text(int n_dims, const uint64_t *dims);

/* The file's tensor of a specification in *out; NULL if it has none. STATUS_BAD_FILE, naming the
 * tensor, expected and found: one that is required is missing, or has another shape or a type that
 * does not run. */
enum status pack_find(const struct gguf *g, const struct tensor_spec *spec,
                      const struct gguf_tensor **out, struct err *e);

/* Room for rows of up to `n` elements on their way. */
struct pack_scratch {
    float *row;
    unsigned char *encoded;
};
struct pack_scratch pack_scratch_take(struct arena *a, int n);

/* All elements, widened, of a tensor that is a vector in the order of memory (spec_file_row), else
 * in that of the file. */
void pack_floats(float *out, const struct gguf_tensor *t, const struct tensor_spec *spec);

/* Rows begin to end - 1 in memory (spec_file_row) of a tensor [rows, n_in] of that specification,
 * which begins at row `first` of the target. scratch may be NULL where the tensor's type stays or
 * becomes F32. Threads may pack other rows at once, each with scratch of its own. */
void pack_rows(void *panels, const struct matrix *w, int first, const struct gguf_tensor *t,
               const struct tensor_spec *spec, int begin, int end,
               const struct pack_scratch *scratch);

/* Small uniform numbers: no sum of them overflows, whatever the width. */
void pack_random(void *panels, const struct matrix *w, struct rng *r,
                 const struct pack_scratch *scratch);
void pack_random_floats(float *out, uint64_t n, struct rng *r);

/* Row `row` of a filled matrix as n_in floats. */
void pack_read_row(const struct matrix *w, int row, float *out);

/*
 * The trainable numbers of a checkpoint as one flat run, in the order of the file. Weights, their
 * gradient and an optimizer's moments share one layout: each tensor in file order and row-major,
 * starting on a cache line; the few floats between tensors are zero and stay so. The views give the
 * tensors by name.
 */

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
    size_t n_trained;  /* of those at its beginning, which training moves */
    uint64_t n_params; /* without the gaps */
    bool tied;         /* output.weight is token_embd.weight and not listed */
    bool in_panels;    /* see param_list_use_panels */
};

/*
 * The tensors of a checkpoint of shape `c`. Biases are optional: they are listed if `g` has them,
 * the usual ones with g NULL; output.weight is if it is not tied (layout_output_tied; with g NULL
 * unless the architecture's files need one).
 * STATUS_BAD_FILE as pack_find; STATUS_NO_MEMORY. Freed by param_list_free.
 */
enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              struct err *e);

/* Attention and norms are trained alone: they come first in the flat run, and the rest behind
 * n_trained. */
void param_list_train_attention(struct param_list *list);

/* Matrices are to lie in panels, as those of a struct matrix of F32, which products read as they
 * are: of a list that is only read. Offsets and n_floats change. */
void param_list_use_panels(struct param_list *list);

static inline bool param_is_trained(const struct param_list *list, const struct param *p)
{
    return p->offset < list->n_trained;
}

void param_list_free(struct param_list *list); /* legal on a zeroed struct and twice */

/* Reads all tensors of g, which the list was made from, into flat [n_floats], as F32. Of panels it
 * is zeroed before. */
void param_list_read(const struct param_list *list, const struct gguf *g, float *flat);

/* Adds all tensors to a GGUF file as F32; flat is borrowed until it is written. */
void param_list_write(const struct param_list *list, const float *flat, struct gguf_writer *w);

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
    struct param_block *blocks;        /* [n_layers], of which all may have the same parts */
};

/* Takes the first n floats of a flat run, n_floats or n_trained, and its view from an arena, or
 * counts them (see base/mem.h). Tensors behind have no part in the view. */
struct param_view param_view_take(struct arena *arena, const struct param_list *list, size_t n,
                                  const struct config *c);
