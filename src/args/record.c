#include "args/record.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/figures.h"
#include "base/mem.h"

static bool is_recorded(const struct option_row *row)
{
    return row->group[0] && !str_is(row->group, "Output") && !str_is(row->group, "Run");
}

/* The text of an option's value, in `number` where it is one; "" of a flag that is given; NULL if
 * the option has none: what is out of its range was not given. */
static const char *value_text(const struct option *o, const void *value, char number[40])
{
    const struct option_u64 *wide = value;
    const double real = o->kind == OPTION_DOUBLE ? *(const double *)value : 0;
    const int integer = o->kind == OPTION_INT || o->kind == OPTION_CHOICE ? *(const int *)value : 0;
    const int choice = integer - (o->fallback ? 0 : 1);
    switch (o->kind) {
    case OPTION_FLAG:
        return *(const bool *)value ? "" : NULL;
    case OPTION_U64:
        snprintf(number, 40, "%" PRIu64, wide->value);
        return wide->given ? number : NULL;
    case OPTION_INT:
        snprintf(number, 40, "%d", integer);
        return integer >= o->min ? number : NULL;
    case OPTION_DOUBLE:
        snprintf(number, 40, "%s", figure_exact(real).text);
        return real > o->min || (real == o->min && !o->above_min) ? number : NULL;
    case OPTION_STRING:
        return *(const char *const *)value;
    case OPTION_CHOICE:
        return choice >= 0 ? o->choices[choice] : NULL;
    case OPTION_STRINGS:
    case OPTION_END:
        break;
    }
    return NULL;
}

enum status record_make(const struct option_spec *spec, const void *values, struct bytes *out,
                        struct err *e)
{
    struct option_rows rows;
    bool fits = true;
    *out = (struct bytes){0};
    options_list(spec, &rows);
    for (int i = 0; i < rows.n_options; i++) {
        char number[40];
        const struct option_row *row = &rows.items[i];
        const char *value = value_text(row->option, (const char *)values + row->offset, number);
        if (!value || !is_recorded(row))
            continue;
        const struct text parts[] = {text_of("--"), text_of(row->option->name),
                                     text_of(value[0] ? "=" : ""), text_of(value),
                                     text_span("", 1)};
        for (int k = 0; k < LENGTH(parts); k++)
            fits = fits && bytes_put(out, parts[k]);
    }
    while (fits && out->len % 8 != 0)
        fits = bytes_put(out, text_span("", 1));
    return fits ? STATUS_OK : err_no_memory(e, "the options", out->len);
}

enum status record_resume(const struct option_spec *spec, const struct bytes *record, char **argv,
                          void *values, struct err *e)
{
    char **words;
    bool help;
    size_t n = 0, n_more = 0;
    while (argv[n_more])
        n_more++;
    TRY_ZEROED(words, record->len + n_more + 1, "the options", e);
    for (size_t at = 0; at < record->len; at += strlen(record->data + at) + 1)
        if (record->data[at])
            words[n++] = record->data + at;
    memcpy(words + n, argv, n_more * sizeof *argv);
    const enum status s = options_parse(spec, words, values, &help, e);
    free(words);
    return s;
}

enum status record_parse(const struct option_spec *spec, const struct bytes *record, void *values,
                         struct err *e)
{
    char *none[] = {NULL};
    struct bytes again = {0};
    enum status s = record_resume(spec, record, none, values, e);
    if (s == STATUS_OK)
        s = record_make(spec, values, &again, e);
    if (s == STATUS_USAGE ||
        (s == STATUS_OK && !text_equal(bytes_text(&again), bytes_text(record))))
        s = err_bad_file(e, "damaged: its options are none of this program");
    bytes_free(&again);
    return s;
}

enum status record_compare(const struct option_spec *spec, const void *before, const void *now,
                           struct err *e)
{
    struct option_rows rows;
    options_list(spec, &rows);
    for (int i = 0; i < rows.n_options; i++) {
        const struct option_row *row = &rows.items[i];
        char numbers[2][40];
        const char *name = row->option->name;
        const char *was = value_text(row->option, (const char *)before + row->offset, numbers[0]);
        const char *is = value_text(row->option, (const char *)now + row->offset, numbers[1]);
        if (is_recorded(row) && is && !(was && str_is(was, is)))
            return err_usage(
                e, "--%s%s%.60s: the run to resume was begun %s --%s%s%.60s; leave the option out",
                name, is[0] ? " " : "", is, was ? "with" : "without", name,
                was && was[0] ? " " : "", was ? was : "");
    }
    return STATUS_OK;
}
