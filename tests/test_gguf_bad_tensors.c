/* Bad tensors: each file is refused, with a message that names the tensor and what is wrong. */
#include <stdio.h>

#include "gguf_image.h"

/* --- class 8: tensors ---------------------------------------------------------------------- */

static void one_tensor(struct gguf_bytes *b, const char *name, uint32_t n_dims,
                       const uint64_t *dims, uint32_t type, uint64_t offset, size_t data)
{
    image_begin(b, 3, 1, 0);
    image_tensor(b, name, n_dims, dims, type, offset);
    image_align(b, 32);
    image_data(b, data);
}

TEST(numbers_of_dimensions)
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

TEST(dimension_of_zero)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 1, (uint64_t[]){0}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "dimension 0 is 0");
    one_tensor(&b, "t", 3, (uint64_t[]){4, 4, 0}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "dimension 2 is 0");
}

TEST(elements_that_overflow)
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

/* The product fits, its bytes do not. */
TEST(bytes_that_overflow)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 1, (uint64_t[]){1ull << 62}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "number of bytes overflows");
    one_tensor(&b, "t", 2, (uint64_t[]){1ull << 61, 3}, TENSOR_F16, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "number of bytes overflows");
    one_tensor(&b, "t", 1, (uint64_t[]){1ull << 60}, TENSOR_F32, 0, 64);
    refuse(&b, "tensor 0 \"t\"", "truncated");
}

TEST(row_that_is_no_multiple_of_the_block)
{
    struct gguf_bytes b;
    one_tensor(&b, "t", 2, (uint64_t[]){33, 32}, TENSOR_Q8_0, 0, 2000);
    refuse(&b, "tensor 0 \"t\": dimension 0 is 33", "multiple of 32, the block of type Q8_0");
    one_tensor(&b, "t", 2, (uint64_t[]){128, 2}, 12, 0, 2000);
    refuse(&b, "tensor 0 \"t\": dimension 0 is 128", "multiple of 256, the block of type Q4_K");
}

TEST(tensor_types_that_are_gone_or_unknown)
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

TEST(tensor_names_empty_or_too_long)
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

TEST(duplicate_tensors)
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

/* --- class 9: offsets and alignment -------------------------------------------------------- */

TEST(offsets_out_of_line)
{
    static const uint64_t offsets[] = {1, 4, 16, 31, 33, UINT64_MAX};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        struct gguf_bytes b;
        one_tensor(&b, "t", 1, (uint64_t[]){1}, TENSOR_F32, offsets[i], 512);
        refuse(&b, "tensor 0 \"t\": offset", "multiple of the alignment 32");
    }
}

/* The header takes 64 bytes after its padding, the data 512. */
TEST(offsets_past_the_end)
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

TEST(file_that_ends_in_the_padding_before_the_data)
{
    struct gguf_bytes b;
    image_begin(&b, 3, 1, 0);
    image_row(&b, "t", 1, TENSOR_F32, 0);
    ck_assert_uint_ne(b.len % 32, 0);
    refuse(&b, "tensor 0 \"t\": offset", "truncated");
}

static void two_tensors(struct gguf_bytes *b, uint64_t first, uint64_t second)
{
    image_begin(b, 3, 3, 0);
    image_row(b, "one", 16, TENSOR_F32, first);
    image_row(b, "apart", 16, TENSOR_F32, 512);
    image_row(b, "two", 16, TENSOR_F32, second);
    image_align(b, 32);
    image_data(b, 1024);
}

TEST(data_that_overlap)
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

TEST(alignments_that_cannot_be)
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

TEST(alignment_that_is_no_u32)
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

/* --- class 3 again: time ------------------------------------------------------------------- */

/* Names of one length that share all but their last bytes are the slowest to compare. */
TEST(many_similar_names_take_little_time)
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
