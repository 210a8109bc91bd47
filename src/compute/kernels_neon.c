/* The vector kernels for AArch64 with NEON and its dot product. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define VECTOR_NAME  "neon"
#define VECTOR_TABLE kernels_neon
#include "compute/kernels_vector.h"
#endif
