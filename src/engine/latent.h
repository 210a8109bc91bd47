/*
 * latent - the products by head around attention to a latent cache: queries to what scores with
 * it, and the averages of it to the heads' results.
 *
 * Threads share the heads, whole: each head's matrix is read by one.
 */
#ifndef DECODE_ENGINE_LATENT_H
#define DECODE_ENGINE_LATENT_H

#include "engine/attention.h"
#include "engine/forward.h"

/* work->mapped [n_rows, n_heads * rank] of the queries in work->qkv, which are complete; of this
 * thread's heads. */
void latent_map_queries(const struct forward *f, const struct block *b, int layer, int thread);

/* heads [n_rows, heads_dim] of what attention left in `parts`, after a barrier; of this thread's
 * heads. work->mapped gets the averages. */
void latent_map_results(const struct forward *f, const struct block *b, const struct attention *a,
                        float *heads, int thread);

#endif
