/*
 * model - the weights of a checkpoint, checked and laid out for the kernels.
 *
 * A loaded model is immutable: any number of sessions and threads may read it.
 */
#pragma once

#include "base/mem.h"
#include "compute/pool.h"
#include "model/layout.h"
#include "model/positions.h"
#include "text/tokenizer.h"

/* A norm's parameters; which norm it is the config says. */
struct norm {
    const float *gain; /* [d_model]; NULL: ones */
    const float *bias; /* [d_model]; NULL: zeros */
};

/* A role's tensors as the kernels read them, by the form of its row in the layout; shapes are
 * the layout's. */
struct weight {
    struct matrix matrix; /* FORM_MATRIX: [rows, cols] */
    struct norm norm;     /* FORM_NORM */
    const float *table;   /* FORM_TABLE: [rows, cols] */
};

/* The weights of a layer, and what follows from them. */
struct block {
    /* By role; those outside of the blocks stay zero. Q, K and V are one matrix, of ROLE_ATTN_QKV,
     * whatever tensors they come from. */
    struct weight w[TENSOR_ROLES];
    const struct attend_bias *bias; /* [n_heads] what distances do to scores; NULL: nothing */
};

/* A loaded model. */
struct model {
    struct config config;
    struct weight w[TENSOR_ROLES]; /* outside of the blocks, by role; `output` shares the
                                      embedding's panels when tied */
    struct block *blocks;          /* [n_layers]; all the same where layers share one */
    bool tied;                     /* layout_output_tied */
    const char *name;              /* path of its file for messages, borrowed; NULL: no file */
    struct arena weights;          /* all of the above; weights.cap is the bytes taken */
};

/* How a model may differ from its file. */
struct model_options {
    /* The most K/V heads, as heads_check has them: layers that have more in the file get random Q,
     * K and V, for measuring time. 0: as in the file. */
    int random_kv_heads;
    bool convert;         /* store the matrices as `storage`, not as in the file */
    enum storage storage; /* if convert; see layout_type */
    struct pool *pool;    /* its threads copy the matrices; NULL: one does */
};

/*
 * Builds a model from a parsed file: every tensor is looked up with its expected shape and type,
 * then copied into the kernels' layout. `o` may be NULL: nothing differs. `source` (may be NULL)
 * is the mapping that g reads: its pages are released as they are copied, so that the file does
 * not stay in memory twice. g and the mapping may be freed after. STATUS_BAD_FILE names the
 * tensor, expected and found; STATUS_USAGE an impossible option; STATUS_NO_MEMORY. *out is for
 * model_free; NULL on failure.
 */
enum status model_create(const struct gguf *g, const struct model_options *o,
                         const struct file_map *source, struct model **out, struct err *e);

/* Finds what model_create would refuse of the file itself, without taking memory: STATUS_BAD_FILE.
 */
enum status model_check(const struct gguf *g, struct err *e);

/* Makes a model of the given shape with small random weights, untied, for measuring time, which
 * does not depend on them. The shape's sizes are positive (trusted). */
enum status model_create_random(const struct config *c, enum storage storage, uint64_t seed,
                                struct model **out, struct err *e);

void model_free(struct model *m); /* NULL is legal */

/* Writes row `token` of the embedding, scaled, plus position `t`'s vector if positions have such,
 * and normed where the model norms it, to out [d_model]. */
void model_embed(const struct model *m, const struct positions *p, const struct kernels *kernels,
                 int token, int t, float *out);

/* --- checkpoint ------------------------------------------------------------------------------- */

/* A file opened from a path with the parts that are asked for: what every command starts with. */
struct checkpoint {
    struct file_map file;
    struct gguf *gguf;
    struct model *model;         /* NULL unless asked for */
    struct tokenizer *tokenizer; /* NULL when the file has none */
};

enum checkpoint_parts {
    CHECKPOINT_TOKENIZER = 1, /* required: a file without one is an error */
    CHECKPOINT_MODEL = 2,
    CHECKPOINT_TEXTS = 4, /* a tokenizer that makes tokens of texts, which not all do */
};

/* Parses an open file, or memory in its place, and builds the parts asked for (a tokenizer that is
 * present is always built). The checkpoint owns the file from then on, also on failure, and *file
 * is zeroed. Messages begin with the path, which is borrowed as the model's name. The pool is as in
 * model_options. On failure everything is released. */
enum status checkpoint_take(struct file_map *file, const char *path, unsigned parts,
                            struct pool *pool, struct checkpoint *c, struct err *e);
void checkpoint_close(struct checkpoint *c); /* legal on a zeroed struct and twice */
