#include "model/cost.h"

#include "model/pack.h"

bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out)
{
    const struct gguf_tensor *output = gguf_find_tensor(g, "output.weight");
    const struct gguf_tensor *matrix = output ? output : gguf_find_tensor(g, "token_embd.weight");
    *out = (struct cost_shape){
        .config = c,
        .n_kv_heads = c->n_kv_heads,
        .biases = gguf_find_tensor(g, "blk.0.attn_qkv.bias") != NULL,
        .tied = !output,
    };
    return matrix && pack_storage(matrix->type, &out->storage);
}

/* The matrices of a layer. */
struct sizes {
    int n_out, n_in;
};

static int qkv_rows(const struct config *c, int n_kv_heads)
{
    return c->d_model + 2 * n_kv_heads * c->head_dim;
}

static void layer_matrices(const struct config *c, int n_kv_heads, struct sizes out[4])
{
    const int d = c->d_model;
    out[0] = (struct sizes){qkv_rows(c, n_kv_heads), d};
    out[1] = (struct sizes){d, d};
    out[2] = (struct sizes){c->d_ff, d};
    out[3] = (struct sizes){d, c->d_ff};
}

/* Elements of a layer's vectors: two norms, four biases. */
static uint64_t layer_vectors(const struct cost_shape *s)
{
    const struct config *c = s->config;
    uint64_t n = 2 * (uint64_t)c->d_model;
    if (s->biases)
        n += 2 * (uint64_t)c->d_model + (uint64_t)qkv_rows(c, s->n_kv_heads) +
             2 * (uint64_t)c->d_model + (uint64_t)c->d_ff;
    return n;
}

static uint64_t last_norm(const struct cost_shape *s)
{
    return (uint64_t)s->config->d_model * (s->biases ? 2 : 1);
}

uint64_t cost_parameters(const struct cost_shape *s)
{
    const struct config *c = s->config;
    struct sizes matrices[4];
    layer_matrices(c, s->n_kv_heads, matrices);
    uint64_t layer = layer_vectors(s);
    for (int i = 0; i < 4; i++)
        layer += (uint64_t)matrices[i].n_out * (uint64_t)matrices[i].n_in;
    const uint64_t table = (uint64_t)c->n_vocab * (uint64_t)c->d_model;
    return (uint64_t)c->n_layers * layer + last_norm(s) + table * (s->tied ? 1 : 2) +
           (uint64_t)c->n_ctx * (uint64_t)c->d_model;
}

/* A row of the embedding, in its type, and one of the positions, in F32. */
static uint64_t row_bytes(const struct config *c, enum storage storage)
{
    return storage_bytes(storage, (uint64_t)c->d_model) + (uint64_t)c->d_model * sizeof(float);
}

uint64_t cost_weight_bytes(const struct cost_shape *s)
{
    const struct config *c = s->config;
    struct sizes matrices[4];
    layer_matrices(c, s->n_kv_heads, matrices);
    uint64_t layer = layer_vectors(s) * sizeof(float);
    for (int i = 0; i < 4; i++)
        layer += matrix_bytes(matrices[i].n_out, matrices[i].n_in, s->storage);
    return (uint64_t)c->n_layers * layer + last_norm(s) * sizeof(float) +
           matrix_bytes(c->n_vocab, c->d_model, s->storage) + row_bytes(c, s->storage);
}

static uint64_t bytes_of(const struct matrix *w)
{
    const uint64_t bias = w->bias ? (uint64_t)w->n_out * sizeof(float) : 0;
    return matrix_bytes(w->n_out, w->n_in, w->storage) + bias;
}

static uint64_t norm_bytes(const struct norm *n, int d)
{
    return (uint64_t)d * sizeof(float) * (n->bias ? 2 : 1);
}

uint64_t cost_model_bytes(const struct model *m)
{
    const struct config *c = &m->config;
    uint64_t bytes = norm_bytes(&m->output_norm, c->d_model) + bytes_of(&m->output) +
                     row_bytes(c, m->embed.storage);
    for (int l = 0; l < c->n_layers; l++) {
        const struct layer *layer = &m->layers[l];
        bytes += norm_bytes(&layer->attn_norm, c->d_model) + bytes_of(&layer->qkv) +
                 bytes_of(&layer->attn_out) + norm_bytes(&layer->ffn_norm, c->d_model) +
                 bytes_of(&layer->up) + bytes_of(&layer->down);
    }
    return bytes;
}

uint64_t cost_kv_bytes(const struct config *c, int n_kv_heads, enum storage kv, int depth)
{
    const uint64_t k_and_v = storage_bytes(kv, (uint64_t)c->head_dim) +
                             storage_bytes(kv, (uint64_t)kernel_padded(c->head_dim));
    return (uint64_t)c->n_layers * (uint64_t)n_kv_heads * k_and_v * (uint64_t)depth;
}

uint64_t cost_flops(const struct config *c, int n_kv_heads, int depth)
{
    struct sizes matrices[4];
    layer_matrices(c, n_kv_heads, matrices);
    uint64_t layer = 2 * (uint64_t)c->d_model * ((uint64_t)depth + 1); /* scores and values */
    for (int i = 0; i < 4; i++)
        layer += (uint64_t)matrices[i].n_out * (uint64_t)matrices[i].n_in;
    return 2 * ((uint64_t)c->n_layers * layer + (uint64_t)c->n_vocab * (uint64_t)c->d_model);
}
