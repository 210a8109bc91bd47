#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/pool.h"
#include "engine/sampler.h"
#include "opened.h"
#include "support.h"

#define N_CTX 64

/* No filter, no penalty. */
static struct sampler_params plain(double temperature)
{
    return (struct sampler_params){.temperature = temperature, .top_p = 1, .repeat_penalty = 1};
}

static struct sampler *new_seeded(struct sampler_params p, int n_vocab, uint64_t seed,
                                  uint64_t stream)
{
    const struct sampler_sizes sizes = {n_vocab, N_CTX, 1, 1};
    struct sampler *s;
    expect_ok(sampler_create(&p, &sizes, &s, &err));
    sampler_reset(s, 0, seed, stream);
    return s;
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

/* What was left to choose from at the last pick; returns how many. */
static const int *tokens;
static const double *probabilities;

static int choices(const struct sampler *s)
{
    return sampler_choices(s, 0, &tokens, &probabilities);
}

/* The first pick of a new sampler. */
static int pick_once(struct sampler_params p, const float *logits, int n_vocab)
{
    struct sampler *s = new_sampler(p, n_vocab);
    const int token = pick(s, logits);
    sampler_free(s);
    return token;
}

static double uniform(struct rng *r, double from, double to)
{
    return from + (to - from) * rng_unit(r);
}

static int below(struct rng *r, int n)
{
    return (int)(rng_unit(r) * n);
}

/* --- the reference: every rule as its sentence in sampler.h says it, in O(n_vocab^2) ------------
 */

#define REF_MAX 300

struct reference {
    int n_vocab;
    double logit[REF_MAX];
    double p[REF_MAX]; /* 0 once filtered away */
    bool kept[REF_MAX];
};

static void ref_penalise(struct reference *r, const struct sampler_params *p, const int *history,
                         int n_history)
{
    const int last_n = p->repeat_last_n < 0 || p->repeat_last_n > N_CTX ? N_CTX : p->repeat_last_n;
    for (int i = 0; i < r->n_vocab; i++) {
        bool recent = false;
        for (int h = 0; h < n_history; h++)
            recent |= history[h] == i && h >= n_history - last_n;
        if (recent && r->logit[i] > 0)
            r->logit[i] = (double)(float)(r->logit[i] / p->repeat_penalty);
        else if (recent)
            r->logit[i] = (double)(float)(r->logit[i] * p->repeat_penalty);
    }
}

static bool ref_before(const struct reference *r, int i, int j)
{
    return r->logit[i] > r->logit[j] || (r->logit[i] == r->logit[j] && i < j);
}

static void ref_normalise(struct reference *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_vocab; i++)
        sum += r->kept[i] ? r->p[i] : 0;
    for (int i = 0; i < r->n_vocab; i++)
        r->p[i] = r->kept[i] ? r->p[i] / sum : 0;
}

static void ref_temperature(struct reference *r, double temperature)
{
    double maximum = -DBL_MAX;
    for (int i = 0; i < r->n_vocab; i++)
        maximum = fmax(maximum, r->logit[i]);
    for (int i = 0; i < r->n_vocab; i++) {
        r->kept[i] = true;
        r->p[i] = exp((r->logit[i] - maximum) / temperature);
    }
    ref_normalise(r);
}

static void ref_top_k(struct reference *r, int top_k)
{
    for (int i = 0; i < r->n_vocab; i++) {
        int better = 0;
        for (int j = 0; j < r->n_vocab; j++)
            better += ref_before(r, j, i);
        r->kept[i] &= top_k == 0 || better < top_k;
    }
    ref_normalise(r);
}

/* In the smallest set is who is needed to reach top_p: those before it do not. */
static void ref_top_p(struct reference *r, double top_p)
{
    bool needed[REF_MAX];
    for (int i = 0; i < r->n_vocab; i++) {
        double sum = 0;
        bool first = true;
        for (int j = 0; j < r->n_vocab; j++)
            if (r->kept[j] && ref_before(r, j, i)) {
                sum += r->p[j];
                first = false;
            }
        needed[i] = first || top_p == 1 || sum < top_p;
    }
    for (int i = 0; i < r->n_vocab; i++)
        r->kept[i] &= needed[i];
    ref_normalise(r);
}

static void ref_min_p(struct reference *r, double min_p)
{
    double most = 0;
    for (int i = 0; i < r->n_vocab; i++)
        most = fmax(most, r->p[i]);
    for (int i = 0; i < r->n_vocab; i++)
        r->kept[i] &= r->p[i] >= min_p * most;
    ref_normalise(r);
}

static void ref_apply(struct reference *r, const struct sampler_params *p, const float *logits,
                      const int *history, int n_history)
{
    for (int i = 0; i < r->n_vocab; i++)
        r->logit[i] = (double)logits[i];
    ref_penalise(r, p, history, n_history);
    ref_temperature(r, p->temperature);
    ref_top_k(r, p->top_k);
    ref_top_p(r, p->top_p);
    ref_min_p(r, p->min_p);
}

/* --- against the reference -------------------------------------------------------------------- */

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

enum rule { TOP_K = 1, TOP_P = 2, MIN_P = 4, PENALTY = 8, ALL_RULES = 16 };

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

/* One of several shapes; rounded ones have ties. */
static void random_logits(struct rng *r, float *logits, int n)
{
    const double width = uniform(r, 0.1, 12), step = below(r, 2) ? 0 : uniform(r, 0.1, 1);
    for (int i = 0; i < n; i++) {
        const double x = uniform(r, -width, width) + uniform(r, -width, width);
        logits[i] = (float)(step > 0 ? round(x / step) * step : x);
    }
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
            sampler_accept(s, 0, history[i] = below(&r, ref.n_vocab));
        random_logits(&r, logits, ref.n_vocab);
        ref_apply(&ref, &p, logits, history, n_history);
        memcpy(before, logits, sizeof logits);
        const int token = pick(s, logits);
        ck_assert_mem_eq(before, logits, sizeof logits); /* they stay as they are */
        ck_assert(ref.kept[token] && ref.p[token] > 0);
        expect_choices(s, &ref);
        sampler_free(s);
    }
}

/* --- the draw --------------------------------------------------------------------------------- */

/* The 0.9999 quantile of chi-square (Wilson and Hilferty's approximation). */
static double chi_square_limit(int freedom)
{
    const double v = 2.0 / (9.0 * freedom);
    return freedom * pow(1 - v + 3.719 * sqrt(v), 3);
}

TEST(draws_follow_the_probabilities, .loops = 8)
{
    enum { V = 12, DRAWS = 50000 };
    static const struct sampler_params settings[] = {
        {.temperature = 1, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 0.5, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 3, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 1, .top_k = 5, .top_p = 1, .repeat_penalty = 1},
        {.temperature = 1.5, .top_p = 0.8, .repeat_penalty = 1},
        {.temperature = 1.5, .top_p = 1, .min_p = 0.1, .repeat_penalty = 1},
        {.temperature = 1, .top_p = 1, .repeat_penalty = 2, .repeat_last_n = -1},
        {.temperature = 2,
         .top_k = 9,
         .top_p = 0.95,
         .min_p = 0.05,
         .repeat_penalty = 1.5,
         .repeat_last_n = 2},
    };
    ck_assert_int_eq(COUNT(settings), 8);
    static const float logits[V] = {0.5f,  2.0f,  -1.0f, 1.0f, 1.5f,  0.25f,
                                    -0.5f, 1.25f, 0.75f, 0.0f, -2.0f, 1.75f};
    static const int history[] = {1, 11, 6, 4};
    const struct sampler_params p = settings[_i];
    struct reference ref = {.n_vocab = V};
    ref_apply(&ref, &p, logits, history, 4);
    struct sampler *s = new_seeded(p, V, 99, 54);
    for (int i = 0; i < 4; i++)
        sampler_accept(s, 0, history[i]);
    int counts[V] = {0};
    for (int i = 0; i < DRAWS; i++)
        counts[pick(s, logits)]++;
    sampler_free(s);

    double chi2 = 0;
    int freedom = -1;
    for (int i = 0; i < V; i++) {
        const double expected = ref.p[i] * DRAWS;
        if (!ref.kept[i]) {
            ck_assert_int_eq(counts[i], 0);
            continue;
        }
        ck_assert_double_ge(expected, 5); /* or the test means nothing */
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
        freedom++;
    }
    ck_assert_double_lt(chi2, chi_square_limit(freedom));
}

/*
 * Streams computed with a separate Python implementation (its own PCG32 and hash, math.exp,
 * math.log, math.fsum): logit i is ((37 i mod 101) - 50) / 16 for i < 64, seed 42, stream 54, and
 * each pick is accepted. No second comes within 2% of the first, so rounding cannot change a pick.
 */
TEST(golden_streams)
{
    enum { V = 64, PICKS = 20 };
    static const int filtered[PICKS] = {16, 38, 49, 8,  19, 60, 30, 57, 27, 16,
                                        30, 60, 49, 30, 8,  5,  35, 38, 19, 46};
    static const int unfiltered[PICKS] = {48, 32, 49, 29, 18, 60, 16, 21, 37, 16,
                                          57, 60, 33, 2,  9,  18, 35, 53, 61, 35};
    float logits[V];
    for (int i = 0; i < V; i++)
        logits[i] = (float)(37 * i % 101 - 50) / 16;
    struct sampler_params p = plain(0.8);
    p.top_k = 12;
    p.top_p = 0.9;
    p.min_p = 0.02;
    p.repeat_penalty = 1.3;
    p.repeat_last_n = 8;
    struct sampler *a = new_sampler(p, V), *b = new_sampler(plain(1.5), V);
    for (int i = 0; i < PICKS; i++) {
        const int token = pick(a, logits);
        ck_assert_int_eq(token, filtered[i]);
        sampler_accept(a, 0, token);
        ck_assert_int_eq(pick(b, logits), unfiltered[i]);
    }
    sampler_free(a);
    sampler_free(b);
}

/* Who has the same stream and probabilities at a total variation of d picks the same at least
 * (1 - d) / (1 + d) of the time. */
TEST(one_stream_couples_two_models, .loops = 8)
{
    enum { V = 200, PICKS = 20000 };
    struct rng r;
    double d = 0, equal = 0;
    rng_seed(&r, 5, (uint64_t)_i);
    struct sampler_params p = plain(0.8);
    p.top_k = _i % 2 ? 40 : 0;
    struct sampler *a = new_sampler(p, V), *b = new_sampler(p, V);
    for (int i = 0; i < PICKS; i++) {
        float one[V], other[V];
        double both[V] = {0};
        for (int t = 0; t < V; t++) {
            one[t] = (float)uniform(&r, 0, 8);
            other[t] = one[t] + (float)uniform(&r, -0.4, 0.4) * (float)(_i / 2);
        }
        equal += pick(a, one) == pick(b, other);
        for (int n = choices(a) - 1; n >= 0; n--)
            both[tokens[n]] = probabilities[n];
        for (int n = choices(b) - 1; n >= 0; n--)
            both[tokens[n]] -= probabilities[n];
        for (int t = 0; t < V; t++)
            d += fabs(both[t]) / 2 / PICKS;
    }
    equal /= PICKS;
    ck_assert_msg(equal > (1 - d) / (1 + d) - 0.01, "%g at %g", equal, d);
    ck_assert_msg(equal <= 1 - d + 0.01, "%g at %g", equal, d);
    sampler_free(a);
    sampler_free(b);
}

static void take_picks(struct sampler *s, const float *logits, int *picked, int n)
{
    for (int i = 0; i < n; i++)
        sampler_accept(s, 0, picked[i] = pick(s, logits));
}

TEST(reset_replays_and_streams_differ)
{
    enum { V = 50, PICKS = 100 };
    float logits[V];
    struct rng r;
    rng_seed(&r, 3, 3);
    random_logits(&r, logits, V);
    struct sampler_params p = plain(5);
    p.repeat_penalty = 1.5;
    p.repeat_last_n = -1;
    struct sampler *s = new_sampler(p, V);
    /* As seed 42 and stream 54 are drawn, and again, another stream, and another seed. */
    static const uint64_t streams[][2] = {{42, 54}, {42, 54}, {42, 1}, {43, 1}};
    int first[PICKS], picked[PICKS];
    for (int i = 0; i < 4; i++) {
        sampler_reset(s, 0, streams[i][0], streams[i][1]);
        take_picks(s, logits, i == 0 ? first : picked, PICKS);
        ck_assert(i == 0 || (memcmp(first, picked, sizeof first) == 0) == (i == 1));
        struct sampler *fresh = new_seeded(p, V, streams[i][0], streams[i][1]);
        for (int k = 0; k < PICKS; k++) {
            const int token = pick(fresh, logits);
            ck_assert_int_eq(token, (i == 0 ? first : picked)[k]);
            sampler_accept(fresh, 0, token);
        }
        sampler_free(fresh);
    }
    sampler_free(s);
}

/* --- many sequences, many threads ------------------------------------------------------------- */

/* Each has its own stream and history; which thread picks, and when, is all the same. */
enum { SEQUENCES = 7, THREADS = 3, ROUNDS = 60, MANY_V = 90 };

struct many {
    struct sampler *s;
    const float *logits; /* [SEQUENCES, MANY_V] */
    int shift;           /* of the sequences over the threads */
    int tokens[SEQUENCES];
};

static void pick_some(void *arg, int thread)
{
    struct many *m = arg;
    for (int i = 0; i < SEQUENCES; i++)
        if ((i + m->shift) % THREADS == thread)
            expect_ok(
                sampler_pick(m->s, i, thread, m->logits + (size_t)i * MANY_V, &m->tokens[i], NULL));
}

TEST(sequences_are_picked_for_at_once, .loops = ALL_RULES)
{
    float logits[SEQUENCES * MANY_V];
    struct rng r;
    rng_seed(&r, 11, 11);
    random_logits(&r, logits, SEQUENCES * MANY_V);
    const struct sampler_params p = random_params(&r, _i, MANY_V);
    const struct sampler_sizes sizes = {MANY_V, N_CTX, SEQUENCES, THREADS};
    struct many m = {.logits = logits};
    struct sampler *alone[SEQUENCES];
    struct pool *pool = new_pool(THREADS);
    expect_ok(sampler_create(&p, &sizes, &m.s, NULL));
    for (int i = 0; i < SEQUENCES; i++) {
        alone[i] = new_seeded(p, MANY_V, 5, (uint64_t)i);
        sampler_reset(m.s, i, 5, (uint64_t)i);
    }
    for (m.shift = 0; m.shift < ROUNDS; m.shift++) {
        pool_run(pool, pick_some, &m);
        for (int i = 0; i < SEQUENCES; i++) {
            ck_assert_int_eq(m.tokens[i], pick(alone[i], logits + (size_t)i * MANY_V));
            sampler_accept(m.s, i, m.tokens[i]);
            sampler_accept(alone[i], 0, m.tokens[i]);
        }
    }
    for (int i = 0; i < SEQUENCES; i++)
        sampler_free(alone[i]);
    sampler_free(m.s);
    pool_free(pool);
}

/* --- greedy, ties, penalty -------------------------------------------------------------------- */

TEST(greedy_takes_the_first_maximum, .tags = ONE_THREAD)
{
    for (int v = 1; v <= 70; v++) {
        float logits[70];
        for (int best = 0; best < v; best++) {
            for (int i = 0; i < v; i++)
                logits[i] = i >= best && i % 3 == best % 3 ? 2.5f : -1.0f - (float)i;
            ck_assert_int_eq(pick_once(plain(0), logits, v), best);
        }
    }
    static const float zeros[] = {-1.0f, -0.0f, 0.0f};
    ck_assert_int_eq(pick_once(plain(0), zeros, 3), 1);
    struct sampler *s = new_sampler(plain(0), 3);
    pick(s, zeros);
    ck_assert_int_eq(choices(s), 1);
    ck_assert(tokens[0] == 1 && probabilities[0] == 1);
    sampler_free(s);
}

TEST(penalty_saturates, .tags = ONE_THREAD)
{
    static const float logits[] = {FLT_MAX, -FLT_MAX, 1, -1};
    static const double penalties[] = {1e-300, 1e-10, 1e10, 1e300, 5e-324, DBL_MAX};
    for (size_t i = 0; i < COUNT(penalties); i++)
        for (int greedy = 0; greedy < 2; greedy++) {
            struct sampler_params p = plain(greedy ? 0 : 1);
            p.repeat_penalty = penalties[i];
            p.repeat_last_n = -1;
            struct sampler *s = new_sampler(p, 4);
            for (int token = 0; token < 4; token++)
                sampler_accept(s, 0, token);
            const int token = pick(s, logits);
            ck_assert(token >= 0 && token < 4);
            double sum = 0;
            for (int n = choices(s); n > 0; n--)
                sum += probabilities[n - 1];
            ck_assert_double_eq_tol(sum, 1, 1e-12);
            sampler_free(s);
        }
}

/* --- extremes --------------------------------------------------------------------------------- */

TEST(extreme_temperatures, .tags = ONE_THREAD)
{
    static const float logits[] = {-1e30f, 3, 3.0000002f, FLT_MAX / 2, -FLT_MAX, 1e38f};
    static const double tiny[] = {1e-30, 1e-300, 5e-324};
    for (size_t i = 0; i < COUNT(tiny); i++) {
        ck_assert_int_eq(pick_once(plain(tiny[i]), logits, 6), 3);
        ck_assert_int_eq(pick_once(plain(tiny[i]), logits, 3), 2);
    }
    struct sampler *s = new_sampler(plain(DBL_MAX), 6);
    pick(s, logits);
    ck_assert_int_eq(choices(s), 6);
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol(probabilities[i], 1.0 / 6, 1e-15);
    sampler_free(s);
}

TEST(equal_logits_are_filtered_exactly, .tags = ONE_THREAD)
{
    enum { V = 40 };
    float logits[V];
    for (int i = 0; i < V; i++)
        logits[i] = -3.25f;
    const struct {
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
        struct sampler_params p = plain(0.7);
        p.top_k = cases[i].top_k;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        struct sampler *s = new_sampler(p, V);
        ck_assert_int_lt(pick(s, logits), cases[i].kept);
        ck_assert_int_eq(choices(s), cases[i].kept);
        for (int j = 0; j < cases[i].kept; j++) {
            ck_assert_int_lt(tokens[j], cases[i].kept);
            ck_assert_double_eq_tol(probabilities[j], 1.0 / cases[i].kept, 1e-15);
        }
        sampler_free(s);
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

/* The first is named, and nothing changes: the next pick is as if it had not been. */
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
        logits[at] = bad[_i % 3];
        logits[V - 1] = at < V - 1 ? NAN : bad[_i % 3];
        snprintf(expected, sizeof expected, "token %d %s", at, shown[_i % 3]);
        expect_status(sampler_pick(s, 0, 0, logits, &token, &err), STATUS_FAILED, expected);
        ck_assert_int_eq(token, -5);
        memset(logits, 0, sizeof logits);
        ck_assert_int_eq(pick(s, logits), pick(other, logits));
    }
    sampler_free(s);
    sampler_free(other);
    sampler_free(NULL);
}
