/*
 * steps - one step of a training run, and the mean loss on windows.
 */
#ifndef DECODE_TRAIN_STEPS_H
#define DECODE_TRAIN_STEPS_H

#include "train/trainer.h"

struct made_step {
    double loss, lr, norm; /* as a train_event has them */
};

/* Draws a batch, clear of t->aside, and makes a step. STATUS_FAILED: the loss or the gradient is
 * not finite, and the weights are as they were. */
enum status trainer_step(struct trainer *t, struct made_step *made, struct err *e);

/* STATUS_FAILED, with what may help. */
enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e);

/* So many windows of `tokens`: one after the other if they cover them, else spread evenly. */
struct windows trainer_windows(const struct tokens *tokens, size_t n, int length);

/* The mean loss on them in nats a token; not finite if some number on the way is not. */
double trainer_loss(struct trainer *t, const struct windows *w);

#endif
