/* Bad files: each is refused, with a message that names where and what. */
#include <stdio.h>

#include "gguf_image.h"

/* A small good file with a bit of everything; 24 bytes of header, then the keys. */
static const char sample[] =
    "GGUF 3 2L 4L 'general.alignment' 4 16 'name' 8 'a name' 'words' 9 8 2L 'one' '' "
    "'list' 9 3 3L 1b 0b 2b 0b 3b 0b 'first' 2 3L 2L 0 0L 'second' 1 32L 8 32L /16 *66";

/* The same with `len` bytes at `at` replaced is refused. */
static void refuse_patched(size_t at, const void *bytes, size_t len, const char *parts)
{
    struct gguf_bytes b = image(sample);
    ck_assert_uint_le(at + len, b.len);
    memcpy(b.data + at, bytes, len);
    refuse(&b, parts);
}

/* Files as words of image_add; ? is each of `impossible`. */
struct bad {
    const char *words, *parts;
};

static const uint64_t impossible[] = {100000,     1ull << 31,     (1ull << 32) + 1,    INT64_MAX,
                                      1ull << 63, UINT64_MAX - 7, UINT64_MAX / 14 + 1, UINT64_MAX};

static void refuse_all(const struct bad *bad, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < (strchr(bad[i].words, '?') ? COUNT(impossible) : 1); k++) {
            struct gguf_bytes b = {0};
            image_add(&b, bad[i].words, impossible[k]);
            refuse(&b, bad[i].parts);
        }
}

TEST(header_cut_short)
{
    static const char *const fields[] = {"magic|truncated",        "version|truncated",
                                         "tensor count|truncated", "tensor count|truncated",
                                         "key count|truncated",    "key count|truncated"};
    struct gguf_bytes b = {0};
    refuse(&b, "empty|expected a GGUF file");
    ck_assert_int_eq(gguf_parse(NULL, 0, &(struct gguf *){NULL}, NULL), STATUS_BAD_FILE);
    for (size_t len = 1; len < 24; len++) {
        b = image("GGUF 3 0L 0L");
        b.len = len;
        refuse(&b, fields[len / 4]);
    }
}

TEST(every_prefix_of_a_good_file)
{
    struct gguf_bytes b = image(sample);
    for (size_t len = 0; len < b.len; len++) {
        const struct parsed p = parse_exactly(b.data, len);
        expect_status(p.status, STATUS_BAD_FILE, len > 0 ? "truncated" : "");
    }
    accept(&b);
}

TEST(magic_of_other_formats)
{
    static const struct bad starts[] = {
        {"FUGG", "magic at byte 0|byte-swapped"},
        {"tjgg", "magic at byte 0|before GGUF"},
        {"fmgg", "magic at byte 0|before GGUF"},
        {"lmgg", "magic at byte 0|before GGUF"},
        {"version https://git-lfs.github.com/spec/v1\n", "magic at byte 0|Git LFS pointer"},
        {"PK\3\4 and more", "magic at byte 0|zip archive"},
        {"<!DOCTYPE html>", "magic at byte 0|web page"},
        {"gguf", "magic at byte 0|not a GGUF file"},
        {"GGUE", "magic at byte 0|found bytes 47 47 55 45"},
        {"\x1b[2J....", "magic at byte 0|found bytes 1b 5b 32 4a"},
    };
    static const struct bad versions[] = {
        {"GGUF 0 2L 4L", "version at byte 4: expected 2 or 3|corrupt"},
        {"GGUF 1 2L 4L", "version at byte 4: expected 2 or 3|early version"},
        {"GGUF 4 2L 4L", "version at byte 4: expected 2 or 3|newer than this program"},
        {"GGUF 0x03000000 2L 4L", "version at byte 4: expected 2 or 3|byte-swapped"},
        {"GGUF 0x02000000 2L 4L", "version at byte 4: expected 2 or 3|byte-swapped"},
        {"GGUF -1 2L 4L", "version at byte 4: expected 2 or 3|newer"},
    };
    for (size_t i = 0; i < COUNT(starts); i++) {
        struct gguf_bytes b = {0};
        gb_put(&b, starts[i].words, strlen(starts[i].words));
        refuse(&b, starts[i].parts);
    }
    refuse_all(versions, COUNT(versions));
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
    /* Off by one: what follows is read as something else, which fails sooner or later. */
    refuse_patched(8, &(uint64_t){3}, 8, "tensor 2|byte");
    refuse_patched(16, &(uint64_t){5}, 8, "tensor 0: name at byte|truncated");
    refuse_patched(16, &(uint64_t){3}, 8, "tensor 0 \"list\"|dimensions");
    static const struct bad nothing[] = {{"GGUF 3 0L 1L", "key count|at most 0"},
                                         {"GGUF 2 1L 0L", "tensor count|at most 0"}};
    refuse_all(nothing, COUNT(nothing));
}

/* 10000 arrays in each other; 2^62 * 4 bytes are 0 in 64 bits. */
TEST(keys_that_cannot_be)
{
    static const struct bad bad[] = {
        {"GGUF 3 0L 1L ? 'key' 4 1", "key 0: name at byte 32|truncated"},
        {"GGUF 3 0L 1L 20L 'key' 4 1", "key 0: name at byte 32|truncated"},
        {"GGUF 3 0L 1L '' 4 1 0b", /* as long as the smallest pair */
         "key 0: length of the name at byte 24|expected 1 to 65535, found 0"},
        {"GGUF 3 0L 1L 'text' 8 ? 1b 1b 1b", "key 0 \"text\": string at byte 48|found 3 more"},
        {"GGUF 3 0L 1L 'texts' 9 8 2L 'fine' ? 1b 1b 1b",
         "key 0 \"texts\": string in the array at byte 73|found 3 more"},
        {"GGUF 3 0L 1L '\x1b[31m\r\n\x7f' 77", "key 0 \"?[31m???\"|value type"},
        {"GGUF 3 0L 1L 'odd' 13 0L", "key 0 \"odd\": value type at byte 35|found 13;"},
        {"GGUF 3 0L 1L 'odd' -1 0L", "value type at byte 35|found 4294967295;"},
        {"GGUF 3 0L 1L 'odd' 9 13 0L", "key 0 \"odd\": array element type at byte 39|found 13;"},
        {"GGUF 3 0L 1L 'odd' 9 -1 0L", "array element type at byte 39|found 4294967295;"},
        {"GGUF 3 0L 1L 'list' 9 0 ? 0L", "key 0 \"list\": array length|truncated"},
        {"GGUF 3 0L 1L 'list' 9 6 ? 0L", "key 0 \"list\": array length|truncated"},
        {"GGUF 3 0L 1L 'list' 9 8 ? 0L", "key 0 \"list\": array length|truncated"},
        {"GGUF 3 0L 1L 'list' 9 4 0x4000000000000000L", "array length is 4611686018427387904"},
        {"GGUF 3 0L 4L 'a' 4 1 'twice' 4 1 'b' 4 1 'twice' 8 'again'",
         "\"twice\" at byte|number 1 and 3"},
    };
    refuse_all(bad, COUNT(bad));
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

TEST(tensors_that_cannot_be)
{
    static const struct bad bad[] = {
        {"GGUF 3 1L 0L 't' 0 0 0L /32 *64",
         "tensor 0 \"t\": number of dimensions at byte 33|expected 1 to 4, found 0"},
        {"GGUF 3 1L 0L 't' 5 1L 1L 1L 1L 1L 0 0L /32 *64", "expected 1 to 4, found 5"},
        {"GGUF 3 1L 0L 't' -1 1L 1L 1L 1L 1L 0 0L /32 *64", "expected 1 to 4, found 4294967295"},
        {"GGUF 3 1L 0L 't' 1 0L 0 0L /32 *64", "tensor 0 \"t\"|dimension 0 is 0"},
        {"GGUF 3 1L 0L 't' 3 4L 4L 0L 0 0L /32 *64", "tensor 0 \"t\"|dimension 2 is 0"},
        {"GGUF 3 1L 0L 't' 4 0x8000000000000000L 1L 1L 1L 0 0L /32 *64", "\"t\"|overflows"},
        {"GGUF 3 1L 0L 't' 4 0x100000000L 0x100000000L 1L 1L 0 0L /32 *64", "\"t\"|overflows"},
        {"GGUF 3 1L 0L 't' 4 2L 3L 3074457345618258602L 2L 0 0L /32 *64", "\"t\"|overflows"},
        /* The product fits, its bytes do not. */
        {"GGUF 3 1L 0L 't' 1 0x4000000000000000L 0 0L /32 *64", "overflows|bytes"},
        {"GGUF 3 1L 0L 't' 2 0x2000000000000000L 3L 1 0L /32 *64", "overflows|bytes"},
        {"GGUF 3 1L 0L 't' 1 0x1000000000000000L 0 0L /32 *64", "tensor 0 \"t\"|truncated"},
        {"GGUF 3 1L 0L 't' 2 33L 32L 8 0L /32 *2000",
         "tensor 0 \"t\": dimension 0 is 33|multiple of 32, the block of type Q8_0"},
        {"GGUF 3 1L 0L 't' 2 128L 2L 12 0L /32 *2000",
         "tensor 0 \"t\": dimension 0 is 128|multiple of 256, the block of type Q4_K"},
        {"GGUF 3 1L 0L '' 1 1L 0 0L /32 *64", "tensor 0|found 0"},
        {"GGUF 3 1L 0L 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn' 1 1L "
         "0 0L /32 *64",
         "tensor 0: length of the name at byte 24|expected 1 to 64, found 65"},
        {"GGUF 3 3L 0L 'twice' 1 1L 0 0L 'once' 1 1L 0 32L 'twice' 1 1L 0 64L /32 *96",
         "\"twice\" at byte 32|number 0 and 2"},
        /* Offsets out of line; past the end of 64 bytes of header and 512 of data. */
        {"GGUF 3 1L 0L 't' 1 1L 0 1L /32 *512", "\"t\": offset|multiple of the alignment 32"},
        {"GGUF 3 1L 0L 't' 1 1L 0 -1L /32 *512", "\"t\": offset|multiple of the alignment 32"},
        {"GGUF 3 1L 0L 't' 1 1L 0 544L /32 *512", "\"t\"|within the file's 576 bytes"},
        {"GGUF 3 1L 0L 't' 1 1L 0 0x8000000000000000L /32 *512", "within the file's 576 bytes"},
        {"GGUF 3 1L 0L 't' 1 1L 0 -32L /32 *512", "\"t\"|within the file's 576 bytes"},
        {"GGUF 3 1L 0L 't' 1 1L 0 512L /32 *512",
         "tensor 0 \"t\": its data at byte 64 + 512 need 4 bytes"},
        {"GGUF 3 1L 0L 't' 1 129L 0 0L /32 *515",
         "tensor 0 \"t\": its data at byte 64 + 0 need 516 bytes|the file's 579 bytes|download"},
        {"GGUF 3 1L 0L 't' 1 1L 0 0L", "tensor 0 \"t\"|truncated"}, /* in the padding */
    };
    refuse_all(bad, COUNT(bad));
    static const int32_t unknown[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, INT32_MIN, -1};
    char words[64], parts[64];
    for (size_t i = 0; i < COUNT(unknown); i++) {
        snprintf(words, sizeof words, "GGUF 3 1L 0L 't' 1 32L %d 0L /32 *2000", unknown[i]);
        snprintf(parts, sizeof parts, "tensor 0 \"t\"|type %u is unknown", (uint32_t)unknown[i]);
        refuse_all(&(struct bad){words, parts}, 1);
    }
}

TEST(data_that_overlap)
{
    static const struct {
        int first, second;
        const char *parts;
    } offsets[] = {
        {0, 32, "tensors \"one\" and \"two\" overlap|offset 0 with 64 bytes, and offset 32"},
        {128, 96, "tensors \"two\" and \"one\" overlap|offset 96 with 64 bytes, and offset 128"},
        {64, 64, "\"one\" and \"two\" overlap|expected separate data"},
        {0, 480, "\"two\" and \"apart\" overlap|offset 480"},
        {0, 64, NULL},
    };
    for (size_t i = 0; i < COUNT(offsets); i++) {
        char words[128];
        snprintf(words, sizeof words,
                 "GGUF 3 3L 0L 'one' 1 16L 0 %dL 'apart' 1 16L 0 512L 'two' 1 16L 0 %dL /32 *1024",
                 offsets[i].first, offsets[i].second);
        struct gguf_bytes b = image(words);
        if (offsets[i].parts)
            refuse(&b, offsets[i].parts);
        else
            accept(&b);
    }
}

#define ALIGNED(value) "GGUF 3 1L 1L 'general.alignment' " value " 't' 1 1L 0 0L /32 *64"
#define ALIGNS(found)                                                                              \
    "\"general.alignment\": expected a u32 that is a power of two from 8 to 65536|found " found

TEST(alignments_that_cannot_be)
{
    static const struct bad bad[] = {
        {ALIGNED("4 0"), ALIGNS("u32 0")},           {ALIGNED("4 1"), ALIGNS("u32 1")},
        {ALIGNED("4 4"), ALIGNS("u32 4")},           {ALIGNED("4 24"), ALIGNS("u32 24")},
        {ALIGNED("4 33"), ALIGNS("u32 33")},         {ALIGNED("4 131072"), ALIGNS("u32 131072")},
        {ALIGNED("4 -1"), ALIGNS("u32 4294967295")}, {ALIGNED("10 32L"), ALIGNS("u64")},
        {ALIGNED("8 '32'"), ALIGNS("string")},       {ALIGNED("9 4 1L 32"), ALIGNS("array")},
    };
    refuse_all(bad, COUNT(bad));
}
