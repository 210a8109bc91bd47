/*
 * threads - how many threads a run has (-t, or else DECODE_THREADS), and which instruction set
 * (DECODE_ISA).
 */
#pragma once

#include "cli/command.h"

/* Sets job.n_threads and job.threads_are_auto by -t or DECODE_THREADS; never to more threads than
 * the process has processors. STATUS_USAGE. */
enum status job_choose_threads(struct job *j, struct err *e);

/* The table that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e);

/* Starts job.pool, unless it runs already. STATUS_NO_MEMORY. */
enum status job_start_threads(struct job *j, struct err *e);
