#include "show/plot.h"

#include <math.h>
#include <stddef.h>

#include "base/file.h"
#include "show/plot_labels.h"

#define MIN_HEIGHT     480
#define MIN_AREA       270
#define AXIS_HEIGHT    58 /* tick labels and the label below the data area */
#define Y_LABEL_HEIGHT 34
#define Y_LABEL_RISE   15 /* above the data area */
#define TICK_GAP       10 /* between a tick's label and the data area */
#define X_TICK_DROP    20
#define X_LABEL_DROP   43
#define CAP            5  /* half the width of an error bar's ends */
#define PREDICTED_HALF 18 /* of a prediction that has no neighbour */
#define VALUE_GAP      25 /* from a marker to its value */
#define VALUE_SPACING  80 /* between lines, that values fit beside them */
#define MAX_SPOKEN     80 /* characters of a name where only one of many figures is told */

/* --- layout --------------------------------------------------------------------------------- */

static double tick_width(const struct scale_ticks *t, int i)
{
    return svg_text_width(text_of(scale_label(t, i).text), SVG_TICK_SIZE);
}

static void plot_lay_out(struct plot_chart *c)
{
    double widest = 0, last = 0;
    for (int i = 0; i < c->y_ticks.n; i++)
        widest = fmax(widest, tick_width(&c->y_ticks, i));
    if (c->x_ticks.n > 0)
        last = tick_width(&c->x_ticks, c->x_ticks.n - 1);

    const double direct = plot_direct_width(c);
    c->direct = direct > 0;
    c->left = PLOT_MARGIN + widest + TICK_GAP;
    c->right = PLOT_WIDTH - PLOT_MARGIN - fmax(direct, fmax(last / 2 - PLOT_INNER_MARGIN, 0));
    c->top = plot_headings(c);
    c->top += plot_legend(c, c->top) + Y_LABEL_HEIGHT;
    c->height = fmax(MIN_HEIGHT, c->top + MIN_AREA + AXIS_HEIGHT);
    c->bottom = c->height - AXIS_HEIGHT;
}

/* --- axes ----------------------------------------------------------------------------------- */

static void draw_y_axis(const struct plot_chart *c)
{
    const struct scale_ticks *t = &c->y_ticks;
    for (int i = 0; i < t->n; i++) {
        const double y = plot_y(c, scale_tick(t, i));
        const struct figure label = scale_label(t, i);
        output_puts(c->out, t->first + i == 0 ? "<path class=\"axis\"" : "<path class=\"grid\"");
        svg_shape(c->out, " d=\"M@ @H@\"/>", (double[]){c->left, y, c->right});
        svg_label(c->out, "class=\"tick muted\" text-anchor=\"end\"", c->left - TICK_GAP, y + 4,
                  svg_whole(label.text));
    }
    const struct svg_piece label =
        svg_text_fit(c->y_label, SVG_FONT_SIZE, PLOT_WIDTH - 2 * PLOT_MARGIN);
    svg_label(c->out, "", PLOT_MARGIN, c->top - Y_LABEL_RISE, label);
}

static void put_x_tick(const struct plot_chart *c, double x, struct figure label)
{
    svg_label(c->out, "class=\"tick muted\" text-anchor=\"middle\"", x, c->bottom + X_TICK_DROP,
              svg_whole(label.text));
}

static void draw_x_axis(const struct plot_chart *c)
{
    const double middle = (c->left + c->right) / 2;
    if (c->one_x)
        put_x_tick(c, middle, scale_value(c->x_lo));
    for (int i = 0; i < c->x_ticks.n; i++) {
        const double x = plot_x(c, 0, scale_tick(&c->x_ticks, i));
        svg_shape(c->out, "<path class=\"grid\" d=\"M@ @V@\"/>",
                  (double[]){x, c->top, c->bottom + 5});
        put_x_tick(c, x, scale_label(&c->x_ticks, i));
    }
    const double room = 2 * fmin(middle, PLOT_WIDTH - middle) - 2 * PLOT_MARGIN;
    svg_label(c->out, "text-anchor=\"middle\"", middle, c->bottom + X_LABEL_DROP,
              svg_text_fit(c->x_label, SVG_FONT_SIZE, room));
}

/* --- lines ---------------------------------------------------------------------------------- */

/* `first` and then "L" to each point that has the member, forwards or backwards. */
static void put_path(const struct plot_chart *c, int i, size_t member, bool back, const char *first)
{
    const struct plot_line *line = &c->lines[i];
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[back ? line->n_points - 1 - k : k];
        const double y = *(const double *)((const char *)p + member);
        if (isnan(y))
            continue;
        svg_shape(c->out, first, (double[]){plot_x(c, i, p->x), plot_y(c, y)});
        first = "L@ @";
    }
}

static void draw_bars(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->low))
            continue;
        const double x = plot_x(c, i, p->x), low = plot_y(c, p->low), high = plot_y(c, p->high);
        svg_shape(c->out, "<path class=\"bar\" d=\"M@ @H@M@ @V@M@ @H@\"/>",
                  (double[]){x - CAP, high, x + CAP, x, high, low, x - CAP, low, x + CAP});
    }
}

static void draw_spread(const struct plot_chart *c, int i)
{
    if (plot_has_bars(c, &c->lines[i])) {
        draw_bars(c, i);
    } else if (c->lines[i].n_band > 1) {
        output_puts(c->out, "<path class=\"band\" d=\"");
        put_path(c, i, offsetof(struct plot_point, high), false, "M@ @");
        put_path(c, i, offsetof(struct plot_point, low), true, "L@ @");
        output_puts(c->out, "Z\"/>");
    }
}

/* A short dash at each prediction that has no neighbour. */
static void put_dashes(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    const double half =
        c->one_x ? fmin(PREDICTED_HALF, plot_one_x_spacing(c) * 0.45) : PREDICTED_HALF;
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        const double x = plot_x(c, i, p->x);
        if (!isnan(p->predicted))
            svg_shape(c->out, "M@ @H@", (double[]){x - half, plot_y(c, p->predicted), x + half});
    }
}

static void draw_predicted(const struct plot_chart *c, int i)
{
    const int n = c->lines[i].n_predicted;
    if (n == 0)
        return;
    output_puts(c->out, "<path class=\"predicted\" d=\"");
    if (c->one_x || n == 1)
        put_dashes(c, i);
    else
        put_path(c, i, offsetof(struct plot_point, predicted), false, "M@ @");
    output_puts(c->out, "\"/>");
}

/* "GQA-4: 31.26 at 1,024 (30.1 to 33, predicted 29.8)", which the reader's pointer brings up. */
static void put_tooltip(const struct plot_chart *c, const struct plot_line *line,
                        const struct plot_point *p)
{
    output_puts(c->out, "<title>");
    svg_put_piece(c->out, svg_text_fit(line->name, 1, MAX_SPOKEN));
    output_printf(c->out, ": %s at %s", scale_value(p->mid).text, scale_value(p->x).text);
    if (!isnan(p->low))
        output_printf(c->out, " (%s to %s)", scale_value(p->low).text, scale_value(p->high).text);
    if (!isnan(p->predicted))
        output_printf(c->out, ", predicted %s", scale_value(p->predicted).text);
    output_puts(c->out, "</title>");
}

static void draw_measured(const struct plot_chart *c, int i)
{
    const struct plot_line *line = &c->lines[i];
    if (line->n_mid > 1) {
        output_puts(c->out, "<path class=\"line\" d=\"");
        put_path(c, i, offsetof(struct plot_point, mid), false, "M@ @");
        output_puts(c->out, "\"/>");
    }
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->mid))
            continue;
        output_puts(c->out, "\n<g>");
        put_tooltip(c, line, p);
        svg_marker(c->out, line->style, plot_x(c, i, p->x), plot_y(c, p->mid));
        output_puts(c->out, "</g>");
    }
}

static void draw_lines(const struct plot_chart *c, void (*draw)(const struct plot_chart *c, int i))
{
    for (int i = 0; i < c->n_lines; i++) {
        svg_begin_group(c->out, c->lines[i].style);
        draw(c, i);
        output_puts(c->out, "</g>\n");
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
        const struct figure label = scale_value(p->mid);
        svg_label(c->out, "", plot_x(c, i, p->x) + VALUE_GAP, plot_y(c, p->mid) + 4.5,
                  svg_whole(label.text));
    }
}

/* --- the file ------------------------------------------------------------------------------- */

/* "MHA: 20.1 at 0 to 27.9 at 255." for every line, for those who cannot see the picture. */
static void put_description(const struct plot_chart *c)
{
    output_puts(c->out, "<desc>");
    svg_put_text(c->out, c->y_label);
    output_puts(c->out, " against ");
    svg_put_text(c->out, c->x_label);
    output_puts(c->out, ".");
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        int seen = 0;
        output_puts(c->out, "\n");
        svg_put_piece(c->out, svg_text_fit(line->name, 1, MAX_SPOKEN));
        for (int k = 0; k < line->n_points; k++) {
            const struct plot_point *p = &line->points[k];
            if (isnan(p->mid))
                continue;
            seen++;
            if (seen == 1 || seen == line->n_mid)
                output_printf(c->out, "%s%s at %s", seen == 1 ? ": " : " to ",
                              scale_value(p->mid).text, scale_value(p->x).text);
        }
        output_puts(c->out, ".");
    }
    output_puts(c->out, "</desc>\n");
}

static void draw_chart(const struct plot_chart *c)
{
    svg_shape(c->out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"decode-plot\" role=\"img\" "
              "viewBox=\"0 0 @ @\" width=\"@\" height=\"@\">\n<title>",
              (double[]){PLOT_WIDTH, c->height, PLOT_WIDTH, c->height});
    svg_put_text(c->out, c->title);
    output_puts(c->out, "</title>\n");
    put_description(c);
    svg_style_sheet(c->out);
    output_puts(c->out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
    plot_legend(c, plot_headings(c));
    draw_x_axis(c);
    draw_y_axis(c);
    draw_lines(c, draw_spread);
    draw_lines(c, draw_predicted);
    draw_lines(c, draw_measured);
    draw_values(c);
    if (c->direct)
        plot_direct_labels(c);
    output_puts(c->out, "</svg>\n");
}

/* An output that ends in a file; while there is none, nowhere. */
struct plot_file {
    struct output out;
    struct file_writer *writer;
};

/* The writer remembers failures until it commits. */
static bool send_to_writer(struct output *out, const char *bytes, size_t len)
{
    struct file_writer *writer = ((struct plot_file *)out)->writer;
    if (writer)
        file_writer_put(writer, bytes, len);
    return true;
}

enum status plot_write(const struct plot *p, const char *path, struct err *e)
{
    struct plot_chart c;
    struct plot_file file = {.writer = NULL};
    enum status s = plot_chart_create(&c, p, path, e);
    output_init(&file.out, send_to_writer);
    c.out = &file.out;
    if (s == STATUS_OK) {
        plot_lay_out(&c);
        output_flush(c.out);
        s = file_writer_open(&file.writer, path, e);
    }
    if (s == STATUS_OK) {
        draw_chart(&c);
        output_flush(c.out);
        s = file_writer_commit(file.writer, e);
    }
    plot_chart_free(&c);
    return s;
}
