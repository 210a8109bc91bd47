/*
 * shape - a transformer's shape written on the command line.
 */
#ifndef DECODE_CLI_SHAPE_H
#define DECODE_CLI_SHAPE_H

#include "base/status.h"
#include "model/config.h"

/* Of a GPT-2 small in all but layers, width and heads, which are 0. */
struct config shape_gpt2(void);

/*
 * LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]: an MHA gpt2 shape. F is 4 * D_MODEL unless given;
 * V and C are GPT-2's, 50257 and 1024. STATUS_USAGE says which number, its range and what was
 * found.
 */
enum status shape_parse(const char *text, struct config *c, struct err *e);

#endif
