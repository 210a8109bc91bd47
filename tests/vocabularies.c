#include "vocabularies.h"

#include <stdio.h>
#include <string.h>

#include "text/unicode.h"

void plain_bytes_vocabulary(struct vocabulary *v)
{
    memset(v, 0, sizeof *v);
    v->model = "gpt2";
    v->pre = "gpt-2";
    v->bos = v->eos = v->adds_bos = v->adds_space = -1;
    v->n_tokens = 256;
    for (int byte = 0; byte < 256; byte++) {
        const size_t len = byte_alphabet_write((unsigned char)byte, v->names[byte]);
        v->tokens[byte] = (struct text){v->names[byte], len};
        v->types[byte] = 1;
    }
}

void vocabulary_of_scores(struct vocabulary *v, bool bytes)
{
    memset(v, 0, sizeof *v);
    v->model = "llama";
    v->has_types = v->has_scores = true;
    v->bos = v->eos = v->adds_bos = v->adds_space = -1;
    add_token(v, "<unk>", 2);
    add_token(v, "<s>", 3);
    add_token(v, "</s>", 3);
    for (int byte = 0; bytes && byte < 256; byte++) {
        snprintf(v->names[byte], sizeof v->names[byte], "<0x%02X>", (unsigned)byte);
        add_token(v, v->names[byte], 6);
    }
}

void add_token(struct vocabulary *v, const char *name, int32_t type)
{
    ck_assert_uint_lt(v->n_tokens, MAX_TOKENS);
    v->tokens[v->n_tokens] = text_of(name);
    v->types[v->n_tokens++] = type;
    v->has_types = v->has_types || type != 1;
}

void add_scored(struct vocabulary *v, const char *name, float score)
{
    v->scores[v->n_tokens] = score;
    add_token(v, name, 1);
}

void add_merge(struct vocabulary *v, const char *merge)
{
    v->merges[v->n_merges++] = text_of(merge);
    v->has_merges = true;
}

void vocabulary_write(const struct vocabulary *v, struct gguf_bytes *b)
{
    if (v->model)
        gb_text(b, "tokenizer.ggml.model", v->model);
    if (v->pre)
        gb_text(b, "tokenizer.ggml.pre", v->pre);
    gb_texts(b, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    if (v->has_types)
        gb_i32s(b, "tokenizer.ggml.token_type", v->types, v->n_tokens);
    if (v->has_scores)
        gb_f32s(b, "tokenizer.ggml.scores", v->scores, v->n_tokens);
    if (v->has_merges)
        gb_texts(b, "tokenizer.ggml.merges", v->merges, v->n_merges);
    if (v->bos >= 0)
        gb_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v->eos >= 0)
        gb_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    if (v->adds_bos >= 0)
        gb_bool(b, "tokenizer.ggml.add_bos_token", v->adds_bos);
    if (v->adds_space >= 0)
        gb_bool(b, "tokenizer.ggml.add_space_prefix", v->adds_space);
}

enum status create_from(struct gguf_bytes *b, struct tokenizer **t, struct err *e)
{
    struct gguf *g;
    ck_assert_msg(gguf_parse(b->data, b->len, &g, e) == STATUS_OK, "%s", e->text);
    const enum status s = tokenizer_create(g, t, e);
    gguf_free(g);
    free(b->data); /* what the tokenizer needs it has copied */
    return s;
}

enum status create(const struct vocabulary *v, struct tokenizer **t, struct err *e)
{
    struct gguf_bytes b = {0};
    vocabulary_write(v, &b);
    return create_from(&b, t, e);
}

struct tokenizer *must_create(const struct vocabulary *v)
{
    struct tokenizer *t;
    struct err e = {{0}};
    expect_ok(create(v, &t, &e), &e);
    return t;
}

struct tokenizer *must_open(const char *path)
{
    struct gguf_bytes b = {0};
    struct tokenizer *t;
    struct err e = {{0}};
    b.data = read_file(path, &b.len);
    expect_ok(create_from(&b, &t, &e), &e);
    return t;
}

void check_refused(const struct vocabulary *v, const char *message)
{
    struct tokenizer *t;
    struct err e = {{0}};
    ck_assert_msg(create(v, &t, &e) == STATUS_BAD_FILE, "accepted; expected: %s", message);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(e.text, message) != NULL, "\"%s\" does not have \"%s\"", e.text, message);
}

static enum status encode_copy(const struct tokenizer *t, struct text s, int32_t **ids, size_t *n,
                               struct err *e)
{
    char *copy = malloc(s.len ? s.len : 1);
    ck_assert_ptr_nonnull(copy);
    if (s.len > 0)
        memcpy(copy, s.data, s.len);
    const enum status status = tokenizer_encode(t, (struct text){copy, s.len}, ids, n, e);
    free(copy);
    return status;
}

void check_encoding(const struct tokenizer *t, struct text s, const int *expected,
                    size_t n_expected, const char *file, int line)
{
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_msg(encode_copy(t, s, &ids, &n, &e) == STATUS_OK, "%s:%d: %s", file, line, e.text);
    ck_assert_ptr_nonnull(ids);
    for (size_t i = 0; i < n && i < n_expected; i++)
        if (ids[i] != expected[i])
            ck_abort_msg("%s:%d: id %zu is %d, expected %d", file, line, i, ids[i], expected[i]);
    ck_assert_msg(n == n_expected, "%s:%d: %zu ids, expected %zu", file, line, n, n_expected);
    free(ids);
}

void check_decoding(const struct tokenizer *t, struct text s, const char *file, int line)
{
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_msg(encode_copy(t, s, &ids, &n, &e) == STATUS_OK, "%s:%d: %s", file, line, e.text);
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
    free(ids);
}

void check_unencodable(const struct tokenizer *t, struct text s, const char *message)
{
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_int_eq(encode_copy(t, s, &ids, &n, &e), STATUS_USAGE);
    ck_assert_ptr_null(ids);
    ck_assert_msg(strstr(e.text, message) != NULL, "\"%s\" does not have \"%s\"", e.text, message);
}
