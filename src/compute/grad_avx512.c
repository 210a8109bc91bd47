/* The training kernels for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "compute/grad_kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#define VECTOR_NAME  "avx512"
#define VECTOR_TABLE grad_avx512
#define TILE_VECS    2
#define TILE_ROWS    12
#define NARROW_ROWS  16
#define PACKS        false
#include "compute/grad_vector.h"
#endif
