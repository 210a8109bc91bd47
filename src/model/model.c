/*
 * Loading runs the same list of tensors twice: the first pass checks each one and adds up the
 * memory, the second copies it. Nothing is allocated before every tensor is known to be right.
 */
#include "model/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts/kernels_math.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoints are little-endian and are read as they are");

struct loader {
    const struct gguf *g;
    const struct file_map *source;
    bool filling;         /* second pass */
    struct mem_plan plan; /* first pass */
    struct arena arena;   /* second pass */
    enum status status;   /* sticky */
    struct err *err;
};

/* --- finding a tensor ------------------------------------------------------------------------ */

static void describe_shape(char *out, size_t size, int n_dims, const uint64_t *dims)
{
    size_t used = 0;
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)dims[i]);
}

/* Trailing dimensions of 1 do not matter. */
static bool has_shape(const struct gguf_tensor *t, int n_dims, const uint64_t *dims)
{
    for (int i = 0; i < GGUF_MAX_DIMS; i++)
        if (t->dims[i] != (i < n_dims ? dims[i] : 1))
            return false;
    return true;
}

/* The tensor if it is there and as expected; failures stick to the loader. */
static const struct gguf_tensor *find(struct loader *ld, const char *name, bool required,
                                      int n_dims, const uint64_t *dims)
{
    if (ld->status != STATUS_OK)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(ld->g, name);
    if (!t) {
        if (required)
            ld->status = err_set(ld->err, STATUS_BAD_FILE, "tensor %s: missing", name);
        return NULL;
    }
    if (!has_shape(t, n_dims, dims)) {
        char expected[96], found[96];
        describe_shape(expected, sizeof expected, n_dims, dims);
        describe_shape(found, sizeof found, t->n_dims, t->dims);
        ld->status = err_set(ld->err, STATUS_BAD_FILE, "tensor %s: expected shape %s, found %s",
                             name, expected, found);
        return NULL;
    }
    if (t->type->type != TENSOR_F32 && t->type->type != TENSOR_F16) {
        ld->status = err_set(ld->err, STATUS_BAD_FILE,
                             "tensor %s: expected type F32 or F16, found %s", name, t->type->name);
        return NULL;
    }
    return t;
}

/* --- copying one ----------------------------------------------------------------------------- */

/* Element i of a tensor that may lie at any address. */
static inline float element_f32(const unsigned char *data, uint64_t i)
{
    float x;
    memcpy(&x, data + i * sizeof x, sizeof x);
    return x;
}

static inline uint16_t element_f16(const unsigned char *data, uint64_t i)
{
    uint16_t x;
    memcpy(&x, data + i * sizeof x, sizeof x);
    return x;
}

static void pack_f32(float *out, const unsigned char *data, int n_out, int n_in)
{
    for (int row = 0; row < n_out; row += KERNEL_LANES) {
        const int width = n_out - row < KERNEL_LANES ? n_out - row : KERNEL_LANES;
        const unsigned char *rows = data + (size_t)row * (size_t)n_in * sizeof *out;
        for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
            for (int lane = 0; lane < width; lane++)
                out[lane] = element_f32(rows, (uint64_t)lane * (uint64_t)n_in + (uint64_t)i);
    }
}

static void pack_f16(uint16_t *out, const unsigned char *data, int n_out, int n_in)
{
    for (int row = 0; row < n_out; row += KERNEL_LANES) {
        const int width = n_out - row < KERNEL_LANES ? n_out - row : KERNEL_LANES;
        const unsigned char *rows = data + (size_t)row * (size_t)n_in * sizeof *out;
        for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
            for (int lane = 0; lane < width; lane++)
                out[lane] = element_f16(rows, (uint64_t)lane * (uint64_t)n_in + (uint64_t)i);
    }
}

/* A tensor of floats in file order, as F32. */
static const float *load_floats(struct loader *ld, const char *name, bool required, int n_dims,
                                const uint64_t *dims)
{
    const struct gguf_tensor *t = find(ld, name, required, n_dims, dims);
    if (!t)
        return NULL;
    if (!ld->filling) {
        mem_plan_add(&ld->plan, t->n_elements, sizeof(float));
        return NULL;
    }
    float *out = arena_take(&ld->arena, t->n_elements, sizeof *out);
    if (t->type->type == TENSOR_F32)
        memcpy(out, t->data, t->n_bytes);
    else
        for (uint64_t i = 0; i < t->n_elements; i++)
            out[i] = math_from_f16(element_f16(t->data, i));
    if (ld->source)
        file_map_release(ld->source, t->data, t->n_bytes);
    return out;
}

static const float *load_vector(struct loader *ld, const char *name, bool required, int n)
{
    return load_floats(ld, name, required, 1, (const uint64_t[]){(uint64_t)n});
}

/* "<prefix>.weight" as panels, and "<prefix>.bias" where there is one. */
static struct matrix load_matrix(struct loader *ld, const char *prefix, int n_out, int n_in)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", prefix);
    struct matrix w = {.n_out = n_out, .n_in = n_in};
    const struct gguf_tensor *t =
        find(ld, name, true, 2, (const uint64_t[]){(uint64_t)n_in, (uint64_t)n_out});
    if (!t)
        return w;
    w.storage = t->type->type == TENSOR_F16 ? STORAGE_F16 : STORAGE_F32;
    const uint64_t n = (uint64_t)matrix_panels(n_out) * KERNEL_LANES * (uint64_t)n_in;
    if (!ld->filling) {
        mem_plan_add(&ld->plan, n, storage_bytes(w.storage));
    } else {
        void *panels = arena_take(&ld->arena, n, storage_bytes(w.storage));
        if (w.storage == STORAGE_F16)
            pack_f16(panels, t->data, n_out, n_in);
        else
            pack_f32(panels, t->data, n_out, n_in);
        w.panels = panels;
        if (ld->source)
            file_map_release(ld->source, t->data, t->n_bytes);
    }
    snprintf(name, sizeof name, "%s.bias", prefix);
    w.bias = load_vector(ld, name, false, n_out);
    return w;
}

static struct norm load_norm(struct loader *ld, const char *prefix, int n)
{
    char name[96];
    struct norm norm;
    snprintf(name, sizeof name, "%s.weight", prefix);
    norm.gain = load_vector(ld, name, true, n);
    snprintf(name, sizeof name, "%s.bias", prefix);
    norm.bias = load_vector(ld, name, false, n);
    return norm;
}

/* --- the whole ------------------------------------------------------------------------------- */

static const char *in_layer(char *name, size_t size, int layer, const char *part)
{
    snprintf(name, size, "blk.%d.%s", layer, part);
    return name;
}

static void load_layer(struct loader *ld, const struct config *c, int l, struct layer *layer)
{
    char name[64];
    const int d = c->d_model;
    layer->attn_norm = load_norm(ld, in_layer(name, sizeof name, l, "attn_norm"), d);
    layer->qkv =
        load_matrix(ld, in_layer(name, sizeof name, l, "attn_qkv"), d + 2 * config_kv_dim(c), d);
    layer->attn_out = load_matrix(ld, in_layer(name, sizeof name, l, "attn_output"), d, d);
    layer->ffn_norm = load_norm(ld, in_layer(name, sizeof name, l, "ffn_norm"), d);
    layer->up = load_matrix(ld, in_layer(name, sizeof name, l, "ffn_up"), c->d_ff, d);
    layer->down = load_matrix(ld, in_layer(name, sizeof name, l, "ffn_down"), d, c->d_ff);
}

/* One pass over all tensors. */
static void load_all(struct loader *ld, struct model *m)
{
    const struct config *c = &m->config;
    if (ld->filling)
        m->layers = arena_take(&ld->arena, (uint64_t)c->n_layers, sizeof *m->layers);
    else
        mem_plan_add(&ld->plan, (uint64_t)c->n_layers, sizeof *m->layers);

    m->embed = load_matrix(ld, "token_embd", c->n_vocab, c->d_model);
    m->position = load_floats(ld, "position_embd.weight", true, 2,
                              (const uint64_t[]){(uint64_t)c->d_model, (uint64_t)c->n_ctx});
    for (int l = 0; l < c->n_layers && ld->status == STATUS_OK; l++) {
        struct layer planned;
        load_layer(ld, c, l, ld->filling ? &m->layers[l] : &planned);
    }
    m->output_norm = load_norm(ld, "output_norm", c->d_model);
    m->tied = !gguf_find_tensor(ld->g, "output.weight");
    m->output = m->tied ? m->embed : load_matrix(ld, "output", c->n_vocab, c->d_model);
}

enum status model_create(const struct gguf *g, const struct file_map *source, struct model **out,
                         struct err *e)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(e, "the model", sizeof *m);
    struct loader ld = {.g = g, .source = source, .err = e};
    ld.status = config_read(g, &m->config, e);
    if (ld.status == STATUS_OK)
        load_all(&ld, m);
    if (ld.status == STATUS_OK)
        ld.status = arena_create(&ld.arena, &ld.plan, "the model", e);
    if (ld.status == STATUS_OK) {
        ld.filling = true;
        load_all(&ld, m);
        m->weights = ld.arena;
        *out = m;
        return STATUS_OK;
    }
    free(m);
    return ld.status;
}

void model_free(struct model *m)
{
    if (!m)
        return;
    arena_free(&m->weights);
    free(m);
}

void model_embed(const struct model *m, int token, int t, float *out)
{
    const int d = m->config.d_model;
    const float *position = m->position + (size_t)t * (size_t)d;
    const size_t first =
        (size_t)(token / KERNEL_LANES) * (size_t)d * KERNEL_LANES + (size_t)(token % KERNEL_LANES);
    if (m->embed.storage == STORAGE_F16) {
        const uint16_t *row = (const uint16_t *)m->embed.panels + first;
        for (int i = 0; i < d; i++)
            out[i] = math_from_f16(row[(size_t)i * KERNEL_LANES]) + position[i];
    } else {
        const float *row = (const float *)m->embed.panels + first;
        for (int i = 0; i < d; i++)
            out[i] = row[(size_t)i * KERNEL_LANES] + position[i];
    }
}
