/*
 * Tensors of the checkpoint to double and back, the new file, and the block that a model would load
 * of it.
 */
#include <math.h>

#include "base/figures.h"
#include "convert/private.h"

/* Elements decoded or encoded at a time: a multiple of every type's block. */
#define PIECE 256

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          bool is_bias)
{
    return layout_find(c->spec->gguf, role, c->block, is_bias);
}

/* --- where a part of a block is -------------------------------------------------------------- */

/* The tensor that a part is in, and from which row on: Q, K and V may be one. */
static enum tensor_role find_part(const struct config *c, int block, enum convert_part part,
                                  uint64_t *first)
{
    static const enum tensor_role roles[CONVERT_PARTS] = {[PART_O] = ROLE_ATTN_OUTPUT,
                                                          [PART_UP] = ROLE_FFN_UP,
                                                          [PART_GATE] = ROLE_FFN_GATE,
                                                          [PART_DOWN] = ROLE_FFN_DOWN};
    struct qkv_part parts[QKV_PARTS];
    *first = 0;
    if (part >= PART_O)
        return roles[part];
    if (layout_qkv(c, block, parts) > 1)
        return parts[part].role;
    if (part > PART_Q)
        *first += config_q_dim(c, block);
    if (part > PART_K)
        *first += config_k_dim(c, block);
    return ROLE_ATTN_QKV;
}

void convert_copy(const struct converter *c, const union convert_weights *to,
                  const union convert_weights *from, enum convert_part first, enum convert_part end)
{
    for (const struct convert_matrix *m = &c->to.at[first]; first < end; first++, m++)
        if (m->w) {
            memcpy(to->at[first].w, from->at[first].w, m->rows * c->d * sizeof *m->w);
            memcpy(to->at[first].bias, from->at[first].bias, m->n_bias * sizeof *m->w);
        }
}

/* --- reading --------------------------------------------------------------------------------- */

/* n elements from `first` on; zeros where there is no tensor. The model's loader has checked it. */
static void read_elements(const struct gguf_tensor *t, uint64_t first, uint64_t n, double *out)
{
    float piece[PIECE] = {0};
    for (uint64_t done = 0; done < n; done += PIECE) {
        const uint64_t now = MIN(n - done, PIECE);
        if (t)
            blocks_decode(t->type->type, piece, t->data + tensor_type_bytes(t->type, first + done),
                          now);
        for (uint64_t i = 0; i < now; i++)
            out[done + i] = (double)piece[i];
    }
}

void convert_load(struct converter *c)
{
    uint64_t first;
    for (enum convert_part p = PART_Q; p < CONVERT_PARTS; p++) {
        const struct convert_matrix *m = p < PART_UP ? &c->from.at[p] : &c->to.at[p];
        const enum tensor_role role = find_part(&c->config, c->block, p, &first);
        const bool turned = convert_is_turned(p);
        if (!m->w)
            continue;
        read_elements(find_old(c, role, false), first * c->d, m->rows * c->d,
                      turned ? c->square : m->w);
        read_elements(find_old(c, role, true), first, m->n_bias, m->bias);
        if (turned)
            linalg_transpose(m->w, c->square, c->d, m->rows);
    }
    c->ov.centred = find_old(c, find_part(&c->config, c->block, PART_V, &first), true) &&
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
    for (uint64_t done = 0; done < n; done += PIECE) {
        float piece[PIECE], back[PIECE];
        const uint64_t now = MIN(n - done, PIECE);
        unsigned char *bytes = t->bytes + tensor_type_bytes(type, first + done);
        for (uint64_t i = 0; i < now; i++)
            piece[i] = (float)x[done + i];
        blocks_encode(type->type, bytes, piece, now);
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

enum status convert_store(struct converter *c, enum convert_part from, enum convert_part end,
                          struct err *e)
{
    for (enum convert_part p = from; p < end; p++) {
        const struct convert_matrix *m = &c->to.at[p];
        const bool turned = convert_is_turned(p);
        uint64_t first;
        if (!m->w)
            continue;
        const enum tensor_role role = find_part(&c->converted, c->block, p, &first);
        if (turned)
            linalg_transpose(c->square, m->w, m->rows, c->d);
        TRY(write_elements(convert_new(c, role, false), first * c->d, m->rows * c->d,
                           turned ? c->square : m->w, e));
        TRY(write_elements(convert_new(c, role, true), first, m->n_bias, m->bias, e));
    }
    return STATUS_OK;
}

void convert_store_order(struct converter *c)
{
    const struct gguf_tensor *old = find_old(c, ROLE_ATTN_REL, false);
    struct convert_tensor *t = convert_new(c, ROLE_ATTN_REL, false);
    const size_t of_head = t->tensor.n_bytes / c->n_heads;
    t->changed = t->bytes;
    for (size_t i = 0; i < c->n_heads && t->bytes; i++)
        memcpy(t->bytes + i * of_head, old->data + c->order[i] * of_head, of_head);
}

/* --- as a model loads them ------------------------------------------------------------------- */

/* What may change: Q, K and V, which are one matrix, and the others. */
static const enum tensor_role used_roles[] = {ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT, ROLE_FFN_UP,
                                              ROLE_FFN_GATE, ROLE_FFN_DOWN};

/* Room for the largest layer's matrices as floats, the widest storage, and biases. */
void convert_used_take(struct converter *c)
{
    c->pack = pack_scratch_take(&c->arena, c->widest);
    ARENA_TAKE(c->score_bias, &c->arena, c->n_heads);
    for (int i = 0; i < LENGTH(used_roles); i++) {
        const enum tensor_role role = used_roles[i];
        uint64_t most = 0, rows = 0;
        for (int l = 0; l < c->config.n_layers && (i == 0 || changes(c, role)); l++) {
            const struct tensor_spec s = layout_weight(&c->converted, role, l);
            const uint64_t own = s.rows, n = matrix_bytes(s.rows, s.cols, STORAGE_F32);
            most = MAX(n, most);
            rows = MAX(own, rows);
        }
        c->panels[role].panels = arena_take(&c->arena, most, 1);
        c->panels[role].bias = convert_floats(c, rows, 1);
    }
}

/* A weight, from row `first` of the role's matrix on, and its bias. */
static void use_tensor(struct converter *c, enum tensor_role role, const struct convert_tensor *t,
                       int first)
{
    struct matrix *m = &c->used.w[role].matrix;
    m->panels = c->panels[role].panels;
    pack_matrix(c->panels[role].panels, m, first, &t[0].tensor, &c->pack);
    float *bias = c->panels[role].bias;
    if (t[1].bytes)
        pack_floats(bias + first, &t[1].tensor);
    else if (m->bias)
        memset(bias + first, 0, t[0].tensor.dims[1] * sizeof *bias);
    if (m->bias)
        m->bias = bias;
}

void convert_use(struct converter *c)
{
    const struct attend_bias *old = c->model->blocks[c->block].bias;
    struct qkv_part parts[QKV_PARTS];
    c->used = c->model->blocks[c->block];
    const int n_parts = layout_qkv(&c->converted, c->block, parts);
    if (convert_new(c, parts[0].role, false)->changed) {
        c->used.w[ROLE_ATTN_QKV].matrix.n_out = config_qkv_dim(&c->converted, c->block);
        for (int i = 0; i < n_parts; i++)
            use_tensor(c, ROLE_ATTN_QKV, convert_new(c, parts[i].role, false), parts[i].first);
        for (size_t h = 0; h < c->n_heads && old; h++)
            c->score_bias[h] = old[c->order[h]];
        c->used.bias = old ? c->score_bias : NULL;
    }
    for (int i = 1; i < LENGTH(used_roles); i++) {
        const struct convert_tensor *t = convert_new(c, used_roles[i], false);
        if (t->changed)
            use_tensor(c, used_roles[i], t, 0);
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
