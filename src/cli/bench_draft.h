/*
 * bench_draft - decode bench --draft: what drafts are worth on a text.
 */
#ifndef DECODE_CLI_BENCH_DRAFT_H
#define DECODE_CLI_BENCH_DRAFT_H

#include "cli/command.h"
#include "cli/options.h"
#include "cli/runtime.h"

struct bench_draft_options {
    struct option_strings drafts;
    const char *tokens; /* of --draft-n: NULL, a number or "auto" */
    const char *text;
    double temperature;
};
extern const struct option bench_draft_options[];

/* What is measured, of the command's other options. */
struct bench_draft {
    const struct bench_draft_options *options;
    const struct common_options *common;
    const char *threads, *kv_type, *batch; /* one of each, as the options have them */
    int prompt, n, repeats;
    int format;          /* an enum table_format */
    const char *columns; /* of the table; NULL: all */
};

/* Runs it all and prints a row for no draft and for each. Fails as the parts do. */
enum status bench_draft_run(const struct invocation *inv, const struct bench_draft *b,
                            struct err *e);

#endif
