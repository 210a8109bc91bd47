#include "compute/grad_kernels.h"

const struct grad_kernels *grad_kernels_for(const struct kernels *k)
{
    if (k == &kernels_avx512 || k == &kernels_avx512_base)
        return &grad_avx512;
    if (k == &kernels_avx2)
        return &grad_avx2;
    if (k == &kernels_neon || k == &kernels_neon_base)
        return &grad_neon;
    return &grad_scalar;
}
