#include "cli/options.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/numbers.h"
#include "show/paragraph.h"

/* --- which known word was probably meant ----------------------------------------------------- */

#define LONGEST 63

static int shorter(int a, int b)
{
    return a < b ? a : b;
}

int edit_distance(const char *a, const char *b)
{
    const size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len > LONGEST || b_len > LONGEST)
        return LONGEST + 1;
    /* Rows i - 2, i - 1 and i of the distance between prefixes, used in turn. */
    int rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *now = rows[i % 3];
        const int *above = rows[(i - 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            now[j] = shorter(above[j], now[j - 1]) + 1;
            now[j] = shorter(now[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = shorter(now[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

void nearest_offer(struct nearest *n, const char *candidate)
{
    const size_t word_len = strlen(n->word);
    const size_t longer = word_len > strlen(candidate) ? word_len : strlen(candidate);
    const int allowed = longer < 3 ? 1 : (int)(longer + 2) / 3;
    int distance = edit_distance(n->word, candidate);
    if (word_len >= 2 && strncmp(n->word, candidate, word_len) == 0)
        distance = shorter(distance, 1); /* cut short rather than mistyped */
    /* Of words too long to be compared no distance is known. */
    if (distance <= LONGEST && distance <= allowed && (!n->best || distance < n->distance)) {
        n->best = candidate;
        n->distance = distance;
    }
}

#define CPU_ONLY "decode computes on the CPU alone; -t N are its threads"

static const struct foreign foreigners[] = {
    {.name = "temperature", .ours = "temp"},
    {.name = "do-sample", .why = "text is sampled unless --greedy is given"},
    {.name = "repetition-penalty", .ours = "repeat-penalty"},
    {.name = "n-predict", .ours = "n"},
    {.name = "max-new-tokens", .ours = "n"},
    {.name = "max-tokens", .ours = "n"},
    {.name = "ctx-size", .ours = "ctx"},
    {.name = "ctx-size", .ours = "depth"}, /* where the context is the model's */
    /* the text */
    {.name = "text", .ours = "prompt"},
    {.name = "f", .ours = "text"}, /* other commands' */
    {.name = "file", .ours = "text"},
    {.name = "batch-size", .ours = "batch"},
    {.name = "n-gpu-layers", .why = CPU_ONLY},
    {.name = "ngl", .why = CPU_ONLY},
    {.name = "flash-attn", .why = "attention keeps no matrix of scores in any case"},
    {.name = "learning-rate", .ours = "lr"},
    {.name = "out", .ours = "output"},
};

const struct foreign *foreign_at(int index)
{
    return (size_t)index < sizeof foreigners / sizeof *foreigners ? &foreigners[index] : NULL;
}

/* --- parsing --------------------------------------------------------------------------------- */

#define MAX_ROWS 128 /* of a command */

/* The rows of all groups, each with its value's address and whether the command line has it. */
struct rows {
    struct row {
        const struct option *option;
        void *value;
        bool given;
    } items[MAX_ROWS];
    int n;
};

/* An option as it was spelt, without "=value". */
struct spelling {
    const char *text;
    int width;
};

static void collect_rows(const struct option_spec *spec, void *values, struct rows *rows)
{
    rows->n = 0;
    for (const struct option_group *g = spec->groups; g->title; g++) {
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            assert(rows->n < MAX_ROWS);
            rows->items[rows->n++] =
                (struct row){.option = o, .value = (char *)values + g->base + o->offset};
        }
    }
}

/* The help leaves out the limits that nobody meets, the messages do not. */
static struct expected range_of(const struct option *o, bool full)
{
    struct expected x = {""};
    const double limit = o->kind == OPTION_INT && !full ? (double)INT_MAX : HUGE_VAL;
    if (o->kind == OPTION_U64) {
        snprintf(x.text, sizeof x.text, "0 to %llu", (unsigned long long)UINT64_MAX);
    } else if (o->kind == OPTION_CHOICE) {
        snprintf(x.text, sizeof x.text, "one of %s", names_joined(o->choices, ", ").text);
    } else if (o->kind == OPTION_INT || o->kind == OPTION_DOUBLE) {
        if (o->max < limit)
            snprintf(x.text, sizeof x.text, "%s%.10g to %.10g", o->above_min ? "above " : "",
                     o->min, o->max);
        else if (o->above_min)
            snprintf(x.text, sizeof x.text, "above %.9g", o->min);
        else
            snprintf(x.text, sizeof x.text, "%.9g or more", o->min);
    }
    return x;
}

struct expected option_expected(const struct option *o)
{
    return range_of(o, false);
}

/* Whether the text ends in a dot and one of the names. */
static bool has_suffix(const char *text, const char *const *names)
{
    const char *dot = strrchr(text, '.');
    for (; dot && *names; names++)
        if (strcasecmp(dot + 1, *names) == 0)
            return true;
    return false;
}

static enum status store_value(const struct row *row, struct spelling as, const char *text,
                               struct err *e)
{
    static const char *const svg[] = {"svg", NULL};
    static const char *const others[] = {"png",  "jpg", "jpeg", "gif", "webp", "bmp", "tif",
                                         "tiff", "pdf", "eps",  "ps",  "html", "htm", NULL};
    const struct option *o = row->option;
    bool ok = true;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)row->value = true;
        break;
    case OPTION_U64: {
        struct option_u64 *u = row->value;
        ok = u->given = parse_u64(text, &u->value);
        break;
    }
    case OPTION_INT:
        ok = parse_int(text, (int)o->min, (int)o->max, row->value);
        break;
    case OPTION_DOUBLE: {
        double x;
        ok = parse_double(text, &x) && x >= o->min && x <= o->max && !(o->above_min && x <= o->min);
        if (ok)
            *(double *)row->value = x;
        break;
    }
    case OPTION_STRING:
        *(const char **)row->value = text;
        /* What is an SVG picture, as the help says, is no other. */
        if (o->value && has_suffix(o->value, svg) && has_suffix(text, others))
            return err_set(e, STATUS_USAGE,
                           "%.*s: expected a name that ends in .svg, the only form of pictures, "
                           "found '%.60s'",
                           as.width, as.text, text);
        break;
    case OPTION_STRINGS: {
        struct option_strings *list = row->value;
        const size_t bytes = ((size_t)list->n + 1) * sizeof *list->items;
        const char **items = realloc(list->items, bytes);
        if (!items)
            return err_no_memory(e, "the list of option values", bytes);
        items[list->n++] = text;
        list->items = items;
        break;
    }
    case OPTION_CHOICE: {
        const int index = names_find(o->choices, text);
        ok = index >= 0;
        *(int *)row->value = index + (o->fallback ? 0 : 1);
        break;
    }
    case OPTION_END:
        break;
    }
    if (ok)
        return STATUS_OK;
    const char *what = o->kind == OPTION_CHOICE   ? ""
                       : o->kind == OPTION_DOUBLE ? "a number, "
                                                  : "an integer, ";
    return err_set(e, STATUS_USAGE, "%.*s: expected %s%s, found '%.60s'", as.width, as.text, what,
                   range_of(o, true).text, text);
}

static bool is_spelling_of(const struct option *o, struct spelling as)
{
    const size_t len = (size_t)as.width;
    if (len == 2)
        return o->letter && as.text[1] == o->letter;
    return len > 2 && as.text[1] == '-' && strlen(o->name) == len - 2 &&
           memcmp(o->name, as.text + 2, len - 2) == 0;
}

/* The row of the option whose name `words` begins with, up to a space. */
static struct row *find_named(struct rows *rows, const char *words)
{
    const size_t len = strcspn(words, " ");
    for (int i = 0; i < rows->n; i++) {
        const char *name = rows->items[i].option->name;
        if (strlen(name) == len && strncmp(name, words, len) == 0)
            return &rows->items[i];
    }
    return NULL;
}

static enum status unknown_option(struct rows *rows, struct spelling as, struct err *e)
{
    char word[64];
    const int dashes = (int)strspn(as.text, "-");
    snprintf(word, sizeof word, "%.*s", as.width - dashes, as.text + dashes);
    for (char *c = word; *c; c++)
        *c = *c == '_' ? '-' : *c;
    const struct foreign *f;
    for (int i = 0; (f = foreign_at(i)); i++) {
        if (strcmp(f->name, word) == 0 && !f->ours)
            return err_set(e, STATUS_USAGE, "unknown option '%.*s': %s", as.width, as.text, f->why);
        if (strcmp(f->name, word) == 0 && find_named(rows, f->ours))
            return err_set(e, STATUS_USAGE, "unknown option '%.*s'; did you mean '--%s'?", as.width,
                           as.text, f->ours);
    }
    struct nearest near = {.word = word};
    for (int i = 0; i < rows->n && word[0]; i++)
        nearest_offer(&near, rows->items[i].option->name);
    if (near.best)
        return err_set(e, STATUS_USAGE, "unknown option '%.*s'; did you mean '--%s'?", as.width,
                       as.text, near.best);
    return err_set(e, STATUS_USAGE, "unknown option '%.*s'", as.width, as.text);
}

/* Takes the option at argv[*i], and its value; leaves *i at the last argument used. */
static enum status take_option(struct rows *rows, int argc, char **argv, int *i, struct err *e)
{
    const char *word = argv[*i];
    const struct spelling as = {word, (int)strcspn(word, "=")};
    const char *attached = word[as.width] ? word + as.width + 1 : NULL;
    struct row *row = NULL;
    for (int k = 0; k < rows->n && !row; k++)
        if (is_spelling_of(rows->items[k].option, as))
            row = &rows->items[k];
    if (!row)
        return unknown_option(rows, as, e);
    row->given = true;
    const bool is_flag = row->option->kind == OPTION_FLAG;
    if (is_flag && attached)
        return err_set(e, STATUS_USAGE, "%.*s takes no value, found '%.60s'", as.width, word,
                       attached);
    if (is_flag || attached)
        return store_value(row, as, attached, e);
    const struct expected expected = option_expected(row->option);
    if (*i + 1 == argc)
        return err_set(e, STATUS_USAGE, "%s needs a value%s%s", word, expected.text[0] ? ": " : "",
                       expected.text);
    return store_value(row, as, argv[++*i], e);
}

static enum status take_positional(struct rows *rows, const struct option **next, const char *word,
                                   void *values, struct err *e)
{
    const struct row row = {.option = *next, .value = (char *)values + (*next)->offset};
    if (row.option->kind == OPTION_END)
        return err_set(e, STATUS_USAGE, "unexpected argument '%.60s'%s", word,
                       find_named(rows, "prompt") ? "; expected a text with -p, or its file with -f"
                                                  : "");
    *next += row.option->kind == OPTION_STRING;
    return store_value(&row, (struct spelling){word, 0}, word, e);
}

/* The first that is given of the names, separated by "|"; NULL: none. */
static const char *given_of(const struct rows *rows, const char *names)
{
    for (; *names; names += strspn(names, "|")) {
        const size_t len = strcspn(names, "|");
        for (int i = 0; i < rows->n; i++) {
            const char *name = rows->items[i].option->name;
            if (rows->items[i].given && strlen(name) == len && strncmp(name, names, len) == 0)
                return name;
        }
        names += len;
    }
    return NULL;
}

/* What has no effect was meant to have one. */
static enum status check_company(const struct rows *rows, struct err *e)
{
    for (int i = 0; i < rows->n; i++) {
        const struct option *o = rows->items[i].option;
        if (!rows->items[i].given)
            continue;
        if (o->needs && !given_of(rows, o->needs))
            return err_set(e, STATUS_USAGE, "--%s is for --%.*s, which is not given", o->name,
                           (int)strcspn(o->needs, "|"), o->needs);
        const char *other = o->excludes ? given_of(rows, o->excludes) : NULL;
        if (other)
            return err_set(e, STATUS_USAGE, "--%s and --%s are both given; expected one of them",
                           o->name, other);
    }
    return STATUS_OK;
}

enum status options_parse(const struct option_spec *spec, int argc, char **argv, void *values,
                          bool *help, struct err *e)
{
    *help = false;
    struct rows rows;
    collect_rows(spec, values, &rows);
    for (int i = 0; i < rows.n; i++) {
        const struct option *o = rows.items[i].option;
        const struct spelling as = {o->name, (int)strlen(o->name)};
        if (o->fallback)
            TRY(store_value(&rows.items[i], as, o->fallback, e));
    }
    const struct option *positional = spec->positionals;
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == 0) {
            TRY(take_positional(&rows, &positional, word, values, e));
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *help = true;
            return STATUS_OK;
        } else {
            TRY(take_option(&rows, argc, argv, &i, e));
        }
    }
    return check_company(&rows, e);
}

static void free_strings(const struct option *o, void *value)
{
    struct option_strings *list = value;
    if (o->kind != OPTION_STRINGS)
        return;
    free(list->items);
    *list = (struct option_strings){NULL, 0};
}

void options_free(const struct option_spec *spec, void *values)
{
    struct rows rows;
    collect_rows(spec, values, &rows);
    for (int i = 0; i < rows.n; i++)
        free_strings(rows.items[i].option, rows.items[i].value);
    for (const struct option *o = spec->positionals; o->kind != OPTION_END; o++)
        free_strings(o, (char *)values + o->offset);
}

#define LINE_WIDTH 96

/* "-n, --name VALUE"; returns its width. */
static int usage_of(const struct option *o, char *out, size_t size)
{
    const char letter[] = {'-', o->letter, ',', ' ', 0};
    return snprintf(out, size, "%s--%s%s%s", o->letter ? letter : "    ", o->name,
                    o->value ? " " : "", o->value ? o->value : "");
}

struct description option_description(const struct option *o)
{
    struct description d;
    const char *standard = o->fallback ? o->fallback : o->otherwise;
    const struct expected expected = option_expected(o);
    const char *range = o->kind == OPTION_STRINGS ? "may be repeated"
                        : o->kind == OPTION_U64   ? ""
                                                  : expected.text;
    if (!standard && !range[0])
        snprintf(d.text, sizeof d.text, "%s", o->help);
    else
        snprintf(d.text, sizeof d.text, "%s (%s%s%s%s)", o->help, standard ? "default " : "",
                 standard ? standard : "", standard && range[0] ? "; " : "", range);
    return d;
}

void options_help(const struct option_spec *spec, struct output *out)
{
    const int columns = out->columns;
    char usage[128];
    int width = 0;
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END && !!g->title[0]; o++) {
            const int n = usage_of(o, usage, sizeof usage);
            width = n > width ? n : width;
        }
    if (columns == 0 || columns > LINE_WIDTH)
        out->columns = LINE_WIDTH;
    /* What is said of the options stands beside them where half a line is left for it. */
    const int beside = width + 4;
    struct paragraph p = paragraph_begin(out, beside <= out->columns / 2 ? (size_t)beside : 10);
    for (const struct option_group *g = spec->groups; g->title; g++) {
        if (!g->title[0])
            continue;
        paragraph_printf(&p, "%s%s:\n", g == spec->groups ? "" : "\n", g->title);
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            usage_of(o, usage, sizeof usage);
            paragraph_printf(&p, "  %-*s  %s\n", width, usage, option_description(o).text);
        }
    }
    paragraph_end(&p);
    out->columns = columns;
}
