/* Rows of many sequences in one step against each sequence alone: the same bits, whatever the
 * schedule, the threads, the cache's type and the number of rows that go through at once. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "engine/session.h"
#include "golden.h"
#include "opened.h"
#include "support.h"

#define MAX_SEQUENCES 17

/* Tokens of a sequence: another text for each, of `n` tokens. */
static int32_t token_of(const struct model *m, int sequence, int position)
{
    return (int32_t)((sequence * 31 + position * 7 + position * position) % m->config.n_vocab);
}

/* With the first n_shared tokens those of sequence 0. */
static int32_t shared_token(const struct model *m, int n_shared, int sequence, int position)
{
    return token_of(m, position < n_shared ? 0 : sequence, position);
}

static struct session *open_params(const struct model *m, struct session_params p,
                                   struct pool *pool)
{
    struct session *s = new_session(m, &p, pool);
    return s;
}

static struct session *open_session(const struct model *m, int n_sequences, enum storage kv,
                                    int block, struct pool *pool)
{
    return open_params(
        m, (struct session_params){.n_sequences = n_sequences, .kv_storage = kv, .block = block},
        pool);
}

/* Logits after every token of a sequence that is alone, stepped; its first n_shared tokens are
 * those of sequence 0. */
static float *alone(const struct model *m, int n_shared, int sequence, int n, enum storage kv)
{
    struct session *s = open_session(m, 1, kv, 1, NULL);
    float *out = malloc((size_t)n * (size_t)m->config.n_vocab * sizeof *out);
    for (int t = 0; t < n; t++) {
        const int32_t token = shared_token(m, n_shared, sequence, t);
        float *at = out + (size_t)t * (size_t)m->config.n_vocab;
        expect_ok(session_feed(s, 0, &token, 1, at, &err));
    }
    session_free(s);
    return out;
}

struct schedule {
    const struct model *m;
    struct session *session;
    int n_sequences;
    int n_shared;
    int lengths[MAX_SEQUENCES]; /* to reach */
    float *expected[MAX_SEQUENCES];
    struct rng rng;
};

/* Some rows of some sequences, in any order of the sequences; gives their number. */
static int next_rows(struct schedule *c, struct batch_row *rows, int max)
{
    int order[MAX_SEQUENCES], n = 0;
    for (int i = 0; i < c->n_sequences; i++)
        order[i] = i;
    for (int i = c->n_sequences - 1; i > 0; i--) {
        const int j = (int)(rng_u32(&c->rng) % (uint32_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int i = 0; i < c->n_sequences; i++) {
        const int sequence = order[i], len = session_len(c->session, sequence);
        const int left = c->lengths[sequence] - len;
        int count = rng_u32(&c->rng) % 3 ? 1 : (int)(rng_u32(&c->rng) % 12);
        count = count < left ? count : left;
        for (int r = 0; r < count && n < max; r++)
            rows[n++] =
                (struct batch_row){.token = shared_token(c->m, c->n_shared, sequence, len + r),
                                   .sequence = sequence,
                                   .position = len + r,
                                   .wants_logits = rng_u32(&c->rng) % 4 != 0};
    }
    return n;
}

static bool is_done(const struct schedule *c)
{
    for (int i = 0; i < c->n_sequences; i++)
        if (session_len(c->session, i) < c->lengths[i])
            return false;
    return true;
}

static void run_schedule(struct schedule *c)
{
    enum { MAX_ROWS = 40 };
    struct batch_row rows[MAX_ROWS];
    const size_t n_vocab = (size_t)c->m->config.n_vocab;
    float *logits = malloc(MAX_ROWS * n_vocab * sizeof *logits);
    while (!is_done(c)) {
        const int n = next_rows(c, rows, MAX_ROWS);
        if (n == 0)
            continue;
        expect_ok(session_step(c->session, rows, n, logits, &err));
        const float *found = logits;
        for (int r = 0; r < n; r++) {
            if (!rows[r].wants_logits)
                continue;
            const float *expected =
                c->expected[rows[r].sequence] + (size_t)rows[r].position * n_vocab;
            ck_assert_msg(memcmp(found, expected, n_vocab * sizeof *found) == 0,
                          "sequence %d of %d, position %d: other bits than alone", rows[r].sequence,
                          c->n_sequences, rows[r].position);
            found += n_vocab;
        }
    }
    free(logits);
}

/* One whose context is several chunks of the cache. */
static struct golden open_long(int n_kv_heads)
{
    struct checkpoint_shape shape = shape_of("layers=2 heads=4 dim=8 ff=32 vocab=256 seed=3");
    shape.n_kv_heads = n_kv_heads;
    shape.n_ctx = 2 * KERNEL_CHUNK + 40;
    const char *path = scratch_path("long.gguf");
    write_checkpoint(path, &shape);
    return (struct golden){.checkpoint = opened_checkpoint(path, CHECKPOINT_MODEL)};
}

/* A golden checkpoint, or (the last) a long one. */
static struct golden open_any(int i)
{
    return i < N_GOLDEN ? open_golden(golden_names[i]) : open_long(2);
}

TEST(each_sequence_as_if_alone, .loops = N_GOLDEN + 1)
{
    static const int counts[] = {1, 2, 3, 5, 8, 17}, threads[] = {1, 2, 3};
    static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    struct golden g = open_any(_i);
    const struct model *m = g.checkpoint.model;
    const enum storage kv = caches[_i % 3];
    struct schedule c = {.m = m};
    rng_seed(&c.rng, 1, (uint64_t)_i);
    for (int i = 0; i < MAX_SEQUENCES; i++) {
        c.lengths[i] = 1 + (int)(rng_u32(&c.rng) % (uint32_t)(m->config.n_ctx));
        c.expected[i] = alone(m, 0, i, c.lengths[i], kv);
    }
    for (size_t t = SANITIZED ? 2 : 0; t < COUNT(threads); t++) {
        struct pool *pool = new_pool(threads[t]);
        for (size_t n = SANITIZED ? (size_t)_i % 2 : 0; n < COUNT(counts); n += SANITIZED ? 2 : 1) {
            c.n_sequences = counts[n];
            c.session = open_session(m, counts[n], kv, n % 2 ? 0 : 3, pool);
            run_schedule(&c);
            session_free(c.session);
        }
        pool_free(pool);
    }
    for (int i = 0; i < MAX_SEQUENCES; i++)
        free(c.expected[i]);
}

/* --- a shared prefix ------------------------------------------------------------------------- */

#define SHARING 4

/* Sequence 0 reads the prefix, all go on from it; then the others do once more. */
static void run_shared(struct schedule *c, enum storage kv, int n_threads)
{
    int32_t prefix[KERNEL_CHUNK * 2];
    struct pool *pool = new_pool(n_threads);
    c->session = open_params(c->m,
                             (struct session_params){.n_sequences = SHARING,
                                                     .n_shared = c->n_shared,
                                                     .kv_storage = kv,
                                                     .block = n_threads == 2 ? 7 : 0},
                             pool);
    for (int t = 0; t < c->n_shared; t++)
        prefix[t] = token_of(c->m, 0, t);
    if (c->n_shared > 0)
        expect_ok(session_feed(c->session, 0, prefix, c->n_shared, NULL, &err));
    run_schedule(c);
    for (int i = 0; i < SHARING; i++) {
        session_rewind(c->session, i, i == 0 ? c->n_shared : 0);
        ck_assert_int_eq(session_len(c->session, i), c->n_shared);
    }
    run_schedule(c);
    session_free(c->session);
    pool_free(pool);
}

TEST(a_prefix_is_shared, .loops = 9)
{
    static const int shared[] = {0, 1, 15, 16, 17, 255, 256, 300};
    static const int kv_heads[] = {2, 1, 4};
    static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};
    struct golden g = open_long(kv_heads[_i % 3]);
    struct schedule c = {.m = g.checkpoint.model, .n_sequences = SHARING};
    rng_seed(&c.rng, 2, (uint64_t)_i);
    for (size_t s = SANITIZED ? (size_t)_i % 3 : 0; s < COUNT(shared); s += SANITIZED ? 3 : 1) {
        c.n_shared = shared[s];
        for (int i = 0; i < SHARING; i++) {
            c.lengths[i] = c.n_shared + 1 + (int)(rng_u32(&c.rng) % 30);
            c.expected[i] = alone(c.m, c.n_shared, i, c.lengths[i], caches[_i / 3]);
        }
        for (int n_threads = SANITIZED ? 3 : 1; n_threads <= 3; n_threads++)
            run_shared(&c, caches[_i / 3], n_threads);
        for (int i = 0; i < SHARING; i++)
            free(c.expected[i]);
    }
}

/* The others cannot go on before sequence 0 has what they share, nor after it forgot it. */
TEST(shared_positions_must_be_there)
{
    struct golden g = open_golden("gqa");
    const int32_t token = 1;
    const struct batch_row rows[] = {{.position = 1}, {.sequence = 1, .position = 2}};
    const char *message = "and 2 shared positions";
    struct session *s = open_params(g.checkpoint.model,
                                    (struct session_params){.n_sequences = 2, .n_shared = 2}, NULL);
    ck_assert(session_len(s, 0) == 0 && session_len(s, 1) == 2);
    expect_ok(session_feed(s, 0, &token, 1, NULL, &err));
    expect_status(session_feed(s, 1, &token, 1, NULL, &err), STATUS_USAGE, message);
    expect_status(session_step(s, rows, 2, NULL, &err), STATUS_USAGE, message); /* not in one */
    ck_assert_int_eq(session_len(s, 0), 1);
    expect_ok(session_feed(s, 0, &token, 1, NULL, &err));
    for (int i = 0; i < 3; i++)
        expect_ok(session_feed(s, 1, &token, 1, NULL, &err));
    session_rewind(s, 0, 2);
    ck_assert_int_eq(session_len(s, 1), 5);
    session_rewind(s, 0, 1);
    ck_assert_int_eq(session_len(s, 1), 2);
    ck_assert_int_eq(session_feed(s, 1, &token, 1, NULL, &err), STATUS_USAGE);
    session_free(s);
}

TEST(impossible_rows_are_refused)
{
    struct golden g = open_golden("mha");
    const struct model *m = g.checkpoint.model;
    struct session *s = open_session(m, 2, STORAGE_F32, 0, NULL);
    const struct {
        struct batch_row rows[3];
        int n;
    } cases[] = {
        {{{.sequence = 2}}, 1},
        {{{.sequence = -1}}, 1},
        {{{.position = 1}}, 1},
        {{{.position = 0}, {.position = 0}}, 2},
        {{{.position = 0}, {.sequence = 1}, {.position = 1}}, 3},
        {{{.token = -1}}, 1},
        {{{.position = 0}, {.sequence = 1, .token = 1 << 24}}, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct batch_row *bad = &cases[i].rows[cases[i].n - 1];
        char message[100];
        snprintf(message, sizeof message,
                 "row %d: token %d at position %d of sequence %d: ", cases[i].n - 1,
                 (int)bad->token, bad->position, bad->sequence);
        expect_status(session_step(s, cases[i].rows, cases[i].n, NULL, &err), STATUS_USAGE,
                      message);
        ck_assert(session_len(s, 0) == 0 && session_len(s, 1) == 0);
    }
    session_free(s);
}

/* One row of each sequence passes the weights at once, however many they are. */
TEST(blocks_hold_a_row_of_each)
{
    struct golden g = open_golden("mha");
    static const struct {
        int n_sequences, block, expected;
    } cases[] = {{1, 0, 96}, {97, 0, 97}, {300, 0, 300}, {300, 7, 7}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct session_params p = {.n_sequences = cases[i].n_sequences,
                                         .block = cases[i].block};
        struct session *s = new_session(g.checkpoint.model, &p, NULL);
        const int most = cases[i].n_sequences * session_cap(s);
        ck_assert_int_eq(session_block(s), cases[i].expected < most ? cases[i].expected : most);
        session_free(s);
    }
}

/* What each thread's calls of attention read: threads take places as they come. */
static struct {
    int positions, calls;
} readers[8];
static atomic_int n_readers;
static _Thread_local int reader; /* from 1 on */

static void count_attend(const struct attend *a)
{
    if (reader == 0)
        reader = ++n_readers;
    readers[reader - 1].positions += a->kv.n_positions;
    readers[reader - 1].calls++;
}

/* One long sequence beside short ones does not make the others wait, whatever the heads. */
TEST(work_is_dealt_by_cost, .loops = 12, .after = scratch_remove)
{
    enum { LONG = 15 * KERNEL_CHUNK, SHORT = 10, N = 16 };
    static const int threads[] = {1, 2, 3, 7}, kv_heads[] = {1, 2, 4};
    const int n_kv_heads = kv_heads[_i % 3], n_threads = threads[_i / 3];
    const int all = n_kv_heads * (LONG + (N - 1) * SHORT);
    struct kernels counting = kernels_scalar;
    struct pool *pool = new_pool(n_threads);
    struct batch_row rows[N];
    char sizes[100];
    snprintf(sizes, sizeof sizes, "layers=1 heads=4 kv=%d dim=8 ff=8 ctx=%d vocab=257 seed=1",
             n_kv_heads, LONG);
    const struct checkpoint_shape shape = shape_of(sizes);
    write_checkpoint(scratch_path("m.gguf"), &shape);
    struct checkpoint c = open_checkpoint(scratch_path("m.gguf"), CHECKPOINT_MODEL);
    counting.attend = count_attend;
    struct session *s =
        open_params(c.model, (struct session_params){.n_sequences = N, .kernels = &counting}, pool);
    for (int i = 0; i < N; i++) {
        rows[i] = (struct batch_row){.sequence = i, .position = (i == 9 ? LONG : SHORT) - 1};
        session_fill(s, i, rows[i].position, 1);
    }
    memset(readers, 0, sizeof readers);
    n_readers = reader = 0;
    expect_ok(session_step(s, rows, N, NULL, &err));
    int sum = 0, calls = 0;
    for (int i = 0; i < 8; i++) {
        sum += readers[i].positions;
        calls += readers[i].calls;
        /* An item more than its share, and what the short ones' calls cost. */
        ck_assert_int_le(readers[i].positions, all / n_threads + 3 * KERNEL_CHUNK);
    }
    ck_assert_int_eq(sum, all);
    ck_assert_int_eq(calls, n_kv_heads * (LONG / KERNEL_CHUNK + N - 1));
    session_free(s);
    pool_free(pool);
    checkpoint_close(&c);
}

/* Block after block on their own are the model. */
TEST(probes_run_what_sessions_run, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    const struct model *m = g.checkpoint.model;
    const int n = g.n_tokens, d = m->config.d_model;
    struct probe *p = NULL;
    float *x = malloc((size_t)n * (size_t)d * sizeof *x), *out = malloc((size_t)d * sizeof *out);
    float *logits = malloc((size_t)m->config.n_vocab * sizeof *logits);
    expect_ok(probe_create(&m->config, m->w[ROLE_ROPE_FREQS].table, n, NULL, NULL, &p, &err));
    for (int t = 0; t < n; t++)
        model_embed(m, probe_positions(p), g.tokens[t], t, x + (size_t)t * (size_t)d);
    for (int l = 0; l < m->config.n_layers; l++) {
        const struct block_taps taps = {.at = {[TAP_OUT] = x}};
        probe_run(p, &m->blocks[l], l, x, n, &taps);
    }
    const struct kernels *k;
    expect_ok(kernels_choose(NULL, &k, &err));
    const struct norm *norm = &m->w[ROLE_OUTPUT_NORM].norm;
    if (m->config.placement == PLACEMENT_BEFORE)
        k->norm[m->config.norm](out, x + (size_t)(n - 1) * (size_t)d, norm->gain, norm->bias, d,
                                m->config.norm_eps);
    else
        memcpy(out, x + (size_t)(n - 1) * (size_t)d, (size_t)d * sizeof *out);
    struct session *s = open_session(m, 1, STORAGE_F32, 0, NULL);
    expect_ok(session_feed(s, 0, g.tokens, n, NULL, &err));
    const struct matrix *w = &m->w[ROLE_OUTPUT].matrix;
    if (!storage_is_quantised(w->storage)) {
        const struct matmul product = {.w = w,
                                       .x = out,
                                       .x_stride = (size_t)d,
                                       .n_tokens = 1,
                                       .y = logits,
                                       .y_stride = (size_t)w->n_out};
        k->matmul(&product, 0, matrix_panels(w->n_out));
        ck_assert_mem_eq(logits, session_logits(s), (size_t)w->n_out * sizeof *logits);
    }
    session_free(s);
    probe_free(p);
    free(x), free(out), free(logits);
}
