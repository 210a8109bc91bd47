/*
 * divergence - how far a changed residual stream takes the checkpoint's predictions: the mean
 * Kullback-Leibler divergence from its own, in nats a token, over some held-out windows.
 */
#pragma once

#include "convert/calibrate.h"

/* Its memory: logits of one window twice. */
void convert_divergence_allocate(struct converter *c);
/* Opens the session that predicts; convert_divergence_close is due, and legal without. */
enum status convert_divergence_open(struct converter *c, struct err *e);
void convert_divergence_close(struct converter *c);

/* Adds to *sum the divergence of the predictions from the stream `changed` [n, d] before `layer`
 * (n_layers: behind all) from those of the stream `original`. STATUS_FAILED if logits are not
 * finite. */
enum status convert_divergence_add(struct converter *c, int layer, size_t n, const float *original,
                                   const float *changed, double *sum, struct err *e);
