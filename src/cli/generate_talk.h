/*
 * generate_talk - generate's -i: each line that is read is a prompt that continues the text so far,
 * and is answered at once; lines that begin with a slash are commands.
 */
#ifndef DECODE_CLI_GENERATE_TALK_H
#define DECODE_CLI_GENERATE_TALK_H

#include "base/lines.h"
#include "base/text.h"
#include "cli/generate_state.h"

struct talk {
    /* Borrowed, filled in before. */
    struct generate_state *state; /* of a generation without samples */
    bool begins;                  /* the generation's own prompt is answered first */

    /* Private. */
    struct lines lines;
    struct bytes line; /* of several that belong together */
    int32_t *tokens;
    bool terminal, over, joined; /* joined: the next line belongs to this one */
};

/* Reads standard input to its end. STATUS_OK also when the output fails (which the output itself
 * knows); STATUS_INTERRUPTED, STATUS_NO_MEMORY; STATUS_FAILED for logits that are not finite. */
enum status talk_run(struct talk *t, struct err *e);

#endif
