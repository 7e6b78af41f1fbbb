"""Batches: every row for many items at once, against one item after the other; Jacobians, which they are for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dynagraph.doors.numpy.external_calls import ROWS as CALLED_OUT
from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot, selected
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS, Composite, Creation, Library, Movement, Op
from dynagraph.ir.passes import batch
from dynagraph.ir.passes.backward import append_gradients
from dynagraph.ir.passes.batch import append_batched, erase_dependents
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.shapes import ShapeEnv, numel
from tests.ops.cases import ROWS, Case, cases
from tests.ops.evaluate import assert_same
from tests.ops.test_rows import EITHER_ZERO, tolerance
from tests.ops.test_symbolic import CASES as SYMBOLIC

F64 = dtypes.float64
ITEMS = 3
MAX_CASES = 120
TAKES_OPERANDS = [op for op in ROWS if not isinstance(op.lowering, Creation)]

pytestmark = [
    pytest.mark.sampled(3),
    pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning"),
]


# -- every row ------------------------------------------------------------------------------------------------------------
def items_of(x: np.ndarray, n: int) -> np.ndarray:
    """Arrays of the same elements in other orders, of their own first."""
    rng = np.random.default_rng(x.size)
    others = [rng.permutation(x.reshape(-1)).reshape(x.shape) for _ in range(n - 1)]
    return np.stack([x, *others][:n]) if n else np.empty((0, *x.shape), x.dtype)


def one_op(case: Case) -> Graph:
    graph = Graph()
    inputs = [graph.placeholder(f"x{k}", meta_of(x)) for k, x in enumerate(case.operands)]
    graph.output([graph.call(case.op, *inputs, **case.attrs)])
    return graph


def meta_of(x: np.ndarray) -> Meta:
    dtype = dtypes.from_numpy(x.dtype)
    assert dtype is not None
    return Meta(dtype, x.shape)


def graph_of(**shapes: tuple[Any, ...]) -> tuple[Graph, list[Node]]:
    graph = Graph()
    return graph, [graph.placeholder(name, Meta(F64, shape)) for name, shape in shapes.items()]


def call(graph: Graph, name: str, *args: Node, **attrs: Any) -> Node:
    return graph.call(OPS[name], *args, **attrs)


def run(graph: Graph, inputs: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        return interpret(graph, inputs)


def batched(graph: Graph, chosen: list[int], n: Any = ITEMS) -> Graph:
    """The graph with one more placeholder for each chosen one: of the values for `n` items."""
    graph = graph.copy()
    keys = [graph.placeholders[k] for k in chosen]
    with graph.inserting_before(next(iter(graph.nodes))):
        values = [graph.placeholder(f"all_{key.name}", Meta(key.dtype, (n, *key.shape))) for key in keys]
    outputs = append_batched(graph, list(graph.outputs), dict(zip(keys, values)))
    graph.output_node.set_args(tuple(outputs))
    graph.lint()
    return graph


Same = Callable[[np.ndarray, np.ndarray], None]
Items = Callable[[np.ndarray, int], np.ndarray]


def check(
    graph: Graph, operands: list[np.ndarray], chosen: list[int], same: Same, n: int = ITEMS, items: Items = items_of
) -> Graph:
    """The graph of many items, which gives what a loop over them gives."""
    values = {k: items(operands[k], n) for k in chosen}
    loop = [run(graph, [values[k][item] if k in values else x for k, x in enumerate(operands)]) for item in range(n)]
    many = batched(graph, chosen, n)
    inputs = [*(values[k] for k in chosen), *operands]
    for program in (many, run_passes(many, lint=True)):
        for position, got in enumerate(run(program, inputs)):
            same(got, np.stack([results[position] for results in loop]))
    return many


def subsets(n: int) -> list[list[int]]:
    """All but the empty one; where there are many, of one and of all."""
    sizes = range(1, n + 1) if n <= 3 else (1, n)
    return [list(chosen) for size in sizes for chosen in itertools.combinations(range(n), size)]


def some(found: list[Case]) -> list[Case]:
    chosen = np.random.default_rng(len(found)).permutation(len(found))[:MAX_CASES]
    return [found[k] for k in sorted(chosen)]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("op", TAKES_OPERANDS, ids=lambda op: op.name)
def test_every_row_gives_what_a_loop_gives(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    if op.name != "external_call":
        monkeypatch.setattr(batch, "_each", pytest.fail)  # all have rules
    for case in some(cases(op)):

        def same(got: np.ndarray, want: np.ndarray) -> None:
            if op.name in EITHER_ZERO and want.dtype.kind == "f":
                got, want = got + 0.0, want + 0.0
            assert_same(got, want, 64 if isinstance(op.lowering, Composite) else tolerance(case))  # sums in another order

        for chosen in subsets(len(case.operands)):
            check(one_op(case), case.operands, chosen, same)


def test_every_lowering_has_a_rule() -> None:
    """But what depends on nothing; rows of data movement have theirs in the table."""
    assert {type(op.lowering) for op in OPS.values()} - set(batch._RULES) == {Creation}
    assert all(op.lowering.batched for op in OPS.values() if isinstance(op.lowering, Movement))
    assert {op.lowering.routine for op in OPS.values() if isinstance(op.lowering, Library)} == set(batch._ROUTINES)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("op", ["add", "sum", "broadcast_to", "concatenate", "gather", "scatter", "matmul"])
def test_few_items(op: str, n: int) -> None:
    case = cases(OPS[op])[-1]
    graph = one_op(case)
    for chosen in subsets(len(case.operands)):
        if n:
            check(graph, case.operands, chosen, lambda got, want: assert_same(got, want, 64), n)
            continue
        (got,) = run(batched(graph, chosen, 0), [*(items_of(case.operands[k], 0) for k in chosen), *case.operands])
        (one,) = run(graph, case.operands)
        assert (got.shape, got.dtype) == ((0, *one.shape), one.dtype)


# -- external calls ---------------------------------------------------------------------------------------------------------
RNG = np.random.default_rng(3)
MATRIX, STACK, TALL = RNG.normal(size=(3, 3)), RNG.normal(size=(2, 3, 3)), RNG.normal(size=(2, 4, 3))
POSITIVE = STACK @ STACK.swapaxes(1, 2) + np.eye(3)
COMPLEX = STACK + 1j * STACK[::-1]
GRID = RNG.normal(size=(2, 4, 6))
SORTED = np.array([0.0, 1.0, 2.5, 4.0])


def called(function: str, *args: Any, result: int | None = None, warns: bool = False, **kwargs: Any) -> Case:
    """Arrays among the arguments are operands."""
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray)]
    place = {id(a): Slot(k) for k, a in enumerate(operands)}
    warning = Slot(len(operands)) if warns else None
    named = tuple((name, place.get(id(value), value)) for name, value in sorted(kwargs.items()))
    call = FunctionCall(function, tuple(place.get(id(a), a) for a in args), named, warning)
    operands += [np.array(False)] if warns else []
    value = np.asarray(selected(call.run(np, operands), result))
    attrs = {"call": call, "result": result, "dtype": meta_of(value).dtype, "shape": value.shape}
    return Case(OPS["external_call"], operands, attrs)


AT_ONCE = [
    *(called(f"linalg.{name}", x) for name in ("inv", "det", "pinv", "svdvals", "eigvalsh") for x in (MATRIX, STACK)),
    *(called(f"linalg.{name}", x) for name in ("cond", "matrix_rank") for x in (MATRIX, STACK)),
    called("linalg.cond", STACK, "fro"), called("linalg.pinv", TALL, rcond=1e-9), called("linalg.cholesky", POSITIVE),
    *(called("linalg.slogdet", STACK, result=k) for k in (0, 1)), *(called("linalg.eigh", STACK, result=k) for k in (0, 1)),
    *(called("linalg.qr", x, mode, result=k) for x in (TALL, TALL[0]) for mode in ("reduced", "complete", "raw") for k in (0, 1)),
    called("linalg.qr", TALL, mode="r"), *(called("linalg.svd", TALL, result=k) for k in (0, 1, 2)),
    called("linalg.svd", TALL, compute_uv=False), called("linalg.eig", COMPLEX, result=0), called("linalg.eigvals", COMPLEX),
    *(called("linalg.solve", a, b) for a, b in (
        (MATRIX, MATRIX[0]), (MATRIX, MATRIX[:, :2]), (STACK, MATRIX[0]), (STACK, MATRIX[:, :2]), (STACK, STACK[:, :, 1:]),
        (MATRIX, STACK[:, :, 1:]), (STACK[:, None], RNG.normal(size=(4, 3, 2))), (MATRIX, MATRIX[:, :0]),
    )),
    *(called(f"fft.{name}", x) for name in ("fft", "ifft", "irfft", "hfft") for x in (GRID, GRID[0, 0])),
    *(called(f"fft.{name}", GRID, axis=axis) for name in ("rfft", "ihfft") for axis in (0, 1, -2)),
    called("fft.fft", GRID, 7), called("fft.fft", GRID, None, 1, "ortho"), called("fft.irfft", GRID, 5, 0),
    *(called(f"fft.{name}", GRID) for name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")),
    called("fft.fftn", GRID, None, (0, -1)), called("fft.irfft2", GRID, s=(3, 5), axes=(0, 2)),
    called("fft.fft2", GRID, norm="forward"),
    *(called(name, GRID, axis=axis) for name in ("sort", "argsort", "median") for axis in (0, -1, None)),
    *(called(name, GRID, 2, axis=axis) for name in ("partition", "argpartition") for axis in (1, None)),
    called("sort", GRID[0, 0], kind="stable"), called("median", GRID, keepdims=True), called("median", GRID, axis=(0, 2)),
    called("nanmedian", GRID, 1, warns=True), called("nanmedian", GRID, warns=True),
    called("searchsorted", SORTED, GRID, "right"), called("digitize", GRID, SORTED), called("interp", GRID, SORTED, SORTED**2),
]  # fmt: skip


def scaled(x: np.ndarray, n: int) -> np.ndarray:
    """Items that are sorted, or positive definite, where the first is."""
    return np.stack([(k + 1) * x for k in range(n)])


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def called_in(graph: Graph) -> int:
    return sum(node.is_op("external_call") for node in graph.nodes)


@pytest.mark.parametrize("case", AT_ONCE, ids=str)
def test_functions_are_called_once_for_all_items(case: Case) -> None:
    name, graph = case.attrs["call"].function, one_op(case)
    at_each = {"searchsorted": [1], "digitize": [0], "interp": [0]}.get(name)
    items = scaled if at_each or name == "linalg.cholesky" else items_of
    for chosen in subsets(len(case.operands)):
        many = check(graph, case.operands, chosen, close, items=items)
        once = at_each is None or chosen == at_each
        assert called_in(many) == 1 + (1 if once else ITEMS)  # the first is that of the item itself


ONE_BY_ONE = [
    called("convolve", SORTED, SORTED[:2]), called("correlate", SORTED, SORTED[:2], mode="full"),
    called("linalg.lstsq", TALL[0], SORTED, result=0), called("lexsort", GRID[0]), called("quantile", GRID, 0.3, axis=1),
    called("quantile", GRID[0], SORTED / 4), called("linalg.norm", MATRIX, 2), called("isin", GRID[0], SORTED),
    called("bincount", SORTED.astype(int), minlength=6), called("histogram", GRID[0], 4, result=0),
    called("packbits", GRID[0] > 0, axis=1), called("sort", np.array(1.0), axis=None),
]  # fmt: skip


@pytest.mark.parametrize("case", ONE_BY_ONE, ids=str)
def test_what_has_no_rule_takes_one_item_after_the_other(case: Case) -> None:
    graph = one_op(case)
    for chosen in subsets(len(case.operands)):
        assert called_in(check(graph, case.operands, chosen, close)) == 1 + ITEMS
        env = ShapeEnv()
        many = batched(graph, chosen, env.symbol(ITEMS))
        assert called_in(many) == 2
        values = [items_of(case.operands[k], ITEMS) for k in chosen]
        (got,), (want,) = (run(g, [*values, *case.operands]) for g in (many, batched(graph, chosen)))
        close(got, want)
        twice = batched(many, list(range(len(chosen))), env.symbol(2))
        (got,) = run(twice, [*(np.stack([v, v[::-1]]) for v in values), *values, *case.operands])
        close(got, np.stack([want, want[::-1]]))


def test_no_items_take_no_steps() -> None:
    case = ONE_BY_ONE[0]
    many = batched(one_op(case), [0], 0)
    (got,) = run(many, [np.empty((0, 4)), *case.operands])
    assert got.shape == (0, *case.attrs["shape"]) and called_in(many) == 1


def test_one_item_that_is_warned_of_is_enough() -> None:
    case = called("nanmedian", GRID, 1, warns=True)
    many = batched(one_op(case), [0, 1], 2)
    with pytest.raises(ValueError, match="nanmedian warns of these values"):
        run(many, [items_of(GRID, 2), np.array([False, True]), *case.operands])


def test_functions_without_a_rule_are_known() -> None:
    assert set(batch._CALLS) <= set(CALLED_OUT)
    assert set(batch._CALLS) == {case.attrs["call"].function for case in AT_ONCE}
    assert set(CALLED_OUT) - set(batch._CALLS) == {
        "bincount", "convolve", "correlate", "histogram", "histogram2d", "histogram_bin_edges", "isin", "lexsort", "linalg.lstsq",
        "linalg.norm", "nanpercentile", "nanquantile", "packbits", "percentile", "quantile", "sort_complex", "unpackbits",
    }  # fmt: skip


# -- symbolic sizes ---------------------------------------------------------------------------------------------------------
def holds(relation: Any, values: dict[str, int]) -> bool:
    difference = (relation.left - relation.right).evaluate(values)
    return {"==": difference == 0, "<": difference < 0, "<=": difference <= 0}[relation.op] == relation.holds


WITH_OPERANDS = {
    name: case for name, case in SYMBOLIC.items() if not isinstance(OPS[case[0]].lowering, Creation)
} | {
    "gather": ("gather", lambda n, m: [(n, m), (n,)], lambda n, m: {"axes": (1,), "at": 0}),
    "gather beside": ("gather", lambda n, m: [(n, m), (n,)], lambda n, m: {"axes": (1,), "at": 1}),
    "scatter": ("scatter", lambda n, m: [(n, m), (n, n), (n,)], lambda n, m: {"axes": (1,), "at": 1, "combine": "add"}),
    "vectors": ("matmul", lambda n, m: [(n, m), (m, 1)], lambda n, m: {}),
    "solve": ("external_call", lambda n, m: [(n, n), (n, m)], lambda n, m: {
        **called("linalg.solve", MATRIX, POSITIVE[0]).attrs, "shape": (n, m)}),
    "solve vectors": ("external_call", lambda n, m: [(m, n, n), (n,)], lambda n, m: {
        **called("linalg.solve", STACK, MATRIX[0]).attrs, "shape": (m, n)}),
    "inv": ("external_call", lambda n, m: [(n, m, m)], lambda n, m: {**called("linalg.inv", STACK).attrs, "shape": (n, m, m)}),
    "sort all": ("external_call", lambda n, m: [(n, m)], lambda n, m: {
        **called("sort", MATRIX, axis=None).attrs, "shape": (n * m,)}),
    "fft": ("external_call", lambda n, m: [(n, m)], lambda n, m: {**called("fft.fft", MATRIX, axis=0).attrs, "shape": (n, m)}),
}  # fmt: skip


@pytest.mark.parametrize("name", WITH_OPERANDS)
def test_symbolic_sizes(name: str) -> None:
    op_name, shapes, attrs_of = WITH_OPERANDS[name]
    env = ShapeEnv()
    n, m, items = env.symbol(4), env.symbol(3), env.symbol(5)
    graph = Graph()
    sizes = [graph.placeholder(name, Meta(F64, (size,))) for name, size in (("n", n), ("m", m))]  # which bind the symbols
    floats = {"gather": 1, "scatter": 2}.get(op_name, 9)  # the other operands are places
    inputs = [graph.placeholder(f"x{k}", Meta(F64 if k < floats else dtypes.int64, s)) for k, s in enumerate(shapes(n, m))]
    graph.output([graph.call(OPS[op_name], *inputs, **attrs_of(n, m))])
    for chosen in subsets(len(inputs)):
        many = batched(graph, [len(sizes) + k for k in chosen], items)
        for rows, columns, count in ((4, 3, 5), (2, 2, 2), (6, 5, 3)):
            assert all(holds(relation, {"s0": rows, "s1": columns, "s2": count}) for relation in env.relations)
            rng = np.random.default_rng(rows)
            operands = [np.zeros(rows), np.zeros(columns)]
            operands += [rng.normal(size=s) if k < floats else rng.integers(-2, 2, s) for k, s in enumerate(shapes(rows, columns))]
            values = {len(sizes) + k: items_of(operands[len(sizes) + k], count) for k in chosen}
            want = [run(graph, [values[k][item] if k in values else x for k, x in enumerate(operands)])[0] for item in range(count)]
            for program in (many, run_passes(many, lint=True)):
                (got,) = run(program, [*values.values(), *operands])
                close(got, np.stack(want))


def test_sizes_that_were_decided_to_be_one_broadcast() -> None:
    """x[:-1] + y of two rows: the items broadcast as the one did, and nothing more is decided."""
    env = ShapeEnv()
    n, items = env.symbol(2), env.symbol(3)
    graph, (x, y) = graph_of(x=(n, 4), y=(n, 4))
    front = call(graph, "slice", x, starts=(0, 0), steps=(1, 1), shape=(n - 1, 4))
    graph.output([call(graph, "add", front, y)])
    known = set(env.relations)
    operands = [RNG.normal(size=(2, 4)) for _ in range(2)]
    for chosen in subsets(2):
        many = batched(graph, chosen, items)
        values = {k: items_of(operands[k], 3) for k in chosen}
        want = [run(graph, [values[k][item] if k in values else operands[k] for k in range(2)])[0] for item in range(3)]
        assert_same(run(many, [*values.values(), *operands])[0], np.stack(want))
    assert set(env.relations) == known


# -- graphs of several ops ----------------------------------------------------------------------------------------------------
def chain() -> tuple[Graph, list[np.ndarray]]:
    graph, (x, w) = graph_of(x=(3, 4), w=(4, 2))
    product = call(graph, "matmul", call(graph, "tanh", x), w)
    largest = call(graph, "argmax", product, axis=(1,))
    spread = call(graph, "var", product, axis=(0,))
    taken = call(graph, "gather", product, largest, axes=(1,), at=0)
    scaled = call(graph, "divide", product, call(graph, "sqrt", call(graph, "broadcast_to", spread, shape=(3, 2))))
    graph.output([scaled, largest, taken, call(graph, "exp", w), x])
    return graph, [RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))]


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1]], ids=str)
def test_a_chain(chosen: list[int]) -> None:
    check(*chain(), chosen, close)


def test_results_that_do_not_vary_are_repeated_and_the_rest_is_left_alone() -> None:
    graph, _ = chain()
    many = batched(graph, [0])
    assert set(str(graph).splitlines()[:-1]) < set(str(many).splitlines())
    *_, repeated, items = many.outputs
    assert items is many.placeholders[0]
    assert repeated.is_op("broadcast_to") and repeated.args[0].is_op("exp") and sum(n.is_op("exp") for n in many.nodes) == 1


def test_any_node_may_be_replaced() -> None:
    """What stands before it does not vary, and nothing that only others need is made again."""
    graph, (x, w) = chain()
    product = next(node for node in graph.nodes if node.is_op("matmul"))
    with graph.before_output():
        squares = call(graph, "square", product)
        several = call(graph, "concatenate", *(
            call(graph, "reshape", node, shape=(1, 3, 2)) for node in (product, squares)), axis=0)
    outputs = append_batched(graph, graph.outputs[:2], {product: several})
    graph.output_node.set_args((*graph.outputs[:2], *outputs))
    graph.lint()
    one, at, many, places = run(graph, [x, w])
    close(many[0], one)
    close(places, np.stack([at, ((np.tanh(x) @ w) ** 2).argmax(1)]))
    assert sum(node.is_op("tanh", "matmul") for node in graph.nodes) == 2


def test_a_replaced_node_depends_on_no_other() -> None:
    graph, (x, xs, ys) = graph_of(x=(3,), xs=(2, 3), ys=(2, 3))
    first = call(graph, "cos", x)
    y = call(graph, "exp", call(graph, "sin", first))
    result = call(graph, "add", x, call(graph, "negative", y))
    graph.output([result])
    graph.output_node.set_args(tuple(append_batched(graph, [result, y, first], {x: xs, y: ys})))
    arrays = [RNG.normal(size=node.shape) for node in graph.placeholders]
    differences, replaced, between = run(graph, arrays)
    assert_same(differences, arrays[1] - arrays[2])
    assert_same(replaced, arrays[2])
    close(between, np.cos(arrays[1]))
    assert sum(node.is_op("sin", "exp") for node in graph.nodes) == 2


@pytest.mark.parametrize("shapes, chosen, product", [
    ([(4, 3), (3, 2)], 0, (12, 2)), ([(5, 4, 3), (3, 2)], 0, (60, 2)),
    ([(4, 3), (3, 1)], 1, (3, 4)), ([(4, 3), (5, 3, 1)], 1, (15, 4)),
])  # fmt: skip
def test_rows_that_meet_one_matrix_are_one_product(shapes: list[tuple[int, ...]], chosen: int, product: tuple[int, ...]) -> None:
    case = Case(OPS["matmul"], [RNG.normal(size=shape) for shape in shapes], {})
    many = check(one_op(case), case.operands, [chosen], close)
    assert [node.shape for node in many.nodes if node.is_op("matmul")][1:] == [product]


def test_new_nodes_keep_the_line() -> None:
    graph, (x, many) = graph_of(x=(3,), many=(2, 3))
    graph.location = Location("model.py", 12)
    value = call(graph, "exp", x)
    graph.location = None
    graph.output([value])
    (result,) = append_batched(graph, [value], {x: many})
    assert str(result.location) == "model.py:12" and graph.location is None


def test_what_does_not_fit_is_named() -> None:
    graph, (x, y, two, three) = graph_of(x=(3,), y=(3,), two=(2, 3), three=(3, 3))
    wrong = graph.placeholder("wrong", Meta(dtypes.float32, (2, 3)))
    size = graph.placeholder("size", Meta(dtypes.int64, ()), symbol="s0")
    sizes = graph.placeholder("sizes", Meta(dtypes.int64, (2,)))
    value = call(graph, "block_reduce", x, kind="sum", axis=0, block=2)
    for over, said in [
        ({}, "needs a node that is replaced"),
        ({x: y}, r"the values of x must be float64\[3, 3\], got float64\[3\]"),
        ({x: wrong}, r"the values of x must be float64\[2, 3\], got float32\[2, 3\]"),
        ({x: two, y: three}, r"the values of y must be float64\[2, 3\], got float64\[3, 3\]"),
        ({size: sizes}, "size is a size, and sizes are the same for all items"),
        ({x: two}, "block_reduce: graphs are legalized after this pass"),
    ]:
        with pytest.raises(GraphError, match=f"^append_batched: {said}"):
            append_batched(graph, [value], over)


# -- gradients ----------------------------------------------------------------------------------------------------------------
def test_gradients_pass_through_batches() -> None:
    """By what varies that of each item, by what does not their sum."""
    graph, (w, b, xs, seeds, x, seed) = graph_of(w=(2, 3), b=(2,), xs=(5, 3), seeds=(5, 2), x=(3,), seed=(2,))
    column = call(graph, "reshape", x, shape=(3, 1))
    value = call(graph, "tanh", call(graph, "reshape", call(graph, "matmul", w, column), shape=(2,)))
    value = call(graph, "multiply", call(graph, "cumsum", value, axis=0), b)
    graph.output([])
    (values,) = append_batched(graph, [value], {x: xs})
    of_all = append_gradients(graph, [(values, seeds)], [xs, w, b])
    of_one = append_gradients(graph, [(value, seed)], [x, w, b])
    graph.output_node.set_args((*of_all, *of_one))
    arrays = [RNG.normal(size=node.shape) for node in graph.placeholders]
    (by_xs, by_w, by_b), each = run(graph, arrays)[:3], []
    for item in range(5):
        each.append(run(graph, [*arrays[:4], arrays[2][item], arrays[3][item]])[3:])
    close(by_xs, np.stack([by_x for by_x, _, _ in each]))
    close(by_w, sum(w for _, w, _ in each))
    close(by_b, sum(b for _, _, b in each))


def append_jacobian(graph: Graph, value: Node, by: list[Node]) -> list[Node]:
    """All gradients of the elements of a value: of shape (elements, *shape of the node)."""
    with graph.before_output():
        seed = call(graph, "full", shape=value.shape, value=0, dtype=value.dtype)
        size = numel(value.shape)
        ones = call(graph, "eye", shape=(size, size), k=0, dtype=value.dtype)
        seeds = call(graph, "reshape", ones, shape=(size, *value.shape))
    gradients = [g for g in append_gradients(graph, [(value, seed)], by) if g is not None]
    rows = append_batched(graph, gradients, {seed: seeds})
    graph.output_node.set_args(tuple(rows))
    erase_dependents(graph, [seed])
    graph.eliminate_dead_code()
    graph.lint()
    assert seed not in list(graph.nodes)
    return rows


def _network(g: Graph, x: Node, w: Node, b: Node, out: Node) -> Node:
    hidden = call(g, "tanh", call(g, "add", call(g, "matmul", x, w), b))
    scores = call(g, "matmul", hidden, out)
    shifted = call(g, "subtract", scores, call(g, "max", scores, axis=(1,), keepdims=True))
    total = call(g, "sum", call(g, "exp", shifted), axis=(1,), keepdims=True)
    return call(g, "subtract", shifted, call(g, "log", total))


def _vectors(g: Graph, x: Node, w: Node) -> Node:
    return call(g, "tanh", call(g, "matmul", w, call(g, "reshape", x, shape=(3, 1))))


def _chosen(g: Graph, x: Node, y: Node) -> Node:
    return call(g, "where", call(g, "less", x, y), call(g, "multiply", x, y), call(g, "maximum", x, call(g, "exp", y)))


def _gathered(g: Graph, x: Node) -> Node:
    places = g.constant(np.array([2, 0, 2, -1]), "places")
    taken = call(g, "gather", x, places, axes=(1,), at=1)
    return call(g, "scatter", taken, call(g, "exp", x), g.constant(np.array([1, 1, 3])), axes=(1,), at=1)


def _solution(g: Graph, a: Node, b: Node) -> Node:
    return call(g, "external_call", a, b, **called("linalg.solve", MATRIX, MATRIX[0]).attrs)


def _determinants(g: Graph, a: Node) -> Node:
    inverse = call(g, "external_call", a, **called("linalg.inv", STACK).attrs)
    return call(g, "multiply", call(g, "external_call", a, **called("linalg.slogdet", STACK, result=1).attrs),
                call(g, "sum", inverse, axis=(1, 2)))


def _moved(g: Graph, x: Node) -> Node:
    turned = call(g, "transpose", call(g, "roll", call(g, "cumsum", x, axis=1), shift=1, axis=0), axes=(1, 0))
    cut = call(g, "slice", call(g, "pad", turned, widths=((0, 1), (2, 0)), value=1.0), starts=(3, 0), steps=(-2, 1), shape=(2, 4))
    return call(g, "concatenate", cut, call(g, "repeat", call(g, "square", cut), repeats=2, axis=0), axis=0)


JACOBIANS: dict[str, tuple[Callable[..., Node], list[tuple[int, ...]]]] = {
    "network": (_network, [(4, 3), (3, 5), (5,), (5, 2)]),
    "vectors": (_vectors, [(3,), (4, 3)]),
    "where": (_chosen, [(2, 3), (3,)]),
    "gather and scatter": (_gathered, [(2, 3)]),
    "solve": (_solution, [(3, 3), (3,)]),
    "determinants": (_determinants, [(2, 3, 3)]),
    "movement": (_moved, [(2, 3)]),
    "cumsum": (lambda g, x: call(g, "cumsum", call(g, "sin", x), axis=0), [(4,)]),
    "cumprod": (lambda g, x: call(g, "cumprod", x, axis=1), [(2, 3)]),
    "max": (lambda g, x: call(g, "max", x, axis=(1,)), [(3, 4)]),
    "prod": (lambda g, x: call(g, "prod", x, axis=(0,)), [(3, 2)]),
    "variance": (lambda g, x: call(g, "std", x, axis=(1,), ddof=1), [(2, 4)]),
    "windows": (lambda g, x: call(g, "max", call(g, "windows", x, sizes=(3,), axes=(0,)), axis=(1,)), [(6,)]),
    "diagonal": (lambda g, x: call(g, "diagonal", call(g, "matmul", x, x)), [(3, 3)]),
}


def one_hot_rows(graph: Graph, value: Node, by: list[Node], arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Jacobians, one seed after the other."""
    graph, value, by = _copied(graph, value, by)
    with graph.before_output():
        seed = graph.placeholder("seed", value.meta)
    graph.output_node.set_args(tuple(g for g in append_gradients(graph, [(value, seed)], by) if g is not None))
    seeds = np.eye(numel(value.shape)).reshape(-1, *value.shape)
    return [np.stack(rows) for rows in zip(*(run(graph, [*arrays, one]) for one in seeds))]


def _copied(graph: Graph, value: Node, by: list[Node]) -> tuple[Graph, Node, list[Node]]:
    positions = {node: k for k, node in enumerate(graph.nodes)}
    nodes = list((copy := graph.copy()).nodes)
    return copy, nodes[positions[value]], [nodes[positions[node]] for node in by]


@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians(name: str) -> None:
    function, shapes = JACOBIANS[name]
    graph, by = graph_of(**{f"x{k}": shape for k, shape in enumerate(shapes)})
    value = function(graph, *by)
    graph.output([])
    rng = np.random.default_rng(11)
    arrays = [rng.normal(size=shape) for shape in shapes]
    want = one_hot_rows(graph, value, by, arrays)
    append_jacobian(graph, value, by)
    for program in (graph, run_passes(graph, lint=True)):
        for got, rows in zip(run(program, arrays), want, strict=True):
            close(got, rows)


def test_jacobians_of_symbolic_sizes() -> None:
    graph, (x, w) = graph_of(x=(ShapeEnv().symbol(4), 3), w=(3, 2))
    value = call(graph, "tanh", call(graph, "matmul", x, w))
    graph.output([])
    append_jacobian(graph, value, [x, w])
    program = run_passes(graph, lint=True)
    for size in (2, 7):
        points, weights = RNG.normal(size=(size, 3)), RNG.normal(size=(3, 2))
        slope = 1 - np.tanh(points @ weights) ** 2
        by_x, by_w = run(program, [points, weights])
        close(by_x.reshape(size, 2, size, 3), np.einsum("ij,ik,lj->ijkl", slope, np.eye(size), weights))
        close(by_w.reshape(size, 2, 3, 2), np.einsum("ij,il,jm->ijlm", slope, points, np.eye(2)))


def test_a_hessian() -> None:
    """Of sum((a @ x)**3): 6 a.T diag(a @ x) a."""
    graph, (a, x) = graph_of(a=(4, 3), x=(3,))
    y = call(graph, "matmul", a, call(graph, "reshape", x, shape=(3, 1)))
    value = call(graph, "sum", call(graph, "multiply", y, call(graph, "square", y)), axis=(0, 1))
    one = call(graph, "full", shape=(), value=1.0, dtype=F64)
    graph.output([])
    (gradient,) = append_gradients(graph, [(value, one)], [x])
    assert gradient is not None
    append_jacobian(graph, gradient, [x])
    matrix, at = RNG.normal(size=(4, 3)), RNG.normal(size=3)
    for program in (graph, run_passes(graph, lint=True)):
        close(run(program, [matrix, at])[0], 6 * matrix.T @ np.diag(matrix @ at) @ matrix)
