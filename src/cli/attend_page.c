#include "cli/attend.h"

#include <math.h>

#include "model/config_keys.h"
#include "text/unicode.h"

/* --- of all pictures -------------------------------------------------------------------------- */

/* Whether a token is nothing but newlines and punctuation, and spaces around it. */
static bool is_separator(struct text token)
{
    bool divides = false;
    while (token.len > 0) {
        uint32_t code;
        utf8_next(&token, &code);
        const enum char_class class = unicode_class(code);
        if (class == CHAR_LETTER || class == CHAR_NUMBER || code >= UNICODE_INVALID)
            return false;
        divides |= class == CHAR_OTHER || code == '\n';
    }
    return divides;
}

void attend_open(struct attend_view *v, struct job *j)
{
    const struct model *m = j->checkpoint.model;
    *v = (struct attend_view){.job = j,
                              .config = &m->config,
                              .spec = {.model = m,
                                       .pool = j->pool,
                                       .tokens = j->tokens,
                                       .n_tokens = j->n_tokens,
                                       .query = -1}};
    config_variant_name(&m->config, v->variant);
}

enum status attend_list_heads(struct attend_view *v, struct err *e)
{
    struct attend_spec *spec = &v->spec;
    const int n = v->layers.n * v->heads.n, n_maps = 2 * n + 1;
    bool *separators;
    TRY_ZEROED(separators, spec->n_tokens, "the tokens", e);
    spec->separators = separators;
    for (int i = 0; i < spec->n_tokens; i++)
        separators[i] = is_separator(job_token(v->job, spec->tokens[i]));
    spec->heads = array_zeroed(1, n * sizeof *spec->heads + n_maps * sizeof *spec->maps,
                               "the list of heads", e);
    if (!spec->heads)
        return STATUS_NO_MEMORY;
    spec->n_heads = n;
    spec->maps = (void *)(spec->heads + n);
    for (int i = 0; i < n; i++)
        spec->heads[i] = (struct attend_head){.layer = v->layers.items[i / v->heads.n],
                                              .head = v->heads.items[i % v->heads.n]};
    return STATUS_OK;
}

void attend_close(struct attend_view *v)
{
    attend_free(&v->found);
    free(v->paths.layers);
    free(v->spec.heads);
    free((void *)(uintptr_t)v->spec.separators);
    choice_free(&v->layers);
    choice_free(&v->heads);
}

struct attend_map *attend_add_maps(struct attend_spec *spec, int cells)
{
    struct attend_map *maps = spec->maps + spec->n_maps;
    spec->n_maps += spec->n_heads;
    for (int i = 0; i < spec->n_heads; i++)
        maps[i] = (struct attend_map){.layer = spec->heads[i].layer,
                                      .head = spec->heads[i].head,
                                      .cells = MIN(cells, spec->n_tokens)};
    return maps;
}

double attend_put_role(const struct attend_head *h, char *role, size_t size)
{
    double share;
    const char *name = attend_role(h, &share);
    snprintf(role, size, str_is(name, "offset") ? "%s %d" : "%s", name, h->offset);
    return share;
}

void attend_fill_maps(const struct attend_view *v, const struct attend_map *cells,
                      struct heatmap_map *maps)
{
    for (int i = 0; i < v->spec.n_heads; i++) {
        const struct attend_head *h = &v->spec.heads[i];
        const int group = config_group(v->config, h->layer);
        char role[32];
        const double share = attend_put_role(h, role, sizeof role);
        maps[i] =
            (struct heatmap_map){.cells = cells[i].cell, .group = group > 1 ? h->head / group : -1};
        chars_printf(maps[i].name, "%d.%d", h->layer, h->head);
        chars_printf(maps[i].note,
                     "layer %d, head %d, %s: role %s %s; entropy %.2f nats, %.1f tokens back on "
                     "average",
                     h->layer, h->head, v->variant, role, figure_weight(share).text, h->entropy,
                     h->distance);
        if (group > 1)
            chars_append(maps[i].note, "; it reads K/V head %d", h->head / group);
    }
}

void attend_title(const struct attend_view *v, char *title, size_t size)
{
    snprintf(title, size, "What the heads of %.160s look at", path_name(v->job->path));
}

/* --- of the page ------------------------------------------------------------------------------ */

/* A page has PAGE_NEXT tokens that may come next for each position. It has the paths of a text of
 * at most PATHS_TOKENS tokens, if these take at most PATHS_BYTES; the file has four thirds of them.
 */
#define PAGE_NEXT    5
#define PATHS_TOKENS 64
#define PATHS_BYTES  ((uint64_t)16 << 20)

enum status attend_place_page(struct attend_view *v, struct err *e)
{
    struct attend_spec *spec = &v->spec;
    const int n = spec->n_tokens;
    const uint64_t n_weights = explore_weights(spec->n_heads, n);
    struct arena counted = {.used = 0};
    if (n_weights > EXPLORE_MOST)
        return err_usage(e,
                         "--html: expected at most %" PRIu64 " weights, found %" PRIu64
                         " of %d heads and %d "
                         "tokens; fewer heads by --layer and --head, or a shorter text, are fewer",
                         EXPLORE_MOST, n_weights, spec->n_heads, n);
    if (!v->arrays)
        v->arrays = attend_add_maps(spec, n);
    spec->n_next = v->paths.n_next = MIN(PAGE_NEXT, v->config->n_vocab);
    TRY_ZEROED(v->paths.layers, v->layers.n, "the layers of paths", e);
    v->paths.n_layers = v->layers.n;
    for (int i = 0; i < v->layers.n; i++)
        v->paths.layers[i] = (struct path_layer){.layer = v->layers.items[i], .n_tokens = n};
    paths_take(&v->paths, &counted, v->config);
    if (n <= PATHS_TOKENS && counted.used <= PATHS_BYTES)
        spec->paths = &v->paths;
    return STATUS_OK;
}

/* The page takes these structs as the floats that they are made of. */
_Static_assert(sizeof(struct attend_bias) == 3 * sizeof(float), "centre, linear, square");
_Static_assert(sizeof(struct path_written) == (1 + 2 * PATHS_LARGEST) * sizeof(float),
               "length, then places with their numbers");

static struct explore_layer layer_of(const struct attend_view *v, const struct path_layer *l)
{
    const struct block *b = &v->spec.model->blocks[l->layer];
    return (struct explore_layer){.layer = l->layer,
                                  .n_heads = v->config->n_heads,
                                  .n_shared = config_kv_heads(v->config, l->layer),
                                  .window = v->config->layer_window[l->layer],
                                  .x = l->x,
                                  .q = l->q,
                                  .keys = l->keys,
                                  .values = l->values,
                                  .additive = b->w[ROLE_ATTN_SCORE].table,
                                  .written = &l->written->length,
                                  .direct = paths_are_direct(v->config) ? l->direct : NULL,
                                  .bias = b->bias ? &b->bias->centre : NULL};
}

/* Names a token with each space before it as U+2423: most words begin with one. */
static struct text_label page_label(const struct attend_view *v, int32_t token)
{
    struct text_label label = {""};
    struct text t = job_token(v->job, token);
    size_t spaces = 0;
    while (spaces < t.len && t.data[spaces] == ' ')
        spaces++;
    if (spaces == t.len)
        return attend_label_of(v, token, LARGE_LABEL, true);
    text_cut(&t, spaces);
    spaces = MIN(spaces, LARGE_LABEL / 2);
    for (size_t i = 0; i < spaces; i++)
        chars_append(label.text, "\xe2\x90\xa3");
    chars_append(label.text, "%s", text_label(t, LARGE_LABEL - spaces, true).text);
    return label;
}

enum status attend_place_live(struct attend_view *v, struct err *e)
{
    const struct job *j = v->job;
    const struct file_map *file = &j->checkpoint.file;
    struct explore_live *live = &v->live;
    struct config c;
    TRY(config_read(j->checkpoint.gguf, &c, e));
    *live = (struct explore_live){.name = path_name(j->path),
                                  .checkpoint = text_span((const char *)file->data, file->len),
                                  .text = j->text,
                                  .kv_heads = j->common->kv_heads ? j->common->kv_heads : "",
                                  .n_ctx = c.n_ctx};
    for (int g = c.n_kv_heads; g > 0 && live->n_variants < EXPLORE_VARIANTS; g--)
        if (config_has_variant(&c, g))
            live->variants[live->n_variants++] = g;
    return STATUS_OK;
}

/* Says what the page is of, and why it may have no paths. */
static void name_page(const struct attend_view *v, struct attend_page *p)
{
    const struct config *c = v->config;
    const int n = v->spec.n_tokens;
    const struct kv_type cache = v->spec.params.kv_type;
    const bool says = cache.keys != CACHE_F32 || cache.values != CACHE_F32;
    attend_title(v, p->title, sizeof p->title);
    chars_printf(p->subtitle, "%s, %d token%s%s%s. Shown are attention weights.", v->variant, n,
                 plural(n), says ? ", keys and values cached as " : "",
                 says ? kv_type_name(cache).text : "");
    chars_printf(p->why,
                 "A page has paths of texts of up to %d tokens and %d MiB of numbers; this text "
                 "has %d tokens. On a terminal: decode attend MODEL ...",
                 PATHS_TOKENS, (int)(PATHS_BYTES >> 20), n);
    if (c->score_scale == 0)
        chars_printf(p->scaled, "/√%d", c->head_dim);
    else
        chars_printf(p->scaled, "times %g", (double)c->score_scale);
}

static struct explore_paths paths_of(const struct attend_view *v, const char *scaled,
                                     const struct explore_layer *layers)
{
    const struct config *c = v->config;
    return (struct explore_paths){.d = c->d_model,
                                  .key = c->head_dim,
                                  .value = config_value_dim(c),
                                  .n_largest = PATHS_LARGEST,
                                  .scale = (double)config_score_scale(c),
                                  .x = c->placement != PLACEMENT_AFTER ? "x = norm of the stream"
                                                                       : "x = the stream",
                                  .rotated = c->position == POSITION_ROPE ? ", rotated" : "",
                                  .scaled = scaled,
                                  .layers = layers,
                                  .n_layers = v->layers.n};
}

enum status attend_make_page(const struct attend_view *v, struct attend_page *p, struct err *e)
{
    const int n = v->spec.n_tokens, n_next = n * v->spec.n_next, n_layers = v->layers.n;
    struct heatmap_map *maps;
    struct text_label *tokens, *layers;
    struct explore_layer *paths;
    struct explore_next *next;
    p->arena = (struct arena){.used = 0};
    for (int pass = 0; pass < 2; pass++) {
        ARENA_TAKE(maps, &p->arena, v->spec.n_heads);
        ARENA_TAKE(tokens, &p->arena, n);
        ARENA_TAKE(layers, &p->arena, n_layers);
        ARENA_TAKE(paths, &p->arena, n_layers);
        ARENA_TAKE(next, &p->arena, n_next);
        if (pass == 0)
            TRY(arena_allocate(&p->arena, "the page", e));
    }
    attend_fill_maps(v, v->arrays, maps);
    for (int i = 0; i < n; i++)
        tokens[i] = page_label(v, v->spec.tokens[i]);
    for (int l = 0; l < n_layers; l++) {
        chars_printf(layers[l].text, "layer %d", v->layers.items[l]);
        if (v->spec.paths)
            paths[l] = layer_of(v, &v->paths.layers[l]);
    }
    for (int i = 0; i < n_next; i++)
        next[i] = (struct explore_next){page_label(v, v->found.next[i].id),
                                        exp(v->found.next[i].logprob)};
    name_page(v, p);
    p->paths = paths_of(v, p->scaled, paths);
    p->maps = (struct heatmap_picture){.title = p->title,
                                       .subtitle = p->subtitle,
                                       .maps = maps,
                                       .n_rows = n_layers,
                                       .n_columns = v->heads.n,
                                       .map_rows = n,
                                       .map_columns = n,
                                       .row_names = layers,
                                       .column_names = tokens};
    p->shown = (struct explore_page){.maps = &p->maps,
                                     .next = next,
                                     .n_next = v->spec.n_next,
                                     .paths = v->spec.paths ? &p->paths : NULL,
                                     .why = p->why,
                                     .live = v->live.name ? &v->live : NULL};
    return STATUS_OK;
}
