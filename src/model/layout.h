/*
 * layout - the tensors of a checkpoint, each with its shape and what may be done with it.
 *
 * This is the one place where the shape of a block is written down: whatever checks, counts, loads,
 * writes, converts, quantises or optimises tensors loops over this list. It is a pure function of a
 * config; all numbers of elements fit an int64.
 */
#pragma once

#include "model/config.h"

/* What a tensor is for, in the order of a file; the blocks stand between the embedding and the last
 * norm. */
enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_TOKEN_EMBD_NORM,
    ROLE_POSITION_EMBD,
    ROLE_ROPE_FREQS, /* [rope.n_dims / 2] what the frequencies of rotary pairs are divided by */
    ROLE_ATTN_NORM,
    ROLE_ATTN_Q_NORM, /* [head_dim] of each head's query, and of its key */
    ROLE_ATTN_K_NORM,
    ROLE_ATTN_QKV, /* rows Q, then K, then V */
    ROLE_ATTN_Q,   /* Q, K and V in three tensors */
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

/* Returns the file's tensor of that name, or NULL. */
const struct gguf_tensor *layout_find(const struct gguf *g, enum tensor_role role, int layer,
                                      bool is_bias);

/* How a tensor is read. */
enum tensor_form {
    FORM_MATRIX, /* an affine map's weight [n_out, n_in], or a table whose rows may be quantised */
    FORM_NORM,   /* a norm's gain [n] */
    FORM_TABLE,  /* rows that are never stored in another type */
};

enum {
    SPEC_REQUIRED = 1,   /* a file without it is an error */
    SPEC_DECAYS = 2,     /* by AdamW's weight decay */
    SPEC_QUANTISES = 4,  /* may be stored in another type */
    SPEC_ROWS_ENTER = 8, /* its rows enter the residual stream unsummed: see layout_type */
    SPEC_RESIDUAL = 16, /* its product is added to the residual: starts smaller by sqrt(2 layers) */
    SPEC_NOT_NEW = 32,  /* some files have it; new checkpoints do not */
    SPEC_UNUSUAL = 64,  /* some files have it; neither new nor trained checkpoints do */
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
    /* The first `rows` rows, or elements of a vector, are heads of `dim`. A file has the first n of
     * each head as halves: elements i and n / 2 + i are neighbours in memory. n 0: file and memory
     * have one order. */
    struct {
        int rows, dim, n;
    } halves;
    struct tensor_name name;
};

/* Whether a checkpoint of this config may have the tensors of a role. */
bool layout_has(const struct config *c, enum tensor_role role);

/* Whether g's output matrix is its embedding: it has no output.weight, or, in older files, one with
 * the same bytes. */
bool layout_output_tied(const struct gguf *g);

/* Return how many tensors a checkpoint of this config has at most, and tensor i < count, in the
 * order of a file: embeddings, blocks (one if all layers share it), last norm, output. A weight's
 * bias follows it. */
int64_t layout_count(const struct config *c);
struct tensor_spec layout_at(const struct config *c, int64_t i);

/* Returns the weight of a role in a layer, which says nothing outside of the blocks. Roles that
 * layout_has denies have one, too, because a model has Q, K and V joined in memory. */
struct tensor_spec layout_weight(const struct config *c, enum tensor_role role, int layer);
/* Whether some file has a bias for the role. */
bool layout_has_bias(const struct config *c, enum tensor_role role);
/* Returns that bias [rows], or [cols] for a norm; there is one (asserted). */
struct tensor_spec layout_bias(const struct config *c, enum tensor_role role, int layer);

/* Lists the tensors that a layer's Q, K and V are in, in the order of the joined matrix
 * [config_qkv_dim, d_model], with their first row there. Returns how many there are: 1 or 3. */
struct qkv_part {
    enum tensor_role role;
    int first, rows;
};
#define QKV_PARTS 3
int layout_qkv(const struct config *c, int layer, struct qkv_part parts[QKV_PARTS]);

/* Returns the role of the norm that a block's feed-forward part reads. */
static inline enum tensor_role layout_ffn_norm(const struct config *c)
{
    return c->placement == PLACEMENT_AFTER                           ? ROLE_ATTN_OUTPUT_NORM
           : c->placement == PLACEMENT_PARALLEL && c->parts.one_norm ? ROLE_ATTN_NORM
                                                                     : ROLE_FFN_NORM;
}

/* Returns the elements of the longest row of any tensor. */
int layout_longest_row(const struct config *c);

/* Finds the tensor of a name; false if there is none. */
bool layout_named(const struct config *c, struct text name, struct tensor_spec *out);

static inline uint64_t spec_elements(const struct tensor_spec *s)
{
    return (uint64_t)s->rows * s->cols;
}

/* Returns where element i of a head in memory is in a file that has the first n as halves. */
static inline int layout_half(int i, int n)
{
    return i >= n ? i : i % 2 * (n / 2) + i / 2;
}

/* Returns which row in a file, or element of a vector, is row `row` in memory. */
static inline int spec_file_row(const struct tensor_spec *s, int row)
{
    const int in = s->halves.n && row < s->halves.rows ? row % s->halves.dim : 0;
    return row - in + layout_half(in, s->halves.n);
}

/* The sizes in a file, the row length first; those from n_dims on are 1. */
#define SPEC_DIMS 2
struct spec_dims {
    uint64_t n[SPEC_DIMS];
};
static inline struct spec_dims spec_dims(const struct tensor_spec *s)
{
    return (struct spec_dims){{s->cols, s->rows}};
}

/*
 * Returns the type (an enum tensor_type) of a tensor that may change, if matrices are to be of
 * `type`: that type; F16 if its rows are no whole blocks of it; Q8_0 instead of Q4_0 if its rows
 * enter the residual stream. No sum averages the error of these rows (a trained toy checkpoint
 * loses 0.07 nats a token with all matrices in Q4_0, 0.02 with this exception), and they cost
 * little, because a token reads one of them, unless the matrix is the output's, too.
 */
uint32_t layout_type(const struct tensor_spec *s, uint32_t type);
