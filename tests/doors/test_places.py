"""Functions that take or give places, compiled and plain: along axes, among choices, by conditions, on diagonals, flat."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg


def matrix(n: int = 3) -> np.ndarray:
    return (np.arange(4.0 * n) * 7 % 11 - 4).reshape(n, 4)


def outcome(function: Callable[..., Any], x: np.ndarray) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(x), x
        except (IndexError, ValueError, TypeError) as error:
            return repr(error), x


def same(expected: Any, got: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for e, g in zip(expected, got):
            same(e, g)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(got, expected)
        if isinstance(expected, np.ndarray):
            assert got.flags.writeable == expected.flags.writeable
    else:
        assert got == expected


def check(function: Callable[..., Any], backend: Any = "reference", whole: bool = True, make: Any = matrix) -> None:
    for dynamic in (None, True):
        compiled = dg.compile(function, backend=backend, dynamic=dynamic)
        with dg.config.override(strict=True):
            for n in (3, 3, 5, 4):
                same(outcome(function, make(n)), outcome(compiled, make(n)))
        assert compiled.stats.fallbacks == 0, compiled.stats.last_error
        assert not whole or not compiled.stats.breaks, compiled.stats.breaks


def by(*indices: Any) -> np.ndarray:
    return np.array(indices)


READS: dict[str, Callable[[np.ndarray], Any]] = {
    "ix_": lambda x: (x[np.ix_([0, 2], [1, 3, 0])] * 1, x[np.ix_([True, False, True], range(2))[0]] if len(x) == 3 else x * 1),
    "range": lambda x: x[range(2)] + x[range(2, 0, -1), range(2)][:, None],
    "bools": lambda x: (x[True] * 1, x[False] * 1, x[:, True, [0, 1]] * 1, x[None, True, ..., 1] + 1),
    "known masks": lambda x: (
        x[:, [True, False, True, False]] * 1,
        x[np.arange(len(x)) % 2 == 0] * 1,
        x[np.eye(len(x), 4) > 0] * 1,
    ),
    "known places": lambda x: (
        np.nonzero(np.arange(4) % 2)[0] * 1,
        x[np.where(np.tri(3, 4))] * 1,
        np.argwhere(np.tri(2)) + 0,
        np.flatnonzero([1, 0, 2]) + 1,
    ),
    "0-d arrays": lambda x: (x[np.array(1)] * 1, x[..., np.array(2)] + 1, x[np.array(1), 2] * 1, x[np.array(0), :] * 2),
    "small integers": lambda x: x[by(0, 2).astype(np.int8)] + x[by(1, 0).astype(np.uint64)],
    "take": lambda x: (
        np.take(x, [1, -1]) * 1,
        x.take([[1, 2]], 0) * 2,
        np.take(x, 1) * 2,
        x.take(2, axis=1) + 0,
        np.take(x, [], 0),
    ),
    "take by mode": lambda x: (
        np.take(x, [70, -9], mode="wrap"),
        np.take(x, [70, -9], axis=1, mode="clip"),
        x.take(-2, mode="clip"),
    ),
    "take into": lambda x: (out := np.zeros((2, 4)), np.take(x, [1, 0], axis=0, out=out), out * 2)[2],
    "take_along_axis": lambda x: (
        np.take_along_axis(x, np.argmax(x, axis=1)[:, None], 1),
        np.take_along_axis(x, by([2, 1, 0, -1]), axis=0),
        np.take_along_axis(x, by(1, 1), None),
    ),
    "choose": lambda x: (
        np.choose(x > 0, [x, 2.5]),
        np.choose((x > 0) + 0, [x, -x]),
        np.choose([1, 0, 1, 1], [np.float32(3), 1]),
        np.choose(0, [1, 2.0]) * 2,
    ),
    "choose by mode": lambda x: (
        by(7, -2, 1, 0).choose(x, mode="wrap"),
        np.choose(by(7, -2, 1, 0), x, mode="clip"),
        np.choose(by(0, 0), [5]),
    ),
    "select": lambda x: (
        np.select([x > 3, x < 0], [x * 2, -x], 0.5),
        np.select([x > 3, x[0] < 0], [1, x[:1]]),
        np.select([True], [3], 7),
        x * 1,
    ),
    "compress": lambda x: (
        np.compress([0, 1, 1], x, axis=0) * 1,
        x.compress([False, True], 1),
        np.compress([1, 0, 0, 1], x),
        np.extract(np.eye(3, 4), x[:3]) * 1,
    ),
    "indices": lambda x: (
        np.indices((2, len(x))),
        np.indices((2, 3), sparse=True)[1] * 1,
        np.indices((2, 3), dtype=np.float32) + 0,
    ),
    "diag_indices": lambda x: (x[np.diag_indices(3)] * 1, x[np.diag_indices_from(x[:3, :3])] * 2),
    "triangles": lambda x: (
        x[np.tril_indices(3)] * 1,
        x[np.triu_indices(3, 1, 4)] + 1,
        x[np.tril_indices_from(x, -1)] * 1,
        x[np.triu_indices_from(x)] * 2,
    ),
    "unravel_index": lambda x: (
        np.unravel_index(np.argmax(x), x.shape),
        np.unravel_index(by(0, 11, 5), x.shape, order="F"),
        x[np.unravel_index(np.argmin(x), x.shape)] * 2,
    ),
    "ravel_multi_index": lambda x: (
        np.ravel_multi_index((by(1, 2), by(0, 3)), x.shape),
        np.ravel_multi_index((by(9, -1), by(-1, 7)), x.shape, mode=("wrap", "clip"), order="F"),
        np.ravel_multi_index((1, 2), (2, 3)),
        x * 1,
    ),
    "diagonals": lambda x: (
        np.diagonal(x, 1) * 1,
        np.diag(x, -1) * 2,
        x.diagonal(-2) + 1,
        np.diag(x),
        x.diagonal(1),
        np.diag(x, 9) * 1,
        np.trace(x, 1),
    ),
    "diagonals of more": lambda x: (
        y := np.stack([x, x + 1, x * 2]),
        y.diagonal() * 1,
        np.diagonal(y, 1, 2, 0) * 2,
        y.trace(1, 2, 1),
        np.diagonal(y, 0, 1, 2) + 0,
    )[1:],
    "diagonal matrices": lambda x: (np.diag(x[0], 2) * 1, np.diag(x[:, 0], -1) + 0, np.diagflat(x[:2, :2], 1)),
    "flat": lambda x: (
        x.flat[3] * 1,
        x.flat[2:9:3] * 1,
        x.flat[[0, -1]] + 1,
        x.flat[...],
        x.T.flat[::2] * 1,
        x.flat[::-1],
        len(x.flat),
    ),
    "flat, one by one": lambda x: (sum(x[:2].flat), [v * 2 for v in x[0].flat], list(x.T[0].flat)),
    "count_nonzero": lambda x: (
        np.count_nonzero(x),
        np.count_nonzero(x, axis=0),
        np.count_nonzero(x > 1, axis=(0, 1)),
        np.count_nonzero(x, axis=1, keepdims=True),
    ),
    "np.s_": lambda x: (x[np.s_[1:, ::2]] * 1, x[np.index_exp[0]] * 2),
}


def _put_many(x: np.ndarray) -> Any:
    np.put(x, [0, 3, 1], [7, 8])
    x.put([1, 1, 2], [4, 5])
    x.put(-1, 9)
    np.put(x, [70, -90], 1.5, mode="wrap")
    np.put(x.T, [50, -9, 3], [2.5, 1], mode="clip")
    np.put(np.zeros(3, int), [1], 1.7)
    return x * 1


def _put_by_masks(x: np.ndarray) -> Any:
    np.putmask(x, x > 3, [1, 2, 3])
    np.place(x, x < 0, 8)
    np.place(x[:3], np.eye(3, 4), [5, 6])
    np.copyto(x, 7, where=x == 0)
    return x * 1


def _put_along(x: np.ndarray) -> Any:
    np.put_along_axis(x, np.argmax(x, axis=1)[:, None], 0.0, 1)
    np.put_along_axis(x, by([0, 1, 2, 1], [0, 0, 0, 0]), x[:2] * 3, 0)
    return x * 1


def _fill_diagonals(x: np.ndarray) -> Any:
    np.fill_diagonal(x, 9)
    np.fill_diagonal(x.T, [1, 2], wrap=True)
    cube = np.zeros((3, 3, 3))
    np.fill_diagonal(cube, [1, 2])
    return x * 1, cube


def _flat(x: np.ndarray) -> Any:
    x.flat[::5] = [1, 2]
    x.flat = x.flat[::-1]
    x.flat[[0, 1, 0]] = [3, 4, 5]
    x.T.flat[1] = 99
    x.flat[...] += 1
    return x * 1


def _through_views(x: np.ndarray) -> Any:
    np.fliplr(x)[0] = 1
    np.rot90(x)[:, 0] = 2
    np.flip(x)[x < 0] = 3
    return x * 1


def _by_lists(x: np.ndarray) -> Any:
    x[[0, 1], :][0] = 5
    x[True] += 3
    x[np.arange(len(x)) > 1] *= 2
    x[range(2), [0, 1]] = 8
    x[..., [0, 0]] = [[1, 2]]
    x[np.tril_indices(3, -1)] = 5
    x[np.ix_([0, 2], [1, 3])] -= 9
    x.__setitem__(np.diag_indices(3), [7, 8, 9])
    return x * 1


def _overlapping(x: np.ndarray) -> Any:
    x[[0, 1, 0]] = x[[2, 2, 1]]
    x[1:, [1, 3]] += x[[0]][:, [1, 3]]
    x[[0, 1]] = x[1:3]
    i = np.arange(3)
    i[i] = i[::-1]
    i[[2, 0]] = i[i[:2]]
    return x * 1, i


WRITES = {f.__name__.strip("_").replace("_", " "): f for f in (
    _put_many, _put_by_masks, _put_along, _fill_diagonals, _flat, _through_views, _by_lists, _overlapping,
)}  # fmt: skip


@pytest.mark.parametrize("case", [*READS, *WRITES])
def test_places(case: str) -> None:
    check({**READS, **WRITES}[case], whole=case != "take into")


def test_places_by_the_compiler() -> None:
    def every(x: np.ndarray) -> Any:
        return [function(x) for function in READS.values()], [function(x) for function in WRITES.values()]

    compiled = dg.compile(every)
    with dg.config.override(strict=True):
        for _ in range(2):
            same(outcome(every, matrix()), outcome(compiled, matrix()))


WRONG: dict[str, Callable[[np.ndarray], Any]] = {
    "take": lambda x: np.take(x, [0, len(x) * 4]),
    "take along": lambda x: np.take_along_axis(x, by([0, 1, 2, 9]), 0),
    "put": lambda x: np.put(x, by(0, 99), 1),
    "put data": lambda x: np.put(x, x.astype(int) * 100, 1),
    "choose": lambda x: np.choose(x.astype(int), [1, 2]),
    "unravel_index": lambda x: np.unravel_index(x.astype(int), (2, 3)),
    "ravel_multi_index": lambda x: np.ravel_multi_index((x[0].astype(int), 1), (2, 3)),
    "a mask of another shape": lambda x: x[x[0, :2] > 0],
    "a known mask of another shape": lambda x: x[[True, False]],
    "floats": lambda x: x[[1.0, 0.0]],
    "two Ellipses": lambda x: x[..., [0], ...],
    "too many": lambda x: x[0, [0], 0],
    "shapes": lambda x: x[[0, 1], [0, 1, 2]],
    "a store of shapes": lambda x: x.__setitem__(([0, 1], [0, 1, 2]), 0),
    "two dimensions by a mask": lambda x: x.__setitem__(x > 0, np.ones((1, 1))),
    "fill_diagonal": lambda x: np.fill_diagonal(x[0], 1),
    "putmask": lambda x: np.putmask(x, [True], 1),
    "an axis": lambda x: np.put_along_axis(x, by([0]), 1, 5),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_numpys_and_come_after_the_same_effects(case: str) -> None:
    log: list[Any] = []

    def f(x: np.ndarray) -> Any:
        x += 1
        log.append(x.sum())
        WRONG[case](x)
        log.append("not reached")
        return x

    check(f, whole=False)
    assert log and "not reached" not in log


def test_views_of_diagonals_and_copies_of_flat() -> None:
    def f(x: np.ndarray) -> Any:
        d, e, t, i = np.diagonal(x), x.flat[1:3], x.take([0]), x[np.array(1)]
        x += 1
        return d, e, t, i, x * 1

    def maker(n: int) -> np.ndarray:
        return matrix(n)

    check(f, make=maker)
    x = matrix()
    d, e, t, i, _ = dg.compile(f, backend="reference")(x)
    assert np.shares_memory(d, x) and not any(np.shares_memory(a, x) for a in (e, t, i))
