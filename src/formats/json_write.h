/*
 * json_write - writes JSON as it goes, to an output.
 *
 * The writer puts commas, colons and line breaks; the caller begins and ends containers in a
 * matching order, and names every value inside an object. Bytes of a string that are not UTF-8
 * become U+FFFD. Doubles read back exactly; NaN and infinities are null.
 */
#pragma once

#include "base/output.h"

#define JSON_MAX_DEPTH 16

/* A JSON text on its way; json_init fills it in. */
struct json {
    struct output *out;
    int depth;        /* open containers */
    int broken_depth; /* containers at depths below this have one member a line */
    struct {
        char closing;
        bool used;
    } open[JSON_MAX_DEPTH];
};

/* Begins a JSON text; a broken_depth of 0 writes everything on one line. */
void json_init(struct json *j, struct output *out, int broken_depth);

/* The key is NULL in arrays and outside of all containers. */
void json_begin_object(struct json *j, const char *key);
void json_begin_array(struct json *j, const char *key);
void json_end(struct json *j); /* of the innermost container */

void json_text(struct json *j, const char *key, struct text bytes);
void json_literal(struct json *j, const char *key, struct text literal); /* written as it is */
void json_int(struct json *j, const char *key, int64_t x);
void json_ints(struct json *j, const char *key, const int *x, int n); /* an array */
void json_u64(struct json *j, const char *key, uint64_t x);
void json_double(struct json *j, const char *key, double x);
void json_null(struct json *j, const char *key);
