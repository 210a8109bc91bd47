#include "show/plot.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/output.h"
#include "show/plot_chart.h"

#define MAX_MAGNITUDE  1e100
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

/* --- the data ------------------------------------------------------------------------------- */

static double drawable(double v)
{
    return isfinite(v) && fabs(v) <= MAX_MAGNITUDE ? v : (double)NAN;
}

/* False if nothing of the point is left. */
static bool clean_point(const struct plot *p, const struct plot_point *from, struct plot_point *to)
{
    *to = (struct plot_point){drawable(from->x), drawable(from->low), drawable(from->mid),
                              drawable(from->high), drawable(from->predicted)};
    if (isnan(to->low) || isnan(to->mid) || isnan(to->high))
        to->low = to->high = (double)NAN;
    if (p->x_doubles && !(to->x > 0))
        return false;
    return !isnan(to->x) && !(isnan(to->mid) && isnan(to->predicted));
}

/* NaN comes after all numbers, so that the order is total. */
static int compare_points(const void *left, const void *right)
{
    const struct plot_point *a = left, *b = right;
    const double of_a[] = {a->x, a->mid, a->low, a->high, a->predicted};
    const double of_b[] = {b->x, b->mid, b->low, b->high, b->predicted};
    int order = 0;
    for (int i = 0; i < 5 && order == 0; i++) {
        order = isnan(of_a[i]) - isnan(of_b[i]);
        order += (of_a[i] > of_b[i]) - (of_a[i] < of_b[i]);
    }
    return order;
}

static struct plot_line make_line(const struct plot *plot, const struct plot_series *s, int style,
                                  struct plot_point *points)
{
    struct plot_line line = {
        .name = plot_text(s->name), .points = points, .style = style, .again = s->again};
    for (int i = 0; i < s->n_points; i++) {
        struct plot_point *p = &points[line.n_points];
        if (!clean_point(plot, &s->points[i], p))
            continue;
        line.n_points++;
        line.n_mid += !isnan(p->mid);
        line.n_band += !isnan(p->low);
        line.n_predicted += !isnan(p->predicted);
    }
    qsort(points, (size_t)line.n_points, sizeof *points, compare_points);
    for (int i = 0; i < line.n_points; i++) {
        if (isnan(points[i].mid))
            continue;
        line.first = line.first ? line.first : &points[i];
        line.last = &points[i];
    }
    return line;
}

static enum status take_lines(struct plot_chart *c, const char *path, struct err *e)
{
    const struct plot *p = c->plot;
    size_t n_points = 0;
    for (int i = 0; i < p->n_series; i++)
        n_points += (size_t)p->series[i].n_points;
    /* One more of each: a request for nothing may give NULL. */
    c->points = calloc(n_points + 1, sizeof *c->points);
    c->lines = calloc((size_t)p->n_series + 1, sizeof *c->lines);
    if (!c->points || !c->lines)
        return err_no_memory(e, "the plot", n_points * sizeof *c->points);

    struct plot_point *points = c->points;
    bool measured = false;
    int style = -1;
    for (int i = 0; i < p->n_series; i++) {
        style += !p->series[i].again;
        assert(style >= 0);
        const struct plot_line line = make_line(p, &p->series[i], style, points);
        if (line.n_points == 0)
            continue;
        c->lines[c->n_lines++] = line;
        points += line.n_points;
        measured = measured || line.n_mid > 0;
    }
    if (!measured)
        return err_set(e, STATUS_USAGE, "%s: nothing to plot: none of the %d series has a value",
                       path, p->n_series);
    return STATUS_OK;
}

/* --- axes ----------------------------------------------------------------------------------- */

/* fmin and fmax pass over what is left out. */
static void find_ends(struct plot_chart *c)
{
    c->x_lo = c->x_hi = (double)NAN;
    c->y_lo = c->y_hi = c->plot->y_near ? (double)NAN : 0;
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        for (int k = 0; k < line->n_points; k++) {
            const struct plot_point *p = &line->points[k];
            c->x_lo = fmin(c->x_lo, p->x);
            c->x_hi = fmax(c->x_hi, p->x);
            c->y_lo = fmin(fmin(c->y_lo, p->predicted), fmin(p->mid, p->low));
            c->y_hi = fmax(fmax(c->y_hi, p->predicted), fmax(p->mid, p->high));
        }
    }
    c->one_x = c->x_lo == c->x_hi;
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        const bool bars = plot_has_bars(c, line);
        c->has_bars = c->has_bars || (bars && line->n_band > 0);
        c->has_bands = c->has_bands || (!bars && line->n_band > 1);
        c->has_lines = c->has_lines || line->n_mid > 1;
        c->has_predicted = c->has_predicted || line->n_predicted > 0;
        c->has_again = c->has_again || line->again;
    }
}

static void add_x_tick(struct plot_chart *c, double at, struct figure label)
{
    c->x_ticks[c->n_x_ticks].at = at;
    c->x_ticks[c->n_x_ticks++].label = label;
}

static void choose_x_ticks(struct plot_chart *c)
{
    /* Zero belongs to a depth axis unless it would take half of it. */
    if (c->x_lo > 0 && c->x_lo <= c->x_hi / 2)
        c->x_lo = 0;
    scale_widen(c->x_lo, &c->x_hi);
    const struct scale_ticks t = scale_ticks(c->x_lo, c->x_hi, PLOT_X_TICKS - 1, false);
    for (int i = 0; i < t.n; i++)
        add_x_tick(c, scale_tick(&t, i), scale_label(&t, i));
}

/* Ends so near to each other that no power of two lies between are ticks themselves. */
static void choose_x_doubles(struct plot_chart *c)
{
    scale_widen(c->x_lo, &c->x_hi);
    const double first = ceil(log2(c->x_lo)), last = floor(log2(c->x_hi));
    const double step = ceil(fmax(last - first, 1) / (PLOT_X_TICKS - 1));
    if (last <= first) {
        add_x_tick(c, c->x_lo, scale_value(c->x_lo));
        add_x_tick(c, c->x_hi, scale_value(c->x_hi));
        return;
    }
    for (double power = first; power <= last; power += step)
        add_x_tick(c, exp2(power), scale_value(exp2(power)));
}

static void choose_axes(struct plot_chart *c)
{
    find_ends(c);
    scale_widen(c->y_lo, &c->y_hi);
    c->y_ticks = scale_ticks(c->y_lo, c->y_hi, 8, true);
    c->y_lo = scale_tick(&c->y_ticks, 0);
    c->y_hi = scale_tick(&c->y_ticks, c->y_ticks.n - 1);
    if (c->one_x)
        return;
    if (c->plot->x_doubles)
        choose_x_doubles(c);
    else
        choose_x_ticks(c);
}

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
    if (c->n_x_ticks > 0)
        last = svg_text_width(text_of(c->x_ticks[c->n_x_ticks - 1].label.text), SVG_TICK_SIZE);

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
        output_puts(c->out, t->first + i == 0 ? "<path class=\"axis\"" : "<path class=\"grid\"");
        svg_shape(c->out, " d=\"M@ @H@\"/>", (double[]){c->left, y, c->right});
        svg_label(c->out, "class=\"tick muted\" text-anchor=\"end\"", c->left - TICK_GAP, y + 4,
                  svg_whole(scale_label(t, i).text));
    }
    const struct svg_piece label =
        svg_text_fit(plot_text(c->plot->y_label), SVG_FONT_SIZE, PLOT_WIDTH - 2 * PLOT_MARGIN);
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
    for (int i = 0; i < c->n_x_ticks; i++) {
        const double x = plot_x(c, 0, c->x_ticks[i].at);
        svg_shape(c->out, "<path class=\"grid\" d=\"M@ @V@\"/>",
                  (double[]){x, c->top, c->bottom + 5});
        put_x_tick(c, x, c->x_ticks[i].label);
    }
    const double room = 2 * fmin(middle, PLOT_WIDTH - middle) - 2 * PLOT_MARGIN;
    svg_label(c->out, "text-anchor=\"middle\"", middle, c->bottom + X_LABEL_DROP,
              svg_text_fit(plot_text(c->plot->x_label), SVG_FONT_SIZE, room));
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

static void put_spoken(struct output *out, const char *before, const struct plot_point *p)
{
    output_printf(out, "%s%s at %s", before, scale_value(p->mid).text, scale_value(p->x).text);
}

/* "GQA-4: 31.26 at 1,024 (30.1 to 33, predicted 29.8)", which the reader's pointer brings up. */
static void put_tooltip(const struct plot_chart *c, const struct plot_line *line,
                        const struct plot_point *p)
{
    output_puts(c->out, "<title>");
    svg_put_piece(c->out, svg_text_fit(line->name, 1, MAX_SPOKEN));
    put_spoken(c->out, ": ", p);
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
        output_printf(c->out, "<path class=\"line\"%s d=\"", line->again ? PLOT_AGAIN : "");
        put_path(c, i, offsetof(struct plot_point, mid), false, "M@ @");
        output_puts(c->out, "\"/>");
    }
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        if (isnan(p->mid))
            continue;
        output_puts(c->out, "\n<g>");
        put_tooltip(c, line, p);
        svg_marker(c->out, line->style, line->again, plot_x(c, i, p->x), plot_y(c, p->mid));
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
        const struct plot_point *p = c->lines[i].first;
        if (c->lines[i].n_mid != 1)
            continue;
        svg_label(c->out, "", plot_x(c, i, p->x) + VALUE_GAP, plot_y(c, p->mid) + 4.5,
                  svg_whole(scale_value(p->mid).text));
    }
}

/* --- the file ------------------------------------------------------------------------------- */

/* "MHA: 20.1 at 0 to 27.9 at 255." for every line, for those who cannot see the picture. */
static void put_description(const struct plot_chart *c)
{
    output_puts(c->out, "<desc>");
    svg_put_text(c->out, plot_text(c->plot->y_label));
    output_puts(c->out, " against ");
    svg_put_text(c->out, plot_text(c->plot->x_label));
    output_puts(c->out, ".");
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_line *line = &c->lines[i];
        output_puts(c->out, "\n");
        svg_put_piece(c->out, svg_text_fit(line->name, 1, MAX_SPOKEN));
        if (line->n_mid > 0)
            put_spoken(c->out, ": ", line->first);
        if (line->n_mid > 1)
            put_spoken(c->out, " to ", line->last);
        output_puts(c->out, ".");
    }
    output_puts(c->out, "</desc>\n");
}

static void draw_chart(const struct plot_chart *c)
{
    svg_begin(c->out, PLOT_WIDTH, c->height, plot_text(c->plot->title));
    put_description(c);
    svg_style_sheet(c->out);
    svg_put_paper(c->out);
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

enum status plot_write(const struct plot *p, const char *path, struct err *e)
{
    struct file_output file;
    struct plot_chart c = {.out = &file.out, .plot = p};
    file_output_init(&file);
    enum status s = take_lines(&c, path, e);
    if (s == STATUS_OK) {
        choose_axes(&c);
        plot_lay_out(&c);
        s = file_output_open(&file, path, e);
    }
    if (s == STATUS_OK) {
        draw_chart(&c);
        s = file_output_commit(&file, e);
    }
    free(c.points);
    free(c.lines);
    return s;
}
