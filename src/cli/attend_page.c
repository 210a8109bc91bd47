#include "cli/attend.h"

#include <math.h>

#include "base/half.h"
#include "model/config_keys.h"
#include "model/selection.h"
#include "text/unicode.h"

/* --- of all pictures -------------------------------------------------------------------------- */

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

enum status attend_list_heads(struct attend_view *v, const char *layers, const char *heads,
                              struct err *e)
{
    struct attend_spec *spec = &v->spec;
    bool *separators;
    TRY(choice_of("--layer", layers, v->config->n_layers, &v->layers, e));
    TRY(choice_of("--head", heads, v->config->n_heads, &v->heads, e));
    const int n = v->layers.n * v->heads.n, n_maps = 2 * n + 1;
    TRY_ZEROED(separators, spec->n_tokens, "the tokens", e);
    spec->separators = separators;
    for (int i = 0; i < spec->n_tokens; i++)
        separators[i] = text_only_divides(job_token(v->job, spec->tokens[i]));
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

void attend_describe(const struct attend_view *v, int i, struct heatmap_map *map)
{
    const struct attend_head *h = &v->spec.heads[i];
    const int group = config_group(v->config, h->layer);
    char role[ATTEND_ROLE_SIZE];
    const double share = attend_role(h, role);
    *map = (struct heatmap_map){.group = group > 1 ? h->head / group : -1};
    chars_printf(map->name, "%d.%d", h->layer, h->head);
    chars_printf(
        map->note,
        "layer %d, head %d, %s: role %s %s; entropy %.2f nats, %.1f tokens back on average",
        h->layer, h->head, v->variant, role, figure_weight(share).text, h->entropy, h->distance);
    if (group > 1)
        chars_append(map->note, "; it reads K/V head %d", h->head / group);
}

void attend_title(const struct attend_view *v, char *title, size_t size)
{
    snprintf(title, size, "What the heads of %.160s look at", path_name(v->job->path));
}

/* --- what the page needs ---------------------------------------------------------------------- */

/* The most weights of a page, of all maps together. In the file a weight is a float32 in base64:
 * four thirds of four bytes. */
#define PAGE_WEIGHTS ((uint64_t)24 << 20)

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
    const uint64_t n_weights = u64_product(spec->n_heads, (uint64_t)n * (n + 1) / 2);
    struct arena counted = {.used = 0};
    if (n_weights > PAGE_WEIGHTS)
        return err_usage(e,
                         "--html: expected at most %" PRIu64 " weights, found %" PRIu64
                         " of %d heads and %d "
                         "tokens; fewer heads by --layer and --head, or a shorter text, are fewer",
                         PAGE_WEIGHTS, n_weights, spec->n_heads, n);
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

/* --- its data --------------------------------------------------------------------------------- */

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

static void put_heads(struct json *j, const struct attend_view *v)
{
    char name[32];
    json_begin_array(j, "rows");
    for (int l = 0; l < v->layers.n; l++) {
        json_begin_object(j, NULL);
        chars_printf(name, "layer %d", v->layers.items[l]);
        json_text(j, "name", text_of(name));
        json_begin_array(j, "heads");
        for (int h = 0; h < v->heads.n; h++) {
            struct heatmap_map map;
            attend_describe(v, l * v->heads.n + h, &map);
            json_begin_object(j, NULL);
            json_text(j, "name", text_of(map.name));
            json_text(j, "note", text_of(map.note));
            json_int(j, "group", map.group);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

static void put_layer(struct json *j, const struct attend_view *v, int layer)
{
    const struct config *c = v->config;
    const struct block *b = &v->spec.model->blocks[layer];
    json_begin_object(j, NULL);
    json_int(j, "layer", layer);
    json_int(j, "heads", c->n_heads);
    json_int(j, "shared", config_kv_heads(c, layer));
    json_int(j, "window", c->layer_window[layer]);
    json_int(j, "additive", b->w[ROLE_ATTN_SCORE].table != NULL);
    json_int(j, "direct", paths_are_direct(c));
    if (b->bias) {
        json_begin_array(j, "bias");
        for (int h = 0; h < c->n_heads; h++) {
            json_double(j, NULL, (double)b->bias[h].centre);
            json_double(j, NULL, (double)b->bias[h].linear);
            json_double(j, NULL, (double)b->bias[h].square);
        }
        json_end(j);
    }
    json_end(j);
}

static void put_paths(struct json *j, const struct attend_view *v)
{
    const struct config *c = v->config;
    char scaled[32];
    if (c->score_scale == 0)
        chars_printf(scaled, "/√%d", c->head_dim);
    else
        chars_printf(scaled, "times %g", (double)c->score_scale);
    json_begin_object(j, "paths");
    json_int(j, "d", c->d_model);
    json_int(j, "key", c->head_dim);
    json_int(j, "value", config_value_dim(c));
    json_int(j, "largest", PATHS_LARGEST);
    json_double(j, "scale", (double)config_score_scale(c));
    json_text(
        j, "x",
        text_of(c->placement != PLACEMENT_AFTER ? "x = norm of the stream" : "x = the stream"));
    json_text(j, "rotated", text_of(c->position == POSITION_ROPE ? ", rotated" : ""));
    json_text(j, "scaled", text_of(scaled));
    json_begin_array(j, "layers");
    for (int l = 0; l < v->layers.n; l++)
        put_layer(j, v, v->layers.items[l]);
    json_end(j);
    json_end(j);
}

static void put_live(struct json *j, const struct attend_view *v)
{
    const struct job *job = v->job;
    const char *kv_heads = job->common->kv_heads;
    struct config c; /* of the file, whatever K/V heads the model has, which was made of it */
    (void)config_read(job->checkpoint.gguf, &c, NULL);
    json_begin_object(j, "live");
    json_text(j, "name", text_of(path_name(job->path)));
    json_text(j, "text", job->text);
    json_int(j, "made", v->n_made);
    json_text(j, "kv", text_of(kv_heads ? kv_heads : ""));
    json_begin_array(j, "variants");
    for (int g = c.n_kv_heads; g > 0; g--)
        if (config_has_variant(&c, g))
            json_int(j, NULL, g);
    json_end(j);
    json_int(j, "context", c.n_ctx);
    json_end(j);
}

void attend_put_view(const void *view, struct output *out)
{
    const struct attend_view *v = view;
    const int n = v->spec.n_tokens;
    const struct kv_type cache = v->spec.params.kv_type;
    const bool says = cache.keys != CACHE_F32 || cache.values != CACHE_F32;
    char title[256], subtitle[128], why[256];
    struct json j;
    attend_title(v, title, sizeof title);
    chars_printf(subtitle, "%s, %d token%s%s%s. Shown are attention weights.", v->variant, n,
                 plural(n), says ? ", keys and values cached as " : "",
                 says ? kv_type_name(cache).text : "");
    chars_printf(why,
                 "A page has paths of texts of up to %d tokens and %d MiB of numbers; this text "
                 "has %d tokens. On a terminal: decode attend MODEL ...",
                 PATHS_TOKENS, (int)(PATHS_BYTES >> 20), n);
    json_init(&j, out, 1);
    json_begin_object(&j, NULL);
    json_text(&j, "title", text_of(title));
    json_text(&j, "subtitle", text_of(subtitle));
    put_heads(&j, v);
    json_begin_array(&j, "tokens");
    for (int i = 0; i < n; i++)
        json_text(&j, NULL, text_of(page_label(v, v->spec.tokens[i]).text));
    json_end(&j);
    json_int(&j, "n_next", v->spec.n_next);
    json_begin_array(&j, "next");
    for (int i = 0; i < n * v->spec.n_next; i++) {
        json_begin_array(&j, NULL);
        json_text(&j, NULL, text_of(page_label(v, v->found.next[i].id).text));
        json_double(&j, NULL, exp(v->found.next[i].logprob));
        json_end(&j);
    }
    json_end(&j);
    if (v->spec.paths)
        put_paths(&j, v);
    else
        json_text(&j, "why", text_of(why));
    if (v->live)
        put_live(&j, v);
    json_end(&j);
}

/* --- its numbers ------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct path_written) == (1 + 2 * PATHS_LARGEST) * sizeof(float),
               "the page takes it as floats: length, then places with their numbers");

/* Puts n floats, little-endian; none where x is NULL. */
static void put_floats(struct output *out, const float *x, size_t n)
{
    for (size_t i = 0; x && i < n; i++) {
        char bytes[4];
        little_store(bytes, float_bits(x[i]), sizeof bytes);
        output_put(out, text_span(bytes, sizeof bytes));
    }
}

void attend_put_numbers(const void *view, struct output *out)
{
    const struct attend_view *v = view;
    const struct config *c = v->config;
    const size_t n = v->spec.n_tokens, heads = c->n_heads, key = c->head_dim;
    for (int m = 0; m < v->spec.n_heads; m++)
        for (size_t i = 0; i < n; i++)
            put_floats(out, v->arrays[m].cell + i * n, i + 1);
    for (int i = 0; v->spec.paths && i < v->paths.n_layers; i++) {
        const struct path_layer *l = &v->paths.layers[i];
        const size_t shared = config_kv_heads(c, l->layer);
        const struct block *b = &v->spec.model->blocks[l->layer];
        put_floats(out, l->x, n * c->d_model);
        put_floats(out, l->q, n * heads * key);
        put_floats(out, l->keys, n * shared * key);
        put_floats(out, l->values, n * shared * config_value_dim(c));
        put_floats(out, b->w[ROLE_ATTN_SCORE].table, heads * key);
        put_floats(out, &l->written->length, n * heads * (1 + 2 * PATHS_LARGEST));
        put_floats(out, paths_are_direct(c) ? l->direct : NULL, n * heads * v->spec.n_next);
    }
}
