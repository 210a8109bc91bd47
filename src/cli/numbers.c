#include "cli/numbers.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* Digits from *text up to `end`, which must be where they stop. */
static bool read_digits(const char *text, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    if (text == end || text + strspn(text, DIGITS) < end)
        return false;
    for (const char *c = text; c < end; c++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return false;
    *out = value;
    return true;
}

bool parse_u64(const char *text, uint64_t *out)
{
    return read_digits(text, text + strlen(text), out);
}

bool parse_int(const char *text, int min, int max, int *out)
{
    const bool negative = min < 0 && text[0] == '-';
    uint64_t magnitude;
    if (!parse_u64(text + negative, &magnitude) || magnitude > INT_MAX)
        return false;
    const int value = negative ? -(int)magnitude : (int)magnitude;
    if (value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool parse_double(const char *text, double *out)
{
    /* strtod takes a plus sign, spaces, hexadecimal, inf and nan as well. */
    if (text[0] == '+' || text[strspn(text, DIGITS "+-.eE")] != 0)
        return false;
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value))
        return false;
    *out = value;
    return true;
}

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
    for (char end = ','; end;) {
        char item[32];
        int value;
        end = list_next(&text, ",", item, sizeof item);
        if (!parse_int(item, min, max, &value))
            return err_set(e, STATUS_USAGE, "%s: expected integers from %d to %d, found '%s'",
                           option, min, max, item);
        TRY(list_add(option, value, list, e));
    }
    return STATUS_OK;
}

struct joined names_joined(const char *const *names, const char *last)
{
    struct joined all = {""};
    size_t used = 0;
    for (int i = 0; names[i] && used < sizeof all.text; i++)
        used += (size_t)snprintf(all.text + used, sizeof all.text - used, "%s%s",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : last,
                                 names[i]);
    return all;
}

int names_find(const char *const *names, const char *text)
{
    int at = 0;
    while (names[at] && strcmp(names[at], text) != 0)
        at++;
    return names[at] ? at : -1;
}

enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e)
{
    for (char end = ','; end;) {
        char item[32];
        end = list_next(&text, ",", item, sizeof item);
        const int at = names_find(names, item);
        if (at < 0)
            return err_set(e, STATUS_USAGE, "%s: expected some of %s, found '%s'", option,
                           names_joined(names, ", ").text, item);
        TRY(list_add(option, at, list, e));
    }
    return STATUS_OK;
}

enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e)
{
    size_t count = text[0] != 0;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    int32_t *list = malloc((count ? count : 1) * sizeof *list);
    if (!list)
        return err_no_memory(e, "the list of ids", count * sizeof *list);

    const char *item = text;
    for (size_t i = 0; i < count; i++) {
        const char *end = item + strcspn(item, ",");
        uint64_t id;
        if (!read_digits(item, end, &id) || id >= (uint64_t)n_ids) {
            free(list);
            const int width = end - item < 40 ? (int)(end - item) : 40;
            return err_set(
                e, STATUS_USAGE,
                "%s: item %zu is '%.*s'; expected token ids from 0 to %d (the vocabulary "
                "has %d), separated by commas",
                option, i + 1, width, item, n_ids - 1, n_ids);
        }
        list[i] = (int32_t)id;
        item = end + 1;
    }
    *ids = list;
    *n = count;
    return STATUS_OK;
}
