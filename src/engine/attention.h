/*
 * attention - a layer's attention of a batch of rows to what their sequences have in the cache; and
 * the spans that a batch is cut into for it.
 */
#pragma once

#include "engine/private.h"

/* Sets *b to n >= 1 rows, which are borrowed, cut into spans; `spans` has room for n of them and is
 * borrowed, too. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, struct batch_span *spans);

/* Computes the attention of a layer, from its norm to the end of its residual, and stores the rows'
 * keys and values in the cache. All threads of the batch call it, with a worker of their own. */
void block_attention(const struct worker *k, const struct block *b, int layer);
