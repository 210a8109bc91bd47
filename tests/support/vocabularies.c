#include "vocabularies.h"

#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "text/unicode.h"

struct vocabulary v;
struct tokenizer *t;

static void begin(const char *model)
{
    v = (struct vocabulary){
        .model = model, .bos = -1, .eos = -1, .adds_bos = -1, .adds_space = -1, .drops_spaces = -1};
}

void plain_bytes_vocabulary(void)
{
    begin("gpt2");
    v.pre = "gpt-2";
    for (int byte = 0; byte < 256; byte++) {
        const size_t len = byte_alphabet_write((unsigned char)byte, v.names[byte]);
        v.names[byte][len] = 0;
        add_token(v.names[byte], 1);
    }
}

void vocabulary_of_scores(bool bytes)
{
    begin("llama");
    v.has_scores = true;
    add_token("<unk>", 2);
    add_token("<s>", 3);
    add_token("</s>", 3);
    for (int byte = 0; bytes && byte < 256; byte++) {
        snprintf(v.names[byte], sizeof v.names[byte], "<0x%02X>", (unsigned)byte);
        add_token(v.names[byte], 6);
    }
}

void add_token(const char *name, int32_t type)
{
    ck_assert_uint_lt(v.n_tokens, MAX_TOKENS);
    v.tokens[v.n_tokens] = text_of(name);
    v.types[v.n_tokens++] = type;
    v.has_types = v.has_types || type != 1;
}

void add_scored(const char *name, float score)
{
    v.scores[v.n_tokens] = score;
    add_token(name, 1);
}

void add_merge(const char *merge)
{
    v.merges[v.n_merges++] = text_of(merge);
    v.has_merges = true;
}

struct gguf_writer *keys_of_vocabulary(void)
{
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    if (v.model)
        gguf_add_text(w, "tokenizer.ggml.model", text_of(v.model));
    if (v.pre)
        gguf_add_text(w, "tokenizer.ggml.pre", text_of(v.pre));
    gguf_add_texts(w, "tokenizer.ggml.tokens", v.tokens, v.n_tokens);
    if (v.has_types)
        gguf_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, v.types, v.n_tokens);
    if (v.has_scores)
        gguf_add_array(w, "tokenizer.ggml.scores", GGUF_F32, v.scores, v.n_tokens);
    if (v.has_merges)
        gguf_add_texts(w, "tokenizer.ggml.merges", v.merges, v.n_merges);
    if (v.bos >= 0)
        gguf_add_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)v.bos);
    if (v.eos >= 0)
        gguf_add_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)v.eos);
    if (v.adds_bos >= 0)
        gguf_add_bool(w, "tokenizer.ggml.add_bos_token", v.adds_bos);
    if (v.adds_space >= 0)
        gguf_add_bool(w, "tokenizer.ggml.add_space_prefix", v.adds_space);
    if (v.drops_spaces >= 0)
        gguf_add_bool(w, "tokenizer.ggml.remove_extra_whitespaces", v.drops_spaces);
    return w;
}

void add_tokens(const char *const *names)
{
    while (*names)
        add_token(*names++, 1);
}

void add_merges(const char *const *merges)
{
    while (*merges)
        add_merge(*merges++);
}

void use_vocabulary(void)
{
    t = tokenizer_in(written_gguf(keys_of_vocabulary()).g);
}

void use_file(const char *path)
{
    t = tokenizer_in(read_gguf(path).g);
}

static enum status encode_copy(struct text s, int32_t **ids, size_t *n, struct err *e)
{
    char *copy = allocated(s.len);
    if (s.len > 0)
        memcpy(copy, s.data, s.len);
    const enum status status = tokenizer_encode(t, (struct text){copy, s.len}, false, ids, n, e);
    if (*ids)
        released_by(free, *ids);
    return status;
}

void check_encoding(struct text s, const int *expected, size_t n_expected, const char *file,
                    int line)
{
    int32_t *ids;
    size_t n;
    ck_assert_msg(encode_copy(s, &ids, &n, &err) == STATUS_OK, "%s:%d: %s", file, line, err.text);
    ck_assert_ptr_nonnull(ids);
    for (size_t i = 0; i < n && i < n_expected; i++)
        if (ids[i] != expected[i])
            ck_abort_msg("%s:%d: id %zu is %d, expected %d", file, line, i, ids[i], expected[i]);
    ck_assert_msg(n == n_expected, "%s:%d: %zu ids, expected %zu", file, line, n, n_expected);
}

void check_decoding(struct text s, const char *file, int line)
{
    int32_t *ids;
    size_t n;
    ck_assert_msg(encode_copy(s, &ids, &n, &err) == STATUS_OK, "%s:%d: %s", file, line, err.text);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        struct text bytes = tokenizer_bytes(t, ids[i]);
        const size_t added = i == 0 ? tokenizer_added(t, bytes) : 0;
        bytes = (struct text){bytes.data + added, bytes.len - added};
        ck_assert_msg(bytes.len <= s.len - at &&
                          text_equal(bytes, (struct text){s.data + at, bytes.len}),
                      "%s:%d: id %zu of %zu is not the text's", file, line, i, n);
        at += bytes.len;
    }
    ck_assert_msg(at == s.len, "%s:%d: the ids are %zu bytes of %zu", file, line, at, s.len);
}

void check_unencodable(struct text s, const char *message)
{
    int32_t *ids;
    size_t n;
    expect_status(encode_copy(s, &ids, &n, &err), STATUS_USAGE, message);
    ck_assert_ptr_null(ids);
}

void check_cases(const char *vocabulary, const char *path, int least,
                 bool (*decodes)(struct text s))
{
    static struct test_case test;
    char *lines = file_text(path, NULL), *rest;
    int n = 0;
    use_file(vocabulary);
    for (const char *hex; (hex = cases_line(&lines, &rest)); n++) {
        case_text(&test, hex);
        case_numbers(&test, &rest);
        const struct text text = {test.text, test.len};
        check_encoding(text, test.numbers, test.n, path, n);
        if (!decodes || decodes(text))
            check_decoding(text, path, n);
    }
    ck_assert_int_ge(n, least);
}

int32_t *encode_letters(size_t len, size_t *n)
{
    int32_t *ids;
    char *text = memset(allocated(len), 'a', len);
    expect_ok(tokenizer_encode(t, (struct text){text, len}, false, &ids, n, &err));
    return released_by(free, ids);
}
