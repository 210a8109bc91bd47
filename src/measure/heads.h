/*
 * heads - what each head is worth: the loss of a text without it, and how much it writes.
 *
 * One head after another is left out and the text predicted again, to the same bits as eval without
 * the head, stride = ctx. (Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section
 * 3.2.) Windows start from the residual stream before the head's layer, which does not change: this
 * saves nearly half of the work.
 */
#pragma once

#include "measure/eval.h"

/* Everything is borrowed. */
struct heads_spec {
    /* The model, the text and the callbacks, whose progress is in the tokens of all heads. stride,
     * entry, nll and the other model are not read. */
    struct eval_spec eval;
    bool to_mean; /* a head's results become their means over all positions of the text; else 0 */
    bool curve;   /* also leave out 1, 2, 4 and so on together */
};

/* A head, and what the model loses without it. */
struct head_worth {
    int layer, head;
    double delta_nll; /* nll without it less the model's, nats a scored token */
    /* The standard error of delta_nll, from the tokens' paired differences, as eval's nll_stderr.
     */
    double delta_nll_stderr;
    double delta_bits_per_byte; /* NaN without bytes */
    double written;             /* mean length of what the head adds to the residual stream */
};

/* The text without the n heads that cost least one by one. */
struct heads_point {
    int n;
    double nll, delta_nll, bits_per_byte; /* as in struct eval_result; nll less the model's */
};
#define HEADS_MOST_POINTS 32

/* What was measured; heads_free is due. */
struct heads_result {
    struct head_worth *heads; /* [n_heads] malloc'd, in order; with a curve the one that costs least
                                 first */
    int n_heads;
    struct eval_result whole; /* the model with all heads */
    /* The curve: the text without the first 0, 1, 2, 4, 8 and so on of the heads, and without all
     * (Michel et al. 2019, section 4.1, but the order is not measured anew). */
    struct heads_point points[HEADS_MOST_POINTS];
    int n_points;
};

/* *bytes: what heads_run takes, without a block's probe. Fails as eval_make_plan does. */
enum status heads_plan(const struct heads_spec *spec, uint64_t *bytes, struct err *e);

/* Measures the heads, layer by layer; heads_free is due on success. Fails as eval_run does, naming
 * the head. All figures are the same bits for any number of threads. */
enum status heads_run(const struct heads_spec *spec, struct heads_result *result, struct err *e);
void heads_free(struct heads_result *r); /* legal on a zeroed struct and twice */
