#include "convert/tensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/latent.h"
#include "gguf/blocks.h"

static const struct gguf_tensor *find_old(const struct converter *c, enum tensor_role role,
                                          bool is_bias)
{
    return gguf_find_tensor(c->spec->gguf, arch_tensor_name(role, c->block, is_bias).text);
}

enum tensor_role convert_pair_role(int pair)
{
    static const enum tensor_role roles[CONVERT_PAIRS] = {
        [PAIR_OUT] = ROLE_ATTN_OUTPUT, [PAIR_REL] = ROLE_ATTN_REL, [PAIR_K_B] = ROLE_ATTN_K_B,
        [PAIR_V_B] = ROLE_ATTN_V_B,    [PAIR_UP] = ROLE_FFN_UP,    [PAIR_GATE] = ROLE_FFN_GATE,
        [PAIR_DOWN] = ROLE_FFN_DOWN};
    return roles[pair];
}

/* Q, K and V: in which of a checkpoint's tensors each is, from which row on. */
enum { IS_Q, IS_K, IS_V };
struct rows {
    int part;
    enum tensor_role role;
    uint64_t first, n;
};

static struct rows rows_of(const struct config *c, int block, int which)
{
    const int n[] = {config_q_dim(c), config_k_dim(c, block), config_v_dim(c, block)};
    struct qkv_part parts[QKV_PARTS];
    struct rows r = {.n = (uint64_t)n[which]};
    r.part = layout_qkv(c, block, parts) == 1 ? 0 : which;
    r.role = parts[r.part].role;
    for (int i = r.part; i < which; i++)
        r.first += (uint64_t)n[i];
    return r;
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
    assert(first % t->type->block_elements == 0 && first + n <= t->n_elements);
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

/* A matrix [d, width], turned over. */
static void read_turned(struct converter *c, const struct gguf_tensor *t, size_t width, double *out)
{
    const size_t d = (size_t)c->d;
    for (size_t r = 0; r < d; r++) {
        double *row = c->square;
        read_numbers(t, r * width, width, row);
        for (size_t i = 0; i < width; i++)
            out[i * d + r] = row[i];
    }
}

static void load_ffn(struct converter *c)
{
    const struct convert_ffn *f = &c->ffn;
    const uint64_t d = (uint64_t)c->d, d_ff = (uint64_t)c->config.d_ff;
    read_numbers(find_old(c, ROLE_FFN_UP, false), 0, d_ff * d, f->up);
    read_numbers(find_old(c, ROLE_FFN_UP, true), 0, d_ff, f->bup);
    read_turned(c, find_old(c, ROLE_FFN_DOWN, false), d_ff, f->down);
    read_numbers(find_old(c, ROLE_FFN_DOWN, true), 0, d, f->bdown);
    if (!f->gate)
        return;
    read_numbers(find_old(c, ROLE_FFN_GATE, false), 0, d_ff * d, f->gate);
    read_numbers(find_old(c, ROLE_FFN_GATE, true), 0, d_ff, f->bgate);
}

void convert_load(struct converter *c)
{
    const struct convert_weights *w = &c->from;
    double *weights[] = {w->q, w->k, w->v}, *biases[] = {w->bq, w->bk, w->bv};
    const uint64_t d = (uint64_t)c->d;
    const struct gguf_tensor *bias = NULL; /* at last that of V */
    for (int i = IS_Q; i <= IS_V; i++) {
        const struct rows r = rows_of(&c->config, c->block, i);
        bias = find_old(c, r.role, true);
        read_numbers(find_old(c, r.role, false), r.first * d, r.n * d, weights[i]);
        read_numbers(bias, r.first, r.n, biases[i]);
    }
    const struct gguf_tensor *out_bias = find_old(c, ROLE_ATTN_OUTPUT, true);
    read_turned(c, find_old(c, ROLE_ATTN_OUTPUT, false), (size_t)c->ov.width, w->o);
    read_numbers(out_bias, 0, d, w->bo);
    c->ov.centred = (bias && out_bias) || convert_is_latent(c);
    if (convert_refits_block(c))
        load_ffn(c);
}

/* --- the new tensors ------------------------------------------------------------------------- */

/* The type of a new tensor: the old one's of this name, if there is one, but of latent caches that
 * of the old Q; NULL: none. */
static const struct tensor_type_info *type_of_new(const struct converter *c,
                                                  const struct tensor_spec *spec)
{
    const struct gguf_tensor *old = gguf_find_tensor(c->spec->gguf, spec->name.text);
    if (old || !convert_is_latent(c) || spec->role == ROLE_ATTN_REL)
        return old ? old->type : NULL;
    struct qkv_part parts[QKV_PARTS];
    layout_qkv(&c->config, spec->layer, parts);
    old = gguf_find_tensor(c->spec->gguf, arch_tensor_name(parts[0].role, spec->layer, false).text);
    const uint32_t type = old && !spec->is_bias ? old->type->type : TENSOR_F32;
    return tensor_type_find(layout_type(spec, type));
}

/* `t` is NULL while counting. */
static void take_tensor(struct converter *c, struct arena *arena, const struct tensor_spec *spec,
                        struct convert_tensor *t)
{
    const struct tensor_type_info *type = type_of_new(c, spec);
    if (!type)
        return;
    const uint64_t n = spec_elements(spec);
    const uint64_t n_bytes = n / type->block_elements * type->block_bytes;
    const struct spec_dims dims = spec_dims(spec);
    unsigned char *bytes = arena_take(arena, n_bytes, 1);
    if (!t)
        return;
    *t = (struct convert_tensor){.name = spec->name, .bytes = bytes};
    t->tensor = (struct gguf_tensor){.name = text_of(t->name.text),
                                     .n_dims = spec->n_dims,
                                     .dims = {dims.n[0], dims.n[1], dims.n[2], 1},
                                     .type = type,
                                     .n_elements = n,
                                     .n_bytes = n_bytes,
                                     .data = bytes};
}

static void take_pair(struct converter *c, struct arena *arena, enum tensor_role role, int block,
                      struct convert_tensors *t, int at)
{
    struct convert_pair *p = t ? &t->pairs[at] : NULL;
    const struct tensor_spec weight = layout_weight(&c->converted, role, block);
    if (!layout_has(&c->converted, role))
        return;
    if (p)
        p->role = role;
    take_tensor(c, arena, &weight, p ? &p->weight : NULL);
    if (!layout_has_bias(&c->converted, role))
        return;
    const struct tensor_spec bias = layout_bias(&c->converted, role, block);
    take_tensor(c, arena, &bias, p ? &p->bias : NULL);
}

void convert_tensors_take(struct converter *c, struct arena *arena)
{
    const int n_blocks = config_blocks(&c->config);
    c->tensors = arena_take(arena, (uint64_t)n_blocks, sizeof *c->tensors);
    for (int b = 0; b < n_blocks; b++) {
        struct convert_tensors *t = c->tensors ? &c->tensors[b] : NULL;
        struct qkv_part parts[QKV_PARTS];
        const int n_parts = layout_qkv(&c->converted, b, parts);
        for (int i = 0; i < n_parts; i++)
            take_pair(c, arena, parts[i].role, b, t, i);
        const int end = convert_refits_block(c) ? CONVERT_PAIRS : PAIR_UP;
        for (int i = PAIR_OUT; i < end; i++)
            take_pair(c, arena, convert_pair_role(i), b, t, i);
        if (t)
            t->n_parts = n_parts;
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
                               t->name.text, (unsigned long long)(first + done + i), x[done + i],
                               type->name);
    }
    return STATUS_OK;
}

/* Rows of attn_rel, which are the heads', in their new order. */
static void permute_rel(struct converter *c, struct convert_tensor *t)
{
    const struct gguf_tensor *old = find_old(c, ROLE_ATTN_REL, false);
    if (!t->bytes)
        return;
    const size_t of_head = t->tensor.n_bytes / (size_t)c->n_heads;
    for (int i = 0; i < c->n_heads; i++)
        memcpy(t->bytes + (size_t)i * of_head, old->data + (size_t)c->order[i] * of_head, of_head);
    t->changed = true;
}

enum status convert_store_qkv(struct converter *c, struct err *e)
{
    const struct convert_weights *w = &c->to;
    const double *weights[] = {w->q, w->k, w->v}, *biases[] = {w->bq, w->bk, w->bv};
    const uint64_t d = (uint64_t)c->d;
    struct convert_pair *pairs = c->tensors[c->block].pairs;
    for (int i = IS_Q; i <= IS_V; i++) {
        const struct rows r = rows_of(&c->converted, c->block, i);
        TRY(write_numbers(&pairs[r.part].weight, r.first * d, r.n * d, weights[i], e));
        TRY(write_numbers(&pairs[r.part].bias, r.first, r.n, biases[i], e));
    }
    permute_rel(c, &pairs[PAIR_REL].weight);
    return STATUS_OK;
}

/* The first `kept` rows [d] of the latent's matrix, zero in place of the others; likewise its bias.
 */
static enum status store_basis(struct converter *c, struct convert_pair *t, uint64_t n,
                               uint64_t kept, struct err *e)
{
    const struct convert_latent *l = c->latent;
    const uint64_t d = (uint64_t)c->d;
    memset(c->square, 0, d * sizeof *c->square);
    TRY(write_numbers(&t->weight, 0, kept * d, l->basis, e));
    TRY(write_numbers(&t->bias, 0, kept, l->shift, e));
    for (uint64_t r = kept; r < n; r++) {
        TRY(write_numbers(&t->weight, r * d, d, c->square, e));
        TRY(write_numbers(&t->bias, r, 1, c->square, e));
    }
    return STATUS_OK;
}

enum status convert_store_latent(struct converter *c, int kept, struct err *e)
{
    const struct convert_latent *l = c->latent;
    struct convert_pair *pairs = c->tensors[c->block].pairs;
    const int rank = config_latent(&c->converted, c->block);
    const uint64_t d = (uint64_t)c->d, n = (uint64_t)rank, q_dim = (uint64_t)c->qk.width;
    TRY(write_numbers(&pairs[0].weight, 0, q_dim * d, c->to.q, e));
    TRY(write_numbers(&pairs[0].bias, 0, q_dim, c->to.bq, e));
    TRY(store_basis(c, &pairs[1], n, (uint64_t)kept, e));
    const uint64_t k_dim = (uint64_t)c->qk.dim, v_dim = (uint64_t)c->ov.dim;
    for (uint64_t h = 0; h < (uint64_t)c->n_heads; h++) {
        for (uint64_t r = 0; r < n; r++)
            TRY(write_numbers(&pairs[PAIR_K_B].weight, (h * n + r) * k_dim, k_dim,
                              l->k_b + r * q_dim + h * k_dim, e));
        for (uint64_t i = h * v_dim; i < (h + 1) * v_dim; i++) {
            for (uint64_t r = 0; r < n; r++)
                c->square[r] = l->v_b[r * (uint64_t)c->ov.width + i];
            TRY(write_numbers(&pairs[PAIR_V_B].weight, i * n, n, c->square, e));
        }
    }
    return STATUS_OK;
}

/* A matrix [d, width] from its turned form, and its bias. */
static enum status store_turned(struct converter *c, struct convert_pair *t, size_t width,
                                const double *x, const double *bias, struct err *e)
{
    const size_t d = (size_t)c->d;
    for (size_t r = 0; r < d; r++) {
        double *row = c->square;
        for (size_t i = 0; i < width; i++)
            row[i] = x[i * d + r];
        TRY(write_numbers(&t->weight, r * width, width, row, e));
    }
    return write_numbers(&t->bias, 0, d, bias, e);
}

enum status convert_store_out(struct converter *c, struct err *e)
{
    return store_turned(c, &c->tensors[c->block].pairs[PAIR_OUT], (size_t)c->ov.width, c->to.o,
                        c->to.bo, e);
}

enum status convert_store_ffn(struct converter *c, struct err *e)
{
    const struct convert_ffn *f = &c->ffn;
    struct convert_pair *pairs = c->tensors[c->block].pairs;
    const uint64_t d_ff = (uint64_t)c->config.d_ff, n = d_ff * (uint64_t)c->d;
    TRY(write_numbers(&pairs[PAIR_UP].weight, 0, n, f->up, e));
    TRY(write_numbers(&pairs[PAIR_UP].bias, 0, d_ff, f->bup, e));
    TRY(write_numbers(&pairs[PAIR_GATE].weight, 0, f->gate ? n : 0, f->gate, e));
    TRY(write_numbers(&pairs[PAIR_GATE].bias, 0, f->gate ? d_ff : 0, f->bgate, e));
    return store_turned(c, &pairs[PAIR_DOWN], (size_t)d_ff, f->down, f->bdown, e);
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
    if (convert_is_latent(c))
        gguf_add_text(w, "general.architecture", text_of(c->converted.arch->name));
    for (size_t i = 0; i < spec->gguf->n_pairs; i++) {
        const struct gguf_pair *p = &spec->gguf->pairs[i];
        if (!is_replaced(c, p->key))
            gguf_add_value(w, p->key, &p->value);
    }
    if (convert_is_latent(c))
        config_write(&c->converted, w);
    else
        config_write_kv_heads(&c->converted, w);
    gguf_add_text(w, OWN_KEYS "source", text_of(spec->source_name));
    gguf_add_u32(w, OWN_KEYS "source_kv_heads", (uint32_t)c->config.n_kv_heads);
    gguf_add_text(w, OWN_KEYS "method",
                  text_of(convert_is_latent(c) ? "latent" : convert_methods[spec->method]));
    if (!convert_is_latent(c))
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

/* What becomes of an old tensor; itself if it stays. */
static const struct gguf_tensor *replacement(const struct converter *c,
                                             const struct gguf_tensor *old)
{
    struct tensor_spec spec;
    if (!layout_named(&c->config, old->name, &spec) || !role_in_block(spec.role))
        return old;
    const struct convert_tensors *t = &c->tensors[spec.layer];
    for (int i = 0; i < CONVERT_PAIRS; i++) {
        const struct convert_pair *p = &t->pairs[i];
        const struct convert_tensor *new = spec.is_bias ? &p->bias : &p->weight;
        if (p->role == spec.role && new->changed)
            return &new->tensor;
    }
    return old;
}

/* Of a latent cache: all that takes the place of Q, K and V, where Q was; a bias that the output
 * matrix had not. Without a block's tensors that stand for nothing: some architectures pass over
 * them, the one that the file becomes refuses them. */
static uint64_t write_latent_tensors(const struct converter *c, struct gguf_writer *w,
                                     const struct gguf_tensor *old)
{
    static const int all[] = {0, 1, PAIR_K_B, PAIR_V_B};
    struct tensor_spec spec;
    uint64_t n = 0;
    if (!layout_named(&c->config, old->name, &spec))
        return text_starts_with(old->name, "blk.") ? 0 : write_tensor(w, old);
    if (spec.role == ROLE_ATTN_K || spec.role == ROLE_ATTN_V ||
        ((spec.role == ROLE_ATTN_QKV || spec.role == ROLE_ATTN_Q) && spec.is_bias))
        return 0;
    const struct convert_pair *pairs =
        role_in_block(spec.role) ? c->tensors[spec.layer].pairs : NULL;
    if (spec.role != ROLE_ATTN_QKV && spec.role != ROLE_ATTN_Q) {
        n = write_tensor(w, replacement(c, old));
        if (spec.role == ROLE_ATTN_OUTPUT && !spec.is_bias &&
            !gguf_find_tensor(c->spec->gguf, pairs[PAIR_OUT].bias.name.text))
            n += write_tensor(w, &pairs[PAIR_OUT].bias.tensor);
        return n;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        n += write_tensor(w, &pairs[all[i]].weight.tensor);
        if (pairs[all[i]].bias.bytes)
            n += write_tensor(w, &pairs[all[i]].bias.tensor);
    }
    return n;
}

/* Tensors in the old order. Returns the number of elements. */
static uint64_t write_tensors(const struct converter *c, struct gguf_writer *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->spec->gguf->n_tensors; i++) {
        const struct gguf_tensor *old = &c->spec->gguf->tensors[i];
        n += convert_is_latent(c) ? write_latent_tensors(c, w, old)
                                  : write_tensor(w, replacement(c, old));
    }
    return n;
}

enum status convert_write(const struct converter *c, struct gguf_writer **out, uint64_t *n_params,
                          struct err *e)
{
    TRY(gguf_writer_create(out, e));
    add_pairs(c, *out);
    *n_params = write_tensors(c, *out);
    return STATUS_OK;
}
