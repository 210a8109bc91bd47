/*
 * model - the weights of a checkpoint, checked and laid out for the kernels.
 *
 * A loaded model is immutable: any number of sessions and threads may read it.
 */
#ifndef DECODE_MODEL_MODEL_H
#define DECODE_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "compute/kernels.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "text/tokenizer.h"

struct norm {
    const float *gain; /* [d_model] */
    const float *bias; /* [d_model], or NULL */
};

struct layer {
    struct norm attn_norm;
    struct matrix qkv;      /* [d_model + 2 * kv_dim, d_model], rows Q then K then V */
    struct matrix attn_out; /* [d_model, d_model] */
    struct norm ffn_norm;
    struct matrix up;   /* [d_ff, d_model] */
    struct matrix down; /* [d_model, d_ff] */
};

struct model {
    struct config config;
    struct matrix embed;   /* [n_vocab, d_model] */
    const float *position; /* [n_ctx, d_model] */
    struct layer *layers;  /* [n_layers] */
    struct norm output_norm;
    struct matrix output; /* [n_vocab, d_model]; shares embed's panels when tied */
    bool tied;            /* no output.weight in the file */
    struct arena weights; /* all of the above; weights.cap is the bytes taken */
};

/* How a model may differ from its file. */
struct model_options {
    /* K/V heads, a divisor of the file's: each new head is the mean of the heads it replaces
     * (Ainslie et al. 2023, section 2.1), weights and biases. 0: as in the file. */
    int n_kv_heads;
    bool convert;         /* store the matrices as `storage`, not as in the file */
    enum storage storage; /* if convert; see model_embedding_type */
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

/*
 * The type of the token embedding where the other matrices are of `type` (an enum tensor_type):
 * the same, but Q8_0 for Q4_0. Its rows enter the residual stream as they are, so their error is
 * not averaged over a sum (a trained toy checkpoint loses 0.07 nats a token with all matrices in
 * Q4_0, 0.02 with this exception), and a token reads only one of them, unless the matrix is the
 * output's too.
 */
uint32_t model_embedding_type(uint32_t type);

/* Whether matrices of this shape can be stored so; quantised rows are whole blocks. STATUS_USAGE.
 */
enum status model_check_storage(const struct config *c, enum storage s, struct err *e);

/* A model of the given shape with small random weights, untied: for measuring time, which does
 * not depend on them. The shape is trusted: sizes positive, head_dim * n_heads = d_model, and
 * right for the storage. */
enum status model_create_random(const struct config *c, enum storage storage, uint64_t seed,
                                struct model **out, struct err *e);

void model_free(struct model *m); /* NULL is legal */

/* Writes row `token` of the embedding plus position `t`'s vector to out [d_model]. */
void model_embed(const struct model *m, int token, int t, float *out);

/* A checkpoint opened from a path: what every command starts with. */
struct checkpoint {
    struct file_map file;
    struct gguf *gguf;
    struct model *model;         /* NULL unless asked for */
    struct tokenizer *tokenizer; /* NULL when the file has none */
};

enum checkpoint_parts {
    CHECKPOINT_TOKENIZER = 1, /* required: a file without one is an error */
    CHECKPOINT_MODEL = 2,
};

/* Maps and parses `path` and builds the parts asked for (a tokenizer that is present is always
 * built). Messages begin with the path. On failure everything is released. */
enum status checkpoint_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e);
void checkpoint_close(struct checkpoint *c); /* legal on a zeroed struct and twice */

#endif
