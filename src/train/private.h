/*
 * private - what a training run holds, for the files that work on it.
 */
#pragma once

#include "base/hash.h"
#include "compute/grad_kernels.h"
#include "model/model.h"
#include "train/backprop.h"
#include "train/spec.h"

/* Reports an event to the caller, if it wants any. */
static inline void train_report(const struct train_spec *spec, struct train_event ev)
{
    if (spec->event)
        spec->event(spec->callbacks.arg, &ev);
}

/* Whether the loss compares the residual streams of model and teacher. */
static inline bool train_compares_streams(const struct train_spec *spec)
{
    return spec->teacher && spec->loss.streams > 0;
}

/* A text's tokens. */
struct tokens {
    int32_t *ids; /* malloc'd; trainer_free frees them */
    size_t n;
    size_t n_bytes; /* that they stand for */
};

/* The texts' tokens, to train on and held out. */
struct train_data {
    struct tokens train, val;
    uint64_t hash; /* of all ids */
};

/* How far a run is, as OUT.state has it. */
struct train_progress {
    int64_t step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    struct rng rng;
    uint64_t n_floats, n_trained; /* of the weights behind, and of each moment */
    struct written {
        uint64_t len, hash; /* bytes, hash_bytes; 0: none */
    } out,
        before; /* OUT that belongs to the state, which is written after it; and that before it */
};

/* The head of OUT.state. */
struct state_header {
    char magic[8];
    uint64_t version;
    uint64_t text_hash, shape_hash, teacher_hash; /* tell runs apart */
    uint64_t options_len;                         /* bytes behind the header, a multiple of 8 */
    struct train_progress progress;
};
_Static_assert(sizeof(struct state_header) == 17 * sizeof(uint64_t), "no gaps");

/* A state file; its header, options and length are sound. */
struct state_file {
    struct file_map file;
    struct state_header header;
    struct text options; /* in the file */
};

/* Scratch memory of Muon, for the largest matrix, and the learning rate of the step. */
struct muon {
    float *x[2], *square[2];
    double *squares; /* of rows */
    double rate;
};

/* One training run, from trainer_open to trainer_free. */
struct trainer {
    struct train_spec spec; /* keep_last also without held-out text; no texts */
    struct train_plan plan;
    const struct gguf *gguf; /* what OUT has besides tensors: `from`, or owned_gguf */
    struct gguf *owned_gguf; /* of a new model, else NULL */
    unsigned char *bytes;    /* that it reads */
    struct config config;
    struct tokenizer *tokenizer;
    struct train_data data;
    struct param_list list, teacher_list;
    struct config teacher_config;
    char *state_path;
    struct state_file state; /* open while there is one to resume */
    uint64_t shape_hash, teacher_hash;
    struct train_progress progress;

    struct arena arena; /* of the members below, down to the batch */
    struct param_view weights, gradient, teacher_weights;
    float *m, *v;     /* [n_trained] moments */
    double *partials; /* [train_shards] sums of squares of the gradient */
    struct muon muon;
    int32_t *inputs, *targets; /* [batch, length] */
    struct backprop *engine, *teacher;
    const struct grad_kernels *grad;
    struct adamw adamw; /* the parameters of the step, for a tensor that decays */

    double loss_sum; /* since the last evaluation */
    int loss_steps;
    bool out_written;  /* by this run, or by the one that it resumes */
    bool out_is_stale; /* OUT is still to be written: its weights are those of the state */
    int64_t saved_step;
};

/* Floats whose squares are summed by one kernel call. */
#define SHARD ((size_t)4096)

static inline size_t train_shards(const struct param_list *list)
{
    return (list->n_trained + SHARD - 1) / SHARD;
}
