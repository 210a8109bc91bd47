/* Attention for AArch64 with NEON. */
#include "compute/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include "compute/kernels_attend.h"
#endif
