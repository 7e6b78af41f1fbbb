"""Gradients of graphs: every row that has one, against differences of its values, once and twice; what has none says so."""

from __future__ import annotations

import numpy as np
import pytest

from dynagraph.errors import GradientError
from dynagraph.ir import dtypes
from dynagraph.ir.callouts import FunctionCall, Slot, selected
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS, Composite
from dynagraph.ir.passes.backward import append_gradients, append_tangents
from dynagraph.ir.passes.decompose import decompose
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.ops.cases import Case, cases

F64 = dtypes.float64
STEP = 1e-6
COMPOSITE = [op for op in OPS.values() if isinstance(op.lowering, Composite) and op.name != "block_reduce"]
DIFFERENTIABLE = [op for op in OPS.values() if op.vjp is not None and op.name not in ("call_out", "stop_gradient")] + COMPOSITE
# rows of floats that have no gradient yet, or none at all
WITHOUT = {
    "nextafter", "complex", *(name for name in OPS if name.endswith("_accumulate")),
}  # fmt: skip


def is_smooth(case: Case) -> bool:
    """Of finite float64 operands, with no ties, in the row's domain."""
    floats = [x for x in case.operands if x.dtype.kind == "f"]
    return (
        bool(floats)
        and all(x.dtype == np.float64 and np.isfinite(x).all() for x in floats)
        and case.attrs.get("dtype", F64) is F64
        and case.attrs.get("combine", "") in ("", "add", "subtract")
        and not any(np.isin(x, [0.0, 1.0, -1.0]).any() for x in floats)
        and has_value(case)
    )


def has_value(case: Case) -> bool:
    """Variances of too few elements have none, and those of one do not move."""
    if not isinstance(case.op.lowering, Composite):
        return True
    count = np.prod([case.operands[0].shape[k] for k in case.attrs["axis"]], dtype=int)
    return bool(count > max(1, case.attrs.get("ddof", 0)))


class Differentiable:
    """A graph of one op, of its operands that are floats."""

    def __init__(self, case: Case):
        self.graph = Graph()
        metas = [Meta(dtypes.from_numpy(x.dtype), x.shape) for x in case.operands]
        self.inputs = [self.graph.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
        self.graph.output([self.graph.call(case.op, *self.inputs, **case.attrs)])
        decompose(self.graph)
        (self.value,) = self.graph.outputs
        self.by = [node for node in self.inputs if node.dtype.is_float]

    def gradients(self, seeds: dict[Node, Node]) -> list[Node]:
        """Zeros where there is none."""
        found = append_gradients(self.graph, list(seeds.items()), self.by)
        return [self._zeros(node) if g is None else g for node, g in zip(self.by, found)]

    def _zeros(self, node: Node) -> Node:
        with self.graph.inserting_before(self.graph.output_node):
            return self.graph.call(OPS["full"], shape=node.shape, value=0.0, dtype=node.dtype)

    def seed(self, name: str, like: Node) -> Node:
        with self.graph.inserting_before(self.value if self.value.kind == "placeholder" else next(iter(self.graph.nodes))):
            return self.graph.placeholder(name, like.meta)


def directional(
    graph: Graph, outputs: list[Node], inputs: list[np.ndarray], by: list[int], way: list[np.ndarray]
) -> list[np.ndarray]:
    """How outputs change along a direction."""
    graph.output_node.set_args(tuple(outputs))

    def moved(step: float) -> tuple[np.ndarray, ...]:
        there = [x + step * way[by.index(k)] if k in by else x for k, x in enumerate(inputs)]
        with np.errstate(all="ignore"):
            return interpret(graph, there)

    return [(high - low) / (2 * STEP) for high, low in zip(moved(STEP), moved(-STEP))]


def check(case: Case, order: int) -> None:
    d = Differentiable(case)
    rng = np.random.default_rng(1)
    seed = d.seed("seed", d.value)
    order_of = d.graph.placeholders  # the seed is among them
    inputs = {**dict(zip(d.inputs, case.operands)), seed: rng.normal(size=d.value.shape)}
    values = [inputs[node] for node in order_of]
    way = [rng.normal(size=node.shape) for node in d.by]
    at = [order_of.index(node) for node in d.by]
    first = d.gradients({d.value: seed})
    for node, gradient in zip(d.by, first):
        assert (gradient.dtype, gradient.shape) == (node.dtype, node.shape), str(case)
    if order == 1:
        compare(d, [d.value], [inputs[seed]], first, values, at, way, case)
        return
    weights = [d.seed(f"weight{k}", g) for k, g in enumerate(first)]
    order_of = d.graph.placeholders
    inputs |= {w: rng.normal(size=w.shape) for w in weights}
    values = [inputs[node] for node in order_of]
    at = [order_of.index(node) for node in d.by]
    second = d.gradients(dict(zip(first, weights)))
    compare(d, first, [inputs[w] for w in weights], second, values, at, way, case)


def compare(d, outputs, seeds, gradients, values, at, way, case) -> None:
    changes = directional(d.graph, outputs, values, at, way)
    numeric = sum(float((change * seed).sum()) for change, seed in zip(changes, seeds))
    d.graph.output_node.set_args(tuple(gradients))
    d.graph.lint()
    with np.errstate(all="ignore"):
        exact = interpret(d.graph, values)
        simplified = interpret(run_passes(d.graph), values)
    ours = sum(float((g * w).sum()) for g, w in zip(exact, way))
    scale = 1 + sum(float(np.abs(g * w).sum()) for g, w in zip(exact, way))
    assert abs(ours - numeric) < 2e-5 * scale, f"{case}: {ours} by gradients, {numeric} by differences"
    for got, want in zip(simplified, exact):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradients_are_what_values_change_by(op, order: int) -> None:
    smooth = [case for case in cases(op) if is_smooth(case)]
    for case in smooth[:: 1 + len(smooth) // 60]:
        check(case, order)
    floats = any(True for case in cases(op) if any(x.dtype.kind == "f" for x in case.operands))
    assert smooth or not floats


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_tangents_are_what_values_change_by(op) -> None:
    smooth = [case for case in cases(op) if is_smooth(case)]
    for case in smooth[:: 1 + len(smooth) // 20]:
        d = Differentiable(case)
        rng = np.random.default_rng(2)
        ways = [d.seed(f"way{k}", node) for k, node in enumerate(d.by)]
        inputs = {**dict(zip(d.inputs, case.operands)), **{way: rng.normal(size=way.shape) for way in ways}}
        order = d.graph.placeholders
        values, at = [inputs[node] for node in order], [order.index(node) for node in d.by]
        (tangent,) = append_tangents(d.graph, list(zip(d.by, ways)), [d.value])
        (numeric,) = directional(d.graph, [d.value], values, at, [inputs[way] for way in ways])
        if tangent is None:
            np.testing.assert_allclose(numeric, 0, atol=1e-5)
            continue
        d.graph.output_node.set_args((tangent,))
        simplified = run_passes(d.graph)
        with np.errstate(all="ignore"):
            (got,) = interpret(simplified, values)
        np.testing.assert_allclose(got, numeric, rtol=2e-4, atol=2e-5 * (1 + np.abs(numeric).max(initial=0)), err_msg=str(case))


SQUARE = np.random.default_rng(8).normal(size=(2, 3, 3))
POSITIVE = SQUARE @ SQUARE.swapaxes(1, 2) + np.eye(3)


def called(function: str, operands: list[np.ndarray], result: int | None = None) -> Case:
    call = FunctionCall(function, tuple(map(Slot, range(len(operands)))))
    value = selected(call.run(np, operands), result)
    return Case(OPS["call_out"], operands, {"call": call, "result": result, "dtype": F64, "shape": value.shape})


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("case", [
    called("linalg.solve", [SQUARE, SQUARE[:, :, :2]]), called("linalg.solve", [SQUARE[0], SQUARE[1, 0]]),
    called("linalg.solve", [SQUARE, SQUARE[1, :, :1]]), called("linalg.inv", [SQUARE]), called("linalg.det", [SQUARE]),
    called("linalg.det", [SQUARE[0]]), called("linalg.slogdet", [SQUARE], 1), called("linalg.slogdet", [SQUARE], 0),
], ids=str)  # fmt: skip
def test_linear_algebra(case: Case, order: int) -> None:
    check(case, order)


@pytest.mark.parametrize("order", [1, 2])
def test_cholesky_factors(order: int) -> None:
    """Of x @ x.T + 1: the function looks at one half of the matrix only, which may not be moved alone."""
    graph = Graph()
    x, seed, weight = (graph.placeholder(name, Meta(F64, (3, 3))) for name in ("x", "seed", "weight"))
    product = graph.call(OPS["matmul"], x, graph.call(OPS["transpose"], x, axes=(1, 0)))
    matrix = graph.call(OPS["add"], product, graph.call(OPS["eye"], shape=(3, 3), k=0, dtype=F64))
    factor = graph.call(OPS["call_out"], matrix, **called("linalg.cholesky", [POSITIVE[0]]).attrs)
    graph.output([factor])
    rng = np.random.default_rng(6)
    values, way = [rng.normal(size=(3, 3)) for _ in range(3)], rng.normal(size=(3, 3))
    outputs, seeds = [factor], [seed]
    for _ in range(order):
        gradients = append_gradients(graph, list(zip(outputs, seeds)), [x])
        before, outputs, seeds = (outputs, seeds), gradients, [weight]
    (change,) = directional(graph, before[0], values, [0], [way])
    graph.output_node.set_args(tuple(gradients))
    (gradient,) = interpret(graph, values)
    weights = values[order]
    np.testing.assert_allclose((gradient * way).sum(), (change * weights).sum(), rtol=1e-5)


def test_calls_without_a_gradient_are_named() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (2, 3, 3)))
    value = graph.call(OPS["call_out"], x, **called("linalg.pinv", [SQUARE]).attrs)
    with pytest.raises(GradientError, match=r"no gradient passes through np\.linalg\.pinv\(.*have one are linalg\.solve"):
        append_gradients(graph, [(value, ones(graph, value))], [x])


def test_every_row_of_floats_has_a_gradient_or_is_listed() -> None:
    gives_floats = {op.name for op in OPS.values() if op.name != "block_reduce" and any(map(gives_float, cases(op)))}
    without = {name for name in gives_floats if OPS[name].vjp is None} - {op.name for op in COMPOSITE}  # which are decomposed
    assert without == WITHOUT & gives_floats and all(OPS[name].vjp is None for name in WITHOUT)


def gives_float(case: Case) -> bool:
    metas = tuple(Meta(dtypes.from_numpy(x.dtype), x.shape) for x in case.operands)
    result = case.op.infer(metas, case.op.bind_attrs(case.attrs))
    return bool(metas) and all(m.dtype is F64 for m in metas) and result.dtype.is_inexact


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


def test_of_stores_at_one_place_the_last_counts() -> None:
    graph = Graph()
    x, values = graph.placeholder("x", Meta(F64, (4,))), graph.placeholder("v", Meta(F64, (3,)))
    places = graph.placeholder("i", Meta(dtypes.int64, (3,)))
    stored = graph.call(OPS["scatter"], x, values, places, axes=(0,), at=0)
    graph.output(append_gradients(graph, [(stored, ones(graph, stored))], [x, values]))
    by_x, by_values = interpret(graph, [np.zeros(4), np.ones(3), np.array([2, 0, 2])])
    np.testing.assert_array_equal(by_x, [0, 1, 0, 1])
    np.testing.assert_array_equal(by_values, [0, 1, 1])


def test_what_has_no_gradient_is_named_with_its_line() -> None:
    graph, x = one_input()
    graph.location = Location("model.py", 12)
    value = graph.call(OPS["nextafter"], x, x)
    with pytest.raises(GradientError, match=r"model\.py:12: nextafter: no gradient passes through nextafter; write the step"):
        append_gradients(graph, [(value, ones(graph, value))], [x])


@pytest.mark.parametrize(
    "dtype, said", [(dtypes.int64, "int64, which has no derivatives; cast"), (dtypes.complex128, "complex numbers")]
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
