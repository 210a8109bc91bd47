#include "vocab_import.h"

#include <stdio.h>

#include "formats/json.h"

/* --- what is read ---------------------------------------------------------------------------- */

struct vocabulary imported;
struct tokenizer *imported_tokenizer;
char import_notes[4096];

static void keep_note(void *arg, const char *text)
{
    (void)arg;
    const size_t len = strlen(import_notes);
    snprintf(import_notes + len, sizeof import_notes - len, "%s\n", text);
}

static void drop_vocabulary(void)
{
    tokenizer_free(imported_tokenizer);
    vocabulary_free(&imported);
    imported_tokenizer = NULL;
    imported = (struct vocabulary){.memory = NULL};
}

void drop_import(void)
{
    drop_vocabulary();
    scratch_remove();
}

void use_imported(void)
{
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    vocab_keys_write(&imported.keys, w);
    struct gguf_file f = written_gguf(w);
    imported_tokenizer = tokenizer_in(f.g);
    free_gguf(&f);
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

static enum status read_path(const char *path, struct hf_ids ids, int n_vocab)
{
    const struct vocabulary_options o = {ids, n_vocab, &notes};
    drop_vocabulary();
    import_notes[0] = 0;
    return vocabulary_read(path, &o, &imported, &err);
}

void import_path(const char *path, struct hf_ids ids, int n_vocab)
{
    expect_ok(read_path(path, ids, n_vocab));
}

void must_import(const char *name, int n_vocab)
{
    import_path(name ? scratch_path(name) : scratch_dir(), no_ids, n_vocab);
}

void check_not_imported(const char *name, int n_vocab, const char *message)
{
    const enum status s = read_path(name ? scratch_path(name) : scratch_dir(), no_ids, n_vocab);
    expect_says(err.text, name ? name : "");
    expect_status(s, STATUS_BAD_FILE, message);
    ck_assert_ptr_null(imported.memory);
}

void check_noted(const char *part)
{
    ck_assert_msg(strstr(import_notes, part) != NULL, "\"%s\" does not have \"%s\"", import_notes,
                  part);
}

void check_imported(int id, const char *name, int type)
{
    ck_assert_msg(text_is(imported.keys.tokens[id], name), "token %d is \"%.*s\", expected \"%s\"",
                  id, text_width(imported.keys.tokens[id]), imported.keys.tokens[id].data, name);
    ck_assert_msg(imported.keys.types[id] == type, "token %d is of type %d, expected %d", id,
                  (int)imported.keys.types[id], type);
}

/* --- texts and their ids --------------------------------------------------------------------- */

static void check_ids(struct text text, const struct json_node *expected)
{
    int32_t *ids;
    size_t n;
    expect_ok(tokenizer_encode(imported_tokenizer, text, &ids, &n, &err));
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

void check_text(const char *text, const int32_t *expected, size_t n)
{
    int32_t *ids;
    size_t n_ids;
    expect_ok(tokenizer_encode(imported_tokenizer, text_of(text), &ids, &n_ids, &err));
    ck_assert_uint_eq(n_ids, n);
    ck_assert_int_eq(memcmp(ids, expected, n * sizeof *ids), 0);
    free(ids);
}

int check_expected_ids(const char *path)
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
        check_ids(text->text, ids);
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
