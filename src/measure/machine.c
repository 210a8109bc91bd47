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

static uint64_t bytes_of(int power)
{
    return (uint64_t)1 << power;
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Of the memory that is available, what a measurement may take: a quarter. */
static int most_power(void)
{
    const uint64_t left = available_memory() / 4;
    int power = MOST_POWER;
    while (power > LEAST_POWER && bytes_of(power) > left)
        power--;
    return power;
}

void machine_want(struct machine *m, uint64_t bytes)
{
    const int most = most_power();
    int below = LEAST_POWER;
    while (below < most && bytes_of(below + 1) <= bytes)
        below++;
    m->wanted[below] = true;
    if (below < most && bytes > bytes_of(below))
        m->wanted[below + 1] = true;
}

static bool is_missing(const struct machine *m, int power)
{
    return m->wanted[power] && m->bytes_per_s[power] <= 0;
}

int machine_n_wanted(const struct machine *m)
{
    int n = 0;
    for (int p = 0; p < MACHINE_POWERS; p++)
        n += is_missing(m, p);
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
        if (is_missing(m, p))
            TRY(roofline_read(k, pool, (size_t)bytes_of(p), each, &m->bytes_per_s[p], e));
    for (int p = 0; p < MACHINE_POWERS; p++)
        raise_smaller(m, p);
    return STATUS_OK;
}

/* --- the function of the bytes --------------------------------------------------------------- */

/* The nearest powers that were measured: of no more than so many bytes, and of more; -1: none. */
static void find_neighbours(const struct machine *m, uint64_t bytes, int *below, int *above)
{
    *below = *above = -1;
    for (int p = 0; p < MACHINE_POWERS; p++) {
        if (m->bytes_per_s[p] <= 0)
            continue;
        if (bytes_of(p) <= bytes)
            *below = p;
        else if (*above < 0)
            *above = p;
    }
    assert(*below >= 0 || *above >= 0);
}

/* Time, not rate, goes straight between two powers: a line over depths then has no corner that the
 * machine does not have. */
static double rate_of(const struct machine *m, uint64_t bytes)
{
    int below, above;
    find_neighbours(m, bytes, &below, &above);
    const double *rates = m->bytes_per_s;
    if (below < 0 || above < 0 || rates[below] <= rates[above])
        return rates[below < 0 ? above : below];
    const double b0 = (double)bytes_of(below), b1 = (double)bytes_of(above), b = (double)bytes;
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
    int below, above;
    find_neighbours(m, bytes, &below, &above);
    const int highest = above >= 0 && (below < 0 || bytes > bytes_of(below)) ? above : below;
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

int machine_classes(const struct machine *m, struct machine_class out[MACHINE_POWERS])
{
    int n = 0;
    for (int p = 0; p < MACHINE_POWERS; p++) {
        const double rate = m->bytes_per_s[p];
        if (rate <= 0)
            continue;
        if (n > 0 && out[n - 1].bytes_per_s <= rate)
            out[n - 1].to = bytes_of(p);
        else
            out[n++] = (struct machine_class){bytes_of(p), bytes_of(p), rate};
    }
    return n;
}
