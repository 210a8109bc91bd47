#include "base/siphash.h"

static inline uint64_t sip_rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = sip_rotate(v[1], 13) ^ v[0];
    v[3] = sip_rotate(v[3], 16) ^ v[2];
    v[0] = sip_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = sip_rotate(v[1], 17) ^ v[2];
    v[3] = sip_rotate(v[3], 21) ^ v[0];
    v[2] = sip_rotate(v[2], 32);
}

static inline void sip_absorb(uint64_t v[4], uint64_t m)
{
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
}

uint64_t siphash(const uint64_t key[2], struct text s)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t m;
    uint64_t last = (uint64_t)s.len << 56;
    for (; s.len >= 8; s.data += 8, s.len -= 8) {
        memcpy(&m, s.data, 8);
        sip_absorb(v, m);
    }
    for (size_t i = 0; i < s.len; i++)
        last |= (uint64_t)(unsigned char)s.data[i] << (8 * i);
    sip_absorb(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
