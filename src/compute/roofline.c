#include "compute/roofline.h"

#include <assert.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/mem.h"

/* A timed sample is at least this long, so that the clock and the start of a run do not count. */
#define SAMPLE_NS 500000

struct reading {
    const struct kernels *k;
    struct pool *pool;
    float *data;
    int n_lines; /* of LINE_FLOATS */
    int passes;
    float sink[POOL_MAX_THREADS]; /* a result that is used cannot be optimised away */
};

/* Parts are cut at whole pages. */
#define LINE_FLOATS 1024

static void fill_part(void *arg, int thread)
{
    struct reading *r = arg;
    int begin, end;
    pool_share(r->n_lines, thread, pool_n_threads(r->pool), &begin, &end);
    for (size_t i = (size_t)begin * LINE_FLOATS; i < (size_t)end * LINE_FLOATS; i++)
        r->data[i] = 1.0f;
}

static void read_part(void *arg, int thread)
{
    struct reading *r = arg;
    int begin, end;
    pool_share(r->n_lines, thread, pool_n_threads(r->pool), &begin, &end);
    for (int pass = 0; pass < r->passes; pass++)
        r->sink[thread] +=
            r->k->read(r->data + (size_t)begin * LINE_FLOATS, (size_t)(end - begin) * LINE_FLOATS);
}

enum status roofline_read(const struct kernels *k, struct pool *pool, size_t bytes, double seconds,
                          double *bytes_per_s, struct err *e)
{
    assert(k && seconds >= 0);
    const size_t line = LINE_FLOATS * sizeof(float);
    const size_t n_lines = bytes / line + 1;
    struct arena arena = {.overflow = n_lines > INT32_MAX};
    arena_take(&arena, n_lines, line);
    const enum status s = arena_allocate(&arena, "the bandwidth measurement", e);
    if (s != STATUS_OK)
        return s;
    struct reading r = {.k = k,
                        .pool = pool,
                        .data = arena_take(&arena, n_lines, line),
                        .n_lines = (int)n_lines,
                        .passes = 1};
    pool_run(pool, fill_part, &r);

    double best = 0;
    const uint64_t start = clock_ns();
    do {
        const uint64_t before = clock_ns();
        pool_run(pool, read_part, &r);
        const uint64_t took = clock_ns() - before;
        const double rate = (double)r.passes * (double)(n_lines * line) / (double)took * 1e9;
        best = rate > best ? rate : best;
        if (took < SAMPLE_NS)
            r.passes *= 2;
    } while ((double)(clock_ns() - start) < seconds * 1e9);
    arena_free(&arena);
    *bytes_per_s = best;
    return STATUS_OK;
}

struct multiplying {
    const struct kernels *k;
    long rounds;
    float sink[POOL_MAX_THREADS];
};

static void multiply_part(void *arg, int thread)
{
    struct multiplying *m = arg;
    m->sink[thread] += m->k->fma(m->rounds);
}

double roofline_fma(const struct kernels *k, struct pool *pool, double seconds)
{
    assert(k && seconds >= 0);
    struct multiplying m = {.k = k, .rounds = 16};
    double best = 0;
    const uint64_t start = clock_ns();
    do {
        const uint64_t before = clock_ns();
        pool_run(pool, multiply_part, &m);
        const uint64_t took = clock_ns() - before;
        const double flops =
            2.0 * KERNEL_FMA_CHAINS * KERNEL_LANES * (double)m.rounds * pool_n_threads(pool);
        const double rate = flops / (double)took * 1e9;
        best = rate > best ? rate : best;
        if (took < SAMPLE_NS)
            m.rounds *= 2;
    } while ((double)(clock_ns() - start) < seconds * 1e9);
    return best;
}
