"""What masks choose: followed as far as its size does not matter, and then given as NumPy gives it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

from .test_writes import leaves, memory


def matrix(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, 3)) * 3


def outcome(function: Callable[..., Any], args: list[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return leaves(function(*args))
        except (ValueError, TypeError, IndexError) as error:
            return [repr(error)]


def same(expected: list[Any], got: list[Any]) -> None:
    assert len(got) == len(expected)
    for e, g in zip(expected, got):
        assert type(g) is type(e)
        if isinstance(e, (np.ndarray, np.generic)):
            assert (g.dtype, g.shape) == (e.dtype, e.shape)
            rtol = 1e-5 if e.dtype == "float32" else 1e-12
            np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol / 100)
        else:
            assert g == e


def check(function: Callable[..., Any], breaks: int = 0, backend: Any = "reference", dtype: str = "float64") -> Any:
    """Compare calls in which other elements are chosen, and none in the last one."""
    for dynamic in (None, True):
        compiled = dg.compile(function, backend=backend, dynamic=dynamic)
        with dg.config.override(strict=True):
            for seed in (1, 2, 3, None):
                x, y = (np.full((4, 3), -9.0) if seed is None else matrix(seed + k) for k in (0, 7))
                theirs, ours = ([a.astype(dtype) for a in (x, y)] for _ in range(2))
                expected, got = [*theirs, *outcome(function, theirs)], [*ours, *outcome(compiled, ours)]
                same(expected, got)
                assert memory(got) == memory(expected)
        assert compiled.stats.fallbacks == 0, compiled.stats.last_error
        assert len(compiled.stats.breaks) == breaks, compiled.stats.breaks
    return compiled


def reduced(x, y):
    m = x > 0
    t = x[m]
    return t.sum(), t.prod(), t.any(), (t > 1).all(), np.sum(t * 2 + 1), np.count_nonzero(t > 1), (-t).sum(dtype=np.float64)


def reduced_where_some_are_chosen(x, y):
    t = x[x > 0]
    return t.max(), np.min(t), t.mean(), t.std(), np.var(t), np.abs(t).max() - np.sqrt(t).mean()


def reduced_with_degrees_of_freedom(x, y):
    return np.var(x[x > 0], ddof=1), x[y[:, 0] > 0].std(axis=0, ddof=1)


def reduced_rows(x, y):
    rows = x[x[:, 0] > 0]
    return rows.sum(axis=0), rows.sum(), (rows * y[0]).sum(0), rows.sum(axis=1).sum(), rows.max(axis=1).any(), rows[:].ndim


def reduced_columns(x, y):
    columns = x[:, x[0] > -1]
    return columns.sum(axis=1), columns.sum(axis=0).sum(), np.sum(columns, axis=(0, 1)), columns.any(axis=-1)


def beside_integers(x, y):
    return x[1, x[1] > 0].sum(), x[x[:, 1] > 0, 1].sum(), x[..., 0][x[:, 2] > 0].sum()


def of_two_arrays(x, y):
    m = (x > 0) & (y > 0)
    return (x[m] * y[m]).sum(), np.where(x[m] > y[m], x[m], 0).sum(), (x[m] - y[m] ** 2).sum()


def of_equal_masks(x, y):
    return (x[x > 0] * y[x > 0]).sum()


def added_in_place(x, y):
    x[x > 0] += 1
    x[y > 0] *= y[y > 0]
    x[x < -1] = -x[x < -1]
    y[x > 2] = x[x > 2] * 3
    x[:, y[0] > 0] -= 2
    x[y[:, 0] > 0] = y[0]
    x[y[:, 0] > 0, 1:] = [7, 8]
    x[1, y[1] > 0] = 0.5
    x[1, None, y[2] > 0] = 3
    x[np.abs(x) > 100] = np.array([5])
    return x * 1


def stored_from_known_masks(x, y):
    x[np.tri(4, 3) > 0] = y[np.tri(4, 3) > 0] + 1
    x[[True, False, True, False]] = y[:2]
    x[np.eye(4, 3, dtype=bool)] = [1, 2, 3]
    return x[np.tri(4, 3, dtype=bool)] * 1


def held_by_two_names(x, y):
    t = u = x[x > 0]
    v = x[x > 0]
    t += 1
    x *= 2
    return [t, u, v], x * 1, (t + 0).sum()


def given_back(x, y):
    t = x[x > 0]
    return t * 2, t, x[:, x[0] > 0], {"rows": x[y[:, 0] > 0] - 1}, t.dtype, t.ndim


def written_meanwhile(x, y):
    t, m = x[x > 0], y > 0
    before = y[m]
    x[:] = 0
    y += 5
    m[0] = True
    return t, before, y[m], x * 1


def compressed(x, y):
    return np.extract(x > 0, x).sum(), np.compress(x[:, 0] > 0, y, axis=0), np.compress(x[0] > 0, x, axis=1).sum()


def piecewise(x, y):
    a = np.piecewise(x, [x < 0, x > 2], [-1, lambda v: v * 2])
    return a, np.piecewise(y, [y < 0, y > 1], [np.square, 5, lambda v: v + x[0, 0]])


WHOLE = (
    reduced, reduced_where_some_are_chosen, reduced_with_degrees_of_freedom, reduced_columns, beside_integers, of_two_arrays,
    of_equal_masks, added_in_place, stored_from_known_masks, held_by_two_names, given_back, written_meanwhile, compressed,
    piecewise,
)  # fmt: skip


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_followed(function: Callable[..., Any]) -> None:
    check(function)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "bool"])
def test_followed_in_other_dtypes(dtype: str) -> None:
    def sums(x, y):
        t = x[y > 0]
        return t.sum(), t.any(), t.all(), t.max(), t.min(), t.mean(), t.prod(), np.count_nonzero(t), t

    check(sums, dtype=dtype)


@pytest.mark.parametrize("function", [reduced, added_in_place, held_by_two_names, given_back], ids=lambda f: f.__name__)
def test_followed_by_the_compiler(function: Callable[..., Any]) -> None:
    check(function, backend="cpu")


def sorted_and_measured(x, y):
    t = x[x > 0] * 2
    n = len(t)
    return np.sort(t) / n, t.sum() * n


def sized(x, y):
    return x[x > 0].size, (x[y > 0] + 1).shape


def of_two_masks(x, y):
    return x[x > 0].sum() + (x[:1][:, 0] * 0 + y[y > 0].sum()), np.concatenate([x[x > 0], y[y > 0]])


def iterated(x, y):
    return [v * 2 for v in x[x > 0]], [k for k, v in enumerate(y[y > 0])]


def measured_in_a_branch(x, y):
    t = x[x > 0]
    if len(t):
        return t.max() + 1
    return y.sum()


def indexed_again(x, y):
    t = x[x > 0]
    return t[:1] * 2, t[::-1] + t, np.nonzero(y > 0)[0] + 1


BROKEN = (sorted_and_measured, sized, of_two_masks, iterated, measured_in_a_branch, indexed_again)


@pytest.mark.parametrize("function", BROKEN, ids=lambda f: f.__name__)
def test_what_asks_for_the_size_goes_on_behind_a_break(function: Callable[..., Any]) -> None:
    compiled = dg.compile(function, backend="reference")
    with dg.config.override(strict=True):
        for seed in (1, 2, 3):
            args = [matrix(seed), matrix(seed + 7)]
            same(outcome(function, args), outcome(compiled, args))
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    assert compiled.stats.breaks


def test_sums_are_as_accurate_as_numpys() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(100_000).astype("float32")
    compiled = dg.compile(lambda x: (x[x > 0.3].sum(), x[x > 0.3].mean()))
    exact = x[x > 0.3].astype("float64")
    for got, plain, wanted in zip(compiled(x), (x[x > 0.3].sum(), x[x > 0.3].mean()), (exact.sum(), exact.mean())):
        assert abs(got - wanted) <= max(2 * abs(plain - wanted), 4e-7 * wanted)


def test_effects_of_piecewise_functions_are_no_part_of_a_graph() -> None:
    log: list[int] = []

    def note(v):
        log.append(1)
        return v

    def f(x):
        return np.piecewise(x, [x > 100], [note, 0.0]) + 1

    compiled = dg.compile(f, backend="reference")
    np.testing.assert_array_equal(compiled(np.arange(3.0)), [1, 1, 1])
    assert log == []
