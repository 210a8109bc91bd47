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

/* A timed sample is at least this long, so that the clock and the start of a run do not count. */
#define SAMPLE_NS 500000

/* Other work on the processors spoils some samples. Where as many of the best as this differ by no
 * more than a hundredth, nothing spoiled them. */
#define AGREEING 3
#define AGREE    0.99

/* The least power of so many bytes or more, between LEAST_POWER and MOST_POWER. */
static int power_of(uint64_t bytes)
{
    int power = LEAST_POWER;
    while (power < MOST_POWER && UINT64_C(1) << power < bytes)
        power++;
    return power;
}

/* --- one limit ------------------------------------------------------------------------------- */

/* A thread's part of the data is whole pages. */
#define PAGE_FLOATS ((size_t)1024)

struct measuring {
    const struct kernels *k;
    struct pool *pool;
    double seconds; /* for each limit, at most */
    float *data;
    int n_pages; /* of data */
    float (*multiply)(long rounds);
    long rounds;
    float sink[POOL_MAX_THREADS]; /* a result that is used cannot be optimised away */
};

/* Finds a thread's part of the data; returns how many floats it is. */
static size_t part_of(const struct measuring *m, int thread, float **part)
{
    const struct range pages = pool_range(m->n_pages, thread, pool_n_threads(m->pool));
    *part = m->data + pages.begin * PAGE_FLOATS;
    return (pages.end - pages.begin) * PAGE_FLOATS;
}

/* Memory that nobody has written is not there to be read. */
static void fill_part(void *arg, int thread)
{
    float *part;
    const size_t n = part_of(arg, thread, &part);
    for (size_t i = 0; i < n; i++)
        part[i] = 1.0f;
}

static void read_part(void *arg, int thread)
{
    struct measuring *m = arg;
    float *part;
    const size_t n = part_of(m, thread, &part);
    for (long round = 0; round < m->rounds; round++)
        m->sink[thread] += m->k->read(part, n);
}

static void multiply_part(void *arg, int thread)
{
    struct measuring *m = arg;
    m->sink[thread] += m->multiply(m->rounds);
}

/* Takes samples of work that does `amount` a round; raises *rate to the best one a second. */
static void raise_rate(struct measuring *m, pool_work *work, double amount, double *rate)
{
    double best[AGREEING] = {0}; /* descending */
    const uint64_t start = clock_ns();
    m->rounds = 1;
    do {
        const uint64_t before = clock_ns();
        pool_run(m->pool, work, m);
        const uint64_t took = clock_ns() - before;
        double sample = m->rounds * amount / took * 1e9;
        if (took < SAMPLE_NS) {
            m->rounds *= 2;
            continue;
        }
        for (int i = 0; i < AGREEING; i++) {
            const double larger = fmax(sample, best[i]);
            sample = fmin(sample, best[i]);
            best[i] = larger;
        }
    } while (best[AGREEING - 1] == 0 ||
             (best[AGREEING - 1] < AGREE * best[0] && clock_ns() - start < m->seconds * 1e9));
    *rate = fmax(*rate, best[0]);
}

/* The same of multiplications in registers, which do so many operations on a lane in a round. */
static void raise_flops(struct measuring *m, float (*multiply)(long rounds), double each,
                        double *rate)
{
    m->multiply = multiply;
    raise_rate(m, multiply_part, each * KERNEL_CHAINS * KERNEL_LANES * pool_n_threads(m->pool),
               rate);
}

/* --- all of them ----------------------------------------------------------------------------- */

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

/* Measures every limit once; larger working sets than there are data are taken to be read as fast
 * as these. */
static void measure_once(struct machine *m, struct measuring *how)
{
    const int n_pages = how->n_pages;
    raise_flops(how, how->k->fma, 2, &m->fma_flops_per_s);
    raise_flops(how, how->k->dot, 2 * 4, &m->dot_flops_per_s);
    for (int p = 0; p < MACHINE_POWERS; p++)
        if (m->wanted[p]) {
            how->n_pages = MIN(UINT64_C(1) << (p - LEAST_POWER), (uint64_t)n_pages);
            raise_rate(how, read_part, how->n_pages * PAGE_FLOATS * sizeof(float),
                       &m->bytes_per_s[p]);
        }
    how->n_pages = n_pages;
}

/* Pages of the largest size that is wanted, or of a quarter of the memory that is available. */
static int pages_to_read(const struct machine *m)
{
    const uint64_t room = available_memory() / 4 / (PAGE_FLOATS * sizeof(float));
    int power = MOST_POWER;
    while (power > LEAST_POWER && !m->wanted[power])
        power--;
    return MAX(MIN(UINT64_C(1) << (power - LEAST_POWER), room), 1);
}

enum status machine_measure(struct machine *m, const struct kernels *k, struct pool *pool,
                            double seconds, struct err *e)
{
    struct measuring how = {.k = k, .pool = pool, .seconds = seconds, .n_pages = pages_to_read(m)};
    const size_t n = how.n_pages * PAGE_FLOATS;
    struct arena arena = {0};
    ARENA_TAKE(how.data, &arena, n);
    TRY(arena_allocate(&arena, "the bandwidth measurement", e));
    ARENA_TAKE(how.data, &arena, n);
    pool_run(pool, fill_part, &how);
    for (int attempt = 0; attempt < ATTEMPTS && m->cpu_share < CALM; attempt++) {
        const uint64_t start = clock_ns(), worked = clock_cpu_ns();
        measure_once(m, &how);
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
