/*
 * private - what the files of train share.
 */
#ifndef DECODE_TRAIN_PRIVATE_H
#define DECODE_TRAIN_PRIVATE_H

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "model/params.h"
#include "text/tokenizer.h"
#include "train/backprop.h"
#include "train/train.h"

/* --- texts (train_data.c) -------------------------------------------------------------------- */

struct tokens {
    int32_t *ids; /* malloc'd */
    size_t n;
    size_t n_bytes; /* that they stand for */
};

struct train_data {
    struct tokens train, val;
    uint64_t hash; /* of all ids */
};

/* Splits each text and encodes the parts. `d` is for train_data_free in any case. */
enum status train_data_read(struct train_data *d, const struct train_spec *spec,
                            const struct tokenizer *t, struct err *e);
void train_data_free(struct train_data *d);

/* The bytes of a text that are not held out. */
size_t train_part(double val_fraction, size_t len);

/* STATUS_USAGE, with the least length, if a part has no whole window. */
enum status train_data_check(const struct train_data *d, const struct train_spec *spec,
                             struct err *e);

/* Writes the window that starts at token `start` as row `row` of a batch. */
void train_data_window(const struct tokens *t, size_t start, int row, int length, int32_t *inputs,
                       int32_t *targets);

uint64_t train_hash(uint64_t hash, const void *data, size_t len); /* FNV-1a, continued */
#define TRAIN_HASH_START 0xcbf29ce484222325u

/* --- the checkpoint (train_model.c) ---------------------------------------------------------- */

/* What OUT holds besides tensors: the metadata of `from`, or that of a new vocabulary. */
struct train_template {
    const struct gguf *gguf;
    struct gguf *owned;   /* of a new model; NULL otherwise */
    unsigned char *bytes; /* that `owned` reads */
    struct config config;
    struct tokenizer *tokenizer;
    bool widened;
};

/* `t` is for train_template_free in any case. */
enum status train_template_make(struct train_template *t, const struct train_spec *spec,
                                struct err *e);
void train_template_free(struct train_template *t);

/* The checkpoint at `path`, atomically. */
enum status train_model_write(const struct train_template *t, const struct param_list *list,
                              const float *weights, const char *path, struct err *e);

/* STATUS_USAGE unless the teacher predicts the same tokens. */
enum status train_teacher_check(const struct train_template *t, const struct gguf *teacher,
                                struct config *config, int length, struct err *e);

/* --- the optimizer (train_optimizer.c) ------------------------------------------------------- */

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

/* GPT-2's: normal with deviation 0.02, matrices before a residual divided by sqrt(2 n_layers);
 * gains 1, biases 0. */
void optimizer_initialise(struct optimizer *o, const struct config *c, struct rng *r);

/* The gradient's norm. */
double optimizer_norm(const struct optimizer *o);
/* One step, with the norm limited to spec->clip. */
void optimizer_step(struct optimizer *o, double norm);

/* --- OUT.state (train_state.c) --------------------------------------------------------------- */

/* How far a run is. */
struct progress {
    int step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    struct rng rng;
    uint64_t out_len, out_hash; /* of OUT as it was last written: bytes, train_hash */
};

#define STATE_FIELDS 17
#define STATE_SHAPE  0 /* the field of the model's shape */

/* What must be the same for a state to be of this run. */
struct identity {
    uint64_t fields[STATE_FIELDS];
};

struct identity state_identity(const struct train_spec *spec, const struct param_list *list,
                               uint64_t text_hash, uint64_t teacher_hash);

/* A state file, opened and checked as far as its header goes. */
struct state {
    struct file_map file; /* nothing for a parsed one */
    const unsigned char *bytes;
    size_t len;
    struct identity identity;
    struct progress progress;
};

/* *found is false if there is no file. STATUS_BAD_FILE if it is none of this format or version. */
enum status state_open(struct state *s, const char *path, bool *found, struct err *e);
/* The same for bytes, which must outlive s and are called `path` in messages. */
enum status state_parse(struct state *s, const void *bytes, size_t len, const char *path,
                        struct err *e);
void state_close(struct state *s);
/* The seed it was made with. */
uint64_t state_seed(const struct state *s);
int state_steps(const struct state *s); /* --steps of its run */
/* STATUS_USAGE, naming the first difference. */
enum status state_compare(const struct state *s, const struct identity *wanted, const char *path,
                          struct err *e);
/* Checks length and checksum and copies weights and moments. STATUS_BAD_FILE. */
enum status state_read(const struct state *s, struct optimizer *o, const char *path, struct err *e);
enum status state_write(const char *path, const struct identity *identity,
                        const struct progress *progress, const struct optimizer *o, struct err *e);

#endif
