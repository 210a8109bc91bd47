#include "compute/roofline.h"

#include "base/figures.h"
#include "base/mem.h"
#include "base/times.h"

/* A timed sample is at least this long, so that the clock and the start of a run do not count. */
#define SAMPLE_NS 500000
/* There are at least so many samples, because other work on the processors spoils one or two. */
#define LEAST_SAMPLES 3

/* The threads' parts are whole pages. */
#define LINE_FLOATS 1024

struct measuring {
    const struct kernels *k;
    struct pool *pool;
    float *data; /* [n_lines, LINE_FLOATS] */
    int n_lines;
    float (*multiply)(long rounds);
    long rounds;                  /* of reading 0: the data are filled */
    float sink[POOL_MAX_THREADS]; /* a result that is used cannot be optimised away */
};

static void read_part(void *arg, int thread)
{
    struct measuring *m = arg;
    const struct range lines = pool_range(m->n_lines, thread, pool_n_threads(m->pool));
    float *own = m->data + (size_t)lines.begin * LINE_FLOATS;
    const size_t n = (size_t)(lines.end - lines.begin) * LINE_FLOATS;
    if (m->rounds == 0)
        for (size_t i = 0; i < n; i++)
            own[i] = 1.0f;
    for (long round = 0; round < m->rounds; round++)
        m->sink[thread] += m->k->read(own, n);
}

static void multiply_part(void *arg, int thread)
{
    struct measuring *m = arg;
    m->sink[thread] += m->multiply(m->rounds);
}

/* Takes samples that do `amount` a round, for about so many seconds and until enough of them were
 * long enough. Returns the best rate per second. */
static double best_rate(struct measuring *m, pool_work *work, double amount, double seconds)
{
    double best = 0;
    const uint64_t start = clock_ns();
    int n_samples = 0;
    do {
        const uint64_t before = clock_ns();
        pool_run(m->pool, work, m);
        const uint64_t took = clock_ns() - before;
        const double rate = m->rounds * amount / took * 1e9;
        best = MAX(rate, best);
        if (took < SAMPLE_NS)
            m->rounds *= 2;
        else
            n_samples++;
    } while (n_samples < LEAST_SAMPLES || clock_ns() - start < seconds * 1e9);
    return best;
}

enum status roofline_read(const struct kernels *k, struct pool *pool, size_t bytes, double seconds,
                          double *bytes_per_s, struct err *e)
{
    const size_t line = LINE_FLOATS * sizeof(float);
    const size_t n_lines = bytes / line + 1;
    struct arena arena = {.overflow = n_lines > INT32_MAX};
    arena_take(&arena, n_lines, line);
    TRY(arena_allocate(&arena, "the bandwidth measurement", e));
    struct measuring m = {
        .k = k, .pool = pool, .data = arena_take(&arena, n_lines, line), .n_lines = (int)n_lines};
    pool_run(pool, read_part, &m);
    m.rounds = 1;
    *bytes_per_s = best_rate(&m, read_part, n_lines * line, seconds);
    arena_free(&arena);
    return STATUS_OK;
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
