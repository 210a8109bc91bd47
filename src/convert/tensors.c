#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/private.h"
#include "gguf/blocks.h"

static const struct gguf_tensor *find(const struct converter *c, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return gguf_find_tensor(c->spec->gguf, name);
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

/* The output matrix, turned over. */
static void read_out(struct converter *c, const struct gguf_tensor *t)
{
    const size_t d = (size_t)c->d;
    for (size_t r = 0; r < d; r++) {
        double *row = c->square;
        read_numbers(t, r * d, d, row);
        for (size_t i = 0; i < d; i++)
            c->from.o[i * d + r] = row[i];
    }
}

void convert_load(struct converter *c, int layer)
{
    const struct gguf_tensor *weight = find(c, layer, "attn_qkv.weight");
    const struct gguf_tensor *bias = find(c, layer, "attn_qkv.bias");
    const uint64_t d = (uint64_t)c->d, kv = (uint64_t)(c->n_units * c->dim);
    const struct convert_weights *w = &c->from;
    read_numbers(weight, 0, d * d, w->q);
    read_numbers(weight, d * d, kv * d, w->k);
    read_numbers(weight, (d + kv) * d, kv * d, w->v);
    read_numbers(bias, 0, d, w->bq);
    read_numbers(bias, d, kv, w->bk);
    read_numbers(bias, d + kv, kv, w->bv);
    read_out(c, find(c, layer, "attn_output.weight"));
    read_numbers(find(c, layer, "attn_output.bias"), 0, d, w->bo);
}

/* --- the new tensors ------------------------------------------------------------------------- */

static void carve_tensor(struct converter *c, struct convert_carver *carver,
                         struct convert_tensor *t, int layer, const char *part, int n_dims,
                         uint64_t columns, uint64_t rows)
{
    const struct gguf_tensor *old = find(c, layer, part);
    const struct tensor_type_info *type = old ? old->type : tensor_type_find(TENSOR_F32);
    const uint64_t n_bytes = columns * rows / type->block_elements * type->block_bytes;
    unsigned char *bytes = convert_carve(carver, n_bytes, 1);
    if (!carver->arena)
        return;
    snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, part);
    t->bytes = bytes;
    t->tensor = (struct gguf_tensor){.name = text_of(t->name),
                                     .n_dims = n_dims,
                                     .dims = {columns, rows, 1, 1},
                                     .type = type,
                                     .n_elements = columns * rows,
                                     .n_bytes = n_bytes,
                                     .data = bytes};
}

void convert_carve_tensors(struct converter *c, struct convert_carver *carver,
                           struct convert_tensors *tensors)
{
    const uint64_t d = (uint64_t)c->d, rows = d + 2 * (uint64_t)(c->n_groups * c->dim);
    for (int l = 0; l < c->config.n_layers; l++) {
        struct convert_tensors *t = carver->arena ? &tensors[l] : NULL;
        carve_tensor(c, carver, t ? &t->qkv : NULL, l, "attn_qkv.weight", 2, d, rows);
        carve_tensor(c, carver, t ? &t->qkv_bias : NULL, l, "attn_qkv.bias", 1, rows, 1);
        carve_tensor(c, carver, t ? &t->out : NULL, l, "attn_output.weight", 2, d, d);
        carve_tensor(c, carver, t ? &t->out_bias : NULL, l, "attn_output.bias", 1, d, 1);
    }
}

/* Rounds n numbers to elements from `first` on. STATUS_FAILED if one is not finite, or is not any
 * more. */
static enum status write_numbers(struct convert_tensor *t, uint64_t first, uint64_t n,
                                 const double *x, struct err *e)
{
    const struct tensor_type_info *type = t->tensor.type;
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
                               t->name, (unsigned long long)(first + done + i), x[done + i],
                               type->name);
    }
    return STATUS_OK;
}

enum status convert_store_qkv(struct converter *c, int layer, struct convert_tensors *tensors,
                              struct err *e)
{
    struct convert_tensors *t = &tensors[layer];
    const uint64_t d = (uint64_t)c->d, kv = (uint64_t)(c->n_groups * c->dim);
    const struct convert_weights *w = &c->to;
    const double *rows[] = {w->q, w->k, w->v}, *biases[] = {w->bq, w->bk, w->bv};
    const uint64_t starts[] = {0, d, d + kv}, counts[] = {d, kv, kv};
    enum status s = STATUS_OK;
    for (int i = 0; i < 3 && s == STATUS_OK; i++) {
        s = write_numbers(&t->qkv, starts[i] * d, counts[i] * d, rows[i], e);
        if (s == STATUS_OK)
            s = write_numbers(&t->qkv_bias, starts[i], counts[i], biases[i], e);
    }
    return s;
}

enum status convert_store_out(struct converter *c, int layer, struct convert_tensors *tensors,
                              struct err *e)
{
    struct convert_tensors *t = &tensors[layer];
    const size_t d = (size_t)c->d;
    enum status s = STATUS_OK;
    for (size_t r = 0; r < d && s == STATUS_OK; r++) {
        double *row = c->square;
        for (size_t i = 0; i < d; i++)
            row[i] = c->to.o[i * d + r];
        s = write_numbers(&t->out, r * d, d, row, e);
    }
    return s == STATUS_OK ? write_numbers(&t->out_bias, 0, d, c->to.bo, e) : s;
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
    gguf_add_u32(w, OWN_KEYS "source_kv_heads", (uint32_t)c->n_units);
    gguf_add_text(w, OWN_KEYS "method", text_of(convert_methods[spec->method]));
    gguf_add_text(w, OWN_KEYS "grouping", text_of(spec->cluster ? "cluster" : "adjacent"));
    gguf_add_bool(w, OWN_KEYS "refit", spec->refit);
    gguf_add_u64(w, OWN_KEYS "calibration_tokens", spec->n_tokens);
    if (spec->method == CONVERT_RANDOM)
        gguf_add_u64(w, OWN_KEYS "seed", spec->seed);
    gguf_add_text(w, OWN_KEYS "version", text_of(spec->version));
}

static void add_tensor(struct gguf_writer *w, const struct gguf_tensor *t)
{
    gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
}

/* The new tensor that takes the place of an old one; NULL if it stays. */
static const struct gguf_tensor *replacement(const struct convert_tensors *t, struct text name)
{
    const struct convert_tensor *const all[] = {&t->qkv, &t->qkv_bias, &t->out, &t->out_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (text_is(name, all[i]->name))
            return &all[i]->tensor;
    return NULL;
}

/* The layer of "blk.N.", or n_layers. */
static int layer_of(const struct converter *c, struct text name)
{
    int layer = 0;
    if (!text_starts_with(name, "blk."))
        return c->config.n_layers;
    for (size_t i = 4; i < name.len && name.data[i] >= '0' && name.data[i] <= '9'; i++) {
        layer = layer * 10 + (name.data[i] - '0');
        if (layer >= c->config.n_layers)
            return c->config.n_layers;
    }
    return layer;
}

/* Tensors in the old order; biases that were not there follow their matrices. */
static void add_tensors(const struct converter *c, const struct convert_tensors *tensors,
                        struct gguf_writer *w)
{
    for (size_t i = 0; i < c->spec->gguf->n_tensors; i++) {
        const struct gguf_tensor *old = &c->spec->gguf->tensors[i];
        const int layer = layer_of(c, old->name);
        const struct gguf_tensor *new =
            layer < c->config.n_layers ? replacement(&tensors[layer], old->name) : NULL;
        add_tensor(w, new ? new : old);
        if (!new)
            continue;
        const struct convert_tensors *t = &tensors[layer];
        if (new == &t->qkv.tensor && !find(c, layer, "attn_qkv.bias"))
            add_tensor(w, &t->qkv_bias.tensor);
        if (new == &t->out.tensor && !find(c, layer, "attn_output.bias"))
            add_tensor(w, &t->out_bias.tensor);
    }
}

enum status convert_write(const struct converter *c, const struct convert_tensors *tensors,
                          struct gguf_writer **out, struct err *e)
{
    const enum status s = gguf_writer_create(out, e);
    if (s != STATUS_OK)
        return s;
    add_pairs(c, *out);
    add_tensors(c, tensors, *out);
    return STATUS_OK;
}
