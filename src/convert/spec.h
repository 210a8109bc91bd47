/*
 * spec - what a conversion is asked for, and what it gives: the structs that its stages share.
 */
#pragma once

#include "base/callbacks.h"
#include "formats/gguf_write.h"
#include "model/model.h"

enum convert_method {
    CONVERT_MEAN,
    CONVERT_FIRST,
    CONVERT_RANDOM,
    CONVERT_PROCRUSTES,
    CONVERT_FIT,
};

/* Their names, then NULL. */
extern const char *const convert_methods[];

/* What is fitted to text beyond the shared heads. */
enum convert_refit {
    CONVERT_REFIT_NONE,
    CONVERT_REFIT_WO, /* the output matrix */
};

/* Their names, then NULL. */
extern const char *const convert_refits[];

/* One in so many windows is held out: what was fitted to the others is judged on it. */
#define CONVERT_HELD_OUT_EVERY 8
#define CONVERT_MAX_WINDOW     256 /* a first position each, on which heads park */
#define CONVERT_MIN_TOKENS     (CONVERT_HELD_OUT_EVERY * 16)

/* Tokens of a window, of n calibration tokens: few enough that one is held out. */
static inline int convert_window_size(int n_ctx, size_t n)
{
    const int most = MIN(n_ctx, CONVERT_MAX_WINDOW);
    return (size_t)most < n / CONVERT_HELD_OUT_EVERY ? most : (int)(n / CONVERT_HELD_OUT_EVERY);
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
    bool widens;                   /* new tensors are F32; else they keep their types */
    uint64_t seed;                 /* of CONVERT_RANDOM */
    const int32_t *tokens;         /* calibration text, which cache_bytes needs, too */
    size_t n_tokens;               /* 0: none; else at least CONVERT_MIN_TOKENS */
    const struct kernels *kernels; /* NULL: the fastest */
    struct pool *pool;             /* NULL: one thread */
    /* Called now and then from the calling thread; `arg` goes to both. May be NULL. */
    struct callbacks callbacks; /* of windows, through every layer */
};

/* Shares of energy lost on the calibration text (or what stands in for it): squared errors over
 * squares. */
struct convert_layer {
    int layer;
    double score;  /* of the heads' scores; of all layers that share a block */
    double output; /* of what attention adds to the residual stream: with text all that is lost up
                      to there, without head by head */
};

/* The new checkpoint. */
struct convert {
    int n_layers;
    struct config config; /* of the result */
    double divergence;    /* from the checkpoint's predictions, in nats a token, on windows held
                             out; NaN without text */
    struct convert_layer *layers;
    unsigned new_types; /* of the new matrices: bit 1 << s for each enum storage s */
    bool retyped;       /* whether one of them has not the type that it had in the checkpoint */
    struct gguf_writer *writer; /* holds everything: gguf_write or gguf_write_memory is left */
    struct arena arena;
};
void convert_free(struct convert *c); /* legal on a zeroed struct and twice */
