/*
 * calibrate - a text through the checkpoint and its conversion, block by block.
 */
#ifndef DECODE_CONVERT_CALIBRATE_H
#define DECODE_CONVERT_CALIBRATE_H

#include "convert/work.h"

/* Takes c->calibration, or counts it. */
void convert_calibration_take(struct converter *c, struct arena *arena);
enum status convert_calibration_start(struct converter *c, struct err *e);
void convert_calibration_end(struct converter *c);

/* Moments of the inputs of the block in work, in all layers that use it: of the text, whose way
 * through the checkpoint's layers this is, or, without a text, those that the norm before it alone
 * allows. */
enum status convert_calibrate(struct converter *c);
void convert_assume(struct converter *c);

/* Refits to.o and to.bo to the converted K, Q and V. Of a layer with a block of its own the target
 * is where the checkpoint's residual stream is after attention, from where the converted one's is
 * before it; a shared block is refitted to all layers at once, each on the checkpoint's own stream.
 */
enum status convert_refit(struct converter *c);

/* Runs the converted layers; the shares of the output's energy that are lost after attention go to
 * c->lost. */
enum status convert_advance(struct converter *c);

#endif
