#include "cli/attend_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "show/heatmap.h"

/* Bytes of the text that a subtitle quotes, at most. */
#define QUOTED 120
/* Of a token's name beside a large map, and on a terminal. */
#define LARGE_LABEL    16
#define TERMINAL_LABEL 12

/* Cells of a drawing, however wide the terminal. */
#define MOST_SHOWN 512

#define NOTE_BYTES 200

static float largest_weight(const struct attend_map *m)
{
    const size_t n_cells = (size_t)m->cells * (size_t)m->cells;
    float most = 0;
    for (size_t k = 0; k < n_cells; k++)
        most = m->cell[k] > most ? m->cell[k] : most;
    return most;
}

/* Of n maps: everything is a share of the largest weight. */
static struct heatmap_scale scale_of(const struct attend_map *maps, int n, bool log)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, largest_weight(&maps[i]));
    return heatmap_scale((double)most, log);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* What an SVG file is made of; all of it freed together. */
struct attend_picture {
    const struct attend_view *v;
    char title[256], subtitle[512 + NOTE_BYTES];
    struct heatmap_map *maps;    /* [n_maps] */
    char (*names)[32];           /* [n_maps] */
    char (*notes)[NOTE_BYTES];   /* [n_maps] */
    struct attend_label *labels; /* [n_labels] of rows of maps, or of a large map's cells */
    struct text *label_texts;    /* the same */
};

/* The beginning of the text, whole tokens; false: there is more. */
static bool quote(const struct attend_view *v, char *quoted, size_t size)
{
    size_t used = 0;
    int i = 0;
    for (; i < v->n_tokens; i++) {
        const struct text t =
            v->tokenizer ? tokenizer_bytes(v->tokenizer, v->tokens[i]) : (struct text){"", 0};
        if (t.len >= size - used)
            break;
        memcpy(quoted + used, t.data, t.len);
        used += t.len;
    }
    quoted[used] = 0;
    for (size_t k = 0; k < used; k++)
        if (!quoted[k])
            quoted[k] = ' ';
    return i == v->n_tokens;
}

static void fill_map(struct attend_picture *p, int at)
{
    const struct attend_view *v = p->v;
    const struct attend_head *h = &v->figures[at];
    snprintf(p->names[at], sizeof p->names[at], "%d.%d", h->layer, h->head);
    snprintf(p->notes[at], NOTE_BYTES,
             "layer %d, head %d, %s: entropy %.2f nats, %.1f tokens back, first %s, previous %s, "
             "itself %s",
             h->layer, h->head, v->variant, h->entropy, h->distance, attend_weight(h->first).text,
             attend_weight(h->previous).text, attend_weight(h->self).text);
    p->maps[at] = (struct heatmap_map){
        .cells = v->pictures[at].cell,
        .name = p->names[at],
        .note = p->notes[at],
        .group = attend_is_shared(v, h->layer) ? attend_kv_head(v, h) : -1,
    };
}

/* Of a single head's picture what small ones show when pointed at. */
static void describe(struct attend_picture *p, bool large)
{
    const struct attend_view *v = p->v;
    const struct attend_map *m = v->pictures;
    char quoted[QUOTED], cells[80] = "";
    const bool whole = quote(v, quoted, sizeof quoted);
    if (m->cells < v->n_tokens)
        snprintf(cells, sizeof cells, " A cell is the largest weight of %.1f by %.1f tokens.",
                 (double)v->n_tokens / m->cells, (double)v->n_tokens / m->cells);
    snprintf(p->title, sizeof p->title, "What the heads of %.160s look at", v->subject);
    snprintf(p->subtitle, sizeof p->subtitle,
             "Queries from top to bottom, keys from left to right: %d token%s, “%s”%s.%s%s%s%s",
             v->n_tokens, plural((uint64_t)v->n_tokens), quoted, whole ? "" : " and so on", cells,
             m->without_first ? " The first key is left out." : "", large ? " This is " : "",
             large ? p->notes[0] : "");
}

static enum status draw_svg(struct attend_picture *p, bool log, const char *path, struct err *e)
{
    const struct attend_view *v = p->v;
    const int n_maps = v->n_rows * v->n_columns, cells = v->pictures->cells;
    const bool large = n_maps == 1;
    const size_t n_labels = (size_t)(large ? cells : v->n_rows);
    p->maps = calloc((size_t)n_maps, sizeof *p->maps);
    p->names = calloc((size_t)n_maps, sizeof *p->names);
    p->notes = calloc((size_t)n_maps, sizeof *p->notes);
    p->labels = calloc(n_labels, sizeof *p->labels);
    p->label_texts = calloc(n_labels, sizeof *p->label_texts);
    if (!p->maps || !p->names || !p->notes || !p->labels || !p->label_texts)
        return err_no_memory(e, "the picture", (size_t)n_maps * sizeof *p->notes);
    for (int at = 0; at < n_maps; at++)
        fill_map(p, at);
    if (large)
        p->maps[0].name = p->maps[0].note = NULL;
    describe(p, large);
    for (size_t i = 0; i < n_labels; i++) {
        if (large)
            p->labels[i] =
                attend_label(v, attend_cell_begin((int)i, cells, v->n_tokens), LARGE_LABEL, true);
        else
            snprintf(p->labels[i].text, sizeof p->labels[i].text, "layer %d", v->layers.items[i]);
        p->label_texts[i] = text_of(p->labels[i].text);
    }
    const struct heatmap_picture picture = {.title = p->title,
                                            .subtitle = p->subtitle,
                                            .what = "weight",
                                            .scale = scale_of(v->pictures, n_maps, log),
                                            .maps = p->maps,
                                            .n_rows = v->n_rows,
                                            .n_columns = v->n_columns,
                                            .map_rows = cells,
                                            .map_columns = cells,
                                            .triangle = true,
                                            .row_names = p->label_texts,
                                            .column_names = large ? p->label_texts : NULL};
    return heatmap_write(&picture, path, e);
}

enum status attend_write_svg(const struct attend_view *v, const char *path, bool log, struct err *e)
{
    struct attend_picture p = {.v = v};
    const enum status s = draw_svg(&p, log, path, e);
    free(p.maps);
    free(p.names);
    free(p.notes);
    free(p.labels);
    free(p.label_texts);
    return s;
}

/* --- on a terminal --------------------------------------------------------------------------- */

static int digits_of(int n)
{
    return snprintf(NULL, 0, "%d", n);
}

/* Columns of a line beside its cells: the position, the token and blanks around. */
static int beside_cells(int n_tokens)
{
    return digits_of(n_tokens - 1) + 2 + TERMINAL_LABEL;
}

int attend_shown_cells(int n_tokens, int width)
{
    const int room = width - beside_cells(n_tokens);
    if (n_tokens <= room && n_tokens <= MOST_SHOWN)
        return n_tokens;
    return room < 1 ? 1 : room < HEATMAP_SMALL ? room : HEATMAP_SMALL;
}

void attend_draw(const struct attend_view *v, enum heatmap_ink ink, bool log, int width,
                 struct output *out)
{
    unsigned char levels[MOST_SHOWN];
    const struct attend_map *m = v->shown;
    const struct heatmap_scale scale = scale_of(m, 1, log);
    const int digits = digits_of(v->n_tokens - 1);
    const int of_cell = 2 * m->cells <= width - beside_cells(v->n_tokens) ? 2 : 1;
    output_printf(out, "head %s\n", v->wanted.show);
    for (int r = 0; r < m->cells; r++) {
        const float *row = m->cell + (size_t)r * (size_t)m->cells;
        const int token = attend_cell_begin(r, m->cells, v->n_tokens);
        heatmap_levels(&scale, row, r + 1, levels);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, of_cell);
        output_printf(out, " %s\n", attend_label(v, token, TERMINAL_LABEL, true).text);
    }
    if (m->cells < v->n_tokens)
        output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells,
                      v->n_tokens);
    heatmap_put_legend(out, ink, &scale, "weight");
}
