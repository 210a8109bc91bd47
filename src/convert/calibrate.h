/*
 * calibrate - a text through the checkpoint and its conversion, layer by layer.
 */
#ifndef DECODE_CONVERT_CALIBRATE_H
#define DECODE_CONVERT_CALIBRATE_H

#include "convert/work.h"

/* Takes c->calibration, or counts it. */
void convert_calibration_take(struct converter *c, struct arena *arena);
enum status convert_calibration_start(struct converter *c, struct err *e);
void convert_calibration_end(struct converter *c);

/* Moments of a layer's normed input: of the text, whose way through the checkpoint's layer this is,
 * or, without a text, those that the norm alone allows. */
enum status convert_calibrate(struct converter *c, int layer);
void convert_assume(struct converter *c, int layer);

/* Refits to.o and to.bo to the converted K, Q and V. */
enum status convert_refit(struct converter *c, int layer);

/* Runs the converted layer; the share of the output's energy that is lost after attention. */
enum status convert_advance(struct converter *c, int layer, double *lost);

#endif
