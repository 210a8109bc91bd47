#include "train/dropout.h"

#include <assert.h>
#include <stdbool.h>

/* One hash decides for so many neighbours, by 16 bits each. */
#define NEIGHBOURS 4

/* Steele, Lea and Flood 2014: the finalizer of SplitMix64. */
static uint64_t mix_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The key of one site; then the bits of a group of neighbours. */
static uint64_t site_key(const struct dropout *d, int site)
{
    return mix_bits(d->key + (uint64_t)site * 0x9e3779b97f4a7c15u);
}

static inline uint64_t neighbours_bits(uint64_t key, uint64_t group)
{
    return mix_bits(key + group * 0x9e3779b97f4a7c15u);
}

static uint32_t dropout_threshold(const struct dropout *d)
{
    assert(d->share >= 0 && d->share < 1);
    return (uint32_t)(d->share * 65536);
}

static inline bool survives(uint64_t bits, int neighbour, uint32_t threshold)
{
    return (bits >> 16 * neighbour & 0xffff) >= threshold;
}

float dropout_factor(const struct dropout *d, int site, uint64_t element)
{
    const uint64_t bits = neighbours_bits(site_key(d, site), element / NEIGHBOURS);
    return survives(bits, (int)(element % NEIGHBOURS), dropout_threshold(d))
               ? (float)(1 / (1 - d->share))
               : 0;
}

void dropout_apply(const struct dropout *d, int site, float *out, const float *start,
                   const float *x, uint64_t first, uint64_t n)
{
    const uint64_t key = site_key(d, site);
    const uint32_t threshold = dropout_threshold(d);
    const float scale = (float)(1 / (1 - d->share));
    for (uint64_t i = 0; i < n;) {
        const uint64_t bits = neighbours_bits(key, (first + i) / NEIGHBOURS);
        for (int j = (int)((first + i) % NEIGHBOURS); j < NEIGHBOURS && i < n; j++, i++)
            out[i] = (start ? start[i] : 0) + (survives(bits, j, threshold) ? x[i] * scale : 0);
    }
}
