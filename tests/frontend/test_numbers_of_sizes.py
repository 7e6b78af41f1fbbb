"""Numbers that are made of sizes that change: one program serves them all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg

SHAPES = [(2, 3, 4), (3, 4, 5), (5, 6, 7), (4, 4, 4), (7, 3, 9), (8, 9, 6)]


def prod(x):
    return x * math.prod(x.shape)


def product(x):
    return x * (x.shape[0] * x.shape[1] * x.shape[2] * 32)


def product_as_a_size(x):
    return x.reshape(x.shape[0] * x.shape[1] * x.shape[2]) * 2


def ends_of_a_slice(x):
    start, stop, step = slice(1, -1).indices(x.shape[2])
    return x[..., start:stop:step] * stop


def ends_counted_from_the_back(x):
    start, stop, step = slice(-2, None, 3).indices(x.shape[2] + 4)
    return x * start + stop - step


def ends_backwards(x):
    start, stop, step = slice(None, None, -2).indices(x.shape[1])
    return x * start + stop - step


def programs(f: Callable, givens: list) -> int:
    compiled = dg.compile(f, backend="numpy", mode="max", fullgraph=True)
    for x in givens:
        np.testing.assert_array_equal(compiled(x), f(x), strict=True)
    return compiled.counters()["misses"]


@pytest.mark.parametrize("f", [prod, product, product_as_a_size, ends_of_a_slice, ends_counted_from_the_back, ends_backwards])
def test_sizes_that_change_make_one_more_program(f: Callable) -> None:
    assert programs(f, [np.arange(float(math.prod(shape))).reshape(shape) for shape in SHAPES]) == 2


def test_what_might_not_fit_into_64_bits_is_a_program_for_each_size() -> None:
    def f(x):
        n = x.shape[0]
        return x[:1] * float(n * n * n * n * 64 // 3)

    assert programs(f, [np.ones(n) for n in (3, 5, 7, 9)]) == 4, "float() is of the size at hand"

    def g(x):
        n = x.shape[0]
        return x[:1] + (n * n * n * n * 64 > 5)

    assert programs(g, [np.ones(n) for n in (3, 5, 7, 9)]) == 2
    assert programs(g, [np.ones(n) for n in (3, 5, 1 << 15, 1 << 16, 9)]) == 4


@pytest.mark.parametrize(
    "n, part",
    [
        (0, slice(None, -1)), (1, slice(2, -3)), (5, slice(9, -9)), (5, slice(-9, 9, 2)), (4, slice(4, None, -3)),
        (4, slice(-1, -9, -1)),
    ],
)
def test_ends_are_pythons(n: int, part: slice) -> None:
    def f(x):
        return x.sum() + 1, slice(part.start, part.stop, part.step).indices(x.shape[0])

    compiled = dg.compile(f, backend="numpy", mode="max")
    for size in (7, 8, 9, n, 12, n):
        assert compiled(np.ones(size)) == f(np.ones(size))


def test_errors_of_ends_are_pythons() -> None:
    def f(x, step):
        return x + sum(slice(None, None, step).indices(x.shape[0]))

    compiled = dg.compile(f, backend="numpy", mode="max")
    for size in (7, 8, 9):
        with pytest.raises(ValueError, match="slice step cannot be zero"):
            compiled(np.ones(size), 0)
