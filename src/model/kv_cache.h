/*
 * kv_cache - keys and values of every position so far of some sequences, preallocated.
 *
 * Sequences are the outermost dimension, then layers, then K/V heads: each of these has a region of
 * keys and one of values, contiguous along the positions: K in panels of KERNEL_LANES positions,
 * dimension-major, so that scores come out vectorised; V row by row. A group's query heads read
 * each of them once. Types with scales keep these in regions of their own (see struct kv_chunk).
 * Which positions are filled is the owner's to know.
 */
#pragma once

#include "base/mem.h"
#include "model/config.h"

/* What a cache has room for. */
struct kv_shape {
    int n_sequences; /* at least 1 */
    int cap;         /* positions of a sequence, at least 1 */
    struct kv_type type;
    bool one_layer; /* there is room for one layer only, whichever has the most */
};

/* What a cache keeps, each in an array of its own; only some types have scales. */
enum kv_array { KV_KEYS, KV_VALUES, KV_KEY_SCALES, KV_VALUE_SCALES, KV_ARRAYS };

struct kv_cache {
    struct config config; /* of the model: layers, K/V heads, their sizes */
    struct kv_shape shape;
    /* The sizes of the matrices (kernels->hadamard) that kv_cache_put multiplies keys and values by
     * before it stores them; attention rotates queries as keys, and its result as values. 0: keys
     * of additive scores, and types that are not rotated. */
    int key_rotation, value_rotation;
    size_t all[KV_ARRAYS]; /* a position's cells in all layers: elements of keys, bytes of values,
                              scales */
    size_t before[CONFIG_MAX_LAYERS][KV_ARRAYS]; /* the cells in the layers before each */
    size_t room[KV_ARRAYS]; /* positions of a region; whole panels of keys and of scales */
    unsigned char *array[KV_ARRAYS];
    struct arena arena;
};

/* Counts the bytes that a cache takes; false if they do not fit a size_t. */
bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes);

/* Bytes that one position takes, over all layers, as they are laid out: a key, and a value in whole
 * lanes, of each K/V head. (A sequence's keys are in whole panels of KERNEL_LANES positions.) */
size_t kv_cache_bytes_per_token(const struct config *c, struct kv_type type);

/* Bytes that a token reads behind `depth` others; in a layer with a window only those inside it. */
uint64_t kv_cache_bytes_read(const struct config *c, struct kv_type type, int depth);

/* Makes a zeroed cache; the shape's bounds are asserted. STATUS_NO_MEMORY. */
enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e);
void kv_cache_free(struct kv_cache *kv); /* legal on a zeroed struct and twice */

/* Names the keys and values of one K/V head in a layer, of one sequence. */
struct kv_slot {
    int sequence, layer, kv_head;
};

/* Stores the key [head_dim] and value [value_dim] of one position of one head. Different positions,
 * and different slots, may be written at once while nobody reads the panels that they are in. */
void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_slot slot,
                  int position, const float *k, const float *v);

/* Reads the key [head_dim] and value [value_dim] of a stored position: what was put, but for the
 * rounding of the cache's type. */
void kv_cache_get(const struct kv_cache *kv, struct kv_slot slot, int position, float *k, float *v);

/* Copies the first n <= cap positions of a sequence, in all layers and heads, over those of another
 * one. The caches may be two, if model and type are the same. */
void kv_cache_copy(const struct kv_cache *source, int from, struct kv_cache *target, int to, int n);

/* Returns how many chunks n positions are cut into. */
static inline int kv_cache_chunks(int n_positions)
{
    return (n_positions + KERNEL_CHUNK - 1) / KERNEL_CHUNK;
}

/* Returns the view of positions [first, first + n) of one head; first is a multiple of
 * KERNEL_LANES, n at most KERNEL_CHUNK (asserted). */
struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_slot slot, int first, int n);
