#include "show/plot_chart.h"

#include <math.h>
#include <stdlib.h>

#define MAX_MAGNITUDE 1e100
#define MAX_ONE_X     130.0

/* --- the data ------------------------------------------------------------------------------- */

static double drawable(double v)
{
    return isfinite(v) && fabs(v) <= MAX_MAGNITUDE ? v : (double)NAN;
}

/* False if nothing of the point is left. */
static bool clean_point(const struct plot_point *from, struct plot_point *to)
{
    const double nothing = (double)NAN;
    *to = (struct plot_point){drawable(from->x), drawable(from->low), drawable(from->mid),
                              drawable(from->high), drawable(from->predicted)};
    if (isnan(to->low) || isnan(to->mid) || isnan(to->high))
        to->low = to->high = nothing;
    return !isnan(to->x) && !(isnan(to->mid) && isnan(to->predicted));
}

/* NaN after all numbers, so that the order is total. */
static int compare_doubles(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_points(const void *left, const void *right)
{
    const struct plot_point *a = left, *b = right;
    const double of_a[] = {a->x, a->mid, a->low, a->high, a->predicted};
    const double of_b[] = {b->x, b->mid, b->low, b->high, b->predicted};
    int order = 0;
    for (int i = 0; i < 5 && order == 0; i++)
        order = compare_doubles(of_a[i], of_b[i]);
    return order;
}

static struct text text_or_empty(const char *s)
{
    return text_of(s ? s : "");
}

static struct plot_line make_line(const struct plot_series *s, int style, struct plot_point *points)
{
    struct plot_line line = {.name = text_or_empty(s->name), .points = points, .style = style};
    for (int i = 0; i < s->n_points; i++) {
        struct plot_point *p = &points[line.n_points];
        if (!clean_point(&s->points[i], p))
            continue;
        line.n_points++;
        line.n_mid += !isnan(p->mid);
        line.n_band += !isnan(p->low);
        line.n_predicted += !isnan(p->predicted);
    }
    qsort(points, (size_t)line.n_points, sizeof *points, compare_points);
    return line;
}

static enum status take_lines(struct plot_chart *c, const struct plot *p, const char *path,
                              struct err *e)
{
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
    for (int i = 0; i < p->n_series; i++) {
        const struct plot_line line = make_line(&p->series[i], i, points);
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

bool plot_has_bars(const struct plot_chart *c, const struct plot_line *line)
{
    return c->one_x || line->n_mid == 1;
}

/* fmin and fmax pass over what is left out. */
static void find_ends(struct plot_chart *c)
{
    const double nothing = (double)NAN;
    c->x_lo = c->x_hi = nothing;
    c->y_lo = c->y_hi = 0;
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
    }
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
    /* Zero belongs to a depth axis unless it would take half of it. */
    if (c->x_lo > 0 && c->x_lo <= c->x_hi / 2)
        c->x_lo = 0;
    scale_widen(c->x_lo, &c->x_hi);
    c->x_ticks = scale_ticks(c->x_lo, c->x_hi, 8, false);
}

enum status plot_chart_create(struct plot_chart *c, const struct plot *p, const char *path,
                              struct err *e)
{
    *c = (struct plot_chart){
        .title = text_or_empty(p->title),
        .subtitle = text_or_empty(p->subtitle),
        .x_label = text_or_empty(p->x_label),
        .y_label = text_or_empty(p->y_label),
        .mid_label = text_or_empty(p->mid_label),
        .band_label = text_or_empty(p->band_label),
        .predicted_label = text_or_empty(p->predicted_label),
    };
    const enum status s = take_lines(c, p, path, e);
    if (s == STATUS_OK)
        choose_axes(c);
    return s;
}

void plot_chart_free(struct plot_chart *c)
{
    free(c->points);
    free(c->lines);
}

/* --- places --------------------------------------------------------------------------------- */

double plot_one_x_spacing(const struct plot_chart *c)
{
    return fmin(MAX_ONE_X, (c->right - c->left) / c->n_lines);
}

double plot_x(const struct plot_chart *c, int i, double x)
{
    if (c->one_x)
        return (c->left + c->right) / 2 + (i - (c->n_lines - 1) / 2.0) * plot_one_x_spacing(c);
    const double from = c->left + PLOT_INNER_MARGIN, to = c->right - PLOT_INNER_MARGIN;
    return from + (x - c->x_lo) / (c->x_hi - c->x_lo) * (to - from);
}

double plot_y(const struct plot_chart *c, double y)
{
    return c->bottom - (y - c->y_lo) / (c->y_hi - c->y_lo) * (c->bottom - c->top);
}
