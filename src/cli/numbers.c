#include "cli/numbers.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

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

/* Of counts, then of bytes, too. */
static const struct unit {
    const char *name;
    uint64_t times;
} units[] = {{"", 1},           {"k", 1000},        {"M", 1000000},   {"B", 1},
             {"kB", 1000},      {"KiB", 1u << 10},  {"MB", 1000000},  {"MiB", 1u << 20},
             {"G", 1000000000}, {"GB", 1000000000}, {"GiB", 1u << 30}};
#define N_COUNT_UNITS 3
#define N_UNITS       LENGTH(units)

/* Digits, and behind them one of the first of these units. */
static bool read_units(const char *text, size_t n_units, uint64_t *out)
{
    const char *end = text + strspn(text, DIGITS);
    uint64_t value;
    for (size_t i = 0; read_digits(text, end, &value) && i < n_units; i++)
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

bool parse_heads(const char *text, int n_heads, int *out)
{
    if (strcasecmp(text, "mqa") == 0)
        *out = 1;
    else if (strcasecmp(text, "mha") == 0)
        *out = n_heads;
    else
        return parse_int(strncasecmp(text, "gqa-", 4) == 0 ? text + 4 : text, 1, INT_MAX, out);
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

enum status parse_score_scale(const char *text, float *scale, struct err *e)
{
    double x = 1;
    if (!str_is(text, "none") &&
        (!parse_double(text, &x) || !((float)x > 0) || x >= CONFIG_MOST_SCORE_SCALE))
        return err_usage(
            e, "--score-scale: expected a number above 0 and below %g, or none, found '%.60s'",
            CONFIG_MOST_SCORE_SCALE, text);
    *scale = x;
    return STATUS_OK;
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

/* What the items of a list are: one of these names, of which it has the indices; or numbers of K/V
 * heads, of a model that has n_heads; or, where both are zero, integers from min to max. */
struct item_kind {
    const char *const *names;
    int n_heads;
    int min, max;
};

static enum status list_items(const char *option, const char *text, const struct item_kind *kind,
                              struct int_list *list, struct err *e)
{
    char expected[200] = "numbers of K/V heads, or MHA, GQA-G, MQA";
    if (kind->names)
        chars_printf(expected, "some of %s", names_joined(kind->names, ", ").text);
    else if (kind->n_heads == 0)
        chars_printf(expected, "integers from %d to %d, separated by commas", kind->min, kind->max);
    for (char item[32]; list_item(&text, item, sizeof item);) {
        int value;
        const bool found = kind->names         ? (value = names_find(kind->names, item)) >= 0
                           : kind->n_heads > 0 ? parse_heads(item, kind->n_heads, &value)
                                               : parse_int(item, kind->min, kind->max, &value);
        if (!found)
            return err_usage(e, "%s: expected %s, found '%s'", option, expected, item);
        TRY(list_add(option, value, list, e));
    }
    return STATUS_OK;
}

enum status list_heads(const char *option, const char *text, int n_heads, struct int_list *list,
                       struct err *e)
{
    return list_items(option, text, &(struct item_kind){.n_heads = n_heads}, list, e);
}

enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e)
{
    return list_items(option, text, &(struct item_kind){.min = min, .max = max}, list, e);
}

enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e)
{
    return list_items(option, text, &(struct item_kind){.names = names}, list, e);
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

/* --- heads ----------------------------------------------------------------------------------- */

enum status choice_of(const char *option, const char *text, int n_all, struct choice *out,
                      struct err *e)
{
    const bool all = !text || str_is(text, "all");
    /* 1 for what is named; then their numbers. */
    int *items;
    *out = (struct choice){NULL, 0};
    TRY_ZEROED(items, n_all, "the list of heads", e);
    out->items = items;
    for (char item[32]; !all && list_item(&text, item, sizeof item);) {
        int value;
        if (!parse_int(item, 0, n_all - 1, &value) || items[value])
            return err_usage(e,
                             "%s: expected all or %ss from 0 to %d, separated by commas, each once "
                             "(the model has %d), found '%.40s'",
                             option, option + 2, n_all - 1, n_all, item);
        items[value] = 1;
    }
    for (int i = 0; i < n_all; i++)
        if (all || items[i])
            items[out->n++] = i;
    return STATUS_OK;
}

void choice_free(struct choice *c)
{
    free(c->items);
    *c = (struct choice){NULL, 0};
}

enum status head_of_option(const char *option, const char *text, const struct config *c, int *layer,
                           int *head, struct err *e)
{
    char item[32];
    const char *rest = text;
    if (list_next(&rest, ".", item, sizeof item) == '.' &&
        parse_int(item, 0, c->n_layers - 1, layer) &&
        parse_int(rest, 0, config_heads(c, *layer) - 1, head))
        return STATUS_OK;
    return err_usage(
        e, "%s: expected L.H, a layer from 0 to %d and a head from 0 to %d, found '%.40s'", option,
        c->n_layers - 1, c->n_heads - 1, text);
}

enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e)
{
    TRY_ZEROED(*heads, (size_t)c->n_layers * c->n_heads, "the list of heads", e);
    for (char item[32]; list_item(&text, item, sizeof item);) {
        int layer, head;
        TRY(head_of_option(option, item, c, &layer, &head, e));
        unsigned char *mark = *heads + (size_t)layer * c->n_heads + head;
        if (*mark)
            return err_usage(e, "%s: head %s is given twice", option, item);
        *mark = 1;
    }
    return STATUS_OK;
}
