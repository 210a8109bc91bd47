/*
 * memory - what a run takes of memory, said and checked before, and the sessions that fit into it.
 */
#pragma once

#include "cli/command.h"
#include "measure/eval.h"

/* What work takes, as it is said and checked. */
struct job_memory {
    uint64_t weights; /* of the models that are open already */
    uint64_t cache;   /* keys and values; 0: counted with `scratch` */
    uint64_t scratch;
    const char *advice; /* "fewer --tokens take less"; "" and NULL: none */
};

/* Whether people are told of so much memory: with -v, and always beyond 1 GiB. */
bool memory_is_worth_saying(const struct common_options *o, uint64_t bytes);

/* STATUS_NO_MEMORY if `what` ("100 tokens") need more bytes than a run may take: nine tenths of
 * what is available, which is an estimate. The message ends with the advice. */
enum status memory_check(double bytes, const char *what, const char *advice, struct err *e);

/* Says it, if it is worth saying. */
void job_say_memory(const struct job *j, const struct job_memory *m);

/* The same, after memory_check of cache and scratch. */
enum status job_check_memory(const struct job *j, const struct job_memory *m, const char *what,
                             struct err *e);

/* What the options say of any session; what it borrows is the job's. */
struct session_params job_session_params(const struct job *j);

/* An evaluation of job.tokens by a checkpoint of this vocabulary, with what the options say of any
 * session. */
struct eval_spec job_eval_spec(const struct job *j, const struct checkpoint *k);

/* Sequences that are to share a session. */
struct sequences_wanted {
    int n;              /* at most */
    bool all;           /* not one less will do */
    size_t more_bytes;  /* that the command itself takes for each */
    const char *option; /* its own that lowers the cache */
};

/* Sets p->n_sequences to as many as available memory has room for, but at least one. If all are
 * asked for and do not fit, STATUS_NO_MEMORY. */
enum status job_fit_sequences(const struct job *j, struct session_params *p,
                              const struct sequences_wanted *w, struct err *e);

/* Starts the threads and creates the job's session, whose memory is said before: `option` (NULL:
 * none) lowers the cache. */
enum status job_start_session(struct job *j, const struct session_params *p, const char *option,
                              struct err *e);
