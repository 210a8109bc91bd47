#include "show/heatmap_picture.h"

#include <math.h>
#include <stdlib.h>

#include "base/output.h"
#include "show/svg.h"

#define MARGIN        22
#define LEAST_WIDTH   560 /* that headings and legend have room */
#define LEGEND_HEIGHT 26
#define NAME_HEIGHT   15
#define NAME_GAP      6 /* between a name and what it names */
#define MAX_NAME      110.0

/* Of small maps. */
#define SHEET_WIDTH    1040 /* of a row, if its maps can be that small */
#define LEAST_SIDE     64
#define MOST_SIDE      160
#define SHEET_GAP      12
#define SHEET_ROW_GAP  12
#define FRAME_DISTANCE 4.5

/* Of a large one. */
#define CHART_SIDE   832
#define MOST_CELL    22
#define NAME_SPACING 13 /* from one row's name to the next */

/* A picture while it is drawn. */
struct picture {
    struct output *out;
    const struct heatmap_scale *scale;
    unsigned char *levels; /* room for the largest map's */
};

/* --- maps ----------------------------------------------------------------------------------- */

static size_t n_cells(const struct heatmap_map *m)
{
    return (size_t)m->n_rows * (size_t)m->n_columns;
}

/* What the map lies on. */
static void put_ground(struct output *out, const struct heatmap_map *m)
{
    output_puts(out, "<path class=\"ground\" d=\"M0 0");
    if (!m->triangle)
        output_printf(out, "H%dV%d", m->n_columns, m->n_rows);
    for (int r = 0; m->triangle && r < m->n_rows; r++)
        output_puts(out, "h1v1");
    output_puts(out, "H0Z\"/>");
}

static void put_map(const struct picture *p, const struct heatmap_map *m, double x, double y,
                    double cell)
{
    for (size_t i = 0; i < n_cells(m); i++)
        p->levels[i] = (unsigned char)heatmap_level(p->scale, (double)m->cells[i]);
    svg_shape(p->out, "<g transform=\"translate(@ @) scale(@)\">", (double[]){x, y, cell});
    if (m->note) {
        output_puts(p->out, "<title>");
        svg_put_text(p->out, text_of(m->note));
        output_puts(p->out, "</title>");
    }
    put_ground(p->out, m);
    heatmap_paths(p->out, p->levels, m->n_rows, m->n_columns);
    output_puts(p->out, "</g>\n");
}

/* With headings and legend; returns where they end. */
static double begin_picture(struct output *out, const struct heatmap_caption *c, double width,
                            double height)
{
    heatmap_begin_picture(out, c->title, c->subtitle, "", width, height);
    const double y =
        svg_headings(out, text_of(c->title), text_of(c->subtitle), MARGIN, width - 2 * MARGIN);
    heatmap_legend(out, &c->scale, c->what, MARGIN, y + LEGEND_HEIGHT / 3.0);
    return y + LEGEND_HEIGHT;
}

/* The whole picture but the end of the root element; returns the height it takes. */
typedef double draw_picture(const struct picture *p, const void *what, double height);

/* Draws to nowhere to learn the height, then to the file. */
static enum status write_picture(const struct heatmap_caption *c, const struct heatmap_map *maps,
                                 size_t n_maps, draw_picture *draw, const void *what,
                                 const char *path, struct err *e)
{
    struct file_output file;
    struct picture p = {.out = &file.out, .scale = &c->scale};
    size_t most = 1;
    for (size_t i = 0; i < n_maps; i++)
        most = n_cells(&maps[i]) > most ? n_cells(&maps[i]) : most;
    p.levels = malloc(most);
    if (!p.levels)
        return err_no_memory(e, "a map of the picture", most);
    file_output_init(&file);
    const double height = ceil(draw(&p, what, 0));
    enum status s = file_output_open(&file, path, e);
    if (s == STATUS_OK) {
        draw(&p, what, height);
        output_puts(p.out, "</svg>\n");
        s = file_output_commit(&file, e);
    }
    free(p.levels);
    return s;
}

/* --- small maps ----------------------------------------------------------------------------- */

/* Where the maps of a sheet are. */
struct sheet_layout {
    double left;
    double room; /* that a map's side may take */
    double side; /* that the largest takes */
    double width;
};

/* Pixels of a map's cell: a whole number, so that all cells are alike. */
static double cell_size(double room, const struct heatmap_map *m)
{
    return fmax(floor(room / fmax(m->n_rows, m->n_columns)), 1);
}

static struct sheet_layout lay_out_sheet(const struct heatmap_sheet *s)
{
    struct sheet_layout l = {.side = 0};
    double names = 0;
    for (int r = 0; r < s->n_rows; r++)
        names = fmax(names, svg_text_width(text_of(s->row_names[r]), SVG_TICK_SIZE));
    l.left = ceil(MARGIN + fmin(names, MAX_NAME) + 2 * NAME_GAP);
    l.room = fmin(fmax(floor((double)SHEET_WIDTH / s->n_columns), LEAST_SIDE), MOST_SIDE);
    for (int i = 0; i < s->n_rows * s->n_columns; i++)
        l.side = fmax(l.side, s->maps[i].n_rows * cell_size(l.room, &s->maps[i]));
    l.width = fmax(l.left + s->n_columns * (l.side + SHEET_GAP) - SHEET_GAP + MARGIN, LEAST_WIDTH);
    return l;
}

/* Around the maps of a row from x to `right`. */
static void put_frame(struct output *out, double x, double right, double top, double bottom)
{
    svg_shape(out, "<rect class=\"frame\" x=\"@\" y=\"@\" width=\"@\" height=\"@\" rx=\"4\"/>\n",
              (double[]){x - FRAME_DISTANCE, top, right - x + 2 * FRAME_DISTANCE, bottom - top});
}

/* A row of maps, whose names begin at `top`. */
static void put_sheet_row(const struct picture *p, const struct heatmap_sheet *s,
                          const struct sheet_layout *l, int row, double top)
{
    const struct heatmap_map *maps = s->maps + (size_t)row * (size_t)s->n_columns;
    const double y = top + NAME_HEIGHT, bottom = y + l->side;
    double first = l->left; /* of a frame */
    svg_label(p->out, "class=\"tick\" text-anchor=\"end\"", l->left - 2 * NAME_GAP,
              (y + bottom) / 2 + 4,
              svg_text_fit(text_of(s->row_names[row]), SVG_TICK_SIZE, MAX_NAME));
    for (int c = 0; c < s->n_columns; c++) {
        const struct heatmap_map *m = &maps[c];
        const double x = l->left + c * (l->side + SHEET_GAP);
        if (m->name)
            svg_label(p->out, "class=\"tick muted\"", x, y - 4, svg_whole(m->name));
        put_map(p, m, x, y, cell_size(l->room, m));
        if (c == 0 || m->group != m[-1].group)
            first = x;
        if (m->group >= 0 && (c + 1 == s->n_columns || m->group != m[1].group))
            put_frame(p->out, first, x + l->side, top - 1, bottom + FRAME_DISTANCE);
    }
}

static double draw_sheet(const struct picture *p, const void *what, double height)
{
    const struct heatmap_sheet *s = what;
    const struct sheet_layout l = lay_out_sheet(s);
    double y = begin_picture(p->out, &s->caption, l.width, height);
    for (int r = 0; r < s->n_rows; r++, y += NAME_HEIGHT + l.side + SHEET_ROW_GAP)
        put_sheet_row(p, s, &l, r, y);
    return y - SHEET_ROW_GAP + MARGIN;
}

enum status heatmap_write_sheet(const struct heatmap_sheet *s, const char *path, struct err *e)
{
    return write_picture(&s->caption, s->maps, (size_t)s->n_rows * (size_t)s->n_columns, draw_sheet,
                         s, path, e);
}

/* --- large maps ----------------------------------------------------------------------------- */

/* Where a large map is. */
struct chart_layout {
    double cell;
    double names, headings; /* the room of the rows' names, and of the columns' */
    int step;               /* every how many rows are named, and columns */
};

static double widest_name(const struct text *names, int n, int step)
{
    double widest = 0;
    for (int i = 0; i < n; i += step)
        widest = fmax(widest, svg_text_width(names[i], SVG_TICK_SIZE));
    return ceil(fmin(widest, MAX_NAME)) + NAME_GAP;
}

static struct chart_layout lay_out_chart(const struct heatmap_chart *c)
{
    struct chart_layout l;
    const struct heatmap_map *m = c->maps;
    l.cell = floor(CHART_SIDE / fmax(m->n_rows, m->n_columns));
    l.cell = fmin(fmax(l.cell, 2), MOST_CELL);
    l.step = (int)ceil(NAME_SPACING / l.cell);
    l.names = widest_name(c->row_names, m->n_rows, l.step);
    l.headings = widest_name(c->column_names, m->n_columns, l.step);
    return l;
}

static void put_column_name(struct output *out, double x, double y, struct text name)
{
    svg_shape(out, "<text class=\"tick\" transform=\"translate(@ @) rotate(-90)\">",
              (double[]){x, y});
    svg_put_piece(out, svg_text_fit(name, SVG_TICK_SIZE, MAX_NAME));
    output_puts(out, "</text>\n");
}

/* The names of map m's rows and columns, whose corner is at (x, y). */
static void put_names(struct output *out, const struct heatmap_chart *c,
                      const struct heatmap_map *m, const struct chart_layout *l, double x, double y)
{
    for (int r = 0; r < m->n_rows; r += l->step)
        svg_label(out, "class=\"tick\" text-anchor=\"end\"", x - NAME_GAP,
                  y + (r + 0.5) * l->cell + 4,
                  svg_text_fit(c->row_names[r], SVG_TICK_SIZE, MAX_NAME));
    for (int i = 0; i < m->n_columns; i += l->step)
        put_column_name(out, x + (i + 0.5) * l->cell + 4, y - NAME_GAP, c->column_names[i]);
}

static double draw_chart(const struct picture *p, const void *what, double height)
{
    const struct heatmap_chart *c = what;
    const struct chart_layout l = lay_out_chart(c);
    const double x = MARGIN + l.names;
    const double width = fmax(x + c->maps->n_columns * l.cell + MARGIN, LEAST_WIDTH);
    double y = begin_picture(p->out, &c->caption, width, height);
    for (int i = 0; i < c->n_maps; i++) {
        const struct heatmap_map *m = &c->maps[i];
        if (m->name) {
            y += NAME_HEIGHT + NAME_GAP;
            svg_label(p->out, "", MARGIN, y - NAME_GAP, svg_whole(m->name));
        }
        y += l.headings;
        put_names(p->out, c, m, &l, x, y);
        put_map(p, m, x, y, l.cell);
        y += m->n_rows * l.cell + MARGIN;
    }
    return y;
}

enum status heatmap_write_chart(const struct heatmap_chart *c, const char *path, struct err *e)
{
    return write_picture(&c->caption, c->maps, (size_t)c->n_maps, draw_chart, c, path, e);
}
