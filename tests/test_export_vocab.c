/*
 * What transformers is given of a vocabulary. The folders in tests/data/hf were written by
 * transformers: what they say of tokens, merges and cuts must come out as it went in. The merges of
 * SentencePiece's vocabularies are those that transformers' generate_merges makes of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"
#include "imports.h"
#include "support.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define GPT2 "tests/data/hf/gpt2"

static const char *folder;
static char noted[4096]; /* all notes, a line each */
static struct gguf_file file;

static void keep_note(void *arg, const char *text)
{
    const size_t len = strlen(noted);
    (void)arg;
    snprintf(noted + len, sizeof noted - len, "%s\n", text);
}

static void drop(void)
{
    free_gguf(&file);
    noted[0] = 0;
}

static void set_up(void)
{
    folder = make_folder("folder");
}

static void take_keys(const struct vocab_keys *k)
{
    struct gguf_writer *w;
    drop();
    expect_ok(gguf_writer_create(&w, NULL));
    vocab_keys_write(k, w);
    gguf_add_text(w, "general.architecture", text_of("llama"));
    gguf_add_u32(w, "llama.context_length", 77);
    file = written_gguf(w);
}

static enum status export_it(struct err *e)
{
    static const struct vocabulary_notes notes = {keep_note, NULL};
    unsigned others;
    const enum status s = export_vocab(file.g, folder, &notes, &others, e);
    return s == STATUS_OK ? export_vocab_remove(folder, others, e) : s;
}

static void write_out(void)
{
    expect_ok(export_it(&err));
}

/* What the folder of transformers has goes out again. */
static void pass_on(const char *path, int n_vocab)
{
    const struct vocabulary_options o = {{-1, -1, -1}, n_vocab, NULL};
    struct vocabulary v;
    expect_ok(vocabulary_read(path, &o, &v, &err));
    take_keys(&v.keys);
    vocabulary_free(&v);
    write_out();
}

static bool is_there(const char *name)
{
    return access(path_of(folder, name), F_OK) == 0;
}

static const struct json_node *written(const char *name)
{
    return json_in(path_of(folder, name));
}

static const struct json_node *member(const struct json_node *object, const char *key)
{
    const struct json_node *node = json_member(object, key);
    ck_assert_msg(node, "no %s", key);
    return node;
}

static bool is_literal(const struct json_node *object, const char *key, const char *expected)
{
    return text_is(member(object, key)->text, expected);
}

static void expect_same(const struct json_node *a, const struct json_node *b)
{
    ck_assert(a->kind == b->kind && text_equal(a->key, b->key));
    if (a->kind != JSON_ARRAY && a->kind != JSON_OBJECT)
        ck_assert(text_equal(a->text, b->text));
    ck_assert_uint_eq(a->n, b->n);
    for (const struct json_node *x = NULL, *y = NULL; (x = json_child(a, x));) {
        y = json_child(b, y);
        expect_same(x, y);
    }
}

/* "left right" of each, joined by commas. */
static void expect_merges(const char *expected)
{
    char found[4096] = "";
    size_t len = 0;
    const struct json_node *merges = member(member(written("tokenizer.json"), "model"), "merges");
    for (const struct json_node *c = NULL; (c = json_child(merges, c));) {
        const struct json_node *left = json_child(c, NULL), *right = json_child(c, left);
        ck_assert_uint_eq(c->n, 2);
        len += (size_t)snprintf(found + len, sizeof found - len, "%s%.*s %.*s", len ? "," : "",
                                text_width(left->text), left->text.data, text_width(right->text),
                                right->text.data);
    }
    ck_assert_str_eq(found, expected);
}

/* The key of id `id` in tokenizer.json. */
static struct text name_of(int id)
{
    const struct json_node *vocab = member(member(written("tokenizer.json"), "model"), "vocab");
    for (const struct json_node *c = NULL; (c = json_child(vocab, c)); id--)
        if (id == 0)
            return c->key;
    return text_of("");
}

TEST(what_transformers_wrote, .before = set_up, .after = drop)
{
    static const char *const folders[] = {GPT2, "tests/data/hf/llama"};
    static const char *const same[] = {"added_tokens", "normalizer", "pre_tokenizer", "model"};
    for (int i = 0; i < 2; i++) {
        pass_on(folders[i], 400); /* one more than there are: id 399 has no token */
        const struct json_node *a = json_in(path_of(folders[i], "tokenizer.json"));
        for (size_t k = 0; k < COUNT(same); k++)
            expect_same(member(a, same[k]), member(written("tokenizer.json"), same[k]));
        ck_assert_str_eq(noted, "");
    }
    size_t len;
    pass_on(GPT2, 399); /* it has older files, too */
    const char *merges = file_text(path_of(GPT2, "merges.txt"), &len);
    expect_bytes(path_of(folder, "merges.txt"), merges, len);
    expect_same(json_in(path_of(GPT2, "vocab.json")), written("vocab.json"));
}

TEST(settings, .before = set_up, .after = drop)
{
    static const char *const rows[][2] = {
        {"tokenizer_class", "PreTrainedTokenizerFast"},
        {"bos_token", "<|endoftext|>"},
        {"eos_token", "<|endoftext|>"},
        {"unk_token", "null"},
        {"add_bos_token", "false"},
        {"add_prefix_space", "false"},
        {"model_max_length", "77"},
        {"clean_up_tokenization_spaces", "false"},
    };
    pass_on(GPT2, 399);
    const struct json_node *config = written("tokenizer_config.json");
    for (size_t i = 0; i < COUNT(rows); i++)
        ck_assert(is_literal(config, rows[i][0], rows[i][1]));
    ck_assert_uint_eq(member(config, "model_input_names")->n, 2);
}

/* What the file says is the same in what was imported again, and so are the ids of a text; scores
 * and types follow from the merges then. */
static void expect_back(const char *path)
{
    static const char *const keys[] = {
        "model",        "pre",          "tokens",        "merges",
        "bos_token_id", "eos_token_id", "add_bos_token", "unknown_token_id"};
    static const char text[] = "  to be or not to be  the other one";
    struct vocabulary v;
    int32_t *ids[2];
    size_t n[2];
    drop();
    file = read_gguf(path);
    write_out();
    struct tokenizer *t = tokenizer_in(file.g);
    const struct hf_ids named = {tokenizer_bos(t), tokenizer_eos(t), -1}; /* as config.json has */
    const struct vocabulary_options o = {named, tokenizer_n_tokens(t), NULL};
    struct gguf_file first = file;
    expect_ok(vocabulary_read(folder, &o, &v, &err));
    ck_assert_int_eq(v.keys.add_bos, tokenizer_adds_bos(t));
    file = (struct gguf_file){.g = NULL};
    take_keys(&v.keys);
    vocabulary_free(&v);
    for (size_t i = 0; i < COUNT(keys); i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        const struct gguf_value *a = gguf_find(first.g, key), *b = gguf_find(file.g, key);
        ck_assert_msg(!a || (b && a->kind == b->kind && text_equal(a->bytes, b->bytes)), "%s", key);
    }
    for (int i = 0; i < 2; i++) {
        expect_ok(tokenizer_encode(t, text_of(text), &ids[i], &n[i], &err));
        tokenizer_free(t);
        t = tokenizer_in(file.g);
    }
    ck_assert_uint_eq(n[0], n[1]);
    ck_assert_mem_eq(ids[0], ids[1], n[0] * sizeof *ids[0]);
    free(ids[0]);
    free(ids[1]);
    tokenizer_free(t);
    free_gguf(&first);
}

TEST(there_and_back, .before = set_up, .after = drop)
{
    static const char *const paths[] = {"models/shakespeare-mha.gguf", "tests/data/bpe-llama3.gguf",
                                        "tests/data/spm-small.gguf", "tests/data/spm-chars.gguf",
                                        "tests/data/shakespeare-bytes.gguf"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        expect_back(paths[i]);
        ck_assert_str_eq(noted, "");
    }
    /* BOS and EOS that are ordinary tokens stay that: texts with their names have other ids. */
    const struct json_node *config = written("tokenizer_config.json");
    ck_assert(is_literal(config, "bos_token", "null") && is_literal(config, "eos_token", "null"));
    ck_assert_uint_eq(member(written("tokenizer.json"), "added_tokens")->n, 0);
}

#define MOST 300

static char alphabet[256][3];
static struct text tokens[MOST];
static int32_t types[MOST];
static float scores[MOST];
static struct text merges[8];
static struct vocab_keys keys;

static void start(const char *model)
{
    keys = (struct vocab_keys){.model = model,
                               .tokens = tokens,
                               .types = types,
                               .merges = merges,
                               .bos = -1,
                               .eos = -1,
                               .unk = -1,
                               .pad = -1,
                               .add_space_prefix = -1};
}

static int add(struct text name, int32_t type, float score)
{
    ck_assert_int_lt(keys.n, MOST);
    tokens[keys.n] = name;
    types[keys.n] = type;
    scores[keys.n] = score;
    return keys.n++;
}

static int add_name(const char *name, int32_t type)
{
    return add(text_of(name), type, 0);
}

static void start_bytes(const char *pre)
{
    start("gpt2");
    keys.pre = pre;
    for (int byte = 0; byte < 256; byte++) {
        const size_t len = byte_alphabet_write((unsigned char)byte, alphabet[byte]);
        add((struct text){alphabet[byte], len}, TOKEN_NORMAL, 0);
    }
}

static void start_scores(void)
{
    start("llama");
    keys.scores = scores;
    keys.unk = add_name("<unk>", TOKEN_UNKNOWN);
    keys.bos = add_name("<s>", TOKEN_CONTROL);
    keys.eos = add_name("</s>", TOKEN_CONTROL);
}

static void add_merge(const char *merge)
{
    merges[keys.n_merges++] = text_of(merge);
}

static void write_keys(void)
{
    take_keys(&keys);
    write_out();
}

TEST(cuts, .before = set_up, .after = drop)
{
    static const struct {
        const char *pre, *type;
        unsigned steps;
        const char *ignores_merges;
    } rows[] = {
        {"gpt-2", "ByteLevel", 0, "false"},   {"starcoder", "Sequence", 2, "false"},
        {"qwen2", "Sequence", 2, "false"},    {"dbrx", "Sequence", 2, "false"},
        {"llama-bpe", "Sequence", 2, "true"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        start_bytes(rows[i].pre);
        write_keys();
        const struct json_node *root = written("tokenizer.json");
        const struct json_node *pre = member(root, "pre_tokenizer");
        ck_assert(is_literal(pre, "type", rows[i].type));
        if (rows[i].steps)
            ck_assert_uint_eq(member(pre, "pretokenizers")->n, rows[i].steps);
        ck_assert(is_literal(member(root, "model"), "ignore_merges", rows[i].ignores_merges));
    }
}

TEST(merges_by_scores, .before = set_up, .after = drop)
{
    static const char *const names[] = {
        "a",   "b", "aa", "ab",  "aab", VOCAB_SPACE "a", VOCAB_SPACE "ab",
        "aaa", "é", "éa", "aéa", "aé",  VOCAB_SPACE};
    static const float of_names[] = {-10, -11, -1, -2, -2.5F, -3, -4, -5, -12, -6, -6.5F, -7, -9};
    start_scores();
    for (size_t i = 0; i < COUNT(names); i++)
        add(text_of(names[i]), TOKEN_NORMAL, of_names[i]);
    write_keys();
    expect_merges("a a,a b,aa b,a ab," VOCAB_SPACE " a," VOCAB_SPACE "a b," VOCAB_SPACE
                  " ab,aa a,a aa,é a,aé a,a éa,a é");
    ck_assert_str_eq(noted, "");
    ck_assert(!is_there("vocab.json") && !is_there("merges.txt"));
}

TEST(scores_that_are_equal, .before = set_up, .after = drop)
{
    start_scores();
    add(text_of("a"), TOKEN_NORMAL, -1);
    add(text_of("b"), TOKEN_NORMAL, -1);
    add(text_of("ab"), TOKEN_NORMAL, 0);
    add(text_of("ba"), TOKEN_NORMAL, 0);
    add(text_of("xy"), TOKEN_NORMAL, 0);
    write_keys();
    expect_merges("a b,b a");
    expect_says(noted, "one score, such as \"ab\" and \"ba\"|"
                       "such as \"xy\", are merged from characters");
}

TEST(bos_before_texts, .before = set_up, .after = drop)
{
    start_scores();
    keys.add_bos = true;
    keys.add_space_prefix = 0;
    add(text_of("a"), TOKEN_NORMAL, -1);
    write_keys();
    const struct json_node *root = written("tokenizer.json");
    const struct json_node *post = member(root, "post_processor");
    ck_assert(is_literal(post, "type", "TemplateProcessing"));
    const struct json_node *bos = member(member(post, "special_tokens"), "<s>");
    ck_assert(text_is(json_child(member(bos, "ids"), NULL)->text, "1"));
    ck_assert_uint_eq(member(member(root, "normalizer"), "normalizers")->n, 1);
    ck_assert_uint_eq(member(member(root, "decoder"), "decoders")->n, 3);
    ck_assert(is_literal(written("tokenizer_config.json"), "add_bos_token", "true"));
}

TEST(names_of_every_kind, .before = set_up, .after = drop)
{
    static const struct text odd = {"\"\\\n\x01\x7f\0}", 7};
    static char huge[100000];
    memset(huge, 'x', sizeof huge);
    start_scores();
    keys.add_bos = true;
    /* None that texts have: it has no name in tokenizer_config.json. */
    keys.bos = add(odd, TOKEN_NORMAL, -1);
    add((struct text){huge, sizeof huge}, TOKEN_USER_DEFINED, -2);
    write_keys();
    ck_assert(text_equal(name_of(keys.bos), odd));
    ck_assert_uint_eq(name_of(keys.bos + 1).len, sizeof huge);
    const struct json_node *config = written("tokenizer_config.json");
    ck_assert(is_literal(config, "bos_token", "null") && !json_member(config, "add_bos_token"));
}

TEST(names_that_occur_twice, .before = set_up, .after = drop)
{
    static const char *const names[] = {"<|x|>", "[PAD257]", "[PAD258]", "[PAD259]"};
    start_bytes("llama-bpe");
    add_name("<|x|>", TOKEN_CONTROL);
    add_name("<|x|>", TOKEN_USER_DEFINED);
    add_name("", TOKEN_UNUSED);
    add_name("word", TOKEN_UNUSED); /* a piece of a text would be this */
    add_name("th", TOKEN_NORMAL);
    add_name("[PAD261]", TOKEN_UNUSED);
    add_merge("t h");
    add_merge("q u"); /* makes none */
    write_keys();
    const struct json_node *root = written("tokenizer.json");
    ck_assert_uint_eq(member(member(root, "model"), "vocab")->n, 261);
    for (int i = 0; i < 4; i++)
        ck_assert(text_is(name_of(256 + i), names[i]));
    ck_assert_uint_eq(member(root, "added_tokens")->n, 1);
    expect_says(noted, "1 tokens, such as 257, have the name of another");
    expect_merges("t h");
}

TEST(bytes_by_number, .before = set_up, .after = drop)
{
    start_bytes("gpt-2");
    tokens['A'] = text_of("<0x41>");
    types['A'] = TOKEN_BYTE;
    write_keys();
    ck_assert(text_is(name_of('A'), "A"));
    start_bytes("gpt-2");
    tokens['A'] = text_of("<|a|>");
    write_keys();
    expect_says(noted, "not a token for every byte");
}

TEST(names_that_are_refused, .before = set_up, .after = drop)
{
    static const struct {
        const char *names[3], *message;
        int bos;
    } cases[] = {
        {{"\xc3("}, "tokenizer.ggml.tokens element 256: expected UTF-8", -1},
        {{"\xc4\xa0"}, "found tokens 256 and 32 to be", -1}, /* U+0120: a space is written so */
        {{"<|x|>", "<|x|>", "[PAD257]"}, "none to be \"[PAD257]\"; found tokens 256 and 257", -1},
        {{NULL}, "bos_token_id", 256},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        start_bytes("gpt-2");
        for (int k = 0; k < 3 && cases[i].names[k]; k++)
            add_name(cases[i].names[k], TOKEN_CONTROL);
        keys.bos = cases[i].bos;
        take_keys(&keys);
        expect_status(export_it(&err), STATUS_BAD_FILE, cases[i].message);
    }
    ck_assert_int_eq(rmdir(folder), 0); /* nothing is in it */
}

TEST(what_was_there, .before = set_up, .after = drop)
{
    static const char *const there[] = {"tokenizer.model", "added_tokens.json", "vocab.json",
                                        "README.md"};
    for (size_t i = 0; i < COUNT(there); i++)
        write_text(folder, there[i], "old");
    start_bytes("gpt-2");
    write_keys();
    for (size_t i = 0; i < COUNT(there); i++)
        ck_assert_int_eq(is_there(there[i]), i >= 2);
    start_scores();
    write_text(folder, "tokenizer.model", "old");
    write_keys();
    ck_assert(!is_there("tokenizer.model") && !is_there("vocab.json"));
    ck_assert(is_there("tokenizer.json"));
}

TEST(nothing_to_write, .before = set_up, .after = drop)
{
    start(NULL);
    write_keys();
    expect_says(noted, "has no vocabulary");
    start_bytes("some-other");
    write_keys();
    ck_assert(strstr(noted, "is not exported: tokenizer.ggml.pre") && rmdir(folder) == 0);
}

TEST(without_memory, .before = set_up, .after = drop)
{
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            start_scores();
            add(text_of("a"), TOKEN_NORMAL, -1);
            add(text_of("aa"), TOKEN_NORMAL, 0);
        } else {
            start_bytes("llama-bpe");
        }
        take_keys(&keys);
        fail_each_call(export_it, (struct fault_plan){FAULT_MEMORY, 0, i % 2, ENOMEM, 0, 0},
                       STATUS_NO_MEMORY, 20);
    }
}
