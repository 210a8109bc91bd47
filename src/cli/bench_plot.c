#include <stdio.h>
#include <stdlib.h>

#include "cli/bench_report.h"
#include "show/plot.h"

/* Room for a line's name. */
#define LINE_NAME 96

/* "MHA", and what else tells the lines of this run apart. */
static void name_line(const struct bench_report *r, const struct bench_row *row,
                      char name[LINE_NAME])
{
    char variant[16], type[8] = "", kv_type[16] = "", threads[24] = "", batch[24] = "";
    const struct config config = bench_variant(r->spec, row->variant);
    config_variant_name(&config, row->n_kv_heads, variant);
    if (r->spec->types.n > 1)
        snprintf(type, sizeof type, " %s", storage_name(row->type));
    if (r->spec->kv_types.n > 1)
        snprintf(kv_type, sizeof kv_type, ", %s KV", storage_name(row->kv_type));
    if (r->spec->threads.n > 1)
        snprintf(threads, sizeof threads, ", %d threads", row->threads);
    if (r->spec->batches.n > 1 && !bench_is_over_batch(r->spec))
        snprintf(batch, sizeof batch, ", batch %d", row->batch);
    snprintf(name, LINE_NAME, "%s%s%s%s%s", variant, type, kv_type, threads, batch);
}

/* Room for any plot of the report. */
struct bench_lines {
    struct plot_series *series; /* [n] */
    int n;
    struct plot_point *points;
    char (*names)[LINE_NAME];
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

/* Microseconds a token, a step's divided by its tokens, against depth or batch. */
static struct plot_point make_point(const struct bench_report *r, const struct bench_row *row)
{
    const double b = row->batch;
    return (struct plot_point){bench_is_over_batch(r->spec) ? b : row->depth, row->p10_us / b,
                               row->us_per_token, row->p90_us / b, row->predicted.us / b};
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
            *p++ = make_point(r, row);
            series->n_points++;
        }
        l->n += series->n_points > 0;
    }
}

/* label [64] is room for what depends on the depth. */
static void name_x_axis(const struct bench_report *r, struct plot *plot, char *label)
{
    plot->x_doubles = bench_is_over_batch(r->spec);
    plot->x_label = plot->x_doubles ? label : "depth (tokens in the KV cache)";
    snprintf(label, 64, "batch (sequences in a step, each at depth %d)", r->spec->depths.items[0]);
}

enum status bench_write_plot(const struct bench_report *r, const char *path, struct err *e)
{
    struct bench_lines l = {.n = 0};
    enum status s = allocate_lines(r->bench, &l, e);
    if (s == STATUS_OK) {
        char machine[512], label[64];
        fill_lines(r, &l);
        bench_machine(r, machine, sizeof machine);
        struct plot plot = {
            .title = r->subject,
            .subtitle = machine,
            .y_label = "latency (µs per token)",
            .mid_label = "median",
            .band_label = "p10 to p90",
            .predicted_label = "limit by measured bandwidth and arithmetic",
            .series = l.series,
            .n_series = l.n,
        };
        name_x_axis(r, &plot, label);
        s = plot_write(&plot, path, e);
    }
    free(l.series);
    free(l.points);
    free(l.names);
    return s;
}
