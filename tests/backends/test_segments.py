"""Loops cut where what they read changes: concatenated, padded, rolled and tiled arrays, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c.backend import lower_graph
from dynagraph.ir.loops import Kernel, Loop, expressions
from dynagraph.ir.passes.pipeline import run as run_passes

pytestmark = pytest.mark.sampled(3)

RNG = np.random.default_rng(5)


def blur(x):
    p = np.pad(x, 1, mode="edge")
    return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * 0.25


def neighbours(x):
    return sum(np.roll(np.roll(x, i, 0), j, 1) for i in (-1, 0, 1) for j in (-2, 0, 2) if (i, j) != (0, 0))


def written_over(x):
    x[...] = np.where(x > 0, np.roll(x, 3, axis=-1), 0.5) + 1
    x[1:-1] *= 2
    return x.sum()


PROGRAMS: list[Callable] = [
    blur,
    neighbours,
    written_over,
    lambda x: np.roll(x.ravel(), 5) - x.ravel() + np.roll(x.ravel(), -1),
    lambda x: np.concatenate([x, x[::-1] * 2, x[:3]]) + 1,
    lambda x: np.concatenate([x[:, :5], np.sqrt(np.abs(x)), x[:, 1::2]], axis=1) * 3,
    lambda x: np.concatenate([x.ravel()[k : k + 130] * k for k in range(20)]),
    lambda x: np.pad(x, ((2, 3), (0, 4)), constant_values=7.0),
    lambda x: np.pad(x, 3, mode="wrap")[::2, 1:] - 1,
    lambda x: np.pad(x, 2, mode="reflect").T * 2,
    lambda x: np.tile(x, (2, 3))[1:] + 1,
    lambda x: np.pad(x, 1).sum(axis=0) + np.roll(x, 1, 0).max(axis=0)[0],
    lambda x: np.pad(x, 1).sum(axis=1),
    lambda x: np.cumsum(np.roll(x, 2, 1), axis=1),
    lambda x: np.tril(x) + np.triu(x, 3) * 2 + np.eye(*x.shape),
    lambda x: np.stack([x, x * 2, np.roll(x, 1, 1)], axis=-1),
    lambda x: np.diff(x, prepend=0.0, append=x[:, :1]),
    lambda x: np.where(np.arange(x.shape[1]) < 30, x, -x),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", [(3, 5), (70, 90), (200, 33), (5, 4000), (300, 300)], ids=str)
@pytest.mark.parametrize("function", PROGRAMS)
def test_what_is_cut_is_what_numpy_gives(function: Callable, shape: tuple[int, int]) -> None:
    x = RNG.normal(size=shape)
    given, plain = x.copy(), x.copy()
    compiled = dg.compile(function, backend="c")
    got, want = compiled(given), function(plain)
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(given, plain)
    assert compiled.stats.fallbacks == 0


def test_arrays_of_many_blocks_stay_one_kernel_or_a_few() -> None:
    parts = [[RNG.normal(size=(80, 90)) for _ in range(12)] for _ in range(12)]
    compiled = dg.compile(lambda parts: np.block(parts) + 1, backend="c")
    np.testing.assert_array_equal(compiled(parts), np.block(parts) + 1)
    program = lower_graph(run_passes(compiled.last_graph))
    assert len(program.steps) <= 32 and str(program).count(" in ") <= 128


@pytest.mark.parametrize("function", [blur, neighbours, PROGRAMS[3], PROGRAMS[4], PROGRAMS[6]])
def test_sizes_that_change(function: Callable) -> None:
    compiled = dg.compile(function, backend="c", dynamic=True)
    for shape in ((70, 90), (71, 200), (300, 40)):
        x = RNG.normal(size=shape)
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("function", [blur, neighbours, PROGRAMS[3], PROGRAMS[4], PROGRAMS[5]])
def test_long_loops_choose_nothing(function: Callable) -> None:
    compiled = dg.compile(function, backend="c")
    compiled(RNG.normal(size=(300, 300)))
    program = lower_graph(run_passes(compiled.last_graph))
    for kernel in program.steps:
        assert isinstance(kernel, Kernel)
        rows = np.prod([axis.hint for axis in kernel.axes], dtype=int)
        loops = [s for s in kernel.body if isinstance(s, Loop)]
        turns = [(rows * s.axes[-1].hint, s.body) for s in loops] if loops else [(rows, kernel.body)]
        for n, body in turns:
            assert n <= 300 or not any(e.op == "choose" for root in expressions(body) for e in root.walk())
