#include "compute/linalg.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

/* --- products -------------------------------------------------------------------------------- */

/* Rows of b that stay in the cache while the rows of a pass. */
#define INNER_BLOCK 64

/* Rows i and i + 1 of the result; four rows of b a pass, to load and store c less often. */
static void add_two_rows(const struct linalg_product *p, size_t i)
{
    const double *a0 = p->a + i * p->a_row, *a1 = a0 + p->a_row;
    double *restrict c0 = p->c + i * p->c_stride, *restrict c1 = c0 + p->c_stride;
    size_t t = 0;
    for (; t + 4 <= p->inner; t += 4) {
        const double *b0 = p->b + t * p->b_stride, *b1 = b0 + p->b_stride;
        const double *b2 = b1 + p->b_stride, *b3 = b2 + p->b_stride;
        const size_t at = t * p->a_inner;
        const double x0 = a0[at], x1 = a0[at + p->a_inner];
        const double x2 = a0[at + 2 * p->a_inner], x3 = a0[at + 3 * p->a_inner];
        const double y0 = a1[at], y1 = a1[at + p->a_inner];
        const double y2 = a1[at + 2 * p->a_inner], y3 = a1[at + 3 * p->a_inner];
        for (size_t j = 0; j < p->columns; j++) {
            c0[j] = c0[j] + x0 * b0[j] + x1 * b1[j] + x2 * b2[j] + x3 * b3[j];
            c1[j] = c1[j] + y0 * b0[j] + y1 * b1[j] + y2 * b2[j] + y3 * b3[j];
        }
    }
    for (; t < p->inner; t++) {
        linalg_add_scaled(c0, a0[t * p->a_inner], p->b + t * p->b_stride, p->columns);
        linalg_add_scaled(c1, a1[t * p->a_inner], p->b + t * p->b_stride, p->columns);
    }
}

void linalg_add_product(const struct linalg_product *p, size_t first, size_t end)
{
    assert(p->c && p->a && p->b && p->c != p->a && p->c != p->b);
    assert(first <= end && p->c_stride >= p->columns && p->b_stride >= p->columns);
    for (size_t done = 0; done < p->inner; done += INNER_BLOCK) {
        struct linalg_product part = *p;
        part.a += done * p->a_inner;
        part.b += done * p->b_stride;
        part.inner = MIN(p->inner - done, INNER_BLOCK);
        size_t i = first;
        for (; i + 2 <= end; i += 2)
            add_two_rows(&part, i);
        for (size_t t = 0; t < part.inner && i < end; t++) /* the last one alone */
            linalg_add_scaled(part.c + i * part.c_stride, part.a[i * part.a_row + t * part.a_inner],
                              part.b + t * part.b_stride, part.columns);
    }
}

void linalg_multiply(double *c, const double *a, const double *b, size_t m, size_t k, size_t n)
{
    const struct linalg_product p = linalg_product(c, a, b, k, n);
    memset(c, 0, m * n * sizeof *c);
    linalg_add_product(&p, 0, m);
}

void linalg_transpose(double *t, const double *a, size_t m, size_t n)
{
    assert(t != a);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            t[j * m + i] = a[i * n + j];
}

void linalg_identity(double *a, size_t n)
{
    for (size_t i = 0; i < n * n; i++)
        a[i] = i % (n + 1) == 0;
}

void linalg_copy(double *to, size_t to_stride, const double *from, size_t from_stride, size_t m,
                 size_t n)
{
    for (size_t i = 0; i < m; i++)
        memcpy(to + i * to_stride, from + i * from_stride, n * sizeof *to);
}

/* Multiplies x [n] by a. */
static void scale(double *x, double a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= a;
}

#define DOT_LANES 8

double linalg_dot(const double *a, const double *b, size_t n)
{
    double sums[DOT_LANES] = {0};
    size_t i = 0;
    for (; i + DOT_LANES <= n; i += DOT_LANES)
        for (int lane = 0; lane < DOT_LANES; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; i < n; i++, lane++)
        sums[lane] += a[i] * b[i];
    for (int half = DOT_LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++)
            sums[lane] += sums[lane + half];
    return sums[0];
}

static double length_of(const double *x, size_t n)
{
    return sqrt(linalg_dot(x, x, n));
}

void linalg_add_scaled(double *restrict y, double a, const double *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

double linalg_trace(const double *a, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i * n + i];
    return sum;
}

/* Rotates the plane of two rows [n] in place: x, y = c x - s y, s x + c y. */
static void rotate(double *restrict x, double *restrict y, size_t n, double c, double s)
{
    for (size_t i = 0; i < n; i++) {
        const double old = x[i];
        x[i] = c * old - s * y[i];
        y[i] = s * old + c * y[i];
    }
}

/* --- Cholesky -------------------------------------------------------------------------------- */

/* Works on the upper triangle, whose rows are contiguous, and turns it over at the end. */
int linalg_cholesky(double *l, const double *a, size_t n, double ridge)
{
    assert(n >= 1 && !(ridge < 0));
    double largest = 0;
    if (l != a)
        memcpy(l, a, n * n * sizeof *l);
    for (size_t i = 0; i < n; i++) {
        l[i * n + i] += ridge;
        largest = fmax(largest, l[i * n + i]);
    }
    const double least = n * DBL_EPSILON * largest;
    int rank = 0;
    for (size_t k = 0; k < n; k++) {
        double *row = l + k * n;
        const double pivot = row[k];
        if (!(pivot > least)) {
            memset(row + k, 0, (n - k) * sizeof *row);
            continue;
        }
        rank++;
        scale(row + k, 1 / sqrt(pivot), n - k);
        for (size_t i = k + 1; i < n; i++)
            linalg_add_scaled(l + i * n + i, -row[i], row + i, n - i);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            l[j * n + i] = l[i * n + j];
            l[i * n + j] = 0;
        }
    return rank;
}

/* Divides what is left of a row of b, x [m], by the diagonal. */
static void divide_row(double *x, double diagonal, size_t m)
{
    for (size_t j = 0; j < m; j++)
        x[j] = diagonal > 0 ? x[j] / diagonal : 0;
}

void linalg_solve_lower(const double *l, size_t n, double *b, size_t m)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            linalg_add_scaled(b + i * m, -l[i * n + k], b + k * m, m);
        divide_row(b + i * m, l[i * n + i], m);
    }
}

void linalg_solve_lower_transposed(const double *l, size_t n, double *b, size_t m)
{
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            linalg_add_scaled(b + i * m, -l[k * n + i], b + k * m, m);
        divide_row(b + i * m, l[i * n + i], m);
    }
}

/* --- the nearest orthogonal matrix ----------------------------------------------------------- */

/* Rotates rows i and j of w so that they are orthogonal, and rows i and j of r with them. False if
 * they were orthogonal already. */
static bool orthogonalize(double *w, double *r, size_t n, size_t i, size_t j)
{
    double *x = w + i * n, *y = w + j * n;
    const double xx = linalg_dot(x, x, n), yy = linalg_dot(y, y, n), xy = linalg_dot(x, y, n);
    if (!(fabs(xy) > DBL_EPSILON * sqrt(xx) * sqrt(yy)))
        return false;
    const double zeta = (yy - xx) / (2 * xy);
    const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    const double c = 1 / sqrt(1 + t * t);
    rotate(x, y, n, c, c * t);
    rotate(r + i * n, r + j * n, n, c, c * t);
    return true;
}

/* Makes the orthogonal rows of w orthonormal; rows that are zero to rounding become any that fit.
 */
static void make_orthonormal(double *w, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, length_of(w + i * n, n));
    for (size_t i = 0; i < n; i++) {
        double *row = w + i * n;
        const double length = length_of(row, n);
        const bool zero = !(length > n * DBL_EPSILON * largest);
        for (size_t j = 0; j < n; j++)
            row[j] = zero ? 0 : row[j] / length;
    }
    for (size_t k = 0; k < n; k++) {
        double *row = w + k * n;
        if (linalg_dot(row, row, n) > 0)
            continue;
        /* Orthogonal to the others: from the coordinate axis that they contain least of. */
        size_t axis = 0;
        double least = HUGE_VAL;
        memset(row, 0, n * sizeof *row);
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
                    linalg_add_scaled(row, -linalg_dot(row, w + r * n, n), w + r * n, n);
        divide_row(row, length_of(row, n), n);
    }
}

/* Rotations r make the rows of w = r m orthogonal: m = r^T S w' with w' of rows of length 1; the
 * nearest orthogonal matrix is r^T w'. */
void linalg_nearest_orthogonal(double *q, const double *m, size_t n, double *scratch)
{
    assert(n >= 1 && q != m);
    double *w = scratch, *r = scratch + n * n;
    memcpy(w, m, n * n * sizeof *w);
    linalg_identity(r, n);
    bool rotated = true;
    for (int sweep = 0; sweep < 60 && rotated; sweep++) {
        rotated = false;
        for (size_t i = 0; i < n; i++)
            for (size_t j = i + 1; j < n; j++)
                rotated |= orthogonalize(w, r, n, i, j);
    }
    make_orthonormal(w, n);
    memset(q, 0, n * n * sizeof *q);
    const struct linalg_product p = linalg_product_turned(q, r, w, n, n, n);
    linalg_add_product(&p, 0, n);
}

/* --- eigenvalues ----------------------------------------------------------------------------- */

/* The reflections of the tridiagonalization stay in the rows of `a`; QL's rotations act on rows of
 * the eigenvectors, which are contiguous; only the wanted rows are reflected back. */

/* The most steps for an eigenvalue, which usually takes a few. */
#define MAX_ITERATIONS 300

size_t linalg_eigen_scratch(size_t n, bool vectors)
{
    return 2 * n + (vectors ? n * n : 0);
}

/*
 * The reflection I - v v^T, |v|^2 = 2, that takes x [n] to (s, 0, ..., 0); v replaces x. Returns s.
 * v is zero if nothing has to be done. Scaled, so that no square over- or underflows.
 */
static double make_reflection(double *x, size_t n)
{
    const double first = x[0];
    double largest = 0;
    for (size_t i = 1; i < n; i++)
        largest = fmax(largest, fabs(x[i]));
    if (!(largest > 0)) {
        memset(x, 0, n * sizeof *x);
        return first;
    }
    largest = fmax(largest, fabs(first));
    for (size_t i = 0; i < n; i++)
        x[i] /= largest;
    const double norm = length_of(x, n);
    const double s = x[0] > 0 ? -norm : norm; /* no cancellation in x[0] - s */
    x[0] -= s;
    scale(x, sqrt(2.0) / length_of(x, n), n);
    return s * largest;
}

/* Row k of a becomes reflection k (from element k + 1 on); `diagonal` and `beside` get the
 * tridiagonal matrix, beside[k] between k and k + 1. w [n] is scratch. */
static void tridiagonalize(double *a, size_t n, double *diagonal, double *beside, double *w)
{
    for (size_t k = 0; k + 1 < n; k++) {
        double *v = a + k * n;
        diagonal[k] = v[k];
        beside[k] = make_reflection(v + k + 1, n - k - 1);
        /* A := (I - v v^T) A (I - v v^T) = A - v w^T - w v^T, w = A v - (v^T A v / 2) v */
        memset(w + k + 1, 0, (n - k - 1) * sizeof *w);
        for (size_t i = k + 1; i < n; i++)
            linalg_add_scaled(w + k + 1, v[i], a + i * n + k + 1, n - k - 1);
        const double half = linalg_dot(v + k + 1, w + k + 1, n - k - 1) / 2;
        linalg_add_scaled(w + k + 1, -half, v + k + 1, n - k - 1);
        for (size_t i = k + 1; i < n; i++) {
            double *restrict row = a + i * n;
            const double vi = v[i], wi = w[i];
            for (size_t j = k + 1; j < n; j++)
                row[j] = row[j] - vi * w[j] - wi * v[j];
        }
    }
    diagonal[n - 1] = a[n * n - 1];
    beside[n - 1] = 0;
}

/*
 * sqrt(x^2 + y^2), once more corrected, the same bits with every C library: their hypot differ.
 * (Borges 2019, "An improved algorithm for hypot(a, b)")
 */
static double hypotenuse(double x, double y)
{
    const bool larger = fabs(x) < fabs(y); /* y is; of a NaN the sum below is one */
    const double a = fabs(larger ? y : x), b = fabs(larger ? x : y);
    if (!(b > a * (DBL_EPSILON / 4)))
        return a + b;
    if (a > 0x1p+511 || b < 0x1p-459) { /* no square over- or underflows */
        const double scale = a > 1 ? 0x1p-600 : 0x1p+600;
        return hypotenuse(a * scale, b * scale) / scale;
    }
    const double h = sqrt(a * a + b * b);
    double first, second;
    if (h <= 2 * b) {
        const double over = h - b;
        first = a * (2 * over - a);
        second = (over - 2 * (a - b)) * over;
    } else {
        const double over = h - a;
        first = 2 * over * (a - 2 * b);
        second = (4 * over - b) * b + over * over;
    }
    return h - (first + second) / (2 * h);
}

/* One implicitly shifted QL step on rows first .. last of the tridiagonal matrix. */
static void ql_step(double *d, double *e, size_t first, size_t last, double *z, size_t n)
{
    double g = (d[first + 1] - d[first]) / (2 * e[first]);
    double r = hypotenuse(g, 1);
    g = d[last] - d[first] + e[first] / (g + copysign(r, g));
    double s = 1, c = 1, p = 0;
    for (size_t i = last; i-- > first;) {
        const double f = s * e[i], b = c * e[i];
        r = hypotenuse(f, g);
        e[i + 1] = r;
        if (!(r > 0)) { /* the matrix has split */
            d[i + 1] -= p;
            e[last] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        if (z)
            rotate(z + i * n, z + (i + 1) * n, n, c, s);
    }
    d[first] -= p;
    e[first] = g;
    e[last] = 0;
}

/* Eigenvalues of the tridiagonal matrix to d; z (may be NULL), the identity before, receives the
 * eigenvectors as rows. */
static bool ql(double *d, double *e, size_t n, double *z)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(d[i]) + fabs(e[i]));
    if (!isfinite(largest))
        return false;
    /* Below this an entry changes no eigenvalue by more than rounding has. A lower bound is below
     * the noise of the steps themselves: a singular matrix's zero block would never end. */
    const double least = DBL_EPSILON * largest;
    for (size_t first = 0; first < n; first++) {
        for (int i = 0;; i++) {
            size_t last = first;
            while (last + 1 < n &&
                   fabs(e[last]) > fmax(least, DBL_EPSILON * (fabs(d[last]) + fabs(d[last + 1]))))
                last++;
            if (last == first)
                break;
            if (i == MAX_ITERATIONS)
                return false;
            ql_step(d, e, first, last, z, n);
        }
    }
    return true;
}

static void swap_rows(double *x, double *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double old = x[i];
        x[i] = y[i];
        y[i] = old;
    }
}

bool linalg_eigen(double *a, size_t n, double *values, double *vectors, size_t n_vectors,
                  double *scratch)
{
    assert(n >= 1 && n_vectors <= n);
    double *beside = scratch, *z = n_vectors > 0 ? scratch + 2 * n : NULL;
    tridiagonalize(a, n, values, beside, scratch + n);
    if (z)
        linalg_identity(z, n);
    if (!ql(values, beside, n, z))
        return false;
    for (size_t i = 0; i < n; i++) { /* sorted by selection */
        size_t largest = i;
        for (size_t j = i + 1; j < n; j++)
            if (values[j] > values[largest])
                largest = j;
        if (largest == i)
            continue;
        swap_rows(values + i, values + largest, 1);
        if (z)
            swap_rows(z + i * n, z + largest * n, n);
    }
    /* Vectors of the tridiagonal matrix to those of a, with the sign fixed. */
    for (size_t r = 0; r < n_vectors; r++) {
        double *x = memcpy(vectors + r * n, z + r * n, n * sizeof *x);
        size_t largest = 0;
        for (size_t k = n - 1; k-- > 0;) {
            const double *v = a + k * n + k + 1;
            linalg_add_scaled(x + k + 1, -linalg_dot(v, x + k + 1, n - k - 1), v, n - k - 1);
        }
        for (size_t i = 1; i < n; i++)
            if (fabs(x[i]) > fabs(x[largest]))
                largest = i;
        scale(x, x[largest] < 0 ? -1 : 1, n);
    }
    return true;
}
