/*
 * optimizer - initialisation, learning rate, clipping and AdamW.
 */
#ifndef DECODE_TRAIN_OPTIMIZER_H
#define DECODE_TRAIN_OPTIMIZER_H

#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "model/params.h"
#include "train/spec.h"

struct optimizer {
    const struct train_spec *spec;
    const struct grad_kernels *kernels;
    const struct param_list *list;
    struct param_view weights, gradient;
    float *m, *v;     /* [n_floats] moments */
    double *partials; /* sums of squares of the gradient's shards */
    int step;         /* steps made */
};

/* Adds to a plan, or takes, all that the optimizer points to. */
void optimizer_take(struct optimizer *o, struct arena *arena, const struct config *c);

/*
 * GPT-2's: normal with deviation 0.02, matrices before a residual divided by sqrt(2 n_layers);
 * gains 1, biases 0. Where norms stand after the residuals, or positions are sinusoids, of which so
 * small numbers learn next to nothing: the original Transformer's, 1 / sqrt(d_model) for tokens and
 * Glorot's deviation (2010) for matrices. Heads of quadratic positions look at distances 0, 1, 2
 * and so on, each as widely as it is far.
 */
void optimizer_initialise(struct optimizer *o, const struct config *c, struct rng *r);

/* The gradient's norm. */
double optimizer_norm(const struct optimizer *o);
/* One step, with the norm limited to spec->clip. */
void optimizer_step(struct optimizer *o, double norm);

/* The learning rate of the step that follows `step` made ones. */
double train_rate(const struct train_spec *spec, int step);

#endif
