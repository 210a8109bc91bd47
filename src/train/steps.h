/*
 * steps - what a run is made of: its memory, the first weights, a step, the mean loss on windows,
 * and the learning rate to step with. One thread at a time may call these for a trainer; they start
 * the threads of its pool themselves.
 */
#pragma once

#include "train/private.h"

/* Streams of the seed's random numbers. */
enum {
    STREAM_WEIGHTS,
    STREAM_WINDOWS,
    STREAM_DROPOUT, /* and all above: one a step */
};
#define STREAM_PROBE UINT64_MAX

/* Takes, or counts (see base/mem.h), what is in t->arena. */
void trainer_take(struct trainer *t);

/* The learning rate of the step that follows `step` made ones. */
double train_rate(const struct train_spec *spec, int step);

/* Sets the first weights, GPT-2's: normal with deviation 0.02, matrices before a residual divided
 * by sqrt(2 n_layers); gains 1, biases 0. Where norms stand after the residuals, or positions are
 * sinusoids, with which so small numbers learn next to nothing, the original Transformer's:
 * 1 / sqrt(d_model) for tokens, Glorot's deviation (2010) for matrices. Heads of quadratic
 * positions look at distances 0, 1, 2 and so on, each as widely as it is far. */
void trainer_initialise(struct trainer *t);

/* Makes a step of AdamW or Muon with t->gradient, its norm limited to spec->clip; *made tells norm
 * and lr. STATUS_FAILED, with the weights as they were, if the norm is not finite. */
enum status trainer_update(struct trainer *t, struct train_event *event, struct err *e);

/* The same with the gradient of a batch that is drawn, clear of t->aside; *made tells the loss,
 * too, which has to be finite as well. */
enum status trainer_step(struct trainer *t, struct train_event *event, struct err *e);

/* Returns STATUS_FAILED with a message: what was not finite, after which step, and what may help;
 * it names the checkpoint if no step was made. */
enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e);

/* So many windows of `tokens`: one after the other if they cover them, else spread evenly. */
struct windows trainer_windows(const struct tokens *tokens, size_t n, int length);

/* The mean loss on them in nats a token; it may not be finite. */
double trainer_loss(struct trainer *t, const struct windows *w);

/* Makes the weights the checkpoint's again, as if no step had been made. */
void trainer_rewind(struct trainer *t);

/*
 * Finds the learning rate with which a checkpoint is trained further: a few are tried, each for a
 * few steps from the checkpoint with warm-up and decay of its own, and judged on windows of the
 * training part that no trial trains on. (A checkpoint that was trained to the end and one that a
 * conversion has damaged ask for different rates, and few steps do not repay too high a one.)
 *
 * t->progress.rate becomes that of the trial with the lowest loss (of a run as short as its trials
 * the smallest that comes near to it), 0 if none was below the checkpoint's own, a fixed one if the
 * text has no window to spare. A loss that is not finite counts as the worst. Weights, moments and
 * random generator stay as the trials left them. Tells a TRAIN_TRIED for each, first for the
 * checkpoint itself (rate 0), and a TRAIN_CHOSEN. STATUS_INTERRUPTED; STATUS_FAILED if the
 * checkpoint's own loss is not finite.
 */
enum status trainer_probe(struct trainer *t, struct err *e);
