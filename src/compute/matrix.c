#include "compute/matrix.h"

#include <assert.h>

const char *const storage_names[STORAGE_COUNT + 1] = {
    [STORAGE_F32] = "f32",   [STORAGE_F16] = "f16",   [STORAGE_BF16] = "bf16",
    [STORAGE_Q8_0] = "q8_0", [STORAGE_Q4_0] = "q4_0",
};

uint64_t storage_bytes(enum storage s, uint64_t n)
{
    const uint64_t blocks = (n + QUANT_BLOCK - 1) / QUANT_BLOCK;
    assert((unsigned)s < STORAGE_COUNT);
    return n * storage_block_bytes(s) / QUANT_BLOCK +
           (storage_is_quantised(s) ? blocks * sizeof(uint16_t) : 0);
}

size_t matrix_panel_bytes(int n_in, enum storage s)
{
    const size_t elements = (size_t)n_in * KERNEL_LANES, block = storage_block_bytes(s);
    assert((unsigned)s < STORAGE_COUNT && n_in >= 1);
    if (storage_is_quantised(s))
        return matrix_scales_bytes(n_in) + elements / QUANT_BLOCK * block;
    return elements * (block / QUANT_BLOCK);
}

uint64_t matrix_bytes(int n_out, int n_in, enum storage s)
{
    return (uint64_t)matrix_panels(n_out) * matrix_panel_bytes(n_in, s);
}
