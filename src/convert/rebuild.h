/*
 * rebuild - attention of the block in work, fitted by its gradients to what the checkpoint's
 * added.
 */
#pragma once

#include "convert/private.h"

void convert_rebuild_take(struct converter *c);

/* The windows that a run visits, at most. */
uint64_t convert_rebuild_windows(const struct converter *c, bool patterns);

/* Replaces values and output matrix of `to`, and with `patterns` queries and keys, too, by what
 * brings the windows' attention nearest to the checkpoint's. STATUS_INTERRUPTED. */
enum status convert_rebuild_run(struct converter *c, bool patterns);
