"""Every pass keeps the meaning of every program, is idempotent, and does what its contract says."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.interpreter import at_sizes, interpret
from dynagraph.ir.ops import OPS, Composite, Op, Reduction
from dynagraph.ir.passes.cse import eliminate_common_subexpressions
from dynagraph.ir.passes.dce import eliminate_dead_code
from dynagraph.ir.passes.decompose import contiguous_runs, decompose
from dynagraph.ir.passes.fold import MAX_ELEMENTS, fold_constants
from dynagraph.ir.passes.partition import computed_again, kept_for
from dynagraph.ir.passes.pipeline import PASSES, run
from dynagraph.ir.passes.simplify import simplify
from dynagraph.ir.rewrite import scalar
from dynagraph.ir.shapes import ShapeEnv
from tests import sampling
from tests.sampling import examples

from .programs import assert_same_bits, programs, values

ANY_PROGRAM = settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def graph_of(*shapes: tuple[int, ...], dtype: dtypes.DType = dtypes.float64) -> tuple[Graph, list[Node]]:
    graph = Graph()
    return graph, [graph.placeholder(f"x{k}", Meta(dtype, s)) for k, s in enumerate(shapes)]


def call(graph: Graph, name: str, *args: Node, **attrs: Any) -> Node:
    return graph.call(OPS[name], *args, **attrs)


def ops_of(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.kind == "call_function"]


def structure(graph: Graph) -> str:
    """The graph as text, names replaced by positions."""
    position = {n: k for k, n in enumerate(graph.nodes)}
    return "\n".join(f"{n.kind} {n.target} {[position[a] for a in n.args]} {n.attrs} {n.meta}" for n in position)


# -- for every pass and program ----------------------------------------------------------------------------------------
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name, apply", PASSES, ids=[name for name, _ in PASSES])
def test_pass_keeps_every_bit_of_any_program(name: str, apply: Callable[[Graph], Graph]) -> None:
    @ANY_PROGRAM
    @given(programs())
    def check(program: Graph) -> None:
        after = apply(program.copy())
        after.lint()
        assert [(p.target, p.meta) for p in after.placeholders] == [(p.target, p.meta) for p in program.placeholders]
        for got, expected in zip(values(after), values(program), strict=True):
            assert_same_bits(got, expected)

    check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, apply", PASSES, ids=[name for name, _ in PASSES])
def test_pass_is_idempotent(name: str, apply: Callable[[Graph], Graph]) -> None:
    @ANY_PROGRAM
    @given(programs())
    def check(program: Graph) -> None:
        once = apply(program.copy())
        assert structure(apply(once.copy())) == structure(once)

    check()


@ANY_PROGRAM
@given(programs())
def test_pipeline_keeps_every_bit_of_any_program(program: Graph) -> None:
    before = str(program)
    after = run(program, lint=True)
    assert str(program) == before, "the input graph must stay as it is"
    for got, expected in zip(values(after), values(program), strict=True):
        assert_same_bits(got, expected)


@ANY_PROGRAM
@given(programs(), st.integers(0, 2))
def test_outputs_that_were_ops_stay_distinct_ops(program: Graph, seed: int) -> None:
    after = run(program, lint=True)
    paired = [(old, new) for old, new in zip(program.outputs, after.outputs) if old.kind == "call_function"]
    assert all(new.kind == "call_function" for _, new in paired)
    assert len({new for _, new in paired}) == len({old for old, _ in paired})


@pytest.mark.fuzz
@settings(max_examples=sampling.programs, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_running_the_pipeline_twice_keeps_every_bit(program: Graph) -> None:
    once = run(program, lint=True)
    twice = run(once, lint=True)
    for first, second, expected in zip(values(once), values(twice), values(program), strict=True):
        assert_same_bits(first, expected)
        assert_same_bits(second, expected)


def test_observer_sees_every_pass_in_order() -> None:
    graph, (a,) = graph_of((2,))
    graph.output([call(graph, "var", a, axis=(0,))])
    seen: list[tuple[str, int]] = []
    run(graph, observer=lambda name, after: seen.append((name, len(after))))
    assert [name for name, _ in seen] == ["captured", *(name for name, _ in PASSES)]
    assert seen[0][1] == len(graph)


# -- decompose ---------------------------------------------------------------------------------------------------------
COMPOSITES = [row for row in OPS.values() if isinstance(row.lowering, Composite) and row.name != "block_reduce"]


@pytest.mark.parametrize("dtype", (dtypes.float16, dtypes.float32, dtypes.float64), ids=str)
@pytest.mark.parametrize("row", COMPOSITES, ids=lambda r: r.name)
def test_composite_is_replaced_by_primitive_ops_of_the_same_value(row: Op, dtype: dtypes.DType) -> None:
    graph, (a,) = graph_of((3, 5), dtype=dtype)
    graph.output([graph.call(row, a, axis=(1,), keepdims=True)])
    array = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype.numpy)
    (expected,) = interpret(graph, [array])
    after = decompose(graph.copy())
    after.lint()
    assert not any(isinstance(OPS[name].lowering, Composite) for name in ops_of(after))
    (got,) = interpret(after, [array])
    np.testing.assert_allclose(got, expected, rtol=32 * np.finfo(dtype.numpy).eps)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [(0, 2), (1, 3), (0, 2, 3), (0, 1, 3), (0, 3), (1, 2), (0, 1, 2, 3), ()])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reductions_have_one_run_of_axes(name: str, axis: tuple[int, ...], keepdims: bool) -> None:
    graph, (a,) = graph_of((2, 3, 2, 5), dtype=dtypes.int64)
    graph.output([call(graph, name, a, axis=axis, keepdims=keepdims)])
    after = decompose(graph.copy())
    after.lint()
    for node in after.nodes:
        if node.kind == "call_function" and isinstance(node.op.lowering, Reduction):
            assert len(contiguous_runs(node.attrs["axis"])) <= 1
    assert_same_bits(values(after)[0], values(graph)[0])


@pytest.mark.parametrize("name", ["any", "all"])
def test_logical_reductions_have_one_run_of_axes(name: str) -> None:
    graph, (a,) = graph_of((2, 3, 4), dtype=dtypes.bool_)
    graph.output([call(graph, name, a, axis=(0, 2), keepdims=False)])
    after = decompose(graph.copy())
    assert ops_of(after) == [name, name]
    assert_same_bits(values(after)[0], values(graph)[0])


def test_variance_over_scattered_axes_is_decomposed_all_the_way() -> None:
    graph, (a,) = graph_of((3, 4, 5))
    graph.output([call(graph, "var", a, axis=(0, 2), keepdims=False, ddof=1)])
    after = decompose(graph.copy())
    after.lint()
    assert ops_of(after).count("sum") == 2
    assert all(len(contiguous_runs(n.attrs["axis"])) == 1 for n in after.nodes if n.is_op("sum"))
    array = np.random.default_rng(0).normal(size=(3, 4, 5))
    np.testing.assert_allclose(interpret(after, [array])[0], array.var(axis=(0, 2), ddof=1), rtol=1e-14)


def _row(name: str, decomposed: Callable[..., Node]) -> Op:
    square = OPS["square"]
    return Op(name, 1, square.dtype, square.shape, square.eager, Composite(decomposed))


def test_decomposition_that_changes_the_shape_is_rejected() -> None:
    graph, (a,) = graph_of((2, 3))
    graph.output([graph.call(_row("bad", lambda g, x: g.call(OPS["sum"], x, axis=(0,))), a)])
    with pytest.raises(GraphError, match=r"^the decomposition of bad changes float64\[2, 3\] into float64\[3\]$"):
        decompose(graph)


def test_decompositions_in_a_circle_are_stopped() -> None:
    rows: list[Op] = []
    rows.append(_row("circle", lambda g, x: g.call(rows[0], g.call(OPS["negative"], x))))
    graph, (a,) = graph_of((2,))
    graph.output([graph.call(rows[0], a)])
    with pytest.raises(GraphError, match=r"^the decompositions of circle never come to an end$"):
        decompose(graph)


def test_decomposed_nodes_keep_the_source_line() -> None:
    graph, (a,) = graph_of((2, 3))
    graph.location = Location("model.py", 7)
    mean = call(graph, "mean", a, axis=(0,))
    graph.location = None
    graph.output([mean])
    assert {str(n.location) for n in decompose(graph).nodes if n.kind == "call_function"} == {"model.py:7"}


# -- fold --------------------------------------------------------------------------------------------------------------
def test_what_depends_on_no_input_is_computed_once() -> None:
    graph, (a,) = graph_of((3,))
    ramp = call(graph, "iota", shape=(3,), start=0.0, step=1.0, dtype=dtypes.float64)
    shifted = call(graph, "multiply", ramp, scalar(graph, 3.0, dtypes.float64))
    graph.output([call(graph, "add", a, shifted)])
    after = fold_constants(graph.copy())
    after.lint()
    assert ops_of(after) == ["add"]
    assert [v.tolist() for v in after.constants.values()] == [[0.0, 3.0, 6.0]]


def test_uniform_results_stay_cheap() -> None:
    graph, (a,) = graph_of((3,))
    two = scalar(graph, 2.0, dtypes.float64)
    ones = call(graph, "full", shape=(3,), value=1.0, dtype=dtypes.float64)
    graph.output([call(graph, "add", a, call(graph, "exp", call(graph, "add", ones, two)))])
    after = fold_constants(graph.copy())
    assert ops_of(after) == ["full", "add"]
    assert after.constants == {}
    assert_same_bits(values(after)[0], values(graph)[0])


def test_creation_ops_and_large_results_stay_ops() -> None:
    graph, (a,) = graph_of((MAX_ELEMENTS + 1,))
    ramp = call(graph, "iota", shape=(MAX_ELEMENTS + 1,), start=0.0, step=1.0, dtype=dtypes.float64)
    small = call(graph, "iota", shape=(3,), start=0.0, step=1.0, dtype=dtypes.float64)
    graph.output([call(graph, "add", a, call(graph, "exp", ramp)), small])
    assert ops_of(fold_constants(graph.copy())) == ["iota", "iota", "exp", "add"]


@pytest.mark.parametrize("name, first, second, dtype", [
    ("divide", 1.0, 0.0, dtypes.float64),
    ("divide", 0.0, 0.0, dtypes.float32),
    ("multiply", 1e300, 1e300, dtypes.float64),
    ("floor_divide", 1, 0, dtypes.int64),
])  # fmt: skip
def test_what_raises_or_warns_is_not_folded(name: str, first: Any, second: Any, dtype: dtypes.DType) -> None:
    graph, _ = graph_of()
    graph.output([call(graph, name, scalar(graph, first, dtype), scalar(graph, second, dtype))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ops_of(fold_constants(graph.copy())) == ["constant", "constant", name]


def test_symbolic_sizes_are_not_folded() -> None:
    graph = Graph()
    n = ShapeEnv().symbol(5)
    graph.placeholder("a", Meta(dtypes.float64, (n,)))
    graph.output([call(graph, "exp", call(graph, "constant", value=n, dtype=dtypes.float64))])
    assert ops_of(fold_constants(graph.copy())) == ["constant", "exp"]


def test_a_folded_output_is_an_array_of_its_own() -> None:
    graph, _ = graph_of()
    ramp = call(graph, "iota", shape=(3,), start=0.0, step=1.0, dtype=dtypes.float64)
    graph.output([call(graph, "exp", ramp)])
    assert ops_of(fold_constants(graph)) == ["copy"]
    graph.lint()


# -- common subexpressions ---------------------------------------------------------------------------------------------
def test_equal_nodes_are_computed_once() -> None:
    graph, (a, b) = graph_of((3,), (3,))
    first, second = call(graph, "add", a, b), call(graph, "add", b, a)
    graph.output([call(graph, "multiply", call(graph, "exp", first), call(graph, "exp", second))])
    assert ops_of(eliminate_common_subexpressions(graph)) == ["add", "exp", "multiply"]


def test_operands_of_other_ops_keep_their_order() -> None:
    graph, (a, b) = graph_of((3,), (3,))
    graph.output([call(graph, "subtract", call(graph, "maximum", a, b), call(graph, "maximum", b, a))])
    assert ops_of(eliminate_common_subexpressions(graph)) == ["maximum", "maximum", "subtract"]


def test_attributes_tell_nodes_apart() -> None:
    graph, (a,) = graph_of((3, 3))
    different = [{"axis": (0,)}, {"axis": (1,)}, {"axis": (0,), "keepdims": True}]
    graph.output([call(graph, "sum", a, **attrs) for attrs in different])
    assert ops_of(eliminate_common_subexpressions(graph)) == ["sum", "sum", "sum"]


def test_zeros_of_different_sign_are_different_constants() -> None:
    graph, (a,) = graph_of((3,))
    zeros = [call(graph, "add", a, scalar(graph, v, dtypes.float64)) for v in (0.0, -0.0, 0.0)]
    graph.output([call(graph, "concatenate", *zeros, axis=0)])
    assert sorted(ops_of(eliminate_common_subexpressions(graph))) == ["add"] * 2 + ["concatenate"] + ["constant"] * 2


def test_the_same_number_written_otherwise_is_one_constant() -> None:
    graph, _ = graph_of()
    three = [call(graph, "constant", value=v, dtype=dtypes.float64) for v in (3, 3.0)]
    graph.output([call(graph, "exp", call(graph, "add", *three))])
    assert ops_of(eliminate_common_subexpressions(graph)) == ["constant", "add", "exp"]


def test_arrays_of_equal_contents_are_one_constant() -> None:
    graph, _ = graph_of()
    a, b = graph.constant(np.arange(3.0)), graph.constant(np.arange(3.0))
    graph.output([call(graph, "add", a, b)])
    eliminate_common_subexpressions(graph)
    assert len(graph.constants) == 1


def test_equal_outputs_stay_two_arrays() -> None:
    graph, (a,) = graph_of((3,))
    graph.output([call(graph, "exp", a), call(graph, "exp", a)])
    eliminate_common_subexpressions(graph)
    assert ops_of(graph) == ["exp", "copy"]
    first, second = graph.outputs
    assert first is not second


def test_symbolic_sizes_are_compared_without_guards() -> None:
    graph = Graph()
    env = ShapeEnv()
    n, m = env.symbol(5), env.symbol(5)
    a = graph.placeholder("a", Meta(dtypes.float64, (n, m)))
    flat = [call(graph, "reshape", a, shape=(n * m,)), call(graph, "reshape", a, shape=(m * n,)),
            call(graph, "broadcast_to", a, shape=(2, n, m))]
    graph.output([call(graph, "add", flat[0], flat[1]), flat[2]])
    before = dict(env.relations)
    assert ops_of(eliminate_common_subexpressions(graph)) == ["reshape", "broadcast_to", "add"]
    assert env.relations == before


# -- dead code, broadcasts ---------------------------------------------------------------------------------------------
def test_dead_code_goes_and_inputs_stay() -> None:
    graph, (a, b) = graph_of((3,), (3,))
    call(graph, "exp", call(graph, "add", a, b))
    graph.output([call(graph, "negative", a)])
    eliminate_dead_code(graph)
    assert ops_of(graph) == ["negative"]
    assert len(graph.placeholders) == 2


def test_explicit_broadcasts_that_ops_do_themselves_are_dropped() -> None:
    graph, (a, b) = graph_of((4,), (3, 4))
    graph.output([call(graph, "subtract", call(graph, "broadcast_to", a, shape=(3, 4)), b)])
    assert ops_of(simplify(graph)) == ["subtract"]
    graph.lint()


def test_broadcasts_that_make_the_shape_stay() -> None:
    graph, (a, b) = graph_of((4,), (1, 4))
    graph.output([call(graph, "subtract", call(graph, "broadcast_to", a, shape=(3, 4)), b)])
    assert ops_of(simplify(graph)) == ["broadcast_to", "subtract"]


def test_what_is_kept_for_later_is_cheaper_than_computing_it_again() -> None:
    graph, (x, w) = graph_of((4, 5), (5, 6))
    product = call(graph, "matmul", x, w)
    doubled = call(graph, "add", product, product)
    root = call(graph, "exp", doubled)
    values = [x, product, doubled, root]
    assert kept_for(graph, values) == [x, product, root]  # sums are computed again, exponentials and products are not
    assert kept_for(graph, [doubled, root], free={doubled}) == [doubled, root]
    given = [np.arange(20.0).reshape(4, 5) / 20, np.ones((5, 6))]
    second = computed_again(graph, [x, product, root], values)
    found = interpret(second, [given[0], given[0] @ given[1], np.exp(2 * (given[0] @ given[1]))])
    wanted = given[0], given[0] @ given[1], 2 * (given[0] @ given[1]), np.exp(2 * (given[0] @ given[1]))
    assert all(map(np.array_equal, found, wanted))


def test_a_graph_at_sizes_that_are_known() -> None:
    env = ShapeEnv()
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (env.symbol(7), 2)))
    graph.output([call(graph, "reshape", x, shape=(x.shape[0] * 2,))])
    known = at_sizes(graph, {"s0": 5})
    assert known.outputs[0].shape == (10,) and known.placeholders[0].shape == (5, 2)


# -- join-pieces -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.complex64], ids=lambda dtype: dtype.name)
def test_a_sum_of_gradients_of_slices_is_written_once(dtype: dtypes.DType) -> None:
    graph, parts = graph_of((3, 2), (3, 4), (3, 1), dtype=dtype)
    zeros = graph.call(OPS["full"], shape=(3, 8), value=0, dtype=dtype)
    placed = [
        call(graph, "update_slice", zeros, part, starts=(0, start), steps=(1, 1)) for part, start in zip(parts, (6, 0, 4))
    ]
    graph.output([call(graph, "add", call(graph, "add", placed[0], placed[1]), placed[2])])
    after = run(graph)
    assert "update_slice" not in ops_of(after)
    assert [tuple(n.shape) for n in after.nodes if n.is_op("full")] == [(3, 1)]  # what no slice has: column 5
    arrays = [np.where(np.arange(n) % 2, -1.5, -0.0).astype(dtype.numpy) * np.ones((3, 1), dtype.numpy) for n in (2, 4, 1)]
    assert_same_bits(interpret(after, arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize("starts, steps", [((0, 1), (1, 1)), ((1, 0), (1, 1)), ((0, 0), (1, 2))])
def test_slices_that_overlap_or_are_cut_otherwise_are_added(starts: tuple[int, int], steps: tuple[int, int]) -> None:
    graph, (x, y) = graph_of((3, 2), (2, 2))
    zeros = graph.call(OPS["full"], shape=(3, 4), value=0.0, dtype=dtypes.float64)
    first = call(graph, "update_slice", zeros, x, starts=(0, 0), steps=(1, 1))
    second = call(graph, "update_slice", zeros, y, starts=starts, steps=steps)
    graph.output([call(graph, "add", first, second)])
    assert "concatenate" not in ops_of(run(graph))
