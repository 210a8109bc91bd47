/* Tests of the .npy writer, byte by byte. */
#include <string.h>

#include "base/replace.h"
#include "formats/npy.h"
#include "support.h"

TEST(bytes)
{
    static const char header[] = "\x93NUMPY\x01\x00\x76\x00"
                                 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    const float values[] = {0, 1, -2, 0.5f, 3e38f, 1e-45f};
    static const unsigned char data[] = {0, 0, 0, 0,    0,    0,    0x80, 0x3f, 0, 0, 0, 0xc0,
                                         0, 0, 0, 0x3f, 0xe6, 0xb1, 0x61, 0x7f, 1, 0, 0, 0};
    struct file_writer *w;
    const char *path = scratch_path("m.npy");
    expect_ok(npy_open(&w, path, (const uint64_t[]){2, 3}, 2, &err));
    file_writer_put(w, values, 4 * sizeof *values);
    file_writer_put(w, values + 4, 2 * sizeof *values);
    expect_ok(file_writer_commit(w, &err));
    size_t len;
    unsigned char *file = (unsigned char *)file_text(path, &len);
    ck_assert_uint_eq(len, 128 + sizeof data);
    ck_assert_mem_eq(file, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < 127; i++)
        ck_assert_int_eq(file[i], ' ');
    ck_assert_int_eq(file[127], '\n');
    ck_assert_mem_eq(file + 128, data, sizeof data);
}

/* An array has as many dimensions as it can have; the longest numbers fit into the header. */
TEST(four_dimensions)
{
    static const uint64_t shape[] = {1, 2, 0, UINT64_MAX};
    static const char expected[] = "'shape': (1, 2, 0, 18446744073709551615), }";
    struct file_writer *w;
    const char *path = scratch_path("m.npy");
    expect_ok(npy_open(&w, path, shape, 4, &err));
    expect_ok(file_writer_commit(w, &err));
    size_t len;
    const char *file = file_text(path, &len);
    ck_assert(len == 128 && memmem(file, len, expected, sizeof expected - 1));
}
