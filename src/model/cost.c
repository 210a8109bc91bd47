#include "model/cost.h"

#include <math.h>

#include "model/kv_cache.h"
#include "model/pack.h"

/* --- a shape --------------------------------------------------------------------------------- */

bool cost_shape_of_file(const struct gguf *g, const struct config *c, struct cost_shape *out)
{
    const bool tied = layout_output_tied(g);
    const enum tensor_role role = tied ? ROLE_TOKEN_EMBD : ROLE_OUTPUT;
    const struct gguf_tensor *matrix = layout_find(g, role, 0, false);
    *out = (struct cost_shape){.config = c, .tied = tied, .gguf = g};
    return matrix && pack_storage(matrix->type->type, &out->storage);
}

bool cost_has_tensor(const struct cost_shape *s, const struct tensor_spec *t)
{
    if (s->tied && t->role == ROLE_OUTPUT && !t->is_bias)
        return false;
    if (!s->gguf)
        return !(t->flags & (SPEC_NOT_NEW | SPEC_UNUSUAL));
    return layout_find(s->gguf, t->role, t->layer, t->is_bias);
}

struct cost_weights cost_weights(const struct cost_shape *s)
{
    struct cost_weights sum = {0};
    const struct config *c = s->config;
    for (int64_t i = 0; i < layout_count(c); i++) {
        struct tensor_spec t = layout_at(c, i);
        const bool again = s->tied && t.role == ROLE_OUTPUT && !t.is_bias; /* the embedding's */
        if (!again && !cost_has_tensor(s, &t))
            continue;
        sum.parameters += again ? 0 : spec_elements(&t);
        /* The file's tensors that the matrix in memory is made of. */
        const enum tensor_role last = t.role == ROLE_ATTN_Q ? ROLE_ATTN_V : t.role;
        const struct gguf_tensor *own[QKV_PARTS];
        int n_own = 0;
        if (s->gguf && !s->converts)
            for (enum tensor_role r = t.role; r <= last; r++) {
                own[n_own] = layout_find(s->gguf, r, t.layer, t.is_bias);
                n_own += own[n_own] != NULL;
            }
        /* In memory one matrix has Q, K and V (Q counts all three), and rotations have the factors
         * of rotary positions. */
        if (t.role == ROLE_ATTN_Q)
            t = t.is_bias ? layout_bias(c, ROLE_ATTN_QKV, t.layer)
                          : layout_weight(c, ROLE_ATTN_QKV, t.layer);
        if (role_is_joined(t.role) || t.role == ROLE_ROPE_FREQS)
            continue;
        const bool is_matrix = t.form == FORM_MATRIX && !t.is_bias;
        enum storage storage = is_matrix ? s->storage : STORAGE_F32;
        const struct tensor_spec stored = again ? layout_weight(c, ROLE_TOKEN_EMBD, 0) : t;
        if (is_matrix)
            pack_storage(layout_type(&stored, pack_type(s->storage)), &storage);
        if (is_matrix && n_own > 0)
            storage = pack_common_storage(own, n_own);
        const uint64_t bytes =
            is_matrix ? matrix_bytes(t.rows, t.cols, storage) : spec_elements(&t) * sizeof(float);
        sum.memory_bytes += again ? 0 : bytes;
        if (t.role == ROLE_TOKEN_EMBD || t.role == ROLE_POSITION_EMBD) { /* a step reads one row */
            sum.step_bytes += storage_bytes(storage, t.is_bias ? 0 : t.cols);
            continue;
        }
        const uint64_t times = c->shared && role_in_block(t.role) ? c->n_layers : 1;
        sum.step_bytes += bytes * times;
        if (!is_matrix)
            continue;
        const uint64_t flops = 2 * spec_elements(&t) * times;
        *(storage_is_quantised(storage) ? &sum.quants : &sum.floats) += flops;
        if (t.role == ROLE_OUTPUT)
            *(storage_is_quantised(storage) ? &sum.output_quants : &sum.output_floats) = flops;
    }
    return sum;
}

/* --- a step ---------------------------------------------------------------------------------- */

struct cost_plan cost_plan(const struct cost_shape *s, const struct cost_weights *w,
                           struct kv_type kv, int depth, int batch)
{
    const struct config *c = s->config;
    const struct kv_shape room = {
        .n_sequences = batch, .cap = depth < c->n_ctx ? depth + 1 : depth, .type = kv};
    /* Elements of a key and a value, for every head of a layer. */
    uint64_t of_position = (uint64_t)c->n_heads * (c->head_dim + config_value_dim(c));
    uint64_t positions = 0; /* that are read, over all layers */
    size_t bytes;
    assert(depth >= 0 && batch >= 1);
    if (c->score == SCORE_ADDITIVE)
        of_position += KERNEL_TANH_FMAS * (uint64_t)c->n_heads * c->head_dim;
    for (int l = 0; l < c->n_layers; l++)
        positions += depth + 1 - config_window_first(c, l, depth);
    const struct cost_flops each = {.floats = w->floats,
                                    .quants = w->quants,
                                    .attention = 2 * of_position * positions,
                                    .weights = 2 * KERNEL_WEIGHT_FMAS * c->n_heads * positions};
    const uint64_t kv_bytes = kv_cache_bytes_read(c, kv, depth);
    const uint64_t token_bytes = kv_cache_bytes_per_token(c, kv);
    const uint64_t allocated = kv_cache_bytes(c, &room, &bytes) ? bytes : UINT64_MAX;
    return (struct cost_plan){.n_kv_heads = c->n_kv_heads,
                              .depth = depth,
                              .batch = batch,
                              .kv_type = kv_type_name(kv),
                              .weight_bytes = w->step_bytes,
                              .kv_bytes = kv_bytes,
                              .step_bytes = u64_sum(w->step_bytes, u64_product(kv_bytes, batch)),
                              .each = each,
                              .flops = batch * (each.floats + each.quants + each.attention),
                              .weights_memory = w->memory_bytes,
                              .cache_bytes = u64_product(token_bytes * depth, batch),
                              .allocated_bytes = allocated,
                              .memory_bytes = u64_sum(w->memory_bytes, allocated)};
}

void cost_predict(struct cost_plan *p, const struct roofline *limits)
{
    const double batch = p->batch;
    const double products = batch * (p->each.floats / limits->fma_flops_per_s +
                                     p->each.quants / limits->dot_flops_per_s);
    const double attention =
        batch * (p->each.attention + p->each.weights) / limits->fma_flops_per_s;
    const double us = (fmax(p->weight_bytes / limits->bytes_per_s, products) +
                       fmax(batch * p->kv_bytes / limits->bytes_per_s, attention)) *
                      1e6;
    p->limits = *limits;
    p->bandwidth_gb_per_s = limits->bytes_per_s / 1e9;
    p->predicted = (struct cost_time){us, batch * 1e6 / us};
}

struct cost_time cost_prompt(const struct cost_shape *s, const struct cost_weights *w, int n,
                             const struct roofline *limits)
{
    /* The operations of the token in the middle, which are the mean of all; the type of the cache
     * makes no difference to them. */
    const struct cost_flops mean = cost_plan(s, w, kv_type_of(CACHE_F32), (n - 1) / 2, 1).each;
    const double fmas = (double)n * (w->floats - w->output_floats + mean.attention + mean.weights) +
                        w->output_floats;
    const double dots = (double)n * (w->quants - w->output_quants) + w->output_quants;
    const double us = fmax(w->step_bytes / limits->bytes_per_s,
                           fmas / limits->fma_flops_per_s + dots / limits->dot_flops_per_s) *
                      1e6;
    return (struct cost_time){us, n * 1e6 / us};
}

/* One thread of a processor of the last ten years reads a layer of a few hundred kB from its second
 * cache and computes about so fast. Handing a layer's stages over and waiting takes two threads
 * some 2.7 us on a virtual machine, less on other ones; they halve the rest. */
static const struct roofline one_thread = {
    .bytes_per_s = 32e9, .fma_flops_per_s = 64e9, .dot_flops_per_s = 128e9};
#define SHORT_LAYER_US 5.5

bool cost_prefers_one_thread(const struct cost_plan *p, int n_layers)
{
    struct cost_plan one = *p;
    cost_predict(&one, &one_thread);
    return one.predicted.us < SHORT_LAYER_US * n_layers;
}
