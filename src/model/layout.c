#include "model/layout.h"

#include "base/mem.h"
#include "formats/blocks.h"
#include "formats/gguf_values.h"

/* The sizes that shapes are made of. */
enum extent {
    ONE,
    TWO,
    D_MODEL,
    Q_DIM,
    K_DIM,
    V_DIM,
    QKV_DIM,
    HEADS_DIM,
    HEAD_DIM,
    N_HEADS,
    D_FF,
    N_CTX,
    N_VOCAB,
    ROPE_PAIRS
};

/* Which files have a bias. */
enum bias { NO_BIAS, UNUSUAL_BIAS, USUAL_BIAS };

#define WEIGHT (SPEC_REQUIRED | SPEC_DECAYS | SPEC_QUANTISES)
/* The row of a norm of so many elements. */
#define NORM_OF(n) FORM_NORM, ONE, n, USUAL_BIAS, SPEC_REQUIRED

/* By role. */
static const struct tensor_row {
    const char *name; /* in a file, between block and suffix */
    enum tensor_form form;
    enum extent rows, cols;
    enum bias bias;
    unsigned flags; /* of the weight */
} tensor_rows[TENSOR_ROLES] = {
    [ROLE_TOKEN_EMBD] = {"token_embd", FORM_MATRIX, N_VOCAB, D_MODEL, UNUSUAL_BIAS,
                         WEIGHT | SPEC_ROWS_ENTER},
    [ROLE_TOKEN_EMBD_NORM] = {"token_embd_norm", NORM_OF(D_MODEL)},
    [ROLE_POSITION_EMBD] = {"position_embd", FORM_TABLE, N_CTX, D_MODEL, NO_BIAS,
                            SPEC_REQUIRED | SPEC_DECAYS},
    [ROLE_ROPE_FREQS] = {"rope_freqs", FORM_TABLE, ONE, ROPE_PAIRS, NO_BIAS,
                         SPEC_NOT_NEW | SPEC_FIXED},
    [ROLE_ATTN_NORM] = {"attn_norm", NORM_OF(D_MODEL)},
    [ROLE_ATTN_Q_NORM] = {"attn_q_norm", NORM_OF(HEAD_DIM)},
    [ROLE_ATTN_K_NORM] = {"attn_k_norm", NORM_OF(HEAD_DIM)},
    [ROLE_ATTN_QKV] = {"attn_qkv", FORM_MATRIX, QKV_DIM, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_ATTN_Q] = {"attn_q", FORM_MATRIX, Q_DIM, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_ATTN_K] = {"attn_k", FORM_MATRIX, K_DIM, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_ATTN_V] = {"attn_v", FORM_MATRIX, V_DIM, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_ATTN_REL] = {"attn_rel", FORM_TABLE, N_HEADS, TWO, NO_BIAS, SPEC_REQUIRED},
    [ROLE_ATTN_SCORE] = {"attn_score", FORM_TABLE, N_HEADS, HEAD_DIM, NO_BIAS, SPEC_REQUIRED},
    [ROLE_ATTN_OUTPUT] = {"attn_output", FORM_MATRIX, D_MODEL, HEADS_DIM, USUAL_BIAS,
                          WEIGHT | SPEC_RESIDUAL},
    [ROLE_ATTN_POST_NORM] = {"post_attention_norm", NORM_OF(D_MODEL)},
    [ROLE_ATTN_OUTPUT_NORM] = {"attn_output_norm", NORM_OF(D_MODEL)},
    [ROLE_FFN_NORM] = {"ffn_norm", NORM_OF(D_MODEL)},
    [ROLE_FFN_GATE] = {"ffn_gate", FORM_MATRIX, D_FF, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_FFN_UP] = {"ffn_up", FORM_MATRIX, D_FF, D_MODEL, USUAL_BIAS, WEIGHT},
    [ROLE_FFN_DOWN] = {"ffn_down", FORM_MATRIX, D_MODEL, D_FF, USUAL_BIAS, WEIGHT | SPEC_RESIDUAL},
    [ROLE_FFN_POST_NORM] = {"post_ffw_norm", NORM_OF(D_MODEL)},
    [ROLE_LAYER_OUTPUT_NORM] = {"layer_output_norm", NORM_OF(D_MODEL)},
    [ROLE_OUTPUT_NORM] = {"output_norm", NORM_OF(D_MODEL)},
    [ROLE_OUTPUT] = {"output", FORM_MATRIX, N_VOCAB, D_MODEL, UNUSUAL_BIAS,
                     SPEC_DECAYS | SPEC_QUANTISES},
};

bool layout_has(const struct config *c, enum tensor_role role)
{
    const bool after = c->placement == PLACEMENT_AFTER;
    const bool one_norm = c->placement == PLACEMENT_PARALLEL && c->parts.one_norm;
    const bool lacks[TENSOR_ROLES] = {
        [ROLE_TOKEN_EMBD_NORM] = !c->parts.embedding_norm,
        [ROLE_POSITION_EMBD] = c->position != POSITION_LEARNED,
        [ROLE_ROPE_FREQS] = c->position != POSITION_ROPE,
        [ROLE_ATTN_NORM] = after,
        [ROLE_ATTN_Q_NORM] = !c->parts.qk_norms,
        [ROLE_ATTN_K_NORM] = !c->parts.qk_norms,
        [ROLE_ATTN_QKV] = c->split_qkv,
        [ROLE_ATTN_Q] = !c->split_qkv,
        [ROLE_ATTN_K] = !c->split_qkv,
        [ROLE_ATTN_V] = !c->split_qkv,
        [ROLE_ATTN_REL] = c->position != POSITION_QUADRATIC,
        [ROLE_ATTN_SCORE] = c->score != SCORE_ADDITIVE,
        [ROLE_ATTN_POST_NORM] = !c->parts.added_norms,
        [ROLE_ATTN_OUTPUT_NORM] = !after,
        [ROLE_FFN_NORM] = after || one_norm,
        [ROLE_FFN_GATE] = !ffn_kinds[c->ffn].is_gated,
        [ROLE_FFN_POST_NORM] = !c->parts.added_norms,
        [ROLE_LAYER_OUTPUT_NORM] = !after,
        [ROLE_OUTPUT_NORM] = after,
    };
    return !lacks[role] && !(tensor_rows[role].form == FORM_NORM && c->parts.no_norm_weights);
}

/* --- one tensor ------------------------------------------------------------------------------ */

struct tensor_name arch_tensor_name(enum tensor_role role, int layer, bool is_bias)
{
    struct tensor_name name;
    assert(role < TENSOR_ROLES && layer >= 0);
    const char *stem = tensor_rows[role].name, *suffix = is_bias ? "bias" : "weight";
    if (role_in_block(role))
        chars_printf(name.text, "blk.%d.%s.%s", layer, stem, suffix);
    else
        chars_printf(name.text, "%s.%s", stem, suffix);
    return name;
}

const struct gguf_tensor *layout_find(const struct gguf *g, enum tensor_role role, int layer,
                                      bool is_bias)
{
    return gguf_find_tensor(g, arch_tensor_name(role, layer, is_bias).text);
}

static int extent_of(const struct config *c, enum extent extent, int layer)
{
    const int extents[] = {[ONE] = 1,
                           [TWO] = 2,
                           [D_MODEL] = c->d_model,
                           [Q_DIM] = config_q_dim(c),
                           [K_DIM] = config_k_dim(c, layer),
                           [V_DIM] = config_v_dim(c, layer),
                           [QKV_DIM] = config_qkv_dim(c, layer),
                           [HEADS_DIM] = config_heads_dim(c),
                           [HEAD_DIM] = c->head_dim,
                           [N_HEADS] = c->n_heads,
                           [D_FF] = c->d_ff,
                           [N_CTX] = c->n_ctx,
                           [N_VOCAB] = c->n_vocab,
                           [ROPE_PAIRS] = c->rope.n_dims / 2};
    return extents[extent];
}

struct tensor_spec layout_weight(const struct config *c, enum tensor_role role, int layer)
{
    assert(role < TENSOR_ROLES && layer >= 0 && layer < c->n_layers);
    const struct tensor_row *row = &tensor_rows[role];
    const bool is_turned = c->position == POSITION_ROPE && c->parts.rope_halves;
    const int turned = role == ROLE_ATTN_QKV ? config_q_dim(c) + config_k_dim(c, layer)
                       : role == ROLE_ATTN_Q ? config_q_dim(c)
                       : role == ROLE_ATTN_K ? config_k_dim(c, layer)
                       : role == ROLE_ATTN_Q_NORM || role == ROLE_ATTN_K_NORM ? c->head_dim
                                                                              : 0;
    return (struct tensor_spec){
        .role = role,
        .layer = config_block(c, layer),
        .form = row->form,
        .n_dims = row->rows == ONE ? 1 : 2,
        .rows = extent_of(c, row->rows, layer),
        .cols = extent_of(c, row->cols, layer),
        .flags = row->flags,
        .halves = {turned, c->head_dim, is_turned && turned ? c->rope.n_dims : 0},
        .name = arch_tensor_name(role, config_block(c, layer), false),
    };
}

/* Returns which files have a bias for the role; none have one for an RMS norm. */
static enum bias bias_of(const struct config *c, enum tensor_role role)
{
    const struct tensor_row *row = &tensor_rows[role];
    if (role == ROLE_OUTPUT && c->parts.output_bias)
        return USUAL_BIAS;
    return row->form == FORM_NORM && c->norm == NORM_RMS ? NO_BIAS : row->bias;
}

bool layout_has_bias(const struct config *c, enum tensor_role role)
{
    return bias_of(c, role) != NO_BIAS;
}

struct tensor_spec layout_bias(const struct config *c, enum tensor_role role, int layer)
{
    assert(layout_has_bias(c, role));
    struct tensor_spec s = layout_weight(c, role, layer);
    s.is_bias = true;
    s.n_dims = 1;
    s.cols = s.form == FORM_NORM ? s.cols : s.rows;
    s.rows = 1;
    const bool is_qkv = role >= ROLE_ATTN_QKV && role <= ROLE_ATTN_V;
    const bool none = s.form == FORM_NORM   ? c->parts.no_norm_biases
                      : role == ROLE_OUTPUT ? false
                      : is_qkv              ? c->biases == BIASES_NONE
                                            : c->biases != BIASES_ALL;
    s.flags = bias_of(c, role) == UNUSUAL_BIAS ? SPEC_UNUSUAL : none ? SPEC_NOT_NEW : 0;
    s.name = arch_tensor_name(role, s.layer, true);
    return s;
}

int layout_qkv(const struct config *c, int layer, struct qkv_part parts[QKV_PARTS])
{
    int n = 0, first = 0;
    for (enum tensor_role role = ROLE_ATTN_QKV; role <= ROLE_ATTN_V; role++) {
        const int rows = extent_of(c, tensor_rows[role].rows, layer);
        if (!layout_has(c, role))
            continue;
        parts[n++] = (struct qkv_part){role, first, rows};
        first += rows;
    }
    return n;
}

/* --- the list -------------------------------------------------------------------------------- */

/* Returns how many tensors a role has in one layer, or outside of the blocks. */
static int tensors_of_role(const struct config *c, enum tensor_role role)
{
    return !layout_has(c, role) ? 0 : layout_has_bias(c, role) ? 2 : 1;
}

/* Returns how many tensors the roles from `first` to end - 1 have. */
static int64_t tensors_of_roles(const struct config *c, enum tensor_role first,
                                enum tensor_role end)
{
    int64_t n = 0;
    for (enum tensor_role role = first; role < end; role++)
        n += tensors_of_role(c, role);
    return n;
}

bool layout_output_tied(const struct gguf *g)
{
    const struct gguf_tensor *embedding = layout_find(g, ROLE_TOKEN_EMBD, 0, false);
    const struct gguf_tensor *output = layout_find(g, ROLE_OUTPUT, 0, false);
    return !output ||
           (embedding && embedding->type == output->type && embedding->n_bytes == output->n_bytes &&
            memcmp(embedding->data, output->data, output->n_bytes) == 0);
}

int64_t layout_count(const struct config *c)
{
    return tensors_of_roles(c, 0, ROLE_BLOCK_FIRST) +
           config_blocks(c) * tensors_of_roles(c, ROLE_BLOCK_FIRST, ROLE_BLOCK_END) +
           tensors_of_roles(c, ROLE_BLOCK_END, TENSOR_ROLES);
}

struct tensor_spec layout_at(const struct config *c, int64_t i)
{
    const int64_t before = tensors_of_roles(c, 0, ROLE_BLOCK_FIRST),
                  of_block = tensors_of_roles(c, ROLE_BLOCK_FIRST, ROLE_BLOCK_END),
                  blocks_end = before + config_blocks(c) * of_block;
    enum tensor_role role = 0;
    int layer = 0;
    assert(i >= 0 && i < layout_count(c));
    if (i >= blocks_end) {
        role = ROLE_BLOCK_END;
        i -= blocks_end;
    } else if (i >= before) {
        role = ROLE_BLOCK_FIRST;
        layer = (i - before) / of_block;
        i = (i - before) % of_block;
    }
    for (; i >= tensors_of_role(c, role); role++)
        i -= tensors_of_role(c, role);
    return i == 0 ? layout_weight(c, role, layer) : layout_bias(c, role, layer);
}

int layout_longest_row(const struct config *c)
{
    int longest = 0;
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++) {
        const int cols = layout_weight(c, role, 0).cols;
        longest = MAX(cols, longest);
    }
    return longest;
}

/* --- by name --------------------------------------------------------------------------------- */

bool layout_named(const struct config *c, struct text name, struct tensor_spec *out)
{
    int layer = 0;
    if (text_starts_with(name, "blk."))
        for (size_t i = 4; i < name.len && name.data[i] >= '0' && name.data[i] <= '9'; i++)
            if ((layer = layer * 10 + (name.data[i] - '0')) >= config_blocks(c))
                return false;
    for (enum tensor_role role = 0; role < TENSOR_ROLES; role++) {
        for (int i = 0; i < tensors_of_role(c, role); i++) {
            if (!text_is(name, arch_tensor_name(role, layer, i).text))
                continue;
            *out = i == 0 ? layout_weight(c, role, layer) : layout_bias(c, role, layer);
            return true;
        }
    }
    return false;
}

uint32_t layout_type(const struct tensor_spec *s, uint32_t type)
{
    if (s->cols % tensor_type_find(type)->block_elements != 0)
        return TENSOR_F16;
    return type == TENSOR_Q4_0 && (s->flags & SPEC_ROWS_ENTER) ? TENSOR_Q8_0 : type;
}
