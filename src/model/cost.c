#include "model/cost.h"

#include <assert.h>
#include <math.h>

#include "base/checked.h"
#include "model/kv_cache.h"
#include "model/pack.h"

/* --- a shape --------------------------------------------------------------------------------- */

bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out)
{
    const struct gguf_tensor *output =
        gguf_find_tensor(g, arch_tensor_name(ROLE_OUTPUT, 0, false).text);
    const struct gguf_tensor *embedding =
        gguf_find_tensor(g, arch_tensor_name(ROLE_TOKEN_EMBD, 0, false).text);
    const bool tied = layout_output_tied(g);
    const struct gguf_tensor *matrix = tied ? embedding : output;
    *out = (struct cost_shape){
        .config = c,
        .n_kv_heads = c->n_kv_heads,
        .gguf = g,
        .tied = tied,
    };
    return matrix && pack_storage(matrix->type, &out->storage);
}

/* A config is long: there is one copy of it at a time on the stack. */
static void set_variant(struct config *c, const struct cost_shape *s)
{
    *c = *s->config;
    c->n_kv_heads = s->n_kv_heads;
}

static bool file_has(const struct cost_shape *s, enum tensor_role role, int layer, bool is_bias)
{
    return gguf_find_tensor(s->gguf, arch_tensor_name(role, layer, is_bias).text) != NULL;
}

/* Whether a latent cache, which the file has none of, would bring the tensor. */
static bool is_new(const struct cost_shape *s, const struct tensor_spec *t)
{
    const bool latent = t->role == ROLE_ATTN_Q || t->role == ROLE_ATTN_KV_A ||
                        t->role == ROLE_ATTN_K_B || t->role == ROLE_ATTN_V_B;
    return latent && config_is_latent(s->config) && !file_has(s, ROLE_ATTN_KV_A, t->layer, false);
}

bool cost_has_tensor(const struct cost_shape *s, const struct tensor_spec *t)
{
    if (s->tied && t->role == ROLE_OUTPUT && !t->is_bias)
        return false;
    if (s->gguf && is_new(s, t))
        return !t->is_bias || file_has(s, ROLE_ATTN_OUTPUT, t->layer, true);
    if (s->gguf)
        return file_has(s, t->role, t->layer, t->is_bias);
    if (t->is_bias ? !s->biases : (t->flags & SPEC_NOT_NEW) != 0)
        return false;
    return !(t->flags & SPEC_UNUSUAL);
}

uint64_t cost_parameters(const struct cost_shape *s)
{
    struct config c;
    set_variant(&c, s);
    uint64_t n = 0;
    for (int64_t i = 0; i < layout_count(&c); i++) {
        const struct tensor_spec t = layout_at(&c, i);
        if (cost_has_tensor(s, &t))
            n += spec_elements(&t);
    }
    return n;
}

/* Whether a step reads one row of it, not all. */
static bool is_looked_up(enum tensor_role role)
{
    return role == ROLE_TOKEN_EMBD || role == ROLE_POSITION_EMBD;
}

/* Factors of rotary positions are in the turns. */
static bool is_read(enum tensor_role role)
{
    return role != ROLE_ROPE_FREQS;
}

/* How often a step reads a tensor, and computes with it. */
static uint64_t times_used(const struct config *c, enum tensor_role role)
{
    return c->shared && role_in_block(role) ? (uint64_t)c->n_layers : 1;
}

/* Bytes of a tensor in memory. */
static uint64_t held_bytes(const struct tensor_spec *t, enum storage storage)
{
    if (t->form != FORM_MATRIX || t->is_bias)
        return spec_elements(t) * sizeof(float);
    return (uint64_t)t->n_matrices * matrix_bytes(t->rows / t->n_matrices, t->cols, storage);
}

/* How a shape stores a tensor that is read as a whole: heads' matrices may not be as the others. */
static enum storage storage_of(const struct cost_shape *s, const struct tensor_spec *t)
{
    enum storage storage = s->storage;
    if (t->flags & SPEC_BY_HEAD)
        pack_storage(tensor_type_find(layout_type(t, pack_type(s->storage))), &storage);
    return storage;
}

/* Bytes of it that a step reads. */
static uint64_t read_bytes(const struct tensor_spec *t, enum storage storage)
{
    if (is_looked_up(t->role))
        return t->form == FORM_MATRIX ? storage_bytes(storage, (uint64_t)t->cols)
                                      : (uint64_t)t->cols * sizeof(float);
    return held_bytes(t, storage);
}

/* The tensor in memory that one of a checkpoint becomes: Q stands for K and V, too, or what is
 * latent, which it is joined with. False: a step reads none. */
static bool in_memory(const struct config *c, struct tensor_spec *t)
{
    const enum tensor_role joined = ROLE_ATTN_QKV;
    if (t->role == ROLE_ATTN_K || t->role == ROLE_ATTN_V || t->role == ROLE_ATTN_KV_A ||
        !is_read(t->role))
        return false;
    if (t->role == ROLE_ATTN_Q)
        *t = t->is_bias ? layout_bias(c, joined, t->layer) : layout_weight(c, joined, t->layer);
    return true;
}

uint64_t cost_weight_bytes(const struct cost_shape *s)
{
    struct config c;
    set_variant(&c, s);
    const struct tensor_spec output = layout_weight(&c, ROLE_OUTPUT, 0);
    uint64_t bytes = s->tied ? read_bytes(&output, s->storage) : 0;
    for (int64_t i = 0; i < layout_count(&c); i++) {
        struct tensor_spec t = layout_at(&c, i);
        if (cost_has_tensor(s, &t) && in_memory(&c, &t))
            bytes += read_bytes(&t, storage_of(s, &t)) * times_used(&c, t.role);
    }
    return bytes;
}

uint64_t cost_memory_bytes(const struct cost_shape *s)
{
    struct config c;
    set_variant(&c, s);
    uint64_t bytes = 0;
    for (int64_t i = 0; i < layout_count(&c); i++) {
        struct tensor_spec t = layout_at(&c, i);
        enum storage storage = s->storage;
        if (!cost_has_tensor(s, &t) || !in_memory(&c, &t))
            continue;
        if (t.form == FORM_MATRIX)
            pack_storage(tensor_type_find(layout_type(&t, pack_type(s->storage))), &storage);
        bytes += held_bytes(&t, storage);
    }
    return bytes;
}

/* --- a loaded model -------------------------------------------------------------------------- */

static const struct weight *loaded_weight(const struct model *m, enum tensor_role role, int layer)
{
    return role_in_block(role) ? &m->blocks[layer].w[role] : &m->w[role];
}

/* Bytes of a role's tensors that a step reads. */
static uint64_t loaded_bytes(const struct config *c, const struct weight *w, enum tensor_role role,
                             int layer)
{
    const struct tensor_spec weight = layout_weight(c, role, layer);
    const bool has_bias = weight.form == FORM_NORM ? w->norm.bias : w->matrix.bias;
    uint64_t bytes = read_bytes(&weight, w->matrix.storage);
    if (has_bias && !is_looked_up(role)) {
        const struct tensor_spec bias = layout_bias(c, role, layer);
        bytes += read_bytes(&bias, w->matrix.storage);
    }
    return bytes;
}

uint64_t cost_model_bytes(const struct model *m)
{
    const struct config *c = &m->config;
    uint64_t bytes = 0;
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        for (int l = 0; model_has(c, role) && l < (role_in_block(role) ? c->n_layers : 1); l++)
            bytes += is_read(role) ? loaded_bytes(c, loaded_weight(m, role, l), role, l) : 0;
    return bytes;
}

/* --- the cache and the arithmetic ------------------------------------------------------------ */

uint64_t cost_kv_bytes(const struct config *c, int n_kv_heads, enum storage kv, int depth)
{
    return kv_cache_bytes_per_token(c, n_kv_heads, kv) * (uint64_t)depth;
}

static uint64_t attention_flops(const struct config *c, int depth)
{
    uint64_t of_position = 0; /* elements of keys and values, once for every head */
    for (int l = 0; l < c->n_layers; l++)
        of_position += (uint64_t)config_key_dim(c, l) + (uint64_t)config_average_dim(c, l);
    return 2 * (uint64_t)c->n_heads * of_position * ((uint64_t)depth + 1);
}

/* Adds what the products with a tensor in this storage take, if there are any. */
static void add_product_flops(struct cost_flops *f, const struct config *c,
                              const struct tensor_spec *t, enum storage storage)
{
    if (t->form != FORM_MATRIX || t->is_bias || is_looked_up(t->role))
        return;
    *(storage_is_quantised(storage) ? &f->quants : &f->floats) +=
        2 * spec_elements(t) * times_used(c, t->role);
}

struct cost_flops cost_flops(const struct cost_shape *s, int depth)
{
    struct config c;
    set_variant(&c, s);
    struct cost_flops f = {.attention = attention_flops(&c, depth)};
    for (int64_t i = 0; i < layout_count(&c); i++) {
        const struct tensor_spec t = layout_at(&c, i);
        add_product_flops(&f, &c, &t, storage_of(s, &t));
    }
    return f;
}

struct cost_flops cost_model_flops(const struct model *m, int depth)
{
    const struct config *c = &m->config;
    struct cost_flops f = {.attention = attention_flops(c, depth)};
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++) {
        for (int l = 0; model_has(c, role) && l < (role_in_block(role) ? config_blocks(c) : 1);
             l++) {
            const struct tensor_spec t = layout_weight(c, role, l);
            add_product_flops(&f, c, &t, loaded_weight(m, role, l)->matrix.storage);
        }
    }
    return f;
}

const char *const cost_part_names[COST_PARTS] = {
    [COST_WEIGHT_BYTES] = "weight bytes",
    [COST_PRODUCT_FLOPS] = "product flops",
    [COST_CACHE_BYTES] = "cache bytes",
    [COST_ATTENTION_FLOPS] = "attention flops",
};

/* --- a step ---------------------------------------------------------------------------------- */

uint64_t cost_step_bytes(const struct cost *c, int batch)
{
    uint64_t bytes;
    return u64_mul((uint64_t)batch, c->kv_bytes, &bytes) && u64_add(bytes, c->weight_bytes, &bytes)
               ? bytes
               : UINT64_MAX;
}

uint64_t cost_step_flops(const struct cost *c, int batch)
{
    return (uint64_t)batch * (c->flops.floats + c->flops.quants + c->flops.attention);
}

static void step_seconds(const struct cost *c, int batch, const struct roofline *limits,
                         double seconds[COST_PARTS])
{
    assert(batch >= 1);
    seconds[COST_WEIGHT_BYTES] = (double)c->weight_bytes / limits->bytes_per_s;
    seconds[COST_PRODUCT_FLOPS] = batch * ((double)c->flops.floats / limits->fma_flops_per_s +
                                           (double)c->flops.quants / limits->dot_flops_per_s);
    seconds[COST_CACHE_BYTES] = batch * (double)c->kv_bytes / limits->bytes_per_s;
    seconds[COST_ATTENTION_FLOPS] = batch * (double)c->flops.attention / limits->fma_flops_per_s;
}

double cost_step_us(const struct cost *c, int batch, const struct roofline *limits)
{
    double s[COST_PARTS];
    step_seconds(c, batch, limits, s);
    return (fmax(s[COST_WEIGHT_BYTES], s[COST_PRODUCT_FLOPS]) +
            fmax(s[COST_CACHE_BYTES], s[COST_ATTENTION_FLOPS])) *
           1e6;
}

enum cost_part cost_step_longest(const struct cost *c, int batch, const struct roofline *limits)
{
    double s[COST_PARTS];
    enum cost_part longest = 0;
    step_seconds(c, batch, limits, s);
    for (enum cost_part part = 1; part < COST_PARTS; part++)
        if (s[part] > s[longest])
            longest = part;
    return longest;
}
