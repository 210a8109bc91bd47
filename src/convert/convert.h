/*
 * convert - an MHA or GQA checkpoint to one with fewer K/V heads; how alike heads are, and a
 * checkpoint without some of them.
 *
 * The heads of a group come to share one K and one V head:
 *
 * - mean, first, random: as the GQA paper compares them (Ainslie et al. 2023, section 2.1): the
 *   mean of the group's heads, the first, or random numbers of their size; queries and output stay.
 * - procrustes: the heads are first aligned by rotations, folded into queries and output (after
 *   Jin et al. 2024, arXiv 2412.20677), then averaged.
 * - fit: any invertible map may be folded between a head's keys and queries, and between its values
 *   and its rows of the output matrix. Keys: the shared head with the least squared error of all
 *   scores q.k, up to constants of a row, which softmax ignores (Eckart and Young; the gauge in
 *   which every head's queries are white). Values: the mirror image, the least squared error of
 *   what each head adds to the output.
 *
 * Rotary positions turn neighbouring pairs of queries and keys, each at its own frequency: a pair
 * is a complex number, and only a complex factor a pair may be folded between keys and queries. So
 * fit finds for each pair the leading eigenvector of the heads' complex second moments, weighted by
 * the queries' energy; and the keys' means count. procrustes turns pairs only.
 *
 * Errors are measured over what Q, K and V take of calibration text, or, without text, over all
 * directions that the norm before them allows. With text, weights can be refitted (refit.c) to what
 * the converted attention really computes, layer by layer, so that each makes good for what those
 * before it lost; layers that share a block together, on the checkpoint's own stream.
 *
 * Of a checkpoint with shared heads neighbours count as equal heads: every divisor of n_heads is
 * possible. Layers that have no more K/V heads than wanted keep theirs, but may be refitted. Query
 * heads may be permuted with their rows of the output matrix and their trained biases of scores, so
 * any grouping is written as neighbours; ALiBi's slopes stay where they are, so there only
 * neighbours can share.
 *
 * The new file has the old one's tensors, and no bias that it had not. (Means of values in new
 * biases brought 0.005 nats a token of 0.18 on a trained llama.)
 */
#pragma once

#include "model/model.h"

/* --- what is wanted -------------------------------------------------------------------------- */

enum convert_method {
    CONVERT_MEAN,
    CONVERT_FIRST,
    CONVERT_RANDOM,
    CONVERT_PROCRUSTES,
    CONVERT_FIT,
};

/* Their names, then NULL. */
extern const char *const convert_methods[];

/* What is fitted to text beyond the shared heads; each includes those before it. */
enum convert_refit {
    CONVERT_REFIT_NONE,
    CONVERT_REFIT_WO,    /* the output matrix */
    CONVERT_REFIT_ALL,   /* what Q, K, V and the feed-forward part take and give; values and outputs
                            by turns */
    CONVERT_REFIT_BLOCK, /* Q, K, V and the output matrix together, by their gradients */
};

/* Their names, then NULL. */
extern const char *const convert_refits[];

/* Of so many windows one is kept aside, on which what was fitted to the others is judged. */
#define CONVERT_JUDGED     8
#define CONVERT_MAX_WINDOW 256 /* a first position each, on which heads park */
#define CONVERT_MIN_TOKENS (CONVERT_JUDGED * 16)

/* Tokens of a window, of n calibration tokens: few enough that one is kept aside. */
static inline int convert_window_size(int n_ctx, size_t n)
{
    const int most = MIN(n_ctx, CONVERT_MAX_WINDOW);
    return (size_t)most < n / CONVERT_JUDGED ? most : (int)(n / CONVERT_JUDGED);
}

struct convert_spec {
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* of gguf, may be NULL; its pages are released once read */
    const char *source_name;       /* for the metadata */
    const char *version;           /* of the program, for the metadata */
    int n_kv_heads;                /* a divisor of n_heads, no more than there are */
    const int *layer_kv_heads;     /* [n_layers] instead; NULL: n_kv_heads */
    size_t cache_bytes; /* not 0: K/V heads of each layer instead, those that do best for so many
                           bytes of F32 a token */
    enum convert_method method;
    bool cluster;                  /* group by likeness, not by neighbourhood; not with ALiBi */
    enum convert_refit refit;      /* needs tokens */
    uint64_t seed;                 /* of CONVERT_RANDOM */
    const int32_t *tokens;         /* calibration text, which cache_bytes needs, too */
    size_t n_tokens;               /* 0: none; else at least CONVERT_MIN_TOKENS */
    bool measures_only;            /* nothing is fitted or kept aside: any number of tokens does */
    const struct kernels *kernels; /* NULL: the fastest */
    struct pool *pool;             /* NULL: one thread */
    /* Called now and then from the calling thread; `arg` goes to both. May be NULL. */
    bool (*stop)(void *arg); /* true: end with STATUS_INTERRUPTED */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* windows, through every layer */
    void *arg;
};

/* --- the conversion -------------------------------------------------------------------------- */

/* Shares of energy lost on the calibration text (or what stands in for it): squared errors over
 * squares. */
struct convert_layer {
    int layer;
    double score;  /* of the heads' scores; of all layers that share a block */
    double output; /* of what attention adds to the residual stream: with text all that is lost up
                      to there, without head by head */
    /* With text, else NaN. What attention adds against what it added before the conversion, both
     * from the converted model's stream: of all positions of a window but the first, and of that
     * one, where a few channels can be a thousand times as large as elsewhere (attention sinks). */
    double own, own_first;
    double gathered; /* of the residual stream behind the layer, but for first positions */
};

/* The new checkpoint. */
struct convert {
    int n_layers;
    struct config config; /* of the result */
    double divergence;    /* from the checkpoint's predictions, in nats a token, on windows kept
                             aside; NaN without text */
    struct convert_layer *layers;
    uint64_t n_params_before, n_params_after; /* elements of all tensors, a tied output once */
    struct gguf_writer *writer; /* holds everything: gguf_write or gguf_write_memory is left */
    struct arena arena;
};

/* Memory that convert_run takes beside the model and what runs it; with cache_bytes nearly so, as
 * the K/V heads are not known yet. STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be
 * carried out; STATUS_NO_MEMORY. */
enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e);

/* The result borrows spec->gguf's unchanged tensors; convert_free is due on success. The same bits
 * for any number of threads. The failures of convert_plan and model_create; STATUS_INTERRUPTED;
 * STATUS_FAILED if weights are not finite, or no longer fit the type of their tensor. */
enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e);

void convert_free(struct convert *c); /* legal on a zeroed struct and twice */

/* --- how alike heads are --------------------------------------------------------------------- */

/* How well two heads of a layer could share a key and a value, by which `cluster` groups: the
 * shares of both heads' energy that are kept. */
struct head_likeness {
    double score;  /* of their scores, with one key: 1 for heads that have one already */
    double output; /* of what they add to the residual stream, with one value */
};

/* Of every two heads of every layer, kept [n_layers, n_heads, n_heads], on spec->tokens; 1 of a
 * head with itself. `model` is that of spec->gguf; what else spec wants must be zeroed. Layers that
 * share a block have the same. The same bits for any number of threads. STATUS_USAGE without a
 * token; STATUS_NO_MEMORY; STATUS_INTERRUPTED; STATUS_FAILED if weights are not finite. */
enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *kept, struct err *e);
