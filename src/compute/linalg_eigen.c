/*
 * The reflections of the tridiagonalization stay in the rows of `a`; QL's rotations act on rows
 * of the eigenvectors, which are contiguous; only the wanted rows are reflected back.
 */
#include "compute/linalg_eigen.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "compute/linalg.h"

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
    const double norm = linalg_length(x, n);
    const double s = x[0] > 0 ? -norm : norm; /* no cancellation in x[0] - s */
    x[0] -= s;
    linalg_scale(x, sqrt(2.0) / linalg_length(x, n), n);
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
            linalg_rotate(z + i * n, z + (i + 1) * n, n, c, s);
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
        linalg_scale(x, x[largest] < 0 ? -1 : 1, n);
    }
    return true;
}
