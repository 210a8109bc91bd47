/*
 * rebuild - attention of the block in work, fitted by its gradients to what the checkpoint's
 * added.
 */
#pragma once

#include "convert/private.h"

/* Its memory; the windows that a run visits, at most; the run, which replaces `to`: values and
 * output matrix, with `patterns` queries and keys, too. STATUS_INTERRUPTED. */
void convert_rebuild_take(struct converter *c);
uint64_t convert_rebuild_windows(const struct converter *c, bool patterns);
enum status convert_rebuild_run(struct converter *c, bool patterns);
