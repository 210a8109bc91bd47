/* Vocabularies out of a tokenizer.json: what of it is done here, what is refused, what is noted. */
#include "vocab_import.h"

struct refused {
    struct parts parts;
    const char *message;
};

/* As a file, and as one of a folder. */
static void try_refused(const struct refused *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        write_parts(&rows[i].parts);
        check_not_imported("tokenizer.json", 8, rows[i].message);
        check_not_imported(NULL, 8, rows[i].message);
    }
}

TEST(test_refused_models)
{
    static const struct refused cases[] = {
        {{.type = "'WordPiece'"},
         "expected \"type\" to be BPE|null, found WordPiece; --tokenizer none"},
        {{.type = "3"}, "expected \"type\" to be BPE|null, found 3"},
        {{.options = "'dropout': 0.1"}, "expected \"dropout\" to be null|0|0.0, found 0.1"},
        {{.options = "'continuing_subword_prefix': '##'"}, "to be null, found ##"},
        {{.options = "'end_of_word_suffix': '</w>'"}, "to be null, found </w>"},
        {{.options = "'ignore_merges': true"}, "expected \"ignore_merges\" to be false with these"},
        {{.options = "'byte_fallback': 1"},
         "expected \"byte_fallback\" to be true|false|null, found 1"},
        {{.vocab = "[]"}, "\"vocab\" at byte"},
        {{.vocab = "{'a': 0, 'b': 0}"}, "token 0: expected one name, found \"a\" and \"b\""},
        {{.vocab = "{'a': -1}"}, "\"a\" at byte 227: expected a whole number from 0 to 7"},
        {{.vocab = "{'a': 8}"}, "a whole number from 0 to 7, found 8, which is out of range"},
        {{.vocab = "{'a': 1.5}"}, "found 1.5, which is not whole"},
        {{.vocab = "{'a': 1, 'a': 2}"}, "expected every key once in an object, found \"a\" again"},
        {{.vocab = "{'': 0}", .merges = "[]"}, "found token 0 empty"},
        {{.merges = "{}"}, "\"merges\" at byte"},
        {{.merges = "['ab']"}, "merge 0: expected two tokens with a space between, found \"ab\""},
        {{.merges = "['a b', 'a b c']"}, "merge 1: expected two tokens with a space between"},
        {{.merges = "[' b']"}, "merge 0: expected two tokens with a space"},
        {{.merges = "['a ']"}, "merge 0: expected two tokens with a space"},
        {{.merges = "['']"}, "merge 0: expected two tokens with a space"},
        {{.merges = "[['a']]"}, "merge 0: expected two tokens, found 1"},
        {{.merges = "[['a', 1]]"}, "expected a string, found 1"},
        {{.merges = "[7]"}, "expected an array, found 7"},
        {{.merges = "['a d']"}, "merge 0: expected tokens of the vocabulary, found \"d\""},
        {{.merges = "['b a']"}, "merge 0: expected tokens of the vocabulary, found \"ba\""},
        {{.vocab = "{'a ': 0, 'b': 1, 'a b': 2}", .merges = "[['a ', 'b']]"},
         "merges element 0: expected characters that stand for bytes, found \"a  b\""},
        {{.merges = "['a b', 'ab c', 'a b']"},
         "merges element 2: expected each pair once, found that of element 0"},
    };
    try_refused(cases, COUNT(cases));
}

#define NORMALIZER(name) "normalizer \"" name "\": expected a step"
#define PRE(name)        "pre_tokenizer \"" name "\": expected a step"
#define CUTS             "pre_tokenizer: expected ByteLevel with the cuts of GPT-2, "
#define POST             "post_processor: expected ByteLevel, or TemplateProcessing with at most one "
#define TEMPLATE(pieces, ids)                                                                      \
    "{'type': 'TemplateProcessing', 'single': [" pieces "], 'special_tokens': {" ids "}}"
#define SPECIAL(name) "{'SpecialToken': {'id': '" name "'}}"
#define SEQUENCE(...) "{'type': 'Sequence', 'pretokenizers': [" __VA_ARGS__ "]}"

TEST(test_refused_pipelines)
{
    static const struct refused cases[] = {
        {{.normalizer = "{'type': 'Lowercase'}"},
         NORMALIZER("Lowercase") " that is done here, found {\"type\": \"Lowercase\"}; --tokenizer "
                                 "none"},
        {{.normalizer = "{}"}, NORMALIZER("null")},
        {{.normalizer = "[]"}, NORMALIZER("null")},
        {{.normalizer = "{'type': 'Sequence', 'normalizers': [1]}"},
         NORMALIZER("null") " that is done here, found 1"},
        {{.normalizer = "{'type': 'Prepend', 'prepend': '_'}"}, NORMALIZER("Prepend")},
        {{.normalizer = "{'type': 'Replace', 'pattern': {'String': 'a'}, 'content': 'b'}"},
         NORMALIZER("Replace")},
        {{.pre = "null"},
         CUTS "StarCoder, Llama 3 or Qwen 2, or \"\u2581\" for spaces, found null; --tokenizer "
              "none"},
        {{.pre = "{'type': 'Whitespace'}"}, PRE("Whitespace") " that is done here"},
        {{.pre = "{'type': 'ByteLevel', 'add_prefix_space': true}"}, PRE("ByteLevel")},
        {{.pre = "{'type': 'ByteLevel', 'use_regex': false}"}, CUTS},
        {{.pre = SEQUENCE("{'type': 'Split', 'pattern': {'Regex': '\\\\w+'}, 'behavior': "
                          "'Isolated', 'invert': false}, " BYTE_LEVEL)},
         CUTS},
        {{.pre = "{'type': 'Split', 'pattern': {'Regex': ' '}, 'behavior': 'Removed'}"},
         PRE("Split")},
        {{.pre = "{'type': 'Digits', 'individual_digits': false}"}, PRE("Digits")},
        {{.pre = SEQUENCE(BYTE_LEVEL ", " BYTE_LEVEL)}, CUTS},
        {{.pre = METASPACE("sometimes", "false")}, PRE("Metaspace")},
        {{.pre = METASPACE("never", "true"), .vocab = "{'a\u2581': 0}", .merges = "[]"},
         "token 0, \"a\u2581\": expected Metaspace's \"split\" to be false"},
        {{.pre = METASPACE("never", "true"), .options = "'ignore_merges': true"},
         "expected \"ignore_merges\" to be false with these cuts"},
        {{.pre = METASPACE("never", "true"), .vocab = "{'<0x41>': 0}", .merges = "[]"},
         "token 0, \"<0x41>\": expected the model's \"byte_fallback\" to be true"},
        {{.post = "{'type': 'BertProcessing'}"}, POST},
        {{.post = TEMPLATE(SPECIAL("a"), "")}, POST},
        {{.post = TEMPLATE(SPECIAL("a"), "'a': {'ids': [8]}")},
         POST "special token before a text, of one id; found {\"type\""},
        {{.post = TEMPLATE(SPECIAL("a") ", " SPECIAL("a"), "'a': {'ids': [0]}")}, POST},
        {{.added = "3"}, "\"added_tokens\" at byte"},
        {{.added = "[{'id': 8, 'content': 'x'}]"}, "token \"x\": expected an id from 0 to 7"},
        {{.added = "[{'id': -3, 'content': 'x'}]"}, "found -3"},
        {{.added = "[{'id': 1, 'content': 'x'}]"},
         "token 1: expected one name, found \"b\" and \"x\""},
        {{.added = "[{'id': 5, 'content': 'b'}]"},
         "added token \"b\": expected id 1, as in the vocabulary, found 5"},
        {{.added = "[{'id': 5, 'content': ''}]"}, "added token \"\": expected a name"},
        {{.added = "[{'id': 5, 'content': 'x', 'single_word': true}]"}, "single_word to be false"},
    };
    try_refused(cases, COUNT(cases));
}

TEST(test_cut_rules)
{
#define SPLIT(regex)                                                                               \
    SEQUENCE("{'type': 'Split', 'pattern': {'Regex': '" regex                                      \
             "'}, 'behavior': 'Isolated', 'invert': false}, "                                      \
             "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': false}")
#define Q      "\\u0027" /* an apostrophe */
#define ENDS   Q "s|" Q "t|" Q "re|" Q "ve|" Q "m|" Q "ll|" Q "d"
#define GPT2   "| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define LLAMA3 "(?i:" ENDS ")|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
#define ENDING                                                                                     \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
    static const struct {
        struct parts parts;
        const char *pre;
    } cases[] = {
        {{.pre = BYTE_LEVEL}, "gpt-2"},
        {{.pre = SPLIT(ENDS GPT2)}, "gpt-2"},
        {{.pre = SPLIT(Q "(?:[sdmt]|ll|ve|re)" GPT2)}, "gpt-2"},
        {{.pre = SPLIT(LLAMA3 "{1,3}" ENDING)}, "dbrx"},
        {{.pre = SPLIT(LLAMA3 "{1,3}" ENDING), .options = "'ignore_merges': true"}, "llama-bpe"},
        {{.pre = SPLIT(LLAMA3 ENDING), .normalizer = "{'type': 'NFC'}"}, "qwen2"},
        {{.pre = SEQUENCE("{'type': 'Digits', 'individual_digits': true}, " BYTE_LEVEL)},
         "starcoder"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_parts(&cases[i].parts);
        must_import("tokenizer.json", 8);
        const struct vocab_keys *k = &imported.keys;
        ck_assert_str_eq(k->model, "gpt2");
        ck_assert_str_eq(k->pre, cases[i].pre);
        ck_assert(k->n_merges == 2 && text_is(k->merges[0], "a b") &&
                  text_is(k->merges[1], "ab c"));
        expect_says(import_notes, cases[i].parts.normalizer ? "the normalizer NFC is not applied"
                                                            : "!the normalizer NFC is not applied");
    }
}

TEST(test_added_tokens)
{
    const struct parts p = {
        .added = "[{'id': 5, 'content': '<s>', 'special': true, 'lstrip': true}, "
                 "{'id': 7, 'content': ' you ', 'special': false}, "
                 "{'id': 2, 'content': 'c', 'special': true}]",
        .post = "{'type': 'Sequence', 'processors': [{'type': 'ByteLevel'}, " TEMPLATE(
            SPECIAL("<s>") ", {'Sequence': {'id': 'A'}}, " SPECIAL("c"),
            "'<s>': {'ids': [5]}, 'c': {'ids': [2]}") "]}",
        .options = "'unk_token': 'b'",
    };
    static const char *const configs[][2] = {
        {"{'bos_token': 'a', 'add_prefix_space': false}",
         "expected BOS, token 0, before each text, found token 5, \"<s>\""},
        {"{'add_prefix_space': true}", "expected \"add_prefix_space\" to be false"},
        {"[]", "tokenizer_config.json: the value at byte 0: expected an object"},
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
    expect_says(import_notes, "spaces beside added tokens, such as \"<s>\", stay|"
                              "puts behind every text|no EOS token");
    for (size_t i = 0; i < COUNT(configs); i++) {
        write_json("tokenizer_config.json", configs[i][0]);
        check_not_imported(NULL, 9, configs[i][1]);
    }
}

/* Names in a folder's files come before the ids of the model's config, if they are tokens. */
TEST(test_special_ids)
{
    const struct hf_ids ids = {3, 4, 50256};
    write_parts(&usual_parts);
    write_json("tokenizer_config.json",
               "{'bos_token': {'content': 'b'}, 'eos_token': '<|endoftext|>', "
               "'added_tokens_decoder': {'6': {'content': '<x>', 'special': true}}}");
    write_json("special_tokens_map.json",
               "{'bos_token': 'a', 'pad_token': null, 'additional_special_tokens': ['c']}");
    write_json("added_tokens.json", "{'<y>': 7, '<x>': 6}");
    import_path(scratch_dir(), ids, 8);
    ck_assert(imported.keys.bos == 1 && imported.keys.eos == 4 && imported.keys.pad == -1 &&
              !imported.keys.add_bos);
    check_imported(1, "b", TOKEN_CONTROL);
    check_imported(2, "c", TOKEN_CONTROL);
    check_imported(4, "abc", TOKEN_NORMAL);
    check_imported(6, "<x>", TOKEN_CONTROL);
    check_imported(7, "<y>", TOKEN_USER_DEFINED);

    write_json("added_tokens.json", "{'<y>': 8}");
    check_not_imported(NULL, 8, "added_tokens.json: token \"<y>\": expected an id from 0 to 7");
    write_json("added_tokens.json", "{}");
    write_json("tokenizer_config.json", "{'added_tokens_decoder': {'x': {'content': '<x>'}}}");
    check_not_imported(NULL, 8, "tokenizer_config.json: \"x\" at byte 0: expected a whole number");
    write_json("tokenizer_config.json", "{'bos_token': 1}");
    check_not_imported(NULL, 8, "\"bos_token\" at byte 1: expected a string, found 1");
}

#define BYTE_FALLBACK "'byte_fallback': true, 'unk_token': '<unk>'"

TEST(test_merges_become_scores)
{
    const struct parts p = {
        .normalizer = "{'type': 'Sequence', 'normalizers': [{'type': 'Prepend', 'prepend': "
                      "'\u2581'}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': "
                      "'\u2581'}]}",
        .pre = "null",
        .options = BYTE_FALLBACK,
        .added = "[{'id': 0, 'content': '<unk>', 'special': true, 'normalized': true}]",
        .vocab = "{'<unk>': 0, '<0x0A>': 1, '\u2581': 2, 'a': 3, 'b': 4, 'ab': 5, '\u2581a': 6}",
        .merges = "['a b', '\u2581 a']",
    };
    static const int types[] = {2, 6, 1, 1, 1, 1, 1};
    static const int32_t expected[] = {2, 5, 6, 1};
    const struct vocab_keys *k = &imported.keys;
    write_parts(&p);
    must_import("tokenizer.json", 7);
    expect_says(import_notes, "added tokens, such as \"<unk>\", are found wherever they stand|"
                              "!merges");
    ck_assert_str_eq(k->model, "llama");
    ck_assert(!k->pre && k->unk == 0 && k->add_space_prefix == 1);
    for (int id = 0; id < 7; id++)
        ck_assert_int_eq(k->types[id], types[id]);
    ck_assert(k->scores[5] > k->scores[6] && k->scores[6] > k->scores[2]);
    use_imported();
    check_text(text_of("ab a\n"), expected, 4);
}

TEST(test_scores_that_differ_are_noted)
{
    static const struct {
        const char *scheme, *vocab, *merges, *note;
        int space;
    } cases[] = {
        /* "abc" is made in two ways, of which others stand between */
        {METASPACE("never", "false"),
         "{'a': 0, 'b': 1, 'c': 2, 'ab': 3, 'bc': 4, 'abc': 5, 'd': 6, 'dd': 7}",
         "['a b', 'b c', 'ab c', 'd d', 'a bc']",
         "the merges of some tokens, such as \"abc\", do not follow one another", 0},
        {METASPACE("never", "true"), "{'a': 0, 'b': 1, 'ab': 3, 'ba': 4}", "['a b']",
         "no merges make 1 of the tokens, such as \"ba\": by scores", 0},
        {METASPACE("always", "false"), "{'a': 0}", "[]",
         "before every text, also one that begins with a space, which", 1},
        {METASPACE("first", "false"), "{'a': 0}", "[]", "and behind special tokens", 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_parts(&(struct parts){.pre = cases[i].scheme,
                                    .vocab = cases[i].vocab,
                                    .merges = cases[i].merges,
                                    .options = BYTE_FALLBACK});
        must_import("tokenizer.json", 8);
        expect_says(import_notes, cases[i].note);
        ck_assert_int_eq(imported.keys.add_space_prefix, cases[i].space);
    }
}
