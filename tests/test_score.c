/* Log-probabilities against a plain softmax and the golden logits; memory stays a block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/sampler.h"
#include "measure/score.h"
#include "model/checkpoint.h"
#include "support.h"

#define N_VOCAB 300

static int by_rank(const void *a, const void *b)
{
    const struct token_score *x = a, *y = b;
    if (x->logprob > y->logprob || x->logprob < y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Few distinct values, so that there are many ties. */
TEST(top_is_that_of_a_full_sort, .loops = 2)
{
    float logits[N_VOCAB];
    struct token_score sorted[N_VOCAB], top[N_VOCAB];
    struct rng r;
    rng_seed(&r, 5, (uint64_t)_i);
    for (int i = 0; i < N_VOCAB; i++) {
        logits[i] = (float)(rng_u32(&r) % (_i ? 7 : 100000));
        sorted[i] = (struct token_score){i, (double)logits[i] - 2};
    }
    qsort(sorted, N_VOCAB, sizeof sorted[0], by_rank);
    for (int k = 0; k <= N_VOCAB; k += k < 10 ? 1 : 29) {
        score_top(logits, N_VOCAB, 2, k, top);
        for (int i = 0; i < k; i++) {
            ck_assert_int_eq(top[i].id, sorted[i].id);
            ck_assert_double_eq(top[i].logprob, sorted[i].logprob);
        }
    }
}

/* --- on a model ------------------------------------------------------------------------------ */

#define N_TOKENS 20
#define TOP      5

struct record {
    int n;
    double logprobs[N_TOKENS];
    struct token_score top[N_TOKENS][TOP];
    int stop_at;
};

static enum status note(void *arg, const struct score_row *row, struct err *e)
{
    (void)e;
    struct record *r = arg;
    if (row->position == r->stop_at)
        return STATUS_INTERRUPTED;
    ck_assert_int_eq(row->position, r->n);
    ck_assert_int_eq(row->predicted, row->position > 0);
    ck_assert_int_eq(row->n_top, row->position > 0 ? TOP : 0);
    r->logprobs[r->n] = row->logprob;
    memcpy(r->top[r->n], row->top, (size_t)row->n_top * sizeof row->top[0]);
    r->n++;
    return STATUS_OK;
}

static const char model_path[] = "tests/data/golden/gqa.gguf";

static enum status score_in_blocks(int block, struct record *r, int top, struct err *e)
{
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 11) % 256;
    struct checkpoint c;
    ck_assert_msg(checkpoint_open(model_path, CHECKPOINT_MODEL, &c, e) == STATUS_OK, "%s", e->text);
    struct session *session;
    const struct session_params params = {.block = block};
    expect_ok(session_create(c.model, &params, NULL, &session, e));
    const enum status s = score_tokens(session,
                                       &(struct score_spec){.n_vocab = c.model->config.n_vocab,
                                                            .tokens = tokens,
                                                            .n_tokens = N_TOKENS,
                                                            .n_top = top,
                                                            .visit = note,
                                                            .arg = r},
                                       e);
    /* The same from the logits themselves. */
    for (int i = 1; s == STATUS_OK && i < N_TOKENS; i++) {
        double log_sum;
        session_rewind(session, 0, 0);
        expect_ok(session_feed(session, 0, tokens, i, NULL, e));
        const float *logits = session_logits(session);
        expect_ok(logits_log_sum(logits, c.model->config.n_vocab, &log_sum, e));
        ck_assert_double_eq(r->logprobs[i], (double)logits[tokens[i]] - log_sum);
        ck_assert_double_eq(r->top[i][0].logprob, (double)logits[r->top[i][0].id] - log_sum);
    }
    session_free(session);
    checkpoint_close(&c);
    return s;
}

TEST(rows_do_not_depend_on_the_block, .loops = 4)
{
    struct record whole = {.stop_at = -1}, cut = {.stop_at = -1};
    static const int blocks[] = {1, 3, 16, 20};
    expect_ok(score_in_blocks(0, &whole, TOP, &err));
    expect_ok(score_in_blocks(blocks[_i], &cut, TOP, &err));
    ck_assert_int_eq(whole.n, N_TOKENS);
    ck_assert_mem_eq(whole.logprobs, cut.logprobs, sizeof whole.logprobs);
    for (int i = 1; i < N_TOKENS; i++)
        for (int k = 0; k < TOP; k++)
            ck_assert_int_eq(whole.top[i][k].id, cut.top[i][k].id);
}

TEST(a_visit_can_end_it)
{
    struct record r = {.stop_at = 7};
    ck_assert_int_eq(score_in_blocks(3, &r, TOP, &err), STATUS_INTERRUPTED);
    ck_assert_int_eq(r.n, 7);
}

TEST(impossible_tokens_are_refused)
{
    struct checkpoint c;
    struct session *session;
    const struct session_params params = {.n_ctx = 4};
    expect_ok(checkpoint_open(model_path, CHECKPOINT_MODEL, &c, &err));
    expect_ok(session_create(c.model, &params, NULL, &session, &err));
    struct record r = {.stop_at = -1};
    const int n_vocab = c.model->config.n_vocab;
    const int32_t many[5] = {0}, high[] = {0, n_vocab}, low[] = {0, -1};
    struct score_spec spec = {.n_vocab = n_vocab, .n_top = TOP, .visit = note, .arg = &r};
    spec.tokens = many;
    spec.n_tokens = 5;
    expect_status(score_tokens(session, &spec, &err), STATUS_USAGE, "do not fit: 4 of");
    session_rewind(session, 0, 0);
    r.n = 0;
    spec.n_tokens = 2;
    spec.tokens = high;
    ck_assert_int_eq(score_tokens(session, &spec, &err), STATUS_USAGE);
    spec.tokens = low;
    expect_status(score_tokens(session, &spec, &err), STATUS_USAGE, "-1");
    ck_assert_int_eq(r.n, 0);
    session_free(session);
    checkpoint_close(&c);
}
