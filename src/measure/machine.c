#include "measure/machine.h"

#include <assert.h>
#include <math.h>

#include "base/limits.h"
#include "base/times.h"

/* A page, and 512 MiB: if a processor's cache were larger, its rate would be little less. */
#define LEAST_POWER 12
#define MOST_POWER  (MACHINE_POWERS - 1)

/* The part of the time that goes to each of the two peaks. */
#define PEAK_SHARE 0.05

/* Rates that differ by no more are of one class: by so much one measurement repeats another. */
#define SAME_RATE 1.15

/* Beside other work a measurement is taken again, so often in all. */
#define ATTEMPTS 3
#define CALM     0.85

static uint64_t bytes_of_power(int power)
{
    return (uint64_t)1 << power;
}

/* The largest power of no more than so many bytes, but at least LEAST_POWER and at most `most`. */
static int power_of(uint64_t bytes, int most)
{
    int power = LEAST_POWER;
    while (power < most && bytes_of_power(power + 1) <= bytes)
        power++;
    return power;
}

/* --- measuring ------------------------------------------------------------------------------- */

void machine_want(struct machine *m, uint64_t bytes)
{
    /* Of the memory that is available a measurement may take a quarter. */
    const int most = power_of(available_memory() / 4, MOST_POWER);
    const int below = power_of(bytes, most);
    m->wanted[below] = true;
    if (below < most && bytes > bytes_of_power(below))
        m->wanted[below + 1] = true;
}

int machine_n_wanted(const struct machine *m)
{
    int n = 0;
    for (int p = 0; p < MACHINE_POWERS; p++)
        n += m->wanted[p];
    return n;
}

/* Less to read is read no slower: where it was, something came between. */
static void raise_smaller(struct machine *m)
{
    double best = 0;
    for (int p = MOST_POWER; p >= 0; p--)
        if (m->bytes_per_s[p] > 0)
            m->bytes_per_s[p] = best = fmax(best, m->bytes_per_s[p]);
}

/* Once. */
static enum status measure_limits(struct machine *m, const struct kernels *k, struct pool *pool,
                                  double seconds, struct err *e)
{
    const double each = seconds * (1 - 2 * PEAK_SHARE) / machine_n_wanted(m);
    double rate;
    m->fma_flops_per_s = fmax(m->fma_flops_per_s, roofline_fma(k, pool, seconds * PEAK_SHARE));
    m->dot_flops_per_s = fmax(m->dot_flops_per_s, roofline_dot(k, pool, seconds * PEAK_SHARE));
    for (int p = 0; p < MACHINE_POWERS; p++)
        if (m->wanted[p]) {
            TRY(roofline_read(k, pool, bytes_of_power(p), each, &rate, e));
            m->bytes_per_s[p] = fmax(m->bytes_per_s[p], rate);
        }
    return STATUS_OK;
}

enum status machine_measure(struct machine *m, const struct kernels *k, struct pool *pool,
                            double seconds, struct err *e)
{
    for (int attempt = 0; attempt < ATTEMPTS && m->cpu_share < CALM; attempt++) {
        const uint64_t start = clock_ns(), worked = clock_cpu_ns();
        TRY(measure_limits(m, k, pool, seconds / 2, e));
        const double share = (clock_cpu_ns() - worked) / (double)(clock_ns() - start);
        m->cpu_share = fmin(fmax(m->cpu_share, share / pool_n_threads(pool)), 1);
    }
    raise_smaller(m);
    return STATUS_OK;
}

/* --- the function of the bytes --------------------------------------------------------------- */

/* The measured powers next to so many bytes: no more, and more; -1: none. */
static void find_measured(const struct machine *m, uint64_t bytes, int *below, int *above)
{
    *below = *above = -1;
    for (int p = MOST_POWER; p >= 0 && *below < 0; p--)
        if (m->bytes_per_s[p] > 0)
            *(bytes_of_power(p) <= bytes ? below : above) = p;
    assert(*below >= 0 || *above >= 0);
}

/* Time, not rate, goes straight between two powers: a line over depths then has no corner that the
 * machine does not have. */
struct roofline machine_limits(const struct machine *m, uint64_t bytes)
{
    const double *rates = m->bytes_per_s;
    const double b = bytes;
    int below, above;
    find_measured(m, bytes, &below, &above);
    double rate = rates[below < 0 ? above : below];
    if (below >= 0 && above >= 0 && rates[below] > rates[above]) {
        const double b0 = bytes_of_power(below), b1 = bytes_of_power(above);
        const double t0 = b0 / rates[below], t1 = b1 / rates[above];
        rate = b / (t0 + (t1 - t0) * (b - b0) / (b1 - b0));
    }
    return (struct roofline){rate, m->fma_flops_per_s, m->dot_flops_per_s};
}

void machine_raise(struct machine *m, uint64_t bytes, const struct roofline *to)
{
    int below, above;
    m->fma_flops_per_s = fmax(m->fma_flops_per_s, to->fma_flops_per_s);
    m->dot_flops_per_s = fmax(m->dot_flops_per_s, to->dot_flops_per_s);
    if (machine_limits(m, bytes).bytes_per_s >= to->bytes_per_s)
        return;
    /* Of its own power if it was measured, else of the next larger one, else of the largest. */
    find_measured(m, bytes, &below, &above);
    const bool own = above < 0 || (below >= 0 && bytes == bytes_of_power(below));
    double *rate = &m->bytes_per_s[own ? below : above];
    *rate = fmax(*rate, to->bytes_per_s);
    raise_smaller(m);
}

void machine_settle(struct machine *m)
{
    int first = -1; /* of the class, from the largest down */
    double least = 0;
    for (int p = MOST_POWER; p >= 0; p--) {
        const double rate = m->bytes_per_s[p];
        if (rate <= 0)
            continue;
        if (first < 0 || rate > least * SAME_RATE) {
            first = p;
            least = rate;
        }
        for (int q = p; q <= first; q++)
            if (m->bytes_per_s[q] > 0)
                m->bytes_per_s[q] = fmax(m->bytes_per_s[q], rate);
    }
}
