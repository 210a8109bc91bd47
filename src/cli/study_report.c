#include "cli/study_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/columns.h"
#include "cli/study_records.h"
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

/* --- means ----------------------------------------------------------------------------------- */

/* Cells of one mean are neighbours in the plan. */
static bool same_mean(const struct study_cell *a, const struct study_cell *b)
{
    return study_same_variant(a, b) && a->method == b->method && a->taught == b->taught &&
           a->alpha == b->alpha;
}

/* The control of a cell: its seed's MHA checkpoint, trained further for as long. */
static const struct study_cell *control_of(const struct study_plan *plan,
                                           const struct study_cell *cell)
{
    for (int i = 0; i < plan->n && plan->cells[i].method == STUDY_MHA; i++)
        if (plan->cells[i].seed == cell->seed && plan->cells[i].alpha == cell->alpha)
            return &plan->cells[i];
    return NULL;
}

/* Of the cells [first, end), those that are done. */
static struct study_mean mean_of(const struct study_plan *plan, int first, int end)
{
    const struct study_cell *c = &plan->cells[first];
    struct study_mean m = {.kv_heads = c->kv_heads,
                           .latent = c->latent,
                           .variant = c->variant,
                           .method = c->method_name,
                           .taught = c->taught,
                           .alpha = c->alpha,
                           .least = HUGE_VAL,
                           .most = -HUGE_VAL};
    double sum = 0, squares = 0;
    for (int i = first; i < end; i++) {
        const struct study_cell *cell = &plan->cells[i], *control = control_of(plan, cell);
        if (!cell->done)
            continue;
        m.n_seeds++;
        m.cache_bytes_per_token = cell->cache_bytes_per_token;
        sum += cell->bits_per_byte;
        m.least = fmin(m.least, cell->bits_per_byte);
        m.most = fmax(m.most, cell->bits_per_byte);
        m.over_mha +=
            control && control->done ? cell->bits_per_byte - control->bits_per_byte : (double)NAN;
    }
    m.bits_per_byte = sum / m.n_seeds;
    m.over_mha /= m.n_seeds;
    for (int i = first; i < end; i++)
        if (plan->cells[i].done)
            squares += pow(plan->cells[i].bits_per_byte - m.bits_per_byte, 2);
    m.deviation = m.n_seeds > 1 ? sqrt(squares / (m.n_seeds - 1)) : (double)NAN;
    return m;
}

enum status study_means(const struct study_plan *plan, struct study_mean **means, int *n,
                        struct err *e)
{
    *n = 0;
    *means = calloc((size_t)plan->n, sizeof **means);
    if (!*means)
        return err_no_memory(e, "the study's means", (size_t)plan->n * sizeof **means);
    for (int first = 0, end; first < plan->n; first = end) {
        end = first;
        while (end < plan->n && same_mean(&plan->cells[first], &plan->cells[end]))
            end++;
        const struct study_mean m = mean_of(plan, first, end);
        if (m.n_seeds > 0)
            (*means)[(*n)++] = m;
    }
    return STATUS_OK;
}

/* --- tables ---------------------------------------------------------------------------------- */

static enum status print_cells(const struct study_plan *plan, enum table_format format,
                               const struct columns *chosen, struct output *out, struct err *e)
{
    struct report r;
    report_begin(&r, format, chosen->fields, chosen->n, out);
    for (int i = 0; i < plan->n; i++)
        if (plan->cells[i].done)
            report_row(&r, &plan->cells[i]);
    return report_end(&r, e);
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

/* The alphas of all means, rising: alphas [n]. Returns how many there are. */
static int list_alphas(const struct study_mean *means, int n, double *alphas)
{
    int n_alphas = 0;
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < n_alphas && alphas[at] < means[i].alpha)
            at++;
        if (at < n_alphas && alphas[at] == means[i].alpha)
            continue;
        for (int j = n_alphas++; j > at; j--)
            alphas[j] = alphas[j - 1];
        alphas[at] = means[i].alpha;
    }
    return n_alphas;
}

/* The mean at alpha of the line that begins at m; NULL: none. */
static const struct study_mean *mean_at(const struct study_mean *m, const struct study_mean *end,
                                        double alpha)
{
    for (const struct study_mean *at = m; at < end && same_line(m, at); at++)
        if (at->alpha == alpha)
            return at;
    return NULL;
}

/* "2.716 ±0.004": the mean and the deviation of the seeds. */
static void print_mean(struct report *r, const struct study_mean *m)
{
    char cell[64];
    if (!m) {
        report_null(r);
        return;
    }
    int len = snprintf(cell, sizeof cell, "%.3f", m->bits_per_byte);
    if (isfinite(m->deviation))
        len += snprintf(cell + len, sizeof cell - (size_t)len, " ±%.3f", m->deviation);
    report_text(r, (struct text){cell, (size_t)len});
}

#define MOST_ALPHAS (2 * LIST_MAX) /* of cells that are trained further, and from scratch */

static enum status print_matrix(const struct study_mean *means, int n, enum table_format format,
                                struct output *out, struct err *e)
{
    double alphas[MOST_ALPHAS];
    char headings[MOST_ALPHAS][32];
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
    for (const struct study_mean *m = means, *end = means + n; m < end;) {
        const struct study_mean *line = m;
        char name[48];
        name_line(m, name, sizeof name);
        report_string(&r, m->variant);
        report_string(&r, name);
        for (int a = 0; a < n_alphas; a++)
            print_mean(&r, mean_at(line, end, alphas[a]));
        while (m < end && same_line(line, m))
            m++;
    }
    return report_end(&r, e);
}

static enum status print_mean_rows(const struct study_mean *means, int n, enum table_format format,
                                   const struct columns *chosen, struct output *out, struct err *e)
{
    struct report r;
    report_begin(&r, format, chosen->fields, chosen->n, out);
    for (int i = 0; i < n; i++)
        report_row(&r, &means[i]);
    return report_end(&r, e);
}

static void print_json(const struct study_plan *plan, const struct study_mean *means, int n,
                       struct output *out)
{
    struct json j;
    json_init(&j, out, 2);
    json_begin_object(&j, NULL);
    json_begin_array(&j, "cells");
    for (int i = 0; i < plan->n; i++)
        if (plan->cells[i].done)
            report_object(&j, NULL, study_fields, STUDY_N_FIELDS, &plan->cells[i]);
    json_end(&j);
    json_begin_array(&j, "means");
    for (int i = 0; i < n; i++)
        report_object(&j, NULL, mean_fields, REPORT_LENGTH(mean_fields), &means[i]);
    json_end(&j);
    json_end(&j);
    output_puts(out, "\n");
}

enum status study_check_columns(const char *columns, enum table_format format, struct err *e)
{
    const struct table tables[] = {{.fields = study_fields, .n = STUDY_N_FIELDS},
                                   {.fields = mean_fields, .n = REPORT_LENGTH(mean_fields)}};
    if (columns && format == TABLE_JSON)
        return err_set(e, STATUS_USAGE,
                       "--columns is for tables; expected none with --format json");
    return columns_check(columns, format, tables, 2, e);
}

enum status study_report_print(const struct study_plan *plan, const struct study_mean *means, int n,
                               enum table_format format, const char *columns, struct output *out,
                               struct err *e)
{
    struct columns cells, of_means;
    if (format == TABLE_JSON) {
        print_json(plan, means, n, out);
        return STATUS_OK;
    }
    columns_choose(columns, format, study_fields, STUDY_N_FIELDS, &cells);
    columns_choose(columns, format, mean_fields, REPORT_LENGTH(mean_fields), &of_means);
    if (cells.n > 0)
        TRY(print_cells(plan, format, &cells, out, e));
    if (cells.n > 0 && of_means.n > 0 && format != TABLE_JSONL)
        output_puts(out, "\n");
    if (table_is_for_people(format) && !columns)
        return print_matrix(means, n, format, out, e);
    return of_means.n > 0 ? print_mean_rows(means, n, format, &of_means, out, e) : STATUS_OK;
}

/* --- picture --------------------------------------------------------------------------------- */

struct study_lines {
    struct plot_series *series; /* [n] */
    struct plot_point *points;
    char (*names)[64];
    int n;
};

static void fill_lines(struct study_lines *l, const struct study_mean *means, int n)
{
    for (int i = 0; i < n; i++) {
        const struct study_mean *m = &means[i];
        const bool band = m->n_seeds > 1;
        l->points[i] =
            (struct plot_point){m->alpha, band ? m->least : (double)NAN, m->bits_per_byte,
                                band ? m->most : (double)NAN, (double)NAN};
        if (i > 0 && same_line(m - 1, m)) {
            l->series[l->n - 1].n_points++;
            continue;
        }
        char method[48];
        name_line(m, method, sizeof method);
        snprintf(l->names[l->n], sizeof l->names[l->n], "%s, %s", m->variant,
                 m->method == study_methods[STUDY_MHA] ? "trained as long" : method);
        l->series[l->n] =
            (struct plot_series){.name = l->names[l->n], .points = &l->points[i], .n_points = 1};
        l->n++;
    }
}

enum status study_write_plot(const struct study_mean *means, int n, const char *subtitle,
                             const char *path, struct err *e)
{
    const size_t room = (size_t)n + 1; /* a request for nothing may give NULL */
    struct study_lines l = {.series = calloc(room, sizeof *l.series),
                            .points = calloc(room, sizeof *l.points),
                            .names = calloc(room, sizeof *l.names)};
    enum status s = STATUS_OK;
    if (l.series && l.points && l.names) {
        fill_lines(&l, means, n);
        const struct plot plot = {.title = "Uptraining after conversion",
                                  .subtitle = subtitle,
                                  .x_label = "uptraining (% of the steps)",
                                  .y_label = "bits per byte of the held-out part",
                                  .y_near = true,
                                  .mid_label = "mean of the seeds",
                                  .band_label = "least to most",
                                  .series = l.series,
                                  .n_series = l.n};
        s = plot_write(&plot, path, e);
    } else {
        s = err_no_memory(e, "the plot", room * sizeof *l.points);
    }
    free(l.series);
    free(l.points);
    free(l.names);
    return s;
}
