/* Attention for AVX-512 (F, BW, DQ, VL). */
#include "compute/kernels.h"

#if defined(__AVX512F__)
#include "compute/kernels_attend.h"
#endif
