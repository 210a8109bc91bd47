/*
 * opened - what suites open to work with, or fail: checkpoints, teams of threads, sessions; and
 * what they draw.
 */
#ifndef TESTS_OPENED_H
#define TESTS_OPENED_H

#include <stdlib.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "engine/session.h"
#include "model/model.h"
#include "support.h"

/* From 0 to n - 1. */
static inline int below(struct rng *r, int n)
{
    return (int)(rng_u32(r) % (uint32_t)n);
}

static inline struct pool *new_pool(int n_threads)
{
    struct pool *pool = NULL;
    expect_ok(pool_create(n_threads, &pool, &err));
    return pool;
}

static inline struct session *new_session(const struct model *m, const struct session_params *p,
                                          struct pool *pool)
{
    struct session *s = NULL;
    expect_ok(session_create(m, p, pool, &s, &err));
    return s;
}

/* Logits [n, n_vocab] after each of the tokens, fed at once, or one by one with blocks of 1; freed
 * by the caller. */
static inline float *logits_after(const struct model *m, const int32_t *tokens, int n,
                                  int n_threads, const struct session_params *p)
{
    struct pool *pool = new_pool(n_threads);
    struct session *s = new_session(m, p, pool);
    float *logits = malloc((size_t)n * (size_t)m->config.n_vocab * sizeof *logits);
    expect_ok(session_feed(s, 0, tokens, n, logits, &err));
    session_free(s);
    pool_free(pool);
    return logits;
}

#endif
