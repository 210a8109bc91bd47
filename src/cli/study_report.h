/*
 * study_report - a study's cells, and their means over the seeds, in every form; and as a picture.
 */
#ifndef DECODE_CLI_STUDY_REPORT_H
#define DECODE_CLI_STUDY_REPORT_H

#include "base/output.h"
#include "cli/study_plan.h"
#include "show/report.h"

/* Over the seeds of which the cell is done. */
struct study_mean {
    int kv_heads, latent; /* as a cell has them */
    const char *variant, *method;
    bool taught;
    double alpha;
    int n_seeds;
    double bits_per_byte; /* the mean */
    double deviation;     /* of the seeds, n - 1 in its denominator; NaN for one */
    double least, most;
    /* The mean of what each seed has more than its MHA checkpoint trained further for as long; NaN
     * if one of the two is not done. */
    double over_mha;
    uint64_t cache_bytes_per_token; /* f32; the same for all seeds */
};

/* In the order of the plan. *means [*n] is malloc'd. STATUS_NO_MEMORY. */
enum status study_means(const struct study_plan *plan, struct study_mean **means, int *n,
                        struct err *e);

/*
 * Prints the cells that are done, then their means [n]. For people the means are a row for K/V
 * heads and method and a column for each alpha; CSV has them under a header of their own after an
 * empty line, JSON in an object {"cells": [], "means": []}, JSON lines in lines of their own.
 * With `columns` only these of the cells, and of the means, which are rows then in every form; a
 * table without one of them is left out. STATUS_NO_MEMORY.
 */
enum status study_report_print(const struct study_plan *plan, const struct study_mean *means, int n,
                               enum table_format format, const char *columns, struct output *out,
                               struct err *e);

/* Whether cells or means have such columns, see cli/columns.h. */
enum status study_check_columns(const char *columns, enum table_format format, struct err *e);

/*
 * Draws bits per byte over the cache's bytes a token (f32), on a logarithmic axis: a line for each
 * method that converts, of the seeds' mean and without a teacher, and MHA's level; and the same
 * again after 1% of the steps, or where no cell has that after the least share above 0. In
 * study_frontier.c. The failures of plot_write.
 */
enum status study_write_frontier(const struct study_mean *means, int n, const char *subtitle,
                                 const char *path, struct err *e);

/* Draws bits per byte over alpha: a line for K/V heads and method, a band from the least seed to
 * the most. `subtitle` says what was studied. The failures of plot_write. */
enum status study_write_plot(const struct study_mean *means, int n, const char *subtitle,
                             const char *path, struct err *e);

#endif
