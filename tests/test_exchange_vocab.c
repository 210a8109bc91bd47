#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "text/bpe_learn.h"
#include "vocab_import.h"

TEST(test_folders_of_transformers, .after = drop_import)
{
    static const char *const folders[] = {"tests/data/hf/gpt2", "tests/data/hf/llama"};
    static const char *const pre[] = {"gpt-2", "dbrx"};
    for (int i = 0; i < 2; i++) {
        const struct hf_ids ids = {50256, 50256, -1};
        char expect[64];
        import_path(folders[i], ids, 400);
        ck_assert_str_eq(imported.keys.pre, pre[i]);
        ck_assert(imported.keys.n == 400 && imported.keys.bos == 0 && imported.keys.eos == 0 &&
                  !imported.keys.add_bos);
        use_imported();
        snprintf(expect, sizeof expect, "%s/expect.json", folders[i]);
        ck_assert_int_eq(check_expected_ids(expect), 5);
    }
}

/* The same of vocab.json and merges.txt, whose first line may be missing. */
TEST(test_merges_in_a_text, .after = drop_import)
{
    scratch_copy("tests/data/hf/gpt2/vocab.json", "vocab.json");
    scratch_copy("tests/data/hf/gpt2/merges.txt", "merges.txt");
    for (int i = 0; i < 2; i++) {
        must_import(NULL, 400);
        use_imported();
        ck_assert_str_eq(import_notes, "");
        ck_assert_str_eq(imported.keys.pre, "gpt-2");
        ck_assert(imported.keys.bos == 0 && imported.keys.eos == 0 && imported.keys.pad == -1);
        check_imported(0, "<|endoftext|>", TOKEN_CONTROL);
        check_imported(399, "[PAD399]", TOKEN_UNUSED);
        ck_assert_int_eq(check_expected_ids("tests/data/hf/gpt2/expect.json"), 5);

        size_t len;
        unsigned char *bytes = read_file("tests/data/hf/gpt2/merges.txt", &len);
        const size_t first = strlen("#version: 0.2\n");
        scratch_write("merges.txt", bytes + first, len - first);
        free(bytes);
    }
}

/* --- vocab.json ------------------------------------------------------------------------------ */

TEST(test_refused_merges, .after = drop_import)
{
    static const struct {
        const char *merges, *message;
    } cases[] = {
        {"#version: 0.2\na b\nab\n", "merges.txt: merge 1: expected two tokens with a space"},
        {"#version: 0.2\na b c\n", "merge 0: expected two tokens"},
        {"a b\nab z", "merge 1: expected tokens of the vocabulary, found \"z\""},
        {"a b\n#version: 0.2\n", "merge 1: expected tokens of the vocabulary, found \"#version:\""},
        {"a b\na b\n", "merges element 1: expected each pair once"},
    };
    scratch_write_text("vocab.json", usual_parts.vocab);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write_text("merges.txt", cases[i].merges);
        check_not_imported(NULL, 8, cases[i].message);
    }
    scratch_write_text("merges.txt", "#version: 0.2\r\na b\r\n\r\nab c");
    must_import(NULL, 8);
    ck_assert(imported.keys.n_merges == 2 && text_is(imported.keys.merges[1], "ab c"));
}

/* nanoGPT's vocabularies: json.dump of its table of characters. */
TEST(test_characters, .after = drop_import)
{
    scratch_write_text(
        "vocab.json",
        "{\"\\n\": 0, \" \": 1, \"!\": 2, \"\\u00e9\": 3, \"a\": 4, \"\\ud83d\\ude00\": 5}");
    for (int i = 0; i < 2; i++) {
        must_import(i ? "vocab.json" : NULL, 7);
        use_imported();
        static const int32_t expected[] = {1, 1, 4, 3, 0, 5, 2};
        check_imported(1, VOCAB_SPACE, TOKEN_NORMAL);
        check_imported(6, "[PAD6]", TOKEN_UNUSED);
        ck_assert(imported.keys.add_space_prefix == 0 && !imported.keys.add_bos &&
                  tokenizer_bos(imported_tokenizer) == -1);
        ck_assert_int_eq(tokenizer_eos(imported_tokenizer), -1);
        check_text("  a\u00e9\n\U0001f600!", expected, 7);
    }
    scratch_write_text("vocab.json", "{\"a\": 0, \"bc\": 1}");
    check_not_imported("vocab.json", 7,
                       "expected single characters, as there is no merges.txt beside it, "
                       "found \"bc\"; --tokenizer none");
    scratch_write_text("vocab.json", "{\"\": 0}");
    check_not_imported("vocab.json", 7, "expected single characters");
    scratch_write_text("vocab.json", "{\"a\": 7}");
    check_not_imported("vocab.json", 7, "from 0 to 6, found 7");
}

TEST(test_no_files, .after = drop_import)
{
    must_import(NULL, 100);
    ck_assert_ptr_null(imported.keys.model);
    check_noted("there is no tokenizer");
    for (int i = 0; i < 2; i++) {
        drop_import();
        if (i == 0)
            must_import(NULL, 256);
        else
            import_path(NULL, no_ids, 256);
        char all[256];
        int32_t *ids;
        size_t n;
        use_imported();
        for (int byte = 0; byte < 256; byte++)
            all[byte] = (char)byte;
        expect_ok(tokenizer_encode(imported_tokenizer, (struct text){all, 256}, &ids, &n, &err));
        ck_assert_uint_eq(n, 256);
        for (int byte = 0; byte < 256; byte++)
            ck_assert_int_eq(ids[byte], byte);
        ck_assert(tokenizer_bos(imported_tokenizer) == '\n' &&
                  tokenizer_eos(imported_tokenizer) == 0);
        free(ids);
    }
    drop_import();
    import_path(NULL, no_ids, 255);
    ck_assert_ptr_null(imported.keys.model);
}

/* --- SentencePiece and llama2.c -------------------------------------------------------------- */

/* Both hold babyllama's vocabulary, of which llama.cpp's converter made the other file. */
TEST(test_babyllama, .after = drop_import)
{
    static const char *const files[] = {"tests/data/real/tok105.model",
                                        "tests/data/real/tok105.bin"};
    struct file_map map;
    struct gguf *g;
    const struct gguf_value *tokens, *types, *scores;
    expect_ok(file_map_open(&map, "tests/data/spm-chars.gguf", &err));
    expect_ok(gguf_parse_file(&map, &g, &err));
    tokens = gguf_find(g, "tokenizer.ggml.tokens");
    types = gguf_find(g, "tokenizer.ggml.token_type");
    scores = gguf_find(g, "tokenizer.ggml.scores");
    for (int i = 0; i < 2; i++) {
        struct gguf_cursor cursor = {0};
        struct text name;
        import_path(files[i], no_ids, 105);
        for (int id = 0; gguf_next_text(tokens, &cursor, &name); id++) {
            ck_assert(text_equal(imported.keys.tokens[id], name));
            ck_assert_int_eq(imported.keys.types[id], gguf_int_at(types, (uint64_t)id));
            ck_assert((double)imported.keys.scores[id] == gguf_float_at(scores, (uint64_t)id));
        }
        ck_assert_int_eq(imported.keys.n, 105);
        ck_assert_str_eq(imported.keys.model, "llama");
        ck_assert(imported.keys.unk == 0 && imported.keys.bos == 1);
        ck_assert_int_eq(imported.keys.eos, i == 1 ? 1 : 2); /* llama2.c ends texts at <s> */
        ck_assert(imported.keys.pad == -1 && imported.keys.add_bos &&
                  imported.keys.add_space_prefix == 1);
    }
    gguf_free(g);
    file_map_close(&map);
}

/* A folder's tokenizer.model comes before its tokenizer.json, which was made from it. */
TEST(test_model_and_json, .after = drop_import)
{
    const struct parts p = {
        .vocab = "{\"x\": 0}",
        .merges = "[]",
        .added = "[{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, "
                 "{\"id\": 105, \"content\": \"<x>\", \"special\": true}]",
        .post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}]}",
    };
    scratch_copy("tests/data/real/tok105.model", "tokenizer.model");
    must_import(NULL, 106);
    check_imported(2, "</s>", TOKEN_CONTROL);
    check_imported(105, "[PAD105]", TOKEN_UNUSED);
    check_noted("several in a row");
    ck_assert(imported.keys.add_bos);
    write_parts(&p);
    must_import(NULL, 106);
    check_imported(0, "<unk>", TOKEN_UNKNOWN);
    check_imported(105, "<x>", TOKEN_CONTROL);
    ck_assert(!imported.keys.add_bos);
    check_not_imported(
        NULL, 104,
        "tokenizer.model: token \"\u200a\": expected an id from 0 to 103, as the model "
        "has, found 104");
    write_parts(&usual_parts);
    scratch_write_text("tokenizer.model", "IQ== 0\n"); /* tiktoken's */
    must_import(NULL, 8);
    check_imported(3, "ab", TOKEN_NORMAL);
}

#define BPE_SPEC "\x12\x02\x18\x02"

TEST(test_hostile_sentencepiece, .after = drop_import)
{
#define CASE(bytes, message)                                                                       \
    {                                                                                              \
        bytes, sizeof bytes - 1, message                                                           \
    }
    static const struct {
        const char *bytes;
        size_t len;
        const char *message;
    } cases[] = {
        CASE("\x0a\x03\x0a\x01x",
             "model_type: expected BPE (2), found 1 (UNIGRAM is 1); --tokenizer none"),
        CASE("\x0a\x03\x0a\x01x\x12\x02\x18\x03", "found 3"),
        CASE("\x0a\x03\x0a\x01x\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "found -1"),
        CASE("\x0a\x03\x0a\x01", "2 bytes before the end of a message: expected a field"),
        CASE("\x0a\x03\x0a\x02x", "1 bytes before the end of a message: expected a field"),
        CASE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "1 bytes before the end"),
        CASE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "1 bytes before the end"),
        CASE("\x0a\x03\x0a\x01x\x0b", "expected a field of wire type 0, 1, 2 or 5"),
        CASE("\x0a\x03\x0a\x01x\x0d\x01", "1 bytes before the end"),
        CASE("\x0a\x05\x0a\x01x\x18\x07" BPE_SPEC, "piece 0, \"x\": expected a type from 1 to 6"),
        CASE("\x0a\x05\x0a\x01x\x18\x00" BPE_SPEC, "expected a type from 1 to 6"),
        CASE("\x0a\x08\x0a\x01x\x15\x00\x00\xc0\x7f" BPE_SPEC, "a finite score, found 1 and nan"),
        CASE("\x0a\x03\x0a\x01x\x0a\x03\x0a\x01x" BPE_SPEC, "expected each token once"),
        CASE("\x0a\x02\x0a\x00" BPE_SPEC, "found token 0 empty"),
        CASE("\x0a\x03\x0a\x01x\x12\x05\x18\x02\xc0\x01\x01", "found 1 and 1"),
        CASE("\x0a\x03\x0a\x01x" BPE_SPEC "\x1a\x02\x28\x00", "found 0 and 0"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write("tokenizer.model", cases[i].bytes, cases[i].len);
        check_not_imported("tokenizer.model", 8, cases[i].message);
    }
    scratch_write_text("tokenizer.model", "");
    check_not_imported(NULL, 8, "expected a tokenizer.bin of llama2.c with 8 tokens");
    /* Fields of other numbers and wire types are passed over; ids beyond are none. */
    const char fine[] = "\x0a\x03\x0a\x01x\x09"
                        "12345678\x7d"
                        "1234\x70\x01\x12\x04\x18\x02\x52\x00"
                        "\x1a\x06\x18\x00\x20\x00\x12\x00\x0a\x08\x0a\x01y\x15\x00\x00\x80\x3f";
    scratch_write("tokenizer.model", fine, sizeof fine - 1);
    must_import("tokenizer.model", 2);
    ck_assert_str_eq(import_notes, "");
    check_imported(1, "y", TOKEN_NORMAL);
    ck_assert(imported.keys.scores[1] == 1.0f && imported.keys.add_space_prefix == 0 &&
              imported.keys.bos == 1);
    ck_assert_int_eq(imported.keys.eos, -1);
}

TEST(test_hostile_llama2c, .after = drop_import)
{
    size_t len;
    unsigned char *bytes = read_file("tests/data/real/tok105.bin", &len);
    const struct {
        size_t len;
        int n;
        const char *message;
    } cases[] = {
        {len, 104,
         "expected a tokenizer.bin of llama2.c with 104 tokens, as the model has, found 104 and "
         "11"},
        {len, 106, "with 106 tokens, as the model has, found 105"},
        {len - 1, 105, "found 104 and 10 bytes behind them"},
        {len - 4, 105, "found 104 and 7 bytes behind them"},
        {0, 105, "found 0 and 0 bytes behind them"},
        {3, 105, "found 0 and 0 bytes behind them"},
        {11, 105, "found 0 and 7 bytes behind them"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write("tokenizer.bin", bytes, cases[i].len);
        check_not_imported("tokenizer.bin", cases[i].n, cases[i].message);
    }
    bytes[17 + 8] = 'x'; /* of "<s>" */
    scratch_write("tokenizer.bin", bytes, len);
    check_not_imported("tokenizer.bin", 105, "token 1: expected <s>, as llama2.c has it, found");
    bytes[17 + 8] = '\n';
    memset(bytes + 4, 0xff, 4);
    scratch_write("tokenizer.bin", bytes, len);
    check_not_imported("tokenizer.bin", 105, "token 0: expected a finite score");
    memset(bytes + 8, 0xff, 4);
    scratch_write("tokenizer.bin", bytes, len);
    check_not_imported("tokenizer.bin", 105, "found 0 and 982 bytes behind them");
    free(bytes);
}

/* --- llm.c ----------------------------------------------------------------------------------- */

/* A file of llm.c with these tokens; returns its bytes. */
static size_t write_llmc(unsigned char *out, const struct text *tokens, uint32_t n,
                         uint32_t version, uint32_t eot)
{
    const uint32_t head[4] = {20240328, version, n, eot};
    size_t len = 1024;
    memset(out, 0, len);
    memcpy(out, head, sizeof head);
    for (uint32_t i = 0; i < n; i++) {
        out[len++] = (unsigned char)tokens[i].len;
        memcpy(out + len, tokens[i].data, tokens[i].len);
        len += tokens[i].len;
    }
    scratch_write("gpt2_tokenizer.bin", out, len);
    return len;
}

/* The merges of a vocabulary that was learned are found again from its tokens. */
TEST(test_llmc, .after = drop_import)
{
    static unsigned char file[1 << 16];
    size_t len;
    unsigned char *text = read_file("tests/data/bpe-learn.txt", &len);
    const struct text source = {(const char *)text, len};
    const struct bpe_learn_spec spec = {.n_tokens = 700, .end_of_text = true};
    struct bpe_learned learned;
    struct gguf_writer *w;
    struct gguf *g;
    unsigned char *bytes;
    expect_ok(bpe_learn(&spec, &source, 1, &learned, &err));
    ck_assert_int_gt(learned.n_merges, 100);
    write_llmc(file, learned.tokens, (uint32_t)learned.n_tokens, 2, (uint32_t)learned.end_of_text);
    must_import("gpt2_tokenizer.bin", learned.n_tokens);

    expect_ok(gguf_writer_create(&w, &err));
    expect_ok(bpe_learned_write(&learned, w, &err));
    expect_ok(gguf_write_memory(w, &bytes, &len, &err));
    expect_ok(gguf_parse(bytes, len, &g, &err));
    const struct gguf_value *merges = gguf_find(g, "tokenizer.ggml.merges");
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    struct gguf_cursor cursor = {0};
    struct text name;
    ck_assert_uint_eq(imported.keys.n_merges, merges->count);
    for (int i = 0; gguf_next_text(merges, &cursor, &name); i++)
        ck_assert(text_equal(imported.keys.merges[i], name));
    cursor = (struct gguf_cursor){0};
    for (int i = 0; gguf_next_text(tokens, &cursor, &name); i++)
        ck_assert(text_equal(imported.keys.tokens[i], name));
    ck_assert_int_eq(imported.keys.bos, learned.end_of_text);
    ck_assert_int_eq(imported.keys.eos, learned.end_of_text);
    ck_assert_int_eq(imported.keys.types[learned.end_of_text], TOKEN_CONTROL);
    ck_assert_str_eq(imported.keys.pre, "gpt-2");
    gguf_free(g);
    gguf_writer_free(w);
    free(bytes);
    bpe_learned_free(&learned);
    free(text);
}

TEST(test_hostile_llmc, .after = drop_import)
{
    static unsigned char file[4096];
    const struct text tokens[] = {
        {"a", 1}, {"b", 1}, {"ab", 2}, {"abab", 4}, {"<|endoftext|>", 13}};
    const struct text apart[] = {{"a", 1}, {"b", 1}, {"abb", 3}, {"ab", 2}, {"<|endoftext|>", 13}};
    const struct text strange[] = {{"a", 1}, {"c", 1}, {"ab", 2}, {"ac", 2}, {"<|endoftext|>", 13}};
    const struct text twice[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"ab", 2}, {"<|endoftext|>", 13}};
    const char *const name = "gpt2_tokenizer.bin";
    size_t len = write_llmc(file, tokens, 5, 2, 4);
    must_import(name, 5);
    ck_assert(text_is(imported.keys.merges[1], "ab ab"));
    check_not_imported(name, 6,
                       "of 6 tokens, as the model has, and one of them to end texts; found version "
                       "2, 5 tokens, 4");
    scratch_write(name, file, len - 1);
    check_not_imported(
        name, 5,
        "token 4 of 5 at byte 1036: expected its length, 1 to 255, and as many bytes, "
        "found 13 and 12 bytes");
    file[1024] = 0;
    scratch_write(name, file, len);
    check_not_imported(name, 5, "token 0 of 5 at byte 1024: expected its length, 1 to 255");
    scratch_write(name, file, 1023);
    check_not_imported(name, 5, "1024 bytes of header, found 1023 bytes");
    len = write_llmc(file, tokens, 5, 2, 4);
    scratch_write(name, file, len + 1);
    check_not_imported(name, 5, "expected 5 tokens to end the file, found 1 bytes more");
    write_llmc(file, tokens, 5, 2, 5);
    check_not_imported(name, 5, "found version 2, 5 tokens, 5");
    write_llmc(file, tokens, 5, 3, 4);
    check_not_imported(name, 5, "found version 3, 5 tokens, 4");
    write_llmc(file, tokens, 5, 1, 4);
    check_not_imported(name, 5, "found version 1, 5 tokens, 50256");
    write_llmc(file, apart, 5, 2, 4);
    check_not_imported(
        name, 5,
        "token 2, \"abb\": expected two tokens of lower ids that it is made of, found 3 parts");
    write_llmc(file, strange, 5, 2, 4);
    check_not_imported(name, 5, "token 2, \"ab\": expected two tokens of lower ids");
    write_llmc(file, twice, 5, 2, 4);
    check_not_imported(name, 5, "expected");
}

/* --- files ----------------------------------------------------------------------------------- */

TEST(test_links_and_folders, .after = drop_import)
{
    write_parts(&usual_parts);
    char path[600];
    snprintf(path, sizeof path, "%s", scratch_path("tokenizer.json"));
    ck_assert_int_eq(symlink(path, scratch_path("vocab.json")), 0);
    must_import("vocab.json", 8); /* a link to a plain file is one */
    ck_assert_int_eq(symlink("nowhere", scratch_path("tokenizer_config.json")), 0);
    check_not_imported(NULL, 8, "tokenizer_config.json");
    ck_assert_int_eq(unlink(scratch_path("tokenizer_config.json")), 0);
    ck_assert_int_eq(symlink("/", scratch_path("tokenizer.model")), 0);
    check_not_imported(NULL, 8, "tokenizer.model");
    check_not_imported("not-there.json", 8, "not-there.json");
}
