/*
 * numbers - strict numbers from text, and lists of them that commas separate: "1,2,8", "f32,f16".
 *
 * A number is the whole string: decimal digits, '-' only where negative values are allowed. Where
 * there is a struct err, STATUS_USAGE names the option, what was expected and what was found.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* These parse a whole text. They return false, and leave *out alone, if it is malformed or the
 * number is out of range. */
bool parse_u64(const char *text, uint64_t *out);
bool parse_double(const char *text, double *out); /* with '.' and exponent; finite */
/* Takes thousands and millions, too: "4k", "1M". */
bool parse_int(const char *text, int min, int max, int *out);
/* Takes a number of at least 1 that may have k, M, G, kB, MB, GB, KiB, MiB or GiB behind it. */
bool parse_bytes(const char *text, size_t *out);

/* Copies the text up to one of the bytes in `ends` to item [size], cut if it does not fit, and
 * moves *rest behind that byte. Returns the byte, or 0 at the end of the text. */
char list_next(const char **rest, const char *ends, char *item, size_t size);

/* Copies the next item of a list with commas to item [size], as list_next does; false if there is
 * none. *rest becomes NULL behind the last item. */
bool list_item(const char **rest, char *item, size_t size);

/* The most items of a list. */
#define LIST_MAX 64

/* The value of an option like --depth 0,100,1000. */
struct int_list {
    int items[LIST_MAX];
    int n;
};

/* Each appends to the list: integers from min to max; the indices of items in `names`, which ends
 * with NULL; one number. STATUS_USAGE also for more than LIST_MAX items, an empty one or one
 * twice. */
enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e);
enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e);
enum status list_add(const char *option, int item, struct int_list *list, struct err *e);

/* Returns the index of `text`, upper or lower case, among names that end with NULL; or -1. */
int names_find(const char *const *names, const char *text);

/* Parses a list of ids in [0, n_ids): "1,2,3", or a form that programs print ("1 2 3", "[1, 2,
 * 3]"), or several of these one after the other. An empty text is an empty list. The caller frees
 * *ids, also on failure. */
enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e);
