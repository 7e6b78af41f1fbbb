"""Programs that are hard to compile at a bounded price: loops that cannot be unrolled, and arguments that are new at each call.

Beside the table of programs, whose classes are not asked of these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .table import Program

HARD: dict[str, Program] = {}


def hard(maker: Callable[[np.random.Generator], tuple]) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        row = Program(function, maker, 1e-9)
        HARD[row.name] = row
        return function

    return register


def letters(r: np.random.Generator, n: int) -> str:
    return "".join(r.choice(list("abcd"), n))


@hard(lambda r: (letters(r, int(r.integers(5, 30))), letters(r, int(r.integers(5, 30)))))
def edit_distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1))
    d[:, 0] = np.arange(len(a) + 1)
    d[0] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


@hard(lambda r: (letters(r, int(r.integers(20, 60))), np.zeros(26)))
def letter_counts(text, counts):
    for c in text:
        counts[ord(c) - 97] += 1
    return counts / counts.sum()


@hard(lambda r: (r.random((20, 3)), r.random(20), 1000))
def gradient_descent(x, y, steps):
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        w = w - 0.1 * x.T @ (x @ w - y) / len(y)
    return w


@hard(lambda r: (0.5 ** np.arange(1.0, float(r.integers(30, 45))),))
def durbin(r):
    y = np.zeros_like(r)
    alpha, beta, y[0] = -r[0], 1.0, -r[0]
    for k in range(1, len(r)):
        beta = (1 - alpha * alpha) * beta
        alpha = -(r[k] + r[k - 1 :: -1][:k] @ y[:k]) / beta
        y[:k] = y[:k] + alpha * y[k - 1 :: -1][:k]
        y[k] = alpha
    return y


@hard(lambda r: (r.random(int(r.integers(2, 400))),))
def smooth_until_flat(x):
    turns = 0
    while np.ptp(x) > 0.2 and turns < 500:
        x = (x + np.roll(x, 1)) / 2
        turns += 1
    return x, turns


@hard(lambda r: (r.random((int(r.integers(3, 14)),) * 2) + 3,))
def gauss(a):
    n = len(a)
    a = a.copy()
    for i in range(n):
        p = i + int(np.argmax(np.abs(a[i:, i])))
        a[[i, p]] = a[[p, i]]
        for j in range(i + 1, n):
            a[j, i:] -= a[j, i] / a[i, i] * a[i, i:]
    return a


@hard(lambda r: (r.random(int(r.integers(100, 2000))), 0.1))
def exponential_average(x, a):
    out = np.empty_like(x)
    out[0] = x[0]
    for k in range(1, len(x)):
        out[k] = a * x[k] + (1 - a) * out[k - 1]
    return out


@hard(lambda r: ([r.random(int(n)) for n in r.integers(1, 40, int(r.integers(1, 30)))],))
def ragged_means(rows):
    return np.array([row.mean() + row.std() for row in rows])


@hard(lambda r: ({letters(r, 4): r.random(5) for _ in range(int(r.integers(1, 20)))},))
def totals_by_name(columns):
    return {name: float(values.sum()) for name, values in sorted(columns.items())}


@hard(lambda r: (r.random(int(r.integers(3, 60))), int(r.integers(1, 200))))
def rotate_and_add(x, n):
    total = np.zeros_like(x)
    for k in range(n):
        total += np.roll(x, k) / (k + 1)
    return total


@hard(lambda r: (r.integers(0, 9, (9, 9)), int(r.integers(10**9))))
def seeded_shuffle(board, seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        i, j = rng.integers(0, 9, 2)
        board[[i, j]] = board[[j, i]]
    return board, f"shuffled by {seed}"


@hard(lambda r: (r.random((30, 2)), int(r.integers(2, 6)), 20))
def k_means(points, k, turns):
    centres = points[:k].copy()
    for _ in range(turns):
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        for c in range(k):
            if (nearest == c).any():
                centres[c] = points[nearest == c].mean(0)
    return centres
