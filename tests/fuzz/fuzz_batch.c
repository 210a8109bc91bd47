/*
 * fuzz_batch - a schedule of rows: the input says which sequences step, how many rows at once, in
 * which order, and when one forgets some of its text, for a tiny random model with any cache,
 * heads, prefix in common, threads and kernels. Each sequence's logits must be, bit for bit, those
 * of its text alone, token by token, on the fastest kernels.
 */
#include "engine/session.h"
#include "tiny.h"

#define N_CTX         300 /* more than a chunk of the cache */
#define MAX_SEQUENCES 5
#define MAX_ROWS      160
#define MAX_TOKENS    700 /* of an input, so that none takes long */

/* Of two layers; in some the second has K/V heads of its own. */
#define HEADS(q, kv, dim) .n_heads = (q), .n_kv_heads = (kv), .head_dim = (dim)
static const struct config shapes[] = {
    {HEADS(2, 1, 16)},
    {HEADS(2, 2, 16)},
    {HEADS(4, 2, 8)},
    {HEADS(4, 1, 16)},
    {HEADS(12, 1, 16)},
    {HEADS(6, 3, 16)},
    {HEADS(12, 4, 16)},
    {HEADS(1, 1, 32)},
    {HEADS(3, 1, 32)},
    {HEADS(16, 2, 4)},
    {HEADS(4, 2, 8), .position = POSITION_ROPE, .norm = NORM_RMS, .ffn = FFN_SWIGLU},
    {HEADS(4, 4, 16), .layer_kv_heads = {0, 1}, .position = POSITION_ROPE, .norm = NORM_RMS,
     .ffn = FFN_SWIGLU},
    {HEADS(6, 3, 16), .position = POSITION_ALIBI, .placement = PLACEMENT_AFTER},
    {HEADS(4, 2, 24), .value_dim = 8, .position = POSITION_QUADRATIC, .ffn = FFN_GELU_ERF},
    {HEADS(2, 1, 8), .value_dim = 32, .position = POSITION_SINUSOIDAL, .placement = PLACEMENT_AFTER,
     .ffn = FFN_RELU},
};
static const enum storage storages[] = {STORAGE_F32, STORAGE_Q8_0, STORAGE_F16, STORAGE_Q4_0};

static struct schedule {
    struct model *model;
    struct pool *pool;
    int n_sequences, n_shared;
    struct session *batch;
    /* Each sequence alone, and its text. */
    struct session *alone[MAX_SEQUENCES];
    int32_t text[MAX_SEQUENCES][N_CTX];
    struct batch_row rows[MAX_ROWS]; /* of the next step */
    int n_rows;
    int n_tokens; /* so far */
    float logits[MAX_ROWS * TINY_VOCAB];
} c;

static void open_schedule(struct choices *in)
{
    const struct kernels *scalar;
    const int shape = next_byte(in), types = next_byte(in), sizes = next_byte(in);
    const int shared = next_byte(in) << 8;
    c = (struct schedule){.n_sequences = 1 + sizes % MAX_SEQUENCES,
                          .n_shared = (shared | next_byte(in)) % (N_CTX + 1)};
    c.model = tiny_model(&shapes[(size_t)shape % COUNT(shapes)],
                         storages[(size_t)types / 4 % COUNT(storages)], 2, N_CTX, 7);
    require(pool_create(1 + (sizes >> 3 & 1), &c.pool, NULL) == STATUS_OK);
    require(kernels_choose("scalar", &scalar, NULL) == STATUS_OK);
    const enum storage cache = tiny_caches[types % 4 % 3];
    const struct session_params p = {.n_sequences = c.n_sequences,
                                     .n_shared = c.n_shared,
                                     .kv_storage = cache,
                                     .block = sizes >> 4 & 7,
                                     .kernels = sizes >> 7 ? NULL : scalar};
    const struct session_params one = {.kv_storage = cache, .block = 1};
    require(session_create(c.model, &p, c.pool, &c.batch, NULL) == STATUS_OK);
    for (int i = 0; i < c.n_sequences; i++)
        require(session_create(c.model, &one, NULL, &c.alone[i], NULL) == STATUS_OK);
}

static void close_schedule(void)
{
    for (int i = 0; i < c.n_sequences; i++)
        session_free(c.alone[i]);
    session_free(c.batch);
    pool_free(c.pool);
    model_free(c.model);
}

/* The logits after one more token of a sequence that is alone. */
static const float *step_alone(int sequence, int32_t token)
{
    struct session *s = c.alone[sequence];
    const int len = session_len(s, 0), missing = sequence > 0 ? c.n_shared - len : 0;
    if (missing > 0) {
        require(session_feed(s, 0, c.text[0] + len, missing, NULL, NULL) == STATUS_OK);
        c.n_tokens += missing;
    }
    require(session_feed(s, 0, &token, 1, NULL, NULL) == STATUS_OK);
    c.n_tokens++;
    return session_logits(s);
}

static void compare_rows(void)
{
    const float *found = c.logits;
    for (const struct batch_row *row = c.rows; row < c.rows + c.n_rows; row++) {
        c.text[row->sequence][row->position] = row->token;
        const float *expected = step_alone(row->sequence, row->token);
        require(session_len(c.alone[row->sequence], 0) == row->position + 1);
        if (!row->wants_logits)
            continue;
        require(memcmp(found, expected, TINY_VOCAB * sizeof *found) == 0);
        found += TINY_VOCAB;
    }
}

/* A refusal changes nothing. */
static void expect_refused(void)
{
    int before[MAX_SEQUENCES];
    struct err e = {""};
    for (int i = 0; i < c.n_sequences; i++)
        before[i] = session_len(c.batch, i);
    require_refused(session_step(c.batch, c.rows, c.n_rows, c.logits, &e), STATUS_USAGE, &e);
    for (int i = 0; i < c.n_sequences; i++)
        require(session_len(c.batch, i) == before[i]);
}

static void run_step(void)
{
    bool misses_prefix = false;
    for (int r = 0; r < c.n_rows; r++)
        misses_prefix |= c.rows[r].sequence > 0 && session_len(c.batch, 0) < c.n_shared;
    if (misses_prefix) {
        expect_refused();
    } else if (c.n_rows > 0) {
        require(session_step(c.batch, c.rows, c.n_rows, c.logits, NULL) == STATUS_OK);
        compare_rows();
    }
    c.n_rows = 0;
}

/* One more row of a sequence. Its rows must stand together: others begin a step. */
static void add_row(int sequence, int32_t token, bool wants_logits)
{
    int before = 0;
    for (int r = 0; r < c.n_rows; r++)
        before += c.rows[r].sequence == sequence;
    if (c.n_rows == MAX_ROWS || (before > 0 && c.rows[c.n_rows - 1].sequence != sequence)) {
        run_step();
        before = 0;
    }
    const int position = session_len(c.batch, sequence) + before;
    if (position < N_CTX)
        c.rows[c.n_rows++] = (struct batch_row){token, sequence, position, wants_logits};
}

/* A row out of place makes a step impossible. */
static void spoil_step(int sequence, int what)
{
    if (c.n_rows == MAX_ROWS)
        run_step();
    c.rows[c.n_rows++] = (struct batch_row){.sequence = what == 1 ? c.n_sequences : sequence,
                                            .position = what == 2 ? -1 : N_CTX};
    expect_refused();
    c.n_rows--;
}

static void rewind_sequence(int sequence, int len)
{
    run_step();
    const int before = session_len(c.batch, sequence), least = sequence > 0 ? c.n_shared : 0;
    const int wanted = len > least ? len : least;
    session_rewind(c.batch, sequence, len);
    require(session_len(c.batch, sequence) == (wanted < before ? wanted : before));
    session_rewind(c.alone[sequence], 0, wanted);
    for (int i = 1; sequence == 0 && len < c.n_shared && i < c.n_sequences; i++) {
        require(session_len(c.batch, i) == c.n_shared);
        session_rewind(c.alone[i], 0, 0); /* the prefix may become another */
    }
}

/* A byte says what is done and with which sequence; some take another. */
static void run_command(struct choices *in)
{
    const int command = next_byte(in), sequence = (command >> 3) % c.n_sequences;
    const int more = next_byte(in);
    switch (command & 7) {
    case 0: /* many rows, and logits of the last, or of all */
    case 1:
        for (int n = more % 100; n >= 0; n--)
            add_row(sequence, (n * more + command) % TINY_VOCAB, n == 0 || command & 1);
        break;
    case 2:
        rewind_sequence(sequence, more * 2 % N_CTX);
        break;
    case 3:
        spoil_step(sequence, more % 3);
        break;
    case 4:
        run_step();
        break;
    default:
        add_row(sequence, more % TINY_VOCAB, more >> 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    open_schedule(&in);
    while (in.left > 0 && c.n_tokens < MAX_TOKENS)
        run_command(&in);
    run_step();
    close_schedule();
    return 0;
}
