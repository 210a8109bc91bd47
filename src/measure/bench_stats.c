#include "measure/bench_stats.h"

#include <math.h>
#include <string.h>

#include "base/stats.h"

static void sort_copy(uint64_t *out, const uint64_t *times, int n)
{
    memcpy(out, times, (size_t)n * sizeof *out);
    stats_sort(out, (size_t)n);
}

static double spread_of_medians(const struct bench_row *row, int n, uint64_t *sorted)
{
    double least = (double)INFINITY, largest = 0;
    for (int r = 0; r < row->repeats; r++) {
        sort_copy(sorted, row->times_ns + (size_t)r * (size_t)n, n);
        const double median = (double)stats_percentile(sorted, (size_t)n, 0.5);
        least = median < least ? median : least;
        largest = median > largest ? median : largest;
    }
    return row->repeats > 1 ? (largest - least) / least : 0;
}

void bench_summarise(struct bench_row *row, int n, uint64_t *sorted)
{
    const int samples = row->samples;
    const size_t n_samples = (size_t)samples;
    if (samples == 0)
        return;
    row->spread = spread_of_medians(row, n, sorted);
    sort_copy(sorted, row->times_ns, samples);
    double sum = 0;
    for (int i = 0; i < samples; i++)
        sum += (double)sorted[i];
    row->p10_us = (double)stats_percentile(sorted, n_samples, 0.1) / 1e3;
    row->p50_us = (double)stats_percentile(sorted, n_samples, 0.5) / 1e3;
    row->p90_us = (double)stats_percentile(sorted, n_samples, 0.9) / 1e3;
    row->p99_us = (double)stats_percentile(sorted, n_samples, 0.99) / 1e3;
    row->max_us = (double)sorted[samples - 1] / 1e3;
    row->mean_us = sum / samples / 1e3;
    row->us_per_token = row->p50_us / row->batch;
    row->tokens_per_s = row->batch * 1e6 / row->mean_us;
    row->gb_per_s = (double)cost_step_bytes(&row->cost, row->batch) / row->p50_us / 1e3;
}

static const struct bench_row *find_mha(const struct bench *b, const struct bench_row *row,
                                        int n_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *m = &b->rows[i];
        if (m->n_kv_heads == n_heads && m->type == row->type && m->kv_type == row->kv_type &&
            m->threads == row->threads && m->depth == row->depth && m->batch == row->batch)
            return m;
    }
    return NULL;
}

void bench_compare(struct bench *b, int n_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *mha = find_mha(b, row, n_heads);
        row->speedup = row->predicted_speedup = (double)NAN;
        if (!mha)
            continue;
        /* Of one sequence bytes are the limit, and need no measurement. */
        row->predicted_speedup = row->batch == 1 ? (double)cost_step_bytes(&mha->cost, 1) /
                                                       (double)cost_step_bytes(&row->cost, 1)
                                                 : mha->predicted_us / row->predicted_us;
        if (mha->samples && row->samples)
            row->speedup = mha->p50_us / row->p50_us;
    }
}
