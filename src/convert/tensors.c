/*
 * Tensors of the checkpoint to double and back, the new file, and the block that a model would load
 * of it.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/private.h"
#include "formats/blocks.h"

/* Elements decoded or encoded at a time: a multiple of every type's block. */
#define PIECE 256

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          bool is_bias)
{
    return gguf_find_tensor(c->spec->gguf, arch_tensor_name(role, c->block, is_bias).text);
}

/* --- where a part of a block is -------------------------------------------------------------- */

/* In which of a checkpoint's tensors a part is, and from which row on: Q, K and V may be one. Keys
 * and values of heads with a latent cache are made of what is cached. */
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
        *first += config_q_dim(c);
    if (part > PART_K)
        *first += config_k_dim(c, block);
    return ROLE_ATTN_QKV;
}

void convert_copy(const struct converter *c, const union convert_weights *to,
                  const union convert_weights *from, enum convert_part first, enum convert_part end)
{
    for (enum convert_part p = first; p < end; p++)
        if (to->at[p].w) {
            memcpy(to->at[p].w, from->at[p].w, to->at[p].rows * c->d * sizeof(double));
            memcpy(to->at[p].bias, from->at[p].bias, to->at[p].n_bias * sizeof(double));
        }
}

/* --- reading --------------------------------------------------------------------------------- */

/* n elements from element `first` on, a multiple of the type's block; zeros where there is no
 * tensor. The model's loader has checked type and shape. */
static void read_numbers(const struct gguf_tensor *t, uint64_t first, uint64_t n, double *out)
{
    if (!t) {
        convert_zero(out, n);
        return;
    }
    assert(first % t->type->block_elements == 0 && first + n <= t->n_elements);
    for (uint64_t done = 0; done < n; done += PIECE) {
        float piece[PIECE];
        const uint64_t now = n - done < PIECE ? n - done : PIECE;
        blocks_decode(t->type->type, piece,
                      t->data + (first + done) / t->type->block_elements * t->type->block_bytes,
                      now);
        for (uint64_t i = 0; i < now; i++)
            out[done + i] = (double)piece[i];
    }
}

/* All heads' keys or values, and their biases, of what a latent cache has: of head h the products
 * k_b[h]^T kv_a and v_b[h] kv_a. */
static void load_expanded(struct converter *c, enum convert_part part)
{
    const struct convert_matrix *m = &c->from.at[part];
    const bool are_keys = part == PART_K;
    const size_t rank = config_latent(&c->config, c->block), dim = m->rows / c->n_heads;
    const struct gguf_tensor *by_head =
        find_old(c, are_keys ? ROLE_ATTN_K_B : ROLE_ATTN_V_B, false);
    read_numbers(by_head, 0, m->rows * rank, c->square2);
    for (int is_bias = 0; is_bias < 2; is_bias++) {
        const size_t columns = is_bias ? 1 : c->d;
        double *out = is_bias ? m->bias : m->w;
        read_numbers(find_old(c, ROLE_ATTN_KV_A, is_bias), 0, rank * columns, c->square);
        convert_zero(out, m->rows * columns);
        for (size_t h = 0; h < c->n_heads; h++) {
            const struct linalg_product p = {.c = out + h * dim * columns,
                                             .c_stride = columns,
                                             .a = c->square2 + h * dim * rank,
                                             .a_row = are_keys ? 1 : rank,
                                             .a_inner = are_keys ? dim : 1,
                                             .b = c->square,
                                             .b_stride = columns,
                                             .inner = rank,
                                             .columns = columns};
            linalg_add_product(&p, 0, dim);
        }
    }
}

void convert_load(struct converter *c)
{
    uint64_t first;
    for (enum convert_part p = PART_Q; p < CONVERT_PARTS; p++) {
        const struct convert_matrix *m = p < PART_UP ? &c->from.at[p] : &c->to.at[p];
        if (!m->w)
            continue;
        const enum tensor_role role = find_part(&c->config, c->block, p, &first);
        if (role == ROLE_ATTN_KV_A) {
            load_expanded(c, p);
            continue;
        }
        const bool turned = convert_is_turned(p);
        read_numbers(find_old(c, role, false), first * c->d, m->rows * c->d,
                     turned ? c->square : m->w);
        read_numbers(find_old(c, role, true), first, m->n_bias, m->bias);
        if (turned)
            linalg_transpose(m->w, c->square, c->d, m->rows);
    }
    c->ov.centred = convert_is_latent(c) ||
                    (find_old(c, find_part(&c->config, c->block, PART_V, &first), true) &&
                     find_old(c, ROLE_ATTN_OUTPUT, true));
}

/* --- the new tensors ------------------------------------------------------------------------- */

/* The type of a new tensor: the old one's of this name, if the model has one (a file may have more,
 * which stand for nothing), but of latent caches that of the old Q; NULL: none. */
static const struct tensor_type_info *type_of_new(const struct converter *c,
                                                  const struct tensor_spec *spec)
{
    struct tensor_spec own;
    const struct gguf_tensor *old = layout_named(&c->config, text_of(spec->name.text), &own)
                                        ? gguf_find_tensor(c->spec->gguf, spec->name.text)
                                        : NULL;
    if (old || !convert_is_latent(c) || spec->role == ROLE_ATTN_REL)
        return old ? old->type : NULL;
    struct qkv_part parts[QKV_PARTS];
    layout_qkv(&c->config, spec->layer, parts);
    old = gguf_find_tensor(c->spec->gguf, arch_tensor_name(parts[0].role, spec->layer, false).text);
    const uint32_t type = old && !spec->is_bias ? old->type->type : TENSOR_F32;
    return tensor_type_find(layout_type(spec, type));
}

static void take_tensor(struct converter *c, struct arena *arena, int block, enum tensor_role role,
                        bool is_bias)
{
    const struct tensor_spec spec = is_bias ? layout_bias(&c->converted, role, block)
                                            : layout_weight(&c->converted, role, block);
    const struct tensor_type_info *type = type_of_new(c, &spec);
    if (!type)
        return;
    const uint64_t n = spec_elements(&spec);
    const uint64_t n_bytes = n / type->block_elements * type->block_bytes;
    const struct spec_dims dims = spec_dims(&spec);
    unsigned char *bytes = arena_take(arena, n_bytes, 1);
    if (!c->tensors)
        return;
    struct convert_tensor *t = &c->tensors[block].of[role][is_bias];
    *t = (struct convert_tensor){.name = spec.name, .bytes = bytes};
    t->tensor = (struct gguf_tensor){.name = text_of(t->name.text),
                                     .n_dims = spec.n_dims,
                                     .dims = {dims.n[0], dims.n[1], dims.n[2], 1},
                                     .type = type,
                                     .n_elements = n,
                                     .n_bytes = n_bytes,
                                     .data = bytes};
}

/* Whether a conversion may change tensors of a role. */
static bool changes(const struct converter *c, enum tensor_role role)
{
    return layout_has(&c->converted, role) &&
           ((role >= ROLE_ATTN_QKV && role <= ROLE_ATTN_OUTPUT) ||
            (convert_refits_block(c) && role >= ROLE_FFN_GATE && role <= ROLE_FFN_DOWN));
}

void convert_tensors_take(struct converter *c, struct arena *arena)
{
    c->tensors = arena_take(arena, config_blocks(&c->config), sizeof *c->tensors);
    for (int b = 0; b < config_blocks(&c->config); b++)
        for (enum tensor_role role = ROLE_BLOCK_FIRST; role < ROLE_BLOCK_END; role++) {
            if (!changes(c, role))
                continue;
            take_tensor(c, arena, b, role, false);
            if (layout_has_bias(&c->converted, role))
                take_tensor(c, arena, b, role, true);
        }
}

/* Rounds n numbers to elements from `first` on, if there is such a tensor. STATUS_FAILED if one is
 * not finite, or is not any more. */
static enum status write_numbers(struct convert_tensor *t, uint64_t first, uint64_t n,
                                 const double *x, struct err *e)
{
    const struct tensor_type_info *type = t->tensor.type;
    if (!t->bytes)
        return STATUS_OK;
    t->changed = true;
    assert(first % type->block_elements == 0 && first + n <= t->tensor.n_elements);
    for (uint64_t done = 0; done < n; done += PIECE) {
        float piece[PIECE], back[PIECE];
        const uint64_t now = n - done < PIECE ? n - done : PIECE;
        for (uint64_t i = 0; i < now; i++)
            piece[i] = (float)x[done + i];
        unsigned char *bytes = t->bytes + (first + done) / type->block_elements * type->block_bytes;
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
        TRY(write_numbers(convert_new(c, role, false), first * c->d, m->rows * c->d,
                          turned ? c->square : m->w, e));
        TRY(write_numbers(convert_new(c, role, true), first, m->n_bias, m->bias, e));
    }
    return STATUS_OK;
}

void convert_store_order(struct converter *c)
{
    const struct gguf_tensor *old = find_old(c, ROLE_ATTN_REL, false);
    struct convert_tensor *t = convert_new(c, ROLE_ATTN_REL, false);
    if (!t->bytes)
        return;
    const size_t of_head = t->tensor.n_bytes / c->n_heads;
    for (size_t i = 0; i < c->n_heads; i++)
        memcpy(t->bytes + i * of_head, old->data + c->order[i] * of_head, of_head);
    t->changed = true;
}

enum status convert_store_latent(struct converter *c, int kept, struct err *e)
{
    const struct convert_latent *l = &c->latent;
    struct convert_tensor *t = c->tensors[c->block].of[ROLE_ATTN_KV_A];
    const size_t rank = config_latent(&c->converted, c->block), d = c->d, dim = c->qk.dim;
    TRY(convert_store(c, PART_Q, PART_K, e));
    /* The first `kept` rows [d] of the latent's matrix, zero in place of the others; likewise its
     * bias. */
    const size_t rest = rank - kept;
    convert_zero(c->square, rest * d);
    TRY(write_numbers(&t[0], 0, kept * d, l->basis, e));
    TRY(write_numbers(&t[0], kept * d, rest * d, c->square, e));
    TRY(write_numbers(&t[1], 0, kept, l->shift, e));
    TRY(write_numbers(&t[1], kept, rest, c->square, e));
    for (size_t h = 0; h < c->n_heads; h++)
        for (size_t r = 0; r < rank; r++)
            TRY(write_numbers(convert_new(c, ROLE_ATTN_K_B, false), (h * rank + r) * dim, dim,
                              l->k_b + r * c->qk.width + h * dim, e));
    linalg_transpose(c->square, l->v_b, rank, c->ov.width);
    return write_numbers(convert_new(c, ROLE_ATTN_V_B, false), 0, rank * c->ov.width, c->square, e);
}

/* --- as a model loads them ------------------------------------------------------------------- */

/* Q, K and V or what is latent together, then the other matrices that may change. */
static const enum tensor_role used_roles[] = {ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT, ROLE_ATTN_K_B,
                                              ROLE_ATTN_V_B, ROLE_FFN_UP,      ROLE_FFN_GATE,
                                              ROLE_FFN_DOWN};
#define N_USED (sizeof used_roles / sizeof *used_roles)

/* Room for converted matrices in panels of floats, the widest storage, and their biases. */
void convert_used_take(struct converter *c, struct arena *arena)
{
    struct convert_used *u = &c->used;
    u->pack = pack_scratch_take(arena, c->widest);
    for (size_t i = 0; i < N_USED; i++) {
        const enum tensor_role role = used_roles[i];
        if (role != ROLE_ATTN_QKV && !changes(c, role))
            continue;
        struct tensor_spec spec = layout_weight(&c->converted, role, 0);
        uint64_t most = 0; /* rows */
        for (int l = 0; l < c->config.n_layers; l++) {
            const uint64_t rows = layout_weight(&c->converted, role, l).rows;
            most = rows > most ? rows : most;
        }
        /* Each head's matrix has panels of its own. */
        const uint64_t padded =
            (uint64_t)spec.n_matrices * matrix_panels(most / spec.n_matrices) * KERNEL_LANES;
        u->roles[role].panels = arena_take(arena, padded * spec.cols, sizeof(float));
        u->roles[role].bias = arena_take(arena, most, sizeof(float));
    }
    u->score_bias = arena_take(arena, c->n_heads, sizeof *u->score_bias);
}

/* A weight and its bias, from row `first` of the role's matrix on. */
static void use_rows(struct convert_used *u, enum tensor_role role, const struct convert_tensor *t,
                     int first)
{
    struct matrix *m = &u->block.w[role].matrix;
    m->panels = u->roles[role].panels;
    pack_matrix(u->roles[role].panels, m, first, &t[0].tensor, &u->pack);
    float *bias = u->roles[role].bias + first;
    if (t[1].bytes)
        pack_floats(bias, &t[1].tensor);
    else if (m->bias)
        memset(bias, 0, t[0].tensor.dims[1] * sizeof *bias);
    if (m->bias)
        m->bias = u->roles[role].bias;
}

/* A matrix of each head, one after the other. */
static void use_by_head(const struct converter *c, struct convert_used *u, enum tensor_role role,
                        const struct convert_tensor *t)
{
    struct matrix *m = &u->block.w[role].matrix;
    *m = (struct matrix){.n_out = t->tensor.dims[1], .n_in = t->tensor.dims[0]};
    pack_storage(t->tensor.type, &m->storage);
    unsigned char *panels = u->roles[role].panels;
    m->panels = panels;
    struct gguf_tensor one = t->tensor;
    one.n_elements /= c->n_heads;
    one.n_bytes /= c->n_heads;
    for (size_t h = 0; h < c->n_heads; h++) {
        pack_matrix(panels, m, 0, &one, &u->pack);
        panels += matrix_bytes(m->n_out, m->n_in, m->storage);
        one.data += one.n_bytes;
    }
}

void convert_use(struct converter *c)
{
    struct convert_used *u = &c->used;
    struct weight *w = u->block.w;
    const struct attend_bias *old = c->model->blocks[c->block].bias;
    struct qkv_part parts[QKV_PARTS];
    u->block = c->model->blocks[c->block];
    if (convert_is_latent(c)) {
        w[ROLE_ATTN_QKV].matrix.bias = u->roles[ROLE_ATTN_QKV].bias;
        w[ROLE_ATTN_OUTPUT].matrix.bias = u->roles[ROLE_ATTN_OUTPUT].bias;
    }
    const int n_parts = layout_qkv(&c->converted, c->block, parts);
    if (convert_new(c, parts[0].role, false)->changed) {
        w[ROLE_ATTN_QKV].matrix.n_out = config_qkv_dim(&c->converted, c->block);
        for (int i = 0; i < n_parts; i++)
            use_rows(u, ROLE_ATTN_QKV, convert_new(c, parts[i].role, false), parts[i].first);
        for (size_t h = 0; h < c->n_heads && old; h++)
            u->score_bias[h] = old[c->order[h]];
        u->block.bias = old ? u->score_bias : NULL;
    }
    for (size_t i = 1; i < N_USED; i++) {
        const enum tensor_role role = used_roles[i];
        const struct convert_tensor *t = convert_new(c, role, false);
        if (t->changed && (role == ROLE_ATTN_K_B || role == ROLE_ATTN_V_B))
            use_by_head(c, u, role, t);
        else if (t->changed)
            use_rows(u, role, t, 0);
    }
}

/* --- the new file ---------------------------------------------------------------------------- */

#define OWN_KEYS "decode.convert."

/* Whether a key says what the architecture's own keys say anew. */
static bool is_replaced(const struct converter *c, struct text key)
{
    const char *name = c->config.arch->name;
    if (text_starts_with(key, OWN_KEYS))
        return true;
    if (!convert_is_latent(c))
        return config_is_kv_heads_key(&c->config, key);
    return text_is(key, "general.architecture") ||
           (text_starts_with(key, name) && key.data[strlen(name)] == '.');
}

static void add_pairs(const struct converter *c, struct gguf_writer *w)
{
    const struct convert_spec *spec = c->spec;
    const bool latent = convert_is_latent(c);
    if (latent)
        gguf_add_text(w, "general.architecture", text_of(c->converted.arch->name));
    for (size_t i = 0; i < spec->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        if (!is_replaced(c, p->key))
            gguf_add_value(w, p->key, &p->value);
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
}

static uint64_t write_tensor(struct gguf_writer *w, const struct gguf_tensor *t)
{
    gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    return t->n_elements;
}

/* All that takes the place of Q, K and V where a cache is latent. */
static uint64_t write_latent(const struct convert_tensors *t, struct gguf_writer *w)
{
    static const enum tensor_role roles[] = {ROLE_ATTN_Q, ROLE_ATTN_KV_A, ROLE_ATTN_K_B,
                                             ROLE_ATTN_V_B};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        for (int is_bias = 0; is_bias < 2; is_bias++)
            if (t->of[roles[i]][is_bias].bytes)
                n += write_tensor(w, &t->of[roles[i]][is_bias].tensor);
    return n;
}

/* What becomes of an old tensor, where it was; returns the number of elements. A latent cache's
 * output matrix may have a bias that the old one had not, and a block's tensors that stand for
 * nothing are left out then: some architectures pass over them, the one that the file becomes
 * refuses them. */
static uint64_t write_new(const struct converter *c, struct gguf_writer *w,
                          const struct gguf_tensor *old)
{
    struct tensor_spec spec;
    const bool latent = convert_is_latent(c), known = layout_named(&c->config, old->name, &spec);
    if (latent && !known && text_starts_with(old->name, "blk."))
        return 0;
    if (!known || !role_in_block(spec.role))
        return write_tensor(w, old);
    const struct convert_tensors *block = &c->tensors[spec.layer];
    const struct convert_tensor *t = block->of[spec.role];
    if (latent && spec.role >= ROLE_ATTN_QKV && spec.role <= ROLE_ATTN_V)
        return spec.is_bias || spec.role > ROLE_ATTN_Q ? 0 : write_latent(block, w);
    uint64_t n = write_tensor(w, t[spec.is_bias].changed ? &t[spec.is_bias].tensor : old);
    if (latent && spec.role == ROLE_ATTN_OUTPUT && !spec.is_bias &&
        !gguf_find_tensor(c->spec->gguf, t[1].name.text))
        n += write_tensor(w, &t[1].tensor);
    return n;
}

enum status convert_write(const struct converter *c, struct gguf_writer **out, uint64_t *n_params,
                          struct err *e)
{
    TRY(gguf_writer_create(out, e));
    add_pairs(c, *out);
    *n_params = 0;
    for (size_t i = 0; i < c->spec->gguf->n_tensors; i++)
        *n_params += write_new(c, *out, &c->spec->gguf->tensors[i]);
    return STATUS_OK;
}
