/*
 * fuzz_json - the JSON reader. What it takes must be well put together, and what our own writer
 * makes of it must read as the same values, with the reader's memory used again; no beginning of
 * a container is JSON. What it refuses it names the byte of.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "formats/json.h"
#include "target.h"

static const struct json_limits limits = {
    .bytes = 1 << 18, .values = 1 << 14, .depth = JSON_MAX_DEPTH};

/* --- what was read --------------------------------------------------------------------------- */

static void check_utf8(struct text s)
{
    while (s.len > 0) {
        uint32_t code;
        utf8_next(&s, &code);
        require(code != UNICODE_INVALID);
    }
}

static void check_whole(const struct json_node *node)
{
    struct err e = {""};
    char again[24];
    uint64_t u = 77;
    int64_t i = 77;
    if (json_node_u64(node, &u, &e) == STATUS_OK) {
        snprintf(again, sizeof again, "%" PRIu64, u);
        require(text_is(node->text, again) || text_is(node->text, "-0"));
    } else {
        require(u == 77);
        require_message(&e);
    }
    if (json_node_i64(node, INT64_MIN, INT64_MAX, &i, &e) == STATUS_OK) {
        snprintf(again, sizeof again, "%" PRId64, i);
        require(text_is(node->text, again) || text_is(node->text, "-0"));
    } else {
        require(i == 77);
    }
    require(json_node_i64(node, 0, 9, &i, &e) != STATUS_OK || (i >= 0 && i <= 9));
}

static void check_scalar(const struct json_node *node)
{
    struct err e = {""};
    struct text text;
    bool is;
    double x = 77;
    check_whole(node);
    require((json_node_text(node, &text, &e) == STATUS_OK) == (node->kind == JSON_STRING));
    require((json_node_bool(node, &is, &e) == STATUS_OK) == (node->kind == JSON_BOOL));
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
        require(c == parent + span && c->at > parent->at && c->at < size);
        require((c->key.data != NULL) == (parent->kind == JSON_OBJECT));
        check_utf8(c->key);
        span += c->span;
        /* A string ends at a zero byte. */
        if (c->key.data && !memchr(c->key.data, 0, c->key.len) && c->key.len < 64) {
            char key[64];
            memcpy(key, c->key.data, c->key.len);
            key[c->key.len] = 0;
            require(json_member(parent, key) == c);
        }
    }
    require(n == parent->n && span == parent->span);
}

static void check_nodes(const struct json_node *root, size_t size)
{
    for (const struct json_node *node = root; node < root + root->span; node++) {
        check_utf8(node->text);
        check_container(node, size);
        check_scalar(node);
    }
}

/* --- the same again -------------------------------------------------------------------------- */

#define KEY_MAX (1 << 14)

struct written {
    struct output out; /* must be the first */
    size_t len;
    char bytes[1 << 18];
};

static bool keep(struct output *o, const char *bytes, size_t len)
{
    struct written *w = (struct written *)o;
    require(len <= sizeof w->bytes - w->len);
    memcpy(w->bytes + w->len, bytes, len);
    w->len += len;
    return true;
}

/* The writer's keys end at a zero byte: see writable_keys. */
static void write_node(struct json *j, const struct json_node *node)
{
    char key[KEY_MAX] = "";
    if (node->key.data)
        memcpy(key, node->key.data, node->key.len);
    key[node->key.len] = 0;
    const char *name = node->key.data ? key : NULL;
    if (node->kind == JSON_STRING) {
        json_text(j, name, node->text);
    } else if (node->kind <= JSON_NUMBER) {
        json_literal(j, name, node->text);
    } else {
        (node->kind == JSON_ARRAY ? json_begin_array : json_begin_object)(j, name);
        for (const struct json_node *c = NULL; (c = json_child(node, c));)
            write_node(j, c);
        json_end(j);
    }
}

static bool writable_keys(const struct json_node *root)
{
    for (const struct json_node *node = root; node < root + root->span; node++)
        if (node->key.len >= KEY_MAX || (node->key.len && memchr(node->key.data, 0, node->key.len)))
            return false;
    return true;
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
    static struct written w;
    struct json j;
    struct json_reader reader = {0};
    const struct json_node *again = NULL;
    struct err e = {""};
    w.len = 0;
    output_init(&w.out, keep);
    json_init(&j, &w.out, 1);
    write_node(&j, root);
    require(output_flush(&w.out));
    require(json_read(&reader, (struct text){w.bytes, w.len}, &limits, &again, &e) == STATUS_OK);
    require_same(root, again);
    if (root->kind >= JSON_ARRAY)
        for (size_t len = w.len > 300 ? w.len - 300 : 0; len < w.len; len++)
            require(json_read(&reader, (struct text){w.bytes, len}, &limits, &again, &e) ==
                    STATUS_BAD_FILE);
    json_reader_free(&reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_reader reader = {0};
    const struct text source = {(const char *)data, size};
    const struct json_node *root = NULL;
    struct err e = {""};
    const enum status s = json_read(&reader, source, &limits, &root, &e);
    if (s == STATUS_OK) {
        check_nodes(root, size);
        if (writable_keys(root))
            check_written(root);
    } else {
        require(s == STATUS_BAD_FILE && !root);
        require_message(&e);
        require(strncmp(e.text, "JSON", 4) == 0);
    }
    json_reader_free(&reader);
    return 0;
}
