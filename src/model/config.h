/*
 * config - the architectures that run here, a row each, and the hyperparameters of a checkpoint, as
 * its keys say them.
 *
 * What differs between architectures is a value in its row, never a fork through the program. The
 * rows are constant: any threads may read them.
 */
#pragma once

#include "compute/kernels.h"
#include "formats/gguf.h"

/* --- architectures --------------------------------------------------------------------------- */

/* Where a norm stands around the residual stream x of a part f, attention or feed-forward. */
enum norm_placement {
    PLACEMENT_BEFORE,   /* x + f(norm(x)), and a norm of the last block's output */
    PLACEMENT_AFTER,    /* norm(x + f(x)), the original Transformer's post-LN */
    PLACEMENT_PARALLEL, /* x + attention(norm(x)) + ffn(norm'(x)), both of the block's input (Wang
                           and Komatsuzaki 2021), and a norm of the last block's output */
    PLACEMENT_ALONE,    /* f(norm(x)): no residual connection goes round f; and a norm at the end */
    PLACEMENTS
};

/* How the model knows where a token stands. */
enum position_kind {
    POSITION_LEARNED,    /* a row of position_embd for each position, added to the token's */
    POSITION_SINUSOIDAL, /* sines and cosines are added (Vaswani et al. 2017, section 3.5) */
    POSITION_ROPE,       /* pairs of elements of queries and keys rotated (Su et al. 2021) */
    POSITION_ALIBI,      /* scores fall linearly with distance (Press et al. 2022) */
    POSITION_QUADRATIC,  /* scores fall with the square of the distance from a centre, both
                            trained (Cordonnier et al. 2020) */
    POSITION_NONE,
    POSITION_KINDS
};

/* What makes a score of a query q and a key k. */
enum score_kind {
    SCORE_DOT,      /* their product, scaled (Vaswani et al. 2017, section 3.2.1) */
    SCORE_ADDITIVE, /* w.tanh(q + k), w a head's own (Bahdanau et al. 2015, appendix A.1.2). A
                       bilinear score y W h is a product whose W_k is the identity. */
    SCORE_KINDS
};

/* Names of the kinds as the keys of architecture `decode` and the command line have them, in the
 * order of the enums, NULL at the end. */
extern const char *const arch_norm_names[];
extern const char *const arch_placement_names[];
extern const char *const arch_position_names[];
extern const char *const arch_ffn_names[];
extern const char *const arch_score_names[];

/* Which matrices of a new model have biases. A file's model has the biases that are in the file. */
enum bias_kind {
    BIASES_ALL,
    BIASES_QKV, /* queries, keys and values */
    BIASES_NONE,
    BIAS_KINDS
};

/* How a model differs from GPT-2 in its parts. */
struct arch_parts {
    bool embedding_norm;  /* the embedding is normed before the first block */
    bool one_norm;        /* PLACEMENT_PARALLEL: both parts of a block read attention's norm */
    bool qk_norms;        /* each head's query and key is normed, before positions rotate them */
    bool added_norms;     /* what attention and feed-forward part add is normed first */
    bool no_norm_biases;  /* in a new model; see enum bias_kind */
    bool no_norm_weights; /* norms have neither gains nor biases */
    bool output_bias;
    bool rope_halves; /* in a file element i of a head rotates with i + rope.n_dims / 2; in memory
                         the two are neighbours */
};

/* What an architecture is; zero is GPT-2. */
struct arch {
    const char *name;         /* GGUF's general.architecture, and the prefix of its keys */
    const char *preset;       /* the name by which a new model is made; NULL: none is */
    const char *norm_eps_key; /* after the prefix */
    enum norm_kind norm;
    enum norm_placement placement;
    enum position_kind position;
    enum ffn_kind ffn;
    struct arch_parts parts;
    enum bias_kind biases;
    float rope_share;      /* how much of a new model's head is rotated; 0: all */
    int window_period;     /* attention.sliding_window is the window of all layers but every
                              window_period-th; 1: of all layers; 0: it has no such key */
    bool has_parallel_key; /* it has the key use_parallel_residual */
    bool split_qkv;        /* attn_q, attn_k and attn_v instead of attn_qkv */
    bool scales_embedding; /* by sqrt(d_model); only where has_keys is a key needed to say so */
    bool is_open;          /* unknown tensors in blocks mean nothing; of others they are refused */
    bool has_keys;         /* a file's keys say the kinds */
    bool needs_output;     /* its files have an output matrix, even if it is the embedding */
    bool own_output;       /* its models usually have an output matrix beside the embedding */
    bool own_head_dim;     /* its files can have heads of another size than d_model / n_heads */
};

/* The names of all rows, each once; NULL at the end. */
extern const char *const arch_names[];

/* Returns the row of a file's architecture; NULL if it does not run here. */
const struct arch *arch_find(struct text name);

/* Returns the row by whose preset a new model is made; NULL if there is none of this name. */
const struct arch *arch_preset(struct text name);

/* --- hyperparameters -------------------------------------------------------------------------- */

/* Bounds that no real checkpoint of these architectures reaches. They keep row counts (Q, K and V
 * together too) and the attention work items of one token within an int. */
#define CONFIG_MAX_LAYERS 512
#define CONFIG_MAX_WIDTH  (1 << 16)
#define CONFIG_MAX_FF     (1 << 24)
#define CONFIG_MAX_CTX    (1 << 22)
#define CONFIG_MAX_VOCAB  (1 << 24)
/* The frequencies of rotary positions may be divided by more than this. */
#define CONFIG_LEAST_ROPE_FACTOR 1e-2
/* Scores may be multiplied by less than this, of either sign. */
#define CONFIG_MOST_SCORE_SCALE 1e6

/* Rotary positions: pair i < n_dims / 2 of a head is rotated by position * scale / base^(2 i /
 * n_dims), divided by the pair's factor if the file has factors. Elements from n_dims on stay. */
struct config_rope {
    int n_dims;
    double base, scale;
    double window_base; /* base of layers with a window, which are not scaled; 0: as the others */
};

/* All but the sizes is GPT-2's where it is zero. */
struct config {
    const struct arch *arch; /* static storage */
    int n_layers;
    int n_heads;    /* of queries */
    int n_kv_heads; /* of the layer that has most; see config_kv_heads */
    int head_dim;   /* of queries and keys */
    int value_dim;  /* of values; 0: head_dim */
    int d_model, d_ff, n_ctx, n_vocab;
    float norm_eps;
    float embedding_scale; /* of tokens, before positions are added; 0: 1 */
    float score_scale;     /* of attention's scores; 0: 1 / sqrt(head_dim) */
    /* As the architecture has them, or as its keys say. */
    enum norm_kind norm;
    enum norm_placement placement;
    enum position_kind position;
    enum ffn_kind ffn;
    enum score_kind score;
    struct arch_parts parts;
    enum bias_kind biases;
    bool split_qkv;
    bool shared; /* all layers use the tensors of block 0 */
    struct config_rope rope;
    int32_t layer_kv_heads[CONFIG_MAX_LAYERS]; /* 0: n_kv_heads */
    /* A query reads the keys at distances 0 to the layer's window - 1, itself included; 0: all. */
    int32_t layer_window[CONFIG_MAX_LAYERS];
};

/* Returns the first position that a query at `position` reads. */
static inline int config_window_first(const struct config *c, int layer, int position)
{
    const int window = c->layer_window[layer];
    return window && position >= window ? position - window + 1 : 0;
}

/* Whether any layer has a window. */
bool config_has_windows(const struct config *c);

/* Whether the layer's rotary positions have the base of layers with a window. */
static inline bool config_has_window_base(const struct config *c, int layer)
{
    return c->layer_window[layer] && c->rope.window_base > 0;
}

/* Sets the architecture with the kinds of its row; d_model is known. */
void config_set_arch(struct config *c, const struct arch *arch);

/* Returns NULL, or why additive scores are impossible here. */
const char *config_score_refusal(const struct config *c);

/* STATUS_USAGE if scores are additive, which `what` cannot handle. */
enum status config_needs_dot(const struct config *c, const char *what, struct err *e);

/* Returns what attention's scores are multiplied by; 1 for additive ones. */
float config_score_scale(const struct config *c);

/* Fills in what is 0 and follows from the sizes: n_kv_heads, head_dim, value_dim, rope. */
void config_complete(struct config *c);

/* "MHA", "MQA" or "GQA-n"; "GQA-mixed-n" where some layers have fewer than n. Written to name [16].
 */
void config_variant_name(const struct config *c, char *name);

/* "6, 2, 1": the K/V heads by layer, "" where one number says it; or the windows by layer, "" where
 * none has one. Written to list[size]. */
void config_list_layers(const struct config *c, bool windows, char *list, size_t size);

/* Returns a layer's K/V heads in the variant of n_kv_heads: its own, but no more than these. */
static inline int config_variant_heads(const struct config *c, int n_kv_heads, int layer)
{
    const int own = c->layer_kv_heads[layer];
    return own && own < n_kv_heads ? own : n_kv_heads;
}

/* Returns a layer's K/V heads. */
static inline int config_kv_heads(const struct config *c, int layer)
{
    return config_variant_heads(c, c->n_kv_heads, layer);
}

/* Returns the K/V heads of all layers together. */
int64_t config_all_kv_heads(const struct config *c);

/* Whether all layers have n_kv_heads. */
bool config_same_kv_heads(const struct config *c);

/* Whether there is a variant of at most n_kv_heads K/V heads: in every layer a divisor of the query
 * heads. */
bool config_has_variant(const struct config *c, int n_kv_heads);

/* The query heads that share one of a layer's K/V heads. */
static inline int config_group(const struct config *c, int layer)
{
    return c->n_heads / config_kv_heads(c, layer);
}

static inline int config_value_dim(const struct config *c)
{
    return c->value_dim ? c->value_dim : c->head_dim;
}

/* Elements of a token in a layer: of its queries, of its heads' results, of its keys, of its
 * values, of Q, K and V together. */
static inline int config_q_dim(const struct config *c)
{
    return c->n_heads * c->head_dim;
}

static inline int config_heads_dim(const struct config *c)
{
    return c->n_heads * config_value_dim(c);
}

static inline int config_k_dim(const struct config *c, int layer)
{
    return config_kv_heads(c, layer) * c->head_dim;
}

static inline int config_v_dim(const struct config *c, int layer)
{
    return config_kv_heads(c, layer) * config_value_dim(c);
}

static inline int config_qkv_dim(const struct config *c, int layer)
{
    return config_q_dim(c) + config_k_dim(c, layer) + config_v_dim(c, layer);
}

/* Whether a block's parts are added to what they read: there are residual connections. */
static inline bool config_adds(const struct config *c)
{
    return c->placement != PLACEMENT_ALONE;
}

/* Returns how many blocks have tensors. */
static inline int config_blocks(const struct config *c)
{
    return c->shared ? 1 : c->n_layers;
}

/* Returns the block whose tensors a layer uses. */
static inline int config_block(const struct config *c, int layer)
{
    return c->shared ? 0 : layer;
}
