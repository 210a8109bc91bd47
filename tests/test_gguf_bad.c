/* Bad files: each is refused, with a message that names where and what. */
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

START_TEST(empty_file)
{
    struct gguf_bytes b = {0};
    refuse(&b, "empty", "expected a GGUF file");
    struct gguf *g;
    struct err e;
    ck_assert_int_eq(gguf_parse(NULL, 0, &g, &e), STATUS_BAD_FILE);
    ck_assert_ptr_null(g);
    ck_assert_int_eq(gguf_parse(NULL, 0, &g, NULL), STATUS_BAD_FILE);
}
END_TEST

START_TEST(header_cut_short)
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
END_TEST

START_TEST(every_prefix_of_a_good_file)
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
END_TEST

START_TEST(prefixes_of_a_golden_file)
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
END_TEST

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

START_TEST(every_bit_and_byte_flipped)
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
END_TEST

/* --- class 2: magic and version ------------------------------------------------------------ */

START_TEST(magic_of_other_formats)
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
END_TEST

START_TEST(versions)
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
END_TEST

/* --- class 3: counts ----------------------------------------------------------------------- */

static const uint64_t impossible[] = {100000,     1ull << 31,     (1ull << 32) + 1,    INT64_MAX,
                                      1ull << 63, UINT64_MAX - 7, UINT64_MAX / 14 + 1, UINT64_MAX};

#define N_IMPOSSIBLE (sizeof impossible / sizeof impossible[0])

START_TEST(counts_that_cannot_be)
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
END_TEST

/* What follows is then read as something else, which fails sooner or later. */
START_TEST(counts_off_by_one)
{
    struct gguf_bytes b;
    patched(&b, 8, &(uint64_t){3}, 8);
    refuse(&b, "tensor 2", "byte");
    patched(&b, 16, &(uint64_t){5}, 8);
    refuse(&b, "tensor 0: name of the tensor at byte", "truncated");
    patched(&b, 16, &(uint64_t){3}, 8);
    refuse(&b, "tensor 0 \"list\"", "dimensions");
}
END_TEST

START_TEST(count_without_anything_after_it)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    refuse(&b, "key count", "at most 0");
    image_begin(&b, 2, 1, 0);
    refuse(&b, "tensor count", "at most 0");
}
END_TEST

/* --- class 4: strings ---------------------------------------------------------------------- */

START_TEST(key_lengths_that_cannot_be)
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
END_TEST

START_TEST(empty_key)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_u32(&b, "", 1);
    gb_put(&b, "", 1); /* as long as the smallest pair */
    refuse(&b, "key 0: length of the key's name at byte 24", "expected 1 to 65535, found 0");
}
END_TEST

START_TEST(key_of_64_kib)
{
    char key[65537];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_u32(&b, key, 1);
    refuse(&b, "key 0 \"kkk", "expected 1 to 65535, found 65536");
}
END_TEST

START_TEST(string_lengths_that_cannot_be)
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
END_TEST

START_TEST(control_bytes_in_names_do_not_reach_the_message)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "\x1b[31m\r\n\x7f", 77);
    refuse(&b, "key 0 \"?[31m???\"", "value type");
}
END_TEST

/* --- class 5: types of values -------------------------------------------------------------- */

START_TEST(value_types_that_do_not_exist)
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
END_TEST

START_TEST(arrays_of_arrays_10000_deep)
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
END_TEST

START_TEST(array_lengths_that_cannot_be)
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
END_TEST

/* 2^62 * 4 is 0 in 64 bits. */
START_TEST(array_bytes_that_wrap_to_0)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "list", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_U32);
    gb_put_u64(&b, 1ull << 62);
    refuse(&b, "\"list\"", "array length is 4611686018427387904");
}
END_TEST

/* --- class 6: keys ------------------------------------------------------------------------- */

START_TEST(duplicate_keys)
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
END_TEST

/* --- class 8: tensors ---------------------------------------------------------------------- */

static void one_tensor(struct gguf_bytes *b, const char *name, uint32_t n_dims,
                       const uint64_t *dims, uint32_t type, uint64_t offset, size_t data)
{
    image_begin(b, 3, 1, 0);
    image_tensor(b, name, n_dims, dims, type, offset);
    image_align(b, 32);
    image_data(b, data);
}

START_TEST(numbers_of_dimensions)
{
    static const uint32_t n_dims[] = {0, 5, 1u << 31, UINT32_MAX};
    static const uint64_t dims[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < 4; i++) {
        char found[64];
        snprintf(found, sizeof found, "expected 1 to 4, found %u", n_dims[i]);
        struct gguf_bytes b;
        one_tensor(&b, "t", n_dims[i], dims, TENSOR_F32, 0, 64);
        refuse(&b, "tensor 0 \"t\": number of dimensions at byte 33", found);
    }
}
END_TEST

START_TEST(dimension_of_zero)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 1, (uint64_t[]){0}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "dimension 0 is 0");
    one_tensor(&b, "t", 3, (uint64_t[]){4, 4, 0}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "dimension 2 is 0");
}
END_TEST

START_TEST(elements_that_overflow)
{
    static const uint64_t dims[][4] = {
        {1ull << 63, 1, 1, 1},
        {UINT64_MAX, 1, 1, 1},
        {1ull << 32, 1ull << 31, 1, 1},
        {1ull << 32, 1ull << 32, 1, 1},
        {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
        {2, 3, UINT64_MAX / 6, 2},
    };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        struct gguf_bytes b;
        one_tensor(&b, "t", 4, dims[i], TENSOR_F32, 0, 64);
        refuse(&b, "tensor 0 \"t\"", "overflows");
    }
}
END_TEST

/* The product fits, its bytes do not. */
START_TEST(bytes_that_overflow)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 1, (uint64_t[]){1ull << 62}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "number of bytes overflows");
    one_tensor(&b, "t", 2, (uint64_t[]){1ull << 61, 3}, TENSOR_F16, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "number of bytes overflows");
    one_tensor(&b, "t", 1, (uint64_t[]){1ull << 60}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "truncated");
}
END_TEST

START_TEST(row_that_is_no_multiple_of_the_block)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 2, (uint64_t[]){33, 32}, TENSOR_Q8_0, 0, 2000);
    refuse(&b, "tensor 0 \"t\": dimension 0 is 33", "multiple of 32, the block of type Q8_0");
    one_tensor(&b, "t", 2, (uint64_t[]){128, 2}, 12, 0, 2000);
    refuse(&b, "tensor 0 \"t\": dimension 0 is 128", "multiple of 256, the block of type Q4_K");
}
END_TEST

START_TEST(tensor_types_that_are_gone_or_unknown)
{
    static const uint32_t gone[] = {4, 5, 31, 32, 33, 36, 37, 38}, unknown[] = {42, 1u << 31, -1u};
    struct gguf_bytes b;
    char found[32];
    for (size_t i = 0; i < 8; i++) {
        snprintf(found, sizeof found, "type %u was removed", gone[i]);
        one_tensor(&b, "t", 1, (uint64_t[]){32}, gone[i], 0, 2000);
        refuse(&b, "tensor 0 \"t\"", found);
    }
    for (size_t i = 0; i < 3; i++) {
        snprintf(found, sizeof found, "type %u is unknown", unknown[i]);
        one_tensor(&b, "t", 1, (uint64_t[]){32}, unknown[i], 0, 2000);
        refuse(&b, "tensor 0 \"t\"", found);
    }
}
END_TEST

START_TEST(tensor_names_empty_or_too_long)
{
    char name[66];
    memset(name, 'n', sizeof name - 1);
    name[65] = 0;
    struct gguf_bytes b;
    one_tensor(&b, name, 1, (uint64_t[]){1}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0: length of the tensor's name at byte 24", "expected 1 to 64, found 65");
    one_tensor(&b, "", 1, (uint64_t[]){1}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0", "found 0");
}
END_TEST

START_TEST(duplicate_tensors)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 3, 0);
    image_row(&b, "twice", 1, TENSOR_F32, 0);
    image_row(&b, "once", 1, TENSOR_F32, 32);
    image_row(&b, "twice", 1, TENSOR_F32, 64);
    image_align(&b, 32);
    image_data(&b, 96);
    refuse(&b, "tensor \"twice\" at byte 32", "number 0 and 2");
}
END_TEST

/* --- class 9: offsets and alignment -------------------------------------------------------- */

START_TEST(offsets_out_of_line)
{
    static const uint64_t offsets[] = {1, 4, 16, 31, 33, UINT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        struct gguf_bytes b;
        one_tensor(&b, "t", 1, (uint64_t[]){1}, TENSOR_F32, offsets[i], 512);
        refuse(&b, "tensor 0 \"t\": offset", "multiple of the alignment 32");
    }
}
END_TEST

/* The header takes 64 bytes after its padding, the data 512. */
START_TEST(offsets_past_the_end)
{
    static const uint64_t offsets[] = {544, 1ull << 32, 1ull << 63, UINT64_MAX - 31,
                                       UINT64_MAX - 63};
    struct gguf_bytes b;
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        one_tensor(&b, "t", 1, (uint64_t[]){1}, TENSOR_F32, offsets[i], 512);
        refuse(&b, "tensor 0 \"t\": offset", "within the file's 576 bytes");
    }
    /* Exactly at the end, and one byte beyond it. */
    one_tensor(&b, "t", 1, (uint64_t[]){1}, TENSOR_F32, 512, 512);
    refuse(&b, "tensor 0 \"t\": its data at byte 576 need 4 bytes", "found 0");
    one_tensor(&b, "t", 1, (uint64_t[]){129}, TENSOR_F32, 0, 515);
    refuse(&b, "tensor 0 \"t\": its data at byte 64 need 516 bytes, found 515",
           "download it again");
}
END_TEST

START_TEST(file_that_ends_in_the_padding_before_the_data)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 1, 0);
    image_row(&b, "t", 1, TENSOR_F32, 0);
    ck_assert_uint_ne(b.len % 32, 0);
    refuse(&b, "tensor 0 \"t\": offset", "truncated");
}
END_TEST

static void two_tensors(struct gguf_bytes *b, uint64_t first, uint64_t second)
{
    image_begin(b, 3, 3, 0);
    image_row(b, "one", 16, TENSOR_F32, first);
    image_row(b, "apart", 16, TENSOR_F32, 512);
    image_row(b, "two", 16, TENSOR_F32, second);
    image_align(b, 32);
    image_data(b, 1024);
}

START_TEST(data_that_overlap)
{
    struct gguf_bytes b;
    two_tensors(&b, 0, 32);
    refuse(&b, "tensors \"one\" and \"two\" overlap", "offset 0 with 64 bytes, and offset 32");
    two_tensors(&b, 128, 96);
    refuse(&b, "tensors \"two\" and \"one\" overlap", "offset 96 with 64 bytes, and offset 128");
    two_tensors(&b, 64, 64);
    refuse(&b, "\"one\" and \"two\" overlap", "expected separate data");
    two_tensors(&b, 0, 480);
    refuse(&b, "\"two\" and \"apart\" overlap", "offset 480");
    two_tensors(&b, 0, 64);
    struct parsed p = accept(&b);
    parsed_free(&p);
}
END_TEST

START_TEST(alignments_that_cannot_be)
{
    static const uint32_t alignments[] = {0, 1, 3, 4, 24, 33, 1u << 17, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        char found[32];
        snprintf(found, sizeof found, "found %u", alignments[i]);
        struct gguf_bytes b;
        image_begin(&b, 3, 1, 1);
        image_u32(&b, "general.alignment", alignments[i]);
        image_row(&b, "t", 1, TENSOR_F32, 0);
        image_align(&b, 32);
        image_data(&b, 64);
        refuse(&b, "\"general.alignment\" at byte 53: expected a power of two from 8 to 65536",
               found);
    }
}
END_TEST

START_TEST(alignment_that_is_no_u32)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 0, 1);
    image_key(&b, "general.alignment", GGUF_U64);
    gb_put_u64(&b, 32);
    refuse(&b, "\"general.alignment\"", "expected a u32, found u64");
    image_begin(&b, 3, 0, 1);
    image_key(&b, "general.alignment", GGUF_STRING);
    gb_put_text(&b, text_of("32"));
    refuse(&b, "\"general.alignment\"", "expected a u32, found string");
    image_begin(&b, 3, 0, 1);
    image_key(&b, "general.alignment", GGUF_ARRAY);
    gb_put_u32(&b, GGUF_U32);
    gb_put_u64(&b, 1);
    gb_put_u32(&b, 32);
    refuse(&b, "\"general.alignment\"", "expected a u32, found array");
}
END_TEST

/* --- class 3 again: time ------------------------------------------------------------------- */

/* Names of one length that share all but their last bytes are the slowest to compare. */
START_TEST(many_similar_names_take_little_time)
{
    enum { N = 20000 };
    char name[65];
    struct gguf_bytes b;
    image_begin(&b, 3, N, 0);
    memset(name, 'n', sizeof name);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name + 56, 9, "%08x", i);
        image_row(&b, name, 1, TENSOR_F32, (uint64_t)i * 32);
    }
    image_align(&b, 32);
    image_data(&b, N * 32);
    struct parsed p = accept(&b);
    ck_assert_ptr_eq(gguf_find_tensor(p.g, name), &p.g->tensors[N - 1]);
    parsed_free(&p);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("gguf_bad");
    TCase *t = tcase_create("gguf_bad");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, empty_file);
    tcase_add_test(t, header_cut_short);
    tcase_add_test(t, every_prefix_of_a_good_file);
    tcase_add_test(t, prefixes_of_a_golden_file);
    tcase_add_test(t, every_bit_and_byte_flipped);
    tcase_add_test(t, magic_of_other_formats);
    tcase_add_test(t, versions);
    tcase_add_test(t, counts_that_cannot_be);
    tcase_add_test(t, counts_off_by_one);
    tcase_add_test(t, count_without_anything_after_it);
    tcase_add_test(t, key_lengths_that_cannot_be);
    tcase_add_test(t, empty_key);
    tcase_add_test(t, key_of_64_kib);
    tcase_add_test(t, string_lengths_that_cannot_be);
    tcase_add_test(t, control_bytes_in_names_do_not_reach_the_message);
    tcase_add_test(t, value_types_that_do_not_exist);
    tcase_add_test(t, arrays_of_arrays_10000_deep);
    tcase_add_test(t, array_lengths_that_cannot_be);
    tcase_add_test(t, array_bytes_that_wrap_to_0);
    tcase_add_test(t, duplicate_keys);
    tcase_add_test(t, numbers_of_dimensions);
    tcase_add_test(t, dimension_of_zero);
    tcase_add_test(t, elements_that_overflow);
    tcase_add_test(t, bytes_that_overflow);
    tcase_add_test(t, row_that_is_no_multiple_of_the_block);
    tcase_add_test(t, tensor_types_that_are_gone_or_unknown);
    tcase_add_test(t, tensor_names_empty_or_too_long);
    tcase_add_test(t, duplicate_tensors);
    tcase_add_test(t, offsets_out_of_line);
    tcase_add_test(t, offsets_past_the_end);
    tcase_add_test(t, file_that_ends_in_the_padding_before_the_data);
    tcase_add_test(t, data_that_overlap);
    tcase_add_test(t, alignments_that_cannot_be);
    tcase_add_test(t, alignment_that_is_no_u32);
    tcase_add_test(t, many_similar_names_take_little_time);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
