/*
 * layout - the tensors of a checkpoint, each with its shape and what may be done with it: the one
 * place where the shape of a block is written down.
 *
 * Whatever checks, counts, loads, writes, converts, quantises or optimises tensors loops over this
 * list. It is a pure function of a config; all numbers of elements fit an int64.
 */
#pragma once

#include "model/config.h"

/* What a tensor is for, in the order of a file: those of each block stand between the others. */
enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_TOKEN_EMBD_NORM,
    ROLE_POSITION_EMBD,
    ROLE_ROPE_FREQS, /* [rope.n_dims / 2] what the frequencies of rotary pairs are divided by */
    ROLE_ATTN_NORM,
    ROLE_ATTN_Q_NORM, /* [head_dim] of each head's query, and of its key */
    ROLE_ATTN_K_NORM,
    ROLE_ATTN_QKV, /* rows Q, then K, then V */
    ROLE_ATTN_Q,   /* the same in three tensors */
    ROLE_ATTN_K,
    ROLE_ATTN_V,
    ROLE_ATTN_REL,   /* [n_heads, 2] alpha and centre of quadratic positions */
    ROLE_ATTN_SCORE, /* [n_heads, head_dim] w of additive scores */
    ROLE_ATTN_OUTPUT,
    ROLE_ATTN_POST_NORM,   /* of what attention adds */
    ROLE_ATTN_OUTPUT_NORM, /* after attention's residual */
    ROLE_FFN_NORM,
    ROLE_FFN_GATE, /* of gated feed-forward kinds */
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,
    ROLE_FFN_POST_NORM,     /* of what the feed-forward part adds */
    ROLE_LAYER_OUTPUT_NORM, /* after the feed-forward residual */
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT,
    TENSOR_ROLES,
};
#define ROLE_BLOCK_FIRST ROLE_ATTN_NORM
#define ROLE_BLOCK_END   ROLE_OUTPUT_NORM

static inline bool role_in_block(enum tensor_role role)
{
    return role >= ROLE_BLOCK_FIRST && role < ROLE_BLOCK_END;
}

/* Whether a tensor of the role is a part of a model's ROLE_ATTN_QKV. */
static inline bool role_is_joined(enum tensor_role role)
{
    return role >= ROLE_ATTN_Q && role <= ROLE_ATTN_V;
}

/* Room for a tensor's name: GGUF's longest, 63 bytes, and the zero. */
struct tensor_name {
    char text[64];
};

/* "blk.3.attn_qkv.weight" or "output_norm.bias"; `layer` says nothing outside of the blocks. */
struct tensor_name arch_tensor_name(enum tensor_role role, int layer, bool is_bias);

/* The file's tensor of that name; NULL: there is none. */
const struct gguf_tensor *layout_find(const struct gguf *g, enum tensor_role role, int layer,
                                      bool is_bias);

/* How a tensor is read. */
enum tensor_form {
    FORM_MATRIX, /* an affine map's weight [n_out, n_in], or a table whose rows may be quantised */
    FORM_NORM,   /* a norm's gain [n] */
    FORM_TABLE,  /* rows that are read as they are, never in another type */
};

enum {
    SPEC_REQUIRED = 1,   /* a file without it is an error */
    SPEC_DECAYS = 2,     /* by AdamW's weight decay */
    SPEC_QUANTISES = 4,  /* may be stored in another type */
    SPEC_ROWS_ENTER = 8, /* its rows enter the residual stream as they are: see layout_type */
    SPEC_RESIDUAL = 16, /* its product is added to the residual: starts smaller by sqrt(2 layers) */
    SPEC_NOT_NEW = 32,  /* only where a file has it: new checkpoints have none */
    SPEC_UNUSUAL = 64,  /* the same, and we train none */
    SPEC_FIXED = 128,   /* no training changes it */
};

struct tensor_spec {
    enum tensor_role role;
    int layer; /* 0 outside of the blocks */
    bool is_bias;
    enum tensor_form form; /* of the weight, or of what this is the bias of */
    int n_dims;            /* 1 or 2 */
    int rows, cols;        /* a vector has one row */
    unsigned flags;        /* SPEC_... */
    /* Of the first `rows` rows, or elements of a vector, each head's `dim` have the first n in a
     * file as halves, element i beside n / 2 + i in memory; n 0: in the same order. */
    struct {
        int rows, dim, n;
    } halves;
    struct tensor_name name;
};

/* Whether a checkpoint of this config may have the tensors of a role. */
bool layout_has(const struct config *c, enum tensor_role role);

/* Whether g's output matrix is its embedding: it has no output.weight, or one with the same bytes,
 * as older files have for programs that asked for it. */
bool layout_output_tied(const struct gguf *g);

/* How many tensors a checkpoint of this config has at most, and tensor i of them, 0 <= i < count,
 * in the order of a file: embeddings, blocks (one if all layers share it), last norm, output. A
 * weight's bias follows it. */
int64_t layout_count(const struct config *c);
struct tensor_spec layout_at(const struct config *c, int64_t i);

/* The weight of a role; `layer` says nothing outside of the blocks, and is any that uses the
 * tensor. Roles that layout_has denies have a spec too: the joined form of Q, K and V is what a
 * model has in memory. */
struct tensor_spec layout_weight(const struct config *c, enum tensor_role role, int layer);
/* Whether some file has a bias for it, and that [rows], or [cols] for a norm. */
bool layout_has_bias(const struct config *c, enum tensor_role role);
struct tensor_spec layout_bias(const struct config *c, enum tensor_role role, int layer);

/* Q, K and V of a layer: the tensors they are in, in the order of their rows in the joined matrix
 * [config_qkv_dim, d_model], and the first of these rows. Returns how many: 1 or 3. */
struct qkv_part {
    enum tensor_role role;
    int first, rows;
};
#define QKV_PARTS 3
int layout_qkv(const struct config *c, int layer, struct qkv_part parts[QKV_PARTS]);

/* Elements of the longest row of any matrix: the most that a product takes in. */
int layout_longest_row(const struct config *c);

/* The tensor of a name. False if there is none. */
bool layout_named(const struct config *c, struct text name, struct tensor_spec *out);

static inline uint64_t spec_elements(const struct tensor_spec *s)
{
    return (uint64_t)s->rows * s->cols;
}

/* Where element i of a head in memory is in a file that has the first n as halves. */
static inline int layout_half(int i, int n)
{
    return i >= n ? i : i % 2 * (n / 2) + i / 2;
}

/* Which row of the tensor in a file, or element of a vector, is row `row` of it in memory. */
static inline int spec_file_row(const struct tensor_spec *s, int row)
{
    const int in = s->halves.n && row < s->halves.rows ? row % s->halves.dim : 0;
    return row - in + layout_half(in, s->halves.n);
}

/* The n_dims sizes that a file has for it, the row length first; the others are 1. */
#define SPEC_DIMS 2
struct spec_dims {
    uint64_t n[SPEC_DIMS];
};
static inline struct spec_dims spec_dims(const struct tensor_spec *s)
{
    return (struct spec_dims){{s->cols, s->rows}};
}

/*
 * The type (an enum tensor_type) of a tensor that may change, where matrices are to be of `type`:
 * the same, but F16 where its rows are no whole blocks of that type, and Q8_0 for Q4_0 if its rows
 * enter the residual stream as they are. Their error is not
 * averaged over a sum (a trained toy checkpoint loses 0.07 nats a token with all matrices in Q4_0,
 * 0.02 with this exception), and a token reads only one of them, unless the matrix is the
 * output's too.
 */
uint32_t layout_type(const struct tensor_spec *s, uint32_t type);
