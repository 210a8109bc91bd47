#include "kernel_data.h"

#include <string.h>

#include "base/rng.h"
#include "compute/kernels_math.h"
#include "support.h"

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
    float *p = allocated(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = random_float();
    return p;
}

float *copy_floats(const float *x, size_t n)
{
    return memcpy(allocated(n * sizeof *x), x, n * sizeof *x);
}

void *as_storage(const float *x, size_t n, enum storage storage)
{
    if (storage == STORAGE_F32)
        return copy_floats(x, n);
    uint16_t *halves = allocated(n * sizeof *halves);
    for (size_t i = 0; i < n; i++)
        halves[i] = storage == STORAGE_F16 ? f16_round(x[i]) : bf16_round(x[i]);
    return halves;
}

void assert_same_bits(const float *expected, const float *found, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&expected[i], &found[i], sizeof *found) != 0)
            ck_abort_msg("%s: element %zu is %a, not %a", what, i, (double)found[i],
                         (double)expected[i]);
}

const struct kernels *next_kernels(const struct kernels *k)
{
    int i = 0;
    while (k && kernels_at(i) != k)
        i++;
    for (i += k != NULL; kernels_at(i) && !kernels_supported(kernels_at(i));)
        i++;
    return kernels_at(i);
}

const struct kernels *next_vector(const struct kernels *k)
{
    const struct kernels *next = next_kernels(k);
    return next == &kernels_scalar ? next_kernels(next) : next;
}

const struct kernels *fastest_kernels(void)
{
    const struct kernels *k = NULL;
    expect_ok(kernels_choose(NULL, &k, &err));
    return k;
}
