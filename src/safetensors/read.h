/*
 * read - reads a safetensors file: names, shapes and places of tensors.
 *
 * Works on a span of bytes that stays the caller's (usually a mapped file) and must outlive the
 * struct safetensors. Taken is what version 0.8 of the library takes, but for keys that occur
 * twice, null as metadata, more than SAFETENSORS_MAX_DIMS dimensions, and headers of more than 2^20
 * JSON values or 16 containers in one another. (That refuses a -0 as a whole number.) A parsed
 * struct safetensors is immutable: any threads may read it.
 */
#ifndef DECODE_SAFETENSORS_READ_H
#define DECODE_SAFETENSORS_READ_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"
#include "safetensors/dtype.h"

#define SAFETENSORS_MAX_DIMS 8

struct safetensors_tensor {
    struct text name; /* valid UTF-8; may be empty and hold zero bytes */
    const struct safetensors_dtype *dtype;
    int n_dims;                          /* 0: one number */
    uint64_t dims[SAFETENSORS_MAX_DIMS]; /* the last one varies fastest, unlike a GGUF tensor's; 0
                                            is legal; unused ones are 1 */
    uint64_t n_bytes;
    const unsigned char *data; /* n_bytes inside the span, at any address, little-endian */
};

struct safetensors {
    size_t n_tensors;
    const struct safetensors_tensor *tensors; /* in the order of their data */
    size_t head_bytes;                        /* of the span, before the tensors' data */
    struct safetensors_index *index;          /* private */
};

/*
 * Parses and checks everything: after STATUS_OK every tensor lies inside the span, has the bytes
 * that its shape takes and shares none, and there are no bytes of no tensor. *out is for
 * safetensors_free; NULL on failure. STATUS_BAD_FILE (message: tensor or field, expected, found;
 * the caller adds the file's name) or STATUS_NO_MEMORY. Memory is bounded by some 50 bytes for each
 * of the header; time is n log n in the header's length; tensor data are not touched.
 */
enum status safetensors_parse(const void *bytes, size_t len, struct safetensors **out,
                              struct err *e);
/* The same of a mapped file, which somebody may be writing to: the header is checked, and used, as
 * it is now (file_map_make_private). Tensor data may still change. */
enum status safetensors_parse_file(const struct file_map *f, struct safetensors **out,
                                   struct err *e);
void safetensors_free(struct safetensors *s); /* NULL is legal */

/* NULL if there is none. Logarithmic time, whatever the names. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s, struct text name);

#endif
