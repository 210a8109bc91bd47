/*
 * kernels_dot - what an instruction for dot products of bytes makes faster, where that is all that
 * one instruction set has over another (private to the vector kernel objects).
 *
 * An object compiled for the instruction has these; all other kernels are those of the object
 * without it, which makes the tables of both. An architecture has one such object at most.
 */
#ifndef DECODE_COMPUTE_KERNELS_DOT_H
#define DECODE_COMPUTE_KERNELS_DOT_H

#include "compute/kernels.h"

/* Products with quantised weights, as `matmul` of struct kernels, whose check was made. */
void dot_matmul_q8_0(const struct matmul *m, int panel_begin, int panel_end);
void dot_matmul_q4_0(const struct matmul *m, int panel_begin, int panel_end);

/* `dot` of struct kernels. */
float dot_rounds(long rounds);

#endif
