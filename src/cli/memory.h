/*
 * memory - what a run takes of memory, said and checked before, and the sessions that fit into it.
 */
#pragma once

#include "cli/command.h"
#include "measure/eval.h"

/* The memory that work takes. */
struct job_memory {
    uint64_t weights; /* of the models that are open already */
    uint64_t cache;   /* of keys and values; 0: `scratch` has them, too */
    uint64_t scratch;
    const char *advice; /* "fewer --tokens take less"; "" and NULL: none */
};

/* Whether people are told of so much memory: with -v, and always beyond 1 GiB. */
bool memory_is_worth_saying(const struct common_options *o, uint64_t bytes);

/* STATUS_NO_MEMORY if `what` ("100 tokens") need more bytes than a run may take: nine tenths of
 * what is available, which is an estimate. The message ends with the advice. */
enum status memory_check(double bytes, const char *what, const char *advice, struct err *e);

/* Prints a line about the memory, if it is worth saying. */
void job_say_memory(const struct job *j, const struct job_memory *m);

/* memory_check of cache and scratch together, then job_say_memory. */
enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e);

/* Parameters of a session as the job's options have them; they borrow from the job. */
struct session_params job_session_params(const struct job *j);

/* The specification of an evaluation of job.tokens by a checkpoint of their vocabulary. */
struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k);

/* Sequences that are to share a session. */
struct sequences_wanted {
    int n;              /* at most */
    bool all;           /* it is an error if fewer fit */
    size_t more_bytes;  /* that the command itself takes for each sequence */
    const char *option; /* of the command, that lowers the cache */
};

/* Sets p->n_sequences to as many as fit into the memory that a run may take, but at least one.
 * STATUS_NO_MEMORY if all are asked for and do not fit. */
enum status job_fit_sequences(const struct job *j, struct session_params *p,
                              const struct sequences_wanted *w, struct err *e);

/* Says what memory the job's session will take, starts the threads and creates it. `option` is
 * named as what lowers the cache; NULL: nothing is. */
enum status job_start_session(struct job *j, const struct session_params *p, const char *option,
                              struct err *e);
