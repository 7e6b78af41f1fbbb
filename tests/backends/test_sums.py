"""Sums, means and variances have NumPy's bits: they follow its order, on any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import config
from dynagraph.ir.optable.blocked import subtrees

Case = tuple[str, Callable[[np.ndarray], Any], np.ndarray]
DTYPES = ("float16", "float32", "float64", "complex64", "complex128")
LENGTHS = (1, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 136, 255, 257, 300, 511, 512, 513, 1000, 1024, 4097, 70_001)
SHAPES = (
    (3, 5), (7, 40), (40, 7), (30, 300), (300, 30), (5, 6, 7), (4, 20, 33), (2, 3, 4, 5), (5, 1, 7), (40, 1, 30), (200, 1, 3),
    (3, 1, 200, 1), (2, 40_000), (40_000, 2), (30, 1), (1, 30),
)  # fmt: skip


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def check_bits(cases: list[Case], threads: int = 1) -> None:
    """One program for many of them: compiling takes longer than adding up."""
    for start in range(0, len(cases), 40):
        _check_bits(cases[start : start + 40], threads)


def _check_bits(cases: list[Case], threads: int) -> None:
    def program(*arrays: np.ndarray) -> list[Any]:
        return [function(x) for (_, function, _), x in zip(cases, arrays)]

    arrays = [x for _, _, x in cases]
    before = config.threads
    config.threads = threads
    try:
        compiled = dg.compile(program, backend="c", fullgraph=True)
        ours = compiled(*arrays)
    finally:
        config.threads = before
    for (name, _, x), got, expected in zip(cases, ours, program(*arrays)):
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        where = f"{name} of {x.dtype}{x.shape}"
        np.testing.assert_array_equal(bits(got), bits(expected), err_msg=where)


def bits(value: Any) -> np.ndarray:
    array = np.ascontiguousarray(value)
    return array.view(f"u{array.dtype.itemsize // (1 + (array.dtype.kind == 'c'))}")


def of_shape(x: np.ndarray) -> Iterator[Case]:
    """A sum over every combination of axes, and beside it one of the others in turn."""
    axes = [axis for count in range(1, x.ndim + 1) for axis in combinations(range(x.ndim), count)]
    for k, axis in enumerate(axes):
        yield f"sum over {axis}", lambda x, axis=axis: x.sum(axis=axis), x
        others: list[tuple[str, Callable[[np.ndarray], Any]]] = [
            ("fused sum", lambda x, axis=axis: (x * 2 - 1).sum(axis=axis, keepdims=True)),
            ("mean", lambda x, axis=axis: np.mean(x, axis, keepdims=True)),
            ("var", lambda x, axis=axis: x.var(axis=axis)),
        ]
        name, function = others[(k + x.ndim) % 3]
        yield f"{name} over {axis}", function, x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_every_length_are_numpys(dtype: str) -> None:
    rng = np.random.default_rng(0)
    arrays = [random_array(rng, (n,), dtype) for n in LENGTHS]
    check_bits([("sum", lambda x: x.sum(), x) for x in arrays] + [("fused sum", lambda x: (x + x).sum(), x) for x in arrays])


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", range(4))
def test_sums_over_axes_are_numpys(dtype: str, part: int) -> None:
    rng = np.random.default_rng(part)
    shapes = SHAPES[part::4] if dtype == "float64" else SHAPES[part::4][part % 2 :: 3]
    check_bits([case for shape in shapes for case in of_shape(random_array(rng, shape, dtype))], threads=1 + part % 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_in_parts_are_numpys(threads: int) -> None:
    rng = np.random.default_rng(threads)
    arrays = [random_array(rng, (n,), dtype) for n in (65_536, 70_001, 100_000, 300_007) for dtype in DTYPES]
    check_bits([("sum", lambda x: x.sum(), x) for x in arrays], threads)


def test_sums_of_any_size_are_numpys() -> None:
    """One program for sizes that change: how it divides a sum into parts does not depend on the size that it was captured with."""
    compiled = dg.compile(lambda x, w: ((x * w).sum(), x.sum(axis=0), x.sum(axis=1), x.var()), backend="c", dynamic=True)
    rng = np.random.default_rng(0)
    for rows, columns in ((400, 300), (2, 3), (3, 50), (7, 129), (40, 1000), (500, 300)):
        x, w = random_array(rng, (rows, columns), "float64"), random_array(rng, (columns,), "float64")
        for got, expected in zip(compiled(x, w), ((x * w).sum(), x.sum(axis=0), x.sum(axis=1), x.var())):
            np.testing.assert_array_equal(bits(got), bits(expected))


def test_products_are_numpys() -> None:
    rng = np.random.default_rng(0)
    arrays = [1 + random_array(rng, shape, dtype) / 8 for shape in ((40,), (30, 70), (3, 20_000)) for dtype in DTYPES[:3]]
    check_bits([("prod", lambda x: x.prod(), x) for x in arrays] + [("prod over 0", lambda x: x.prod(axis=0), x) for x in arrays])


def test_sums_of_negative_zeros_are_zero() -> None:
    cases = [("sum", lambda x: x.sum(axis=-1), np.full(shape, -0.0)) for shape in ((3,), (9,), (4, 300), (70_000,), (5, 1))]
    check_bits([*cases, *(("sum", lambda x: x.sum(axis=0), x) for _, _, x in cases)])


@pytest.mark.parametrize("is_complex", [False, True])
def test_parts_of_a_sum_are_all_of_it(is_complex: bool) -> None:
    for length in (0, 1, 100, 128, 129, 1000, 65_537):
        parts = subtrees(length, 5, is_complex)
        assert len(parts) == 32
        assert sum(parts) == length


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_products_of_copies_take_the_copies(dtype: str) -> None:
    """BLAS adds up in another order what lies in steps: norms copy it, and so may the user."""
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for shape in ((500,), (40, 60), (3, 1), (18_774,)):
        whole = random_array(rng, tuple(3 * d for d in shape), dtype)
        for step in (1, 2, 3, -1):
            x = whole[tuple(slice(None, None, step) for _ in shape)]
            cases.append((f"norm, step {step},", np.linalg.norm, x))
            cases.append((f"product of a copy, step {step},", lambda x: x.ravel().copy() @ x.ravel().copy(), x))
    check_bits(cases)
