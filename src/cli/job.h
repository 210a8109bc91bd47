/*
 * job - the frame of a command: it parses the arguments, does what all commands share, runs the
 * command and releases everything; and what a run prints.
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

/* STATUS_USAGE if no checkpoint is named. */
enum status job_need_path(const struct job *j, struct err *e);

/* Reads job.text from -p, -f or the positional, or with JOB_PIPED from standard input. The failures
 * of input_read; STATUS_USAGE where no text is given and the command needs one. */
enum status job_read_text(struct job *j, struct err *e);

/* Sets job.seed to that of --seed, or once to a random one. STATUS_FAILED. */
enum status job_seed(struct job *j, struct err *e);

/* --- what a run shows ------------------------------------------------------------------------- */

/* Starts the progress line of long work. If the work is interrupted, job_run says how far it came.
 */
struct progress *job_progress(struct job *j, const char *unit);

/* The same line as callbacks for functions of other directories; the first Ctrl-C stops them. */
struct callbacks job_callbacks(struct job *j, const char *unit);

/* Prints a table in the form of --format on standard output. STATUS_NO_MEMORY. */
enum status job_print(struct job *j, const struct table *t, struct err *e);

/* The length of the file at -o; 0 if it is gone already. */
uint64_t job_out_bytes(const struct job *j);
