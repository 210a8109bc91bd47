/* The engine against logits that another implementation computed in double precision, and
 * against itself: any threads, blocks, instruction sets and rewinds give the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "golden.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "opened.h"
#include "support.h"

#define GOLDEN_TOLERANCE 2e-4

struct setting {
    int n_threads;
    int block;
    enum storage kv_storage;
    const struct kernels *kernels;
};

/* Logits after every token, fed `feed` at a time. Freed by the caller. */
static float *all_logits(const struct golden *g, struct setting set, int feed)
{
    const struct model *m = g->checkpoint.model;
    const size_t n_vocab = (size_t)m->config.n_vocab;
    const struct session_params p = {
        .block = set.block, .kv_storage = set.kv_storage, .kernels = set.kernels};
    struct pool *pool = new_pool(set.n_threads);
    struct session *session = new_session(m, &p, pool);
    float *out = malloc((size_t)g->n_tokens * n_vocab * sizeof *out);
    for (int t = 0; t < g->n_tokens; t += feed) {
        const int n = g->n_tokens - t < feed ? g->n_tokens - t : feed;
        const enum status s =
            session_feed(session, 0, g->tokens + t, n, out + (size_t)t * n_vocab, &err);
        expect_ok(s);
    }
    ck_assert_int_eq(session_len(session, 0), g->n_tokens);
    session_free(session);
    pool_free(pool);
    return out;
}

static void assert_bits(const struct golden *g, const float *expected, const float *found,
                        const char *what)
{
    const size_t n = (size_t)g->n_tokens * (size_t)g->checkpoint.model->config.n_vocab;
    ck_assert_msg(memcmp(expected, found, n * sizeof *expected) == 0, "%s: bits differ", what);
}

TEST(golden_logits, .loops = N_GOLDEN, .seconds = 300)
{
    struct golden g = open_golden(golden_names[_i]);
    const int n_vocab = g.checkpoint.model->config.n_vocab;
    for (int k = 0; kernels_at(k); k++) {
        if (!kernels_supported(kernels_at(k)))
            continue;
        float *logits = all_logits(&g, (struct setting){1, 0, STORAGE_F32, kernels_at(k)}, 1000);
        for (int t = 0; t < g.n_tokens; t++) {
            const float *found = logits + (size_t)t * (size_t)n_vocab;
            const float *expected = g.logits + (size_t)t * (size_t)n_vocab;
            for (int i = 0; i < n_vocab; i++)
                ck_assert_msg(fabsf(found[i] - expected[i]) <= (float)GOLDEN_TOLERANCE,
                              "%s, %s: logit %d after token %d is %.7g, not %.7g", golden_names[_i],
                              kernels_at(k)->name, i, t, (double)found[i], (double)expected[i]);
            ck_assert_int_eq(logits_argmax(found, n_vocab), logits_argmax(expected, n_vocab));
        }
        free(logits);
    }
}

/* Threads, prefill blocks, stepping and instruction sets: one answer. */
TEST(same_bits_however_computed, .loops = N_GOLDEN, .seconds = 300)
{
    struct golden g = open_golden(golden_names[_i]);
    static const int threads[] = {1, 2, 3, 5, 8};
    static const int blocks[] = {0, 1, 2, 5, 13};
    static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    enum { N_CACHES = COUNT(caches) };
    for (int i = SANITIZED ? _i % N_CACHES : 0; i < N_CACHES; i += SANITIZED ? N_CACHES : 1) {
        const enum storage kv = caches[i];
        float *reference = all_logits(&g, (struct setting){1, 1, kv, &kernels_scalar}, 1);
        for (size_t t = SANITIZED ? 2 : 0; t < COUNT(threads); t += SANITIZED ? 2 : 1) {
            for (size_t b = 0; b < COUNT(blocks); b += SANITIZED ? 2 : 1) {
                const struct setting set = {threads[t], blocks[b], kv, NULL};
                float *found = all_logits(&g, set, b == 0 ? 7 : 1000);
                char what[96];
                snprintf(what, sizeof what, "%s, %d threads, blocks of %d, %s cache",
                         golden_names[_i], threads[t], blocks[b], storage_name(kv));
                assert_bits(&g, reference, found, what);
                free(found);
            }
        }
        free(reference);
    }
}

/* Mean KL divergence of q from p, both logits [n, n_vocab]. */
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

/* A narrower cache stays near the golden logits. */
TEST(narrow_caches_are_close, .loops = N_GOLDEN, .seconds = 300)
{
    struct golden g = open_golden(golden_names[_i]);
    for (int i = 0; i < 2; i++) {
        float *found =
            all_logits(&g, (struct setting){2, 0, i ? STORAGE_Q8_0 : STORAGE_F16, NULL}, 1000);
        ck_assert_double_lt(
            mean_kl(g.logits, found, g.n_tokens, g.checkpoint.model->config.n_vocab),
            i ? 1e-3 : 1e-4);
        free(found);
    }
}

static struct checkpoint made(const char *name, const struct checkpoint_shape *shape)
{
    const char *path = scratch_path(name);
    write_checkpoint(path, shape);
    return open_checkpoint(path, CHECKPOINT_MODEL);
}

/* Logits after each of n tokens 0, 37, 74, ... fed at once. Freed by the caller. */
static float *feed_all(const struct model *m, int n_threads, int block, int n)
{
    int32_t *tokens = malloc((size_t)n * sizeof *tokens);
    for (int t = 0; t < n; t++)
        tokens[t] = t * 37 % m->config.n_vocab;
    float *logits = logits_after(m, tokens, n, n_threads, &(struct session_params){.block = block});
    free(tokens);
    return logits;
}

static void assert_same_logits(const struct model *m, const float *a, const float *b, int n)
{
    const size_t count = (size_t)n * (size_t)m->config.n_vocab;
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(isfinite(a[i]) && memcmp(&a[i], &b[i], sizeof *a) == 0,
                      "logit %zu is %.9g, not %.9g", i, (double)b[i], (double)a[i]);
}

/* Logits after each of n tokens, stepped: the same on any threads and in any blocks. Freed by the
 * caller. */
static float *same_steps(const struct model *m, int n)
{
    static const int settings[][2] = {{2, 96}, {3, 1}, {8, 50}, {5, 7}, {2, 1}, {1, 96}};
    float *steps = feed_all(m, 1, 1, n);
    for (size_t i = 0; i < COUNT(settings); i++) {
        float *found = feed_all(m, settings[i][0], settings[i][1], n);
        assert_same_logits(m, steps, found, n);
        free(found);
    }
    return steps;
}

/* Contexts that span several chunks of the cache. */
TEST(same_bits_over_many_chunks, .seconds = 300, .after = scratch_remove)
{
    const struct checkpoint_shape shape =
        shape_of("layers=2 heads=6 kv=2 dim=12 ff=40 ctx=640 vocab=256");
    struct checkpoint c = made("long.gguf", &shape);
    free(same_steps(c.model, 600));
    checkpoint_close(&c);
}

/* Weights that a narrower type holds exactly give the same bits in every type. */
TEST(types_hold_the_same_numbers, .loops = 2, .seconds = 300, .after = scratch_remove)
{
    enum { N = 30 };
    struct checkpoint_shape shape =
        shape_of("layers=2 heads=4 kv=2 dim=12 ff=40 ctx=32 vocab=260 seed=3");
    shape.type = _i ? TENSOR_F16 : TENSOR_BF16;
    struct checkpoint narrow = made("narrow.gguf", &shape);
    struct model *wide = NULL;
    const struct model_options to_f32 = {.convert = true, .storage = STORAGE_F32};
    expect_ok(model_create(narrow.gguf, &to_f32, NULL, &wide, &err));
    ck_assert_int_eq(wide->w[ROLE_OUTPUT].matrix.storage, STORAGE_F32);
    ck_assert_int_eq(narrow.model->w[ROLE_OUTPUT].matrix.storage, _i ? STORAGE_F16 : STORAGE_BF16);
    float *a = feed_all(narrow.model, 2, 0, N), *b = feed_all(wide, 1, 1, N);
    assert_same_logits(wide, a, b, N);
    free(a), free(b);
    model_free(wide);
    checkpoint_close(&narrow);
}

/* Quantised weights: the same bits from the file as from converting at load. */
TEST(quantised_weights, .loops = 2, .seconds = 300, .after = scratch_remove)
{
    enum { N = 70 };
    const struct model_options o = {.convert = true, .storage = _i ? STORAGE_Q8_0 : STORAGE_Q4_0};
    struct checkpoint_shape shape =
        shape_of("layers=2 heads=4 kv=2 dim=24 ff=160 ctx=80 vocab=260 seed=9");
    struct checkpoint wide = made("wide.gguf", &shape);
    struct model *converted = NULL;
    expect_ok(model_create(wide.gguf, &o, NULL, &converted, &err));
    shape.type = _i ? TENSOR_Q8_0 : TENSOR_Q4_0;
    shape.embedding_type = TENSOR_Q8_0;
    struct checkpoint narrow = made("narrow.gguf", &shape);
    ck_assert_int_eq(narrow.model->blocks[0].w[ROLE_FFN_UP].matrix.storage, o.storage);
    float *steps = same_steps(converted, N), *from_file = feed_all(narrow.model, 2, 0, N);
    assert_same_logits(converted, steps, from_file, N);
    free(from_file), free(steps);
    model_free(converted);
    checkpoint_close(&narrow);
    checkpoint_close(&wide);
}

/* On a trained checkpoint and real text, quantised weights and caches stay near F32. */
TEST(quantisation_costs_little, .seconds = 300)
{
    static const char text[] = "GLOUCESTER:\nNow is the winter of our discontent\nMade glorious "
                               "summer by this sun of York;\nAnd all the clouds that lour'd upon "
                               "our house\nIn the deep bosom of the ocean buried.\n";
    enum { N = sizeof text - 1 };
    struct checkpoint c = open_checkpoint("tests/data/shakespeare-bytes.gguf", CHECKPOINT_MODEL);
    int32_t *tokens;
    size_t n;
    expect_ok(tokenizer_encode(c.tokenizer, (struct text){text, N}, &tokens, &n, &err));
    static const struct {
        enum storage weights, cache;
        double limit;
    } cases[] = {{STORAGE_F32, STORAGE_F32, 0},
                 {STORAGE_F32, STORAGE_F16, 1e-4},
                 {STORAGE_F32, STORAGE_Q8_0, 1e-3},
                 {STORAGE_Q8_0, STORAGE_F32, 1e-3},
                 {STORAGE_Q4_0, STORAGE_F32, 5e-2}};
    float *logits[5];
    const int n_vocab = c.model->config.n_vocab;
    for (int i = 0; i < 5; i++) {
        struct model *m = NULL;
        const struct model_options o = {.convert = true, .storage = cases[i].weights};
        const struct session_params p = {.kv_storage = cases[i].cache};
        logits[i] = malloc(n * (size_t)n_vocab * sizeof **logits);
        expect_ok(model_create(c.gguf, &o, NULL, &m, &err));
        struct session *session = new_session(m, &p, NULL);
        expect_ok(session_feed(session, 0, tokens, (int)n, logits[i], &err));
        const double kl = mean_kl(logits[0], logits[i], (int)n, n_vocab);
        ck_assert_msg(i == 0 || (kl > 0 && kl < cases[i].limit),
                      "weights %s, cache %s: a divergence of %g, expected less than %g",
                      storage_name(cases[i].weights), storage_name(cases[i].cache), kl,
                      cases[i].limit);
        session_free(session);
        model_free(m);
    }
    for (int i = 0; i < 5; i++)
        free(logits[i]);
    free(tokens);
    checkpoint_close(&c);
}

/* A pool can be taken away and given back between feeds. */
TEST(pools_may_change, .seconds = 300)
{
    struct golden g = open_golden("mha");
    const size_t n_vocab = (size_t)g.checkpoint.model->config.n_vocab;
    float *expected = all_logits(&g, (struct setting){1, 1, STORAGE_F32, NULL}, 1);
    struct pool *pool = new_pool(3);
    struct session *s = new_session(g.checkpoint.model, &(struct session_params){0}, pool);
    session_prefers_one_thread(s, 1);
    session_prefers_one_thread(s, 1000);
    ck_assert_int_eq(session_len(s, 0), 0);
    for (int t = 0; t < g.n_tokens; t++) {
        session_set_pool(s, t % 2 ? pool : NULL);
        expect_ok(session_feed(s, 0, g.tokens + t, 1, NULL, &err));
        ck_assert_int_eq(
            memcmp(session_logits(s), expected + (size_t)t * n_vocab, n_vocab * sizeof *expected),
            0);
    }
    ck_assert(!session_prefers_one_thread(s, 1)); /* no longer empty */
    free(expected);
    session_free(s);
    pool_free(pool);
}

/* A GQA model, and the MHA model that has each K/V head copied to all of its group, are the same
 * function: the map from query to K/V heads is right. */
TEST(gqa_equals_its_expansion, .loops = 4, .seconds = 300, .after = scratch_remove)
{
    enum { N = 40 };
    static const int kv_heads[] = {1, 2, 3, 6};
    struct checkpoint_shape shape =
        shape_of("layers=2 heads=6 dim=16 ff=64 ctx=48 vocab=256 seed=5");
    shape.n_kv_heads = kv_heads[_i];
    struct checkpoint small = made("small.gguf", &shape);
    shape.base_kv_heads = kv_heads[_i];
    shape.n_kv_heads = 6;
    struct checkpoint expanded = made("expanded.gguf", &shape);
    float *a = feed_all(small.model, 2, 0, N), *b = feed_all(expanded.model, 2, 0, N);
    assert_same_logits(small.model, a, b, N);
    free(a), free(b);
    checkpoint_close(&small);
    checkpoint_close(&expanded);
}

/* starcoder is the same block under another name; without biases; tied. */
TEST(optional_parts, .seconds = 300)
{
    enum { N = 20 };
    struct checkpoint_shape shape =
        shape_of("layers=1 heads=2 kv=1 dim=8 ff=24 ctx=32 vocab=256 seed=9");
    struct checkpoint gpt2 = made("gpt2.gguf", &shape);
    shape.architecture = "starcoder";
    struct checkpoint starcoder = made("starcoder.gguf", &shape);
    float *a = feed_all(gpt2.model, 1, 0, N), *b = feed_all(starcoder.model, 1, 0, N);
    assert_same_logits(gpt2.model, a, b, N);
    ck_assert_int_eq(gpt2.model->tied, 0);

    shape.no_biases = 1;
    shape.tied = 1;
    shape.type = TENSOR_F16;
    shape.no_tokenizer = 1;
    struct checkpoint bare = made("bare.gguf", &shape);
    ck_assert(bare.model->tied == 1 && !bare.model->blocks[0].w[ROLE_ATTN_QKV].matrix.bias);
    ck_assert(!bare.model->w[ROLE_OUTPUT_NORM].norm.bias && !bare.tokenizer);
    float *c = feed_all(bare.model, 1, 1, N), *d = feed_all(bare.model, 3, 0, N);
    assert_same_logits(bare.model, c, d, N);
    free(a);
    free(b);
    free(c);
    free(d);
    checkpoint_close(&gpt2);
    checkpoint_close(&starcoder);
    checkpoint_close(&bare);
    scratch_remove();
}

TEST(rewind_replays, .seconds = 300)
{
    struct golden g = open_golden("gqa");
    const size_t n_vocab = (size_t)g.checkpoint.model->config.n_vocab;
    const struct session_params p = {.n_ctx = 0};
    struct session *s = new_session(g.checkpoint.model, &p, NULL);
    expect_ok(session_feed(s, 0, g.tokens, 20, NULL, &err));
    float *first = malloc(n_vocab * sizeof *first);
    memcpy(first, session_logits(s), n_vocab * sizeof *first);
    const int32_t other[12] = {0};
    session_rewind(s, 0, 10);
    ck_assert_int_eq(session_len(s, 0), 10);
    expect_ok(session_feed(s, 0, other, 12, NULL, &err));
    ck_assert_int_ne(memcmp(first, session_logits(s), n_vocab * sizeof *first), 0);
    session_rewind(s, 0, 10);
    expect_ok(session_feed(s, 0, g.tokens + 10, 10, NULL, &err));
    ck_assert_int_eq(memcmp(first, session_logits(s), n_vocab * sizeof *first), 0);
    free(first);
    session_free(s);
}

TEST(refusals_change_nothing, .seconds = 300)
{
    struct golden g = open_golden("mqa");
    const struct model *m = g.checkpoint.model;
    struct err e = {{0}};
    struct session *s = NULL;
    const struct session_params too_long = {.n_ctx = m->config.n_ctx + 1};
    ck_assert_int_eq(session_create(m, &too_long, NULL, &s, &e), STATUS_USAGE);
    ck_assert(!s && strstr(e.text, "97"));

    const struct session_params p = {.n_ctx = 12};
    ck_assert_int_eq(session_create(m, &p, NULL, &s, &e), STATUS_OK);
    ck_assert_int_eq(session_cap(s), 12);
    ck_assert_int_eq(session_feed(s, 0, g.tokens, 13, NULL, &e), STATUS_USAGE);
    ck_assert_int_eq(session_feed(s, 0, g.tokens, 0, NULL, &e), STATUS_USAGE);
    const int32_t bad[3] = {1, m->config.n_vocab, 2};
    expect_error(session_feed(s, 0, bad, 3, NULL, &e), STATUS_USAGE, &e, "row 1: token ");
    const int32_t negative = -1;
    ck_assert_int_eq(session_feed(s, 0, &negative, 1, NULL, &e), STATUS_USAGE);
    ck_assert_int_eq(session_len(s, 0), 0);
    ck_assert_int_eq(session_feed(s, 0, g.tokens, 12, NULL, &e), STATUS_OK);
    expect_error(session_feed(s, 0, g.tokens, 1, NULL, &e), STATUS_USAGE, &e, "12");
    session_free(s);
}

TEST(plan_is_what_is_taken, .seconds = 300)
{
    /* 3 layers, 3 K/V heads of 24 (V rows padded to 32), 48 positions. With four more sequences
     * that hold what follows position 17 from the panel that has it on; or no position. */
    enum { HEADS = 3 * 3, ROW = 24 + 32 };
    static const struct {
        enum storage kv;
        int n_sequences, n_shared;
        size_t bytes;
    } cases[] = {
        {STORAGE_F32, 1, 0, HEADS * 48 * ROW * 4},
        {STORAGE_F16, 1, 0, HEADS * 48 * ROW * 2},
        {STORAGE_Q8_0, 1, 0, HEADS * 48 * ROW + 2 * 896}, /* 864, whole lines */
        {STORAGE_F32, 5, 17, HEADS * (48 + 4 * 32) * ROW * 4},
        {STORAGE_F32, 5, 48, HEADS * 48 * ROW * 4},
    };
    struct golden g = open_golden("gqa");
    const struct model *m = g.checkpoint.model;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct session_params p = {.kv_storage = cases[i].kv,
                                         .n_sequences = cases[i].n_sequences,
                                         .n_shared = cases[i].n_shared};
        struct session_memory memory;
        expect_ok(session_plan(m, &p, 1, &memory, &err));
        ck_assert_uint_eq(memory.kv_bytes, cases[i].bytes);
    }
    ck_assert_uint_eq(kv_cache_bytes_per_token(&m->config, 3, STORAGE_F32), HEADS * ROW * 4);
    ck_assert_uint_eq(kv_cache_bytes_per_token(&m->config, 6, STORAGE_F16), 2 * HEADS * ROW * 2);
}

/* Whatever the size of a head, positions times the bytes of one are what is planned and taken. */
TEST(bytes_of_a_position_are_those_taken, .loops = 12, .seconds = 300)
{
    static const int head_dims[] = {4, 8, 20, 48};
    static const enum storage types[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    const int head_dim = head_dims[_i / 3];
    const struct kv_shape shape = {.n_sequences = 1, .cap = 256, .storage = types[_i % 3]};
    struct config c = {.n_layers = 3, .n_heads = 6, .n_kv_heads = 2, .n_ctx = 256, .n_vocab = 9};
    struct kv_cache kv;
    size_t planned;
    c.d_model = 6 * head_dim;
    c.d_ff = 8;
    config_set_arch(&c, arch_preset(text_of("gpt2")));
    config_complete(&c);
    const size_t all = 256 * kv_cache_bytes_per_token(&c, 2, shape.storage);
    ck_assert(kv_cache_bytes(&c, &shape, &planned));
    ck_assert_uint_eq(planned, all);
    expect_ok(kv_cache_create(&kv, &c, &shape, NULL));
    ck_assert_uint_eq(kv.arena.cap, all);
    kv_cache_free(&kv);
}
