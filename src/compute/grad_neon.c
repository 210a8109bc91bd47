/* The training kernels for AArch64 with NEON and its dot product. */
#include "compute/grad_kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define VECTOR_NAME  "neon"
#define VECTOR_TABLE grad_neon
#define TILE_VECS    1
#define TILE_ROWS    6
#define NARROW_ROWS  6
#define PACKS        false
#include "compute/grad_vector.h"
#endif
