/*
 * A study's cells, and their means over the seeds, in every form; and as a picture.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "cli/columns.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/study.h"
#include "show/plot.h"

static const struct report_field mean_fields[] = {
    {"kv_heads", "K/V heads", MEMBER(study_mean, kv_heads)},
    {"variant", "variant", MEMBER(study_mean, variant)},
    {"method", "method", MEMBER(study_mean, method)},
    {"taught", "taught", MEMBER(study_mean, taught)},
    {"alpha", "% of steps", MEMBER(study_mean, alpha), "%g"},
    {"seeds", "seeds", MEMBER(study_mean, n_seeds)},
    {"bits_per_byte", "bits/byte", MEMBER(study_mean, bits_per_byte), "%.4f"},
    {"deviation", "deviation", MEMBER(study_mean, deviation), "%.4f"},
    {"least", "least", MEMBER(study_mean, least), "%.4f"},
    {"most", "most", MEMBER(study_mean, most), "%.4f"},
    {"over_mha", "over MHA", MEMBER(study_mean, over_mha), "%+.4f"},
    {"latent", NULL, MEMBER(study_mean, latent)},
    {"cache_bytes_per_token", NULL, MEMBER(study_mean, cache_bytes_per_token)},
};

#define N_MEAN_FIELDS REPORT_LENGTH(mean_fields)

enum status study_check_columns(const struct study_options *o, struct err *e)
{
    const struct table tables[] = {{.fields = study_fields, .n = STUDY_N_FIELDS},
                                   {.fields = mean_fields, .n = N_MEAN_FIELDS}};
    if (o->common.columns && o->common.format == TABLE_JSON)
        return err_set(e, STATUS_USAGE,
                       "--columns is for tables; expected none with --format json");
    return columns_check(o->common.columns, (enum table_format)o->common.format, tables, 2, e);
}

/* One line of the means' table: K/V heads, method and teacher. */
static bool same_line(const struct study_mean *a, const struct study_mean *b)
{
    return a->kv_heads == b->kv_heads && a->latent == b->latent && a->method == b->method &&
           a->taught == b->taught;
}

static void name_line(const struct study_mean *m, char *out, size_t size)
{
    snprintf(out, size, "%s%s", m->method, m->taught ? ", taught" : "");
}

/* --- tables ---------------------------------------------------------------------------------- */

#define MOST_ALPHAS (2 * LIST_MAX) /* of cells that are trained further, and from scratch */

/* The alphas of all means, rising. Returns how many there are. */
static int list_alphas(const struct study_mean *means, int n_means, double alphas[MOST_ALPHAS])
{
    int n = 0;
    for (int i = 0; i < n_means; i++) {
        const double alpha = means[i].alpha;
        int at = n;
        while (at > 0 && alphas[at - 1] > alpha)
            at--;
        if (at > 0 && alphas[at - 1] == alpha)
            continue;
        memmove(alphas + at + 1, alphas + at, (size_t)(n++ - at) * sizeof *alphas);
        alphas[at] = alpha;
    }
    return n;
}

/* "2.716 ±0.004": the mean and the deviation of the seeds. */
static void print_mean(struct report *r, const struct study_mean *m)
{
    char cell[64];
    int len = snprintf(cell, sizeof cell, "%.3f", m->bits_per_byte);
    if (isfinite(m->deviation))
        len += snprintf(cell + len, sizeof cell - (size_t)len, " ±%.3f", m->deviation);
    report_text(r, (struct text){cell, (size_t)len});
}

static enum status print_matrix(const struct study_mean *means, int n, enum table_format format,
                                struct output *out, struct err *e)
{
    double alphas[MOST_ALPHAS];
    char headings[MOST_ALPHAS][32], name[48];
    struct report_field columns[2 + MOST_ALPHAS] = {{NULL, "variant", .type = REPORT_TEXT},
                                                    {NULL, "method", .type = REPORT_TEXT}};
    const int n_alphas = list_alphas(means, n, alphas);
    for (int a = 0; a < n_alphas; a++) {
        snprintf(headings[a], sizeof headings[a], "%g%%", alphas[a]);
        columns[2 + a] =
            (struct report_field){NULL, headings[a], .type = REPORT_TEXT, .right = true, .rank = 1};
    }
    struct report r;
    report_begin(&r, format, columns, 2 + n_alphas, out);
    for (const struct study_mean *m = means, *end = m + n; m < end;) {
        const struct study_mean *line = m;
        name_line(m, name, sizeof name);
        report_string(&r, m->variant);
        report_string(&r, name);
        for (int a = 0; a < n_alphas; a++) /* a line's means have rising alphas, too */
            if (m < end && same_line(line, m) && m->alpha == alphas[a])
                print_mean(&r, m++);
            else
                report_null(&r);
    }
    return report_end(&r, e);
}

static void print_json(const struct table *tables, struct output *out)
{
    static const char *const keys[] = {"cells", "means"};
    struct json j;
    json_init(&j, out, 2);
    json_begin_object(&j, NULL);
    for (int t = 0; t < 2; t++) {
        json_begin_array(&j, keys[t]);
        for (int i = 0; i < tables[t].n_rows; i++)
            report_object(&j, NULL, tables[t].fields, tables[t].n,
                          (const char *)tables[t].rows + (size_t)i * tables[t].row_bytes);
        json_end(&j);
    }
    json_end(&j);
    output_puts(out, "\n");
}

/* The cells and the means. */
static enum status print_tables(const struct study_options *o, const struct table *tables,
                                struct output *out, struct err *e)
{
    const enum table_format format = (enum table_format)o->common.format;
    bool first = true;
    for (const struct table *t = tables; t < tables + 2; t++) {
        struct columns chosen;
        columns_choose(o->common.columns, format, t->fields, t->n, &chosen);
        if (chosen.n == 0)
            continue;
        output_puts(out, first || format == TABLE_JSONL ? "" : "\n");
        first = false;
        if (t > tables && table_is_for_people(format) && !o->common.columns)
            return print_matrix(t->rows, t->n_rows, format, out, e);
        TRY(table_print(t, o->common.columns, format, out, e));
    }
    return STATUS_OK;
}

/* --- picture --------------------------------------------------------------------------------- */

static enum status draw_means(const struct study_job *job, const struct study_mean *means, int n,
                              struct err *e)
{
    const struct study_options *o = job->options;
    const int n_seeds = job->plan.n_seeds;
    char subtitle[320];
    snprintf(subtitle, sizeof subtitle,
             "%.100s%s%d steps, %d seed%s, %zu bytes of text, the last %g%% held out",
             o->from ? path_name(o->from) : "", o->from ? ", " : "", o->steps.n_steps, n_seeds,
             plural((uint64_t)n_seeds), job->text.len, 100 * o->steps.val_fraction);
    struct plot plot = {.title = "Uptraining after conversion",
                        .subtitle = subtitle,
                        .x_label = "uptraining (% of the steps)",
                        .y_label = "bits per byte of the held-out part",
                        .y_near = true,
                        .mid_label = "mean of the seeds",
                        .band_label = "least to most"};
    /* As many lines as there are means, at most; a request for nothing may give NULL. */
    const size_t room = (size_t)n + 1;
    struct plot_series *series = calloc(room, sizeof *series);
    struct plot_point *points = calloc(room, sizeof *points);
    char(*names)[80] = calloc(room, sizeof *names);
    enum status s = STATUS_OK;
    if (!series || !points || !names)
        s = err_no_memory(e, "the plot", room * sizeof *points);
    for (int i = 0; i < n && s == STATUS_OK; i++) {
        const struct study_mean *m = &means[i];
        const bool band = m->n_seeds > 1;
        points[i] = (struct plot_point){m->alpha, band ? m->least : (double)NAN, m->bits_per_byte,
                                        band ? m->most : (double)NAN, (double)NAN};
        if (i == 0 || !same_line(m - 1, m)) {
            char *name = names[plot.n_series], method[48];
            name_line(m, method, sizeof method);
            snprintf(name, sizeof *names, "%s, %s", m->variant,
                     m->method == study_methods[STUDY_MHA] ? "trained as long" : method);
            series[plot.n_series++] = (struct plot_series){.name = name, .points = &points[i]};
        }
        series[plot.n_series - 1].n_points++;
    }
    plot.series = series;
    if (s == STATUS_OK)
        s = plot_write(&plot, o->plot, e);
    free(series);
    free(points);
    free(names);
    return s;
}

enum status study_report(const struct study_job *job, struct output *out, struct err *e)
{
    const struct study_options *o = job->options;
    struct study_cell *cells = job->plan.cells;
    struct study_mean *means;
    int n_cells = 0, n_means;
    TRY(study_means(&job->plan, &means, &n_means, e));
    for (int i = 0; i < job->plan.n; i++)
        if (cells[i].done)
            cells[n_cells++] = cells[i];
    const struct table tables[] = {
        {study_fields, STUDY_N_FIELDS, cells, n_cells, sizeof *cells, NULL, NULL},
        {mean_fields, N_MEAN_FIELDS, means, n_means, sizeof *means, NULL, NULL}};
    enum status s = STATUS_OK;
    if (o->common.format == TABLE_JSON)
        print_json(tables, out);
    else
        s = print_tables(o, tables, out, e);
    if (s == STATUS_OK && o->plot)
        s = draw_means(job, means, n_means, e);
    free(means);
    return s;
}
