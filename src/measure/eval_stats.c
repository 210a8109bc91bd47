#include "measure/eval_stats.h"

#include <math.h>
#include <string.h>

#include "base/stats.h"

#define LOG2 0.69314718055994530942

static double sum_of(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* By means of batches of floor(sqrt(n)) neighbours. A shorter last batch counts by its length. */
double eval_mean_error(const double *x, uint64_t n, double mean)
{
    const uint64_t batch = (uint64_t)sqrt((double)n);
    uint64_t batches = 0;
    double squares = 0;
    for (uint64_t begin = 0; begin < n; begin += batch, batches++) {
        const uint64_t len = n - begin < batch ? n - begin : batch;
        const double off = sum_of(x + begin, len) - mean * (double)len;
        squares += off * off;
    }
    if (batches < 2)
        return (double)NAN;
    return sqrt(squares * (double)batches / (double)(batches - 1)) / (double)n;
}

/* The numbers are >= 0, so that their bits order as they do. */
static double percentile_in_place(double *x, uint64_t n, double p)
{
    uint64_t *bits = (void *)x;
    for (uint64_t i = 0; i < n; i++) {
        const double value = x[i];
        memcpy(&bits[i], &value, sizeof value);
    }
    stats_sort(bits, (size_t)n);
    const uint64_t found = stats_percentile(bits, (size_t)n, p);
    double value;
    memcpy(&value, &found, sizeof value);
    return value;
}

static double bits_per_byte(double nll, uint64_t bytes)
{
    return bytes ? nll / LOG2 / (double)bytes : (double)NAN;
}

void eval_summarise(struct eval_tokens *t, struct eval_result *r)
{
    const uint64_t n = r->tokens;
    const double nll = sum_of(t->nll, n);
    r->nll = nll / (double)n;
    r->nll_stderr = eval_mean_error(t->nll, n, r->nll);
    r->perplexity = exp(r->nll);
    r->bits_per_byte = bits_per_byte(nll, r->bytes);
    r->kl_mean = r->kl_p99 = r->top1_agreement = r->bits_per_byte_other = (double)NAN;
    if (!t->kl)
        return;
    uint64_t same = 0;
    for (uint64_t i = 0; i < n; i++)
        same += t->same_top[i];
    r->kl_mean = sum_of(t->kl, n) / (double)n;
    r->kl_p99 = percentile_in_place(t->kl, n, 0.99);
    r->top1_agreement = (double)same / (double)n;
    r->bits_per_byte_other = bits_per_byte(sum_of(t->other_nll, n), r->bytes);
}
