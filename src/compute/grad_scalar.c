/* The training kernels in plain C: what they compute and in which order. */
#define LANES_SCALAR
#include "compute/grad_vector.h"
