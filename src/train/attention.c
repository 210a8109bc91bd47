/* Causal attention over whole windows, forwards and backwards, and what a latent cache makes its
 * keys and values of. An item is a window and a K/V head. */
#include <math.h>

#include "engine/causal.h"
#include "train/backprop_pass.h"

/* --- attention ------------------------------------------------------------------------------- */

/* The query heads of an item. */
struct item_heads {
    const struct pass *p;
    int layer, window, first;
};

static void drop_columns(const void *arg, int head, int first, int n_keys, float *columns)
{
    const struct item_heads *d = arg;
    const struct backprop *b = d->p->b;
    const uint64_t of_window = (uint64_t)d->window * (uint64_t)b->config.n_heads;
    const uint64_t at = (of_window + (uint64_t)(d->first + head)) * (uint64_t)b->length;
    const uint64_t width = (uint64_t)causal_padded_length(b->length);
    for (int t = 0; t < n_keys; t++) {
        float *row = columns + (size_t)t * CAUSAL_WIDTH;
        dropout_apply(&d->p->attn_dropout, 2 * b->config.n_layers + 1 + d->layer, row, NULL, row,
                      (at + (uint64_t)t) * width + (uint64_t)first, CAUSAL_WIDTH);
    }
}

static bool head_bias(const void *arg, int head, struct attend_bias *bias)
{
    const struct item_heads *d = arg;
    const struct config *c = &d->p->b->config;
    const int h = d->first + head;
    const float *rel = d->p->w->blocks[d->layer].w[ROLE_ATTN_REL].weight;
    if (c->position == POSITION_ALIBI)
        *bias = positions_alibi(h, c->n_heads);
    else if (c->position == POSITION_QUADRATIC)
        *bias = positions_quadratic(rel[2 * h], rel[2 * h + 1]);
    else
        return false;
    return true;
}

/* The K/V heads of a layer as attention has them here: what is latent is made into those of each
 * query head. */
static int kv_heads_of(const struct config *c, int l)
{
    return config_is_latent(c) ? c->n_heads : config_kv_heads(c, l);
}

static void run_item(const struct pass *p, int l, int index, float *scratch,
                     void (*run)(const struct causal_window *w))
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct saved *saved = &b->blocks[l];
    const bool latent = config_is_latent(c);
    const int kv_heads = kv_heads_of(c, l), group = c->n_heads / kv_heads;
    const int kv_head = index % kv_heads, window = index / kv_heads, head = kv_head * group;
    const int key = c->head_dim, value = config_value_dim(c);
    const struct rows r = {window * b->length, (window + 1) * b->length};
    const int qkv_dim = config_qkv_dim(c, l), heads_dim = config_heads_dim(c);
    const int kv_dim = latent ? pass_kv_dim(c) : qkv_dim;
    /* Where the head's are in a row: qkv has all queries, all keys, all values; kv the last two. */
    const int k = (latent ? 0 : config_q_dim(c)) + kv_head * key;
    const int v = (latent ? 0 : config_q_dim(c)) + kv_heads * key + kv_head * value;
    float *kv = rows_at(latent ? saved->kv : saved->qkv, r, kv_dim);
    const size_t all_heads = (size_t)window * (size_t)c->n_heads + (size_t)head;
    const struct item_heads heads = {p, l, window, head};
    struct causal_window w = {
        .kernels = b->kernels,
        .grad = b->grad,
        .positions = &b->positions,
        .rope_dims = c->rope.n_dims,
        .length = b->length,
        .n_heads = group,
        .key_dim = key,
        .value_dim = value,
        .scale = 1.0f / sqrtf((float)key),
        .q = rows_at(saved->qkv, r, qkv_dim) + head * key,
        .k = kv + k,
        .v = kv + v,
        .q_stride = (size_t)qkv_dim,
        .kv_stride = (size_t)kv_dim,
        .heads = rows_at(saved->heads, r, heads_dim) + head * value,
        .heads_stride = (size_t)heads_dim,
        .softmax = saved->softmax + all_heads * 2 * (size_t)causal_padded_length(b->length),
        .drel = b->drel ? b->drel + 2 * all_heads : NULL,
        .drop = p->gradient && p->attn_dropout.share > 0 ? drop_columns : NULL,
        .bias = head_bias,
        .arg = &heads,
        .scratch = scratch,
    };
    if (!b->forward_only) {
        float *dkv = rows_at(latent ? b->dkv : b->dqkv, r, kv_dim);
        w.dheads = rows_at(b->dheads, r, heads_dim) + head * value;
        w.dq = rows_at(b->dqkv, r, qkv_dim) + head * key;
        w.dk = dkv + k;
        w.dv = dkv + v;
    }
    run(&w);
}

static void run_items(const struct pass *p, int l, int thread,
                      void (*run)(const struct causal_window *w))
{
    const int n_items = p->n_sequences * kv_heads_of(&p->b->config, l);
    const struct rows share = rows_share(p, (struct rows){0, n_items}, thread);
    for (int index = share.begin; index < share.end; index++)
        run_item(p, l, index, pass_scratch(p->b, thread), run);
}

void backprop_attention(const struct pass *p, int l, int thread)
{
    run_items(p, l, thread, causal_forward);
}

void backprop_attention_backward(const struct pass *p, int l, int thread)
{
    run_items(p, l, thread, causal_backward);
}

void backprop_attention_sums(const struct pass *p, int l, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    float *gradient = p->gradient->blocks[l].w[ROLE_ATTN_REL].weight;
    int begin, end;
    pool_share(c->n_heads, thread, b->n_threads, &begin, &end);
    for (int i = 2 * begin; i < 2 * end && b->drel; i++) {
        double sum = c->shared && l + 1 < c->n_layers ? (double)gradient[i] : 0;
        for (int window = 0; window < p->n_sequences; window++)
            sum += b->drel[2 * (size_t)window * (size_t)c->n_heads + (size_t)i];
        gradient[i] = (float)sum;
    }
}

/* --- latent caches --------------------------------------------------------------------------- */

/* In rows r of a buffer as qkv: what is latent, after the queries. */
static struct view latent_of(const struct backprop *b, int l, float *qkv, struct rows r)
{
    const struct config *c = &b->config;
    return view_columns(view_of(qkv, r, config_qkv_dim(c, l)), config_q_dim(c),
                        config_latent(c, l));
}

/* In rows r of a buffer as kv: the keys of a head; and the values of all. */
static struct view keys_of(const struct config *c, float *kv, struct rows r, int head)
{
    return view_columns(view_of(kv, r, pass_kv_dim(c)), head * c->head_dim, c->head_dim);
}

static struct view values_of(const struct config *c, float *kv, struct rows r)
{
    return view_columns(view_of(kv, r, pass_kv_dim(c)), config_q_dim(c), config_heads_dim(c));
}

void backprop_expand(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct view latent = latent_of(b, l, b->blocks[l].qkv, r);
    float *kv = b->blocks[l].kv;
    struct affine map = {.panels = b->panels[ROLE_ATTN_K_B]};
    for (int h = 0; h < c->n_heads; h++) {
        backprop_multiply(b, map, latent, keys_of(c, kv, r, h));
        map.panels += (size_t)kernel_padded(c->head_dim) * (size_t)latent.n;
    }
    map.panels = b->panels[ROLE_ATTN_V_B];
    backprop_multiply(b, map, latent, values_of(c, kv, r));
}

void backprop_expand_backward(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct view dlatent = latent_of(b, l, b->dqkv, r);
    struct affine map = {.panels = b->panels[ROLE_ATTN_V_B]};
    backprop_multiply(b, map, values_of(c, b->dkv, r), dlatent);
    map = (struct affine){.panels = b->panels[ROLE_ATTN_K_B], .start = dlatent.x};
    for (int h = 0; h < c->n_heads; h++) {
        backprop_multiply(b, map, keys_of(c, b->dkv, r, h), dlatent);
        map.panels += (size_t)kernel_padded(dlatent.n) * (size_t)c->head_dim;
    }
}

void backprop_expand_sums(const struct pass *p, int l, bool add, int thread)
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const struct param_pair *gradient = p->gradient->blocks[l].w;
    const struct rows all = {0, pass_rows(p)};
    const struct view latent = latent_of(b, l, b->blocks[l].qkv, all);
    struct weight_sums keys = {.gradient = gradient[ROLE_ATTN_K_B], .dy = latent, .add = add};
    for (int h = 0; h < c->n_heads; h++) {
        keys.x = keys_of(c, b->dkv, all, h);
        backprop_weight_sums(b, &keys, thread);
        keys.gradient.weight += (size_t)latent.n * (size_t)c->head_dim;
    }
    const struct weight_sums values = {gradient[ROLE_ATTN_V_B], values_of(c, b->dkv, all), latent,
                                       add};
    backprop_weight_sums(b, &values, thread);
}
