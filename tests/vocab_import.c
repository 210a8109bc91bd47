#include "vocab_import.h"

#include <stdio.h>

#include "json/read.h"

/* --- what is read ---------------------------------------------------------------------------- */

char import_notes[4096];

static void keep_note(void *arg, const char *text)
{
    (void)arg;
    const size_t len = strlen(import_notes);
    snprintf(import_notes + len, sizeof import_notes - len, "%s\n", text);
}

struct tokenizer *imported_tokenizer(const struct vocabulary *v)
{
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    unsigned char *bytes;
    size_t len;
    expect_ok(gguf_writer_create(&w, &err));
    vocab_keys_write(&v->keys, w);
    expect_ok(gguf_write_memory(w, &bytes, &len, &err));
    gguf_writer_free(w);
    expect_ok(gguf_parse(bytes, len, &g, &err));
    expect_ok(tokenizer_create(g, &t, &err));
    gguf_free(g);
    free(bytes);
    return t;
}

/* --- the scratch folder ---------------------------------------------------------------------- */

const struct hf_ids no_ids = {-1, -1, -1};

void scratch_write(const char *name, const void *bytes, size_t len)
{
    write_file(scratch_path(name), bytes, len);
}

void scratch_write_text(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

void scratch_copy(const char *path, const char *name)
{
    size_t len;
    unsigned char *bytes = read_file(path, &len);
    scratch_write(name, bytes, len);
    free(bytes);
}

const char *scratch_dir(void)
{
    static char dir[512];
    const char *path = scratch_path("");
    memcpy(dir, path, strlen(path) + 1);
    return dir;
}

static const struct vocabulary_notes notes = {keep_note, NULL};

static enum status read_scratch(const char *name, int n_vocab, struct vocabulary *v, struct err *e)
{
    import_notes[0] = 0;
    const struct vocabulary_options o = {no_ids, n_vocab, &notes};
    return name ? vocabulary_of_file(scratch_path(name), &o, v, e)
                : vocabulary_of_folder(scratch_dir(), &o, v, e);
}

struct vocabulary must_import(const char *name, int n_vocab)
{
    struct vocabulary v;
    expect_ok(read_scratch(name, n_vocab, &v, &err));
    return v;
}

void check_not_imported(const char *name, int n_vocab, const char *message)
{
    struct vocabulary v;
    struct err e = {{0}};
    const enum status s = read_scratch(name, n_vocab, &v, &e);
    expect_says(e.text, name ? name : "");
    expect_error(s, STATUS_BAD_FILE, &e, message);
    ck_assert_ptr_null(v.memory);
}

void check_noted(const char *part)
{
    ck_assert_msg(strstr(import_notes, part) != NULL, "\"%s\" does not have \"%s\"", import_notes,
                  part);
}

void check_imported(const struct vocabulary *v, int id, const char *name, int type)
{
    ck_assert_msg(text_is(v->keys.tokens[id], name), "token %d is \"%.*s\", expected \"%s\"", id,
                  text_width(v->keys.tokens[id]), v->keys.tokens[id].data, name);
    ck_assert_msg(v->keys.types[id] == type, "token %d is of type %d, expected %d", id,
                  (int)v->keys.types[id], type);
}

/* --- texts and their ids --------------------------------------------------------------------- */

static void check_ids(const struct tokenizer *t, struct text text, const struct json_node *expected)
{
    int32_t *ids;
    size_t n;
    expect_ok(tokenizer_encode(t, text, &ids, &n, &err));
    ck_assert_uint_eq(n, expected->n);
    size_t i = 0;
    for (const struct json_node *c = NULL; (c = json_child(expected, c)); i++) {
        int64_t id = -1;
        expect_ok(json_node_i64(c, 0, INT32_MAX, &id, &err));
        ck_assert_msg(ids[i] == id, "'%.*s': token %zu is %d, expected %d", text_width(text),
                      text.data, i, (int)ids[i], (int)id);
    }
    free(ids);
}

void check_text(const struct tokenizer *t, const char *text, const int32_t *expected, size_t n)
{
    int32_t *ids;
    size_t n_ids;
    expect_ok(tokenizer_encode(t, text_of(text), &ids, &n_ids, &err));
    ck_assert_uint_eq(n_ids, n);
    ck_assert_int_eq(memcmp(ids, expected, n * sizeof *ids), 0);
    free(ids);
}

int check_expected_ids(const struct tokenizer *t, const char *path)
{
    static const struct json_limits limits = {1 << 20, 1 << 16, 8};
    struct json_reader r = {0};
    const struct json_node *root, *texts, *text, *ids;
    size_t len;
    int n = 0;
    unsigned char *bytes = read_file(path, &len);
    const struct text source = {(const char *)bytes, len};
    expect_ok(json_read(&r, source, &limits, &root, &err));
    expect_ok(json_require(root, "texts", JSON_ARRAY, &texts, &err));
    for (const struct json_node *c = NULL; (c = json_child(texts, c)); n++) {
        expect_ok(json_require(c, "text", JSON_STRING, &text, &err));
        expect_ok(json_require(c, "ids", JSON_ARRAY, &ids, &err));
        check_ids(t, text->text, ids);
    }
    json_reader_free(&r);
    free(bytes);
    return n;
}

/* --- a small tokenizer.json ------------------------------------------------------------------ */

const struct parts usual_parts = {
    "null",
    BYTE_LEVEL,
    "null",
    "[]",
    "\"BPE\"",
    "\"dropout\": null, \"ignore_merges\": false",
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4}",
    "[\"a b\", [\"ab\", \"c\"]]",
};

static const char *or_usual(const char *part, const char *otherwise)
{
    return part ? part : otherwise;
}

void write_parts(const struct parts *p)
{
    static char text[8192];
    snprintf(
        text, sizeof text,
        "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": %s, \"added_tokens\": %s, "
        "\"model\": {\"type\": %s, %s, \"vocab\": %s, \"merges\": %s}}",
        or_usual(p->normalizer, usual_parts.normalizer), or_usual(p->pre, usual_parts.pre),
        or_usual(p->post, usual_parts.post), or_usual(p->added, usual_parts.added),
        or_usual(p->type, usual_parts.type), or_usual(p->options, usual_parts.options),
        or_usual(p->vocab, usual_parts.vocab), or_usual(p->merges, usual_parts.merges));
    scratch_write_text("tokenizer.json", text);
}
