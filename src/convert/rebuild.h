/*
 * rebuild - attention of the block in work, fitted to what the checkpoint's added: the squared
 * error of its output over some of the windows, by its gradients.
 *
 * Weights are varied in coordinates in which the error curves alike: inputs are white, and a head's
 * rows are scaled by what they are multiplied with: queries by keys, keys by queries, values by
 * rows of the output matrix. The other factor of the attention pattern's own curvature is a number
 * a head.
 */
#ifndef DECODE_CONVERT_REBUILD_H
#define DECODE_CONVERT_REBUILD_H

#include "convert/calibrate.h"

struct convert_rebuild;

/* Takes all it needs, or counts it; NULL while counting. */
struct convert_rebuild *convert_rebuild_take(const struct converter *c, struct arena *arena);

/* Windows that a run visits, at most. */
uint64_t convert_rebuild_windows(const struct converter *c, bool patterns);

/* Replaces `to`: values and output matrix, or with `patterns` queries and keys, too.
 * STATUS_INTERRUPTED. */
enum status convert_rebuild_run(struct converter *c, struct convert_rebuild *r, bool patterns);

#endif
