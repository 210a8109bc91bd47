#include "train/latent.h"

#include "train/affine.h"

/* Sizes of a block: its rank, and those of a head. */
struct sizes {
    int rank, heads, key, value;
    int q_dim, qkv_dim, kv_dim; /* qkv has queries, then what is latent */
};

static struct sizes sizes_of(const struct config *c, int l)
{
    return (struct sizes){.rank = config_latent(c, l),
                          .heads = c->n_heads,
                          .key = c->head_dim,
                          .value = config_value_dim(c),
                          .q_dim = config_q_dim(c),
                          .qkv_dim = config_qkv_dim(c, l),
                          .kv_dim = activations_kv_dim(c)};
}

/* --- panels ---------------------------------------------------------------------------------- */

/* A head's, forwards: those of the transpose [key, rank]. */
static size_t forward_panels(const struct sizes *s)
{
    return (size_t)kernel_padded(s->key) * (size_t)s->rank;
}

static size_t backward_panels(const struct sizes *s)
{
    return (size_t)kernel_padded(s->rank) * (size_t)s->key;
}

void latent_pack_keys(const struct pass *p, int l, bool backward, float *panels, int thread)
{
    const struct sizes s = sizes_of(&p->b->config, l);
    const float *w = p->w->blocks[l].w[ROLE_ATTN_K_B].weight;
    const size_t size = backward ? backward_panels(&s) : forward_panels(&s);
    for (int h = 0; h < s.heads; h++, w += (size_t)s.rank * (size_t)s.key, panels += size)
        backprop_pack_matrix(p, w, s.rank, s.key, !backward, panels, thread);
}

/* --- rows ------------------------------------------------------------------------------------ */

void latent_expand(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct sizes s = sizes_of(&b->config, l);
    const float *c = rows_at(b->blocks[l].qkv, r, s.qkv_dim) + s.q_dim;
    float *kv = rows_at(b->blocks[l].kv, r, s.kv_dim);
    for (int h = 0; h < s.heads; h++) {
        const struct rows_product keys = {.n_rows = rows_n(r),
                                          .n_in = s.rank,
                                          .n_out = s.key,
                                          .panels = b->panels[ROLE_ATTN_K_B] +
                                                    (size_t)h * forward_panels(&s),
                                          .x = c,
                                          .x_stride = (size_t)s.qkv_dim,
                                          .y = kv + h * s.key,
                                          .y_stride = (size_t)s.kv_dim};
        backprop_multiply(b, &keys);
    }
    const struct rows_product values = {.n_rows = rows_n(r),
                                        .n_in = s.rank,
                                        .n_out = s.heads * s.value,
                                        .panels = b->panels[ROLE_ATTN_V_B],
                                        .x = c,
                                        .x_stride = (size_t)s.qkv_dim,
                                        .y = kv + s.heads * s.key,
                                        .y_stride = (size_t)s.kv_dim};
    backprop_multiply(b, &values);
}

void latent_expand_backward(const struct pass *p, int l, struct rows r)
{
    const struct backprop *b = p->b;
    const struct sizes s = sizes_of(&b->config, l);
    const float *dkv = rows_at(b->dkv, r, s.kv_dim);
    float *dc = rows_at(b->dqkv, r, s.qkv_dim) + s.q_dim;
    const struct rows_product values = {.n_rows = rows_n(r),
                                        .n_in = s.heads * s.value,
                                        .n_out = s.rank,
                                        .panels = b->panels[ROLE_ATTN_V_B],
                                        .x = dkv + s.heads * s.key,
                                        .x_stride = (size_t)s.kv_dim,
                                        .y = dc,
                                        .y_stride = (size_t)s.qkv_dim};
    backprop_multiply(b, &values);
    for (int h = 0; h < s.heads; h++) {
        const struct rows_product keys = {.n_rows = rows_n(r),
                                          .n_in = s.key,
                                          .n_out = s.rank,
                                          .panels = b->panels[ROLE_ATTN_K_B] +
                                                    (size_t)h * backward_panels(&s),
                                          .start = dc,
                                          .x = dkv + h * s.key,
                                          .x_stride = (size_t)s.kv_dim,
                                          .y = dc,
                                          .y_stride = (size_t)s.qkv_dim};
        backprop_multiply(b, &keys);
    }
}

/* --- sums ------------------------------------------------------------------------------------ */

void latent_sums(const struct pass *p, int l, bool add, int thread)
{
    const struct backprop *b = p->b;
    const struct sizes s = sizes_of(&b->config, l);
    const struct param_pair *gradient = p->gradient->blocks[l].w;
    const float *c = b->blocks[l].qkv + s.q_dim;
    for (int h = 0; h < s.heads; h++) {
        const struct param_pair head = {.weight = gradient[ROLE_ATTN_K_B].weight +
                                                  (size_t)h * (size_t)s.rank * (size_t)s.key};
        const struct weight_sums keys = {.gradient = &head,
                                         .dy = c,
                                         .x = b->dkv + h * s.key,
                                         .dy_stride = (size_t)s.qkv_dim,
                                         .x_stride = (size_t)s.kv_dim,
                                         .n_rows = pass_rows(p),
                                         .n_out = s.rank,
                                         .n_in = s.key,
                                         .add = add};
        backprop_weight_sums(b, &keys, thread);
    }
    const struct weight_sums values = {.gradient = &gradient[ROLE_ATTN_V_B],
                                       .dy = b->dkv + s.heads * s.key,
                                       .x = c,
                                       .dy_stride = (size_t)s.kv_dim,
                                       .x_stride = (size_t)s.qkv_dim,
                                       .n_rows = pass_rows(p),
                                       .n_out = s.heads * s.value,
                                       .n_in = s.rank,
                                       .add = add};
    backprop_weight_sums(b, &values, thread);
}
