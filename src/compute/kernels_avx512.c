/* The vector kernels for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "compute/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)

#define VECTOR_NAME  "avx512"
#define VECTOR_TABLE kernels_avx512
#define TILE_ACC     24
#define TILE_HEADS   12
#define TILE_TOKENS  6
#define QUANT_TOKENS 6
#define QUANT_ACC    12
#include "compute/kernels_vector.h"

#else

const struct kernels kernels_avx512 = {0};

#endif
