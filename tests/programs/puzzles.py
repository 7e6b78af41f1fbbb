"""Algorithms: dynamic programming, graphs, sorting, sequences."""

from __future__ import annotations

import numpy as np

from .table import program


@program(lambda r: (("site", "kits")[int(r.integers(2))], "kite"))
def edit_distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    d[:, 0] = np.arange(len(a) + 1)
    d[0, :] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + cost)
    return d[-1, -1]


@program(lambda r: (r.integers(1, 6, 5), r.integers(1, 20, 5), 12))
def knapsack(weights, values, capacity):
    best = np.zeros(capacity + 1, dtype=np.int64)
    for w, v in zip(weights, values):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    return best[capacity]


@program(lambda r: ([int(w) for w in r.integers(1, 6, 5)], [int(v) for v in r.integers(1, 20, 5)], 12))
def knapsack_of_lists(weights, values, capacity):
    best = np.zeros((len(weights) + 1, capacity + 1), dtype=int)
    for i, (w, v) in enumerate(zip(weights, values), 1):
        best[i] = best[i - 1]
        best[i, w:] = np.maximum(best[i, w:], best[i - 1, : capacity + 1 - w] + v)
    return best.max()


@program(lambda r: (r.integers(0, 3, 7), r.integers(0, 3, 6)))
def longest_common_subsequence(a, b):
    t = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                t[i + 1, j + 1] = t[i, j] + 1
            else:
                t[i + 1, j + 1] = max(t[i + 1, j], t[i, j + 1])
    return t


@program(lambda r: (r.integers(0, 3, 7), r.integers(0, 3, 6)))
def common_subsequence_by_where(a, b):
    t = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    equal = a[:, None] == b[None, :]
    for i in range(len(a)):
        for j in range(len(b)):
            t[i + 1, j + 1] = np.where(equal[i, j], t[i, j] + 1, np.maximum(t[i + 1, j], t[i, j + 1]))
    return t


@program(lambda r: ([int(k) for k in r.integers(2, 9, 5)],))
def matrix_chain(dims):
    n = len(dims) - 1
    m = np.zeros((n, n))
    for size in range(2, n + 1):
        for i in range(n - size + 1):
            j = i + size - 1
            m[i, j] = min(m[i, k] + m[k + 1, j] + dims[i] * dims[k + 1] * dims[j + 1] for k in range(i, j))
    return m[0, n - 1]


@program(lambda r: (np.where(r.random((8, 8)) < 0.4, r.integers(1, 10, (8, 8)).astype(float), np.inf),))
def floyd_warshall(d):
    np.fill_diagonal(d, 0)
    for k in range(len(d)):
        np.minimum(d, d[:, k, None] + d[None, k, :], out=d)


@program(lambda r: (r.integers(0, 2, (7, 7)).astype(bool),))
def transitive_closure(a):
    reach = a | np.eye(len(a), dtype=bool)
    for k in range(len(a)):
        reach |= reach[:, k : k + 1] & reach[k : k + 1, :]
    return reach


@program(lambda r: (r.integers(1, 9, (6, 6)).astype(float),))
def dijkstra(w):
    n = len(w)
    dist = np.full(n, np.inf)
    dist[0] = 0
    done = np.zeros(n, dtype=bool)
    for _ in range(n):
        u = np.argmin(np.where(done, np.inf, dist))
        done[u] = True
        dist = np.minimum(dist, dist[u] + w[u])
    return dist


@program(lambda r: (r.integers(0, 50, 8),))
def odd_even_sort(x):
    for k in range(len(x)):
        a, b = x[k % 2 : -1 : 2], x[k % 2 + 1 :: 2]
        low, high = np.minimum(a, b), np.maximum(a, b)
        a[:] = low
        b[:] = high


@program(lambda r: (r.standard_normal(8),))
def bitonic_sort(x):
    x = x.copy()
    n = len(x)
    i = np.arange(n)
    k = 2
    while k <= n:
        j = k // 2
        while j > 0:
            partner = i ^ j
            up = (i & k) == 0
            smaller = np.minimum(x, x[partner])
            larger = np.maximum(x, x[partner])
            x = np.where((i < partner) == up, smaller, larger)
            j //= 2
        k *= 2
    return x


@program(lambda r: (r.integers(0, 30, 7),))
def bubble_sort(x):
    n = len(x)
    for i in range(n):
        for j in range(n - 1 - i):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1], x[j]
    return x


@program(lambda r: (r.integers(0, 3, 25),))
def run_length_encode(x):
    change = np.flatnonzero(np.diff(x)) + 1
    starts = np.concatenate(([0], change))
    lengths = np.diff(np.append(starts, len(x)))
    return x[starts], lengths, np.repeat(x[starts], lengths)


@program(lambda r: (r.integers(-9, 9, 16),))
def prefix_sums(x):
    y = x.copy()
    step = 1
    while step < len(y):
        y[step:] = y[step:] + y[:-step]
        step *= 2
    total = np.zeros(len(x) + 1, dtype=x.dtype)
    total[1:] = np.cumsum(x)
    return y, total[8] - total[3], np.add.reduceat(x, [0, 4, 9])


@program(lambda r: (r.integers(-9, 9, 16),))
def largest_subarray(x):
    best = current = x[0]
    for v in x[1:]:
        current = max(v, current + v)
        best = max(best, current)
    return best


@program(lambda r: (60 + int(r.integers(2)),))
def sieve(n):
    prime = np.ones(n + 1, dtype=bool)
    prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return np.nonzero(prime)[0]


@program(lambda r: (r.integers(0, 10, 20),))
def counting_sort(x):
    counts = np.zeros(10, dtype=np.intp)
    for v in x:
        counts[v] += 1
    return np.repeat(np.arange(10), counts)


@program(lambda r: (np.sort(r.integers(0, 50, 15)), int(r.integers(0, 50))))
def binary_search(x, wanted):
    low, high = 0, len(x)
    while low < high:
        mid = (low + high) // 2
        if x[mid] < wanted:
            low = mid + 1
        else:
            high = mid
    return low, low == np.searchsorted(x, wanted)


@program(lambda r: (r.integers(0, 20, 12), r.integers(0, 20, 9)))
def sets_and_ranks(a, b):
    order = a.argsort(kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(a))
    values, inverse, counts = np.unique(a, return_inverse=True, return_counts=True)
    return ranks, values, inverse, counts, np.intersect1d(a, b), np.isin(a, b)


@program(lambda r: (6,))
def n_queens_board(n):
    placed, count = np.full(n, -1), 0

    def place(row):
        nonlocal count
        if row == n:
            count += 1
            return
        rows = np.arange(row)
        for col in range(n):
            if not np.any((placed[:row] == col) | (np.abs(placed[:row] - col) == row - rows)):
                placed[row] = col
                place(row + 1)

    place(0)
    return count
