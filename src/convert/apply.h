/*
 * apply - the weights of a block whose circuits' maps are known.
 */
#ifndef DECODE_CONVERT_APPLY_H
#define DECODE_CONVERT_APPLY_H

#include "convert/work.h"

/* `to` from the maps, heads still in their old order. */
void convert_apply(struct converter *c);

/* `to`'s heads into their new order. */
void convert_permute(struct converter *c);

/* `to` and the order of a block that keeps its K/V heads, but may be refitted. */
void convert_keep(struct converter *c);

#endif
