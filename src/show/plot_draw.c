/* The chart itself: axes, bands, lines, markers. */
#include <math.h>

#include "show/plot_private.h"

#define Y_LABEL_RISE   15 /* above the data area */
#define X_TICK_DROP    20
#define X_LABEL_DROP   43
#define CAP            5  /* half the width of an error bar's ends */
#define PREDICTED_HALF 18 /* of a prediction that has no neighbour */
#define VALUE_GAP      25 /* from a marker to its value */
#define VALUE_SPACING  80 /* between lines, that values fit beside them */
#define MAX_SPOKEN     80 /* characters of a name where only one of many figures is told */

void plot_text_at(struct file_writer *out, const char *attributes, double x, double y,
                  struct plot_piece p)
{
    plot_shape(out, "<text x=\"@\" y=\"@\" ", (double[]){x, y});
    plot_puts(out, attributes);
    plot_puts(out, ">");
    plot_put_piece(out, p);
    plot_puts(out, "</text>\n");
}

/* --- axes ----------------------------------------------------------------------------------- */

static struct plot_piece figure_piece(const struct figure *f)
{
    return (struct plot_piece){text_of(f->text), false};
}

static void draw_y_axis(const struct plot_chart *c)
{
    const struct plot_ticks *t = &c->y_ticks;
    for (int i = 0; i < t->n; i++) {
        const double y = plot_y(c, plot_tick(t, i));
        const struct figure label = plot_tick_label(t, i);
        plot_puts(c->out, t->first + i == 0 ? "<path class=\"axis\"" : "<path class=\"grid\"");
        plot_shape(c->out, " d=\"M@ @H@\"/>", (double[]){c->left, y, c->right});
        plot_text_at(c->out, "class=\"tick muted\" text-anchor=\"end\"", c->left - PLOT_TICK_GAP,
                     y + 4, figure_piece(&label));
    }
    const struct plot_piece label =
        plot_text_fit(c->y_label, PLOT_FONT_SIZE, PLOT_WIDTH - 2 * PLOT_MARGIN);
    plot_text_at(c->out, "", PLOT_MARGIN, c->top - Y_LABEL_RISE, label);
}

static void put_x_tick(const struct plot_chart *c, double x, struct figure label)
{
    plot_text_at(c->out, "class=\"tick muted\" text-anchor=\"middle\"", x, c->bottom + X_TICK_DROP,
                 figure_piece(&label));
}

static void draw_x_axis(const struct plot_chart *c)
{
    const double middle = (c->left + c->right) / 2;
    if (c->one_x)
        put_x_tick(c, middle, plot_value(c->x_lo));
    for (int i = 0; i < c->x_ticks.n; i++) {
        const double x = plot_x(c, 0, plot_tick(&c->x_ticks, i));
        plot_shape(c->out, "<path class=\"grid\" d=\"M@ @V@\"/>",
                   (double[]){x, c->top, c->bottom + 5});
        put_x_tick(c, x, plot_tick_label(&c->x_ticks, i));
    }
    const double room = 2 * fmin(middle, PLOT_WIDTH - middle) - 2 * PLOT_MARGIN;
    plot_text_at(c->out, "text-anchor=\"middle\"", middle, c->bottom + X_LABEL_DROP,
                 plot_text_fit(c->x_label, PLOT_FONT_SIZE, room));
}

/* --- lines ---------------------------------------------------------------------------------- */

static void path_to(const struct plot_chart *c, bool first, double x, double y)
{
    plot_shape(c->out, first ? "M@ @" : "L@ @", (double[]){x, y});
}

static void draw_bars(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->low))
            continue;
        const double x = plot_x(c, i, p->x), low = plot_y(c, p->low), high = plot_y(c, p->high);
        plot_shape(c->out, "<path class=\"bar\" d=\"M@ @H@M@ @V@M@ @H@\"/>",
                   (double[]){x - CAP, high, x + CAP, x, high, low, x - CAP, low, x + CAP});
    }
}

/* Along the upper edge and back along the lower one. */
static void draw_band(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    bool first = true;
    plot_puts(c->out, "<path class=\"band\" d=\"");
    for (int k = 0; k < 2 * line->n_points; k++) {
        const bool back = k >= line->n_points;
        const struct plot_point *p = &line->points[back ? 2 * line->n_points - 1 - k : k];
        if (isnan(p->low))
            continue;
        path_to(c, first, plot_x(c, i, p->x), plot_y(c, back ? p->low : p->high));
        first = false;
    }
    plot_puts(c->out, "Z\"/>");
}

static void draw_spread(const struct plot_chart *c, int i)
{
    if (plot_has_bars(c, &c->lines[i]))
        draw_bars(c, i);
    else if (c->lines[i].n_band > 1)
        draw_band(c, i);
}

static void draw_predicted(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    const bool alone = c->one_x || line->n_predicted == 1;
    const double half =
        c->one_x ? fmin(PREDICTED_HALF, plot_one_x_spacing(c) * 0.45) : PREDICTED_HALF;
    bool first = true;
    if (line->n_predicted == 0)
        return;
    plot_puts(c->out, "<path class=\"predicted\" d=\"");
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->predicted))
            continue;
        const double x = plot_x(c, i, p->x), y = plot_y(c, p->predicted);
        if (alone)
            plot_shape(c->out, "M@ @H@", (double[]){x - half, y, x + half});
        else
            path_to(c, first, x, y);
        first = false;
    }
    plot_puts(c->out, "\"/>");
}

/* "GQA-4: 31.26 at 1,024 (30.1 to 33, predicted 29.8)", which the reader's pointer brings up. */
static void put_tooltip(const struct plot_chart *c, const struct plot_line *line,
                        const struct plot_point *p)
{
    plot_puts(c->out, "<title>");
    plot_put_piece(c->out, plot_text_fit(line->name, 1, MAX_SPOKEN));
    plot_puts(c->out, ": ");
    plot_puts(c->out, plot_value(p->mid).text);
    plot_puts(c->out, " at ");
    plot_puts(c->out, plot_value(p->x).text);
    if (!isnan(p->low)) {
        plot_puts(c->out, " (");
        plot_puts(c->out, plot_value(p->low).text);
        plot_puts(c->out, " to ");
        plot_puts(c->out, plot_value(p->high).text);
        plot_puts(c->out, ")");
    }
    if (!isnan(p->predicted)) {
        plot_puts(c->out, ", predicted ");
        plot_puts(c->out, plot_value(p->predicted).text);
    }
    plot_puts(c->out, "</title>");
}

static void draw_measured(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    bool first = true;
    if (line->n_mid > 1) {
        plot_puts(c->out, "<path class=\"line\" d=\"");
        for (int k = 0; k < line->n_points; k++) {
            const struct plot_point *p = &line->points[k];
            if (isnan(p->mid))
                continue;
            path_to(c, first, plot_x(c, i, p->x), plot_y(c, p->mid));
            first = false;
        }
        plot_puts(c->out, "\"/>");
    }
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->mid))
            continue;
        plot_puts(c->out, "\n<g>");
        put_tooltip(c, line, p);
        plot_marker(c->out, line->style, plot_x(c, i, p->x), plot_y(c, p->mid));
        plot_puts(c->out, "</g>");
    }
}

static void draw_lines(const struct plot_chart *c, void (*draw)(const struct plot_chart *c, int i))
{
    for (int i = 0; i < c->n_lines; i++) {
        plot_begin_group(c->out, c->lines[i].style);
        draw(c, i);
        plot_puts(c->out, "</g>\n");
    }
}

/* Beside the markers of lines that stand side by side. */
static void draw_values(const struct plot_chart *c)
{
    if (!c->one_x || plot_one_x_spacing(c) < VALUE_SPACING)
        return;
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        if (line->n_mid != 1)
            continue;
        const struct plot_point *p = &line->points[0]; /* one without mid sorts after it */
        const struct figure label = plot_value(p->mid);
        plot_text_at(c->out, "", plot_x(c, i, p->x) + VALUE_GAP, plot_y(c, p->mid) + 4.5,
                     figure_piece(&label));
    }
}

/* --- the file ------------------------------------------------------------------------------- */

/* "MHA: 20.1 at 0 to 27.9 at 255." for every line, for those who cannot see the picture. */
static void put_description(const struct plot_chart *c)
{
    plot_puts(c->out, "<desc>");
    plot_put_text(c->out, c->y_label);
    plot_puts(c->out, " against ");
    plot_put_text(c->out, c->x_label);
    plot_puts(c->out, ".");
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        const char *before = ": ";
        int seen = 0;
        plot_puts(c->out, "\n");
        plot_put_piece(c->out, plot_text_fit(line->name, 1, MAX_SPOKEN));
        for (int k = 0; k < line->n_points; k++) {
            const struct plot_point *p = &line->points[k];
            if (isnan(p->mid))
                continue;
            seen++;
            if (seen > 1 && seen < line->n_mid)
                continue;
            plot_puts(c->out, before);
            plot_puts(c->out, plot_value(p->mid).text);
            plot_puts(c->out, " at ");
            plot_puts(c->out, plot_value(p->x).text);
            before = " to ";
        }
        plot_puts(c->out, ".");
    }
    plot_puts(c->out, "</desc>\n");
}

void plot_draw(const struct plot_chart *c)
{
    plot_shape(c->out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"decode-plot\" role=\"img\" "
               "viewBox=\"0 0 @ @\" width=\"@\" height=\"@\">\n<title>",
               (double[]){PLOT_WIDTH, c->height, PLOT_WIDTH, c->height});
    plot_put_text(c->out, c->title);
    plot_puts(c->out, "</title>\n");
    put_description(c);
    plot_put_style(c->out);
    plot_puts(c->out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
    plot_legend(c, plot_headings(c, true), true);
    draw_x_axis(c);
    draw_y_axis(c);
    draw_lines(c, draw_spread);
    draw_lines(c, draw_predicted);
    draw_lines(c, draw_measured);
    draw_values(c);
    if (c->direct)
        plot_direct_labels(c);
    plot_puts(c->out, "</svg>\n");
}
