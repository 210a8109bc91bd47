/*
 * attention - causal attention over whole windows, forwards and backwards.
 */
#ifndef DECODE_TRAIN_ATTENTION_H
#define DECODE_TRAIN_ATTENTION_H

#include "train/pass.h"

/* This thread's share of the windows and K/V heads of block l: qkv -> heads, dheads -> dqkv and,
 * of quadratic positions, drel. Of a latent cache keys and values are in kv, their gradient in dkv.
 */
void backprop_attention(const struct pass *p, int l, int thread);
void backprop_attention_backward(const struct pass *p, int l, int thread);

/* This thread's share of the gradient of block l's quadratic positions, if there are such, from
 * drel. */
void backprop_attention_sums(const struct pass *p, int l, int thread);

#endif
