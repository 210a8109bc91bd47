/* Tests of SentencePiece: ids of the reference, bytes, spaces, special tokens, long and hostile
 * texts. */
#include "vocabularies.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "show/paragraph.h"

#define MARK "\xe2\x96\x81" /* U+2581 */

/* --- against others -------------------------------------------------------------------------- */

/* Returns whether the bytes of the ids are the text. They are not where the text has the mark,
 * which decodes as a space, bytes that are no UTF-8, or special tokens, which a space follows. */
static bool comes_back(struct text s)
{
    static const char *const others[] = {MARK, "<s>", "</s>", "<unk>", "<sep>"};
    for (size_t i = 0; i < COUNT(others); i++)
        if (s.len > 0 && memmem(s.data, s.len, others[i], strlen(others[i])))
            return false;
    return text_is_utf8(s);
}

/* The ids are those of SentencePiece and llama.cpp, of a vocabulary that SentencePiece learned. */
TEST(reference_cases)
{
    check_cases("tests/data/spm-small.gguf", "tests/data/spm-small.txt", 250, comes_back);
}

/* The ids are those of SentencePiece, of a real vocabulary that has characters alone, no bytes, and
 * ids that mean "none". */
TEST(vocabulary_of_characters)
{
    check_cases("tests/data/spm-chars.gguf", "tests/data/spm-chars.txt", 40, comes_back);
    use_file("tests/data/spm-chars.gguf");
    check_unencodable(text_of("a b \u6c34"), "U+6C34 '\u6c34' at offset 4,");
    check_unencodable(text_of("<s>a \xff"), "byte 0xFF at offset 5,");
    check_unencodable(text_of("\xc3"
                              "a"),
                      "byte 0xC3 at offset 0,");
}

/* --- merging --------------------------------------------------------------------------------- */

/* The leftmost of equal scores is merged first; 0 and -0 are equal. */
TEST(zeros_are_equal)
{
    vocabulary_of_scores(true);
    v.adds_space = 0;
    add_scored("xy", -0.0F); /* 259 */
    add_scored("yx", 0);     /* 260 */
    use_vocabulary();
    CHECK_IDS("xyx", 259, 3 + 'x');
    CHECK_IDS("yxy", 260, 3 + 'y');
}

/* A character has as many bytes as its first byte says. */
TEST(broken_characters)
{
    vocabulary_of_scores(true);
    add_scored("(", -1);    /* 259 */
    add_scored(MARK, -1);   /* 260 */
    add_scored("\xc3", -1); /* 261: as which a text may end */
    use_vocabulary();
    CHECK_IDS("(", 260, 259);
    CHECK_IDS("\xc3(", 260, 3 + 0xc3, 3 + '(');
    CHECK_IDS("(\xc3", 260, 259, 261);
    CHECK_IDS("\xf0\x9f", 260, 3 + 0xf0, 3 + 0x9f);
}

/* A byte without a byte token becomes a token of one byte. */
TEST(tokens_of_one_byte_for_bytes)
{
    vocabulary_of_scores(false);
    v.adds_space = 0;
    add_scored("(", -1);    /* 3 */
    add_scored("\xc3", -1); /* 4 */
    add_token("<0x28>", 1); /* 5: a byte, whatever its type */
    add_token("<0x28>", 6); /* 6: the first one is it */
    use_vocabulary();
    CHECK_IDS("(\xc3(", 3, 4, 5);
    check_unencodable(text_of("\xc3)"), "U+0029 ')' at offset 1,");
    ck_assert(text_is(tokenizer_bytes(t, 6), "("));
}

/* --- spaces and special tokens --------------------------------------------------------------- */

TEST(spaces)
{
    vocabulary_of_scores(true);
    add_scored(MARK, -5);      /* 259 */
    add_scored("a", -5);       /* 260 */
    add_scored(MARK "a", -1);  /* 261 */
    add_scored(MARK MARK, -2); /* 262 */
    use_vocabulary();
    CHECK_IDS("a", 261);
    CHECK_IDS(" a", 259, 261);
    CHECK_IDS("  a", 262, 261);
    CHECK_IDS("a a ", 261, 261, 259);
    CHECK_IDS(" ", 262);
    check_encoding(text_of(MARK "a"), (const int[]){259, 261}, 2, __FILE__, __LINE__);
    check_encoding((struct text){NULL, 0}, NULL, 0, __FILE__, __LINE__);
    v.adds_space = 0;
    use_vocabulary();
    CHECK_IDS("a", 260);
    CHECK_IDS(" a", 261);
}

TEST(special_tokens)
{
    vocabulary_of_scores(true);
    add_scored(MARK, -5);     /* 259 */
    add_scored("a", -5);      /* 260 */
    add_scored(MARK "a", -1); /* 261 */
    add_token("[X]", 4);      /* 262 */
    add_token("[PAD7]", 5);   /* 263 */
    use_vocabulary();
    const int after[] = {1, 261, 2, 261, 0, 262, 261, 262};
    check_encoding(text_of("<s>a</s>a<unk>[X]a[X]"), after, 8, __FILE__, __LINE__);
    CHECK_IDS("<s>", 1);
    static const struct {
        int id;
        const char *bytes;
        bool special;
    } ids[] = {{0, "<unk>", true}, {1, "<s>", true},   {262, "[X]", false},
               {263, "", false},   {261, " a", false}, {3 + 'x', "x", false}};
    for (size_t i = 0; i < COUNT(ids); i++)
        ck_assert_msg(text_is(tokenizer_bytes(t, ids[i].id), ids[i].bytes) &&
                          tokenizer_is_special(t, ids[i].id) == ids[i].special,
                      "%d", ids[i].id);
    ck_assert_uint_eq(tokenizer_longest(t), 15); /* <unk>, or five times U+2581 */
}

TEST(added_space_and_special_ids)
{
    vocabulary_of_scores(false);
    use_vocabulary();
    ck_assert(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_adds_bos(t));
    ck_assert(tokenizer_added(t, text_of(" a")) == 1 && tokenizer_added(t, text_of("a ")) == 0);
    ck_assert_uint_eq(tokenizer_added(t, text_of("")), 0);
    check_unencodable(text_of("a"), "no token for the space that");
    v.adds_space = 0;
    use_vocabulary();
    ck_assert_uint_eq(tokenizer_added(t, text_of(" a")), 0);
    check_unencodable(text_of(" a"), "U+0020 at offset 0,");
    plain_bytes_vocabulary();
    use_vocabulary();
    ck_assert_uint_eq(tokenizer_added(t, text_of(" a")), 0);
    vocabulary_of_scores(false);
    v.bos = -1;
    v.eos = UINT32_MAX;
    v.n_tokens = 1; /* <unk> alone */
    use_vocabulary();
    ck_assert(tokenizer_bos(t) == -1 && tokenizer_eos(t) == -1 && !tokenizer_adds_bos(t));
}

/* Extra spaces are dropped; the ids are SentencePiece's for this vocabulary. */
TEST(extra_spaces)
{
    static const struct {
        const char *text;
        int n[2], ids[2][5]; /* without a space before the text, and with it */
    } cases[] = {{"   ", {0, 0}, {{0}}},
                 {MARK, {0, 0}, {{0}}},
                 {" " MARK " ", {0, 0}, {{0}}},
                 {"a  b", {2, 3}, {{263, 261}, {262, 259, 261}}},
                 {"  a  a  ", {2, 2}, {{260, 262}, {262, 262}}},
                 {"a" MARK " " MARK, {1, 1}, {{260}, {262}}},
                 {MARK "a", {1, 2}, {{262}, {259, 262}}},
                 {"a \n  b", {4, 5}, {{263, 13, 259, 261}, {262, 259, 13, 259, 261}}},
                 {"a" MARK "  b", {3, 4}, {{263, 259, 261}, {262, 259, 259, 261}}},
                 {"  c ", {1, 2}, {{102}, {259, 102}}}};
    for (int prefix = 0; prefix <= 1; prefix++) {
        vocabulary_of_scores(true);
        v.adds_space = prefix;
        v.drops_spaces = 1;
        add_scored(MARK, -5); /* 259 */
        add_scored("a", -6);
        add_scored("b", -7);
        add_scored(MARK "a", -1); /* 262 */
        add_scored("a" MARK, -2);
        use_vocabulary();
        for (size_t i = 0; i < COUNT(cases); i++)
            check_encoding(text_of(cases[i].text), cases[i].ids[prefix], cases[i].n[prefix],
                           __FILE__, __LINE__);
    }
    vocabulary_of_scores(false); /* where a character has no token, and where it stands */
    v.drops_spaces = 1;
    add_scored(MARK, 0);
    add_scored("a", 0);
    use_vocabulary();
    check_unencodable(text_of("  a   a  b "), "U+0062 'b' at offset 9,");
}

/* The ids of a text of a megabyte are those of its words; these have letters, marks and bytes that
 * are no UTF-8. */
TEST(long_text_is_its_words)
{
    static const char *const parts[] = {"a", "b", "  ", MARK, "\xc3", "\xe2", "\xf0", "\x96", "ab"};
    const size_t cap = 1 << 20;
    char *text = allocated(cap);
    size_t len = 0, n_words = 0, n, all = 0;
    int32_t *words = allocated(cap * sizeof *words), *ids;
    struct rng r;
    rng_seed(&r, 5, 6);
    vocabulary_of_scores(true);
    v.adds_space = 0;
    add_scored(MARK, -5);
    add_scored("a", -6);
    add_scored("b", -7);
    add_scored(MARK "a", -1);
    add_scored("ab", -2);
    use_vocabulary();
    for (; len + 40 < cap; n_words++) {
        const size_t start = len;
        text[len++] = ' ';
        for (unsigned k = rng_u32(&r) % 8; k > 0; k--) {
            const char *part = parts[rng_u32(&r) % COUNT(parts)];
            memcpy(text + len, part, strlen(part));
            len += strlen(part);
        }
        memcpy(text + len, "baba", 4);
        len += 4;
        expect_ok(tokenizer_encode(t, text_span(text + start, len - start), false, &ids, &n, &err));
        memcpy(words + all, ids, n * sizeof *ids);
        all += n;
        free(ids);
    }
    expect_ok(tokenizer_encode(t, text_span(text, len), false, &ids, &n, &err));
    ck_assert_uint_eq(n, all);
    ck_assert_mem_eq(ids, words, n * sizeof *ids);
    free(ids);
}

/* --- hostile vocabularies -------------------------------------------------------------------- */

/* Tokens have 1 to 1,500 letters, and longer ones have better scores, so that each merge adds one
 * letter to the first token, whose name is all of its bytes. In the other vocabulary the longest
 * beginnings never meet their ends. */
TEST(hostile_tokens_take_linear_time)
{
    static char letters[1501];
    const size_t n_tokens = 1500, len = 1 << 19;
    memset(letters, 'a', n_tokens);
    vocabulary_of_scores(true);
    v.adds_space = 0;
    for (size_t n = 1; n <= n_tokens; n++)
        add_scored(letters + n_tokens - n, (float)n);
    use_vocabulary();
    size_t n;
    int32_t *ids = encode_letters(len, &n);
    ck_assert_uint_eq(n, (len + n_tokens - 1) / n_tokens);
    ck_assert_int_eq(ids[0], 258 + (int)n_tokens);
}
