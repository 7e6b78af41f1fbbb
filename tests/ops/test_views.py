"""View rules: the strides that a row gives address what its eager function gives, on any layout of memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS, Movement, Strided, view_of
from dynagraph.ir.shapes import ShapeEnv, contiguous_strides, numel


@st.composite
def bases(draw: Any) -> np.ndarray:
    """An array of up to 4 axes: contiguous, or a transposed, sliced, flipped or broadcast view."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6]), max_size=4))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    memory = np.arange(math.prod(d * abs(s) for d, s in zip(shape, steps)), dtype=np.float64)
    x = memory.reshape([d * abs(s) for d, s in zip(shape, steps)])[(*(slice(None, None, s) for s in steps), ...)]
    return x.transpose(draw(st.permutations(range(x.ndim)))) if draw(st.booleans()) else x


def strided(x: np.ndarray) -> Strided:
    """Where an array lies, relative to its own first element."""
    return Strided(x.shape, tuple(s // x.itemsize for s in x.strides))


def apply_view(x: np.ndarray, view: Strided) -> np.ndarray:
    """The array that strides over the memory of `x` say."""
    origin = x.__array_interface__["data"][0]
    holder = x if x.base is None else x.base
    while isinstance(holder.base, np.ndarray):
        holder = holder.base
    flat = holder.reshape(-1)
    offset = (origin - flat.__array_interface__["data"][0]) // x.itemsize + view.offset
    return as_strided(flat[offset:], view.shape, [s * x.itemsize for s in view.strides])


def rule(name: str, x: np.ndarray, attrs: dict[str, Any]) -> Strided | None:
    op = OPS[name]
    assert isinstance(op.lowering, Movement) and op.lowering.view is not None
    out = op.infer((Meta(dtypes.float64, x.shape),), attrs)
    return op.lowering.view(strided(x), attrs, out)


def check(name: str, x: np.ndarray, attrs: dict[str, Any]) -> None:
    want = OPS[name].eager(np, x, **attrs)
    view = rule(name, x, attrs)
    assert view is not None and view.shape == want.shape
    if x.size:
        np.testing.assert_array_equal(apply_view(x, view), want)


@given(bases(), st.data())
def test_transpose_view(x: np.ndarray, data: Any) -> None:
    check("transpose", x, {"axes": tuple(data.draw(st.permutations(range(x.ndim))))})


@given(bases(), st.data())
def test_slice_view(x: np.ndarray, data: Any) -> None:
    starts, steps, shape = [], [], []
    for n in x.shape:
        positions = range(n)[data.draw(st.slices(n))]
        starts.append(positions.start if len(positions) else 0)
        steps.append(positions.step)
        shape.append(len(positions))
    check("slice", x, {"starts": tuple(starts), "steps": tuple(steps), "shape": tuple(shape)})


@given(bases(), st.data())
def test_windows_view(x: np.ndarray, data: Any) -> None:
    places = st.integers(0, max(x.ndim - 1, 0))
    axes = tuple(data.draw(st.lists(places, max_size=2, unique=True))) if x.ndim and x.size else ()
    check("windows", x, {"axes": axes, "sizes": tuple(data.draw(st.integers(1, x.shape[k])) for k in axes)})


@given(bases(), st.data())
def test_broadcast_view(x: np.ndarray, data: Any) -> None:
    shape = tuple(data.draw(st.sampled_from([0, 1, 3])) if n == 1 else n for n in x.shape)
    check("broadcast_to", x, {"shape": (2,) * data.draw(st.integers(0, 2)) + shape})


@st.composite
def reshaped(draw: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """A base, and a shape of as many elements."""
    x = draw(bases())
    if x.size == 0:
        return x, tuple(draw(st.permutations([*x.shape, 1])))
    left, shape = x.size, []
    while left > 1:
        shape.append(draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= shape[-1]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return x, tuple(shape)


@given(reshaped())
def test_reshape_is_a_view_exactly_where_numpy_makes_one(given_: tuple[np.ndarray, tuple[int, ...]]) -> None:
    x, shape = given_
    want = x.reshape(shape)
    view = rule("reshape", x, {"shape": shape})
    assert (view is not None) == (np.shares_memory(x, want) or x.size == 0)
    if view is not None and x.size:
        np.testing.assert_array_equal(apply_view(x, view), want)
        assert view.strides == tuple(s // x.itemsize for s in want.strides)


def test_views_of_views_are_followed_to_their_base() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (4, 6)))
    y = graph.call(OPS["slice"], x, starts=(1, 0), steps=(2, 1), shape=(2, 6))
    y = graph.call(OPS["transpose"], y, axes=(1, 0))
    y = graph.call(OPS["broadcast_to"], y, shape=(3, 6, 2))
    assert view_of(y) == (x, Strided((3, 6, 2), (0, 1, 12), 6))
    assert view_of(graph.call(OPS["reshape"], y, shape=(3, 12))) is None
    assert view_of(graph.call(OPS["copy"], x)) is None
    assert view_of(x) is None


def test_inputs_strides_are_the_base_of_views() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (4, 6), (1, 4)))
    assert view_of(graph.call(OPS["reshape"], x, shape=(24,))) is None
    assert view_of(graph.call(OPS["reshape"], x, shape=(2, 2, 6))) == (x, Strided((2, 2, 6), (2, 1, 4)))


def test_symbolic_reshapes_are_views_where_that_is_proven() -> None:
    env = ShapeEnv()
    n, m = env.symbol(6), env.symbol(4)
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (n, m, 4)))
    before = dict(env.relations)
    flat = graph.call(OPS["reshape"], x, shape=(numel((n, m)), 4))
    viewed = view_of(flat)
    assert viewed is not None and viewed[1].strides == contiguous_strides(flat.shape)
    split = view_of(graph.call(OPS["reshape"], x, shape=(n, m, 2, 2)))
    assert split is not None and split[1].strides[1:] == (4, 2, 1)
    turned = graph.call(OPS["transpose"], x, axes=(1, 0, 2))
    assert view_of(graph.call(OPS["reshape"], turned, shape=(n * m, 4))) is None
    assert env.relations == before, "nothing was decided about the sizes"


@pytest.mark.parametrize("name", ["copy", "concatenate", "pad", "roll", "repeat", "tile"])
def test_rows_that_always_copy_have_no_view_rule(name: str) -> None:
    lowering = OPS[name].lowering
    assert isinstance(lowering, Movement) and lowering.view is None
