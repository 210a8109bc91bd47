/*
 * opened - what suites open to work with, or fail: teams of threads, models, sessions; they are
 * closed when the test ends. And what suites draw.
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

static inline void close_pool(void *pool)
{
    pool_free(pool);
}

static inline void close_model(void *m)
{
    model_free(m);
}

static inline void close_session(void *s)
{
    session_free(s);
}

/* NULL for one thread. */
static inline struct pool *new_pool(int n_threads)
{
    struct pool *pool = NULL;
    expect_ok(pool_create(n_threads, &pool, &err));
    return pool ? released_by(close_pool, pool) : NULL;
}

/* With options, or NULL. */
static inline struct model *new_model(const struct gguf *g, const struct model_options *o)
{
    struct model *m = NULL;
    expect_ok(model_create(g, o, NULL, &m, &err));
    return released_by(close_model, m);
}

static inline struct session *new_session(const struct model *m, const struct session_params *p,
                                          struct pool *pool)
{
    struct session *s = NULL;
    expect_ok(session_create(m, p, pool, &s, &err));
    return released_by(close_session, s);
}

/* Of rows of a model; kernels as probe_create has them. */
static inline struct session *new_probe(const struct model *m, int n_rows, const struct kernels *k)
{
    struct session *p = NULL;
    const float *factors = m->w[ROLE_ROPE_FREQS].table;
    expect_ok(probe_create(&m->config, factors, n_rows, k, NULL, &p, &err));
    return released_by(close_session, p);
}

/* Logits [n, n_vocab] after each of the tokens, fed at once, or one by one with blocks of 1; until
 * the test ends. */
static inline float *logits_after(const struct model *m, const int32_t *tokens, int n,
                                  int n_threads, const struct session_params *p)
{
    struct session *s = new_session(m, p, new_pool(n_threads));
    float *logits = allocated((size_t)n * (size_t)m->config.n_vocab * sizeof *logits);
    expect_ok(session_feed(s, 0, tokens, n, logits, &err));
    return logits;
}

#endif
