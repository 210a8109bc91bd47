/* Compares eval's figures with a NumPy implementation, windows with stepping through them one by
 * one, and bits for any threads and blocks. */

#include "measure/eval.h"

#include <math.h>
#include <string.h>

#include "conversions.h"
#include "engine/sampler.h"
#include "golden.h"
#include "opened.h"

static struct eval_spec windows_of(const struct model *m, const int32_t *tokens, int n, int ctx,
                                   int stride)
{
    return (struct eval_spec){
        .model = m, .tokens = tokens, .n_tokens = (size_t)n, .ctx = ctx, .stride = stride};
}

static struct eval_result evaluate(const struct eval_spec *spec)
{
    struct eval_result r;
    expect_ok(eval_run(spec, &r, &err));
    return r;
}

static struct eval_plan planned(const struct eval_spec *spec)
{
    struct eval_plan plan;
    expect_ok(eval_make_plan(spec, &plan, &err));
    return plan;
}

/* The figures are of golden/gqa with its three K/V heads averaged to one, against golden/gqa, on
 * its tokens. NumPy computed them in float64: forward pass, windows and statistics. */
static const struct {
    int ctx, stride;
    double nll, nll_stderr, kl_mean, kl_p99;
    int same;
    double other_nll;
} numpy[] = {
    {48, 48, 6.043989531767, 0.163722606582, 0.438780582076, 0.773803540606, 3, 6.004407615869},
    {16, 16, 5.874158955424, 0.125084141392, 0.563682453076, 0.845203527548, 1, 5.896219994706},
    {16, 5, 5.931742993009, 0.149429919156, 0.479426695367, 0.773803540606, 1, 5.925032729664},
    {7, 1, 5.942539620450, 0.108030190338, 0.525574686980, 0.773803540606, 1, 5.945857929281},
};

TEST(figures_are_those_of_numpy, .loops = COUNT(numpy))
{
    struct golden g = open_golden("gqa");
    const struct opened gqa = open_golden_kind("gqa");
    const struct convert_spec pooled = spec_of(&gqa, 1, CONVERT_MEAN);
    const struct opened mqa = convert_to(&pooled, NULL);
    struct eval_spec spec =
        windows_of(mqa.model, g.tokens, g.n_tokens, numpy[_i].ctx, numpy[_i].stride);
    spec.other = g.checkpoint.model;
    spec.tokenizer = g.checkpoint.tokenizer;
    const struct eval_result r = evaluate(&spec);
    const double tolerance = 1e-5, bits = 47 / log(2) / (double)r.bytes;
    ck_assert_double_eq_tol(r.nll, numpy[_i].nll, tolerance);
    ck_assert_double_eq_tol(r.nll_stderr, numpy[_i].nll_stderr, tolerance);
    ck_assert_double_eq_tol(r.kl_mean, numpy[_i].kl_mean, tolerance);
    ck_assert_double_eq_tol(r.kl_p99, numpy[_i].kl_p99, tolerance);
    ck_assert_double_eq(r.top1_agreement, numpy[_i].same / 47.0);
    ck_assert_double_eq_tol(r.bits_per_byte, numpy[_i].nll * bits, tolerance);
    ck_assert_double_eq_tol(r.bits_per_byte_other, numpy[_i].other_nll * bits, tolerance);
}

static const struct checkpoint_shape shape = {SIZES(2, 2, 1, 8, 32, 24, 300), .seed = 7};
static struct checkpoint small;

static void open_small(void)
{
    small = made_checkpoint(&shape);
}

/* Returns -log p(tokens[at] | tokens[from .. at)), fed from an empty cache. */
static double step_nll(struct session *s, const int32_t *tokens, int from, int at)
{
    float *logits = allocated((size_t)shape.n_vocab * sizeof *logits);
    double log_sum;
    session_rewind(s, 0, 0);
    expect_ok(session_feed(s, 0, tokens + from, at - from, logits, false, &err));
    expect_ok(logits_log_sum(logits, shape.n_vocab, &log_sum, &err));
    return log_sum - (double)logits[tokens[at]];
}

/* Every token but the first is scored once, in the first window that predicts it. */
static void check_windows(struct session *s, const struct eval_spec *spec)
{
    double sum = 0;
    int window = 0;
    for (int at = 1; at < (int)spec->n_tokens; at++) {
        window += at > window * spec->stride + spec->ctx;
        ck_assert_int_le(at, window * spec->stride + spec->ctx);
        sum += step_nll(s, spec->tokens, window * spec->stride, at);
    }
    ck_assert_uint_eq(planned(spec).n_windows, (uint64_t)window + 1);
    const struct eval_result r = evaluate(spec);
    ck_assert_uint_eq(r.tokens, spec->n_tokens - 1);
    ck_assert_double_eq(r.nll, sum / (double)(spec->n_tokens - 1));
    ck_assert_double_eq(r.perplexity, exp(r.nll));
    ck_assert_uint_eq(r.bytes, 0); /* without a tokenizer */
    ck_assert(isnan(r.bits_per_byte) && isnan(r.kl_mean) && isnan(r.kl_p99));
    ck_assert(isnan(r.top1_agreement) && isnan(r.bits_per_byte_other));
}

TEST(windows_score_each_token_once, .before = open_small)
{
    enum { MAX = 14 };
    int32_t tokens[MAX];
    text_tokens(tokens, MAX, shape.n_vocab, 11);
    struct session *s = new_session(small.model, &(struct session_params){.n_ctx = MAX}, NULL);
    for (int n = 2; n <= MAX; n++)
        for (int ctx = 1; ctx <= 6; ctx++)
            for (int stride = 1; stride <= ctx; stride++) {
                const struct eval_spec spec = windows_of(small.model, tokens, n, ctx, stride);
                check_windows(s, &spec);
            }
}

#define N_TEXT 400

/* Some windows go through the model together, and some are longer than a block. */
TEST(threads_and_blocks_change_nothing, .loops = SANITIZED ? 2 : 8, .before = open_small)
{
    static const struct {
        int n_tokens, ctx, stride;
    } settings[] = {{N_TEXT, 7, 7}, {N_TEXT, 24, 3}, {N_TEXT, 8, 8}, {N_TEXT, 5, 2},
                    {N_TEXT, 1, 1}, {60, 20, 20},    {101, 24, 11},  {2, 24, 24}};
    static const int n_threads[] = {1, 2, 3, 5, 8}, blocks[] = {0, 1, 5, 4096};
    int32_t tokens[N_TEXT];
    text_tokens(tokens, N_TEXT, shape.n_vocab, 11);
    const struct model_options rounded = {.convert = true, .storage = STORAGE_BF16};
    struct eval_spec spec = windows_of(small.model, tokens, settings[_i].n_tokens, settings[_i].ctx,
                                       settings[_i].stride);
    spec.other = new_model(small.gguf, &rounded);
    spec.tokenizer = small.tokenizer;
    const struct eval_result expected = evaluate(&spec);
    ck_assert_double_gt(expected.kl_mean, 0);
    for (size_t t = SANITIZED ? 2 : 0; t < COUNT(n_threads); t++) {
        spec.pool = new_pool(n_threads[t]);
        for (size_t b = (t + 1) % 2; b < COUNT(blocks); b += 2) {
            spec.params.block = blocks[b];
            struct eval_result found = evaluate(&spec);
            found.tokens_per_s = expected.tokens_per_s;
            ck_assert_mem_eq(&found, &expected, sizeof found);
        }
    }
}

/* The model is compared with itself. Tokens 0 to 255 are one byte each, token 256 is "<x256>", and
 * so on; the first token's bytes do not count. */
TEST(bytes_are_those_of_the_scored_tokens, .before = open_small)
{
    const int32_t tokens[] = {299, 65, 256, 0, 299, 10};
    struct eval_spec spec = windows_of(small.model, tokens, 6, 0, 0);
    spec.other = small.model;
    spec.tokenizer = small.tokenizer;
    const struct eval_result r = evaluate(&spec);
    ck_assert_uint_eq(r.tokens, 5);
    ck_assert_uint_eq(r.bytes, 3 + 2 * strlen("<x256>"));
    ck_assert_double_eq_tol(r.bits_per_byte, r.nll * 5 / log(2) / (double)r.bytes, 1e-13);
    ck_assert_double_eq_tol(r.perplexity, exp(r.nll), 1e-12 * r.perplexity);
    ck_assert(r.kl_mean == 0 && r.kl_p99 == 0 && r.top1_agreement == 1);
    ck_assert_double_eq(r.bits_per_byte_other, r.bits_per_byte);
}

/* Token 173 is named as the first after which the logits of either model are not finite, wherever
 * it stands in a window, and whichever thread finds it or a later one first. */
TEST(the_first_of_all_windows_is_named, .before = open_small)
{
    enum { FIRST = 173 };
    static const int windows[][2] = {{1, 1}, {7, 7}, {16, 16}, {16, 5}, {24, 24}, {24, 1}};
    static const int blocks[] = {0, 1, 10, 4096};
    struct gguf_file file = read_gguf(scratch_path("made.gguf"));
    int32_t tokens[N_TEXT];
    floats_of(file.g, "token_embd.weight")[shape.n_vocab * small.model->config.d_model - 1] = NAN;
    struct model *broken = new_model(file.g, NULL);
    broken->name = "broken.gguf";
    text_tokens(tokens, N_TEXT, shape.n_vocab, 11);
    for (int i = 0; i < N_TEXT; i++)
        if (i == FIRST || i > FIRST + 40)
            tokens[i] = shape.n_vocab - 1;
    for (int n_threads = SANITIZED ? 3 : 1; n_threads <= 3; n_threads++) {
        struct pool *pool = new_pool(n_threads);
        for (size_t i = 0; i < 4 * COUNT(windows); i++) {
            const bool others = i % 5 == 4;
            struct eval_spec spec = windows_of(others ? small.model : broken, tokens, N_TEXT,
                                               windows[i / 4][0], windows[i / 4][1]);
            spec.other = others ? broken : NULL;
            spec.pool = pool;
            spec.params.block = blocks[i % 4];
            struct eval_result r;
            ck_assert_int_eq(eval_run(&spec, &r, &err), STATUS_FAILED);
            ck_assert_ptr_eq(strstr(err.text, "broken.gguf: after token 173: the logit"), err.text);
        }
    }
}

static void expect_refused(struct eval_spec spec, const char *words)
{
    struct eval_plan plan;
    struct eval_result r;
    expect_status(eval_make_plan(&spec, &plan, &err), STATUS_USAGE, words);
    expect_status(eval_run(&spec, &r, &err), STATUS_USAGE, words);
}

/* The windows must fit the other model's context as well. */
TEST(the_smaller_context_counts, .before = open_small)
{
    struct checkpoint_shape longer = shape;
    longer.n_ctx = 40;
    const int32_t tokens[4] = {1, 2, 3, 4};
    const struct checkpoint c = made_checkpoint(&longer);
    struct eval_spec spec = windows_of(c.model, tokens, 4, 0, 0);
    spec.other = small.model;
    const struct eval_plan plan = planned(&spec);
    ck_assert(plan.ctx == 24 && plan.stride == 24 && plan.n_scored == 3);
    spec.ctx = 25;
    expect_refused(spec, "expected 1 to 24, the context of the other checkpoint");
}
