"""The functions that are measured: plain NumPy, as people write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import numpy as np

_erf_p = 0.3275911
_erf_a = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def add3(x, y, z):
    return x + y + z


def gelu_tanh(x):
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def swish(x):
    return x / (1.0 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x, gain, bias):
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * gain + bias


def normal_cdf(x):
    """Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7."""
    z = np.abs(x) * 0.7071067811865476
    t = 1.0 / (1.0 + _erf_p * z)
    a1, a2, a3, a4, a5 = _erf_a
    poly = t * (a1 + t * (a2 + t * (a3 + t * (a4 + t * a5))))
    erf = 1.0 - poly * np.exp(-z * z)
    return 0.5 * (1.0 + np.where(x < 0, -erf, erf))


def black_scholes(spot, strike, years, rate, volatility):
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def chain10(x):
    y = x * 1.5 + 0.25
    y = y * y - x
    y = np.abs(y) + 0.5
    y = np.maximum(y, 0.75) * x
    return (y - 1.0) * 0.125


def total(x):
    return x.sum()


@dataclass(frozen=True)
class Workload:
    """A function, its arguments, and what one call moves or computes at least."""

    name: str
    function: Callable
    arguments: tuple
    nbytes: int  # compulsory memory traffic
    bar: float | None = None  # least ratio over NumPy on one thread

    def written_for(self, namespace: object) -> Callable:
        """The same function with another array namespace in the place of `np`."""
        scope = {**globals(), "np": namespace}
        for name, value in list(scope.items()):
            if isinstance(value, FunctionType) and value.__module__ == __name__:
                scope[name] = FunctionType(value.__code__, scope, name, value.__defaults__)
        return scope[self.function.__name__]


def throughput() -> list[Workload]:
    rng = np.random.default_rng(0)
    x7 = rng.standard_normal(10_000_000, dtype=np.float32)
    rows = rng.standard_normal((4096, 1024), dtype=np.float32)
    gain, bias = np.ones(1024, np.float32), np.zeros(1024, np.float32)
    n = 2_000_000
    options = (rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2.0, n), 0.03, 0.25)
    x64 = rng.standard_normal(10_000_000)
    return [
        Workload("gelu_tanh 1e7 f32", gelu_tanh, (x7,), 80_000_000, 8.0),
        Workload("swish 1e7 f32", swish, (x7,), 80_000_000),
        Workload("softmax 4096x1024 f32", softmax, (rows,), 2 * rows.nbytes, 3.0),
        Workload("layernorm 4096x1024 f32", layernorm, (rows, gain, bias), 2 * rows.nbytes, 8.0),
        Workload("black_scholes 2e6 f64", black_scholes, options, 5 * n * 8, 5.0),
        Workload("chain of 10 ops 1e7 f64", chain10, (x64,), 160_000_000, 4.0),
        Workload("sum 1e7 f64", total, (x64,), 80_000_000, 1.0),
    ]
