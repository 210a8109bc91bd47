/*
 * numbers - strict numbers from text.
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

#endif
