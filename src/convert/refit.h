/*
 * refit - the weights of the block in work, fitted to what the checkpoint's gave.
 */
#pragma once

#include "convert/private.h"

/* The memory of sums, of weights to go back to, and of rebuild.c. */
void convert_refit_take(struct converter *c);

/* Windows that all of it visits in a layer, at most. */
uint64_t convert_refit_windows(const struct converter *c);

/* Refits `to`, which is stored before and after. STATUS_INTERRUPTED; STATUS_FAILED as
 * convert_store. */
enum status convert_refit(struct converter *c, struct err *e);
