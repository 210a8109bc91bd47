/*
 * backprop_spec - what backpropagation is asked for: at creation, and with each batch.
 */
#pragma once

#include "compute/pool.h"
#include "model/pack.h"

/* Which numbers of a training step are left out (Srivastava et al. 2014): a hash of key, site and
 * element decides, so that the backward pass finds them again. Sites are the points of the residual
 * stream, for what is added there (0: the embedding, 2 l + 1 and 2 l + 2: by block l's attention
 * and feed-forward part), then one a layer for the probabilities of its attention. */
struct dropout {
    double share; /* left out, 0 to below 1; the others are scaled up by 1 / (1 - share) */
    uint64_t key;
};

/* What backprop_create is asked for. The config is copied; the kernels and the pool are borrowed
 * until backprop_free. */
struct backprop_spec {
    const struct config *config;
    int n_sequences; /* windows in a batch, at most */
    int length;      /* tokens of a window, at most the context */
    /* No gradient will be asked for: takes less memory, and weights in panels
     * (param_list_use_panels). */
    bool forward_only;
    bool dropping;      /* batches may have dropout: takes room for masked gradients */
    bool taught;        /* a teacher may be given: takes room for its logits */
    bool keeps_streams; /* of a teacher that is forward only: what comes out of each block stays */
    const struct kernels *kernels;
    struct pool *pool; /* NULL: one thread */
};

struct backprop;

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
