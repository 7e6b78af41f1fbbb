"""Dynamic programming: alignment, knapsacks, chains, hidden Markov models, shortest paths."""

from __future__ import annotations

import numpy as np

from .table import loop


def letters(r: np.random.Generator, n: int, of: str = "ACGU") -> str:
    return "".join(of[k] for k in r.integers(0, len(of), n))


def hmm(r: np.random.Generator, n: int) -> tuple:
    start, move, emit = r.random(4), r.random((4, 4)), r.random((4, 6))
    rows = (start / start.sum(), move / move.sum(axis=1, keepdims=True), emit / emit.sum(axis=1, keepdims=True))
    return r.integers(0, 6, n), *rows


def road_map(r: np.random.Generator, n: int) -> np.ndarray:
    d = np.where(r.random((n, n)) < 0.4, r.integers(1, 10, (n, n)).astype(float), np.inf)
    np.fill_diagonal(d, 0)
    return d


@loop(lambda r, n: (letters(r, n), letters(r, n + n // 3)), sizes=(0, 1, 2, 5), large=200)
def edit_distance(a, b):
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    for i in range(len(a) + 1):
        d[i, 0] = i
    for j in range(len(b) + 1):
        d[0, j] = j
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            if a[i - 1] == b[j - 1]:
                d[i, j] = d[i - 1, j - 1]
            else:
                d[i, j] = 1 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[len(a), len(b)]


@loop(lambda r, n: (letters(r, n), letters(r, n + 1)), sizes=(0, 1, 2, 5), large=400)
def levenshtein_of_two_rows(s, t):
    if len(s) < len(t):
        return levenshtein_of_two_rows(t, s)
    previous = list(range(len(t) + 1))
    for i, c in enumerate(s):
        current = [i + 1]
        for j, d in enumerate(t):
            current.append(min(previous[j + 1] + 1, current[j] + 1, previous[j] + (c != d)))
        previous = current
    return previous[-1]


@loop(lambda r, n: (r.integers(0, 4, n), r.integers(0, 4, n + 1)), sizes=(0, 1, 2, 5), large=300)
def longest_common_subsequence(a, b):
    m, n = len(a), len(b)
    t = np.zeros((m + 1, n + 1), dtype=np.int64)
    for i in range(m):
        for j in range(n):
            if a[i] == b[j]:
                t[i + 1, j + 1] = t[i, j] + 1
            else:
                t[i + 1, j + 1] = max(t[i + 1, j], t[i, j + 1])
    return t[m, n]


@loop(lambda r, n: (letters(r, n), letters(r, n + 1)), sizes=(0, 1, 2, 5), large=500)
def common_subsequence_itself(a, b):
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x == y:
                lengths[i + 1][j + 1] = lengths[i][j] + 1
            else:
                lengths[i + 1][j + 1] = max(lengths[i + 1][j], lengths[i][j + 1])
    result = ""
    i, j = len(a), len(b)
    while i > 0 and j > 0:
        if lengths[i][j] == lengths[i - 1][j]:
            i -= 1
        elif lengths[i][j] == lengths[i][j - 1]:
            j -= 1
        else:
            result = a[i - 1] + result
            i -= 1
            j -= 1
    return result


@loop(lambda r, n: (r.integers(1, 9, n), r.integers(1, 50, n), 10 * n), sizes=(0, 1, 2, 4), large=100)
def knapsack(weights, values, capacity):
    n = len(weights)
    best = np.zeros((n + 1, capacity + 1), dtype=np.int64)
    for i in range(1, n + 1):
        w, v = weights[i - 1], values[i - 1]
        for c in range(capacity + 1):
            best[i, c] = best[i - 1, c]
            if w <= c and best[i - 1, c - w] + v > best[i, c]:
                best[i, c] = best[i - 1, c - w] + v
    return best[n, capacity]


@loop(lambda r, n: (r.integers(1, 9, n), r.integers(1, 50, n), 50 * n), sizes=(0, 1, 2, 4), large=1000)
def knapsack_slices(weights, values, capacity):
    best = np.zeros(capacity + 1, dtype=np.int64)
    for w, v in zip(weights, values):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    return best


@loop(lambda r, n: ([int(c) for c in sorted(r.choice(60, 4, replace=False) + 1)], n), sizes=(0, 1, 2, 30), large=300_000)
def coin_change(coins, amount):
    ways = [0] * (amount + 1)
    ways[0] = 1
    for coin in coins:
        for x in range(coin, amount + 1):
            ways[x] = (ways[x] + ways[x - coin]) % 1_000_000_007
    return ways[amount]


@loop(lambda r, n: ([int(k) for k in r.integers(2, 30, n + 1)],), sizes=(1, 2, 3, 6), large=70)
def matrix_chain(dims):
    n = len(dims) - 1
    cost = np.zeros((n, n), dtype=int)
    split = np.zeros((n, n), dtype=int)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = 2**62
            for k in range(i, j):
                q = cost[i, k] + cost[k + 1, j] + dims[i] * dims[k + 1] * dims[j + 1]
                if q < cost[i, j]:
                    cost[i, j] = q
                    split[i, j] = k
    return cost[0, n - 1], split


@loop(lambda r, n: (n, r.integers(0, 4, n)), sizes=(1, 2, 3, 6), large=90)
def nussinov(n, seq):
    table = np.zeros((n, n), np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < n:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < n:
                if i < j - 1:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + (1 if seq[i] + seq[j] == 3 else 0))
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


@loop(lambda r, n: (letters(r, n), 1), sizes=(1, 2, 3, 6), large=120)
def rna_folding_of_a_string(rna, loop_length):
    pairs = {("A", "U"), ("U", "A"), ("C", "G"), ("G", "C")}
    n = len(rna)
    best = [[0] * n for _ in range(n)]
    for k in range(1, n):
        for i in range(n - k):
            j = i + k
            if j - i > loop_length:
                top = max(best[i + 1][j], best[i][j - 1])
                if (rna[i], rna[j]) in pairs:
                    top = max(top, best[i + 1][j - 1] + 1)
                top = max([top] + [best[i][t] + best[t + 1][j] for t in range(i, j)])
                best[i][j] = top
    return best[0][n - 1]


@loop(lambda r, n: (letters(r, n, "ACGT"), letters(r, n, "ACGT"), 2, -1, -1), sizes=(0, 1, 2, 5), large=170)
def smith_waterman(a, b, match, mismatch, gap):
    h = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
    best, where = 0, (0, 0)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            score = match if a[i - 1] == b[j - 1] else mismatch
            h[i, j] = max(0, h[i - 1, j - 1] + score, h[i - 1, j] + gap, h[i, j - 1] + gap)
            if h[i, j] > best:
                best, where = h[i, j], (i, j)
    return best, where


@loop(lambda r, n: (r.random(n), r.random(n + 1)), sizes=(1, 2, 5), large=200)
def dynamic_time_warping(x, y):
    n, m = len(x), len(y)
    cost = np.full((n + 1, m + 1), np.inf)
    cost[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            distance = abs(x[i - 1] - y[j - 1])
            cost[i, j] = distance + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return cost[n, m]


@loop(lambda r, n: (r.integers(-9, 10, n),), sizes=(1, 2, 9), large=200_000)
def largest_sum_of_a_run(x):
    best = current = x[0]
    for i in range(1, len(x)):
        current = max(x[i], current + x[i])
        best = max(best, current)
    return best


@loop(lambda r, n: ([int(k) for k in r.integers(0, 1000, n)],), sizes=(0, 1, 2, 9), large=1500)
def longest_increasing_subsequence(x):
    if not x:
        return []
    length = [1] * len(x)
    previous = [-1] * len(x)
    for i in range(len(x)):
        for j in range(i):
            if x[j] < x[i] and length[j] + 1 > length[i]:
                length[i] = length[j] + 1
                previous[i] = j
    i = length.index(max(length))
    result = []
    while i != -1:
        result.append(x[i])
        i = previous[i]
    return result[::-1]


@loop(lambda r, n: (road_map(r, n),), sizes=(0, 1, 2, 5), large=60)
def floyd_warshall(d):
    n = len(d)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]


@loop(lambda r, n: (r.integers(1, 100, (n, n)),), sizes=(1, 2, 5), large=150)
def floyd_warshall_rows(path):
    for k in range(path.shape[0]):
        for i in range(path.shape[0]):
            path[i, :] = np.minimum(path[i, :], path[i, k] + path[k, :])
    return path


@loop(lambda r, n: (road_map(r, n), 0), sizes=(1, 2, 6), large=250)
def dijkstra(w, source):
    n = len(w)
    dist = np.full(n, np.inf)
    dist[source] = 0.0
    done = np.zeros(n, dtype=bool)
    for _ in range(n):
        u = -1
        for i in range(n):
            if not done[i] and (u == -1 or dist[i] < dist[u]):
                u = i
        if dist[u] == np.inf:
            break
        done[u] = True
        for v in range(n):
            if w[u, v] < np.inf and dist[u] + w[u, v] < dist[v]:
                dist[v] = dist[u] + w[u, v]
    return dist


@loop(lambda r, n: hmm(r, n), sizes=(1, 2, 5), large=3000, rtol=1e-13)
def viterbi(obs, start, move, emit):
    steps, states = len(obs), len(start)
    score = np.zeros((steps, states))
    back = np.zeros((steps, states), dtype=int)
    score[0] = np.log(start) + np.log(emit[:, obs[0]])
    for t in range(1, steps):
        for s in range(states):
            candidates = score[t - 1] + np.log(move[:, s])
            back[t, s] = np.argmax(candidates)
            score[t, s] = candidates[back[t, s]] + np.log(emit[s, obs[t]])
    path = [np.argmax(score[-1])]
    for t in range(steps - 1, 0, -1):
        path.append(back[t, path[-1]])
    return path[::-1], np.max(score[-1])


@loop(lambda r, n: hmm(r, n), sizes=(1, 2, 5), large=3000)
def viterbi_elements(obs, start, move, emit):
    steps, states = len(obs), len(start)
    score = np.zeros((steps, states))
    back = np.zeros((steps, states), dtype=np.int64)
    for s in range(states):
        score[0, s] = start[s] * emit[s, obs[0]]
    for t in range(1, steps):
        total = 0.0
        for s in range(states):
            best, arg = -1.0, 0
            for p in range(states):
                value = score[t - 1, p] * move[p, s]
                if value > best:
                    best, arg = value, p
            score[t, s] = best * emit[s, obs[t]]
            back[t, s] = arg
            total += score[t, s]
        for s in range(states):
            score[t, s] /= total
    path = np.zeros(steps, dtype=np.int64)
    path[steps - 1] = np.argmax(score[steps - 1])
    for t in range(steps - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path


@loop(lambda r, n: hmm(r, n), sizes=(1, 2, 5), large=5000)
def forward_backward(obs, start, move, emit):
    steps, states = len(obs), len(start)
    alpha = np.zeros((steps, states))
    beta = np.ones((steps, states))
    scale = np.zeros(steps)
    alpha[0] = start * emit[:, obs[0]]
    scale[0] = alpha[0].sum()
    alpha[0] /= scale[0]
    for t in range(1, steps):
        alpha[t] = (alpha[t - 1] @ move) * emit[:, obs[t]]
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
    for t in reversed(range(steps - 1)):
        beta[t] = move @ (emit[:, obs[t + 1]] * beta[t + 1])
        beta[t] /= scale[t + 1]
    gamma = alpha * beta
    return gamma / gamma.sum(axis=1, keepdims=True), scale
