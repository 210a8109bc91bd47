/*
 * loss - from the last block's output to the loss, and back.
 */
#ifndef DECODE_TRAIN_LOSS_H
#define DECODE_TRAIN_LOSS_H

#include "train/pass.h"

/* From b->out to b->losses and, if there is a gradient, to b->dx and the gradients of output and
 * last norm. Every thread calls it; they meet inside. */
void backprop_losses(const struct pass *p, int thread);

#endif
