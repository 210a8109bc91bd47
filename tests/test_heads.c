/* Heads left out, against NumPy and against checkpoints whose output columns are zero. */
#include "measure/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conversions.h"
#include "convert/convert.h"
#include "formats/gguf.h"
#include "golden.h"
#include "support.h"

static struct heads_result measure(const struct heads_spec *spec)
{
    struct heads_result r;
    expect_ok(heads_run(spec, &r, &err));
    ck_assert_int_eq(r.n_done, r.n_heads);
    return r;
}

static struct heads_spec spec_of_golden(const struct golden *g)
{
    return (struct heads_spec){.eval = {.model = g->checkpoint.model,
                                        .tokens = g->tokens,
                                        .n_tokens = (size_t)g->n_tokens,
                                        .tokenizer = g->checkpoint.tokenizer}};
}

/* --- against NumPy --------------------------------------------------------------------------- */

#define MAX_HEADS 8

/* A line of tests/data/golden/NAME.heads, by scripts/make_heads.py. */
struct expected {
    int layer, head;
    double zero, mean, written, stream;
    struct head_likeness kept[MAX_HEADS];
};

static struct expected next_expected(char **at, int n_heads)
{
    struct expected x;
    x.layer = (int)strtol(*at, at, 10);
    x.head = (int)strtol(*at, at, 10);
    double *figures[] = {&x.zero, &x.mean, &x.written, &x.stream};
    for (int i = 0; i < 4; i++)
        *figures[i] = strtod(*at, at);
    ck_assert_int_le(n_heads, MAX_HEADS);
    for (int h = 0; h < n_heads; h++) {
        x.kept[h].score = strtod(*at, at);
        x.kept[h].output = strtod(*at, at);
    }
    return x;
}

static char *read_expected(const char *name)
{
    char path[128];
    size_t len;
    snprintf(path, sizeof path, "tests/data/golden/%s.heads", name);
    char *text = (char *)read_file(path, &len);
    text[len] = 0;
    return text;
}

TEST(figures_are_those_of_numpy, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    struct heads_spec spec = spec_of_golden(&g);
    struct heads_result zero = measure(&spec);
    spec.ablation = HEADS_MEAN;
    struct heads_result mean = measure(&spec);
    char *text = read_expected(golden_names[_i]), *at = text;
    for (int i = 0; i < zero.n_heads; i++) {
        const struct expected x = next_expected(&at, g.checkpoint.model->config.n_heads);
        const struct head_worth *h = &zero.heads[i];
        ck_assert_int_eq(h->layer, x.layer);
        ck_assert_int_eq(h->head, x.head);
        ck_assert_double_eq_tol(h->delta_nll, x.zero, 1e-5);
        ck_assert_double_eq_tol(mean.heads[i].delta_nll, x.mean, 1e-5);
        ck_assert_double_eq_tol(h->written, x.written, 1e-5 * x.written);
        ck_assert_double_eq_tol(h->stream, x.stream, 1e-5 * x.stream);
    }
    free(text);
    heads_free(&zero);
    heads_free(&mean);
}

TEST(likeness_is_that_of_numpy, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    const struct config *c = &g.checkpoint.model->config;
    const int n_heads = c->n_heads;
    const struct convert_spec spec = {
        .gguf = g.checkpoint.gguf, .tokens = g.tokens, .n_tokens = (size_t)g.n_tokens - 1};
    struct head_likeness *kept =
        allocated_zeros((size_t)(c->n_layers * n_heads * n_heads) * sizeof *kept);
    expect_ok(convert_likeness(&spec, g.checkpoint.model, kept, &err));
    char *text = read_expected(golden_names[_i]), *at = text;
    for (int i = 0; i < c->n_layers * n_heads; i++) {
        const struct expected x = next_expected(&at, n_heads);
        for (int h = 0; h < n_heads; h++) {
            ck_assert_double_eq_tol(kept[i * n_heads + h].score, x.kept[h].score, 1e-5);
            ck_assert_double_eq_tol(kept[i * n_heads + h].output, x.kept[h].output, 1e-5);
        }
    }
    free(text);
}

/* --- against checkpoints without heads ------------------------------------------------------- */

/* The nll of a checkpoint in which a head's output columns are zero. */
static double nll_of_dropped(const struct gguf *g, const struct config *c, int layer, int head,
                             const int32_t *tokens, size_t n)
{
    unsigned char *off = calloc((size_t)c->n_layers, (size_t)c->n_heads), *bytes;
    struct drop d;
    size_t len;
    struct gguf *dropped;
    struct model *m;
    struct eval_result r;
    off[layer * c->n_heads + head] = 1;
    const struct drop_spec spec = {.gguf = g, .off = off, .names = "x", .version = "y"};
    expect_ok(drop_heads(&spec, &d, &err));
    expect_ok(gguf_write_memory(d.writer, &bytes, &len, &err));
    expect_ok(gguf_parse(bytes, len, &dropped, &err));
    expect_ok(model_create(dropped, NULL, NULL, &m, &err));
    const struct eval_spec eval = {.model = m, .tokens = tokens, .n_tokens = n};
    expect_ok(eval_run(&eval, &r, &err));
    model_free(m);
    gguf_free(dropped);
    free(bytes);
    drop_free(&d);
    free(off);
    return r.nll;
}

/* Three heads, one of the last layer. */
static void compare_with_dropped(const struct checkpoint *k, const int32_t *tokens, size_t n)
{
    const struct config *c = &k->model->config;
    const int heads[][2] = {
        {0, 0}, {c->n_layers / 2, c->n_heads / 2}, {c->n_layers - 1, c->n_heads - 1}};
    const struct heads_spec spec = {.eval = {.model = k->model, .tokens = tokens, .n_tokens = n}};
    struct heads_result r = measure(&spec);
    for (int i = 0; i < 3; i++) {
        const int layer = heads[i][0], head = heads[i][1];
        const double nll = nll_of_dropped(k->gguf, c, layer, head, tokens, n);
        ck_assert_double_eq(r.heads[layer * c->n_heads + head].delta_nll, nll - r.whole.nll);
        ck_assert_double_ne(nll, r.whole.nll);
    }
    heads_free(&r);
}

TEST(zero_columns_lose_as_much, .loops = N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i]);
    if (!g.checkpoint.model->config.shared)
        compare_with_dropped(&g.checkpoint, g.tokens, (size_t)g.n_tokens);
}

/* Windows, and in types whose rows are quantised: head_dim 32 is a block. */
TEST(zero_columns_of_the_shipped_models_lose_as_much, .loops = SANITIZED ? 0 : 2)
{
    static const char *const paths[] = {"models/shakespeare-mha.gguf",
                                        "models/shakespeare-llama.gguf"};
    enum { N = 600 };
    int32_t tokens[N];
    struct checkpoint k = opened_checkpoint(paths[_i], CHECKPOINT_MODEL);
    text_tokens(tokens, N, k.model->config.n_vocab, 5);
    compare_with_dropped(&k, tokens, N);
}

/* What is left of a block keeps its bits. */
TEST(elements_of_every_type_become_zero, .loops = 5)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    enum { N = 128 };
    float x[N], before[N], after[N];
    unsigned char bytes[N * sizeof(float)];
    for (int i = 0; i < N; i++)
        x[i] = (float)(i * 37 % 64 - 31) + 0.25f;
    for (uint64_t first = 0; first < 64; first += 9)
        for (uint64_t n = 0; n < 60; n += 7) {
            blocks_encode(types[_i], bytes, x, N);
            blocks_decode(types[_i], before, bytes, N);
            blocks_zero(types[_i], bytes, first, n);
            blocks_decode(types[_i], after, bytes, N);
            for (uint64_t i = 0; i < N; i++)
                ck_assert(after[i] == (i >= first && i < first + n ? 0 : before[i]));
        }
}

TEST(metadata_name_all_that_was_dropped)
{
    struct golden g = open_golden("gqa");
    unsigned char off[MAX_HEADS * MAX_HEADS] = {1};
    struct drop d;
    struct text names;
    unsigned char *bytes[2];
    struct gguf *gguf[3] = {g.checkpoint.gguf};
    size_t len;
    for (int i = 0; i < 2; i++) {
        const struct drop_spec spec = {
            .gguf = gguf[i], .off = off, .names = i ? "0.0" : "1.2,0.1", .version = "y"};
        expect_ok(drop_heads(&spec, &d, &err));
        expect_ok(gguf_write_memory(d.writer, &bytes[i], &len, &err));
        expect_ok(gguf_parse(bytes[i], len, &gguf[i + 1], &err));
        drop_free(&d);
    }
    expect_ok(gguf_get_text(gguf[2], "decode.convert.dropped_heads", &names, NULL, &err));
    ck_assert(text_is(names, "1.2,0.1,0.0"));
    for (int i = 0; i < 2; i++) {
        gguf_free(gguf[i + 1]);
        free(bytes[i]);
    }
}

TEST(a_shared_block_drops_no_head)
{
    struct golden g = open_golden("shared-block");
    unsigned char off[MAX_HEADS * MAX_HEADS] = {1};
    struct drop d;
    const struct drop_spec spec = {
        .gguf = g.checkpoint.gguf, .off = off, .names = "0.0", .version = "y"};
    expect_status(drop_heads(&spec, &d, &err), STATUS_USAGE, "share one block");
}

/* --- runs ------------------------------------------------------------------------------------ */

static bool same_worth(const struct head_worth *a, const struct head_worth *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Several windows, on threads that share them or each of them. */
TEST(threads_change_nothing)
{
    enum { N = 100 };
    struct golden g = open_golden("gqa");
    int32_t tokens[N];
    struct pool *pool;
    text_tokens(tokens, N, g.checkpoint.model->config.n_vocab, 5);
    struct heads_spec spec = spec_of_golden(&g);
    spec.eval.tokens = tokens;
    spec.eval.n_tokens = N;
    spec.ablation = HEADS_MEAN;
    struct heads_result one = measure(&spec);
    expect_ok(pool_create(3, &pool, &err));
    spec.eval.pool = pool;
    struct heads_result three = measure(&spec);
    ck_assert(same_worth(one.heads, three.heads, one.n_heads));
    pool_free(pool);
    heads_free(&one);
    heads_free(&three);
}

TEST(layers_can_be_chosen)
{
    struct golden g = open_golden("gqa");
    const struct config *c = &g.checkpoint.model->config;
    static const int layers[] = {1};
    struct heads_spec spec = spec_of_golden(&g);
    struct heads_result all = measure(&spec);
    ck_assert_int_ge(c->n_layers, 2);
    spec.layers = layers;
    spec.n_layers = 1;
    struct heads_result some = measure(&spec);
    ck_assert_int_eq(some.n_heads, c->n_heads);
    ck_assert(same_worth(some.heads, all.heads + c->n_heads, c->n_heads));
    heads_free(&some);
    heads_free(&all);
}

/* Ends the run when so many tokens are scored. */
struct watcher {
    uint64_t enough, done, all;
};

static void see_progress(void *arg, uint64_t done, uint64_t all)
{
    struct watcher *w = arg;
    ck_assert_uint_gt(done, w->done);
    w->done = done;
    w->all = all;
}

static bool has_enough(void *arg)
{
    const struct watcher *w = arg;
    return w->done >= w->enough;
}

/* The whole model comes first, then head after head. */
TEST(what_is_done_is_kept, .loops = 3)
{
    struct golden g = open_golden("gqa");
    const uint64_t n = (uint64_t)g.n_tokens - 1;
    struct heads_spec spec = spec_of_golden(&g);
    struct heads_result all = measure(&spec), some;
    struct watcher w = {.enough = _i ? n * (uint64_t)(_i + 1) : 0};
    spec.eval.stop = has_enough;
    spec.eval.progress = see_progress;
    spec.eval.arg = &w;
    ck_assert_int_eq(heads_run(&spec, &some, &err), STATUS_INTERRUPTED);
    ck_assert_int_eq(some.n_heads, all.n_heads);
    ck_assert_int_eq(some.n_done, _i);
    ck_assert(same_worth(some.heads, all.heads, some.n_done));
    w = (struct watcher){.enough = UINT64_MAX};
    heads_free(&some);
    some = measure(&spec);
    ck_assert_uint_eq(w.all, ((uint64_t)all.n_heads + 1) * n);
    ck_assert_uint_eq(w.done, w.all);
    heads_free(&some);
    heads_free(&all);
}

TEST(a_plan_is_at_least_the_streams)
{
    struct golden g = open_golden("gqa");
    struct heads_spec spec = spec_of_golden(&g);
    struct heads_result r;
    spec.eval.n_tokens = 1;
    ck_assert_int_eq(heads_run(&spec, &r, &err), STATUS_USAGE);
    uint64_t bytes;
    ck_assert_int_eq(heads_plan(&spec, &bytes, &err), STATUS_USAGE);
    spec.eval.n_tokens = (size_t)g.n_tokens;
    expect_ok(heads_plan(&spec, &bytes, &err));
    ck_assert_uint_gt(bytes, (uint64_t)(g.n_tokens - 1) *
                                 (uint64_t)g.checkpoint.model->config.d_model * 2 * sizeof(float));
}
