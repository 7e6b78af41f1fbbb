"""Poisson, binomial and gamma numbers of uniform ones: by inversion where a mean is small, by rejection elsewhere.

`draw(places, attempt)` gives two uniform numbers in [0, 1) for each place of the flattened result: the same whenever it is asked.

References: Hörmann, "The transformed rejection method for generating Poisson random variables", 1993 (PTRS); "The generation of
binomial random variates", 1993 (BTRS); Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core.arrays import library_of_array

Draw = Callable[[Any, int], tuple[Any, Any]]
_SMALL = 10.0  # of the mean: below it by inversion
_MOST = 200  # steps of an inversion, which ends far before
_FACTORIALS = np.array([math.lgamma(k + 1.0) for k in range(16)])


def log_factorial(k: Any) -> Any:
    """The logarithm of k!, of an array of whole floats: a table, and Stirling's series from 16 on."""
    x = np.maximum(k, 15.0) + 1.0
    y = 1.0 / (x * x)
    series = ((-y / 1680.0 + 1.0 / 1260.0) * y - 1.0 / 360.0) * y + 1.0 / 12.0
    large = (x - 0.5) * np.log(x) - x + 0.5 * math.log(2 * math.pi) + series / x
    table = library_of_array(k).asarray(_FACTORIALS)
    return np.where(k < 16, table[np.clip(k, 0, 15).astype(np.int64)], large)


def _inverted(u: Any, first: Any, ratio: Callable[[int], Any]) -> Any:
    """The least k whose cumulative probability exceeds `u`; `first` is that of 0, ``ratio(k)`` of k to that of k - 1."""
    found, term, total = np.zeros_like(u), first, first
    for k in range(1, _MOST):
        beyond = u >= total
        if not beyond.any():
            break
        found += beyond
        term = term * ratio(k)
        total = total + term
    return found


def _rejected(found: Any, places: Any, draw: Draw, propose: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
    """Store accepted proposals at places, try again at the others: `propose(chosen, u, v)` gives values and what is accepted."""
    attempt = 1
    while places.size:
        u, v = draw(places, attempt)
        values, accepted = propose(places.astype(np.int64), u - 0.5, 1.0 - v)
        found[places[accepted].astype(np.int64)] = values[accepted]
        places = places[~accepted]
        attempt += 1


def _places(which: Any) -> Any:
    return np.flatnonzero(which).astype(np.uint64)


def poisson(rate: Any, draw: Draw) -> Any:
    """Poisson numbers of an array of rates that are not negative, as float64."""
    flat = rate.reshape(-1).astype(np.float64)
    found = np.zeros_like(flat)
    small = _places(flat < _SMALL)
    if small.size:
        means = flat[small.astype(np.int64)]
        found[small.astype(np.int64)] = _inverted(draw(small, 0)[0], np.exp(-means), lambda k: means / k)

    def propose(chosen: Any, u: Any, v: Any) -> tuple[Any, Any]:
        mean = flat[chosen]
        b = 0.931 + 2.53 * np.sqrt(mean)
        a = -0.059 + 0.02483 * b
        near = 0.5 - np.abs(u)
        k = np.floor((2 * a / near + b) * u + mean + 0.43)
        at_once = (near >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        possible = (k >= 0) & ((near >= 0.013) | (v <= near))
        level = np.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (near * near) + b))
        return k, at_once | (possible & (level <= k * np.log(mean) - mean - log_factorial(np.maximum(k, 0.0))))

    _rejected(found, _places(flat >= _SMALL), draw, propose)
    return found.reshape(rate.shape)


def binomial(count: Any, p: Any, draw: Draw) -> Any:
    """Binomial numbers of arrays of one shape: how many of `count` trials succeed with probability `p`; as float64."""
    n, chance = count.reshape(-1).astype(np.float64), p.reshape(-1).astype(np.float64)
    turned = chance > 0.5
    chance = np.where(turned, 1.0 - chance, chance)
    found = np.zeros_like(n)
    small = _places(n * chance < _SMALL)
    if small.size:
        at = small.astype(np.int64)
        trials, q = n[at], chance[at]
        odds = q / (1.0 - q)
        found[at] = _inverted(
            draw(small, 0)[0], np.power(1.0 - q, trials), lambda k: np.maximum(trials - (k - 1), 0.0) / k * odds
        )

    def propose(chosen: Any, u: Any, v: Any) -> tuple[Any, Any]:
        trials, q = n[chosen], chance[chosen]
        spread = np.sqrt(trials * q * (1 - q))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * q
        near = 0.5 - np.abs(u)
        k = np.floor((2 * a / near + b) * u + trials * q + 0.5)
        at_once = (near >= 0.07) & (v <= 0.92 - 4.2 / b)
        possible = (k >= 0) & (k <= trials)
        level = np.log(v * (2.83 + 5.1 / b) * spread / (a / (near * near) + b))
        mode, safe = np.floor((trials + 1) * q), np.clip(k, 0.0, trials)
        against = log_factorial(mode) + log_factorial(trials - mode) - log_factorial(safe) - log_factorial(trials - safe)
        return k, at_once | (possible & (level <= against + (safe - mode) * np.log(q / (1 - q))))

    _rejected(found, _places(n * chance >= _SMALL), draw, propose)
    return np.where(turned, n - found, found).reshape(count.shape)


def gamma(shape: Any, draw: Draw) -> Any:
    """The logarithms of gamma numbers of an array of shapes (alpha) and of scale 1, as float64.

    Below a shape of 1 they are those of one more, times ``u ** (1 / shape)``: as logarithms, since many are below the least float.
    """
    flat = shape.reshape(-1).astype(np.float64)
    raised = np.where(flat < 1, flat + 1, flat)
    found = np.zeros_like(flat)
    left, attempt = _places(flat == flat), 0
    while left.size:
        at = left.astype(np.int64)
        d = raised[at] - 1.0 / 3.0
        size, angle = draw(left, 2 * attempt)
        u, _ = draw(left, 2 * attempt + 1)
        normal = np.sqrt(-2.0 * np.log1p(-size)) * np.cos(2 * math.pi * angle)
        cube = 1.0 + normal / (3.0 * np.sqrt(d))
        v = np.where(cube > 0, cube, 1.0) ** 3
        accepted = (cube > 0) & (np.log1p(-u) < 0.5 * normal * normal + d - d * v + d * np.log(v))
        found[at[accepted]] = np.log(d * v)[accepted]
        left = left[~accepted]
        attempt += 1
    u, _ = draw(_places(flat == flat), 2 * attempt)  # of a block that no place has used
    found[flat == flat] += np.where(flat < 1, 1.0, 0.0)[flat == flat] * np.log1p(-u) / flat[flat == flat]
    return np.where(flat == flat, found, np.nan).reshape(shape.shape)


__all__ = ["binomial", "gamma", "log_factorial", "poisson"]
