/*
 * Loading runs the same list of tensors twice: the first pass checks each one and adds up the
 * memory, the second copies it. Nothing is allocated before every tensor is known to be right.
 */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/pack.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoints are little-endian and are read as they are");

struct loader {
    const struct gguf *g; /* NULL: random numbers */
    const struct file_map *source;
    struct model_options options;
    struct config file; /* as the file has it; the model's config is as wanted */
    struct rng rng;     /* of random numbers */
    struct arena arena; /* counting in the first pass */
    struct pack_scratch scratch;
    enum status status; /* sticky */
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

/* The file's tensor of a specification; NULL if it has none that is needed, or it is not as
 * expected: that sticks to the loader. */
static const struct gguf_tensor *find_tensor(struct loader *ld, const struct tensor_spec *spec)
{
    const char *name = spec->name.text;
    const uint64_t dims[] = {(uint64_t)spec->cols, (uint64_t)spec->rows};
    if (ld->status != STATUS_OK)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(ld->g, name);
    if (!t) {
        if (spec->flags & SPEC_REQUIRED)
            ld->status = err_set(ld->err, STATUS_BAD_FILE, "tensor %s: missing", name);
        return NULL;
    }
    if (!has_shape(t, spec->n_dims, dims)) {
        char expected[96], found[96];
        describe_shape(expected, sizeof expected, spec->n_dims, dims);
        describe_shape(found, sizeof found, t->n_dims, t->dims);
        ld->status = err_set(ld->err, STATUS_BAD_FILE, "tensor %s: expected shape %s, found %s",
                             name, expected, found);
        return NULL;
    }
    enum storage storage;
    if (!pack_storage(t->type, &storage)) {
        ld->status = err_set(ld->err, STATUS_BAD_FILE,
                             "tensor %s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                             name, t->type->name);
        return NULL;
    }
    if (spec->n_dims == 1 && storage_is_quantised(storage)) {
        ld->status =
            err_set(ld->err, STATUS_BAD_FILE, "tensor %s: expected type F32, F16 or BF16, found %s",
                    name, t->type->name);
        return NULL;
    }
    return t;
}

/* --- copying one ----------------------------------------------------------------------------- */

/* Spread of random weights: small enough that no sum overflows, whatever the width. */
#define RANDOM_SPREAD 0.04f

static void release(const struct loader *ld, const struct gguf_tensor *t)
{
    if (ld->source)
        file_map_release(ld->source, t->data, t->n_bytes);
}

/* The rows of the file that the wanted row r of Q, K and V comes from. */
static struct pack_rows rows_of_qkv(const struct loader *ld, int layer, int r)
{
    const struct config *file = &ld->file;
    const int wanted_heads = ld->options.n_kv_heads, heads = config_kv_heads(file, layer);
    const int q = config_q_dim(file), dim = file->head_dim;
    if (r < q || wanted_heads == heads)
        return (struct pack_rows){.first = r, .step = dim, .n = 1};
    const int part = (r - q) / (wanted_heads * dim), in_part = (r - q) % (wanted_heads * dim);
    const int replaced = heads / wanted_heads;
    return (struct pack_rows){
        .first = q + part * heads * dim + in_part / dim * replaced * dim + in_part % dim,
        .step = dim,
        .n = replaced,
    };
}

/* A tensor of floats in file order, as F32; NULL where the file has none. `wanted` may have fewer
 * rows than the file's, whose means they then are. */
static const float *load_floats(struct loader *ld, const struct tensor_spec *wanted,
                                const struct tensor_spec *file)
{
    const struct gguf_tensor *t = NULL;
    const uint64_t n = spec_elements(wanted);
    if (ld->g) {
        t = find_tensor(ld, file);
        if (!t)
            return NULL;
    }
    float *out = arena_take(&ld->arena, n, sizeof *out);
    if (!out)
        return NULL;
    if (!t)
        pack_random_floats(out, n, RANDOM_SPREAD, &ld->rng);
    else if (n == t->n_elements)
        pack_floats(out, t);
    else
        for (int r = 0; r < (int)n; r++)
            out[r] = pack_mean_of_vector(t, rows_of_qkv(ld, wanted->layer, r));
    if (t)
        release(ld, t);
    return out;
}

static const float *load_bias(struct loader *ld, const struct config *c, enum tensor_role role,
                              int layer)
{
    if (!layout_has_bias(role))
        return NULL;
    const struct tensor_spec wanted = layout_bias(c, role, layer);
    const struct tensor_spec file = layout_bias(&ld->file, role, layer);
    return load_floats(ld, &wanted, &file);
}

static void fill_panels(struct loader *ld, void *panels, const struct matrix *w,
                        const struct gguf_tensor *t, int layer)
{
    if (!t)
        pack_random(panels, w, RANDOM_SPREAD, &ld->rng, &ld->scratch);
    else if ((uint64_t)w->n_out == t->dims[1])
        pack_matrix(panels, w, t, &ld->scratch);
    else
        for (int r = 0; r < w->n_out; r++)
            pack_mean(panels, w, r, t, rows_of_qkv(ld, layer, r), &ld->scratch);
    if (t)
        release(ld, t);
}

/* A weight as panels; its bias is still NULL. */
static struct matrix load_matrix(struct loader *ld, const struct tensor_spec *wanted,
                                 const struct tensor_spec *file)
{
    struct matrix w = {.n_out = wanted->rows, .n_in = wanted->cols};
    const uint32_t type = layout_type(wanted, pack_type(ld->options.storage));
    pack_storage(tensor_type_find(type), &w.storage);
    const struct gguf_tensor *t = NULL;
    if (ld->g) {
        t = find_tensor(ld, file);
        if (!t)
            return w;
        if (!ld->options.convert)
            pack_storage(t->type, &w.storage);
    }
    void *panels = arena_take(&ld->arena, matrix_bytes(w.n_out, w.n_in, w.storage), 1);
    if (panels)
        fill_panels(ld, panels, &w, t, wanted->layer);
    w.panels = panels;
    return w;
}

/* The tensors of one role. */
static struct weight load_weight(struct loader *ld, const struct config *c, enum tensor_role role,
                                 int layer)
{
    struct weight w = {.table = NULL};
    const struct tensor_spec wanted = layout_weight(c, role, layer);
    const struct tensor_spec file = layout_weight(&ld->file, role, layer);
    switch (wanted.form) {
    case FORM_MATRIX:
        w.matrix = load_matrix(ld, &wanted, &file);
        w.matrix.bias = load_bias(ld, c, role, layer);
        break;
    case FORM_NORM:
        w.norm.gain = load_floats(ld, &wanted, &file);
        w.norm.bias = load_bias(ld, c, role, layer);
        break;
    case FORM_TABLE:
        w.table = load_floats(ld, &wanted, &file);
        break;
    }
    return w;
}

/* --- the whole ------------------------------------------------------------------------------- */

static void load_outside(struct loader *ld, struct model *m, enum tensor_role first,
                         enum tensor_role end)
{
    for (enum tensor_role role = first; role < end; role++)
        m->w[role] = load_weight(ld, &m->config, role, 0);
}

static void load_block(struct loader *ld, struct model *m, int layer)
{
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
        const struct weight w = load_weight(ld, &m->config, role, layer);
        if (m->blocks)
            m->blocks[layer].w[role] = w;
    }
}

/* One pass over all tensors. */
static void load_all(struct loader *ld, struct model *m)
{
    const struct config *c = &m->config;
    m->blocks = arena_take(&ld->arena, (uint64_t)c->n_layers, sizeof *m->blocks);
    ld->scratch = pack_scratch_take(&ld->arena, layout_longest_row(c));
    load_outside(ld, m, 0, ROLE_BLOCK_FIRST);
    for (int l = 0; l < c->n_layers && ld->status == STATUS_OK; l++)
        load_block(ld, m, l);
    m->tied = ld->g && !gguf_find_tensor(ld->g, arch_tensor_name(ROLE_OUTPUT, 0, false).text);
    load_outside(ld, m, ROLE_BLOCK_END, m->tied ? ROLE_OUTPUT : TENSOR_ROLES);
    if (m->tied)
        m->w[ROLE_OUTPUT] = m->w[ROLE_TOKEN_EMBD];
}

/* Both passes. On success the model is *out, else it is freed. */
static enum status build_model(struct loader *ld, struct model *m, struct model **out)
{
    if (ld->status == STATUS_OK)
        load_all(ld, m);
    if (ld->status == STATUS_OK)
        ld->status = arena_allocate(&ld->arena, "the model", ld->err);
    if (ld->status != STATUS_OK) {
        free(m);
        return ld->status;
    }
    load_all(ld, m);
    m->weights = ld->arena;
    *out = m;
    return STATUS_OK;
}

enum status model_check_storage(const struct config *c, enum storage s, struct err *e)
{
    const struct {
        const char *name;
        int n;
    } rows[] = {
        {"d_model", c->d_model}, {"n_heads * head_dim", config_q_dim(c)}, {"d_ff", c->d_ff}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && storage_is_quantised(s); i++)
        if (rows[i].n % QUANT_BLOCK)
            return err_set(e, STATUS_USAGE,
                           "type %s: expected rows of a multiple of %d elements, found %s of %d",
                           storage_name(s), QUANT_BLOCK, rows[i].name, rows[i].n);
    return STATUS_OK;
}

/* Fills in the defaults of the options and checks them. */
static enum status resolve_options(struct loader *ld, const struct model_options *o)
{
    if (o)
        ld->options = *o;
    if (ld->options.n_kv_heads == 0)
        ld->options.n_kv_heads = ld->file.n_kv_heads;
    const int wanted = ld->options.n_kv_heads;
    if (wanted < 1 || ld->file.n_kv_heads % wanted != 0)
        return err_set(ld->err, STATUS_USAGE,
                       "%d K/V heads: expected a divisor of the checkpoint's %d", wanted,
                       ld->file.n_kv_heads);
    if (ld->options.convert)
        return model_check_storage(&ld->file, ld->options.storage, ld->err);
    return STATUS_OK;
}

enum status model_check(const struct gguf *g, struct err *e)
{
    struct model counted = {.tied = false};
    struct loader ld = {.g = g, .err = e};
    TRY(config_read(g, &ld.file, e));
    TRY(resolve_options(&ld, NULL));
    counted.config = ld.file;
    load_all(&ld, &counted);
    return ld.status;
}

enum status model_create(const struct gguf *g, const struct model_options *o,
                         const struct file_map *source, struct model **out, struct err *e)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(e, "the model", sizeof *m);
    struct loader ld = {.g = g, .source = source, .err = e};
    ld.status = config_read(g, &ld.file, e);
    if (ld.status == STATUS_OK)
        ld.status = resolve_options(&ld, o);
    m->config = ld.file;
    m->config.n_kv_heads = ld.options.n_kv_heads;
    return build_model(&ld, m, out);
}

enum status model_create_random(const struct config *c, enum storage storage, uint64_t seed,
                                struct model **out, struct err *e)
{
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(e, "the model", sizeof *m);
    struct loader ld = {
        .file = *c,
        .options = {.n_kv_heads = c->n_kv_heads, .convert = true, .storage = storage},
        .err = e};
    rng_seed(&ld.rng, seed, 0);
    m->config = *c;
    return build_model(&ld, m, out);
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
    pack_read_row(&m->w[ROLE_TOKEN_EMBD].matrix, token, out);
    switch (m->config.position) {
    case POSITION_LEARNED: {
        const float *position = m->w[ROLE_POSITION_EMBD].table + (size_t)t * (size_t)d;
        for (int i = 0; i < d; i++)
            out[i] += position[i];
        break;
    }
    }
}
