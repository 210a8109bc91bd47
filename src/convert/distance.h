/*
 * distance - how far a changed residual stream takes the checkpoint's predictions: the
 * Kullback-Leibler divergence from its own, over calibration windows.
 */
#ifndef DECODE_CONVERT_DISTANCE_H
#define DECODE_CONVERT_DISTANCE_H

#include "convert/calibrate.h"
#include "engine/session.h"

struct convert_distance {
    struct session *session; /* of the checkpoint */
    int n_vocab;
    int window, step;        /* of a window's tokens every step-th predicts */
    float *logits, *changed; /* [window / step, n_vocab] */
    double *log_sums;        /* [window / step] of logits */
    struct batch_row *rows;  /* [window] */
};

/* Windows that are measured: of those kept aside, at equal distances. */
#define CONVERT_MEASURED 8
int convert_measured_windows(const struct convert_calibration *k, int windows[CONVERT_MEASURED]);

/* Takes all but the session, or counts it; NULL while counting. */
struct convert_distance *convert_distance_take(const struct converter *c, struct arena *arena);
enum status convert_distance_start(const struct converter *c, struct convert_distance *x,
                                   struct err *e);
void convert_distance_end(struct convert_distance *x);

/* The checkpoint's predictions from its stream before `layer` (n_layers: behind all) over a
 * window of n tokens; then what a changed stream adds to *sum, in nats a token of the window.
 * STATUS_FAILED if logits are not finite. */
enum status convert_distance_reference(struct convert_distance *x, int layer, const float *stream,
                                       int n, struct err *e);
enum status convert_distance_add(struct convert_distance *x, int layer, const float *stream, int n,
                                 double *sum, struct err *e);

#endif
