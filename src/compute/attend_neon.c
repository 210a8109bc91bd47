/* Attention for AArch64 with NEON and its dot product. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "compute/kernels_attend.h"
#endif
