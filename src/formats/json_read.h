/*
 * json_read - reads JSON, strictly, and gives what is in it.
 *
 * What RFC 8259 says, and nothing else: no comments, no trailing commas, no NaN, no byte-order
 * mark. Of what it leaves open, these are refused: keys that occur twice in an object, surrogates
 * that are not a pair, numbers of more than JSON_NUMBER_MAX bytes. A reader's memory serves one
 * text after another: once it has grown, reading allocates nothing.
 */
#pragma once

#include "base/mem.h"
#include "base/name_index.h"
#include "base/text.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Bytes of a number: more than any double has when it is written out. */
#define JSON_NUMBER_MAX 1100

/* Values stand in one array in the order of the text: behind a container come its elements, or its
 * members, each with all below it. */
struct json_node {
    struct text key;  /* of a member, valid UTF-8; data is NULL for what is no member */
    struct text text; /* of a string, valid UTF-8 (zero bytes included); of all others as they are
                         in the source, a container from bracket to bracket */
    size_t at;        /* byte of the source where it begins, a member with its key */
    enum json_kind kind;
    uint32_t n;    /* elements of an array, members of an object */
    uint32_t span; /* nodes from this one to the last below it */
};

/* --- reading -------------------------------------------------------------------------------- */

/* Zeroed at first; the members are private. */
struct json_reader {
    struct json_node *nodes;
    uint32_t n_nodes;
    size_t nodes_cap;
    struct bytes strings;   /* those that have escapes, decoded */
    struct name_index keys; /* of an object, to be compared */
};

/* The most that is read. */
struct json_limits {
    size_t bytes;    /* of the text */
    uint32_t values; /* scalars and containers; sizeof(struct json_node) bytes each */
    int depth;       /* containers in one another; 0: scalars only */
};

/*
 * Reads a text that is one value with white space around it. *root and what is below it are valid
 * until the next call, and borrow strings without escapes from `source`. Memory is a node a value,
 * 40 bytes a member of the largest object, and, if some string has escapes, as many bytes as the
 * source, all up to twice that. Time O(n log n) of the source's bytes, whatever they are; the stack
 * grows by some 400 bytes a container around another.
 *
 * STATUS_BAD_FILE: not JSON, or beyond the limits; the message names the byte (from 0), what was
 * expected and what was found. STATUS_NO_MEMORY.
 */
enum status json_read(struct json_reader *r, struct text source, const struct json_limits *limits,
                      const struct json_node **root, struct err *e);
void json_reader_free(struct json_reader *r); /* legal on a zeroed struct and twice */

/* --- values --------------------------------------------------------------------------------- */

/*
 * Keys and strings are decoded. What a getter refuses is STATUS_BAD_FILE with a message that names
 * the key, the byte, what was expected and what was found; the output is left alone then.
 */

/* The element or member after `child`, the first after NULL; NULL after the last, and for what is
 * no container. And a loop over all of them, in order. */
const struct json_node *json_child(const struct json_node *parent, const struct json_node *child);
#define JSON_EACH(child, parent)                                                                   \
    for (const struct json_node *child = NULL; (child = json_child(parent, child));)

/* The member of an object (asserted) with this key, or NULL. Time by the members before it. */
const struct json_node *json_member(const struct json_node *object, const char *key);

/* The same, of this kind; else, or when there is none, refused. */
enum status json_require(const struct json_node *object, const char *key, enum json_kind kind,
                         const struct json_node **out, struct err *e);

/* Refused unless the node is of this kind. */
enum status json_expect(const struct json_node *node, enum json_kind kind, struct err *e);

enum status json_node_text(const struct json_node *node, struct text *out, struct err *e);

/*
 * Numbers are converted exactly. A whole number has no fraction and no exponent, not even 1.0; the
 * message tells what is not whole from what is out of range; max >= 0 (asserted). A double is the
 * nearest one (0 for what is too small) and finite.
 */
enum status json_node_u64(const struct json_node *node, uint64_t *out, struct err *e);
enum status json_node_i64(const struct json_node *node, int64_t min, int64_t max, int64_t *out,
                          struct err *e);
enum status json_node_double(const struct json_node *node, double *out, struct err *e);
