/*
 * generate_many - many prompts continued side by side: a JSON line for each on standard output, in
 * the order of the prompts, as soon as all before it are out.
 *
 * What is in memory does not grow with the number of prompts: they are read as slots become vacant,
 * and a slot waits when too much waits for an earlier line.
 */
#ifndef DECODE_CLI_GENERATE_MANY_H
#define DECODE_CLI_GENERATE_MANY_H

#include "base/output.h"
#include "base/status.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/turns.h"
#include "engine/schedule.h"

struct generation_many {
    /* Borrowed, filled in before generate_many_create. */
    struct output *out;
    struct prompts *prompts; /* open */
    struct progress *progress;
    int truncate; /* prompts that are too long: an enum truncation */
    int most_ctx; /* positions that the session could have */
    /* What generate_many_create leaves to the caller: session (all sequences empty), sampler, pool,
     * tokenizer, n_slots, n_vocab, ignore_eos. */
    struct schedule schedule;

    /* Results, beside the schedule's. */
    uint64_t n_done;   /* prompts with a continuation */
    uint64_t n_cut;    /* of them those that were too long, of which a part was continued */
    uint64_t n_errors; /* prompts with an error */

    /* Private. */
    struct turns turns;
    struct many_slot *slots; /* [n_slots] */
    uint64_t n_begun;
    bool read;           /* there are no more prompts, or none can be read */
    enum status reading; /* how the reading of prompts went so far */
    struct err reading_error;
};

/* Takes the memory that does not depend on the prompts: STATUS_NO_MEMORY. generate_many_free is due
 * in every case. */
enum status generate_many_create(struct generation_many *g, struct err *e);
void generate_many_free(struct generation_many *g);

/* Prints everything. STATUS_OK whatever became of the prompts, also when interrupted or when the
 * output fails (which the output itself knows); STATUS_BAD_FILE when the prompts cannot be read on,
 * STATUS_NO_MEMORY. In every case the lines of all prompts that are complete are printed. */
enum status generate_many_run(struct generation_many *g, struct err *e);

#endif
