/*
 * blocks - rows of numbers in GGUF's tensor types: F32, F16, BF16, Q8_0, Q4_0.
 *
 * Encoded data are little-endian, as in a file, and may lie at any address. The block types take
 * 32 elements at a time:
 *
 *   Q8_0  d as F16, then 32 int8 q;     x = d * q        d = max |x| / 127, q = round(x / d)
 *   Q4_0  d as F16, then 16 bytes q;    x = d * (q - 8)  d = x of largest magnitude / -8,
 *         element j in the low nibble of byte j,         q = min(15, floor(x / d + 8.5))
 *         element j + 16 in its high nibble
 *
 * Source: quantize_row_q8_0_ref and quantize_row_q4_0_ref of the ggml project, which define
 * what is in a file. As there, x / d is x * (1 / d) in float with the d before it is rounded to
 * F16, ties are rounded away from zero, and the product of Q4_0 is rounded before 8.5 is added.
 * (Where a compiler fuses the two, as it may for processors whose baseline has fma, llama.cpp's
 * own files differ from those it makes on x86 in rare blocks.)
 *
 * The functions depend on nothing but their arguments: any threads may run them at once.
 */
#ifndef DECODE_FORMATS_BLOCKS_H
#define DECODE_FORMATS_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether `type` (an enum tensor_type) is one of the five; the functions below take no other
 * (asserted). */
bool blocks_runs(uint32_t type);

/*
 * Encodes n floats, n a multiple of the type's block (asserted), to n / block_elements *
 * block_bytes bytes. F16 and BF16 round to nearest even; what F16 cannot hold becomes infinite.
 * A block with an infinity or a NaN in it, or whose d overflows F16, decodes to NaNs or
 * infinities: the caller who minds looks for those.
 */
void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n);

/* Decodes n elements, n a multiple of the type's block (asserted), to floats. */
void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n);

/* Makes the elements first to first + n - 1 of encoded data 0; the others, also those of their
 * blocks, decode to what they did. */
void blocks_zero(uint32_t type, void *data, uint64_t first, uint64_t n);

#endif
