/*
 * fit - the conversion of a layer whose heads are in groups, and what it loses.
 */
#ifndef DECODE_CONVERT_FIT_H
#define DECODE_CONVERT_FIT_H

#include "convert/work.h"

/* gram, metric, root and white of both circuits, from weights and moments. */
void convert_measure(struct converter *c);

/* What fit cannot reproduce of a group's squared error, the circuits' shares of the layer's added.
 */
double convert_group_cost(const struct converter *c, const int *heads, int n,
                          struct convert_eigen *scratch, bool *diverged);

/* in and out of both circuits; the heads' groups are known. False if an eigenproblem diverged. */
bool convert_map(struct converter *c);

/* `to` from the maps, heads still in their old order. */
void convert_apply(struct converter *c, int layer);

/* Share of the squared error of score or output that remains; before a refit. */
double convert_score_loss(struct converter *c);
double convert_output_loss(struct converter *c);

/* `to`'s heads into their new order. */
void convert_permute(struct converter *c);

#endif
