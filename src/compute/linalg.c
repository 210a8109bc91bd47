#include "compute/linalg.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/contract.h"

/* --- products -------------------------------------------------------------------------------- */

/* c0 and c1 are two rows of the result; four rows of b a pass, to load and store c less often. */
static void add_two_rows(const struct linalg_product *p, int i)
{
    const double *a0 = p->a + (size_t)i * p->a_row, *a1 = a0 + p->a_row;
    double *restrict c0 = p->c + (size_t)i * p->c_stride, *restrict c1 = c0 + p->c_stride;
    int t = 0;
    for (; t + 4 <= p->inner; t += 4) {
        const double *b0 = p->b + (size_t)t * p->b_stride, *b1 = b0 + p->b_stride;
        const double *b2 = b1 + p->b_stride, *b3 = b2 + p->b_stride;
        const size_t at = (size_t)t * p->a_inner;
        const double x0 = a0[at], x1 = a0[at + p->a_inner];
        const double x2 = a0[at + 2 * p->a_inner], x3 = a0[at + 3 * p->a_inner];
        const double y0 = a1[at], y1 = a1[at + p->a_inner];
        const double y2 = a1[at + 2 * p->a_inner], y3 = a1[at + 3 * p->a_inner];
        for (int j = 0; j < p->columns; j++) {
            c0[j] = c0[j] + x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j];
            c1[j] = c1[j] + y0 * b0[j] + y1 * b1[j] + y2 * b2[j] + y3 * b3[j];
        }
    }
    for (; t < p->inner; t++) {
        const double *b = p->b + (size_t)t * p->b_stride;
        const double x = a0[(size_t)t * p->a_inner], y = a1[(size_t)t * p->a_inner];
        for (int j = 0; j < p->columns; j++) {
            c0[j] += x * b[j];
            c1[j] += y * b[j];
        }
    }
}

static void add_row(const struct linalg_product *p, int i)
{
    double *restrict c = p->c + (size_t)i * p->c_stride;
    for (int t = 0; t < p->inner; t++) {
        const double *b = p->b + (size_t)t * p->b_stride;
        const double x = p->a[(size_t)i * p->a_row + (size_t)t * p->a_inner];
        for (int j = 0; j < p->columns; j++)
            c[j] += x * b[j];
    }
}

/* Rows of b that stay in the cache while the rows of a pass. */
#define INNER_BLOCK 64

static bool matrices_disjoint(const double *a, int a_rows, int a_columns, const double *b,
                              int b_rows, int b_columns)
{
    return are_disjoint(a, (size_t)a_rows * a_columns * sizeof *a, b,
                        (size_t)b_rows * b_columns * sizeof *b);
}

void linalg_add_product(const struct linalg_product *p, int first, int end)
{
    assert(0 <= first && first <= end && p->inner >= 0 && p->columns >= 0);
    assert(p->c && p->a && p->b && p->c != p->a && p->c != p->b);
    assert(p->c_stride >= (size_t)p->columns && p->b_stride >= (size_t)p->columns);
    for (int done = 0; done < p->inner; done += INNER_BLOCK) {
        struct linalg_product part = *p;
        part.a += (size_t)done * p->a_inner;
        part.b += (size_t)done * p->b_stride;
        part.inner = p->inner - done < INNER_BLOCK ? p->inner - done : INNER_BLOCK;
        int i = first;
        for (; i + 2 <= end; i += 2)
            add_two_rows(&part, i);
        for (; i < end; i++)
            add_row(&part, i);
    }
}

void linalg_multiply(double *c, const double *a, const double *b, int m, int k, int n)
{
    assert(m >= 0 && k >= 0 && n >= 0);
    assert_costly(matrices_disjoint(c, m, n, a, m, k) && matrices_disjoint(c, m, n, b, k, n));
    memset(c, 0, (size_t)m * n * sizeof *c);
    const struct linalg_product p = {.c = c,
                                     .c_stride = n,
                                     .a = a,
                                     .a_row = k,
                                     .a_inner = 1,
                                     .b = b,
                                     .b_stride = n,
                                     .inner = k,
                                     .columns = n};
    linalg_add_product(&p, 0, m);
}

void linalg_transpose(double *t, const double *a, int m, int n)
{
    assert(m >= 0 && n >= 0 && t && a);
    assert_costly(matrices_disjoint(t, n, m, a, m, n));
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            t[(size_t)j * m + (size_t)i] = a[(size_t)i * n + (size_t)j];
}

#define DOT_LANES 8

double linalg_dot(const double *a, const double *b, size_t n)
{
    double sums[DOT_LANES] = {0};
    size_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int lane = 0; lane < DOT_LANES; lane++)
            sums[lane] += a[i + (size_t)lane] * b[i + (size_t)lane];
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] += a[i] * b[i];
    for (int half = DOT_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            sums[lane] += sums[lane + half];
    return sums[0];
}

double linalg_trace(const double *a, int n)
{
    assert(n >= 1 && a);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[(size_t)i * n + (size_t)i];
    return sum;
}

void linalg_rotate(double *restrict x, double *restrict y, size_t n, double c, double s)
{
    for (size_t i = 0; i < n; i++) {
        const double old = x[i];
        x[i] = c * old - s * y[i];
        y[i] = s * old + c * y[i];
    }
}

/* --- Cholesky -------------------------------------------------------------------------------- */

/* Works on the upper triangle, whose rows are contiguous, and turns it over at the end. */
int linalg_cholesky(double *l, const double *a, int n, double ridge)
{
    assert(n >= 1 && l && a && !(ridge < 0));
    assert_costly(l == a || matrices_disjoint(l, n, n, a, n, n));
    const size_t width = n;
    double largest = 0;
    if (l != a)
        memcpy(l, a, width * width * sizeof *l);
    for (size_t i = 0; i < width; i++) {
        l[i * width + i] += ridge;
        largest = fmax(largest, l[i * width + i]);
    }
    const double least = (double)n * DBL_EPSILON * largest;
    int rank = 0;
    for (size_t k = 0; k < width; k++) {
        double *row = l + k * width;
        const double pivot = row[k];
        if (!(pivot > least)) {
            memset(row + k, 0, (width - k) * sizeof *row);
            continue;
        }
        rank++;
        const double scale = 1 / sqrt(pivot);
        for (size_t j = k; j < width; j++)
            row[j] *= scale;
        for (size_t i = k + 1; i < width; i++) {
            double *restrict below = l + i * width;
            const double x = row[i];
            for (size_t j = i; j < width; j++)
                below[j] -= x * row[j];
        }
    }
    for (size_t i = 0; i < width; i++)
        for (size_t j = i + 1; j < width; j++) {
            l[j * width + i] = l[i * width + j];
            l[i * width + j] = 0;
        }
    return rank;
}

/* row -= x * other */
static void subtract_row(double *restrict row, double x, const double *restrict other, int m)
{
    for (int j = 0; j < m; j++)
        row[j] -= x * other[j];
}

/* What is left of a row of b, divided by the diagonal. */
static void finish_row(double *row, double diagonal, int m)
{
    for (int j = 0; j < m; j++)
        row[j] = diagonal > 0 ? row[j] / diagonal : 0;
}

void linalg_solve_lower(const double *l, int n, double *b, int m)
{
    assert(n >= 1 && m >= 1 && l && b);
    assert_costly(matrices_disjoint(b, n, m, l, n, n));
    for (int i = 0; i < n; i++) {
        const double *row = l + (size_t)i * n;
        double *x = b + (size_t)i * m;
        for (int k = 0; k < i; k++)
            subtract_row(x, row[k], b + (size_t)k * m, m);
        finish_row(x, row[i], m);
    }
}

void linalg_solve_lower_transposed(const double *l, int n, double *b, int m)
{
    assert(n >= 1 && m >= 1 && l && b);
    assert_costly(matrices_disjoint(b, n, m, l, n, n));
    for (int i = n - 1; i >= 0; i--) {
        double *x = b + (size_t)i * m;
        for (int k = i + 1; k < n; k++)
            subtract_row(x, l[(size_t)k * n + (size_t)i], b + (size_t)k * m, m);
        finish_row(x, l[(size_t)i * n + (size_t)i], m);
    }
}

/* --- the nearest orthogonal matrix ----------------------------------------------------------- */

/* Makes rows i and j of w orthogonal and does the same to those of r. False if they were. */
static bool orthogonalize(double *w, double *r, size_t n, size_t i, size_t j)
{
    double *x = w + i * n, *y = w + j * n;
    const double xx = linalg_dot(x, x, n), yy = linalg_dot(y, y, n), xy = linalg_dot(x, y, n);
    if (!(fabs(xy) > DBL_EPSILON * sqrt(xx) * sqrt(yy)))
        return false;
    const double zeta = (yy - xx) / (2 * xy);
    const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double c = 1 / sqrt(1 + t * t);
    linalg_rotate(x, y, n, c, c * t);
    linalg_rotate(r + i * n, r + j * n, n, c, c * t);
    return true;
}

/* Makes the orthogonal rows of w orthonormal, those that are zero to rounding any that fit. */
static void make_orthonormal(double *w, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, sqrt(linalg_dot(w + i * n, w + i * n, n)));
    for (size_t i = 0; i < n; i++) {
        double *row = w + i * n;
        const double length = sqrt(linalg_dot(row, row, n));
        const bool zero = !(length > (double)n * DBL_EPSILON * largest);
        for (size_t j = 0; j < n; j++)
            row[j] = zero ? 0 : row[j] / length;
    }
    for (size_t k = 0; k < n; k++) {
        double *row = w + k * n;
        if (linalg_dot(row, row, n) > 0)
            continue;
        /* Orthogonal to the others: from the coordinate axis that they contain least of. */
        memset(row, 0, n * sizeof *row);
        size_t axis = 0;
        double least = HUGE_VAL;
        for (size_t i = 0; i < n; i++) {
            double contained = 0;
            for (size_t r = 0; r < n; r++)
                contained += w[r * n + i] * w[r * n + i];
            if (contained < least) {
                least = contained;
                axis = i;
            }
        }
        row[axis] = 1;
        for (int pass = 0; pass < 2; pass++) /* twice is enough (Kahan) */
            for (size_t r = 0; r < n; r++)
                if (r != k)
                    subtract_row(row, linalg_dot(row, w + r * n, n), w + r * n, (int)n);
        const double length = sqrt(linalg_dot(row, row, n));
        for (size_t i = 0; i < n; i++)
            row[i] /= length;
    }
}

/* Rotations r make the rows of w = r m orthogonal: m = r^T S w' with w' of rows of length 1; the
 * nearest orthogonal matrix is r^T w'. */
void linalg_nearest_orthogonal(double *q, const double *m, int n, double *scratch)
{
    assert(n >= 1 && q && m && scratch);
    assert_costly(matrices_disjoint(q, n, n, m, n, n));
    assert_costly(matrices_disjoint(scratch, 2 * n, n, m, n, n));
    const size_t width = n, all = width * width;
    double *w = scratch, *r = scratch + all;
    memcpy(w, m, all * sizeof *w);
    memset(r, 0, all * sizeof *r);
    for (size_t i = 0; i < width; i++)
        r[i * width + i] = 1;
    bool rotated = true;
    for (int sweep = 0; sweep < 60 && rotated; sweep++) {
        rotated = false;
        for (size_t i = 0; i < width; i++)
            for (size_t j = i + 1; j < width; j++)
                rotated |= orthogonalize(w, r, width, i, j);
    }
    make_orthonormal(w, width);
    memset(q, 0, all * sizeof *q);
    const struct linalg_product p = {.c = q,
                                     .c_stride = width,
                                     .a = r,
                                     .a_row = 1,
                                     .a_inner = width,
                                     .b = w,
                                     .b_stride = width,
                                     .inner = n,
                                     .columns = n};
    linalg_add_product(&p, 0, n);
}
