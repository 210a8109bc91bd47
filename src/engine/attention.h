/*
 * attention - a layer's attention of a batch of rows to what their sequences have in the cache; and
 * the spans that a batch is cut into for it.
 */
#pragma once

#include "engine/private.h"

/* Cuts n >= 1 rows of sequences that share n_shared positions; `spans` has room for n of them. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, int n_shared,
               struct batch_span *spans);

/* The attention of a layer, from its norm to the end of its residual. */
void block_attention(const struct worker *k, const struct block *b, int layer);
