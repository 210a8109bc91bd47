/* Tests that bad files (tests/data/broken/gguf.txt) are refused with a message that names place and
 * fault. */
#include <stdio.h>

#include "gguf_image.h"

/* A small good file with a bit of everything; 24 bytes of header, then the keys. */
static const char sample[] =
    "GGUF 3 2L 4L 'general.alignment' 4 16 'name' 8 'a name' 'words' 9 8 2L 'one' '' "
    "'list' 9 3 3L 1b 0b 2b 0b 3b 0b 'first' 2 3L 2L 0 0L 'second' 1 32L 8 32L /16 *66";

/* Expects that the sample with other bytes at `at` is refused. */
static void refuse_patched(size_t at, const void *bytes, size_t len, const char *parts)
{
    struct gguf_bytes b = image(sample);
    ck_assert_uint_le(at + len, b.len);
    memcpy(b.data + at, bytes, len);
    refuse(&b, parts);
}

static const uint64_t impossible[] = {100000,     1ull << 31,     (1ull << 32) + 1,    INT64_MAX,
                                      1ull << 63, UINT64_MAX - 7, UINT64_MAX / 14 + 1, UINT64_MAX};

TEST(rows)
{
    char *rest = file_text("tests/data/broken/gguf.txt", NULL), *row;
    int n = 0;
    for (; (row = next_row(&rest)); n++) {
        char *words = next_field(&row);
        unescape(words);
        for (size_t k = 0; k < (strchr(words, '?') ? COUNT(impossible) : 1); k++) {
            struct gguf_bytes b = {0};
            image_add(&b, words, impossible[k]);
            refuse(&b, row);
        }
    }
    ck_assert_int_ge(n, 75);
}

TEST(every_prefix_of_a_good_file)
{
    struct gguf_bytes b = image(sample);
    for (size_t len = 0; len < b.len; len++)
        refuse_part(&b, len, len > 0 ? "truncated" : "");
    accept(&b);
}

TEST(counts_that_cannot_be)
{
    char parts[64];
    for (size_t i = 0; i < COUNT(impossible); i++) {
        const unsigned long long n = impossible[i];
        snprintf(parts, sizeof parts, "tensor count at byte 8|is %llu,", n);
        refuse_patched(8, &impossible[i], 8, parts);
        snprintf(parts, sizeof parts, "key count at byte 16|is %llu,", n);
        refuse_patched(16, &impossible[i], 8, parts);
    }
    /* The counts are off by one: what follows is read as something else, which fails sooner or
     * later. */
    refuse_patched(8, &(uint64_t){3}, 8, "tensor 2|byte");
    refuse_patched(16, &(uint64_t){5}, 8, "tensor 0: name at byte|truncated");
    refuse_patched(16, &(uint64_t){3}, 8, "tensor 0 \"list\"|dimensions");
}

/* One file has 10000 nested arrays, the other a key that is too long. */
TEST(keys_that_cannot_be)
{
    struct gguf_bytes b = image("GGUF 3 0L 1L 'deep' 9");
    for (int i = 0; i < 10000; i++)
        image_add(&b, "9 1L", 0);
    refuse(&b, "key 0 \"deep\"|nested arrays");
    static char key[65537];
    memset(key, 'k', sizeof key - 1);
    b = image("GGUF 3 0L 1L");
    gb_put_text(&b, text_of(key));
    image_add(&b, "4 1", 0);
    refuse(&b, "key 0: |expected 1 to 65535, found 65536");
}
