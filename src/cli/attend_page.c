#include "cli/attend_page.h"

#include "show/explore.h"

/* Tokens that may come next, of each position. */
#define NEXT 5
/* A page has the paths of texts up to so many tokens, if they take no more floats than these: 16
 * MiB, four thirds of which are in the file. */
#define PATHS_TOKENS 64
#define PATHS_FLOATS ((uint64_t)4 << 20)

enum status attend_page_plan(struct attend_view *v, struct err *e)
{
    v->spec.n_next = MIN(NEXT, v->config->n_vocab);
    if (v->spec.n_tokens > PATHS_TOKENS)
        return STATUS_OK;
    TRY_ZEROED(v->paths.layers, v->layers.n, "the layers of paths", e);
    v->paths.n_layers = v->layers.n;
    v->paths.n_tokens = v->spec.n_tokens;
    for (int i = 0; i < v->layers.n; i++)
        v->paths.layers[i].layer = v->layers.items[i];
    if (paths_floats(&v->paths, v->config) <= PATHS_FLOATS)
        v->spec.paths = &v->paths;
    return STATUS_OK;
}

void attend_page_free(struct attend_view *v)
{
    free(v->paths.layers);
    v->paths.layers = NULL;
}

/* The tokens that may come next, malloc'd. */
static enum status find_next(const struct attend_view *v, struct explore_next **out, struct err *e)
{
    const int n = v->spec.n_tokens * v->spec.n_next;
    TRY_ZEROED(*out, n, "the tokens that may come next", e);
    for (int i = 0; i < n; i++) {
        const struct token_score *score = &v->found.next[i];
        (*out)[i] = (struct explore_next){attend_label_of(v, score->id, LARGE_LABEL, true),
                                          exp(score->logprob)};
    }
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
                                  .n_heads = config_heads(v->config, l->layer),
                                  .n_shared = config_kv_heads(v->config, l->layer),
                                  .x = l->x,
                                  .q = l->q,
                                  .keys = l->keys,
                                  .values = l->values,
                                  .additive = b->w[ROLE_ATTN_SCORE].table,
                                  .written = &l->written->length,
                                  .bias = b->bias ? &b->bias->centre : NULL};
}

enum status attend_page_write(const struct attend_view *v, const struct heatmap_picture *maps,
                              struct err *e)
{
    const struct config *c = v->config;
    const int n_layers = v->spec.paths ? v->paths.n_layers : 0;
    char why[256], scaled[32];
    struct explore_next *next = NULL;
    struct explore_layer *layers = NULL;
    chars_printf(
        why,
        "A page has paths of texts of up to %d tokens and %d MiB of numbers; this text has "
        "%d tokens. On a terminal: decode attend MODEL ...",
        PATHS_TOKENS, (int)(PATHS_FLOATS * sizeof(float) >> 20), v->spec.n_tokens);
    if (c->score_scale == 0)
        chars_printf(scaled, "/√%d", c->head_dim);
    else
        chars_printf(scaled, "times %g", (double)c->score_scale);
    enum status s = find_next(v, &next, e);
    if (s == STATUS_OK) {
        layers = array_zeroed(n_layers + 1, sizeof *layers, "the layers of paths", e);
        s = layers ? STATUS_OK : STATUS_NO_MEMORY;
    }
    if (s == STATUS_OK) {
        for (int i = 0; i < n_layers; i++)
            layers[i] = layer_of(v, &v->paths.layers[i]);
        const struct explore_paths paths = {
            .d = c->d_model,
            .key = c->head_dim,
            .value = config_value_dim(c),
            .n_largest = PATHS_LARGEST,
            .scale = (double)config_score_scale(c),
            .x = c->placement == PLACEMENT_BEFORE ? "x = norm of the stream" : "x = the stream",
            .rotated = c->position == POSITION_ROPE ? ", rotated" : "",
            .scaled = scaled,
            .layers = layers,
            .n_layers = n_layers};
        const struct explore_page page = {.maps = maps,
                                          .next = next,
                                          .n_next = v->spec.n_next,
                                          .paths = v->spec.paths ? &paths : NULL,
                                          .why = why};
        s = explore_write(&page, v->options->html, e);
    }
    free(layers);
    free(next);
    return s;
}
