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
    expect_ok(list_ints("--x", "3,1,12", 0, 12, &l, &err));
    ck_assert(l.n == 3 && l.items[2] == 12);
    l.n = 0;
    expect_ok(list_names("--x", "f16,f32", names, &l, &err));
    ck_assert(l.items[0] == 1 && l.items[1] == 0);
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

TEST(bad_list, .loops = (int)COUNT(bad_lists))
{
    struct int_list l = {.n = 0};
    expect_status(list_ints("--x", bad_lists[_i], 0, 12, &l, &err), STATUS_USAGE, "--x");
}

TEST(bad_names)
{
    struct int_list l = {.n = 0};
    expect_status(list_names("--type", "f32,q4_k", names, &l, &err), STATUS_USAGE, "q4_k|f32, f16");
    l.n = 0;
    ck_assert_int_eq(list_names("--type", "", names, &l, &err), STATUS_USAGE);
    char long_list[400] = "0";
    for (int i = 1; i <= LIST_MAX; i++)
        sprintf(long_list + strlen(long_list), ",%d", i);
    l.n = 0;
    expect_status(list_ints("--x", long_list, 0, 1000, &l, &err), STATUS_USAGE, "at most");
}

TEST(shapes)
{
    struct config c;
    expect_ok(shape_parse("12x768x12,ff=3072,vocab=50257,ctx=4096", arch_preset(text_of("gpt2")),
                          &c, &err));
    ck_assert(c.n_layers == 12 && c.d_model == 768 && c.n_heads == 12 && c.n_kv_heads == 12);
    ck_assert(c.head_dim == 64 && c.d_ff == 3072 && c.n_vocab == 50257 && c.n_ctx == 4096);
    expect_ok(shape_parse("4x128x8", arch_preset(text_of("gpt2")), &c, &err));
    ck_assert(c.d_ff == 512 && c.n_vocab == 50257 && c.n_ctx == 1024);
    expect_ok(shape_parse("4x128x8,ctx=9", arch_preset(text_of("gpt2")), &c, &err));
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

TEST(bad_shape, .loops = (int)COUNT(bad_shapes))
{
    struct config c;
    expect_status(shape_parse(bad_shapes[_i], arch_preset(text_of("gpt2")), &c, &err), STATUS_USAGE,
                  "--shape");
}
