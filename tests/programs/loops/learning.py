"""Learning: clustering, mixtures, recurrent networks, descent, ranking."""

from __future__ import annotations

import math

import numpy as np

import dynagraph as dg

from .table import loop


def links(r: np.random.Generator, n: int) -> tuple:
    counts = r.integers(0, min(n, 8) + 1, n)
    return np.concatenate(([0], np.cumsum(counts))), r.integers(0, n, counts.sum()), n


def weights(r: np.random.Generator, *shapes: tuple) -> tuple:
    return tuple(0.3 * r.standard_normal(shape) for shape in shapes)


@loop(lambda r, n: (r.random((n, 2)) + r.integers(0, 3, (n, 1)), min(n, 3)), sizes=(1, 2, 3, 7), large=1000)
def k_means(points, k):
    n, dims = points.shape
    centres = points[:k].copy()
    labels = np.full(n, -1)
    changed = True
    rounds = 0
    while changed:
        changed = False
        for i in range(n):
            best, nearest = math.inf, 0
            for c in range(k):
                d = 0.0
                for j in range(dims):
                    d += (points[i, j] - centres[c, j]) ** 2
                if d < best:
                    best, nearest = d, c
            if labels[i] != nearest:
                labels[i] = nearest
                changed = True
        for c in range(k):
            members = labels == c
            if members.any():
                centres[c] = points[members].mean(axis=0)
        rounds += 1
    return centres, labels, rounds


@loop(lambda r, n: (r.random((n, 4)), min(n, 5)), sizes=(1, 2, 7), large=4000)
def k_means_arrays(points, k):
    centres = points[:k].copy()
    for _ in range(100):
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        new = centres.copy()
        for c in range(k):
            if np.any(labels == c):
                new[c] = points[labels == c].mean(axis=0)
        if np.allclose(new, centres):
            break
        centres = new
    return centres, labels


@loop(lambda r, n: (*links(r, n), 0.85, 1e-6), sizes=(1, 2, 6), large=1500)
def pagerank(starts, targets, n, damping, tol):
    rank = np.ones(n) / n
    while True:
        new = np.full(n, (1 - damping) / n)
        lost = 0.0
        for i in range(n):
            degree = starts[i + 1] - starts[i]
            if degree == 0:
                lost += rank[i]
                continue
            share = damping * rank[i] / degree
            for k in range(starts[i], starts[i + 1]):
                new[targets[k]] += share
        new += damping * lost / n
        change = np.abs(new - rank).sum()
        rank = new
        if change < tol:
            return rank


@loop(lambda r, n: (r.random((n, n)) + 1e-3, 0.85), sizes=(1, 2, 6), large=3000)
def pagerank_arrays(m, damping):
    m = m / m.sum(axis=0)
    n = m.shape[0]
    v = np.ones(n) / n
    change, steps = 1.0, 0
    while change > 1e-12:
        new = damping * (m @ v) + (1 - damping) / n
        change = np.linalg.norm(new - v)
        v = new
        steps += 1
    return v, steps


@loop(lambda r, n: (r.standard_normal(n) + 3 * r.integers(0, 2, n), 20), sizes=(1, 2, 6), large=2000)
def expectation_maximisation(x, rounds):
    mean1, mean2, var1, var2, weight = x.min(), x.max(), 1.0, 1.0, 0.5
    resp = np.zeros(len(x))
    for _ in range(rounds):
        for i in range(len(x)):
            p1 = weight * math.exp(-((x[i] - mean1) ** 2) / (2 * var1)) / math.sqrt(2 * math.pi * var1)
            p2 = (1 - weight) * math.exp(-((x[i] - mean2) ** 2) / (2 * var2)) / math.sqrt(2 * math.pi * var2)
            resp[i] = p1 / (p1 + p2)
        n1 = resp.sum()
        n2 = len(x) - n1
        if n1 < 1e-9 or n2 < 1e-9:
            break
        mean1 = (resp * x).sum() / n1
        mean2 = ((1 - resp) * x).sum() / n2
        var1 = (resp * (x - mean1) ** 2).sum() / n1 + 1e-6
        var2 = ((1 - resp) * (x - mean2) ** 2).sum() / n2 + 1e-6
        weight = n1 / len(x)
    return mean1, mean2, var1, var2, weight


@loop(lambda r, n: (r.standard_normal((n, 5)), *weights(r, (5, 8), (8, 8), (8,))), sizes=(0, 1, 2, 6), large=10_000, rtol=1e-13)
def rnn(xs, wx, wh, b):
    h = np.zeros(wh.shape[0])
    states = np.empty((len(xs), len(h)))
    for t, x in enumerate(xs):
        h = np.tanh(x @ wx + h @ wh + b)
        states[t] = h
    return states


@loop(lambda r, n: (r.standard_normal((n, 3, 4)), *weights(r, (4, 24), (6, 24), (24,))), sizes=(0, 1, 2, 6), large=3000, rtol=1e-12)
def lstm(xs, wx, wh, b):
    def sigmoid(z):
        return 1.0 / (1.0 + np.exp(-z))

    units = wh.shape[0]
    h = np.zeros((xs.shape[1], units))
    c = np.zeros_like(h)
    outputs = []
    for x in xs:
        z = x @ wx + h @ wh + b
        i = sigmoid(z[:, :units])
        f = sigmoid(z[:, units : 2 * units])
        o = sigmoid(z[:, 2 * units : 3 * units])
        g = np.tanh(z[:, 3 * units :])
        c = f * c + i * g
        h = o * np.tanh(c)
        outputs.append(h)
    return outputs, c


def squared_error(w, x, y):
    residual = x @ w - y
    return (residual * residual).mean()


value_and_grad_of_error = dg.value_and_grad(squared_error)


@loop(lambda r, n: (np.zeros(4), r.standard_normal((20, 4)), r.standard_normal(20), 0.05, n), sizes=(0, 1, 2, 6), large=3000)
def gradient_descent(w, x, y, rate, steps):
    losses = np.empty(steps)
    for t in range(steps):
        loss, gradient = value_and_grad_of_error(w, x, y)
        losses[t] = loss
        w = w - rate * gradient
    return w, losses


@loop(lambda r, n: (np.zeros(3), r.random((30, 3)), r.random(30), 0.1, n), sizes=(0, 1, 2, 6), large=5000, rtol=1e-12)
def gradient_descent_by_hand(w, x, y, rate, steps):
    for t in range(steps):
        residual = x @ w - y
        w = w - rate * 2 * x.T @ residual / len(y)
        if np.abs(residual).max() < 1e-8:
            break
    return w


@loop(lambda r, n: (r.standard_normal((n, 4)), r.integers(0, 2, n), 3, 0.1), sizes=(0, 1, 2, 6), large=2000)
def logistic_regression(x, y, epochs, rate):
    w = np.zeros(x.shape[1])
    b = 0.0
    for _ in range(epochs):
        for i in range(len(x)):
            z = b
            for j in range(len(w)):
                z += w[j] * x[i, j]
            error = 1.0 / (1.0 + math.exp(-z)) - y[i]
            for j in range(len(w)):
                w[j] -= rate * error * x[i, j]
            b -= rate * error
    return w, b


@loop(lambda r, n: (r.standard_normal((n, 3)), r.choice([-1, 1], n), 10), sizes=(0, 1, 2, 6), large=3000)
def perceptron(x, y, epochs):
    w = np.zeros(x.shape[1] + 1)
    for _ in range(epochs):
        mistakes = 0
        for xi, target in zip(x, y):
            if target * (w[0] + xi @ w[1:]) <= 0:
                w[1:] += target * xi
                w[0] += target
                mistakes += 1
        if mistakes == 0:
            break
    return w, mistakes if epochs else 0


@loop(lambda r, n: (r.standard_normal(10), n), sizes=(0, 1, 2, 6), large=3000)
def adam(w, steps):
    m = np.zeros_like(w)
    v = np.zeros_like(w)
    for t in range(1, steps + 1):
        g = 2 * (w - 3.0)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


@loop(lambda r, n: (r.random((n, 2)), r.random((n // 2 + 1, 2))), sizes=(0, 1, 2, 6), large=300)
def nearest_neighbours(points, queries):
    nearest = np.full(len(queries), -1)
    for q in range(len(queries)):
        best = np.inf
        for p in range(len(points)):
            d = (points[p, 0] - queries[q, 0]) ** 2 + (points[p, 1] - queries[q, 1]) ** 2
            if d < best:
                best = d
                nearest[q] = p
    return nearest


@loop(lambda r, n: (n, r.random(20 * n), r.integers(0, 2, 20 * n)), sizes=(2, 3, 5), large=3000)
def q_learning(n, explore, moves):
    q = np.zeros((n, 2))
    state = 0
    for t in range(len(explore)):
        if explore[t] < 0.1:
            action = moves[t]
        else:
            action = np.argmax(q[state])
        following = min(state + 1, n - 1) if action == 1 else max(state - 1, 0)
        reward = 1.0 if following == n - 1 else -0.01
        q[state, action] += 0.5 * (reward + 0.9 * q[following].max() - q[state, action])
        state = 0 if following == n - 1 else following
    return q


@loop(lambda r, n: (r.random((n, n)), 1e-6), sizes=(1, 2, 4), large=30)
def value_iteration(rewards, tol):
    n, m = rewards.shape
    values = np.zeros((n, m))
    while True:
        delta = 0.0
        for i in range(n):
            for j in range(m):
                best = -np.inf
                for di, dj in [(0, 1), (0, -1), (1, 0), (-1, 0)]:
                    y = min(max(i + di, 0), n - 1)
                    x = min(max(j + dj, 0), m - 1)
                    best = max(best, rewards[y, x] + 0.5 * values[y, x])
                delta = max(delta, abs(best - values[i, j]))
                values[i, j] = best
        if delta < tol:
            break
    return values
