/* The training kernels in plain C: what they compute and in which order. */
#define LANES_SCALAR
#define VECTOR_NAME  "scalar"
#define VECTOR_TABLE grad_scalar
#define TILE_VECS    1
#define TILE_ROWS    1
#define NARROW_ROWS  1
#define PACKS        false
#include "compute/grad_vector.h"
