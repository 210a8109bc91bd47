/*
 * backprop - loss and gradient of a checkpoint on batches of token windows.
 *
 * The forward pass is the engine's block over whole windows, of any architecture; the backward pass
 * computes the gradient of the mean cross-entropy by every parameter that is trained (of others it
 * is 0). Saved for it are each layer's inputs, queries, keys, values, attention outputs and
 * feed-forward products; norms, activations and attention probabilities are computed again, and
 * logits exist for some rows at a time.
 *
 * All memory is taken at the start. The bits are the same for any number of threads: each sum over
 * the batch is one chain in the order of its tokens. One caller at a time.
 */
#ifndef DECODE_TRAIN_BACKPROP_H
#define DECODE_TRAIN_BACKPROP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "model/pack.h"

struct backprop_params {
    const struct config *config; /* borrowed */
    int n_sequences;             /* windows in a batch, at most */
    int length;                  /* tokens of a window, at most the context */
    bool forward_only;           /* no gradient will be asked for: takes less memory */
    bool dropping;               /* batches may have dropout: takes room for masked gradients */
    bool taught;                 /* a teacher may be given: takes room for its logits */
    const struct kernels *kernels;
};

/* Which numbers of a training step are left out (Srivastava et al. 2014): a hash of key, site and
 * place decides, so that the backward pass finds them again. Sites are the points of the residual
 * stream, for what is added there (0: the embedding, 2 l + 1 and 2 l + 2: by block l's attention
 * and feed-forward part), then one a layer for the probabilities of its attention. */
struct dropout {
    double share; /* left out, 0 to below 1; the others are scaled up by 1 / (1 - share) */
    uint64_t key;
};

struct backprop;

/* Counts what backprop_start will take, backprop_bytes of memory. `pool` (NULL: one thread) is
 * borrowed and outlives *out. STATUS_NO_MEMORY. */
enum status backprop_create(const struct backprop_params *p, struct pool *pool,
                            struct backprop **out, struct err *e);
size_t backprop_bytes(const struct backprop *b);

/* Takes the memory, before the first pass. rope_factors divide the frequencies of rotary pairs
 * (NULL: none) and are needed here only. STATUS_NO_MEMORY. */
enum status backprop_start(struct backprop *b, const float *rope_factors, struct err *e);
void backprop_free(struct backprop *b); /* NULL is legal */

/* Windows [n_sequences][length] of token ids below n_vocab (trusted), and the token that follows
 * each. With label smoothing s the gradient is that of (1 - s) times the cross-entropy plus s times
 * the mean over the vocabulary of -log probability (Szegedy et al. 2016; Vaswani et al. 2017, 5.4).
 * With a teacher it is that of (1 - share) * all of this + share * KL(teacher || model). */
struct backprop_batch {
    const int32_t *inputs, *targets;
    int n_sequences;
    /* Of a gradient only. */
    struct dropout dropout; /* of the embeddings and of what each block adds to the residual */
    double attn_dropout; /* share of attention's probabilities that is left out, by the same key */
    float label_smoothing;
    /* Of the same n_sequences, length, n_vocab and pool, and it may be forward only; NULL: none. */
    struct backprop *teacher;
    const struct param_view *teacher_weights;
    float teacher_share;
};

/* The mean cross-entropy in nats a token; may not be finite. Adds to `gradient` (NULL: not asked
 * for), of as many windows as `b` has at most. */
double backprop_run(struct backprop *b, const struct param_view *weights,
                    const struct backprop_batch *batch, struct param_view *gradient);

#endif
