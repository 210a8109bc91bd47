/*
 * Loading runs the same list of tensors twice: the first pass checks each one and adds up the
 * memory, the second copies it. Nothing is allocated before every tensor is known to be right.
 */
#include "model/model.h"

#include <math.h>

#include "base/figures.h"
#include "formats/gguf_values.h"
#include "model/config_keys.h"
#include "model/pack.h"
#include "model/selection.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoints are little-endian and are read as they are");

struct loader {
    const struct gguf *g; /* NULL: random numbers */
    const struct file_map *source;
    struct model_options options;
    struct config file;     /* as the file has it */
    const struct config *c; /* as the model is to be */
    struct rng rng;         /* of random numbers */
    struct arena arena;     /* counting in the first pass */
    enum status status;     /* sticky */
    struct err *err;
};

/* Returns the file's tensor of a specification, or NULL. A failure stays with the loader, which
 * then finds none. */
static const struct gguf_tensor *find_tensor(struct loader *ld, const struct tensor_spec *spec)
{
    const struct gguf_tensor *t = NULL;
    if (ld->status == STATUS_OK)
        ld->status = pack_find(ld->g, spec, &t, ld->err);
    return ld->status == STATUS_OK ? t : NULL;
}

/* --- copying one ----------------------------------------------------------------------------- */

static void release(const struct loader *ld, const struct gguf_tensor *t)
{
    if (ld->source)
        file_map_release(ld->source, t->data, t->n_bytes);
}

/* A matrix on its way into panels, from row `first` of `w` on. */
struct copy {
    const struct pool *pool;
    void *panels;
    const struct matrix *w;
    int first;
    const struct gguf_tensor *t;
    const struct tensor_spec *spec; /* t's */
};

/* Copies a thread's rows: whole panels, if `first` begins one. */
static void copy_range(void *arg, int thread)
{
    const struct copy *c = arg;
    const int n_rows = c->t->dims[1];
    const struct range panels = pool_range(matrix_panels(n_rows), thread, pool_n_threads(c->pool));
    pack_rows(c->panels, c->w, c->first, c->t, c->spec, panels.begin * KERNEL_LANES,
              MIN(panels.end * KERNEL_LANES, n_rows));
}

/* Loads a tensor as F32 in file order; NULL if the file has none. */
static const float *load_floats(struct loader *ld, const struct tensor_spec *spec)
{
    const struct gguf_tensor *t = ld->g ? find_tensor(ld, spec) : NULL;
    const uint64_t n = spec_elements(spec);
    if (ld->g ? !t : spec->flags & SPEC_NOT_NEW)
        return NULL;
    float *out = arena_take(&ld->arena, n, sizeof *out);
    if (out && t) {
        pack_floats(out, t, spec);
        release(ld, t);
    } else if (out) {
        pack_random_floats(out, n, &ld->rng);
    }
    return out;
}

static const float *load_bias(struct loader *ld, enum tensor_role role, int layer)
{
    if (!layout_has_bias(ld->c, role))
        return NULL;
    const struct tensor_spec spec = layout_bias(ld->c, role, layer);
    return load_floats(ld, &spec);
}

/* Loads a role's matrix and its bias. Q, K and V are one matrix, of the parts that the file has, or
 * a random one if the file has other K/V heads; if only some have a bias, the others' is zero. */
static struct matrix load_matrix(struct loader *ld, enum tensor_role role, int layer)
{
    const struct config *file = &ld->file, *c = ld->c;
    const bool is_qkv = role == ROLE_ATTN_QKV;
    const struct tensor_spec whole = layout_weight(c, role, layer);
    struct matrix w = {.n_out = whole.rows, .n_in = whole.cols};
    struct qkv_part parts[QKV_PARTS] = {{role, 0, whole.rows}};
    struct tensor_spec specs[QKV_PARTS], of_biases[QKV_PARTS];
    const struct gguf_tensor *weight[QKV_PARTS], *biases[QKV_PARTS]; /* a bias may be NULL */
    const int n = is_qkv ? layout_qkv(file, layer, parts) : 1;
    bool has_bias = !ld->g && !(layout_bias(c, role, layer).flags & SPEC_NOT_NEW);
    for (int i = 0; ld->g && i < n; i++) {
        specs[i] = layout_weight(file, parts[i].role, layer);
        of_biases[i] = layout_bias(file, parts[i].role, layer);
        weight[i] = find_tensor(ld, &specs[i]);
        biases[i] = find_tensor(ld, &of_biases[i]);
        has_bias |= biases[i] != NULL;
        if (ld->status != STATUS_OK)
            return w;
    }
    if (ld->g && !ld->options.convert)
        w.storage = pack_common_storage(weight, n);
    else
        pack_storage(layout_type(&whole, pack_type(ld->options.storage)), &w.storage);
    void *panels = arena_take(&ld->arena, matrix_bytes(w.n_out, w.n_in, w.storage), 1);
    float *bias = has_bias ? arena_take(&ld->arena, w.n_out, sizeof *bias) : NULL;
    w.panels = panels;
    w.bias = bias;
    const bool is_random =
        !ld->g || (is_qkv && config_kv_heads(file, layer) != config_kv_heads(c, layer));
    if (is_random && panels)
        pack_random(panels, &w, &ld->rng);
    if (is_random && bias)
        pack_random_floats(bias, w.n_out, &ld->rng);
    for (int i = 0; !is_random && panels && i < n; i++) {
        struct copy copy = {ld->options.pool, panels, &w, parts[i].first, weight[i], &specs[i]};
        pool_run(ld->options.pool, copy_range, &copy);
        release(ld, weight[i]);
        if (biases[i])
            pack_floats(bias + parts[i].first, biases[i], &of_biases[i]);
    }
    return w;
}

/* --- roles ----------------------------------------------------------------------------------- */

/* Loads the tensors of a role, if a model has them in memory. */
static struct weight load_weight(struct loader *ld, enum tensor_role role, int layer)
{
    struct weight w = {.table = NULL};
    const struct tensor_spec spec = layout_weight(ld->c, role, layer);
    if (role != ROLE_ATTN_QKV && (!layout_has(ld->c, role) || role_is_joined(role)))
        return w;
    if (spec.form == FORM_MATRIX) {
        w.matrix = load_matrix(ld, role, layer);
    } else if (spec.form == FORM_NORM) {
        w.norm.gain = load_floats(ld, &spec);
        w.norm.bias = load_bias(ld, role, layer);
    } else {
        w.table = load_floats(ld, &spec);
    }
    return w;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Passes over all tensors, in the order of a file. */
static void load_all(struct loader *ld, struct model *m)
{
    const struct config *c = ld->c = &m->config;
    m->tied = ld->g && layout_output_tied(ld->g);
    ARENA_TAKE(m->blocks, &ld->arena, c->n_layers);
    for (enum tensor_role role = 0; role < ROLE_BLOCK_FIRST; role++)
        m->w[role] = load_weight(ld, role, 0);
    for (int l = 0; l < config_blocks(c) && ld->status == STATUS_OK; l++) {
        struct block b = {.bias = NULL};
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++)
            b.w[role] = load_weight(ld, role, l);
        if (c->position == POSITION_ALIBI || c->position == POSITION_QUADRATIC) {
            struct attend_bias *bias = arena_take(&ld->arena, c->n_heads, sizeof *bias);
            for (int h = 0; bias && h < c->n_heads; h++)
                positions_bias(c, h, b.w[ROLE_ATTN_REL].table, &bias[h]);
            b.bias = bias;
        }
        if (m->blocks)
            m->blocks[l] = b;
    }
    for (enum tensor_role role = ROLE_BLOCK_END; role < (m->tied ? ROLE_OUTPUT : TENSOR_ROLES);
         role++)
        m->w[role] = load_weight(ld, role, 0);
    if (m->blocks)
        for (int l = config_blocks(c); l < c->n_layers; l++)
            m->blocks[l] = m->blocks[0];
    if (m->tied) {
        const float *bias = load_bias(ld, ROLE_OUTPUT, 0);
        m->w[ROLE_OUTPUT] = m->w[ROLE_TOKEN_EMBD];
        m->w[ROLE_OUTPUT].matrix.bias = bias ? bias : m->w[ROLE_TOKEN_EMBD].matrix.bias;
    }
}

/* Builds a model of this config: counts its memory in a first pass and fills it in a second. */
static enum status build_model(struct loader *ld, const struct config *c, struct model **out)
{
    struct model *m;
    TRY_ZEROED(m, 1, "the model", ld->err);
    m->config = *c;
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

/* Refuses tensors that this architecture has not and that would change the results: biases in
 * unusual places, norms of queries, experts. Names outside of the blocks that mean nothing are
 * passed over, and so are older files' tables of frequencies, which follow from the keys. */
static enum status refuse_foreign_tensors(const struct gguf *g, const struct config *c,
                                          struct err *e)
{
    static const char *const outside[] = {"rope_factors_long.weight", "rope_factors_short.weight"};
    struct tensor_spec spec;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct text name = g->tensors[i].name;
        const bool in_block = text_starts_with(name, "blk.");
        bool has_meaning = in_block && !c->arch->is_open;
        for (int k = 0; k < LENGTH(outside); k++)
            has_meaning |= text_is(name, outside[k]);
        if (!in_block)
            for (enum tensor_role role = 0; role < TENSOR_ROLES; role++)
                has_meaning |= text_is(name, arch_tensor_name(role, 0, false).text) ||
                               text_is(name, arch_tensor_name(role, 0, true).text);
        if (!has_meaning || layout_named(c, name, &spec) ||
            text_ends_with(name, ".attn_rot_embd.weight"))
            continue;
        return err_bad_file(e,
                            "tensor %.*s: expected none of this name in architecture %s of %d "
                            "layers%s: what it stands for does not run here",
                            text_width(name), name.data, c->arch->name, c->n_layers,
                            c->shared ? " that share a block" : "");
    }
    return STATUS_OK;
}

/* Checks the file, all but its tensors, and the options, whose defaults are filled in. */
static enum status check_file(struct loader *ld, const struct model_options *o)
{
    const struct config *c = &ld->file;
    TRY(config_read(ld->g, &ld->file, ld->err));
    TRY(refuse_foreign_tensors(ld->g, c, ld->err));

    /* What divides must not be 0; see config_rope. */
    const struct tensor_spec spec = layout_weight(c, ROLE_ROPE_FREQS, 0);
    const struct gguf_tensor *t = layout_has(c, ROLE_ROPE_FREQS) ? find_tensor(ld, &spec) : NULL;
    TRY(ld->status);
    if (t)
        for (int i = 0; i < spec.cols; i++) {
            float x;
            blocks_decode(t->type->type, &x, t->data + i * t->type->block_bytes, 1);
            if (!(x > (float)CONFIG_LEAST_ROPE_FACTOR && x < INFINITY))
                return err_bad_file(
                    ld->err, "tensor %s: expected numbers above %g, found %g as element %d",
                    spec.name.text, CONFIG_LEAST_ROPE_FACTOR, figure_unsigned_nan((double)x), i);
        }

    if (o)
        ld->options = *o;
    int *wanted = &ld->options.random_kv_heads;
    if (*wanted == 0)
        *wanted = c->n_kv_heads;
    if (*wanted != c->n_kv_heads)
        TRY(config_needs_dot(c, "fewer K/V heads", ld->err));
    return heads_check("K/V heads", c, wanted, 1, ld->err);
}

enum status model_check(const struct gguf *g, struct err *e)
{
    struct model counted = {.tied = false};
    struct loader ld = {.g = g, .err = e};
    TRY(check_file(&ld, NULL));
    counted.config = ld.file;
    load_all(&ld, &counted);
    return ld.status;
}

enum status model_create(const struct gguf *g, const struct model_options *o,
                         const struct file_map *source, struct model **out, struct err *e)
{
    *out = NULL;
    struct loader ld = {.g = g, .source = source, .err = e};
    rng_seed(&ld.rng, 0, 0);
    TRY(check_file(&ld, o));
    struct config c = ld.file;
    c.n_kv_heads = ld.options.random_kv_heads;
    return build_model(&ld, &c, out);
}

enum status model_create_random(const struct config *c, enum storage storage, uint64_t seed,
                                struct model **out, struct err *e)
{
    *out = NULL;
    struct loader ld = {.file = *c, .options = {.convert = true, .storage = storage}, .err = e};
    rng_seed(&ld.rng, seed, 0);
    return build_model(&ld, c, out);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    arena_free(&m->weights);
    free(m);
}

void model_embed(const struct model *m, const struct positions *p, const struct kernels *kernels,
                 int token, int t, float *out)
{
    const struct config *c = &m->config;
    const struct norm *norm = &m->w[ROLE_TOKEN_EMBD_NORM].norm;
    const int d = c->d_model;
    const float scale = c->embedding_scale;
    const float *position = m->w[ROLE_POSITION_EMBD].table;
    pack_read_row(&m->w[ROLE_TOKEN_EMBD].matrix, token, out);
    if (scale > 0 && scale != 1)
        for (int i = 0; i < d; i++)
            out[i] *= scale;
    position = position ? position + (size_t)t * d : positions_vector(p, t);
    if (position)
        for (int i = 0; i < d; i++)
            out[i] += position[i];
    if (c->parts.embedding_norm)
        kernels->norm(c->norm, out, out, norm->gain, norm->bias, d, c->norm_eps);
}

/* --- checkpoint ------------------------------------------------------------------------------- */

enum status checkpoint_take(struct file_map *file, const char *path, unsigned parts,
                            struct pool *pool, struct checkpoint *c, struct err *e)
{
    const bool with_model = parts & CHECKPOINT_MODEL;
    const bool needs_tokenizer = parts & (CHECKPOINT_TOKENIZER | CHECKPOINT_TEXTS);
    struct config config;
    *c = (struct checkpoint){.file = *file};
    *file = (struct file_map){0};
    enum status s = gguf_parse(c->file.data, c->file.len, &c->gguf, e);
    /* The tokenizer matters only if the file is a model that runs here. */
    if (s == STATUS_OK)
        s = with_model ? config_read(c->gguf, &config, e) : config_check_kind(c->gguf, e);
    /* Without the key, asking for a tokenizer gives the message that names it. */
    if (s == STATUS_OK && (gguf_find(c->gguf, "tokenizer.ggml.model") || needs_tokenizer))
        s = tokenizer_create(c->gguf, &c->tokenizer, e);
    if (s == STATUS_OK && with_model)
        s = model_create(c->gguf, &(struct model_options){.pool = pool}, &c->file, &c->model, e);
    if (s == STATUS_OK && with_model)
        c->model->name = path;
    if (s == STATUS_OK && parts & CHECKPOINT_TEXTS)
        s = tokenizer_reads_text(c->tokenizer, e);
    if (s != STATUS_OK) {
        err_in(e, s, "%s", path);
        checkpoint_close(c);
    }
    return s;
}

void checkpoint_close(struct checkpoint *c)
{
    model_free(c->model);
    tokenizer_free(c->tokenizer);
    gguf_free(c->gguf);
    file_map_close(&c->file);
    *c = (struct checkpoint){0};
}
