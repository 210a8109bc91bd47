#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

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

/* Words of `text` from column `indent` on, broken before LINE_WIDTH. */
static void put_wrapped(FILE *f, const char *text, int indent)
{
    int column = indent;
    while (*text) {
        const int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > LINE_WIDTH) {
            fprintf(f, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', f);
            column++;
        }
        fprintf(f, "%.*s", word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

char *options_help(const struct option_spec *spec)
{
    char usage[128];
    int width = 0;
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            const int n = usage_of(o, usage, sizeof usage);
            width = n > width ? n : width;
        }
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    for (const struct option_group *g = spec->groups; g->title; g++) {
        fprintf(f, "%s%s:\n", g == spec->groups ? "" : "\n", g->title);
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            usage_of(o, usage, sizeof usage);
            fprintf(f, "  %-*s  ", width, usage);
            put_wrapped(f, option_description(o).text, width + 4);
        }
    }
    const bool failed = ferror(f);
    if (fclose(f) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
