"""Chance and money: Markov chains, Monte Carlo with a seeded Generator, options, annealing."""

from __future__ import annotations

import numpy as np

from .table import program


@program(lambda r: (r.random((5, 5)),))
def markov_stationary(p):
    p /= p.sum(axis=1, keepdims=True)
    pi = np.ones(len(p)) / len(p)
    for _ in range(50):
        new = pi @ p
        if np.allclose(new, pi, atol=1e-4):
            return new
        pi = new
    return pi


@program(lambda r: (r.random((4, 4)), r, 12))
def markov_walk(p, rng, n):
    cumulative = np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)
    state, visits = 0, np.zeros(4, dtype=int)
    for _ in range(n):
        state = int(np.searchsorted(cumulative[state], rng.random()))
        visits[state] += 1
    return visits


@program(lambda r: ((r.random((9, 9)) < 0.3).astype(float), 0.85))
def pagerank(links, d):
    n = links.shape[0]
    out = links.sum(axis=0)
    m = np.where(out > 0, links / np.where(out == 0, 1, out), 1.0 / n)
    rank = np.full(n, 1.0 / n)
    for _ in range(30):
        new = (1 - d) / n + d * m @ rank
        if np.abs(new - rank).sum() < 1e-3:
            break
        rank = new
    return rank


@program(lambda r: (r.random(3), 0.1 * np.eye(3) + 0.02, r))
def portfolio(weights, cov, rng):
    low = np.linalg.cholesky(cov)
    weights = weights / weights.sum()
    returns = rng.standard_normal((200, 3)) @ low.T @ weights
    worst = np.sort(returns)[:10]
    return np.percentile(returns, 5), worst.mean(), returns.std(ddof=1)


@program(lambda r: (int(r.integers(1000)), 100.0, 0.2))
def asian_option(seed, s0, sigma):
    rng = np.random.default_rng(seed)
    dt = 1 / 12
    paths = np.empty((100, 13))
    paths[:, 0] = s0
    for t in range(1, 13):
        z = rng.standard_normal(100)
        paths[:, t] = paths[:, t - 1] * np.exp(-0.5 * sigma**2 * dt + sigma * np.sqrt(dt) * z)
    payoff = np.maximum(paths[:, 1:].mean(axis=1) - s0, 0)
    return payoff.mean(), payoff.std() / np.sqrt(len(payoff))


@program(lambda r: (100.0 + 10 * r.random(), 100.0, 1.0, 0.05, 0.2, 20))
def american_put(s, k, t, r, sigma, n):
    dt = t / n
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    p = (np.exp(r * dt) - d) / (u - d)
    prices = s * d ** np.arange(n, -1, -1) * u ** np.arange(0, n + 1)
    values = np.maximum(k - prices, 0)
    for _ in range(n):
        values = np.exp(-r * dt) * (p * values[1:] + (1 - p) * values[:-1])
        prices = prices[1:] * d
        values = np.maximum(values, k - prices)
    return values[0]


@program(lambda r: (r.uniform(50, 150, 10), 100.0, 0.5, 0.03, 0.25))
def black_scholes(s, k, t, r, sigma):
    def cdf(x):
        q = 1 / (1 + 0.2316419 * np.abs(x))
        poly = q * (0.319381530 + q * (-0.356563782 + q * (1.781477937 + q * (-1.821255978 + q * 1.330274429))))
        tail = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) * poly
        return np.where(x >= 0, 1 - tail, tail)

    d1 = (np.log(s / k) + (r + 0.5 * sigma**2) * t) / (sigma * np.sqrt(t))
    d2 = d1 - sigma * np.sqrt(t)
    call = s * cdf(d1) - k * np.exp(-r * t) * cdf(d2)
    return {"call": call, "put": call - s + k * np.exp(-r * t)}


@program(lambda r: (int(r.integers(1000)), r.integers(0, 50, (7, 2))))
def annealing(seed, cities):
    rng = np.random.default_rng(seed)

    def length(tour):
        d = cities[tour] - cities[np.roll(tour, 1)]
        return np.abs(d).sum()

    tour = rng.permutation(len(cities))
    cost, temperature = length(tour), 20.0
    for _ in range(15):
        i, j = sorted(rng.choice(len(cities), 2, replace=False))
        new = tour.copy()
        new[i : j + 1] = new[i : j + 1][::-1]
        c = length(new)
        if c < cost or rng.random() < np.exp((cost - c) / temperature):
            tour, cost = new, c
        temperature *= 0.9
    return tour, cost


@program(lambda r: (int(r.integers(1000)), 500))
def estimate_pi(seed, n):
    rng = np.random.default_rng(seed)
    x, y = rng.random(n), rng.random(n)
    return 4 * np.count_nonzero(x**2 + y**2 <= 1) / n


@program(lambda r: (r, 10))
def metropolis(rng, n):
    x, samples, accepted = 0.0, np.empty(n), 0
    for i in range(n):
        candidate = x + rng.normal(0, 1)
        if np.log(rng.random()) < 0.5 * (x**2 - candidate**2):
            x = candidate
            accepted += 1
        samples[i] = x
    return samples, accepted


@program(lambda r: (np.cumsum(r.standard_normal(40)) + 100,))
def drawdown_and_signals(price):
    peak = np.maximum.accumulate(price)
    drawdown = (price - peak) / peak
    returns = np.diff(np.log(price))
    fast = np.convolve(price, np.ones(3) / 3, mode="valid")[5:]
    slow = np.convolve(price, np.ones(8) / 8, mode="valid")
    position = np.where(fast > slow, 1, -1)
    crossings = np.nonzero(np.diff(position))[0]
    return drawdown.min(), returns.mean() / returns.std() * np.sqrt(252), crossings


@program(lambda r: (r.random(30), 10))
def bootstrap(x, n):
    rng = np.random.default_rng(7)
    means = np.array([x[rng.integers(0, len(x), len(x))].mean() for _ in range(n)])
    return np.quantile(means, [0.025, 0.975])
