/* Bad files: each is refused, with a message that names where and what. Their tensors are in
 * test_gguf_bad_tensors.c. */
#include <stdio.h>

#include "gguf_image.h"

/* A small good file with a bit of everything; 24 bytes of header, then the keys. */
static void sample(struct gguf_bytes *b)
{
    image_begin(b, 3, 2, 4);
    image_u32(b, "general.alignment", 16);
    image_key(b, "name", GGUF_STRING);
    gb_put_text(b, text_of("a name"));
    image_key(b, "words", GGUF_ARRAY);
    gb_put_u32(b, GGUF_STRING);
    gb_put_u64(b, 2);
    gb_put_text(b, text_of("one"));
    gb_put_text(b, text_of(""));
    image_key(b, "list", GGUF_ARRAY);
    gb_put_u32(b, GGUF_I16);
    gb_put_u64(b, 3);
    gb_put(b, "\1\0\2\0\3\0", 6);
    image_tensor(b, "first", 2, (uint64_t[]){3, 2}, TENSOR_F32, 0);
    image_row(b, "second", 32, TENSOR_Q8_0, 32);
    image_align(b, 16);
    image_data(b, 32 + 34);
}

/* The same with `len` bytes at `at` replaced. */
static void patched(struct gguf_bytes *b, size_t at, const void *bytes, size_t len)
{
    sample(b);
    ck_assert_uint_le(at + len, b->len);
    memcpy(b->data + at, bytes, len);
}

/* --- class 1: short files ------------------------------------------------------------------ */

TEST(empty_file)
{
    struct gguf_bytes b = {0};
    refuse(&b, "empty", "expected a GGUF file");
    struct gguf *g;
    struct err e;
    ck_assert_int_eq(gguf_parse(NULL, 0, &g, &e), STATUS_BAD_FILE);
    ck_assert_ptr_null(g);
    ck_assert_int_eq(gguf_parse(NULL, 0, &g, NULL), STATUS_BAD_FILE);
}

TEST(header_cut_short)
{
    static const char *const fields[] = {"magic", "version", "tensor count", "key count"};
    static const size_t ends[] = {4, 8, 16, 24};
    size_t field = 0;
    for (size_t len = 1; len < 24; len++) {
        struct gguf_bytes b;
        image_begin(&b, 3, 0, 0);
        b.len = len;
        while (len >= ends[field])
            field++;
        refuse(&b, fields[field], "truncated");
    }
}

TEST(every_prefix_of_a_good_file)
{
    struct gguf_bytes b;
    sample(&b);
    for (size_t len = 0; len < b.len; len++) {
        struct parsed p = parse_exactly(b.data, len);
        ck_assert_msg(p.status == STATUS_BAD_FILE, "%zu of %zu bytes were accepted", len, b.len);
        ck_assert_ptr_null(p.g);
        ck_assert_msg(len == 0 || strstr(p.err.text, "truncated"), "%zu bytes: %s", len,
                      p.err.text);
        parsed_free(&p);
    }
    struct parsed p = accept(&b);
    parsed_free(&p);
}

TEST(prefixes_of_a_golden_file)
{
    size_t len;
    struct gguf_bytes b = {.data = read_file("tests/data/golden/mha.gguf", &len)};
    for (size_t cut = 0; cut < len; cut += cut < 8000 ? 1 : 4999) {
        struct parsed p = parse_exactly(b.data, cut);
        ck_assert_int_eq(p.status, STATUS_BAD_FILE);
        parsed_free(&p);
        b.len = cut;
    }
    refuse(&b, "its data at byte", "truncated: download it again");
}

static uint64_t read_everything(const struct gguf *g)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct gguf_value *v = &g->pairs[i].value;
        for (size_t k = 0; k < g->pairs[i].key.len; k++)
            sum += (unsigned char)g->pairs[i].key.data[k];
        for (size_t k = 0; k < v->bytes.len; k++)
            sum += (unsigned char)v->bytes.data[k];
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        for (uint64_t k = 0; k < g->tensors[i].n_bytes; k++)
            sum += g->tensors[i].data[k];
    return sum;
}

TEST(every_bit_and_byte_flipped)
{
    struct gguf_bytes b;
    sample(&b);
    size_t good = 0, bad = 0;
    uint64_t sum = 0;
    for (size_t at = 0; at < b.len; at++) {
        for (int flip = 0; flip < 10; flip++) {
            const unsigned char before = b.data[at];
            b.data[at] = (unsigned char)(flip < 8 ? before ^ 1 << flip : flip < 9 ? ~before : 0x80);
            struct parsed p = parse_exactly(b.data, b.len);
            ck_assert(p.status == STATUS_OK || p.status == STATUS_BAD_FILE);
            ck_assert((p.g != NULL) == (p.status == STATUS_OK));
            ck_assert(p.status == STATUS_OK || p.err.text[0]);
            if (p.g)
                sum += read_everything(p.g);
            good += p.g != NULL;
            bad += p.g == NULL;
            parsed_free(&p);
            b.data[at] = before;
        }
    }
    ck_assert_uint_gt(good, 500);
    ck_assert_uint_gt(bad, 500);
    ck_assert(sum != 0);
    free(b.data);
}

/* --- class 2: magic and version ------------------------------------------------------------ */

TEST(magic_of_other_formats)
{
    static const char *const starts[][2] = {
        {"FUGG", "byte-swapped"},
        {"tjgg", "before GGUF"},
        {"fmgg", "before GGUF"},
        {"lmgg", "before GGUF"},
        {"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"},
        {"PK\3\4 and more", "zip archive"},
        {"<!DOCTYPE html>", "web page"},
        {"gguf", "not a GGUF file"},
        {"GGUE", "found bytes 47 47 55 45"},
        {"\x1b[2J....", "found bytes 1b 5b 32 4a"},
    };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        struct gguf_bytes b = {0};
        gb_put(&b, starts[i][0], strlen(starts[i][0]));
        refuse(&b, "magic at byte 0", starts[i][1]);
    }
}

TEST(versions)
{
    static const struct {
        uint32_t version;
        const char *hint;
    } cases[] = {
        {0, "corrupt"},
        {1, "early version"},
        {4, "newer than this program"},
        {0x03000000, "byte-swapped"},
        {0x02000000, "byte-swapped"},
        {UINT32_MAX, "newer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_bytes b;
        patched(&b, 4, &cases[i].version, 4);
        refuse(&b, "version at byte 4: expected 2 or 3", cases[i].hint);
    }
}

/* --- class 3: counts ----------------------------------------------------------------------- */

static const uint64_t impossible[] = {100000,     1ull << 31,     (1ull << 32) + 1,    INT64_MAX,
                                      1ull << 63, UINT64_MAX - 7, UINT64_MAX / 14 + 1, UINT64_MAX};

#define N_IMPOSSIBLE (sizeof impossible / sizeof impossible[0])

TEST(counts_that_cannot_be)
{
    struct gguf_bytes b;
    for (size_t i = 0; i < N_IMPOSSIBLE; i++) {
        char found[32];
        snprintf(found, sizeof found, "is %llu,", (unsigned long long)impossible[i]);
        patched(&b, 8, &impossible[i], 8);
        refuse(&b, "tensor count at byte 8", found);
        patched(&b, 16, &impossible[i], 8);
        refuse(&b, "key count at byte 16", found);
    }
}

/* What follows is then read as something else, which fails sooner or later. */
TEST(counts_off_by_one)
{
    struct gguf_bytes b;
    patched(&b, 8, &(uint64_t){3}, 8);
    refuse(&b, "tensor 2", "byte");
    patched(&b, 16, &(uint64_t){5}, 8);
    refuse(&b, "tensor 0: name of the tensor at byte", "truncated");
    patched(&b, 16, &(uint64_t){3}, 8);
    refuse(&b, "tensor 0 \"list\"", "dimensions");
}

TEST(count_without_anything_after_it)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    refuse(&b, "key count", "at most 0");
    image_begin(&b, 2, 1, 0);
    refuse(&b, "tensor count", "at most 0");
}

/* --- class 4: strings ---------------------------------------------------------------------- */

TEST(key_lengths_that_cannot_be)
{
    struct gguf_bytes b;
    for (size_t i = 0; i < N_IMPOSSIBLE; i++) {
        patched(&b, 24, &impossible[i], 8);
        refuse(&b, "key 0: name of the key at byte 32", "truncated");
    }
    sample(&b);
    const uint64_t one_too_many = b.len - 32 + 1;
    memcpy(b.data + 24, &one_too_many, 8);
    refuse(&b, "key 0: name of the key at byte 32", "truncated");
}

TEST(empty_key)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_u32(&b, "", 1);
    gb_put(&b, "", 1); /* as long as the smallest pair */
    refuse(&b, "key 0: length of the key's name at byte 24", "expected 1 to 65535, found 0");
}

TEST(key_of_64_kib)
{
    char key[65537];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_u32(&b, key, 1);
    refuse(&b, "key 0 \"kkk", "expected 1 to 65535, found 65536");
}

TEST(string_lengths_that_cannot_be)
{
    for (size_t i = 0; i < N_IMPOSSIBLE; i++) {
        struct gguf_bytes b;
        image_begin(&b, 3, 0, 1);
        image_key(&b, "text", GGUF_STRING);
        gb_put_u64(&b, impossible[i]);
        gb_put(&b, "abc", 3);
        refuse(&b, "key 0 \"text\": string at byte 48", "found 3 more");
        image_begin(&b, 3, 0, 1);
        image_key(&b, "texts", GGUF_ARRAY);
        gb_put_u32(&b, GGUF_STRING);
        gb_put_u64(&b, 2);
        gb_put_text(&b, text_of("fine"));
        gb_put_u64(&b, impossible[i]);
        gb_put(&b, "abc", 3);
        refuse(&b, "key 0 \"texts\": string in the array at byte 73", "found 3 more");
    }
}

TEST(control_bytes_in_names_do_not_reach_the_message)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "\x1b[31m\r\n\x7f", 77);
    refuse(&b, "key 0 \"?[31m???\"", "value type");
}

/* --- class 5: types of values -------------------------------------------------------------- */

TEST(value_types_that_do_not_exist)
{
    static const uint32_t kinds[] = {13, 255, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        char found[32];
        snprintf(found, sizeof found, "found %u;", kinds[i]);
        struct gguf_bytes b;
        image_begin(&b, 3, 0, 1);
        image_key(&b, "odd", kinds[i]);
        gb_put_u64(&b, 0);
        refuse(&b, "key 0 \"odd\": value type at byte 35", found);
        image_begin(&b, 3, 0, 1);
        image_key(&b, "odd", GGUF_ARRAY);
        gb_put_u32(&b, kinds[i]);
        gb_put_u64(&b, 0);
        refuse(&b, "key 0 \"odd\": array element type at byte 39", found);
    }
}

TEST(arrays_of_arrays_10000_deep)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "deep", GGUF_ARRAY);
    for (int i = 0; i < 10000; i++) {
        gb_put_u32(&b, GGUF_ARRAY);
        gb_put_u64(&b, 1);
    }
    refuse(&b, "key 0 \"deep\"", "nested arrays");
}

TEST(array_lengths_that_cannot_be)
{
    static const uint32_t kinds[] = {GGUF_U8, GGUF_I16, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_F64};
    for (size_t k = 0; k < 6; k++) {
        for (size_t i = 0; i < N_IMPOSSIBLE; i++) {
            struct gguf_bytes b;
            image_begin(&b, 3, 0, 1);
            image_key(&b, "list", GGUF_ARRAY);
            gb_put_u32(&b, kinds[k]);
            gb_put_u64(&b, impossible[i]);
            gb_put_u64(&b, 0);
            refuse(&b, "key 0 \"list\": array length", "truncated");
        }
    }
}

/* 2^62 * 4 is 0 in 64 bits. */
TEST(array_bytes_that_wrap_to_0)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "list", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_U32);
    gb_put_u64(&b, 1ull << 62);
    refuse(&b, "\"list\"", "array length is 4611686018427387904");
}

/* --- class 6: keys ------------------------------------------------------------------------- */

TEST(duplicate_keys)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 4);
    image_u32(&b, "a", 1);
    image_u32(&b, "twice", 1);
    image_u32(&b, "b", 1);
    image_key(&b, "twice", GGUF_STRING);
    gb_put_text(&b, text_of("again"));
    refuse(&b, "key \"twice\" at byte", "number 1 and 3");
}
