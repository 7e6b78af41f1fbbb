"""Loops whose indices divide: heads that lie side by side are walked without divisions."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg


def loops(compiled) -> str:
    return compiled.programs[-1].executable.artifacts["loops"]


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (3, 1, 7, 8), (1, 2, 6, 16)])
def test_merging_heads_divides_nothing(shape: tuple[int, ...]) -> None:
    batch, heads, tokens, size = shape

    def merged(x):
        return np.exp(x).transpose(0, 2, 1, 3).reshape(batch, tokens, heads * size) * 2

    compiled = dg.compile(merged, backend="c")
    x = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(compiled(x), merged(x), rtol=1e-14)
    assert "//" not in loops(compiled) and "%" not in loops(compiled)


def test_what_does_not_divide_the_extent_stays() -> None:
    def every_other(x):
        return np.concatenate([x.reshape(-1), x.T.reshape(-1)]).reshape(5, 6) + 1

    compiled = dg.compile(every_other, backend="c")
    x = np.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(compiled(x), every_other(x))


def test_one_value_that_is_reshaped_twice_is_moved_once() -> None:
    def both(x, a, b):
        moved = x.transpose(0, 2, 1)
        return moved.reshape(6, 4) @ a, moved.reshape(2, 12) @ b

    rng = np.random.default_rng(1)
    args = rng.normal(size=(2, 4, 3)), rng.normal(size=(4, 5)), rng.normal(size=(12, 3))
    compiled = dg.compile(both, backend="c")
    for got, want in zip(compiled(*args), both(*args)):
        np.testing.assert_allclose(got, want, rtol=1e-13)
    assert loops(compiled).count("kernel ") == 1
