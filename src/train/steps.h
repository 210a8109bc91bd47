/*
 * steps - the parts of a training run: its memory, the first weights, a step, and the mean loss on
 * held-out windows. One thread at a time may call these for a trainer; they start the threads of
 * its pool themselves.
 */
#pragma once

#include "train/private.h"

/* Streams of the seed's random numbers. */
enum {
    STREAM_WEIGHTS,
    STREAM_WINDOWS,
    STREAM_DROPOUT, /* and all above: one a step */
};

/* Takes from t->arena, or counts (see base/mem.h), the memory of the run. */
void trainer_take(struct trainer *t);

/* The learning rate of the step that follows `step` made ones. */
double train_rate(const struct train_spec *spec, int step);

/* Sets the first weights, GPT-2's: normal with deviation 0.02, matrices before a residual divided
 * by sqrt(2 n_layers); gains 1, biases 0. Where norms stand after the residuals, or positions are
 * sinusoids, with which so small numbers learn next to nothing, the original Transformer's:
 * 1 / sqrt(d_model) for tokens, Glorot's deviation (2010) for matrices. Heads of quadratic
 * positions look at distances 0, 1, 2 and so on, each as widely as it is far. */
void trainer_initialise(struct trainer *t);

/* Makes a step of AdamW or Muon with t->gradient, its norm limited to spec->clip; sets the event's
 * norm and lr. STATUS_FAILED if the norm is not finite; the weights are then unchanged. */
enum status trainer_update(struct trainer *t, struct train_event *event, struct err *e);

/* Draws a batch, computes its gradient and makes such a step; sets the event's loss, too.
 * STATUS_FAILED also if the loss is not finite. */
enum status trainer_step(struct trainer *t, struct train_event *event, struct err *e);

/* Returns STATUS_FAILED with a message: what was not finite, after which step, and what may help;
 * it names the checkpoint if no step was made. */
enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e);

/* How many held-out windows an evaluation scores. */
size_t trainer_val_windows(const struct trainer *t);

/* The mean loss on them in nats a token; it may not be finite. */
double trainer_val_loss(struct trainer *t);
