/*
 * Tensors of the checkpoint to double and back, the new file, and the block that a model would load
 * of it.
 */
#include <math.h>

#include "convert/private.h"

/* Elements decoded or encoded at a time: a multiple of every type's block. */
#define PIECE 256

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          bool is_bias)
{
    return layout_find(c->spec->gguf, role, c->block, is_bias);
}

/* --- where a part of a block is -------------------------------------------------------------- */

/* The tensor that a part is in, and from which row on: Q, K and V may be one, and a latent cache's
 * keys and values are made of what is cached. */
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
    if (config_is_latent(c))
        return part == PART_Q ? ROLE_ATTN_Q : ROLE_ATTN_KV_A;
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
        const bool turned = convert_is_turned(p), are_keys = p == PART_K;
        if (!m->w)
            continue;
        if (role != ROLE_ATTN_KV_A) {
            read_elements(find_old(c, role, false), first * c->d, m->rows * c->d,
                          turned ? c->square : m->w);
            read_elements(find_old(c, role, true), first, m->n_bias, m->bias);
            if (turned)
                linalg_transpose(m->w, c->square, c->d, m->rows);
            continue;
        }
        /* Of a latent cache, biases too: of head h the products k_b[h]^T kv_a and v_b[h] kv_a. */
        const size_t rank = config_latent(&c->config, c->block), dim = m->rows / c->n_heads;
        read_elements(find_old(c, are_keys ? ROLE_ATTN_K_B : ROLE_ATTN_V_B, false), 0,
                      m->rows * rank, c->square2);
        for (int is_bias = 0; is_bias < 2; is_bias++) {
            const size_t columns = is_bias ? 1 : c->d;
            double *out = is_bias ? m->bias : m->w;
            read_elements(find_old(c, role, is_bias), 0, rank * columns, c->square);
            convert_zero(out, m->rows * columns);
            for (size_t h = 0; h < c->n_heads; h++, out += dim * columns) {
                const double *of_head = c->square2 + h * dim * rank;
                const struct linalg_product product =
                    are_keys ? linalg_product_turned(out, of_head, c->square, dim, rank, columns)
                             : linalg_product(out, of_head, c->square, rank, columns);
                linalg_add_product(&product, 0, dim);
            }
        }
    }
    c->ov.centred = convert_is_latent(c) ||
                    (find_old(c, find_part(&c->config, c->block, PART_V, &first), true) &&
                     find_old(c, ROLE_ATTN_OUTPUT, true));
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

/* A tensor's type is that of the old one of this name, if the model has that, or, of latent caches,
 * of the old Q; else there is no such tensor. */
void convert_tensors_take(struct converter *c)
{
    ARENA_TAKE(c->tensors, &c->out->arena, config_blocks(&c->config));
    for (int64_t i = 0; i < layout_count(&c->converted); i++) {
        const struct tensor_spec spec = layout_at(&c->converted, i);
        const char *name = spec.name.text;
        struct tensor_spec own;
        struct qkv_part parts[QKV_PARTS];
        const struct gguf_tensor *old = NULL;
        if (!changes(c, spec.role))
            continue;
        if (layout_named(&c->config, text_of(name), &own))
            old = gguf_find_tensor(c->spec->gguf, name);
        const struct tensor_type_info *type = old ? written_type(old) : NULL;
        if (!old && convert_is_latent(c) && spec.role != ROLE_ATTN_REL) {
            layout_qkv(&c->config, spec.layer, parts);
            old = layout_find(c->spec->gguf, parts[0].role, spec.layer, false);
            type = tensor_type_find(
                layout_type(&spec, old && !spec.is_bias ? written_type(old)->type : TENSOR_F32));
        }
        if (!type)
            continue;
        const uint64_t n = spec_elements(&spec), n_bytes = tensor_type_bytes(type, n);
        const struct spec_dims dims = spec_dims(&spec);
        unsigned char *bytes = arena_take(&c->out->arena, n_bytes, 1);
        if (!c->tensors)
            continue;
        struct convert_tensor *t = &c->tensors[spec.layer].of[spec.role][spec.is_bias];
        *t = (struct convert_tensor){.name = spec.name, .bytes = bytes};
        t->tensor = (struct gguf_tensor){.name = text_of(t->name.text),
                                         .n_dims = spec.n_dims,
                                         .dims = {dims.n[0], dims.n[1], dims.n[2], 1},
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
                return err_failed(
                    e, "tensor %s: the new element %llu, %g, is no finite number as %s",
                    t->name.text, (unsigned long long)(first + done + i), x[done + i], type->name);
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

enum status convert_store_latent(struct converter *c, int kept, struct err *e)
{
    const struct convert_latent *l = &c->latent;
    struct convert_tensor *t = c->tensors[c->block].of[ROLE_ATTN_KV_A];
    const size_t rank = config_latent(&c->converted, c->block), d = c->d, dim = c->qk.dim;
    TRY(convert_store(c, PART_Q, PART_K, e));
    /* The first `kept` rows [d] of the latent's matrix, and of its bias. */
    for (int is_bias = 0; is_bias < 2; is_bias++, t++) {
        const size_t columns = is_bias ? 1 : d;
        TRY(write_elements(t, 0, kept * columns, is_bias ? l->shift : l->basis, e));
        if (t->bytes)
            blocks_zero(t->tensor.type->type, t->bytes, kept * columns, (rank - kept) * columns);
    }
    for (size_t h = 0; h < c->n_heads; h++)
        linalg_copy(c->square + h * rank * dim, dim, l->k_b + h * dim, c->qk.width, rank, dim);
    TRY(write_elements(convert_new(c, ROLE_ATTN_K_B, false), 0, rank * c->qk.width, c->square, e));
    linalg_transpose(c->square, l->v_b, rank, c->ov.width);
    return write_elements(convert_new(c, ROLE_ATTN_V_B, false), 0, rank * c->ov.width, c->square,
                          e);
}

/* --- as a model loads them ------------------------------------------------------------------- */

/* What may change beside Q, K and V, or what is latent, which are one matrix. */
static const enum tensor_role used_roles[] = {ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT, ROLE_ATTN_K_B,
                                              ROLE_ATTN_V_B, ROLE_FFN_UP,      ROLE_FFN_GATE,
                                              ROLE_FFN_DOWN};

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
            const uint64_t own = s.rows; /* each head's matrix has panels of its own */
            const uint64_t n =
                s.n_matrices * matrix_bytes(s.rows / s.n_matrices, s.cols, STORAGE_F32);
            most = MAX(n, most);
            rows = MAX(own, rows);
        }
        c->panels[role].panels = arena_take(&c->arena, most, 1);
        c->panels[role].bias = convert_floats(c, rows, 1);
    }
}

/* A weight, from row `first` of the role's matrix on, and its bias; or a matrix of each head. */
static void use_tensor(struct converter *c, enum tensor_role role, const struct convert_tensor *t,
                       int first)
{
    struct matrix *m = &c->used.w[role].matrix;
    struct gguf_tensor one = t[0].tensor;
    unsigned char *panels = c->panels[role].panels;
    const bool by_head = role == ROLE_ATTN_K_B || role == ROLE_ATTN_V_B;
    const size_t n = by_head ? c->n_heads : 1;
    one.n_elements /= n;
    one.n_bytes /= n;
    if (by_head) { /* which the checkpoint may not have */
        *m = (struct matrix){.n_out = one.dims[1], .n_in = one.dims[0]};
        pack_storage(one.type, &m->storage);
    }
    m->panels = panels;
    for (size_t h = 0; h < n; h++) {
        pack_matrix(panels, m, first, &one, &c->pack);
        panels += matrix_bytes(m->n_out, m->n_in, m->storage);
        one.data += one.n_bytes;
    }
    float *bias = c->panels[role].bias;
    if (t[1].bytes)
        pack_floats(bias + first, &t[1].tensor);
    else if (m->bias)
        memset(bias + first, 0, one.dims[1] * sizeof *bias);
    if (m->bias)
        m->bias = bias;
}

void convert_use(struct converter *c)
{
    struct weight *w = c->used.w;
    const struct attend_bias *old = c->model->blocks[c->block].bias;
    struct qkv_part parts[QKV_PARTS];
    c->used = c->model->blocks[c->block];
    if (convert_is_latent(c)) {
        w[ROLE_ATTN_QKV].matrix.bias = c->panels[ROLE_ATTN_QKV].bias;
        w[ROLE_ATTN_OUTPUT].matrix.bias = c->panels[ROLE_ATTN_OUTPUT].bias;
    }
    const int n_parts = layout_qkv(&c->converted, c->block, parts);
    if (convert_new(c, parts[0].role, false)->changed) {
        w[ROLE_ATTN_QKV].matrix.n_out = config_qkv_dim(&c->converted, c->block);
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

/* What becomes of an old tensor, where it was. All that is latent stands where Q was; the output
 * matrix may have a new bias then, and a block's tensors that stand for nothing are left out, as
 * the architecture that the file becomes refuses them. */
static void write_new(const struct converter *c, const struct gguf_tensor *old)
{
    static const enum tensor_role latent_roles[] = {ROLE_ATTN_Q, ROLE_ATTN_KV_A, ROLE_ATTN_K_B,
                                                    ROLE_ATTN_V_B};
    struct tensor_spec spec;
    const bool latent = convert_is_latent(c), known = layout_named(&c->config, old->name, &spec);
    if (latent && !known && text_starts_with(old->name, "blk."))
        return;
    if (!known || !role_in_block(spec.role)) {
        write_tensor(c, old);
        return;
    }
    const struct convert_tensors *block = &c->tensors[spec.layer];
    const struct convert_tensor *t = block->of[spec.role];
    if (latent && spec.role >= ROLE_ATTN_QKV && spec.role <= ROLE_ATTN_V) {
        for (int i = 0; i < 8 && !spec.is_bias && spec.role <= ROLE_ATTN_Q; i++) {
            const struct convert_tensor *new = &block->of[latent_roles[i / 2]][i % 2];
            if (new->bytes)
                write_tensor(c, &new->tensor);
        }
        return;
    }
    write_tensor(c, t[spec.is_bias].changed ? &t[spec.is_bias].tensor : old);
    if (latent && spec.role == ROLE_ATTN_OUTPUT && !spec.is_bias &&
        !gguf_find_tensor(c->spec->gguf, t[1].name.text))
        write_tensor(c, &t[1].tensor);
}

enum status convert_write(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const struct gguf *g = spec->gguf;
    const bool latent = convert_is_latent(c);
    const char *name = c->config.arch->name;
    TRY(gguf_writer_create(&c->out->writer, e));
    struct gguf_writer *w = c->out->writer;
    if (latent)
        gguf_add_text(w, "general.architecture", text_of(c->converted.arch->name));
    for (size_t i = 0; i < g->n_pairs; i++) {
        /* But what the architecture's own keys say anew. */
        const struct text key = g->pairs[i].key;
        const bool replaced =
            latent ? text_is(key, "general.architecture") ||
                         (text_starts_with(key, name) && key.data[strlen(name)] == '.')
                   : config_is_kv_heads_key(&c->config, key);
        const bool own = text_starts_with(key, OWN_KEYS) && !text_is(key, OWN_KEYS "dropped_heads");
        if (!replaced && !own)
            gguf_add_value(w, key, &g->pairs[i].value);
    }
    (latent ? config_write : config_write_kv_heads)(&c->converted, w);
    gguf_add_text(w, OWN_KEYS "source", text_of(spec->source_name));
    gguf_add_u32(w, OWN_KEYS "source_kv_heads", c->config.n_kv_heads);
    gguf_add_text(w, OWN_KEYS "method", text_of(latent ? "latent" : convert_methods[spec->method]));
    if (!latent)
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
