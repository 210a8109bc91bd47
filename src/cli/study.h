/*
 * study - what the files of the command study share: its options and its run.
 */
#ifndef DECODE_CLI_STUDY_H
#define DECODE_CLI_STUDY_H

#include "base/figures.h"
#include "cli/job.h"
#include "cli/train_options.h"
#include "study/study.h"
#include "train/train.h"

struct study_options {
    struct common_options common; /* its text is TEXT */
    const char *dir, *from, *kv_heads, *methods, *latent, *alphas, *scratch, *shard, *plot;
    int n_seeds;
    struct option_u64 first_seed;
    bool teacher;
    struct train_shape shape;
    struct train_spec steps; /* as the options of training say */
};

/* The part of the text that is not held out, as a file in DIR: what conversions are calibrated on.
 */
#define STUDY_CALIB "calib.txt"

/* One run of the command; how many cells are done of those that are to be made is run->progress. */
struct study_job {
    const struct study_options *options;
    struct job *run;
    struct study_plan plan;
    int shard, n_shards; /* every n_shards-th cell from that one on */
    int lock;            /* of study_lock_open; -1: none yet */
};

/* A command's arguments as they are put together; borrowed. */
struct study_line {
    const char *items[80];
    int n;
    struct figure own[64]; /* names and numbers of study_line_add_given */
    int n_own;
};
/* Adds an option (NULL: none) and its value (NULL: neither). */
void study_line_add(struct study_line *line, const char *option, const char *value);
/* Adds the options of a training that are not the default. */
void study_line_add_given(struct study_line *line, const struct train_shape *shape,
                          const struct train_spec *steps);
/* As a shell reads it back: "--embd 8 'a name'". What is longer than out is cut. */
void study_line_print(const struct study_line *line, char *out, size_t size);

/* Takes the lock of that name, waiting for another run that has it, which is said.
 * STATUS_INTERRUPTED. */
enum status study_lock(const struct study_job *job, const char *name, struct err *e);

/*
 * Makes all cells of the shard, and those that they are made from, and keeps the records. A cell's
 * checkpoint is DIR/NAME.gguf. While it is trained it is DIR/NAME.part.gguf, with the state that an
 * interrupted training goes on from. Whatever is there whole is not made again. Fails with the
 * cell's name; STATUS_INTERRUPTED, with what a training saved.
 */
enum status study_run(struct study_job *job, struct err *e);

#endif
