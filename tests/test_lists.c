/* Comma lists and shapes from the command line. */
#include <stdio.h>
#include <string.h>

#include "cli/numbers.h"
#include "cli/shape.h"
#include "support.h"

static const char *const names[] = {"f32", "f16", NULL};

TEST(lists)
{
    struct int_list l = {.n = 0};
    must(list_ints("--x", "3,1,12", 0, 12, &l, &failure));
    ck_assert_int_eq(l.n, 3);
    ck_assert_int_eq(l.items[2], 12);
    l.n = 0;
    must(list_names("--x", "f16,f32", names, &l, &failure));
    ck_assert_int_eq(l.items[0], 1);
    ck_assert_int_eq(l.items[1], 0);
}

static const char *const bad_lists[] = {
    "",
    ",",
    "1,",
    ",1",
    "1,,2",
    "1, 2",
    "x",
    "13",
    "-1",
    "1e3",
    "1,1",
    "99999999999999999999",
    "1111111111111111111111111111111111111111",
};

TEST(bad_list, .loops = (int)(sizeof bad_lists / sizeof *bad_lists))
{
    struct int_list l = {.n = 0};
    must_fail(STATUS_USAGE, "--x", list_ints("--x", bad_lists[_i], 0, 12, &l, &failure));
}

TEST(bad_names)
{
    struct int_list l = {.n = 0};
    must_fail(STATUS_USAGE, "q4_k", list_names("--type", "f32,q4_k", names, &l, &failure));
    ck_assert_ptr_nonnull(strstr(failure.text, "f32, f16"));
    l.n = 0;
    ck_assert_int_eq(list_names("--type", "", names, &l, &failure), STATUS_USAGE);
    char long_list[400] = "0";
    for (int i = 1; i <= LIST_MAX; i++)
        sprintf(long_list + strlen(long_list), ",%d", i);
    l.n = 0;
    must_fail(STATUS_USAGE, "at most", list_ints("--x", long_list, 0, 1000, &l, &failure));
}

TEST(shapes)
{
    struct config c;
    must(shape_parse("12x768x12,ff=3072,vocab=50257,ctx=4096", arch_at(0), &c, &failure));
    ck_assert_int_eq(c.n_layers, 12);
    ck_assert_int_eq(c.d_model, 768);
    ck_assert_int_eq(c.n_heads, 12);
    ck_assert_int_eq(c.n_kv_heads, 12);
    ck_assert_int_eq(c.head_dim, 64);
    ck_assert_int_eq(c.d_ff, 3072);
    ck_assert_int_eq(c.n_vocab, 50257);
    ck_assert_int_eq(c.n_ctx, 4096);
    must(shape_parse("4x128x8", arch_at(0), &c, &failure));
    ck_assert_int_eq(c.d_ff, 512);
    ck_assert_int_eq(c.n_vocab, 50257);
    ck_assert_int_eq(c.n_ctx, 1024);
    must(shape_parse("4x128x8,ctx=9", arch_at(0), &c, &failure));
    ck_assert_int_eq(c.n_ctx, 9);
}

static const char *const bad_shapes[] = {
    "",
    "12",
    "12x768",
    "12x768x",
    "12x768x5",
    "0x768x12",
    "12x768x12x",
    "12x768x12,",
    "-1x8x2",
    "12x768x12,ff=",
    "12x768x12,ff=0",
    "12x768x12,fff=1",
    "12x768x12,ctx=99999999",
    "12x768x12 ",
    "12X768X12",
    "1x99999999x1",
    "12,768,12",
};

TEST(bad_shape, .loops = (int)(sizeof bad_shapes / sizeof *bad_shapes))
{
    struct config c;
    must_fail(STATUS_USAGE, "--shape", shape_parse(bad_shapes[_i], arch_at(0), &c, &failure));
}
