#include "show/plot_chart.h"

#define ROW_HEIGHT 22
#define SAMPLE     30 /* width of what stands before a legend entry's text */
#define SAMPLE_GAP 7
#define ENTRY_GAP  22
#define MAX_ENTRY  380.0 /* of its text */

#define DIRECT_HEIGHT    18
#define DIRECT_MARKER    30 /* right of the data area's markers */
#define DIRECT_TEXT      40
#define MAX_DIRECT       190.0
#define MAX_DIRECT_NAMES 12 /* more lines have their names in the legend */

/* --- headings ------------------------------------------------------------------------------- */

double plot_headings(const struct plot_chart *c)
{
    return svg_headings(c->out, plot_text(c->plot->title), plot_text(c->plot->subtitle),
                        PLOT_MARGIN, PLOT_WIDTH - 2 * PLOT_MARGIN);
}

/* --- legend --------------------------------------------------------------------------------- */

struct legend {
    const struct plot_chart *c;
    double column; /* width of an entry with its gap; 0 for each its own */
    double x, y;   /* left end of the next entry, middle of its row */
};

static double entry_width(struct text text)
{
    const struct svg_piece piece = svg_text_fit(text, SVG_FONT_SIZE, MAX_ENTRY);
    return SAMPLE + SAMPLE_GAP + svg_piece_width(piece, SVG_FONT_SIZE);
}

static void legend_begin_row(struct legend *l)
{
    l->x = PLOT_MARGIN;
    l->y += ROW_HEIGHT;
}

/* Makes room for an entry and draws its text; returns its sample's left end. */
static double place_entry(struct legend *l, struct text text)
{
    const double width = entry_width(text);
    if (l->x + width > PLOT_WIDTH - PLOT_MARGIN)
        legend_begin_row(l);
    const double x = l->x;
    l->x += l->column > 0 ? l->column : width + ENTRY_GAP;
    svg_label(l->c->out, "", x + SAMPLE + SAMPLE_GAP, l->y + 4.5,
              svg_text_fit(text, SVG_FONT_SIZE, MAX_ENTRY));
    return x;
}

static void line_entry(struct legend *l, const struct plot_line *line)
{
    const double x = place_entry(l, line->name);
    struct output *out = l->c->out;
    svg_begin_group(out, line->style);
    if (l->c->has_lines)
        svg_shape(out, "<path class=\"line\" d=\"M@ @H@\"/>", (double[]){x, l->y, x + SAMPLE});
    svg_marker(out, line->style, false, x + SAMPLE / 2.0, l->y);
    output_puts(out, "</g>\n");
}

/* In columns where they need more than one row. */
static void line_entries(struct legend *l)
{
    double widest = 0, total = 0;
    for (int i = 0; i < l->c->n_lines; i++) {
        if (l->c->lines[i].again)
            continue;
        const double width = entry_width(l->c->lines[i].name) + ENTRY_GAP;
        widest = fmax(widest, width);
        total += width;
    }
    l->column = total - ENTRY_GAP > PLOT_WIDTH - 2 * PLOT_MARGIN ? widest : 0;
    legend_begin_row(l);
    for (int i = 0; i < l->c->n_lines; i++)
        if (!l->c->lines[i].again)
            line_entry(l, &l->c->lines[i]);
    l->column = 0;
}

/* A grey sample: the '@' of `shape` are x and y in turn, from the sample's left end and middle. */
static void note_entry(struct legend *l, struct text text, const char *shape,
                       const double offsets[14])
{
    if (text.len == 0)
        return;
    const double x = place_entry(l, text);
    double at[14];
    for (int i = 0; i < 14; i++)
        at[i] = offsets[i] + (i % 2 ? l->y : x);
    output_puts(l->c->out, "<g class=\"note\">");
    svg_shape(l->c->out, shape, at);
    output_puts(l->c->out, "</g>\n");
}

#define MARKER_SHAPE "<circle class=\"marker\" cx=\"@\" cy=\"@\" r=\"4.3\"/>"

static void note_entries(struct legend *l)
{
    const struct plot_chart *c = l->c;
    const double mid = SAMPLE / 2.0;
    if (c->has_lines)
        note_entry(l, plot_text(c->plot->mid_label),
                   "<path class=\"line\" d=\"M@ @L@ @\"/>" MARKER_SHAPE,
                   (double[14]){0, 0, SAMPLE, 0, mid, 0});
    else
        note_entry(l, plot_text(c->plot->mid_label), MARKER_SHAPE, (double[14]){mid, 0});
    if (c->has_again)
        note_entry(l, plot_text(c->plot->again_label),
                   "<path class=\"line\"" PLOT_AGAIN " d=\"M@ @L@ @\"/>"
                   "<circle class=\"hollow\" cx=\"@\" cy=\"@\" r=\"4.3\"/>",
                   (double[14]){0, 0, SAMPLE, 0, mid, 0});
    if (c->has_bands)
        note_entry(l, plot_text(c->plot->band_label),
                   "<path class=\"band\" d=\"M@ @L@ @L@ @L@ @Z\"/>",
                   (double[14]){0, -7, SAMPLE, -7, SAMPLE, 7, 0, 7});
    else if (c->has_bars)
        note_entry(l, plot_text(c->plot->band_label),
                   "<path class=\"bar\" d=\"M@ @L@ @M@ @L@ @M@ @L@ @\"/>",
                   (double[14]){mid - 5, -7, mid + 5, -7, mid, -7, mid, 7, mid - 5, 7, mid + 5, 7});
    if (c->has_predicted)
        note_entry(l, plot_text(c->plot->predicted_label),
                   "<path class=\"predicted\" d=\"M@ @L@ @\"/>", (double[14]){0, 0, SAMPLE, 0});
}

double plot_legend(const struct plot_chart *c, double top)
{
    struct legend l = {.c = c, .y = top - ROW_HEIGHT / 2.0};
    if (!c->direct)
        line_entries(&l);
    legend_begin_row(&l);
    note_entries(&l);
    return l.y + ROW_HEIGHT / 2.0 - top;
}

/* --- names at the lines' ends --------------------------------------------------------------- */

double plot_direct_width(const struct plot_chart *c)
{
    double widest = 0;
    if (c->one_x || c->has_again || c->n_lines > MAX_DIRECT_NAMES)
        return 0;
    for (int i = 0; i < c->n_lines; i++) {
        const struct plot_point *last = c->lines[i].last;
        if (!last || last->x < c->x_hi)
            return 0;
        widest = fmax(widest, svg_text_width(c->lines[i].name, SVG_FONT_SIZE));
    }
    return widest <= MAX_DIRECT ? DIRECT_TEXT + widest : 0;
}

/* Names that touch stand together, centred on where they would be. */
struct cluster {
    double middle;
    int first, n;
};

static double cluster_top(const struct plot_chart *c, const struct cluster *k)
{
    const double half = (k->n - 1) * DIRECT_HEIGHT / 2.0;
    return fmax(c->top, fmin(c->bottom, k->middle + half) - 2 * half);
}

/* Spreads wanted[n], rising, into places at least DIRECT_HEIGHT apart. */
static void spread(const struct plot_chart *c, const double *wanted, double *places, int n)
{
    struct cluster clusters[MAX_DIRECT_NAMES];
    int n_clusters = 0;
    for (int i = 0; i < n; i++) {
        clusters[n_clusters++] = (struct cluster){wanted[i], i, 1};
        while (n_clusters > 1) {
            struct cluster *a = &clusters[n_clusters - 2], *b = &clusters[n_clusters - 1];
            if (cluster_top(c, a) + a->n * DIRECT_HEIGHT <= cluster_top(c, b))
                break;
            a->middle = (a->middle * a->n + b->middle * b->n) / (a->n + b->n);
            a->n += b->n;
            n_clusters--;
        }
    }
    for (int k = 0; k < n_clusters; k++)
        for (int i = 0; i < clusters[k].n; i++)
            places[clusters[k].first + i] = cluster_top(c, &clusters[k]) + i * DIRECT_HEIGHT;
}

static void direct_label(const struct plot_chart *c, int i, double y_end, double y)
{
    const struct plot_line *line = &c->lines[i];
    const double x = plot_x(c, i, c->x_hi);
    svg_begin_group(c->out, line->style);
    svg_shape(c->out, "<path class=\"leader\" d=\"M@ @L@ @\"/>",
              (double[]){x + 8, y_end, x + DIRECT_MARKER - 8, y});
    svg_marker(c->out, line->style, false, x + DIRECT_MARKER, y);
    output_puts(c->out, "</g>");
    svg_label(c->out, "", x + DIRECT_TEXT, y + 4.5, (struct svg_piece){line->name, false});
}

void plot_direct_labels(const struct plot_chart *c)
{
    int order[MAX_DIRECT_NAMES];
    double wanted[MAX_DIRECT_NAMES], places[MAX_DIRECT_NAMES];
    for (int i = 0; i < c->n_lines; i++) {
        const double y = plot_y(c, c->lines[i].last->mid);
        int at = i;
        for (; at > 0 && wanted[at - 1] > y; at--) {
            wanted[at] = wanted[at - 1];
            order[at] = order[at - 1];
        }
        wanted[at] = y;
        order[at] = i;
    }
    spread(c, wanted, places, c->n_lines);
    for (int i = 0; i < c->n_lines; i++)
        direct_label(c, order[i], wanted[i], places[i]);
}
