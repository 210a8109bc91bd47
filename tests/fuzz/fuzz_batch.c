/*
 * fuzz_batch - a schedule of rows: the input says which sequences step, how many rows at once, in
 * which order, and when one forgets some of its text, for a tiny random model with any cache,
 * heads or latent cache, prefix in common, threads and kernels. Each sequence's logits must be, bit
 * for bit, those of its text alone, token by token, on the fastest kernels.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "model/model.h"
#include "target.h"

#define N_CTX         300 /* more than a chunk of the cache */
#define N_VOCAB       16
#define MAX_SEQUENCES 5
#define MAX_ROWS      160
#define MAX_TOKENS    700 /* of an input, so that none takes long */

/* --- what is run ----------------------------------------------------------------------------- */

/* Of two layers; the second has other K/V heads where that is not 0. */
static const struct shape {
    int n_heads, n_kv_heads, head_dim, value_dim, second_kv_heads;
    enum position_kind position;
    enum norm_placement placement;
    enum ffn_kind ffn;
    int latent[2];
} shapes[] = {
    {2, 1, 16, .position = POSITION_LEARNED},
    {2, 2, 16, .position = POSITION_LEARNED},
    {4, 2, 8, .position = POSITION_LEARNED},
    {4, 1, 16, .position = POSITION_LEARNED},
    {12, 1, 16, .position = POSITION_LEARNED},
    {6, 3, 16, .position = POSITION_LEARNED},
    {12, 4, 16, .position = POSITION_LEARNED},
    {1, 1, 32, .position = POSITION_LEARNED},
    {3, 1, 32, .position = POSITION_LEARNED},
    {16, 2, 4, .position = POSITION_LEARNED},
    {4, 2, 8, .position = POSITION_ROPE, .ffn = FFN_SWIGLU},
    {4, 4, 16, .second_kv_heads = 1, .position = POSITION_ROPE, .ffn = FFN_SWIGLU},
    {6, 3, 16, .position = POSITION_ALIBI, .placement = PLACEMENT_AFTER},
    {4, 2, 24, 8, .position = POSITION_QUADRATIC, .ffn = FFN_GELU_ERF},
    {2, 1, 8, 32, .position = POSITION_SINUSOIDAL, .placement = PLACEMENT_AFTER, .ffn = FFN_RELU},
    {3, 1, 16, 32, .latent = {32, 9}, .position = POSITION_ALIBI},
};
static const enum storage storages[] = {STORAGE_F32, STORAGE_Q8_0, STORAGE_F16, STORAGE_Q4_0};
static const enum storage caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

struct schedule {
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
    float logits[MAX_ROWS * N_VOCAB];
};

static void create_model(struct schedule *c, int shape, int storage)
{
    const struct shape *s = &shapes[shape];
    struct config config = {.arch = arch_find(text_of("gpt2")),
                            .n_layers = 2,
                            .n_heads = s->n_heads,
                            .n_kv_heads = s->n_kv_heads,
                            .head_dim = s->head_dim,
                            .value_dim = s->value_dim,
                            .d_model = 32,
                            .d_ff = 64,
                            .n_ctx = N_CTX,
                            .n_vocab = N_VOCAB,
                            .norm_eps = 1e-5f,
                            .norm = s->ffn == FFN_SWIGLU ? NORM_RMS : NORM_LAYER,
                            .placement = s->placement,
                            .position = s->position,
                            .ffn = s->ffn,
                            .layer_kv_heads = {0, s->second_kv_heads},
                            .latent = {s->latent[0], s->latent[1]}};
    config_complete(&config);
    struct err e;
    require(model_create_random(&config, storages[storage], 7, &c->model, &e) == STATUS_OK);
}

static void create_sessions(struct schedule *c, enum storage cache, int block, bool fastest)
{
    const struct kernels *scalar;
    struct err e;
    require(kernels_choose("scalar", &scalar, &e) == STATUS_OK);
    const struct session_params p = {.n_sequences = c->n_sequences,
                                     .n_shared = c->n_shared,
                                     .kv_storage = cache,
                                     .block = block,
                                     .kernels = fastest ? NULL : scalar};
    const struct session_params one = {.kv_storage = cache, .block = 1};
    require(session_create(c->model, &p, c->pool, &c->batch, &e) == STATUS_OK);
    for (int i = 0; i < c->n_sequences; i++)
        require(session_create(c->model, &one, NULL, &c->alone[i], &e) == STATUS_OK);
}

static struct schedule *create_schedule(struct choices *in)
{
    struct schedule *c = calloc(1, sizeof *c);
    struct err e;
    require(c != NULL);
    const int shape = next_byte(in), types = next_byte(in), sizes = next_byte(in);
    const int shared = next_byte(in) << 8;
    create_model(c, shape % COUNT(shapes), types / 4 % COUNT(storages));
    c->n_sequences = 1 + sizes % MAX_SEQUENCES;
    c->n_shared = (shared | next_byte(in)) % (N_CTX + 1);
    require(pool_create(1 + (sizes >> 3 & 1), &c->pool, &e) == STATUS_OK);
    create_sessions(c, caches[types % 4 % COUNT(caches)], sizes >> 4 & 7, sizes >> 7);
    return c;
}

static void free_schedule(struct schedule *c)
{
    for (int i = 0; i < c->n_sequences; i++)
        session_free(c->alone[i]);
    session_free(c->batch);
    pool_free(c->pool);
    model_free(c->model);
    free(c);
}

/* --- steps ----------------------------------------------------------------------------------- */

/* The logits after one more token of a sequence that is alone. */
static const float *step_alone(struct schedule *c, int sequence, int32_t token)
{
    struct session *s = c->alone[sequence];
    struct err e;
    if (sequence > 0 && session_len(s, 0) < c->n_shared) {
        const int len = session_len(s, 0);
        require(session_feed(s, 0, c->text[0] + len, c->n_shared - len, NULL, &e) == STATUS_OK);
        c->n_tokens += c->n_shared - len;
    }
    require(session_feed(s, 0, &token, 1, NULL, &e) == STATUS_OK);
    c->n_tokens++;
    return session_logits(s);
}

static void compare_rows(struct schedule *c)
{
    const float *found = c->logits;
    for (int r = 0; r < c->n_rows; r++) {
        const struct batch_row *row = &c->rows[r];
        c->text[row->sequence][row->position] = row->token;
        const float *expected = step_alone(c, row->sequence, row->token);
        require(session_len(c->alone[row->sequence], 0) == row->position + 1);
        if (!row->wants_logits)
            continue;
        require(memcmp(found, expected, N_VOCAB * sizeof *found) == 0);
        found += N_VOCAB;
    }
}

/* A refusal changes nothing. */
static void require_refused(struct schedule *c)
{
    int before[MAX_SEQUENCES];
    struct err e = {""};
    for (int i = 0; i < c->n_sequences; i++)
        before[i] = session_len(c->batch, i);
    require(session_step(c->batch, c->rows, c->n_rows, c->logits, &e) == STATUS_USAGE);
    require_message(&e);
    for (int i = 0; i < c->n_sequences; i++)
        require(session_len(c->batch, i) == before[i]);
}

static void run_step(struct schedule *c)
{
    bool misses_prefix = false;
    struct err e;
    for (int r = 0; r < c->n_rows; r++)
        misses_prefix |= c->rows[r].sequence > 0 && session_len(c->batch, 0) < c->n_shared;
    if (misses_prefix) {
        require_refused(c);
    } else if (c->n_rows > 0) {
        require(session_step(c->batch, c->rows, c->n_rows, c->logits, &e) == STATUS_OK);
        compare_rows(c);
    }
    c->n_rows = 0;
}

/* One more row of a sequence. Its rows must stand together: others begin a step. */
static void add_row(struct schedule *c, int sequence, int32_t token, bool wants_logits)
{
    int before = 0;
    for (int r = 0; r < c->n_rows; r++)
        before += c->rows[r].sequence == sequence;
    if (c->n_rows == MAX_ROWS || (before > 0 && c->rows[c->n_rows - 1].sequence != sequence)) {
        run_step(c);
        before = 0;
    }
    const int position = session_len(c->batch, sequence) + before;
    if (position < N_CTX)
        c->rows[c->n_rows++] = (struct batch_row){token, sequence, position, wants_logits};
}

/* A row out of place makes a step impossible. */
static void spoil_step(struct schedule *c, int sequence, int what)
{
    if (c->n_rows == MAX_ROWS)
        run_step(c);
    struct batch_row *row = &c->rows[c->n_rows++];
    *row = (struct batch_row){.sequence = sequence, .position = N_CTX};
    if (what % 3 == 1)
        row->sequence = c->n_sequences;
    else if (what % 3 == 2)
        row->position = -1;
    require_refused(c);
    c->n_rows--;
}

static void rewind_sequence(struct schedule *c, int sequence, int len)
{
    run_step(c);
    const int before = session_len(c->batch, sequence), least = sequence > 0 ? c->n_shared : 0;
    session_rewind(c->batch, sequence, len);
    const int wanted = len > least ? len : least;
    require(session_len(c->batch, sequence) == (wanted < before ? wanted : before));
    session_rewind(c->alone[sequence], 0, wanted);
    for (int i = 1; sequence == 0 && len < c->n_shared && i < c->n_sequences; i++) {
        require(session_len(c->batch, i) == c->n_shared);
        session_rewind(c->alone[i], 0, 0); /* the prefix may become another */
    }
}

/* A byte says what is done and with which sequence; some take another. */
static void run_command(struct schedule *c, struct choices *in)
{
    const int command = next_byte(in), sequence = (command >> 3) % c->n_sequences;
    int more = next_byte(in);
    switch (command & 7) {
    case 0: /* many rows, and logits of the last, or of all */
    case 1:
        for (int n = more % 100; n >= 0; n--)
            add_row(c, sequence, (n * more + command) % N_VOCAB, n == 0 || command & 1);
        break;
    case 2:
        rewind_sequence(c, sequence, more * 2 % N_CTX);
        break;
    case 3:
        spoil_step(c, sequence, more);
        break;
    case 4:
        run_step(c);
        break;
    default:
        add_row(c, sequence, more % N_VOCAB, more >> 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    struct schedule *c = create_schedule(&in);
    while (in.left > 0 && c->n_tokens < MAX_TOKENS)
        run_command(c, &in);
    run_step(c);
    free_schedule(c);
    return 0;
}
