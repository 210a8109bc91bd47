/* Tests that rows of many sequences in one step give the bits of each sequence alone, for any
 * schedule, threads, type of cache and number of rows at once. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/own_text.h"
#include "engine/schedule.h"
#include "golden.h"
#include "kernel_data.h"
#include "measure/bench.h"
#include "opened.h"
#include "support.h"

static struct checkpoint made(const char *sizes)
{
    const struct checkpoint_shape shape = shape_of(sizes);
    return made_checkpoint(&shape);
}

/* Checkpoints whose context is several chunks of the cache. */
_Static_assert(KERNEL_CHUNK == 256, "ctx below is two chunks and some more");
static const char *const long_ones[] = {
    "layers=2 heads=4 kv=2 dim=8 ff=32 vocab=256 seed=3 ctx=552",
    "layers=2 heads=4 kv=1 dim=8 ff=32 vocab=256 seed=3 ctx=552",
    "layers=2 heads=4 kv=4 dim=8 ff=32 vocab=256 seed=3 ctx=552"};

enum { N_SEQUENCES = 4, MORE = 30, MOST_PREFIX = 300 };

/* Texts that begin alike, and the logits after each of their tokens when these are fed alone, one
 * by one. */
struct alike {
    int n_prefix;
    int32_t tokens[N_SEQUENCES][MOST_PREFIX + MORE];
    const float *expected[N_SEQUENCES];
};

static void make_alike(struct alike *a, const struct model *m, int n_prefix, enum cache_type cache)
{
    const struct session_params stepping = {.kv_type = kv_type_of(cache), .block = 1};
    a->n_prefix = n_prefix;
    for (int i = 0; i < N_SEQUENCES; i++) {
        for (int t = 0; t < n_prefix + MORE; t++)
            a->tokens[i][t] = ((t < n_prefix ? 0 : i * 31) + t * 7 + t * t) % m->config.n_vocab;
        a->expected[i] = logits_after(m, a->tokens[i], n_prefix + MORE, 0, NULL, &stepping);
    }
}

/* Takes the next rows of some sequences, from any one on; sets *done when none has more. */
static int next_rows(const struct alike *a, const struct session *s, struct rng *r,
                     struct batch_row *rows, bool *done)
{
    const int first = below(r, N_SEQUENCES);
    int n = 0;
    *done = true;
    for (int k = 0; k < N_SEQUENCES; k++) {
        const int i = (first + k) % N_SEQUENCES, len = session_len(s, i);
        const int end = a->n_prefix + MORE, count = below(r, 3) ? 1 : below(r, 9);
        *done = *done && len == end;
        for (int t = len; t < len + count && t < end; t++)
            rows[n++] = (struct batch_row){.token = a->tokens[i][t],
                                           .sequence = i,
                                           .position = t,
                                           .wants_logits = below(r, 4) != 0};
    }
    return n;
}

/* All sequences have rows in one step, while one of them now and then forgets the end of its text
 * and is fed it again. */
static void go_on(const struct alike *a, struct session *s, int n_vocab, struct rng *r)
{
    enum { MAX_ROWS = 8 * N_SEQUENCES };
    struct batch_row rows[MAX_ROWS];
    float *logits = allocated((size_t)(MAX_ROWS * n_vocab) * sizeof *logits);
    int n_forgotten = 0;
    for (bool done = false; !done;) {
        if (n_forgotten < 5 && below(r, 8) == 0) {
            const int i = below(r, N_SEQUENCES), to = below(r, session_len(s, i) + 1);
            session_rewind(s, i, to);
            ck_assert_int_eq(session_len(s, i), to);
            n_forgotten++;
        }
        const int n = next_rows(a, s, r, rows, &done);
        const float *found = logits;
        if (n > 0)
            expect_ok(session_step(s, rows, n, logits, &err));
        for (const struct batch_row *row = rows; row < rows + n; row++) {
            const float *expected = a->expected[row->sequence] + row->position * n_vocab;
            if (!row->wants_logits)
                continue;
            ck_assert_msg(memcmp(found, expected, (size_t)n_vocab * sizeof *found) == 0,
                          "sequence %d, position %d: other bits than alone", row->sequence,
                          row->position);
            found += n_vocab;
        }
    }
}

/* The first sequence reads the common beginning, and the others are given copies of it. */
TEST(a_copy_goes_on_as_its_sequence, .loops = SANITIZED ? 3 : 3 * CACHE_TYPES)
{
    static const int prefixes[] = {1, 15, 16, 17, 255, 256, MOST_PREFIX};
    static struct alike a;
    const struct model *m = made(long_ones[_i % 3]).model;
    struct pool *pools[] = {NULL, new_pool(2), new_pool(3)};
    struct rng r;
    rng_seed(&r, 2, (uint64_t)_i);
    for (size_t k = SANITIZED ? (size_t)_i % 3 : 0; k < COUNT(prefixes); k += SANITIZED ? 3 : 1) {
        make_alike(&a, m, prefixes[k], _i / 3);
        for (int n_threads = SANITIZED ? 3 : 1; n_threads <= 3; n_threads++) {
            const struct session_params p = {.n_sequences = N_SEQUENCES,
                                             .kv_type = kv_type_of(_i / 3),
                                             .block = n_threads == 2 ? 7 : 0};
            struct session *s = new_session(m, &p, pools[n_threads - 1]);
            expect_ok(session_feed(s, 0, a.tokens[0], a.n_prefix, NULL, false, &err));
            for (int i = 1; i < N_SEQUENCES; i++) {
                session_copy(s, below(&r, i), i, a.n_prefix);
                ck_assert_int_eq(session_len(s, i), a.n_prefix);
            }
            go_on(&a, s, m->config.n_vocab, &r);
        }
    }
}

TEST(impossible_rows_are_refused)
{
    static const struct {
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
    struct golden g = open_golden("mha");
    const struct session_params p = {.n_sequences = 2};
    struct session *s = new_session(g.checkpoint.model, &p, NULL);
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
}

/* One row of each sequence goes through the weights at once, however many sequences there are. */
TEST(blocks_hold_a_row_of_each)
{
    static const int cases[][3] = {{1, 0, 128}, {129, 0, 129}, {300, 0, 300}, {300, 7, 7}};
    struct golden g = open_golden("mha");
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct session_params p = {.n_sequences = cases[i][0], .block = cases[i][1]};
        struct session *s = new_session(g.checkpoint.model, &p, NULL);
        const int most = cases[i][0] * session_cap(s), expected = cases[i][2];
        ck_assert_int_eq(session_block(s), expected < most ? expected : most);
    }
}

/* Counts what each thread's calls of attention read; threads take places as they come. */
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

/* A long sequence beside short ones leaves no thread waiting, whatever the heads. */
TEST(work_is_dealt_by_cost, .loops = 12)
{
    enum { LONG = 15 * KERNEL_CHUNK, SHORT = 10, N = 16 };
    static const int threads[] = {1, 2, 3, 7}, kv_heads[] = {1, 2, 4};
    const int n_kv_heads = kv_heads[_i % 3], n_threads = threads[_i / 3];
    const int all = n_kv_heads * (LONG + (N - 1) * SHORT);
    struct batch_row rows[N];
    char sizes[100];
    snprintf(sizes, sizeof sizes, "layers=1 heads=4 kv=%d dim=8 ff=8 ctx=%d vocab=257 seed=1",
             n_kv_heads, LONG);
    struct kernels counting = kernels_scalar;
    counting.attend = count_attend;
    const struct session_params p = {.n_sequences = N, .kernels = &counting};
    const struct model *model = made(sizes).model;
    struct session *s = new_session(model, &p, new_pool(n_threads));
    float head[16];
    for (int i = 0; i < N; i++) {
        rows[i] = (struct batch_row){.sequence = i, .position = (i == 9 ? LONG : SHORT) - 1};
        bench_fill(s, &model->config, &counting, i, rows[i].position, 1, head);
    }
    memset(readers, 0, sizeof readers);
    n_readers = reader = 0;
    expect_ok(session_step(s, rows, N, NULL, &err));
    int sum = 0, calls = 0;
    for (int i = 0; i < 8; i++) {
        sum += readers[i].positions;
        calls += readers[i].calls;
        /* A thread may have an item more than its share, and the cost of the short sequences'
         * calls. */
        ck_assert_int_le(readers[i].positions, all / n_threads + 3 * KERNEL_CHUNK);
    }
    ck_assert_int_eq(sum, all);
    ck_assert_int_eq(calls, n_kv_heads * (LONG / KERNEL_CHUNK + N - 1));
}

/* Blocks that run one after another on their own give the model's results. */
TEST(probes_run_what_sessions_run, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    const struct model *m = g.checkpoint.model;
    const int n = g.n_tokens;
    const size_t d = (size_t)m->config.d_model;
    float *x = allocated((size_t)n * d * sizeof *x), *out = x + (size_t)(n - 1) * d;
    struct probe *p = new_probe(m, n, NULL);
    for (int t = 0; t < n; t++)
        probe_embed(p, m, g.tokens[t], t, x + (size_t)t * d);
    for (int l = 0; l < m->config.n_layers; l++) {
        const struct block_taps taps = {.at = {[TAP_OUT] = x}};
        probe_run(p, &m->blocks[l], l, x, n, &taps);
    }
    const struct kernels *k = fastest_kernels();
    const struct norm *norm = &m->w[ROLE_OUTPUT_NORM].norm;
    float *normed = allocated(d * sizeof *normed);
    if (m->config.placement != PLACEMENT_AFTER)
        k->norm(m->config.norm, normed, out, norm->gain, norm->bias, m->config.d_model,
                m->config.norm_eps);
    else
        memcpy(normed, out, d * sizeof *out);
    const struct matrix *w = &m->w[ROLE_OUTPUT].matrix;
    if (storage_is_quantised(w->storage))
        return;
    struct session *s = new_session(m, &(struct session_params){.n_ctx = 0}, NULL);
    float *logits = allocated((size_t)w->n_out * sizeof *logits);
    float *fed = allocated((size_t)w->n_out * sizeof *fed);
    expect_ok(session_feed(s, 0, g.tokens, n, fed, false, &err));
    const struct matmul product = {w, normed, d, NULL, 1, logits, (size_t)w->n_out, EPILOGUE_STORE};
    k->matmul(&product, 0, matrix_panels(w->n_out));
    ck_assert_mem_eq(logits, fed, (size_t)w->n_out * sizeof *logits);
}

/* The text that a model writes by itself is the same for any number of threads, and another one for
 * another seed. Each text begins with a newline where there is no BOS. */
TEST(own_text)
{
    enum { LENGTH = 24, N = 19 };
    struct checkpoint file = opened_checkpoint("tests/data/shakespeare-bytes.gguf",
                                               CHECKPOINT_MODEL | CHECKPOINT_TOKENIZER);
    int32_t first[N * LENGTH], again[N * LENGTH];
    int32_t *newline;
    size_t n;
    expect_ok(tokenizer_encode(file.tokenizer, text_of("\n"), false, &newline, &n, &err));
    for (int i = 0; i < 4; i++) {
        const struct own_text t = {.model = file.model,
                                   .tokenizer = file.tokenizer,
                                   .pool = new_pool(i % 3 + 1),
                                   .seed = i < 3 ? 5 : 6,
                                   .length = LENGTH,
                                   .n = N};
        expect_ok(own_text_write(&t, i == 0 ? first : again, &err));
        for (int k = 0; k < N && i == 0; k++) {
            ck_assert_int_eq(first[k * LENGTH], newline[0]);
            ck_assert(k == 0 || memcmp(first, first + k * LENGTH, LENGTH * sizeof *first) != 0);
        }
        if (i > 0)
            ck_assert_int_eq(memcmp(first, again, sizeof first) == 0, i < 3);
    }
    free(newline);
}
