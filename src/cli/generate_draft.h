/*
 * generate_draft - the draft that --draft asks for: what it is, its memory, what it was worth.
 */
#ifndef DECODE_CLI_GENERATE_DRAFT_H
#define DECODE_CLI_GENERATE_DRAFT_H

#include <stdbool.h>

#include "cli/job.h"
#include "engine/draft.h"
#include "engine/schedule.h"

struct draft_options {
    const char *draft;  /* NULL: none */
    const char *tokens; /* NULL, a number or "auto" */
};
extern const struct option draft_options[];

enum draft_source { DRAFT_NONE, DRAFT_LOOKUP, DRAFT_PACKED, DRAFT_CUT, DRAFT_FILE };

struct generate_draft {
    enum draft_source source;
    enum storage storage;    /* of DRAFT_PACKED */
    int n_layers;            /* of DRAFT_CUT */
    const char *path;        /* of DRAFT_FILE */
    struct checkpoint other; /* the same */
    struct model *own;       /* of DRAFT_PACKED and DRAFT_CUT */
    struct session *session; /* NULL: lookup */
    struct drafter drafter;
};

/* Fills a zeroed struct with what the options say. STATUS_USAGE. */
enum status draft_parse(const struct draft_options *o, struct generate_draft *d, struct err *e);

/* Opens or makes its model, once the runtime has its own, and adds the bytes that it takes for each
 * sequence. Fails as the opening does; STATUS_USAGE for another vocabulary or a model that cannot
 * be made. */
enum status draft_open(struct generate_draft *d, struct job *r, struct session_wanted *w,
                       struct err *e);

/* Makes the drafter of a schedule whose other members are set, after runtime_start; nothing without
 * --draft. */
enum status draft_start(struct generate_draft *d, const struct job *r,
                        const struct session_wanted *w, struct schedule *s, struct err *e);

void draft_close(struct generate_draft *d); /* legal on a zeroed struct and twice */

/* What the drafts came to, on standard error: a line, or a JSON object. Nothing without --draft. */
void draft_report(const struct schedule *s, bool json);

#endif
