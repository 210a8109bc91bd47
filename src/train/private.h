/*
 * private - what a training run holds, for the files that work on it. One thread at a time may call
 * their functions for a trainer; they start the threads of its pool themselves.
 */
#pragma once

#include "base/hash.h"
#include "compute/grad_kernels.h"
#include "formats/gguf_write.h"
#include "model/model.h"
#include "train/train.h"

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

/* How far a run is, as OUT.state has it. */
struct train_progress {
    int64_t step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    struct rng rng;
    uint64_t n_floats, n_trained; /* of the weights behind, and of each moment */
    /* OUT that belongs to the state and is written after it, and OUT before that. */
    struct written {
        uint64_t len, hash; /* bytes, hash_bytes; 0: none */
    } out, before;
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
    struct gguf *owned_gguf; /* of a new model, else NULL; it reads `bytes` */
    unsigned char *bytes;
    struct config config;
    struct tokenizer *tokenizer;
    struct tokens train, val; /* the texts' tokens, to train on and held out */
    struct param_list list, teacher_list;
    struct config teacher_config;
    char *state_path;
    struct state_file state;                      /* open while there is one to resume */
    uint64_t data_hash, shape_hash, teacher_hash; /* data_hash: of all ids */
    struct train_progress progress;

    struct arena arena; /* of the members below, down to the batch */
    struct param_view weights, gradient, teacher_weights;
    float *m, *v;     /* [n_trained] moments */
    double *partials; /* sums of squares of the gradient, by shards */
    struct muon muon;
    int32_t *inputs, *targets; /* [batch, length] */
    struct backprop *engine, *teacher;
    const struct grad_kernels *grad;
    struct adamw adamw; /* the step's parameters, for a tensor that decays */

    double loss_sum; /* since the last evaluation */
    int loss_steps;
    bool out_is_stale; /* OUT is still to be written, with the weights of the state */
    int64_t saved_step;
};

/* --- data.c: the texts as tokens, the model that they are for, what OUT holds besides tensors - */

/* Splits each text into a part to train on and one to hold out, and encodes both into t->train and
 * t->val, which trainer_free frees. STATUS_USAGE, with the least length, if a part has no whole
 * window; STATUS_NO_MEMORY. */
enum status train_data_read(struct trainer *t, struct err *e);

/* Fills in t->gguf, t->config and t->tokenizer: from spec.from, or for a new model from spec.shape
 * and a vocabulary that is learned. STATUS_USAGE, STATUS_BAD_FILE, STATUS_INTERRUPTED,
 * STATUS_NO_MEMORY. */
enum status train_template_make(struct trainer *t, struct err *e);

/* Makes the writer of OUT with the present weights, which it borrows. *out is for gguf_writer_free;
 * NULL on failure. STATUS_NO_MEMORY. */
enum status train_model_writer(const struct trainer *t, struct gguf_writer **out, struct err *e);

/* Fills in t->teacher_config and t->teacher_list, if there is a teacher. STATUS_USAGE unless it
 * predicts the same tokens; STATUS_BAD_FILE, STATUS_NO_MEMORY. */
enum status train_teacher_open(struct trainer *t, struct err *e);

/* --- state.c: the file OUT.state, everything that the next step of a run depends on ----------- */

/* Maps the file at `path` and checks its header, length and checksum. STATUS_USAGE if there is no
 * file; STATUS_BAD_FILE for another format or version. file_map_close of s->file is due in every
 * case. */
enum status state_open(struct state_file *s, const char *path, struct err *e);

/* Fills in the hashes of model and teacher, by which a state is known. STATUS_NO_MEMORY. */
enum status state_identify(struct trainer *t, struct err *e);

/* Checks that t->state is of the run t. STATUS_USAGE names the first input that is another, or says
 * that the state has made more steps than are asked for. */
enum status state_compare(const struct trainer *t, struct err *e);

/* Reads weights and moments from t->state, which is of the run t. */
void state_read(struct trainer *t);

/* Writes t->state_path, atomically. */
enum status state_write(const struct trainer *t, struct err *e);

/* --- muon.c: the steps of the Muon optimizer, for the matrices of blocks ---------------------- */

/* Takes, or counts (see base/mem.h), the scratch memory for the largest of the list's matrices. */
void muon_take(struct muon *u, struct arena *arena, const struct param_list *list);

/* Whether this tensor is moved by Muon, and not by AdamW. */
bool muon_moves(const struct train_spec *spec, const struct tensor_spec *s);

/* Moves the tensors that muon_moves names by one step, from t->gradient and their momentum in t->m,
 * with the learning rate t->muon.rate; t->v is not used. Every thread of the pool calls it with its
 * number. */
void muon_step(const struct trainer *t, int thread);

/* --- steps.c: memory, the first weights, a step, the mean loss on held-out windows ------------ */

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

/* Sets the first weights as GPT-2 does: normal with deviation 0.02, which matrices before a
 * residual divide by sqrt(2 n_layers); gains 1, biases 0. Where norms stand after the residuals, or
 * positions are sinusoids, such small numbers learn next to nothing; there deviations are the
 * original Transformer's: 1 / sqrt(d_model) for tokens, Glorot's (2010) for matrices. Heads of
 * quadratic positions look at distances 0, 1, 2 and so on, each as widely as it is far. */
void trainer_initialise(struct trainer *t);

/* Makes a step of AdamW or Muon with t->gradient, its norm limited to spec->clip; sets the event's
 * norm and lr. STATUS_FAILED, with the weights unchanged, if the norm is not finite. */
enum status trainer_update(struct trainer *t, struct train_event *event, struct err *e);

/* Draws a batch, computes its gradient and makes such a step; sets the event's loss, too.
 * STATUS_FAILED also if the loss is not finite. */
enum status trainer_step(struct trainer *t, struct train_event *event, struct err *e);

/* Returns how many held-out windows an evaluation scores. */
size_t trainer_val_windows(const struct trainer *t);

/* Measures the mean loss on these windows in nats a token. STATUS_FAILED if it is not finite. */
enum status trainer_val_loss(struct trainer *t, double *loss, struct err *e);
