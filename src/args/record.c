#include "args/record.h"

#include "base/mem.h"
#include "base/numbers.h"

/* The value of an option that a record keeps; NULL: it keeps none. */
static const char *recorded(const struct option_row *row)
{
    return row->option->unrecorded ? NULL : row->given;
}

enum status record_make(const struct option_rows *rows, struct bytes *out, struct err *e)
{
    const struct text end = text_span("", 1);
    bool fits = true;
    for (int i = 0; i < rows->n_options; i++) {
        const char *value = recorded(&rows->items[i]);
        if (value)
            fits &= bytes_put(out, text_of("--")) &&
                    bytes_put(out, text_of(rows->items[i].option->name)) &&
                    bytes_put(out, text_of(value[0] ? "=" : "")) &&
                    bytes_put(out, text_of(value)) && bytes_put(out, end);
    }
    while (fits && out->len % 8 != 0)
        fits = bytes_put(out, end);
    return fits ? STATUS_OK : err_no_memory(e, "the options", out->len);
}

enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         void *values, struct option_rows *rows, struct err *e)
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
    const enum status s = options_parse(spec, words, values, rows, &help, e);
    free(words);
    return s;
}

/* Whether an option has the same value in both. */
static bool same_value(const struct option *o, const void *a, const void *b)
{
    static const size_t sizes[] = {[OPTION_FLAG] = sizeof(bool),
                                   [OPTION_U64] = sizeof(uint64_t), /* the number comes first */
                                   [OPTION_INT] = sizeof(int),
                                   [OPTION_DOUBLE] = sizeof(double),
                                   [OPTION_CHOICE] = sizeof(int)};
    if (o->kind != OPTION_STRING)
        return memcmp(a, b, sizes[o->kind]) == 0;
    const char *was = *(const char *const *)a, *is = *(const char *const *)b;
    return was && is ? str_is(was, is) : was == is;
}

enum status record_compare(const struct option_rows *before, const struct option_rows *now,
                           const char *const *but, struct err *e)
{
    for (int i = 0; i < now->n_options; i++) {
        const struct option_row *row = &now->items[i];
        const char *name = row->option->name;
        const char *was = recorded(&before->items[i]), *is = recorded(row);
        if (is && names_find(but, name) < 0 &&
            !same_value(row->option, (const char *)before->values + row->offset,
                        (const char *)now->values + row->offset))
            return err_usage(
                e, "--%s%s%.60s: the run to resume was begun %s --%s%s%.60s; leave the option out",
                name, is[0] ? " " : "", is, was ? "with" : "without", name,
                was && was[0] ? " " : "", was ? was : "");
    }
    return STATUS_OK;
}
