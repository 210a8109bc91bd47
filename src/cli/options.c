#include "cli/options.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/nearest.h"
#include "cli/numbers.h"

#define MAX_ROWS 128 /* of a command */

/* An option as found on the command line: the row, its place among the rows of all groups, its
 * value's address, and how it was spelt. */
struct found {
    const struct option *option;
    int row;
    void *value;
    int width; /* of the spelling, without "=value" */
    const char *spelling;
};

struct expected option_expected(const struct option *o)
{
    struct expected x = {""};
    const double limit = o->kind == OPTION_INT ? (double)INT_MAX : HUGE_VAL;
    if (o->kind == OPTION_U64) {
        snprintf(x.text, sizeof x.text, "0 to %llu", (unsigned long long)UINT64_MAX);
    } else if (o->kind == OPTION_CHOICE) {
        size_t used = (size_t)snprintf(x.text, sizeof x.text, "one of");
        for (int i = 0; o->choices[i] && used < sizeof x.text; i++)
            used += (size_t)snprintf(x.text + used, sizeof x.text - used, "%s %s", i ? "," : "",
                                     o->choices[i]);
    } else if (o->kind == OPTION_INT || o->kind == OPTION_DOUBLE) {
        if (o->max < limit)
            snprintf(x.text, sizeof x.text, "%s%.9g to %.9g", o->above_min ? "above " : "", o->min,
                     o->max);
        else if (o->above_min)
            snprintf(x.text, sizeof x.text, "above %.9g", o->min);
        else
            snprintf(x.text, sizeof x.text, "%.9g or more", o->min);
    }
    return x;
}

static bool store_choice(const struct option *o, const char *text, int *value)
{
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool store_double(const struct option *o, const char *text, double *value)
{
    double x;
    if (!parse_double(text, &x) || x < o->min || x > o->max || (o->above_min && x <= o->min))
        return false;
    *value = x;
    return true;
}

static enum status append_string(struct option_strings *list, const char *text, struct err *e)
{
    const size_t bytes = ((size_t)list->n + 1) * sizeof *list->items;
    const char **items = realloc(list->items, bytes);
    if (!items)
        return err_no_memory(e, "the list of option values", bytes);
    items[list->n++] = text;
    list->items = items;
    return STATUS_OK;
}

static enum status store(const struct found *f, const char *text, struct err *e)
{
    const struct option *o = f->option;
    bool ok = true;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)f->value = true;
        break;
    case OPTION_U64: {
        struct option_u64 *u = f->value;
        ok = u->given = parse_u64(text, &u->value);
        break;
    }
    case OPTION_INT:
        ok = parse_int(text, (int)o->min, (int)o->max, f->value);
        break;
    case OPTION_DOUBLE:
        ok = store_double(o, text, f->value);
        break;
    case OPTION_STRING:
        *(const char **)f->value = text;
        break;
    case OPTION_STRINGS:
        return append_string(f->value, text, e);
    case OPTION_CHOICE:
        ok = store_choice(o, text, f->value);
        break;
    case OPTION_END:
        break;
    }
    if (ok)
        return STATUS_OK;
    const char *what = o->kind == OPTION_CHOICE   ? ""
                       : o->kind == OPTION_DOUBLE ? "a number, "
                                                  : "an integer, ";
    return err_set(e, STATUS_USAGE, "%.*s: expected %s%s, found '%.60s'", f->width, f->spelling,
                   what, option_expected(o).text, text);
}

/* Whether `word` of `width` bytes, dashes included, names the option. */
static bool is_spelling_of(const struct option *o, const char *word, int width)
{
    const size_t len = (size_t)width;
    if (len == 2 && o->letter && word[1] == o->letter)
        return true;
    return len > 2 && word[1] == '-' && strlen(o->name) == len - 2 &&
           memcmp(o->name, word + 2, len - 2) == 0;
}

static bool find(const struct option_spec *spec, void *values, struct found *f)
{
    int row = 0;
    for (const struct option_group *g = spec->groups; g->title; g++) {
        for (const struct option *o = g->options; o->kind != OPTION_END; o++, row++) {
            if (is_spelling_of(o, f->spelling, f->width)) {
                f->option = o;
                f->row = row;
                f->value = (char *)values + g->base + o->offset;
                return true;
            }
        }
    }
    return false;
}

static enum status unknown_option(const struct option_spec *spec, const struct found *f,
                                  struct err *e)
{
    char word[64];
    const char *bare = f->spelling + strspn(f->spelling, "-");
    const int n = f->width - (int)(bare - f->spelling);
    snprintf(word, sizeof word, "%.*s", n, bare);
    struct nearest near = {.word = word};
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            if (word[0])
                nearest_offer(&near, o->name);
    if (near.best)
        return err_set(e, STATUS_USAGE, "unknown option '%.*s'; did you mean '--%s'?", f->width,
                       f->spelling, near.best);
    return err_set(e, STATUS_USAGE, "unknown option '%.*s'", f->width, f->spelling);
}

/* Takes the option at argv[*i], and its value; leaves *i at the last argument used. */
static enum status take_option(const struct option_spec *spec, int argc, char **argv, int *i,
                               void *values, bool given[MAX_ROWS], struct err *e)
{
    const char *word = argv[*i];
    struct found f = {.spelling = word, .width = (int)strcspn(word, "=")};
    const char *attached = word[f.width] ? word + f.width + 1 : NULL;
    if (!find(spec, values, &f))
        return unknown_option(spec, &f, e);
    assert(f.row < MAX_ROWS);
    given[f.row] = true;
    if (f.option->kind == OPTION_FLAG) {
        if (attached)
            return err_set(e, STATUS_USAGE, "%.*s takes no value, found '%.60s'", f.width, word,
                           attached);
        return store(&f, NULL, e);
    }
    if (attached)
        return store(&f, attached, e);
    if (*i + 1 == argc)
        return err_set(e, STATUS_USAGE, "%s needs a value%s%s", word,
                       option_expected(f.option).text[0] ? ": " : "",
                       option_expected(f.option).text);
    return store(&f, argv[++*i], e);
}

static bool takes_many(const struct option_positional *p)
{
    const size_t len = strlen(p->name);
    return len > 3 && strcmp(p->name + len - 3, "...") == 0;
}

static enum status take_positional(const struct option_spec *spec, int *n, const char *word,
                                   void *values, struct err *e)
{
    const struct option_positional *p = &spec->positionals[*n];
    if (!p->name)
        return err_set(e, STATUS_USAGE, "unexpected argument '%.60s'", word);
    if (takes_many(p))
        return append_string((struct option_strings *)((char *)values + p->offset), word, e);
    *(const char **)((char *)values + p->offset) = word;
    ++*n;
    return STATUS_OK;
}

static bool is_given(const struct option_spec *spec, const char *name, const bool given[MAX_ROWS])
{
    int row = 0;
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++, row++)
            if (given[row] && strcmp(o->name, name) == 0)
                return true;
    return false;
}

/* What has no effect was meant to have one. */
static enum status check_needs(const struct option_spec *spec, const bool given[MAX_ROWS],
                               struct err *e)
{
    int row = 0;
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++, row++)
            if (given[row] && o->needs && !is_given(spec, o->needs, given))
                return err_set(e, STATUS_USAGE, "--%s is for --%s, which is not given", o->name,
                               o->needs);
    return STATUS_OK;
}

static enum status store_fallbacks(const struct option_spec *spec, void *values, struct err *e)
{
    for (const struct option_group *g = spec->groups; g->title; g++) {
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            const struct found f = {.option = o,
                                    .value = (char *)values + g->base + o->offset,
                                    .spelling = o->name,
                                    .width = (int)strlen(o->name)};
            if (o->fallback) {
                const enum status s = store(&f, o->fallback, e);
                if (s != STATUS_OK)
                    return s;
            }
        }
    }
    return STATUS_OK;
}

enum status options_parse(const struct option_spec *spec, int argc, char **argv, void *values,
                          bool *help, struct err *e)
{
    *help = false;
    enum status s = store_fallbacks(spec, values, e);
    bool options_ended = false, given[MAX_ROWS] = {false};
    int n_positionals = 0;
    for (int i = 0; i < argc && s == STATUS_OK; i++) {
        const char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == 0) {
            s = take_positional(spec, &n_positionals, word, values, e);
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *help = true;
            break;
        } else {
            s = take_option(spec, argc, argv, &i, values, given, e);
        }
    }
    return s == STATUS_OK && !*help ? check_needs(spec, given, e) : s;
}

static void free_strings(struct option_strings *list)
{
    free(list->items);
    *list = (struct option_strings){NULL, 0};
}

void options_free(const struct option_spec *spec, void *values)
{
    for (const struct option_positional *p = spec->positionals; p->name; p++)
        if (takes_many(p))
            free_strings((struct option_strings *)((char *)values + p->offset));
    for (const struct option_group *g = spec->groups; g->title; g++) {
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            if (o->kind == OPTION_STRINGS)
                free_strings((struct option_strings *)((char *)values + g->base + o->offset));
        }
    }
}
