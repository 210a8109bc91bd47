#include "cli/attend_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/text.h"
#include "cli/progress.h"
#include "show/heatmap_picture.h"
#include "show/printable.h"

#define OPEN_BOX "\xe2\x90\xa3"
#define ELLIPSIS "\xe2\x80\xa6"

/* --- heads ----------------------------------------------------------------------------------- */

int attend_kv_head(const struct attend_side *side, const struct attend_head *h)
{
    return h->head / config_group(&side->model->config, h->layer);
}

bool attend_is_shared(const struct attend_side *side, int layer)
{
    return config_group(&side->model->config, layer) > 1;
}

static bool is_chosen(const struct choice *c, int item)
{
    for (int i = 0; i < c->n; i++)
        if (c->items[i] == item)
            return true;
    return false;
}

/* The chosen heads of a chosen layer; `order`, NULL for one side, is that of the other's heads. */
static void place_row(struct attend_view *v, int row, const int *order)
{
    const int n_heads = v->sides[0].model->config.n_heads, layer = v->layers.items[row];
    int at = row * v->n_columns;
    for (int i = 0; i < n_heads; i++) {
        const int name = order ? order[(size_t)layer * (size_t)n_heads + (size_t)i] : i;
        if (!is_chosen(&v->heads, name))
            continue;
        v->names[at] = name;
        v->sides[0].heads[at] = (struct attend_head){.layer = layer, .head = name};
        if (order)
            v->sides[1].heads[at] = (struct attend_head){.layer = layer, .head = i};
        at++;
    }
}

static size_t n_places(const struct attend_view *v)
{
    return (size_t)v->n_rows * (size_t)v->n_columns;
}

static enum status place_heads(struct attend_view *v, const int *order, struct err *e)
{
    const struct config *c = &v->sides[0].model->config;
    TRY(choice_of("--layer", v->wanted.layers, c->n_layers, "layer", &v->layers, e));
    TRY(choice_of("--head", v->wanted.heads, c->n_heads, "head", &v->heads, e));
    v->n_rows = v->layers.n;
    v->n_columns = v->heads.n;
    v->names = calloc(n_places(v), sizeof *v->names);
    bool taken = v->names != NULL;
    for (int s = 0; s < v->n_sides; s++) {
        v->sides[s].heads = calloc(n_places(v), sizeof *v->sides[s].heads);
        taken = taken && v->sides[s].heads;
    }
    if (!taken)
        return err_no_memory(e, "the list of heads", n_places(v) * sizeof *v->sides[0].heads);
    for (int row = 0; row < v->n_rows; row++)
        place_row(v, row, order);
    return STATUS_OK;
}

/* --- maps ------------------------------------------------------------------------------------ */

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

/* A map of every head. */
static struct attend_map *add_maps(const struct attend_view *v, struct attend_side *side, int cells,
                                   bool without_first)
{
    struct attend_map *maps = side->maps + side->n_maps;
    for (size_t i = 0; i < n_places(v); i++)
        maps[i] = (struct attend_map){.layer = side->heads[i].layer,
                                      .head = side->heads[i].head,
                                      .cells = cells,
                                      .without_first = without_first};
    side->n_maps += (int)n_places(v);
    return maps;
}

static enum status place_maps(struct attend_view *v, int at, const int *order, struct err *e)
{
    struct attend_side *side = &v->sides[at];
    const struct attend_wanted *w = &v->wanted;
    const struct config *c = &v->sides[0].model->config;
    const bool large = n_places(v) == 1;
    int layer, head, i = 0;
    side->maps = calloc(2 * n_places(v) + 1, sizeof *side->maps);
    if (!side->maps)
        return err_no_memory(e, "the list of maps", 2 * n_places(v) * sizeof *side->maps);
    if (w->pictures)
        side->pictures = add_maps(
            v, side, at_most(v->n_tokens, large ? HEATMAP_LARGE : HEATMAP_SMALL), w->without_first);
    if (w->arrays)
        side->arrays = add_maps(v, side, v->n_tokens, false);
    if (!w->show)
        return STATUS_OK;
    TRY(head_of_option("--show", w->show, c, &layer, &head, e));
    while (at > 0 && order[layer * c->n_heads + i] != head)
        i++;
    side->shown = side->maps + side->n_maps++;
    *side->shown = (struct attend_map){.layer = layer,
                                       .head = at > 0 ? i : head,
                                       .cells = at_most(v->n_tokens, w->shown_cells),
                                       .without_first = w->without_first};
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

static struct attend_spec spec_of(const struct attend_view *v, const struct attend_side *side,
                                  const struct runtime *r)
{
    return (struct attend_spec){.model = side->model,
                                .params = runtime_session_params(r),
                                .pool = r->pool,
                                .tokens = v->tokens,
                                .n_tokens = v->n_tokens,
                                .heads = side->heads,
                                .n_heads = (int)n_places(v),
                                .maps = side->maps,
                                .n_maps = side->n_maps,
                                .query = v->wanted.query};
}

/* Says what will be taken, and refuses what is not there. */
static enum status check_memory(const struct attend_view *v, const struct runtime *r, struct err *e)
{
    const double available = runtime_spare_bytes();
    double all = 0;
    for (int s = 0; s < v->n_sides; s++) {
        const struct attend_spec spec = spec_of(v, &v->sides[s], r);
        size_t bytes;
        TRY(attend_plan(&spec, &bytes, e));
        all += (double)bytes;
    }
    if (all > available)
        return err_set(
            e, STATUS_NO_MEMORY,
            "out of memory: %d tokens need %s, %s are available: choose fewer heads with "
            "--layer and --head, or a shorter text%s",
            v->n_tokens, figure_bytes(all).text, figure_bytes(available).text,
            v->wanted.arrays ? "; without --npy it is less" : "");
    if (says_memory(v->common, (uint64_t)all))
        say(v->common, "memory: weights %s, KV cache, scratch and maps %s",
            figure_bytes((double)v->sides[0].model->weights.cap).text, figure_bytes(all).text);
    return STATUS_OK;
}

static enum status run_side(struct attend_view *v, struct attend_side *side,
                            const struct runtime *r, struct err *e)
{
    struct progress shown = progress_start(v->common, "tokens");
    struct attend_spec spec = spec_of(v, side, r);
    spec.stop = progress_stop;
    spec.progress = progress_show;
    spec.arg = &shown;
    const enum status s = attend_run(&spec, &side->found, e);
    progress_end(&shown);
    if (s == STATUS_INTERRUPTED)
        say(v->common, "interrupted after %llu of %d tokens", (unsigned long long)shown.done,
            v->n_tokens);
    return s;
}

enum status attend_view_run(struct attend_view *v, const struct runtime *r, struct err *e)
{
    const struct model *models[ATTEND_MAX_SIDES] = {r->checkpoint.model, r->other.model};
    v->n_sides = r->other.model ? 2 : 1;
    for (int s = 0; s < v->n_sides; s++) {
        const struct config *c = &models[s]->config;
        v->sides[s].model = models[s];
        config_variant_name(c, c->n_kv_heads, v->sides[s].variant);
    }
    TRY(place_heads(v, r->head_order, e));
    for (int s = 0; s < v->n_sides; s++)
        TRY(place_maps(v, s, r->head_order, e));
    TRY(check_memory(v, r, e));
    for (int s = 0; s < v->n_sides; s++)
        TRY(run_side(v, &v->sides[s], r, e));
    return STATUS_OK;
}

void attend_view_free(struct attend_view *v)
{
    for (int s = 0; s < v->n_sides; s++) {
        attend_free(&v->sides[s].found);
        free(v->sides[s].heads);
        free(v->sides[s].maps);
    }
    choice_free(&v->layers);
    choice_free(&v->heads);
    free(v->names);
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
