#include "cli/train_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
        snprintf(number, 40, "%.15g", real);
        if (strtod(number, NULL) != real) /* in as few digits as tell it apart */
            snprintf(number, 40, "%.17g", real);
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

/* Appends the word of an option, ended by a zero byte; nothing if it has no value. */
static enum status put_word(struct bytes *out, const struct option_row *row, const void *values,
                            struct err *e)
{
    char number[40];
    const struct option *o = row->option;
    const char *value = value_text(o, (const char *)values + row->offset, number);
    if (!value || (bytes_put(out, text_of("--")) && bytes_put(out, text_of(o->name)) &&
                   bytes_put(out, text_of(value[0] ? "=" : "")) && bytes_put(out, text_of(value)) &&
                   bytes_put(out, text_span("", 1))))
        return STATUS_OK;
    return err_no_memory(e, "the options", out->len);
}

enum status record_make(const struct option_spec *spec, const void *values, struct bytes *out,
                        struct err *e)
{
    struct option_rows rows;
    *out = (struct bytes){0};
    options_list(spec, &rows);
    for (int i = 0; i < rows.n_options; i++)
        if (is_recorded(&rows.items[i]))
            TRY(put_word(out, &rows.items[i], values, e));
    while (out->len % 8 != 0)
        if (!bytes_put(out, text_span("", 1)))
            return err_no_memory(e, "the options", out->len);
    return STATUS_OK;
}

/* The words of a record, then those of argv, as an argv that the caller frees. */
static enum status join_words(const struct bytes *record, char **argv, char ***out, struct err *e)
{
    size_t n = 0, n_more = 0;
    while (argv[n_more])
        n_more++;
    TRY_ZEROED(*out, record->len + n_more + 1, "the options", e);
    for (size_t at = 0; at < record->len; at += strlen(record->data + at) + 1)
        if (record->data[at])
            (*out)[n++] = record->data + at;
    memcpy(*out + n, argv, n_more * sizeof *argv);
    return STATUS_OK;
}

static enum status parse_words(const struct option_spec *spec, const struct bytes *record,
                               char **argv, void *values, struct err *e)
{
    char **words;
    bool help;
    TRY(join_words(record, argv, &words, e));
    const enum status s = options_parse(spec, words, values, &help, e);
    free(words);
    return s;
}

/* Refuses the first option that has another value than the record has for it. */
static enum status compare(const struct option_spec *spec, const void *recorded, const void *values,
                           const char *grows, struct err *e)
{
    struct option_rows rows;
    options_list(spec, &rows);
    for (int i = 0; i < rows.n_options; i++) {
        const struct option_row *row = &rows.items[i];
        const struct option *o = row->option;
        const void *before = (const char *)recorded + row->offset;
        const void *now = (const char *)values + row->offset;
        char numbers[2][40];
        const char *was = value_text(o, before, numbers[0]), *is = value_text(o, now, numbers[1]);
        if (!is_recorded(row) || !is || (was && str_is(was, is)) ||
            (str_is(o->name, grows) && *(const int *)now > *(const int *)before))
            continue;
        return err_usage(
            e, "--%s%s%.60s: the run to resume was begun %s --%s%s%.60s; leave the option out",
            o->name, is[0] ? " " : "", is, was ? "with" : "without", o->name,
            was && was[0] ? " " : "", was ? was : "");
    }
    return STATUS_OK;
}

/* Parses the record alone. It is one if the values that it has make the same again: no word of it
 * is another option's, a text or a second value. */
static enum status parse_record(const struct option_spec *spec, const struct bytes *record,
                                void *values, struct err *e)
{
    char *none[] = {NULL};
    struct bytes again = {0};
    enum status s = parse_words(spec, record, none, values, e);
    if (s == STATUS_OK)
        s = record_make(spec, values, &again, e);
    if (s == STATUS_USAGE ||
        (s == STATUS_OK && !text_equal(bytes_text(&again), bytes_text(record))))
        s = err_bad_file(e, "damaged: its options are none of this program");
    bytes_free(&again);
    return s;
}

enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         const char *grows, void *values, size_t size, struct err *e)
{
    void *recorded = array_zeroed(1, size, "the options", e);
    if (!recorded)
        return STATUS_NO_MEMORY;
    enum status s = parse_record(spec, record, recorded, e);
    if (s == STATUS_OK)
        s = parse_words(spec, record, argv, values, e);
    if (s == STATUS_OK)
        s = compare(spec, recorded, values, grows, e);
    options_free(spec, recorded);
    free(recorded);
    return s;
}
