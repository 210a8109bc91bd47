/*
 * Loading runs the same list of tensors twice: the first pass checks each one and adds up the
 * memory, the second copies it. Nothing is allocated before every tensor is known to be right.
 */
#include "model/model.h"

#include <stdarg.h>
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
    struct config file;   /* as the file has it; the model's config is as wanted */
    struct rng rng;       /* of random numbers */
    bool filling;         /* second pass */
    struct mem_plan plan; /* first pass */
    struct arena arena;   /* second pass */
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
    enum storage storage;
    if (!pack_storage(t->type, &storage)) {
        ld->status = err_set(ld->err, STATUS_BAD_FILE,
                             "tensor %s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                             name, t->type->name);
        return NULL;
    }
    if (n_dims == 1 && storage_is_quantised(storage)) {
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
static struct pack_rows rows_of_qkv(const struct loader *ld, int r)
{
    const struct config *file = &ld->file;
    const int wanted_heads = ld->options.n_kv_heads;
    const int d = file->d_model, dim = file->head_dim;
    if (r < d || wanted_heads == file->n_kv_heads)
        return (struct pack_rows){.first = r, .step = dim, .n = 1};
    const int part = (r - d) / (wanted_heads * dim), in_part = (r - d) % (wanted_heads * dim);
    const int replaced = file->n_kv_heads / wanted_heads;
    return (struct pack_rows){
        .first = d + part * config_kv_dim(file) + in_part / dim * replaced * dim + in_part % dim,
        .step = dim,
        .n = replaced,
    };
}

/* A tensor of floats in file order, as F32. */
static const float *load_floats(struct loader *ld, const char *name, bool required, int n_dims,
                                const uint64_t *dims)
{
    const struct gguf_tensor *t = NULL;
    uint64_t n = dims[0] * (n_dims > 1 ? dims[1] : 1);
    if (ld->g) {
        t = find(ld, name, required, n_dims, dims);
        if (!t)
            return NULL;
    }
    if (!ld->filling) {
        mem_plan_add(&ld->plan, n, sizeof(float));
        return NULL;
    }
    float *out = arena_take(&ld->arena, n, sizeof *out);
    if (t) {
        pack_floats(out, t);
        release(ld, t);
    } else {
        pack_random_floats(out, n, RANDOM_SPREAD, &ld->rng);
    }
    return out;
}

static const float *load_vector(struct loader *ld, const char *name, bool required, int n)
{
    return load_floats(ld, name, required, 1, (const uint64_t[]){(uint64_t)n});
}

static void fill_panels(struct loader *ld, const struct gguf_tensor *t, struct matrix *w,
                        bool is_qkv)
{
    void *panels = arena_take(&ld->arena, matrix_bytes(w->n_out, w->n_in, w->storage), 1);
    w->panels = panels;
    if (!t) {
        pack_random(panels, w, RANDOM_SPREAD, &ld->rng, &ld->scratch);
        return;
    }
    if (is_qkv && ld->options.n_kv_heads != ld->file.n_kv_heads)
        for (int r = 0; r < w->n_out; r++)
            pack_mean(panels, w, r, t, rows_of_qkv(ld, r), &ld->scratch);
    else
        pack_matrix(panels, w, t, &ld->scratch);
    release(ld, t);
}

/* The bias of Q, K and V with fewer heads than the file has. */
static const float *load_qkv_bias(struct loader *ld, const char *name, int n_out)
{
    const int n_file = ld->file.d_model + 2 * config_kv_dim(&ld->file);
    const struct gguf_tensor *t = find(ld, name, false, 1, (const uint64_t[]){(uint64_t)n_file});
    if (!t)
        return NULL;
    if (!ld->filling) {
        mem_plan_add(&ld->plan, (uint64_t)n_out, sizeof(float));
        return NULL;
    }
    float *out = arena_take(&ld->arena, (uint64_t)n_out, sizeof *out);
    for (int r = 0; r < n_out; r++)
        out[r] = pack_mean_of_vector(t, rows_of_qkv(ld, r));
    return out;
}

/* Matrices that are not treated as the others. */
enum matrix_role { MATRIX_PLAIN, MATRIX_QKV, MATRIX_EMBEDDING };

/* "<prefix>.weight" as panels, and "<prefix>.bias" where there is one. */
static struct matrix load_matrix(struct loader *ld, const char *prefix, int n_out, int n_in,
                                 enum matrix_role role)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", prefix);
    const bool is_qkv = role == MATRIX_QKV;
    struct matrix w = {.n_out = n_out, .n_in = n_in, .storage = ld->options.storage};
    if (role == MATRIX_EMBEDDING)
        pack_storage(tensor_type_find(model_embedding_type(pack_type(w.storage))), &w.storage);
    const struct gguf_tensor *t = NULL;
    if (ld->g) {
        const int n_file = is_qkv ? ld->file.d_model + 2 * config_kv_dim(&ld->file) : n_out;
        t = find(ld, name, true, 2, (const uint64_t[]){(uint64_t)n_in, (uint64_t)n_file});
        if (!t)
            return w;
        if (!ld->options.convert)
            pack_storage(t->type, &w.storage);
    }
    if (ld->filling)
        fill_panels(ld, t, &w, is_qkv);
    else
        mem_plan_add(&ld->plan, matrix_bytes(n_out, n_in, w.storage), 1);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (is_qkv && ld->g)
        w.bias = load_qkv_bias(ld, name, n_out);
    else
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
    layer->qkv = load_matrix(ld, in_layer(name, sizeof name, l, "attn_qkv"),
                             d + 2 * config_kv_dim(c), d, MATRIX_QKV);
    layer->attn_out =
        load_matrix(ld, in_layer(name, sizeof name, l, "attn_output"), d, d, MATRIX_PLAIN);
    layer->ffn_norm = load_norm(ld, in_layer(name, sizeof name, l, "ffn_norm"), d);
    layer->up = load_matrix(ld, in_layer(name, sizeof name, l, "ffn_up"), c->d_ff, d, MATRIX_PLAIN);
    layer->down =
        load_matrix(ld, in_layer(name, sizeof name, l, "ffn_down"), d, c->d_ff, MATRIX_PLAIN);
}

/* One pass over all tensors. */
static void load_all(struct loader *ld, struct model *m)
{
    const struct config *c = &m->config;
    const int longest = c->d_model > c->d_ff ? c->d_model : c->d_ff;
    if (ld->filling) {
        m->layers = arena_take(&ld->arena, (uint64_t)c->n_layers, sizeof *m->layers);
        ld->scratch = pack_scratch_take(&ld->arena, longest);
    } else {
        mem_plan_add(&ld->plan, (uint64_t)c->n_layers, sizeof *m->layers);
        pack_scratch_plan(&ld->plan, longest);
    }

    m->embed = load_matrix(ld, "token_embd", c->n_vocab, c->d_model, MATRIX_EMBEDDING);
    m->position = load_floats(ld, "position_embd.weight", true, 2,
                              (const uint64_t[]){(uint64_t)c->d_model, (uint64_t)c->n_ctx});
    for (int l = 0; l < c->n_layers && ld->status == STATUS_OK; l++) {
        struct layer planned;
        load_layer(ld, c, l, ld->filling ? &m->layers[l] : &planned);
    }
    m->output_norm = load_norm(ld, "output_norm", c->d_model);
    m->tied = ld->g && !gguf_find_tensor(ld->g, "output.weight");
    m->output =
        m->tied ? m->embed : load_matrix(ld, "output", c->n_vocab, c->d_model, MATRIX_PLAIN);
}

/* Both passes. On success the model is *out, else it is freed. */
static enum status build(struct loader *ld, struct model *m, struct model **out)
{
    if (ld->status == STATUS_OK)
        load_all(ld, m);
    if (ld->status == STATUS_OK)
        ld->status = arena_create(&ld->arena, &ld->plan, "the model", ld->err);
    if (ld->status != STATUS_OK) {
        free(m);
        return ld->status;
    }
    ld->filling = true;
    load_all(ld, m);
    m->weights = ld->arena;
    *out = m;
    return STATUS_OK;
}

uint32_t model_embedding_type(uint32_t type)
{
    return type == TENSOR_Q4_0 ? TENSOR_Q8_0 : type;
}

enum status model_check_storage(const struct config *c, enum storage s, struct err *e)
{
    if (!storage_is_quantised(s))
        return STATUS_OK;
    const int n = c->d_model % QUANT_BLOCK ? c->d_model : c->d_ff;
    if (n % QUANT_BLOCK)
        return err_set(e, STATUS_USAGE,
                       "type %s: expected rows of a multiple of %d elements, found %s of %d",
                       storage_name(s), QUANT_BLOCK, n == c->d_model ? "d_model" : "d_ff", n);
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
    return build(&ld, m, out);
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
    return build(&ld, m, out);
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
    pack_read_row(&m->embed, token, out);
    for (int i = 0; i < d; i++)
        out[i] += position[i];
}
