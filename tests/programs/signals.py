"""Signals, interpolation, geometry, numerical analysis."""

from __future__ import annotations

import numpy as np

from .table import program


@program(lambda r: (r.standard_normal(32), 5))
def fft_low_pass(x, keep):
    spectrum = np.fft.rfft(x)
    spectrum[keep:] = 0
    return np.fft.irfft(spectrum, n=len(x))


@program(lambda r: (r.standard_normal(32),))
def fft_peaks(x):
    power = np.abs(np.fft.fft(x - x.mean())) ** 2
    freqs = np.fft.fftfreq(len(x), d=0.1)
    half = freqs > 0
    return freqs[half][np.argmax(power[half])], power


@program(lambda r: (r.standard_normal(8) + 1j * r.standard_normal(8),))
def fft_by_hand(x):
    def fft(a):
        n = len(a)
        if n == 1:
            return a
        even, odd = fft(a[::2]), fft(a[1::2])
        t = np.exp(-2j * np.pi * np.arange(n // 2) / n) * odd
        return np.concatenate([even + t, even - t])

    return fft(x)


@program(lambda r: (r.standard_normal(16),))
def dft_by_cosines(x):
    n = np.arange(len(x))
    angles = -2 * np.pi * np.outer(n, n) / len(x)
    return np.cos(angles) @ x, np.sin(angles) @ x


@program(lambda r: (r.standard_normal(32),))
def haar_wavelet(x):
    parts = []
    while len(x) > 4:
        parts.append((x[::2] - x[1::2]) / np.sqrt(2))
        x = (x[::2] + x[1::2]) / np.sqrt(2)
    parts.append(x)
    return np.concatenate(parts[::-1])


@program(lambda r: (r.standard_normal(20), np.array([0.2, 0.3]), np.array([1.0, -0.5, 0.1])))
def iir_filter(x, b, a):
    y = np.zeros_like(x)
    for n in range(len(x)):
        y[n] = sum(b[k] * x[n - k] for k in range(len(b)) if n - k >= 0)
        for k in range(1, len(a)):
            if n >= k:
                y[n] -= a[k] * y[n - k]
    return y


@program(lambda r: (np.sort(r.random(6)), r.standard_normal(6), r.random(9)))
def natural_spline(x, y, at):
    n = len(x)
    h = np.diff(x)
    a, rhs = np.zeros((n, n)), np.zeros(n)
    a[0, 0] = a[-1, -1] = 1
    for i in range(1, n - 1):
        a[i, i - 1], a[i, i], a[i, i + 1] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        rhs[i] = 3 * ((y[i + 1] - y[i]) / h[i] - (y[i] - y[i - 1]) / h[i - 1])
    c = np.linalg.solve(a, rhs)
    b = (y[1:] - y[:-1]) / h - h * (2 * c[:-1] + c[1:]) / 3
    d = (c[1:] - c[:-1]) / (3 * h)
    k = np.clip(np.searchsorted(x, at) - 1, 0, n - 2)
    t = at - x[k]
    return y[k] + b[k] * t + c[k] * t**2 + d[k] * t**3


@program(lambda r: (np.sort(r.random(7)), r.standard_normal(7), r.random(5)))
def linear_interpolation(x, y, at):
    k = np.searchsorted(x, at).clip(1, len(x) - 1)
    w = (at - x[k - 1]) / (x[k] - x[k - 1])
    return (1 - w) * y[k - 1] + w * y[k], np.interp(at, x, y)


@program(lambda r: (r.standard_normal((4, 2)), 9))
def bezier(points, n):
    t = np.linspace(0, 1, n)[:, None]
    p = [np.broadcast_to(q, (n, 2)) for q in points]
    while len(p) > 1:
        p = [(1 - t) * a + t * b for a, b in zip(p[:-1], p[1:])]  # noqa: RUF007
    return p[0]


@program(lambda r: (np.arange(5.0), r.standard_normal(5), 1.5))
def newton_polynomial(x, y, at):
    coef = y.copy()
    for j in range(1, len(x)):
        coef[j:] = (coef[j:] - coef[j - 1 : -1]) / (x[j:] - x[:-j])
    value = coef[-1]
    for c, xi in zip(coef[-2::-1], x[-2::-1]):
        value = value * (at - xi) + c
    return value, coef


@program(lambda r: (r.random(3) + 0.5,))
def newton_method(x):
    for _ in range(20):
        f = np.array([x[0] ** 2 + x[1] ** 2 - 1, x[0] - x[1] * x[2], x[2] ** 2 - x[0] - 0.5])
        j = np.array([[2 * x[0], 2 * x[1], 0], [1, -x[2], -x[1]], [-1, 0, 2 * x[2]]])
        step = np.linalg.solve(j, f)
        x = x - step
        if np.linalg.norm(step) < 1e-6:
            break
    return x


@program(lambda r: (0.0, 2.0 + r.random(), 1e-6))
def bisection(a, b, tol):
    def f(x):
        return np.cos(x) - x

    while b - a > tol:
        m = 0.5 * (a + b)
        if np.sign(f(m)) == np.sign(f(a)):
            a = m
        else:
            b = m
    return 0.5 * (a + b)


@program(lambda r: (0.0, 1.0 + r.random(), 5))
def romberg(a, b, n):
    table = np.zeros((n, n))
    h = b - a
    table[0, 0] = 0.5 * h * (np.exp(-a * a) + np.exp(-b * b))
    for i in range(1, n):
        h /= 2
        mids = a + h * np.arange(1, 2**i, 2)
        table[i, 0] = 0.5 * table[i - 1, 0] + h * np.exp(-mids**2).sum()
        for j in range(1, i + 1):
            table[i, j] = table[i, j - 1] + (table[i, j - 1] - table[i - 1, j - 1]) / (4**j - 1)
    return table[-1, -1]


@program(lambda r: (r.random((9, 2)), r.random((4, 2))))
def points_in_polygon(points, poly):
    inside = np.zeros(len(points), dtype=bool)
    j = len(poly) - 1
    for i in range(len(poly)):
        xi, yi = poly[i]
        xj, yj = poly[j]
        crosses = (yi > points[:, 1]) != (yj > points[:, 1])
        at = (xj - xi) * (points[:, 1] - yi) / (yj - yi) + xi
        inside ^= crosses & (points[:, 0] < at)
        j = i
    return inside, 0.5 * np.abs(np.dot(poly[:, 0], np.roll(poly[:, 1], 1)) - np.dot(poly[:, 1], np.roll(poly[:, 0], 1)))


@program(lambda r: (r.standard_normal((7, 3)), r.standard_normal((5, 3))))
def distance_matrices(a, b):
    sq = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T
    manhattan = np.abs(a[:, None] - b).sum(-1)
    unit = lambda m: m / np.linalg.norm(m, axis=1, keepdims=True)  # noqa: E731
    return np.sqrt(np.maximum(sq, 0)), manhattan, 1 - unit(a) @ unit(b).T


@program(lambda r: (r.standard_normal((6, 3)), 0.3, np.array([0.0, 0.6, 0.8])))
def rotate(points, angle, axis):
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    rot = np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * (k @ k)
    return points @ rot.T, np.cross(points, axis)


@program(lambda r: (r.random((10, 2)),))
def convex_hull(points):
    p = points[np.lexsort((points[:, 1], points[:, 0]))]
    hull = []
    for q in p:
        while len(hull) >= 2:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if (bx - ax) * (q[1] - ay) - (by - ay) * (q[0] - ax) > 0:
                break
            hull.pop()
        hull.append(q)
    return np.array(hull)


@program(lambda r: (r.random(12), r.random(5)))
def cross_correlation(x, y):
    n = len(x) - len(y) + 1
    return np.array([np.corrcoef(x[i : i + len(y)], y)[0, 1] for i in range(n)]), np.correlate(x, y, "full")


@program(lambda r: (r.standard_normal(2), 15), rtol=1e-7)
def gradient_descent_with_line_search(x, n):
    def f(p):
        return (1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2

    def gradient(p):
        return np.array([-2 * (1 - p[0]) - 20 * p[0] * (p[1] - p[0] ** 2), 10 * (p[1] - p[0] ** 2)])

    for _ in range(n):
        g, t = gradient(x), 1.0
        while f(x - t * g) > f(x) - 0.5 * t * (g @ g):
            t *= 0.5
        x = x - t * g
    return x, f(x)
