"""The C backend against the reference backend: every kind of kernel, random programs, layouts, special values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph._core import _dispatch
from dynagraph.backends.c import backend as c_backend
from dynagraph.backends.c.backend import estimated_nanoseconds, lower_graph
from dynagraph.backends.c.costs import launch_size
from dynagraph.backends.reference import reference
from dynagraph.backends.toolchain import cpu_features
from dynagraph.ir import dtypes, optable
from dynagraph.ir.expr import Expr
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.loops import ExternalCall, Kernel, LibraryCall, Reduce
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.backward import append_gradients
from dynagraph.ir.passes.batch import append_batched
from dynagraph.ir.passes.fuse import MAX_REDUCTIONS, fuse
from dynagraph.ir.passes.inplace import inplace
from dynagraph.ir.passes.legalize import legalize
from dynagraph.ir.passes.pipeline import run as run_passes

from .native import element_strides, run_native

assert optable  # its import fills the table


class Build:
    """Graphs in one line: ``b.add(x, y)``."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, array: np.ndarray) -> Node:
        strides = None if array.flags.c_contiguous else element_strides(array)
        dtype = dtypes.from_numpy(array.dtype)
        assert dtype is not None
        return self.graph.placeholder("x", Meta(dtype, array.shape, strides))

    def scalar(self, value: float, dtype: dtypes.DType = dtypes.float32) -> Node:
        return self.graph.call(OPS["constant"], value=value, dtype=dtype)

    def __getattr__(self, op: str):
        return lambda *args, **attrs: self.graph.call(OPS[op], *args, **attrs)


def build(program, *arrays: np.ndarray) -> Graph:
    b = Build()
    outputs = program(b, *(b.input(a) for a in arrays))
    b.graph.output(outputs if isinstance(outputs, list) else [outputs])
    b.graph.lint()
    return b.graph


def check(program, *arrays: np.ndarray, rtol: float = 3e-6, atol: float = 1e-6) -> Graph:
    graph = build(program, *arrays)
    expected = reference(graph)(*arrays)
    got = run_native(graph, *arrays)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(ours, theirs)
    return graph


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def steps(graph: Graph) -> list:
    return list(lower_graph(run_passes(graph)).steps)


def softmax(b, x):
    e = b.exp(b.subtract(x, b.max(x, axis=(x.ndim - 1,), keepdims=True)))
    return b.divide(e, b.sum(e, axis=(x.ndim - 1,), keepdims=True))


def layernorm(b, x):
    mean = b.mean(x, axis=(1,), keepdims=True)
    centred = b.subtract(x, mean)
    variance = b.mean(b.multiply(centred, centred), axis=(1,), keepdims=True)
    return b.divide(centred, b.sqrt(b.add(variance, b.scalar(1e-5))))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 31), (7, 32), (5, 100), (4, 1000), (2, 9001)])
def test_softmax_is_one_kernel_and_right(shape):
    graph = check(softmax, f32(*shape), rtol=2e-5)
    assert len(steps(graph)) == 1


@pytest.mark.parametrize("shape", [(3, 5), (64, 100), (16, 5000)])
def test_layernorm_is_one_kernel_and_right(shape):
    graph = check(layernorm, f32(*shape), rtol=1e-4, atol=1e-5)
    assert len(steps(graph)) == 1


def test_a_matmul_chain_calls_the_library_and_fuses_the_rest():
    def mlp(b, x, w1, c1, w2, c2):
        hidden = b.maximum(b.add(b.matmul(x, w1), c1), b.scalar(0.0))
        return b.add(b.matmul(hidden, w2), c2)

    graph = check(mlp, f32(64, 30), f32(30, 50), f32(50), f32(50, 10), f32(10), rtol=1e-4, atol=1e-4)
    kinds = [type(s) for s in steps(graph)]
    assert kinds == [LibraryCall, Kernel, LibraryCall, Kernel]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (1, 5, 3), (5, 1, 3), (4, 6, 1), (33, 17, 65), (3, 0, 2), (0, 3, 2)])
def test_matmul_of_transposed_and_sliced_operands(m, k, n, dtype):
    x, y = f32(k, m).astype(dtype), f32(n, 2 * k).astype(dtype)

    def program(b, x, y):
        left = b.transpose(x, axes=(1, 0))
        right = b.transpose(b.slice(y, starts=(0, 0), steps=(1, 2), shape=(n, k)), axes=(1, 0))
        return b.matmul(left, right)

    check(program, x, y, rtol=1e-4, atol=1e-5)


def test_batched_matmul_broadcasts_its_batch():
    check(lambda b, x, y: b.matmul(x, y), f32(4, 1, 5, 6), f32(3, 6, 7), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("left", [(3, 4, 5, 6), (3, 1, 6), (1, 5, 6)])
@pytest.mark.parametrize("n", [1, 7])
def test_a_batch_of_matrices_times_a_single_one(left, n):
    x = f32(*left)
    check(lambda b, x, y: b.matmul(x, y), x, f32(6, n), rtol=1e-4, atol=1e-5)
    axes = (*range(len(left) - 2), len(left) - 1, len(left) - 2)
    columns = np.ascontiguousarray(x.transpose(axes))
    check(lambda b, x, y: b.matmul(b.transpose(x, axes=axes), y), columns, f32(6, n), rtol=1e-4, atol=1e-5)
    half = (*[0] * (len(left) - 1), 0), (*[1] * (len(left) - 2), 2, 1)
    wide = f32(*left[:-2], 2 * left[-2], 6)
    check(lambda b, x, y: b.matmul(b.slice(x, starts=half[0], steps=half[1], shape=left), y), wide, f32(6, n), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.bool_])
def test_integer_matmul_is_exact(dtype):
    rng = np.random.default_rng(0)
    check(
        lambda b, x, y: b.matmul(x, y),
        rng.integers(0, 2, (5, 7)).astype(dtype),
        rng.integers(0, 2, (7, 3)).astype(dtype),
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_reductions_over_every_axis(op, dtype):
    """All shapes and axes of an op and a dtype, each with an operand of its own, are kernels of one C file."""
    shapes = [(5,), (40,), (3, 4, 5), (1, 70, 1), (2, 300, 3), (2, 3, 130)]
    rows = [(shape, axis) for shape in shapes for axis in [*((k,) for k in range(len(shape))), tuple(range(len(shape)))]]

    def reduced(b, *arrays):
        return [getattr(b, op)(x, axis=axis, keepdims=kept) for x, (_, axis) in zip(arrays, rows) for kept in (False, True)]

    check(reduced, *((f32(*shape) * 3).astype(dtype) for shape, _ in rows), rtol=2e-4, atol=1e-3)


@pytest.mark.parametrize("op", ["any", "all"])
def test_logical_reductions(op):
    x = np.random.default_rng(0).integers(0, 5, (40, 50)) > 0
    for axis in [(0,), (1,), (0, 1)]:
        check(lambda b, x: getattr(b, op)(x, axis=axis, keepdims=False), x)


@pytest.mark.parametrize(
    "shape, axis, in_turn",
    [
        ((100_000,), (0,), False),
        ((3, 70_001), (1,), False),
        ((70_001, 3), (0,), True),  # NumPy adds up rows one after the other
        ((200_000, 2), (0, 1), False),
        ((2, 40_000, 30), (1,), True),
        ((5000, 40), (0,), True),
    ],
)
def test_long_reductions_are_split_into_blocks_where_the_order_allows_it(shape, axis, in_turn):
    x = np.random.default_rng(0).standard_normal(shape)
    graph = check(lambda b, x: b.sum(x, axis=axis, keepdims=False), x, rtol=0, atol=0)
    assert any(n.is_op("block_reduce") for n in legalize(run_passes(graph)).nodes) == (not in_turn)
    numbers = np.random.default_rng(0).integers(0, 9, shape)
    graph = check(lambda b, x: b.sum(x, axis=axis, keepdims=False), numbers)
    assert any(n.is_op("block_reduce") for n in legalize(run_passes(graph)).nodes)


def test_long_sums_are_at_least_as_accurate_as_numpys():
    graph = build(lambda b, x: b.sum(x, axis=(0,), keepdims=False), np.zeros(131_072))
    ours, numpys = [], []
    for seed in range(100):  # the errors of single sums are rounding noise: compare their sizes over many
        x = np.random.default_rng(seed).standard_normal(131_072)
        exact = math.fsum(x)
        ours.append(float(run_native(graph, x)[0]) - exact)
        numpys.append(float(x.sum()) - exact)
    assert np.sqrt(np.mean(np.square(ours))) <= 1.1 * np.sqrt(np.mean(np.square(numpys)))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions_of_extremes_with_ties_and_nan(op):
    x = np.random.default_rng(0).integers(0, 4, (20, 30)).astype(np.float64)
    x[3, 7] = x[3, 9] = np.nan
    for axis in (0, 1):
        check(lambda b, x: getattr(b, op)(x, axis=(axis,), keepdims=False), x)


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_scans_along_every_axis(op):
    for axis in range(3):
        check(lambda b, x: getattr(b, op)(x, axis=axis), f32(4, 5, 6), rtol=1e-5, atol=1e-5)


def test_movement_is_fused_and_stays_within_bounds():
    def program(b, x):
        both = b.concatenate(x, b.exp(x), axis=1)
        rolled = b.roll(both, shift=3, axis=1)
        part = b.slice(rolled, starts=(0, 5), steps=(1, -1), shape=(5, 6))
        padded = b.pad(x, widths=((1, 1), (0, 2)), value=7.0)
        return [
            part,
            padded,
            b.tile(x, reps=(2, 3)),
            b.repeat(x, repeats=3, axis=0),
            b.reshape(x, shape=(9, 5)),
            b.transpose(x, axes=(1, 0)),
            b.broadcast_to(x, shape=(2, 5, 9)),
        ]

    check(program, f32(5, 9))


@pytest.mark.parametrize("shape", [(7, 33), (64, 64), (100, 257)])
def test_transposition_in_tiles(shape):
    check(lambda b, x: b.transpose(b.multiply(x, x), axes=(1, 0)), f32(*shape))


def test_strided_fortran_negative_and_broadcast_inputs():
    base = f32(12, 14)
    for x in (base[::2, 1:9], base.T, base[::-1, ::-2], np.broadcast_to(base[0], (12, 14)), base[:, :1]):
        check(lambda b, x: b.add(b.exp(x), x), x, rtol=1e-5)
        check(softmax, x, rtol=2e-5)
        check(lambda b, x: b.sum(x, axis=(0,), keepdims=False), x, rtol=1e-5, atol=1e-5)
        check(lambda b, x: b.matmul(x, b.transpose(x, axes=(1, 0))), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_empty_and_zero_dimensional_arrays(shape):
    check(lambda b, x: b.add(x, b.scalar(1.0)), f32(*shape))
    check(lambda b, x: b.sum(x, axis=tuple(range(x.ndim)), keepdims=False), f32(*shape))


def test_special_values_pass_through_arithmetic():
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38], np.float32)
    x, y = (a.ravel().copy() for a in np.meshgrid(values, values))

    def program(b, x, y):
        return [b.add(x, y), b.multiply(x, y), b.divide(x, y), b.maximum(x, y), b.minimum(x, y), b.subtract(x, y)]

    graph = build(program, x, y)
    for ours, theirs in zip(run_native(graph, x, y), reference(graph)(x, y)):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(np.signbit(ours[~np.isnan(ours)]), np.signbit(theirs[~np.isnan(theirs)]))


def test_an_input_returned_twice_gets_memory_of_its_own():
    x = f32(5)
    first, second = run_native(build(lambda b, x: [x, x], x), x)
    assert not np.shares_memory(first, x) and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, x)


def test_results_do_not_depend_on_the_number_of_threads():
    x = np.random.default_rng(0).standard_normal(300_000)

    def program(b, x):
        return [b.sum(x, axis=(0,), keepdims=False), b.exp(x)]

    graph = build(program, x)
    before = _dispatch.get_threads()
    try:
        results = []
        for n in (1, 2, 3):
            _dispatch.set_threads(n)
            results.append(run_native(graph, x))
    finally:
        _dispatch.set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "shape, ranges",
    [((2048, 256), 2), ((2048, 1024), 8), ((300, 700), 6), ((8, 2048, 200), 8), ((2, 4096, 200), 4), ((64, 100), 1)],
)
def test_columns_are_shared_by_threads(shape, ranges):
    """The gradient of a bias: columns of few hundred elements, and thousands of rows."""
    x = f32(*shape)
    graph = build(lambda b, x: b.sum(x, axis=(len(shape) - 2,), keepdims=False), x)
    (kernel,) = steps(graph)
    count, grain = launch_size(kernel)
    assert (count.constant, grain) == (ranges, 1)
    before = _dispatch.get_threads()
    try:
        for threads in (1, 2, 3):
            _dispatch.set_threads(threads)
            np.testing.assert_array_equal(run_native(graph, x)[0], x.sum(axis=-2))
    finally:
        _dispatch.set_threads(before)


def test_estimates_do_not_depend_on_the_loop_structure():
    def total(graph: Graph) -> float:
        return estimated_nanoseconds(lower_graph(run_passes(graph)))

    x, bias = f32(100, 200), f32(200)
    flat = total(build(lambda b, x, y: b.add(x, y), x, x))
    for other in (build(lambda b, x, y: b.add(x, y), x, bias), build(lambda b, x: b.transpose(b.add(x, x), axes=(1, 0)), x)):
        assert 0.5 * flat < total(other) < 2 * flat


def test_values_that_share_much_take_no_longer_than_they_are_long():
    """Each step uses the one before twice: as trees these expressions would have 2**60 nodes."""

    def program(b, x):
        for _ in range(60):
            x = b.minimum(b.multiply(x, x), b.add(x, x))
        return x

    check(program, f32(50), rtol=1e-5)


# -- random programs ----------------------------------------------------------------------------------------------------

UNARY = ["exp", "tanh", "sqrt", "negative", "absolute", "floor"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]


@st.composite
def programs(draw):
    """A list of instructions over a growing list of values: which op, which operands, which axis."""
    rows, columns = draw(st.sampled_from([(1, 1), (3, 4), (5, 40), (33, 70), (64, 3)]))
    count = draw(st.integers(1, 12))
    instructions = [
        (
            draw(st.sampled_from(["unary", "binary", "reduce", "transpose", "slice", "cumsum"])),
            draw(st.integers(0, 10**6)),
            draw(st.integers(0, 10**6)),
            draw(st.integers(0, 10**6)),
        )
        for _ in range(count)
    ]
    return rows, columns, instructions, draw(st.integers(0, 100))


def _apply(b, values: list[Node], instruction) -> None:
    kind, p, q, r = instruction
    x = values[p % len(values)]
    if kind == "unary":
        op = UNARY[q % len(UNARY)]
        x = b.absolute(x) if op == "sqrt" else b.minimum(x, b.scalar(3.0)) if op == "exp" else x
        values.append(getattr(b, op)(x))
    elif kind == "binary":
        y = values[r % len(values)]
        if x.shape == y.shape or (1 in y.shape and len(x.shape) == len(y.shape) and x.shape[0] in (1, y.shape[0])):
            try:
                values.append(getattr(b, BINARY[q % len(BINARY)])(x, y))
            except ValueError:  # the shapes do not broadcast
                values.append(x)
    elif kind == "reduce":
        values.append(getattr(b, ["sum", "max", "min"][q % 3])(x, axis=(r % 2,), keepdims=True))
    elif kind == "transpose":
        values.append(b.transpose(x, axes=(1, 0)))
    elif kind == "cumsum":
        values.append(b.cumsum(x, axis=r % 2))
    elif x.shape[0] > 1:
        values.append(b.slice(x, starts=(x.shape[0] - 1, 0), steps=(-1, 1), shape=(x.shape[0] - 1, x.shape[1])))


@settings(max_examples=40, deadline=None)
@given(programs())
def test_random_programs_agree_with_the_reference(case):
    rows, columns, instructions, seed = case
    x, y = f32(rows, columns, seed=seed).astype(np.float64), f32(rows, 1, seed=seed + 1).astype(np.float64)

    def program(b, x, y):
        b.scalar = lambda value: Build.scalar(b, value, dtypes.float64)
        values = [x, y]
        for instruction in instructions:
            _apply(b, values, instruction)
        return values[2:][-3:] or [b.negative(x)]

    graph = build(program, x, y)
    expected = reference(graph)(x, y)
    for ours, theirs in zip(run_native(graph, x, y), expected):
        scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10 * scale)


def test_sums_of_known_lengths_lose_no_lane():
    """As gcc 12 had it for int64, with AVX-512."""
    sizes = (*range(3, 40), 70000)
    arrays = [np.arange(n) for n in sizes]
    graph = Graph()
    inputs = [graph.placeholder(f"x{n}", Meta(dtypes.int64, (n,))) for n in sizes]
    graph.output([graph.call(OPS["sum"], x, axis=(0,), keepdims=False) for x in inputs])
    assert [int(total) for total in run_native(graph, *arrays)] == [n * (n - 1) // 2 for n in sizes]


def test_fusion_puts_every_real_node_into_one_group():
    graph = legalize(run_passes(build(softmax, f32(8, 9))))
    plan = fuse(graph, inplace(graph))
    members = [m for g in plan.groups for m in g.members]
    assert len(members) == len(set(members)) == len(plan.group_of)
    assert set(graph.outputs) <= set(plan.stored)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
@pytest.mark.parametrize("columns", [4, 7, 12, 16, 33])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_conditions_in_strides(dtype, columns, step):
    """gcc 12 makes wrong code of loads that happen only where such a condition holds."""
    whole = np.random.default_rng(columns).integers(0, 2, (20, columns * abs(step))).astype(dtype)
    condition = whole[::2, ::step]
    values = np.arange(condition.size).reshape(condition.shape)
    other = np.asfortranarray(values * 2.0)

    def chosen(condition, values, other):
        picked = np.where(condition > 0, values, 0)
        return picked, np.where(condition == 0, other, values), np.where(condition > 0, picked * 3, -1).sum(axis=1)

    compiled = dg.compile(chosen, backend="c")
    for got, expected in zip(compiled(condition, values, other), chosen(condition, values, other)):
        np.testing.assert_array_equal(got, expected)


AVX2 = """#!/bin/sh
for word do
    shift
    case $word in -m*) ;; *) set -- "$@" "$word" ;; esac
done
exec gcc -march=x86-64-v3 "$@"
"""


@pytest.fixture(params=["native", "avx2"])
def processor(request, tmp_path):
    """What C is compiled for: this processor, and those with AVX2 where this one has it."""
    compiler = None
    if request.param == "avx2" and "avx2" in cpu_features().split():
        script = tmp_path / "cc"
        script.write_text(AVX2)
        script.chmod(0o700)
        compiler = str(script)
    with dg.config.override(cc=compiler):
        yield request.param


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 16, 17])
def test_conditions_within_conditions(columns, processor):
    """gcc 12 makes wrong code, for AVX2, of loads behind two conditions in short loops that it writes out."""

    def joined(x, y):
        return np.concatenate([-np.concatenate([x, y]), x])

    x = np.arange(1.0, 1 + 2 * columns).reshape(2, columns)
    for rows in (3, 4, 11):
        y = 100 + np.arange(1.0 * rows * columns).reshape(rows, columns)
        dg.mark_dynamic(y, 0)
        compiled = dg.compile(joined, backend="c")
        np.testing.assert_array_equal(compiled(x, y), joined(x, y))


def test_sums_of_few_columns_under_conditions(processor):
    """gcc 12 makes wrong code, for AVX2, of loads that it sinks into the arm of a condition: whole rows are lost."""
    rng = np.random.default_rng(0)
    shapes = [(rows, columns) for rows in (3, 200, 1000) for columns in (1, 2, 3, 4, 5, 8)]
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes for dtype in ("float32", "float64")]
    masks = [rng.random(x.shape) < 0.1 for x in arrays]

    def sums(arrays, masks):
        return [np.nansum(np.where(m, np.nan, x), axis=0) for x, m in zip(arrays, masks)]

    for got, expected in zip(dg.compile(sums, backend="c", fullgraph=True)(arrays, masks), sums(arrays, masks)):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 2, 4, 8, 16])
def test_constant_arrays_of_repeating_patterns(columns, dtype):
    """gcc 12 takes vectors of eight ones and eight zeros, of such an array, for sixteen ones."""
    x = np.ones((6, columns), dtype)
    for step in (2, 3):
        expected = np.zeros_like(x)
        expected[::step] = 1
        got = dg.compile(dg.grad(lambda x, step=step: np.sum(x[::step])), backend="c")(x)
        np.testing.assert_array_equal(got, expected)


def test_signs_of_constant_nans():
    compiled = dg.compile(lambda x: (np.copysign(x, np.nan), np.copysign(x, -np.nan), np.full(3, -np.nan)), backend="c")
    positive, *negative = compiled(np.ones(3))
    assert not np.signbit(positive).any()
    assert all(np.signbit(n).all() for n in negative)


def test_what_is_shared_behind_a_reduction():
    """A part of two results that needs the second of two reductions over the same elements."""

    def spread(a):
        return np.var(a, ddof=1), np.std(a, ddof=1), np.std(a, correction=1), np.sqrt(np.var(a, ddof=1)) + 1

    a = np.array([1, -1, 1, -1])
    np.testing.assert_allclose(dg.compile(spread, backend="c")(a), spread(a), rtol=1e-15)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(4, 5), (4, 600), (3, 4, 5, 1), (2, 4, 5), (4, 1, 6)])
def test_reductions_over_leading_axes_of_what_such_ones_gave(shape):
    """Each lane of a column has a value of its own, though it is the same for all that is reduced."""

    def spreads(a):
        return a.var(0), (a - a.mean(0)).sum(0), (a * a).mean(0) - a.mean(0) * 2.0, a.std(1), (a * (a.sum(0) * 0.5 + 1.0)).max(0)

    a = np.random.default_rng(1).normal(size=shape)
    compiled = dg.compile(spreads, backend="c")
    for got, expected in zip(compiled(a), spreads(a)):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    assert compiled.stats.fallbacks == 0


def test_what_is_the_same_in_every_turn_is_computed_before_the_loop():
    def relaxed(d):
        return np.minimum(d, np.maximum(d[:, :1], d[0, 0] * 2) + d[:1])

    rng = np.random.default_rng(2)
    compiled = dg.compile(relaxed, backend="c", dynamic=True)
    for shape in ((5, 7), (3, 2), (40, 40), (2, 9)):
        d = rng.normal(size=shape)
        np.testing.assert_array_equal(compiled(d), relaxed(d))
    d = rng.normal(size=(6, 9))
    graph = build(lambda b, x, y: b.add(x, b.broadcast_to(b.maximum(y, b.absolute(y)), shape=(6, 9))), d, d[:, :1].copy())
    kernel = c_backend.compile_graph(graph).artifacts["kernels"].split("k0_range(")[1]
    assert kernel.index("dg_maximum_f64(") < kernel.index("for (int64_t i1")


def test_values_wanted_at_several_places_are_not_recomputed_without_end():
    """Each turn wants the last one's values at three places; inlined through all turns they would be computed 3**12 times."""
    turns = 12

    def relaxed(b, d):
        for k in range(turns):
            column = b.slice(d, starts=(0, k), steps=(1, 1), shape=(30, 1))
            row = b.slice(d, starts=(k, 0), steps=(1, 1), shape=(1, 30))
            d = b.minimum(d, b.add(b.broadcast_to(column, shape=(30, 30)), b.broadcast_to(row, shape=(30, 30))))
        return d

    graph = check(relaxed, np.random.default_rng(1).uniform(1, 9, (30, 30)))
    text = c_backend.compile_graph(graph).artifacts["kernels"]
    kernels = text[text.index(" k0_range(") :]
    assert kernels.count("dg_minimum_f64(") <= 3 * turns


def test_kernels_hold_few_reductions():
    x = f32(40, 64)

    def many(b, x):
        parts = [b.slice(x, starts=(k, 0), steps=(1, 1), shape=(20, 64)) for k in range(20)]
        return [b.sum(b.multiply(part, part), axis=(1,)) for part in parts]

    graph = check(many, x)
    reductions = [sum(len(s.accumulators) for s in step.body if isinstance(s, Reduce)) for step in steps(graph)]
    assert max(reductions) == MAX_REDUCTIONS and sum(reductions) == 20


@pytest.mark.parametrize("turns", [2, 6])
def test_a_diagonal_that_is_read_again_and_again_is_gathered_once(turns):
    def relaxed(b, a, x):
        diagonal = b.diagonal(a)
        for _ in range(turns):
            product = b.reshape(b.matmul(a, b.reshape(x, shape=(40, 1))), shape=(40,))
            x = b.divide(b.subtract(x, product), diagonal)
        return x

    rng = np.random.default_rng(3)
    a, x = rng.uniform(1, 2, (40, 40)), rng.normal(size=40)
    graph = check(relaxed, a, x, rtol=1e-9)
    strided = [s for s in steps(graph) if isinstance(s, Kernel) and "41 * i0" in str(s.body)]
    assert len(strided) == (1 if turns > 3 else turns)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_loop_without_turns_reads_nothing(n):
    @dg.compile(backend="c", dynamic=True)
    def shifted(x, y):
        return x[2:] + np.exp(y[:1]) + np.sqrt(y[-1]), x[:, None] * (np.cos(y[:1]) + 1)

    shifted(np.ones(9), np.ones(4))
    x, y = np.arange(2.0 + n), np.arange(3.0) + 1
    np.testing.assert_allclose(shifted(x, y)[0], x[2:] + np.exp(y[:1]) + np.sqrt(y[-1]))
    np.testing.assert_allclose(shifted(x, y)[1], x[:, None] * (np.cos(y[:1]) + 1))


def test_gradients_of_a_network_are_fused_and_right():
    """Cross entropy of a layer with tanh and one without, by all weights; as one program."""
    rng = np.random.default_rng(4)
    arrays = [rng.normal(size=s) for s in ((32, 12), (12, 20), (1, 20), (20, 5), (1, 5))]
    labels = np.eye(5)[rng.integers(0, 5, 32)]

    def loss(b, x, w1, b1, w2, b2, target):
        hidden = b.tanh(b.add(b.matmul(x, w1), b1))
        scores = b.add(b.matmul(hidden, w2), b2)
        shifted = b.subtract(scores, b.max(scores, axis=(1,), keepdims=True))
        normal = b.log(b.sum(b.exp(shifted), axis=(1,), keepdims=True))
        return b.negative(b.sum(b.multiply(b.subtract(shifted, normal), target), axis=(0, 1), keepdims=False))

    graph = build(loss, *arrays, labels)
    (value,) = graph.outputs
    with graph.before_output():
        one = graph.call(OPS["full"], shape=(), value=1.0, dtype=dtypes.float64)
    gradients = append_gradients(graph, [(value, one)], graph.placeholders[1:5])
    graph.output_node.set_args((value, *gradients))
    expected = reference(graph)(*arrays, labels)
    for ours, theirs in zip(run_native(graph, *arrays, labels), expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    assert len(steps(graph)) <= 16
    step = 1e-6
    moved = [a + step * np.eye(20, 5) if k == 3 else a for k, a in enumerate(arrays)]
    change = (reference(graph)(*moved, labels)[0] - expected[0]) / step
    np.testing.assert_allclose((expected[3] * np.eye(20, 5)).sum(), change, rtol=1e-4)


def test_batches_run_natively():
    """All rows of a Jacobian at once, and places that differ from item to item."""
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=s) for s in ((4, 3), (3, 5), (5, 2))]
    places = rng.integers(-5, 5, (6, 4))

    def program(b, x, w, out, places):
        hidden = b.tanh(b.matmul(x, w))
        return [b.matmul(hidden, out), b.gather(hidden, b.reshape(places, shape=(24,)), axes=(1,), at=1)]

    graph = build(program, *arrays, places)
    scores, taken = graph.outputs
    x, w, _, numbers = graph.placeholders
    with graph.before_output():
        seed = graph.call(OPS["full"], shape=(4, 2), value=0.0, dtype=dtypes.float64)
        ones = graph.call(OPS["eye"], shape=(8, 8), dtype=dtypes.float64)
        seeds = graph.call(OPS["reshape"], ones, shape=(8, 4, 2))
        others = graph.call(OPS["concatenate"], *(graph.call(OPS["reshape"], n, shape=(1, 6, 4)) for n in (numbers,) * 2), axis=0)
        several = graph.call(OPS["concatenate"], *(
            graph.call(OPS["reshape"], graph.call(OPS["roll"], x, shift=k, axis=0), shape=(1, 4, 3)) for k in range(2)), axis=0)
    gradients = append_gradients(graph, [(scores, seed)], [x, w])
    jacobians = append_batched(graph, gradients, {seed: seeds})
    graph.output_node.set_args((*jacobians, *append_batched(graph, [taken], {x: several, numbers: others})))
    expected = reference(graph)(*arrays, places)
    for ours, theirs in zip(run_native(graph, *arrays, places), expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gradients_of_calls_and_of_complex_numbers():
    """Calls that gradients make, of several results and into memory of the program, and kernels of complex numbers."""
    rng = np.random.default_rng(31)
    x = rng.normal(size=(5, 4))

    def program(b, x):
        u, s = (
            b.external_call(x, call=FunctionCall("linalg.svd", (Slot(0), False)), result=k, dtype=dtypes.float64, shape=shape)
            for k, shape in ((0, (5, 4)), (1, (4,)))
        )
        transform = FunctionCall("fft.rfft", (Slot(0),), takes_out=True)
        spectrum = b.external_call(b.multiply(u, s), call=transform, dtype=dtypes.complex128, shape=(5, 3))
        size = b.absolute(b.exp(b.multiply(spectrum, spectrum)))
        return b.sum(b.external_call(size, call=FunctionCall("sort", (Slot(0),)), dtype=dtypes.float64, shape=(5, 3)), axis=(0, 1))

    graph = build(program, x)
    (value,) = graph.outputs
    with graph.before_output():
        one = graph.call(OPS["full"], shape=(), value=1.0, dtype=dtypes.float64)
    graph.output_node.set_args((value, *append_gradients(graph, [(value, one)], graph.placeholders)))
    for ours, theirs in zip(run_native(graph, x), reference(graph)(x)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert sum(isinstance(step, ExternalCall) for step in steps(graph)) == 5


@pytest.mark.parametrize("function", [
    lambda a: np.add(a[:-1], a), lambda a: np.broadcast_to(a[1:], a.shape) * 2, lambda a: np.where(a[:-1] > 0, a, -a),
])
def test_symbolic_sizes_that_come_to_one_broadcast(function):
    compiled = dg.compile(function, backend="c", dynamic=True)
    for n in (2, 2):
        a = np.random.default_rng(n).normal(size=(n, 3, 4))
        np.testing.assert_array_equal(compiled(a), function(a))


def test_integers_are_summed_over_the_rows_of_few_columns() -> None:
    """gcc 12 lost rows of ten where it knew that there were seven columns."""

    def sums(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
        return [(x > 0).sum(axis=(0, 1, 3)), *(a.sum(axis=(0, 1)) for a in (y, z))]

    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((11, 10, 7, 9)), rng.integers(-9, 9, (11, 10, 6)), rng.integers(-9, 9, (11, 10, 10))
    for got, want in zip(dg.compile(sums, backend="c", fullgraph=True)(*arrays), sums(*arrays)):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["sum", "prod", "max"])
@pytest.mark.parametrize("first", [True, False])
def test_reductions_over_no_axes_beside_others(op, first):
    """`w.sum()` for each element w of an array, and a sum of all: each is the sum of one element, whatever the others run over."""

    def reduced(b, x):
        element = b.reshape(b.slice(x, starts=(2,), steps=(1,), shape=(1,)), shape=())
        parts = [getattr(b, op)(element, axis=(), keepdims=False), getattr(b, op)(x, axis=(0,), keepdims=False)]
        alike = getattr(b, op)(x, axis=(), keepdims=False)
        return [b.add(*(parts if first else parts[::-1])), alike, *parts]

    check(reduced, np.array([3, 4, 5, 6, 7, 8]))
    check(reduced, np.array([3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))


def test_long_chains_compile():
    def chained(x):
        return np.array(list(itertools.accumulate(x, np.equal)))

    x = np.array([0, 1, 1] * 40, np.uint8)
    compiled = dg.compile(chained, backend="c")
    np.testing.assert_array_equal(compiled(x), chained(x))
    deep = Expr("const", (), dtypes.int64, 1)
    for _ in range(5000):  # more than Python's stack takes
        deep = Expr("neg", (deep,), dtypes.int64)
    assert len(deep.walk()) == 5001


def test_short_loops_that_read_from_other_places_in_each_turn() -> None:
    def program(b: Build, x: Node, w: Node) -> Node:
        there = b.roll(b.roll(x, shift=1, axis=0), shift=-1, axis=1)
        back = b.roll(b.roll(b.multiply(w, x), shift=1, axis=1), shift=-1, axis=0)
        return b.add(b.multiply(w, there), back)

    rng = np.random.default_rng(0)
    check(program, rng.normal(size=(3, 4)), rng.normal(size=(3, 4)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_any_length_keep_what_is_dear_in_their_result(dtype):
    """The exponentials of softmax are computed once, where sizes are symbolic too; what is no result's own stays on the stack."""
    compiled = dg.compile(lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
                          dynamic=True, fullgraph=True, mode="max")  # fmt: skip
    for shape in ((5, 7), (3, 1000), (2, 9001)):
        x = np.random.default_rng(0).normal(size=shape).astype(dtype)
        shares = np.exp(x - x.max(1, keepdims=True))
        assert np.allclose(compiled(x), shares / shares.sum(1, keepdims=True), rtol=1e-5)
    assert len(compiled.programs) == 1
    kernels = compiled.programs[0].executable.artifacts["kernels"]
    assert kernels[kernels.index("k0_range(") :].count("dg_exp_f") == 1
