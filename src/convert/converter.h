/*
 * converter - the frame of a conversion: what is asked for, its memory, and a block's first steps.
 * convert.c, budget.c and likeness.c stand on it.
 */
#pragma once

#include "convert/private.h"

/* STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be carried out. */
enum status convert_describe(struct converter *c, const struct convert_spec *spec,
                             struct convert *out, struct err *e);

/* Counts what a conversion needs of c->arena and c->out->arena, or, once they are allocated, takes
 * it. */
void convert_memory_take(struct converter *c);

/* Runs `work` with memory, the checkpoint as a model (c->model, if that is not NULL) and the text's
 * windows, which are let go of; c->out stays. */
enum status convert_work(struct converter *c,
                         enum status (*work)(struct converter *c, struct err *e), struct err *e);

/* Begins the next block: its sizes, and its weights from the file. */
void convert_begin(struct converter *c, int block);

/* The shared heads of a block that is begun and calibrated, and in *lost (may be NULL) what they
 * lose; stored but for the output matrix. */
enum status convert_share(struct converter *c, struct convert_layer *lost, struct err *e);
