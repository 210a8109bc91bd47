#include "args/options.h"

#include <ctype.h>
#include <inttypes.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "show/paragraph.h"

/* --- which known word was probably meant ----------------------------------------------------- */

#define LONGEST 63

int edit_distance(const char *a, const char *b)
{
    const size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len > LONGEST || b_len > LONGEST)
        return LONGEST + 1;
    int d[LONGEST + 1][LONGEST + 1]; /* between the first i and the first j letters */
    for (size_t i = 0; i <= a_len; i++)
        for (size_t j = 0; j <= b_len; j++) {
            d[i][j] = i + j;
            if (i == 0 || j == 0)
                continue;
            const int replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = MIN(d[i - 1][j], d[i][j - 1]) + 1;
            d[i][j] = MIN(d[i][j], replaced);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = MIN(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[a_len][b_len];
}

void nearest_offer(struct nearest *n, const char *candidate)
{
    const size_t word_len = strlen(n->word), len = strlen(candidate);
    const int allowed = (int)(MAX(word_len, len) + 2) / 3;
    int distance = edit_distance(n->word, candidate);
    if (word_len >= 2 && strncmp(n->word, candidate, word_len) == 0)
        distance = MIN(distance, 1); /* cut short rather than mistyped */
    if (distance <= LONGEST && distance <= allowed && (!n->best || distance < n->distance)) {
        n->best = candidate;
        n->distance = distance;
    }
}

const char *const option_synonyms[][2] = {
    {"temperature", "temp"},
    {"repetition-penalty", "repeat-penalty"},
    {"n-predict", "n"},
    {"max-new-tokens", "n"},
    {"max-tokens", "n"},
    {"ctx-size", "ctx"},
    {"ctx-size", "depth"}, /* where the context is the model's */
    {"text", "prompt"},
    {"f", "text"}, /* other commands' */
    {"file", "text"},
    {"batch-size", "batch"},
    {"learning-rate", "lr"},
    {"out", "output"},
    {"plot", "svg"},
    {"s", "seed"}, /* of llama.cpp and llama2.c */
    {NULL, NULL},
};

/* --- rows ------------------------------------------------------------------------------------ */

void options_list(const struct option_spec *spec, struct option_rows *rows)
{
    rows->n = 0;
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            assert((size_t)rows->n < LENGTH(rows->items));
            rows->items[rows->n++] = (struct option_row){o, g->title, g->base + o->offset, NULL};
        }
    rows->n_options = rows->n;
    for (const struct option *o = spec->positionals; o->kind != OPTION_END; o++)
        rows->items[rows->n++] = (struct option_row){o, NULL, o->offset, NULL};
}

/* The row of the option that these `len` bytes name, or NULL. */
static struct option_row *find_named(struct option_rows *rows, const char *name, size_t len)
{
    for (int i = 0; i < rows->n_options; i++) {
        struct option_row *row = &rows->items[i];
        if (text_is(text_span(name, len), row->option->name))
            return row;
    }
    return NULL;
}

struct option_row *options_find(struct option_rows *rows, const char *name)
{
    return find_named(rows, name, strlen(name));
}

struct description {
    char text[512];
};

/* Describes what is expected of a value: "0 or more", "1 to 9", "one of table, json"; "" for any
 * text. A message also says the kind of number, and the limits that are too large for the help. */
static struct description range_of(const struct option *o, bool message)
{
    struct description d = {""};
    const char *kind = !message ? "" : o->kind == OPTION_DOUBLE ? "a number, " : "an integer, ";
    if (o->kind == OPTION_U64 && message) {
        chars_printf(d.text, "%s0 to %" PRIu64, kind, UINT64_MAX);
    } else if (o->choices) {
        chars_printf(d.text, "one of %s", names_joined(o->choices, ", ").text);
    } else if (o->kind == OPTION_INT || o->kind == OPTION_DOUBLE) {
        chars_printf(d.text, "%s%s%.9g", kind, o->above_min ? "above " : "", o->min);
        if (o->max < (o->kind == OPTION_INT && !message ? INT_MAX : HUGE_VAL))
            chars_append(d.text, " to %.10g", o->max);
        else if (!o->above_min)
            chars_append(d.text, " or more");
    }
    return d;
}

/* --- parsing --------------------------------------------------------------------------------- */

/* `as` is the option as it was spelt. */
static enum status store_value(const struct option_row *row, void *values, const char *as,
                               const char *text, struct err *e)
{
    static const char *const other_pictures[] = {".png", ".jpg", ".gif", ".pdf", ".html", NULL};
    const struct option *o = row->option;
    void *value = (char *)values + row->offset;
    bool ok = true;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)value = true;
        break;
    case OPTION_U64: {
        struct option_u64 *u = value;
        ok = u->given = parse_u64(text, &u->value);
        break;
    }
    case OPTION_INT:
        ok = parse_int(text, o->min, o->max, value);
        break;
    case OPTION_DOUBLE: {
        double *x = value;
        ok = parse_double(text, x) && *x >= o->min && *x <= o->max &&
             !(o->above_min && *x <= o->min);
        break;
    }
    case OPTION_STRING: {
        const char *dot = strrchr(text, '.');
        *(const char **)value = text;
        if (dot && o->writes == WRITES_SVG && names_find(other_pictures, dot) >= 0)
            return err_usage(
                e,
                "%s: expected a name that ends in .svg, the only form of pictures, found '%.60s'",
                as, text);
        break;
    }
    case OPTION_STRINGS: {
        struct option_strings *list = value;
        const size_t bytes = ((size_t)list->n + 1) * sizeof *list->items;
        const char **items = realloc(list->items, bytes);
        if (!items)
            return err_no_memory(e, "the list of option values", bytes);
        items[list->n++] = text;
        list->items = items;
        break;
    }
    case OPTION_CHOICE:
        *(int *)value = names_find(o->choices, text);
        ok = *(int *)value >= 0;
        break;
    case OPTION_END:
        break;
    }
    return ok ? STATUS_OK
              : err_usage(e, "%s: expected %s, found '%.60s'", as, range_of(o, true).text, text);
}

/* Refuses an option that the command does not have, and says which one was probably meant. */
static enum status refuse_option(struct option_rows *rows, const char *as, struct err *e)
{
    char name[64]; /* without the dashes in front, and with '-' for '_' */
    struct nearest near = {.word = name};
    chars_printf(name, "%s", as + strspn(as, "-"));
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    if (name[0])
        for (int i = 0; i < rows->n_options; i++)
            nearest_offer(&near, rows->items[i].option->name);
    bool known = false;
    for (int i = 0; option_synonyms[i][0] && !known; i++) {
        const char *ours = option_synonyms[i][1];
        known = str_is(option_synonyms[i][0], name) && options_find(rows, ours);
        near.best = known ? ours : near.best;
    }
    return near.best ? err_usage(e, "unknown option '%s'; did you mean '--%s'?", as, near.best)
                     : err_usage(e, "unknown option '%s'", as);
}

/* Takes the option at *at and its value, and leaves *at at the last argument that it used. */
static enum status take_option(struct option_rows *rows, char ***at, void *values, struct err *e)
{
    const char *word = **at;
    const size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    char as[64];
    struct option_row *row = len > 2 && word[1] == '-' ? find_named(rows, word + 2, len - 2) : NULL;
    chars_printf(as, "%.*s", (int)len, word);
    for (int i = 0; i < rows->n_options && word[1] != '-'; i++) {
        const struct option *o = rows->items[i].option;
        const bool joined = len == strlen(word) && isdigit((unsigned char)word[2]); /* -t1 */
        if (o->letter && o->letter == word[1] && (len == 2 || (joined && o->kind != OPTION_FLAG))) {
            row = &rows->items[i];
            value = joined ? word + 2 : value;
            as[joined ? 2 : strlen(as)] = 0;
        }
    }
    if (!row)
        return refuse_option(rows, as, e);
    const bool is_flag = row->option->kind == OPTION_FLAG;
    if (is_flag && value)
        return err_usage(e, "%s takes no value, found '%.60s'", as, value);
    if (!is_flag && !value && !(value = *++*at)) {
        const struct description expected = range_of(row->option, false);
        return err_usage(e, "%s needs a value%s%s", as, expected.text[0] ? ": " : "",
                         expected.text);
    }
    row->given = is_flag ? "" : value;
    return store_value(row, values, as, value, e);
}

/* Returns the first option that is given among `names`, which "|" separates, or NULL. */
static const char *given_of(struct option_rows *rows, const char *names)
{
    for (size_t len; names && *names; names += len + strspn(names + len, "|")) {
        len = strcspn(names, "|");
        const struct option_row *row = find_named(rows, names, len);
        if (row && row->given)
            return row->option->name;
    }
    return NULL;
}

/* "--depth, --batch or --shape" of "depth|batch|shape". */
static struct description list_options(const char *names)
{
    struct description d = {""};
    for (size_t len; *names; names += len + strspn(names + len, "|")) {
        len = strcspn(names, "|");
        const char *before = !d.text[0] ? "" : names[len] ? ", " : " or ";
        chars_append(d.text, "%s--%.*s", before, (int)len, names);
    }
    return d;
}

/* Returns the hint for an argument that may be a text. (In some programs -i is followed by one.) */
static const char *place_of_text(struct option_rows *rows)
{
    if (given_of(rows, "interactive"))
        return "; -i opens a session and takes no text: expected one with -p";
    return options_find(rows, "prompt") ? "; expected a text with -p, or its file with -f" : "";
}

enum status options_parse(const struct option_spec *spec, char **argv, void *values,
                          struct option_rows *rows, bool *help, struct err *e)
{
    bool options_ended = false;
    *help = false;
    options_list(spec, rows);
    for (int i = 0; i < rows->n_options; i++) {
        struct option_row *row = &rows->items[i];
        const struct option *o = row->option;
        if (o->kind == OPTION_CHOICE)
            *(int *)((char *)values + row->offset) = CHOICE_NONE;
        if (o->fallback)
            TRY(store_value(row, values, o->name, o->fallback, e));
    }
    struct option_row *positional = rows->items + rows->n_options;
    for (; *argv; argv++) {
        const char *word = *argv;
        if (options_ended || word[0] != '-' || word[1] == 0) {
            if (positional == rows->items + rows->n)
                return err_usage(e, "unexpected argument '%.60s'%s", word, place_of_text(rows));
            TRY(store_value(positional, values, word, word, e));
            positional->given = word;
            positional += positional->option->kind == OPTION_STRING;
        } else if (str_is(word, "--")) {
            options_ended = true;
        } else if (str_is(word, "--help") || str_is(word, "-h")) {
            *help = true;
            return STATUS_OK;
        } else {
            TRY(take_option(rows, &argv, values, e));
        }
    }
    /* An option that has no effect is refused, because it was meant to have one. */
    for (int i = 0; i < rows->n_options; i++) {
        const struct option_row *row = &rows->items[i];
        const struct option *o = row->option;
        const char *other = given_of(rows, o->excludes);
        if (row->given && o->needs && !given_of(rows, o->needs))
            return err_usage(e, "--%s is for %s, %s given", o->name, list_options(o->needs).text,
                             strchr(o->needs, '|') ? "none of which is" : "which is not");
        if (row->given && other)
            return err_usage(e, "--%s and --%s are both given; expected one of them", o->name,
                             other);
    }
    return STATUS_OK;
}

void options_free(const struct option_spec *spec, void *values)
{
    struct option_rows rows;
    options_list(spec, &rows);
    for (int i = 0; i < rows.n; i++) {
        const struct option_row *row = &rows.items[i];
        if (row->option->kind == OPTION_STRINGS) {
            struct option_strings *list = (void *)((char *)values + row->offset);
            free(list->items);
            *list = (struct option_strings){NULL, 0};
        }
    }
}

/* --- help ------------------------------------------------------------------------------------ */

#define LINE_WIDTH 96

void options_help(const struct option_spec *spec, bool all, struct output *out)
{
    const int columns = out->columns;
    struct option_rows rows;
    struct {
        char text[80]; /* "-n, --name VALUE" */
    } usage[LENGTH(rows.items)];
    int n = 0, width = 0;
    options_list(spec, &rows);
    struct option_rows shown = rows;
    /* The options for every day become one group, in their order, and count as given. */
    const char *name = all || !spec->everyday ? "" : spec->everyday;
    shown.n_options = *name ? 0 : rows.n_options;
    for (size_t len; *name; name += len + strspn(name + len, " ")) {
        len = strcspn(name, " ");
        struct option_row *row = find_named(&rows, name, len);
        assert(row);
        row->given = "";
        shown.items[shown.n_options++] =
            (struct option_row){.option = row->option, .group = "Options"};
    }
    for (; n < shown.n_options && shown.items[n].group[0]; n++) {
        const struct option *o = shown.items[n].option;
        const char letter[] = {'-', o->letter, ',', ' ', 0};
        const int len = chars_printf(usage[n].text, "%s--%s%s%s", o->letter ? letter : "    ",
                                     o->name, o->value ? " " : "", o->value ? o->value : "");
        width = MAX(len, width);
    }
    if (columns == 0 || columns > LINE_WIDTH)
        out->columns = LINE_WIDTH;
    /* The descriptions stand beside the options where half a line is left for them. */
    const int beside = width + 4;
    struct paragraph p = paragraph_begin(out, beside <= out->columns / 2 ? beside : 10);
    for (int i = 0; i < n; i++) {
        const struct option_row *row = &shown.items[i];
        const struct option *o = row->option;
        const char *standard = o->fallback ? o->fallback : o->otherwise;
        const struct description expected = range_of(o, false);
        const char *range = o->kind == OPTION_STRINGS ? "may be repeated" : expected.text;
        if (i == 0 || row->group != row[-1].group)
            paragraph_printf(&p, "%s%s:\n", i == 0 ? "" : "\n", row->group);
        paragraph_printf(&p, "  %-*s  %s", width, usage[i].text, o->help);
        if (standard || *range)
            paragraph_printf(&p, " (%s%s%s%.160s)", standard ? "default " : "",
                             standard ? standard : "", standard && *range ? "; " : "", range);
        paragraph_puts(&p, "\n");
    }
    paragraph_end(&p);
    p = paragraph_begin(out, 2);
    const char *before = "\nMore:\n  ";
    for (int i = 0; i < rows.n_options && shown.n_options < rows.n_options; i++)
        if (!rows.items[i].given && rows.items[i].group[0]) {
            paragraph_printf(&p, "%s--%s", before, rows.items[i].option->name);
            before = ", ";
        }
    paragraph_end(&p);
    out->columns = columns;
}
