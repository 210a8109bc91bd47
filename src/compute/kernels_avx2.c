/* The vector kernels for AVX2 with FMA and F16C. */
#include "compute/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#define VECTOR_NAME  "avx2"
#define VECTOR_TABLE kernels_avx2
#define TILE_ACC     6
#define TILE_HEADS   6
#define TILE_TOKENS  6
#define QUANT_TOKENS 4
#define QUANT_ACC    4
#include "compute/kernels_vector.h"

#else

const struct kernels kernels_avx2 = {0};

#endif
