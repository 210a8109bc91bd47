/* The vector kernels for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "compute/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#define VECTOR_NAME  "avx512"
#define VECTOR_TABLE kernels_avx512
#include "compute/kernels_vector.h"
#endif
