#include "measure/machine.h"

#include <assert.h>

#include "base/limits.h"

/* A page, and 512 MiB: if a processor's cache were larger, its rate would be little less. */
#define LEAST_POWER 12
#define MOST_POWER  (MACHINE_POWERS - 1)

/* The part of the time that goes to each of the two peaks. */
#define PEAK_SHARE 0.05

/* Rates that differ by no more are of one class: by so much one measurement repeats another. */
#define SAME_RATE 1.15

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
        n += m->wanted[p] && m->bytes_per_s[p] <= 0;
    return n;
}

/* Less to read is read no slower: where it was, something came between. */
static void raise_smaller(struct machine *m, int power)
{
    for (int p = 0; p < power; p++)
        if (m->bytes_per_s[p] > 0 && m->bytes_per_s[p] < m->bytes_per_s[power])
            m->bytes_per_s[p] = m->bytes_per_s[power];
}

enum status machine_measure(struct machine *m, const struct kernels *k, struct pool *pool,
                            double seconds, struct err *e)
{
    const int n = machine_n_wanted(m);
    const bool peaks = m->fma_flops_per_s <= 0;
    if (peaks) {
        m->fma_flops_per_s = roofline_fma(k, pool, seconds * PEAK_SHARE);
        m->dot_flops_per_s = roofline_dot(k, pool, seconds * PEAK_SHARE);
    }
    const double each = seconds * (peaks ? 1 - 2 * PEAK_SHARE : 1) / (n > 0 ? n : 1);
    for (int p = 0; p < MACHINE_POWERS; p++)
        if (m->wanted[p] && m->bytes_per_s[p] <= 0)
            TRY(roofline_read(k, pool, (size_t)bytes_of_power(p), each, &m->bytes_per_s[p], e));
    for (int p = 0; p < MACHINE_POWERS; p++)
        raise_smaller(m, p);
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
}

/* Time, not rate, goes straight between two powers: a line over depths then has no corner that the
 * machine does not have. */
static double rate_of(const struct machine *m, uint64_t bytes)
{
    const double *rates = m->bytes_per_s;
    int below, above;
    find_measured(m, bytes, &below, &above);
    assert(below >= 0 || above >= 0);
    if (below < 0 || above < 0 || rates[below] <= rates[above])
        return rates[below < 0 ? above : below];
    const double b0 = (double)bytes_of_power(below), b1 = (double)bytes_of_power(above),
                 b = (double)bytes;
    const double t0 = b0 / rates[below], t1 = b1 / rates[above];
    return b / (t0 + (t1 - t0) * (b - b0) / (b1 - b0));
}

struct roofline machine_limits(const struct machine *m, uint64_t bytes)
{
    return (struct roofline){rate_of(m, bytes), m->fma_flops_per_s, m->dot_flops_per_s};
}

static void raise_rate(double *rate, double to)
{
    *rate = to > *rate ? to : *rate;
}

void machine_raise(struct machine *m, uint64_t bytes, const struct roofline *to)
{
    raise_rate(&m->fma_flops_per_s, to->fma_flops_per_s);
    raise_rate(&m->dot_flops_per_s, to->dot_flops_per_s);
    if (rate_of(m, bytes) >= to->bytes_per_s)
        return;
    /* Of its own power if it was measured, else of the next larger one, else of the largest. */
    int below, above;
    find_measured(m, bytes, &below, &above);
    const int highest = above >= 0 && (below < 0 || bytes > bytes_of_power(below)) ? above : below;
    raise_rate(&m->bytes_per_s[highest], to->bytes_per_s);
    raise_smaller(m, highest);
}

/* --- classes --------------------------------------------------------------------------------- */

void machine_settle(struct machine *m)
{
    int first = -1; /* of the class, from the largest down */
    double least = 0;
    for (int p = MACHINE_POWERS - 1; p >= 0; p--) {
        const double rate = m->bytes_per_s[p];
        if (rate <= 0)
            continue;
        if (first < 0 || rate > least * SAME_RATE) {
            first = p;
            least = rate;
        }
        for (int q = p; q <= first; q++)
            raise_rate(&m->bytes_per_s[q], m->bytes_per_s[q] > 0 ? rate : 0);
    }
}
