/*
 * block - one block of the model over a whole batch, forwards and backwards.
 *
 * Every thread of the pool calls these with its number; they meet inside at barriers. Neither
 * allocates or fails.
 */
#pragma once

#include "train/backprop_pass.h"

/* Runs block l: from the residual stream before it, b->blocks[l].x, to the one behind it. Fills in
 * what the backward pass needs, b->blocks[l]. */
void backprop_block(const struct pass *p, int l, int thread);

/* Turns b->dx, the gradient of block l's output, into that of its input, and adds to its tensors'
 * gradients. */
void backprop_block_backward(const struct pass *p, int l, int thread);
