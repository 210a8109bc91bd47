/*
 * latent - the keys and values of every head that a latent cache stands for, forwards and
 * backwards.
 *
 * What inference multiplies into queries and results, k_b and v_b, is multiplied into the cached
 * vectors here: over whole windows heads of their own size attend with fewer operations than heads
 * of the rank's. To attention a block is then one with a K/V head for each query head.
 */
#ifndef DECODE_TRAIN_LATENT_H
#define DECODE_TRAIN_LATENT_H

#include "train/pass.h"

/* This thread's share of ROLE_ATTN_K_B of block l as panels, a head's after the other's: see
 * backprop_pack. Keys are products with its transpose. */
void latent_pack_keys(const struct pass *p, int l, bool backward, float *panels, int thread);

/* kv of the rows r from what is latent in qkv; and dqkv's from dkv. The panels are those of the
 * direction. */
void latent_expand(const struct pass *p, int l, struct rows r);
void latent_expand_backward(const struct pass *p, int l, struct rows r);

/* This thread's share of the gradients of k_b and v_b of block l. */
void latent_sums(const struct pass *p, int l, bool add, int thread);

#endif
