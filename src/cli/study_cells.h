/*
 * study_cells - how decode study makes its cells: their commands, the folder, the trial that tells
 * how long they will take. What is compared, and what is printed, is cmd_study's.
 */
#pragma once

#include "cli/job.h"
#include "cli/shape.h"
#include "study/study.h"

/* What --match makes equal. */
extern const char *const study_matches[];

struct study_options {
    struct common_options common; /* its text is TEXT */
    const char *dir, *from, *heads, *kv_heads, *methods, *alphas, *scratch, *shard, *plot;
    int n_seeds, match; /* of study_matches, and 1 more; 0: none */
    struct option_u64 first_seed;
    bool teacher;
    struct train_shape shape;
    struct train_spec steps; /* as the options of training say */
};

/* One run of the command; how many cells are done of those that are to be made is run->progress. */
struct study_job {
    const struct study_options *options;
    struct job *run;
    struct study_plan plan;
    int shard, n_shards;   /* every n_shards-th cell from that one on */
    int lock;              /* of study_lock_open; -1: none yet */
    struct int_list heads; /* of --heads; none: the default */
};

/* Makes the folder of -o, or sees that it is this study's, and takes study_job.lock. STATUS_USAGE
 * for another's; the failures of files. */
enum status study_prepare(struct study_job *job, const struct file_map *from, struct err *e);

/* Makes all cells of the shard, and those that they are made from, which come before them. Fails
 * with the cell's name. */
enum status study_make_cells(const struct study_job *job, struct err *e);
