/*
 * threads - how many threads a run has, and which kernels: -t and, of the environment,
 * DECODE_THREADS, its default, and DECODE_ISA, which names an instruction set.
 */
#pragma once

#include "cli/command.h"

/* job.n_threads and job.threads_are_auto: what -t or DECODE_THREADS asks for, at most as many as
 * the process has processors. STATUS_USAGE. */
enum status job_choose_threads(struct job *j, struct err *e);

/* The table that DECODE_ISA names, or the fastest. STATUS_USAGE. */
enum status job_choose_kernels(const struct common_options *c, const struct kernels **out,
                               struct err *e);

/* Starts job.pool, unless it is. STATUS_NO_MEMORY. */
enum status job_start_threads(struct job *j, struct err *e);
