/*
 * fit - the maps of a block's circuits, whose heads are in groups.
 */
#ifndef DECODE_CONVERT_FIT_H
#define DECODE_CONVERT_FIT_H

#include "convert/work.h"

/* What fit cannot reproduce of a group's squared error, the circuits' shares of the block's added.
 */
double convert_group_cost(const struct converter *c, const int *heads, int n,
                          struct convert_eigen *scratch, bool *diverged);

/* The share of these heads' own energy in a circuit that fit keeps with one head in their place. */
double convert_kept(const struct converter *c, const struct convert_circuit *s, const int *heads,
                    int n, struct convert_eigen *scratch, bool *diverged);

/* in and out of both circuits, after convert_measure; the heads' groups are known. False if an
 * eigenproblem diverged. */
bool convert_map(struct converter *c);

#endif
