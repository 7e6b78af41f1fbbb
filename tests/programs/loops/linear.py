"""Linear algebra by hand: factorizations, triangular systems, products, eigenvalues; by elements and by slices."""

from __future__ import annotations

import math

import numpy as np

from .table import loop


def spd(r: np.random.Generator, n: int) -> np.ndarray:
    a = r.random((n, n))
    return a @ a.T + n * np.eye(n)


def lower(r: np.random.Generator, n: int) -> np.ndarray:
    return np.tril(r.random((n, n))) + np.eye(n)


def sparse(r: np.random.Generator, n: int) -> tuple:
    counts = r.integers(0, min(n, 20) + 1, n)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return starts, r.integers(0, max(n, 1), starts[-1]), r.random(starts[-1])


@loop(lambda r, n: (r.random((n, n)),), sizes=(0, 1, 2, 5), large=64)
def lu_with_pivoting(a):
    a = a.copy()
    n = len(a)
    pivots = np.arange(n)
    for k in range(n - 1):
        p = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[p, k]):
                p = i
        if p != k:
            for j in range(n):
                a[k, j], a[p, j] = a[p, j], a[k, j]
            pivots[k], pivots[p] = pivots[p], pivots[k]
        for i in range(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return a, pivots


@loop(lambda r, n: (r.random((n, n)),), sizes=(1, 2, 5), large=400)
def lu_with_pivoting_slices(a):
    n = a.shape[0]
    sign = 1
    for k in range(n):
        p = k + np.argmax(np.abs(a[k:, k]))
        if p != k:
            a[[k, p]] = a[[p, k]]
            sign = -sign
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return sign * np.prod(np.diag(a))


@loop(lambda r, n: (n, spd(r, n)), sizes=(1, 2, 5), large=64)
def lu_in_place(n, a):
    for i in range(n):
        for j in range(i):
            for k in range(j):
                a[i, j] -= a[i, k] * a[k, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            for k in range(i):
                a[i, j] -= a[i, k] * a[k, j]


@loop(lambda r, n: (spd(r, n),), sizes=(0, 1, 2, 5), large=90)
def cholesky(a):
    n = len(a)
    chol = np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = 0.0
            for k in range(j):
                s += chol[i, k] * chol[j, k]
            if i == j:
                chol[i, j] = math.sqrt(a[i, i] - s)
            else:
                chol[i, j] = (a[i, j] - s) / chol[j, j]
    return chol


@loop(lambda r, n: (spd(r, n),), sizes=(1, 2, 5), large=200)
def cholesky_by_dots(a):
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])


@loop(lambda r, n: (r.random((n + 2, n)),), sizes=(1, 2, 4), large=120)
def gram_schmidt(a):
    q = np.zeros_like(a)
    r = np.zeros((a.shape[1], a.shape[1]), dtype=a.dtype)
    for k in range(a.shape[1]):
        norm = np.dot(a[:, k], a[:, k])
        r[k, k] = np.sqrt(norm)
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


@loop(lambda r, n: (n + 1, n, r.random((n + 1, n))), sizes=(1, 2, 4), large=48)
def gram_schmidt_elements(m, n, a):
    r = np.zeros((n, n))
    q = np.zeros((m, n))
    for k in range(n):
        norm = 0.0
        for i in range(m):
            norm += a[i, k] * a[i, k]
        r[k, k] = norm**0.5
        for i in range(m):
            q[i, k] = a[i, k] / r[k, k]
        for j in range(k + 1, n):
            r[k, j] = 0.0
            for i in range(m):
                r[k, j] += q[i, k] * a[i, j]
            for i in range(m):
                a[i, j] = a[i, j] - q[i, k] * r[k, j]
    return q, r


@loop(lambda r, n: (lower(r, n), r.random(n)), sizes=(0, 1, 2, 6), large=400)
def triangular_solve(chol, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = b[i]
        for j in range(i):
            x[i] -= chol[i, j] * x[j]
        x[i] = x[i] / chol[i, i]
    return x


@loop(lambda r, n: (lower(r, n).T.copy(), r.random(n)), sizes=(0, 1, 2, 6), large=6000)
def back_substitution(upper, b):
    n = b.size
    x = np.empty(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - upper[i, i + 1 :] @ x[i + 1 :]) / upper[i, i]
    return x


@loop(lambda r, n: (1.5, lower(r, n), r.random((n, n + 1))), sizes=(1, 2, 5), large=60)
def triangular_product(alpha, a, b):
    m, n = b.shape
    for i in range(m):
        for j in range(n):
            for k in range(i + 1, m):
                b[i, j] += a[k, i] * b[k, j]
            b[i, j] = alpha * b[i, j]
    return b


@loop(lambda r, n: (1.5, r.random((n, n)), r.random((n, n + 1))), sizes=(1, 2, 5), large=150)
def triangular_product_slices(alpha, a, b):
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    b *= alpha


@loop(lambda r, n: (1.5, 0.5, r.random((n, n)), r.random((n, n + 1))), sizes=(1, 2, 5), large=60)
def symmetric_rank_k(alpha, beta, c, a):
    n, m = a.shape
    for i in range(n):
        for j in range(i + 1):
            c[i, j] *= beta
        for k in range(m):
            for j in range(i + 1):
                c[i, j] += alpha * a[i, k] * a[j, k]


@loop(lambda r, n: (1.5, 0.5, r.random((n, n)), r.random((n, n + 1)), r.random((n, n + 1))), sizes=(1, 2, 5), large=80)
def symmetric_rank_2k_slices(alpha, beta, c, a, b):
    for i in range(a.shape[0]):
        c[i, : i + 1] *= beta
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[: i + 1, k] * alpha * b[i, k] + b[: i + 1, k] * alpha * a[i, k]


@loop(lambda r, n: (r.random(n) / max(n, 1),), sizes=(1, 2, 7), large=4000)
def durbin(r):
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


@loop(lambda r, n: (n, r.random(n) / max(n, 1)), sizes=(1, 2, 7), large=500)
def durbin_elements(n, r):
    y = np.zeros(n)
    z = np.zeros(n)
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, n):
        beta = (1 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


@loop(lambda r, n: (np.concatenate(([2.0 * n + 1], r.random(n))), r.random(n + 1)), sizes=(0, 1, 5), large=400)
def levinson(t, b):
    n = len(b)
    f = [1.0 / t[0]]
    x = [b[0] / t[0]]
    for k in range(1, n):
        error = 0.0
        for i in range(k):
            error += t[k - i] * f[i]
        scale = 1.0 / (1.0 - error * error)
        back = f[::-1]
        f = [scale * p - scale * error * q for p, q in zip(f + [0.0], [0.0] + back)]
        back = f[::-1]
        residual = b[k]
        for i in range(k):
            residual -= t[k - i] * x[i]
        x = [p + residual * q for p, q in zip(x + [0.0], back)]
    return np.array(x)


@loop(lambda r, n: (r.random(n), r.random(n) + 3, r.random(n), r.random(n)), sizes=(1, 2, 3, 9), large=60_000)
def thomas(a, b, c, d):
    n = len(d)
    cp = np.zeros(n)
    dp = np.zeros(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.zeros(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


@loop(lambda r, n: (r.random((n, n + 1)), r.random((n + 1, n))), sizes=(0, 1, 2, 4), large=64)
def matrix_product(a, b):
    n, m, p = a.shape[0], a.shape[1], b.shape[1]
    c = np.zeros((n, p))
    for i in range(n):
        for j in range(p):
            for k in range(m):
                c[i, j] += a[i, k] * b[k, j]
    return c


@loop(lambda r, n: (spd(r, n), r.random(n), 1e-10), sizes=(1, 2, 5), large=3000)
def conjugate_gradient(a, b, tol):
    x = np.zeros_like(b)
    r = b - a @ x
    p = r.copy()
    rs = r @ r
    steps = 0
    while np.sqrt(rs) > tol and steps < 200:
        ap = a @ p
        alpha = rs / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        p = r + new / rs * p
        rs = new
        steps += 1
    return x, steps


@loop(lambda r, n: (spd(r, n), 1e-9), sizes=(1, 2, 5), large=3000)
def power_iteration(a, tol):
    v = np.ones(a.shape[0])
    eigenvalue = 0.0
    while True:
        w = a @ v
        new = np.sqrt(w @ w)
        v = w / new
        if abs(new - eigenvalue) < tol * new:
            break
        eigenvalue = new
    return new, v


@loop(lambda r, n: (np.hstack([spd(r, n), np.eye(n)]),), sizes=(1, 2, 4), large=200)
def gauss_jordan(m):
    n = m.shape[0]
    for i in range(n):
        m[i] /= m[i, i]
        for j in range(n):
            if j != i:
                m[j] -= m[i] * m[j, i]
    return m[:, n:]


@loop(lambda r, n: (r.random((n + 1, n)),), sizes=(1, 2, 4), large=60)
def givens_qr(a):
    m, n = a.shape
    for j in range(n):
        for i in range(m - 1, j, -1):
            x, y = a[i - 1, j], a[i, j]
            h = math.sqrt(x * x + y * y)
            if h == 0.0:
                continue
            c, s = x / h, y / h
            for k in range(n):
                p, q = a[i - 1, k], a[i, k]
                a[i - 1, k] = c * p + s * q
                a[i, k] = c * q - s * p
    return a


@loop(lambda r, n: (spd(r, n), 1e-8), sizes=(1, 2, 4), large=24)
def jacobi_eigenvalues(a, tol):
    n = len(a)
    rotations = 0
    while True:
        p, q, largest = 0, 0, 0.0
        for i in range(n):
            for j in range(i + 1, n):
                if abs(a[i, j]) > largest:
                    p, q, largest = i, j, abs(a[i, j])
        if largest < tol:
            return np.sort(np.diag(a)), rotations
        theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
        t = (1 if theta >= 0 else -1) / (abs(theta) + math.sqrt(theta * theta + 1))
        c = 1 / math.sqrt(t * t + 1)
        s = t * c
        for k in range(n):
            a[k, p], a[k, q] = c * a[k, p] - s * a[k, q], s * a[k, p] + c * a[k, q]
        for k in range(n):
            a[p, k], a[q, k] = c * a[p, k] - s * a[q, k], s * a[p, k] + c * a[q, k]
        rotations += 1


@loop(lambda r, n: (r.random((n, 3)),), sizes=(2, 3, 6), large=20_000)
def covariance(data):
    n, m = data.shape
    mean = np.zeros(m)
    for j in range(m):
        for i in range(n):
            mean[j] += data[i, j]
        mean[j] /= n
    cov = np.zeros((m, m))
    for i in range(m):
        for j in range(i, m):
            for k in range(n):
                cov[i, j] += (data[k, i] - mean[i]) * (data[k, j] - mean[j])
            cov[i, j] /= n - 1.0
            cov[j, i] = cov[i, j]
    return cov


@loop(lambda r, n: (*sparse(r, n), r.random(n)), sizes=(0, 1, 2, 7), large=15_000)
def csr_product(starts, columns, values, x):
    n = len(starts) - 1
    y = np.zeros(n)
    for i in range(n):
        s = 0.0
        for k in range(starts[i], starts[i + 1]):
            s += values[k] * x[columns[k]]
        y[i] = s
    return y


@loop(lambda r, n: (*sparse(r, n), r.random(n)), sizes=(0, 1, 2, 7), large=15_000)
def csr_product_slices(starts, columns, values, x):
    y = np.empty(starts.size - 1, values.dtype)
    for i in range(y.size):
        y[i] = values[starts[i] : starts[i + 1]] @ x[columns[starts[i] : starts[i + 1]]]
    return y


@loop(lambda r, n: (n,), sizes=(1, 2, 5), large=170)
def spectral_norm(n):
    def a(i, j):
        return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)

    u = [1.0] * n
    for _ in range(2):
        t = [sum(a(i, j) * u[j] for j in range(n)) for i in range(n)]
        v = [sum(a(j, i) * t[j] for j in range(n)) for i in range(n)]
        t = [sum(a(i, j) * v[j] for j in range(n)) for i in range(n)]
        u = [sum(a(j, i) * t[j] for j in range(n)) for i in range(n)]
    uv = sum(ui * vi for ui, vi in zip(u, v))
    vv = sum(vi * vi for vi in v)
    return math.sqrt(uv / vv)
