/*
 * llama2c - the checkpoints of llama2.c, versions 0 (its first, without a magic number), 1
 * (float32) and 2 (int8 in groups, which become the F32 that they stand for).
 *
 * Architecture llama: pairs that turn are neighbours already. The epsilon of its norms and the base
 * of its positions are constants of its program.
 */
#ifndef DECODE_EXCHANGE_LLAMA2C_H
#define DECODE_EXCHANGE_LLAMA2C_H

#include "exchange/arrays.h"

/* Whether a file begins like one: with the magic number, or with seven numbers that can be a
 * shape. */
bool llama2c_is(struct text file);

/* Checks the header and that the file is as long as it says. The file is borrowed, at any address.
 * STATUS_BAD_FILE says what was expected and found. */
enum status llama2c_open(struct text file, struct arrays *out, struct err *e);

#endif
