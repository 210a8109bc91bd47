#!/usr/bin/env python3
"""The polynomial of exact GELU in src/compute/kernels_math.h, for gelu_terms.

    python3 scripts/make/gelu.py

Needs NumPy and mpmath. P(s) = Phi(-t) e^(t^2 / 2), s = 1 / (1 + GELU_TAIL t), is fitted over all t
whose tail is a number in float32, by least squares whose weights grow where the relative error is
large (Lawson 1961), until no error is larger than another. Prints the coefficients, the highest
power first, and the largest error in units of 2^-24.
"""
import mpmath
import numpy as np

TAIL, LAST, DEGREE, POINTS, ROUNDS = np.float32(0.33), 13.3, 9, 3000, 400

mpmath.mp.dps = 30
nodes = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
ts = LAST * (0.5 - 0.5 * nodes)
exact = np.array([float(mpmath.erfc(t / mpmath.sqrt(2)) / 2 * mpmath.exp(mpmath.mpf(t) ** 2 / 2))
                  for t in ts])
s = 1 / (1 + float(TAIL) * ts)
low = s.min()
basis = np.polynomial.chebyshev.chebvander((2 * s - 1 - low) / (1 - low), DEGREE) / exact[:, None]
weights = np.ones(POINTS) / POINTS
best, fit = np.inf, None
for _ in range(ROUNDS):
    root = np.sqrt(weights)
    c = np.linalg.lstsq(basis * root[:, None], root, rcond=None)[0]
    error = np.abs(basis @ c - 1)
    if error.max() < best:
        best, fit = error.max(), c
    weights *= np.sqrt(error + 1e-30)
    weights /= weights.sum()
powers = np.polynomial.Chebyshev(fit, domain=[low, 1]).convert(kind=np.polynomial.Polynomial)
print(', '.join('%.9gf' % x for x in powers.coef[::-1]))
print('largest error %.3f' % (best * 2**24))
