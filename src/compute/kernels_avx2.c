/* The vector kernels for AVX2 with FMA and F16C. */
#include "compute/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define VECTOR_NAME  "avx2"
#define VECTOR_TABLE kernels_avx2
#include "compute/kernels_vector.h"
#endif
