/* Tests of byte-level BPE: ids of reference implementations, special tokens in texts, long and
 * hostile texts. */
#include "vocabularies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- merging --------------------------------------------------------------------------------- */

/* The ids are those of GPT-2's algorithm, written down plainly in Python, for a vocabulary of 400
 * merges. */
TEST(reference_cases)
{
    check_cases("tests/data/bpe-small.gguf", "tests/data/bpe-small.txt", 201, NULL);
}

/* The ids are those of Hugging Face's tokenizers for a vocabulary with Llama 3's pattern. */
TEST(cases_of_llama3)
{
    check_cases("tests/data/bpe-llama3.gguf", "tests/data/bpe-llama3.txt", 201, NULL);
}

/* The list of merges is empty, of any kind, or missing. */
TEST(bytes_without_merges)
{
    static const enum gguf_kind kinds[] = {GGUF_STRING, GGUF_I32, GGUF_U8};
    char all[256];
    int expected[256];
    for (int byte = 0; byte < 256; byte++)
        all[byte] = (char)(expected[byte] = byte);
    plain_bytes_vocabulary();
    for (int i = 0; i < 4; i++) {
        struct gguf_writer *w = keys_of_vocabulary();
        if (i < 3)
            gguf_add_array(w, "tokenizer.ggml.merges", kinds[i], "", 0);
        t = tokenizer_in(written_gguf(w).g);
        ck_assert_int_eq(tokenizer_n_tokens(t), 256);
        check_encoding((struct text){all, 256}, expected, 256, __FILE__, __LINE__);
        check_decoding((struct text){all, 256}, __FILE__, __LINE__);
        check_encoding((struct text){NULL, 0}, NULL, 0, __FILE__, __LINE__);
    }
    tokenizer_free(NULL);
}

/* For a word of four million letters it would take days to look at all pairs for every merge. */
TEST(long_word)
{
    plain_bytes_vocabulary();
    ADD_TOKENS("aa", "aaaa");
    ADD_MERGES("a a", "aa aa");
    use_vocabulary();
    size_t n;
    int32_t *ids = encode_letters((4 << 20) + 3, &n);
    ck_assert_uint_eq(n, (1 << 20) + 2);
    ck_assert(ids[0] == 257 && ids[n - 3] == 257 && ids[n - 2] == 256 && ids[n - 1] == 'a');
}

/* --- special tokens -------------------------------------------------------------------------- */

TEST(special_tokens_in_text)
{
    plain_bytes_vocabulary();
    add_token("<|end|>", 3);   /* 256 */
    add_token("<|end|>>", 4);  /* 257 */
    add_token("d|>x", 4);      /* 258: overlaps the end of 256 */
    add_token("<unk>", 2);     /* 259 */
    add_token("[PAD]", 5);     /* 260 */
    add_token("<|end|>", 4);   /* 261: as 256 */
    add_token("\u00e9 \n", 4); /* 262: raw UTF-8, not the alphabet */
    add_token("<|x28|>", 1);   /* 263: only looks special */
    ADD_TOKENS("yz");          /* merges make this one */
    ADD_MERGES("y z");
    use_vocabulary();
    CHECK_IDS("<|end|>", 256);
    CHECK_IDS("<|end|>>", 257);
    CHECK_IDS("<|end|>x", 256, 'x'); /* the leftmost, not the other */
    CHECK_IDS("nd|>x", 'n', 258);
    CHECK_IDS("<|en<|end|> ", '<', '|', 'e', 'n', 256, ' ');
    CHECK_IDS("<unk>", 259);
    CHECK_IDS("[PAD]", '[', 'P', 'A', 'D', ']');
    CHECK_IDS("\u00e9 \n\u00e9", 262, 0xc3, 0xa9);
    CHECK_IDS("<|end|>\0<|end|>>>", 256, 0, 257, '>');
    CHECK_IDS("<|x28|>", '<', '|', 'x', '2', '8', '|', '>');

    ck_assert(tokenizer_is_special(t, 256) && !tokenizer_is_special(t, 257));
    ck_assert(tokenizer_is_special(t, 259) && !tokenizer_is_special(t, 260));
    ck_assert(!tokenizer_is_special(t, 'a') && text_is(tokenizer_bytes(t, 259), "<unk>"));
    ck_assert(text_is(tokenizer_bytes(t, 262), "\u00e9 \n"));
    ck_assert(text_is(tokenizer_bytes(t, 263), "<|x28|>"));
}

/* The text is cut at a special token as at its end, without a look past it. */
TEST(pieces_end_at_special_tokens)
{
    plain_bytes_vocabulary();
    add_token("\u0120\u0120", 1); /* two spaces */
    add_token("\u0120x", 1);
    add_token("<s>", 3);
    ADD_MERGES("\u0120 \u0120", "\u0120 x");
    use_vocabulary();
    CHECK_IDS("  x", ' ', 257);
    CHECK_IDS("  <s>x", 256, 258, 'x');
}

/* transformers' ByteLevel with add_prefix_space puts a space before each part that begins without
 * one. */
TEST(space_before_parts)
{
    plain_bytes_vocabulary();
    add_token("\u0120x", 1); /* 256 */
    add_token("<s>", 3);
    ADD_MERGES("\u0120 x");
    v.adds_space = 1;
    use_vocabulary();
    const struct text text = text_of("x\ny<s>x<s> x");
    check_encoding(text, (const int[]){256, '\n', 'y', 257, 256, 257, 256}, 7, __FILE__, __LINE__);
    const int mark[] = {' ', 0xe2, 0x96, 0x81}; /* no space to BPE */
    check_encoding(text_of("\u2581"), mark, 4, __FILE__, __LINE__);
    ck_assert_uint_eq(tokenizer_added(t, text_of(" x")), 0);
}

/* Spaces before parts of SentencePiece's kind stand where Metaspace puts them, or where
 * SentencePiece does. */
TEST(prepend_schemes)
{
    static const char *const schemes[] = {NULL, "always", "first"};
    static const int expected[3][10] = {
        {5, 4, 2, 5, 4, 2, 5, 5, 4}, {5, 4, 2, 5, 4, 2, 5, 4}, {5, 4, 2, 4, 2, 5, 4}};
    static const size_t n[] = {9, 8, 7};
    for (int i = 0; i < 3; i++) {
        vocabulary_of_scores(false);
        add_scored("b", -9); /* 3 */
        add_scored("a", -9);
        add_scored("\u2581", -9);
        struct gguf_writer *w = keys_of_vocabulary();
        if (schemes[i])
            gguf_add_text(w, "tokenizer.decode.prepend_scheme", text_of(schemes[i]));
        t = tokenizer_in(written_gguf(w).g);
        check_encoding(text_of("a</s>a</s> a"), expected[i], n[i], __FILE__, __LINE__);
    }
}

static void replacing_vocabulary(const struct text *list, size_t n, const struct text *marks,
                                 size_t n_marks)
{
    plain_bytes_vocabulary();
    add_token("\u00c3\u00a9", 1); /* 256: U+00E9 */
    add_token("<s>", 3);
    ADD_MERGES("\u00c3 \u00a9");
    struct gguf_writer *w = keys_of_vocabulary();
    gguf_add_texts(w, "tokenizer.decode.replacements", list, n);
    if (marks)
        gguf_add_texts(w, "tokenizer.decode.marks", marks, n_marks);
    t = tokenizer_in(written_gguf(w).g);
}

/* Each pair is replaced by the first half of the next pair. A character may become two, and bytes
 * that are no character stay. */
TEST(replacements)
{
    const struct text list[] = {text_of("e\u0301"), text_of("\u00e9"), text_of("\u00e9\u0302"),
                                text_of("E"),       text_of("\u00c5"), text_of("ab")};
    replacing_vocabulary(list, COUNT(list), NULL, 0);
    const struct text text = text_of("xe\u0301e<s>\u0301e\u0301\u0302\u00c5\xc3");
    const int expected[] = {'x', 256, 'e', 257, 0xcc, 0x81, 'E', 'a', 'b', 0xc3};
    check_encoding(text, expected, COUNT(expected), __FILE__, __LINE__);
}

/* Compares with Python's unicodedata.normalize: characters in their parts, marks out of order, and
 * pairs with another mark between. */
TEST(normalization_form_c)
{
    static const char *const list[] = {"\u00e9", "e\u0301",      "e\u0301",      "\u00e9",
                                       "\u1eb9", "e\u0323",      "e\u0323",      "\u1eb9",
                                       "\u0374", "\u02b9",       "\u1112\u1161", "\ud558",
                                       "\u0958", "\u0915\u093c", "\ud558\u11ab", "\ud55c"};
    static const char *const marks[] = {"\u093c", "\u0323\u0331", "\u0301\u0305"};
    static const struct {
        const char *text, *composed;
    } cases[] = {
        {"\u00e9\u0323", "\u1eb9\u0301"},   /* the mark below comes first, and joins */
        {"e\u0305\u0301", "e\u0305\u0301"}, /* one of its class is between */
        {"e\u0305\u0301\u0331\u0323", "e\u0331\u0323\u0305\u0301"}, /* classes keep their order */
        {"e\u0331\u0301", "\u00e9\u0331"},                          /* past one of a lower class */
        {"\u0301\u0323e", "\u0323\u0301e"},        /* a text that begins with marks */
        {"e\u0301\xff\u0301", "\u00e9\xff\u0301"}, /* no mark joins a byte that is none */
        {"ex\u0301", "ex\u0301"},
        {"\u0374\u0958", "\u02b9\u0915\u093c"}, /* one for another; never composed again */
        {"\u1112\u1161\u11ab\u1112\u0301\u1161", "\ud55c\u1112\u0301\u1161"},
    };
    struct text texts[COUNT(list)], classes[COUNT(marks)];
    for (size_t i = 0; i < COUNT(list); i++)
        texts[i] = text_of(list[i]);
    for (size_t i = 0; i < COUNT(marks); i++)
        classes[i] = text_of(marks[i]);
    replacing_vocabulary(texts, COUNT(texts), classes, COUNT(classes));
    for (size_t i = 0; i < COUNT(cases); i++) {
        int32_t *ids;
        size_t n;
        char got[64] = "";
        ck_assert_int_eq(tokenizer_encode(t, text_of(cases[i].text), false, &ids, &n, &err),
                         STATUS_OK);
        for (size_t k = 0; k < n; k++)
            chars_append(got, "%.*s", (int)tokenizer_bytes(t, ids[k]).len,
                         tokenizer_bytes(t, ids[k]).data);
        ck_assert_str_eq(got, cases[i].composed);
        free(ids);
    }
}

/* Every place of the text may begin the longest token that is looked for; no longer one is looked
 * for. */
TEST(hostile_special_tokens_take_linear_time)
{
    static char letters[1025 + 2];
    memset(letters, 'a', 1025);
    letters[1025] = 'b';
    plain_bytes_vocabulary();
    add_token(letters + 1, 4); /* 256: 1,024 letters a, then b */
    add_token(letters + 2, 4); /* 257: one letter fewer */
    add_token("aa", 4);        /* 258 */
    use_vocabulary();
    CHECK_IDS("aaab", 258, 'a', 'b');
    check_encoding(text_of(letters), (const int[]){258, 257}, 2, __FILE__, __LINE__);
    check_encoding(text_of(letters + 2), (const int[]){257}, 1, __FILE__, __LINE__);

    const size_t len = 8 << 20;
    size_t n;
    int32_t *ids = encode_letters(len, &n);
    ck_assert_uint_eq(n, len / 2);
    ck_assert(ids[0] == 258 && ids[n - 1] == 258);
}
