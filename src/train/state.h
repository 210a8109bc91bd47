/*
 * state - the file OUT.state: everything that the next step of a run depends on.
 */
#pragma once

#include "train/private.h"

/* Maps the file at `path` and checks its header, length and checksum. STATUS_USAGE if there is
 * none; STATUS_BAD_FILE if it is none of this format or version. file_map_close of s->file is due
 * in every case. */
enum status state_open(struct state_file *s, const char *path, struct err *e);

/* Fills in the hashes of model and teacher, by which a state is known. STATUS_NO_MEMORY. */
enum status state_identify(struct trainer *t, struct err *e);

/* Whether t->state is of the run t. STATUS_USAGE names the first input that is another, or says
 * that the state has made more steps than are asked for. */
enum status state_compare(const struct trainer *t, struct err *e);

/* Reads weights and moments from t->state. STATUS_BAD_FILE for a wrong number of them. */
enum status state_read(struct trainer *t, struct err *e);

/* Writes t->state_path, atomically. */
enum status state_write(const struct trainer *t, struct err *e);
