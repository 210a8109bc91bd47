/*
 * backprop - loss and gradient of a checkpoint on batches of token windows.
 *
 * The forward pass is the engine's block over whole windows, of any architecture; the backward pass
 * computes the gradient of the mean cross-entropy by every parameter that is trained (of others it
 * is 0). Saved for it are each layer's inputs, queries, keys, values, attention outputs and
 * feed-forward products; norms, activations and attention probabilities are computed again, and
 * logits exist for some rows at a time.
 *
 * All memory is taken by backprop_start. The bits are the same for any number of threads: each sum
 * over the batch is one chain in the order of its tokens. One thread at a time may call the
 * functions on one struct backprop; they start the threads of its pool themselves.
 */
#pragma once

#include "train/backprop_spec.h"

/* Makes *out, which is for backprop_free (NULL on failure), and counts the memory that
 * backprop_start will take. STATUS_NO_MEMORY, also for a batch of more than 2^30 tokens. */
enum status backprop_create(const struct backprop_spec *p, struct backprop **out, struct err *e);

/* The bytes that backprop_start will take or has taken. */
size_t backprop_bytes(const struct backprop *b);

/* Takes the memory, before the first pass. rope_factors [rope.n_dims / 2] divide the frequencies of
 * rotary pairs (NULL: none) and are read by this call only. STATUS_NO_MEMORY. */
enum status backprop_start(struct backprop *b, const float *rope_factors, struct err *e);
void backprop_free(struct backprop *b); /* NULL is legal */

/* Returns the mean cross-entropy in nats a token; it may not be finite. Adds to `gradient`, unless
 * that is NULL; then the batch has to have as many windows as `b` has at most. */
double backprop_run(struct backprop *b, const struct param_view *weights,
                    const struct backprop_batch *batch, struct param_view *gradient);
