#include "convert/tensors.h"

#include <math.h>

#include "base/figures.h"
#include "convert/memory.h"
#include "formats/blocks.h"
#include "formats/gguf_values.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"

/* Elements decoded or encoded at a time: a multiple of every type's block. */
#define CHUNK 256

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          bool is_bias)
{
    return layout_find(c->spec->gguf, role, c->block.index, is_bias);
}

/* --- where a weight of a block is --------------------------------------------------------------
 */

/* The tensor that a weight is in, and from which row on: Q, K and V may be one. */
static enum tensor_role find_weight(const struct config *c, int block, enum convert_weight weight,
                                    uint64_t *first)
{
    static const enum tensor_role roles[CONVERT_WEIGHTS] = {[WEIGHT_O] = ROLE_ATTN_OUTPUT,
                                                            [WEIGHT_UP] = ROLE_FFN_UP,
                                                            [WEIGHT_GATE] = ROLE_FFN_GATE,
                                                            [WEIGHT_DOWN] = ROLE_FFN_DOWN};
    struct qkv_part parts[QKV_PARTS];
    *first = 0;
    if (weight >= WEIGHT_O)
        return roles[weight];
    if (layout_qkv(c, block, parts) > 1)
        return parts[weight].role;
    if (weight > WEIGHT_Q)
        *first += config_q_dim(c, block);
    if (weight > WEIGHT_K)
        *first += config_k_dim(c, block);
    return ROLE_ATTN_QKV;
}

void convert_weights_take(struct converter *c, union convert_weights *w, size_t n_kv_heads,
                          enum convert_weight end)
{
    const size_t d_ff = c->config.d_ff, k = n_kv_heads * c->circuits.qk.dim,
                 v = n_kv_heads * c->circuits.ov.dim;
    const size_t rows[CONVERT_WEIGHTS] = {
        c->circuits.qk.width, k, v, c->circuits.ov.width, d_ff, d_ff, d_ff};
    for (enum convert_weight p = WEIGHT_Q; p < CONVERT_WEIGHTS; p++) {
        struct convert_matrix *m = &w->at[p];
        m->rows = rows[p];
        m->n_bias = convert_is_transposed(p) ? c->d : rows[p];
        if (p < end && (p != WEIGHT_GATE || ffn_is_gated(c->config.ffn))) {
            m->w = convert_doubles(c, m->rows, c->d);
            m->bias = convert_doubles(c, m->n_bias, 1);
        }
    }
}

void convert_copy(const struct converter *c, const union convert_weights *to,
                  const union convert_weights *from, enum convert_weight first,
                  enum convert_weight end)
{
    for (const struct convert_matrix *m = &c->block.to.at[first]; first < end; first++, m++)
        if (m->w) {
            memcpy(to->at[first].w, from->at[first].w, m->rows * c->d * sizeof *m->w);
            memcpy(to->at[first].bias, from->at[first].bias, m->n_bias * sizeof *m->w);
        }
}

/* --- reading --------------------------------------------------------------------------------- */

/* n elements from `first` on; zeros where there is no tensor. The model's loader has checked it. */
static void read_elements(const struct gguf_tensor *t, uint64_t first, uint64_t n, double *out)
{
    float chunk[CHUNK] = {0};
    for (uint64_t done = 0; done < n; done += CHUNK) {
        const uint64_t now = MIN(n - done, CHUNK);
        if (t)
            blocks_decode(t->type->type, chunk, t->data + tensor_type_bytes(t->type, first + done),
                          now);
        for (uint64_t i = 0; i < now; i++)
            out[done + i] = (double)chunk[i];
    }
}

void convert_read(struct converter *c)
{
    uint64_t first;
    for (enum convert_weight p = WEIGHT_Q; p < CONVERT_WEIGHTS; p++) {
        const struct convert_matrix *m = p < WEIGHT_UP ? &c->block.from.at[p] : &c->block.to.at[p];
        const enum tensor_role role = find_weight(&c->config, c->block.index, p, &first);
        const bool transposed = convert_is_transposed(p);
        if (!m->w)
            continue;
        read_elements(find_old(c, role, false), first * c->d, m->rows * c->d,
                      transposed ? c->scratch.square : m->w);
        read_elements(find_old(c, role, true), first, m->n_bias, m->bias);
        if (transposed)
            linalg_transpose(m->w, c->scratch.square, c->d, m->rows);
    }
    c->circuits.ov.centred =
        find_old(c, find_weight(&c->config, c->block.index, WEIGHT_V, &first), true) &&
        find_old(c, ROLE_ATTN_OUTPUT, true);
}

/* --- the new tensors ------------------------------------------------------------------------- */

/* Whether a conversion may change tensors of a role. */
static bool changes(const struct converter *c, enum tensor_role role)
{
    return layout_has(&c->converted, role) &&
           ((role >= ROLE_ATTN_QKV && role <= ROLE_ATTN_OUTPUT) ||
            (convert_refits_block(c) && role >= ROLE_FFN_GATE && role <= ROLE_FFN_DOWN));
}

/* What is only read is written in the type that it has in memory. */
static const struct tensor_type_info *written_type(const struct gguf_tensor *t)
{
    return tensor_type_find(blocks_in_memory(t->type->type));
}

/* A tensor's type is that of the old one of this name; without one there is none. */
void convert_tensors_take(struct converter *c)
{
    ARENA_TAKE(c->tensors, &c->out->arena, config_blocks(&c->config));
    for (int64_t i = 0; i < layout_count(&c->converted); i++) {
        const struct tensor_spec spec = layout_at(&c->converted, i);
        const struct gguf_tensor *old = gguf_find_tensor(c->spec->gguf, spec.name.text);
        if (!old || !changes(c, spec.role))
            continue;
        const struct tensor_type_info *type = written_type(old);
        const uint64_t n = spec_elements(&spec), n_bytes = tensor_type_bytes(type, n);
        const struct spec_dims dims = spec_dims(&spec);
        unsigned char *bytes = arena_take(&c->out->arena, n_bytes, 1);
        if (!c->tensors)
            continue;
        struct convert_tensor *t = &c->tensors[spec.layer].of[spec.role][spec.is_bias];
        *t = (struct convert_tensor){.name = spec.name, .bytes = bytes};
        t->tensor = (struct gguf_tensor){.name = text_of(t->name.text),
                                         .n_dims = spec.n_dims,
                                         .dims = {dims.n[0], dims.n[1], 1, 1},
                                         .type = type,
                                         .n_elements = n,
                                         .n_bytes = n_bytes,
                                         .data = bytes};
    }
}

/* Rounds n numbers to elements from `first` on, if there is such a tensor. STATUS_FAILED if one is
 * not finite then. */
static enum status write_elements(struct convert_tensor *t, uint64_t first, uint64_t n,
                                  const double *x, struct err *e)
{
    const struct tensor_type_info *type = t->tensor.type;
    if (!t->bytes)
        return STATUS_OK;
    t->changed = true;
    for (uint64_t done = 0; done < n; done += CHUNK) {
        float chunk[CHUNK], back[CHUNK];
        const uint64_t now = MIN(n - done, CHUNK);
        unsigned char *bytes = t->bytes + tensor_type_bytes(type, first + done);
        for (uint64_t i = 0; i < now; i++)
            chunk[i] = (float)x[done + i];
        blocks_encode(type->type, bytes, chunk, now);
        blocks_decode(type->type, back, bytes, now);
        for (uint64_t i = 0; i < now; i++)
            if (!isfinite(back[i]))
                return err_failed(e,
                                  "tensor %s: the new element %llu, %g, is no finite number as %s",
                                  t->name.text, (unsigned long long)(first + done + i),
                                  figure_unsigned_nan(x[done + i]), type->name);
    }
    return STATUS_OK;
}

enum status convert_store(struct converter *c, enum convert_weight from, enum convert_weight end,
                          struct err *e)
{
    for (enum convert_weight p = from; p < end; p++) {
        const struct convert_matrix *m = &c->block.to.at[p];
        const bool transposed = convert_is_transposed(p);
        uint64_t first;
        if (!m->w)
            continue;
        const enum tensor_role role = find_weight(&c->converted, c->block.index, p, &first);
        if (transposed)
            linalg_transpose(c->scratch.square, m->w, m->rows, c->d);
        TRY(write_elements(convert_new(c, role, false), first * c->d, m->rows * c->d,
                           transposed ? c->scratch.square : m->w, e));
        TRY(write_elements(convert_new(c, role, true), first, m->n_bias, m->bias, e));
    }
    return STATUS_OK;
}

void convert_store_order(struct converter *c)
{
    const struct gguf_tensor *old = find_old(c, ROLE_ATTN_REL, false);
    struct convert_tensor *t = convert_new(c, ROLE_ATTN_REL, false);
    const size_t of_head = t->tensor.n_bytes / c->block.n_heads;
    if (!t->bytes)
        return;
    t->changed = true;
    for (size_t i = 0; i < c->block.n_heads; i++)
        memcpy(t->bytes + i * of_head, old->data + c->block.order[i] * of_head, of_head);
}

/* --- as a model loads them ------------------------------------------------------------------- */

/* What may change: Q, K and V, which are one matrix, and the others. */
static const enum tensor_role loaded_roles[] = {ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT, ROLE_FFN_UP,
                                                ROLE_FFN_GATE, ROLE_FFN_DOWN};

struct convert_loading {
    struct panels {
        void *panels;
        float *bias;
    } of[TENSOR_ROLES]; /* of roles that may change; of Q, K and V all in ROLE_ATTN_QKV */
    struct attend_bias *score_bias; /* [n_heads] */
    struct pack_scratch pack;
};

/* Room for the largest layer's matrices as floats, the widest storage, and biases. */
void convert_loading_take(struct converter *c)
{
    struct convert_loading counted;
    struct convert_loading *to = arena_take(&c->arena, 1, sizeof *to);
    c->loading = to;
    to = to ? to : &counted;
    to->pack = pack_scratch_take(&c->arena, c->widest);
    ARENA_TAKE(to->score_bias, &c->arena, c->block.n_heads);
    for (int i = 0; i < LENGTH(loaded_roles); i++) {
        const enum tensor_role role = loaded_roles[i];
        uint64_t most = 0, rows = 0;
        if (i > 0 && !changes(c, role))
            continue;
        for (int l = 0; l < c->config.n_layers; l++) {
            const struct tensor_spec s = layout_weight(&c->converted, role, l);
            const uint64_t bytes = matrix_bytes(s.rows, s.cols, STORAGE_F32);
            most = MAX(bytes, most);
            rows = MAX((uint64_t)s.rows, rows);
        }
        to->of[role].panels = arena_take(&c->arena, most, 1);
        to->of[role].bias = convert_floats(c, rows, 1);
    }
}

/* A weight, from row `first` of the role's matrix on, and its bias. */
static void load_tensor(struct converter *c, enum tensor_role role, const struct convert_tensor *t,
                        int first)
{
    struct convert_loading *to = c->loading;
    struct matrix *m = &c->block.loaded.w[role].matrix;
    m->panels = to->of[role].panels;
    pack_matrix(to->of[role].panels, m, first, &t[0].tensor, &to->pack);
    float *bias = to->of[role].bias;
    if (t[1].bytes)
        pack_floats(bias + first, &t[1].tensor);
    else if (m->bias)
        memset(bias + first, 0, t[0].tensor.dims[1] * sizeof *bias);
    if (m->bias)
        m->bias = bias;
}

void convert_load_stored(struct converter *c)
{
    const struct attend_bias *old = c->model->blocks[c->block.index].bias;
    struct qkv_part parts[QKV_PARTS];
    c->block.loaded = c->model->blocks[c->block.index];
    const int n_parts = layout_qkv(&c->converted, c->block.index, parts);
    if (convert_new(c, parts[0].role, false)->changed) {
        c->block.loaded.w[ROLE_ATTN_QKV].matrix.n_out =
            config_qkv_dim(&c->converted, c->block.index);
        for (int i = 0; i < n_parts; i++)
            load_tensor(c, ROLE_ATTN_QKV, convert_new(c, parts[i].role, false), parts[i].first);
        if (old) {
            for (size_t h = 0; h < c->block.n_heads; h++)
                c->loading->score_bias[h] = old[c->block.order[h]];
            c->block.loaded.bias = c->loading->score_bias;
        }
    }
    for (int i = 1; i < LENGTH(loaded_roles); i++) {
        const struct convert_tensor *t = convert_new(c, loaded_roles[i], false);
        if (t->changed)
            load_tensor(c, loaded_roles[i], t, 0);
    }
}

/* --- the new file ---------------------------------------------------------------------------- */

#define OWN_KEYS "decode.convert."

static void write_tensor(const struct converter *c, const struct gguf_tensor *t)
{
    gguf_add_tensor(c->out->writer, t->name, t->type->type, t->n_dims, t->dims, t->data);
    c->out->n_params_after += t->n_elements;
}

/* What becomes of an old tensor, where it was. */
static void write_new(const struct converter *c, const struct gguf_tensor *old)
{
    struct tensor_spec spec;
    const struct convert_tensor *t = NULL;
    if (layout_named(&c->config, old->name, &spec) && role_in_block(spec.role))
        t = &c->tensors[spec.layer].of[spec.role][spec.is_bias];
    write_tensor(c, t && t->changed ? &t->tensor : old);
}

enum status convert_write(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const struct gguf *g = spec->gguf;
    TRY(gguf_writer_create(&c->out->writer, e));
    struct gguf_writer *w = c->out->writer;
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct text key = g->pairs[i].key;
        const bool own = text_starts_with(key, OWN_KEYS) && !text_is(key, OWN_KEYS "dropped_heads");
        if (!config_is_kv_heads_key(&c->config, key) && !own)
            gguf_add_value(w, key, &g->pairs[i].value);
    }
    config_write_kv_heads(&c->converted, w);
    gguf_add_text(w, OWN_KEYS "source", text_of(spec->source_name));
    gguf_add_u32(w, OWN_KEYS "source_kv_heads", c->config.n_kv_heads);
    gguf_add_text(w, OWN_KEYS "method", text_of(convert_methods[spec->method]));
    gguf_add_text(w, OWN_KEYS "grouping", text_of(spec->cluster ? "cluster" : "adjacent"));
    gguf_add_text(w, OWN_KEYS "refit", text_of(convert_refits[spec->refit]));
    gguf_add_u64(w, OWN_KEYS "calibration_tokens", spec->n_tokens);
    if (spec->method == CONVERT_RANDOM)
        gguf_add_u64(w, OWN_KEYS "seed", spec->seed);
    gguf_add_text(w, OWN_KEYS "version", text_of(spec->version));

    /* An output matrix that is the embedding once more counts once. */
    const struct gguf_tensor *output = layout_find(g, ROLE_OUTPUT, 0, false);
    const uint64_t twice = output && layout_output_tied(g) ? output->n_elements : 0;
    c->out->n_params_before = c->out->n_params_after = -twice;
    for (size_t i = 0; i < g->n_tensors; i++) {
        c->out->n_params_before += g->tensors[i].n_elements;
        write_new(c, &g->tensors[i]);
    }
    return STATUS_OK;
}
