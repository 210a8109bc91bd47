/* The vector kernels for AVX-512 (F, BW, DQ, VL), and with VNNI, whose products of quantised
 * weights are kernels_avx512_vnni.c. */
#include "compute/kernels.h"

#if defined(__AVX512F__)
#define VECTOR_NAME      "avx512-base"
#define VECTOR_TABLE     kernels_avx512_base
#define VECTOR_DOT_NAME  "avx512"
#define VECTOR_DOT_TABLE kernels_avx512
#include "compute/kernels_vector.h"
#endif
