/*
 * private - what a training run holds, and the steps that it is made of.
 */
#ifndef DECODE_TRAIN_PRIVATE_H
#define DECODE_TRAIN_PRIVATE_H

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "model/pack.h"
#include "text/tokenizer.h"
#include "train/backprop.h"
#include "train/train.h"

static inline bool train_stopped(const struct train_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

static inline void train_tell(const struct train_spec *spec, struct train_event ev)
{
    if (spec->event)
        spec->event(spec->arg, &ev);
}

/* --- data.c: the texts as tokens, windows of them, and what OUT holds besides tensors --------- */

struct tokens {
    int32_t *ids; /* malloc'd */
    size_t n;
    size_t n_bytes; /* that they stand for */
};

struct train_data {
    struct tokens train, val;
    uint64_t hash; /* of all ids */
};

/* Splits each text and encodes the parts. `d` is for train_data_free in any case. STATUS_USAGE,
 * with the least length, if a part has no whole window. */
enum status train_data_read(struct train_data *d, const struct train_spec *spec,
                            const struct tokenizer *t, struct err *e);
void train_data_free(struct train_data *d);

/* The metadata of `from`, or that of a new vocabulary. */
struct train_template {
    const struct gguf *gguf;
    struct gguf *owned;   /* of a new model; NULL otherwise */
    unsigned char *bytes; /* that `owned` reads */
    struct config config;
    struct tokenizer *tokenizer;
    bool widened;
};

/* `t` is for train_template_free in any case. */
enum status train_template_make(struct train_template *t, struct train_spec *spec, struct err *e);
void train_template_free(struct train_template *t);

/* The checkpoint at `path`, atomically. */
enum status train_model_write(const struct train_template *t, const struct param_list *list,
                              const float *weights, const char *path, struct err *e);

/* The teacher's config. STATUS_USAGE unless it predicts the same tokens. */
enum status train_teacher_check(const struct train_template *t, const struct train_spec *spec,
                                struct config *config, struct err *e);

/* --- steps.c: the first weights, learning rate, clipping and AdamW ------------------------------
 */

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
double optimizer_norm(struct optimizer *o);
/* One step, with the norm limited to spec->clip. */
void optimizer_step(struct optimizer *o, double norm);

/* The learning rate of the step that follows `step` made ones. */
double train_rate(const struct train_spec *spec, int step);

/* --- state.c: OUT.state, everything that the next step depends on ----------------------------- */

/* How far a run is, as OUT.state has it. */
struct progress {
    int64_t step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    struct rng rng;
    uint64_t n_floats;          /* in each of the arrays behind */
    uint64_t out_len, out_hash; /* of OUT as it was last written: bytes, train_hash */
    double rate; /* the full learning rate; 0: not yet chosen, or, once all steps are made, none */
};

/* What tells runs apart: options, and hashes of what they stand for; see state.c. */
enum { STATE_STEPS = 8, STATE_SEED = 11, STATE_FIELDS = 25 };
struct state_header {
    char magic[8];
    uint64_t version;
    uint64_t identity[STATE_FIELDS]; /* real ones as their bits */
    struct progress progress;
};
_Static_assert(sizeof(struct state_header) == (2 + STATE_FIELDS + 9) * sizeof(uint64_t), "no gaps");

/* A state file, opened and checked as far as its header goes. */
struct state {
    struct file_map file; /* nothing for a parsed one */
    const unsigned char *bytes;
    size_t len;
    struct state_header header;
};

/* Opens a zeroed one; *found is false if there is no file. STATUS_BAD_FILE if it is none of this
 * format or version. The file is closed on failure, else by its owner. */
enum status state_open(struct state *s, const char *path, bool *found, struct err *e);
/* The same for bytes, which must outlive s and are called `path` in messages. */
enum status state_parse(struct state *s, const void *bytes, size_t len, const char *path,
                        struct err *e);

struct trainer;
/* Fills in t->identity from its options, model, text and teacher. */
void state_identify(struct trainer *t);
/* STATUS_USAGE, naming the first difference of t->state's identity from that. */
enum status state_compare(const struct trainer *t, struct err *e);
/* Checks length and checksum and copies weights and moments. STATUS_BAD_FILE. */
enum status state_read(const struct state *s, struct optimizer *o, const char *path, struct err *e);
enum status state_write(const struct trainer *t, struct err *e);

/* --- train.c ---------------------------------------------------------------------------------- */

/* Windows of a text that are always the same. */
struct windows {
    const struct tokens *tokens;
    size_t n;
    size_t last; /* where the last begins, the others evenly before it; 0: one after the other */
};

struct trainer {
    struct train_spec spec; /* with the seed, keep_last and, once chosen, the rate that count */
    struct train_plan plan;
    struct train_template template;
    struct train_data data;
    struct param_list list, teacher_list;
    struct config teacher_config;
    char *state_path;
    struct state state; /* open while there is one to resume */
    uint64_t shape_hash, teacher_hash, identity[STATE_FIELDS];
    struct progress progress;

    struct arena arena; /* parameters, teacher, batch */
    struct optimizer optimizer;
    struct param_view teacher_weights;
    struct backprop *engine, *teacher;
    int32_t *inputs, *targets; /* [batch, length] */
    struct windows aside;      /* the probe's; no window of a step while it runs meets them */

    double loss_sum; /* since the last evaluation */
    int loss_steps;
    bool out_written; /* by this run, or it is the resumed state's best */
    int64_t saved_step;
};

/* --- steps.c: a step, the mean loss on windows, and the rate to step with --------------------- */

/* Streams of the seed. */
enum {
    STREAM_WEIGHTS,
    STREAM_WINDOWS,
    STREAM_DROPOUT, /* and all above: one a step */
};
#define STREAM_PROBE UINT64_MAX

/* Draws a batch, clear of t->aside, and makes a step; *made tells its loss, lr and norm.
 * STATUS_FAILED: the loss or the gradient is not finite, and the weights are as they were. */
enum status trainer_step(struct trainer *t, struct train_event *made, struct err *e);

/* STATUS_FAILED: what the weights give as they are after the steps so far; with what may help. */
enum status trainer_not_finite(const struct trainer *t, const char *what, double value,
                               struct err *e);

/* So many windows of `tokens`: one after the other if they cover them, else spread evenly. */
struct windows trainer_windows(const struct tokens *tokens, size_t n, int length);

/* The mean loss on them in nats a token; not finite if some number on the way is not. */
double trainer_loss(struct trainer *t, const struct windows *w);

/* The weights are the checkpoint's again, and no step was made. */
void trainer_rewind(struct trainer *t);

/*
 * Finds the learning rate with which a checkpoint is trained further. What training ended with a
 * small rate, and what a conversion has damaged, ask for different rates, and too high a one costs
 * more than few steps repay. So a few are tried, each for a few steps from the checkpoint with
 * warm-up and decay of its own, and judged on windows of the training part that no trial trains
 * on. The held-out part decides nothing.
 *
 * Sets t->progress.rate: the rate of the trial with the lowest loss, of a run that is as short as
 * its trials the smallest that comes near to it; or 0 if none was below the checkpoint's own. Where
 * the text has no window to spare it is a fixed one. A trial whose loss is not finite counts as the
 * worst. Weights, moments and random generator are left as the trials left them. Tells a
 * TRAIN_TRIED for each, beginning with the checkpoint itself (rate 0), and a TRAIN_CHOSEN.
 * STATUS_INTERRUPTED; STATUS_FAILED if the checkpoint's own loss is not finite.
 */
enum status trainer_probe(struct trainer *t, struct err *e);

#endif
