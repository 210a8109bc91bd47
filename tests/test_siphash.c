/*
 * SipHash-1-3 against CPython's (3.11), whose hash of bytes it is: PYTHONHASHSEED=0 for the zero
 * key, 5 for the other. The empty text, which has none there, is of the authors' reference.
 */
#include "base/siphash.h"
#include "support.h"

static const uint64_t no_key[2] = {0, 0};
static const uint64_t key[2] = {0xf177c60c81df1536, 0xd3aa44dda1fa8050};

static const struct {
    const uint64_t *key;
    size_t len; /* bytes 0, 1, 2, ... */
    uint64_t hash;
} cases[] = {
    {no_key, 0, 0xd1fba762150c532c},  {no_key, 15, 0xf30eb725bb91c9ea},
    {no_key, 16, 0x8972188433a5c5b7}, {no_key, 63, 0x385d3e39e5f37359},
    {key, 1, 0xc5bdc814416b196b},     {key, 7, 0x745c0a8c46216687},
    {key, 8, 0x385d76f5cbb3a872},     {key, 9, 0xb1aae6a8863142e0},
    {key, 15, 0x102268776b731592},    {key, 16, 0x31d35e1f6ed04330},
    {key, 63, 0x76d81e312ac2ddfb},
};

TEST(hashes_are_the_reference_s)
{
    char bytes[64];
    for (int i = 0; i < 64; i++)
        bytes[i] = (char)i;
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_uint_eq(siphash(cases[i].key, (struct text){bytes, cases[i].len}), cases[i].hash);
    ck_assert_uint_eq(siphash(no_key, text_of("abc")), 0xc03bc3a0042630f2);
}
