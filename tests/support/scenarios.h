/*
 * scenarios - command lines on small files of a scratch folder, for the suites that make calls into
 * the system fail or interrupt them. A scenario says which files its command reads and writes;
 * functions here check what is left of these when the command fails.
 */
#ifndef TESTS_SCENARIOS_H
#define TESTS_SCENARIOS_H

#include <stdbool.h>

#include "faults.h"
#include "program.h"

#define SCENARIO_FILES 4

enum { STEADY_STDOUT = 1, STEADY_FILES = 2, TRAINS = 4, RESUMES = 8 };

struct scenario {
    const char *name;
    const char *line;             /* the command with its arguments */
    const char *inputs, *outputs; /* files that it reads and writes, a space between */
    unsigned flags; /* STEADY: every run prints, or writes, the same, because no time is in it */
};
extern const struct scenario scenarios[];
extern const int n_scenarios;

/* Begins a scenario, which the other functions are about until scenario_end: makes its folder,
 * which becomes the working directory, and runs the command once without a fault. That must succeed
 * and leak nothing. */
void scenario_begin(int index);
void scenario_end(void);
extern const struct scenario *scenario;
bool scenario_is(unsigned flag);
const char *scenario_output(int i); /* NULL after the last */

/* Calls of the run without a fault. */
extern long scenario_calls[FAULT_KINDS], scenario_all_calls;

/* Puts the outputs back as they were. */
void scenario_reset(void);

/* Puts the outputs back as they were and runs the command. */
void scenario_run(struct ran *r, const struct fault_plan *plan);

/* Checks that the run did all that it does without a fault, and printed nothing to standard
 * error. */
void scenario_expect_done(const struct ran *r, const struct fault_plan *plan);

/* Checks what is left: the inputs are unchanged, every output is either the old file or the whole
 * new one, there is no other file, and a training that saved can go on to the same end. With
 * `leaks` also that a run that returned gave back all its memory, threads and descriptors. */
void scenario_expect_kept(const struct ran *r, const struct fault_plan *plan, bool leaks);

/* For messages: scenario, kind, number of the call. */
const char *scenario_where(const struct fault_plan *plan);

/* Whether the output of that index is not as it was before the run. */
bool scenario_changed(int output);

/* Whether `path` ends in the name of one of the inputs; of the outputs, or a temporary of one. */
bool scenario_is_input(const char *path);
bool scenario_is_output(const char *path);

#endif
