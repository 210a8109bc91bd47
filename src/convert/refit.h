/*
 * refit - the weights of the block in work, fitted to what the checkpoint's gave.
 */
#pragma once

#include "convert/private.h"

void convert_refit_take(struct converter *c);

/* Windows that all of it visits in a layer, at most. */
uint64_t convert_refit_windows(const struct converter *c);

/* `to` is stored; so is it after. */
enum status convert_refit(struct converter *c, struct err *e);
