/*
 * numbers - strict numbers from text, and comma-separated lists: "1,2,8", "f32,f16".
 *
 * A number is the whole string: decimal digits, '-' only where negative values are allowed; no
 * '+', space, hexadecimal, infinity or NaN. Counts may end in k or M, thousands and millions.
 */
#ifndef DECODE_CLI_NUMBERS_H
#define DECODE_CLI_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/int_list.h"
#include "base/status.h"

/* False, with *out left alone, if malformed or out of range. */
bool parse_u64(const char *text, uint64_t *out);
bool parse_int(const char *text, int min, int max, int *out); /* a count */
/* A size in bytes from 1 to SIZE_MAX / 2: k, M, G or kB, MB, GB are powers of 1000, KiB, MiB, GiB
 * of 1024. */
bool parse_bytes(const char *text, size_t *out);
/* K/V heads: a number from 1 on, or the variant's name in any case: MHA (n_heads), GQA-G, MQA. */
bool parse_heads(const char *text, int n_heads, int *out);
/* Digits with optional '-', '.' and exponent; the result is finite. */
bool parse_double(const char *text, double *out);

/* Puts the text up to one of the bytes in `ends` into item [size], as a string of its own; *rest
 * moves behind it. Returns that byte, 0 at the end of the text. An item that does not fit is cut,
 * and then is no number and no name. */
char list_next(const char **rest, const char *ends, char *item, size_t size);

/* Appends the integers of `text`, each from min to max. STATUS_USAGE names `option`, what was
 * expected and the item found; so does more than LIST_MAX items, an empty one, or one twice. */
enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e);

/* The same of K/V heads, see parse_heads. */
enum status list_heads(const char *option, const char *text, int n_heads, struct int_list *list,
                       struct err *e);

/* Appends the indices of the items in `names` (ends with NULL). */
enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e);

/* The index of `text` among names that end with NULL, or -1. */
int names_find(const char *const *names, const char *text);

/* "a, b or c": names that end with NULL, `last` before the last of several. */
struct joined {
    char text[128];
};
struct joined names_joined(const char *const *names, const char *last);

/* Appends one number. STATUS_USAGE as above. */
enum status list_add(const char *option, int item, struct int_list *list, struct err *e);

/*
 * A list "1,2,3" of ids in [0, n_ids) as malloc'd memory of the caller; an empty text is an empty
 * list. STATUS_USAGE names `option`, the item and the range.
 */
enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e);

/* The same in any form that is printed, too: "1 2 3", "[1, 2, 3]", several of these one after the
 * other. */
enum status parse_printed_ids(const char *option, const char *text, int n_ids, int32_t **ids,
                              size_t *n, struct err *e);

#endif
