#include "cli/attend_picture.h"
#include "base/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "show/heatmap_picture.h"

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

/* Of all sides' pictures, or of what they show: everything is a share of the largest weight. */
static struct heatmap_scale scale_of(const struct attend_view *v, bool shown, bool log)
{
    const int n = shown ? 1 : v->n_rows * v->n_columns;
    float most = 0;
    for (int s = 0; s < v->n_sides; s++)
        for (int i = 0; i < n; i++)
            most =
                fmaxf(most, largest_weight((shown ? v->sides[s].shown : v->sides[s].pictures) + i));
    return heatmap_scale((double)most, log);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* What an SVG file is made of; all of it freed together. */
struct attend_picture {
    const struct attend_view *v;
    char title[256], subtitle[512];
    struct heatmap_map *maps;    /* [n_maps] */
    char (*names)[32];           /* [n_maps] */
    char (*notes)[NOTE_BYTES];   /* [n_maps] */
    char (*row_names)[40];       /* [n_rows * n_sides] */
    const char **row_texts;      /* the same */
    struct attend_label *labels; /* [n_tokens] of a large map's cells */
    struct text *label_texts;
    size_t n_maps;
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

static void describe(struct attend_picture *p)
{
    const struct attend_view *v = p->v;
    const struct attend_map *m = v->sides[0].pictures;
    char quoted[QUOTED], cells[80] = "";
    const bool whole = quote(v, quoted, sizeof quoted);
    if (m->cells < v->n_tokens)
        snprintf(cells, sizeof cells, " A cell is the largest weight of %.1f by %.1f tokens.",
                 (double)v->n_tokens / m->cells, (double)v->n_tokens / m->cells);
    snprintf(p->title, sizeof p->title, "What the heads of %.160s look at%s%s", v->subject,
             v->n_sides > 1 ? ", and of its " : "", v->n_sides > 1 ? v->sides[1].variant : "");
    snprintf(p->subtitle, sizeof p->subtitle,
             "Queries from top to bottom, keys from left to right: %d token%s, “%s”%s.%s%s",
             v->n_tokens, plural((uint64_t)v->n_tokens), quoted, whole ? "" : " and so on", cells,
             m->without_first ? " The first key is left out." : "");
}

static enum status take_picture(struct attend_picture *p, struct err *e)
{
    const struct attend_view *v = p->v;
    const size_t n_rows = (size_t)v->n_rows * (size_t)v->n_sides;
    p->n_maps = n_rows * (size_t)v->n_columns;
    p->maps = calloc(p->n_maps, sizeof *p->maps);
    p->names = calloc(p->n_maps, sizeof *p->names);
    p->notes = calloc(p->n_maps, sizeof *p->notes);
    p->row_names = calloc(n_rows, sizeof *p->row_names);
    p->row_texts = calloc(n_rows, sizeof *p->row_texts);
    p->labels = calloc((size_t)v->n_tokens, sizeof *p->labels);
    p->label_texts = calloc((size_t)v->n_tokens, sizeof *p->label_texts);
    if (p->maps && p->names && p->notes && p->row_names && p->row_texts && p->labels &&
        p->label_texts)
        return STATUS_OK;
    return err_no_memory(e, "the picture", p->n_maps * sizeof *p->notes);
}

static void free_picture(struct attend_picture *p)
{
    free(p->maps);
    free(p->names);
    free(p->notes);
    free(p->row_names);
    free(p->row_texts);
    free(p->labels);
    free(p->label_texts);
}

/* Place `at` of a side as map i of the picture. */
static void fill_map(struct attend_picture *p, size_t i, int side, int at)
{
    const struct attend_view *v = p->v;
    const struct attend_side *s = &v->sides[side];
    const struct attend_head *h = &s->heads[at];
    const struct attend_map *m = &s->pictures[at];
    snprintf(p->names[i], sizeof p->names[i], "%d.%d", h->layer, v->names[at]);
    snprintf(p->notes[i], NOTE_BYTES,
             "layer %d, head %d, %s: entropy %.2f nats, %.1f tokens back, first %s, previous %s, "
             "itself %s",
             h->layer, v->names[at], s->variant, h->entropy, h->distance,
             attend_weight(h->first).text, attend_weight(h->previous).text,
             attend_weight(h->self).text);
    p->maps[i] = (struct heatmap_map){
        .cells = m->cell,
        .n_rows = m->cells,
        .n_columns = m->cells,
        .triangle = true,
        .group = attend_is_shared(s, h->layer) ? attend_kv_head(s, h) : -1,
        .name = p->names[i],
        .note = p->notes[i],
    };
}

static enum status write_small(struct attend_picture *p, const struct heatmap_caption *caption,
                               const char *path, struct err *e)
{
    const struct attend_view *v = p->v;
    for (int row = 0; row < v->n_rows * v->n_sides; row++) {
        const int side = row % v->n_sides, chosen = row / v->n_sides;
        snprintf(p->row_names[row], sizeof p->row_names[row], "layer %d%s%s",
                 v->layers.items[chosen], v->n_sides > 1 ? ", " : "",
                 v->n_sides > 1 ? v->sides[side].variant : "");
        p->row_texts[row] = p->row_names[row];
        for (int c = 0; c < v->n_columns; c++)
            fill_map(p, (size_t)row * (size_t)v->n_columns + (size_t)c, side,
                     chosen * v->n_columns + c);
    }
    const struct heatmap_sheet sheet = {.caption = *caption,
                                        .maps = p->maps,
                                        .n_rows = v->n_rows * v->n_sides,
                                        .n_columns = v->n_columns,
                                        .row_names = p->row_texts};
    return heatmap_write_sheet(&sheet, path, e);
}

static enum status write_large(struct attend_picture *p, const struct heatmap_caption *caption,
                               const char *path, struct err *e)
{
    const struct attend_view *v = p->v;
    const struct attend_map *m = v->sides[0].pictures;
    for (int s = 0; s < v->n_sides; s++) {
        fill_map(p, (size_t)s, s, 0);
        p->maps[s].name = p->notes[s];
        p->maps[s].note = NULL;
    }
    for (int c = 0; c < m->cells; c++) {
        p->labels[c] =
            attend_label(v, attend_cell_begin(c, m->cells, v->n_tokens), LARGE_LABEL, true);
        p->label_texts[c] = text_of(p->labels[c].text);
    }
    const struct heatmap_chart chart = {.caption = *caption,
                                        .maps = p->maps,
                                        .n_maps = v->n_sides,
                                        .row_names = p->label_texts,
                                        .column_names = p->label_texts};
    return heatmap_write_chart(&chart, path, e);
}

enum status attend_write_svg(const struct attend_view *v, const char *path, bool log, struct err *e)
{
    struct attend_picture p = {.v = v};
    describe(&p);
    const struct heatmap_caption caption = {.title = p.title,
                                            .subtitle = p.subtitle,
                                            .what = "weight",
                                            .scale = scale_of(v, false, log)};
    enum status s = take_picture(&p, e);
    if (s == STATUS_OK)
        s = v->n_rows * v->n_columns == 1 ? write_large(&p, &caption, path, e)
                                          : write_small(&p, &caption, path, e);
    free_picture(&p);
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

static void draw_side(const struct attend_view *v, const struct attend_side *side,
                      enum heatmap_ink ink, const struct heatmap_scale *scale, int width,
                      struct output *out)
{
    unsigned char levels[MOST_SHOWN];
    const struct attend_map *m = side->shown;
    const int digits = digits_of(v->n_tokens - 1);
    const int of_cell = 2 * m->cells <= width - beside_cells(v->n_tokens) ? 2 : 1;
    for (int r = 0; r < m->cells; r++) {
        const float *row = m->cell + (size_t)r * (size_t)m->cells;
        const int token = attend_cell_begin(r, m->cells, v->n_tokens);
        for (int c = 0; c <= r; c++)
            levels[c] = (unsigned char)heatmap_level(scale, (double)row[c]);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, of_cell);
        output_printf(out, " %s\n", attend_label(v, token, TERMINAL_LABEL, true).text);
    }
}

void attend_draw(const struct attend_view *v, enum heatmap_ink ink, bool log, int width,
                 struct output *out)
{
    const struct heatmap_scale scale = scale_of(v, true, log);
    for (int s = 0; s < v->n_sides; s++) {
        const struct attend_map *m = v->sides[s].shown;
        output_printf(out, "head %s%s%s\n", v->wanted.show, v->n_sides > 1 ? ", " : "",
                      v->n_sides > 1 ? v->sides[s].variant : "");
        draw_side(v, &v->sides[s], ink, &scale, width, out);
        if (m->cells < v->n_tokens)
            output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells,
                          v->n_tokens);
    }
    heatmap_put_legend(out, ink, &scale, "weight");
}
