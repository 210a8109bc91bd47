#include "measure/machine.h"

#include <assert.h>

#include "base/available.h"

/* For each measurement of memory, and for the two of arithmetic. */
#define READ_SECONDS 0.25
#define PEAK_SECONDS 0.05

/* A page, and 512 MiB: if a processor's cache were larger, its rate would be little less. */
#define LEAST_POWER 12
#define MOST_POWER  29

/* Of the memory that is available, what a measurement may take: a quarter. */
static int power_of(uint64_t bytes)
{
    const uint64_t left = available_memory() / 4;
    int power = LEAST_POWER;
    while (power < MOST_POWER && bytes > (uint64_t)1 << power && left > (uint64_t)2 << power)
        power++;
    return power;
}

enum status machine_limits(struct machine *m, uint64_t bytes, struct roofline *out, struct err *e)
{
    assert(m->kernels);
    const int power = power_of(bytes);
    double *rate = &m->bytes_per_s[power];
    if (m->fma_flops_per_s <= 0) {
        m->fma_flops_per_s = roofline_fma(m->kernels, m->pool, PEAK_SECONDS);
        m->dot_flops_per_s = roofline_dot(m->kernels, m->pool, PEAK_SECONDS);
    }
    if (*rate <= 0)
        TRY(roofline_read(m->kernels, m->pool, (size_t)1 << power, READ_SECONDS, rate, e));
    *out = (struct roofline){*rate, m->fma_flops_per_s, m->dot_flops_per_s};
    return STATUS_OK;
}
