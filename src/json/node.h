/*
 * node - the values of a JSON text that read.h has read.
 *
 * Values stand in one array in the order of the text: behind a container come its elements, or its
 * members, each with all below it. Keys and strings are decoded. What a getter refuses is
 * STATUS_BAD_FILE with a message that names the key, the byte, what was expected and what was
 * found; the output is left alone then. Everything is a pure function of its arguments.
 */
#ifndef DECODE_JSON_NODE_H
#define DECODE_JSON_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Bytes of a number: more than any double has when it is written out. */
#define JSON_NUMBER_MAX 1100

struct json_node {
    struct text key;  /* of a member, valid UTF-8; data is NULL for what is no member */
    struct text text; /* of a string, valid UTF-8 (zero bytes included); of all others as they are
                         in the source, a container from bracket to bracket */
    size_t at;        /* byte of the source where it begins, a member with its key */
    enum json_kind kind;
    uint32_t n;    /* elements of an array, members of an object */
    uint32_t span; /* nodes from this one to the last below it */
};

/* The element or member after `child`, the first after NULL; NULL after the last. In order:
 *     for (const struct json_node *c = NULL; (c = json_child(array, c));)
 * NULL for what is no container. */
const struct json_node *json_child(const struct json_node *parent, const struct json_node *child);

/* The member of an object (asserted) with this key, or NULL. Time by the members before it. */
const struct json_node *json_member(const struct json_node *object, const char *key);

/* The same, of this kind; else, or when there is none, refused. */
enum status json_require(const struct json_node *object, const char *key, enum json_kind kind,
                         const struct json_node **out, struct err *e);

/* Refused unless the node is of this kind. */
enum status json_expect(const struct json_node *node, enum json_kind kind, struct err *e);

enum status json_node_text(const struct json_node *node, struct text *out, struct err *e);
enum status json_node_bool(const struct json_node *node, bool *out, struct err *e);

/*
 * Numbers are converted exactly. A whole number has no fraction and no exponent, not even 1.0; the
 * message tells what is not whole from what is out of range. A double is the nearest one (0 for
 * what is too small) and finite.
 */
enum status json_node_u64(const struct json_node *node, uint64_t *out, struct err *e);
enum status json_node_i64(const struct json_node *node, int64_t min, int64_t max, int64_t *out,
                          struct err *e);
enum status json_node_double(const struct json_node *node, double *out, struct err *e);

#endif
