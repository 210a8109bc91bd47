#include "convert/expand.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/pack.h"

struct expansion {
    const struct gguf *g;
    struct config config, expanded;
    struct gguf_writer *writer;
    struct arena arena;
    float *kv_a, *by_head; /* a block's tensors, widened */
    double *row;           /* [d_model] */
    /* New tensors, in the order of the blocks: keys' weight and bias, then values'. */
    float **made;
};
#define MADE 4

static const struct gguf_tensor *find(const struct expansion *x, enum tensor_role role, int block,
                                      bool is_bias)
{
    return gguf_find_tensor(x->g, arch_tensor_name(role, block, is_bias).text);
}

static void take_memory(struct expansion *x)
{
    const struct config *c = &x->config;
    const uint64_t d = (uint64_t)c->d_model, rank = (uint64_t)config_most_latent(c);
    const uint64_t rows[] = {(uint64_t)config_q_dim(c), (uint64_t)config_heads_dim(c)};
    const uint64_t widest = rows[0] > rows[1] ? rows[0] : rows[1];
    const int n = config_blocks(c);
    x->made = arena_take(&x->arena, (uint64_t)n * MADE, sizeof *x->made);
    x->kv_a = arena_take(&x->arena, rank * d, sizeof(float));
    x->by_head = arena_take(&x->arena, rank * widest, sizeof(float));
    x->row = arena_take(&x->arena, d, sizeof(double));
    for (int i = 0; i < n * MADE; i++) {
        float *made = arena_take(&x->arena, rows[i / 2 % 2] * (i % 2 ? 1 : d), sizeof(float));
        if (x->made)
            x->made[i] = made;
    }
}

/* out [n_cols] = sum_r factors[r * step] * rows [rank, n_cols]. */
static void add_rows(const struct expansion *x, const float *factors, size_t step, int rank,
                     const float *rows, int n_cols, float *out)
{
    for (int i = 0; i < n_cols; i++)
        x->row[i] = 0;
    for (int r = 0; r < rank; r++)
        for (int i = 0; i < n_cols; i++)
            x->row[i] += (double)factors[(size_t)r * step] *
                         (double)rows[(size_t)r * (size_t)n_cols + (size_t)i];
    for (int i = 0; i < n_cols; i++)
        out[i] = (float)x->row[i];
}

/* Keys: column i of a head's [rank, head_dim]; values: row i of all heads' [value_dim, rank]. */
static void multiply_block(const struct expansion *x, const float *cached, int n_cols, int block,
                           bool are_keys, float *out)
{
    const struct config *c = &x->config;
    const int rank = config_latent(c, block), dim = c->head_dim;
    const int n = are_keys ? config_q_dim(c) : config_heads_dim(c);
    for (int i = 0; i < n; i++, out += n_cols) {
        const size_t first =
            are_keys ? (size_t)(i / dim) * (size_t)rank * (size_t)dim + (size_t)(i % dim)
                     : (size_t)i * (size_t)rank;
        add_rows(x, x->by_head + first, are_keys ? (size_t)dim : 1, rank, cached, n_cols, out);
    }
}

static void add_made(const struct expansion *x, enum tensor_role role, int block, bool is_bias,
                     const float *data)
{
    const struct tensor_spec spec =
        is_bias ? layout_bias(&x->expanded, role, block) : layout_weight(&x->expanded, role, block);
    gguf_add_tensor(x->writer, text_of(spec.name.text), TENSOR_F32, spec.n_dims, spec_dims(&spec).n,
                    data);
}

static void expand_block(struct expansion *x, int block)
{
    static const enum tensor_role maps[] = {ROLE_ATTN_K_B, ROLE_ATTN_V_B};
    static const enum tensor_role roles[] = {ROLE_ATTN_K, ROLE_ATTN_V};
    const struct gguf_tensor *bias = find(x, ROLE_ATTN_KV_A, block, true);
    for (int i = 0; i < 2; i++) {
        float **made = x->made + block * MADE + 2 * i;
        pack_floats(x->by_head, find(x, maps[i], block, false));
        pack_floats(x->kv_a, find(x, ROLE_ATTN_KV_A, block, false));
        multiply_block(x, x->kv_a, x->config.d_model, block, i == 0, made[0]);
        add_made(x, roles[i], block, false, made[0]);
        if (!bias)
            continue;
        pack_floats(x->kv_a, bias);
        multiply_block(x, x->kv_a, 1, block, i == 0, made[1]);
        add_made(x, roles[i], block, true, made[1]);
    }
}

static bool is_replaced(const struct expansion *x, struct text name)
{
    struct tensor_spec spec;
    return layout_named(&x->config, name, &spec) &&
           (spec.role == ROLE_ATTN_KV_A || spec.role == ROLE_ATTN_K_B ||
            spec.role == ROLE_ATTN_V_B);
}

static void write_file(struct expansion *x)
{
    for (size_t i = 0; i < x->g->n_pairs; i++)
        if (!config_is_latent_key(&x->config, x->g->pairs[i].key) &&
            !config_is_kv_heads_key(&x->config, x->g->pairs[i].key))
            gguf_add_value(x->writer, x->g->pairs[i].key, &x->g->pairs[i].value);
    config_write_kv_heads(&x->expanded, x->writer);
    for (size_t i = 0; i < x->g->n_tensors; i++) {
        const struct gguf_tensor *t = &x->g->tensors[i];
        if (!is_replaced(x, t->name))
            gguf_add_tensor(x->writer, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    for (int b = 0; b < config_blocks(&x->config); b++)
        expand_block(x, b);
}

enum status convert_expand(const struct gguf *g, unsigned char **bytes, size_t *len, struct err *e)
{
    struct expansion x = {.g = g};
    *bytes = NULL;
    TRY(config_read(g, &x.config, e));
    assert(config_is_latent(&x.config));
    x.expanded = x.config;
    x.expanded.n_kv_heads = x.config.n_heads;
    x.expanded.split_qkv = true;
    for (int l = 0; l < x.config.n_layers; l++)
        x.expanded.latent[l] = 0;
    take_memory(&x);
    TRY(arena_allocate(&x.arena, "the heads' keys and values", e));
    take_memory(&x);
    enum status s = gguf_writer_create(&x.writer, e);
    if (s == STATUS_OK) {
        write_file(&x);
        s = gguf_write_memory(x.writer, bytes, len, e);
    }
    gguf_writer_free(x.writer);
    arena_free(&x.arena);
    return s;
}
