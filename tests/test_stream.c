/* What is held back on the way to the reader, and where stop strings end the text. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

#define LONGEST 64

/* Pushes `bytes` in the given pieces; collects what comes out, the rest too. */
static size_t run(const struct text *stops, int n_stops, struct text bytes, const size_t *cuts,
                  size_t n_cuts, char *out, bool *stopped)
{
    struct stream s = {.bytes = NULL};
    size_t len = 0, at = 0;
    expect_ok(stream_start(&s, stops, n_stops, LONGEST, &err));
    for (size_t i = 0; i <= n_cuts; i++) {
        const size_t end = i < n_cuts ? cuts[i] : bytes.len;
        const struct text ready = stream_push(&s, (struct text){bytes.data + at, end - at});
        memcpy(out + len, ready.data, ready.len);
        len += ready.len;
        at = end;
    }
    *stopped = s.stopped;
    const struct text rest = stream_finish(&s);
    memcpy(out + len, rest.data, rest.len);
    len += rest.len;
    stream_free(&s);
    return len;
}

/* What one push lets through. */
static void lets_through(struct stream *s, const char *piece, const char *expected)
{
    const struct text ready = stream_push(s, text_of(piece));
    ck_assert_msg(text_is(ready, expected), "'%s': expected '%s', found '%.*s'", piece, expected,
                  (int)ready.len, ready.data);
}

TEST(characters_are_whole)
{
    struct stream s = {.bytes = NULL};
    expect_ok(stream_start(&s, NULL, 0, 8, &err));
    lets_through(&s, "a", "a");
    lets_through(&s, "\xe2", "");
    lets_through(&s, "\x82", "");
    lets_through(&s,
                 "\xac"
                 "b\xf0\x9f",
                 "€b");
    lets_through(&s, "\x98", "");
    lets_through(&s, "\x80", "\xf0\x9f\x98\x80");
    lets_through(&s, "\xff", "\xff"); /* can start nothing */
    lets_through(&s, "\xc3", "");
    lets_through(&s, "x", "\xc3x");           /* turned out not to be one */
    lets_through(&s, "\xed\xa0", "\xed\xa0"); /* would be a surrogate */
    lets_through(&s, "\x80", "\x80");
    lets_through(&s, "\xe2\x82", "");
    ck_assert(text_is(stream_finish(&s), "\xe2\x82"));
    lets_through(&s, "y", "y");
    stream_free(&s);
    stream_free(&s);
}

/* Against the decoder: a suffix is cut short if and only if some continuation completes it. */
TEST(cut_short_agrees_with_the_decoder)
{
    static const unsigned char bytes[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                          0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1,
                                          0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    const size_t n = sizeof bytes;
    for (size_t i = 0; i < n * n * n; i++) {
        const char s[] = {(char)bytes[i % n], (char)bytes[i / n % n], (char)bytes[i / n / n]};
        for (size_t len = 1; len <= 3; len++) {
            size_t expected = 0;
            for (size_t back = len; back > 0; back--) {
                char whole[8];
                memcpy(whole, s + len - back, back);
                /* Any two continuations: the ranges narrow only the byte after the lead. */
                for (size_t j = 0; j < n * n && expected == 0; j++) {
                    memset(whole + back, 0x80, sizeof whole - back);
                    whole[back] = (char)bytes[j % n];
                    uint32_t code;
                    const size_t used = utf8_decode((struct text){whole, 4}, &code);
                    if (code != UNICODE_INVALID && used > back)
                        expected = back;
                }
            }
            ck_assert_uint_eq(utf8_cut_short((struct text){s, len}), expected);
        }
    }
}

TEST(stop_across_pieces)
{
    const struct text stops[] = {{"\n\n", 2}};
    struct stream s = {.bytes = NULL};
    expect_ok(stream_start(&s, stops, 1, 8, &err));
    lets_through(&s, "a\n", "a");
    lets_through(&s, "b\n", "\nb");
    ck_assert(!s.stopped);
    lets_through(&s, "\nrest", "");
    ck_assert(s.stopped);
    lets_through(&s, "more", "");
    ck_assert(stream_finish(&s).len == 0 && !s.stopped);
    lets_through(&s, "again", "again");
    stream_free(&s);
}

TEST(held_text_comes_out_at_the_end)
{
    const struct text stops[] = {{"STOP", 4}};
    struct stream s = {.bytes = NULL};
    expect_ok(stream_start(&s, stops, 1, 8, &err));
    lets_through(&s, "xSTO", "x");
    ck_assert(text_is(stream_finish(&s), "STO"));
    lets_through(&s, "P", "P"); /* nothing of the stream before is left */
    stream_free(&s);
}

/* Where the text must end, found the slow way. */
static size_t expected_length(const struct text *stops, int n_stops, struct text bytes,
                              bool *stopped)
{
    *stopped = true;
    for (size_t end = 1; end <= bytes.len; end++) {
        size_t longest = 0;
        for (int i = 0; i < n_stops; i++) {
            const size_t len = stops[i].len;
            if (len <= end && len > longest &&
                memcmp(bytes.data + end - len, stops[i].data, len) == 0)
                longest = len;
        }
        if (longest > 0)
            return end - longest;
    }
    *stopped = false;
    return bytes.len;
}

/* Random texts over few letters, so that stop strings nearly match all the time. */
TEST(cuts_do_not_matter, .loops = 4)
{
    static const char *const pool[] = {"a", "ab", "aab", "abab", "bb", "ba€", "€", "aaaa", "€€b"};
    static const char *const letters[] = {"a", "b", "€", "\xe2", "\x82"};
    struct rng r;
    rng_seed(&r, 11, (uint64_t)_i);
    for (int round = 0; round < 2000; round++) {
        struct text stops[3];
        const int n_stops = (int)(rng_u32(&r) % 4);
        for (int i = 0; i < n_stops; i++)
            stops[i] = text_of(pool[rng_u32(&r) % 9]);
        char bytes[LONGEST + 1] = "", out[LONGEST];
        for (int i = 0; i < 16; i++)
            strcat(bytes, letters[rng_u32(&r) % 5]);
        const struct text text = text_of(bytes);
        size_t cuts[LONGEST], n_cuts = 0;
        for (size_t i = 1; i < text.len; i++)
            if (rng_u32(&r) % 2)
                cuts[n_cuts++] = i;
        bool stopped, expected_stop;
        const size_t len = run(stops, n_stops, text, cuts, n_cuts, out, &stopped);
        const size_t expected = expected_length(stops, n_stops, text, &expected_stop);
        ck_assert_int_eq(stopped, expected_stop);
        ck_assert_uint_eq(len, expected);
        ck_assert_mem_eq(out, bytes, len);
    }
}

/* Memory that served one text serves the next, with other stop strings, zero bytes in them. */
TEST(a_stream_starts_again)
{
    const struct text zeros[] = {{"a\0b", 3}}, longer[] = {{"a long stop string", 18}};
    struct stream s = {.bytes = NULL};
    expect_ok(stream_start(&s, zeros, 1, 4, &err));
    const struct text ready = stream_push(&s, (struct text){"xa\0", 3});
    ck_assert(text_is(ready, "x") && stream_push(&s, text_of("bc")).len == 0 && s.stopped);
    expect_ok(stream_start(&s, longer, 1, 4, &err));
    ck_assert(!s.stopped);
    lets_through(&s, "a lo", "");
    lets_through(&s, "ts", "a lots");
    expect_ok(stream_start(&s, NULL, 0, 4, &err));
    lets_through(&s, "a lo", "a lo");
    stream_free(&s);
    stream_free(&s);
}
