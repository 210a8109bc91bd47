#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/bench_report.h"
#include "show/plot.h"

static bool same_line(const struct bench_row *a, const struct bench_row *b)
{
    return a->n_kv_heads == b->n_kv_heads && a->type == b->type && a->kv_type == b->kv_type &&
           a->threads == b->threads;
}

/* "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_report *r, const struct bench_row *row, char name[64])
{
    char variant[16], type[8] = "", kv_type[16] = "", threads[24] = "";
    config_variant_name(&r->spec->config, row->n_kv_heads, variant);
    if (r->spec->types.n > 1)
        snprintf(type, sizeof type, " %s", storage_name(row->type));
    if (r->spec->kv_types.n > 1)
        snprintf(kv_type, sizeof kv_type, ", %s KV", storage_name(row->kv_type));
    if (r->spec->threads.n > 1)
        snprintf(threads, sizeof threads, ", %d threads", row->threads);
    snprintf(name, 64, "%s%s%s%s", variant, type, kv_type, threads);
}

static struct plot_series collect(const struct bench_report *r, const struct bench_row *first,
                                  struct plot_point *points, char name[64])
{
    int n = 0;
    for (int i = 0; i < r->bench->n_rows; i++) {
        const struct bench_row *row = &r->bench->rows[i];
        if (row->samples && same_line(row, first))
            points[n++] = (struct plot_point){.x = row->depth,
                                              .low = row->p10_us,
                                              .mid = row->p50_us,
                                              .high = row->p90_us,
                                              .predicted = 1e6 / row->limit_tokens_per_s};
    }
    name_line(r, first, name);
    return (struct plot_series){.name = name, .points = points, .n_points = n};
}

static bool is_first_of_line(const struct bench *b, int i)
{
    for (int k = 0; k < i; k++)
        if (b->rows[k].samples && same_line(&b->rows[k], &b->rows[i]))
            return false;
    return b->rows[i].samples > 0;
}

enum status bench_write_plot(const struct bench_report *r, const char *path, struct err *e)
{
    const struct bench *b = r->bench;
    const size_t n_rows = (size_t)b->n_rows;
    struct plot_series *series = calloc(n_rows + 1, sizeof *series);
    struct plot_point *points = calloc(n_rows * n_rows + 1, sizeof *points);
    char(*names)[64] = calloc(n_rows + 1, sizeof *names);
    enum status s = STATUS_OK;
    if (!series || !points || !names) {
        s = err_no_memory(e, "the plot", n_rows * n_rows * sizeof *points);
    } else {
        int n = 0;
        for (int i = 0; i < b->n_rows; i++) {
            if (!is_first_of_line(b, i))
                continue;
            series[n] = collect(r, &b->rows[i], points + (size_t)n * n_rows, names[n]);
            n++;
        }
        char machine[512];
        bench_machine(r, machine, sizeof machine);
        const struct plot plot = {
            .title = r->subject,
            .subtitle = machine,
            .x_label = "depth (tokens in the KV cache)",
            .y_label = "latency (µs per token)",
            .mid_label = "median",
            .band_label = "p10 to p90",
            .predicted_label = "bytes read, at the measured bandwidth",
            .series = series,
            .n_series = n,
        };
        s = plot_write(&plot, path, e);
    }
    free(series);
    free(points);
    free(names);
    return s;
}
