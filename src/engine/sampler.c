/*
 * Everything up to the weights is exact in float32, the rest is double, in one fixed order, so that
 * a pick depends neither on the machine nor on its libm. Only what the filters may keep is sorted:
 * O(n_vocab + k log k) with k tokens left by top-k.
 */
#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/figures.h"
#include "base/mem.h"
#include "compute/elementary.h"

/* What is remembered of a sequence. */
struct history {
    struct rng rng;
    uint64_t n; /* tokens that it was told; the last ones are in its window, a ring */
};

/* What a pick works with, of a thread; threads write to theirs all the time. */
struct scratch {
    _Alignas(MEM_ALIGN) int n_choices; /* tokens still in the draw */
    int *tokens;                       /* [n_vocab] they; sorted by rank after top-k or top-p */
    double *weights;                   /* [n_vocab] */
    float *logits;                     /* [n_vocab] penalised */
    uint64_t *keys;                    /* [n_vocab] scratch for sorting, see key_of */
};

struct sampler {
    struct sampler_params params;
    struct sampler_sizes sizes;
    struct arena arena;        /* of all below */
    struct history *histories; /* [n_sequences] */
    int *windows;              /* [n_sequences, window_cap] */
    int window_cap;
    struct scratch *scratches; /* [n_threads] */
};

/* --- logits ----------------------------------------------------------------------------------- */

/* Rows are worked on a chunk at a time, and chunks are added in lanes: for the vectoriser. */
enum { CHUNK = 128, LANES = 8 };

enum status logits_check(const float *logits, int n, struct err *e)
{
    int bad = 0; /* without a branch, for the vectoriser */
    for (int i = 0; i < n; i++)
        bad |= !(fabsf(logits[i]) <= FLT_MAX);
    if (!bad)
        return STATUS_OK;
    int i = 0;
    while (isfinite(logits[i]))
        i++;
    return err_failed(e,
                      "the logit of token %d is %f; expected a finite number (info --check finds "
                      "tensors that are not finite)",
                      i, figure_unsigned_nan((double)logits[i]));
}

/* The maximum in lanes first, for the vectoriser, then where it is. */
int logits_argmax(const float *logits, int n)
{
    enum { FLOATS = 16 };
    float lanes[FLOATS];
    for (int l = 0; l < FLOATS; l++)
        lanes[l] = logits[0];
    int i = 0;
    for (; i + FLOATS <= n; i += FLOATS)
        for (int l = 0; l < FLOATS; l++)
            lanes[l] = MAX(logits[i + l], lanes[l]);
    float maximum = lanes[0];
    for (int l = 1; l < FLOATS; l++)
        maximum = MAX(lanes[l], maximum);
    for (; i < n; i++)
        maximum = MAX(logits[i], maximum);
    int first = 0;
    while (logits[first] < maximum)
        first++;
    return first;
}

/* out[i] = logits[i] - offset, and a distance whose exponential is 0 from n up to CHUNK. */
static void load_chunk(const float *logits, int n, double offset, double *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (double)logits[i] - offset;
    for (int i = n; i < CHUNK; i++)
        out[i] = -(double)INFINITY;
}

static double sum_in_order(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

enum status logits_log_sum(const float *logits, int n, double *log_sum, struct err *e)
{
    TRY(logits_check(logits, n, e));
    const double max = (double)logits[logits_argmax(logits, n)];
    double lanes[LANES] = {0}, chunk[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        load_chunk(logits + begin, MIN(n - begin, CHUNK), max, chunk);
        elementary_exp(chunk, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += chunk[i + l];
    }
    *log_sum = max + log(sum_in_order(lanes, LANES));
    return STATUS_OK;
}

double logits_divergence(const float *p_logits, double p_log_sum, const float *q_logits,
                         double q_log_sum, int n)
{
    double lanes[LANES] = {0}, p[CHUNK], difference[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        const int count = MIN(n - begin, CHUNK);
        load_chunk(p_logits + begin, count, p_log_sum, p);
        for (int i = 0; i < count; i++)
            difference[i] = p[i] - ((double)q_logits[begin + i] - q_log_sum);
        for (int i = count; i < CHUNK; i++)
            difference[i] = 0;
        elementary_exp(p, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += p[i + l] * difference[i + l];
    }
    const double sum = sum_in_order(lanes, LANES);
    return sum > 0 ? sum : 0; /* rounding may leave a little less than nothing */
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Counts or takes the buffers, see base/mem.h. */
static void take_sampler(struct sampler *s, struct arena *a)
{
    const struct sampler_sizes *z = &s->sizes;
    ARENA_TAKE(s->histories, a, z->n_sequences);
    ARENA_TAKE(s->windows, a, (uint64_t)z->n_sequences * s->window_cap);
    ARENA_TAKE(s->scratches, a, z->n_threads);
    for (int i = 0; i < z->n_threads; i++) {
        struct scratch counted;
        struct scratch *d = s->scratches ? &s->scratches[i] : &counted;
        ARENA_TAKE(d->tokens, a, z->n_vocab);
        ARENA_TAKE(d->weights, a, z->n_vocab);
        ARENA_TAKE(d->logits, a, z->n_vocab);
        ARENA_TAKE(d->keys, a, z->n_vocab);
    }
}

enum status sampler_create(const struct sampler_params *params, const struct sampler_sizes *sizes,
                           struct sampler **out, struct err *e)
{
    TRY_ZEROED(*out, 1, "the sampler", e);
    struct sampler *s = *out;
    s->params = *params;
    s->sizes = *sizes;
    if (params->repeat_penalty != 1)
        s->window_cap = params->repeat_last_n < 0 || params->repeat_last_n > sizes->n_ctx
                            ? sizes->n_ctx
                            : params->repeat_last_n;
    take_sampler(s, &s->arena);
    TRY(arena_allocate(&s->arena, "the sampler", e));
    take_sampler(s, &s->arena);
    for (int i = 0; i < sizes->n_sequences; i++)
        sampler_reset(s, i, 0, 0);
    return STATUS_OK;
}

void sampler_free(struct sampler *s)
{
    if (s)
        arena_free(&s->arena);
    free(s);
}

void sampler_reset(struct sampler *s, int sequence, uint64_t seed, uint64_t stream)
{
    rng_seed(&s->histories[sequence].rng, seed, stream);
    s->histories[sequence].n = 0;
}

static int *window_of(const struct sampler *s, int sequence)
{
    return s->windows + (size_t)sequence * s->window_cap;
}

void sampler_accept(struct sampler *s, int sequence, int token)
{
    assert(sequence < s->sizes.n_sequences && token >= 0 && token < s->sizes.n_vocab);
    if (s->window_cap > 0)
        window_of(s, sequence)[s->histories[sequence].n++ % s->window_cap] = token;
}

/* --- sorting ---------------------------------------------------------------------------------- */

/* Orders as the sampler does: the greater logit first, of equals the lower id. A float's bits
 * order like integers once negative ones are complemented and the sign bit is flipped. */
static uint64_t key_of(float logit, int token)
{
    const float without_minus_zero = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &without_minus_zero, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~token;
}

static int token_of(uint64_t key)
{
    return (int)~(uint32_t)key;
}

/* Restores the min-heap keys[0..n) below i. */
static void sift_down(uint64_t *keys, int n, int i)
{
    const uint64_t key = keys[i];
    for (;;) {
        int child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && keys[child + 1] < keys[child])
            child++;
        if (key <= keys[child])
            break;
        keys[i] = keys[child];
        i = child;
    }
    keys[i] = key;
}

static void make_heap(uint64_t *keys, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--)
        sift_down(keys, n, i);
}

static void pop(uint64_t *keys, int n)
{
    keys[0] = keys[n - 1];
    sift_down(keys, n - 1, 0);
}

/* The keys of the k greatest logits, 1 <= k <= n, the greatest first. The k greatest so far are a
 * heap with the least on top, which is sorted at the end. */
static void top_keys(const float *logits, int n, int k, uint64_t *keys)
{
    for (int i = 0; i < k; i++)
        keys[i] = key_of(logits[i], i);
    make_heap(keys, k);
    float least = logits[token_of(keys[0])];
    for (int i = k; i < n; i++) {
        if (logits[i] <= least) /* an equal has the higher id, so it loses as well */
            continue;
        keys[0] = key_of(logits[i], i);
        sift_down(keys, k, 0);
        least = logits[token_of(keys[0])];
    }
    for (int left = k; left > 1; left--) {
        const uint64_t last = keys[0];
        pop(keys, left);
        keys[left - 1] = last;
    }
}

void logits_top(const float *logits, int n, double log_sum, int k, uint64_t *keys,
                struct token_score *out)
{
    if (k > 0)
        top_keys(logits, n, k, keys);
    for (int i = 0; i < k; i++) {
        const int id = token_of(keys[i]);
        out[i] = (struct token_score){id, (double)logits[id] - log_sum};
    }
}

/* --- weights and filters ---------------------------------------------------------------------- */

/* The probabilities of n tokens over the most likely one's. The difference comes first: it is at
 * most 0, so that a tiny temperature can only give e^-infinity. tokens NULL: all from 0. */
static void weigh(const struct sampler *s, const struct scratch *d, const int *tokens, int n,
                  float maximum)
{
    const double temperature = s->params.temperature;
    for (int i = 0; i < n; i++) {
        const float logit = d->logits[tokens ? tokens[i] : i];
        d->weights[i] = ((double)logit - (double)maximum) / temperature;
    }
    elementary_exp(d->weights, n);
}

/* Top-p of all tokens, which are weighed; sorts no further than needed. No token below the bound is
 * in the set, because not even n_vocab such tokens would make up more than 1 - top_p. */
static void choose_top_p(struct scratch *d, double top_p, int n_vocab)
{
    const double total = sum_in_order(d->weights, n_vocab);
    const double wanted = top_p * total, bound = (1 - top_p) * (total / n_vocab);
    uint64_t *keys = d->keys;
    int n = 0;
    for (int i = 0; i < n_vocab; i++)
        if (d->weights[i] >= bound)
            keys[n++] = ~key_of(d->logits[i], i);
    make_heap(keys, n);
    double sum = 0;
    d->n_choices = 0;
    do {
        const int token = token_of(~keys[0]);
        d->tokens[d->n_choices++] = token;
        sum += d->weights[token];
        pop(keys, n--);
    } while (n > 0 && sum < wanted);
}

static void filter(const struct sampler *s, struct scratch *d, float maximum)
{
    const struct sampler_params *p = &s->params;
    const int n_vocab = s->sizes.n_vocab;
    if (p->top_k > 0 && p->top_k < n_vocab) {
        top_keys(d->logits, n_vocab, p->top_k, d->keys);
        d->n_choices = p->top_k;
        for (int i = 0; i < d->n_choices; i++)
            d->tokens[i] = token_of(d->keys[i]);
        weigh(s, d, d->tokens, d->n_choices, maximum);
        const double wanted = p->top_p * sum_in_order(d->weights, d->n_choices);
        double sum = 0;
        int n = 0;
        do
            sum += d->weights[n++];
        while (n < d->n_choices && sum < wanted);
        if (p->top_p < 1)
            d->n_choices = n;
    } else {
        weigh(s, d, NULL, n_vocab, maximum);
        for (int i = 0; i < n_vocab; i++)
            d->tokens[i] = i;
        d->n_choices = n_vocab;
        if (p->top_p < 1) {
            choose_top_p(d, p->top_p, n_vocab);
            weigh(s, d, d->tokens, d->n_choices, maximum);
        }
    }
    int n = 0; /* the greatest weight is 1, so min_p is the bound itself */
    for (int i = 0; i < d->n_choices; i++) {
        if (d->weights[i] >= p->min_p) {
            d->tokens[n] = d->tokens[i];
            d->weights[n++] = d->weights[i];
        }
    }
    d->n_choices = n;
    const double total = sum_in_order(d->weights, n);
    for (int i = 0; i < n; i++)
        d->weights[i] /= total;
}

enum status sampler_pick(struct sampler *s, int sequence, int thread, const float *logits,
                         int *token, struct err *e)
{
    struct scratch *d = &s->scratches[thread];
    struct history *h = &s->histories[sequence];
    const int n_vocab = s->sizes.n_vocab, n_recent = MIN(h->n, (uint64_t)s->window_cap);
    assert(thread >= 0 && thread < s->sizes.n_threads);
    TRY(logits_check(logits, n_vocab, e));
    memcpy(d->logits, logits, n_vocab * sizeof *logits);
    for (int i = 0; i < n_recent; i++) {
        const int recent = window_of(s, sequence)[i]; /* from the input: penalised once */
        const double l = (double)logits[recent], penalty = s->params.repeat_penalty;
        const double result = l > 0 ? l / penalty : l * penalty;
        /* Saturates, so that no penalty makes a logit infinite. */
        d->logits[recent] = (float)fmin(fmax(result, -(double)FLT_MAX), (double)FLT_MAX);
    }
    *token = logits_argmax(d->logits, n_vocab);
    if (s->params.temperature == 0)
        return STATUS_OK;
    filter(s, d, d->logits[*token]);
    /* Rounding may leave the whole sum at or below the number: then it is the last token that has a
     * probability. */
    const double number = rng_unit(&h->rng);
    double sum = 0;
    for (int i = 0; i < d->n_choices && sum <= number; i++) {
        if (d->weights[i] > 0)
            *token = d->tokens[i];
        sum += d->weights[i];
    }
    return STATUS_OK;
}
