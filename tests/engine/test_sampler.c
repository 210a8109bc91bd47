/* Compares sampling, and the arithmetic of softmax below it, with plain references in this file. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/sampler.c" /* what a pick drew from is private */
#include "opened.h"
#include "support.h"

#define N_CTX   64
#define REF_MAX 300 /* words of a vocabulary at most */

/* No filter, no penalty. */
static struct sampler_params plain(double temperature)
{
    return (struct sampler_params){.temperature = temperature, .top_p = 1, .repeat_penalty = 1};
}

/* Freed when the test ends. */
static struct sampler *new_seeded(struct sampler_params p, int n_vocab, uint64_t seed,
                                  uint64_t stream)
{
    const struct sampler_sizes sizes = {n_vocab, N_CTX, 1, 1};
    struct sampler *s;
    expect_ok(sampler_create(&p, &sizes, &s, &err));
    sampler_reset(s, 0, seed, stream);
    return released_by(close_sampler, s);
}

static struct sampler *new_sampler(struct sampler_params p, int n_vocab)
{
    return new_seeded(p, n_vocab, 42, 54);
}

static int pick(struct sampler *s, const float *logits)
{
    int token = -1;
    expect_ok(sampler_pick(s, 0, 0, logits, &token, NULL));
    return token;
}

static int pick_and_accept(struct sampler *s, const float *logits)
{
    const int token = pick(s, logits);
    sampler_accept(s, 0, token);
    return token;
}

static void accept_all(struct sampler *s, const int *history, int n)
{
    for (int i = 0; i < n; i++)
        sampler_accept(s, 0, history[i]);
}

/* Finds the tokens that were left at the last pick, which was no greedy one; returns how many. */
static const int *tokens;
static const double *probabilities;

static int choices(const struct sampler *s)
{
    tokens = s->scratches->tokens;
    probabilities = s->scratches->weights;
    return s->scratches->n_choices;
}

static double uniform(struct rng *r, double from, double to)
{
    return from + (to - from) * rng_unit(r);
}

/* Draws logits of one of several shapes; rounded ones have ties. */
static void random_logits(struct rng *r, float *logits, int n)
{
    const double width = uniform(r, 0.1, 12), step = below(r, 2) ? 0 : uniform(r, 0.1, 1);
    for (int i = 0; i < n; i++) {
        const double x = uniform(r, -width, width) + uniform(r, -width, width);
        logits[i] = (float)(step > 0 ? round(x / step) * step : x);
    }
}

/* --- the reference: every rule as its sentence in sampler.h says it, in O(n_vocab^2) ---------- */

struct reference {
    int n_vocab;
    double logit[REF_MAX];
    double p[REF_MAX]; /* 0 once filtered away */
    bool kept[REF_MAX];
};

static double ref_penalised(double logit, int token, const struct sampler_params *p,
                            const int *history, int n_history)
{
    const int last_n = p->repeat_last_n < 0 || p->repeat_last_n > N_CTX ? N_CTX : p->repeat_last_n;
    bool recent = false;
    for (int h = 0; h < n_history; h++)
        recent |= history[h] == token && h >= n_history - last_n;
    if (!recent)
        return logit;
    return (double)(float)(logit > 0 ? logit / p->repeat_penalty : logit * p->repeat_penalty);
}

static void ref_normalise(struct reference *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_vocab; i++)
        sum += r->kept[i] ? r->p[i] : 0;
    for (int i = 0; i < r->n_vocab; i++)
        r->p[i] = r->kept[i] ? r->p[i] / sum : 0;
}

enum rule { TOP_K = 1, TOP_P = 2, MIN_P = 4, PENALTY = 8, ALL_RULES = 16 };

/* A token is in the smallest set of top_p if those before it do not reach top_p. */
static void ref_filter(struct reference *r, enum rule rule, const struct sampler_params *p)
{
    bool keep[REF_MAX];
    for (int i = 0; i < r->n_vocab; i++) {
        int better = 0;
        double sum = 0, most = 0;
        for (int j = 0; j < r->n_vocab; j++) {
            most = fmax(most, r->p[j]);
            if (r->kept[j] && (r->logit[j] > r->logit[i] || (r->logit[j] == r->logit[i] && j < i)))
                better++, sum += r->p[j];
        }
        keep[i] = rule == TOP_K   ? p->top_k == 0 || better < p->top_k
                  : rule == TOP_P ? better == 0 || p->top_p == 1 || sum < p->top_p
                                  : r->p[i] >= p->min_p * most;
    }
    for (int i = 0; i < r->n_vocab; i++)
        r->kept[i] &= keep[i];
    ref_normalise(r);
}

static void ref_apply(struct reference *r, const struct sampler_params *p, const float *logits,
                      const int *history, int n_history)
{
    double maximum = -DBL_MAX;
    for (int i = 0; i < r->n_vocab; i++) {
        r->logit[i] = ref_penalised((double)logits[i], i, p, history, n_history);
        maximum = fmax(maximum, r->logit[i]);
    }
    for (int i = 0; i < r->n_vocab; i++) {
        r->kept[i] = true;
        r->p[i] = exp((r->logit[i] - maximum) / p->temperature);
    }
    ref_normalise(r);
    ref_filter(r, TOP_K, p);
    ref_filter(r, TOP_P, p);
    ref_filter(r, MIN_P, p);
}

static void expect_choices(const struct sampler *s, const struct reference *r)
{
    const int n = choices(s);
    int kept = 0;
    for (int i = 0; i < r->n_vocab; i++)
        kept += r->kept[i];
    ck_assert_int_eq(n, kept);
    bool seen[REF_MAX] = {false};
    for (int i = 0; i < n; i++) {
        ck_assert(r->kept[tokens[i]] && !seen[tokens[i]]);
        seen[tokens[i]] = true;
        ck_assert_double_eq_tol(probabilities[i], r->p[tokens[i]], 1e-12);
    }
}

static struct sampler_params random_params(struct rng *r, int rules, int n_vocab)
{
    struct sampler_params p = plain(exp(uniform(r, -2, 2)));
    if (rules & TOP_K)
        p.top_k = 1 + below(r, n_vocab + 3);
    if (rules & TOP_P)
        p.top_p = below(r, 4) ? uniform(r, 0, 1) : 1 - uniform(r, 0, 0.01);
    if (rules & MIN_P)
        p.min_p = below(r, 2) ? uniform(r, 0, 0.2) : uniform(r, 0, 1);
    if (rules & PENALTY) {
        p.repeat_penalty = exp(uniform(r, -1, 1));
        static const int last[] = {-1, 0, 1, 2, 5, 10, N_CTX - 1, N_CTX, N_CTX + 1, INT_MAX};
        p.repeat_last_n = last[below(r, COUNT(last))];
    }
    return p;
}

TEST(choices_equal_the_reference, .loops = ALL_RULES, .tags = ONE_THREAD)
{
    static struct reference ref;
    static float logits[REF_MAX], before[REF_MAX];
    struct rng r;
    rng_seed(&r, 2024, (uint64_t)_i);
    for (int round = 0; round < 60; round++) {
        ref.n_vocab = 1 + below(&r, below(&r, 2) ? 12 : REF_MAX);
        const struct sampler_params p = random_params(&r, _i, ref.n_vocab);
        struct sampler *s = new_seeded(p, ref.n_vocab, rng_u32(&r), 54);
        int history[200];
        const int n_history = below(&r, 3) * below(&r, 100);
        for (int i = 0; i < n_history; i++)
            history[i] = below(&r, ref.n_vocab);
        accept_all(s, history, n_history);
        random_logits(&r, logits, ref.n_vocab);
        ref_apply(&ref, &p, logits, history, n_history);
        memcpy(before, logits, sizeof logits);
        const int token = pick(s, logits);
        ck_assert_mem_eq(before, logits, sizeof logits); /* they stay as they are */
        ck_assert(ref.kept[token] && ref.p[token] > 0);
        expect_choices(s, &ref);
    }
}

/* --- the draw --------------------------------------------------------------------------------- */

/* A pick inverts the cumulative distribution of the reference's probabilities at the stream's own
 * uniform number. Tokens that a filter leaves are sorted, likeliest first and of equals the lower
 * id first; without a filter they are in the order of their ids. A number nearer to a boundary than
 * rounding may reach is left out. */
TEST(a_draw_inverts_the_distribution, .loops = ALL_RULES, .tags = ONE_THREAD)
{
    static struct reference ref;
    static float logits[REF_MAX];
    struct rng r, stream;
    int n_drawn = 0;
    rng_seed(&r, 77, (uint64_t)_i);
    for (int round = 0; round < 60; round++) {
        ref.n_vocab = 1 + below(&r, below(&r, 2) ? 12 : REF_MAX);
        struct sampler_params p = random_params(&r, _i & ~PENALTY, ref.n_vocab);
        const uint64_t seed = rng_u32(&r);
        struct sampler *s = new_seeded(p, ref.n_vocab, seed, 54);
        const bool sorted = (p.top_k > 0 && p.top_k < ref.n_vocab) || p.top_p < 1;
        random_logits(&r, logits, ref.n_vocab);
        ref_apply(&ref, &p, logits, NULL, 0);
        rng_seed(&stream, seed, 54);
        for (int draw = 0; draw < 30; draw++) {
            const double u = rng_unit(&stream);
            const int token = pick(s, logits);
            double below_it = 0; /* the probabilities of those before the token */
            for (int i = 0; i < ref.n_vocab; i++)
                if (sorted ? ref.logit[i] > ref.logit[token] ||
                                 (ref.logit[i] == ref.logit[token] && i < token)
                           : i < token)
                    below_it += ref.p[i];
            if (fabs(u - below_it) < 1e-12 || fabs(u - below_it - ref.p[token]) < 1e-12)
                continue;
            ck_assert_double_le(below_it, u);
            ck_assert_double_lt(u, below_it + ref.p[token]);
            n_drawn++;
        }
    }
    ck_assert_int_gt(n_drawn, 1700); /* of 1800 */
}

/* Draws seed 42 and stream 54, the same again, another stream, and another seed. */
TEST(reset_replays_and_streams_differ)
{
    enum { V = 50, PICKS = 100 };
    static const uint64_t streams[][2] = {{42, 54}, {42, 54}, {42, 1}, {43, 1}};
    float logits[V];
    struct rng r;
    rng_seed(&r, 3, 3);
    random_logits(&r, logits, V);
    const struct sampler_params p = {5, 0, 1, 0, 1.5, -1};
    struct sampler *s = new_sampler(p, V);
    int picked[4][PICKS];
    for (int i = 0; i < 4; i++) {
        sampler_reset(s, 0, streams[i][0], streams[i][1]);
        struct sampler *fresh = new_seeded(p, V, streams[i][0], streams[i][1]);
        for (int k = 0; k < PICKS; k++) {
            picked[i][k] = pick_and_accept(s, logits);
            ck_assert_int_eq(pick_and_accept(fresh, logits), picked[i][k]);
        }
        ck_assert((memcmp(picked[0], picked[i], sizeof picked[0]) == 0) == (i < 2));
    }
}

/* --- greedy, extremes, refusals --------------------------------------------------------------- */

TEST(greedy_takes_the_first_maximum, .tags = ONE_THREAD)
{
    for (int v = 1; v <= 70; v++) {
        struct sampler *s = new_sampler(plain(0), v);
        for (int best = 0; best < v; best++) {
            float logits[70];
            for (int i = 0; i < v; i++)
                logits[i] = i >= best && i % 3 == best % 3 ? 2.5f : -1.0f - (float)i;
            ck_assert_int_eq(pick(s, logits), best);
        }
    }
    struct sampler *s = new_sampler(plain(0), 3);
    ck_assert_int_eq(pick(s, (const float[]){-1.0f, -0.0f, 0.0f}), 1);
}

TEST(penalty_saturates, .tags = ONE_THREAD)
{
    static const float logits[] = {FLT_MAX, -FLT_MAX, 1, -1};
    static const double penalties[] = {1e-300, 1e-10, 1e10, 1e300, 5e-324, DBL_MAX};
    for (size_t i = 0; i < 2 * COUNT(penalties); i++) {
        struct sampler *s =
            new_sampler((struct sampler_params){(double)(i % 2), 0, 1, 0, penalties[i / 2], -1}, 4);
        accept_all(s, (const int[]){0, 1, 2, 3}, 4);
        const int token = pick(s, logits);
        ck_assert(token >= 0 && token < 4);
        double sum = i % 2 == 0; /* a greedy pick weighs nothing */
        for (int n = i % 2 ? choices(s) : 0; n > 0; n--)
            sum += probabilities[n - 1];
        ck_assert_double_eq_tol(sum, 1, 1e-12);
    }
}

TEST(extreme_temperatures, .tags = ONE_THREAD)
{
    static const float logits[] = {-1e30f, 3, 3.0000002f, FLT_MAX / 2, -FLT_MAX, 1e38f};
    static const double tiny[] = {1e-30, 1e-300, 5e-324};
    for (size_t i = 0; i < COUNT(tiny); i++) {
        ck_assert_int_eq(pick(new_sampler(plain(tiny[i]), 6), logits), 3);
        ck_assert_int_eq(pick(new_sampler(plain(tiny[i]), 3), logits), 2);
    }
    struct sampler *s = new_sampler(plain(DBL_MAX), 6);
    pick(s, logits);
    ck_assert_int_eq(choices(s), 6);
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol(probabilities[i], 1.0 / 6, 1e-15);
}

TEST(equal_logits_are_filtered_exactly, .tags = ONE_THREAD)
{
    enum { V = 40 };
    float logits[V];
    for (int i = 0; i < V; i++)
        logits[i] = -3.25f;
    static const struct {
        int top_k;
        double top_p, min_p;
        int kept;
    } cases[] = {
        {0, 1, 0, V},       {0, 1, 1, V},         {7, 1, 1, 7}, {0, 0.5, 0, V / 2},
        {0, 0.5001, 0, 21}, {0, 0.025, 0, 1},     {0, 0, 0, 1}, {10, 0.5, 0.5, 5},
        {V, 1, 0, V},       {V + 1, 0.25, 0, 10}, {1, 0, 1, 1}, {0, 1 - 1e-9, 0, V},
        {39, 1, 0, 39},     {INT32_MAX, 1, 0, V},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int kept = cases[i].kept;
        struct sampler *s = new_sampler(
            (struct sampler_params){0.7, cases[i].top_k, cases[i].top_p, cases[i].min_p, 1, 0}, V);
        ck_assert_int_lt(pick(s, logits), kept);
        ck_assert_int_eq(choices(s), kept);
        for (int j = 0; j < kept; j++) {
            ck_assert_int_lt(tokens[j], kept);
            ck_assert_double_eq_tol(probabilities[j], 1.0 / kept, 1e-15);
        }
    }
}

/* The first of them is named, and nothing changes: the next pick is that of a sampler that had
 * none. */
TEST(non_finite_logits_are_named, .loops = 6, .tags = ONE_THREAD)
{
    enum { V = 37 };
    const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const shown[] = {"is nan", "is inf", "is -inf"};
    struct sampler *s = new_sampler(plain(_i / 3), V), *other = new_sampler(plain(_i / 3), V);
    for (int at = 0; at < V; at++) {
        float logits[V] = {0};
        char expected[32];
        int token = -5;
        double log_sum;
        logits[at] = bad[_i % 3];
        logits[V - 1] = at < V - 1 ? NAN : bad[_i % 3];
        snprintf(expected, sizeof expected, "token %d %s", at, shown[_i % 3]);
        expect_status(sampler_pick(s, 0, 0, logits, &token, &err), STATUS_FAILED, expected);
        ck_assert_int_eq(token, -5);
        expect_status(logits_log_sum(logits, V, &log_sum, &err), STATUS_FAILED, expected);
        expect_ok(logits_check(logits, at, &err));
        memset(logits, 0, sizeof logits);
        ck_assert_int_eq(pick(s, logits), pick(other, logits));
    }
    sampler_free(NULL);
}

/* --- softmax arithmetic ----------------------------------------------------------------------- */

static void wide_logits(float *logits, int n, double width, uint64_t stream)
{
    struct rng r;
    rng_seed(&r, 3, stream);
    for (int i = 0; i < n; i++)
        logits[i] = (float)((rng_unit(&r) - 0.5) * width);
}

static double log_sum_of(const float *logits, int n)
{
    double log_sum;
    expect_ok(logits_log_sum(logits, n, &log_sum, &err));
    return log_sum;
}

/* Compares with sums in long double, for lengths around those of chunks and lanes. */
TEST(log_sum_is_that_of_a_plain_softmax)
{
    float logits[REF_MAX];
    for (int n = 1; n <= REF_MAX; n++) {
        wide_logits(logits, n, 20, (uint64_t)n);
        long double sum = 0;
        for (int i = 0; i < n; i++)
            sum += expl((long double)logits[i]);
        ck_assert_double_eq_tol(log_sum_of(logits, n), (double)logl(sum), 2e-15);
    }
    ck_assert_double_eq(log_sum_of(logits, 1), (double)logits[0]);
    const float huge[] = {3e38f, 3e38f, -3e38f};
    ck_assert_double_eq_tol(log_sum_of(huge, 3), (double)3e38f + log(2), 1e23);
}

TEST(divergence_is_that_of_its_definition)
{
    float p[REF_MAX], q[REF_MAX];
    for (int n = 1; n <= REF_MAX; n += 7) {
        wide_logits(p, n, 12, 100 + (uint64_t)n);
        wide_logits(q, n, 12, 500 + (uint64_t)n);
        const double p_log_sum = log_sum_of(p, n), q_log_sum = log_sum_of(q, n);
        long double sum = 0;
        for (int i = 0; i < n; i++) {
            const long double lp = (long double)p[i] - (long double)p_log_sum;
            sum += expl(lp) * (lp - ((long double)q[i] - (long double)q_log_sum));
        }
        ck_assert_double_eq_tol(logits_divergence(p, p_log_sum, q, q_log_sum, n), (double)sum,
                                1e-14);
        ck_assert_double_eq(logits_divergence(p, p_log_sum, p, p_log_sum, n), 0);
        /* A shift of all logits does not change softmax, and rounding makes no divergence negative.
         */
        for (int i = 0; i < n; i++)
            q[i] = p[i] + 64;
        const double shifted = logits_divergence(p, p_log_sum, q, log_sum_of(q, n), n);
        ck_assert(shifted >= 0 && shifted <= 1e-10);
    }
    /* p = (1/2, 1/2), q = (1/4, 3/4): log 2 - log(3) / 2. */
    const float even[] = {0, 0}, odd[] = {0, logf(3)};
    ck_assert_double_eq_tol(
        logits_divergence(even, log_sum_of(even, 2), odd, log_sum_of(odd, 2), 2),
        log(2) - log(3) / 2, 1e-7);
}

static int by_rank(const void *a, const void *b)
{
    const struct token_score *x = a, *y = b;
    if (x->logprob > y->logprob || x->logprob < y->logprob)
        return x->logprob > y->logprob ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

#define N_SORTED 300

/* The values are few, so that there are many ties. */
TEST(top_is_that_of_a_full_sort, .loops = 2)
{
    float logits[N_SORTED];
    struct token_score sorted[N_SORTED], top[N_SORTED];
    uint64_t keys[N_SORTED];
    struct rng r;
    rng_seed(&r, 5, (uint64_t)_i);
    for (int i = 0; i < N_SORTED; i++) {
        logits[i] = (float)(rng_u32(&r) % (_i ? 7 : 100000));
        sorted[i] = (struct token_score){i, (double)logits[i] - 2};
    }
    qsort(sorted, N_SORTED, sizeof sorted[0], by_rank);
    for (int k = 0; k <= N_SORTED; k += k < 10 ? 1 : 29) {
        logits_top(logits, N_SORTED, 2, k, keys, top);
        for (int i = 0; i < k; i++) {
            ck_assert_int_eq(top[i].id, sorted[i].id);
            ck_assert_double_eq(top[i].logprob, sorted[i].logprob);
        }
    }
}
