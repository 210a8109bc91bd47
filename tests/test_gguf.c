/* Reading good files: every kind, array and tensor type, lookups, and what is accepted although
 * it is unusual. What is refused is in test_gguf_bad.c. */
#include <math.h>
#include <stdio.h>

#include "gguf_image.h"

/* --- names and sizes ----------------------------------------------------------------------- */

TEST(kind_names)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    for (int i = 0; i < 13; i++)
        ck_assert_str_eq(gguf_kind_name((enum gguf_kind)i), names[i]);
    ck_assert_str_eq(gguf_kind_name((enum gguf_kind)13), "unknown");
    ck_assert_str_eq(gguf_kind_name((enum gguf_kind) - 1), "unknown");
}

TEST(tensor_types_by_number_and_name)
{
    static const struct tensor_type_info some[] = {
        {"F32", 0, 1, 4},    {"F16", 1, 1, 2},       {"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},
        {"Q8_0", 8, 32, 34}, {"Q4_K", 12, 256, 144}, {"Q6_K", 14, 256, 210}, {"F64", 28, 1, 8},
        {"BF16", 30, 1, 2},  {"MXFP4", 39, 32, 17},
    };
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const struct tensor_type_info *t = tensor_type_find(some[i].type);
        ck_assert_ptr_nonnull(t);
        ck_assert_str_eq(t->name, some[i].name);
        ck_assert_uint_eq(t->block_elements, some[i].block_elements);
        ck_assert_uint_eq(t->block_bytes, some[i].block_bytes);
        ck_assert_ptr_eq(tensor_type_named(text_of(some[i].name)), t);
    }
    ck_assert_ptr_eq(tensor_type_named(text_of("q8_0")), tensor_type_find(TENSOR_Q8_0));
    ck_assert_ptr_eq(tensor_type_named(text_of("bf16")), tensor_type_find(TENSOR_BF16));
    ck_assert_ptr_null(tensor_type_named(text_of("q8_")));
    ck_assert_ptr_null(tensor_type_named(text_of("q8_00")));
    ck_assert_ptr_null(tensor_type_named(text_of("")));
}

TEST(tensor_types_removed_or_unknown_are_not_found)
{
    static const uint32_t missing[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
        ck_assert_ptr_null(tensor_type_find(missing[i]));
    for (uint32_t type = 0; type < 64; type++) {
        const struct tensor_type_info *t = tensor_type_find(type);
        if (t) {
            ck_assert_uint_eq(t->type, type);
            ck_assert_uint_ge(t->block_elements, 1);
            ck_assert_uint_ge(t->block_bytes, 1);
        }
    }
}

/* --- values -------------------------------------------------------------------------------- */

struct number {
    const char *key;
    enum gguf_kind kind;
    int bytes;
    uint64_t bits;
    int64_t as_int;
    double as_float;
};

static const struct number numbers[] = {
    {"u8", GGUF_U8, 1, 0xfe, 254, 254},
    {"i8", GGUF_I8, 1, 0xfe, -2, -2},
    {"u16", GGUF_U16, 2, 0xfffd, 65533, 65533},
    {"i16", GGUF_I16, 2, 0xfffd, -3, -3},
    {"u32", GGUF_U32, 4, 0xfffffffc, 4294967292, 4294967292.0},
    {"i32", GGUF_I32, 4, 0xfffffffc, -4, -4},
    {"u64", GGUF_U64, 8, 0xfffffffffffffffb, INT64_MAX, 18446744073709551611.0},
    {"i64", GGUF_I64, 8, 0xfffffffffffffffb, -5, -5},
    {"i64 min", GGUF_I64, 8, 0x8000000000000000, INT64_MIN, -0x1p63},
    {"f32", GGUF_F32, 4, 0xc0200000, -2, -2.5},
    {"f64", GGUF_F64, 8, 0x4002000000000000, 2, 2.25},
    {"f64 large", GGUF_F64, 8, 0x7fe0000000000000, INT64_MAX, 0x1p1023},
    {"f64 low", GGUF_F64, 8, 0xffe0000000000000, INT64_MIN, -0x1p1023},
    {"bool", GGUF_BOOL, 1, 1, 1, 1},
    {"bool 2", GGUF_BOOL, 1, 2, 2, 2},
};

#define N_NUMBERS (sizeof numbers / sizeof numbers[0])

TEST(scalars_of_every_kind)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, N_NUMBERS);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        image_key(&b, numbers[i].key, numbers[i].kind);
        gb_put(&b, &numbers[i].bits, (size_t)numbers[i].bytes);
    }
    struct parsed p = accept(&b);
    ck_assert_uint_eq(p.g->n_pairs, N_NUMBERS);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct gguf_value *v = gguf_find(p.g, numbers[i].key);
        ck_assert_ptr_eq(v, &p.g->pairs[i].value);
        ck_assert_int_eq(v->kind, numbers[i].kind);
        ck_assert_uint_eq(v->count, 1);
        ck_assert_int_eq(gguf_int_at(v, 0), numbers[i].as_int);
        ck_assert_double_eq(gguf_float_at(v, 0), numbers[i].as_float);
    }
    parsed_free(&p);
}

TEST(arrays_of_every_kind)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, N_NUMBERS + 1);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        image_key(&b, numbers[i].key, GGUF_ARRAY);
        gb_put_u32(&b, numbers[i].kind);
        gb_put_u64(&b, 3);
        gb_put(&b, &(uint64_t){0}, (size_t)numbers[i].bytes);
        gb_put(&b, &numbers[i].bits, (size_t)numbers[i].bytes);
        gb_put(&b, &(uint64_t){0}, (size_t)numbers[i].bytes);
    }
    image_key(&b, "empty", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_F32);
    gb_put_u64(&b, 0);
    struct parsed p = accept(&b);
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const struct gguf_value *v = NULL;
        ck_assert_int_eq(gguf_get_array(p.g, numbers[i].key, numbers[i].kind, &v, NULL, NULL),
                         STATUS_OK);
        ck_assert_uint_eq(v->count, 3);
        ck_assert_int_eq(gguf_int_at(v, 0), 0);
        ck_assert_int_eq(gguf_int_at(v, 1), numbers[i].as_int);
        ck_assert_double_eq(gguf_float_at(v, 1), numbers[i].as_float);
        ck_assert_double_eq(gguf_float_at(v, 2), 0);
    }
    ck_assert_uint_eq(gguf_find(p.g, "empty")->count, 0);
    ck_assert_uint_eq(gguf_find(p.g, "empty")->bytes.len, 0);
    parsed_free(&p);
}

TEST(float_that_is_no_number_is_0_as_an_integer)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "nan", GGUF_F32);
    gb_put_u32(&b, 0x7fc00000);
    struct parsed p = accept(&b);
    ck_assert_int_eq(gguf_int_at(gguf_find(p.g, "nan"), 0), 0);
    ck_assert(isnan(gguf_float_at(gguf_find(p.g, "nan"), 0)));
    parsed_free(&p);
}

TEST(strings_and_their_arrays)
{
    static const struct text words[] = {{"", 0}, {"a\0b", 3}, {"\xff\xfe", 2}, {"long enough", 11}};
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 3);
    image_key(&b, "s", GGUF_STRING);
    gb_put_text(&b, words[1]);
    image_key(&b, "words", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_STRING);
    gb_put_u64(&b, 4);
    for (int i = 0; i < 4; i++)
        gb_put_text(&b, words[i]);
    image_key(&b, "none", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_STRING);
    gb_put_u64(&b, 0);
    struct parsed p = accept(&b);

    struct text s;
    ck_assert_int_eq(gguf_get_text(p.g, "s", &s, NULL, NULL), STATUS_OK);
    ck_assert(text_equal(s, words[1]));
    const struct gguf_value *v;
    ck_assert_int_eq(gguf_get_array(p.g, "words", GGUF_STRING, &v, NULL, NULL), STATUS_OK);
    struct gguf_cursor c = {0};
    for (int i = 0; i < 4; i++) {
        ck_assert(gguf_next_text(v, &c, &s));
        ck_assert(text_equal(s, words[i]));
    }
    ck_assert(!gguf_next_text(v, &c, &s));
    ck_assert(!gguf_next_text(v, &c, &s));
    c = (struct gguf_cursor){0};
    ck_assert(!gguf_next_text(gguf_find(p.g, "none"), &c, &s));
    ck_assert(!gguf_next_text(gguf_find(p.g, "s"), &c, &s));
    parsed_free(&p);
}

/* A value made by hand may lie about its count. */
TEST(cursor_stops_at_the_end_of_the_bytes)
{
    static const char bytes[] = "\2\0\0\0\0\0\0\0ab\xff\0\0\0\0\0\0\0c";
    struct gguf_value v = {.kind = GGUF_ARRAY,
                           .element_kind = GGUF_STRING,
                           .count = UINT64_MAX,
                           .bytes = {bytes, sizeof bytes - 1}};
    struct gguf_cursor c = {0};
    struct text s;
    ck_assert(gguf_next_text(&v, &c, &s));
    ck_assert(text_is(s, "ab"));
    ck_assert(!gguf_next_text(&v, &c, &s));
    v.bytes.len = 10;
    ck_assert(!gguf_next_text(&v, &c, &s));
    c.offset = 1000;
    ck_assert(!gguf_next_text(&v, &c, &s));
}

/* --- lookups ------------------------------------------------------------------------------- */

static struct parsed mixed(void)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 8);
    image_u32(&b, "seven", 7);
    image_key(&b, "minus", GGUF_I8);
    gb_put(&b, "\xff", 1);
    image_key(&b, "half", GGUF_F32);
    gb_put_u32(&b, 0x3f000000);
    image_key(&b, "yes", GGUF_BOOL);
    gb_put(&b, "\1", 1);
    image_key(&b, "word", GGUF_STRING);
    gb_put_text(&b, text_of("text"));
    image_key(&b, "list", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_U8);
    gb_put_u64(&b, 2);
    gb_put(&b, "\1\2", 2);
    image_key(&b, "double", GGUF_F64);
    gb_put_u64(&b, 0x3fd0000000000000);
    image_key(&b, "huge", GGUF_U64);
    gb_put_u64(&b, UINT64_MAX);
    return accept(&b);
}

static void expect_error(enum status s, const struct err *e, const char *key, const char *what)
{
    ck_assert_int_eq(s, STATUS_BAD_FILE);
    ck_assert_msg(strstr(e->text, key) && strstr(e->text, what),
                  "\"%s\" does not say \"%s\" and \"%s\"", e->text, key, what);
}

TEST(get_u64)
{
    struct parsed p = mixed();
    struct err e;
    uint64_t n = 99;
    bool found = false;
    ck_assert_int_eq(gguf_get_u64(p.g, "seven", 7, 7, &n, &found, &e), STATUS_OK);
    ck_assert(found && n == 7);
    ck_assert_int_eq(gguf_get_u64(p.g, "huge", 0, UINT64_MAX, &n, NULL, &e), STATUS_OK);
    ck_assert(n == UINT64_MAX);
    n = 99;
    expect_error(gguf_get_u64(p.g, "seven", 8, 10, &n, NULL, &e), &e, "seven",
                 "expected 8 to 10, found 7");
    expect_error(gguf_get_u64(p.g, "seven", 0, 6, &n, &found, &e), &e, "seven", "found 7");
    expect_error(gguf_get_u64(p.g, "minus", 0, UINT64_MAX, &n, NULL, &e), &e, "minus", "found -1");
    expect_error(gguf_get_u64(p.g, "yes", 0, 9, &n, NULL, &e), &e, "yes", "found bool");
    expect_error(gguf_get_u64(p.g, "half", 0, 9, &n, NULL, &e), &e, "half", "found f32");
    expect_error(gguf_get_u64(p.g, "word", 0, 9, &n, NULL, &e), &e, "word", "found string");
    expect_error(gguf_get_u64(p.g, "list", 0, 9, &n, NULL, &e), &e, "list", "array of 2 u8");
    ck_assert_uint_eq(n, 99);
    parsed_free(&p);
}

TEST(get_f64)
{
    struct parsed p = mixed();
    struct err e;
    double x = 99;
    ck_assert_int_eq(gguf_get_f64(p.g, "half", &x, NULL, &e), STATUS_OK);
    ck_assert_double_eq(x, 0.5);
    ck_assert_int_eq(gguf_get_f64(p.g, "double", &x, NULL, &e), STATUS_OK);
    ck_assert_double_eq(x, 0.25);
    expect_error(gguf_get_f64(p.g, "seven", &x, NULL, &e), &e, "seven", "found u32");
    expect_error(gguf_get_f64(p.g, "yes", &x, NULL, &e), &e, "yes", "expected f32 or f64");
    ck_assert_double_eq(x, 0.25);
    parsed_free(&p);
}

TEST(get_bool)
{
    struct parsed p = mixed();
    struct err e;
    bool yes = false;
    ck_assert_int_eq(gguf_get_bool(p.g, "yes", &yes, NULL, &e), STATUS_OK);
    ck_assert(yes);
    expect_error(gguf_get_bool(p.g, "seven", &yes, NULL, &e), &e, "seven", "found u32");
    parsed_free(&p);
}

/* Two is no bool to the specification, but true to the loader. */
TEST(bool_of_2_is_true)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "b", GGUF_BOOL);
    gb_put(&b, "\2", 1);
    struct parsed p = accept(&b);
    bool value = false;
    ck_assert_int_eq(gguf_get_bool(p.g, "b", &value, NULL, NULL), STATUS_OK);
    ck_assert_int_eq(value, true);
    parsed_free(&p);
}

TEST(get_text_and_array_of_the_wrong_kind)
{
    struct parsed p = mixed();
    struct err e;
    struct text s;
    const struct gguf_value *v = &p.g->pairs[0].value;
    ck_assert_int_eq(gguf_get_text(p.g, "word", &s, NULL, &e), STATUS_OK);
    ck_assert(text_is(s, "text"));
    expect_error(gguf_get_text(p.g, "half", &s, NULL, &e), &e, "half",
                 "expected string, found f32");
    expect_error(gguf_get_array(p.g, "seven", GGUF_U32, &v, NULL, &e), &e, "seven",
                 "expected an array of u32, found u32");
    ck_assert_ptr_null(v);
    expect_error(gguf_get_array(p.g, "list", GGUF_STRING, &v, NULL, &e), &e, "list",
                 "expected an array of string, found an array of 2 u8");
    parsed_free(&p);
}

TEST(missing_keys)
{
    struct parsed p = mixed();
    struct err e;
    uint64_t n = 1;
    double x = 1;
    bool yes = true, found = true;
    struct text s = {"as before", 9};
    const struct gguf_value *v = &p.g->pairs[0].value;
    ck_assert_ptr_null(gguf_find(p.g, "no"));
    ck_assert_ptr_null(gguf_find(p.g, ""));
    ck_assert_int_eq(gguf_get_u64(p.g, "no", 5, 6, &n, &found, &e), STATUS_OK);
    ck_assert(!found && n == 1);
    ck_assert_int_eq(gguf_get_f64(p.g, "no", &x, &found, &e), STATUS_OK);
    ck_assert(!found && x == 1);
    ck_assert_int_eq(gguf_get_bool(p.g, "no", &yes, &found, &e), STATUS_OK);
    ck_assert(!found && yes);
    ck_assert_int_eq(gguf_get_text(p.g, "no", &s, &found, &e), STATUS_OK);
    ck_assert(!found && text_is(s, "as before"));
    ck_assert_int_eq(gguf_get_array(p.g, "no", GGUF_U8, &v, &found, &e), STATUS_OK);
    ck_assert(!found && v == NULL);
    expect_error(gguf_get_u64(p.g, "no", 5, 6, &n, NULL, &e), &e, "\"no\" is missing", "integer");
    expect_error(gguf_get_f64(p.g, "no", &x, NULL, &e), &e, "\"no\" is missing", "float");
    expect_error(gguf_get_bool(p.g, "no", &yes, NULL, &e), &e, "\"no\" is missing", "bool");
    expect_error(gguf_get_text(p.g, "no", &s, NULL, &e), &e, "\"no\" is missing", "string");
    expect_error(gguf_get_array(p.g, "no", GGUF_U8, &v, NULL, &e), &e, "\"no\" is missing",
                 "an array of u8");
    parsed_free(&p);
}

/* --- files --------------------------------------------------------------------------------- */

TEST(file_with_nothing_in_it)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_bytes b;
        image_begin(&b, version, 0, 0);
        struct parsed p = accept(&b);
        ck_assert_uint_eq(p.g->version, version);
        ck_assert_uint_eq(p.g->alignment, 32);
        ck_assert_uint_eq(p.g->n_pairs, 0);
        ck_assert_uint_eq(p.g->n_tensors, 0);
        ck_assert_ptr_null(gguf_find(p.g, "x"));
        ck_assert_ptr_null(gguf_find_tensor(p.g, "x"));
        parsed_free(&p);
    }
    gguf_free(NULL);
}

TEST(tensors_of_several_types_and_shapes)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 4, 0);
    image_tensor(&b, "f32", 2, (uint64_t[]){3, 2}, TENSOR_F32, 0);
    image_tensor(&b, "q8_0", 1, (uint64_t[]){64}, TENSOR_Q8_0, 32);
    image_tensor(&b, "q4_k", 3, (uint64_t[]){256, 1, 2}, 12, 128);
    image_tensor(&b, "bf16", 4, (uint64_t[]){1, 2, 3, 1}, TENSOR_BF16, 416);
    image_align(&b, 32);
    const size_t start = b.len;
    image_data(&b, 416 + 12); /* without the last padding */
    struct parsed p = accept(&b);
    static const uint64_t elements[] = {6, 64, 512, 6}, bytes[] = {24, 68, 288, 12};
    static const size_t offsets[] = {0, 32, 128, 416};
    static const char *const names[] = {"f32", "q8_0", "q4_k", "bf16"};
    for (int i = 0; i < 4; i++) {
        const struct gguf_tensor *t = gguf_find_tensor(p.g, names[i]);
        ck_assert_ptr_eq(t, &p.g->tensors[i]);
        ck_assert_uint_eq(t->n_elements, elements[i]);
        ck_assert_uint_eq(t->n_bytes, bytes[i]);
        ck_assert_ptr_eq(t->data, p.bytes + start + offsets[i]);
        ck_assert_int_eq(t->data[0], (unsigned char)(offsets[i] + 1));
    }
    ck_assert_int_eq(p.g->tensors[0].n_dims, 2);
    ck_assert_uint_eq(p.g->tensors[0].dims[0], 3);
    ck_assert_uint_eq(p.g->tensors[0].dims[1], 2);
    ck_assert_uint_eq(p.g->tensors[0].dims[2], 1);
    ck_assert_uint_eq(p.g->tensors[0].dims[3], 1);
    ck_assert_ptr_eq(p.g->tensors[2].type, tensor_type_named(text_of("q4_k")));
    parsed_free(&p);
}

/* llama.cpp wants tensors one after another in the order of their records; the format does not. */
TEST(tensors_in_any_order_with_gaps)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 3, 0);
    image_row(&b, "last", 8, TENSOR_F32, 128);
    image_row(&b, "first", 8, TENSOR_F32, 0);
    image_row(&b, "middle", 1, TENSOR_F32, 64);
    image_align(&b, 32);
    image_data(&b, 160 + 7); /* and something behind them */
    struct parsed p = accept(&b);
    ck_assert_int_eq(gguf_find_tensor(p.g, "last")->data[0], 129);
    ck_assert_int_eq(gguf_find_tensor(p.g, "first")->data[0], 1);
    ck_assert_int_eq(gguf_find_tensor(p.g, "middle")->data[0], 65);
    parsed_free(&p);
}

TEST(alignments)
{
    for (uint32_t alignment = 8; alignment <= 65536; alignment *= 2) {
        struct gguf_bytes b;
        image_begin(&b, 3, 2, 1);
        image_u32(&b, "general.alignment", alignment);
        image_row(&b, "a", 1, TENSOR_F32, 0);
        image_row(&b, "b", 1, TENSOR_F32, alignment);
        image_align(&b, alignment);
        const size_t start = b.len;
        image_data(&b, alignment + 4);
        struct parsed p = accept(&b);
        ck_assert_uint_eq(p.g->alignment, alignment);
        ck_assert_ptr_eq(p.g->tensors[1].data, p.bytes + start + alignment);
        parsed_free(&p);
    }
}

TEST(names_of_the_longest_lengths)
{
    char key[65536], name[65];
    memset(key, 'k', sizeof key - 1);
    memset(name, 'n', sizeof name - 1);
    key[sizeof key - 1] = name[64] = 0;
    struct gguf_bytes b;
    image_begin(&b, 3, 1, 1);
    image_u32(&b, key, 5);
    image_row(&b, name, 1, TENSOR_F32, 0);
    image_align(&b, 32);
    image_data(&b, 4);
    struct parsed p = accept(&b);
    ck_assert_ptr_nonnull(gguf_find(p.g, key));
    ck_assert_ptr_nonnull(gguf_find_tensor(p.g, name));
    parsed_free(&p);
}

/* Also the time: with a quadratic check for duplicates this takes minutes. */
TEST(many_names_are_found)
{
    enum { N = 200000 };
    struct gguf_bytes b;
    char name[32];
    image_begin(&b, 3, 0, N);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%u", i * 7919u);
        image_u32(&b, name, i);
    }
    struct parsed p = accept(&b);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%u", i * 7919u);
        const struct gguf_value *v = gguf_find(p.g, name);
        ck_assert_ptr_eq(v, &p.g->pairs[i].value);
    }
    ck_assert_ptr_null(gguf_find(p.g, "key.1"));
    parsed_free(&p);
}

/* Two names of the same FNV-1a hash: the index must compare the names too. */
TEST(names_of_one_hash_are_told_apart)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 3);
    image_u32(&b, "bcJ_gBzCapo", 1);
    image_u32(&b, "between", 2);
    image_u32(&b, "H8xXDOfaSuh", 3);
    struct parsed p = accept(&b);
    ck_assert_int_eq(gguf_int_at(gguf_find(p.g, "bcJ_gBzCapo"), 0), 1);
    ck_assert_int_eq(gguf_int_at(gguf_find(p.g, "H8xXDOfaSuh"), 0), 3);
    parsed_free(&p);

    image_begin(&b, 3, 0, 3);
    image_u32(&b, "H8xXDOfaSuh", 1);
    image_u32(&b, "bcJ_gBzCapo", 2);
    image_u32(&b, "H8xXDOfaSuh", 3);
    refuse(&b, "key \"H8xXDOfaSuh\"", "number 0 and 2");
}

TEST(golden_files)
{
    static const char *const paths[] = {"tests/data/golden/mha.gguf",
                                        "tests/data/golden/mqa-f16.gguf"};
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16};
    for (int i = 0; i < 2; i++) {
        size_t len;
        unsigned char *bytes = read_file(paths[i], &len);
        struct parsed p = parse_exactly(bytes, len);
        ck_assert_msg(p.status == STATUS_OK, "%s: %s", paths[i], p.err.text);
        ck_assert_uint_eq(p.g->n_pairs, 17);
        ck_assert_uint_eq(p.g->n_tensors, 29);
        struct text architecture;
        uint64_t n_layers;
        ck_assert_int_eq(gguf_get_text(p.g, "general.architecture", &architecture, NULL, NULL),
                         STATUS_OK);
        ck_assert(text_is(architecture, "gpt2"));
        ck_assert_int_eq(gguf_get_u64(p.g, "gpt2.block_count", 1, 99, &n_layers, NULL, NULL),
                         STATUS_OK);
        ck_assert_uint_eq(n_layers, 2);
        const struct gguf_tensor *t = gguf_find_tensor(p.g, "blk.1.ffn_up.weight");
        ck_assert_ptr_nonnull(t);
        ck_assert_uint_eq(t->type->type, types[i]);
        parsed_free(&p);
        free(bytes);
    }
}
