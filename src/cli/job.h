/*
 * job - the frame of a command: from its arguments through the stages that all commands share to
 * its run, and to what is released at the end; and what that run prints.
 */
#pragma once

#include "cli/checkpoints.h"
#include "cli/input.h"
#include "cli/memory.h"
#include "cli/threads.h"
#include "model/selection.h"
#include "show/report.h"

/* Parses the arguments behind the command's name, which end with NULL, and runs it, or prints its
 * help. */
enum status job_run(const struct command *c, char **argv, struct output *out, uint64_t start_ns,
                    struct err *e);

/* --- stages that job_run calls as enum job_needs says, or a command's run itself -------------- */

/* That a checkpoint is named. STATUS_USAGE. */
enum status job_need_path(const struct job *j, struct err *e);

/* job.text: of -p, -f or the positional, or with JOB_PIPED of standard input. The failures of
 * input_read; STATUS_USAGE where none is given and the command cannot do without. */
enum status job_read_text(struct job *j, struct err *e);

/* job.seed: that of --seed, or a random one, the same at every call. STATUS_FAILED. */
enum status job_seed(struct job *j, struct err *e);

/* --- what a run shows ------------------------------------------------------------------------- */

/* Starts the progress line of long work; if that is interrupted, job_run says how far it came. */
struct progress *job_progress(struct job *j, const char *unit);

/* The same line for what work of other directories says, which the first Ctrl-C stops. */
struct callbacks job_callbacks(struct job *j, const char *unit);

/* A table in --format, on standard output. STATUS_NO_MEMORY. */
enum status job_print(struct job *j, const struct table *t, struct err *e);

/* The length of the file at -o; 0 if it is gone already. */
uint64_t job_out_bytes(const struct job *j);
