/* Products of quantised weights for AVX-512 with VNNI. */
#include "compute/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "compute/kernels_machine.h"
#include "compute/kernels_matmul.h"

MATMUL_OF(extern, dot_matmul_q8_0, STORAGE_Q8_0)
MATMUL_OF(extern, dot_matmul_q4_0, STORAGE_Q4_0)

float dot_rounds(long rounds)
{
    return vector_dot(rounds);
}
#endif
