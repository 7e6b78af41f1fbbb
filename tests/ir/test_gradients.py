"""Gradients of graphs: every row that has one, against differences of its values, once and twice; what has none says so."""

from __future__ import annotations

import numpy as np
import pytest

from dynagraph.errors import GradientError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS, Composite, Op
from dynagraph.ir.optable import pooling
from dynagraph.ir.passes.backward import append_gradients
from dynagraph.ir.terms import Term
from tests.ir.gradients import Differentiable, Program, check_gradients, check_tangents, gradients_of
from tests.ops.cases import Case, cases

pytestmark = pytest.mark.sampled(3)

F64, C128 = dtypes.float64, dtypes.complex128
NARROW = {np.dtype(np.float64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.complex64)}
COMPOSITE = [op for op in OPS.values() if isinstance(op.lowering, Composite) and op.name != "block_reduce"]
DIFFERENTIABLE = [op for op in OPS.values() if op.vjp is not None and op.name not in ("external_call", "stop_gradient")] + COMPOSITE
SCANS = {f"{name}_accumulate" for name in (
    "add", "subtract", "multiply", "maximum", "minimum", "fmax", "fmin", "hypot", "logaddexp", "logaddexp2",
)}  # fmt: skip
# rows of floats that have no gradient yet, or none at all
WITHOUT = {"nextafter", "spacing", "effect_call", *(name for name in OPS if name.endswith("_accumulate") and name not in SCANS)}


def is_smooth(case: Case) -> bool:
    """Of finite operands in double precision, with no ties, in the row's domain."""
    numbers = [x for x in case.operands if x.dtype.kind in "fc"]
    return (
        bool(numbers)
        and all(x.dtype in (np.float64, np.complex128) and np.isfinite(x).all() for x in numbers)
        and case.attrs.get("dtype", F64) in (F64, C128)
        and case.attrs.get("combine", "") in ("", "add", "subtract", "maximum")
        and not any(np.isin(x, [0.0, 1.0, -1.0]).any() or np.isin(x.real, [0.0]).any() for x in numbers)
        and has_value(case)
    )


def has_value(case: Case) -> bool:
    """Variances of too few elements have none, and those of one do not move; places do not, nor do maxima of nothing but border."""
    if case.op.name in pooling.ROUTINES:
        value = case.op.eager(np, *case.operands, **case.op.bind_attrs(case.attrs))
        return value.dtype.kind == "f" and bool(np.isfinite(value).all())
    if not isinstance(case.op.lowering, Composite):
        return True
    count = np.prod([case.operands[0].shape[k] for k in case.attrs["axis"]], dtype=int)
    return bool(count > max(1, case.attrs.get("ddof", 0)))


def program_of(case: Case) -> Program:
    return lambda first, *others: first.call(case.op.name, *others, **case.attrs)


def chosen(op: Op, count: int) -> list[Case]:
    smooth = [case for case in cases(op) if is_smooth(case)]
    return smooth[:: 1 + len(smooth) // count]


def check(case: Case, order: int) -> None:
    check_gradients(program_of(case), case.operands, order, str(case))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradients_are_what_values_change_by(op: Op, order: int) -> None:
    smooth = chosen(op, 80)
    for case in smooth:
        check(case, order)
    assert smooth or not any(x.dtype.kind in "fc" for case in cases(op) for x in case.operands)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_tangents_are_what_values_change_by(op: Op) -> None:
    for case in chosen(op, 30):
        check_tangents(program_of(case), case.operands, str(case))


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradients_of_single_precision(op: Op) -> None:
    """As those of double precision at the same operands, and of the operands' dtypes."""
    for case in chosen(op, 20):
        narrow = [x.astype(NARROW.get(x.dtype, x.dtype)) for x in case.operands]
        wide = [x.astype(y.dtype) for x, y in zip(narrow, case.operands)]
        single = Case(op, narrow, dict(case.attrs))
        if "dtype" in single.attrs:
            single.attrs["dtype"] = dtypes.from_numpy(NARROW[single.attrs["dtype"].numpy])
        for got, want in zip(gradients_of(program_of(single), *narrow), gradients_of(program_of(case), *wide), strict=True):
            assert got.dtype == NARROW[want.dtype], str(case)
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4 * (1 + np.abs(want).max(initial=0)), err_msg=str(case))


def test_every_row_of_floats_has_a_gradient_or_is_listed() -> None:
    gives_floats = {op.name for op in OPS.values() if op.name != "block_reduce" and any(map(gives_float, cases(op)))}
    without = {name for name in gives_floats if OPS[name].vjp is None} - {op.name for op in COMPOSITE}  # which are decomposed
    assert without == WITHOUT & gives_floats and all(OPS[name].vjp is None for name in WITHOUT)


def gives_float(case: Case) -> bool:
    metas = tuple(Meta(dtypes.from_numpy(x.dtype), x.shape) for x in case.operands)
    result = case.op.infer(metas, case.op.bind_attrs(case.attrs))
    return bool(metas) and all(m.dtype in (F64, C128) for m in metas) and result.dtype.is_inexact


def test_a_wrong_derivative_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By as little as a twentieth of a per cent."""
    right = OPS["exp"].vjp
    monkeypatch.setattr(OPS["exp"].__class__, "__setattr__", object.__setattr__)
    OPS["exp"].vjp = lambda d, g: (g * d.out * 1.0005,)
    try:
        with pytest.raises(AssertionError, match="by differences"):
            for case in cases(OPS["exp"]):
                if is_smooth(case):
                    check(case, 1)
    finally:
        OPS["exp"].vjp = right


def one_input(dtype: dtypes.DType = F64) -> tuple[Graph, Node]:
    graph = Graph()
    return graph, graph.placeholder("x", Meta(dtype, (3,)))


def ones(graph: Graph, node: Node) -> Node:
    with graph.before_output():
        return graph.call(OPS["full"], shape=node.shape, value=1.0, dtype=node.dtype)


def test_what_nothing_depends_on_is_zero_and_builds_nothing() -> None:
    graph, x = one_input()
    y = graph.placeholder("y", Meta(F64, (3,)))
    steps = graph.call(OPS["floor"], graph.call(OPS["exp"], x))
    assert append_gradients(graph, [(steps, ones(graph, steps))], [x, y]) == [None, None]
    before = len(graph)
    assert append_gradients(graph, [(y, ones(graph, y))], [x]) == [None] and len(graph) == before + 1


def test_a_value_that_is_used_twice_gets_the_sum() -> None:
    graph, x = one_input()
    value = graph.call(OPS["add"], graph.call(OPS["multiply"], x, x), x)
    (gradient,) = append_gradients(graph, [(value, ones(graph, value))], [x])
    graph.output([gradient])
    (got,) = interpret(graph, [np.array([1.0, 2.0, 3.0])])
    np.testing.assert_array_equal(got, [3.0, 5.0, 7.0])


def test_powers_at_zero() -> None:
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(F64, (4,))) for name in "xy")
    value = graph.call(OPS["power"], x, y)
    graph.output(append_gradients(graph, [(value, ones(graph, value))], [x, y]))
    with np.errstate(all="ignore"):
        by_base, by_exponent = interpret(graph, [np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 3.0])])
    np.testing.assert_allclose(by_base, [0.0, 1.0, 0.0, 12.0])
    np.testing.assert_allclose(by_exponent, [0.0, 0.0, 0.0, 8 * np.log(2)])


@pytest.mark.parametrize("op", ["prod", "cumprod"])
@pytest.mark.parametrize("zeros", [(), (1,), (0,), (3,), (1, 3), (0, 1, 4)])
def test_products_of_zeros(op: str, zeros: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(zeros))
    x, seed = rng.uniform(1, 2, 5), rng.normal(size=5 if op == "cumprod" else 1)
    x[list(zeros)] = 0
    graph = Graph()
    node, g = graph.placeholder("x", Meta(F64, (5,))), graph.placeholder("g", Meta(F64, seed.shape))
    attrs = {"axis": 0} if op == "cumprod" else {"axis": (0,), "keepdims": True}
    value = graph.call(OPS[op], node, **attrs)
    graph.output(append_gradients(graph, [(value, g)], [node]))
    with np.errstate(all="ignore"):
        (got,) = interpret(graph, [x, seed])
    want = [sum(seed[j] * np.prod(np.delete(x[: j + 1] if op == "cumprod" else x, i))
                for j in range(len(seed)) if op == "prod" or i <= j) for i in range(5)]  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_ties_share_the_gradient() -> None:
    graph, x = one_input()
    largest = graph.call(OPS["max"], x, axis=(0,), keepdims=False)
    (gradient,) = append_gradients(graph, [(largest, ones(graph, largest))], [x])
    graph.output([gradient])
    np.testing.assert_array_equal(interpret(graph, [np.array([2.0, 1.0, 2.0])])[0], [0.5, 0.0, 0.5])
    np.testing.assert_array_equal(interpret(graph, [np.array([2.0, 1.0, 3.0])])[0], [0.0, 0.0, 1.0])


# what the gradient is where there is no derivative, or where a formula would divide zero by zero
def root_of_squares(x: Term) -> Term:
    return (x * x).sum(x.ndim - 1).call("sqrt")


def deviation(x: Term) -> Term:
    return x.call("std", axis=(0,), keepdims=False, ddof=0)


def clipped(x: Term) -> Term:
    return x.call("maximum", -1).call("minimum", 1)


def logarithm_of_sum(x: Term) -> Term:
    largest = x.call("max", axis=(0,), keepdims=True)
    return (x - largest).call("exp").call("sum", axis=(0,), keepdims=True).call("log") + largest


def masked_twice(x: Term, y: Term) -> Term:
    positive = x.call("greater", 0)
    return y.where(positive, 0) + (y * 6).where(positive, 1)


INF, CHAIN = np.inf, (np.log(4) + 1) / (2 * np.sqrt(4 * np.log(4)))
EDGES: dict[str, tuple[Program, list[object], list[object]]] = {
    "absolute": (lambda x: x.call("absolute"), [[0.0, -0.0, -2.0]], [[0, 0, -1]]),
    "absolute-complex": (lambda x: x.call("absolute"), [[0j, 3 - 4j]], [[0, 0.6 - 0.8j]]),
    "sign-complex": (lambda x: x.call("sign"), [[0j, 2 + 0j]], [[0, 0]]),
    "sqrt": (lambda x: x.call("sqrt"), [[0.0, 4.0]], [[INF, 0.25]]),
    "norm": (root_of_squares, [[[0.0, 0.0], [3.0, 4.0]]], [[[0, 0], [0.6, 0.8]]]),
    "root-of-square": (lambda x: x.call("square").call("sqrt"), [[0.0, -3.0]], [[0, -1]]),
    "hypot": (lambda x, y: x.call("hypot", y), [[0.0, 3.0], [0.0, 4.0]], [[0, 0.6], [0, 0.8]]),
    "arctan2": (lambda x, y: x.call("arctan2", y), [[0.0, 3.0], [0.0, 4.0]], [[0, 4 / 25], [0, -3 / 25]]),
    "copysign": (lambda x, y: x.call("copysign", y), [[0.0, 3.0], [1.0, -1.0]], [[0, -1], [0, 0]]),
    "std": (deviation, [[2.0, 2.0, 2.0]], [[0, 0, 0]]),
    "var": (lambda x: x.call("var", axis=(0,), keepdims=False, ddof=1), [[2.0, 2.0, 2.0]], [[0, 0, 0]]),
    "maximum": (lambda x, y: x.call("maximum", y), [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]], [[0.5, 0, 1], [0.5, 1, 0]]),
    "fmax": (lambda x, y: x.call("fmax", y), [[1.0, np.nan], [1.0, 3.0]], [[0.5, 0], [0.5, 1]]),
    "clip": (clipped, [[-2.0, -1.0, 0.5, 1.0, 2.0]], [[0, 0.5, 1, 0.5, 0]]),
    "max": (lambda x: x.call("max", axis=(0,), keepdims=False), [[3.0, 1.0, 3.0]], [[0.5, 0, 0.5]]),
    "maximum_accumulate": (lambda x: x.call("maximum_accumulate", axis=0), [[2.0, 2.0, 1.0, 3.0]], [[1, 2, 0, 1]]),
    "logaddexp": (lambda x, y: x.call("logaddexp", y), [[-INF, -INF, 2.0], [-INF, 1.0, 2.0]], [[0, 0, 0.5], [0, 1, 0.5]]),
    "logsumexp": (logarithm_of_sum, [[-INF, 0.0, 0.0]], [[0, 0.5, 0.5]]),
    "logaddexp_accumulate": (
        lambda x: x.call("logaddexp_accumulate", axis=0), [[-INF, -INF, -2000.0, 0.0, 0.0, 2000.0]], [[0, 0, 1, 1.5, 0.5, 1]]
    ),
    "hypot_accumulate": (lambda x: x.call("hypot_accumulate", axis=0), [[0.0, 3.0, 4.0]], [[0, 1.6, 0.8]]),
    "power": (lambda x: x.call("power", 0.5), [[0.0, 4.0]], [[INF, 0.25]]),
    "power-complex": (lambda x, y: x.call("power", y), [[0j, 0j, 1 + 0j], [0j, 2 + 0j, 3 + 0j]], [[0, 0, 3], [0, 0, 0]]),
    "where": (lambda x: x.call("log").where(x.call("greater", 0), 0), [[0.5, -1.0, 0.0]], [[2, 0, 0]]),
    "where-chain": (lambda x: ((x.call("log") * x).call("sqrt") + 1).where(x.call("greater", 1), x), [[4.0, 0.0]], [[CHAIN, 1]]),
    "where-of-one": (lambda x, c: x.call("sqrt").where(c, x * 2), [[-1.0, 4.0], False], [[2, 2]]),
    "where-in-where": (
        lambda x: (x.call("log").where(x.call("greater", 1), x.call("sqrt"))).where(x.call("greater", 0), -x), [[-1.0, 0.25, 2.0]],
        [[-1, 1, 0.5]],
    ),
    "where-broadcast": (lambda x, y: (x / y).where(y.call("greater", 0), 0), [2.0, [0.0, 1.0, 4.0]], [1.25, [0, -2, -0.125]]),
    "maximum-in-front": (lambda x: x.call("maximum", 0).call("sqrt"), [[-1.0, 4.0]], [[0, 0.25]]),
    "maximum-behind": (lambda x: x.call("log").call("maximum", -1), [[-1.0, 0.0, 2.0]], [[0, 0, 0.5]]),
    "used-twice": (lambda x: masked_twice(x, x.call("log")), [[0.0, 2.0]], [[0, 3.5]]),
}


@pytest.mark.parametrize("name", EDGES)
def test_gradients_where_there_is_no_derivative(name: str) -> None:
    program, operands, expected = EDGES[name]
    for got, want in zip(gradients_of(program, *map(np.array, operands)), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)


def test_the_norm_of_zeros_has_second_derivatives() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    d = Differentiable(root_of_squares, [x])
    (first,) = append_gradients(d.graph, [(d.value, ones(d.graph, d.value))], d.by)
    (second,) = append_gradients(d.graph, [(first, ones(d.graph, first))], d.by)
    d.graph.output_node.set_args((second,))
    with np.errstate(all="ignore"):
        (got,) = interpret(d.graph, [x])
    np.testing.assert_allclose(got, [[0, 0], [4 / 125, -3 / 125]], atol=1e-12)


def test_of_stores_at_one_place_the_last_counts() -> None:
    graph = Graph()
    x, values = graph.placeholder("x", Meta(F64, (4,))), graph.placeholder("v", Meta(F64, (3,)))
    places = graph.placeholder("i", Meta(dtypes.int64, (3,)))
    stored = graph.call(OPS["scatter"], x, values, places, axes=(0,), at=0)
    graph.output(append_gradients(graph, [(stored, ones(graph, stored))], [x, values]))
    by_x, by_values = interpret(graph, [np.zeros(4), np.ones(3), np.array([2, 0, 2])])
    np.testing.assert_array_equal(by_x, [0, 1, 0, 1])
    np.testing.assert_array_equal(by_values, [0, 1, 1])


def test_of_equal_extremes_at_one_place_each_has_a_share() -> None:
    places = np.array([2, 0, 2, 2])

    def program(x: Term, values: Term) -> Term:
        at = Term(x.node.graph.constant(places))
        return x.call("scatter", values, at, axes=(0,), at=0, combine="maximum")

    by_x, by_values = gradients_of(program, np.array([1.0, 5.0, 2.0]), np.array([4.0, 1.0, 4.0, 3.0]))
    np.testing.assert_array_equal(by_x, [0.5, 1, 0])
    np.testing.assert_array_equal(by_values, [0.5, 0.5, 0.5, 0])


def test_what_has_no_gradient_is_named_with_its_line() -> None:
    graph, x = one_input()
    graph.location = Location("model.py", 12)
    value = graph.call(OPS["nextafter"], x, x)
    with pytest.raises(GradientError, match=r"model\.py:12: nextafter: no gradient passes through nextafter; write the step"):
        append_gradients(graph, [(value, ones(graph, value))], [x])


@pytest.mark.parametrize(
    "dtype, said", [(dtypes.int64, "int64, which has no derivatives; cast"), (dtypes.bool_, "bool, which has no derivatives; cast")]
)
def test_dtypes_without_derivatives(dtype: dtypes.DType, said: str) -> None:
    graph, x = one_input(dtype)
    with pytest.raises(GradientError, match=f"x: a gradient is asked by {said}"):
        append_gradients(graph, [], [x])


def test_seeds_that_do_not_fit() -> None:
    graph, x = one_input()
    value = graph.call(OPS["exp"], x)
    seed = graph.call(OPS["full"], shape=(2,), value=1.0, dtype=F64)
    with pytest.raises(GradientError, match=r"the seed of exp must be float64\[3\], got float64\[2\]"):
        append_gradients(graph, [(value, seed)], [x])
