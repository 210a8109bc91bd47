/*
 * pack - tensors of a file into the layouts the kernels read.
 *
 * Tensors are of the types that run here (pack_storage) and may lie at any address. Targets are
 * panels as struct matrix describes them, zeroed before, of n_out, n_in and storage of `w` (its
 * panels are not read); each function fills whole rows.
 */
#ifndef DECODE_MODEL_PACK_H
#define DECODE_MODEL_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/rng.h"
#include "compute/kernels.h"
#include "gguf/gguf.h"

/* The storage that keeps a tensor's type as it is; false for types that do not run. */
bool pack_storage(const struct tensor_type_info *type, enum storage *out);
/* And back: an enum tensor_type. */
uint32_t pack_type(enum storage s);

/* Rows first, first + step, ... of a tensor, n of them. */
struct pack_rows {
    int first, step, n;
};

/* Room for rows of up to `n` elements on their way. */
struct pack_scratch {
    float *row, *sum;
    unsigned char *encoded;
};
struct pack_scratch pack_scratch_take(struct arena *a, int n);

/* All elements in file order, widened. */
void pack_floats(float *out, const struct gguf_tensor *t);

/* All rows of a tensor [rows, n_in], from row `first` of the target on. scratch may be NULL where
 * the tensor's type stays. */
void pack_matrix(void *panels, const struct matrix *w, int first, const struct gguf_tensor *t,
                 const struct pack_scratch *scratch);

/* Rows begin .. end - 1 of a filled matrix of the same shape, in w's storage. */
void pack_again(void *panels, const struct matrix *w, const struct matrix *from, int begin, int end,
                const struct pack_scratch *scratch);

/* Row `row` of the target: the mean of some rows of the tensor, whose rows have n_in elements. */
void pack_mean(void *panels, const struct matrix *w, int row, const struct gguf_tensor *t,
               struct pack_rows from, const struct pack_scratch *scratch);

/* The same for a tensor of one dimension, whose rows are its elements; not for block types. */
float pack_mean_of_vector(const struct gguf_tensor *t, struct pack_rows from);

/* Uniform numbers from -spread to spread. */
void pack_random(void *panels, const struct matrix *w, float spread, struct rng *r,
                 const struct pack_scratch *scratch);
void pack_random_floats(float *out, uint64_t n, float spread, struct rng *r);

/* Row `row` of a filled matrix as n_in floats. */
void pack_read_row(const struct matrix *w, int row, float *out);

#endif
