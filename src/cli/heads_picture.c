#include "cli/heads_picture.h"

#include <stdio.h>
#include <stdlib.h>

#include "show/heatmap.h"

_Static_assert(HEADS_PICTURE_MOST <= HEATMAP_LARGE, "a chart has room for all heads");

/* All of it freed together. */
struct heads_picture {
    float *cells;            /* [n_rows, n_heads]; 0 where nothing is measured */
    char (*names)[16];       /* [n_rows + n_heads] of layers, then of heads */
    struct text *name_texts; /* the same */
    char title[256], subtitle[256];
    double most;
};

static enum status allocate(struct heads_picture *p, size_t n_rows, size_t n_heads, struct err *e)
{
    const size_t n = n_rows + n_heads;
    p->cells = calloc(n_rows * n_heads, sizeof *p->cells);
    p->names = calloc(n, sizeof *p->names);
    p->name_texts = calloc(n, sizeof *p->name_texts);
    if (!p->cells || !p->names || !p->name_texts)
        return err_no_memory(e, "the picture", n_rows * n_heads * sizeof *p->cells);
    return STATUS_OK;
}

static void fill(struct heads_picture *p, const struct heads_result *r, int n_rows, int n_heads,
                 const char *subject)
{
    for (int i = 0; i < r->n_done; i++) {
        const double delta = r->heads[i].delta_nll;
        p->cells[i] = (float)(delta > 0 ? delta : 0);
        p->most = delta > p->most ? delta : p->most;
    }
    for (int i = 0; i < n_rows + n_heads; i++) {
        const int number = i < n_rows ? r->heads[i * n_heads].layer : i - n_rows;
        snprintf(p->names[i], sizeof p->names[i], i < n_rows ? "layer %d" : "%d", number);
        p->name_texts[i] = text_of(p->names[i]);
    }
    snprintf(p->title, sizeof p->title, "%.160s: loss without each head", subject);
    snprintf(p->subtitle, sizeof p->subtitle,
             "%llu tokens, %.4f nats each with all heads; blank: less, or a gain",
             (unsigned long long)r->whole.tokens, r->whole.nll);
}

enum status heads_write_picture(const struct heads_result *r, int n_heads, const char *subject,
                                const char *path, struct err *e)
{
    const int n_rows = (r->n_done + n_heads - 1) / n_heads;
    struct heads_picture p = {.most = 0};
    enum status s = allocate(&p, (size_t)n_rows, (size_t)n_heads, e);
    if (s == STATUS_OK) {
        fill(&p, r, n_rows, n_heads, subject);
        const struct heatmap_map map = {.cells = p.cells, .group = -1};
        const struct heatmap_picture picture = {
            .title = p.title,
            .subtitle = p.subtitle,
            .what = "nats a token",
            .scale = heatmap_scale(p.most, true),
            .maps = &map,
            .n_rows = 1,
            .n_columns = 1,
            .map_rows = n_rows,
            .map_columns = n_heads,
            .row_names = p.name_texts,
            .column_names = p.name_texts + n_rows,
        };
        s = heatmap_write(&picture, path, e);
    }
    free(p.cells);
    free(p.names);
    free(p.name_texts);
    return s;
}
