/*
 * state - the file OUT.state: everything that the next step of a run depends on.
 */
#pragma once

#include "train/private.h"

/* Reads the header of the file that s->file maps; `path` is for messages. STATUS_BAD_FILE if it is
 * none of this format or version. */
enum status state_parse(struct state_file *s, const char *path, struct err *e);

/* Fills in t->identity from its options, model, text and teacher. */
void state_identify(struct trainer *t);

/* STATUS_USAGE, naming the first option or input in which t->state's identity differs from
 * t->identity. */
enum status state_compare(const struct trainer *t, struct err *e);

/* Reads weights and moments from t->state. STATUS_BAD_FILE for a wrong length or checksum. */
enum status state_read(struct trainer *t, struct err *e);

/* Writes t->state_path, atomically. */
enum status state_write(const struct trainer *t, struct err *e);
