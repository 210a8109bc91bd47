/* The safetensors reader: what it takes, what it refuses and with which words. */
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "safetensors_find.h"
#include "support.h"

#define GOLDEN "tests/data/safetensors/every-type.safetensors"

/* A file of this header and so many bytes of data, 0, 1, 2, ..., in memory of its own without an
 * end, so that a read past it is caught. */
static unsigned char *make_file(const char *header, size_t n_data, size_t *len)
{
    const size_t n_header = strlen(header);
    *len = 8 + n_header + n_data;
    unsigned char *bytes = allocated(*len);
    little_store(bytes, n_header, 8);
    memcpy(bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        bytes[8 + n_header + i] = (unsigned char)i;
    return bytes;
}

static void refused(const void *bytes, size_t len, const char *message)
{
    struct safetensors s;
    ck_assert_int_eq(safetensors_parse(bytes, len, &s, &err), STATUS_BAD_FILE);
    safetensors_free(&s);
    ck_assert_str_eq(err.text, message);
}

static struct safetensors *parsed(const unsigned char *bytes, size_t len)
{
    static struct safetensors s;
    expect_ok(safetensors_parse(bytes, len, &s, &err));
    return &s;
}

static void is_tensor(const struct safetensors_tensor *t, const char *name, const char *dtype,
                      int n_dims, const uint64_t *dims, const unsigned char *data)
{
    ck_assert(t && text_is(t->name, name));
    ck_assert_str_eq(t->dtype->name, dtype);
    ck_assert_int_eq(t->n_dims, n_dims);
    for (int d = 0; d < SAFETENSORS_MAX_DIMS; d++)
        ck_assert_uint_eq(t->dims[d], d < n_dims ? dims[d] : 1);
    ck_assert_ptr_eq(t->data, data);
}

/* The library's file, of every type: sizes, and the first byte, which counts the types. */
TEST(every_type)
{
    static const struct {
        const char *name, *dtype;
        unsigned size;
        int type;
    } types[] = {{"bool", "BOOL", 1, -1},
                 {"u8", "U8", 1, -1},
                 {"i8", "I8", 1, -1},
                 {"e5m2", "F8_E5M2", 1, -1},
                 {"e4m3", "F8_E4M3", 1, -1},
                 {"e8m0", "F8_E8M0", 1, -1},
                 {"e4m3fnuz", "F8_E4M3FNUZ", 1, -1},
                 {"e5m2fnuz", "F8_E5M2FNUZ", 1, -1},
                 {"i16", "I16", 2, -1},
                 {"u16", "U16", 2, -1},
                 {"f16", "F16", 2, TENSOR_F16},
                 {"bf16", "BF16", 2, TENSOR_BF16},
                 {"i32", "I32", 4, -1},
                 {"u32", "U32", 4, -1},
                 {"f32", "F32", 4, TENSOR_F32},
                 {"c64", "C64", 8, -1},
                 {"f64", "F64", 8, -1},
                 {"i64", "I64", 8, -1},
                 {"u64", "U64", 8, -1}};
    static const struct {
        const char *prefix;
        int n_dims;
        uint64_t dims[4];
        unsigned n;
        bool fifths; /* of every fifth type only */
    } shapes[] = {{"a.", 0, {0}, 1, false},
                  {"b.", 2, {2, 3}, 6, false},
                  {"c.", 4, {1, 2, 1, 2}, 4, true},
                  {"é.", 3, {3, 0, 2}, 0, true}};
    size_t len;
    const char *bytes = file_text(GOLDEN, &len);
    struct safetensors *s = parsed((const unsigned char *)bytes, len);
    ck_assert_uint_eq(s->n_tensors, 19 * 3 + 4 * 2);
    for (unsigned i = 0; i < COUNT(types); i++) {
        for (unsigned k = 0; k < COUNT(shapes); k++) {
            char name[32];
            snprintf(name, sizeof name, "%s%s", shapes[k].prefix, types[i].name);
            const struct safetensors_tensor *t = safetensors_find(s, text_of(name));
            if (shapes[k].fifths && i % 5 != 0) {
                ck_assert_ptr_null(t);
                continue;
            }
            ck_assert_ptr_nonnull(t);
            is_tensor(t, name, types[i].dtype, shapes[k].n_dims, shapes[k].dims, t->data);
            ck_assert_int_eq(t->dtype->type, types[i].type);
            ck_assert_uint_eq(t->n_bytes, shapes[k].n * types[i].size);
            for (unsigned b = 0; b < t->n_bytes; b++)
                ck_assert_uint_eq(t->data[b], i == 0 ? (i + b) % 2 : i + b);
        }
        if (types[i].type >= 0)
            ck_assert_str_eq(safetensors_dtype_of((enum tensor_type)types[i].type)->name,
                             types[i].dtype);
    }
    ck_assert_ptr_null(safetensors_dtype_of(TENSOR_Q8_0));
    safetensors_free(s);
}

TEST(any_order_and_white_space)
{
    static const char header[] =
        " {\"b\":{\"data_offsets\":[4,12],\"note\":[[{}]],\"shape\":[1,2],\"dtype\":\"F32\"},\n"
        "\"__metadata__\" : {\"format\":\"pt\",\"\":\"\"} ,"
        "\"\\u0061\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
        "\"z\":{\"dtype\":\"I64\",\"shape\":[1152921504606846976,0],\"data_offsets\":[4,4]},"
        "\"\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[12,12]},"
        "\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}\t\r\n ";
    static const uint64_t dims[][2] = {{2}, {UINT64_C(1) << 60, 0}, {1, 2}, {0}};
    size_t len;
    unsigned char *bytes = make_file(header, 13, &len), *data = bytes + 8 + strlen(header);
    struct safetensors *s = parsed(bytes, len);
    ck_assert_uint_eq(s->n_tensors, 5);
    ck_assert_uint_eq(s->head_bytes, len - 13);
    is_tensor(&s->tensors[0], "a", "BF16", 1, dims[0], data);
    is_tensor(&s->tensors[1], "z", "I64", 2, dims[1], data + 4);
    is_tensor(&s->tensors[2], "b", "F32", 2, dims[2], data + 4);
    is_tensor(&s->tensors[3], "", "F64", 1, dims[3], data + 12);
    ck_assert(text_equal(s->tensors[4].name, (struct text){"a\0", 2}) && s->tensors[4].n_dims == 0);
    for (size_t i = 0; i < 5; i++)
        ck_assert_ptr_eq(safetensors_find(s, s->tensors[i].name), &s->tensors[i]);
    ck_assert(!safetensors_find(s, text_of("c")) && !safetensors_find(s, text_of("__metadata__")));
    safetensors_free(s);
    bytes = make_file("{}", 0, &len);
    s = parsed(bytes, len);
    ck_assert(s->n_tensors == 0 && !safetensors_find(s, text_of("")));
    safetensors_free(s);
    safetensors_free(s);
}

#define A(rest)        "{\"a\":{" rest "}}"
#define OF(type, dims) "\"dtype\":\"" type "\",\"shape\":" dims ",\"data_offsets\":"
#define F32(dims)      OF("F32", dims)

static const struct {
    const char *header;
    size_t n_data;
    const char *message;
} bad[] = {
    {"{", 0, "the header: JSON at byte 1: expected a key in quotes, found the end"},
    {"[]", 0, "the header: the value at byte 0: expected an object, found an array"},
    {"{\"__metadata__\":null}", 0, "\"__metadata__\" at byte 1: expected an object, found null"},
    {"{\"__metadata__\":{\"a\":\"b\",\"n\":1}}", 0, "\"n\" at byte 25: expected a string, found 1"},
    {"{\"a\":1}", 0, "tensor \"a\": \"a\" at byte 1: expected an object, found 1"},
    {"{\"\\u001b[1m\":[]}", 0,
     "tensor \"?[1m\": \"?[1m\" at byte 1: expected an object, found an array"},
    /* fields */
    {A("\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "tensor \"a\": the object at byte 1: expected \"dtype\", a string, found no such key"},
    {A("\"dtype\":\"F32\",\"shape\":[1]"), 4,
     "tensor \"a\": the object at byte 1: expected \"data_offsets\", an array, found no such key"},
    {A("\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4,
     "tensor \"a\": \"dtype\" at byte 6: expected a string, found 32"},
    {A(OF("f32", "[1]") "[0,4]"), 4,
     "tensor \"a\": \"dtype\" at byte 6: expected F32, F16, BF16 or another type of safetensors "
     "0.8, found \"f32\""},
    {A(F32("4") "[0,4]"), 4, "tensor \"a\": \"shape\" at byte 20: expected an array, found 4"},
    {A(F32("[1,1,1,1,1,1,1,1,1]") "[0,4]"), 4,
     "tensor \"a\": \"shape\" at byte 20: expected at most 8, found 9"},
#define WHOLE                                                                                      \
    "tensor \"a\": the value at byte 29: expected a whole number from 0 to 18446744073709551615, " \
    "found "
    {A(F32("[-1]") "[0,4]"), 4, WHOLE "-1, which is out of range"},
    {A(F32("[1.0]") "[0,4]"), 4, WHOLE "1.0, which is not whole"},
/* places */
#define WITHIN                                                                                     \
    "tensor \"a\": \"data_offsets\": expected a beginning and an end within the 4 bytes of data, " \
    "found "
#define CORRUPT "; the file is truncated or corrupt"
    {A(F32("[1]") "[0]"), 4, WITHIN "0 and 0" CORRUPT},
    {A(F32("[1]") "[0,4,4]"), 4,
     "tensor \"a\": \"data_offsets\" at byte 32: expected at most 2, found 3"},
    {A(F32("[1]") "[4,8]"), 4, WITHIN "4 and 8" CORRUPT},
    {A(F32("[1]") "[0,5]"), 4, WITHIN "0 and 5" CORRUPT},
    {A(F32("[1]") "[18446744073709551612,18446744073709551615]"), 4,
     WITHIN "18446744073709551612 and 18446744073709551615" CORRUPT},
#define SHAPE(type, found)                                                                         \
    "tensor \"a\": expected the whole bytes of its shape in " type ", below 2^61, found " found
    {A(F32("[1]") "[1,4]"), 4, SHAPE("F32", "3")},
    {A(OF("BF16", "[1,3]") "[0,12]"), 12, SHAPE("BF16", "12")},
    {A(F32("[4294967296,4294967296]") "[0,4]"), 4, SHAPE("F32", "4")},
    {A(F32("[576460752303423488]") "[0,0]"), 0, SHAPE("F32", "0")}, /* 2^59 elements of 32 bits */
    {A(OF("F4", "[3]") "[0,1]"), 1, SHAPE("F4", "1")},
    {A(OF("F6_E2M3", "[2,3]") "[0,4]"), 4, SHAPE("F6_E2M3", "4")},
/* together */
#define PLACE(name, at, found)                                                                     \
    "tensor \"" name "\": expected its data at byte " at                                           \
    ", behind those before, without a hole or an overlap, found them at byte " found
    {"{\"a\":{" F32("[1]") "[0,4]},\"b\":{" F32("[1]") "[8,12]}}", 12, PLACE("b", "4", "8")},
    {"{\"b\":{" F32("[2]") "[4,12]},\"a\":{" F32("[2]") "[0,8]}}", 12, PLACE("b", "8", "4")},
    {"{\"a\":{" F32("[1]") "[0,4]},\"b\":{" F32("[1]") "[0,4]}}", 4, PLACE("b", "4", "0")},
    {"{\"a\":{" F32("[2]") "[0,8]},\"b\":{" F32("[0]") "[4,4]}}", 8, PLACE("b", "8", "4")},
    {A(F32("[1]") "[1,5]"), 5, PLACE("a", "0", "1")},
    {A(F32("[1]") "[0,4]"), 5,
     "expected the file to end with the last tensor's data, found 1 bytes more"},
};

TEST(bad_headers)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        size_t len;
        const unsigned char *bytes = make_file(bad[i].header, bad[i].n_data, &len);
        refused(bytes, len, bad[i].message);
    }
}

TEST(bad_lengths)
{
    static const uint64_t lengths[] = {3, 100000001, UINT64_C(1) << 60, UINT64_MAX};
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:12\n";
    char message[256];
    size_t len;
    unsigned char *bytes = make_file("{}", 0, &len);
    for (size_t i = 0; i < COUNT(lengths); i++) {
        little_store(bytes, lengths[i], 8);
        snprintf(message, sizeof message,
                 "the header's length at byte 0: expected at most 2, found %llu; the file is "
                 "truncated, or not a safetensors file",
                 (unsigned long long)lengths[i]);
        refused(bytes, len, message);
    }
    refused(bytes, 7, "expected a safetensors file, 8 bytes or more, found 7 bytes");
    refused(NULL, 0, "expected a safetensors file, 8 bytes or more, found 0 bytes");
    refused(pointer, strlen(pointer),
            "expected a safetensors file, found a Git LFS pointer; fetch the file it stands for");
    /* Never touched: the system gives no memory for it. */
    len = 100000100;
    bytes = released_by(free, calloc(len, 1));
    little_store(bytes, 100000001, 8);
    refused(bytes, len,
            "the header's length at byte 0: expected at most 100000000, found 100000001; the file "
            "is truncated, or not a safetensors file");
}

/* A million numbers, which would be memory for nothing. */
TEST(too_many_values)
{
    enum { N = 1 << 20 };
    char *header = allocated_zeros(2 * (size_t)N + 16);
    memcpy(header, "{\"a\":[", 6);
    for (size_t i = 0; i < N; i++)
        memcpy(header + 6 + 2 * i, "0,", 2);
    size_t len;
    const unsigned char *bytes = make_file(header, 0, &len);
    refused(bytes, len,
            "the header: JSON at byte 2097154: expected at most 1048576 values, found more");
}

TEST(every_beginning_is_refused)
{
    size_t len;
    const char *bytes = file_text(GOLDEN, &len);
    for (size_t n = 0; n < len; n++) {
        struct safetensors s;
        unsigned char *copy = memcpy(malloc(n + !n), bytes, n);
        expect_status(safetensors_parse(copy, n, &s, &err), STATUS_BAD_FILE, "");
        safetensors_free(&s);
        free(copy);
    }
}
