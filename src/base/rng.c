#include "base/rng.h"

void rng_seed(struct rng *r, uint64_t seed, uint64_t stream)
{
    r->state = 0;
    r->increment = stream << 1 | 1;
    rng_u32(r);
    r->state += seed;
    rng_u32(r);
}

uint64_t rng_derive(uint64_t seed, uint64_t i)
{
    return i == 0 ? seed : rng_mix(seed + i * 0x9e3779b97f4a7c15u) % RNG_EXACT_SEEDS;
}

uint32_t rng_u32(struct rng *r)
{
    const uint64_t old = r->state;
    r->state = old * 6364136223846793005u + r->increment;
    const uint32_t shifted = (uint32_t)((old >> 18 ^ old) >> 27);
    const uint32_t rot = (uint32_t)(old >> 59);
    return shifted >> rot | shifted << (-rot & 31);
}

double rng_unit(struct rng *r)
{
    const uint64_t high = rng_u32(r) >> 5;
    const uint64_t low = rng_u32(r) >> 6;
    return (high << 26 | low) * 0x1p-53;
}
