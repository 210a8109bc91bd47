/*
 * inspect - what a checkpoint holds and what its cache costs.
 */
#ifndef DECODE_MEASURE_INSPECT_H
#define DECODE_MEASURE_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/cost.h"

/* Parts of a transformer, by the names of its tensors. */
enum inspect_part {
    INSPECT_EMBEDDING,
    INSPECT_POSITION,
    INSPECT_ATTENTION,
    INSPECT_FFN,
    INSPECT_NORMS,
    INSPECT_OUTPUT,
    INSPECT_OTHER,
    INSPECT_PARTS,
};

/* "embedding", "position", "attention", "ffn", "norms", "output", "other". */
const char *inspect_part_name(enum inspect_part part);

/* By GGUF's names: "blk.0.attn_q.weight" is attention, "blk.0.attn_norm.bias" norms. */
enum inspect_part inspect_part_of(struct text tensor_name);

struct inspect_sum {
    uint64_t parameters;
    uint64_t biases; /* of the parameters */
    uint64_t bytes;  /* in the file */
};

/* Adds up all tensors by part; the last sum is the total. Sums stop at the largest u64. */
void inspect_parts(const struct gguf *g, struct inspect_sum parts[INSPECT_PARTS + 1]);

/* The same of a shape, as the file would be that has its matrices in the shape's type. */
void inspect_shape_parts(const struct cost_shape *shape,
                         struct inspect_sum parts[INSPECT_PARTS + 1]);

/* One variant's cache; with n_kv_heads K/V heads instead of the checkpoint's. */
struct inspect_variant {
    int n_kv_heads;
    char name[16];
    uint64_t token_f32, token_f16, token_q8_0; /* bytes that one token adds */
    uint64_t full_f32, full_f16, full_q8_0;    /* bytes of n_ctx tokens */
    uint64_t parameters;
    uint64_t weight_bytes; /* that decoding one token reads */
    uint64_t memory_bytes; /* of the weights in memory */
};

/* The next variant of a shape below `n_kv_heads` K/V heads (first n_heads + 1): the largest divisor
 * of n_heads that is less. False when there is none. */
bool inspect_next_variant(const struct cost_shape *shape, int n_kv_heads,
                          struct inspect_variant *out);

/* What a variant's step costs: one token each of `batch` sequences of `depth` tokens. Sums stop at
 * the largest u64. */
struct inspect_step {
    struct cost cost;      /* without its operations */
    uint64_t cache_bytes;  /* of depth tokens of every sequence */
    uint64_t step_bytes;   /* read: the weights once, and every sequence's cache */
    uint64_t memory_bytes; /* of the weights and the caches, with room for the step's tokens */
};
struct inspect_step inspect_step(const struct cost_shape *shape, const struct inspect_variant *v,
                                 enum storage kv_type, int depth, int batch);

struct inspect_check {
    bool checked;      /* false for types that are not read */
    bool scales_only;  /* a block type: its F16 scales were read */
    uint64_t nan, inf; /* values */
    uint64_t first;    /* index of the first bad value (of its block, if scales_only) */
};

/* Reads F32, F16 and BF16 values, and the scales of Q8_0 and Q4_0. */
struct inspect_check inspect_check_tensor(const struct gguf_tensor *t);

#endif
