#include "text/word_count.h"

#include <stdio.h>
#include <stdlib.h>

#include "support.h"

static void add(struct word_count *c, struct text word)
{
    struct err e = {{0}};
    ck_assert_msg(word_count_add(c, word, &e) == STATUS_OK, "%s", e.text);
}

TEST(words_are_listed_by_first_occurrence)
{
    static const char *const texts[] = {"to", "be", "or", "not", "to", "be", "", "be", "bee", ""};
    static const struct {
        const char *word;
        uint64_t count;
    } expected[] = {{"to", 2}, {"be", 3}, {"or", 1}, {"not", 1}, {"", 2}, {"bee", 1}};
    struct word_count c = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add(&c, text_of(texts[i]));
    ck_assert_uint_eq(c.n, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < c.n; i++) {
        ck_assert(text_is(c.words[i].text, expected[i].word));
        ck_assert_uint_eq(c.words[i].count, expected[i].count);
    }
    ck_assert_ptr_eq(c.words[0].text.data, texts[0]);
    word_count_free(&c);
    word_count_free(&c);
    ck_assert_uint_eq(c.n, 0);
}

/* Word i of many is met i % 5 + 1 times; the table grows in between. Some differ in their last
 * byte only, some in their length, on both sides of the hash's blocks of eight. */
TEST(many_words)
{
    enum { N = 20000, ROOM = 32 };
    char(*words)[ROOM] = malloc((size_t)N * ROOM);
    struct word_count c = {0};
    for (int i = 0; i < N; i++)
        snprintf(words[i], ROOM, "%.*s%d", i % 17, "wwwwwwwwwwwwwwwwww", i);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < N; i++)
            if (round <= i % 5)
                add(&c, text_of(words[i]));
    ck_assert_uint_eq(c.n, N);
    for (int i = 0; i < N; i++) {
        ck_assert_ptr_eq(c.words[i].text.data, words[i]);
        ck_assert_uint_eq(c.words[i].count, (uint64_t)(i % 5) + 1);
    }
    word_count_free(&c);
    free(words);
}

TEST(every_byte_counts)
{
    char bytes[256 * 2];
    struct word_count c = {0};
    for (int i = 0; i < 256; i++) {
        bytes[2 * i] = (char)i;
        bytes[2 * i + 1] = 0;
        add(&c, (struct text){bytes + 2 * i, 1});
        add(&c, (struct text){bytes + 2 * i, 2});
    }
    ck_assert_uint_eq(c.n, 512);
    word_count_free(&c);
}

/* SipHash-1-3 against CPython's (3.11), whose hash of bytes it is: PYTHONHASHSEED=0 for the zero
 * key, 5 for the other. The empty text, which has none there, is of the authors' reference. */
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_uint_eq(siphash(cases[i].key, (struct text){bytes, cases[i].len}), cases[i].hash);
    ck_assert_uint_eq(siphash(no_key, text_of("abc")), 0xc03bc3a0042630f2);
}
