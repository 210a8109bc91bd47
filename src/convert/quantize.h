/*
 * quantize - a checkpoint in another weight type.
 *
 * Metadata stay as they are but general.file_type and general.quantization_version; tensors keep
 * their names, shapes and order. The matrices take the type: what the layout lets change, and of
 * tensors that it does not know what is named "*.weight", has more than one row and is no norm. The
 * token embedding takes the type that goes with it (see layout_type); the bytes of the others are
 * those of `llama-quantize --pure`. All other tensors keep their own type.
 *
 * A matrix whose rows are no multiple of the type's block becomes F16 if it was F32.
 */
#pragma once

#include "base/callbacks.h"
#include "base/file.h"
#include "base/mem.h"
#include "compute/pool.h"
#include "formats/gguf.h"
#include "formats/gguf_write.h"

struct quantize_params {
    uint32_t type;                 /* of the matrices: one that blocks_runs */
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* of gguf, whose pages are released as they are read; or NULL */
    struct pool *pool;
    struct callbacks callbacks; /* of bytes read */
};

/* How far numbers are from what they were. */
struct quantize_error {
    double rms;      /* sqrt(mean (x - y)^2) */
    double relative; /* rms over sqrt(mean x^2); 0 if both are */
    double max;      /* max |x - y| */
};

/* Sums over a chunk or the whole file. */
struct quantize_sums {
    double error, size; /* of squares: of differences, of values */
    double max;
    uint64_t n;   /* elements that changed type */
    uint64_t bad; /* of a chunk the first element that is not finite, or UINT64_MAX */
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
 * not run here, STATUS_NO_MEMORY.
 * quantize_free is due on success; what params points to must live until then, and *q stay where it
 * is.
 *
 * gguf_write or gguf_write_memory of q->writer is left, which converts tensor by tensor in a few
 * MiB and fills in the error; the bytes are the same for any number of threads. It fails with
 * STATUS_BAD_FILE for a value that is not finite, STATUS_FAILED for one too large for the type.
 */
enum status quantize_plan(const struct quantize_params *params, struct quantize *q, struct err *e);

void quantize_free(struct quantize *q); /* legal on a zeroed struct and twice */
