#include "cli/lists.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/numbers.h"

enum status list_add(const char *option, int item, struct int_list *list, struct err *e)
{
    if (list->n == LIST_MAX)
        return err_set(e, STATUS_USAGE, "%s: expected at most %d items", option, LIST_MAX);
    for (int i = 0; i < list->n; i++)
        if (list->items[i] == item)
            return err_set(e, STATUS_USAGE, "%s: an item is given twice", option);
    list->items[list->n++] = item;
    return STATUS_OK;
}

/* The next item of a list, as a string of its own; *rest becomes NULL after the last. An item
 * that does not fit is cut, and then is no number and no name. */
static void next_item(const char **rest, char item[32])
{
    const char *comma = strchr(*rest, ',');
    const size_t len = comma ? (size_t)(comma - *rest) : strlen(*rest);
    snprintf(item, 32, "%.*s", len < 31 ? (int)len : 31, *rest);
    *rest = comma ? comma + 1 : NULL;
}

enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e)
{
    enum status s = STATUS_OK;
    for (const char *rest = text; rest && s == STATUS_OK;) {
        char item[32];
        int value;
        next_item(&rest, item);
        if (parse_int(item, min, max, &value))
            s = list_add(option, value, list, e);
        else
            s = err_set(e, STATUS_USAGE, "%s: expected integers from %d to %d, found '%s'", option,
                        min, max, item);
    }
    return s;
}

static enum status unknown_name(const char *option, const char *item, const char *const *names,
                                struct err *e)
{
    char all[128] = "";
    size_t used = 0;
    for (int i = 0; names[i] && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", names[i]);
    return err_set(e, STATUS_USAGE, "%s: expected some of %s, found '%s'", option, all, item);
}

enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e)
{
    enum status s = STATUS_OK;
    for (const char *rest = text; rest && s == STATUS_OK;) {
        char item[32];
        next_item(&rest, item);
        int at = 0;
        while (names[at] && strcmp(names[at], item) != 0)
            at++;
        s = names[at] ? list_add(option, at, list, e) : unknown_name(option, item, names, e);
    }
    return s;
}
