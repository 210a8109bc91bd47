/*
 * self_text - a text that a checkpoint writes itself, where a command takes a file: self or self:N.
 */
#pragma once

#include "cli/job.h"

#define SELF_TOKENS 16384 /* of self without a number */
#define SELF_CTX    16    /* of a model that can write, at least */

/* Whether a name is no file's, but self or self:N. */
bool self_text_is(const char *name);

/* The N of such a name. STATUS_USAGE for a number below `least`. */
enum status self_text_count(const char *option, const char *name, int least, int *n, struct err *e);

/* Fills tokens [n * length] with n texts that the checkpoint at `path` writes at temperature 1, as
 * own_text_write has it, while a progress line tells how far it is. Threads are started.
 * STATUS_USAGE for too short a context; STATUS_BAD_FILE without a tokenizer; the failures of
 * model_create and own_text_write. */
struct self_text {
    const struct checkpoint *checkpoint;
    const char *path, *option; /* for messages */
    uint64_t seed;
    int n, length; /* length at most the model's context */
};
enum status self_text_write(struct job *j, const struct self_text *t, int32_t *tokens,
                            struct err *e);
