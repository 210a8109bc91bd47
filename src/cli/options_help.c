#include <stdio.h>

#include "cli/options.h"
#include "show/paragraph.h"

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
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            const int n = usage_of(o, usage, sizeof usage);
            width = n > width ? n : width;
        }
    if (columns == 0 || columns > LINE_WIDTH)
        out->columns = LINE_WIDTH;
    /* What is said of the options stands beside them where half a line is left for it. */
    const int beside = width + 4;
    struct paragraph p = paragraph_begin(out, beside <= out->columns / 2 ? (size_t)beside : 10);
    for (const struct option_group *g = spec->groups; g->title; g++) {
        paragraph_printf(&p, "%s%s:\n", g == spec->groups ? "" : "\n", g->title);
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            usage_of(o, usage, sizeof usage);
            paragraph_printf(&p, "  %-*s  %s\n", width, usage, option_description(o).text);
        }
    }
    paragraph_end(&p);
    out->columns = columns;
}
