"""Few long rows: reductions and scans of them are made in parts that many blocks share, and give what one block would give."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagraph.backends.cuda import backend
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.loops import Kernel, Reduce, ScanLoop
from dynagraph.ir.optable import OPS
from dynagraph.ir.passes.legalize import legalize
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.passes.split_scans import Parts
from tests.cuda import emulator
from tests.cuda.device import emulated
from tests.cuda.test_kernels import check, graph_of
from tests.sampling import examples

pytestmark = pytest.mark.sampled(20)

SMALL = replace(backend.PROCESSORS, long=32, block=16, column_parts=4)  # so that rows of a hundred elements are long
DTYPES = [d.name for d in dtypes.ALL]
POSITIONS = {"argmax": np.argmax, "argmin": np.argmin, "nanargmax": np.nanargmax, "nanargmin": np.nanargmin}


def kernels(graph: Graph) -> list[Kernel]:
    return [s for s in backend.lower_graph(run_passes(graph)).steps if isinstance(s, Kernel)]


def most_in_a_row(graph: Graph) -> int:
    """Elements that one block reduces, at the sizes of the capture, at most."""
    lengths = [0]
    for kernel in kernels(graph):
        for s in kernel.body:
            if isinstance(s, Reduce):
                lengths.append(int(np.prod([axis.hint for axis in s.axes])))
    return max(lengths)


def tied(rng: np.random.Generator, dtype: str, shape: Any, special: bool = True) -> np.ndarray:
    """Few different values, so that extremes come again and again; of floats some NaNs, infinities and zeros of both signs."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.random(shape) < rng.choice([0.0, 0.01, 0.5, 1.0])
    if kind.kind in "iu":
        edges = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
        x = rng.integers(0, 3, shape).astype(kind)
        return np.where(rng.random(shape) < 0.02, rng.choice(edges, shape), x)
    parts = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan] if special else [0.0, -0.0, 1.0, -1.0]
    weights = np.array([0.3, 0.3, 0.2, 0.2, *(rng.choice([0.0, 0.01, 0.3], 3))][: len(parts)])
    chosen = functools.partial(rng.choice, parts, shape, p=weights / weights.sum())
    if kind.kind == "f":
        return chosen().astype(kind)
    x = np.empty(shape, kind)
    x.real, x.imag = chosen(), chosen()
    return x


# -- positions ----------------------------------------------------------------------------------------------------------


@functools.cache
def searched(dtype: str, races: bool) -> tuple[Graph, Callable[..., Any]]:
    """Where the extremes of rows, columns and of all are: for any sizes."""

    def positions(x: Any) -> Any:
        return x.argmax(axis=1), x.argmin(axis=1, keepdims=True), x.argmax(axis=0), x.argmin(), x.max(axis=1)

    graph, _ = graph_of(positions, tied(np.random.default_rng(0), dtype, (2, 90)), dynamic=True)
    assert most_in_a_row(graph) <= SMALL.block
    return graph, emulated(graph, races)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "PROCESSORS", SMALL)
    monkeypatch.setattr(backend, "SCANS", Parts(rows=4, length=16))


def same_positions(x: np.ndarray, results: Any) -> None:
    wanted = x.argmax(axis=1), x.argmin(axis=1, keepdims=True), x.argmax(axis=0), x.argmin(), x.max(axis=1)
    for got, want in zip(results, wanted):
        np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", DTYPES)
def test_positions_of_any_dtype_are_numpys(dtype: str) -> None:
    _, run = searched(dtype, races=False)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = tied(rng, dtype, (int(rng.integers(2, 5)), int(rng.choice([2, 15, 16, 17, 31, 32, 33, 100, 500]))))
        with emulator.order(emulator.ORDERS[seed % len(emulator.ORDERS)]):
            same_positions(x, run(x))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "complex64"])
def test_positions_have_no_races(dtype: str) -> None:
    _, run = searched(dtype, races=True)
    for seed in range(3):
        x = tied(np.random.default_rng(seed), dtype, (3, 200))
        same_positions(x, run(x))


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=st.tuples(st.integers(2, 5), st.integers(2, 200)), dtype=st.sampled_from(["float32", "complex64"]), data=st.data())
def test_positions_in_rows_with_few_special_values(shape: tuple[int, int], dtype: str, data: st.DataObject) -> None:
    """One background value, and others at places of hypothesis' choice."""
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    x = np.full(shape, data.draw(values), dtype)
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, x.size - 1), values), max_size=6)):
        x.flat[place] = value
    _, run = searched(dtype, races=False)
    same_positions(x, run(x))


@settings(max_examples=examples(200), deadline=None)
@given(
    rows=st.integers(1, 3),
    length=st.integers(64, 300),
    behind=st.sampled_from([(), (1,), (3,)]),
    dtype=st.sampled_from(DTYPES),
    name=st.sampled_from(["argmax", "argmin"]),
    keepdims=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_positions_are_split_into_is_the_same(
    rows: int, length: int, behind: tuple[int, ...], dtype: str, name: str, keepdims: bool, seed: int
) -> None:
    x = tied(np.random.default_rng(seed), dtype, (rows, length, *behind))
    graph, inputs = graph_of(lambda x: getattr(x, name)(axis=1, keepdims=keepdims), x)
    split = legalize(run_passes(graph), SMALL)
    split.lint()
    assert sum(n.is_op("block_reduce") for n in split.nodes) == 2 * (x.size >= 2 * SMALL.long)
    with np.errstate(invalid="ignore"):
        (got,) = interpret(split, inputs)
    np.testing.assert_array_equal(got, getattr(x, name)(axis=1, keepdims=keepdims))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_positions_among_what_is_no_nan(name: str, dtype: str) -> None:
    function = POSITIONS[name]
    for seed in range(3):
        x = tied(np.random.default_rng(seed), dtype, (2, 150), special=False)
        x[:, ::7] = np.nan
        graph, inputs = graph_of(lambda x: function(x, axis=1), x)
        assert most_in_a_row(graph) <= SMALL.block
        (got,) = emulated(graph)(*inputs)
        np.testing.assert_array_equal(got, function(x, axis=1))


def test_a_position_and_its_extreme_are_found_in_one_pass() -> None:
    """All that is made of the same blocks reads them once."""
    x = np.zeros(100_000, np.float32)
    graph, _ = graph_of(lambda x: (x.argmax(), x.max(), x.argmin(), x.min()), x)
    first, *rest = kernels(graph)
    (statement,) = (s for s in first.body if isinstance(s, Reduce))
    assert [a.kind for a in statement.accumulators] == ["argmax", "argmin"]
    assert all(axis.hint <= 13 for k in rest for s in k.body if isinstance(s, Reduce) for axis in s.axes)
    graph, _ = graph_of(lambda x: (x.max(), x.sum(), (x > 0).any()), x)
    loads = [k for k in kernels(graph) if "in0[" in str(replace(backend.lower_graph(run_passes(graph)), steps=(k,)))]
    assert len(loads) == 2  # x, and what is made of it


def test_real_sizes_are_split() -> None:
    x = np.round(np.random.default_rng(0).standard_normal(200_001), 1)
    graph, inputs = graph_of(lambda x: (x.argmax(), x.argmin()), x)
    assert most_in_a_row(graph) <= backend.PROCESSORS.block
    check(emulated(graph), graph, inputs)


# -- reductions ---------------------------------------------------------------------------------------------------------

REDUCTIONS: dict[str, tuple[Callable[..., Any], np.dtype | str]] = {
    "sum": (lambda x: x.sum(axis=1), "float32"),
    "sum of halves": (lambda x: x.sum(axis=1), "float16"),
    "product of halves": (lambda x: (1 + (x - 5) / 64).prod(axis=1, keepdims=True), "float16"),
    "mean of halves": (lambda x: x.mean(axis=1), "float16"),
    "product": (lambda x: (1 + (x - 5) / 64).prod(axis=1), "float64"),
    "product of complex numbers": (lambda x: (1 + (x - 5) / 64).prod(axis=1), "complex128"),
    "product of integers": (lambda x: x.prod(axis=1), "int32"),
    "extremes": (lambda x: (x.max(axis=1), x.min(axis=1)), "float16"),
    "extremes of complex numbers": (lambda x: x.max(axis=1), "complex64"),
    "any and all": (lambda x: ((x > 2).any(axis=1), (x < 2).all(axis=1)), "float32"),
    "variance": (lambda x: (x.var(axis=1), x.std(axis=1, ddof=1)), "float32"),
    "norm": (lambda x: np.sqrt((x * x).sum(axis=1)), "float32"),
    "norm of numpy": (lambda x: np.linalg.norm(x, axis=1), "float64"),
    "bits": (lambda x: (np.bitwise_and.reduce(x, axis=1), np.bitwise_xor.reduce(x, axis=1)), "int16"),
    "count": (lambda x: np.count_nonzero(x > 0, axis=1), "float32"),
    "all but the middle": (lambda x: x.reshape(-1, 2, 75).sum(axis=(0, 2)), "float32"),
    "all but the middle, of halves": (lambda x: x.reshape(-1, 2, 75).mean(axis=(0, 2), keepdims=True), "float16"),
    "all but two": (lambda x: x.reshape(2, 2, 5, 3, 5).max(axis=(0, 2, 4)), "float32"),
    "none of a product": (lambda x: x.reshape(-1, 3, 50).prod(axis=(0, 2)), "int64"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_few_long_rows_are_reduced_in_parts(name: str, dynamic: bool) -> None:
    function, dtype = REDUCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.round(rng.standard_normal((2, 150)) * 4 + 5).astype(dtype)
    if x.dtype.kind == "c":
        x.imag = np.round(rng.standard_normal((2, 150)) * 4)
    graph, inputs = graph_of(function, x, dynamic=dynamic)
    assert most_in_a_row(graph) <= 40  # a block, or what there is of blocks
    check(emulated(graph, races=True), graph, inputs)
    check(emulated(graph), graph, inputs)


def test_halves_are_summed_as_exactly_as_by_one_block() -> None:
    """Parts are not rounded."""
    x = np.full(100_000, 0.1, np.float16)
    graph, _ = graph_of(lambda x: x.sum(), x)
    (got,) = emulated(graph)(x)
    assert got == np.float16(np.sum(x, dtype=np.float64))


# -- scans --------------------------------------------------------------------------------------------------------------


def scanned(kind: str) -> np.ufunc:
    return getattr(np, {"sum": "add", "prod": "multiply"}.get(kind, kind))


def operands(kind: str, rng: np.random.Generator, dtype: str, shape: Any) -> np.ndarray:
    x = tied(rng, dtype, shape)
    if kind in ("gcd", "bitwise_and", "bitwise_or") and x.dtype.kind in "iu":
        return rng.integers(0, 60, shape).astype(dtype) | x
    return x


SCANNED = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]
SCANS = {
    kind: [d for d in SCANNED if f"{np.dtype(d).char * 2}->{np.dtype(d).char}" in scanned(kind).types]
    for kind in sorted(name for name, row in OPS.items() if row.associative)
}


def unequal(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    if want.dtype.kind != "f":
        return got != want
    bound = {2: 4e-2, 4: 1e-4, 8: 1e-11}[want.dtype.itemsize]
    return ~np.isclose(got.astype(float), want.astype(float), rtol=bound, atol=bound, equal_nan=True)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", SCANS)
def test_scans_of_few_long_rows_are_made_in_parts(kind: str) -> None:
    ufunc = scanned(kind)
    for n, dtype in enumerate(SCANS[kind]):
        rng = np.random.default_rng(n)
        x = operands(kind, rng, dtype, (2, 70))
        graph, _ = graph_of(lambda x: ufunc.accumulate(x, axis=1), x, dynamic=True)
        assert len(kernels(graph)) == 3
        assert all(s.axis.hint <= 16 for k in kernels(graph) for s in k.body if isinstance(s, ScanLoop))
        run = emulated(graph, races=n % 4 == 0)
        for length in (2, 15, 16, 17, 32, 33, 150):
            x = operands(kind, rng, dtype, (2, length))
            with np.errstate(all="ignore"):
                want = ufunc.accumulate(x, axis=1)
            (got,) = run(x)
            assert got.dtype == want.dtype
            assert not unequal(got, want).any(), (dtype, length, x[unequal(got, want).any(1)])


@pytest.mark.usefixtures("small")
def test_what_is_not_associative_is_walked_as_it_was() -> None:
    x = np.arange(1.0, 200.0)
    for ufunc in (np.subtract, np.divide, np.power, np.arctan2):
        graph, inputs = graph_of(lambda x: ufunc.accumulate(x), x)
        assert len(kernels(graph)) == 1
        check(emulated(graph), graph, inputs)
    graph, _ = graph_of(lambda z: np.cumprod(z), np.exp(1j * x))  # what infinities become depends on the order
    assert len(kernels(graph)) == 1


@pytest.mark.usefixtures("small")
def test_running_sums_of_halves_are_rounded_once() -> None:
    x = np.random.default_rng(0).standard_normal(300).astype(np.float16)
    graph, _ = graph_of(lambda x: np.cumsum(x) * 2, x)
    assert len(kernels(graph)) >= 3
    (got,) = emulated(graph)(x)
    want = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(got.astype(float) / 2, want, rtol=1e-3, atol=1e-3)
