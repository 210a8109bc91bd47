/*
 * group - which heads share.
 */
#ifndef DECODE_CONVERT_GROUP_H
#define DECODE_CONVERT_GROUP_H

#include "convert/work.h"

/* Takes the costs of all groups, where they are wanted, or counts them. */
void convert_group_take(struct converter *c, struct arena *arena);

/* Fills in order and group_of. False if an eigenproblem diverged. */
bool convert_group(struct converter *c);

#endif
