#include "cli/lists.h"

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

char list_next(const char **rest, const char *ends, char *item, size_t size)
{
    const size_t len = strcspn(*rest, ends);
    const char end = (*rest)[len];
    snprintf(item, size, "%.*s", len < size ? (int)len : (int)size - 1, *rest);
    *rest += len + (end != 0);
    return end;
}

enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e)
{
    enum status s = STATUS_OK;
    for (char end = ','; end && s == STATUS_OK;) {
        char item[32];
        int value;
        end = list_next(&text, ",", item, sizeof item);
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
    for (char end = ','; end && s == STATUS_OK;) {
        char item[32];
        int at = 0;
        end = list_next(&text, ",", item, sizeof item);
        while (names[at] && strcmp(names[at], item) != 0)
            at++;
        s = names[at] ? list_add(option, at, list, e) : unknown_name(option, item, names, e);
    }
    return s;
}
