/*
 * numbers - strict numbers from text, and figures for people (layer 5).
 *
 * A number is the whole string: decimal digits, '-' only where negative values are allowed; no
 * '+', space, hexadecimal, infinity or NaN.
 */
#ifndef DECODE_CLI_NUMBERS_H
#define DECODE_CLI_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* False, with *out left alone, if malformed or out of range. */
bool parse_u64(const char *text, uint64_t *out);
bool parse_int(const char *text, int min, int max, int *out);
/* Digits with optional '-', '.' and exponent; the result is finite. */
bool parse_double(const char *text, double *out);

/*
 * A list "1,2,3" of ids in [0, n_ids) as malloc'd memory of the caller; an empty text is an empty
 * list. STATUS_USAGE names `option`, the item and the range.
 */
enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e);

/* Room for a figure with its unit. */
struct figure {
    char text[32];
};

struct figure figure_bytes(double bytes);     /* "3.41 MiB" */
struct figure figure_duration(uint64_t ns);   /* "412 µs", "3.41 s" */
struct figure figure_rate(double per_second); /* "2510", "8.31": three digits or the integer */

/* The shortest decimal text that reads back as exactly x; "NaN" or "Infinity" for such. */
struct figure figure_exact(double x);

#endif
