#include "convert/used.h"

#include <string.h>

#include "convert/tensors.h"

/* Room for a converted matrix in panels of floats, the widest storage, and its bias. */
static struct convert_panels take_panels(const struct converter *c, struct arena *arena,
                                         enum tensor_role role)
{
    uint64_t most = 0; /* rows */
    const uint64_t cols = (uint64_t)layout_weight(&c->converted, role, 0).cols;
    for (int l = 0; l < c->config.n_layers; l++) {
        const uint64_t rows = (uint64_t)layout_weight(&c->converted, role, l).rows;
        most = rows > most ? rows : most;
    }
    /* Each head's matrix has panels of its own. */
    const uint64_t n = (uint64_t)layout_weight(&c->converted, role, 0).n_matrices;
    const uint64_t padded = n * (uint64_t)matrix_panels((int)(most / n)) * KERNEL_LANES;
    return (struct convert_panels){.panels = arena_take(arena, padded * cols, sizeof(float)),
                                   .bias = arena_take(arena, most, sizeof(float))};
}

struct convert_used convert_used_take(const struct converter *c, struct arena *arena)
{
    struct convert_used u = {.pack = pack_scratch_take(arena, c->widest)};
    u.roles[ROLE_ATTN_QKV] = take_panels(c, arena, ROLE_ATTN_QKV);
    u.roles[ROLE_ATTN_OUTPUT] = take_panels(c, arena, ROLE_ATTN_OUTPUT);
    for (int i = PAIR_K_B; i < (convert_refits_block(c) ? CONVERT_PAIRS : PAIR_UP); i++)
        if (layout_has(&c->converted, convert_pair_role(i)))
            u.roles[convert_pair_role(i)] = take_panels(c, arena, convert_pair_role(i));
    u.score_bias = arena_take(arena, (uint64_t)c->n_heads, sizeof *u.score_bias);
    return u;
}

/* A pair's rows, from row `first` of the role's matrix on. */
static void use_pair(struct convert_used *u, enum tensor_role role, const struct convert_pair *p,
                     int first)
{
    struct matrix *m = &u->block.w[role].matrix;
    m->panels = u->roles[role].panels;
    pack_matrix(u->roles[role].panels, m, first, &p->weight.tensor, &u->pack);
    float *bias = u->roles[role].bias + first;
    if (p->bias.bytes)
        pack_floats(bias, &p->bias.tensor);
    else if (m->bias)
        memset(bias, 0, p->weight.tensor.dims[1] * sizeof *bias);
    if (m->bias)
        m->bias = u->roles[role].bias;
}

static void use_qkv(const struct converter *c, struct convert_used *u)
{
    const struct convert_tensors *t = &c->tensors[c->block];
    struct qkv_part parts[QKV_PARTS];
    u->block.w[ROLE_ATTN_QKV].matrix.n_out = config_qkv_dim(&c->converted, c->block);
    for (int i = 0; i < layout_qkv(&c->converted, c->block, parts); i++)
        use_pair(u, ROLE_ATTN_QKV, &t->pairs[i], parts[i].first);
    const struct attend_bias *old = c->model->blocks[c->block].bias;
    for (int h = 0; h < c->n_heads && old; h++)
        u->score_bias[h] = old[c->order[h]];
    u->block.bias = old ? u->score_bias : NULL;
}

/* A matrix of each head, one after the other. */
static void use_by_head(const struct converter *c, struct convert_used *u, enum tensor_role role,
                        const struct convert_tensor *t)
{
    struct matrix *m = &u->block.w[role].matrix;
    *m = (struct matrix){.n_out = (int)t->tensor.dims[1], .n_in = (int)t->tensor.dims[0]};
    pack_storage(t->tensor.type, &m->storage);
    unsigned char *panels = u->roles[role].panels;
    m->panels = panels;
    struct gguf_tensor one = t->tensor;
    one.n_elements /= (uint64_t)c->n_heads;
    one.n_bytes /= (uint64_t)c->n_heads;
    for (int h = 0; h < c->n_heads; h++) {
        pack_matrix(panels, m, 0, &one, &u->pack);
        panels += matrix_bytes(m->n_out, m->n_in, m->storage);
        one.data += one.n_bytes;
    }
}

static void use_latent(const struct converter *c, struct convert_used *u)
{
    const struct convert_pair *pairs = c->tensors[c->block].pairs;
    u->block.w[ROLE_ATTN_QKV].matrix.bias = u->roles[ROLE_ATTN_QKV].bias;
    u->block.w[ROLE_ATTN_OUTPUT].matrix.bias = u->roles[ROLE_ATTN_OUTPUT].bias;
    use_by_head(c, u, ROLE_ATTN_K_B, &pairs[PAIR_K_B].weight);
    use_by_head(c, u, ROLE_ATTN_V_B, &pairs[PAIR_V_B].weight);
}

void convert_use(const struct converter *c, struct convert_used *u)
{
    const struct convert_pair *pairs = c->tensors[c->block].pairs;
    u->block = c->model->blocks[c->block];
    if (convert_is_latent(c))
        use_latent(c, u);
    if (pairs[0].weight.changed)
        use_qkv(c, u);
    for (int i = PAIR_OUT; i < CONVERT_PAIRS; i++)
        if ((i == PAIR_OUT || i >= PAIR_UP) && pairs[i].weight.changed)
            use_pair(u, pairs[i].role, &pairs[i], 0);
}
