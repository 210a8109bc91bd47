/* Tests of which bytes of a generated text are held back for now, and where stop strings end it. */
#include <string.h>

#include "base/rng.h"
#include "support.h"

#define LONGEST 64

/* Pushes `bytes` in the given pieces, and collects what comes out, with the rest at the end. */
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

/* A piece that is pushed, and what it lets through. A piece that is NULL ends the text. */
struct push {
    const char *piece, *expected;
    bool stopped;
};

static void push_all(struct stream *s, struct text stop, const struct push *rows, size_t n)
{
    static struct text borrowed; /* until the next start */
    borrowed = stop;
    expect_ok(stream_start(s, &borrowed, stop.len > 0, 8, &err));
    for (size_t i = 0; i < n; i++) {
        const struct text ready =
            rows[i].piece ? stream_push(s, text_of(rows[i].piece)) : stream_finish(s);
        ck_assert_msg(text_is(ready, rows[i].expected), "'%s': expected '%s', found '%.*s'",
                      rows[i].piece, rows[i].expected, (int)ready.len, ready.data);
        ck_assert_int_eq(s->stopped, rows[i].stopped);
    }
}

/* Each stream begins in the memory of the one before, and has nothing of its text. */
TEST(what_is_let_through)
{
    static const struct push characters[] = {
        {"a", "a", 0},
        {"\xe2", "", 0},
        {"\x82", "", 0},
        {"\xac\x62\xf0\x9f", "€b", 0},
        {"\x98", "", 0},
        {"\x80", "\xf0\x9f\x98\x80", 0},
        {"\xff", "\xff", 0}, /* can start nothing */
        {"\xc3", "", 0},
        {"x", "\xc3x", 0},           /* turned out not to be one */
        {"\xed\xa0", "\xed\xa0", 0}, /* would be a surrogate */
        {"\xe2\x82", "", 0},
        {NULL, "\xe2\x82", 0},
        {"y", "y", 0},
    };
    static const struct push across[] = {
        {"a\n", "a", 0}, {"b\n", "\nb", 0}, {"\nrest", "", 1},
        {"more", "", 1}, {NULL, "", 0},     {"again", "again", 0},
    };
    static const struct push held[] = {{"xSTO", "x", 0}, {NULL, "STO", 0}, {"P", "P", 0}};
    static const struct push longer[] = {{"a lo", "", 0}, {"ts", "a lots", 0}};
    static const struct push none[] = {{"a lo", "a lo", 0}};
    struct stream s = {.bytes = NULL};
    push_all(&s, text_of(""), characters, COUNT(characters));
    push_all(&s, text_of("\n\n"), across, COUNT(across));
    push_all(&s, text_of("STOP"), held, COUNT(held));
    push_all(&s, (struct text){"a\0b", 3}, NULL, 0);
    const struct text ready = stream_push(&s, (struct text){"xa\0", 3});
    ck_assert(text_is(ready, "x") && stream_push(&s, text_of("bc")).len == 0 && s.stopped);
    push_all(&s, text_of("a long stop string"), longer, COUNT(longer));
    push_all(&s, text_of(""), none, COUNT(none));
    stream_free(&s);
    stream_free(&s);
}

/* Finds in a slow way where the text must end. */
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

/* Random texts have few letters, so that stop strings nearly match all the time. */
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
