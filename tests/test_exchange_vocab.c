/* Vocabularies out of folders of transformers, vocab.json, SentencePiece's models, and the files of
 * llama2.c and llm.c. */
#include <stdio.h>
#include <unistd.h>

#include "text/bpe.h"
#include "vocab_import.h"

TEST(test_folders_of_transformers)
{
    static const char *const folders[] = {"tests/data/hf/gpt2", "tests/data/hf/llama"};
    static const char *const pre[] = {"gpt-2", "dbrx"};
    for (int i = 0; i < 2; i++) {
        import_path(folders[i], (struct hf_ids){50256, 50256, -1}, 400);
        ck_assert_str_eq(imported.keys.pre, pre[i]);
        ck_assert(imported.keys.n == 400 && imported.keys.bos == 0 && imported.keys.eos == 0 &&
                  !imported.keys.add_bos);
        use_imported();
        check_expected_ids(folders[i]);
    }
}

/* The same of vocab.json and merges.txt, whose first line may be missing. */
TEST(test_merges_in_a_text)
{
    static const char gpt2[] = "tests/data/hf/gpt2";
    copy_to(gpt2, scratch_dir(), "vocab.json");
    for (int i = 0; i < 2; i++) {
        const char *merges = file_text(path_of(gpt2, "merges.txt"), NULL);
        write_text(scratch_dir(), "merges.txt", merges + (i ? strlen("#version: 0.2\n") : 0));
        must_import(NULL, 400);
        use_imported();
        ck_assert_str_eq(import_notes, "");
        ck_assert_str_eq(imported.keys.pre, "gpt-2");
        ck_assert(imported.keys.bos == 0 && imported.keys.eos == 0 && imported.keys.pad == -1);
        check_imported(0, "<|endoftext|>", TOKEN_CONTROL);
        check_imported(399, "[PAD399]", TOKEN_UNUSED);
        check_expected_ids(gpt2);
    }
}

TEST(test_refused_merges)
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
    write_json("vocab.json", usual_parts.vocab);
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_text(scratch_dir(), "merges.txt", cases[i].merges);
        check_not_imported(NULL, 8, cases[i].message);
    }
    write_text(scratch_dir(), "merges.txt", "#version: 0.2\r\na b\r\n\r\nab c");
    must_import(NULL, 8);
    ck_assert(imported.keys.n_merges == 2 && text_is(imported.keys.merges[1], "ab c"));
}

/* nanoGPT's vocabularies: json.dump of its table of characters. */
TEST(test_characters)
{
    static const int32_t expected[] = {1, 1, 4, 3, 0, 5, 2};
    static const char *const refused[][2] = {
        {"{'a': 0, 'bc': 1}", "expected single characters, as there is no merges.txt beside it, "
                              "found \"bc\"; --tokenizer none"},
        {"{'': 0}", "expected single characters"},
        {"{'a': 7}", "from 0 to 6, found 7"},
    };
    write_json("vocab.json",
               "{'\\n': 0, ' ': 1, '!': 2, '\\u00e9': 3, 'a': 4, '\\ud83d\\ude00': 5}");
    for (int i = 0; i < 2; i++) {
        must_import(i ? "vocab.json" : NULL, 7);
        use_imported();
        check_imported(1, VOCAB_SPACE, TOKEN_NORMAL);
        check_imported(6, "[PAD6]", TOKEN_UNUSED);
        ck_assert(imported.keys.add_space_prefix == 0 && !imported.keys.add_bos &&
                  tokenizer_bos(imported_tokenizer) == -1);
        ck_assert_int_eq(tokenizer_eos(imported_tokenizer), -1);
        check_text(text_of("  a\u00e9\n\U0001f600!"), expected, 7);
    }
    for (size_t i = 0; i < COUNT(refused); i++) {
        write_json("vocab.json", refused[i][0]);
        check_not_imported("vocab.json", 7, refused[i][1]);
    }
}

/* Of 256 tokens without a file each is a byte; of another number there is no vocabulary. */
TEST(test_no_files)
{
    char all[256];
    int32_t ids[256];
    for (int byte = 0; byte < 256; byte++)
        all[byte] = (char)(ids[byte] = byte);
    must_import(NULL, 100);
    ck_assert_ptr_null(imported.keys.model);
    expect_says(import_notes, "there is no tokenizer");
    for (int i = 0; i < 2; i++) {
        import_path(i ? NULL : scratch_dir(), no_ids, 256);
        use_imported();
        check_text((struct text){all, 256}, ids, 256);
        ck_assert(tokenizer_bos(imported_tokenizer) == '\n' &&
                  tokenizer_eos(imported_tokenizer) == 0);
    }
    import_path(NULL, no_ids, 255);
    ck_assert_ptr_null(imported.keys.model);
}

/* Both hold babyllama's vocabulary, of which llama.cpp's converter made the other file. */
TEST(test_babyllama)
{
    static const char *const files[] = {"tests/data/real/tok105.model",
                                        "tests/data/real/tok105.bin"};
    const struct vocab_keys *k = &imported.keys;
    struct gguf_file f = read_gguf("tests/data/spm-chars.gguf");
    const struct gguf_value *tokens = gguf_find(f.g, "tokenizer.ggml.tokens"),
                            *types = gguf_find(f.g, "tokenizer.ggml.token_type"),
                            *scores = gguf_find(f.g, "tokenizer.ggml.scores");
    for (int i = 0; i < 2; i++) {
        struct gguf_cursor cursor = {0};
        struct text name;
        import_path(files[i], no_ids, 105);
        for (int id = 0; gguf_next_text(tokens, &cursor, &name); id++) {
            ck_assert(text_equal(k->tokens[id], name));
            ck_assert_int_eq(k->types[id], gguf_int_at(types, (uint64_t)id));
            ck_assert((double)k->scores[id] == gguf_float_at(scores, (uint64_t)id));
        }
        ck_assert_str_eq(k->model, "llama");
        ck_assert(k->n == 105 && k->unk == 0 && k->bos == 1 && k->pad == -1);
        ck_assert_int_eq(k->eos, i == 1 ? 1 : 2); /* llama2.c ends texts at <s> */
        ck_assert(k->add_bos && k->add_space_prefix == 1);
    }
    free_gguf(&f);
}

/* A folder's tokenizer.model comes before its tokenizer.json, which was made from it. */
TEST(test_model_and_json)
{
    const struct parts p = {
        .vocab = "{'x': 0}",
        .merges = "[]",
        .added = "[{'id': 0, 'content': '<unk>', 'special': true}, "
                 "{'id': 105, 'content': '<x>', 'special': true}]",
        .post = "{'type': 'TemplateProcessing', 'single': [{'Sequence': {'id': 'A'}}]}",
    };
    size_t len;
    const char *model = file_text("tests/data/real/tok105.model", &len);
    write_file(scratch_path("tokenizer.model"), model, len);
    must_import(NULL, 106);
    check_imported(2, "</s>", TOKEN_CONTROL);
    check_imported(105, "[PAD105]", TOKEN_UNUSED);
    expect_says(import_notes, "several in a row");
    ck_assert(imported.keys.add_bos);
    write_parts(&p);
    must_import(NULL, 106);
    check_imported(0, "<unk>", TOKEN_UNKNOWN);
    check_imported(105, "<x>", TOKEN_CONTROL);
    ck_assert(!imported.keys.add_bos);
    check_not_imported(NULL, 104,
                       "tokenizer.model: token \"\u200a\": expected an id from 0 to 103, as the "
                       "model has, found 104");
    write_parts(&usual_parts);
    write_text(scratch_dir(), "tokenizer.model", "IQ== 0\n"); /* tiktoken's */
    must_import(NULL, 8);
    check_imported(3, "ab", TOKEN_NORMAL);
}

#define X        "\x0a\x03\x0a\x01x" /* a piece */
#define BPE_SPEC "\x12\x02\x18\x02"

TEST(test_hostile_sentencepiece)
{
#define CASE(bytes, message)                                                                       \
    {                                                                                              \
        {bytes, sizeof bytes - 1}, message                                                         \
    }
    static const struct {
        struct text bytes;
        const char *message;
    } cases[] = {
        CASE(X, "model_type: expected BPE (2), found 1 (UNIGRAM is 1); --tokenizer none"),
        CASE(X "\x12\x02\x18\x03", "found 3"),
        CASE(X "\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "found -1"),
        CASE("\x0a\x03\x0a\x01", "2 bytes before the end of a message: expected a field"),
        CASE("\x0a\x03\x0a\x02x", "1 bytes before the end of a message: expected a field"),
        CASE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "1 bytes before the end"),
        CASE("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "1 bytes before the end"),
        CASE(X "\x0b", "expected a field of wire type 0, 1, 2 or 5"),
        CASE(X "\x0d\x01", "1 bytes before the end"),
        CASE("\x0a\x05\x0a\x01x\x18\x07" BPE_SPEC, "piece 0, \"x\": expected a type from 1 to 6"),
        CASE("\x0a\x05\x0a\x01x\x18\x00" BPE_SPEC, "expected a type from 1 to 6"),
        CASE("\x0a\x08\x0a\x01x\x15\x00\x00\xc0\x7f" BPE_SPEC, "a finite score, found 1 and nan"),
        CASE(X X BPE_SPEC, "expected each token once"),
        CASE("\x0a\x02\x0a\x00" BPE_SPEC, "found token 0 empty"),
        CASE(X "\x12\x05\x18\x02\xc0\x01\x01", "found 1 and 1"),
        CASE(X BPE_SPEC "\x1a\x02\x28\x00", "found 0 and 0"),
    };
    const char *path = scratch_path("tokenizer.model");
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_file(path, cases[i].bytes.data, cases[i].bytes.len);
        check_not_imported("tokenizer.model", 8, cases[i].message);
    }
    write_file(path, "", 0);
    check_not_imported(NULL, 8, "expected a tokenizer.bin of llama2.c with 8 tokens");
    /* Fields of other numbers and wire types are passed over; ids beyond are none. */
    const char fine[] = X "\x09"
                          "12345678\x7d"
                          "1234\x70\x01\x12\x04\x18\x02\x52\x00"
                          "\x1a\x06\x18\x00\x20\x00\x12\x00\x0a\x08\x0a\x01y\x15\x00\x00\x80\x3f";
    write_file(path, fine, sizeof fine - 1);
    must_import("tokenizer.model", 2);
    ck_assert_str_eq(import_notes, "");
    check_imported(1, "y", TOKEN_NORMAL);
    ck_assert(imported.keys.scores[1] == 1.0f && imported.keys.add_space_prefix == 0 &&
              imported.keys.bos == 1);
    ck_assert_int_eq(imported.keys.eos, -1);
}

TEST(test_hostile_llama2c)
{
    size_t len;
    char *bytes = file_text("tests/data/real/tok105.bin", &len);
    const char *name = "tokenizer.bin", *path = scratch_path(name);
    const struct {
        size_t len;
        int n;
        const char *message;
    } cut[] = {
        {len, 104, "llama2.c with 104 tokens, as the model has, found 104 and 11"},
        {len, 106, "with 106 tokens, as the model has, found 105"},
        {len - 1, 105, "found 104 and 10 bytes behind them"},
        {len - 4, 105, "found 104 and 7 bytes behind them"},
        {0, 105, "found 0 and 0 bytes behind them"},
        {3, 105, "found 0 and 0 bytes behind them"},
        {11, 105, "found 0 and 7 bytes behind them"},
    };
    static const struct {
        size_t at;
        const char *bytes, *message;
    } bent[] = {
        {17 + 8, "x", "token 1: expected <s>, as llama2.c has it, found"},
        {4, "\xff\xff\xff\xff", "token 0: expected a finite score"},
        {8, "\xff\xff\xff\xff", "found 0 and 982 bytes behind them"},
    };
    for (size_t i = 0; i < COUNT(cut); i++) {
        write_file(path, bytes, cut[i].len);
        check_not_imported(name, cut[i].n, cut[i].message);
    }
    for (size_t i = 0; i < COUNT(bent); i++) {
        bytes = file_text("tests/data/real/tok105.bin", &len);
        memcpy(bytes + bent[i].at, bent[i].bytes, strlen(bent[i].bytes));
        write_file(path, bytes, len);
        check_not_imported(name, 105, bent[i].message);
    }
}

#define LLMC "gpt2_tokenizer.bin"

/* A file of llm.c with these tokens; `len` of its bytes, or all. */
static void write_llmc(const struct text *tokens, int n, uint32_t version, int end, size_t len)
{
    static unsigned char out[1 << 16];
    const uint32_t head[4] = {20240328, version, (uint32_t)n, (uint32_t)end};
    size_t whole = 1024;
    memset(out, 0, sizeof out);
    memcpy(out, head, sizeof head);
    for (int i = 0; i < n; i++) {
        out[whole++] = (unsigned char)tokens[i].len;
        memcpy(out + whole, tokens[i].data, tokens[i].len);
        whole += tokens[i].len;
    }
    write_file(scratch_path(LLMC), out, len ? len : whole);
}

static void check_texts(const struct gguf_value *expected, const struct text *found, size_t n)
{
    struct gguf_cursor cursor = {0};
    struct text text;
    ck_assert_uint_eq(n, expected->count);
    for (int i = 0; gguf_next_text(expected, &cursor, &text); i++)
        ck_assert(text_equal(found[i], text));
}

/* The merges of a vocabulary that was learned are found again from its tokens. */
TEST(test_llmc)
{
    const struct text source = text_of(file_text("tests/data/bpe-learn.txt", NULL));
    const struct bpe_learn_spec spec = {.n_tokens = 700};
    const struct vocab_keys *k = &imported.keys;
    struct text tokens[701];
    struct bpe_learned learned;
    struct gguf_writer *w;
    expect_ok(bpe_learn(&spec, &source, 1, &learned, &err));
    ck_assert_int_gt(learned.n_merges, 100);
    const int end = learned.n_tokens;
    memcpy(tokens, learned.tokens, (size_t)end * sizeof *tokens);
    tokens[end] = text_of("<|endoftext|>");
    write_llmc(tokens, end + 1, 2, end, 0);
    must_import(LLMC, end + 1);

    expect_ok(gguf_writer_create(&w, &err));
    expect_ok(bpe_learned_write(&learned, w, &err));
    struct gguf_file f = written_gguf(w);
    check_texts(gguf_find(f.g, "tokenizer.ggml.merges"), k->merges, k->n_merges);
    check_texts(gguf_find(f.g, "tokenizer.ggml.tokens"), k->tokens, (size_t)end);
    ck_assert(k->n == end + 1 && text_is(k->tokens[end], "<|endoftext|>"));
    ck_assert(k->bos == end && k->eos == end && k->types[end] == TOKEN_CONTROL);
    ck_assert_str_eq(k->pre, "gpt-2");
    free_gguf(&f);
    bpe_learned_free(&learned);
}

TEST(test_hostile_llmc)
{
    static const struct {
        const char *words;
        uint32_t version;
        int end, n;
        size_t len;
        const char *message; /* NULL: it is imported */
    } cases[] = {
        {"a b ab abab", 2, 4, 5, 1050, NULL},
        {"a b ab abab", 2, 4, 6, 0,
         "of 6 tokens, as the model has, and one of them to end texts; found version 2, 5 tokens, "
         "4"},
        {"a b ab abab", 2, 4, 5, 1049,
         "token 4 of 5 at byte 1036: expected its length, 1 to 255, and as many bytes, found 13 "
         "and 12 bytes"},
        {" b ab abab", 2, 4, 5, 0, "token 0 of 5 at byte 1024: expected its length, 1 to 255"},
        {"a b ab abab", 2, 4, 5, 1023, "1024 bytes of header, found 1023 bytes"},
        {"a b ab abab", 2, 4, 5, 1051, "expected 5 tokens to end the file, found 1 bytes more"},
        {"a b ab abab", 2, 5, 5, 0, "found version 2, 5 tokens, 5"},
        {"a b ab abab", 3, 4, 5, 0, "found version 3, 5 tokens, 4"},
        {"a b ab abab", 1, 4, 5, 0, "found version 1, 5 tokens, 50256"},
        {"a b abb ab", 2, 4, 5, 0,
         "token 2, \"abb\": expected two tokens of lower ids that it is made of, found 3 parts"},
        {"a c ab ac", 2, 4, 5, 0, "token 2, \"ab\": expected two tokens of lower ids"},
        {"a b ab ab", 2, 4, 5, 0, "expected"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct text tokens[5] = {[4] = text_of("<|endoftext|>")};
        const char *at = cases[i].words;
        for (int k = 0; k < 4; k++, at += strspn(at, " ") != 0) {
            tokens[k] = (struct text){at, strcspn(at, " ")};
            at += tokens[k].len;
        }
        write_llmc(tokens, 5, cases[i].version, cases[i].end, cases[i].len);
        if (cases[i].message) {
            check_not_imported(LLMC, cases[i].n, cases[i].message);
            continue;
        }
        must_import(LLMC, 5);
        ck_assert(text_is(imported.keys.merges[1], "ab ab"));
    }
}

TEST(test_links_and_folders)
{
    write_parts(&usual_parts);
    link_to(scratch_dir(), "vocab.json", "tokenizer.json");
    must_import("vocab.json", 8); /* a link to a plain file is one */
    link_to(scratch_dir(), "tokenizer_config.json", "nowhere");
    check_not_imported(NULL, 8, "tokenizer_config.json");
    ck_assert_int_eq(unlink(scratch_path("tokenizer_config.json")), 0);
    link_to(scratch_dir(), "tokenizer.model", "/");
    check_not_imported(NULL, 8, "tokenizer.model");
    check_not_imported("not-there.json", 8, "not-there.json");
}
