/*
 * circuits - what the two products of a block's attention are, what is lost of them, and the
 * weights that maps make.
 */
#pragma once

#include "convert/private.h"

/* Both circuits, from weights and moments. */
void convert_circuits_measure(struct converter *c);

/* Of heads g and h: [dim, dim], rows kv_heads * dim apart. */
const double *convert_gram(const struct converter *c, const struct convert_circuit *s, size_t g,
                           size_t h);

/* `to` from the maps, heads in their new order. */
void convert_apply(struct converter *c);

/* The same of a block that keeps its K/V heads. */
void convert_keep(struct converter *c);

/* The share of the squared scores or outputs that is lost; before a refit. */
double convert_loss(struct converter *c, struct convert_circuit *s);
