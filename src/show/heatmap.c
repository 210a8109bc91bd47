#include "show/heatmap.h"

#include <assert.h>
#include <math.h>

#include "base/figures.h"
#include "show/canvas.h"

/* --- levels --------------------------------------------------------------------------------- */

/* 10^-((9.5 - k) / 3), half a level below level k's middle. */
static const double log_from[HEATMAP_LEVELS] = {
    0.0014677992676220691, 0.0031622776601683794, 0.006812920690579611,
    0.014677992676220698,  0.031622776601683791,  0.068129206905796131,
    0.14677992676220691,   0.31622776601683794,   0.68129206905796136};
#define LOG_FIRST 0.0021544346900318843 /* the middle of level 1, 10^(-8 / 3) */

struct heatmap_scale heatmap_scale(double top, bool log)
{
    struct heatmap_scale s = {.log = log, .top = top};
    for (int i = 0; i < HEATMAP_LEVELS; i++)
        s.from[i] = top * (log ? log_from[i] : (i + 0.5) / HEATMAP_LEVELS);
    return s;
}

void heatmap_levels(const struct heatmap_scale *s, const float *x, int n, unsigned char *levels)
{
    for (int i = 0; i < n; i++) {
        int level = 0;
        while (s->top > 0 && level < HEATMAP_LEVELS && (double)x[i] >= s->from[level])
            level++;
        levels[i] = level;
    }
}

/* Returns the number at an end of a legend's scale. */
static struct figure scale_end(const struct heatmap_scale *s, bool high)
{
    struct figure f;
    chars_printf(f.text, high && s->log ? "%.2g (log scale)" : "%.2g",
                 high     ? s->top
                 : s->log ? s->top * LOG_FIRST
                          : 0);
    return f;
}

/* Returns the end of the cells from `at` on that are at the same level. */
static int level_end(const unsigned char *row, int at, int columns)
{
    int end = at + 1;
    while (end < columns && row[end] == row[at])
        end++;
    return end;
}

/* --- pictures ------------------------------------------------------------------------------- */

#define LEAST_WIDTH    720  /* that headings and legend have room */
#define SHEET_WIDTH    1040 /* of a row of small maps, if they can be that small */
#define LEAST_SIDE     64   /* of a small map's room, and the most */
#define MOST_SIDE      160
#define LARGE_SIDE     832 /* of a large one's */
#define LARGE_CELL     22
#define MAP_GAP        12
#define NAME_HEIGHT    15
#define NAME_SPACING   13 /* from one row's name to the next */
#define NAME_GAP       8  /* between a name and what it names */
#define MAX_NAME       110.0
#define FRAME_DISTANCE 4.5
#define SAMPLE_WIDTH   18

/* Draws a row of maps from (x, y) on, each cell `cell` pixels. A map has a path for each level, of
 * horizontal lines one cell thick, on the ground of level 0. */
static void draw_maps(struct canvas *v, const struct heatmap_picture *p,
                      const struct heatmap_map *maps, double x, double y, double cell)
{
    const double pitch = p->map_columns * cell + MAP_GAP;
    double first = x; /* of a frame */
    unsigned char row[HEATMAP_LARGE];
    for (const struct heatmap_map *m = maps; m < maps + p->n_columns; m++, x += pitch) {
        if (m->name[0])
            canvas_label(v, "class=\"muted\"", x, y - 4, m->name, pitch);
        output_printf(v->out, "<g transform=\"translate(%g %g) scale(%g)\">", x, y, cell);
        if (m->note[0])
            canvas_put_element(v->out, "title", m->note);
        output_puts(v->out, "<path class=\"ground\" d=\"M0 0");
        if (!p->triangle)
            output_printf(v->out, "H%dV%d", p->map_columns, p->map_rows);
        for (int r = 0; p->triangle && r < p->map_rows; r++)
            output_puts(v->out, "h1v1");
        output_puts(v->out, "H0Z\"/><g class=\"map\">");
        for (int level = 1; level <= HEATMAP_LEVELS; level++) {
            bool begun = false;
            for (int r = 0; r < p->map_rows; r++) {
                heatmap_levels(&p->scale, m->cells + r * p->map_columns, p->map_columns, row);
                for (int c = 0, end; c < p->map_columns; c = end) {
                    end = level_end(row, c, p->map_columns);
                    if (row[c] != level)
                        continue;
                    if (!begun)
                        output_printf(v->out, "<path class=\"h%d\" d=\"", level);
                    output_printf(v->out, "M%d %d.5h%d", c, r, end - c);
                    begun = true;
                }
            }
            output_puts(v->out, begun ? "\"/>" : "");
        }
        output_puts(v->out, "</g></g>\n");
        if (m == maps || m->group != m[-1].group)
            first = x;
        if (m->group >= 0 && (m + 1 == maps + p->n_columns || m->group != m[1].group))
            output_printf(
                v->out,
                "<rect class=\"frame\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"4\"/>\n",
                first - FRAME_DISTANCE, y - NAME_HEIGHT,
                x + pitch - MAP_GAP - first + 2 * FRAME_DISTANCE,
                p->map_rows * cell + NAME_HEIGHT + FRAME_DISTANCE);
    }
}

static double widest_name(const struct text_label *names, int n, int step)
{
    double widest = 0;
    for (int i = 0; i < n; i += step)
        widest = fmax(widest, canvas_text_width(names[i].text));
    return ceil(fmin(widest, MAX_NAME)) + NAME_GAP;
}

static double draw_picture(struct canvas *v, const void *what)
{
    const struct heatmap_picture *p = what;
    const bool large = p->column_names != NULL;
    char low[96];
    const double room =
        large ? LARGE_SIDE : fmin(fmax(SHEET_WIDTH / p->n_columns, LEAST_SIDE), MOST_SIDE);
    /* A whole number of pixels, so that all cells are alike. */
    const double fit = fmax(floor(room / fmax(p->map_rows, p->map_columns)), 1);
    const double cell = large ? fmin(fit, LARGE_CELL) : fit;
    /* Row names stand beside rows of maps, or beside every step-th row of a large map. */
    const int step = large ? (int)ceil(NAME_SPACING / cell) : 1;
    const int n_names = large ? p->map_rows : p->n_rows;
    const double above = large ? 0 : NAME_HEIGHT, below = large ? 0 : MAP_GAP;
    const double pitch = large ? cell : p->map_rows * cell + above + below;
    const double x = CANVAS_MARGIN + widest_name(p->row_names, n_names, step);
    const double right = x + p->n_columns * (p->map_columns * cell + MAP_GAP) - MAP_GAP;

    canvas_begin(v, fmax(right + CANVAS_MARGIN, LEAST_WIDTH), p->title, p->subtitle);
    canvas_put_element(v->out, "desc", p->subtitle);
    output_puts(v->out, "\n");
    /* The legend says what the numbers are, and has samples of the levels between the ends. */
    chars_printf(low, "%.60s %s", p->what, scale_end(&p->scale, false).text);
    canvas_row(v);
    canvas_entry(v, 0, low);
    v->x -= CANVAS_GAP / 2.0;
    for (int level = p->scale.log; level <= HEATMAP_LEVELS; level++, v->x += SAMPLE_WIDTH)
        output_printf(v->out,
                      "<rect class=\"%s%.0d\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"12\"/>",
                      level ? "cell h" : "ground", level, v->x, v->y - 6, SAMPLE_WIDTH);
    canvas_entry(v, CANVAS_GAP / 2.0, scale_end(&p->scale, true).text);
    const double top =
        v->y + 2 * NAME_HEIGHT + (large ? widest_name(p->column_names, p->map_columns, step) : 0);
    for (int i = 0; i < n_names; i += step)
        canvas_label(v, "text-anchor=\"end\"", x - NAME_GAP, top + (i + 0.5) * pitch - above + 4,
                     p->row_names[i].text, MAX_NAME);
    const int n_columns = large ? p->map_columns : 0;
    for (int i = 0; i < n_columns; i += step) {
        output_printf(v->out, "<g transform=\"translate(%g %g) rotate(-90)\">",
                      x + (i + 0.5) * cell + 4, top - NAME_GAP);
        canvas_label(v, "", 0, 0, p->column_names[i].text, MAX_NAME);
        output_puts(v->out, "</g>");
    }
    for (int r = 0; r < p->n_rows; r++)
        draw_maps(v, p, p->maps + r * p->n_columns, x, top + r * pitch, cell);
    return top + n_names * pitch + CANVAS_MARGIN - above - below;
}

enum status heatmap_write(const struct heatmap_picture *p, const char *path, struct err *e)
{
    assert(p->map_rows <= HEATMAP_LARGE && p->map_columns <= HEATMAP_LARGE);
    return canvas_write(draw_picture, p, path, e);
}

/* --- on terminals --------------------------------------------------------------------------- */

static const char shades[] = " .:-=+*#%@";

/* Colours of a palette of 256, from dark to light. Their contrast with white text, and from
 * HIGH_LEVEL on with black text, is at least 4.5 to 1. */
static const unsigned char colours[HEATMAP_LEVELS] = {17, 18, 19, 25, 31, 38, 80, 122, 230};
#define HIGH_LEVEL 5

/* Sets the shade of a level as background of what follows; level 0 ends it. Plain ink has none. */
static void put_shade(struct output *out, enum heatmap_ink ink, int level)
{
    if (ink == HEATMAP_PLAIN)
        return;
    if (level == 0)
        output_puts(out, "\x1b[0m");
    else
        output_printf(out, "\x1b[38;5;%d;48;5;%dm", level < HIGH_LEVEL ? 231 : 16,
                      colours[level - 1]);
}

void heatmap_put_cells(struct output *out, enum heatmap_ink ink, const unsigned char *row, int n,
                       int width)
{
    int level = 0;
    for (int c = 0, end; c < n; c = end) {
        end = level_end(row, c, n);
        if (row[c] != level)
            put_shade(out, ink, row[c]);
        level = row[c];
        output_repeat(out, ink == HEATMAP_PLAIN ? shades[level] : ' ', (end - c) * width);
    }
    if (level > 0)
        put_shade(out, ink, 0);
}

void heatmap_put_legend(struct output *out, enum heatmap_ink ink, const struct heatmap_scale *s,
                        const char *what)
{
    static const unsigned char all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    output_printf(out, "%s %s ", what, scale_end(s, false).text);
    heatmap_put_cells(out, ink, all + s->log, HEATMAP_LEVELS + 1 - s->log,
                      ink == HEATMAP_PLAIN ? 1 : 2);
    output_printf(out, " %s\n", scale_end(s, true).text);
}
