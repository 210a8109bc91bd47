/*
 * convert - an MHA or GQA checkpoint to one with fewer K/V heads, or with a latent cache, for which
 * see convert/latent.h.
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
 * Rotary positions turn neighbouring pairs of queries and keys, each pair at its own frequency: a
 * pair is a complex number, and what may be folded between a head's keys and queries is one complex
 * factor a pair. So fit finds for each pair the shared complex key with the least squared error,
 * averaged over all turns: the leading eigenvector of the heads' complex second moments, weighted
 * by the queries' energy. Nothing moves from one frequency to another, and the keys' means count.
 * procrustes turns pairs only. Elements that are not turned, and values, are as free as ever.
 *
 * Errors are measured over what Q, K and V take of calibration text, or, without text, over what
 * the norm before them allows, all directions alike (of embeddings that no norm follows, over all
 * directions). With text, weights can be refitted (convert/refit.h) to what the converted attention
 * really computes; layers go in order, so that each makes good for what the ones before it lost.
 * Layers that share one block are calibrated together, and refitted together, each on the
 * checkpoint's own stream.
 *
 * A checkpoint with fewer K/V heads than query heads is taken as one in which neighbours have equal
 * heads; so every divisor of n_heads is possible. Layers that have no more K/V heads than wanted
 * keep theirs, but may be refitted. Permuting query heads together with their rows of the output
 * matrix, and with their biases of scores where these are trained, changes nothing: any grouping is
 * written as neighbours. ALiBi's slopes stay where they are, so there only neighbours can share.
 *
 * The new file has the old one's tensors, joined or separate, and no bias that it had not, unless
 * its cache is latent. (Means of values moved into new biases brought 0.005 nats a token of 0.18 on
 * a trained llama.)
 */
#ifndef DECODE_CONVERT_CONVERT_H
#define DECODE_CONVERT_CONVERT_H

#include "base/mem.h"
#include "convert/spec.h"

/* Shares of energy lost on the calibration text (or what stands in for it). */
struct convert_layer {
    /* Squared error of the heads' scores over their own squares, centred but for rotary positions;
     * of layers that share a block, over all of them. */
    double score;
    /* The same of what attention adds to the residual stream. With text as measured after it,
     * with what the layers before have lost; without text, head by head and before mixing. */
    double output;
};

/* The new checkpoint. */
struct convert {
    int n_layers;
    struct config config; /* of the result */
    double divergence;    /* from the checkpoint's predictions, in nats a token, on windows of the
                             calibration text that nothing was fitted to; NaN without text */
    double plain_divergence; /* the same if neighbouring heads shared their plain mean; of latent
                                caches `divergence` */
    struct convert_layer *layers;
    int *head_order; /* [n_layers, n_heads] which of the old heads each new one was */
    uint64_t n_params_before, n_params_after; /* elements of all tensors, a tied output once */
    struct gguf_writer *writer; /* holds everything: gguf_write or gguf_write_memory is left */
    struct arena arena;
};

/* Memory that convert_run takes, for the new tensors and while it works, beside the model and what
 * runs it; with cache_bytes nearly so, because the ranks are not known yet. STATUS_USAGE or
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
