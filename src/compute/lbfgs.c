
#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/linalg.h"

/* A step must lower the value by this share of what the slope promises. */
#define ARMIJO 1e-4
/* Cuts of one step before it is given up. */
#define MAX_CUTS 12

struct state {
    const struct lbfgs *p;
    double *x, value, *gradient;
    double *direction, *next, *next_gradient; /* [n] */
    double *steps, *changes;                  /* [memory, n] of x and of the gradient, in turn */
    double *curvature, *along;                /* [memory] step.change; scratch */
    int n_steps;                              /* so far */
    int left;                                 /* evaluations */
};

size_t lbfgs_scratch(size_t n, int memory)
{
    return (2 * (size_t)memory + 4) * n + 2 * (size_t)memory;
}

static bool evaluate(struct state *s, const double *x, double *value, double *gradient)
{
    return s->left-- > 0 && s->p->evaluate(s->p->arg, x, value, gradient);
}

static void add_scaled(double *y, double a, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* Step i of the last `memory`, counted over all. */
static double *row_of(const struct state *s, double *rows, int i)
{
    return rows + (size_t)(i % s->p->memory) * s->p->n;
}

/* The two loops: direction = -H gradient. */
static void find_direction(struct state *s)
{
    const size_t n = s->p->n;
    const int first = s->n_steps > s->p->memory ? s->n_steps - s->p->memory : 0;
    double *q = s->direction;
    for (size_t i = 0; i < n; i++)
        q[i] = -s->gradient[i];
    for (int i = s->n_steps - 1; i >= first; i--) {
        const int at = i % s->p->memory;
        s->along[at] = linalg_dot(row_of(s, s->steps, i), q, n) / s->curvature[at];
        add_scaled(q, -s->along[at], row_of(s, s->changes, i), n);
    }
    double scale = s->value / linalg_dot(s->gradient, s->gradient, n);
    if (s->n_steps > 0) {
        const double *change = row_of(s, s->changes, s->n_steps - 1);
        scale = s->curvature[(s->n_steps - 1) % s->p->memory] / linalg_dot(change, change, n);
    }
    for (size_t i = 0; i < n; i++)
        q[i] *= scale;
    for (int i = first; i < s->n_steps; i++) {
        const int at = i % s->p->memory;
        const double back = linalg_dot(row_of(s, s->changes, i), q, n) / s->curvature[at];
        add_scaled(q, s->along[at] - back, row_of(s, s->steps, i), n);
    }
}

/* A step along the direction; false if no step lowers the value, or evaluations are used up. */
static bool search(struct state *s)
{
    const size_t n = s->p->n;
    const double slope = linalg_dot(s->direction, s->gradient, n);
    double length = 1, value = 0;
    if (!(slope < 0))
        return false;
    int cut = 0;
    for (; cut < MAX_CUTS; cut++) {
        memcpy(s->next, s->x, n * sizeof *s->next);
        add_scaled(s->next, length, s->direction, n);
        if (!evaluate(s, s->next, &value, s->next_gradient))
            return false;
        if (value <= s->value + ARMIJO * length * slope)
            break;
        const double bend = value - s->value - slope * length; /* NaN cuts, too */
        const double best = -slope * length * length / (2 * bend);
        length = best > length / 10 && best < length / 2 ? best : length / (bend > 0 ? 4 : 10);
    }
    if (cut == MAX_CUTS)
        return false;

    /* It is remembered if the function curves upwards along it. */
    double *step = row_of(s, s->steps, s->n_steps), *change = row_of(s, s->changes, s->n_steps);
    for (size_t i = 0; i < n; i++) {
        step[i] = s->next[i] - s->x[i];
        change[i] = s->next_gradient[i] - s->gradient[i];
    }
    const double curvature = linalg_dot(step, change, n);
    memcpy(s->x, s->next, n * sizeof *s->x);
    memcpy(s->gradient, s->next_gradient, n * sizeof *s->gradient);
    s->value = value;
    if (curvature > 1e-12 * linalg_dot(change, change, n))
        s->curvature[s->n_steps++ % s->p->memory] = curvature;
    return true;
}

double lbfgs_minimise(const struct lbfgs *p, double *x, double *scratch)
{
    assert(p->n >= 1 && p->memory >= 1);
    const size_t n = p->n, memory = (size_t)p->memory;
    struct state s = {.p = p, .x = x, .left = p->evaluations};
    s.gradient = scratch;
    s.direction = s.gradient + n;
    s.next = s.direction + n;
    s.next_gradient = s.next + n;
    s.steps = s.next_gradient + n;
    s.changes = s.steps + memory * n;
    s.curvature = s.changes + memory * n;
    s.along = s.curvature + memory;
    if (!evaluate(&s, x, &s.value, s.gradient))
        return (double)NAN;
    do
        find_direction(&s);
    while (search(&s));
    return s.value;
}
