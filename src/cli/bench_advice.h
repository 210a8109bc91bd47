/*
 * bench_advice - what each variant of a checkpoint would lose on a text, and which are within the
 * limits that were asked for.
 */
#pragma once

#include "cli/bench_report.h"

/* Leaves of the job's text its last tenth, with its tokens, as what is measured. STATUS_USAGE for a
 * text too short and a --max-cache that is no number; the failures of job_tokenize. */
enum status advice_prepare(struct bench_run *r, struct err *e);
/* Sets r->advice, which the caller frees, once rows are measured: each variant is converted and
 * evaluated, one after the other, on the first number of threads. The failures of variant_load and
 * eval_run; then there is none. */
enum status advice_measure(struct bench_run *r, struct err *e);
