/*
 * backprop - loss and gradient of a checkpoint on batches of token windows.
 *
 * The forward pass is the engine's block over whole windows, of any architecture; the backward pass
 * computes the gradient of the mean cross-entropy by every parameter that is trained (of others it
 * is 0). Saved for it are each layer's inputs, queries, keys, values, attention outputs and
 * feed-forward products; norms, activations and attention probabilities are computed again, and
 * logits exist for some rows at a time. A batch passes in parts of some windows, so that what is
 * saved stays in the nearer caches. Larger batches of small models are summed in two halves, which
 * two threads pass by themselves.
 *
 * All memory is taken by backprop_start. The bits are the same for any number of threads: each sum
 * over the batch or a half of it is one chain in the order of its tokens. One thread at a time may
 * call the functions on one struct backprop; they start the threads of its pool themselves.
 */
#pragma once

#include "compute/pool.h"
#include "train/params.h"

struct backprop;

/* Which numbers of a training step are left out (Srivastava et al. 2014): a hash of key, site and
 * element decides, so that the backward pass finds them again. Sites are the points of the residual
 * stream, for what is added there (0: the embedding, 2 l + 1 and 2 l + 2: by block l's attention
 * and feed-forward part), then one a layer for the probabilities of its attention. */
struct dropout {
    double share; /* left out, 0 to below 1; the others are scaled up by 1 / (1 - share) */
    uint64_t key;
};

/* What backprop_create is asked for. The config is copied; list, kernels and pool are borrowed
 * until backprop_free. */
struct backprop_spec {
    const struct config *config;
    const struct param_list *list; /* of the gradient; NULL is legal if it is forward only */
    int n_sequences;               /* windows in a batch, at most */
    int length;                    /* tokens of a window, at most the context */
    /* No gradient will be asked for: takes less memory, and weights in panels
     * (PARAMS_PANELS). */
    bool forward_only;
    bool dropping;      /* batches may have dropout: takes room for masked gradients */
    bool taught;        /* a teacher may be given: takes room for its logits */
    bool keeps_streams; /* of a teacher that is forward only: what comes out of each block stays */
    const struct kernels *kernels;
    struct pool *pool; /* NULL: one thread */
};

/* The weights of the terms of the loss, each a mean over the batch's tokens. The last two count
 * where there is a teacher. */
struct loss_weights {
    float text;    /* the cross-entropy of the tokens that follow */
    float teacher; /* KL(teacher || model), of the predictions (Hinton et al. 2015) */
    /* 2 - 2 cos(x, y) + (log |x| / |y|)^2, the mean over blocks: x is the residual stream behind a
     * block, y the teacher's; of streams nearly alike that is |x - y|^2 / |y|^2. Single positions
     * have streams a thousand times as long as others. Where the model's has not grown, the
     * teacher's length as the measure would leave it no slope to grow by. */
    float streams;
};

/* Windows [n_sequences][length] of token ids below n_vocab (trusted), and the token that follows
 * each; all pointers are borrowed. With label smoothing s the text's term is (1 - s) times the
 * cross-entropy plus s times the mean over the vocabulary of -log probability (Szegedy et al. 2016;
 * Vaswani et al. 2017, 5.4). */
struct backprop_batch {
    const int32_t *inputs, *targets;
    int n_sequences;
    /* The members below count only where a gradient is asked for. */
    struct dropout dropout; /* of the embeddings and of what each block adds to the residual */
    double attn_dropout; /* share of attention's probabilities that is left out, by the same key */
    float label_smoothing;
    struct loss_weights loss;
    /* Has the same n_sequences, length, n_vocab and pool, and may be forward only; where streams
     * are compared it has as many layers, as wide, and keeps them. NULL: none. */
    struct backprop *teacher;
    const struct param_view *teacher_weights; /* in panels if it is forward only */
};

/* Makes *out, which is for backprop_free (NULL on failure), and counts the memory that
 * backprop_start will take. STATUS_NO_MEMORY, also for a batch of more than 2^30 tokens. */
enum status backprop_create(const struct backprop_spec *p, struct backprop **out, struct err *e);

/* The bytes that backprop_start will take or has taken. */
size_t backprop_bytes(const struct backprop *b);

/* Takes the memory, before the first pass. rope_factors [rope.n_dims / 2] divide the frequencies of
 * rotary pairs (NULL: none) and are read by this call only. STATUS_NO_MEMORY. */
enum status backprop_start(struct backprop *b, const float *rope_factors, struct err *e);
void backprop_free(struct backprop *b); /* NULL is legal */

/* Returns the mean cross-entropy in nats a token; it may not be finite. Sets all of `gradient`
 * [n_trained], unless that is NULL; then the batch has to have as many windows as `b` has at most.
 */
double backprop_run(struct backprop *b, const struct param_view *weights,
                    const struct backprop_batch *batch, struct param_view *gradient);
