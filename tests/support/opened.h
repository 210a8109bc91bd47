/*
 * opened - teams of threads, models and sessions for suites: a function here opens one, or fails
 * the test, and what it opened is closed when the test ends. It also draws numbers and tokens.
 */
#ifndef TESTS_OPENED_H
#define TESTS_OPENED_H

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "formats/gguf_values.h"
#include "model/model.h"
#include "support.h"

/* A random number from 0 to n - 1. */
static inline int below(struct rng *r, int n)
{
    return (int)(rng_u32(r) % (uint32_t)n);
}

RELEASER(close_pool, pool_free)
RELEASER(close_model, model_free)
RELEASER(close_session, session_free)
RELEASER(close_probe, probe_free)
RELEASER(close_sampler, sampler_free)

/* A team of n threads; NULL for one thread. */
static inline struct pool *new_pool(int n_threads)
{
    struct pool *pool = NULL;
    expect_ok(pool_create(n_threads, &pool, &err));
    return pool ? released_by(close_pool, pool) : NULL;
}

/* A model of the file; `o` may be NULL. */
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

/* A probe (session.h) for n rows of the model; `k` is what probe_create takes. */
static inline struct probe *new_probe(const struct model *m, int n_rows, const struct kernels *k)
{
    struct probe *p = NULL;
    const float *factors = m->w[ROLE_ROPE_FREQS].table;
    expect_ok(probe_create(&m->config, factors, n_rows, k, NULL, &p, &err));
    return released_by(close_probe, p);
}

/* Logits [n, n_vocab] after each of the n tokens, which are fed `piece` at a time (0: all at once).
 * Freed when the test ends. */
static inline float *logits_after(const struct model *m, const int32_t *tokens, int n, int piece,
                                  struct pool *pool, const struct session_params *p)
{
    struct session *s = new_session(m, p, pool);
    const size_t n_vocab = (size_t)m->config.n_vocab;
    float *logits = allocated((size_t)n * n_vocab * sizeof *logits);
    piece = piece > 0 ? piece : n;
    for (int t = 0; t < n; t += piece)
        expect_ok(session_feed(s, 0, tokens + t, n - t < piece ? n - t : piece,
                               logits + (size_t)t * n_vocab, true, &err));
    ck_assert_int_eq(session_len(s, 0), n);
    return logits;
}

/* Logits [n, n_vocab] after each of the tokens 0, 37, 74, ... */
static inline float *logits_of_some(const struct model *m, int n, int n_threads, int block)
{
    int32_t *tokens = allocated((size_t)n * sizeof *tokens);
    for (int t = 0; t < n; t++)
        tokens[t] = t * 37 % m->config.n_vocab;
    return logits_after(m, tokens, n, 0, new_pool(n_threads),
                        &(struct session_params){.block = block});
}

/* n random tokens of a vocabulary, of the first 256 at most. */
static inline void text_tokens(int32_t *tokens, int n, int n_vocab, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int i = 0; i < n; i++)
        tokens[i] = below(&r, n_vocab < 256 ? n_vocab : 256);
}

/* The values of a tensor of F32 of a file in memory, where they may be changed. */
static inline float *floats_of(const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    ck_assert(t && t->type->type == TENSOR_F32);
    return (float *)(uintptr_t)t->data;
}

/* A golden file by its name (see golden.h), in memory until the test ends. */
static inline struct gguf_file golden_gguf(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.gguf", name);
    return read_gguf(path);
}

/* The n floats of an .npy file. Freed when the test ends. */
static inline float *read_npy(const char *path, size_t n)
{
    size_t len;
    const char *bytes = file_text(path, &len);
    ck_assert_uint_gt(len, n * sizeof(float));
    return memcpy(allocated(n * sizeof(float)), bytes + len - n * sizeof(float), n * sizeof(float));
}

#endif
