#include "model/positions.h"

#include "compute/elementary.h"

#define SINUSOID_BASE 10000.0

/* Rows are filled so many at a time. */
#define ROWS 64

struct positions positions_take(struct arena *a, const struct config *c, const float *factors,
                                int cap)
{
    struct positions p = {.kind = c->position, .cap = cap, .rope = c->rope, .factors = factors};
    if (c->position == POSITION_ROPE)
        p.stride = 2 * (size_t)c->rope.n_dims;
    else if (c->position == POSITION_SINUSOIDAL)
        p.stride = c->d_model;
    else
        return p;
    ARENA_TAKE(p.rows[0], a, cap * p.stride);
    if (c->position == POSITION_ROPE && c->rope.window_base > 0)
        ARENA_TAKE(p.rows[1], a, cap * p.stride);
    return p;
}

/* Fills one table's rows of the positions from .. to - 1. */
static void fill_rows(const struct positions *p, float *rows, double base, double scale, int from,
                      int to)
{
    const bool rotates = p->kind == POSITION_ROPE;
    const int dims = rotates ? p->rope.n_dims : (int)p->stride;
    for (int i = 0; i < dims; i += 2) {
        double rate = elementary_power(base, -(double)i / dims);
        if (rotates)
            rate = scale * rate;
        if (rotates && p->factors)
            rate /= (double)p->factors[i / 2];
        for (int t = from; t < to; t++) {
            float *row = rows + t * p->stride + i;
            double sine, cosine;
            elementary_sine(t * rate, &sine, &cosine);
            if (rotates) {
                /* What kernels.rotate takes: the cosine of each pair's angle twice, then minus and
                 * plus its sine. */
                row[0] = row[1] = (float)cosine;
                row[dims] = (float)-sine;
                row[dims + 1] = (float)sine;
                continue;
            }
            row[0] = (float)sine;
            if (i + 1 < dims)
                row[1] = (float)cosine;
        }
    }
}

void positions_reach(struct positions *p, int n)
{
    assert(n <= p->cap);
    if (n <= p->n_filled || !p->rows[0])
        return;
    const int from = p->n_filled, to = p->cap - n < ROWS ? p->cap : (n + ROWS - 1) / ROWS * ROWS;
    fill_rows(p, p->rows[0], p->kind == POSITION_ROPE ? p->rope.base : SINUSOID_BASE, p->rope.scale,
              from, to);
    if (p->rows[1])
        fill_rows(p, p->rows[1], p->rope.window_base, 1, from, to);
    p->n_filled = to;
}

static float alibi_slope(int head, int n_heads)
{
    int power = 1; /* of two, at most n_heads */
    while (2 * power <= n_heads)
        power *= 2;
    const double exponent =
        head < power ? -8.0 * (head + 1) / power : -8.0 * (2 * (head - power) + 1) / (2 * power);
    return (float)elementary_power(2, exponent);
}

bool positions_bias(const struct config *c, int head, const float *rel, struct attend_bias *out)
{
    if (c->position == POSITION_ALIBI)
        *out = (struct attend_bias){.linear = -alibi_slope(head, c->n_heads)};
    else if (c->position == POSITION_QUADRATIC)
        *out = (struct attend_bias){.centre = rel[2 * head + 1], .square = -rel[2 * head]};
    else
        return false;
    return true;
}
