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

#include "model/model.h"

/* A model's shape. Which tensors there are, and what they are stored in, follows from the config,
 * `tied` and `storage`, unless a file says so. */
struct cost_shape {
    const struct config *config;
    enum storage storage; /* of the matrices; but see layout_type */
    bool tied;
    const struct gguf *gguf; /* NULL: no file */
    bool converts;           /* the file's matrices, to `storage` */
};

/* The shape of a checkpoint's file, which is borrowed; the type is the
 * output matrix's. False if that is none that runs here: then all but `storage` holds. */
bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out);

/* Whether a checkpoint of this shape has a tensor of its layout. */
bool cost_has_tensor(const struct cost_shape *s, const struct tensor_spec *t);

/* What the weights of a shape come to. */
struct cost_weights {
    uint64_t parameters;     /* all numbers in the checkpoint, each once */
    uint64_t memory_bytes;   /* that they take in memory, as the kernels read them */
    uint64_t step_bytes;     /* that a step reads: the layers, the last norm, the output matrix, one
                                row of the embedding and one of the positions */
    uint64_t floats, quants; /* see cost_flops */
    uint64_t output_floats, output_quants; /* of these, the output matrix's */
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

/* The most that some threads of a machine do in a second. */
struct roofline {
    double bytes_per_s;     /* read from where so many bytes lie */
    double fma_flops_per_s; /* on floating-point numbers */
    double dot_flops_per_s; /* on bytes, in the integer dot products of quantised weights */
};

/* How long a step takes at least: for the products and for attention apart the larger of what the
 * bytes and what the operations take, added, because one waits for the other. */
struct cost_time {
    double us;
    double tokens_per_s; /* of all sequences */
};

/* A plan of a step, which takes one token each of `batch` sequences that have `depth` tokens in
 * their caches. Sums that do not fit a u64 are its largest number. */
struct cost_plan {
    int n_kv_heads, depth, batch;
    struct kv_type_name kv_type;
    uint64_t weight_bytes;    /* read once a step (a few rows of the embeddings aside) */
    uint64_t kv_bytes;        /* read for each sequence, within its windows; the token's own key and
                                 value, just written, are not counted */
    uint64_t step_bytes;      /* read: the weights once, and every sequence's cache */
    struct cost_flops each;   /* operations for each sequence */
    uint64_t flops;           /* of the whole step */
    uint64_t weights_memory;  /* that the weights take */
    uint64_t cache_bytes;     /* of depth tokens of every sequence */
    uint64_t allocated_bytes; /* of the caches, with room for the step's tokens */
    uint64_t memory_bytes;    /* of these and the weights */
    /* By cost_predict. */
    struct roofline limits;
    double bandwidth_gb_per_s; /* of these */
    struct cost_time predicted;
};

/* The plan for a shape, whose weights are as cost_weights has them, and caches of the type `kv`;
 * depth >= 0, batch >= 1. */
struct cost_plan cost_plan(const struct cost_shape *s, const struct cost_weights *w,
                           struct kv_type kv, int depth, int batch);

/* Fills in how long the step takes at least on a machine of these limits. */
void cost_predict(struct cost_plan *p, const struct roofline *limits);

/* How long a prompt of n tokens, n >= 1, into an empty cache takes at least on a machine of these
 * limits: as long as its operations or, if that is longer, as reading the weights once. Only its
 * last token has logits. `w` is cost_weights of the shape. */
struct cost_time cost_prompt(const struct cost_shape *s, const struct cost_weights *w, int n,
                             const struct roofline *limits);

/* Whether one thread takes the step sooner than several: it does if a layer takes less time than
 * threads need to hand over its stages. A rule for any machine, not a measurement of this one. */
bool cost_prefers_one_thread(const struct cost_plan *p, int n_layers);
