/*
 * refit - the output matrix of the block in work, fitted to what the checkpoint's attention added.
 */
#pragma once

#include "convert/state.h"

/* The memory of sums and of the matrix to go back to. */
void convert_refit_allocate(struct converter *c);

/* Windows that it visits in a layer; 0 without a refit. */
uint64_t convert_refit_windows(const struct converter *c);

/* Refits `to`, which is stored before and after, if that is asked for. STATUS_INTERRUPTED;
 * STATUS_FAILED as convert_store. */
enum status convert_refit(struct converter *c, struct err *e);
