#include "model/fingerprint.h"

#include <string.h>

#include "base/siphash.h"

/* Half of the key; the other is the hash so far. */
#define FINGERPRINT_KEY 0x6465636f64652121u

uint64_t fingerprint_of(uint64_t hash, const void *bytes, size_t len)
{
    const uint64_t key[2] = {hash, FINGERPRINT_KEY};
    return siphash(key, (struct text){bytes, len});
}

static uint64_t hash_config(uint64_t hash, const struct config *c)
{
    const int32_t kinds[] = {c->norm, c->placement, c->position, c->ffn, c->no_biases, c->shared};
    const int32_t sizes[] = {c->n_layers, c->n_heads, c->head_dim, config_value_dim(c),
                             c->d_model,  c->d_ff,    c->n_vocab,  c->rope.n_dims};
    const double numbers[] = {(double)c->norm_eps, (double)c->embedding_scale, c->rope.base,
                              c->rope.scale};
    hash = fingerprint_of(hash, c->arch->name, strlen(c->arch->name));
    hash = fingerprint_of(hash, kinds, sizeof kinds);
    hash = fingerprint_of(hash, sizes, sizeof sizes);
    hash = fingerprint_of(hash, numbers, sizeof numbers);
    for (int l = 0; l < c->n_layers; l++) {
        const int32_t layer[] = {config_kv_heads(c, l), config_latent(c, l)};
        hash = fingerprint_of(hash, layer, sizeof layer);
    }
    return hash;
}

/* Floats, of which there may be none. */
static uint64_t hash_floats(uint64_t hash, const float *x, size_t n)
{
    return x ? fingerprint_of(hash, x, n * sizeof *x) : hash;
}

static uint64_t hash_weight(uint64_t hash, const struct config *c, enum tensor_role role,
                            const struct weight *w)
{
    const struct tensor_spec spec = layout_weight(c, role, 0);
    const struct matrix *m = &w->matrix;
    hash = hash_floats(hash, w->norm.gain, (size_t)c->d_model);
    hash = hash_floats(hash, w->norm.bias, (size_t)c->d_model);
    hash = hash_floats(hash, w->table, (size_t)spec_elements(&spec));
    if (!m->panels)
        return hash;
    const uint64_t bytes = (uint64_t)spec.n_matrices * matrix_bytes(m->n_out, m->n_in, m->storage);
    const int32_t storage = m->storage;
    hash = fingerprint_of(hash, &storage, sizeof storage);
    hash = fingerprint_of(hash, m->panels, (size_t)bytes);
    return hash_floats(hash, m->bias, (size_t)m->n_out);
}

uint64_t model_fingerprint(const struct model *m)
{
    const struct config *c = &m->config;
    uint64_t hash = hash_config(0, c);
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        if (!role_in_block(role) && !(m->tied && role == ROLE_OUTPUT))
            hash = hash_weight(hash, c, role, &m->w[role]);
    for (int l = 0; l < config_blocks(c); l++)
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
            hash = hash_weight(hash, c, role, &m->blocks[l].w[role]);
    return hash;
}
