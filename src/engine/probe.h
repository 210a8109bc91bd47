/*
 * probe - one block on its own, with its numbers on their way: for tools that take a model apart.
 *
 * It runs what a session runs, to the same bits. All memory is taken at creation. A probe belongs
 * to one caller at a time.
 */
#ifndef DECODE_ENGINE_PROBE_H
#define DECODE_ENGINE_PROBE_H

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "engine/block.h"

struct probe;

/* For blocks of a model of this shape, whose rope_factors are as in positions_take, and up to n_ctx
 * rows; kernels may be NULL (the fastest), as may pool (one thread), which is borrowed.
 * STATUS_NO_MEMORY. */
enum status probe_create(const struct config *c, const float *rope_factors, int n_ctx,
                         const struct kernels *kernels, struct pool *pool, struct probe **out,
                         struct err *e);
void probe_free(struct probe *p); /* NULL is legal */

/* The positions that it has, for model_embed. */
const struct positions *probe_positions(const struct probe *p);

/* Runs the block of a layer over the residual streams `in` [n, d_model] of the tokens at the
 * positions 0 to n - 1, 1 <= n <= n_ctx (asserted). Buffers of `taps` have room for n rows; the one
 * of TAP_OUT may be `in`, and without it the block ends after attention. */
void probe_run(struct probe *p, const struct block *b, int layer, const float *in, int n,
               const struct block_taps *taps);

#endif
