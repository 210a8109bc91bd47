/*
 * An item is a window and a K/V head.
 */
#include "train/attention.h"

#include <math.h>

#include "engine/causal.h"

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

static void run_item(const struct pass *p, int l, int index, float *scratch,
                     void (*run)(const struct causal_window *w))
{
    const struct backprop *b = p->b;
    const struct config *c = &b->config;
    const bool latent = config_is_latent(c);
    const int kv_heads = activations_kv_heads(c, l), group = c->n_heads / kv_heads;
    const int kv_head = index % kv_heads, window = index / kv_heads, head = kv_head * group;
    const size_t row = (size_t)window * (size_t)b->length, q_stride = (size_t)config_qkv_dim(c, l);
    const size_t kv_stride = latent ? (size_t)activations_kv_dim(c) : q_stride;
    const size_t heads_dim = (size_t)config_heads_dim(c);
    const size_t k_first = latent ? 0 : (size_t)config_q_dim(c);
    const size_t k = k_first + (size_t)(kv_head * c->head_dim);
    const size_t v =
        k_first + (size_t)(kv_heads * c->head_dim) + (size_t)(kv_head * config_value_dim(c));
    const size_t q = (size_t)(head * c->head_dim), of_heads = (size_t)(head * config_value_dim(c));
    const size_t all_heads = (size_t)window * (size_t)c->n_heads + (size_t)head;
    const float *kv = (latent ? b->blocks[l].kv : b->blocks[l].qkv) + row * kv_stride;
    float *dq = b->dqkv ? b->dqkv + row * q_stride : NULL;
    float *dkv = !b->dqkv ? NULL : (latent ? b->dkv : b->dqkv) + row * kv_stride;
    const struct item_heads heads = {p, l, window, head};
    const struct causal_window w = {
        .kernels = b->kernels,
        .grad = b->grad,
        .positions = &b->positions,
        .rope_dims = c->rope.n_dims,
        .length = b->length,
        .n_heads = group,
        .key_dim = c->head_dim,
        .value_dim = config_value_dim(c),
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .q = b->blocks[l].qkv + row * q_stride + q,
        .k = kv + k,
        .v = kv + v,
        .q_stride = q_stride,
        .kv_stride = kv_stride,
        .heads = b->blocks[l].heads + row * heads_dim + of_heads,
        .heads_stride = heads_dim,
        .softmax = b->blocks[l].softmax + all_heads * 2 * (size_t)causal_padded_length(b->length),
        .dheads = b->dheads ? b->dheads + row * heads_dim + of_heads : NULL,
        .dq = dq ? dq + q : NULL,
        .dk = dkv ? dkv + k : NULL,
        .dv = dkv ? dkv + v : NULL,
        .drel = b->drel ? b->drel + 2 * all_heads : NULL,
        .drop = p->gradient && p->attn_dropout.share > 0 ? drop_columns : NULL,
        .bias = head_bias,
        .arg = &heads,
        .scratch = scratch,
    };
    run(&w);
}

static void run_items(const struct pass *p, int l, int thread,
                      void (*run)(const struct causal_window *w))
{
    int begin, end;
    pool_share(p->n_sequences * activations_kv_heads(&p->b->config, l), thread, p->b->n_threads,
               &begin, &end);
    for (int index = begin; index < end; index++)
        run_item(p, l, index, activations_scratch(p->b, thread), run);
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
