"""Random walks, Monte Carlo, Markov chains: numbers drawn before, and drawn inside the loop."""

from __future__ import annotations

import math
import random

import numpy as np

from .table import loop


@loop(lambda r, n: (r.integers(0, 4, n),), sizes=(0, 1, 2, 9), large=200_000)
def random_walk(directions):
    x = y = 0
    farthest = 0
    for d in directions:
        if d == 0:
            x += 1
        elif d == 1:
            x -= 1
        elif d == 2:
            y += 1
        else:
            y -= 1
        farthest = max(farthest, abs(x) + abs(y))
    return x, y, farthest


@loop(lambda r, n: (int(r.integers(1000)), n), sizes=(0, 1, 2, 9), large=100_000)
def random_walk_drawn_inside(seed, steps):
    rng = np.random.default_rng(seed)
    position = 0.0
    path = np.zeros(steps + 1)
    for i in range(steps):
        position += rng.normal()
        path[i + 1] = position
    return path


@loop(lambda r, n: (int(r.integers(1000)), n), sizes=(0, 1, 9), large=200_000)
def pi_by_random(seed, n):
    random.seed(seed)
    inside = 0
    for _ in range(n):
        x = random.random()
        y = random.random()
        if x * x + y * y <= 1.0:
            inside += 1
    return 4.0 * inside / n if n else 0.0


@loop(lambda r, n: (r.standard_normal(n), r.random(n), 0.5), sizes=(0, 1, 2, 9), large=150_000)
def metropolis(proposals, uniforms, width):
    x = 0.0
    accepted = 0
    samples = np.empty(len(proposals))
    for i in range(len(proposals)):
        new = x + width * proposals[i]
        log_ratio = -0.5 * (new * new - x * x)
        if log_ratio >= 0 or uniforms[i] < math.exp(log_ratio):
            x = new
            accepted += 1
        samples[i] = x
    return samples, accepted


@loop(lambda r, n: (int(r.integers(1000)), n), sizes=(0, 1, 2, 9), large=40_000)
def metropolis_drawn_inside(seed, steps):
    rng = np.random.default_rng(seed)

    def density(x):
        return math.exp(-0.5 * (x - 1) ** 2) + 0.5 * math.exp(-0.5 * (x + 2) ** 2)

    x = 0.0
    chain = []
    for _ in range(steps):
        proposal = x + rng.normal(0.0, 1.0)
        if rng.random() < density(proposal) / density(x):
            x = proposal
        chain.append(x)
    return np.array(chain)


@loop(lambda r, n: (r.choice([-1, 1], (n, n)), 0.44, r.integers(0, n, (30 * n, 2)), r.random(30 * n)), sizes=(1, 2, 4), large=2000)
def ising(spins, beta, places, uniforms):
    n = spins.shape[0]
    energy = 0
    for t in range(len(places)):
        i, j = places[t]
        s = spins[i, j]
        neighbours = spins[(i + 1) % n, j] + spins[i - 1, j] + spins[i, (j + 1) % n] + spins[i, j - 1]
        change = 2 * s * neighbours
        if change <= 0 or uniforms[t] < math.exp(-beta * change):
            spins[i, j] = -s
            energy += change
    return energy


@loop(lambda r, n: (r.standard_normal((n, 6)), 100.0, 0.05, 0.2, 0.1), sizes=(0, 1, 2, 5), large=20_000)
def asian_option(z, spot, rate, volatility, dt):
    payoff = 0.0
    for path in range(z.shape[0]):
        price = spot
        total = 0.0
        for t in range(z.shape[1]):
            price *= math.exp((rate - 0.5 * volatility**2) * dt + volatility * math.sqrt(dt) * z[path, t])
            total += price
        payoff += max(total / z.shape[1] - spot, 0.0)
    return payoff / max(z.shape[0], 1)


@loop(lambda r, n: (100.0, 100.0, 1.0, 0.05, 0.2, n), sizes=(1, 2, 5), large=400)
def american_put(spot, strike, years, rate, volatility, steps):
    dt = years / steps
    up = math.exp(volatility * math.sqrt(dt))
    p = (math.exp(rate * dt) - 1 / up) / (up - 1 / up)
    discount = math.exp(-rate * dt)
    values = [max(strike - spot * up ** (2 * j - steps), 0.0) for j in range(steps + 1)]
    for i in range(steps - 1, -1, -1):
        for j in range(i + 1):
            held = discount * (p * values[j + 1] + (1 - p) * values[j])
            exercised = strike - spot * up ** (2 * j - i)
            values[j] = max(held, exercised)
    return values[0]


@loop(lambda r, n: (np.cumsum(r.random((4, 4)), axis=1) / 3, r.random(n), 0), sizes=(0, 1, 2, 9), large=100_000)
def markov_chain(cumulative, uniforms, state):
    visits = np.zeros(cumulative.shape[0], dtype=int)
    for u in uniforms:
        for following in range(cumulative.shape[0]):
            if u < cumulative[state, following]:
                state = following
                break
        visits[state] += 1
    return visits


@loop(lambda r, n: (list(range(n)), r.random(n).tolist()), sizes=(0, 1, 2, 9), large=200_000)
def shuffle(items, uniforms):
    for i in range(len(items) - 1, 0, -1):
        j = int(uniforms[i] * (i + 1))
        items[i], items[j] = items[j], items[i]
    return items


@loop(lambda r, n: (r.exponential(1.0, n), r.exponential(0.8, n)), sizes=(0, 1, 2, 9), large=200_000)
def waiting_times(between, service):
    free = clock = waited = 0.0
    longest = 0.0
    for a, s in zip(between, service):
        clock += a
        start = max(clock, free)
        waited += start - clock
        longest = max(longest, start - clock)
        free = start + s
    return waited / len(between) if len(between) else None, longest
