"""NumPy programs as people write them: each runs compiled, with static and with symbolic sizes, and gives what it gives plainly."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dynagraph as dg


def life(b):
    n = sum(np.roll(np.roll(b, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    return ((n == 3) | ((b == 1) & (n == 2))).astype(np.int64)


def kmeans(x, c):
    d = ((x[:, None, :] - c[None, :, :]) ** 2).sum(axis=2)
    k = d.argmin(axis=1)
    oh = (k[:, None] == np.arange(c.shape[0])[None, :]).astype(x.dtype)
    return oh.T @ x / np.maximum(oh.sum(axis=0), 1)[:, None], k


def cov(x):
    xc = x - x.mean(axis=0)
    return xc.T @ xc / (x.shape[0] - 1)


def mandel(c, n=20):
    z = np.zeros_like(c[0])
    w = np.zeros_like(z)
    cnt = np.zeros(z.shape, np.int64)
    for _ in range(n):
        z, w = z * z - w * w + c[0], 2 * z * w + c[1]
        cnt = cnt + ((z * z + w * w) < 4)
    return cnt


def nbody(p, v, m, dt=0.01):
    d = p[None] - p[:, None]
    r2 = (d * d).sum(-1) + 1e-3
    a = (d * (m[None, :, None] / r2[..., None] ** 1.5)).sum(1)
    v = v + a * dt
    return p + v * dt, v


def attention(q, k, v):
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    s = s - s.max(-1, keepdims=True)
    e = np.exp(s)
    return (e / e.sum(-1, keepdims=True)) @ v


def lstm(x, h, c, W):
    z = np.concatenate([x, h], axis=1) @ W
    i, f, g, o = np.split(z, 4, axis=1)

    def s(t):
        return 1 / (1 + np.exp(-t))

    c = s(f) * c + s(i) * np.tanh(g)
    return s(o) * np.tanh(c), c


def conv1(x, k):
    return sum(x[i : len(x) - len(k) + 1 + i] * k[i] for i in range(len(k)))


def conv_b(x, w):
    out = 0
    for i in range(3):
        for j in range(3):
            out = out + np.einsum("nhwc,cd->nhwd", x[:, i : i + 6, j : j + 6], w[i, j])
    return np.maximum(out, 0)


def hist_eq(im):
    h = (im[..., None] == np.arange(16)).sum(axis=(0, 1))
    c = h.cumsum()
    return c / c[-1]


def dist(a, b):
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


def logsum(x):
    m = x.max(axis=1, keepdims=True)
    return (m + np.log(np.exp(x - m).sum(axis=1, keepdims=True)))[:, 0]


def batchnorm(x, g, b):
    return (x - x.mean(axis=(0, 1))) / np.sqrt(x.var(axis=(0, 1)) + 1e-5) * g + b


def poly(x, c):
    r = np.zeros_like(x)
    for a in c:
        r = r * x + a
    return r


def markov(P, s):
    for _ in range(10):
        s = s @ P
    return s


def normalize(v):
    return (
        v / np.linalg.norm(v, axis=-1, keepdims=True),
        np.outer(v[0], v[1]),
        np.tensordot(v, v, axes=([1], [1])),
        np.triu(v @ v.T),
        np.linspace(0, 1, 5),
        np.eye(3) @ np.ones((3, 2)),
    )


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


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(high).integers(0, high, shape)


ATTENTION = (normal(3, 7, 4), normal(3, 9, 4), normal(3, 9, 5))
PROGRAMS = [
    (life, (integers(2, 20, 30),)),
    (kmeans, (normal(50, 3), normal(4, 3))),
    (cov, (normal(40, 6),)),
    (mandel, (normal(2, 30, 30),)),
    (nbody, (normal(20, 3), normal(20, 3), np.abs(normal(20)))),
    (attention, ATTENTION),
    (lstm, (normal(5, 3), normal(5, 4), normal(5, 4), normal(7, 16))),
    (conv1, (normal(50), normal(5))),
    (conv_b, (normal(2, 8, 8, 3), normal(3, 3, 3, 4))),
    (hist_eq, (integers(16, 20, 20),)),
    (dist, (normal(10, 3), normal(12, 3))),
    (logsum, (normal(6, 9),)),
    (batchnorm, (normal(4, 5, 6), normal(6), normal(6))),
    (poly, (normal(30), [1.0, 2.0, 3.0])),
    (markov, (np.abs(normal(5, 5)), normal(5))),
    (normalize, (normal(3, 4),)),
    (stats, (normal(5, 6),)),
]


def same(got, want) -> None:
    assert type(got) is type(want)
    if isinstance(want, tuple):
        for a, b in zip(got, want):
            same(a, b)
    else:
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function, args", PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_program(function, args, dynamic):
    compiled = dg.compile(function, dynamic=dynamic)
    with np.errstate(all="ignore"):
        for _ in range(2):
            same(compiled(*args), function(*args))
    assert compiled.stats.fallbacks == 0
    assert (compiled.stats.compiles, compiled.stats.hits) == (1, 1)  # one program, and the second call is a hit
