#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "exchange/vocabulary.h"
#include "support.h"
#include "text/tokenizer.h"
#include "json/read.h"

/* --- what is read ---------------------------------------------------------------------------- */


/* All notes, a line each. */
struct noted {
    char text[4096];
};

static void keep_note(void *arg, const char *text)
{
    struct noted *n = arg;
    const size_t len = strlen(n->text);
    snprintf(n->text + len, sizeof n->text - len, "%s\n", text);
}

static struct tokenizer *tokenizer_of(const struct vocabulary *v)
{
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    unsigned char *bytes;
    size_t len;
    struct err e = {{0}};
    ck_assert_int_eq(gguf_writer_create(&w, &e), STATUS_OK);
    vocab_keys_write(&v->keys, w);
    ck_assert_msg(gguf_write_memory(w, &bytes, &len, &e) == STATUS_OK, "%s", e.text);
    gguf_writer_free(w);
    ck_assert_msg(gguf_parse(bytes, len, &g, &e) == STATUS_OK, "%s", e.text);
    ck_assert_msg(tokenizer_create(g, &t, &e) == STATUS_OK, "%s", e.text);
    gguf_free(g);
    free(bytes);
    return t;
}

/* --- texts and their ids --------------------------------------------------------------------- */

static void check_ids(const struct tokenizer *t, struct text text, const struct json_node *expected)
{
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_msg(tokenizer_encode(t, text, &ids, &n, &e) == STATUS_OK, "%s", e.text);
    ck_assert_uint_eq(n, expected->n);
    size_t i = 0;
    for (const struct json_node *c = NULL; (c = json_child(expected, c)); i++) {
        int64_t id = -1;
        ck_assert_int_eq(json_node_i64(c, 0, INT32_MAX, &id, &e), STATUS_OK);
        ck_assert_msg(ids[i] == id, "'%.*s': token %zu is %d, expected %d", text_width(text),
                      text.data, i, (int)ids[i], (int)id);
    }
    free(ids);
}

/* The texts of an expect.json, with the ids that transformers gave them; returns how many. */
static int check_expected(const struct tokenizer *t, const char *path)
{
    static const struct json_limits limits = {1 << 20, 1 << 16, 8};
    struct json_reader r = {0};
    const struct json_node *root, *texts, *text, *ids;
    struct err e = {{0}};
    size_t len;
    int n = 0;
    unsigned char *bytes = read_file(path, &len);
    const struct text source = {(const char *)bytes, len};
    ck_assert_msg(json_read(&r, source, &limits, &root, &e) == STATUS_OK, "%s", e.text);
    ck_assert_int_eq(json_require(root, "texts", JSON_ARRAY, &texts, &e), STATUS_OK);
    for (const struct json_node *c = NULL; (c = json_child(texts, c)); n++) {
        ck_assert_int_eq(json_require(c, "text", JSON_STRING, &text, &e), STATUS_OK);
        ck_assert_int_eq(json_require(c, "ids", JSON_ARRAY, &ids, &e), STATUS_OK);
        check_ids(t, text->text, ids);
    }
    json_reader_free(&r);
    free(bytes);
    return n;
}

START_TEST(test_folders_of_transformers)
{
    static const char *const folders[] = {"tests/data/hf/gpt2", "tests/data/hf/llama"};
    static const char *const pre[] = {"gpt-2", "dbrx"};
    for (int i = 0; i < 2; i++) {
        struct vocabulary v;
        struct noted noted = {""};
        const struct vocabulary_notes notes = {keep_note, &noted};
        const struct hf_ids ids = {50256, 50256, -1};
        struct err e = {{0}};
        char expect[64];
        ck_assert_msg(vocabulary_of_folder(folders[i], &ids, 400, &notes, &v, &e) == STATUS_OK,
                      "%s", e.text);
        ck_assert_str_eq(noted.text, "");
        ck_assert_str_eq(v.keys.pre, pre[i]);
        ck_assert_int_eq(v.keys.n, 400);
        ck_assert_int_eq(v.keys.bos, 0);
        ck_assert_int_eq(v.keys.eos, 0);
        ck_assert(!v.keys.add_bos);
        struct tokenizer *t = tokenizer_of(&v);
        snprintf(expect, sizeof expect, "%s/expect.json", folders[i]);
        ck_assert_int_eq(check_expected(t, expect), 5);
        tokenizer_free(t);
        vocabulary_free(&v);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("exchange_vocab");
    TCase *t = tcase_create("folders");
    tcase_add_test(t, test_folders_of_transformers);
    suite_add_tcase(s, t);
    return run_suite(s);
}
