#include "exchange/export_tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/blocks.h"

struct export_tensor {
    struct hf_tensor_name name;
    struct view view;
    bool is_matrix; /* its type may be any */
    bool is_vector; /* of one dimension */
};

/* --- which rows ------------------------------------------------------------------------------ */

static struct row_swap inverse(struct row_swap s)
{
    return (struct row_swap){s.q, s.p, s.m};
}

/* Rows of the checkpoint's tensor of this role, or as many zeros. */
static struct view_part part_of(const struct export_plan *p, const struct export_tensors *t,
                                enum tensor_role role, int layer, bool is_bias, int first, int rows)
{
    const struct tensor_name name = arch_tensor_name(role, config_block(&p->from, layer), is_bias);
    const struct gguf_tensor *from = gguf_find_tensor(p->gguf, name.text);
    assert(from || is_bias); /* a model that runs has all weights */
    if (!from)
        return (struct view_part){.data = (const unsigned char *)t->zeros,
                                  .type = TENSOR_F32,
                                  .source_rows = rows,
                                  .rows = rows};
    const uint64_t cols = is_bias || from->n_dims == 1 ? 1 : from->dims[0];
    return (struct view_part){.data = from->data,
                              .type = from->type->type,
                              .source_rows = (int)(from->n_elements / cols),
                              .first = first,
                              .rows = rows};
}

/* Rows of Q (which = 0), K or V, from one joined tensor or one of three. */
static struct view_part attention_part(const struct export_plan *p, const struct export_tensors *t,
                                       int which, int layer, bool is_bias)
{
    const struct config *c = &p->from;
    const int rows[QKV_PARTS] = {config_q_dim(c), config_k_dim(c, layer), config_v_dim(c, layer)};
    struct qkv_part parts[QKV_PARTS];
    const bool joined = layout_qkv(c, layer, parts) == 1;
    int first = 0;
    for (int i = 0; joined && i < which; i++)
        first += rows[i];
    struct view_part part =
        part_of(p, t, parts[joined ? 0 : which].role, layer, is_bias, first, rows[which]);
    part.head_rows = c->head_dim;
    part.copies = which == 0 ? 1 : config_kv_heads(&p->to, layer) / config_kv_heads(c, layer);
    return part;
}

static void add_attention_parts(const struct export_plan *p, const struct export_tensors *t,
                                const struct tensor_spec *spec, struct view *v)
{
    const struct row_swap swap = inverse(hf_row_swap(p->hf.family, &p->to, spec->role));
    if (spec->role != ROLE_ATTN_QKV) {
        v->parts[0] =
            attention_part(p, t, (int)(spec->role - ROLE_ATTN_Q), spec->layer, spec->is_bias);
        v->n_parts = 1;
    } else if (swap.p) { /* only what was joined in this way is exported so */
        v->parts[0] = part_of(p, t, ROLE_ATTN_QKV, spec->layer, spec->is_bias, 0,
                              config_qkv_dim(&p->from, spec->layer));
        v->n_parts = 1;
    } else {
        for (int i = 0; i < QKV_PARTS; i++)
            v->parts[i] = attention_part(p, t, i, spec->layer, spec->is_bias);
        v->n_parts = QKV_PARTS;
    }
    if (v->n_parts == 1)
        v->parts[0].swap = swap;
}

/* --- one tensor ------------------------------------------------------------------------------ */

/* Whether transformers' model has a tensor for it. */
static bool is_wanted(const struct export_plan *p, const struct tensor_spec *spec)
{
    if (spec->role == ROLE_ROPE_FREQS || (spec->role == ROLE_OUTPUT && p->hf.tied))
        return false;
    return !spec->is_bias || hf_has_bias(&p->hf, spec->role);
}

static bool is_attention(enum tensor_role role)
{
    return role == ROLE_ATTN_QKV || role == ROLE_ATTN_Q || role == ROLE_ATTN_K ||
           role == ROLE_ATTN_V;
}

static uint32_t matrix_type(const struct view *v)
{
    for (int i = 0; i < v->n_parts; i++)
        if (v->parts[i].type != v->parts[0].type)
            return TENSOR_F32;
    const uint32_t type = v->parts[0].type;
    return type == TENSOR_F16 || type == TENSOR_BF16 ? type : TENSOR_F32;
}

static void add_tensor(const struct export_plan *p, struct export_tensors *t,
                       const struct tensor_spec *spec)
{
    struct export_tensor *x = &t->list[t->n];
    const bool is_vector = spec->n_dims == 1;
    *x = (struct export_tensor){
        .name = hf_tensor_name(p->hf.family, true, spec->role, spec->layer, spec->is_bias),
        .view = {.n_parts = 1,
                 .cols = is_vector ? 1 : spec->cols,
                 .transposes = p->hf.family->conv1d && !is_vector && role_in_block(spec->role),
                 .maker = &t->maker},
        .is_matrix = spec->flags & SPEC_QUANTISES,
        .is_vector = is_vector,
    };
    if (is_attention(spec->role))
        add_attention_parts(p, t, spec, &x->view);
    else
        x->view.parts[0] = part_of(p, t, spec->role, spec->layer, spec->is_bias, 0,
                                   is_vector ? (int)spec_elements(spec) : spec->rows);
    x->view.type = x->is_matrix ? matrix_type(&x->view) : TENSOR_F32;
    t->n++;
}

/* --- types ----------------------------------------------------------------------------------- */

/* Whether a type has room for every number of a view that is made in F32. */
static enum status fits(struct view *v, uint32_t type, bool *fit, struct err *e)
{
    const uint64_t bytes = (uint64_t)view_rows(v) * (uint64_t)v->cols * sizeof(float);
    *fit = true;
    for (uint64_t at = 0; at < bytes && *fit;) {
        const void *data;
        size_t len;
        TRY(view_piece(v, at, &data, &len, e));
        for (size_t i = 0; i < len && *fit; i += sizeof(float)) {
            unsigned char encoded[sizeof(float)];
            float x, y;
            blocks_decode(TENSOR_F32, &x, (const unsigned char *)data + i, 1);
            blocks_encode(type, encoded, &x, 1);
            blocks_decode(type, &y, encoded, 1);
            *fit = memcmp(&x, &y, sizeof x) == 0;
        }
        at += len;
    }
    return STATUS_OK;
}

/* The type of all matrices; -1 if they have several. */
static int type_of_matrices(const struct export_tensors *t)
{
    int type = -1;
    for (size_t i = 0; i < t->n; i++) {
        const struct export_tensor *x = &t->list[i];
        if (x->is_matrix && type >= 0 && type != (int)x->view.type)
            return -1;
        if (x->is_matrix)
            type = (int)x->view.type;
    }
    return type;
}

static enum status settle_types(struct export_tensors *t, struct err *e)
{
    bool fit = true;
    t->type = type_of_matrices(t);
    if (t->type < 0 || t->type == TENSOR_F32)
        return STATUS_OK;
    for (size_t i = 0; i < t->n && fit; i++)
        if (!t->list[i].is_matrix)
            TRY(fits(&t->list[i].view, (uint32_t)t->type, &fit, e));
    if (!fit) {
        t->type = -1;
        return STATUS_OK;
    }
    for (size_t i = 0; i < t->n; i++)
        t->list[i].view.type = (uint32_t)t->type;
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static void describe(struct export_tensor *x, struct safetensors_written *w)
{
    const uint64_t rows = (uint64_t)view_rows(&x->view), cols = (uint64_t)x->view.cols;
    *w = (struct safetensors_written){
        .name = x->name.text,
        .dtype = safetensors_dtype_of((enum tensor_type)x->view.type),
        .n_dims = x->is_vector ? 1 : 2,
        .dims = {x->view.transposes ? cols : rows, x->view.transposes ? rows : cols},
        .source = {view_piece, &x->view},
    };
}

static enum status allocate(const struct export_plan *p, struct export_tensors *t, struct err *e)
{
    const size_t n = (size_t)layout_count(&p->to);
    int longest = layout_longest_row(&p->to);
    if (longest < config_qkv_dim(&p->to, 0))
        longest = config_qkv_dim(&p->to, 0);
    t->list = calloc(n, sizeof *t->list);
    t->written = calloc(n, sizeof *t->written);
    t->zeros = calloc((size_t)longest, sizeof *t->zeros);
    if (!t->list || !t->written || !t->zeros)
        return err_no_memory(e, "the list of tensors", n * sizeof *t->list);
    return STATUS_OK;
}

enum status export_tensors_make(const struct export_plan *plan, struct export_tensors *t,
                                struct err *e)
{
    *t = (struct export_tensors){.n = 0};
    TRY(allocate(plan, t, e));
    for (int64_t i = 0; i < layout_count(&plan->to); i++) {
        const struct tensor_spec spec = layout_at(&plan->to, i);
        if (is_wanted(plan, &spec))
            add_tensor(plan, t, &spec);
    }
    TRY(settle_types(t, e));
    for (size_t i = 0; i < t->n; i++)
        describe(&t->list[i], &t->written[i]);
    return STATUS_OK;
}

void export_tensors_free(struct export_tensors *t)
{
    free(t->list);
    free(t->written);
    free(t->zeros);
    view_maker_free(&t->maker);
    *t = (struct export_tensors){.n = 0};
}
