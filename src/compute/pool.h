/*
 * pool - a persistent team of threads that runs one function on all members.
 *
 * The calling thread is member 0. Work is divided by the callee from its thread number; members
 * meet at barriers inside it. A waiting member spins for a bounded time, then sleeps, so more
 * threads than cores stay usable. One caller at a time per pool.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

struct pool; /* NULL is legal everywhere and means one thread */

#define POOL_MAX_THREADS 256

/* Starts n_threads - 1 threads (1 <= n_threads <= POOL_MAX_THREADS, asserted). Where the system
 * refuses one (a crowded machine, a limit on processes) the pool has those before it: a slower run,
 * not a failed one, because results do not depend on the number, which pool_n_threads tells. *out
 * is NULL for one thread. STATUS_NO_MEMORY. */
enum status pool_create(int n_threads, struct pool **out, struct err *e);
void pool_free(struct pool *p); /* joins all; no run may be under way (asserted) */

/* Ends the threads and starts as many anew, which the system may place on other processors, so that
 * measurements are independent of one another. Returns whether all could be started; if not, the
 * pool is smaller from now on. No run may be under way (asserted). */
bool pool_restart(struct pool *p);

int pool_n_threads(const struct pool *p); /* 1 for NULL */

/*
 * pool_run() - the serial loop it replaces is
 *
 *     for (int thread = 0; thread < n_threads; thread++)
 *         work(arg, thread);
 *
 * except that all members run at once and may meet in pool_barrier. Returns when all have
 * returned; their writes are visible to the caller. Allocates nothing, cannot fail. Not
 * reentrant: `work` must not call pool_run on the same pool (asserted).
 */
typedef void pool_work(void *arg, int thread);
void pool_run(struct pool *p, pool_work *work, void *arg);

/* Inside work: returns when every member has called it as often as this one has. Writes before
 * it are visible to all after it. `thread` is the caller's own number. */
void pool_barrier(struct pool *p, int thread);

/* Items, or rows, begin .. end - 1. */
struct range {
    int begin, end;
};

/* Returns the range of n >= 0 items that belongs to `thread` of n_threads (0 <= thread <
 * n_threads). Ranges are contiguous and in order; their sizes differ by at most one. */
static inline struct range pool_range(int n, int thread, int n_threads)
{
    assert(n >= 0 && n_threads >= 1 && thread >= 0 && thread < n_threads);
    const int size = n / n_threads, larger = n % n_threads;
    const int begin = thread * size + MIN(thread, larger);
    return (struct range){begin, begin + size + (thread < larger)};
}

/*
 * A loop over n items that the members share out as they go: each takes chunks of its own range
 * (pool_range of the chunks, which begin at multiples of their size), and when that is used up,
 * chunks of the others'. So a member that the machine slows down holds the others up for one chunk,
 * not for its whole range.
 *
 *     struct pool_items items = pool_items(pool, thread, n, chunk);
 *     struct range r;
 *     while (pool_items_next(&items, &r))
 *         for (int i = r.begin; i < r.end; i++)
 *             ...
 *
 * Every member runs every such loop to its end, in the same order and with the same n and chunk.
 * That all items are done is known only after a barrier. A chunk of 0 means that each member takes
 * its own range at once, which costs nothing. Fields are private.
 */
struct pool_items {
    struct pool *pool;
    int thread, n_threads;
    int n, chunk;
    uint32_t loop; /* its number: the members count alike */
    int n_used_up; /* ranges that this member has found used up, its own the first */
};
struct pool_items pool_items(struct pool *p, int thread, int n, int chunk);
bool pool_items_next(struct pool_items *items, struct range *out);
