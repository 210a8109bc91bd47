/* Texts written side by side come out in order, each as soon as it can. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cli/generate.h"
#include "support.h"

/* Linked in place of the library's (see the Makefile): it fails for blocks larger than this. */
static size_t largest = SIZE_MAX;
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_realloc(void *p, size_t n)
{
    return n > largest ? NULL : __real_realloc(p, n);
}

static char written[1 << 20];
static size_t n_written;

static bool collect(struct output *o, const char *bytes, size_t len)
{
    (void)o;
    ck_assert_uint_le(n_written + len, sizeof written);
    memcpy(written + n_written, bytes, len);
    n_written += len;
    return true;
}

static void begin(struct turns *t, struct output *out)
{
    n_written = 0;
    output_init(out, collect);
    expect_ok(turns_create(t, out, NULL));
}

static void put(struct turns *t, uint64_t number, const char *text)
{
    output_puts(turns_output(t, number), text);
}

static void expect(struct turns *t, const char *all)
{
    ck_assert(output_flush(t->out));
    ck_assert_msg(n_written == strlen(all) && memcmp(written, all, n_written) == 0,
                  "'%.*s' instead of '%s'", (int)n_written, written, all);
    expect_ok(turns_check(t, NULL));
}

TEST(the_front_goes_straight_out)
{
    struct output out;
    struct turns t;
    begin(&t, &out);
    put(&t, 0, "a");
    put(&t, 1, "x");
    put(&t, 2, "p");
    put(&t, 0, "b");
    expect(&t, "ab");
    put(&t, 2, "q");
    turns_close(&t, 2);
    put(&t, 1, "y");
    expect(&t, "ab");
    turns_close(&t, 0);
    expect(&t, "abxy");
    put(&t, 1, "z");
    expect(&t, "abxyz");
    turns_close(&t, 1);
    expect(&t, "abxyzpq");
    ck_assert_uint_eq(t.front, 3);
    put(&t, 3, "!");
    expect(&t, "abxyzpq!");
    turns_free(&t);
    turns_free(&t);
}

TEST(dropped_ones_leave_nothing)
{
    struct output out;
    struct turns t;
    begin(&t, &out);
    put(&t, 0, "a");
    put(&t, 1, "x");
    put(&t, 2, "p");
    turns_drop(&t, 1);
    turns_close(&t, 0);
    expect(&t, "ap");
    turns_drop(&t, 2);
    expect(&t, "ap");
    ck_assert(t.front == 3 && t.n_held == 0);
    turns_free(&t);
}

TEST(room_is_bounded)
{
    struct output out;
    struct turns t;
    begin(&t, &out);
    ck_assert(turns_has_room(&t, TURNS_AHEAD - 1) && !turns_has_room(&t, TURNS_AHEAD));
    char *big = malloc(TURNS_BYTES + 1);
    memset(big, 'x', TURNS_BYTES);
    big[TURNS_BYTES] = 0;
    put(&t, 1, big);
    free(big);
    ck_assert(!turns_has_room(&t, 2) && turns_has_room(&t, 0));
    turns_drop(&t, 1);
    ck_assert(turns_has_room(&t, 2));
    turns_close(&t, 0);
    ck_assert(turns_has_room(&t, TURNS_AHEAD + 1));
    turns_free(&t);
}

static void expect_lost(const struct turns *t, const char *message)
{
    ck_assert_int_eq(turns_check(t, &err), STATUS_NO_MEMORY);
    ck_assert_str_eq(err.text, message);
}

/* A text that could be held in part is not written at all, whether it ends before its turn (_i 0),
 * in it, or is dropped; the others are. */
TEST(without_memory_a_text_is_lost_whole, .loops = 3)
{
    struct output out;
    struct turns t;
    char part[9001];
    memset(part, 'x', sizeof part - 1);
    part[sizeof part - 1] = 0;
    begin(&t, &out);
    put(&t, 1, "held, ");
    put(&t, 2, part);
    turns_output(&t, 3);
    ck_assert_uint_eq(t.n_held, 9006);
    largest = 16 << 10;
    put(&t, 2, part);
    put(&t, 3, "later");
    put(&t, 2, "the end");
    expect_lost(&t, "out of memory: a text that waits for its turn needs 18000 bytes");
    if (_i == 0)
        turns_close(&t, 2);
    put(&t, 0, "first, ");
    turns_close(&t, 0);
    turns_close(&t, 1);
    if (_i == 1)
        put(&t, 2, "more");
    if (_i > 0)
        (_i == 1 ? turns_close : turns_drop)(&t, 2);
    ck_assert_uint_eq(t.front, 3);
    turns_close(&t, 3);
    put(&t, 4, "!");
    ck_assert(output_flush(&out));
    ck_assert_msg(n_written == 19 && memcmp(written, "first, held, later!", 19) == 0, "%.*s",
                  (int)n_written, written);
    ck_assert_uint_eq(t.n_held, 0);
    turns_free(&t);
    largest = SIZE_MAX;
}

/* Many, over the ring's end, closed in random order. */
TEST(order_does_not_matter, .loops = 5)
{
    enum { N = 5000, OPEN = 40 };
    struct output out;
    struct turns t;
    struct rng r;
    uint64_t open[OPEN], next = 0;
    int n_open = 0;
    char line[32];
    rng_seed(&r, 1, (uint64_t)_i);
    begin(&t, &out);
    while (next < N || n_open > 0) {
        if (n_open < OPEN && next < N && turns_has_room(&t, next) && rng_u32(&r) % 3) {
            snprintf(line, sizeof line, "%d", (int)next);
            put(&t, next, line);
            open[n_open++] = next++;
        } else if (n_open > 0) {
            const int which = (int)(rng_u32(&r) % (unsigned)n_open);
            put(&t, open[which], "\n");
            turns_close(&t, open[which]);
            open[which] = open[--n_open];
        }
    }
    output_flush(&out);
    size_t at = 0;
    for (int i = 0; i < N; i++) {
        snprintf(line, sizeof line, "%d\n", i);
        ck_assert(strncmp(written + at, line, strlen(line)) == 0);
        at += strlen(line);
    }
    ck_assert_uint_eq(at, n_written);
    ck_assert_uint_eq(t.n_held, 0);
    turns_free(&t);
}
