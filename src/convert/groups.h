/*
 * groups - which heads share, and by which maps.
 */
#pragma once

#include "convert/state.h"

/* The memory of costs and eigenproblems. */
void convert_groups_allocate(struct converter *c);

/* Fills in order, group_of, and the maps of both circuits, after convert_circuits_measure.
 * STATUS_FAILED if an eigenproblem diverged. */
enum status convert_group_heads(struct converter *c, struct err *e);
