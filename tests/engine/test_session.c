/* Compares the engine with logits that another implementation computed in double precision, and its
 * bits for any threads, blocks, instruction sets and rewinds. (test_batch.c has contexts of several
 * chunks of the cache.) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler.h"
#include "golden.h"
#include "kernel_data.h"
#include "model/kv_cache.h"
#include "opened.h"
#include "support.h"

#define GOLDEN_TOLERANCE 2e-4

static float *golden_run(const struct golden *g, int piece, struct pool *pool,
                         const struct session_params *p)
{
    return logits_after(g->checkpoint.model, g->tokens, g->n_tokens, piece, pool, p);
}

static void expect_same(const struct model *m, const float *a, const float *b, int n,
                        const char *what)
{
    const size_t count = (size_t)n * (size_t)m->config.n_vocab;
    for (size_t i = 0; i < count; i++)
        if (!isfinite(a[i]) || memcmp(&a[i], &b[i], sizeof *a) != 0)
            ck_abort_msg("%s: logit %zu is %.9g, not %.9g", what, i, (double)b[i], (double)a[i]);
}

TEST(golden_logits, .loops = N_GOLDEN, .seconds = 300)
{
    struct golden g = open_golden(golden_names[_i]);
    const int n_vocab = g.checkpoint.model->config.n_vocab;
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        const float *found = golden_run(&g, 0, NULL, &(struct session_params){.kernels = k});
        const float *expected = g.logits;
        for (int t = 0; t < g.n_tokens; t++, found += n_vocab, expected += n_vocab) {
            for (int i = 0; i < n_vocab; i++)
                ck_assert_msg(fabsf(found[i] - expected[i]) <= (float)GOLDEN_TOLERANCE,
                              "%s, %s: logit %d after token %d is %.7g, not %.7g", golden_names[_i],
                              k->name, i, t, (double)found[i], (double)expected[i]);
            ck_assert_int_eq(logits_argmax(found, n_vocab), logits_argmax(expected, n_vocab));
        }
    }
}

/* Any threads, prefill blocks, steps and instruction sets give one answer. Every other pair of
 * threads and blocks is tried. */
TEST(same_bits_however_computed, .loops = N_GOLDEN, .seconds = 300)
{
    struct golden g = open_golden(golden_names[_i]);
    static const int threads[] = {1, 2, 3, 5, 8}, blocks[] = {0, 1, 2, 5, 13};
    static const struct kv_type caches[] = {{CACHE_F32, CACHE_F32},
                                            {CACHE_F16, CACHE_F16},
                                            {CACHE_Q8_0, CACHE_Q8_0},
                                            {CACHE_Q5_0, CACHE_Q4_0},
                                            {CACHE_Q4_0, CACHE_Q5_0}};
    enum { N_CACHES = COUNT(caches) };
    const float *references[N_CACHES];
    for (int i = 0; i < N_CACHES; i++)
        references[i] = golden_run(
            &g, 1, NULL,
            &(struct session_params){.block = 1, .kv_type = caches[i], .kernels = &kernels_scalar});
    for (size_t t = SANITIZED ? 2 : 0; t < COUNT(threads); t += SANITIZED ? 2 : 1) {
        struct pool *pool = new_pool(threads[t]);
        for (size_t k = SANITIZED ? _i % N_CACHES : 0; k < N_CACHES * COUNT(blocks);
             k += SANITIZED ? N_CACHES : 1) {
            const size_t i = k % N_CACHES, b = k / N_CACHES;
            if (b % 2 != t % 2)
                continue;
            const struct session_params p = {.block = blocks[b], .kv_type = caches[i]};
            char what[96];
            snprintf(what, sizeof what, "%s, %d threads, blocks of %d, %s cache", golden_names[_i],
                     threads[t], blocks[b], kv_type_name(caches[i]).text);
            expect_same(g.checkpoint.model, references[i], golden_run(&g, b == 0 ? 7 : 0, pool, &p),
                        g.n_tokens, what);
        }
    }
}

/* Returns the mean KL divergence of q from p, both logits [n, n_vocab]. */
static double mean_kl(const float *p, const float *q, int n, int n_vocab)
{
    double sum = 0, p_log_sum, q_log_sum;
    for (int t = 0; t < n; t++, p += n_vocab, q += n_vocab) {
        expect_ok(logits_log_sum(p, n_vocab, &p_log_sum, &err));
        expect_ok(logits_log_sum(q, n_vocab, &q_log_sum, &err));
        sum += logits_divergence(p, p_log_sum, q, q_log_sum, n_vocab);
    }
    return sum / n;
}

/* Opens the same weights in another type, until the test ends. */
static struct model *converted(const struct checkpoint *c, enum storage storage)
{
    const struct model_options o = {.convert = true, .storage = storage};
    return new_model(c->gguf, &o);
}

/* A file of another type gives the bits of one that is converted when it is loaded and, as F32
 * holds its numbers exactly, of these in F32. (every_type in test_arch.c tries threads and blocks.)
 */
TEST(types_of_weights, .loops = 4, .seconds = 300)
{
    enum { N = 70 };
    static const uint32_t types[] = {TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    static const enum storage storages[] = {STORAGE_F16, STORAGE_BF16, STORAGE_Q8_0, STORAGE_Q4_0};
    struct checkpoint_shape shape =
        shape_of("layers=2 heads=4 kv=2 dim=24 ff=160 ctx=80 vocab=260 seed=9");
    const struct checkpoint wide = made_checkpoint(&shape);
    const struct model *loaded = converted(&wide, storages[_i]);
    shape.type = types[_i];
    shape.embedding_type = _i == 3 ? TENSOR_Q8_0 : types[_i];
    const struct checkpoint narrow = made_checkpoint(&shape);
    const float *found = logits_of_some(narrow.model, N, 2, 0);
    ck_assert_int_eq(narrow.model->blocks[0].w[ROLE_FFN_UP].matrix.storage, storages[_i]);
    expect_same(loaded, logits_of_some(loaded, N, 1, 1), found, N, "converted");
    if (_i < 2)
        expect_same(loaded, logits_of_some(converted(&narrow, STORAGE_F32), N, 1, 1), found, N,
                    "widened");
}

/* With a trained checkpoint and real text, quantised weights and caches stay near F32. */
TEST(quantisation_costs_little, .seconds = 300, .left_out = THREAD_SANITIZED)
{
    static const char text[] = "GLOUCESTER:\nNow is the winter of our discontent\nMade glorious "
                               "summer by this sun of York;\nAnd all the clouds that lour'd upon "
                               "our house\nIn the deep bosom of the ocean buried.\n";
    static const struct {
        enum storage weights;
        struct kv_type cache;
        double limit;
    } cases[] = {{STORAGE_F32, {CACHE_F16, CACHE_F16}, 1e-4},
                 {STORAGE_F32, {CACHE_Q8_0, CACHE_Q8_0}, 1e-3},
                 {STORAGE_F32, {CACHE_Q8_0, CACHE_Q4_0}, 5e-3},
                 {STORAGE_F32, {CACHE_Q5_0, CACHE_Q4_0}, 1e-2},
                 {STORAGE_F32, {CACHE_Q4_0, CACHE_Q4_0}, 2e-2},
                 {STORAGE_Q8_0, {0}, 1e-3},
                 {STORAGE_Q4_0, {0}, 5e-2}};
    struct checkpoint c = opened_checkpoint("models/shakespeare-mha.gguf", CHECKPOINT_MODEL);
    int32_t *tokens;
    size_t n;
    expect_ok(tokenizer_encode(c.tokenizer, text_of(text), false, &tokens, &n, &err));
    released_by(free, tokens);
    const float *exact =
        logits_after(c.model, tokens, (int)n, 0, NULL, &(struct session_params){.block = 0});
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct session_params p = {.kv_type = cases[i].cache};
        const float *found =
            logits_after(converted(&c, cases[i].weights), tokens, (int)n, 0, NULL, &p);
        const double kl = mean_kl(exact, found, (int)n, c.model->config.n_vocab);
        ck_assert_msg(kl > 0 && kl < cases[i].limit,
                      "weights %s, cache %s: a divergence of %g, expected less than %g",
                      storage_names[cases[i].weights], kv_type_name(cases[i].cache).text, kl,
                      cases[i].limit);
    }
}

/* starcoder is gpt2's block under another name. Biases may be missing, and the output tied. */
TEST(optional_parts, .seconds = 300)
{
    enum { N = 20 };
    struct checkpoint_shape shape =
        shape_of("layers=1 heads=2 kv=1 dim=8 ff=24 ctx=32 vocab=256 seed=9");
    const struct model *gpt2 = made_checkpoint(&shape).model;
    shape.architecture = "starcoder";
    expect_same(gpt2, logits_of_some(gpt2, N, 1, 0),
                logits_of_some(made_checkpoint(&shape).model, N, 1, 0), N, "starcoder");
    ck_assert_int_eq(gpt2->tied, 0);

    shape.no_biases = shape.tied = shape.no_tokenizer = 1;
    shape.type = TENSOR_F16;
    const struct checkpoint bare = made_checkpoint(&shape);
    ck_assert(bare.model->tied == 1 && !bare.model->blocks[0].w[ROLE_ATTN_QKV].matrix.bias);
    ck_assert(!bare.model->w[ROLE_OUTPUT_NORM].norm.bias && !bare.tokenizer);
    expect_same(bare.model, logits_of_some(bare.model, N, 1, 1),
                logits_of_some(bare.model, N, 3, 0), N, "bare");
}

TEST(refusals_change_nothing, .seconds = 300)
{
    struct golden g = open_golden("mqa-f16");
    const struct model *m = g.checkpoint.model;
    struct session *s = NULL;
    const struct session_params too_long = {.n_ctx = m->config.n_ctx + 1}, p = {.n_ctx = 12};
    expect_status(session_create(m, &too_long, NULL, &s, &err), STATUS_USAGE, "65");
    ck_assert_ptr_null(s);
    s = new_session(m, &p, NULL);
    ck_assert_int_eq(session_cap(s), 12);
    expect_status(session_feed(s, 0, g.tokens, 13, NULL, false, &err), STATUS_USAGE, "12");
    expect_status(session_feed(s, 0, g.tokens, 0, NULL, false, &err), STATUS_USAGE, "");
    ck_assert_int_eq(session_len(s, 0), 0);
    expect_ok(session_feed(s, 0, g.tokens, 12, NULL, false, &err));
    expect_status(session_feed(s, 0, g.tokens, 1, NULL, false, &err), STATUS_USAGE, "12");
}

/* For any size of a head, the memory that is planned and taken is the positions times the bytes of
 * one. */
TEST(bytes_of_a_position_are_those_taken, .loops = 4 * KV_TYPES, .seconds = 300)
{
    static const char *const sizes[] = {"layers=3 heads=6 kv=2 ctx=256 vocab=9 ff=8 width=24",
                                        "layers=3 heads=6 kv=2 ctx=256 vocab=9 ff=8 width=48",
                                        "layers=3 heads=6 kv=2 ctx=256 vocab=9 ff=8 width=120",
                                        "layers=3 heads=6 kv=2 ctx=256 vocab=9 ff=8 width=288"};
    const struct kv_shape shape = {.n_sequences = 1, .cap = 256, .type = kv_type_at(_i / 4)};
    struct config c = config_sized("gpt2", sizes[_i % 4]);
    struct kv_cache kv;
    size_t planned;
    config_complete(&c);
    const size_t all = 256 * kv_cache_bytes_per_token(&c, shape.type);
    ck_assert(kv_cache_bytes(&c, &shape, &planned));
    ck_assert_uint_eq(planned, all);
    expect_ok(kv_cache_create(&kv, &c, &shape, NULL));
    ck_assert_uint_eq(kv.arena.cap, all);
    kv_cache_free(&kv);
}
