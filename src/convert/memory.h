/*
 * memory - what every file of a conversion does with its memory and the block in work.
 */
#pragma once

#include "convert/private.h"

/* Matrices from the arena, or their count. */
static inline double *convert_doubles(struct converter *c, size_t rows, size_t cols)
{
    return arena_take(&c->arena, rows, (uint64_t)cols * sizeof(double));
}

static inline float *convert_floats(struct converter *c, size_t rows, size_t cols)
{
    return arena_take(&c->arena, rows, (uint64_t)cols * sizeof(float));
}

static inline void convert_zero(double *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

/* Whether the block in work has no more K/V heads than wanted, and keeps them as they are. */
static inline bool convert_keeps_heads(const struct converter *c)
{
    return c->block.n_groups == c->block.n_kv_heads;
}

/* Whether more than the output matrix is refitted: of layers with a block of their own. */
static inline bool convert_refits_block(const struct converter *c)
{
    return c->spec->refit >= CONVERT_REFIT_ALL && !c->config.shared;
}

/* Whose K/V head a head of the checkpoint uses. */
static inline size_t convert_kv_head(const struct converter *c, size_t head)
{
    return head / (c->block.n_heads / c->block.n_kv_heads);
}

/* A head's [dim, dim] of a circuit's maps or moments. */
static inline double *convert_of_head(const struct convert_circuit *s, double *of_heads,
                                      size_t head)
{
    return of_heads + head * s->dim * s->dim;
}

static inline bool convert_is_transposed(enum convert_weight w)
{
    return w == WEIGHT_O || w == WEIGHT_DOWN;
}
