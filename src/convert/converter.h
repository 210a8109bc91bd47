/*
 * converter - the frame of a conversion: what is asked for, its memory, and a block's first steps.
 * convert.c and budget.c stand on it.
 */
#pragma once

#include "convert/state.h"

/* STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be carried out. */
enum status convert_describe(struct converter *c, const struct convert_spec *spec,
                             struct convert *out, struct err *e);

/* Counts what a described conversion needs of c->arena and c->out->arena, or, once they are
 * allocated, gets it. */
void convert_allocate(struct converter *c);

/* Describes a conversion and gets it ready: its memory, the checkpoint as a model, the text's
 * windows. convert_close is due on success, which leaves *out, whose convert_free is due then, too.
 * The failures of convert_describe and model_create; STATUS_NO_MEMORY; STATUS_INTERRUPTED. */
enum status convert_open(struct converter *c, const struct convert_spec *spec, struct convert *out,
                         struct err *e);
void convert_close(struct converter *c);

/* Begins the next block: its sizes, and its weights from the file. STATUS_INTERRUPTED. */
enum status convert_begin_block(struct converter *c, int block);

/* Makes and stores the shared heads of a block that is begun and calibrated, with what its layers
 * lose in c->out; or keeps the heads of one that has no more than wanted. The failures of
 * convert_group_heads and convert_store. */
enum status convert_share(struct converter *c, struct err *e);
