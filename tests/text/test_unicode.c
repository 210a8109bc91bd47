/* Tests of UTF-8 and of classes of characters. (The cases of test_pretokenize.c show where these
 * lie.) */
#include "support.h"
#include "text/unicode.h"

/* --- classes ------------------------------------------------------------------------------- */

/* These are all members of White_Space in Unicode's PropList; members of the other classes were
 * counted with the package `regex` (\p{L}, \p{N}), which has the same version of Unicode. */
TEST(classes_are_complete)
{
    static const uint32_t spaces[] = {0x9,    0xa,    0xb,    0xc,    0xd,    0x20,   0x85,
                                      0xa0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                      0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200a, 0x2028,
                                      0x2029, 0x202f, 0x205f, 0x3000};
    size_t n = 0, letters = 0, numbers = 0;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        const enum char_class class = unicode_class(code);
        letters += class == CHAR_LETTER;
        numbers += class == CHAR_NUMBER;
        if (class == CHAR_SPACE) {
            ck_assert_uint_lt(n, COUNT(spaces));
            ck_assert_uint_eq(code, spaces[n++]);
        }
    }
    ck_assert(n == COUNT(spaces) && letters == 158172 && numbers == 2247);
}

/* --- UTF-8 ----------------------------------------------------------------------------------- */

static size_t encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> len & 0xffu) | code);
    return len;
}

static bool decodes_to(const char *s, size_t len, size_t used, uint32_t code)
{
    uint32_t got;
    return utf8_decode((struct text){s, len}, &got) == used && got == code;
}

TEST(every_code_point_decodes)
{
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char s[4];
        const size_t len = encode(code, s);
        bool right;
        if (code >= 0xd800 && code < 0xe000) /* a surrogate */
            right = decodes_to(s, len, 1, UNICODE_INVALID);
        else
            right = decodes_to(s, len, len, code);
        for (size_t cut = 1; cut < len; cut++)
            right = right && decodes_to(s, cut, 1, UNICODE_INVALID);
        if (!right) /* an assertion costs too much to be made for each */
            ck_abort_msg("U+%04X", code);
    }
}

TEST(malformed_sequences_are_one_byte)
{
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc3(",
                                      "\xe0\x80\x80",
                                      "\xe2\x28\xa1",
                                      "\xe2\x82(",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x9f\x98",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xff"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint32_t code;
        ck_assert(utf8_decode(text_of(bad[i]), &code) == 1 && code == UNICODE_INVALID);
    }
}

/* --- the alphabet of bytes ------------------------------------------------------------------- */

TEST(alphabet_is_a_bijection)
{
    char all[512];
    size_t len = 0;
    for (int byte = 0; byte < 256; byte++)
        len += byte_alphabet_write((unsigned char)byte, all + len);
    size_t n;
    ck_assert(byte_alphabet_decode((struct text){all, len}, all, &n)); /* in place */
    ck_assert_uint_eq(n, 256);
    for (int byte = 0; byte < 256; byte++)
        ck_assert_int_eq((unsigned char)all[byte], byte);
}

TEST(alphabet_refuses_other_characters)
{
    static const char *const bad[] = {" ",      "a b",    "\n",        "\x7f", "\u00a0",
                                      "\u00ad", "\u0144", "\u2581the", "\xff", "a\xc4"};
    char out[16];
    size_t n;
    for (size_t i = 0; i < COUNT(bad); i++)
        ck_assert_msg(!byte_alphabet_decode(text_of(bad[i]), out, &n), "case %zu", i);
    n = 1;
    ck_assert(byte_alphabet_decode(text_of(""), out, &n) && n == 0);
}
