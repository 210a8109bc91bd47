#include "safetensors/dtype.h"

#include "base/checked.h"

/* In the order of version 0.8 of the library, from which the places of a file's tensors follow. */
static const struct safetensors_dtype dtypes[] = {
    {"BOOL", 8, -1},    {"F4", 4, -1},           {"F6_E2M3", 6, -1},        {"F6_E3M2", 6, -1},
    {"U8", 8, -1},      {"I8", 8, -1},           {"F8_E5M2", 8, -1},        {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1}, {"F8_E4M3FNUZ", 8, -1},  {"F8_E5M2FNUZ", 8, -1},    {"I16", 16, -1},
    {"U16", 16, -1},    {"F16", 16, TENSOR_F16}, {"BF16", 16, TENSOR_BF16}, {"I32", 32, -1},
    {"U32", 32, -1},    {"F32", 32, TENSOR_F32}, {"C64", 64, -1},           {"F64", 64, -1},
    {"I64", 64, -1},    {"U64", 64, -1},
};

#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

const struct safetensors_dtype *safetensors_dtype_named(struct text name)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (text_is(name, dtypes[i].name))
            return &dtypes[i];
    return NULL;
}

const struct safetensors_dtype *safetensors_dtype_of(enum tensor_type type)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].type == (int)type)
            return &dtypes[i];
    return NULL;
}

bool safetensors_measure(const struct safetensors_dtype *dtype, int n_dims, const uint64_t *dims,
                         uint64_t *bytes)
{
    uint64_t bits = 1;
    for (int d = 0; d < n_dims; d++)
        if (!u64_mul(bits, dims[d], &bits))
            return false;
    if (!u64_mul(bits, (uint64_t)dtype->bits, &bits) || bits % 8 != 0)
        return false;
    *bytes = bits / 8;
    return true;
}
