/*
 * calibrate - windows of a text through the checkpoint's layers and the converted ones.
 */
#pragma once

#include "convert/state.h"

/* The memory of windows and streams; once it is there, both streams start as the embeddings.
 * The probes are the caller's to free. */
void convert_calibration_allocate(struct converter *c);
enum status convert_calibration_open(struct converter *c, struct err *e);

/* Window w of the text, n tokens (fewer in the last), and the rows [n, d] of the streams there. */
struct convert_window {
    int w;
    size_t n;
    bool held_out;   /* nothing is fitted to it */
    float *original; /* the checkpoint's, before the layer; and after attention */
    float *middle;
    float *converted; /* the converted model's */
    float *from;      /* where the converted layer starts: the converted model's, or the
                         checkpoint's where layers share a block */
};
struct convert_window convert_window_at(const struct converter *c, int w);

/* Runs the converted layer over a window, from win->from on. */
void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps);

/* Reports that n more windows are done. STATUS_INTERRUPTED if spec->stop says so. */
enum status convert_windows_done(struct converter *c, int n);

/* Runs `visit` for every layer of the block in work over each of these windows. With
 * CONVERT_ORIGINAL, over all, and where layers share a block, the layer runs as it was before: then
 * `visit` leaves c->scratch.rows2 alone, from which the stream goes on. STATUS_INTERRUPTED. */
enum convert_windows { CONVERT_ORIGINAL, CONVERT_ALL, CONVERT_HELD_OUT };
typedef void convert_visit(struct converter *c, int layer, const struct convert_window *win);
enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit);

/* sum (x - y)^2 over floats [n]; the differences stay in c->scratch.x. */
double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n);

/* Moments of the inputs of the block in work, in all layers that use it: of the text, which goes
 * through the checkpoint's layers here, or, without one, what the norm before it allows. */
enum status convert_calibrate(struct converter *c);

/* Runs the converted layers over the text, if there is one, and fills in what c->out says of their
 * outputs. STATUS_INTERRUPTED; STATUS_FAILED if these are not finite. */
enum status convert_advance(struct converter *c, struct err *e);
