#include "compute/lbfgs.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/linalg.h"

/* A step must lower the value by this share of what the slope promises. */
#define ARMIJO 1e-4
/* Cuts of one step before it is given up. */
#define MAX_CUTS 12

/* A search on its way. */
struct search {
    const struct lbfgs *p;
    double *x; /* [n] where it is, the value there, and the gradient [n] */
    double value;
    double *gradient;
    double *direction, *next, *next_gradient; /* [n] */
    double *steps, *changes;                  /* [memory, n] of x and of the gradient, in turn */
    double *curvature, *along;                /* [memory] step.change; scratch */
    size_t n_steps;                           /* so far */
    int left;                                 /* evaluations */
};

size_t lbfgs_scratch(size_t n, size_t memory)
{
    return (2 * memory + 4) * n + 2 * memory;
}

static bool ask(struct search *s, const double *x, double *value, double *gradient)
{
    return s->left-- > 0 && s->p->evaluate(s->p->arg, x, value, gradient);
}

/* The two loops: direction = -H gradient. */
static void find_direction(struct search *s)
{
    const size_t n = s->p->n, memory = s->p->memory;
    const size_t first = s->n_steps > memory ? s->n_steps - memory : 0;
    double *q = s->direction;
    for (size_t i = 0; i < n; i++)
        q[i] = -s->gradient[i];
    for (size_t i = s->n_steps; i-- > first;) {
        const size_t at = i % memory;
        s->along[at] = linalg_dot(s->steps + at * n, q, n) / s->curvature[at];
        linalg_add_scaled(q, -s->along[at], s->changes + at * n, n);
    }
    double scale = s->value / linalg_dot(s->gradient, s->gradient, n);
    if (s->n_steps > 0) {
        const size_t last = (s->n_steps - 1) % memory;
        const double *change = s->changes + last * n;
        scale = s->curvature[last] / linalg_dot(change, change, n);
    }
    linalg_scale(q, scale, n);
    for (size_t i = first; i < s->n_steps; i++) {
        const size_t at = i % memory;
        const double back = linalg_dot(s->changes + at * n, q, n) / s->curvature[at];
        linalg_add_scaled(q, s->along[at] - back, s->steps + at * n, n);
    }
}

/* A step along the direction; false if no step lowers the value, or evaluations are used up. */
static bool search(struct search *s)
{
    const size_t n = s->p->n, at = s->n_steps % s->p->memory;
    const double slope = linalg_dot(s->direction, s->gradient, n);
    double length = 1, value = 0;
    int cut = 0;
    if (!(slope < 0))
        return false;
    for (; cut < MAX_CUTS; cut++) {
        memcpy(s->next, s->x, n * sizeof *s->next);
        linalg_add_scaled(s->next, length, s->direction, n);
        if (!ask(s, s->next, &value, s->next_gradient))
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
    double *step = s->steps + at * n, *change = s->changes + at * n;
    for (size_t i = 0; i < n; i++) {
        step[i] = s->next[i] - s->x[i];
        change[i] = s->next_gradient[i] - s->gradient[i];
    }
    memcpy(s->x, s->next, n * sizeof *s->x);
    memcpy(s->gradient, s->next_gradient, n * sizeof *s->gradient);
    const bool goes_on = s->value - value >= s->p->enough * s->value;
    s->value = value;
    const double curvature = linalg_dot(step, change, n);
    if (curvature > 1e-12 * linalg_dot(change, change, n)) {
        s->curvature[at] = curvature;
        s->n_steps++;
    }
    return goes_on;
}

double lbfgs_minimise(const struct lbfgs *p, double *x, double *scratch)
{
    assert(p->n >= 1 && p->memory >= 1);
    const size_t n = p->n, memory = p->memory;
    struct search s = {.p = p, .x = x, .left = p->evaluations};
    s.gradient = scratch;
    s.direction = s.gradient + n;
    s.next = s.direction + n;
    s.next_gradient = s.next + n;
    s.steps = s.next_gradient + n;
    s.changes = s.steps + memory * n;
    s.curvature = s.changes + memory * n;
    s.along = s.curvature + memory;
    if (!ask(&s, x, &s.value, s.gradient))
        return (double)NAN;
    do
        find_direction(&s);
    while (search(&s));
    return s.value;
}
