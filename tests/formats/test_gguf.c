/* Tests of reading sound files: every kind, array and tensor type, lookups, and unusual files that
 * are accepted. (test_gguf_bad.c has files that are refused.) */
#include <stdio.h>

#include "formats/gguf_values.h"
#include "gguf_image.h"

TEST(kind_names)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    for (int i = -1; i < 14; i++)
        ck_assert_str_eq(gguf_kind_name((enum gguf_kind)i), i < 0 || i > 12 ? "unknown" : names[i]);
}

TEST(tensor_types_by_number_and_name)
{
    static const struct tensor_type_info some[] = {
        {"F32", 0, 1, 4},    {"F16", 1, 1, 2},       {"Q4_0", 2, 32, 18},    {"Q4_1", 3, 32, 20},
        {"Q8_0", 8, 32, 34}, {"Q4_K", 12, 256, 144}, {"Q6_K", 14, 256, 210}, {"F64", 28, 1, 8},
        {"BF16", 30, 1, 2},  {"MXFP4", 39, 32, 17},
    };
    for (size_t i = 0; i < COUNT(some); i++) {
        const struct tensor_type_info *t = tensor_type_find(some[i].type);
        ck_assert(t && strcmp(t->name, some[i].name) == 0);
        ck_assert_uint_eq(t->block_elements, some[i].block_elements);
        ck_assert_uint_eq(t->block_bytes, some[i].block_bytes);
        ck_assert_ptr_eq(tensor_type_named(text_of(some[i].name)), t);
    }
    ck_assert_ptr_eq(tensor_type_named(text_of("q8_0")), tensor_type_find(TENSOR_Q8_0));
    ck_assert(!tensor_type_named(text_of("q8_")) && !tensor_type_named(text_of("q8_00")));
    ck_assert_ptr_null(tensor_type_find(4));
    for (uint32_t type = 0; type < 64; type++) {
        const struct tensor_type_info *t = tensor_type_find(type);
        ck_assert(!t || (t->type == type && t->block_elements >= 1 && t->block_bytes >= 1));
    }
}

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
    {"f32", GGUF_F32, 4, 0xc0200000, 0, -2.5},
    {"f64", GGUF_F64, 8, 0x4002000000000000, 0, 2.25},
    {"f64 large", GGUF_F64, 8, 0x7fe0000000000000, 0, 0x1p1023},
    {"bool", GGUF_BOOL, 1, 1, 1, 1},
    {"bool 2", GGUF_BOOL, 1, 2, 2, 2},
};

/* Each number stands alone, and in an array between two zeros. */
TEST(numbers_of_every_kind)
{
    struct gguf_bytes b = {0};
    image_add(&b, "GGUF 3 0L ?", 2 * COUNT(numbers) + 1);
    for (size_t i = 0; i < 2 * COUNT(numbers); i++) {
        const struct number *n = &numbers[i / 2];
        char key[32];
        snprintf(key, sizeof key, "%s%s", n->key, i % 2 ? "s" : "");
        gb_put_text(&b, text_of(key));
        if (i % 2) {
            image_add(&b, "9", 0);
            gb_put_u32(&b, n->kind);
            gb_put_u64(&b, 3);
            gb_put(&b, &(uint64_t){0}, (size_t)n->bytes);
        } else {
            gb_put_u32(&b, n->kind);
        }
        gb_put(&b, &n->bits, (size_t)n->bytes);
        if (i % 2)
            gb_put(&b, &(uint64_t){0}, (size_t)n->bytes);
    }
    image_add(&b, "'empty' 9 6 0L", 0);
    struct gguf_file p = accept(&b);
    for (size_t i = 0; i < 2 * COUNT(numbers); i++) {
        const struct number *n = &numbers[i / 2];
        const struct gguf_value *v = &p.g->pairs[i].value;
        const uint64_t at = i % 2;
        ck_assert_int_eq(at ? v->element_kind : v->kind, n->kind);
        ck_assert(at ? v->kind == GGUF_ARRAY : gguf_find(p.g, n->key) == v);
        ck_assert_uint_eq(v->count, at ? 3 : 1);
        ck_assert(!at || (gguf_float_at(v, 0) == 0 && gguf_float_at(v, 2) == 0));
        if (n->kind != GGUF_F32 && n->kind != GGUF_F64)
            ck_assert_int_eq(gguf_int_at(v, at), n->as_int);
        ck_assert_double_eq(gguf_float_at(v, at), n->as_float);
    }
    ck_assert(gguf_find(p.g, "empty")->count == 0 && gguf_find(p.g, "empty")->bytes.len == 0);
}

TEST(strings_and_their_arrays)
{
    static const struct text words[] = {{"", 0}, {"a\0b", 3}, {"\xff\xfe", 2}, {"long enough", 11}};
    struct gguf_bytes b = image("GGUF 3 0L 3L 's' 8");
    gb_put_text(&b, words[1]);
    image_add(&b, "'words' 9 8 4L", 0);
    for (int i = 0; i < 4; i++)
        gb_put_text(&b, words[i]);
    image_add(&b, "'none' 9 8 0L", 0);
    struct gguf_file p = accept(&b);

    struct text s;
    expect_ok(gguf_get_text(p.g, "s", &s, NULL, NULL));
    ck_assert(text_equal(s, words[1]));
    const struct gguf_value *v;
    expect_ok(gguf_get_array(p.g, "words", GGUF_STRING, &v, NULL, NULL));
    struct gguf_cursor c = {0};
    for (int i = 0; i < 4; i++)
        ck_assert(gguf_next_text(v, &c, &s) && text_equal(s, words[i]));
    ck_assert(!gguf_next_text(v, &c, &s) && !gguf_next_text(v, &c, &s));
    c = (struct gguf_cursor){0};
    ck_assert(!gguf_next_text(gguf_find(p.g, "none"), &c, &s));
    ck_assert(!gguf_next_text(gguf_find(p.g, "s"), &c, &s));
}

/* Returns what a lookup finds, as a text, or its message. 'u' looks for a u64 from 0 to 7, 'U' for
 * any, 'f', 'b' and 's' for a float, a bool and a string, 'a' for an array of u32, 'A' for one of
 * strings. A variable keeps its value if nothing is found. */
TEST(lookups)
{
    static const struct {
        char kind;
        const char *key, *found, *refused; /* one of them is NULL */
    } cases[] = {{'u', "seven", "7", NULL},
                 {'U', "huge", "18446744073709551615", NULL},
                 {'f', "half", "0.5", NULL},
                 {'f', "double", "0.25", NULL},
                 {'b', "yes", "1", NULL},
                 {'b', "two", "1", NULL}, /* no bool to the specification, but true */
                 {'s', "word", "text", NULL},
                 {'u', "eight", NULL, "eight|expected 0 to 7, found 8"},
                 {'u', "minus", NULL, "minus|found -1"},
                 {'u', "yes", NULL, "yes|found bool"},
                 {'u', "half", NULL, "half|found f32"},
                 {'u', "word", NULL, "word|found string"},
                 {'u', "list", NULL, "list|array of u8"},
                 {'f', "seven", NULL, "seven|found u32"},
                 {'f', "yes", NULL, "yes|expected f32 or f64"},
                 {'b', "seven", NULL, "seven|found u32"},
                 {'s', "half", NULL, "half|expected string, found f32"},
                 {'a', "seven", NULL, "seven|expected an array of u32, found u32"},
                 {'A', "list", NULL, "list|expected an array of string, found an array of u8"},
                 {'u', "no", NULL, "\"no\" is missing|integer"},
                 {'f', "no", NULL, "\"no\" is missing|f32"},
                 {'b', "no", NULL, "\"no\" is missing|bool"},
                 {'s', "no", NULL, "\"no\" is missing|string"},
                 {'a', "no", NULL, "\"no\" is missing|an array of u32"}};
    struct gguf_bytes b = image("GGUF 3 0L 10L 'seven' 4 7 'minus' 1 255b 'half' 6 0x3f000000 "
                                "'yes' 7 1b 'two' 7 2b 'word' 8 'text' 'list' 9 0 2L 1b 2b "
                                "'double' 12 0x3fd0000000000000L 'huge' 10 -1L 'eight' 4 8");
    struct gguf_file p = accept(&b);
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        const char kind = cases[i / 2].kind, *key = cases[i / 2].key;
        const bool there = strcmp(key, "no") != 0;
        bool found = !there, *asked = i % 2 ? &found : NULL, yes = false;
        uint64_t n = 99;
        double x = 99;
        struct text s = {"as before", 9};
        const struct gguf_value *v = NULL;
        const enum status status =
            kind == 'u'   ? gguf_get_u64(p.g, key, 0, 7, &n, asked, &err)
            : kind == 'U' ? gguf_get_u64(p.g, key, 0, UINT64_MAX, &n, asked, &err)
            : kind == 'f' ? gguf_get_f64(p.g, key, &x, asked, &err)
            : kind == 'b' ? gguf_get_bool(p.g, key, &yes, asked, &err)
            : kind == 's'
                ? gguf_get_text(p.g, key, &s, asked, &err)
                : gguf_get_array(p.g, key, kind == 'a' ? GGUF_U32 : GGUF_STRING, &v, asked, &err);
        if (cases[i / 2].found) {
            char text[32];
            expect_ok(status);
            if (kind == 'f')
                snprintf(text, sizeof text, "%g", x);
            else if (kind == 's')
                snprintf(text, sizeof text, "%.*s", (int)s.len, s.data);
            else
                snprintf(text, sizeof text, "%llu", kind == 'b' ? yes : (unsigned long long)n);
            ck_assert_str_eq(text, cases[i / 2].found);
        } else {
            expect_status(status, asked && !there ? STATUS_OK : STATUS_BAD_FILE,
                          cases[i / 2].refused);
            ck_assert(n == 99 && x == 99 && !yes && text_is(s, "as before") && !v);
        }
        ck_assert(!asked || status || found == there);
    }
}

TEST(file_with_nothing_in_it)
{
    static const char *const files[] = {"GGUF 2 0L 0L", "GGUF 3 0L 0L"};
    for (uint32_t i = 0; i < 2; i++) {
        struct gguf_bytes b = image(files[i]);
        const struct gguf_file p = accept(&b);
        ck_assert(p.g->version == 2 + i && p.g->alignment == 32);
        ck_assert(p.g->n_pairs == 0 && p.g->n_tensors == 0);
        ck_assert(!gguf_find(p.g, "x") && !gguf_find_tensor(p.g, "x"));
    }
    gguf_free(NULL);
}

TEST(tensors_of_several_types_and_shapes)
{
    struct gguf_bytes b = image("GGUF 3 4L 0L 'f32' 2 3L 2L 0 0L 'q8_0' 1 64L 8 32L "
                                "'q4_k' 3 256L 1L 2L 12 128L 'bf16' 4 1L 2L 3L 1L 30 416L /32");
    const size_t start = b.len;
    image_add(&b, "*428", 0); /* without the last padding */
    struct gguf_file p = accept(&b);
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
    ck_assert_mem_eq(p.g->tensors[0].dims, ((const uint64_t[4]){3, 2, 1, 1}), 32);
    ck_assert_ptr_eq(p.g->tensors[2].type, tensor_type_named(text_of("q4_k")));
}

/* llama.cpp wants tensors one after another in the order of their records; the format does not. */
TEST(tensors_in_any_order_with_gaps)
{
    struct gguf_bytes b = image("GGUF 3 3L 0L 'last' 1 8L 0 128L 'first' 1 8L 0 0L "
                                "'middle' 1 1L 0 64L /32 *167"); /* and 7 bytes behind them */
    struct gguf_file p = accept(&b);
    ck_assert_int_eq(gguf_find_tensor(p.g, "last")->data[0], 129);
    ck_assert_int_eq(gguf_find_tensor(p.g, "first")->data[0], 1);
    ck_assert_int_eq(gguf_find_tensor(p.g, "middle")->data[0], 65);
}
