/* The vector kernels for AArch64 with NEON, and with its dot product, whose products of quantised
 * weights are kernels_neon_dot.c. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#define VECTOR_NAME      "neon-base"
#define VECTOR_TABLE     kernels_neon_base
#define VECTOR_DOT_NAME  "neon"
#define VECTOR_DOT_TABLE kernels_neon
#define TILE_ACC         6
#define TILE_HEADS       4
#define TILE_TOKENS      6
#define QUANT_TOKENS     2
#define QUANT_ACC        2
#include "compute/kernels_vector.h"

#else

const struct kernels kernels_neon_base = {0}, kernels_neon = {0};

#endif
