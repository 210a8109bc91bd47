/*
 * train - trains a new checkpoint from text, or goes on with one.
 *
 * Each step takes `batch` windows at random places of the texts' first part, computes the
 * gradient of the mean cross-entropy, clips its norm and makes a step of AdamW or Muon, with linear
 * warm-up and cosine decay to a tenth of the rate. The last part of each text is held out; its
 * windows, always the same, tell how good the model is.
 *
 * The same spec gives the same bits for any number of threads, in one piece or resumed from
 * OUT.state: weights, moments, random generator and step.
 *
 * Sources: Radford et al. 2019 (initialisation, decay on matrices only as in nanoGPT); Loshchilov
 * and Hutter 2019 (AdamW); Ainslie et al. 2023 (uptraining); Hinton et al. 2015 (teacher).
 */
#pragma once

#include "base/callbacks.h"
#include "compute/pool.h"
#include "model/config.h"
#include "train/backprop.h"

enum train_event_kind {
    TRAIN_STEP,      /* a step was made */
    TRAIN_EVALUATED, /* the held-out loss was measured after `step` steps */
};

/* What a run tells; the kind says which members count. */
struct train_event {
    enum train_event_kind kind;
    int step;        /* steps made so far */
    double loss;     /* TRAIN_STEP: of the batch, before the step; TRAIN_EVALUATED: the mean over
                        the steps since the last evaluation */
    double lr, norm; /* of the step: learning rate; the gradient's norm before clipping */
    double val_loss; /* nats a token */
    double val_bits; /* bits a byte */
    bool best;       /* the lowest val_loss so far */
    uint64_t ns;     /* that the step or evaluation took */
};

#define TRAIN_MOST_RATE   10
#define TRAIN_MOST_WEIGHT 1000 /* of a term of the loss */

enum optimizer {
    OPTIMIZER_ADAMW,
    OPTIMIZER_MUON, /* for the blocks' matrices; AdamW for what else there is */
};

/* The optimizers' names in the order of the enum, then NULL. */
extern const char *const train_optimizers[];

/* What is trained. */
enum trained {
    TRAINED_ALL,
    TRAINED_ATTENTION, /* its matrices, and all norms */
};

/* Their names in the order of the enum, then NULL. */
extern const char *const train_parts[];

/* What a run is asked for. Everything that it points to is borrowed. */
struct train_spec {
    const struct text *texts; /* [n_texts] needed by trainer_open only */
    int n_texts;
    const char *out; /* path of the checkpoint; OUT.state stands beside it */

    /* Where the model comes from: a checkpoint, or (from NULL) a new one of this shape, whose
     * vocabulary of n_vocab tokens is learned from the texts (256: their bytes). */
    const struct gguf *from;
    const char *from_path; /* for messages; NULL: not named */
    struct config shape;   /* with `from` only its score_scale counts; 0: the checkpoint's */

    /* A checkpoint to learn from besides the text; NULL: none. */
    const struct gguf *teacher;
    const char *teacher_path; /* for messages; NULL: not named */
    struct loss_weights loss;

    int n_steps, batch, length; /* windows a step, tokens a window */
    int warmup;                 /* steps */
    double lr;                  /* above 0, to TRAIN_MOST_RATE */
    int optimizer;              /* enum optimizer */
    int only;                   /* enum trained */
    double weight_decay;
    double dropout, attn_dropout; /* 0 to below 1 */
    double label_smoothing;       /* 0 to below 1 */
    double clip;                  /* of the gradient's norm; 0: no limit */
    double val_fraction;          /* of each text, held out; 0: none */
    int eval_every;               /* -1: never, and then keep_last */
    int save_every;
    bool keep_last; /* OUT is the last state, not the best on the held-out part */
    bool resume; /* go on from OUT.state, which a run of this spec has left; n_steps may be more */
    uint64_t seed;
    struct text options; /* the caller's, kept in OUT.state, see train_saved_options; a multiple of
                            8 bytes (asserted), the last one 0 */

    const struct kernels *kernels;
    struct pool *pool;
    /* Called from the calling thread: `stop`, upon which a run saves and ends; `progress` of the
     * merges of a vocabulary that is learned; and `event`, which may be NULL, with the same arg. */
    struct callbacks callbacks;
    void (*event)(void *arg, const struct train_event *ev);
};

/* What a run will do, and how much memory it will take; and its best so far. */
struct train_plan {
    struct config config;
    uint64_t n_params;
    size_t train_tokens, val_tokens; /* in the texts */
    size_t val_scored;               /* tokens predicted in an evaluation */
    double bytes_per_token;          /* in the texts */
    bool widened;                    /* `from` holds other types than F32: it is trained in F32 */
    int resumed_step;                /* 0: from the beginning */
    double best_loss;                /* so far, in nats a token; infinite: none */
    int best_step;
    double bits_per_nat; /* bits a byte of the held-out part for each nat a token */
    size_t parameter_bytes, activation_bytes, token_bytes, teacher_bytes;
    size_t state_bytes; /* of OUT.state: weights and moments */
};

/* --- a run ------------------------------------------------------------------------------------ */

struct trainer;

/* The spec->options that the run which writes to `out` was given, from OUT.state: *options is the
 * caller's to free. STATUS_USAGE if there is no state; STATUS_BAD_FILE; STATUS_NO_MEMORY. */
enum status train_saved_options(const char *out, struct bytes *options, struct err *e);

/*
 * Learns the vocabulary, turns the texts into tokens, and checks all that can be checked before
 * training; with spec->resume, that OUT.state is of the same text, model and teacher (the caller
 * answers for the rest). The spec, but for its texts, is borrowed until trainer_free. *out is NULL
 * on failure. STATUS_USAGE: impossible values; too short a text; a state of another run.
 * STATUS_BAD_FILE: a checkpoint or state that cannot be used. STATUS_INTERRUPTED, STATUS_NO_MEMORY.
 */
enum status trainer_open(const struct train_spec *spec, struct trainer **out, struct err *e);
const struct train_plan *trainer_plan(const struct trainer *t);

/*
 * Takes the memory and runs to the last step. STATUS_INTERRUPTED when `stop` ended it, after
 * saving. STATUS_FAILED: a loss that is not finite, or a save that failed; OUT and OUT.state are
 * left as last saved. STATUS_NO_MEMORY.
 */
enum status trainer_run(struct trainer *t, struct err *e);

void trainer_free(struct trainer *t); /* NULL is legal */
