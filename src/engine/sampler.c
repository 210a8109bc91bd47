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
#include "base/rng.h"
#include "engine/logits.h"

struct sampler {
    struct sampler_params params;
    struct rng rng;
    int n_vocab;
    int window_cap, window_len, window_next; /* the window is a ring */
    int n_choices;      /* what is still in the draw, sorted by rank after top-k or top-p: */
    int *tokens;        /* [n_vocab] */
    double *weights;    /* [n_vocab] */
    float *logits;      /* [n_vocab] penalised */
    uint64_t *keys;     /* [n_vocab] scratch for sorting, see key_of */
    int *window;        /* [window_cap] */
    struct arena arena; /* holds all of these and this struct */
};

/* --- create ----------------------------------------------------------------------------------- */

/* Written so that a NaN fails each of them. */
static enum status check_params(const struct sampler_params *p, struct err *e)
{
    if (!(p->temperature >= 0 && p->temperature <= DBL_MAX))
        return err_set(e, STATUS_USAGE, "temperature must be a number from 0, not %g",
                       p->temperature);
    if (p->top_k < 0)
        return err_set(e, STATUS_USAGE, "top_k must be 0 (off) or more, not %d", p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return err_set(e, STATUS_USAGE, "top_p must be from 0 to 1, not %g", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(e, STATUS_USAGE, "min_p must be from 0 to 1, not %g", p->min_p);
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= DBL_MAX))
        return err_set(e, STATUS_USAGE, "repeat_penalty must be a number above 0, not %g",
                       p->repeat_penalty);
    if (p->repeat_last_n < -1)
        return err_set(e, STATUS_USAGE, "repeat_last_n must be -1 (all), 0 (none) or more, not %d",
                       p->repeat_last_n);
    return STATUS_OK;
}

static int window_size(const struct sampler_params *p, int n_ctx)
{
    if (p->repeat_penalty == 1)
        return 0;
    return p->repeat_last_n < 0 || p->repeat_last_n > n_ctx ? n_ctx : p->repeat_last_n;
}

/* The sampler's place and its buffers, which go to *s; or their count. */
static struct sampler *take_sampler(struct sampler *s, struct arena *a)
{
    const uint64_t n = (uint64_t)s->n_vocab;
    struct sampler *place = arena_take(a, 1, sizeof *place);
    s->tokens = arena_take(a, n, sizeof *s->tokens);
    s->weights = arena_take(a, n, sizeof *s->weights);
    s->logits = arena_take(a, n, sizeof *s->logits);
    s->keys = arena_take(a, n, sizeof *s->keys);
    s->window = arena_take(a, (uint64_t)s->window_cap, sizeof *s->window);
    return place;
}

enum status sampler_create(const struct sampler_params *params, int n_vocab, int n_ctx,
                           struct sampler **out, struct err *e)
{
    assert(n_vocab > 0 && n_ctx > 0);
    *out = NULL;
    TRY(check_params(params, e));

    struct sampler sized = {
        .params = *params, .n_vocab = n_vocab, .window_cap = window_size(params, n_ctx)};
    take_sampler(&sized, &sized.arena);
    TRY(arena_allocate(&sized.arena, "the sampler", e));
    struct sampler *s = take_sampler(&sized, &sized.arena);
    *s = sized;
    sampler_reset(s, params->stream);
    *out = s;
    return STATUS_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    struct arena arena = s->arena;
    arena_free(&arena);
}

void sampler_reset(struct sampler *s, uint64_t stream)
{
    rng_seed(&s->rng, s->params.seed, stream);
    s->window_len = 0;
    s->window_next = 0;
    s->n_choices = 0;
}

void sampler_accept(struct sampler *s, int token)
{
    assert(token >= 0 && token < s->n_vocab);
    if (s->window_cap == 0)
        return;
    s->window[s->window_next] = token;
    s->window_next = (s->window_next + 1) % s->window_cap;
    if (s->window_len < s->window_cap)
        s->window_len++;
}

/* --- the penalised logits --------------------------------------------------------------------- */

/* Saturates, so that no penalty makes a logit infinite. */
static float penalised(float logit, double penalty)
{
    const double l = (double)logit;
    const double result = l > 0 ? l / penalty : l * penalty;
    return (float)fmin(fmax(result, -(double)FLT_MAX), (double)FLT_MAX);
}

static void load_logits(struct sampler *s, const float *logits)
{
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    for (int i = 0; i < s->window_len; i++) {
        const int token = s->window[i]; /* from the input: a token is penalised once */
        s->logits[token] = penalised(logits[token], s->params.repeat_penalty);
    }
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
static void weigh(const struct sampler *s, const int *tokens, int n, float maximum, double *weights)
{
    const double temperature = s->params.temperature;
    for (int i = 0; i < n; i++) {
        const float logit = s->logits[tokens ? tokens[i] : i];
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

static void choose(struct sampler *s, int token, double weight)
{
    s->tokens[s->n_choices] = token;
    s->weights[s->n_choices++] = weight;
}

static void choose_all(struct sampler *s, float maximum)
{
    const int n = s->n_vocab;
    weigh(s, NULL, n, maximum, s->weights);
    for (int i = 0; i < n; i++)
        s->tokens[i] = i;
    s->n_choices = n;
}

/* Keeps the best so far in a heap, the least of them on top; sorts them at the end. */
static void choose_top_k(struct sampler *s, int k, float maximum)
{
    uint64_t *keys = s->keys;
    for (int i = 0; i < k; i++)
        keys[i] = key_of(s->logits[i], i);
    make_heap(keys, k);
    float least = s->logits[token_of(keys[0])];
    for (int i = k; i < s->n_vocab; i++) {
        if (s->logits[i] <= least) /* an equal has the higher id, so it loses as well */
            continue;
        keys[0] = key_of(s->logits[i], i);
        sift_down(keys, k, 0);
        least = s->logits[token_of(keys[0])];
    }
    for (int n = k; n > 0; n--) {
        s->tokens[n - 1] = token_of(keys[0]);
        pop(keys, n);
    }
    weigh(s, s->tokens, k, maximum, s->weights);
    s->n_choices = k;
}

static void keep_top_p_sorted(struct sampler *s)
{
    const double wanted = s->params.top_p * sum_in_order(s->weights, s->n_choices);
    double sum = 0;
    int n = 0;
    do
        sum += s->weights[n++];
    while (n < s->n_choices && sum < wanted);
    s->n_choices = n;
}

/*
 * The same after choose_all, sorting no further than needed. A token below the bound is not in the
 * set: those from it on would have to make up more than 1 - top_p, and n_vocab of them could not.
 */
static void keep_top_p_of_all(struct sampler *s, float maximum)
{
    const double total = sum_in_order(s->weights, s->n_vocab);
    const double wanted = s->params.top_p * total;
    const double bound = (1 - s->params.top_p) * (total / s->n_vocab);
    uint64_t *keys = s->keys;
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (s->weights[i] >= bound)
            keys[n++] = ~key_of(s->logits[i], i);
    make_heap(keys, n);
    double sum = 0;
    s->n_choices = 0;
    do {
        const int token = token_of(~keys[0]);
        double weight;
        weigh(s, &token, 1, maximum, &weight);
        choose(s, token, weight);
        sum += weight;
        pop(keys, n--);
    } while (n > 0 && sum < wanted);
}

/* The greatest weight is 1, so min_p is the bound itself. */
static void keep_min_p(struct sampler *s)
{
    const int n = s->n_choices;
    s->n_choices = 0;
    for (int i = 0; i < n; i++)
        if (s->weights[i] >= s->params.min_p)
            choose(s, s->tokens[i], s->weights[i]);
}

static void filter(struct sampler *s, float maximum)
{
    const struct sampler_params *p = &s->params;
    const bool by_k = p->top_k > 0 && p->top_k < s->n_vocab;
    if (by_k)
        choose_top_k(s, p->top_k, maximum);
    else
        choose_all(s, maximum);
    if (p->top_p < 1 && by_k)
        keep_top_p_sorted(s);
    else if (p->top_p < 1)
        keep_top_p_of_all(s, maximum);
    if (p->min_p > 0)
        keep_min_p(s);
}

static void normalise(struct sampler *s)
{
    const double total = sum_in_order(s->weights, s->n_choices);
    for (int i = 0; i < s->n_choices; i++)
        s->weights[i] /= total;
}

static int draw(struct sampler *s)
{
    const double u = rng_unit(&s->rng);
    double sum = 0;
    int chosen = 0;
    for (int i = 0; i < s->n_choices; i++) {
        if (s->weights[i] > 0) /* rounding may leave the whole sum below u */
            chosen = i;
        sum += s->weights[i];
        if (u < sum)
            break;
    }
    return s->tokens[chosen];
}

enum status sampler_pick(struct sampler *s, const float *logits, int *token, struct err *e)
{
    TRY(logits_check(logits, s->n_vocab, e));
    load_logits(s, logits);
    const int best = logits_argmax(s->logits, s->n_vocab);
    s->n_choices = 0;
    if (s->params.temperature == 0) {
        choose(s, best, 1);
        *token = best;
        return STATUS_OK;
    }
    filter(s, s->logits[best]);
    normalise(s);
    *token = draw(s);
    return STATUS_OK;
}

int sampler_choices(const struct sampler *s, const int **tokens, const double **probabilities)
{
    *tokens = s->tokens;
    *probabilities = s->weights;
    return s->n_choices;
}
