#include "show/plot.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "show/canvas.h"

#define MAX_MAGNITUDE  1e100
#define WIDTH          860
#define AREA_HEIGHT    330
#define AXIS_HEIGHT    58 /* tick labels and the label below the data area */
#define Y_LABEL_HEIGHT 46
#define TICK_GAP       10    /* between a tick's label and the data area */
#define INNER_MARGIN   14    /* keeps markers off the data area's left and right */
#define X_TICKS        9     /* at most */
#define ONE_X_SPACING  130.0 /* between series that share one x, at most */
#define CAP            4     /* half the width of an error bar's ends */
#define PREDICTED_HALF 18    /* of a prediction that has no neighbour */
#define VALUE_SPACING  80    /* between series, that values fit beside their markers */
#define SAMPLE         30    /* width of a legend's line */
#define SAMPLE_GAP     7
#define SPOKEN         620 /* pixels of a name where only one of many figures is told */

/* One series without what cannot be drawn. */
struct line {
    struct text name;
    struct plot_point *points; /* by rising x; NaN for what is left out */
    int n_points, n_mid, n_predicted;
    int style; /* the series' place among those given, but for those that show one again: they have
                  its */
    bool again;
};

struct chart {
    const struct plot *plot; /* texts as they were given */
    struct line *lines;      /* at least one point each */
    int n_lines;
    struct plot_point *points; /* the lines' own; one allocation */

    double x_lo, x_hi, y_lo, y_hi; /* the axes' ends; y includes 0, but with y_near */
    bool one_x;                    /* all points share x: lines stand side by side */
    bool has_lines, has_bars, has_predicted, has_again;
    struct scale_ticks y_ticks;
    struct {
        double at;
        struct figure label;
    } x_ticks[X_TICKS];
    int n_x_ticks;
    double left, right, top, bottom; /* of the data area, in pixels */
};

static struct text text_or_none(const char *s)
{
    return text_of(s ? s : "");
}

/* --- the data ------------------------------------------------------------------------------- */

static double drawable(double v)
{
    return isfinite(v) && fabs(v) <= MAX_MAGNITUDE ? v : (double)NAN;
}

static int compare_points(const void *left, const void *right)
{
    const struct plot_point *a = left, *b = right;
    return (a->x > b->x) - (a->x < b->x);
}

/* Into room for as many points. */
static struct line make_line(const struct plot *plot, const struct plot_series *s, int style,
                             struct plot_point *points)
{
    struct line line = {
        .name = text_or_none(s->name), .points = points, .style = style, .again = s->again};
    for (int i = 0; i < s->n_points; i++) {
        const struct plot_point *from = &s->points[i];
        struct plot_point p = {drawable(from->x), drawable(from->low), drawable(from->mid),
                               drawable(from->high), drawable(from->predicted)};
        if (isnan(p.low) || isnan(p.mid) || isnan(p.high))
            p.low = p.high = (double)NAN;
        if (isnan(p.x) || (plot->x_doubles && p.x <= 0) || (isnan(p.mid) && isnan(p.predicted)))
            continue;
        points[line.n_points++] = p;
        line.n_mid += !isnan(p.mid);
        line.n_predicted += !isnan(p.predicted);
    }
    qsort(points, (size_t)line.n_points, sizeof *points, compare_points);
    return line;
}

static enum status take_lines(struct chart *c, const char *path, struct err *e)
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
    int style = -1, n_mid = 0;
    for (int i = 0; i < p->n_series; i++) {
        style += !p->series[i].again;
        assert(style >= 0);
        const struct line line = make_line(p, &p->series[i], style, points);
        if (line.n_points == 0)
            continue;
        c->lines[c->n_lines++] = line;
        points += line.n_points;
        n_mid += line.n_mid;
    }
    if (n_mid == 0)
        return err_set(e, STATUS_USAGE, "%s: nothing to plot: none of the %d series has a value",
                       path, p->n_series);
    return STATUS_OK;
}

/* --- axes ----------------------------------------------------------------------------------- */

static void add_x_tick(struct chart *c, double at, struct figure label)
{
    c->x_ticks[c->n_x_ticks].at = at;
    c->x_ticks[c->n_x_ticks++].label = label;
}

static void choose_x_ticks(struct chart *c)
{
    /* Zero belongs to a depth axis unless it would take half of it. */
    if (c->x_lo > 0 && c->x_lo <= c->x_hi / 2)
        c->x_lo = 0;
    scale_widen(c->x_lo, &c->x_hi);
    const struct scale_ticks t = scale_ticks(c->x_lo, c->x_hi, X_TICKS - 1, false);
    for (int i = 0; i < t.n; i++)
        add_x_tick(c, scale_tick(&t, i), scale_label(&t, i));
}

/* Ends so near to each other that no two powers of two lie between are ticks themselves. */
static void choose_x_doubles(struct chart *c)
{
    scale_widen(c->x_lo, &c->x_hi);
    const double first = ceil(log2(c->x_lo)), last = floor(log2(c->x_hi));
    const double step = ceil(fmax(last - first, 1) / (X_TICKS - 1));
    if (last <= first) {
        add_x_tick(c, c->x_lo, scale_value(c->x_lo));
        add_x_tick(c, c->x_hi, scale_value(c->x_hi));
        return;
    }
    for (double power = first; power <= last; power += step)
        add_x_tick(c, exp2(power), scale_value(exp2(power)));
}

static void choose_axes(struct chart *c)
{
    c->x_lo = c->x_hi = (double)NAN;
    c->y_lo = c->y_hi = c->plot->y_near ? (double)NAN : 0;
    for (int i = 0; i < c->n_lines; i++) {
        const struct line *line = &c->lines[i];
        c->has_lines |= line->n_mid > 1;
        c->has_predicted |= line->n_predicted > 0;
        c->has_again |= line->again;
        /* fmin and fmax pass over what is left out. */
        for (int k = 0; k < line->n_points; k++) {
            const struct plot_point *p = &line->points[k];
            c->x_lo = fmin(c->x_lo, p->x);
            c->x_hi = fmax(c->x_hi, p->x);
            c->y_lo = fmin(fmin(c->y_lo, p->predicted), fmin(p->mid, p->low));
            c->y_hi = fmax(fmax(c->y_hi, p->predicted), fmax(p->mid, p->high));
            c->has_bars |= !isnan(p->low);
        }
    }
    scale_widen(c->y_lo, &c->y_hi);
    c->y_ticks = scale_ticks(c->y_lo, c->y_hi, 8, true);
    c->y_lo = scale_tick(&c->y_ticks, 0);
    c->y_hi = scale_tick(&c->y_ticks, c->y_ticks.n - 1);
    c->one_x = c->x_lo == c->x_hi;
    if (c->one_x)
        add_x_tick(c, c->x_lo, scale_value(c->x_lo));
    else if (c->plot->x_doubles)
        choose_x_doubles(c);
    else
        choose_x_ticks(c);
}

/* Pixels between neighbouring lines that share one x. */
static double one_x_spacing(const struct chart *c)
{
    return fmin(ONE_X_SPACING, (c->right - c->left) / c->n_lines);
}

/* Pixels of a value of line i. */
static double x_of(const struct chart *c, int i, double x)
{
    if (c->one_x)
        return (c->left + c->right) / 2 + (i - (c->n_lines - 1) / 2.0) * one_x_spacing(c);
    const double from = c->left + INNER_MARGIN, to = c->right - INNER_MARGIN;
    double lo = c->x_lo, hi = c->x_hi;
    if (c->plot->x_doubles) {
        x = log2(x);
        lo = log2(lo);
        hi = log2(hi);
    }
    return from + (x - lo) / (hi - lo) * (to - from);
}

static double y_of(const struct chart *c, double y)
{
    return c->bottom - (y - c->y_lo) / (c->y_hi - c->y_lo) * (c->bottom - c->top);
}

/* From `top` on; decides where the data area is. */
static void draw_axes(struct chart *c, struct canvas *v, double top)
{
    const struct scale_ticks *t = &c->y_ticks;
    double widest = 0, last = 0;
    for (int i = 0; i < t->n; i++)
        widest = fmax(widest, canvas_text_width(text_of(scale_label(t, i).text)));
    last = canvas_text_width(text_of(c->x_ticks[c->n_x_ticks - 1].label.text));
    c->left = CANVAS_MARGIN + widest + TICK_GAP;
    c->right = WIDTH - CANVAS_MARGIN - fmax(last / 2 - INNER_MARGIN, 0);
    c->top = top + Y_LABEL_HEIGHT;
    c->bottom = c->top + AREA_HEIGHT;

    const double middle = (c->left + c->right) / 2, room = WIDTH - 2 * CANVAS_MARGIN;
    for (int i = 0; i < c->n_x_ticks; i++) {
        const double x = c->one_x ? middle : x_of(c, 0, c->x_ticks[i].at);
        if (!c->one_x)
            output_printf(v->out, "<path class=\"grid\" d=\"M%g %gV%g\"/>", x, c->top,
                          c->bottom + 5);
        canvas_label(v, "class=\"muted\" text-anchor=\"middle\"", x, c->bottom + 20,
                     text_of(c->x_ticks[i].label.text), room);
    }
    for (int i = 0; i < t->n; i++) {
        const double y = y_of(c, scale_tick(t, i));
        output_printf(v->out, "<path class=\"%s\" d=\"M%g %gH%g\"/>",
                      t->first + i == 0 ? "axis" : "grid", c->left, y, c->right);
        canvas_label(v, "class=\"muted\" text-anchor=\"end\"", c->left - TICK_GAP, y + 4,
                     text_of(scale_label(t, i).text), room);
    }
    canvas_label(v, "", CANVAS_MARGIN, c->top - 15, text_or_none(c->plot->y_label), room);
    canvas_label(v, "text-anchor=\"middle\"", middle, c->bottom + 43,
                 text_or_none(c->plot->x_label), room - 2 * fabs(middle - WIDTH / 2.0));
}

/* --- lines ---------------------------------------------------------------------------------- */

/* Outlines around the middle; the areas look alike. */
static const char *const shapes[] = {
    "m-4.3 0a4.3 4.3 0 1 0 8.6 0a4.3 4.3 0 1 0 -8.6 0z",
    "m-3.8 -3.8h7.6v7.6h-7.6z",
    "m0 -5.4l5 9h-10z",
    "m0 -5.6l5.6 5.6l-5.6 5.6l-5.6 -5.6z",
    "m0 5.4l-5 -9h10z",
    "m-1.7 -5.2h3.4v3.5h3.5v3.4h-3.5v3.5h-3.4v-3.5h-3.5v-3.4h3.5z",
    "m0 -5.2l4.95 3.6l-1.9 5.8h-6.1l-1.9 -5.8z",
    "m-4.4 -4.4h8.8l-8.8 8.8h8.8z",
};
#define N_COLOURS 8
#define N_SHAPES  8

static void begin_group(struct canvas *v, const struct line *line)
{
    output_printf(v->out, "<g class=\"c%d\">", line->style % N_COLOURS);
}

/* The shapes move on by one when the colours begin again; filled and hollow alternate, the other
 * way round after all shapes. So no look comes back before the 129th series. */
static void put_marker(struct canvas *v, const struct line *line, double x, double y)
{
    const int round = line->style / N_COLOURS;
    const bool hollow = (round + round / N_SHAPES) % 2 != line->again;
    output_printf(v->out, "<path class=\"%s\" d=\"M%g %g%s\"/>", hollow ? "hollow" : "marker", x, y,
                  shapes[(line->style % N_COLOURS + round) % N_SHAPES]);
}

/* Through the points that have the member; or a dash of so many pixels to both sides at each. */
static void put_path(const struct chart *c, struct canvas *v, int i, size_t member, double dash)
{
    const struct line *line = &c->lines[i];
    char step = 'M';
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        const double value = *(const double *)((const char *)p + member);
        const double x = x_of(c, i, p->x), y = y_of(c, value);
        if (isnan(value))
            continue;
        if (dash > 0)
            output_printf(v->out, "M%g %gH%g", x - dash, y, x + dash);
        else
            output_printf(v->out, "%c%g %g", step, x, y);
        step = 'L';
    }
    output_puts(v->out, "\"/>");
}

/* "31.26 at 1,024" */
static void put_spoken(struct output *out, const char *before, const struct plot_point *p)
{
    output_printf(out, "%s%s at %s", before, scale_value(p->mid).text, scale_value(p->x).text);
}

/* "GQA-4: 31.26 at 1,024 (30.1 to 33, predicted 29.8)", which the reader's pointer brings up. */
static void put_tooltip(struct output *out, const struct line *line, const struct plot_point *p)
{
    output_puts(out, "\n<g><title>");
    canvas_put_text(out, line->name, SPOKEN);
    put_spoken(out, ": ", p);
    if (!isnan(p->low))
        output_printf(out, " (%s to %s)", scale_value(p->low).text, scale_value(p->high).text);
    if (!isnan(p->predicted))
        output_printf(out, ", predicted %s", scale_value(p->predicted).text);
    output_puts(out, "</title>");
}

static void draw_line(const struct chart *c, struct canvas *v, int i)
{
    const struct line *line = &c->lines[i];
    begin_group(v, line);
    if (line->n_predicted > 0) {
        output_puts(v->out, "<path class=\"predicted\" d=\"");
        put_path(c, v, i, offsetof(struct plot_point, predicted),
                 c->one_x                 ? fmin(PREDICTED_HALF, one_x_spacing(c) * 0.45)
                 : line->n_predicted == 1 ? PREDICTED_HALF
                                          : 0);
    }
    if (line->n_mid > 1) {
        output_printf(v->out, "<path class=\"line%s\" d=\"", line->again ? " again" : "");
        put_path(c, v, i, offsetof(struct plot_point, mid), 0);
    }
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        const double x = x_of(c, i, p->x), y = y_of(c, p->mid);
        if (isnan(p->mid))
            continue;
        put_tooltip(v->out, line, p);
        if (!isnan(p->low))
            output_printf(v->out, "<path class=\"bar\" d=\"M%g %gh%dm%d 0V%gm%d 0h%d\"/>", x - CAP,
                          y_of(c, p->high), 2 * CAP, -CAP, y_of(c, p->low), -CAP, 2 * CAP);
        put_marker(v, line, x, y);
        output_puts(v->out, "</g>");
        if (c->one_x && line->n_mid == 1 && one_x_spacing(c) >= VALUE_SPACING)
            canvas_label(v, "", x + 25, y + 4, text_of(scale_value(p->mid).text), WIDTH);
    }
    output_puts(v->out, "</g>\n");
}

/* --- legend --------------------------------------------------------------------------------- */

/* What a kind of line is, as a grey sample: paths from its left end and middle on. */
static void put_note(struct canvas *v, const char *label, const char *sample)
{
    if (!label || !label[0])
        return;
    const double x = canvas_entry(v, SAMPLE + SAMPLE_GAP, text_of(label));
    output_printf(v->out, "<g class=\"note\" transform=\"translate(%g %g)\">%s</g>\n", x, v->y,
                  sample);
}

static void draw_legend(const struct chart *c, struct canvas *v)
{
    const struct plot *p = c->plot;
    canvas_row(v);
    for (int i = 0; i < c->n_lines; i++) {
        const struct line *line = &c->lines[i];
        if (line->again)
            continue;
        const double x = canvas_entry(v, SAMPLE + SAMPLE_GAP, line->name);
        begin_group(v, line);
        if (c->has_lines)
            output_printf(v->out, "<path class=\"line\" d=\"M%g %gh%d\"/>", x, v->y, SAMPLE);
        put_marker(v, line, x + SAMPLE / 2.0, v->y);
        output_puts(v->out, "</g>\n");
    }
    canvas_row(v);
    put_note(v, p->mid_label,
             c->has_lines ? "<path class=\"line\" d=\"M0 0H30\"/>"
                            "<circle class=\"marker\" cx=\"15\" r=\"4.3\"/>"
                          : "<circle class=\"marker\" cx=\"15\" r=\"4.3\"/>");
    if (c->has_again)
        put_note(v, p->again_label,
                 "<path class=\"line again\" d=\"M0 0H30\"/>"
                 "<circle class=\"hollow\" cx=\"15\" r=\"4.3\"/>");
    if (c->has_bars)
        put_note(v, p->band_label, "<path class=\"bar\" d=\"M11 -7h8m-4 0v14m-4 0h8\"/>");
    if (c->has_predicted)
        put_note(v, p->predicted_label, "<path class=\"predicted\" d=\"M0 0H30\"/>");
}

/* --- the file ------------------------------------------------------------------------------- */

/* "MHA: 20.1 at 0 to 27.9 at 255." for every line, for those who cannot see the picture. */
static void put_description(const struct chart *c, struct output *out)
{
    output_puts(out, "<desc>");
    canvas_put_text(out, text_or_none(c->plot->y_label), (double)INFINITY);
    output_puts(out, " against ");
    canvas_put_text(out, text_or_none(c->plot->x_label), (double)INFINITY);
    output_puts(out, ".");
    for (int i = 0; i < c->n_lines; i++) {
        const struct line *line = &c->lines[i];
        output_puts(out, "\n");
        canvas_put_text(out, line->name, SPOKEN);
        for (int k = 0, n = 0; k < line->n_points; k++) {
            if (isnan(line->points[k].mid))
                continue;
            if (n == 0 || n == line->n_mid - 1)
                put_spoken(out, n == 0 ? ": " : " to ", &line->points[k]);
            n++;
        }
        output_puts(out, ".");
    }
    output_puts(out, "</desc>\n");
}

static double draw_chart(struct canvas *v, const void *what)
{
    struct chart c = *(const struct chart *)what;
    canvas_begin(v, WIDTH, text_or_none(c.plot->title), text_or_none(c.plot->subtitle));
    put_description(&c, v->out);
    draw_legend(&c, v);
    draw_axes(&c, v, v->y);
    for (int i = 0; i < c.n_lines; i++)
        draw_line(&c, v, i);
    return c.bottom + AXIS_HEIGHT;
}

enum status plot_write(const struct plot *p, const char *path, struct err *e)
{
    struct chart c = {.plot = p};
    enum status s = take_lines(&c, path, e);
    if (s == STATUS_OK) {
        choose_axes(&c);
        s = canvas_write(draw_chart, &c, path, e);
    }
    free(c.points);
    free(c.lines);
    return s;
}
