#include "vocab_import.h"

#include <stdio.h>

const struct hf_ids no_ids = {-1, -1, -1};

struct vocabulary imported;
struct tokenizer *imported_tokenizer;
char import_notes[4096];

static void keep_note(void *arg, const char *text)
{
    (void)arg;
    const size_t len = strlen(import_notes);
    snprintf(import_notes + len, sizeof import_notes - len, "%s\n", text);
}

static void drop(void *unused)
{
    (void)unused;
    tokenizer_free(imported_tokenizer);
    vocabulary_free(&imported);
    imported_tokenizer = NULL;
    imported = (struct vocabulary){.memory = NULL};
    import_notes[0] = 0;
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

static enum status read_path(const char *path, struct hf_ids ids, int n_vocab)
{
    static const struct vocabulary_notes notes = {keep_note, NULL};
    drop(NULL);
    released_by(drop, &imported);
    return vocabulary_read(path, &(struct vocabulary_options){ids, n_vocab, &notes}, &imported,
                           &err);
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

void check_imported(int id, const char *name, int type)
{
    const struct text found = imported.keys.tokens[id];
    ck_assert_msg(text_is(found, name) && imported.keys.types[id] == type,
                  "token %d is \"%.*s\" of type %d, expected \"%s\" of type %d", id,
                  text_width(found), found.data, (int)imported.keys.types[id], name, type);
}

void check_text(struct text text, const int32_t *expected, size_t n)
{
    int32_t *ids;
    size_t n_ids;
    expect_ok(tokenizer_encode(imported_tokenizer, text, &ids, &n_ids, &err));
    ck_assert_msg(n_ids == n, "'%.*s': %zu tokens, expected %zu", text_width(text), text.data,
                  n_ids, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(ids[i] == expected[i], "'%.*s': token %zu is %d, expected %d",
                      text_width(text), text.data, i, (int)ids[i], (int)expected[i]);
    free(ids);
}

void check_expected_ids(const char *folder)
{
    const struct json_node *texts, *text, *array;
    int32_t ids[1000];
    expect_ok(
        json_require(json_in(path_of(folder, "expect.json")), "texts", JSON_ARRAY, &texts, &err));
    ck_assert_uint_eq(texts->n, 5);
    for (const struct json_node *c = NULL; (c = json_child(texts, c));) {
        expect_ok(json_require(c, "text", JSON_STRING, &text, &err));
        expect_ok(json_require(c, "ids", JSON_ARRAY, &array, &err));
        check_text(text->text, ids, (size_t)numbers_in(array, ids, COUNT(ids)));
    }
}

const char *scratch_dir(void)
{
    return scratch_path("");
}

void write_json(const char *name, const char *json)
{
    char *text = strcpy(allocated(strlen(json) + 1), json);
    for (char *c = text; (c = strchr(c, '\''));)
        *c = '"';
    write_text(scratch_dir(), name, text);
}

const struct parts usual_parts = {
    .normalizer = "null",
    .pre = BYTE_LEVEL,
    .post = "null",
    .added = "[]",
    .type = "'BPE'",
    .options = "'dropout': null, 'ignore_merges': false",
    .vocab = "{'a': 0, 'b': 1, 'c': 2, 'ab': 3, 'abc': 4}",
    .merges = "['a b', ['ab', 'c']]",
};

void write_parts(const struct parts *p)
{
    static char text[8192];
    const struct parts *u = &usual_parts;
    snprintf(text, sizeof text,
             "{'normalizer': %s, 'pre_tokenizer': %s, 'post_processor': %s, 'added_tokens': %s, "
             "'model': {'type': %s, %s, 'vocab': %s, 'merges': %s}}",
             p->normalizer ? p->normalizer : u->normalizer, p->pre ? p->pre : u->pre,
             p->post ? p->post : u->post, p->added ? p->added : u->added,
             p->type ? p->type : u->type, p->options ? p->options : u->options,
             p->vocab ? p->vocab : u->vocab, p->merges ? p->merges : u->merges);
    write_json("tokenizer.json", text);
}
