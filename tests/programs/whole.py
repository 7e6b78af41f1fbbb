"""Whole functions of array expressions, without loops over elements and without writes."""

from __future__ import annotations

import math

import numpy as np

from .table import program


@program(lambda r: (r.integers(0, 2, (20, 30)),))
def life(b):
    n = sum(np.roll(np.roll(b, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    return ((n == 3) | ((b == 1) & (n == 2))).astype(np.int64)


@program(lambda r: (r.standard_normal((50, 3)), r.standard_normal((4, 3))))
def kmeans(x, c):
    d = ((x[:, None, :] - c[None, :, :]) ** 2).sum(axis=2)
    k = d.argmin(axis=1)
    oh = (k[:, None] == np.arange(c.shape[0])[None, :]).astype(x.dtype)
    return oh.T @ x / np.maximum(oh.sum(axis=0), 1)[:, None], k


@program(lambda r: (r.standard_normal((40, 6)),))
def cov(x):
    xc = x - x.mean(axis=0)
    return xc.T @ xc / (x.shape[0] - 1)


@program(lambda r: (r.standard_normal((2, 30, 30)),))
def mandel(c, n=20):
    z = np.zeros_like(c[0])
    w = np.zeros_like(z)
    cnt = np.zeros(z.shape, np.int64)
    for _ in range(n):
        z, w = z * z - w * w + c[0], 2 * z * w + c[1]
        cnt = cnt + ((z * z + w * w) < 4)
    return cnt


@program(lambda r: (r.standard_normal((20, 3)), r.standard_normal((20, 3)), r.random(20)))
def nbody(p, v, m, dt=0.01):
    d = p[None] - p[:, None]
    r2 = (d * d).sum(-1) + 1e-3
    a = (d * (m[None, :, None] / r2[..., None] ** 1.5)).sum(1)
    v = v + a * dt
    return p + v * dt, v


@program(lambda r: (r.standard_normal((3, 7, 4)), r.standard_normal((3, 9, 4)), r.standard_normal((3, 9, 5))))
def attention(q, k, v):
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    s = s - s.max(-1, keepdims=True)
    e = np.exp(s)
    return (e / e.sum(-1, keepdims=True)) @ v


@program(lambda r: (r.standard_normal((5, 3)), r.standard_normal((5, 4)), r.standard_normal((5, 4)), r.standard_normal((7, 16))))
def lstm(x, h, c, W):
    z = np.concatenate([x, h], axis=1) @ W
    i, f, g, o = np.split(z, 4, axis=1)

    def s(t):
        return 1 / (1 + np.exp(-t))

    c = s(f) * c + s(i) * np.tanh(g)
    return s(o) * np.tanh(c), c


@program(lambda r: (r.standard_normal(50), r.standard_normal(5)))
def conv1(x, k):
    return sum(x[i : len(x) - len(k) + 1 + i] * k[i] for i in range(len(k)))


@program(lambda r: (r.standard_normal((2, 8, 8, 3)), r.standard_normal((3, 3, 3, 4))))
def conv_b(x, w):
    out = 0
    for i in range(3):
        for j in range(3):
            out = out + np.einsum("nhwc,cd->nhwd", x[:, i : i + 6, j : j + 6], w[i, j])
    return np.maximum(out, 0)


@program(lambda r: (r.integers(0, 16, (20, 20)),))
def hist_eq(im):
    h = (im[..., None] == np.arange(16)).sum(axis=(0, 1))
    c = h.cumsum()
    return c / c[-1]


@program(lambda r: (r.standard_normal((10, 3)), r.standard_normal((12, 3))))
def dist(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


@program(lambda r: (r.standard_normal((6, 9)),))
def logsum(x):
    m = x.max(axis=1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=1, keepdims=True)))[:, 0]


@program(lambda r: (r.standard_normal((4, 5, 6)), r.standard_normal(6), r.standard_normal(6)))
def batchnorm(x, g, b):
    return (x - x.mean(axis=(0, 1))) / np.sqrt(x.var(axis=(0, 1)) + 1e-5) * g + b


@program(lambda r: (r.standard_normal(30), [1.0, 2.0, 3.0]))
def poly(x, c):
    r = np.zeros_like(x)
    for a in c:
        r = r * x + a
    return r


@program(lambda r: (r.random((5, 5)), r.standard_normal(5)))
def markov(P, s):
    for _ in range(10):
        s = s @ P
    return s


@program(lambda r: (r.standard_normal((3, 4)),))
def normalize(v):
    return (
        v / np.linalg.norm(v, axis=-1, keepdims=True),
        np.outer(v[0], v[1]),
        np.tensordot(v, v, axes=([1], [1])),
        np.triu(v @ v.T),
        np.linspace(0, 1, 5),
        np.eye(3) @ np.ones((3, 2)),
    )


@program(lambda r: (r.standard_normal((5, 6)),))
def stats(x):
    return (
        x.std(),
        np.var(x, axis=1, ddof=1),
        np.ptp(x),
        x.min(),
        x.prod(),
        np.any(x > 1),
        np.all(x > -9),
        np.count_nonzero(x > 0),
        np.nan_to_num(x),
        np.clip(x, -0.5, None),
        np.sign(x),
        np.round(x, 2),
        np.cumprod(x, axis=1),
        x.argmax(),
    )
