/* Tests of vocabularies with unusual content: bytes without tokens, merges that never happen, odd
 * special ids. */
#include "vocabularies.h"

#include <string.h>

TEST(starcoder_digits)
{
    static const char *const names[] = {"starcoder", "refact", "command-r", "codeshell",
                                        "smollm",    "gpt-2",  "default"};
    plain_bytes_vocabulary();
    ADD_TOKENS("12", "\u01201");
    ADD_MERGES("1 2", "\u0120 1");
    for (size_t i = 0; i < COUNT(names); i++) {
        v.pre = names[i];
        use_vocabulary();
        if (i < 5)
            CHECK_IDS("12 12", '1', '2', ' ', '1', '2');
        else
            CHECK_IDS("12 2", 256, ' ', '2');
    }
}

/* StarCoder's vocabulary lacks F1 and the bytes that UTF-8 never has; other vocabularies lack
 * nearly all. */
TEST(bytes_without_a_token)
{
    plain_bytes_vocabulary();
    for (int byte = 0xf5; byte < 0x100; byte++)
        v.types[byte] = 5;
    v.types[0xa9] = v.types['\n'] = v.types['('] = 5;
    v.has_types = true;
    add_token("<s>", 3);
    use_vocabulary();
    CHECK_IDS("\U0010ffff", 0xf4, 0x8f, 0xbf, 0xbf);
    static const char *const refused[][2] = {
        {"abc\xff", "the text has byte 0xFF at offset 3, for which the vocabulary has no token"},
        {"a\u00e9", "U+00E9 '\u00e9' at offset 1,"},
        {"a\xc3\xa9\xa9", "U+00E9 '\u00e9' at offset 1,"},
        {"a\xa9", "byte 0xA9 at offset 1,"},
        {" x<s>\n", "U+000A at offset 5,"},
        {"<s><s>y(", "U+0028 '(' at offset 7,"},
    };
    for (size_t i = 0; i < COUNT(refused); i++)
        check_unencodable(text_of(refused[i][0]), refused[i][1]);
    v.adds_space = 1; /* which "b" does not begin with, and the rest does */
    use_vocabulary();
    check_unencodable(text_of("b<s> \n"), "U+000A at offset 5,");
}

/* A checkpoint that sorts letters has such a vocabulary, whose merge names tokens that it lacks. */
TEST(three_tokens)
{
    plain_bytes_vocabulary();
    v.n_tokens = 0;
    ADD_TOKENS("A", "B", "C");
    add_merge("\u0120 \u0120");
    use_vocabulary();
    ck_assert_int_eq(tokenizer_n_tokens(t), 3);
    CHECK_IDS("CABBA", 2, 0, 1, 1, 0);
    check_unencodable(text_of("AB C"), "U+0020 at offset 2,");
}

/* Merges that can happen do, whatever else the list has. */
TEST(merges_that_never_happen)
{
    plain_bytes_vocabulary();
    ADD_TOKENS("ab", "abc"); /* 256 to 257 */
    add_token("cd", 5);      /* 258: unused, so none that a text becomes */
    /* The first four never happen: no token results, a part is no token, or the result is unused.
     */
    ADD_MERGES("x y", "xy z", "z xy", "c d", "a b", "ab c");
    use_vocabulary();
    CHECK_IDS("abcxyzcd", 257, 'x', 'y', 'z', 'c', 'd');
}

/* A piece that is a token need not come out of the merges. */
TEST(whole_pieces)
{
    static const char *const pres[] = {"llama-bpe", "llama3",  "llama-v3", "falcon3",
                                       "falcon-h1", "pixtral", "midm-2.0", "lfm2"};
    static const char *const others[] = {"dbrx", "smaug-bpe", "qwen2", "glm4"};
    plain_bytes_vocabulary();
    ADD_TOKENS("ab", "\u0120abc", "123", "\u0120\u00c3\u00a9"); /* 256 to 259 */
    v.types[0xa9] = 5;
    v.has_types = true;
    add_merge("a b");
    for (size_t i = 0; i < COUNT(pres); i++) {
        v.pre = pres[i];
        use_vocabulary();
        CHECK_IDS(" abc 1234abc", 257, ' ', 258, '4', 256, 'c');
        CHECK_IDS("x \u00e9", 'x', 259); /* one byte of which has no token */
        check_unencodable(text_of("x\u00e9"), "U+00E9");
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        v.pre = others[i];
        use_vocabulary();
        CHECK_IDS(" abc", ' ', 256, 'c');
    }
}

TEST(byte_tokens)
{
    plain_bytes_vocabulary();
    v.tokens[0] = text_of("<0x00>");
    v.types[0] = 6;
    v.types['A'] = 6; /* written in the alphabet */
    v.has_types = true;
    add_token("<0x42>", 6); /* the normal token for B comes first */
    add_token("<0x4g>", 6); /* no number: its characters */
    use_vocabulary();
    CHECK_IDS("\0AB", 0, 'A', 'B');
    ck_assert(text_is(tokenizer_bytes(t, 256), "B") && text_is(tokenizer_bytes(t, 257), "<0x4g>"));
}

TEST(tokens_outside_the_alphabet_are_raw)
{
    plain_bytes_vocabulary();
    ADD_TOKENS("\u2581the", "c d", "\xff\xfe", "[PAD]", "[PAD]", "xy");
    ADD_MERGES("x y");
    add_token("a", 5);
    add_token("a", 3);
    add_token("", 5);
    use_vocabulary();
    ck_assert(text_is(tokenizer_bytes(t, 256), "\u2581the"));
    ck_assert(text_is(tokenizer_bytes(t, 257), "c d"));
    ck_assert(text_is(tokenizer_bytes(t, 258), "\xff\xfe"));
    CHECK_IDS("c d", 'c', ' ', 'd');
    CHECK_IDS("b[PAD]", 'b', '[', 'P', 'A', 'D', ']'); /* duplicates that nothing needs */
}

TEST(special_ids)
{
    static const struct {
        int64_t bos, eos;
        int adds_bos;
        const char *pre;
        int found_bos, found_eos;
        bool adds;
    } cases[] = {
        {-1, -1, -1, NULL, -1, -1, false},
        {0, 255, 1, NULL, 0, 255, true},
        {0, 255, -1, "llama-bpe", 0, 255, true}, /* adds it unless the file says otherwise */
        {0, 255, 0, "llama-bpe", 0, 255, false},
        {UINT32_MAX, 255, -1, "llama-bpe", -1, 255, false}, /* none, as some converters write it */
    };
    plain_bytes_vocabulary();
    for (size_t i = 0; i < COUNT(cases); i++) {
        v.bos = cases[i].bos;
        v.eos = cases[i].eos;
        v.adds_bos = cases[i].adds_bos;
        v.pre = cases[i].pre;
        use_vocabulary();
        ck_assert_int_eq(tokenizer_bos(t), cases[i].found_bos);
        ck_assert_int_eq(tokenizer_eos(t), cases[i].found_eos);
        ck_assert(tokenizer_adds_bos(t) == cases[i].adds);
    }
}

TEST(ends_are_known_by_key_and_by_name)
{
    static const struct {
        int id;
        const char *why;
    } ends[] = {{'A', "eos_token_id"}, {256, "<|im_end|>"}, {259, "<|endoftext|>"}};
    plain_bytes_vocabulary();
    add_token("<|im_end|>", 3);
    add_token("<end_of_turn>", 4); /* no control token: it is text */
    add_token("<|eot_id|>", 1);
    add_token("<|endoftext|>", 3);
    add_token("<|im_start|>", 3);
    v.eos = 'A';
    use_vocabulary();
    size_t n = 0;
    const char *why;
    for (int i = 0, id; (id = tokenizer_end(t, &i, &why)) >= 0; n++)
        ck_assert(n < COUNT(ends) && id == ends[n].id && strcmp(why, ends[n].why) == 0);
    ck_assert_uint_eq(n, COUNT(ends));
    for (int id = 0; id < tokenizer_n_tokens(t); id++)
        ck_assert(tokenizer_ends(t, id) == (id == 'A' || id == 256 || id == 259));
    v.eos = 259; /* named twice, listed once */
    use_vocabulary();
    int i = 0;
    ck_assert_int_eq(tokenizer_end(t, &i, &why), 259);
    ck_assert_int_eq(tokenizer_end(t, &i, &why), 256);
    ck_assert_int_eq(tokenizer_end(t, &i, &why), -1);
}

/* Other programs read these as well, with a warning. */
TEST(odd_vocabularies_are_read, .loops = 2)
{
    for (int type = 1; type <= 6; type++) {
        if (_i)
            vocabulary_of_scores(true);
        else
            plain_bytes_vocabulary();
        add_token("", type);
        add_token("[PAD]", 5);
        v.eos = 5000;
        use_vocabulary();
        const int first = _i ? 259 : 256;
        const char *odd = tokenizer_oddity(t);
        ck_assert_ptr_nonnull(odd);
        ck_assert_ptr_nonnull(strstr(odd, "eos_token_id: expected an id below "));
        ck_assert((strstr(odd, " is empty") != NULL) == (type != 5));
        ck_assert(tokenizer_eos(t) == -1 && !tokenizer_ends(t, first));
        ck_assert(tokenizer_bytes(t, first).len == 0 && tokenizer_bytes(t, first + 1).len == 0);
        size_t n;
        int32_t *ids = encode_letters(3, &n);
        ck_assert(n >= 3 && ids[n - 1] == ids[n - 2]);
    }
    plain_bytes_vocabulary();
    use_vocabulary();
    ck_assert_ptr_null(tokenizer_oddity(t));
}
