"""Column reductions over the same rows in one kernel: which share it, NumPy's bits, random programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph._core import _dispatch
from dynagraph.backends.c.backend import lower_graph
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.loops import ColumnReduce, Kernel, accumulators
from dynagraph.ir.passes.pipeline import run as run_passes

from .test_c_backend import build, check


def passes(graph: Graph) -> list[int]:
    """Of each pass over columns how many accumulators it has."""
    kernels = [step for step in lower_graph(run_passes(graph)).steps if isinstance(step, Kernel)]
    return [len(accumulators(s)) for kernel in kernels for s in kernel.body if isinstance(s, ColumnReduce)]


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(dtype)


def total(b: Any, x: Node, op: str = "sum", keepdims: bool = False) -> Node:
    return getattr(b, op)(x, axis=(0,), keepdims=keepdims)


def affine_gradients(b: Any, x: Node, g: Node) -> list[Node]:
    """Those by the weight and the bias of a layer norm."""
    return [total(b, b.multiply(g, x)), total(b, g)]


TOGETHER: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "weight and bias": (affine_gradients, [2]),
    "several kinds": (lambda b, x, g: [total(b, x), total(b, x, "max"), total(b, b.multiply(x, g)), total(b, x, "prod")], [4]),
    "kept dimensions": (lambda b, x, g: [total(b, g, keepdims=True), total(b, b.multiply(x, g))], [2]),
    "a sum of what another sum gives": (
        lambda b, x, g: [m := total(b, x, keepdims=True), total(b, b.exp(b.subtract(x, m))), total(b, b.multiply(x, g))], [2, 1]
    ),
    "other memory": (lambda b, x, g: [total(b, x), total(b, g)], [1, 1]),
    "other axes": (lambda b, x, g: [total(b, x), b.sum(b.reshape(x, shape=(150, 2, 40)), axis=(0,))], [1, 1]),
    "positions": (lambda b, x, g: [total(b, x), b.argmax(x, axis=(0,))], [1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_which_are_one_pass(name: str) -> None:
    program, expected = TOGETHER[name]
    x, g = normal(300, 40), normal(300, 40) + 1
    graph = check(program, x, g, rtol=1e-5)
    assert sorted(passes(graph)) == sorted(expected)


def test_other_dtypes_are_passes_of_their_own() -> None:
    def program(b: Any, x: Node) -> list[Node]:
        from_halves = b.cast(x, dtype=b.scalar(1.0).dtype)
        return [total(b, x, "max"), total(b, from_halves), total(b, b.multiply(from_halves, from_halves))]

    assert sorted(passes(check(program, normal(300, 40, dtype=np.float16)))) == [1, 2]


def test_kernels_of_few_accumulators() -> None:
    """Sixteen sums are at least two kernels: accumulators of more would leave the cache's lines."""

    def program(b: Any, x: Node) -> list[Node]:
        return [total(b, b.multiply(x, b.scalar(float(k)))) for k in range(16)]

    found = passes(build(program, normal(300, 40)))
    assert sum(found) == 16 and max(found) <= 8


@pytest.fixture
def threads() -> Iterator[Any]:
    before = _dispatch.get_threads()
    yield _dispatch.set_threads
    _dispatch.set_threads(before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.complex64])
@pytest.mark.parametrize("shape", [(1, 5), (2000, 3), (300, 700), (70, 40, 33), (2, 600, 513)])
def test_bits_are_numpys(threads: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    """For any number of threads, of sizes that change, too."""

    def f(x: Any, g: Any) -> Any:
        return (x * g).sum(axis=0), g.sum(axis=0), (g - x).sum(axis=0), g.sum(axis=(0, 1)) if g.ndim > 2 else g.max(axis=0)

    compiled = dg.compile(f, backend="c", mode="max", fullgraph=True)
    for rows in (shape[0], shape[0] + 1, shape[0] + 7):
        x, g = (np.round(normal(rows + k, *shape[1:]) * 4).astype(dtype)[k:] for k in (0, 1))
        for number in (1, 2, 3):
            threads(number)
            for ours, theirs in zip(compiled(x, g), f(x, g)):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_random_programs(data: st.DataObject) -> None:
    """Sums, products and extremes of expressions of two arrays, of which some read others' results."""
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 5, 40, 130]), min_size=2, max_size=3)))
    instructions = data.draw(st.lists(
        st.tuples(
            st.sampled_from(["sum", "max", "min", "sum"]), st.sampled_from(["x", "g", "x*g", "x+g", "x-before"]),
            st.lists(st.integers(0, len(shape) - 2), min_size=1, max_size=len(shape) - 1, unique=True),
        ), min_size=2, max_size=6,
    ))  # fmt: skip

    def f(x: Any, g: Any) -> Any:
        found: list[Any] = []
        for kind, what, axes in instructions:
            before = found[-1] if found else 1.0
            operand = {"x": x, "g": g, "x*g": x * g, "x+g": x + g, "x-before": x - before}[what]
            found.append(getattr(np, kind)(operand, axis=tuple(sorted(axes)), keepdims=True))
        return found

    x, g = normal(*shape, dtype=np.float64), normal(*shape, dtype=np.float64) + 2
    for ours, theirs in zip(dg.compile(f, backend="c", mode="max", fullgraph=True)(x, g), f(x, g)):
        np.testing.assert_array_equal(ours, theirs)
