/*
 * lists - comma-separated option values: "1,2,8", "f32,f16".
 */
#ifndef DECODE_CLI_LISTS_H
#define DECODE_CLI_LISTS_H

#include <stddef.h>

#include "base/status.h"

#define LIST_MAX 64

struct int_list {
    int items[LIST_MAX];
    int n;
};

/* Puts the text up to one of the bytes in `ends` into item [size], as a string of its own; *rest
 * moves behind it. Returns that byte, 0 at the end of the text. An item that does not fit is cut,
 * and then is no number and no name. */
char list_next(const char **rest, const char *ends, char *item, size_t size);

/* Appends the integers of `text`, each from min to max. STATUS_USAGE names `option`, what was
 * expected and the item found; so does more than LIST_MAX items, an empty one, or one twice. */
enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e);

/* Appends the indices of the items in `names` (ends with NULL). */
enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e);

/* Appends one number. STATUS_USAGE as above. */
enum status list_add(const char *option, int item, struct int_list *list, struct err *e);

#endif
