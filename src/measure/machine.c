#include "measure/machine.h"

#include <math.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/times.h"

/* A page, and 512 MiB, which few caches hold. */
#define LEAST_POWER 12
#define MOST_POWER  (MACHINE_POWERS - 1)

/* Where the threads had the processors for a smaller share of their time than CALM, all is measured
 * again, ATTEMPTS times at most. */
#define ATTEMPTS 3
#define CALM     0.85

static uint64_t bytes_of_power(int power)
{
    return (uint64_t)1 << power;
}

/* The least power of so many bytes or more, between LEAST_POWER and MOST_POWER. */
static int power_of(uint64_t bytes)
{
    int power = LEAST_POWER;
    while (power < MOST_POWER && bytes_of_power(power) < bytes)
        power++;
    return power;
}

/* --- measuring ------------------------------------------------------------------------------- */

void machine_want(struct machine *m, uint64_t bytes)
{
    m->wanted[power_of(bytes)] = true;
}

/* Less is read no slower than more: where it was, other work came between. */
static void raise_smaller(struct machine *m)
{
    double best = 0;
    for (int p = MOST_POWER; p >= 0; p--)
        if (m->bytes_per_s[p] > 0)
            m->bytes_per_s[p] = best = fmax(best, m->bytes_per_s[p]);
}

/* Measures every limit once; working sets above n floats are taken to be read as fast as n. */
static void measure_limits(struct machine *m, const struct kernels *k, struct pool *pool,
                           float *data, size_t n, double seconds)
{
    m->fma_flops_per_s = fmax(m->fma_flops_per_s, roofline_fma(k, pool, seconds));
    m->dot_flops_per_s = fmax(m->dot_flops_per_s, roofline_dot(k, pool, seconds));
    for (int p = 0; p < MACHINE_POWERS; p++)
        if (m->wanted[p]) {
            const size_t part = MIN(bytes_of_power(p) / sizeof *data, n);
            m->bytes_per_s[p] =
                fmax(m->bytes_per_s[p], roofline_read(k, pool, data, part, seconds));
        }
}

/* Memory of the largest size that is wanted, or a quarter of what is available. */
static uint64_t bytes_to_read(const struct machine *m)
{
    const uint64_t room = available_memory() / 4 & ~(bytes_of_power(LEAST_POWER) - 1);
    int power = MOST_POWER;
    while (power > LEAST_POWER && !m->wanted[power])
        power--;
    return MAX(MIN(bytes_of_power(power), room), bytes_of_power(LEAST_POWER));
}

enum status machine_measure(struct machine *m, const struct kernels *k, struct pool *pool,
                            double seconds, struct err *e)
{
    const uint64_t bytes = bytes_to_read(m);
    struct arena arena = {.used = bytes};
    TRY(arena_allocate(&arena, "the bandwidth measurement", e));
    float *data = arena_take(&arena, bytes, 1);
    roofline_fill(pool, data, bytes / sizeof *data);
    for (int attempt = 0; attempt < ATTEMPTS && m->cpu_share < CALM; attempt++) {
        const uint64_t start = clock_ns(), worked = clock_cpu_ns();
        measure_limits(m, k, pool, data, bytes / sizeof *data, seconds);
        const double share = (clock_cpu_ns() - worked) / (double)(clock_ns() - start);
        m->cpu_share = fmin(fmax(m->cpu_share, share / pool_n_threads(pool)), 1);
    }
    arena_free(&arena);
    raise_smaller(m);
    return STATUS_OK;
}

/* --- the function of the bytes --------------------------------------------------------------- */

struct roofline machine_limits(const struct machine *m, uint64_t bytes)
{
    return (struct roofline){m->bytes_per_s[power_of(bytes)], m->fma_flops_per_s,
                             m->dot_flops_per_s};
}

void machine_raise(struct machine *m, uint64_t bytes, const struct roofline *to)
{
    double *rate = &m->bytes_per_s[power_of(bytes)];
    *rate = fmax(*rate, to->bytes_per_s);
    m->fma_flops_per_s = fmax(m->fma_flops_per_s, to->fma_flops_per_s);
    m->dot_flops_per_s = fmax(m->dot_flops_per_s, to->dot_flops_per_s);
    raise_smaller(m);
}
