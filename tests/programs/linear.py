"""Linear algebra by hand."""

from __future__ import annotations

import numpy as np

from .table import program


def spd(r, n=6):
    a = r.standard_normal((n, n))
    return a @ a.T + n * np.eye(n)


@program(lambda r: (r.standard_normal((6, 6)), r.standard_normal(6)))
def gauss_with_pivoting(a, b):
    a, b = a.copy(), b.copy()
    n = len(b)
    for k in range(n):
        p = np.argmax(np.abs(a[k:, k])) + k
        if p != k:
            a[[k, p]] = a[[p, k]]
            b[[k, p]] = b[[p, k]]
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i, k:] -= f * a[k, k:]
            b[i] -= f * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


@program(lambda r: (spd(r),))
def lu_in_place(a):
    n = a.shape[0]
    for k in range(n - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return np.tril(a, -1) + np.eye(n), np.triu(a)


@program(lambda r: (r.standard_normal((5, 5)),))
def lu_with_permutation(a):
    a = a.astype(float).copy()
    n = a.shape[0]
    perm = np.arange(n)
    for k in range(n):
        p = k + np.abs(a[k:, k]).argmax()
        a[[k, p], :] = a[[p, k], :]
        perm[[k, p]] = perm[[p, k]]
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    return a, perm


@program(lambda r: (spd(r),))
def cholesky(a):
    n = a.shape[0]
    low = np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j] - np.dot(low[i, :j], low[j, :j])
            if i == j:
                low[i, j] = np.sqrt(s)
            else:
                low[i, j] = s / low[j, j]
    return low


@program(lambda r: (r.standard_normal((7, 4)),))
def gram_schmidt(a):
    m, n = a.shape
    q, r = np.zeros((m, n)), np.zeros((n, n))
    for j in range(n):
        v = a[:, j].copy()
        for i in range(j):
            r[i, j] = q[:, i] @ a[:, j]
            v -= r[i, j] * q[:, i]
        r[j, j] = np.linalg.norm(v)
        q[:, j] = v / r[j, j]
    return q, r


@program(lambda r: (r.standard_normal((6, 4)),))
def householder(a):
    m, n = a.shape
    r, q = a.copy(), np.eye(m)
    for k in range(n):
        x = r[k:, k]
        e = np.zeros_like(x)
        e[0] = np.copysign(np.linalg.norm(x), x[0])
        v = x + e
        v = v / np.linalg.norm(v)
        r[k:, :] -= 2.0 * np.outer(v, v @ r[k:, :])
        q[:, k:] -= 2.0 * np.outer(q[:, k:] @ v, v)
    return q, r


@program(lambda r: (spd(r), r.standard_normal(6)))
def power_iteration(a, v):
    value = 0.0
    for _ in range(25):
        w = a @ v
        v = w / np.linalg.norm(w)
        new = v @ a @ v
        if abs(new - value) < 1e-3:
            break
        value = new
    return value, v


@program(lambda r: (spd(r), r.standard_normal(6)))
def conjugate_gradients(a, b):
    x = np.zeros_like(b)
    r = b - a @ x
    p = r.copy()
    rs = r @ r
    for _ in range(len(b)):
        ap = a @ p
        alpha = rs / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        new = r @ r
        if np.sqrt(new) < 1e-6:
            break
        p = r + new / rs * p
        rs = new
    return x


@program(lambda r: (spd(r), r.standard_normal(6)))
def jacobi(a, b):
    d = np.diag(a)
    off = a - np.diagflat(d)
    x = np.zeros(len(b))
    for _ in range(15):
        x = (b - np.dot(off, x)) / d
    return x


@program(lambda r: (spd(r, 5), r.standard_normal(5), np.zeros(5)))
def gauss_seidel(a, b, x):
    for _ in range(4):
        for i in range(a.shape[0]):
            x[i] = (b[i] - a[i, :i] @ x[:i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.abs(a @ x - b).max()


@program(lambda r: (r.random(8) + 3, r.random(7), r.random(7), r.random(8)))
def thomas(diag, low, up, rhs):
    n = len(diag)
    c, d = np.zeros(n - 1), np.zeros(n)
    c[0] = up[0] / diag[0]
    d[0] = rhs[0] / diag[0]
    for i in range(1, n):
        den = diag[i] - low[i - 1] * c[i - 1]
        if i < n - 1:
            c[i] = up[i] / den
        d[i] = (rhs[i] - low[i - 1] * d[i - 1]) / den
    for i in reversed(range(n - 1)):
        d[i] -= c[i] * d[i + 1]
    return d


@program(lambda r: (np.linalg.inv(spd(r)), r.standard_normal(6), r.standard_normal(6)))
def sherman_morrison(inverse, u, v):
    au, va = inverse @ u, v @ inverse
    inverse -= np.outer(au, va) / (1.0 + v @ au)


@program(lambda r: (r.standard_normal((10, 3)), r.standard_normal(10)))
def least_squares(x, y):
    design = np.column_stack([np.ones(len(x)), x])
    beta = np.linalg.solve(design.T @ design, design.T @ y)
    residual = y - design @ beta
    return beta, 1 - residual @ residual / np.sum((y - y.mean()) ** 2)


@program(lambda r: (r.standard_normal((20, 5)), 2), rtol=1e-6)
def pca(x, k):
    centred = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(centred, rowvar=False))
    order = np.argsort(values)[::-1]
    vectors = vectors[:, order[:k]]
    return np.abs(centred @ vectors), values[order] / values.sum()


@program(lambda r: (r.standard_normal((5, 5)),))
def matrix_exponential(a):
    result = np.eye(len(a))
    term = np.eye(len(a))
    for k in range(1, 12):
        term = term @ a / k
        result += term
    return result


@program(lambda r: (r.integers(0, 5, (3, 3)), 10 + int(r.integers(2))))
def matrix_power(m, n):
    result = np.eye(m.shape[0], dtype=m.dtype)
    base = m.copy()
    while n:
        if n & 1:
            result = result @ base % 1000007
        base = base @ base % 1000007
        n >>= 1
    return result


@program(lambda r: (spd(r, 4),))
def jacobi_rotations(a):
    a = a.copy()
    n = len(a)
    for _ in range(2):
        for p in range(n - 1):
            for q in range(p + 1, n):
                theta = 0.5 * np.arctan2(2 * a[p, q], a[q, q] - a[p, p])
                c, s = np.cos(theta), np.sin(theta)
                rot = np.eye(n)
                rot[[p, q], [p, q]] = c
                rot[p, q], rot[q, p] = s, -s
                a = rot.T @ a @ rot
    return np.sort(np.diag(a))
