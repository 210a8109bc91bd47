#include "engine/autothreads.h"

#include <stdint.h>

#include "base/clock.h"

/* Steps longer than this gain from a second thread on any machine: no dozens of hand-overs take
 * half of it. */
#define LONG_STEP_NS 500000
#define ROUNDS       6
/* One thread has to win by more than the noise. */
#define WIN_SHARE 0.95

/* More rows would only take more time. */
#define MOST_ROWS 16

/* Time of one step at the start of the context, or UINT64_MAX. */
static uint64_t step_ns(struct session *s, struct pool *pool, int n_rows)
{
    static const int32_t tokens[MOST_ROWS] = {0};
    struct err e;
    session_set_pool(s, pool);
    const uint64_t before = clock_ns();
    const enum status status = session_feed(s, 0, tokens, n_rows, NULL, &e);
    const uint64_t took = clock_ns() - before;
    session_rewind(s, 0, 0);
    return status == STATUS_OK ? took : UINT64_MAX;
}

/* As many as are wanted, go through the model at once, and have room. */
static int rows_to_time(const struct session *s, int n_rows)
{
    int n = n_rows < MOST_ROWS ? n_rows : MOST_ROWS;
    n = n < session_block(s) ? n : session_block(s);
    return n < session_cap(s) ? n : session_cap(s);
}

bool calibrate_prefers_one_thread(struct session *s, struct pool *pool, int n_rows)
{
    if (!pool || session_len(s, 0) > 0)
        return false;
    const int n = rows_to_time(s, n_rows);
    uint64_t one = UINT64_MAX, all = UINT64_MAX;
    step_ns(s, NULL, n); /* fetches the weights into the caches */
    for (int round = 0; round < ROUNDS && (round == 0 || one < LONG_STEP_NS); round++) {
        const uint64_t took_one = step_ns(s, NULL, n), took_all = step_ns(s, pool, n);
        one = took_one < one ? took_one : one;
        all = took_all < all ? took_all : all;
    }
    session_set_pool(s, pool);
    return one < LONG_STEP_NS && (double)one < WIN_SHARE * (double)all;
}
