/*
 * pack - tensors of a file in memory, in the layouts that the kernels read.
 *
 * Tensors are of the types that run here (pack_storage) and may lie at any address. Targets are
 * panels as struct matrix describes them, zeroed before, of n_out, n_in and storage of `w` (its
 * panels are not read); each function fills whole rows.
 */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "formats/gguf.h"
#include "model/layout.h"

/* Finds the storage of an enum tensor_type in memory (blocks_in_memory); false for types that do
 * not run. */
bool pack_storage(uint32_t type, enum storage *out);
/* Returns the enum tensor_type that a storage is written as. */
uint32_t pack_type(enum storage s);
/* Returns the storage of one matrix with the rows of n >= 1 tensors of types that run: their own,
 * if all have one; else F16 if each is F16 or widened; else F32, which holds any. */
enum storage pack_common_storage(const struct gguf_tensor *const *tensors, int n);

/* Returns "32 x 96", the sizes of up to GGUF_MAX_DIMS dimensions. */
struct shape_text {
    char text[GGUF_MAX_DIMS * 24];
};
struct shape_text pack_shape_text(int n_dims, const uint64_t *dims);

/* Sets *out to the file's tensor of a specification; to NULL if it has none. STATUS_BAD_FILE,
 * naming the tensor, expected and found, if it is missing and required, or has another shape or a
 * type that does not run. */
enum status pack_find(const struct gguf *g, const struct tensor_spec *spec,
                      const struct gguf_tensor **out, struct err *e);

/* Widens all elements of a tensor: a vector in the order of memory (spec_file_row), a matrix in
 * that of the file. */
void pack_floats(float *out, const struct gguf_tensor *t, const struct tensor_spec *spec);

/* Packs rows begin to end - 1, counted as in memory (spec_file_row), of a tensor [rows, n_in] of
 * that specification; its row 0 is row `first` of the target, which is below 0 where row
 * `begin` is not the first. Threads may pack other rows at once. */
void pack_rows(void *panels, const struct matrix *w, int first, const struct gguf_tensor *t,
               const struct tensor_spec *spec, int begin, int end);

/* Fill with uniform numbers, so small that no sum of them overflows, whatever the width. */
void pack_random(void *panels, const struct matrix *w, struct rng *r);
void pack_random_floats(float *out, uint64_t n, struct rng *r);

/* Reads row `row` of a filled matrix as n_in floats. */
void pack_read_row(const struct matrix *w, int row, float *out);
