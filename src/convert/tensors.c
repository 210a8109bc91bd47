#include "convert/private.h"

#include <inttypes.h>
#include <math.h>

#include "base/figures.h"
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

/* --- where a weight of a block is ------------------------------------------------------------- */

/* Returns the tensor that a weight is in, and the weight's first row there: Q, K and V may be one
 * tensor. */
static enum tensor_role find_weight(const struct config *c, int block, enum convert_weight weight,
                                    uint64_t *first)
{
    struct qkv_part parts[QKV_PARTS];
    *first = 0;
    if (weight == WEIGHT_O)
        return ROLE_ATTN_OUTPUT;
    if (layout_qkv(c, block, parts) > 1)
        return parts[weight].role;
    if (weight > WEIGHT_Q)
        *first += config_q_dim(c);
    if (weight > WEIGHT_K)
        *first += config_k_dim(c, block);
    return ROLE_ATTN_QKV;
}

/* Sets the sizes of w for so many K/V heads. */
static void size_weights(const struct converter *c, struct convert_matrix *w, size_t n_kv_heads)
{
    const size_t rows[CONVERT_WEIGHTS] = {c->circuits[QK].width, n_kv_heads * c->circuits[QK].dim,
                                          n_kv_heads * c->circuits[OV].dim, c->circuits[OV].width};
    for (enum convert_weight p = WEIGHT_Q; p < CONVERT_WEIGHTS; p++) {
        w[p].rows = rows[p];
        w[p].n_bias = p == WEIGHT_O ? c->d : rows[p];
    }
}

/* Takes memory for weights of the most K/V heads that a block has. */
static void take_weights(struct converter *c, struct convert_matrix *w, size_t n_kv_heads)
{
    size_weights(c, w, n_kv_heads);
    for (struct convert_matrix *m = w; m < w + CONVERT_WEIGHTS; m++) {
        m->w = convert_doubles(c, m->rows, c->d);
        m->bias = convert_doubles(c, m->n_bias, 1);
    }
}

/* --- reading --------------------------------------------------------------------------------- */

/* Reads n elements from `first` on, or zeros if there is no tensor. */
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

/* Reads `from` out of the checkpoint. Also sets whether values can be centred, which takes a bias
 * in the file. */
static void read_weights(struct converter *c)
{
    uint64_t first;
    for (enum convert_weight p = WEIGHT_Q; p < CONVERT_WEIGHTS; p++) {
        const struct convert_matrix *m = &c->block.from[p];
        const enum tensor_role role = find_weight(&c->config, c->block.index, p, &first);
        const struct tensor_spec spec = layout_weight(&c->config, role, c->block.index);
        const struct gguf_tensor *t = find_old(c, role, false), *bias = find_old(c, role, true);
        double *rows = p == WEIGHT_O ? c->scratch.square : m->w;
        for (uint64_t i = 0; i < m->n_bias; i++) {
            const uint64_t row = spec_file_row(&spec, first + i);
            read_elements(t, row * spec.cols, spec.cols, rows + i * spec.cols);
            read_elements(bias, row, 1, m->bias + i);
        }
    }
    linalg_transpose(c->block.from[WEIGHT_O].w, c->scratch.square, c->d,
                     c->block.from[WEIGHT_O].rows);
    c->circuits[OV].centred =
        find_old(c, find_weight(&c->config, c->block.index, WEIGHT_V, &first), true) &&
        find_old(c, ROLE_ATTN_OUTPUT, true);
}

void convert_begin_block(struct converter *c, int block)
{
    c->block.index = block;
    c->block.end = c->config.shared ? c->config.n_layers : block + 1;
    c->block.n_kv_heads = config_kv_heads(&c->config, block);
    c->block.n_groups = config_kv_heads(&c->converted, block);
    c->block.group = c->block.n_heads / c->block.n_groups;
    size_weights(c, c->block.from, c->block.n_kv_heads);
    size_weights(c, c->block.to, c->block.n_groups);
    read_weights(c);
}

/* --- the new tensors ------------------------------------------------------------------------- */

/* Takes the new tensors. One that the checkpoint does not have is not made. */
static void take_new(struct converter *c)
{
    ARENA_TAKE(c->tensors, &c->out->arena, config_blocks(&c->config));
    for (int64_t i = 0; i < layout_count(&c->converted); i++) {
        const struct tensor_spec spec = layout_at(&c->converted, i);
        const struct gguf_tensor *old = gguf_find_tensor(c->spec->gguf, spec.name.text);
        if (!old || !layout_has(&c->converted, spec.role) || spec.role < ROLE_ATTN_QKV ||
            spec.role > ROLE_ATTN_OUTPUT)
            continue;
        /* The old type, or the one that it has in memory, which keeps all that was read. Biases of
         * scores (ROLE_ATTN_REL) only change places. */
        const struct tensor_type_info *type = tensor_type_find(
            c->spec->widens && spec.role != ROLE_ATTN_REL ? TENSOR_F32
                                                          : blocks_in_memory(old->type->type));
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

/* Rounds n numbers to the elements from `first` on; without a tensor, does nothing. STATUS_FAILED
 * if a number is not finite once it is rounded. */
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
                return err_failed(
                    e, "tensor %s: the new element %" PRIu64 ", %g, is no finite number as %s",
                    t->name.text, first + done + i, figure_unsigned_nan(x[done + i]), type->name);
    }
    return STATUS_OK;
}

enum status convert_store(struct converter *c, enum convert_weight from, enum convert_weight end,
                          struct err *e)
{
    for (enum convert_weight p = from; p < end; p++) {
        const struct convert_matrix *m = &c->block.to[p];
        const double *rows = p == WEIGHT_O ? c->scratch.square : m->w;
        uint64_t first;
        const enum tensor_role role = find_weight(&c->converted, c->block.index, p, &first);
        const struct tensor_spec spec = layout_weight(&c->converted, role, c->block.index);
        struct convert_tensor *t = convert_new(c, role, false), *bias = convert_new(c, role, true);
        if (p == WEIGHT_O)
            linalg_transpose(c->scratch.square, m->w, m->rows, c->d);
        for (uint64_t i = 0; i < m->n_bias; i++) {
            const uint64_t row = spec_file_row(&spec, first + i);
            TRY(write_elements(t, row * spec.cols, spec.cols, rows + i * spec.cols, e));
            TRY(write_elements(bias, row, 1, m->bias + i, e));
        }
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

/* Takes room for the largest matrix of a role, in floats, the widest storage, and its bias. */
static struct convert_panels allocate_panels(struct converter *c, enum tensor_role role)
{
    uint64_t most = 0, rows = 0;
    for (int l = 0; l < c->config.n_layers; l++) {
        const struct tensor_spec s = layout_weight(&c->converted, role, l);
        const uint64_t bytes = matrix_bytes(s.rows, s.cols, STORAGE_F32);
        most = MAX(bytes, most);
        rows = MAX((uint64_t)s.rows, rows);
    }
    void *panels = arena_take(&c->arena, most, 1);
    return (struct convert_panels){panels, convert_floats(c, rows, 1)};
}

void convert_tensors_allocate(struct converter *c)
{
    take_weights(c, c->block.from, c->block.n_kv_heads);
    take_weights(c, c->block.to, c->block.n_groups);
    take_new(c);
    if (!c->spec->n_tokens)
        return;
    ARENA_TAKE(c->loading.score_bias, &c->arena, c->block.n_heads);
    c->loading.qkv = allocate_panels(c, ROLE_ATTN_QKV);
    c->loading.output = allocate_panels(c, ROLE_ATTN_OUTPUT);
}

/* Loads a role's weight and bias to the rows from `first` on of the model's matrix. */
static void load_tensor(struct converter *c, enum tensor_role role, int first)
{
    const struct convert_tensor *t = convert_new(c, role, false);
    const struct tensor_spec spec = layout_weight(&c->converted, role, c->block.index),
                             of_bias = layout_bias(&c->converted, role, c->block.index);
    const bool is_output = role == ROLE_ATTN_OUTPUT;
    const struct convert_panels *to = is_output ? &c->loading.output : &c->loading.qkv;
    struct matrix *m = &c->block.loaded.w[is_output ? ROLE_ATTN_OUTPUT : ROLE_ATTN_QKV].matrix;
    m->panels = to->panels;
    pack_rows(to->panels, m, first, &t[0].tensor, &spec, 0, spec.rows);
    if (t[1].bytes)
        pack_floats(to->bias + first, &t[1].tensor, &of_bias);
    else if (m->bias)
        memset(to->bias + first, 0, t[0].tensor.dims[1] * sizeof *to->bias);
    if (m->bias)
        m->bias = to->bias;
}

void convert_load_stored(struct converter *c)
{
    const struct attend_bias *old = c->model->blocks[c->block.index].bias;
    const struct convert_tensor *output = convert_new(c, ROLE_ATTN_OUTPUT, false);
    struct qkv_part parts[QKV_PARTS];
    c->block.loaded = c->model->blocks[c->block.index];
    const int n_parts = layout_qkv(&c->converted, c->block.index, parts);
    if (convert_new(c, parts[0].role, false)->changed) {
        c->block.loaded.w[ROLE_ATTN_QKV].matrix.n_out =
            config_qkv_dim(&c->converted, c->block.index);
        for (int i = 0; i < n_parts; i++)
            load_tensor(c, parts[i].role, parts[i].first);
        if (old) {
            for (size_t h = 0; h < c->block.n_heads; h++)
                c->loading.score_bias[h] = old[c->block.order[h]];
            c->block.loaded.bias = c->loading.score_bias;
        }
    }
    if (output->changed)
        load_tensor(c, ROLE_ATTN_OUTPUT, 0);
}

/* --- the new file ---------------------------------------------------------------------------- */

#define OWN_KEYS "decode.convert."

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", NULL};

/* Adds to the new file what becomes of an old tensor. */
static void write_new(const struct converter *c, const struct gguf_tensor *old)
{
    struct tensor_spec spec;
    const struct gguf_tensor *t = old;
    if (layout_named(&c->config, old->name, &spec) && role_in_block(spec.role)) {
        const struct convert_tensor *new = &c->tensors[spec.layer].of[spec.role][spec.is_bias];
        t = new->changed ? &new->tensor : old;
        if (new->changed && t->n_dims > 1) {
            enum storage storage;
            pack_storage(t->type->type, &storage);
            c->out->new_types |= 1u << storage;
            c->out->retyped |= t->type != old->type;
        }
    }
    gguf_add_tensor(c->out->writer, t->name, t->type->type, t->n_dims, t->dims, t->data);
}

enum status convert_write(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const struct gguf *g = spec->gguf;
    TRY(gguf_writer_create(&c->out->writer, e));
    struct gguf_writer *w = c->out->writer;
    for (size_t i = 0; i < g->n_pairs; i++) {
        const struct text key = g->pairs[i].key;
        if (!config_is_kv_heads_key(&c->config, key) && !text_starts_with(key, OWN_KEYS))
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
    for (size_t i = 0; i < g->n_tensors; i++)
        write_new(c, &g->tensors[i]);
    return STATUS_OK;
}
