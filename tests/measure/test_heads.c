/* Heads left out, against NumPy and against checkpoints whose output columns are zero. */
#include "measure/attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "conversions.h"
#include "convert/convert.h"
#include "convert/drop.h"
#include "convert/likeness.h"
#include "formats/gguf_values.h"
#include "golden.h"
#include "measure/heads.h"
#include "model/config_keys.h"
#include "support.h"

static void free_heads(void *r)
{
    heads_free(r);
    free(r);
}

/* Until the test ends. */
static const struct heads_result *measure(const struct heads_spec *spec)
{
    struct heads_result *r = malloc(sizeof *r);
    expect_ok(heads_run(spec, r, &err));
    ck_assert_int_eq(r->n_done, r->n_heads);
    return released_by(free_heads, r);
}

static struct heads_spec spec_of_golden(const struct golden *g)
{
    return (struct heads_spec){.eval = {.model = g->checkpoint.model,
                                        .tokens = g->tokens,
                                        .n_tokens = (size_t)g->n_tokens,
                                        .tokenizer = g->checkpoint.tokenizer}};
}

/* tests/data/golden/NAME.heads, by tests/measure/make_heads.py: layer, head, what leaving it out
 * costs and with its mean, what it writes and the stream, then its likeness to all heads, which
 * those of the last have not. */
TEST(figures_are_those_of_numpy, .loops = N_GOLDEN - !SANITIZED)
{
    struct golden g = open_golden(golden_names[_i]);
    const int n_heads = g.checkpoint.model->config.n_heads;
    const int n = n_heads * g.checkpoint.model->config.n_layers;
    struct heads_spec spec = spec_of_golden(&g);
    const struct heads_result *zero = measure(&spec);
    spec.ablation = HEADS_MEAN;
    const struct heads_result *mean = measure(&spec);
    const struct convert_spec whole = {
        .gguf = g.checkpoint.gguf, .tokens = g.tokens, .n_tokens = (size_t)g.n_tokens - 1};
    struct head_likeness *kept = allocated_zeros((size_t)(n * n_heads) * sizeof *kept);
    expect_ok(convert_likeness(&whole, g.checkpoint.model, kept, &err));
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.heads", golden_names[_i]);
    char *at = file_text(path, NULL);
    ck_assert_int_eq(zero->n_heads, n);
    for (int i = 0; i < n; i++) {
        const struct head_worth *h = &zero->heads[i];
        ck_assert_int_eq(h->layer, (int)strtol(at, &at, 10));
        ck_assert_int_eq(h->head, (int)strtol(at, &at, 10));
        const double found[] = {h->delta_nll, mean->heads[i].delta_nll, h->written, h->stream};
        for (int k = 0; k < 4; k++) {
            const double x = strtod(at, &at);
            ck_assert_double_eq_tol(found[k], x, k < 2 ? 1e-5 : 1e-5 * x);
        }
        for (int k = 0; k < n_heads; k++) {
            ck_assert_double_eq_tol(kept[i * n_heads + k].score, strtod(at, &at), 1e-5);
            ck_assert_double_eq_tol(kept[i * n_heads + k].output, strtod(at, &at), 1e-5);
        }
    }
}

/* The heads by what each costs, and every point as the text without them by eval. */
TEST(curve_leaves_out_the_least_first)
{
    struct golden g = open_golden("layerwise-kv");
    const struct config *c = &g.checkpoint.model->config;
    struct heads_spec spec = spec_of_golden(&g);
    spec.curve = true;
    const struct heads_result *r = measure(&spec);
    const int n = c->n_layers * c->n_heads;
    int at = 0;
    unsigned char *off = allocated_zeros((size_t)n);
    ck_assert_double_eq(r->points[0].nll, r->whole.nll);
    for (int k = 0; k < r->n_points; k++) {
        const struct heads_point *p = &r->points[k];
        ck_assert_int_eq(p->n, k == 0 ? 0 : 1 << (k - 1) < n ? 1 << (k - 1) : n);
        for (; at < p->n; at++) {
            const struct head_worth *w = &r->by_worth[at];
            off[w->layer * c->n_heads + w->head] += 1;
            ck_assert(at == 0 || w[-1].delta_nll <= w->delta_nll);
        }
        const struct head_ablation left = {off, NULL};
        struct eval_spec eval = spec.eval;
        struct eval_result without;
        eval.params.without = &left;
        expect_ok(eval_run(&eval, &without, &err));
        ck_assert_double_eq(p->nll, without.nll);
        ck_assert_double_eq(p->delta_nll, without.nll - r->whole.nll);
        ck_assert_double_eq(p->bits_per_byte, without.bits_per_byte);
    }
    ck_assert_int_eq(at, n);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(off[i], 1);
}

static void free_gguf_only(void *g)
{
    gguf_free(g);
}

/* The checkpoint with a head's output columns zero, or without some that names say; until the test
 * ends. */
static struct gguf *without_heads(const struct gguf *g, const unsigned char *off, const char *names)
{
    const struct drop_spec spec = {.gguf = g, .off = off, .names = names, .version = "y"};
    struct drop d;
    struct gguf *dropped;
    unsigned char *bytes;
    size_t len;
    expect_ok(drop_heads(&spec, &d, &err));
    expect_ok(gguf_write_memory(d.writer, &bytes, &len, &err));
    released_by(free, bytes);
    expect_ok(gguf_parse(bytes, len, &dropped, &err));
    drop_free(&d);
    return released_by(free_gguf_only, dropped);
}

static double nll_of(const struct gguf *g, const int32_t *tokens, size_t n)
{
    struct model *m;
    struct eval_result r;
    expect_ok(model_create(g, NULL, NULL, &m, &err));
    const struct eval_spec eval = {.model = m, .tokens = tokens, .n_tokens = n};
    expect_ok(eval_run(&eval, &r, &err));
    model_free(m);
    return r.nll;
}

/* What is left of a layer's heads by its groups: the largest number that stays in one, as often as
 * groups have some; one head of a layer that loses all. */
static void expect_left(const struct config *c, const struct config *left, const unsigned char *off)
{
    for (int l = 0; l < c->n_layers; l++, off += c->n_heads) {
        const int group = config_group(c, l);
        int n_kv = 0, most = 0;
        for (int g = 0; g < config_kv_heads(c, l); g++) {
            int stay = 0;
            for (int h = 0; h < group; h++)
                stay += !off[g * group + h];
            n_kv += stay > 0;
            most = stay > most ? stay : most;
        }
        if (c->position == POSITION_ALIBI) {
            n_kv = config_kv_heads(c, l);
            most = group;
        }
        ck_assert_int_eq(config_kv_heads(left, l), n_kv ? n_kv : 1);
        ck_assert_int_eq(config_heads(left, l), n_kv ? n_kv * most : 1);
    }
}

/* Any heads, of whole layers too, in every architecture: what a session without them computes. */
TEST(files_without_heads_compute_the_same, .loops = 4 * N_GOLDEN)
{
    struct golden g = open_golden(golden_names[_i / 4]);
    const struct config *c = &g.checkpoint.model->config;
    const size_t n = (size_t)(c->n_layers * c->n_heads);
    unsigned char *off = allocated_zeros(n);
    struct config left;
    struct eval_result before;
    struct rng rng;
    rng_seed(&rng, (uint64_t)_i, 1);
    if (c->shared)
        return;
    for (size_t i = 0; i < n; i++) /* the last time all of layer 0, and what else it may be */
        off[i] = rng_u32(&rng) % 4 < (uint32_t)(_i % 4) || (_i % 4 == 3 && i < (size_t)c->n_heads);
    const struct head_ablation without = {.off = off};
    const struct eval_spec eval = {.model = g.checkpoint.model,
                                   .params = {.without = &without},
                                   .tokens = g.tokens,
                                   .n_tokens = (size_t)g.n_tokens};
    expect_ok(eval_run(&eval, &before, &err));
    const struct gguf *dropped = without_heads(g.checkpoint.gguf, off, "x");
    expect_ok(config_read(dropped, &left, &err));
    expect_left(c, &left, off);
    ck_assert_double_eq_tol(nll_of(dropped, g.tokens, (size_t)g.n_tokens), before.nll, 1e-6);
}

/* Twice, so that a file with heads by layer loses some; and in types whose blocks are longer than a
 * head, so that what stays of the output matrix becomes F16. */
TEST(heads_of_files_without_heads, .loops = 3)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_Q8_0, TENSOR_Q4_0};
    struct checkpoint_shape shape = mha_shape(8, 0);
    const unsigned char off[16] = {[1] = 1, [3] = 1, [12] = 1}, more[14] = {[0] = 1, [7] = 1};
    const unsigned char both[16] = {[0] = 1, [1] = 1, [3] = 1, [8] = 1, [12] = 1};
    struct eval_result before;
    int32_t tokens[N_TOKENS];
    shape.type = types[_i];
    struct opened a = open_shape(&shape);
    text_tokens(tokens, N_TOKENS, a.model->config.n_vocab, 5);
    const struct head_ablation without = {.off = both};
    const struct eval_spec eval = {
        .model = a.model, .params = {.without = &without}, .tokens = tokens, .n_tokens = N_TOKENS};
    expect_ok(eval_run(&eval, &before, &err));
    /* 6 and 7 heads are left, so that rows of `more` have 7. */
    const struct gguf *once = without_heads(a.gguf, off, "0.1,0.3,1.4");
    const struct gguf *twice = without_heads(once, more, "0.0,1.0");
    const struct gguf_tensor *output = gguf_find_tensor(twice, "blk.0.attn_output.weight");
    ck_assert_uint_eq(output->dims[0], 5 * 8);
    ck_assert_uint_eq(output->type->type, types[_i] == TENSOR_F32 ? TENSOR_F32 : TENSOR_F16);
    const double tolerance =
        types[_i] == TENSOR_F32 ? 1e-6 : 1e-2; /* what it takes is not rounded */
    ck_assert_double_eq_tol(nll_of(twice, tokens, N_TOKENS), before.nll, tolerance);
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

/* gpt2 passes over what a block has beside its own; without a head the file is one of `decode`,
 * which refuses that: it is left out. */
TEST(what_gpt2_passes_over_is_left_out)
{
    static const unsigned char off[64] = {1};
    static const float mask[8] = {0};
    struct golden g = open_golden("mha");
    const struct gguf *old = g.checkpoint.gguf;
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    for (size_t i = 0; i < old->n_pairs; i++)
        gguf_add_value(w, old->pairs[i].key, &old->pairs[i].value);
    for (const struct gguf_tensor *t = old->tensors; t < old->tensors + old->n_tensors; t++)
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    gguf_add_tensor(w, text_of("blk.0.attn_mask"), TENSOR_F32, 1, &(uint64_t){8}, mask);
    struct gguf_file file = written_gguf(w);
    expect_ok(model_check(file.g, &err));
    const struct gguf *dropped = without_heads(file.g, off, "0.0");
    ck_assert_uint_eq(dropped->n_tensors, old->n_tensors);
    ck_assert_ptr_null(gguf_find_tensor(dropped, "blk.0.attn_mask"));
    expect_ok(model_check(dropped, &err));
    free_gguf(&file);
}

TEST(metadata_name_all_that_was_dropped)
{
    static const unsigned char off[64] = {1};
    struct golden g = open_golden("gqa");
    struct text names;
    const struct gguf *once = without_heads(g.checkpoint.gguf, off, "1.2,0.1");
    const struct gguf *twice = without_heads(once, off, "0.0");
    expect_ok(gguf_get_text(twice, "decode.convert.dropped_heads", &names, NULL, &err));
    ck_assert(text_is(names, "1.2,0.1,0.0"));
}

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
    text_tokens(tokens, N, g.checkpoint.model->config.n_vocab, 5);
    struct heads_spec spec = spec_of_golden(&g);
    spec.eval.tokens = tokens;
    spec.eval.n_tokens = N;
    spec.ablation = HEADS_MEAN;
    const struct heads_result *one = measure(&spec);
    expect_ok(pool_create(3, &spec.eval.pool, &err));
    const struct heads_result *three = measure(&spec);
    ck_assert(same_worth(one->heads, three->heads, one->n_heads));
    pool_free(spec.eval.pool);
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
    const struct heads_result *all = measure(&spec);
    struct heads_result some;
    struct watcher w = {.enough = _i ? n * (uint64_t)(_i + 1) : 0};
    spec.eval.callbacks.stop = has_enough;
    spec.eval.callbacks.progress = see_progress;
    spec.eval.callbacks.arg = &w;
    ck_assert_int_eq(heads_run(&spec, &some, &err), STATUS_INTERRUPTED);
    ck_assert_int_eq(some.n_heads, all->n_heads);
    ck_assert_int_eq(some.n_done, _i);
    ck_assert(same_worth(some.heads, all->heads, some.n_done));
    heads_free(&some);
    w = (struct watcher){.enough = UINT64_MAX};
    measure(&spec);
    ck_assert(w.all == ((uint64_t)all->n_heads + 1) * n && w.done == w.all);
}
