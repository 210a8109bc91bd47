/*
 * seeds - the seed of a run, from which all of its random numbers come.
 */
#pragma once

#include "cli/command.h"

/* job.seed: that of --seed, or a random one, the same at every call. STATUS_FAILED. */
enum status job_seed(struct job *j, struct err *e);
