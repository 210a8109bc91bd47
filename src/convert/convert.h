/*
 * convert - an MHA or GQA checkpoint to one with fewer K/V heads.
 *
 * The heads of a group come to share one K and one V head:
 *
 * - mean, first, random: what the GQA paper compares (Ainslie et al. 2023, section 2.1), the mean
 *   of the group's heads, the first of them, or random numbers of their size; the query and output
 *   matrices stay.
 * - procrustes: the heads are first aligned by rotations, folded into queries and output (after
 *   Jin et al. 2024, arXiv 2412.20677), then averaged.
 * - fit: without rotary positions any invertible map may be folded between a head's keys and
 *   queries, and between its values and its rows of the output matrix. Keys: the shared head with
 *   the least squared error of all scores q.k, over all pairs of positions and up to constants of
 *   a row, which softmax ignores (Eckart and Young; the gauge in which every head's queries are
 *   white). Values: the mirror image, the least squared error of what each head adds to the
 *   output, position by position.
 *
 * Errors are measured over the normed inputs of calibration text, or, without text, over those that
 * the layer norm's gain and bias allow, all directions alike. With text, the output matrix can be
 * refitted (ridge regression) to what the converted attention really gives; layers go in order,
 * so that each makes good for what the ones before it lost.
 *
 * A checkpoint with fewer K/V heads than query heads is taken as one in which neighbours have equal
 * heads; so every divisor of n_heads is possible. Permuting query heads together with their rows
 * of the output matrix changes nothing: any grouping is written as neighbours.
 */
#ifndef DECODE_CONVERT_CONVERT_H
#define DECODE_CONVERT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "gguf/gguf.h"

enum convert_method {
    CONVERT_MEAN,
    CONVERT_FIRST,
    CONVERT_RANDOM,
    CONVERT_PROCRUSTES,
    CONVERT_FIT,
};

/* "mean", "first", "random", "procrustes", "fit", NULL: in the order of the enum. */
extern const char *const convert_methods[];

struct convert_spec {
    const struct gguf *gguf;       /* the checkpoint */
    const struct file_map *source; /* of gguf, may be NULL; its pages are released once read */
    const char *source_name;       /* for the metadata */
    const char *version;           /* of the program, for the metadata */
    int n_kv_heads;                /* a divisor of n_heads, at most the checkpoint's own */
    enum convert_method method;
    bool cluster;          /* group by likeness, not by neighbourhood */
    bool refit;            /* the output matrix; needs tokens */
    uint64_t seed;         /* of CONVERT_RANDOM */
    const int32_t *tokens; /* calibration text, taken in windows of the checkpoint's context */
    size_t n_tokens;       /* 0: none */
    const struct kernels *kernels; /* NULL: the fastest */
    struct pool *pool;             /* NULL: one thread */
    /* Called now and then from the calling thread; `arg` goes to both. May be NULL. */
    bool (*stop)(void *arg); /* true: end with STATUS_INTERRUPTED */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* windows, through every layer */
    void *arg;
};

/* Shares of energy lost on the calibration text (or what stands in for it). */
struct convert_layer {
    double score; /* squared error of the heads' scores over their own centred squares */
    /* The same of what attention adds to the residual stream. With text as measured after it,
     * with what the layers before have lost; without text, head by head and before mixing. */
    double output;
};

/* The new checkpoint. */
struct convert {
    int n_layers;
    struct convert_layer *layers;
    struct gguf_writer *writer; /* holds everything: gguf_write or gguf_write_memory is left */
    struct arena arena;
};

/* Memory that convert_run takes, for the new tensors and while it works. STATUS_USAGE or
 * STATUS_BAD_FILE if the specification cannot be carried out; STATUS_NO_MEMORY. */
enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e);

/*
 * Converts. The result borrows spec->gguf, whose unchanged tensors it shares; convert_free is due
 * on success. The failures of convert_plan and model_create; STATUS_INTERRUPTED; STATUS_FAILED if
 * the weights are not finite, or no longer fit the type of their tensor. The same bits for any
 * number of threads.
 */
enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e);

void convert_free(struct convert *c); /* legal on a zeroed struct and twice */

#endif
