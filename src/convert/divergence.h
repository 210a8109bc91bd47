/*
 * divergence - how far a changed residual stream takes the checkpoint's predictions: the mean
 * Kullback-Leibler divergence from its own, in nats a token, over some held-out windows.
 */
#pragma once

#include "convert/calibrate.h"

/* Its memory: logits of one window twice. */
void convert_divergence_take(struct converter *c);
/* Opens the session that predicts; convert_divergence_stop is due, and legal without. */
enum status convert_divergence_start(struct converter *c, struct err *e);
void convert_divergence_stop(struct converter *c);

/* How many windows are compared, and the i-th of them. */
int convert_divergence_windows(const struct converter *c);
struct convert_window convert_divergence_window(const struct converter *c, int i);

/* Adds to *sum the divergence of the predictions from a stream [n, d] before `layer` (n_layers:
 * behind all) from those of the stream before, given with `sum` NULL. STATUS_FAILED if logits are
 * not finite. */
enum status convert_divergence_add(struct converter *c, int layer, size_t n, const float *stream,
                                   double *sum, struct err *e);
