/*
 * write - writes a safetensors file as the library and transformers do, byte for byte.
 */
#ifndef DECODE_SAFETENSORS_WRITE_H
#define DECODE_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "safetensors/read.h"

struct safetensors_written {
    const char *name; /* valid UTF-8 */
    const struct safetensors_dtype *dtype;
    int n_dims;
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* the last one varies fastest */
    struct gguf_source source;           /* asked for all bytes from the first to the last */
};

/*
 * Sorts the tensors to the order of their data in the file, and makes (a zeroed) *head what stands
 * before them: the header and its length. The caller frees it with bytes_free in any case. Names
 * are unique (assert_costly). STATUS_NO_MEMORY; STATUS_USAGE for lengths that overflow.
 */
enum status safetensors_head(struct safetensors_written *tensors, size_t n, struct bytes *head,
                             struct err *e);

/* The whole file, in place of what is at `path` (file_writer in base/file.h): the sources are asked
 * one after the other, in the order above. Also what a source fails with, STATUS_FAILED. */
enum status safetensors_write(const char *path, struct safetensors_written *tensors, size_t n,
                              struct err *e);

#endif
