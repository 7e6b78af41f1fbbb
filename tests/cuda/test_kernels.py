"""Every way in which threads share a kernel's work: right in any order of threads, without races, for any sizes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.array_libraries import CuPy
from dynagraph.backends.cuda import backend
from dynagraph.backends.cuda.printer import Variant, print_program
from dynagraph.backends.cuda.schedule import Columns, Map, Ordered, Owned, ParallelScan, Rows, SerialScan, Tiled, schedule
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.loops import Kernel
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.cuda import emulator
from tests.cuda.device import EmulatedDevice, emulated
from tests.cupy_arrays import stand_in
from tests.sampling import examples

pytestmark = pytest.mark.sampled(20)

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x: Any) -> Any:
    m = x.mean(axis=-1, keepdims=True)
    v = ((x - m) ** 2).mean(axis=-1, keepdims=True)
    return (x - m) / np.sqrt(v + 1e-5)


def scattered(x: Any, k: Any) -> Any:
    y = x.copy()
    y[k] = x[: len(k)] * 2
    return y


def added(x: Any, k: Any, v: Any) -> Any:
    y = x.copy()
    np.add.at(y, k, v)
    return y


def added_to_columns(x: Any, k: Any, v: Any) -> Any:
    y = x.copy()
    np.add.at(y, (slice(None), k), v)
    return y


def places(n: int, below: int) -> np.ndarray:
    """Each is there several times, and some count from the end."""
    return RNG.integers(-below, below, n)


# name: function, arguments, and the schedule of one of its kernels at least
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], type]] = {
    "map": (lambda x, y: np.tanh(x) * y, (normal(37, 100), normal(37, 100)), Map),
    "map with a short end": (lambda x: x * 2 + 1, (normal(1003),), Map),
    "broadcast": (lambda x, y: x + y, (normal(37, 100), normal(100)), Map),
    "transposed": (lambda x, y: x.T * 2 + y, (normal(70, 45), normal(45, 70)), Tiled),
    "transposed in batches": (lambda x, y: x.transpose(0, 2, 1) + y, (normal(3, 40, 33), normal(3, 33, 40)), Tiled),
    "rows of a thread": (softmax, (normal(100, 3),), Rows),
    "rows of a part of a warp": (softmax, (normal(100, 20),), Rows),
    "rows of a warp": (softmax, (normal(50, 128),), Rows),
    "rows of a block": (softmax, (normal(9, 4096),), Rows),
    "rows of no round length": (layernorm, (normal(9, 1500),), Rows),
    "long rows": (softmax, (normal(2, 40000),), Rows),
    "sum": (lambda x: x.sum(), (normal(300000),), Rows),
    "positions": (lambda x: (x.argmax(axis=1), x.argmin(axis=1)), (np.round(normal(40, 300)),), Rows),
    "position": (lambda x: x.argmax(), (np.round(normal(5000)),), Rows),
    "rows of one element": (lambda x: (x.max(axis=1), x * 2), (normal(300, 1),), Rows),
    "one row of one element": (lambda x: (x.min(), x > 0), (normal(1),), Rows),
    "columns": (lambda x: x.sum(axis=0), (normal(300, 100),), Columns),
    "few columns": (lambda x: x.max(axis=0), (normal(1000, 5),), Columns),
    "columns in batches": (lambda x: x.sum(axis=1), (normal(4, 50, 40),), Columns),
    "tall columns": (lambda x: x.sum(axis=0), (normal(20000, 33),), Columns),
    "running sums": (lambda x: np.cumsum(x, axis=1), (normal(7, 1000),), ParallelScan),
    "running maxima": (lambda x: np.maximum.accumulate(x), (normal(700),), ParallelScan),
    "running sums of columns": (lambda x: np.cumsum(x, axis=0), (normal(200, 9),), ParallelScan),
    "long running sums": (lambda x: np.cumsum(x, axis=1) * 2, (normal(2, 40001, dtype=np.float64),), ParallelScan),
    "long running maxima": (lambda x: np.maximum.accumulate(x), (normal(30000),), ParallelScan),
    "long running products": (lambda x: np.cumprod(x), (RNG.integers(0, 3, 20000),), ParallelScan),
    "running sums of many columns": (lambda x: np.cumsum(x, axis=0), (normal(3, 70000),), SerialScan),
    "running differences": (lambda x: np.subtract.accumulate(x), (normal(50),), SerialScan),
    "scattered": (scattered, (normal(50), places(20, 50)), Owned),
    "scattered rows": (scattered, (normal(50, 7), places(40, 50)), Owned),
    "few scattered": (scattered, (normal(50), places(9, 50)), Ordered),
    "few scattered rows": (scattered, (normal(50, 7), places(9, 50)), Ordered),
    "added": (added, (normal(30), places(3000, 30), normal(3000)), Owned),
    "added rows": (added, (normal(40, 90), places(300, 40), normal(300, 90)), Owned),
    "added columns": (added_to_columns, (normal(9, 40), places(600, 40), normal(9, 600)), Owned),
    "counted": (added, (RNG.integers(0, 9, 30), places(3000, 30), RNG.integers(0, 9, 3000)), Map),
    "gathered": (lambda x, k: x[k] + 1, (normal(50, 4), RNG.integers(0, 50, 70)), Map),
    "halves": (lambda x: (softmax(x), x.sum(axis=0)), (normal(20, 64, dtype=np.float16),), Rows),
    "running sums of complex numbers": (lambda x: np.cumsum(x, axis=1), (normal(3, 700) + 1j * normal(3, 700),), ParallelScan),
    "complex": (lambda x: (x * x.conj(), x.sum(axis=1)), (normal(20, 30) + 1j * normal(20, 30),), Rows),
    "complex rows of a block": (lambda x: x.sum(), (normal(8, 300) + 1j * normal(8, 300),), Rows),
    "complex columns": (lambda x: x.sum(axis=0), (normal(300, 40) + 1j * normal(300, 40),), Columns),
    "bytes": (lambda x: ((x > 1).any(axis=1), x * 2), (RNG.integers(0, 4, (30, 40)).astype(np.uint8),), Rows),
}


def graph_of(function: Callable[..., Any], *arrays: np.ndarray, **options: Any) -> tuple[Graph, list[Any]]:
    """The graph of a call without what would have it refuse (indices out of bounds), and its inputs."""
    compiled = dg.compile(function, **options)
    compiled(*arrays)
    graph = compiled.last_graph.copy()
    output = graph.output_node
    output.set_args(graph.outputs[: len(graph.outputs) - graph.n_checks])
    output.attrs = {}
    graph.eliminate_dead_code()
    named = dict(zip(function.__code__.co_varnames, arrays))
    sizes = {f"s{k}": n for k, n in enumerate(dict.fromkeys(n for a in arrays for n in a.shape))}
    return graph, [np.int64(sizes[p.attrs["symbol"]]) if "symbol" in p.attrs else named[p.target] for p in graph.placeholders]


def assert_close(got: Any, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    scale = np.abs(want).max(initial=0) + 1e-30
    bound = {2: 2e-3, 4: 2e-5, 8: 1e-11}[want.real.dtype.itemsize]
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound * scale)


def check(run: Callable[..., Any], graph: Graph, inputs: list[Any]) -> None:
    with np.errstate(all="ignore"):
        want = interpret(graph, inputs)
    for got, expected in zip(run(*inputs), want):
        assert_close(got, np.asarray(expected))


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_right_in_every_order(name: str) -> None:
    function, arrays, kind = CASES[name]
    graph, inputs = graph_of(function, *arrays)
    kernels = [s for s in backend.lower_graph(run_passes(graph)).steps if isinstance(s, Kernel)]
    assert any(isinstance(schedule(k, packs=True), kind) for k in kernels)
    run = emulated(graph)
    for order in emulator.ORDERS:
        with emulator.order(order):
            check(run, graph, inputs)


@pytest.mark.parametrize("name", CASES)
def test_kernels_have_no_races(name: str) -> None:
    function, arrays, _ = CASES[name]
    graph, inputs = graph_of(function, *arrays)
    check(emulated(graph, races=True), graph, inputs)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", [Variant(wide=True), Variant(packs=False)], ids=["wide", "unaligned"])
def test_variants_give_the_same(name: str, variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arrays, _ = CASES[name]
    graph, inputs = graph_of(function, *arrays)
    monkeypatch.setattr("dynagraph.backends.cuda.program.DeviceProgram._variant", lambda *args: variant)
    check(emulated(graph), graph, inputs)


@pytest.mark.parametrize("name", CASES)
def test_sizes_may_be_symbols(name: str) -> None:
    function, arrays, _ = CASES[name]
    graph, inputs = graph_of(function, *arrays, dynamic=True)
    check(emulated(graph), graph, inputs)


SCANS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: np.cumsum(x),
    "maxima, and what is made of them": lambda x: np.maximum.accumulate(x[::-1]) * 2 + x,
    "of rows": lambda x: np.cumsum(np.stack([x, x + 1, x * 2]), axis=1),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("hint", [40, 5000])
def test_scans_of_any_length(name: str, dtype: Any, hint: int) -> None:
    data = RNG.integers(-3, 4, 9000).astype(dtype)
    scan = SCANS[name]
    graph, _ = graph_of(scan, data[:hint], dynamic=True)
    run = emulated(graph, races=hint == 40)
    for n in (2, 3, 4, 5, 15, 16, 17, 31, 33, 127, 130, hint, 1025, 4099, 9000):
        np.testing.assert_array_equal(run(data[:n])[0], scan(data[:n]))  # whole numbers: in any order


@pytest.mark.parametrize("function", [lambda x, y: x + y, lambda x, y: np.tanh(x) * y - x], ids=["sum", "three"])
def test_operands_whose_symbols_are_equal_move_in_packs(function: Callable[..., Any]) -> None:
    graph, _ = graph_of(function, normal(37, 100), normal(37, 100), dynamic=True)
    (kernel,) = (s for s in backend.lower_graph(run_passes(graph)).steps if isinstance(s, Kernel))
    assert schedule(kernel, packs=True) == Map(4) and [str(a.extent) for a in kernel.axes] == ["s0 * s1"]
    run = emulated(graph, races=True)
    for shape in [(37, 100), (37, 101), (1, 3), (2, 2)]:
        check(run, graph, [normal(*shape), normal(*shape)])


def test_blocks_do_more_than_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is more work than a grid holds."""
    monkeypatch.setattr("dynagraph.backends.cuda.program.MOST_BLOCKS", 2)
    for name in ("map", "broadcast", "transposed", "rows of a thread", "rows of a block", "columns", "running sums"):
        function, arrays, _ = CASES[name]
        graph, inputs = graph_of(function, *arrays)
        check(emulated(graph, races=True), graph, inputs)


def test_sums_are_the_same_bits_each_time() -> None:
    """Threads combine their parts in an order that does not depend on which comes first."""
    x = normal(300000)
    graph, _ = graph_of(lambda x: (x.sum(), x.reshape(300, 1000).sum(axis=0), x.reshape(300, 1000).sum(axis=1)), x)
    run = emulated(graph)
    found = []
    for order in emulator.ORDERS:
        with emulator.order(order):
            found.append([np.asarray(r).tobytes() for r in run(x)])
    assert all(f == found[0] for f in found)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "part": lambda a: np.pad(a, [(1, 2)] * a.ndim)[tuple(slice(1, 1 + n) for n in a.shape)],
    "steps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
}
LAID_OUT: tuple[Callable[..., Any], ...] = (
    lambda x, y: x * y + 1,
    lambda x, y: softmax(x) + y.sum(axis=-1, keepdims=True),
    lambda x, y: (x + y).sum(axis=0),
    lambda x, y: x.T @ y,
    lambda x, y: x.T + y.T * 2,
    lambda x, y: np.cumsum(x, axis=0) - y,
    lambda x, y: np.concatenate([x, y], axis=1)[:, ::-1],
    lambda x, y: np.where(x > y, x, y)[1:, :-1].max(),
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=st.tuples(st.integers(2, 70), st.integers(2, 150)),
    layouts=st.tuples(st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(LAYOUTS))),
    which=st.integers(0, len(LAID_OUT) - 1),
    dtype=st.sampled_from([np.float64, np.float32]),
    dynamic=st.booleans(),
)
def test_arrays_lie_in_any_way(
    shape: tuple[int, int], layouts: tuple[str, str], which: int, dtype: Any, dynamic: bool
) -> None:
    x, y = (LAYOUTS[layout](np.random.default_rng(n).standard_normal(shape).astype(dtype)) for n, layout in enumerate(layouts))
    graph, inputs = graph_of(LAID_OUT[which], x, y, dynamic=dynamic)
    check(emulated(graph), graph, inputs)


def test_the_emulator_finds_what_is_planted() -> None:
    """A kernel whose barrier, or whose bound, is taken away is found out."""
    x = normal(9, 4096)
    graph, _ = graph_of(softmax, x)
    source = _Sabotaged(lambda text: text.replace("__syncthreads();", "", 1))
    with pytest.raises(Exception, match="race"):
        source.run(graph, x, races=True)
    graph, _ = graph_of(lambda x: x * 2 + 1, normal(1003))
    bound = "(4 + i0_first) <= {}"
    source = _Sabotaged(lambda text: text.replace("n = 251;", "n = 260;").replace(bound.format(1003), bound.format(1040)))
    with pytest.raises(Exception, match="CUDA error 719"):
        source.run(graph, emulator.guarded_copy(normal(1003), 16))
    assert print_program(backend.lower_graph(run_passes(graph))).text.count(bound.format(1003)) == 1


class _Sabotaged:
    """Runs a graph's kernels with their text changed."""

    def __init__(self, change: Callable[[str], str]):
        self.change = change

    def run(self, graph: Graph, array: np.ndarray, races: bool = False) -> Any:
        change = self.change

        class Device(EmulatedDevice):
            def load(self, source: str, kernels: Any, device: int, mode: str) -> Any:
                changed = change(source)
                assert changed != source
                return super().load(changed, kernels, device, mode)

        library = CuPy("cupy", stand_in.module())
        executable = backend.compile_graph(graph, library, Device(library.module, races))
        given = stand_in.view(stand_in.fresh(np.zeros(1)), array)  # the very memory
        return executable(given)
