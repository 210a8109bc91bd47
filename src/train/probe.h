/*
 * probe - the learning rate with which a checkpoint is trained further.
 *
 * What training ended with a small rate, and what a conversion has damaged, ask for different
 * rates, and too high a one costs more than few steps repay. So a few are tried, each for a few
 * steps from the checkpoint with warm-up and decay of its own, and judged on windows of the
 * training part that no trial trains on. The held-out part decides nothing.
 */
#ifndef DECODE_TRAIN_PROBE_H
#define DECODE_TRAIN_PROBE_H

#include "train/trainer.h"

/*
 * Sets t->progress.rate: the rate of the trial with the lowest loss, of a run that is as short as
 * its trials the smallest that comes near to it; or 0 if none was below the checkpoint's own. Where
 * the text has no window to spare it is a fixed one. A trial whose loss is not finite counts as the
 * worst. Weights, moments and random generator are left as the trials left them. Tells a
 * TRAIN_TRIED for each, beginning with the checkpoint itself (rate 0), and a TRAIN_CHOSEN.
 * STATUS_INTERRUPTED; STATUS_FAILED if the checkpoint's own loss is not finite.
 */
enum status probe_rate(struct trainer *t, struct err *e);

#endif
