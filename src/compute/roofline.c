#include "compute/roofline.h"

#include "base/mem.h"
#include "base/times.h"

/* A timed sample is at least this long, so that the clock and the start of a run do not count. */
#define SAMPLE_NS 500000

/* Other work on the processors spoils some samples. Where as many of the best as this differ by no
 * more than a hundredth, nothing spoiled them. */
#define AGREEING 3
#define AGREE    0.99

struct measuring {
    const struct kernels *k;
    struct pool *pool;
    float *data; /* [n_lines, ROOFLINE_LINE] */
    int n_lines;
    float (*multiply)(long rounds);
    long rounds;
    float sink[POOL_MAX_THREADS]; /* a result that is used cannot be optimised away */
};

/* A thread's part of the data; returns how many floats. */
static size_t part_of(const struct measuring *m, int thread, float **own)
{
    const struct range lines = pool_range(m->n_lines, thread, pool_n_threads(m->pool));
    *own = m->data + (size_t)lines.begin * ROOFLINE_LINE;
    return (size_t)(lines.end - lines.begin) * ROOFLINE_LINE;
}

static void fill_part(void *arg, int thread)
{
    float *own;
    const size_t n = part_of(arg, thread, &own);
    for (size_t i = 0; i < n; i++)
        own[i] = 1.0f;
}

static void read_part(void *arg, int thread)
{
    struct measuring *m = arg;
    float *own;
    const size_t n = part_of(m, thread, &own);
    for (long round = 0; round < m->rounds; round++)
        m->sink[thread] += m->k->read(own, n);
}

static void multiply_part(void *arg, int thread)
{
    struct measuring *m = arg;
    m->sink[thread] += m->multiply(m->rounds);
}

/* Takes samples that do `amount` a round. Returns the best rate per second. */
static double best_rate(struct measuring *m, pool_work *work, double amount, double seconds)
{
    double best[AGREEING] = {0}; /* descending */
    const uint64_t start = clock_ns();
    do {
        const uint64_t before = clock_ns();
        pool_run(m->pool, work, m);
        const uint64_t took = clock_ns() - before;
        double rate = m->rounds * amount / took * 1e9;
        if (took < SAMPLE_NS) {
            m->rounds *= 2;
            continue;
        }
        for (int i = 0; i < AGREEING; i++) {
            const double larger = MAX(rate, best[i]);
            rate = MIN(rate, best[i]);
            best[i] = larger;
        }
    } while (best[AGREEING - 1] == 0 ||
             (best[AGREEING - 1] < AGREE * best[0] && clock_ns() - start < seconds * 1e9));
    return best[0];
}

void roofline_fill(struct pool *pool, float *data, size_t n)
{
    struct measuring m = {.pool = pool, .data = data, .n_lines = n / ROOFLINE_LINE};
    pool_run(pool, fill_part, &m);
}

double roofline_read(const struct kernels *k, struct pool *pool, float *data, size_t n,
                     double seconds)
{
    struct measuring m = {
        .k = k, .pool = pool, .data = data, .n_lines = n / ROOFLINE_LINE, .rounds = 1};
    return best_rate(&m, read_part, n * sizeof *data, seconds);
}

/* `flops` are those of a lane in a round. */
static double multiply_rate(float (*multiply)(long rounds), struct pool *pool, double flops,
                            double seconds)
{
    struct measuring m = {.multiply = multiply, .pool = pool, .rounds = 16};
    return best_rate(&m, multiply_part, flops * KERNEL_CHAINS * KERNEL_LANES * pool_n_threads(pool),
                     seconds);
}

double roofline_fma(const struct kernels *k, struct pool *pool, double seconds)
{
    return multiply_rate(k->fma, pool, 2, seconds);
}

double roofline_dot(const struct kernels *k, struct pool *pool, double seconds)
{
    return multiply_rate(k->dot, pool, 2 * 4, seconds);
}
