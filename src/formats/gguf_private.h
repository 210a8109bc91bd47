/*
 * private - what the reader and the writer of GGUF share.
 */
#pragma once

#include "formats/gguf.h"

#define GGUF_MAGIC           "GGUF"
#define GGUF_VERSION_WRITTEN 3
#define GGUF_LAST_KIND       GGUF_F64

/* The specification allows tensor names of 64 bytes, llama.cpp's loader one less: the longer
 * ones are read, the shorter ones written. Keys are the specification's 2^16 - 1 bytes. */
#define GGUF_MAX_NAME_READ    64
#define GGUF_MAX_NAME_WRITTEN 63
#define GGUF_MAX_KEY          65535

#define GGUF_ALIGNMENT_KEY     "general.alignment"
#define GGUF_ALIGNMENT_DEFAULT 32

/* Bytes of one value; 0 for strings, arrays and unknown kinds, which have no fixed size. */
size_t gguf_kind_bytes(enum gguf_kind kind);

/*
 * Sets t->type, n_elements and n_bytes from `type`, t->n_dims (1 to GGUF_MAX_DIMS, asserted) and
 * t->dims (unused ones 1). STATUS_BAD_FILE, with a message that does not name the tensor: a type
 * that is unknown, a dimension of zero, a product that overflows, a row that is no multiple of the
 * type's block.
 */
enum status gguf_tensor_measure(struct gguf_tensor *t, uint32_t type, struct err *e);
