#include "cli/attend_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "show/heatmap.h"
#include "show/paragraph.h"

#define OPEN_BOX "\xe2\x90\xa3"
#define ELLIPSIS "\xe2\x80\xa6"

/* --- heads ----------------------------------------------------------------------------------- */

int attend_kv_head(const struct attend_view *v, const struct attend_head *h)
{
    return h->head / config_group(&v->model->config, h->layer);
}

bool attend_is_shared(const struct attend_view *v, int layer)
{
    return config_group(&v->model->config, layer) > 1;
}

static size_t n_places(const struct attend_view *v)
{
    return (size_t)v->n_rows * (size_t)v->n_columns;
}

static enum status place_heads(struct attend_view *v, struct err *e)
{
    const struct config *c = &v->model->config;
    TRY(choice_of("--layer", v->wanted.layers, c->n_layers, "layer", &v->layers, e));
    TRY(choice_of("--head", v->wanted.heads, c->n_heads, "head", &v->heads, e));
    v->n_rows = v->layers.n;
    v->n_columns = v->heads.n;
    v->figures = calloc(n_places(v), sizeof *v->figures);
    if (!v->figures)
        return err_no_memory(e, "the list of heads", n_places(v) * sizeof *v->figures);
    for (int row = 0; row < v->n_rows; row++)
        for (int i = 0; i < v->n_columns; i++)
            v->figures[row * v->n_columns + i] =
                (struct attend_head){.layer = v->layers.items[row], .head = v->heads.items[i]};
    return STATUS_OK;
}

/* --- maps ------------------------------------------------------------------------------------ */

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

/* A map of every head. */
static struct attend_map *add_maps(struct attend_view *v, int cells, bool without_first)
{
    struct attend_map *maps = v->maps + v->n_maps;
    for (size_t i = 0; i < n_places(v); i++)
        maps[i] = (struct attend_map){.layer = v->figures[i].layer,
                                      .head = v->figures[i].head,
                                      .cells = cells,
                                      .without_first = without_first};
    v->n_maps += (int)n_places(v);
    return maps;
}

static enum status place_maps(struct attend_view *v, struct err *e)
{
    const struct attend_wanted *w = &v->wanted;
    const bool large = n_places(v) == 1;
    int layer, head;
    v->maps = calloc(2 * n_places(v) + 1, sizeof *v->maps);
    if (!v->maps)
        return err_no_memory(e, "the list of maps", 2 * n_places(v) * sizeof *v->maps);
    if (w->pictures)
        v->pictures = add_maps(v, at_most(v->n_tokens, large ? HEATMAP_LARGE : HEATMAP_SMALL),
                               w->without_first);
    if (w->arrays)
        v->arrays = add_maps(v, v->n_tokens, false);
    if (!w->show)
        return STATUS_OK;
    TRY(head_of_option("--show", w->show, &v->model->config, &layer, &head, e));
    v->shown = v->maps + v->n_maps++;
    *v->shown = (struct attend_map){.layer = layer,
                                    .head = head,
                                    .cells = at_most(v->n_tokens, w->shown_cells),
                                    .without_first = w->without_first};
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status check_memory(const struct attend_view *v, const struct attend_spec *spec,
                                const struct job *j, struct err *e)
{
    struct job_memory memory = {.weights = v->model->weights.cap,
                                .advice = v->wanted.arrays
                                              ? "fewer heads by --layer and --head, a shorter text "
                                                "or no --npy take less"
                                              : "fewer heads by --layer and --head, or a shorter "
                                                "text take less"};
    char what[32];
    size_t bytes;
    TRY(attend_plan(spec, &bytes, e));
    memory.scratch = bytes;
    snprintf(what, sizeof what, "%d tokens", v->n_tokens);
    return job_check_memory(j, &memory, what, e);
}

enum status attend_view_run(struct attend_view *v, struct job *j, struct err *e)
{
    v->model = j->checkpoint.model;
    config_variant_name(&v->model->config, v->model->config.n_kv_heads, v->variant);
    TRY(place_heads(v, e));
    TRY(place_maps(v, e));
    const struct attend_spec spec = {.model = v->model,
                                     .params = job_session_params(j),
                                     .pool = j->pool,
                                     .tokens = v->tokens,
                                     .n_tokens = v->n_tokens,
                                     .heads = v->figures,
                                     .n_heads = (int)n_places(v),
                                     .maps = v->maps,
                                     .n_maps = v->n_maps,
                                     .query = v->wanted.query,
                                     .stop = progress_stop,
                                     .progress = progress_show,
                                     .arg = job_progress(j, "tokens")};
    j->progress.all = (uint64_t)v->n_tokens;
    TRY(check_memory(v, &spec, j, e));
    return attend_run(&spec, &v->found, e);
}

void attend_view_free(struct attend_view *v)
{
    attend_free(&v->found);
    free(v->figures);
    free(v->maps);
    choice_free(&v->layers);
    choice_free(&v->heads);
}

/* --- texts ----------------------------------------------------------------------------------- */

/* The next character as it is to be shown. */
static struct printable next_shown(struct text *rest, bool blank, bool printable)
{
    struct printable p = {""};
    if (blank) {
        *rest = (struct text){rest->data + 1, rest->len - 1};
        return (struct printable){OPEN_BOX};
    }
    if (printable)
        return printable_next(rest);
    uint32_t code;
    const struct text first = utf8_next(rest, &code);
    memcpy(p.text, first.data, first.len);
    return p;
}

struct attend_label attend_label(const struct attend_view *v, int position, int columns,
                                 bool printable)
{
    struct attend_label label = {""};
    char id[24];
    size_t used = 0, n_spaces = 0;
    snprintf(id, sizeof id, "#%d", (int)v->tokens[position]);
    struct text rest =
        v->tokenizer ? tokenizer_bytes(v->tokenizer, v->tokens[position]) : text_of(id);
    while (n_spaces < rest.len && rest.data[n_spaces] == ' ')
        n_spaces++;
    const bool blank = n_spaces == rest.len;
    if (n_spaces > 0 && !blank)
        rest = (struct text){rest.data + 1, rest.len - 1};
    for (int column = 0; rest.len > 0;) {
        const struct printable p = next_shown(&rest, blank, printable);
        const size_t len = strlen(p.text);
        column += (int)text_columns(text_of(p.text));
        if (column + (rest.len > 0) > columns || used + len + sizeof ELLIPSIS > sizeof label.text) {
            memcpy(label.text + used, ELLIPSIS, sizeof ELLIPSIS);
            break;
        }
        memcpy(label.text + used, p.text, len);
        used += len;
    }
    return label;
}

struct attend_weight attend_weight(double weight)
{
    struct attend_weight w = {"–"};
    if (isnan(weight))
        return w;
    snprintf(w.text, sizeof w.text, "%.2f", weight);
    if (w.text[0] == '0')
        memmove(w.text, w.text + 1, strlen(w.text));
    else
        w.text[3] = 0; /* "1.0" */
    return w;
}
