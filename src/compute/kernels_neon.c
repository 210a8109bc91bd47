/* The vector kernels for AArch64 with NEON, and with its dot product, whose products of quantised
 * weights are kernels_neon_dot.c. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#define VECTOR_NAME      "neon-base"
#define VECTOR_TABLE     kernels_neon_base
#define VECTOR_DOT_NAME  "neon"
#define VECTOR_DOT_TABLE kernels_neon
#include "compute/kernels_vector.h"
#endif
