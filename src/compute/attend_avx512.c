/* Attention for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "compute/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "compute/kernels_attend.h"
#endif
