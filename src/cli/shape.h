/*
 * shape - a transformer's shape written on the command line, instead of a checkpoint.
 */
#ifndef DECODE_CLI_SHAPE_H
#define DECODE_CLI_SHAPE_H

#include "cli/options.h"
#include "model/config.h"

/* What a new model can be made as, of arch_preset; first the usual one. */
extern const char *const shape_archs[];

/* Fills in sizes that are 0: K/V heads as query heads, ff 4 * d_model, or 8/3 of it in steps of 32
 * for gated kinds, vocabulary and context as GPT-2's. Layers, width, heads, architecture and kinds
 * are there. */
void shape_complete(struct config *c);

/* LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]: an MHA shape of an architecture, completed.
 * STATUS_USAGE says which number, its range and what was found. */
enum status shape_parse(const char *text, const struct arch *arch, struct config *c, struct err *e);

struct shape_options {
    const char *shape;
    int arch; /* of shape_archs, and 1 more; 0: not given */
};
extern const struct option shape_options[];

/* The shape of --shape, which is given. STATUS_USAGE also if a checkpoint is named beside it. */
enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e);

#endif
