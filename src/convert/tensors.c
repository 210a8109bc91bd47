#include "convert/tensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gguf/blocks.h"

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          int layer, bool is_bias)
{
    return gguf_find_tensor(c->spec->gguf, arch_tensor_name(role, layer, is_bias).text);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Elements decoded at a time: a multiple of every type's block. */
#define PIECE 256

/* n elements from element `first` on, a multiple of the type's block; zeros where there is no
 * tensor. The model's loader has checked type and shape. */
static void read_numbers(const struct gguf_tensor *t, uint64_t first, uint64_t n, double *out)
{
    if (!t) {
        memset(out, 0, n * sizeof *out);
        return;
    }
    assert(first % t->type->block_elements == 0 && first + n <= t->n_elements);
    const unsigned char *at = t->data + first / t->type->block_elements * t->type->block_bytes;
    for (uint64_t done = 0; done < n; done += PIECE) {
        float piece[PIECE];
        const uint64_t now = n - done < PIECE ? n - done : PIECE;
        blocks_decode(t->type->type, piece,
                      at + done / t->type->block_elements * t->type->block_bytes, now);
        for (uint64_t i = 0; i < now; i++)
            out[done + i] = (double)piece[i];
    }
}

/* The output matrix [d, q_dim], turned over. */
static void read_out(struct converter *c, const struct gguf_tensor *t)
{
    const size_t d = (size_t)c->d, q = (size_t)c->q_dim;
    for (size_t r = 0; r < d; r++) {
        double *row = c->square;
        read_numbers(t, r * q, q, row);
        for (size_t i = 0; i < q; i++)
            c->from.o[i * d + r] = row[i];
    }
}

void convert_load(struct converter *c, int layer)
{
    const struct gguf_tensor *weight = find_old(c, ROLE_ATTN_QKV, layer, false);
    const struct gguf_tensor *bias = find_old(c, ROLE_ATTN_QKV, layer, true);
    const uint64_t d = (uint64_t)c->d, q = (uint64_t)c->q_dim;
    const uint64_t kv = (uint64_t)(c->n_kv_heads * c->dim);
    const struct convert_weights *w = &c->from;
    read_numbers(weight, 0, q * d, w->q);
    read_numbers(weight, q * d, kv * d, w->k);
    read_numbers(weight, (q + kv) * d, kv * d, w->v);
    read_numbers(bias, 0, q, w->bq);
    read_numbers(bias, q, kv, w->bk);
    read_numbers(bias, q + kv, kv, w->bv);
    read_out(c, find_old(c, ROLE_ATTN_OUTPUT, layer, false));
    read_numbers(find_old(c, ROLE_ATTN_OUTPUT, layer, true), 0, d, w->bo);
}

/* --- the new tensors ------------------------------------------------------------------------- */

/* Of the old tensor's type, F32 where there is none. `t` is NULL while counting. */
static void take_tensor(struct converter *c, struct arena *arena, const struct tensor_spec *spec,
                        struct convert_tensor *t)
{
    const struct gguf_tensor *old = gguf_find_tensor(c->spec->gguf, spec->name.text);
    const struct tensor_type_info *type = old ? old->type : tensor_type_find(TENSOR_F32);
    const uint64_t n = spec_elements(spec);
    const uint64_t n_bytes = n / type->block_elements * type->block_bytes;
    unsigned char *bytes = arena_take(arena, n_bytes, 1);
    if (!t)
        return;
    *t = (struct convert_tensor){.name = spec->name, .bytes = bytes, .added = !old};
    t->tensor = (struct gguf_tensor){.name = text_of(t->name.text),
                                     .n_dims = spec->n_dims,
                                     .dims = {(uint64_t)spec->cols, (uint64_t)spec->rows, 1, 1},
                                     .type = type,
                                     .n_elements = n,
                                     .n_bytes = n_bytes,
                                     .data = bytes};
}

static void take_pair(struct converter *c, struct arena *arena, enum tensor_role role, int layer,
                      struct convert_pair *p)
{
    const struct tensor_spec weight = layout_weight(&c->converted, role, layer);
    const struct tensor_spec bias = layout_bias(&c->converted, role, layer);
    take_tensor(c, arena, &weight, p ? &p->weight : NULL);
    take_tensor(c, arena, &bias, p ? &p->bias : NULL);
}

void convert_tensors_take(struct converter *c, struct arena *arena)
{
    c->tensors = arena_take(arena, (uint64_t)c->config.n_layers, sizeof *c->tensors);
    for (int l = 0; l < c->config.n_layers; l++) {
        struct convert_tensors *t = c->tensors ? &c->tensors[l] : NULL;
        take_pair(c, arena, ROLE_ATTN_QKV, l, t ? &t->qkv : NULL);
        take_pair(c, arena, ROLE_ATTN_OUTPUT, l, t ? &t->out : NULL);
    }
}

/* Rounds n numbers to elements from `first` on. STATUS_FAILED if one is not finite, or is not any
 * more. */
static enum status write_numbers(struct convert_tensor *t, uint64_t first, uint64_t n,
                                 const double *x, struct err *e)
{
    const struct tensor_type_info *type = t->tensor.type;
    assert(first % type->block_elements == 0 && first + n <= t->tensor.n_elements);
    unsigned char *at = t->bytes + first / type->block_elements * type->block_bytes;
    for (uint64_t done = 0; done < n; done += PIECE) {
        float piece[PIECE], back[PIECE];
        const uint64_t now = n - done < PIECE ? n - done : PIECE;
        for (uint64_t i = 0; i < now; i++)
            piece[i] = (float)x[done + i];
        unsigned char *bytes = at + done / type->block_elements * type->block_bytes;
        blocks_encode(type->type, bytes, piece, now);
        blocks_decode(type->type, back, bytes, now);
        for (uint64_t i = 0; i < now; i++)
            if (!isfinite(back[i]))
                return err_set(e, STATUS_FAILED,
                               "tensor %s: the new element %llu, %g, is no finite number as %s",
                               t->name.text, (unsigned long long)(first + done + i), x[done + i],
                               type->name);
    }
    return STATUS_OK;
}

enum status convert_store_qkv(struct converter *c, int layer, struct err *e)
{
    struct convert_pair *t = &c->tensors[layer].qkv;
    const uint64_t d = (uint64_t)c->d, q = (uint64_t)c->q_dim;
    const uint64_t kv = (uint64_t)(c->n_groups * c->dim);
    const struct convert_weights *w = &c->to;
    const double *rows[] = {w->q, w->k, w->v}, *biases[] = {w->bq, w->bk, w->bv};
    const uint64_t starts[] = {0, q, q + kv}, counts[] = {q, kv, kv};
    enum status s = STATUS_OK;
    for (int i = 0; i < 3 && s == STATUS_OK; i++) {
        s = write_numbers(&t->weight, starts[i] * d, counts[i] * d, rows[i], e);
        if (s == STATUS_OK)
            s = write_numbers(&t->bias, starts[i], counts[i], biases[i], e);
    }
    return s;
}

enum status convert_store_out(struct converter *c, int layer, struct err *e)
{
    struct convert_pair *t = &c->tensors[layer].out;
    const size_t d = (size_t)c->d, q = (size_t)c->q_dim;
    enum status s = STATUS_OK;
    for (size_t r = 0; r < d && s == STATUS_OK; r++) {
        double *row = c->square;
        for (size_t i = 0; i < q; i++)
            row[i] = c->to.o[i * d + r];
        s = write_numbers(&t->weight, r * q, q, row, e);
    }
    return s == STATUS_OK ? write_numbers(&t->bias, 0, d, c->to.bo, e) : s;
}

/* --- the new file ---------------------------------------------------------------------------- */

#define OWN_KEYS "decode.convert."

static void add_pairs(const struct converter *c, struct gguf_writer *w)
{
    const struct convert_spec *spec = c->spec;
    char heads[96];
    snprintf(heads, sizeof heads, "%s.attention.head_count_kv", c->config.arch->name);
    for (size_t i = 0; i < spec->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        if (!text_is(p->key, heads) && !text_starts_with(p->key, OWN_KEYS))
            gguf_add_value(w, p->key, &p->value);
    }
    gguf_add_u32(w, heads, (uint32_t)c->n_groups);
    gguf_add_text(w, OWN_KEYS "source", text_of(spec->source_name));
    gguf_add_u32(w, OWN_KEYS "source_kv_heads", (uint32_t)c->config.n_kv_heads);
    gguf_add_text(w, OWN_KEYS "method", text_of(convert_methods[spec->method]));
    gguf_add_text(w, OWN_KEYS "grouping", text_of(spec->cluster ? "cluster" : "adjacent"));
    gguf_add_bool(w, OWN_KEYS "refit", spec->refit);
    gguf_add_u64(w, OWN_KEYS "calibration_tokens", spec->n_tokens);
    if (spec->method == CONVERT_RANDOM)
        gguf_add_u64(w, OWN_KEYS "seed", spec->seed);
    gguf_add_text(w, OWN_KEYS "version", text_of(spec->version));
}

static uint64_t write_tensor(struct gguf_writer *w, const struct gguf_tensor *t)
{
    gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    return t->n_elements;
}

/* The new pair that an old tensor belongs to; NULL if it stays. */
static const struct convert_pair *replacement(const struct converter *c, struct text name,
                                              bool *is_bias)
{
    struct tensor_spec spec;
    if (!layout_named(&c->config, name, &spec))
        return NULL;
    *is_bias = spec.is_bias;
    return spec.role == ROLE_ATTN_QKV      ? &c->tensors[spec.layer].qkv
           : spec.role == ROLE_ATTN_OUTPUT ? &c->tensors[spec.layer].out
                                           : NULL;
}

/* Tensors in the old order; biases that were not there follow their matrices. Returns the number of
 * elements. */
static uint64_t write_tensors(const struct converter *c, struct gguf_writer *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->spec->gguf->n_tensors; i++) {
        const struct gguf_tensor *old = &c->spec->gguf->tensors[i];
        bool is_bias;
        const struct convert_pair *new = replacement(c, old->name, &is_bias);
        if (!new)
            n += write_tensor(w, old);
        else
            n += write_tensor(w, is_bias ? &new->bias.tensor : &new->weight.tensor);
        if (new && !is_bias &&new->bias.added)
            n += write_tensor(w, &new->bias.tensor);
    }
    return n;
}

enum status convert_write(const struct converter *c, struct gguf_writer **out, uint64_t *n_params,
                          struct err *e)
{
    TRY(gguf_writer_create(out, e));
    add_pairs(c, *out);
    *n_params = write_tensors(c, *out);
    return STATUS_OK;
}
