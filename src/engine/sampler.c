/*
 * Everything up to the weights is exact in float32, the rest is double: additions in one fixed
 * order and an exp() made of them (logits_exp), so that a pick depends neither on the machine nor
 * on its libm. Only what the filters may keep is sorted: O(n_vocab + k log k) with k tokens left
 * by top-k.
 */
#include "engine/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"

/* Of a sequence. */
struct history {
    struct rng rng;
    int window_len, window_next; /* the window is a ring */
    int *window;                 /* [window_cap] */
};

/* What a pick works with, of a thread; threads write to theirs all the time. */
struct scratch {
    _Alignas(MEM_ALIGN) const struct sampler_params *params;
    int n_vocab;
    int n_choices;   /* what is still in the draw, sorted by rank after top-k or top-p: */
    int *tokens;     /* [n_vocab] */
    double *weights; /* [n_vocab] */
    float *logits;   /* [n_vocab] penalised */
    uint64_t *keys;  /* [n_vocab] scratch for sorting, see key_of */
};

struct sampler {
    struct sampler_params params;
    struct sampler_sizes sizes;
    int window_cap;
    struct history *histories; /* [n_sequences] */
    struct scratch *scratches; /* [n_threads] */
    struct arena arena;        /* holds all of these and this struct */
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
    return err_set(e, STATUS_FAILED,
                   "the logit of token %d is %f; expected a finite number (info --check finds "
                   "tensors that are not finite)",
                   i, (double)logits[i]);
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
            lanes[l] = logits[i + l] > lanes[l] ? logits[i + l] : lanes[l];
    float maximum = lanes[0];
    for (int l = 1; l < FLOATS; l++)
        maximum = lanes[l] > maximum ? lanes[l] : maximum;
    for (; i < n; i++)
        maximum = logits[i] > maximum ? logits[i] : maximum;
    int first = 0;
    while (logits[first] < maximum)
        first++;
    return first;
}

#define EXP_ROUND 0x1.8p52 /* adding it leaves round(x) in the low mantissa bits */
#define LOG2E     1.4426950408889634
#define LN2_HIGH  0x1.62e42fefap-1 /* few enough bits that n * LN2_HIGH is exact */
#define LN2_LOW   0x1.cf79abc9e3b3ap-40
#define EXP_ZERO  (-709.1) /* -1023 ln 2, where the exponent field becomes 0 */

/* e^x for EXP_ZERO <= x <= 0. */
static inline double exp_in_range(double x)
{
    const double shifted = x * LOG2E + EXP_ROUND;
    const double n = shifted - EXP_ROUND;
    const double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    /* |r| <= ln(2) / 2, where the Taylor series of degree 13 is exact to double precision. */
    const double q = r * r;
    double odd = 1.0 / 6227020800;
    odd = odd * q + 1.0 / 39916800;
    odd = odd * q + 1.0 / 362880;
    odd = odd * q + 1.0 / 5040;
    odd = odd * q + 1.0 / 120;
    odd = odd * q + 1.0 / 6;
    double even = 1.0 / 479001600;
    even = even * q + 1.0 / 3628800;
    even = even * q + 1.0 / 40320;
    even = even * q + 1.0 / 720;
    even = even * q + 1.0 / 24;
    even = even * q + 0.5;
    const double p = ((odd * r + even) * q + r) + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + ((uint64_t)1023 << 52);
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

void logits_exp(double *x, int n)
{
    for (int begin = 0; begin < n; begin += CHUNK) {
        const int end = n - begin < CHUNK ? n : begin + CHUNK;
        /* In a loop of its own, or the compiler makes it a branch of the other. */
        for (int i = begin; i < end; i++)
            x[i] = x[i] > EXP_ZERO ? x[i] : EXP_ZERO;
        for (int i = begin; i < end; i++)
            x[i] = exp_in_range(x[i]);
    }
}

double logits_minus_log(double u)
{
    uint64_t bits;
    double m;
    memcpy(&bits, &u, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    /* log(m) = 2 atanh((m - 1) / (m + 1)): |s| < 0.172, so that ten terms are exact. */
    const double s = (m - 1) / (m + 1), q = s * s;
    double sum = 0;
    for (int i = 21; i >= 3; i -= 2)
        sum = (sum + 1.0 / i) * q;
    const double log_m = 2 * s + 2 * s * sum;
    return -(exponent * LN2_HIGH + (exponent * LN2_LOW + log_m));
}

/* out[i] = logits[i] - offset, and a distance whose exponential is 0 from n up to CHUNK. */
static void load_chunk(const float *logits, int n, double offset, double *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (double)logits[i] - offset;
    for (int i = n; i < CHUNK; i++)
        out[i] = EXP_ZERO;
}

static double add_lanes(const double *lanes)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

enum status logits_log_sum(const float *logits, int n, double *log_sum, struct err *e)
{
    TRY(logits_check(logits, n, e));
    const double max = (double)logits[logits_argmax(logits, n)];
    double lanes[LANES] = {0}, chunk[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        load_chunk(logits + begin, n - begin < CHUNK ? n - begin : CHUNK, max, chunk);
        logits_exp(chunk, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += chunk[i + l];
    }
    *log_sum = max + log(add_lanes(lanes));
    return STATUS_OK;
}

double logits_divergence(const float *p_logits, double p_log_sum, const float *q_logits,
                         double q_log_sum, int n)
{
    double lanes[LANES] = {0}, p[CHUNK], difference[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        const int count = n - begin < CHUNK ? n - begin : CHUNK;
        load_chunk(p_logits + begin, count, p_log_sum, p);
        for (int i = 0; i < count; i++)
            difference[i] = p[i] - ((double)q_logits[begin + i] - q_log_sum);
        for (int i = count; i < CHUNK; i++)
            difference[i] = 0;
        logits_exp(p, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += p[i + l] * difference[i + l];
    }
    const double sum = add_lanes(lanes);
    return sum > 0 ? sum : 0; /* rounding may leave a little less than nothing */
}

/* --- create ----------------------------------------------------------------------------------- */

static bool are_in_range(const struct sampler_params *p)
{
    return p->temperature >= 0 && p->temperature <= DBL_MAX && p->top_k >= 0 && p->top_p >= 0 &&
           p->top_p <= 1 && p->min_p >= 0 && p->min_p <= 1 && p->repeat_penalty > 0 &&
           p->repeat_penalty <= DBL_MAX && p->repeat_last_n >= -1;
}

/* The sampler's place and its buffers, which go to *s; or their count. */
static struct sampler *take_sampler(struct sampler *s, struct arena *a)
{
    const struct sampler_sizes *z = &s->sizes;
    struct sampler *place = arena_take(a, 1, sizeof *place);
    struct history counted_history;
    struct scratch counted;
    s->histories = arena_take(a, z->n_sequences, sizeof *s->histories);
    s->scratches = arena_take(a, z->n_threads, sizeof *s->scratches);
    for (int i = 0; i < z->n_sequences; i++) {
        struct history *h = s->histories ? &s->histories[i] : &counted_history;
        h->window = arena_take(a, s->window_cap, sizeof *h->window);
    }
    for (int i = 0; i < z->n_threads; i++) {
        struct scratch *d = s->scratches ? &s->scratches[i] : &counted;
        d->tokens = arena_take(a, z->n_vocab, sizeof *d->tokens);
        d->weights = arena_take(a, z->n_vocab, sizeof *d->weights);
        d->logits = arena_take(a, z->n_vocab, sizeof *d->logits);
        d->keys = arena_take(a, z->n_vocab, sizeof *d->keys);
    }
    return place;
}

enum status sampler_create(const struct sampler_params *params, const struct sampler_sizes *sizes,
                           struct sampler **out, struct err *e)
{
    assert(sizes->n_vocab > 0 && sizes->n_ctx > 0);
    assert(sizes->n_sequences > 0 && sizes->n_threads > 0);
    assert(are_in_range(params));
    *out = NULL;

    struct sampler sized = {.params = *params, .sizes = *sizes};
    if (params->repeat_penalty != 1)
        sized.window_cap = params->repeat_last_n < 0 || params->repeat_last_n > sizes->n_ctx
                               ? sizes->n_ctx
                               : params->repeat_last_n;
    take_sampler(&sized, &sized.arena);
    TRY(arena_allocate(&sized.arena, "the sampler", e));
    struct sampler *s = take_sampler(&sized, &sized.arena);
    *s = sized;
    for (int i = 0; i < sizes->n_sequences; i++)
        sampler_reset(s, i, 0, 0);
    *out = s;
    return STATUS_OK;
}

void sampler_free(struct sampler *s)
{
    struct arena arena = s ? s->arena : (struct arena){0};
    arena_free(&arena);
}

static struct history *history_of(const struct sampler *s, int sequence)
{
    assert(sequence >= 0 && sequence < s->sizes.n_sequences);
    return &s->histories[sequence];
}

void sampler_reset(struct sampler *s, int sequence, uint64_t seed, uint64_t stream)
{
    struct history *h = history_of(s, sequence);
    rng_seed(&h->rng, seed, stream);
    h->window_len = h->window_next = 0;
}

void sampler_accept(struct sampler *s, int sequence, int token)
{
    struct history *h = history_of(s, sequence);
    assert(token >= 0 && token < s->sizes.n_vocab);
    if (s->window_cap == 0)
        return;
    h->window[h->window_next] = token;
    h->window_next = (h->window_next + 1) % s->window_cap;
    if (h->window_len < s->window_cap)
        h->window_len++;
}

void sampler_copy(struct sampler *s, int from, int to)
{
    const struct history *h = history_of(s, from);
    struct history *copy = history_of(s, to);
    int *window = copy->window;
    *copy = *h;
    copy->window = window;
    if (h->window_len > 0)
        memcpy(window, h->window, h->window_len * sizeof *window);
}

struct rng *sampler_stream(struct sampler *s, int sequence)
{
    return &history_of(s, sequence)->rng;
}

int sampler_recent(const struct sampler *s, int sequence, int32_t *tokens)
{
    const struct history *h = history_of(s, sequence);
    const int first = h->window_next - h->window_len + s->window_cap; /* of a ring */
    for (int i = 0; tokens && i < h->window_len; i++)
        tokens[i] = h->window[(first + i) % s->window_cap];
    return h->window_len;
}

void sampler_set_temperature(struct sampler *s, double temperature)
{
    s->params.temperature = temperature;
    assert(are_in_range(&s->params));
}

/* --- sorting ---------------------------------------------------------------------------------- */

/* Orders as the sampler does: the greater logit first, of equals the lower id. A float's bits
 * order like integers once negative ones are complemented and the sign is turned. */
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

/* --- weights and filters ---------------------------------------------------------------------- */

/* The probabilities of n tokens over the most likely one's. The difference comes first: it is at
 * most 0, so that a tiny temperature can only give e^-infinity. tokens NULL: all from 0. */
static void weigh(const struct scratch *d, const int *tokens, int n, float maximum, double *weights)
{
    const double temperature = d->params->temperature;
    for (int i = 0; i < n; i++) {
        const float logit = d->logits[tokens ? tokens[i] : i];
        weights[i] = ((double)logit - (double)maximum) / temperature;
    }
    logits_exp(weights, n);
}

static double sum_in_order(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static void choose(struct scratch *d, int token, double weight)
{
    d->tokens[d->n_choices] = token;
    d->weights[d->n_choices++] = weight;
}

/* Keeps the best so far in a heap, the least of them on top; sorts them at the end. */
static void choose_top_k(struct scratch *d, int k, float maximum)
{
    uint64_t *keys = d->keys;
    for (int i = 0; i < k; i++)
        keys[i] = key_of(d->logits[i], i);
    make_heap(keys, k);
    float least = d->logits[token_of(keys[0])];
    for (int i = k; i < d->n_vocab; i++) {
        if (d->logits[i] <= least) /* an equal has the higher id, so it loses as well */
            continue;
        keys[0] = key_of(d->logits[i], i);
        sift_down(keys, k, 0);
        least = d->logits[token_of(keys[0])];
    }
    for (int n = k; n > 0; n--) {
        d->tokens[n - 1] = token_of(keys[0]);
        pop(keys, n);
    }
    weigh(d, d->tokens, k, maximum, d->weights);
    d->n_choices = k;
}

/*
 * Top-p of all tokens, which are weighed, sorting no further than needed. A token below the bound
 * is not in the set: those from it on would have to make up more than 1 - top_p, and n_vocab of
 * them could not.
 */
static void keep_top_p_of_all(struct scratch *d, float maximum)
{
    const double total = sum_in_order(d->weights, d->n_vocab);
    const double wanted = d->params->top_p * total;
    const double bound = (1 - d->params->top_p) * (total / d->n_vocab);
    uint64_t *keys = d->keys;
    int n = 0;
    for (int i = 0; i < d->n_vocab; i++)
        if (d->weights[i] >= bound)
            keys[n++] = ~key_of(d->logits[i], i);
    make_heap(keys, n);
    double sum = 0;
    d->n_choices = 0;
    do {
        const int token = token_of(~keys[0]);
        double weight;
        weigh(d, &token, 1, maximum, &weight);
        choose(d, token, weight);
        sum += weight;
        pop(keys, n--);
    } while (n > 0 && sum < wanted);
}

static void filter(struct scratch *d, float maximum)
{
    const struct sampler_params *p = d->params;
    if (p->top_k > 0 && p->top_k < d->n_vocab) {
        choose_top_k(d, p->top_k, maximum);
        const double wanted = p->top_p * sum_in_order(d->weights, d->n_choices);
        double sum = 0;
        int n = 0;
        do
            sum += d->weights[n++];
        while (n < d->n_choices && sum < wanted);
        if (p->top_p < 1)
            d->n_choices = n;
    } else {
        weigh(d, NULL, d->n_vocab, maximum, d->weights);
        for (int i = 0; i < d->n_vocab; i++)
            d->tokens[i] = i;
        d->n_choices = d->n_vocab;
        if (p->top_p < 1)
            keep_top_p_of_all(d, maximum);
    }
    if (p->min_p > 0) { /* the greatest weight is 1, so min_p is the bound itself */
        const int n = d->n_choices;
        d->n_choices = 0;
        for (int i = 0; i < n; i++)
            if (d->weights[i] >= p->min_p)
                choose(d, d->tokens[i], d->weights[i]);
    }
    const double total = sum_in_order(d->weights, d->n_choices);
    for (int i = 0; i < d->n_choices; i++)
        d->weights[i] /= total;
}

/*
 * An exponential race: token i arrives after E_i / weight_i with E_i = -log of its own uniform
 * number, and the first is drawn. That E_i >= 1 - u_i saves most logarithms.
 */
static int draw(const struct scratch *d, struct rng *rng)
{
    const uint64_t high = rng_u32(rng), number = high << 32 | rng_u32(rng);
    double fastest = 0; /* weight over E of the first so far */
    int chosen = 0;
    for (int i = 0; i < d->n_choices; i++) {
        const double u = rng_unit_of(rng_derive(number, (uint64_t)d->tokens[i]));
        if (d->weights[i] <= fastest * (1 - u))
            continue;
        const double speed = d->weights[i] / logits_minus_log(u);
        if (speed > fastest) {
            fastest = speed;
            chosen = i;
        }
    }
    return d->tokens[chosen];
}

enum status sampler_pick(struct sampler *s, int sequence, int thread, const float *logits,
                         int *token, struct err *e)
{
    assert(thread >= 0 && thread < s->sizes.n_threads);
    struct history *h = history_of(s, sequence);
    struct scratch *d = &s->scratches[thread];
    d->params = &s->params;
    d->n_vocab = s->sizes.n_vocab;
    TRY(logits_check(logits, d->n_vocab, e));
    memcpy(d->logits, logits, d->n_vocab * sizeof *logits);
    for (int i = 0; i < h->window_len; i++) {
        const int recent = h->window[i]; /* from the input: a token is penalised once */
        const double l = (double)logits[recent], penalty = d->params->repeat_penalty;
        const double result = l > 0 ? l / penalty : l * penalty;
        /* Saturates, so that no penalty makes a logit infinite. */
        d->logits[recent] = (float)fmin(fmax(result, -(double)FLT_MAX), (double)FLT_MAX);
    }
    const int best = logits_argmax(d->logits, d->n_vocab);
    d->n_choices = 0;
    if (d->params->temperature == 0) {
        choose(d, best, 1);
        *token = best;
        return STATUS_OK;
    }
    filter(d, d->logits[best]);
    *token = draw(d, &h->rng);
    return STATUS_OK;
}

int sampler_choices(const struct sampler *s, int thread, const int **tokens,
                    const double **probabilities)
{
    assert(thread >= 0 && thread < s->sizes.n_threads);
    const struct scratch *d = &s->scratches[thread];
    *tokens = d->tokens;
    *probabilities = d->weights;
    return d->n_choices;
}
