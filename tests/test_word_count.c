#include "text/word_count.h"

#include <stdio.h>
#include <stdlib.h>

#include "support.h"

static void add(struct word_count *c, struct text word)
{
    expect_ok(word_count_add(c, word, &err));
}

TEST(words_are_listed_by_first_occurrence)
{
    static const char *const texts[] = {"to", "be", "or", "not", "to", "be", "", "be", "bee", ""};
    static const struct {
        const char *word;
        uint64_t count;
    } expected[] = {{"to", 2}, {"be", 3}, {"or", 1}, {"not", 1}, {"", 2}, {"bee", 1}};
    struct word_count c = {0};
    for (size_t i = 0; i < COUNT(texts); i++)
        add(&c, text_of(texts[i]));
    ck_assert_uint_eq(c.n, COUNT(expected));
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
