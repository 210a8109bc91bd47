/*
 * private - what the reader and the writer of GGUF share.
 */
#ifndef DECODE_GGUF_PRIVATE_H
#define DECODE_GGUF_PRIVATE_H

#include "gguf/gguf.h"

#define GGUF_MAGIC           "GGUF"
#define GGUF_VERSION_WRITTEN 3
#define GGUF_LAST_KIND       GGUF_F64

/* The specification allows tensor names of 64 bytes, llama.cpp's loader one less: the longer
 * ones are read, the shorter ones written. Keys are the specification's 2^16 - 1 bytes. */
#define GGUF_MAX_NAME_READ    64
#define GGUF_MAX_NAME_WRITTEN 63
#define GGUF_MAX_KEY          65535

/*
 * The specification asks for a multiple of 8, the loader for a power of two; both are demanded,
 * because smaller ones would misalign the numbers of a tensor. The ceiling is ours: padding up
 * to it can be neither large nor overflow.
 */
#define GGUF_ALIGNMENT_KEY     "general.alignment"
#define GGUF_ALIGNMENT_DEFAULT 32
#define GGUF_ALIGNMENT_MIN     8
#define GGUF_ALIGNMENT_MAX     65536

bool gguf_alignment_legal(uint64_t alignment);

/* Bytes of one value; 0 for strings, arrays and unknown kinds, which have no fixed size. */
size_t gguf_kind_bytes(enum gguf_kind kind);

/* Little-endian integers of 1 to 8 bytes (asserted) at any address. */
uint64_t gguf_load(const void *from, size_t bytes);
void gguf_store(void *to, uint64_t value, size_t bytes);

/*
 * Sets t->type, n_elements and n_bytes from `type`, t->n_dims (1 to GGUF_MAX_DIMS, asserted) and
 * t->dims (unused ones 1).
 * A type that is unknown, a dimension of zero, a product that overflows and a row that is no
 * multiple of the type's block return `bad` with a message that does not name the tensor.
 */
enum status gguf_tensor_measure(struct gguf_tensor *t, uint32_t type, enum status bad,
                                struct err *e);

/* --- the index: names to positions --------------------------------------------------------- */

struct index_entry {
    uint64_t key;
    size_t position;
};

/* Sorts by key; equal ones stay in their order. `scratch` has n entries too and overlaps nothing.
 */
void index_sort_by_key(struct index_entry *entries, struct index_entry *scratch, size_t n);

struct name_index {
    const void *records; /* each starts with a struct text: its name */
    size_t stride, n;
    struct index_entry *entries; /* [n], by hash, then by name */
};

/*
 * Indexes n records of `stride` bytes (at least sizeof(struct text)), which must outlive ix. Two of
 * one name: *first < *second are set to such a pair, else both are n. Fails with STATUS_NO_MEMORY
 * only. To be freed in any case.
 */
enum status name_index_build(struct name_index *ix, const void *records, size_t stride, size_t n,
                             size_t *first, size_t *second, struct err *e);
/* The position of the name, or n. Logarithmic time. */
size_t name_index_find(const struct name_index *ix, struct text name);
void name_index_free(struct name_index *ix);

#endif
