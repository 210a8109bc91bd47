/*
 * rng - PCG-XSH-RR 64/32, a seedable generator with the same stream on every platform.
 *
 * Source: M. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
 * Algorithms for Random Number Generation", 2014. All state is explicit; one generator belongs
 * to one thread at a time. Seeds are mixed by SplitMix64's finalizer (G. Steele, D. Lea, C. Flood,
 * "Fast Splittable Pseudorandom Number Generators", 2014).
 */
#pragma once

#include <stdint.h>

struct rng {
    uint64_t state;
    uint64_t increment; /* odd; selects the stream */
};

/* Maps each 64-bit number to another one, no two to the same. */
static inline uint64_t rng_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Starts the stream: equal (seed, stream) pairs give equal numbers for ever; streams of one seed
 * are independent. */
void rng_seed(struct rng *r, uint64_t seed, uint64_t stream);

/* Seeds that nobody chose are below this, because readers of JSON keep numbers as doubles, and a
 * rounded seed replays another text. */
#define RNG_EXACT_SEEDS ((uint64_t)1 << 53)

/* Returns the seed of the i-th of many things that each need their own: the seed itself for 0, for
 * the others a number below RNG_EXACT_SEEDS, without a pattern between neighbours. */
uint64_t rng_derive(uint64_t seed, uint64_t i);

/* Draws one of all 32-bit values. */
uint32_t rng_u32(struct rng *r);

/* Draws a multiple of 2^-53 in [0, 1), from two 32-bit numbers, the high part first. */
double rng_unit(struct rng *r);
