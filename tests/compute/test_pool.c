/* Tests of teams of threads. All variables are plain ones, so that ThreadSanitizer checks that the
 * pool orders accesses to them. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/rng.h"
#include "compute/pool.h"
#include "support.h"

/* --- thread creation that fails on demand (see TEST_LDFLAGS in the Makefile) ------------------ */

static int creations_left = INT_MAX; /* then pthread_create fails */
static int n_workers;                /* started and not yet joined */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    if (creations_left-- <= 0)
        return EAGAIN;
    n_workers++;
    return __real_pthread_create(thread, attr, start, arg);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    n_workers--;
    return __real_pthread_join(thread, result);
}

/* --- a team at work --------------------------------------------------------------------------- */

/* The first team is one thread, the last one is too large for most tests. */
static const int team_sizes[] = {1, 2, 3, 5, 8, 64, POOL_MAX_THREADS};
enum { ALL_SIZES = COUNT(team_sizes), N_SIZES = ALL_SIZES - 1 };

struct job {
    struct pool *pool;
    int n_threads;
    int rounds;
    int runs[POOL_MAX_THREADS];
    int phase[POOL_MAX_THREADS];
    struct rng rng[POOL_MAX_THREADS];
    bool wrong[POOL_MAX_THREADS];
};

static void new_job(struct job *j, int n_threads, int rounds)
{
    *j = (struct job){.n_threads = n_threads, .rounds = rounds};
    expect_ok(pool_create(n_threads, &j->pool, &err));
    ck_assert_int_eq(pool_n_threads(j->pool), n_threads);
    ck_assert(n_threads > 1 || !j->pool);
}

/* Checks that each member ran so often, that nobody else ran, and that all saw each other in the
 * right phase. */
static void expect_runs(const struct job *j, int runs)
{
    for (int i = 0; i < POOL_MAX_THREADS; i++) {
        ck_assert_int_eq(j->runs[i], i < j->n_threads ? runs : 0);
        ck_assert_msg(!j->wrong[i], "member %d saw another in the wrong phase", i);
    }
}

static void end_job(struct job *j)
{
    expect_runs(j, j->runs[0]);
    pool_free(j->pool);
    ck_assert_int_eq(n_workers, 0);
}

static void count_run(void *arg, int thread)
{
    struct job *j = arg;
    j->runs[thread]++;
}

/* Between the two barriers of a round all phases must be this round's. */
static void walk_phases(void *arg, int thread)
{
    struct job *j = arg;
    for (int round = 1; round <= j->rounds; round++) {
        j->phase[thread] = round;
        pool_barrier(j->pool, thread);
        for (int i = 0; i < j->n_threads; i++)
            if (j->phase[i] != round)
                j->wrong[thread] = true;
        pool_barrier(j->pool, thread);
    }
    j->runs[thread]++;
}

/* Arrives after a random time, near those at which a waiting member changes how it waits. */
static void arrive_at_random(void *arg, int thread)
{
    struct job *j = arg;
    for (int round = 1; round <= j->rounds; round++) {
        const uint32_t choice = rng_u32(&j->rng[thread]) % 8;
        if (choice < 2)
            usleep(rng_u32(&j->rng[thread]) % 100);
        for (uint32_t i = rng_u32(&j->rng[thread]) % (choice < 5 ? 100 : 20000); i > 0; i--)
            __asm__ volatile("");
        j->phase[thread] = round;
        pool_barrier(j->pool, thread);
        if (j->phase[(thread + 1) % j->n_threads] != round)
            j->wrong[thread] = true;
        pool_barrier(j->pool, thread);
    }
}

static void run_times(struct job *j, void (*work)(void *arg, int thread), int n, useconds_t pause)
{
    const int before = j->runs[0];
    for (int run = 1; run <= n; run++) {
        usleep(pause);
        pool_run(j->pool, work, j);
        if (work != arrive_at_random)
            expect_runs(j, before + run);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

TEST(barrier_keeps_members_in_one_phase, .loops = ALL_SIZES)
{
    const int n = team_sizes[_i];
    struct job j;
    new_job(&j, n, n < 10 ? 2000 : n < 100 ? 100 : 1);
    ck_assert_int_eq(n_workers, n - 1);
    run_times(&j, walk_phases, 3, 0);
    run_times(&j, count_run, n < 100 ? 50 : 1, 0);
    end_job(&j);
}

/* The members sleep when they are told to leave. */
TEST(run_wakes_sleeping_members, .first = 1, .loops = N_SIZES)
{
    struct job j;
    new_job(&j, team_sizes[_i], 2);
    run_times(&j, walk_phases, 2, 100000);
    usleep(100000);
    end_job(&j);
}

TEST(no_wake_up_is_lost, .first = 1, .loops = N_SIZES)
{
    struct job j;
    new_job(&j, team_sizes[_i], team_sizes[_i] < 10 ? 500 : 30);
    for (int i = 0; i < j.n_threads; i++)
        rng_seed(&j.rng[i], 1, (uint64_t)i);
    for (int run = 0; run < 4; run++)
        run_times(&j, arrive_at_random, 1, rng_u32(&j.rng[0]) % 200);
    end_job(&j);
}

TEST(restarted_threads_begin_anew, .first = 1, .loops = N_SIZES)
{
    struct job j;
    new_job(&j, team_sizes[_i], 3);
    for (int i = 0; i < 3; i++) {
        run_times(&j, walk_phases, 2, 0);
        ck_assert(pool_restart(j.pool) && n_workers == j.n_threads - 1);
    }
    creations_left = 0;
    ck_assert(!pool_restart(j.pool) && pool_n_threads(j.pool) == 1 && n_workers == 0);
    pool_run(j.pool, count_run, &j);
    pool_free(j.pool);
}

/* Once a run failed on a machine that was too crowded for the last thread. */
TEST(refused_threads_make_a_smaller_pool, .loops = 8)
{
    struct job j = {.n_threads = _i + 1, .rounds = 5};
    creations_left = _i;
    expect_ok(pool_create(8, &j.pool, NULL));
    ck_assert(!j.pool == (_i == 0) && n_workers == _i && pool_n_threads(j.pool) == _i + 1);
    run_times(&j, walk_phases, 3, 0);
    end_job(&j);
}

static void note_mask(void *arg, int thread)
{
    pthread_sigmask(SIG_SETMASK, NULL, (sigset_t *)arg + thread);
}

TEST(signals_reach_the_caller)
{
    struct job j;
    sigset_t before, masks[4];
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    new_job(&j, 4, 0);
    pool_run(j.pool, note_mask, masks);
    end_job(&j);
    for (int number = 1; number < 32; number++)
        ck_assert_int_eq(sigismember(&masks[0], number), sigismember(&before, number));
    for (const sigset_t *m = masks + 1; m < masks + 4; m++)
        ck_assert(sigismember(m, SIGINT) && sigismember(m, SIGTERM) && sigismember(m, SIGALRM) &&
                  !sigismember(m, SIGSEGV) && !sigismember(m, SIGBUS));
}

/* --- loops ------------------------------------------------------------------------------------ */

enum { MOST_ITEMS = 100 };

struct loop {
    struct pool *pool;
    int n, chunk, slow; /* the member that sleeps before each chunk, or -1 */
    int n_done[POOL_MAX_THREADS];
    unsigned char times[MOST_ITEMS]; /* that each item was given */
};

/* Three loops follow one another without a barrier, so that members are in different ones at the
 * same time. */
static void go_through(void *arg, int thread)
{
    struct loop *l = arg;
    for (int round = 0; round < 3; round++) {
        struct pool_items items = pool_items(l->pool, thread, l->n, l->chunk);
        struct range r;
        while (pool_items_next(&items, &r)) {
            usleep(thread == l->slow ? 20000 : 0);
            for (int i = r.begin; i < r.end; i++)
                __atomic_fetch_add(&l->times[i], 1, __ATOMIC_RELAXED);
            l->n_done[thread] += r.end - r.begin;
        }
    }
}

TEST(each_item_of_a_loop_is_given_once, .loops = 5)
{
    const int n_threads = (const int[]){1, 2, 3, 8, 64}[_i];
    struct loop l = {.slow = -1};
    expect_ok(pool_create(n_threads, &l.pool, &err));
    for (l.n = 0; l.n <= MOST_ITEMS; l.n += 1 + l.n / 2)
        for (l.chunk = 0; l.chunk <= 5; l.chunk++) {
            memset(l.times, 0, sizeof l.times);
            pool_run(l.pool, go_through, &l);
            for (int i = 0; i < l.n; i++)
                ck_assert_int_eq(l.times[i], 3);
        }
    pool_free(l.pool);
}

TEST(the_others_take_what_a_slow_member_does_not_come_to)
{
    struct loop l = {.n = MOST_ITEMS, .chunk = 1, .slow = 1};
    expect_ok(pool_create(3, &l.pool, &err));
    pool_run(l.pool, go_through, &l);
    pool_free(l.pool);
    ck_assert_int_lt(l.n_done[1], MOST_ITEMS);
    ck_assert_int_eq(l.n_done[0] + l.n_done[1] + l.n_done[2], 3 * MOST_ITEMS);
}

static void check_share(int n, int n_threads)
{
    int next = 0, least = INT_MAX, most = 0;
    for (int thread = 0; thread < n_threads; thread++) {
        const struct range r = pool_range(n, thread, n_threads);
        const int size = r.end - r.begin;
        ck_assert_int_eq(r.begin, next);
        ck_assert_int_ge(size, 0);
        least = size < least ? size : least;
        most = size > most ? size : most;
        next = r.end;
    }
    ck_assert_int_eq(next, n);
    ck_assert_int_le(most - least, 1);
}

TEST(shares_cover_all_in_order_and_evenly)
{
    for (int n_threads = 1; n_threads <= POOL_MAX_THREADS; n_threads++) {
        for (int n = 0; n <= 100 && n_threads <= 20; n++)
            check_share(n, n_threads);
        check_share(INT_MAX, n_threads);
        check_share(INT_MAX - 1, n_threads);
        check_share(50257, n_threads);
    }
}
