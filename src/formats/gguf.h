/*
 * gguf - a GGUF file as it is read: metadata and tensors, nothing about transformers.
 * (gguf_values.h looks values up, gguf_write.h makes files.)
 *
 * The reader works on a span of bytes that stays the caller's (usually a mapped file) and must
 * outlive the struct gguf. It copies no strings, arrays or tensor data; its own memory is bounded
 * by a small multiple of the span's length, whatever the counts in the file claim. It takes
 * versions 2 and 3, little-endian. A parsed struct gguf is immutable: any threads may read it.
 *
 * Source: the GGUF specification of the ggml project; where llama.cpp's loader differs, see
 * gguf.c.
 */
#pragma once

#include "base/file.h"
#include "base/name_index.h"
#include "formats/blocks.h"

/* Kinds of metadata values; the numbers are the file's, from 0 on. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* A value of the metadata; its bytes are borrowed from the span. */
struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind element_kind; /* of an array; never GGUF_ARRAY: nested arrays are refused */
    uint64_t count;              /* elements of an array, 1 otherwise */
    struct text bytes;           /* a string's bytes; else the little-endian payload */
};

/* A key of the metadata with its value. */
struct gguf_pair {
    struct text key;
    struct gguf_value value;
};

#define GGUF_MAX_DIMS 4

/* What the file says of a tensor, and where its data are. */
struct gguf_tensor {
    struct text name;
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] varies fastest (the row length); unused ones are 1 */
    const struct tensor_type_info *type;
    uint64_t n_elements;
    uint64_t n_bytes;
    uint64_t offset;           /* of the data, from the end of the padded header */
    uint64_t file_offset;      /* the same from the start of the file */
    const unsigned char *data; /* n_bytes inside the span, aligned to the file's alignment
                                  relative to the start of the span */
};

/* A parsed file. */
struct gguf {
    uint32_t version;
    uint32_t alignment; /* bytes, a power of two from 8 to 65536 */
    size_t n_pairs;
    struct gguf_pair *pairs; /* in file order */
    size_t n_tensors;
    struct gguf_tensor *tensors; /* in file order */
    struct name_index by_key, by_name;
};

/*
 * Parses and checks the whole structure: after STATUS_OK every pair and tensor lies inside the
 * span, keys and tensor names are unique, and tensor data do not overlap. *out is for gguf_free;
 * NULL on failure. Fails with STATUS_BAD_FILE (the caller adds the file's name to the message),
 * also for a part of a split file, with the command that joins the parts; or STATUS_NO_MEMORY. Time
 * is n log n in the number of names and linear in the rest; tensor data are not touched.
 */
enum status gguf_parse(const void *bytes, size_t len, struct gguf **out, struct err *e);
void gguf_free(struct gguf *g); /* NULL is legal */
