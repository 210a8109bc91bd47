/*
 * convert - an MHA or GQA checkpoint to one with fewer K/V heads. README.md has the algorithm.
 *
 * The new file has the old one's tensors, and no bias that it had not. (Means of values in new
 * biases brought 0.005 nats a token of 0.18 on a trained llama.)
 */
#pragma once

#include "base/callbacks.h"
#include "formats/gguf_write.h"
#include "model/model.h"

enum convert_method {
    CONVERT_MEAN,
    CONVERT_FIRST,
    CONVERT_RANDOM,
    CONVERT_PROCRUSTES, /* this and the next map queries and keys */
    CONVERT_FIT,
};

/* The names of the methods, then NULL. */
extern const char *const convert_methods[];

/* What is fitted to text beyond the shared heads: "none" or "wo", the output matrix; then NULL. */
extern const char *const convert_refits[];

/* One in so many windows is held out, to judge on it what was fitted to the others. */
#define CONVERT_HELD_OUT_EVERY 8
#define CONVERT_MAX_WINDOW     256 /* heads park on a window's first position: many are wanted */
#define CONVERT_MIN_TOKENS     (CONVERT_HELD_OUT_EVERY * 16)

/* Returns the tokens of a window when there are n calibration tokens: so few that at least one
 * window is held out. */
static inline int convert_window_size(int n_ctx, size_t n)
{
    const int most = MIN(n_ctx, CONVERT_MAX_WINDOW);
    return (size_t)most < n / CONVERT_HELD_OUT_EVERY ? most : (int)(n / CONVERT_HELD_OUT_EVERY);
}

#define CALIBRATION_TOKENS 65536 /* the default of a calibration text */

/* The tokens of a text to which a conversion is fitted. */
struct text_sample {
    int32_t *tokens; /* [n] malloc'd, freed by the caller */
    size_t n;
};

/* Takes a text's tokens, without BOS: all, or about `wanted` in whole windows at equal distances.
 * Only the beginning of a much longer text is read. STATUS_USAGE for fewer tokens than
 * CONVERT_MIN_TOKENS; the failures of tokenizer_encode. */
enum status text_sample_take(const struct tokenizer *t, int n_ctx, struct text text, size_t wanted,
                             struct text_sample *out, struct err *e);

struct convert_spec {
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* gguf's file, whose pages are released once read; or NULL */
    const char *source_name;       /* for the metadata */
    const char *version;           /* of the program, for the metadata */
    int n_kv_heads;                /* a divisor of n_heads, no more than the checkpoint has */
    const int *layer_kv_heads;     /* [n_layers] a number for each layer; NULL: n_kv_heads */
    size_t cache_bytes; /* if not 0, each layer gets the K/V heads that do best where a token takes
                           at most so many bytes of an F32 cache */
    enum convert_method method;
    bool cluster;                  /* like heads share, not neighbours; impossible with ALiBi */
    bool refit;                    /* whether the output matrix is fitted to the tokens, too */
    bool widens;                   /* whether new tensors are F32; if not, they keep their types */
    uint64_t seed;                 /* of CONVERT_RANDOM */
    const int32_t *tokens;         /* [n_tokens] calibration text; cache_bytes needs it */
    size_t n_tokens;               /* 0, or at least CONVERT_MIN_TOKENS */
    const struct kernels *kernels; /* NULL: the fastest */
    struct pool *pool;             /* NULL: one thread */
    struct callbacks callbacks;    /* progress is counted in windows, times layers */
};

/* What a layer lost, as shares of energy (squared errors over squares) on the calibration text, or
 * on what is assumed without one. */
struct convert_layer {
    int layer;
    double score;  /* of the heads' scores, in all layers that share the block */
    double output; /* of what attention adds to the residual stream. With a text this is all that
                      was lost up to there; without one, what the heads lose one by one */
};

/* The new checkpoint. */
struct convert {
    int n_layers;
    struct config config; /* of the result */
    double divergence;    /* from the checkpoint's predictions, in nats a token, on windows held
                             out; NaN without a text */
    struct convert_layer *layers; /* [n_layers] */
    unsigned new_types;           /* of the new matrices: bit 1 << s for each enum storage s */
    bool retyped;                 /* whether a new matrix has another type than in the checkpoint */
    struct gguf_writer *writer;   /* holds everything: gguf_write or gguf_write_memory is left */
    struct arena arena;
};
void convert_free(struct convert *c); /* legal on a zeroed struct and twice */

/* How many bytes convert_run needs beside the model and what runs it. With cache_bytes that is an
 * estimate, because the K/V heads are not known yet. STATUS_USAGE or STATUS_BAD_FILE if the
 * specification cannot be carried out; STATUS_NO_MEMORY if nobody could have so many bytes. */
enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e);

/* Converts. The result borrows the unchanged tensors of spec->gguf; convert_free is due on success.
 * The bits are the same for any number of threads. The failures of convert_plan and model_create;
 * STATUS_INTERRUPTED; STATUS_FAILED if weights are not finite, or too large for their tensor's
 * type.
 */
enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e);

/* Makes a model of the result, stored as `how` says, in memory of its own; model_free is due. The
 * failures of gguf_parse and model_create. */
enum status convert_model(const struct convert *converted, const struct model_options *how,
                          struct model **out, struct err *e);
