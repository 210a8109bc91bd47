/* The training kernels for AVX2 with FMA and F16C. */
#include "compute/grad_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define VECTOR_NAME  "avx2"
#define VECTOR_TABLE grad_avx2
#define TILE_VECS    1
#define TILE_ROWS    6
#define NARROW_ROWS  6
#define PACKS        true
#include "compute/grad_vector.h"
#endif
