#include "vocab_import.h"

/* --- tokenizer.json -------------------------------------------------------------------------- */

TEST(test_refused_models, .after = drop_import)
{
    static const struct {
        struct parts parts;
        const char *message;
    } cases[] = {
        {{.type = "\"WordPiece\""},
         "expected \"type\" to be BPE|null, found WordPiece; --tokenizer none"},
        {{.type = "3"}, "expected \"type\" to be BPE|null, found 3"},
        {{.options = "\"dropout\": 0.1"}, "expected \"dropout\" to be null|0|0.0, found 0.1"},
        {{.options = "\"continuing_subword_prefix\": \"##\""}, "to be null, found ##"},
        {{.options = "\"end_of_word_suffix\": \"</w>\""}, "to be null, found </w>"},
        {{.options = "\"ignore_merges\": true"},
         "expected \"ignore_merges\" to be false with these"},
        {{.options = "\"byte_fallback\": 1"},
         "expected \"byte_fallback\" to be true|false|null, found 1"},
        {{.vocab = "[]"}, "\"vocab\" at byte"},
        {{.vocab = "{\"a\": 0, \"b\": 0}"}, "token 0: expected one name, found \"a\" and \"b\""},
        {{.vocab = "{\"a\": -1}"}, "\"a\" at byte 227: expected a whole number from 0 to 7"},
        {{.vocab = "{\"a\": 8}"},
         "expected a whole number from 0 to 7, found 8, which is out of range"},
        {{.vocab = "{\"a\": 1.5}"}, "found 1.5, which is not whole"},
        {{.vocab = "{\"a\": 1, \"a\": 2}"},
         "expected every key once in an object, found \"a\" again"},
        {{.vocab = "{\"\": 0}", .merges = "[]"}, "found token 0 empty"},
        {{.merges = "{}"}, "\"merges\" at byte"},
        {{.merges = "[\"ab\"]"}, "merge 0: expected two tokens with a space between, found \"ab\""},
        {{.merges = "[\"a b\", \"a b c\"]"}, "merge 1: expected two tokens with a space between"},
        {{.merges = "[\" b\"]"}, "merge 0: expected two tokens with a space"},
        {{.merges = "[\"a \"]"}, "merge 0: expected two tokens with a space"},
        {{.merges = "[\"\"]"}, "merge 0: expected two tokens with a space"},
        {{.merges = "[[\"a\"]]"}, "merge 0: expected two tokens, found 1"},
        {{.merges = "[[\"a\", 1]]"}, "expected a string, found 1"},
        {{.merges = "[7]"}, "expected an array, found 7"},
        {{.merges = "[\"a d\"]"}, "merge 0: expected tokens of the vocabulary, found \"d\""},
        {{.merges = "[\"b a\"]"}, "merge 0: expected tokens of the vocabulary, found \"ba\""},
        {{.vocab = "{\"a \": 0, \"b\": 1, \"a b\": 2}", .merges = "[[\"a \", \"b\"]]"},
         "merges element 0: expected characters that stand for bytes, found \"a  b\""},
        {{.merges = "[\"a b\", \"ab c\", \"a b\"]"},
         "merges element 2: expected each pair once, found that of element 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_parts(&cases[i].parts);
        check_not_imported("tokenizer.json", 8, cases[i].message);
        check_not_imported(NULL, 8, cases[i].message);
    }
}

TEST(test_refused_pipelines, .after = drop_import)
{
    static const struct {
        struct parts parts;
        const char *message;
    } cases[] = {
        {{.normalizer = "{\"type\": \"Lowercase\"}"},
         "normalizer \"Lowercase\": expected a step that is done here, found {\"type\": "
         "\"Lowercase\"}; "
         "--tokenizer none"},
        {{.normalizer = "{}"}, "normalizer \"null\": expected a step"},
        {{.normalizer = "[]"}, "normalizer \"null\": expected a step"},
        {{.normalizer = "{\"type\": \"Sequence\", \"normalizers\": [1]}"},
         "normalizer \"null\": expected a step that is done here, found 1"},
        {{.normalizer = "{\"type\": \"Prepend\", \"prepend\": \"_\"}"},
         "normalizer \"Prepend\": expected a step"},
        {{.normalizer =
              "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"b\"}"},
         "normalizer \"Replace\": expected a step"},
        {{.pre = "null"},
         "pre_tokenizer: expected ByteLevel with the cuts of GPT-2, StarCoder, Llama 3 or Qwen 2, "
         "or "
         "\"\u2581\" for spaces, found null; --tokenizer none"},
        {{.pre = "{\"type\": \"Whitespace\"}"},
         "pre_tokenizer \"Whitespace\": expected a step that is done here"},
        {{.pre = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}"},
         "pre_tokenizer \"ByteLevel\": expected a step"},
        {{.pre = "{\"type\": \"ByteLevel\", \"use_regex\": false}"},
         "pre_tokenizer: expected ByteLevel with the cuts"},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
                 "{\"Regex\": "
                 "\"\\\\w+\"}, \"behavior\": \"Isolated\", \"invert\": false}, " BYTE_LEVEL "]}"},
         "pre_tokenizer: expected ByteLevel with the cuts"},
        {{.pre =
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \" \"}, \"behavior\": \"Removed\"}"},
         "pre_tokenizer \"Split\": expected a step"},
        {{.pre = "{\"type\": \"Digits\", \"individual_digits\": false}"},
         "pre_tokenizer \"Digits\": expected a step"},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL ", " BYTE_LEVEL "]}"},
         "pre_tokenizer: expected ByteLevel with the cuts"},
        {{.pre = METASPACE("sometimes", "false")}, "pre_tokenizer \"Metaspace\": expected a step"},
        {{.pre = METASPACE("never", "true"), .vocab = "{\"a\u2581\": 0}", .merges = "[]"},
         "token 0, \"a\u2581\": expected Metaspace's \"split\" to be false"},
        {{.pre = METASPACE("never", "true"), .options = "\"ignore_merges\": true"},
         "expected \"ignore_merges\" to be false with these cuts"},
        {{.pre = METASPACE("never", "true"), .vocab = "{\"<0x41>\": 0}", .merges = "[]"},
         "token 0, \"<0x41>\": expected the model's \"byte_fallback\" to be true"},
        {{.post = "{\"type\": \"BertProcessing\"}"},
         "post_processor: expected ByteLevel, or TemplateProcessing with at most one"},
        {{.post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
                  "\"a\"}}], "
                  "\"special_tokens\": {}}"},
         "post_processor: expected ByteLevel, or TemplateProcessing with at most one"},
        {{.post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
                  "\"a\"}}], "
                  "\"special_tokens\": {\"a\": {\"ids\": [8]}}}"},
         "special token before a text, of one id; found {\"type\""},
        {{.post =
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
              "\"a\"}}, "
              "{\"SpecialToken\": {\"id\": \"a\"}}], \"special_tokens\": {\"a\": {\"ids\": [0]}}}"},
         "post_processor: expected ByteLevel, or TemplateProcessing with at most one"},
        {{.added = "3"}, "\"added_tokens\" at byte"},
        {{.added = "[{\"id\": 8, \"content\": \"x\"}]"}, "token \"x\": expected an id from 0 to 7"},
        {{.added = "[{\"id\": -3, \"content\": \"x\"}]"}, "found -3"},
        {{.added = "[{\"id\": 1, \"content\": \"x\"}]"},
         "token 1: expected one name, found \"b\" and \"x\""},
        {{.added = "[{\"id\": 5, \"content\": \"b\"}]"},
         "added token \"b\": expected id 1, as in the vocabulary, found 5"},
        {{.added = "[{\"id\": 5, \"content\": \"\"}]"}, "added token \"\": expected a name"},
        {{.added = "[{\"id\": 5, \"content\": \"x\", \"single_word\": true}]"},
         "single_word to be false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_parts(&cases[i].parts);
        check_not_imported("tokenizer.json", 8, cases[i].message);
    }
}

TEST(test_cut_rules, .after = drop_import)
{
#define SPLIT(regex, level)                                                                        \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": " \
    "\"" regex "\"}, \"behavior\": \"Isolated\", \"invert\": false}, " level "]}"
#define PLAIN  "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define GPT2   "| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA3 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
#define ENDING                                                                                     \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
    static const struct {
        struct parts parts;
        const char *pre;
    } cases[] = {
        {{.pre = BYTE_LEVEL}, "gpt-2"},
        {{.pre = SPLIT("'s|'t|'re|'ve|'m|'ll|'d" GPT2, PLAIN)}, "gpt-2"},
        {{.pre = SPLIT("'(?:[sdmt]|ll|ve|re)" GPT2, PLAIN)}, "gpt-2"},
        {{.pre = SPLIT(LLAMA3 "{1,3}" ENDING, PLAIN)}, "dbrx"},
        {{.pre = SPLIT(LLAMA3 "{1,3}" ENDING, PLAIN), .options = "\"ignore_merges\": true"},
         "llama-bpe"},
        {{.pre = SPLIT(LLAMA3 ENDING, PLAIN), .normalizer = "{\"type\": \"NFC\"}"}, "qwen2"},
        {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
                 "\"individual_digits\": true}, " BYTE_LEVEL "]}"},
         "starcoder"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_parts(&cases[i].parts);
        must_import("tokenizer.json", 8);
        ck_assert_str_eq(imported.keys.model, "gpt2");
        ck_assert_str_eq(imported.keys.pre, cases[i].pre);
        ck_assert_uint_eq(imported.keys.n_merges, 2);
        ck_assert(text_is(imported.keys.merges[0], "a b") &&
                  text_is(imported.keys.merges[1], "ab c"));
        ck_assert((strstr(import_notes, "the normalizer NFC is not applied") != NULL) ==
                  (cases[i].parts.normalizer != NULL));
    }
}

TEST(test_added_tokens, .after = drop_import)
{
    const struct parts p = {
        .added = "[{\"id\": 5, \"content\": \"<s>\", \"special\": true, \"lstrip\": true}, "
                 "{\"id\": 7, \"content\": \" you \", \"special\": false}, "
                 "{\"id\": 2, \"content\": \"c\", \"special\": true}]",
        .post = "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"}, {\"type\": "
                "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
                "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"c\"}}], "
                "\"special_tokens\": {\"<s>\": {\"ids\": [5]}, \"c\": {\"ids\": [2]}}}]}",
        .options = "\"unk_token\": \"b\"",
    };
    write_parts(&p);
    must_import(NULL, 9);
    check_imported(0, "a", TOKEN_NORMAL);
    check_imported(2, "c", TOKEN_CONTROL);
    check_imported(5, "<s>", TOKEN_CONTROL);
    check_imported(6, "[PAD6]", TOKEN_UNUSED);
    check_imported(7, " you ", TOKEN_USER_DEFINED);
    check_imported(8, "[PAD8]", TOKEN_UNUSED);
    ck_assert(imported.keys.bos == 5 && imported.keys.unk == 1 && imported.keys.add_bos);
    check_noted("spaces beside added tokens, such as \"<s>\", stay");
    check_noted("puts behind every text");
    check_noted("no EOS token");

    scratch_write_text("tokenizer_config.json",
                       "{\"bos_token\": \"a\", \"add_prefix_space\": false}");
    check_not_imported(NULL, 9, "expected BOS, token 0, before each text, found token 5, \"<s>\"");
    scratch_write_text("tokenizer_config.json", "{\"add_prefix_space\": true}");
    check_not_imported(NULL, 9, "expected \"add_prefix_space\" to be false");
    scratch_write_text("tokenizer_config.json", "[]");
    check_not_imported(NULL, 9, "tokenizer_config.json: the value at byte 0: expected an object");
}

/* Names in a folder's files come before the ids of the model's config, if they are tokens. */
TEST(test_special_ids, .after = drop_import)
{
    const struct hf_ids ids = {3, 4, 50256};
    write_parts(&usual_parts);
    scratch_write_text(
        "tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"b\"}, \"eos_token\": \"<|endoftext|>\", "
        "\"added_tokens_decoder\": {\"6\": {\"content\": \"<x>\", \"special\": true}}}");
    scratch_write_text(
        "special_tokens_map.json",
        "{\"bos_token\": \"a\", \"pad_token\": null, \"additional_special_tokens\": [\"c\"]}");
    scratch_write_text("added_tokens.json", "{\"<y>\": 7, \"<x>\": 6}");
    import_path(scratch_dir(), ids, 8);
    ck_assert(imported.keys.bos == 1 && imported.keys.eos == 4 && imported.keys.pad == -1 &&
              !imported.keys.add_bos);
    check_imported(1, "b", TOKEN_CONTROL);
    check_imported(2, "c", TOKEN_CONTROL);
    check_imported(4, "abc", TOKEN_NORMAL);
    check_imported(6, "<x>", TOKEN_CONTROL);
    check_imported(7, "<y>", TOKEN_USER_DEFINED);

    scratch_write_text("added_tokens.json", "{\"<y>\": 8}");
    check_not_imported(NULL, 8, "added_tokens.json: token \"<y>\": expected an id from 0 to 7");
    scratch_write_text("added_tokens.json", "{}");
    scratch_write_text("tokenizer_config.json",
                       "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<x>\"}}}");
    check_not_imported(NULL, 8, "tokenizer_config.json: \"x\" at byte 0: expected a whole number");
    scratch_write_text("tokenizer_config.json", "{\"bos_token\": 1}");
    check_not_imported(NULL, 8, "\"bos_token\" at byte 1: expected a string, found 1");
}

/* --- spaces as U+2581 ------------------------------------------------------------------------ */

#define BYTE_FALLBACK "\"byte_fallback\": true, \"unk_token\": \"<unk>\""

TEST(test_merges_become_scores, .after = drop_import)
{
    const struct parts p = {
        .normalizer =
            "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": "
            "\"\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
            "\"\u2581\"}]}",
        .pre = "null",
        .options = BYTE_FALLBACK,
        .added = "[{\"id\": 0, \"content\": \"<unk>\", \"special\": true, \"normalized\": true}]",
        .vocab = "{\"<unk>\": 0, \"<0x0A>\": 1, \"\u2581\": 2, \"a\": 3, \"b\": 4, \"ab\": 5, "
                 "\"\u2581a\": 6}",
        .merges = "[\"a b\", \"\u2581 a\"]",
    };
    static const int types[] = {2, 6, 1, 1, 1, 1, 1};
    write_parts(&p);
    must_import("tokenizer.json", 7);
    check_noted("added tokens, such as \"<unk>\", are found wherever they stand");
    ck_assert(!strstr(import_notes, "merges"));
    ck_assert_str_eq(imported.keys.model, "llama");
    ck_assert(!imported.keys.pre && imported.keys.unk == 0 && imported.keys.add_space_prefix == 1);
    for (int id = 0; id < 7; id++)
        ck_assert_int_eq(imported.keys.types[id], types[id]);
    ck_assert(imported.keys.scores[5] > imported.keys.scores[6] &&
              imported.keys.scores[6] > imported.keys.scores[2]);
    use_imported();
    static const int32_t expected[] = {2, 5, 6, 1};
    check_text("ab a\n", expected, 4);
}

TEST(test_scores_that_differ_are_noted, .after = drop_import)
{
    static const struct {
        const char *scheme, *vocab, *merges, *note;
        int space;
    } cases[] = {
        /* "abc" is made in two ways, of which others stand between */
        {METASPACE("never", "false"),
         "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 5, \"d\": 6, \"dd\": 7}",
         "[\"a b\", \"b c\", \"ab c\", \"d d\", \"a bc\"]",
         "the merges of some tokens, such as \"abc\", do not follow one another", 0},
        {METASPACE("never", "true"), "{\"a\": 0, \"b\": 1, \"ab\": 3, \"ba\": 4}", "[\"a b\"]",
         "no merges make 1 of the tokens, such as \"ba\": by scores", 0},
        {METASPACE("always", "false"), "{\"a\": 0}", "[]",
         "before every text, also one that begins with a space, which", 1},
        {METASPACE("first", "false"), "{\"a\": 0}", "[]", "and behind special tokens", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct parts p = {.pre = cases[i].scheme,
                                .vocab = cases[i].vocab,
                                .merges = cases[i].merges,
                                .options = BYTE_FALLBACK};
        write_parts(&p);
        must_import("tokenizer.json", 8);
        check_noted(cases[i].note);
        ck_assert_int_eq(imported.keys.add_space_prefix, cases[i].space);
    }
}
