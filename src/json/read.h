/*
 * read - reads JSON, strictly.
 *
 * What RFC 8259 says, and nothing else: no comments, no trailing commas, no NaN, no byte-order
 * mark. Of what it leaves open, these are refused: keys that occur twice in an object, surrogates
 * that are not a pair, numbers of more than JSON_NUMBER_MAX bytes. A reader's memory serves one
 * text after another: once it has grown, reading allocates nothing.
 */
#ifndef DECODE_JSON_READ_H
#define DECODE_JSON_READ_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "json/node.h"

/* Zeroed at first; the members are private. */
struct json_reader {
    struct json_node *nodes;
    uint32_t n_nodes;
    size_t nodes_cap;
    char *strings; /* those that have escapes, decoded */
    size_t strings_len, strings_cap;
    const struct json_node **members; /* of an object, to be sorted */
    size_t members_cap;
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
 * a pointer a member of the largest object, both up to half as many again, and, if some string has
 * escapes, as many bytes as the source. Time O(n log n) of the source's bytes,
 * whatever they are; no recursion.
 *
 * STATUS_BAD_FILE: not JSON, or beyond the limits; the message names the byte (from 0), what was
 * expected and what was found. STATUS_NO_MEMORY.
 */
enum status json_read(struct json_reader *r, struct text source, const struct json_limits *limits,
                      const struct json_node **root, struct err *e);
void json_reader_free(struct json_reader *r); /* legal on a zeroed struct and twice */

#endif
