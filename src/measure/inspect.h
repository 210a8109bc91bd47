/*
 * inspect - what a checkpoint or a shape holds, and what its cache and its steps cost.
 */
#pragma once

#include "base/numbers.h"
#include "base/status.h"
#include "formats/gguf.h"
#include "model/config.h"
#include "model/cost.h"

/* Names the type that most numbers of a file's matrices have, in lower case; "": it has none. */
#define INSPECT_TYPE_SIZE 16
void inspect_type(const struct gguf *g, char name[INSPECT_TYPE_SIZE]);

/* Parts of a transformer, by GGUF's names of its tensors: "blk.0.attn_q.weight" is attention,
 * "blk.0.attn_norm.bias" norms. The total stands behind them. */
#define INSPECT_PARTS 7

struct inspect_sum {
    const char *part; /* "embedding", "position", "attention", "ffn", "norms", "output", "other",
                         "total" */
    uint64_t parameters, bytes; /* in the file */
    double percent;             /* of all parameters */
};

/* Adds up by part all tensors of the shape's file, or without a file those that the shape has, with
 * matrices in its type. Sums stop at the largest u64. */
void inspect_parts(const struct cost_shape *shape, struct inspect_sum parts[INSPECT_PARTS + 1]);

/* A shape with other K/V heads, and what one sequence's cache takes. */
struct inspect_variant {
    struct config config;
    struct cost_shape shape; /* of this config: it points into the variant, which stays in place */
    char name[16];
    uint64_t token_bytes[CACHE_TYPES]; /* that a token adds, keys and values of that type */
    struct cost_weights weights;
};

/* Fills in the variant with so many K/V heads. */
void inspect_variant(const struct cost_shape *shape, int n_kv_heads, struct inspect_variant *out);

struct inspect_variants {
    struct inspect_variant *items; /* [n] malloc'd; the caller's to free */
    int n;
};

/* Lists the variants with every divisor of n_heads as K/V heads, the largest first; where layers
 * have different numbers, from the largest of these on. STATUS_NO_MEMORY. */
enum status inspect_list_variants(const struct cost_shape *shape, struct inspect_variants *out,
                                  struct err *e);

/* What the fullest of n shards holds, n a divisor of the query heads: its share of the query heads,
 * the feed-forward layer and the vocabulary, the K/V heads that its query heads use, and all norms
 * and positions. */
struct inspect_shard {
    int n_kv_heads; /* of a layer, at most */
    double copies;  /* K/V heads in all shards over those there are; 1: none is held twice */
    uint64_t weight_bytes, cache_bytes; /* in memory; of depth tokens of every sequence */
};
struct inspect_shard inspect_shard(const struct inspect_variant *v, const struct cost_plan *step,
                                   struct kv_type kv_type, int n);

/* A step of a variant of a shape. */
struct inspect_step {
    const char *shape; /* as it was named; borrowed */
    char variant[16];
    struct cost_plan of;
    struct inspect_shard shard; /* of several shards; else zeroed */
    double cache_over_weights;
    bool fits; /* weights and caches into the memory that is available */
};

struct inspect_steps {
    struct inspect_step *items; /* [n] malloc'd; the caller's to free */
    int n;
};

/* What is asked of every variant: each depth with each batch. */
struct inspect_settings {
    const char *shape;
    struct int_list depths, batches;
    struct kv_type kv_type;
    int shards; /* 0: none; else a divisor of the query heads */
    uint64_t available_bytes;
};

/* Adds the steps behind those there are: variants change fastest, then batches. STATUS_NO_MEMORY,
 * with nothing added. */
enum status inspect_add_steps(struct inspect_steps *steps, const struct inspect_variants *variants,
                              const struct inspect_settings *s, struct err *e);

struct inspect_check {
    bool scales_only; /* a block type: its F16 scales were read */
    int64_t nan, inf; /* how many values; -1: the type is not read */
    uint64_t first;   /* index of the first bad value (of its block, if scales_only) */
};

/* What was found in all tensors that were read. */
struct inspect_checks {
    int64_t n, nan, inf; /* tensors, and values */
    struct err bad;      /* which is the first that has values that are not finite; "": none */
};

/* Reads F32, F16 and BF16 values, and the scales of Q8_0 and Q4_0, and counts them in *all. */
struct inspect_check inspect_check_tensor(const struct gguf_tensor *t, struct inspect_checks *all);
