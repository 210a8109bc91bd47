#include <stdio.h>
#include <stdlib.h>

#include "cli/bench_report.h"
#include "show/plot.h"

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

/* Room for any plot of the report. */
struct bench_lines {
    struct plot_series *series; /* [n] */
    int n;
    struct plot_point *points;
    char (*names)[64];
};

static enum status allocate_lines(const struct bench *b, struct bench_lines *l, struct err *e)
{
    /* One more of each: a request for nothing may give NULL. */
    const size_t n_lines = (size_t)b->n_lines + 1, n_rows = (size_t)b->n_rows + 1;
    l->series = calloc(n_lines, sizeof *l->series);
    l->points = calloc(n_rows, sizeof *l->points);
    l->names = calloc(n_lines, sizeof *l->names);
    return l->series && l->points && l->names
               ? STATUS_OK
               : err_no_memory(e, "the plot", n_rows * sizeof *l->points);
}

/* A series for each line of which something was measured. */
static void fill_lines(const struct bench_report *r, struct bench_lines *l)
{
    struct plot_point *p = l->points;
    for (int line = 0; line < r->bench->n_lines; line++) {
        struct plot_series *series = &l->series[l->n];
        *series = (struct plot_series){.name = l->names[l->n], .points = p};
        for (int i = 0; i < r->bench->n_rows; i++) {
            const struct bench_row *row = &r->bench->rows[i];
            if (!row->samples || row->line != line)
                continue;
            name_line(r, row, l->names[l->n]);
            *p++ = (struct plot_point){row->depth, row->p10_us, row->p50_us, row->p90_us,
                                       1e6 / row->limit_tokens_per_s};
            series->n_points++;
        }
        l->n += series->n_points > 0;
    }
}

enum status bench_write_plot(const struct bench_report *r, const char *path, struct err *e)
{
    struct bench_lines l = {.n = 0};
    enum status s = allocate_lines(r->bench, &l, e);
    if (s == STATUS_OK) {
        char machine[512];
        fill_lines(r, &l);
        bench_machine(r, machine, sizeof machine);
        const struct plot plot = {
            .title = r->subject,
            .subtitle = machine,
            .x_label = "depth (tokens in the KV cache)",
            .y_label = "latency (µs per token)",
            .mid_label = "median",
            .band_label = "p10 to p90",
            .predicted_label = "bytes read, at the measured bandwidth",
            .series = l.series,
            .n_series = l.n,
        };
        s = plot_write(&plot, path, e);
    }
    free(l.series);
    free(l.points);
    free(l.names);
    return s;
}
