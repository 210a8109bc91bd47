/*
 * llmc - the checkpoints of llm.c: GPT-2 in float32 (versions 1 and 3) and bfloat16 (version 5).
 *
 * Weights are [out, in], the output is the embedding. From version 3 on that has rows for more
 * tokens than there are, so that their number is round: they are left out.
 */
#ifndef DECODE_EXCHANGE_LLMC_H
#define DECODE_EXCHANGE_LLMC_H

#include "exchange/arrays.h"

/* Whether a file begins like one that llm.c's programs write, be it a checkpoint or not. */
bool llmc_is(struct text file);

/* As llama2c_open. */
enum status llmc_open(struct text file, struct arrays *out, struct err *e);

#endif
