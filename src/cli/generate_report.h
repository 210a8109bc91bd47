/*
 * generate_report - what a generation cost, on standard error.
 */
#ifndef DECODE_CLI_GENERATE_REPORT_H
#define DECODE_CLI_GENERATE_REPORT_H

#include <stdint.h>

#include "cli/generate.h"
#include "cli/generate_many.h"
#include "cli/job.h"

/* Why the last text ended, where it has fewer tokens than were wanted. */
void generate_say_end(const struct generation *g, const struct common_options *common);

/* Prompt and decode rates, time to first token, percentiles, seed and peak memory; nothing with
 * -q. Sorts the schedule's times. */
void generate_report(struct generation *g, const struct job *r, uint64_t seed);
void generate_many_report(struct generation_many *g, const struct job *r, uint64_t seed);

#endif
