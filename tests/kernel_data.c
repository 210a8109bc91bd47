#include "kernel_data.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/kernels_math.h"

static struct rng rng;

void seed_numbers(void)
{
    rng_seed(&rng, 20, 1);
}

uint32_t random_u32(void)
{
    return rng_u32(&rng);
}

float random_float(void)
{
    return (float)(rng_unit(&rng) + rng_unit(&rng) + rng_unit(&rng) - 1.5);
}

float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float *random_floats(size_t n)
{
    float *p = malloc(n * sizeof *p);
    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < n; i++)
        p[i] = random_float();
    return p;
}

float *copy_floats(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof *copy);
    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, x, n * sizeof *copy);
}

void *as_storage(const float *x, size_t n, enum storage storage)
{
    if (storage == STORAGE_Q8_0) {
        int8_t *bytes = malloc(n);
        ck_assert_ptr_nonnull(bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = isnan(x[i]) ? -128 : (int8_t)(x[i] * 80);
        return bytes;
    }
    void *out = malloc((size_t)storage_bytes(storage, n));
    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < n; i++)
        math_store(out, storage, i, x[i]);
    return out;
}

void assert_same_bits(const float *expected, const float *found, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&expected[i], &found[i], sizeof *found) != 0)
            ck_abort_msg("%s: element %zu is %a, not %a", what, i, (double)found[i],
                         (double)expected[i]);
}

bool is_testable(const struct kernels *k)
{
    return kernels_supported(k) && k != &kernels_scalar;
}
