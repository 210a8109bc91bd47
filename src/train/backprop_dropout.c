/*
 * Dropout. Which numbers are left out is a hash of key, site and place, so that the backward pass
 * finds them again, and threads need not agree on an order.
 */
#include "train/backprop_private.h"

/* One hash decides for so many neighbours, by 16 bits each. */
#define NEIGHBOURS 4

/* Steele, Lea and Flood 2014: the finalizer of SplitMix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The key of one site; then the bits of a group of neighbours. */
static uint64_t key_of(const struct backprop_batch *batch, int site)
{
    return mix(batch->dropout_key + (uint64_t)site * 0x9e3779b97f4a7c15u);
}

static inline uint64_t bits_of(uint64_t key, uint64_t group)
{
    return mix(key + group * 0x9e3779b97f4a7c15u);
}

static uint32_t threshold_of(const struct backprop_batch *batch)
{
    return (uint32_t)(batch->dropout * 65536);
}

static inline bool is_kept(uint64_t bits, int neighbour, uint32_t threshold)
{
    return (bits >> 16 * neighbour & 0xffff) >= threshold;
}

float backprop_dropout(const struct backprop_batch *batch, int site, int row, int n, int i)
{
    const uint64_t at = (uint64_t)row * (uint64_t)n + (uint64_t)i;
    const uint64_t bits = bits_of(key_of(batch, site), at / NEIGHBOURS);
    return is_kept(bits, (int)(at % NEIGHBOURS), threshold_of(batch))
               ? (float)(1 / (1 - batch->dropout))
               : 0;
}

void backprop_drop(const struct pass *p, int site, float *out, const float *start, const float *x,
                   struct rows r)
{
    const struct backprop_batch *batch = p->batch;
    const uint64_t d = (uint64_t)p->b->config.d_model, first = (uint64_t)r.begin * d;
    const uint64_t n = (uint64_t)rows_n(r) * d, key = key_of(batch, site);
    const uint32_t threshold = threshold_of(batch);
    const float scale = (float)(1 / (1 - batch->dropout));
    for (uint64_t i = 0; i < n;) {
        const uint64_t bits = bits_of(key, (first + i) / NEIGHBOURS);
        for (int j = (int)((first + i) % NEIGHBOURS); j < NEIGHBOURS && i < n; j++, i++)
            out[i] = (start ? start[i] : 0) + (is_kept(bits, j, threshold) ? x[i] * scale : 0);
    }
}
