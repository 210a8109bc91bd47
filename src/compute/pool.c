/*
 * Two kinds of counters carry all synchronisation. `released` belongs to the caller: each step of
 * it lets the workers go on, into a run or past a barrier. `arrived` belongs to one worker: each
 * step says that it has reached a barrier or the end of the run. Between runs all are equal.
 */
#include "compute/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/times.h"

/* A waiting member pauses, then yields after PAUSE_NS (at once if there are more members than
 * processors), and sleeps after AWAKE_NS. Pausing reacts fastest, but keeps the core from whoever
 * it waits for if both are on one core: right after a wake-up, or on a busy machine. */
#define PAUSE_NS         2000
#define AWAKE_NS         50000
#define CHECKS_PER_CLOCK 32

/* A worker's stack. The deepest kernel takes 170 KiB when nothing is optimised. A C library's
 * default is between 128 KiB (musl) and 8 MiB, which is much where address space is limited (ulimit
 * -v, 32 bits). */
#define STACK_BYTES ((size_t)1 << 20)

/* A counter's lowest bit says that somebody sleeps on it: a step costs one exchange, and takes
 * the lock only when there is somebody to wake. */
#define SLEEPING 1u
#define STEP     2u
typedef _Atomic uint32_t counter;

/* Aligned, because a member that looks at one counter must not slow the owner of the next. */
struct member {
    _Alignas(MEM_ALIGN) counter arrived;
    struct pool *pool;
    int thread;
    pthread_t handle;
    /* The upper half is the number of the last loop in which somebody took items of this member's
     * range, the lower how many are taken. They are one word, so that a member that is ahead can
     * begin a loop on behalf of one that is behind. */
    _Alignas(MEM_ALIGN) _Atomic uint64_t given;
    _Alignas(MEM_ALIGN) uint32_t loop; /* the member's own: loops that it has begun */
};

struct pool {
    _Alignas(MEM_ALIGN) counter released;
    pool_work *work; /* NULL: leave; read once a run, so it travels with the counter */
    void *arg;
    _Alignas(MEM_ALIGN) int n_threads;
    int caller_cpu; /* when the pool was made */
    uint64_t pause_ns;
    struct arena arena; /* holds this struct */
    pthread_mutex_t lock;
    pthread_cond_t stepped;           /* some counter on which a member sleeps */
    _Alignas(MEM_ALIGN) bool running; /* the caller's own: on a line that no other thread reads */
    struct member members[];          /* [n_threads]; of the caller's, [0], only the loops' */
};

static uint32_t counter_value(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed) & ~SLEEPING;
}

/* Whether the counter has come to target or gone past it, modulo 2^32. */
static bool has_reached(uint32_t word, uint32_t target)
{
    return word - target < UINT32_MAX / 2;
}

static bool counter_has(const counter *c, uint32_t target)
{
    return has_reached(atomic_load_explicit(c, memory_order_acquire), target);
}

static void counter_step(struct pool *p, counter *c)
{
    const uint32_t next = counter_value(c) + STEP;
    if (atomic_exchange_explicit(c, next, memory_order_acq_rel) & SLEEPING) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->stepped);
        pthread_mutex_unlock(&p->lock);
    }
}

static void counter_await(struct pool *p, counter *c, uint32_t target)
{
    if (counter_has(c, target))
        return;
    const uint64_t start = clock_ns();
    for (uint64_t waited = 0; waited < AWAKE_NS; waited = clock_ns() - start) {
        if (waited >= p->pause_ns) {
            sched_yield();
            if (counter_has(c, target))
                return;
            continue;
        }
        for (int i = 0; i < CHECKS_PER_CLOCK; i++) {
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            __asm__ volatile("isb"); /* `yield` does nothing on most cores */
#endif
            if (counter_has(c, target))
                return;
        }
    }
    pthread_mutex_lock(&p->lock);
    /* The owner's exchange either sees the bit set here, and then wakes us after we have given up
     * the lock in the wait, or came first, and then this sees its value. */
    while (!has_reached(atomic_fetch_or_explicit(c, SLEEPING, memory_order_acq_rel), target))
        pthread_cond_wait(&p->stepped, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void await_release(struct pool *p, struct member *m)
{
    counter_await(p, &p->released, counter_value(&m->arrived) + STEP);
}

static void await_arrivals(struct pool *p, uint32_t target)
{
    for (int thread = 1; thread < p->n_threads; thread++)
        counter_await(p, &p->members[thread].arrived, target);
}

static void *worker_main(void *arg)
{
    struct member *m = arg;
    struct pool *p = m->pool;
    cpus_start_on(p->caller_cpu, m->thread);
    for (;;) {
        await_release(p, m);
        if (!p->work)
            return NULL;
        p->work(p->arg, m->thread);
        counter_step(p, &m->arrived);
    }
}

/* The workers start, as many as can be, with signals blocked, so that the process's signals reach
 * the caller. Faults stay open: a blocked one kills the process whatever handler it has. */
static void start_workers(struct pool *p, int n_threads)
{
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, before;
    pthread_attr_t attributes;
    sigfillset(&blocked);
    for (int i = 0; i < LENGTH(faults); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (p->n_threads = 1; p->n_threads < n_threads; p->n_threads++) {
        struct member *m = &p->members[p->n_threads];
        *m = (struct member){.pool = p, .thread = p->n_threads};
        if (pthread_create(&m->handle, &attributes, worker_main, m) != 0)
            break;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* No member is in a loop or at a barrier; afterwards there is the caller alone. */
static void end_workers(struct pool *p)
{
    assert(!p->running);
    p->work = NULL;
    counter_step(p, &p->released);
    for (int thread = 1; thread < p->n_threads; thread++)
        pthread_join(p->members[thread].handle, NULL);
    p->n_threads = 1;
}

enum status pool_create(int n_threads, struct pool **out, struct err *e)
{
    assert(n_threads >= 1 && n_threads <= POOL_MAX_THREADS);
    *out = NULL;
    if (n_threads == 1)
        return STATUS_OK;

    struct arena arena = {0};
    const size_t bytes = sizeof(struct pool) + n_threads * sizeof(struct member);
    arena_take(&arena, 1, bytes);
    TRY(arena_allocate(&arena, "the thread pool", e));
    struct pool *p = arena_take(&arena, 1, bytes);
    p->arena = arena;
    p->caller_cpu = cpus_current();
    p->pause_ns = n_threads > cpus_usable() ? 0 : PAUSE_NS;
    p->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    p->stepped = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    start_workers(p, n_threads);
    if (p->n_threads == 1)
        pool_free(p);
    else
        *out = p;
    return STATUS_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    end_workers(p);
    pthread_cond_destroy(&p->stepped);
    pthread_mutex_destroy(&p->lock);
    struct arena arena = p->arena;
    arena_free(&arena);
}

bool pool_restart(struct pool *p)
{
    const int n_threads = pool_n_threads(p);
    if (!p)
        return true;
    end_workers(p);
    /* The counters start from zero again. */
    atomic_store_explicit(&p->released, 0, memory_order_relaxed);
    p->members[0] = (struct member){.pool = p};
    p->caller_cpu = cpus_current();
    start_workers(p, n_threads);
    return p->n_threads == n_threads;
}

int pool_n_threads(const struct pool *p)
{
    return p ? p->n_threads : 1;
}

void pool_run(struct pool *p, pool_work *work, void *arg)
{
    if (!p) {
        work(arg, 0);
        return;
    }
    assert(!p->running);
    p->running = true;
    p->work = work;
    p->arg = arg;
    counter_step(p, &p->released);
    work(arg, 0);
    await_arrivals(p, counter_value(&p->released));
    p->running = false;
}

void pool_barrier(struct pool *p, int thread)
{
    assert(thread >= 0 && thread < pool_n_threads(p));
    if (!p)
        return;
    if (thread != 0) {
        struct member *m = &p->members[thread];
        counter_step(p, &m->arrived);
        await_release(p, m);
        return;
    }
    const uint32_t here = counter_value(&p->released);
    if (p->n_threads == 2) {
        /* Each of two may tell the other before it looks: half the latency. */
        counter_step(p, &p->released);
        await_arrivals(p, here);
    } else {
        await_arrivals(p, here);
        counter_step(p, &p->released);
    }
}

struct pool_items pool_items(struct pool *p, int thread, int n, int chunk)
{
    assert(n >= 0 && chunk >= 0 && thread >= 0 && thread < pool_n_threads(p));
    struct pool_items items = {
        .pool = p, .thread = thread, .n_threads = pool_n_threads(p), .n = n, .chunk = chunk};
    if (p && chunk > 0)
        items.loop = ++p->members[thread].loop;
    return items;
}

/* Takes one of the n chunks of the member's range. Returns its number, or n: none is left. A member
 * that has gone on to a later loop leaves none: before that it found all ranges used up. */
static int take_chunk(struct member *m, uint32_t loop, int n)
{
    uint64_t before = atomic_load_explicit(&m->given, memory_order_relaxed);
    for (;;) {
        const uint32_t ahead = (uint32_t)(before >> 32) - loop;
        const int first = ahead == 0 ? (int)(uint32_t)before : 0;
        if (first >= n || (ahead != 0 && ahead < UINT32_MAX / 2))
            return n;
        const uint64_t after = (uint64_t)loop << 32 | (uint32_t)(first + 1);
        if (atomic_compare_exchange_weak_explicit(&m->given, &before, after, memory_order_relaxed,
                                                  memory_order_relaxed))
            return first;
    }
}

bool pool_items_next(struct pool_items *items, struct range *out)
{
    for (; items->n_used_up < items->n_threads; items->n_used_up++) {
        const int owner = (items->thread + items->n_used_up) % items->n_threads;
        const int size = MAX(items->chunk, 1), n_all = (items->n + size - 1) / size;
        const struct range chunks = pool_range(n_all, owner, items->n_threads);
        const int n = chunks.end - chunks.begin;
        if (!items->pool || items->chunk == 0) {
            items->n_used_up = items->n_threads; /* the whole range, once */
            *out = (struct range){chunks.begin * size, MIN(chunks.end * size, items->n)};
            return n > 0;
        }
        const int taken = take_chunk(&items->pool->members[owner], items->loop, n);
        if (taken < n) {
            out->begin = (chunks.begin + taken) * size;
            out->end = MIN(out->begin + size, items->n);
            return true;
        }
    }
    return false;
}
