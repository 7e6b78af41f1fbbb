"""The built-in suite of `dynagraph bench`: classic array code, written as people write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Workload:
    """A function to measure.

    `inputs` makes its arguments for a size factor; `flops` counts its arithmetic, where that is the limit.
    """

    name: str
    function: Callable[..., Any]
    inputs: Callable[[float], tuple[Any, ...]]
    flops: Callable[[tuple[Any, ...]], int] | None = None


def add_three(x: Array, y: Array, z: Array) -> Array:
    return x + y + z


def polynomial(x: Array) -> Array:
    return ((((0.5 * x + 1.5) * x - 2.0) * x + 0.25) * x - 1.0) * x + 3.0


def gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * gain + bias


def black_scholes(spot: Array, strike: Array, years: Array, rate: float, volatility: float) -> Array:
    """Prices of European calls; the normal distribution function by Abramowitz and Stegun 7.1.26."""
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    below = []
    for d in (d1, d1 - root):
        z = np.abs(d) * 0.7071067811865476
        t = 1.0 / (1.0 + 0.3275911 * z)
        poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
        erf = 1.0 - poly * np.exp(-z * z)
        below.append(0.5 * (1.0 + np.where(d < 0, -erf, erf)))
    return spot * below[0] - strike * np.exp(-rate * years) * below[1]


def total(x: Array) -> Any:
    return x.sum()


def standardize(x: Array) -> Array:
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-8)


def log_sum_exp(x: Array) -> Array:
    top = x.max(axis=1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]


def heat_step(u: Array) -> Array:
    """One explicit step of the heat equation on the interior of a grid."""
    return u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])


def pairwise_distances(a: Array, b: Array) -> Array:
    difference = a[:, None, :] - b[None, :, :]
    return np.sqrt((difference * difference).sum(axis=-1))


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def _normal(*shape: int, dtype: type = np.float64) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def _uniform(low: float, high: float, n: int) -> Array:
    return np.random.default_rng(n).uniform(low, high, n)


def _n(size: float, factor: float) -> int:
    return max(4, int(size * factor))


def _options(factor: float) -> tuple[Any, ...]:
    n = _n(1e6, factor)
    return _uniform(50, 150, n), _uniform(50, 150, n), _uniform(0.1, 2, n), 0.03, 0.25


def _layers(factor: float) -> tuple[Array, ...]:
    batch, hidden = _n(256, factor), _n(512, factor)
    shapes = [(batch, 64), (64, hidden), (hidden,), (hidden, 10), (10,)]
    return tuple(_normal(*shape, dtype=np.float32) for shape in shapes)


def _mlp_flops(arguments: tuple[Any, ...]) -> int:
    x, w1, _, w2, _ = arguments
    return 2 * x.shape[0] * (w1.size + w2.size)


def _rows(factor: float) -> Array:
    return _normal(_n(1024, factor), 1024, dtype=np.float32)


SUITE: list[Workload] = [
    Workload("add of three 16-element arrays, f64", add_three, lambda f: (_normal(16), _normal(16), _normal(16))),
    Workload("polynomial, f64", polynomial, lambda f: (_normal(_n(2e6, f)),)),
    Workload("gelu, f32", gelu, lambda f: (_normal(_n(2e6, f), dtype=np.float32),)),
    Workload("softmax of rows, f32", softmax, lambda f: (_rows(f),)),
    Workload("layer norm of rows, f32", layer_norm, lambda f: (_rows(f), *_normal(2, 1024, dtype=np.float32))),
    Workload("log-sum-exp of rows, f64", log_sum_exp, lambda f: (_normal(_n(1024, f), 512),)),
    Workload("standardize columns, f64", standardize, lambda f: (_normal(_n(20_000, f), 64),)),
    Workload("Black-Scholes, f64", black_scholes, _options),
    Workload("sum, f64", total, lambda f: (_normal(_n(4e6, f)),)),
    Workload("heat equation step, f64", heat_step, lambda f: (_normal(_n(1000, f), 1000),)),
    Workload("pairwise distances, f64", pairwise_distances, lambda f: (_normal(_n(500, f), 16), _normal(400, 16))),
    Workload("two-layer perceptron, f32", mlp, _layers, _mlp_flops),
]

__all__ = ["SUITE", "Workload"]
