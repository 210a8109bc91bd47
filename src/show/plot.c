#include "show/plot.h"

#include <math.h>
#include <stdlib.h>

#include "base/figures.h"
#include "base/mem.h"
#include "show/canvas.h"

#define WIDTH          860
#define AREA_HEIGHT    330
#define AXIS_HEIGHT    58 /* tick labels and the label below the data area */
#define Y_LABEL_HEIGHT 46
#define TICK_GAP       10    /* between a tick's label and the data area */
#define INNER_MARGIN   14    /* keeps markers off the data area's left and right */
#define MOST_TICKS     9     /* of an axis */
#define ONE_X_SPACING  130.0 /* between lines that share one x, at most */
#define MARK_ABOVE     6     /* of a point's mark over its middle, and beside it */
#define MARK_BESIDE    9
#define CAP            4  /* half the width of an error bar's ends */
#define PREDICTED_HALF 18 /* of a prediction that has no neighbour */
#define VALUE_SPACING  80 /* between lines, that values fit beside their markers */
#define SAMPLE         30 /* width of a legend's line */
#define SAMPLE_GAP     7
#define SPOKEN         620 /* pixels of a name where only one of many figures is told */

/* Points of one line. */
struct line {
    const struct plot_point *points; /* by rising x */
    int n_points;
};

struct axis {
    double lo, hi;
    struct tick {
        double at;
        struct figure label;
    } ticks[MOST_TICKS];
    int n_ticks;
};

struct chart {
    const struct plot *plot; /* texts as they were given */
    struct line *lines;      /* at least one point each */
    int n_lines;
    struct axis x, y; /* y includes 0 */
    bool one_x;       /* all points share x: lines stand side by side */
    bool has_lines, has_doubts;
    double left, right, top, bottom; /* of the data area, in pixels */
    double spacing;                  /* between neighbouring lines that share one x */
};

/* --- the data ------------------------------------------------------------------------------- */

static int compare_points(const void *left, const void *right)
{
    const struct plot_point *a = left, *b = right;
    if (a->line != b->line)
        return a->line > b->line ? 1 : -1;
    return (a->x > b->x) - (a->x < b->x);
}

/* --- axes ----------------------------------------------------------------------------------- */

#define SLACK        1e-9 /* of a step: an end this near to a tick is on it */
#define MIN_SPAN     1e-100
#define MIN_REL_SPAN 1e-12

/* Returns "-1,234.50"; or, where `size` (x's magnitude, or that of the axis) is too small or too
 * large for that, so many digits with an exponent. */
static struct figure written(double x, double size, int decimals, int digits)
{
    char text[48];
    struct figure f = {"0"};
    if (x != 0 && size >= 1e-5 && size < 1e15) {
        chars_printf(text, "%.*f", decimals > 0 ? decimals : 0, fabs(x));
        const int len =
            chars_printf(f.text, "%s%s%s", x < 0 ? "-" : "",
                         figure_grouped(strtoull(text, NULL, 10)).text, text + strcspn(text, "."));
        assert(len < (int)sizeof f.text);
    } else if (x != 0) {
        chars_printf(f.text, "%.*g", digits, x);
    }
    return f;
}

/* Returns an integer as it is, another value to four digits or the integer: "1,024", "31.20",
 * "2.5e-09". */
static struct figure value_figure(double x)
{
    const bool whole = x == floor(x);
    return written(x, fabs(x), whole ? 0 : 3 - (int)floor(log10(fabs(x))), 4);
}

/* Moves the upper end up until ticks can tell it from the lower one. */
static void widen(struct axis *a)
{
    const double size = fmax(fabs(a->lo), fabs(a->hi));
    if (a->hi - a->lo < MIN_SPAN || a->hi - a->lo < size * MIN_REL_SPAN)
        a->hi = size < MIN_SPAN ? a->lo + 1 : a->lo + size;
}

static void add_tick(struct axis *a, double at, struct figure label)
{
    a->ticks[a->n_ticks++] = (struct tick){at, label};
}

/* x * 10^n, rounded once where 10^|n| is exact. */
static double scaled(double x, int n)
{
    return n < 0 ? x / pow(10, -n) : x * pow(10, n);
}

/* Adds the finest round ticks with at most `max_steps` (>= 1) steps that lie inside the axis, which
 * is widened, or, if `around`, enclose it. Its ends are at most 1e100 in magnitude. */
static void add_round_ticks(struct axis *a, int max_steps, bool around)
{
    static const int mantissas[] = {1, 2, 5};
    /* One decade finer than could do, so that the first fit is the finest. */
    for (int exponent = (int)floor(log10((a->hi - a->lo) / max_steps)) - 1; a->n_ticks == 0;
         exponent++)
        for (int i = 0; i < 3 && a->n_ticks == 0; i++) {
            const int mantissa = mantissas[i];
            const double from = scaled(a->lo, -exponent) / mantissa;
            const double to = scaled(a->hi, -exponent) / mantissa;
            const double first = around ? floor(from + SLACK) : ceil(from - SLACK);
            const double last = around ? ceil(to - SLACK) : floor(to + SLACK);
            const double most = scaled(fmax(fabs(first), fabs(last)) * mantissa, exponent);
            /* All have as many decimals; with an exponent, all digits that tell ticks apart, but
             * not those of rounding errors. */
            for (double k = first; k <= last && last - first <= max_steps; k++) {
                const double at = scaled(k * mantissa, exponent);
                add_tick(a, at, written(at, most, -exponent, 13));
            }
        }
}

/* Returns a value as the x axis counts. */
static double along_x(const struct chart *c, double x)
{
    return c->plot->x_doubles ? log2(x) : x;
}

static void choose_ticks(struct chart *c)
{
    struct axis *x = &c->x, *y = &c->y;
    widen(y);
    add_round_ticks(y, MOST_TICKS - 1, true);
    y->lo = y->ticks[0].at;
    y->hi = y->ticks[y->n_ticks - 1].at;
    c->one_x = x->lo == x->hi;
    if (c->one_x) {
        add_tick(x, x->lo, value_figure(x->lo));
        return;
    }
    /* Zero belongs to a depth axis unless it would take half of it. */
    const bool linear = !c->plot->x_doubles;
    if (linear && x->lo > 0 && x->lo <= x->hi / 2)
        x->lo = 0;
    widen(x);
    if (linear) {
        add_round_ticks(x, MOST_TICKS - 1, false);
    } else { /* powers of two, if two lie between; else the ends */
        const double first = ceil(log2(x->lo)), last = floor(log2(x->hi));
        const double step = ceil(fmax(last - first, 1) / (MOST_TICKS - 1));
        for (double power = first; power <= last && first < last; power += step)
            add_tick(x, exp2(power), value_figure(exp2(power)));
        if (x->n_ticks == 0)
            add_tick(x, x->lo, value_figure(x->lo));
        if (x->n_ticks == 1)
            add_tick(x, x->hi, value_figure(x->hi));
    }
}

/* Pixels of a value of line i. */
static double x_of(const struct chart *c, int i, double x)
{
    if (c->one_x)
        return (c->left + c->right) / 2 + (i - (c->n_lines - 1) / 2.0) * c->spacing;
    const double lo = along_x(c, c->x.lo),
                 share = (along_x(c, x) - lo) / (along_x(c, c->x.hi) - lo);
    const double from = c->left + INNER_MARGIN, to = c->right - INNER_MARGIN;
    return from + share * (to - from);
}

static double y_of(const struct chart *c, double y)
{
    return c->bottom - (y - c->y.lo) / (c->y.hi - c->y.lo) * (c->bottom - c->top);
}

/* Decides where the data area is. */
static void draw_axes(struct chart *c, struct canvas *v)
{
    const struct tick *x_end = c->x.ticks + c->x.n_ticks, *y_end = c->y.ticks + c->y.n_ticks;
    const double last = canvas_text_width(x_end[-1].label.text) / 2 - INNER_MARGIN;
    double widest = 0;
    for (const struct tick *t = c->y.ticks; t < y_end; t++)
        widest = fmax(widest, canvas_text_width(t->label.text));
    c->left = CANVAS_MARGIN + widest + TICK_GAP;
    c->right = WIDTH - CANVAS_MARGIN - fmax(last, 0);
    c->top = v->y + Y_LABEL_HEIGHT;
    c->bottom = c->top + AREA_HEIGHT;
    c->spacing = fmin(ONE_X_SPACING, (c->right - c->left) / c->n_lines);

    const double middle = (c->left + c->right) / 2, room = WIDTH - 2 * CANVAS_MARGIN;
    for (const struct tick *t = c->x.ticks; t < x_end; t++) {
        const double x = c->one_x ? middle : x_of(c, 0, t->at);
        if (!c->one_x)
            output_printf(v->out, "<path class=\"grid\" d=\"M%g %gV%g\"/>", x, c->top,
                          c->bottom + 5);
        canvas_label(v, "class=\"muted\" text-anchor=\"middle\"", x, c->bottom + 20, t->label.text,
                     room);
    }
    for (const struct tick *t = c->y.ticks; t < y_end; t++) {
        const double y = y_of(c, t->at);
        output_printf(v->out, "<path class=\"%s\" d=\"M%g %gH%g\"/>", t->at == 0 ? "axis" : "grid",
                      c->left, y, c->right);
        canvas_label(v, "class=\"muted\" text-anchor=\"end\"", c->left - TICK_GAP, y + 4,
                     t->label.text, room);
    }
    canvas_label(v, "", CANVAS_MARGIN, c->top - 15, c->plot->y_label, room);
    canvas_label(v, "text-anchor=\"middle\"", middle, c->bottom + 43, c->plot->x_label,
                 room - 2 * fabs(middle - WIDTH / 2.0));
}

/* --- lines ---------------------------------------------------------------------------------- */

/* Outlines around the middle, of areas that look alike. */
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
#define N_LOOKS 8 /* shapes, and colours, too */

/* Puts a marker of line i. Shapes move on by one when the colours begin again, so that 64 lines
 * look different. */
static void put_marker(struct canvas *v, const char *class, int i, double x, double y)
{
    output_printf(v->out, "<path class=\"%s\" d=\"M%g %g%s\"/>", class, x, y,
                  shapes[(i + i / N_LOOKS) % N_LOOKS]);
}

/* Puts the path of a line through its middles or predictions, or at each a dash of 2 `dash` pixels.
 */
static void put_path(const struct chart *c, struct canvas *v, int i, bool predicted, double dash)
{
    const struct line *line = &c->lines[i];
    char step = 'M';
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        const double value = predicted ? p->predicted : p->mid;
        const double x = x_of(c, i, p->x), y = y_of(c, value);
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
    output_printf(out, "%s%s at %s", before, value_figure(p->mid).text, value_figure(p->x).text);
}

static void draw_line(const struct chart *c, struct canvas *v, int i)
{
    const struct line *line = &c->lines[i];
    output_printf(v->out, "<g class=\"c%d\">", i % N_LOOKS);
    output_puts(v->out, "<path class=\"predicted\" d=\"");
    put_path(c, v, i, true,
             c->one_x              ? fmin(PREDICTED_HALF, c->spacing * 0.45)
             : line->n_points == 1 ? PREDICTED_HALF
                                   : 0);
    if (line->n_points > 1) {
        output_puts(v->out, "<path class=\"line\" d=\"");
        put_path(c, v, i, false, 0);
    }
    for (int k = 0; k < line->n_points; k++) {
        const struct plot_point *p = &line->points[k];
        const double x = x_of(c, i, p->x), y = y_of(c, p->mid);
        /* "GQA-4: 31.26 at 1,024 (30.1 to 33), predicted 29.8", which a pointer brings up. */
        output_puts(v->out, "\n<g><title>");
        canvas_put_text(v->out, line->points->name, SPOKEN);
        put_spoken(v->out, ": ", p);
        output_printf(v->out, " (%s to %s), predicted %s", value_figure(p->low).text,
                      value_figure(p->high).text, value_figure(p->predicted).text);
        if (p->doubt[0]) {
            output_puts(v->out, ": ");
            canvas_put_text(v->out, p->doubt, HUGE_VAL);
        }
        output_puts(v->out, "</title>");
        output_printf(v->out, "<path class=\"bar\" d=\"M%g %gh%dm%d 0V%gm%d 0h%d\"/>", x - CAP,
                      y_of(c, p->high), 2 * CAP, -CAP, y_of(c, p->low), -CAP, 2 * CAP);
        put_marker(v, p->doubt[0] ? "marker doubt" : "marker", i, x, y);
        output_puts(v->out, "</g>");
        if (p->mark[0])
            canvas_label(v, "text-anchor=\"middle\"", x + MARK_BESIDE, y - MARK_ABOVE, p->mark,
                         WIDTH);
        if (c->one_x && line->n_points == 1 && c->spacing >= VALUE_SPACING)
            canvas_label(v, "", x + 25, y + 4, value_figure(p->mid).text, WIDTH);
    }
    output_puts(v->out, "</g>\n");
}

/* --- the file ------------------------------------------------------------------------------- */

/* Draws the legend: the names of the lines, then grey samples of the kinds of lines. */
static void draw_names(const struct chart *c, struct canvas *v)
{
    const struct plot *p = c->plot;
    canvas_row(v);
    for (int i = 0; i < c->n_lines; i++) {
        const struct line *line = &c->lines[i];
        const double x = canvas_entry(v, SAMPLE + SAMPLE_GAP, line->points->name);
        output_printf(v->out, "<g class=\"c%d\">", i % N_LOOKS);
        if (c->has_lines)
            output_printf(v->out, "<path class=\"line\" d=\"M%g %gh%d\"/>", x, v->y, SAMPLE);
        put_marker(v, "marker", i, x + SAMPLE / 2.0, v->y);
        output_puts(v->out, "</g>\n");
    }
    canvas_row(v);
    const struct {
        bool drawn;
        const char *label, *line, *marker;
    } notes[] = {
        {true, p->mid_label, c->has_lines ? "<path class=\"line\" d=\"M0 0H30\"/>" : "",
         "<circle class=\"marker\" cx=\"15\" r=\"4.3\"/>"},
        {true, p->band_label, "<path class=\"bar\" d=\"M11 -7h8m-4 0v14m-4 0h8\"/>", ""},
        {true, p->predicted_label, "<path class=\"predicted\" d=\"M0 0H30\"/>", ""},
        {c->has_doubts, p->doubt_label, "", "<circle class=\"marker doubt\" cx=\"15\" r=\"4.3\"/>"},
    };
    for (int i = 0; i < LENGTH(notes); i++) {
        if (!notes[i].drawn)
            continue;
        const double x = canvas_entry(v, SAMPLE + SAMPLE_GAP, notes[i].label);
        output_printf(v->out, "<g class=\"note\" transform=\"translate(%g %g)\">%s%s</g>\n", x,
                      v->y, notes[i].line, notes[i].marker);
    }
}

static double draw_chart(struct canvas *v, const void *what)
{
    struct chart c = *(const struct chart *)what;
    canvas_begin(v, WIDTH, c.plot->title, c.plot->subtitle);
    /* "MHA: 20.1 at 0 to 27.9 at 255." for every line, for those who cannot see the picture. */
    output_puts(v->out, "<desc>");
    canvas_put_text(v->out, c.plot->y_label, HUGE_VAL);
    output_puts(v->out, " against ");
    canvas_put_text(v->out, c.plot->x_label, HUGE_VAL);
    for (int i = 0; i < c.n_lines; i++) {
        const struct line *line = &c.lines[i];
        output_puts(v->out, ".\n");
        canvas_put_text(v->out, line->points->name, SPOKEN);
        put_spoken(v->out, ": ", &line->points[0]);
        if (line->n_points > 1)
            put_spoken(v->out, " to ", &line->points[line->n_points - 1]);
    }
    output_puts(v->out, ".</desc>\n");
    draw_names(&c, v);
    draw_axes(&c, v);
    for (int i = 0; i < c.n_lines; i++)
        draw_line(&c, v, i);
    return c.bottom + AXIS_HEIGHT;
}

/* Adds the line that the first of n points begins, and widens the axes to it. */
static void add_line(struct chart *c, const struct plot_point *points, int n)
{
    struct line *line = &c->lines[c->n_lines++];
    *line = (struct line){.points = points};
    for (; line->n_points < n && points[line->n_points].line == points->line; line->n_points++) {
        const struct plot_point *q = &points[line->n_points];
        c->has_doubts |= q->doubt[0] != 0;
        /* fmin and fmax pass over the NaN that x begins as. */
        c->x.lo = fmin(c->x.lo, q->x);
        c->x.hi = fmax(c->x.hi, q->x);
        c->y.lo = fmin(c->y.lo, fmin(q->predicted, q->low));
        c->y.hi = fmax(c->y.hi, fmax(q->predicted, q->high));
    }
    c->has_lines |= line->n_points > 1;
}

enum status plot_write(const struct plot *p, const char *path, struct err *e)
{
    struct chart c = {.plot = p, .x = {.lo = NO_FIGURE, .hi = NO_FIGURE}};
    TRY_ZEROED(c.lines, p->n_points, "the plot", e);
    qsort(p->points, p->n_points, sizeof *p->points, compare_points);
    for (int i = 0; i < p->n_points; i += c.lines[c.n_lines - 1].n_points)
        add_line(&c, p->points + i, p->n_points - i);
    choose_ticks(&c);
    const enum status s = canvas_write(draw_chart, &c, path, e);
    free(c.lines);
    return s;
}
