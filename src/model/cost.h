/*
 * cost - what a step must read and compute, and how long that takes at least.
 *
 * A step takes a token each of `batch` sequences. It reads every weight once for all of them, and
 * of each sequence's own cache every position before its token. With one sequence those bytes, not
 * arithmetic, set the pace on one core or two; with more of them the products' arithmetic may.
 * Bytes are counted as the kernels lay them out: weight matrices in whole panels, V rows padded to
 * whole lanes.
 */
#pragma once

#include "compute/roofline.h"
#include "model/model.h"

/* A shape with n_kv_heads K/V heads (as c, or a variant of it). Which tensors there are follows
 * from the config and `tied`, unless a file or a model says so; what they are stored in from
 * `storage`, unless a model does. */
struct cost_shape {
    const struct config *config;
    int n_kv_heads;
    enum storage storage; /* of the matrices; but see layout_type */
    bool tied;
    const struct gguf *gguf;   /* NULL: no file */
    const struct model *model; /* NULL: not loaded */
};

/* The shape of a checkpoint's file, which is borrowed, with its own K/V heads; the type is the
 * output matrix's. False if that is none that runs here: then all but `storage` holds. */
bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out);

/* The shape of a loaded model, which is borrowed; its matrices may be of several types. */
struct cost_shape cost_shape_of_model(const struct model *m);

/* Whether a checkpoint of this shape has the tensor, one of its layout. */
bool cost_has_tensor(const struct cost_shape *s, const struct tensor_spec *t);

/* What the weights of a shape come to. */
struct cost_weights {
    uint64_t parameters;     /* all numbers in the checkpoint, each once */
    uint64_t memory_bytes;   /* that they take in memory, as the kernels read them */
    uint64_t step_bytes;     /* that a step reads: the layers, the last norm, the output matrix, one
                                row of the embedding and one of the positions */
    uint64_t floats, quants; /* see cost_flops */
};
struct cost_weights cost_weights(const struct cost_shape *s);

/* Operations of a step for each of its sequences, two for every multiply-add. */
struct cost_flops {
    uint64_t floats;    /* of products with F32, F16 and BF16 weights, which are FMAs */
    uint64_t quants;    /* of products with quantised weights: integer dot products */
    uint64_t attention; /* of scores and values, which are FMAs, a hyperbolic tangent as
                           KERNEL_TANH_FMAS; the token itself included */
    uint64_t weights;   /* of the exponentials of scores, which are FMAs: only time counts them */
};

/* What a step at one depth costs. */
struct cost {
    uint64_t weight_bytes;   /* read once a step (a few rows of the embeddings aside) */
    uint64_t kv_bytes;       /* read for each sequence; the token's own key and value, just written,
                                are not counted */
    struct cost_flops flops; /* for each sequence */
};

/* What a step costs with a cache stored as `kv` that already has `depth` positions. */
struct cost cost_of(const struct cost_shape *s, enum storage kv, int depth);

/* Bytes read and operations of a whole step of `batch` >= 1 sequences. Bytes that do not fit a u64
 * are its largest number. */
uint64_t cost_step_bytes(const struct cost *c, int batch);
uint64_t cost_step_flops(const struct cost *c, int batch);

/* How long a step takes at least: for the products and for attention apart the larger of what the
 * bytes and what the operations take, added, because one waits for the other. */
struct cost_time {
    double us;
    double tokens_per_s;    /* of all sequences */
    const char *limited_by; /* what takes longest: "weight bytes", "product flops", "cache bytes" or
                               "attention flops" */
};
struct cost_time cost_predict(const struct cost *c, int batch, const struct roofline *limits);
