/*
 * blocks - GGUF's tensor types, and rows of numbers in five of them: F32, F16, BF16, Q8_0, Q4_0.
 *
 * Encoded data are little-endian, as in a file, and may lie at any address. The block types take
 * 32 elements at a time:
 *
 *   Q8_0  d as F16, then 32 int8 q;     x = d * q        d = max |x| / 127, q = round(x / d)
 *   Q4_0  d as F16, then 16 bytes q;    x = d * (q - 8)  d = x of largest magnitude / -8,
 *         element j in the low nibble of byte j,         q = min(15, floor(x / d + 8.5))
 *         element j + 16 in its high nibble
 *   Q5_0  d as F16, 4 bytes of fifth    x = d * (q - 16) d = x of largest magnitude / -16,
 *         bits, the nibbles of Q4_0                      q = min(31, floor(x / d + 16.5))
 *
 * Source: quantize_row_q8_0_ref, quantize_row_q4_0_ref and quantize_row_q5_0_ref of the ggml
 * project, which define what is in a file. As there, x / d is x * (1 / d) in float with the d
 * before it is rounded to F16, ties are rounded away from zero, and the product of Q4_0 is rounded
 * before 8.5 is added. (Where a compiler fuses the two, as it may for processors whose baseline has
 * fma, llama.cpp's own files differ from those it makes on x86 in rare blocks.)
 *
 * The functions depend on nothing but their arguments: any threads may run them at once.
 */
#pragma once

#include "base/text.h"

/* --- types ------------------------------------------------------------------------------------ */

/* The types of tensors' elements that this program reads; the numbers are the file's.
 * tensor_type_find knows the sizes of all types. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_BF16 = 30,
};

/* A block of `block_elements` consecutive elements of a row takes `block_bytes` bytes. */
struct tensor_type_info {
    const char *name; /* "F32", "Q4_K", ... as the field writes them */
    uint32_t type;
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* Returns the bytes of so many elements, which are whole blocks. */
static inline uint64_t tensor_type_bytes(const struct tensor_type_info *type, uint64_t elements)
{
    return elements / type->block_elements * type->block_bytes;
}

/* Returns the type of this number; NULL if it is unknown or was removed from the format. */
const struct tensor_type_info *tensor_type_find(uint32_t type);
/* Returns the type of this name, in letters of any case ("q8_0"); NULL if there is none. */
const struct tensor_type_info *tensor_type_named(struct text name);

/* Returns general.file_type of a file whose matrices have this type: a number of llama.cpp's enum
 * llama_ftype. */
uint32_t gguf_file_type(uint32_t type);

/* --- numbers in blocks ------------------------------------------------------------------------ */

/* Whether matrices of `type` (an enum tensor_type) run: F32, F16, BF16, Q8_0 and Q4_0. */
bool blocks_runs(uint32_t type);

/*
 * Returns the type that numbers of `type` have in memory: the same for the five. The types that are
 * only read (Q4_1, Q5_0, Q5_1, Q2_K to Q5_K, IQ4_NL) are widened to Q8_0, whose rounding adds at
 * most 1.2% to the error that they have themselves (for weights that are normally or t5
 * distributed); Q6_K, for which that would be 2.7%, is widened to F16.
 */
uint32_t blocks_in_memory(uint32_t type);
#define BLOCKS_READ "F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K or IQ4_NL"

/*
 * Encodes n floats, n a multiple of the type's block, to n / block_elements * block_bytes bytes, of
 * the types that run (both asserted). F16 and BF16 round to nearest even; what F16 cannot
 * hold becomes infinite. A block with an infinity or a NaN in it, or whose d overflows F16, decodes
 * to NaNs or infinities: the caller who minds looks for those.
 */
void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n);

/* Decodes n elements, n a multiple of the type's block (asserted), to floats. Takes the five types
 * and those that are only read. */
void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n);
