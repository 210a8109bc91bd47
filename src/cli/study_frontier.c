#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/study_report.h"
#include "show/plot.h"

/* The share of uptraining that is drawn beside none, where there is one. */
#define PREFERRED_ALPHA 1.0

/* Of each method: as converted, and after uptraining. */
#define MOST_SERIES (2 * STUDY_N_METHODS)

struct frontier {
    const struct study_mean *means; /* [n] */
    int n;
    double after;       /* percent of the steps; NaN: none */
    double least_bytes; /* of all that is drawn */
    struct plot_point *points,
        *next_point; /* malloc'd, [n and MHA's second points]; the free one */
    struct plot_series series[MOST_SERIES];
    char names[MOST_SERIES][48];
    int n_series;
};

static bool is_drawn(const struct study_mean *m)
{
    return !m->taught && m->method != study_methods[STUDY_SCRATCH];
}

static void find_ends(struct frontier *f)
{
    f->after = f->least_bytes = (double)NAN;
    for (int i = 0; i < f->n; i++) {
        const struct study_mean *m = &f->means[i];
        if (!is_drawn(m))
            continue;
        f->least_bytes = fmin(f->least_bytes, (double)m->cache_bytes_per_token);
        if (m->alpha == PREFERRED_ALPHA)
            f->after = PREFERRED_ALPHA;
        else if (m->alpha > 0 && f->after != PREFERRED_ALPHA)
            f->after = fmin(f->after, m->alpha);
    }
}

/* A mean at `bytes` a token; MHA's level is what others are compared with at any cache. */
static void add_point(struct frontier *f, const struct study_mean *m, double bytes, bool is_level)
{
    const double none = (double)NAN, level = is_level ? m->bits_per_byte : none;
    const bool elsewhere = bytes < (double)m->cache_bytes_per_token;
    *f->next_point++ =
        (struct plot_point){bytes, none, elsewhere ? none : m->bits_per_byte, none, level};
}

/* The line of a method at one share of uptraining; without points where there is nothing of it, so
 * that a method has its colour whatever others there are. */
static void add_series(struct frontier *f, enum study_method method, double alpha, bool again)
{
    struct plot_series *s = &f->series[f->n_series];
    char *name = f->names[f->n_series++];
    const char *shown = method == STUDY_MHA ? "MHA" : study_methods[method];
    *s = (struct plot_series){.name = name, .points = f->next_point, .again = again};
    for (int i = 0; i < f->n; i++) {
        const struct study_mean *m = &f->means[i];
        const double bytes = (double)m->cache_bytes_per_token;
        if (!is_drawn(m) || m->method != study_methods[method] || m->alpha != alpha)
            continue;
        add_point(f, m, bytes, method == STUDY_MHA);
        if (method == STUDY_MHA && f->least_bytes < bytes)
            add_point(f, m, f->least_bytes, true);
    }
    s->n_points = (int)(f->next_point - s->points);
    if (again)
        snprintf(name, sizeof f->names[0], "%s after %g%%", shown, alpha);
    else
        snprintf(name, sizeof f->names[0], "%s", shown);
}

/* In the order of the colours, of which the first differ most. */
static void fill_series(struct frontier *f)
{
    static const enum study_method methods[] = {STUDY_MHA,       STUDY_MEAN,   STUDY_FIRST,
                                                STUDY_FIT,       STUDY_LATENT, STUDY_RANDOM,
                                                STUDY_PROCRUSTES};
    _Static_assert(sizeof methods / sizeof *methods == STUDY_SCRATCH, "all but from scratch");
    find_ends(f);
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        add_series(f, methods[m], 0, false);
        add_series(f, methods[m], f->after, true);
    }
}

static enum status draw(struct frontier *f, const char *subtitle, const char *path, struct err *e)
{
    char after[64];
    const int seeds = f->n > 0 ? f->means[0].n_seeds : 0;
    fill_series(f);
    snprintf(after, sizeof after, "after uptraining for %g%% of the steps", f->after);
    const struct plot plot = {.title = "Bits per byte over the size of the cache",
                              .subtitle = subtitle,
                              .x_label = "cache (bytes per token, f32)",
                              .x_doubles = true,
                              .y_label = "bits per byte of the held-out part",
                              .y_near = true,
                              .mid_label =
                                  seeds > 1 ? "as converted, mean of the seeds" : "as converted",
                              .predicted_label = "MHA's level",
                              .again_label = after,
                              .series = f->series,
                              .n_series = f->n_series};
    return plot_write(&plot, path, e);
}

enum status study_write_frontier(const struct study_mean *means, int n, const char *subtitle,
                                 const char *path, struct err *e)
{
    struct frontier f = {.means = means, .n = n};
    f.points = f.next_point = calloc((size_t)n + 2, sizeof *f.points);
    const enum status s = f.points ? draw(&f, subtitle, path, e)
                                   : err_no_memory(e, "the plot", (size_t)n * sizeof *f.points);
    free(f.points);
    return s;
}
