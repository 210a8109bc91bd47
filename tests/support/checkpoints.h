/*
 * checkpoints - makes small random checkpoints for tests.
 */
#ifndef TESTS_CHECKPOINTS_H
#define TESTS_CHECKPOINTS_H

#include "formats/gguf.h"
#include "model/config.h"
#include "model/model.h"

/* Opens some parts (enum checkpoint_part) of a file; the caller closes it. */
static inline enum status checkpoint_open(const char *path, unsigned parts, struct checkpoint *c,
                                          struct err *e)
{
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(file_map_open(&file, path, e));
    return checkpoint_take(&file, path, parts, NULL, c, e);
}

/* Opens some parts of a file, and closes it when the test ends. */
struct checkpoint opened_checkpoint(const char *path, unsigned parts);

/* Initialises the sizes of a shape or a config: dim is the elements of a head. */
#define SIZES(layers, heads, kv_heads, dim, ff, ctx, vocab)                                        \
    .n_layers = (layers), .n_heads = (heads), .n_kv_heads = (kv_heads), .head_dim = (dim),         \
    .d_ff = (ff), .n_ctx = (ctx), .n_vocab = (vocab)

struct checkpoint_shape {
    const char *architecture; /* NULL: gpt2 */
    int n_layers, n_heads, n_kv_heads, head_dim, d_ff, n_ctx, n_vocab;
    int d_model; /* 0: n_heads * head_dim; else head_dim stands in attention.key_length */
    /* K/V heads that the weights are drawn for; 0: n_kv_heads. With fewer, each drawn head is
     * copied to the n_kv_heads / base_kv_heads neighbours that share its values. */
    int base_kv_heads;
    uint32_t type;           /* of the matrices: an enum tensor_type */
    uint32_t embedding_type; /* of the token embedding, if not TENSOR_F32; else as the others */
    int no_biases;
    int tied;
    int no_tokenizer;
    uint64_t seed;
};

/* The shape of "layers=2 heads=4 kv=2 dim=8 ff=32 ctx=64 vocab=256 seed=3", each of which may be
 * left out; also base, width (d_model), no_biases, tied, no_tokenizer. All is F32. */
struct checkpoint_shape shape_of(const char *sizes);

/* The config of an architecture or preset with sizes such as "layers=2 heads=4 kv=2 dim=8 width=32
 * ff=64 ctx=16 vocab=260"; epsilon is 1e-5. The caller may change it and calls config_complete. */
struct config config_sized(const char *arch, const char *sizes);

/* Sizes and kinds of a model. A preset decides the kinds; without one (NULL) they are those of `c`,
 * and the architecture is `decode`. Epsilon is 1e-5 and the scale of embeddings 1 if they are 0. */
struct model_case {
    const char *preset;
    struct config c;
    unsigned as; /* see write_config_checkpoint_as */
};
struct config config_of_case(const struct model_case *m);

/* Checks all that a file says of a model. */
void expect_same_config(const struct config *found, const struct config *expected);

/* Writes the checkpoint to `path`; fails the running test if it cannot. The vocabulary is the
 * 256 bytes, then "<x256>" and so on as user-defined tokens. */
void write_checkpoint(const char *path, const struct checkpoint_shape *shape);
/* Writes such a checkpoint to a scratch file, "made.gguf", and opens it until the test ends. */
struct checkpoint made_checkpoint(const struct checkpoint_shape *shape);

/* Writes a checkpoint of any architecture, all F32 and with its own output matrix. Fields that
 * follow from others may be 0 (config_complete). */
void write_config_checkpoint(const char *path, const struct config *c);

/* Writes one with these differences. */
enum { CONFIG_TIED = 1, CONFIG_NO_TOKENIZER = 2, CONFIG_ROPE_FACTORS = 4 };
void write_config_checkpoint_as(const char *path, const struct config *c, unsigned as);

#endif
