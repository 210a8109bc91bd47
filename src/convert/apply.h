/*
 * apply - the weights of a block whose circuits' maps are known.
 */
#ifndef DECODE_CONVERT_APPLY_H
#define DECODE_CONVERT_APPLY_H

#include "convert/work.h"

/* `to` from the maps, heads still in their old order. */
void convert_apply(struct converter *c);

/* To `to`'s output bias what `from`'s values are on the average: it passes unchanged through any
 * attention pattern, whose rows sum to 1. */
void convert_add_value_means(const struct converter *c);

/* `to`'s heads into their new order. */
void convert_permute(struct converter *c);

/* `to` and the order of a block that keeps its K/V heads, or has a latent cache instead. */
void convert_keep(struct converter *c);

#endif
