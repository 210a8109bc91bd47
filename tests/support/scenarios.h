/*
 * scenarios - the program's commands on small files of a scratch folder, which the fault and
 * interrupt suites run over and over: what each reads and writes, and what must be left of it
 * when it fails.
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
    unsigned flags; /* no times in standard output, nor in the files: the same at every run */
};
extern const struct scenario scenarios[];
extern const int n_scenarios;

/* The one that the following calls are about: makes its folder, and runs it once without a
 * fault, which must succeed and leak nothing. The working directory is the folder until
 * scenario_end. */
void scenario_begin(int index);
void scenario_end(void);
extern const struct scenario *scenario;
bool scenario_is(unsigned flag);
const char *scenario_output(int i); /* NULL after the last */

/* Calls of the run without a fault. */
extern long scenario_calls[FAULT_KINDS], scenario_all_calls;

/* Puts the outputs back as they were. */
void scenario_reset(void);

/* The same, and runs the command. */
void scenario_run(struct ran *r, const struct fault_plan *plan);

/* The run did all that it does without a fault, and said nothing on standard error. */
void scenario_expect_done(const struct ran *r, const struct fault_plan *plan);

/* The inputs are unchanged, every output is the old one or the new one whole, there is no other
 * file, and a training that saved can go on to the same end. With `leaks` the run that returned
 * gave back all it had. */
void scenario_expect_kept(const struct ran *r, const struct fault_plan *plan, bool leaks);

/* For messages: scenario, kind, number of the call. */
const char *scenario_where(const struct fault_plan *plan);

/* Whether the output of that index is not as it was before the run. */
bool scenario_changed(int output);

/* Whether `path` ends in the name of one of the inputs; of the outputs, or a temporary of one. */
bool scenario_is_input(const char *path);
bool scenario_is_output(const char *path);

#endif
