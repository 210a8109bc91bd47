/*
 * Loading runs the same list of tensors twice: the first pass checks each one and adds up the
 * memory, the second copies it. Nothing is allocated before every tensor is known to be right.
 */
#include "model/model.h"

#include <math.h>
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
    const struct spec_dims dims = spec_dims(spec);
    if (ld->status != STATUS_OK)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(ld->g, name);
    if (!t) {
        if (spec->flags & SPEC_REQUIRED)
            ld->status = err_set(ld->err, STATUS_BAD_FILE, "tensor %s: missing", name);
        return NULL;
    }
    if (!has_shape(t, spec->n_dims, dims.n)) {
        char expected[96], found[96];
        describe_shape(expected, sizeof expected, spec->n_dims, dims.n);
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

/* A tensor of floats in file order, as F32; NULL where the file has none. */
static const float *load_floats(struct loader *ld, const struct tensor_spec *spec)
{
    const struct gguf_tensor *t = NULL;
    const uint64_t n = spec_elements(spec);
    if (ld->g) {
        t = find_tensor(ld, spec);
        if (!t)
            return NULL;
    } else if (spec->flags & SPEC_NOT_NEW) {
        return NULL;
    }
    float *out = arena_take(&ld->arena, n, sizeof *out);
    if (!out)
        return NULL;
    if (!t)
        pack_random_floats(out, n, RANDOM_SPREAD, &ld->rng);
    else
        pack_floats(out, t);
    if (t)
        release(ld, t);
    return out;
}

static const float *load_bias(struct loader *ld, const struct config *c, enum tensor_role role,
                              int layer)
{
    if (!layout_has_bias(c, role))
        return NULL;
    const struct tensor_spec spec = layout_bias(c, role, layer);
    return load_floats(ld, &spec);
}

/* Matrix h of those of a tensor that stand one after the other. */
static struct gguf_tensor matrix_of_tensor(const struct gguf_tensor *t, int h, int n_matrices)
{
    struct gguf_tensor one = *t;
    one.dims[2] = 1;
    one.n_elements /= (uint64_t)n_matrices;
    one.n_bytes /= (uint64_t)n_matrices;
    one.data += (uint64_t)h * one.n_bytes;
    return one;
}

/* All matrices of a weight; w is the shape of one. */
static void fill_panels(struct loader *ld, unsigned char *panels, const struct matrix *w,
                        const struct gguf_tensor *t, int n_matrices)
{
    for (int h = 0; h < n_matrices; h++, panels += matrix_bytes(w->n_out, w->n_in, w->storage)) {
        if (!t) {
            pack_random(panels, w, RANDOM_SPREAD, &ld->rng, &ld->scratch);
            continue;
        }
        const struct gguf_tensor one = matrix_of_tensor(t, h, n_matrices);
        pack_matrix(panels, w, 0, &one, &ld->scratch);
    }
}

/* A weight as panels; its bias is still NULL. */
static struct matrix load_matrix(struct loader *ld, const struct tensor_spec *spec)
{
    struct matrix w = {.n_out = spec->rows / spec->n_matrices, .n_in = spec->cols};
    const uint32_t type = layout_type(spec, pack_type(ld->options.storage));
    pack_storage(tensor_type_find(type), &w.storage);
    const struct gguf_tensor *t = NULL;
    if (ld->g) {
        t = find_tensor(ld, spec);
        if (!t)
            return w;
        if (!ld->options.convert)
            pack_storage(t->type, &w.storage);
    }
    void *panels = arena_take(
        &ld->arena, (uint64_t)spec->n_matrices * matrix_bytes(w.n_out, w.n_in, w.storage), 1);
    w.panels = panels;
    if (!panels)
        return w;
    fill_panels(ld, panels, &w, t, spec->n_matrices);
    if (t)
        release(ld, t);
    return w;
}

/* --- queries, keys and values ---------------------------------------------------------------- */

/* The file's tensors of Q, K and V of a layer. */
struct qkv_source {
    int n;
    struct qkv_part parts[QKV_PARTS];
    const struct gguf_tensor *weight[QKV_PARTS], *bias[QKV_PARTS]; /* a bias may be NULL */
    bool has_bias;
};

/* The rows of the file, counted as if Q, K and V were one tensor, that row r of the model's comes
 * from. */
static struct pack_rows rows_of_qkv(const struct loader *ld, const struct config *c, int layer,
                                    int r)
{
    const struct config *file = &ld->file;
    const int own = config_kv_heads(file, layer), wanted = config_kv_heads(c, layer);
    const int q = config_q_dim(file), k = config_k_dim(c, layer);
    if (r < q)
        return (struct pack_rows){.first = r, .step = 1, .n = 1};
    const bool is_value = r >= q + k;
    const int dim = is_value ? config_value_dim(file) : file->head_dim;
    const int in_part = r - q - (is_value ? k : 0), replaced = own / wanted;
    return (struct pack_rows){
        .first = q + (is_value ? own * file->head_dim : 0) + in_part / dim * replaced * dim +
                 in_part % dim,
        .step = dim,
        .n = replaced,
    };
}

/* Which of the file's tensors has a row; the row becomes that tensor's. */
static int part_of_row(const struct qkv_source *s, struct pack_rows *rows)
{
    int i = 0;
    while (i + 1 < s->n && rows->first >= s->parts[i + 1].first)
        i++;
    rows->first -= s->parts[i].first;
    return i;
}

static struct qkv_source find_qkv(struct loader *ld, int layer)
{
    struct qkv_source s = {.has_bias = !ld->g && !ld->file.no_biases};
    s.n = layout_qkv(&ld->file, layer, s.parts);
    for (int i = 0; i < s.n && ld->g; i++) {
        const struct tensor_spec weight = layout_weight(&ld->file, s.parts[i].role, layer);
        const struct tensor_spec bias = layout_bias(&ld->file, s.parts[i].role, layer);
        s.weight[i] = find_tensor(ld, &weight);
        s.bias[i] = find_tensor(ld, &bias);
        s.has_bias |= s.bias[i] != NULL;
    }
    return s;
}

/* The type that all have, or F32, which holds any. */
static enum storage storage_of_qkv(const struct loader *ld, const struct qkv_source *s)
{
    enum storage first, other;
    if (!ld->g || ld->options.convert || !pack_storage(s->weight[0]->type, &first))
        return ld->options.storage;
    for (int i = 1; i < s->n; i++)
        if (!pack_storage(s->weight[i]->type, &other) || other != first)
            return STORAGE_F32;
    return first;
}

static void fill_qkv(struct loader *ld, void *panels, const struct matrix *w,
                     const struct config *c, const struct qkv_source *s, int layer)
{
    if (!ld->g) {
        pack_random(panels, w, RANDOM_SPREAD, &ld->rng, &ld->scratch);
        return;
    }
    const bool as_is = config_kv_heads(&ld->file, layer) == config_kv_heads(c, layer);
    for (int i = 0; i < s->n && as_is; i++)
        pack_matrix(panels, w, s->parts[i].first, s->weight[i], &ld->scratch);
    for (int r = 0; r < w->n_out && !as_is; r++) {
        struct pack_rows from = rows_of_qkv(ld, c, layer, r);
        const int part = part_of_row(s, &from);
        pack_mean(panels, w, r, s->weight[part], from, &ld->scratch);
    }
    for (int i = 0; i < s->n; i++)
        release(ld, s->weight[i]);
}

/* NULL if no tensor has one; zero where some have. */
static const float *load_qkv_bias(struct loader *ld, const struct config *c,
                                  const struct qkv_source *s, int layer)
{
    const int n = config_qkv_dim(c, layer);
    float *out = s->has_bias ? arena_take(&ld->arena, (uint64_t)n, sizeof *out) : NULL;
    if (!out)
        return NULL;
    if (!ld->g)
        pack_random_floats(out, (uint64_t)n, RANDOM_SPREAD, &ld->rng);
    for (int r = 0; r < n && ld->g; r++) {
        struct pack_rows from = rows_of_qkv(ld, c, layer, r);
        const int part = part_of_row(s, &from);
        out[r] = s->bias[part] ? pack_mean_of_vector(s->bias[part], from) : 0;
    }
    return out;
}

static struct matrix load_qkv(struct loader *ld, const struct config *c, int layer)
{
    struct matrix w = {.n_out = config_qkv_dim(c, layer), .n_in = c->d_model};
    const struct qkv_source s = find_qkv(ld, layer);
    if (ld->status != STATUS_OK)
        return w;
    w.storage = storage_of_qkv(ld, &s);
    void *panels = arena_take(&ld->arena, matrix_bytes(w.n_out, w.n_in, w.storage), 1);
    if (panels)
        fill_qkv(ld, panels, &w, c, &s, layer);
    w.panels = panels;
    w.bias = load_qkv_bias(ld, c, &s, layer);
    return w;
}

/* --- biases of scores ------------------------------------------------------------------------ */

/* [n_heads], from the head's slope, or its row of attn_rel: alpha and centre. */
static const struct attend_bias *load_score_bias(struct loader *ld, const struct config *c,
                                                 const struct weight *rel)
{
    if (c->position != POSITION_ALIBI && c->position != POSITION_QUADRATIC)
        return NULL;
    struct attend_bias *bias = arena_take(&ld->arena, (uint64_t)c->n_heads, sizeof *bias);
    for (int h = 0; h < c->n_heads && bias; h++)
        bias[h] = c->position == POSITION_ALIBI
                      ? positions_alibi(h, c->n_heads)
                      : positions_quadratic(rel->table[2 * h], rel->table[2 * h + 1]);
    return bias;
}

/* --- roles ----------------------------------------------------------------------------------- */

bool model_has(const struct config *c, enum tensor_role role)
{
    const bool is_part =
        role == ROLE_ATTN_Q || role == ROLE_ATTN_K || role == ROLE_ATTN_V || role == ROLE_ATTN_KV_A;
    return role == ROLE_ATTN_QKV || (layout_has(c, role) && !is_part);
}

/* The tensors of one role. */
static struct weight load_weight(struct loader *ld, const struct config *c, enum tensor_role role,
                                 int layer)
{
    struct weight w = {.table = NULL};
    const struct tensor_spec spec = layout_weight(c, role, layer);
    if (!model_has(c, role))
        return w;
    switch (spec.form) {
    case FORM_MATRIX:
        if (role == ROLE_ATTN_QKV) {
            w.matrix = load_qkv(ld, c, layer);
            break;
        }
        w.matrix = load_matrix(ld, &spec);
        w.matrix.bias = load_bias(ld, c, role, layer);
        break;
    case FORM_NORM:
        w.norm.gain = load_floats(ld, &spec);
        w.norm.bias = load_bias(ld, c, role, layer);
        break;
    case FORM_TABLE:
        w.table = load_floats(ld, &spec);
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
    struct block b = {.bias = NULL};
    for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
        b.w[role] = load_weight(ld, &m->config, role, layer);
    b.bias = load_score_bias(ld, &m->config, &b.w[ROLE_ATTN_REL]);
    if (m->blocks)
        m->blocks[layer] = b;
}

/* One pass over all tensors. */
static void load_all(struct loader *ld, struct model *m)
{
    const struct config *c = &m->config;
    m->blocks = arena_take(&ld->arena, (uint64_t)c->n_layers, sizeof *m->blocks);
    ld->scratch = pack_scratch_take(&ld->arena, layout_longest_row(c));
    load_outside(ld, m, 0, ROLE_BLOCK_FIRST);
    for (int l = 0; l < config_blocks(c) && ld->status == STATUS_OK; l++)
        load_block(ld, m, l);
    for (int l = config_blocks(c); l < c->n_layers && m->blocks; l++)
        m->blocks[l] = m->blocks[0];
    m->tied = ld->g && layout_output_tied(ld->g);
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
        {"d_model", c->d_model}, {"n_heads * value_dim", config_heads_dim(c)}, {"d_ff", c->d_ff}};
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
    for (int l = 0; l < ld->file.n_layers; l++) {
        const int own = config_kv_heads(&ld->file, l);
        if (wanted < 1 || wanted > ld->file.n_kv_heads || (wanted < own && own % wanted != 0))
            return err_set(ld->err, STATUS_USAGE,
                           "%d K/V heads: expected a divisor of the checkpoint's %d", wanted, own);
    }
    if (ld->options.convert)
        return model_check_storage(&ld->file, ld->options.storage, ld->err);
    return STATUS_OK;
}

/* Tensors outside of the blocks that change the results of models which have them. */
static const char *const foreign_tensors[] = {"token_embd_norm.weight", "rope_factors_long.weight",
                                              "rope_factors_short.weight"};

/* Whether a tensor has a part in some model: names of its own stand for nothing known. */
static bool has_meaning(const struct config *c, struct text name)
{
    if (text_starts_with(name, "blk."))
        return c->arch->is_closed;
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
        if (text_is(name, arch_tensor_name(role, 0, false).text) ||
            text_is(name, arch_tensor_name(role, 0, true).text))
            return true;
    for (size_t i = 0; i < sizeof foreign_tensors / sizeof *foreign_tensors; i++)
        if (text_is(name, foreign_tensors[i]))
            return true;
    return false;
}

/* Tensors that this architecture has not would change the results: biases in unusual places, norms
 * of queries, experts. Tables of frequencies that older files have follow from the keys. */
static enum status refuse_foreign_tensors(const struct gguf *g, const struct config *c,
                                          struct err *e)
{
    struct tensor_spec spec;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct text name = g->tensors[i].name;
        if (!has_meaning(c, name) || layout_named(c, name, &spec) ||
            text_ends_with(name, ".attn_rot_embd.weight"))
            continue;
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %.*s: expected none of this name in architecture %s of %d layers%s: "
                       "what it stands for does not run here",
                       text_width(name), name.data, c->arch->name, c->n_layers,
                       c->shared ? " that share a block" : "");
    }
    return STATUS_OK;
}

/* What divides must not be 0; see config_rope. */
static enum status check_rope_factors(struct loader *ld)
{
    const struct tensor_spec spec = layout_weight(&ld->file, ROLE_ROPE_FREQS, 0);
    const bool has = layout_has(&ld->file, ROLE_ROPE_FREQS);
    const struct gguf_tensor *t = has ? find_tensor(ld, &spec) : NULL;
    for (int i = 0; i < spec.cols && t; i++) {
        const float x = pack_mean_of_vector(t, (struct pack_rows){.first = i, .n = 1});
        if (!(x > (float)CONFIG_LEAST_ROPE_FACTOR && x < INFINITY))
            return err_set(ld->err, STATUS_BAD_FILE,
                           "tensor %s: expected numbers above %g, found %g as element %d",
                           spec.name.text, CONFIG_LEAST_ROPE_FACTOR, (double)x, i);
    }
    return ld->status;
}

/* What is wrong with the file before any tensor is looked at. */
static enum status open_file(struct loader *ld, const struct model_options *o)
{
    TRY(config_read(ld->g, &ld->file, ld->err));
    TRY(refuse_foreign_tensors(ld->g, &ld->file, ld->err));
    TRY(check_rope_factors(ld));
    return resolve_options(ld, o);
}

enum status model_check(const struct gguf *g, struct err *e)
{
    struct model counted = {.tied = false};
    struct loader ld = {.g = g, .err = e};
    TRY(open_file(&ld, NULL));
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
    ld.status = open_file(&ld, o);
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

struct matrix model_head_matrix(const struct weight *w, int head)
{
    struct matrix m = w->matrix;
    m.panels =
        (const unsigned char *)m.panels + (uint64_t)head * matrix_bytes(m.n_out, m.n_in, m.storage);
    return m;
}

void model_embed(const struct model *m, const struct positions *p, int token, int t, float *out)
{
    const int d = m->config.d_model;
    const float scale = m->config.embedding_scale;
    const float *position = m->w[ROLE_POSITION_EMBD].table;
    pack_read_row(&m->w[ROLE_TOKEN_EMBD].matrix, token, out);
    for (int i = 0; i < d && scale > 0 && scale != 1; i++)
        out[i] *= scale;
    position = position ? position + (size_t)t * (size_t)d : positions_vector(p, t);
    for (int i = 0; i < d && position; i++)
        out[i] += position[i];
}
