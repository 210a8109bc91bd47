/* Compares what leaving a head out costs with NumPy, and with eval without that head. */
#include "measure/attend.h"

#include <stdlib.h>

#include "golden.h"
#include "measure/heads.h"
#include "opened.h"

RELEASER(free_heads, heads_free)

/* Until the test ends. */
static const struct heads_result *measure(const struct heads_spec *spec)
{
    struct heads_result *r = allocated(sizeof *r);
    expect_ok(heads_run(spec, r, &err));
    return released_by(free_heads, r);
}

static struct heads_spec spec_of_golden(const struct golden *g)
{
    return (struct heads_spec){.eval = {.model = g->checkpoint.model,
                                        .tokens = g->tokens,
                                        .n_tokens = (size_t)g->n_tokens,
                                        .tokenizer = g->checkpoint.tokenizer}};
}

/* A line of tests/data/golden/NAME.heads (tests/measure/make_heads.py) has layer, head, the cost of
 * leaving it out and of its mean in its place, and the size of what it writes. The last golden file
 * has no such file. */
TEST(figures_are_those_of_numpy, .loops = N_GOLDEN - !SANITIZED)
{
    struct golden g = open_golden(golden_names[_i]);
    const int n_heads = g.checkpoint.model->config.n_heads;
    const int n = n_heads * g.checkpoint.model->config.n_layers;
    struct heads_spec spec = spec_of_golden(&g);
    const struct heads_result *zero = measure(&spec);
    spec.to_mean = true;
    const struct heads_result *mean = measure(&spec);
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.heads", golden_names[_i]);
    char *at = file_text(path, NULL);
    ck_assert_int_eq(zero->n_heads, n);
    for (int i = 0; i < n; i++) {
        const struct head_worth *h = &zero->heads[i];
        ck_assert_int_eq(h->layer, (int)strtol(at, &at, 10));
        ck_assert_int_eq(h->head, (int)strtol(at, &at, 10));
        const double found[] = {h->delta_nll, mean->heads[i].delta_nll, h->written};
        for (int k = 0; k < 3; k++) {
            const double x = strtod(at, &at);
            ck_assert_double_eq_tol(found[k], x, k < 2 ? 1e-5 : 1e-5 * x);
        }
    }
}

/* The curve has the heads in the order of their costs, and every point is eval's figure without
 * them. */
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
            const struct head_worth *w = &r->heads[at];
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

/* The whole model is scored first, then head after head is left out. */
TEST(stops_where_it_is_told_to, .loops = 3)
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
    ck_assert_uint_eq(w.done, w.enough);
    w = (struct watcher){.enough = UINT64_MAX};
    measure(&spec);
    ck_assert(w.all == ((uint64_t)all->n_heads + 1) * n && w.done == w.all);
}
