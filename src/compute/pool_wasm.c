/*
 * In WebAssembly a pool is the thread that calls.
 */
#include "compute/pool.h"

int pool_n_threads(const struct pool *p)
{
    (void)p;
    return 1;
}

void pool_run(struct pool *p, pool_work *work, void *arg)
{
    (void)p;
    work(arg, 0);
}

void pool_barrier(struct pool *p, int thread)
{
    (void)p, (void)thread;
}

struct pool_items pool_items(struct pool *p, int thread, int n, int chunk)
{
    return (struct pool_items){.pool = p, .thread = thread, .n = n, .chunk = chunk};
}

bool pool_items_next(struct pool_items *items, struct range *out)
{
    *out = (struct range){0, items->n};
    return items->n_used_up++ == 0 && items->n > 0;
}
