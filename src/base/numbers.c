#include "base/numbers.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"

#define DIGITS "0123456789"

/* Reads digits from `text` up to `end`; false if they stop before. */
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

/* The first three are for counts and sizes, the others for sizes in bytes only. */
static const struct unit {
    const char *name;
    uint64_t times;
} units[] = {{"", 1},           {"k", 1000},        {"M", 1000000},   {"B", 1},
             {"kB", 1000},      {"KiB", 1u << 10},  {"MB", 1000000},  {"MiB", 1u << 20},
             {"G", 1000000000}, {"GB", 1000000000}, {"GiB", 1u << 30}};
#define N_COUNT_UNITS 3
#define N_UNITS       LENGTH(units)

/* Reads digits and one of the first n_units units behind them. */
static bool read_units(const char *text, size_t n_units, uint64_t *out)
{
    const char *end = text + strspn(text, DIGITS);
    uint64_t value;
    if (!read_digits(text, end, &value))
        return false;
    for (size_t i = 0; i < n_units; i++)
        if (str_is(units[i].name, end))
            return !__builtin_mul_overflow(value, units[i].times, out);
    return false;
}

bool parse_int(const char *text, int min, int max, int *out)
{
    const bool negative = min < 0 && text[0] == '-';
    uint64_t magnitude;
    if (!read_units(text + negative, N_COUNT_UNITS, &magnitude) || magnitude > INT_MAX)
        return false;
    const int value = negative ? -(int)magnitude : (int)magnitude;
    const bool fits = value >= min && value <= max;
    *out = fits ? value : *out;
    return fits;
}

bool parse_bytes(const char *text, size_t *out)
{
    uint64_t bytes;
    if (!read_units(text, N_UNITS, &bytes) || bytes < 1 || bytes > SIZE_MAX / 2)
        return false;
    *out = bytes;
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
        return err_usage(e, "%s: expected at most %d items", option, LIST_MAX);
    for (int i = 0; i < list->n; i++)
        if (list->items[i] == item)
            return err_usage(e, "%s: an item is given twice", option);
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

bool list_item(const char **rest, char *item, size_t size)
{
    const bool found = *rest;
    if (found && !list_next(rest, ",", item, size))
        *rest = NULL;
    return found;
}

int names_find(const char *const *names, const char *text)
{
    int at = 0;
    while (names[at] && strcasecmp(names[at], text) != 0)
        at++;
    return names[at] ? at : -1;
}

enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e)
{
    for (char item[32]; list_item(&text, item, sizeof item);) {
        int value;
        if (!parse_int(item, min, max, &value))
            return err_usage(e,
                             "%s: expected integers from %d to %d, separated by commas, found '%s'",
                             option, min, max, item);
        TRY(list_add(option, value, list, e));
    }
    return STATUS_OK;
}

enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e)
{
    for (char item[32]; list_item(&text, item, sizeof item);) {
        const int index = names_find(names, item);
        if (index < 0)
            return err_usage(e, "%s: expected some of %s, found '%s'", option,
                             names_joined(names, ", ").text, item);
        TRY(list_add(option, index, list, e));
    }
    return STATUS_OK;
}

/* --- lists of ids ---------------------------------------------------------------------------- */

#define ID_SPACE " \r\n"

enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e)
{
    const size_t bytes = (strlen(text) / 2 + 1) * sizeof **ids; /* a digit and a comma each */
    bool in_brackets = false, after_comma = false;
    *n = 0;
    *ids = malloc(bytes);
    if (!*ids)
        return err_no_memory(e, "the list of token ids", bytes);
    for (;;) {
        text += strspn(text, ID_SPACE);
        if (!after_comma && *text == (in_brackets ? ']' : '[')) {
            in_brackets = !in_brackets;
            text++;
            continue;
        }
        if (!*text && !in_brackets && !after_comma)
            return STATUS_OK;
        const char *end = text + strcspn(text, ID_SPACE ",[]");
        uint64_t id;
        if (!read_digits(text, end, &id) || id >= (uint64_t)n_ids)
            return err_usage(e,
                             "%s: item %zu is '%.*s'; expected token ids from 0 to %d (the "
                             "vocabulary has %d), separated by commas or spaces",
                             option, *n + 1, (int)MIN(end - text, 40), text, n_ids - 1, n_ids);
        (*ids)[(*n)++] = (int32_t)id;
        text = end + strspn(end, ID_SPACE);
        after_comma = *text == ',';
        text += after_comma;
    }
}
