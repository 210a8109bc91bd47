#include "show/heatmap.h"

#include <stdio.h>

#include "base/figures.h"
#include "show/svg.h"

#define SAMPLE_WIDTH  18
#define SAMPLE_HEIGHT 12
#define LEGEND_GAP    7

/* --- levels --------------------------------------------------------------------------------- */

/* 10^-((9.5 - k) / 3), half a level below level k's middle. */
static const double log_from[HEATMAP_LEVELS] = {
    0.0014677992676220691, 0.0031622776601683794, 0.006812920690579611,
    0.014677992676220698,  0.031622776601683791,  0.068129206905796131,
    0.14677992676220691,   0.31622776601683794,   0.68129206905796136};
/* 10^-((9 - k) / 3) */
static const double log_middle[HEATMAP_LEVELS] = {
    0.0021544346900318843, 0.0046415888336127772, 0.01,
    0.021544346900318832,  0.046415888336127795,  0.1,
    0.21544346900318834,   0.46415888336127786,   1};

struct heatmap_scale heatmap_scale(double top, bool log)
{
    struct heatmap_scale s = {.log = log, .top = top};
    for (int i = 0; i < HEATMAP_LEVELS; i++)
        s.from[i] = top * (log ? log_from[i] : (i + 0.5) / HEATMAP_LEVELS);
    return s;
}

int heatmap_level(const struct heatmap_scale *s, double x)
{
    int level = 0;
    if (!(s->top > 0))
        return 0;
    while (level < HEATMAP_LEVELS && x >= s->from[level])
        level++;
    return level;
}

double heatmap_middle(const struct heatmap_scale *s, int level)
{
    return s->top * (s->log ? log_middle[level - 1] : (double)level / HEATMAP_LEVELS);
}

/* The ends of a legend. */
static struct figure end_of(double x)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.2g", x);
    return f;
}

static struct figure low_end(const struct heatmap_scale *s)
{
    return end_of(s->log ? heatmap_middle(s, 1) : 0);
}

/* --- colours -------------------------------------------------------------------------------- */

/* What differs between light and dark pages. The levels go from what is hardly more than the
 * background to what is farthest from it, at equal steps of lightness in OKLab, so that shades keep
 * their order for every reader and in print. */
static const struct svg_rule rules[] = {
    {".decode-plot .ground", "fill", "#f1f3f6", "#1b1f26"},
    {".decode-plot .frame", "stroke", "#8c959f", "#6b747f"},
    {".decode-plot .low", "fill", "#1f2328", "#ffffff"},
    {".decode-plot .high", "fill", "#ffffff", "#14171c"},
    {".decode-plot .h1", "color", "#d6e4f5", "#203049"},
    {".decode-plot .h2", "color", "#adc9ec", "#274474"},
    {".decode-plot .h3", "color", "#83afe1", "#2d58a2"},
    {".decode-plot .h4", "color", "#5a94d6", "#3473bf"},
    {".decode-plot .h5", "color", "#4073d0", "#4191cc"},
    {".decode-plot .h6", "color", "#2c50c8", "#4fb0d8"},
    {".decode-plot .h7", "color", "#2037a0", "#90c8d3"},
    {".decode-plot .h8", "color", "#162571", "#c7decb"},
    {".decode-plot .h9", "color", "#0c1445", "#fdf3c0"},
};

static const char common_rules[] =
    ".decode-plot .cell{fill:currentColor}\n"
    ".decode-plot .map path{fill:none;stroke:currentColor;shape-rendering:crispEdges}\n"
    ".decode-plot .frame{fill:none;stroke-width:1.25}\n";

/* Of terminals with a background that is light, or dark: the nearest to such steps that a palette
 * of 256 has; black or white text has a contrast of 4.5 to 1. */
static const unsigned char on_light[HEATMAP_LEVELS] = {195, 153, 111, 69, 27, 25, 20, 18, 17};
static const unsigned char on_dark[HEATMAP_LEVELS] = {17, 18, 19, 25, 31, 38, 80, 122, 230};

/* Text on levels from here on is light on a page that is light, and dark on a dark one. */
#define HIGH_LEVEL 5

void heatmap_begin_picture(struct output *out, const char *title, const char *subtitle,
                           const char *styles, double width, double height)
{
    svg_begin(out, width, height, text_of(title));
    output_puts(out, "<desc>");
    svg_put_text(out, text_of(subtitle));
    output_puts(out, "</desc>\n");
    svg_style_sheet(out);
    svg_put_styles(out, common_rules, rules, (int)(sizeof rules / sizeof rules[0]));
    output_puts(out, styles);
    svg_put_paper(out);
}

const char *heatmap_text_class(int level)
{
    return level < HIGH_LEVEL ? "low" : "high";
}

/* --- pictures ------------------------------------------------------------------------------- */

/* The end of the cells of a row from `at` on that are at one level. */
static int run_end(const unsigned char *row, int at, int columns)
{
    int end = at + 1;
    while (end < columns && row[end] == row[at])
        end++;
    return end;
}

static void put_level(struct output *out, int level, const unsigned char *map, int rows,
                      int columns)
{
    const char *before = "";
    for (int r = 0; r < rows; r++) {
        const unsigned char *row = map + (size_t)r * (size_t)columns;
        for (int c = 0, end; c < columns; c = end) {
            end = run_end(row, c, columns);
            if (row[c] != level)
                continue;
            if (!before[0])
                output_printf(out, "<path class=\"h%d\" d=\"", level);
            output_printf(out, "M%d %d.5h%d", c, r, end - c);
            before = "\"/>";
        }
    }
    output_puts(out, before);
}

void heatmap_paths(struct output *out, const unsigned char *map, int rows, int columns)
{
    output_puts(out, "<g class=\"map\">");
    for (int level = 1; level <= HEATMAP_LEVELS; level++)
        put_level(out, level, map, rows, columns);
    output_puts(out, "</g>");
}

double heatmap_legend(struct output *out, const struct heatmap_scale *s, const char *what, double x,
                      double y)
{
    const struct figure low = low_end(s), high = end_of(s->top);
    const struct text names[] = {text_of(what), text_of(low.text), text_of(high.text)};
    for (int i = 0; i < 2; i++) {
        svg_label(out, "class=\"tick\"", x, y + 4, (struct svg_piece){names[i], false});
        x += svg_text_width(names[i], SVG_TICK_SIZE) + LEGEND_GAP;
    }
    for (int level = s->log; level <= HEATMAP_LEVELS; level++, x += SAMPLE_WIDTH) {
        output_printf(out, "<rect class=\"%s%.0d\"", level ? "cell h" : "ground", level);
        svg_shape(out, " x=\"@\" y=\"@\" width=\"@\" height=\"@\"/>",
                  (double[]){x, y - SAMPLE_HEIGHT / 2.0, SAMPLE_WIDTH, SAMPLE_HEIGHT});
    }
    x += LEGEND_GAP;
    svg_label(out, "class=\"tick\"", x, y + 4, (struct svg_piece){names[2], false});
    return x + svg_text_width(names[2], SVG_TICK_SIZE);
}

/* --- terminals ------------------------------------------------------------------------------ */

#define RESET "\x1b[0m"

static const char shades[] = " .:-=+*#%@";

struct heatmap_sequence heatmap_colour(enum heatmap_ink ink, int level)
{
    struct heatmap_sequence s = {""};
    if (ink == HEATMAP_PLAIN)
        return s;
    if (level == 0)
        return (struct heatmap_sequence){RESET};
    const bool white = (level < HIGH_LEVEL) == (ink == HEATMAP_DARK);
    const int on = (ink == HEATMAP_DARK ? on_dark : on_light)[level - 1];
    snprintf(s.text, sizeof s.text, "\x1b[38;5;%d;48;5;%dm", white ? 231 : 16, on);
    return s;
}

void heatmap_put_cells(struct output *out, enum heatmap_ink ink, const unsigned char *row, int n,
                       int width)
{
    for (int c = 0, end; c < n; c = end) {
        end = run_end(row, c, n);
        if (row[c] > 0 || c > 0)
            output_puts(out, heatmap_colour(ink, row[c]).text);
        output_repeat(out, ink == HEATMAP_PLAIN ? shades[row[c]] : ' ',
                      (size_t)(end - c) * (size_t)width);
    }
    if (n > 0 && row[n - 1] > 0)
        output_puts(out, heatmap_colour(ink, 0).text);
}

void heatmap_put_legend(struct output *out, enum heatmap_ink ink, const struct heatmap_scale *s,
                        const char *what)
{
    static const unsigned char all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    output_printf(out, "%s %s ", what, low_end(s).text);
    heatmap_put_cells(out, ink, all + s->log, HEATMAP_LEVELS + 1 - s->log,
                      ink == HEATMAP_PLAIN ? 1 : 2);
    output_printf(out, " %s\n", end_of(s->top).text);
}
