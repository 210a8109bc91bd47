/*
 * quantize - a checkpoint in another weight type.
 *
 * Metadata stay as they are, except general.file_type and general.quantization_version; tensors
 * keep their names, shapes and order. Matrices take the new type. A tensor is a matrix if the
 * layout says so; one that the layout does not know is, if it is named "*.weight", is no norm and
 * has more than one row. The token embedding takes the type that goes with the new one
 * (layout_type); the bytes of all other matrices are those of `llama-quantize --pure`. A matrix
 * whose rows are no multiple of the type's block becomes F16 if it was F32. All other tensors keep
 * their type.
 */
#pragma once

#include "base/callbacks.h"
#include "base/file.h"
#include "base/mem.h"
#include "compute/pool.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

struct quantize_params {
    uint32_t type;                 /* the matrices' new type, for which blocks_runs is true */
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* gguf's file, whose pages are released once read; or NULL */
    struct pool *pool;
    struct callbacks callbacks; /* progress is counted in bytes read */
};

/* How far the numbers y of the new file are from those of the checkpoint, x. */
struct quantize_error {
    double rms;      /* sqrt(mean (x - y)^2) */
    double relative; /* rms / sqrt(mean x^2); 0 if rms is 0 */
    double max;      /* max |x - y| */
};

/* Sums over a chunk or the whole file. */
struct quantize_sums {
    double error, size; /* of squares: of differences, of values */
    double max;
    uint64_t n;   /* elements that changed type */
    uint64_t bad; /* the first element of a chunk that is not finite, or UINT64_MAX */
};

struct quantize_tensor {
    const struct gguf_tensor *from;    /* borrowed from the checkpoint */
    const struct tensor_type_info *to; /* static */
    /* Private. */
    struct quantize *q;
    uint64_t before; /* bytes of the checkpoint's tensors before it */
};

struct quantize {
    struct quantize_params params;
    struct quantize_tensor *tensors; /* [params.gguf->n_tensors], in the file's order */
    uint64_t bytes_before;           /* of all tensors, in the checkpoint */
    struct quantize_error error;     /* over all tensors that changed type, once written */
    struct gguf_writer *writer;
    struct arena arena;
    /* Private: the piece in work, elements of a tensor from `first` on. */
    const struct quantize_tensor *tensor;
    uint64_t first, n;
    int n_chunks;
    unsigned char *out;           /* the piece in its new type */
    float *scratch;               /* [threads, 2, chunk] */
    struct quantize_sums *chunks; /* [chunks of a piece] */
    struct quantize_sums total;
};

/*
 * Settles what becomes of each tensor. STATUS_BAD_FILE for an architecture or tensor type that does
 * not run here; STATUS_NO_MEMORY. On success quantize_free is due; until then all that params
 * points to must live, and *q must not move.
 *
 * The caller then writes q->writer with gguf_write or gguf_write_memory: that converts tensor by
 * tensor in a few MiB of memory, and fills in q->error. The bytes are the same for any number of
 * threads. It fails with STATUS_BAD_FILE for a value that is not finite, with STATUS_FAILED for one
 * that is too large for the type.
 */
enum status quantize_plan(const struct quantize_params *params, struct quantize *q, struct err *e);

void quantize_free(struct quantize *q); /* legal on a zeroed struct and twice */
