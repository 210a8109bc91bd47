/*
 * dtype - the element types of safetensors files.
 */
#ifndef DECODE_SAFETENSORS_DTYPE_H
#define DECODE_SAFETENSORS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "gguf/gguf.h"

/* One of a table, in which types of larger elements stand behind those of smaller ones: writers
 * order tensors by it, the last type first. */
struct safetensors_dtype {
    const char *name; /* as in the file: "F32" */
    int bits;         /* of an element */
    int type;         /* the enum tensor_type of the same numbers; -1: none */
};

/* NULL if there is none. */
const struct safetensors_dtype *safetensors_dtype_named(struct text name);
const struct safetensors_dtype *safetensors_dtype_of(enum tensor_type type);

/* The bytes of a shape, 0 if one of its dimensions is 0; false if they, or the product of the
 * first dimensions, overflow, or if they are not whole bytes. */
bool safetensors_measure(const struct safetensors_dtype *dtype, int n_dims, const uint64_t *dims,
                         uint64_t *bytes);

#endif
