/* The vector kernels for AArch64 with NEON and its dot product. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#define VECTOR_NAME  "neon"
#define VECTOR_TABLE kernels_neon
#define TILE_ACC     6
#define TILE_HEADS   4
#define TILE_TOKENS  6
#define QUANT_TOKENS 2
#define QUANT_ACC    2
#include "compute/kernels_vector.h"

#else

const struct kernels kernels_neon = {0};

#endif
