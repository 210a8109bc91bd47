/*
 * groups - which heads share, and by which maps.
 */
#pragma once

#include "convert/private.h"

/* The memory of costs and eigenproblems. */
void convert_groups_take(struct converter *c);

/* Fills in order, group_of, and the maps of both circuits, after convert_circuits_measure.
 * STATUS_FAILED if an eigenproblem diverged. */
enum status convert_group_heads(struct converter *c, struct err *e);

/* The share of these heads' energy in a circuit that fit keeps with one head in their place. Each
 * thread has its own scratch. */
double convert_energy_kept(const struct converter *c, const struct convert_circuit *s,
                           const int *heads, size_t n, int thread);

/* STATUS_FAILED if an eigenproblem diverged on any thread; `advice` ends the message. */
enum status convert_check_eigen(const struct converter *c, const char *advice, struct err *e);
