/*
 * fuzz_json - the JSON reader. What it takes must be well put together; what it refuses it names
 * the byte of.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "formats/json.h"
#include "show/paragraph.h"
#include "target.h"

static const struct json_limits limits = {
    .bytes = 1 << 18, .values = 1 << 14, .depth = JSON_MAX_DEPTH};

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
    } else {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!root && strncmp(e.text, "JSON", 4) == 0);
    }
    json_reader_free(&reader);
    return 0;
}
