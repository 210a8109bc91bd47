/*
 * refit - the weights of the block in work, made to give what the checkpoint's gave.
 *
 * Pieces in order, each from where the converted model's stream is, towards where the checkpoint's
 * is (a block that layers share, on the checkpoint's own stream, and only its output matrix):
 *
 *   als    values and output matrix together, for the attention patterns there are
 *   rec    Q, K, V and output matrix together
 *   wo     the output matrix: ridge regression
 *   up     what the feed-forward part takes: the linear map that brings it nearest to the
 *          checkpoint's
 *   down   the down matrix, like wo; not where a norm follows the residual
 *
 * Each is kept if the layer's error, after attention or at its end, is lower with it on windows
 * that it was not fitted to (on all, where there are few).
 */
#ifndef DECODE_CONVERT_REFIT_H
#define DECODE_CONVERT_REFIT_H

#include "convert/calibrate.h"
#include "convert/rebuild.h"

/* Windows that all of it visits in a layer, at most. */
uint64_t convert_refit_windows(const struct converter *c);

/* `to` and `ffn` are stored; so are they after. */
enum status convert_refit(struct converter *c, struct convert_rebuild *r, struct err *e);

#endif
