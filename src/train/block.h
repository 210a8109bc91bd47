/*
 * block - one block of the model, forwards and backwards. Every thread calls these; they meet
 * inside.
 */
#ifndef DECODE_TRAIN_BLOCK_H
#define DECODE_TRAIN_BLOCK_H

#include "train/pass.h"

/* Block l: its input to the next one's (or to b->out). */
void backprop_block(const struct pass *p, int l, int thread);

/* b->dx of its output to that of its input, and the gradients of its tensors. */
void backprop_block_backward(const struct pass *p, int l, int thread);

#endif
