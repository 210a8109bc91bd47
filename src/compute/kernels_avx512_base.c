/* The vector kernels for AVX-512 (F, BW, DQ, VL), for processors without VNNI. */
#include "compute/kernels.h"

#if defined(__AVX512F__)

#define VECTOR_NAME  "avx512-base"
#define VECTOR_TABLE kernels_avx512_base
#define TILE_ACC     24
#define TILE_HEADS   12
#define TILE_TOKENS  6
#define QUANT_TOKENS 6
#define QUANT_ACC    6
#include "compute/kernels_vector.h"

#else

const struct kernels kernels_avx512_base = {0};

#endif
