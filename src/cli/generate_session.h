/*
 * generate_session - a session with a model.
 */
#pragma once

#include "cli/generate.h"

/* A session: each line of standard input continues the text so far and is answered at once; the
 * generation's own prompt, if `begins`, is answered first. STATUS_OK also when the output fails
 * (which it knows itself); STATUS_INTERRUPTED, STATUS_NO_MEMORY; STATUS_FAILED for logits that are
 * not finite; STATUS_BAD_FILE for an input that cannot be read, STATUS_USAGE for a line without an
 * end. Where standard input and standard error are terminals, and -q is not given, lines are typed
 * with the editor of show/editor.h. */
enum status generation_session(struct generation *g, bool begins, struct err *e);
