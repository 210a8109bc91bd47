/*
 * heads - what each head is worth: the loss of a text without it, and how much it writes.
 *
 * One head after another is left out and the text predicted again, in the windows of eval with
 * stride = ctx, to the same bits as eval with that head left out. (Michel et al. 2019, "Are Sixteen
 * Heads Really Better than One?", leave-one-out in section 3.2.) What stands before a head's layer
 * does not change: the residual streams before each layer are stored, one layer at a time, and the
 * windows start there, which saves nearly half of the work.
 */
#ifndef DECODE_MEASURE_HEADS_H
#define DECODE_MEASURE_HEADS_H

#include "measure/eval.h"

enum heads_ablation {
    HEADS_ZERO, /* a head's results become 0 */
    HEADS_MEAN, /* ... their means over all positions of the text */
};

/* Everything is borrowed. */
struct heads_spec {
    /* The model, the text and what watches: ctx, stride, entry, nll and the other model are not
     * read. `stop` ends the run with what there is; progress is in the tokens of all heads. */
    struct eval_spec eval;
    enum heads_ablation ablation;
    const int *layers; /* [n_layers] whose heads are measured; NULL: all */
    int n_layers;
};

struct head_worth {
    int layer, head;
    double delta_nll; /* nll without it less that of the model, nats a scored token */
    /* Of delta_nll, by the tokens' paired differences, as eval's nll_stderr. */
    double delta_nll_stderr;
    double delta_bits_per_byte; /* NaN without bytes */
    /* Euclidean lengths, means over all positions: of what the head adds to the residual stream,
     * and of the stream before its layer. */
    double written, stream;
};

struct heads_result {
    struct head_worth *heads; /* [n_heads] malloc'd, of the layers wanted, in order */
    int n_heads;
    int n_done;               /* the first so many are measured */
    struct eval_result whole; /* the model with all heads */
};

/* Bytes that heads_run takes for the residual streams and for what predicts the text; beside them
 * it takes what one block needs for a window. The failures of eval_make_plan. */
enum status heads_plan(const struct heads_spec *spec, uint64_t *bytes, struct err *e);

/*
 * Measures the heads, layer by layer. STATUS_INTERRUPTED if `stop` ended it: *result has what is
 * done. heads_free is due with this status and STATUS_OK. Fails as eval_run does; a head without
 * which logits are not finite is named. All figures are the same bits for any number of threads.
 */
enum status heads_run(const struct heads_spec *spec, struct heads_result *result, struct err *e);
void heads_free(struct heads_result *r); /* legal on a zeroed struct and twice */

#endif
