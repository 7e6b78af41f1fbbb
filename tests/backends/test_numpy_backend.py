"""The NumPy backend: same values as the reference, memory reused inside a call and never shared outside it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dynagraph as dg
import dynagraph.ir.optable
from dynagraph.backends.numpy import compile_graph, make_plan
from dynagraph.backends.reference import reference
from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import ShapeEnv

F64 = dtypes.float64

STEPS: list[tuple[str, dict[str, Any]]] = [
    ("add", {}),
    ("multiply", {}),
    ("subtract", {}),
    ("sin", {}),
    ("negative", {}),
    ("maximum", {}),
    ("transpose", {"axes": (1, 0)}),
    ("slice", {"starts": (3, 0), "steps": (-1, 1), "shape": (4, 4)}),
    ("reshape", {"shape": (4, 4)}),
    ("copy", {}),
    ("roll", {"shift": 1, "axis": 1}),
    ("matmul", {}),
    ("cumsum", {"axis": 0}),
    ("erf", {}),
    ("cast", {"dtype": F64}),
]


@st.composite
def programs(draw: Any) -> Graph:
    """Straight-line programs on 4x4 matrices, with views, several outputs, and outputs that are inputs."""
    graph = Graph()
    values: list[Node] = [graph.placeholder(n, Meta(F64, (4, 4))) for n in "xy"]
    values.append(graph.constant(np.eye(4)))
    for _ in range(draw(st.integers(1, 12))):
        name, attrs = draw(st.sampled_from(STEPS))
        operands = [draw(st.sampled_from(values)) for _ in range(OPS[name].arity or 1)]
        values.append(graph.call(OPS[name], *operands, **attrs))
    graph.output([draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 3)))] + [values[-1]])
    return graph


def inputs(seed: int = 0) -> list[np.ndarray]:
    return [np.random.default_rng(seed + k).uniform(-1, 1, (4, 4)) for k in range(2)]


@given(programs())
def test_programs_give_the_references_values_in_memory_of_their_own(graph: Graph) -> None:
    arrays = inputs()
    kept = [a.copy() for a in arrays]
    executable = compile_graph(graph)
    want, got = reference(graph)(*arrays), executable(*arrays)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype and a.flags.c_contiguous and a.flags.owndata and a.flags.writeable
    for a, before in zip(arrays, kept):
        np.testing.assert_array_equal(a, before)
    owners = [*got, *arrays, *graph.constants.values()]
    assert not any(np.shares_memory(a, b) for k, a in enumerate(owners) for b in owners[:k])
    for a in got:
        a[:] = np.nan
    for a, b in zip(executable(*arrays), want):
        np.testing.assert_array_equal(a, b)


def chain(graph: Graph, x: Node, *names: str) -> Node:
    for name in names:
        x = graph.call(OPS[name], x)
    return x


def reuses(graph: Graph) -> dict[str, str]:
    """Node -> the node whose memory it takes."""
    plan = make_plan(graph)
    names = {step.result: step.node.name for step in plan.steps}
    return {step.node.name: names[step.reused] for step in plan.steps if step.reused is not None}


def test_a_chain_runs_in_one_buffer() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (1000,)))
    graph.output([chain(graph, x, "sin", "exp", "negative")])
    assert reuses(graph) == {"exp": "sin", "negative": "exp"}


def test_memory_under_a_live_view_is_not_reused() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (3, 3)))
    sine = chain(graph, x, "sin")
    turned = graph.call(OPS["transpose"], sine, axes=(1, 0))
    other = chain(graph, x, "exp", "cos")
    graph.output([graph.call(OPS["add"], turned, other)])
    assert reuses(graph) == {"cos": "exp", "add": "cos"} or reuses(graph) == {"cos": "exp", "add": "sin"}
    (got,) = compile_graph(graph)(np.ones((3, 3)) * np.arange(3))
    np.testing.assert_array_equal(got, reference(graph)(np.ones((3, 3)) * np.arange(3))[0])


def test_outputs_keep_their_memory() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (5,)))
    sine = chain(graph, x, "sin")
    graph.output([sine, chain(graph, sine, "exp")])
    assert reuses(graph) == {}


def test_products_do_not_write_over_their_operands() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (3, 3)))
    squared = graph.call(OPS["matmul"], chain(graph, x, "sin"), chain(graph, x, "cos"))
    graph.output([chain(graph, squared, "exp")])
    assert reuses(graph) == {"exp": "matmul"}


def test_other_dtypes_and_shapes_do_not_fit() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (5, 1)))
    y = graph.placeholder("y", Meta(F64, (5,)))
    compared = graph.call(OPS["less"], chain(graph, x, "sin"), y)
    graph.output([graph.call(OPS["logical_not"], compared)])
    assert reuses(graph) == {"logical_not": "less"}


def test_sizes_that_are_known_to_be_equal_fit() -> None:
    env, graph = ShapeEnv(), Graph()
    n, m = env.symbol(4), env.symbol(4)
    x, y = graph.placeholder("x", Meta(F64, (n,))), graph.placeholder("y", Meta(F64, (m,)))
    graph.output([chain(graph, x, "sin", "exp"), chain(graph, y, "cos")])
    assert reuses(graph) == {"exp": "sin"} and not env.relations
    a, b = compile_graph(graph)(np.zeros(3), np.zeros(7))
    assert a.shape == (3,) and b.shape == (7,)


def test_calls_from_several_threads_do_not_meet() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (20000,)))
    graph.output([chain(graph, x, *["sin", "exp", "negative"] * 5)])
    executable = compile_graph(graph)
    arrays = [np.full(20000, k / 8) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for array, (got,) in zip(arrays * 4, pool.map(executable, arrays * 4)):
            np.testing.assert_array_equal(got, reference(graph)(array)[0])


@pytest.mark.parametrize("backend", [compile_graph, reference])
def test_no_floating_point_warnings(backend: Any) -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (2,)))
    graph.output([chain(graph, x, "log", "reciprocal", "exp")])
    assert np.isnan(backend(graph)(np.array([-1.0, 0.0]))[0][0])


@pytest.mark.parametrize("backend", [compile_graph, reference])
def test_wrong_inputs_are_refused(backend: Any) -> None:
    graph = Graph("g")
    graph.output([chain(graph, graph.placeholder("x", Meta(F64, (2,))), "sin")])
    with pytest.raises(GraphError, match=r"^graph 'g': input x must be float64\[2\], got float64\[3\]$"):
        backend(graph)(np.zeros(3))


def test_the_plan_can_be_read() -> None:
    graph = Graph()
    graph.output([chain(graph, graph.placeholder("x", Meta(F64, (2,))), "sin", "cos")])
    assert (
        compile_graph(graph).artifacts["plan"]
        == "sin = sin(x) : float64[2]\ncos = cos(sin) : float64[2]   # in the memory of sin"
    )
    assert compile_graph(graph).native is None


def test_sums_take_elements_in_the_order_of_numpys_memory():
    """Temporaries of the backend lie in other orders than those of the plain function."""

    def of_a_product(x):
        y = x.transpose(1, 0, 2)
        return (y * y).sum(), (y * y).mean(), (y * y).sum(1)

    rng = np.random.default_rng(0)
    for dynamic in (True, False):
        compiled = dg.compile(of_a_product, mode="max", backend="numpy", dynamic=dynamic)
        for n in (5, 6, 9) * 8:
            x = rng.normal(size=(n, 3, 10)).astype(np.float32)
            for got, wanted in zip(compiled(x), of_a_product(x)):
                np.testing.assert_array_equal(got, wanted)

    def along_axes(x):
        y, z = x.transpose(2, 0, 1), np.zeros((x.shape[1], x.shape[0], x.shape[2])).transpose(1, 0, 2)
        z[...] = x
        return (y * y).sum(0), (y * y).sum((0, 2)), (x.transpose(0, 2, 1) * 2).sum((0, 1)), (z * z).sum(), x[:, :7].sum()

    compiled = dg.compile(along_axes, mode="max", backend="numpy")
    for n in (4, 7, 7, 9):
        x = rng.normal(size=(n, 30, 41)).astype(np.float32)
        for got, wanted in zip(compiled(x), along_axes(x)):
            np.testing.assert_array_equal(got, wanted)


def test_parts_of_complex_arrays_are_not_written_over():
    """`.imag` is a view of the caller's array, whose memory no temporary takes."""
    x = np.array([1 + 0.5j, 2 - 1j])
    before = x.copy()
    np.testing.assert_array_equal(dg.compile(lambda z: np.arctan2(z.imag, z.real), backend="numpy")(x), np.angle(before))
    np.testing.assert_array_equal(x, before)
