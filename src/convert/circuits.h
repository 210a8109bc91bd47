/*
 * circuits - what the two products of a block's attention are, what is lost of them, and the
 * weights that maps make.
 */
#pragma once

#include "convert/state.h"

/* The gram, metric, root and white of both circuits, from the weights of `from` and the moments. */
void convert_circuits_measure(struct converter *c);

/* The [dim, dim] of the gram between the cached factors of heads g and h; rows are kv_heads * dim
 * apart. */
const double *convert_gram(const struct converter *c, const struct convert_circuit *s, size_t g,
                           size_t h);

/* Q, K, V and O of `to` from those of `from` and the maps, with the heads in their new order. */
void convert_apply(struct converter *c);

/* Of a block that keeps its K/V heads: O of `to` a copy, and the heads in their old order. */
void convert_keep(struct converter *c);

/* The share of the squared scores, or of what heads add, that `to` loses of `from`; to be asked
 * before a refit. */
double convert_loss(struct converter *c, struct convert_circuit *s);
