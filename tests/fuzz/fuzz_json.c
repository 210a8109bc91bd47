/*
 * fuzz_json - the JSON reader. What it takes must be well put together, and what our own writer
 * makes of it must read as the same values, with the reader's memory used again; no beginning of
 * a container is JSON. What it refuses it names the byte of.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "formats/json.h"
#include "show/paragraph.h"
#include "target.h"

static const struct json_limits limits = {
    .bytes = 1 << 18, .values = 1 << 14, .depth = JSON_MAX_DEPTH};

/* --- what was read --------------------------------------------------------------------------- */

/* What a getter gives is what is written; what it refuses it leaves alone. */
static void check_scalar(const struct json_node *node)
{
    struct err e = {""};
    char again[2][24] = {"-0", "-0"};
    uint64_t u = 77;
    int64_t i = 77;
    struct text text;
    double x = 77;
    if (json_node_u64(node, &u, &e) == STATUS_OK) {
        snprintf(again[0], sizeof again[0], "%" PRIu64, u);
    } else {
        require(u == 77);
        require_line(e.text);
    }
    if (json_node_i64(node, INT64_MIN, INT64_MAX, &i, &e) == STATUS_OK)
        snprintf(again[1], sizeof again[1], "%" PRId64, i);
    else
        require(i == 77);
    for (int k = 0; k < 2; k++)
        require(again[k][0] == '-' || text_is(node->text, again[k]) || text_is(node->text, "-0"));
    require(json_node_i64(node, 0, 9, &i, &e) != STATUS_OK || (i >= 0 && i <= 9));
    require((json_node_text(node, &text, &e) == STATUS_OK) == (node->kind == JSON_STRING));
    if (json_node_double(node, &x, &e) == STATUS_OK)
        require(node->kind == JSON_NUMBER && isfinite(x));
    else
        require(x == 77);
}

/* Counts, spans and places; the members are found by their keys. */
static void check_container(const struct json_node *parent, size_t size)
{
    uint32_t n = 0, span = 1;
    for (const struct json_node *c = NULL; (c = json_child(parent, c)); n++) {
        char key[64];
        require(c == parent + span && c->at > parent->at && c->at < size);
        require((c->key.data != NULL) == (parent->kind == JSON_OBJECT));
        require(text_is_utf8(c->key));
        if (c->key.data && as_string(c->key, key, sizeof key))
            require(json_member(parent, key) == c);
        span += c->span;
    }
    require(n == parent->n && span == parent->span);
}

/* --- the same again -------------------------------------------------------------------------- */

#define KEY_MAX (1 << 14)

static struct written {
    struct output out; /* must be the first */
    size_t len;
    char bytes[1 << 18];
} w;

static bool keep(struct output *o, const char *bytes, size_t len)
{
    require(o == &w.out && len <= sizeof w.bytes - w.len);
    memcpy(w.bytes + w.len, bytes, len);
    w.len += len;
    return true;
}

/* False if a key has a zero byte, where the writer's keys end. */
static bool write_node(struct json *j, const struct json_node *node)
{
    char key[KEY_MAX];
    const char *name = node->key.data ? key : NULL;
    bool good = as_string(node->key, key, sizeof key);
    if (node->kind == JSON_STRING) {
        json_text(j, name, node->text);
    } else if (node->kind <= JSON_NUMBER) {
        json_literal(j, name, node->text);
    } else {
        (node->kind == JSON_ARRAY ? json_begin_array : json_begin_object)(j, name);
        for (const struct json_node *c = NULL; good && (c = json_child(node, c));)
            good = write_node(j, c);
        json_end(j);
    }
    return good;
}

static void require_same(const struct json_node *a, const struct json_node *b)
{
    require(a->span == b->span);
    for (uint32_t i = 0; i < a->span; i++) {
        require(a[i].kind == b[i].kind && a[i].n == b[i].n && a[i].span == b[i].span);
        require(text_equal(a[i].key, b[i].key));
        require(a[i].kind >= JSON_ARRAY || text_equal(a[i].text, b[i].text));
    }
}

static void check_written(const struct json_node *root)
{
    struct json j;
    struct json_reader reader = {0};
    const struct json_node *again = NULL;
    struct text text = {w.bytes, 0};
    w.len = 0;
    output_init(&w.out, keep);
    json_init(&j, &w.out, 1);
    const bool good = write_node(&j, root);
    require(output_flush(&w.out));
    if (!good)
        return;
    text.len = w.len;
    require(json_read(&reader, text, &limits, &again, NULL) == STATUS_OK);
    require_same(root, again);
    while (root->kind >= JSON_ARRAY && text.len > 0 && w.len - text.len < 300) {
        text.len--;
        require(json_read(&reader, text, &limits, &again, NULL) == STATUS_BAD_FILE);
    }
    json_reader_free(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_reader reader = {0};
    const struct json_node *root = NULL;
    struct err e = {""};
    const enum status s =
        json_read(&reader, (struct text){(const char *)data, size}, &limits, &root, &e);
    if (s == STATUS_OK) {
        for (const struct json_node *node = root; node < root + root->span; node++) {
            require(text_is_utf8(node->text));
            check_container(node, size);
            check_scalar(node);
        }
        check_written(root);
    } else {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!root && strncmp(e.text, "JSON", 4) == 0);
    }
    json_reader_free(&reader);
    return 0;
}
