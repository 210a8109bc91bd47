/*
 * fuzz_json - the JSON reader. What it takes must be well put together; what it refuses it names
 * the byte of.
 */
#include <stdio.h>

#include "formats/json_read.h"
#include "formats/json_write.h"
#include "show/paragraph.h"
#include "target.h"

static const struct json_limits limits = {
    .bytes = 1 << 18, .values = 1 << 14, .depth = JSON_MAX_DEPTH};

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
        }
    } else {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!root && strncmp(e.text, "JSON", 4) == 0);
    }
    json_reader_free(&reader);
    return 0;
}
