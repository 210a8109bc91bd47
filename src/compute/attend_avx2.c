/* Attention for AVX2 with FMA and F16C. */
#include "compute/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "compute/kernels_attend.h"
#endif
