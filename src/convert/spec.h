/*
 * spec - which conversion is wanted.
 */
#ifndef DECODE_CONVERT_SPEC_H
#define DECODE_CONVERT_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "gguf/gguf.h"
#include "model/config.h"

enum convert_method {
    CONVERT_MEAN,
    CONVERT_FIRST,
    CONVERT_RANDOM,
    CONVERT_PROCRUSTES,
    CONVERT_FIT,
};

/* "mean", "first", "random", "procrustes", "fit", NULL: in the order of the enum. */
extern const char *const convert_methods[];

/* What is fitted to text, beyond the shared heads themselves: each includes those before it. */
enum convert_refit {
    CONVERT_REFIT_NONE,
    CONVERT_REFIT_WO,    /* the output matrix */
    CONVERT_REFIT_ALL,   /* what Q, K, V and the feed-forward part take and give; values and outputs
                            by turns */
    CONVERT_REFIT_BLOCK, /* Q, K, V and the output matrix together, by their gradients */
};

/* "none", "wo", "all", "block", NULL: in the order of the enum. */
extern const char *const convert_refits[];

/* Every so many windows one is kept aside: nothing is fitted to it, and what was fitted counts as
 * better if it is so there. */
#define CONVERT_JUDGED     8
#define CONVERT_MAX_WINDOW 1024
#define CONVERT_MIN_TOKENS (CONVERT_JUDGED * 16)

/* Tokens of a window of n calibration tokens, for a checkpoint with a context of n_ctx: few enough
 * that one is kept aside. */
static inline int convert_window_size(int n_ctx, size_t n)
{
    const int most = n_ctx < CONVERT_MAX_WINDOW ? n_ctx : CONVERT_MAX_WINDOW;
    return (size_t)most < n / CONVERT_JUDGED ? most : (int)(n / CONVERT_JUDGED);
}

struct convert_spec {
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* of gguf, may be NULL; its pages are released once read */
    const char *source_name;       /* for the metadata */
    const char *version;           /* of the program, for the metadata */
    int n_kv_heads;                /* of every layer at most: a divisor of n_heads, and no more than
                                      the checkpoint has */
    const int *layer_kv_heads;     /* [n_layers] of each, at most n_kv_heads; NULL: n_kv_heads */
    const int
        *latent; /* [n_layers] ranks of latent caches instead; NULL: K/V heads. Needs tokens */
    /* Not 0: latent caches of the ranks that do best for so many bytes of F32 a token; `latent` is
     * not looked at. */
    size_t cache_bytes;
    enum convert_method method;
    bool cluster;             /* group by likeness, not by neighbourhood; not with ALiBi */
    enum convert_refit refit; /* needs tokens */
    uint64_t seed;            /* of CONVERT_RANDOM */
    const int32_t *tokens;    /* calibration text, taken in windows of convert_window_size */
    size_t n_tokens;          /* 0: none; else at least CONVERT_MIN_TOKENS */
    bool measures_only; /* nothing is fitted: no window is kept aside, any number of tokens does */
    const struct kernels *kernels; /* NULL: the fastest */
    struct pool *pool;             /* NULL: one thread */
    /* Called now and then from the calling thread; `arg` goes to both. May be NULL. */
    bool (*stop)(void *arg); /* true: end with STATUS_INTERRUPTED */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* windows, through every layer */
    void *arg;
};

/* STATUS_USAGE if a checkpoint of this config cannot be converted so; STATUS_BAD_FILE for a tensor
 * of a type that does not run here. */
enum status convert_spec_check(const struct convert_spec *spec, const struct config *config,
                               struct err *e);

static inline bool convert_is_stopped(const struct convert_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

#endif
