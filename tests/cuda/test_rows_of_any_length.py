"""Rows whose length is known when the kernel runs: those that fit stay in registers, others are read again; all are right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.array_libraries import CuPy
from dynagraph.backends.cuda import backend, driver
from dynagraph.backends.cuda.printer import Variant, print_program
from dynagraph.backends.cuda.schedule import FITTING_BYTES, Rows, schedule
from dynagraph.ir.graph import Graph
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.loops import Kernel
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.cuda import emulator
from tests.cuda.device import EmulatedDevice, emulated
from tests.cuda.test_kernels import assert_close, graph_of, layernorm, softmax
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed
from tests.sampling import examples

pytestmark = pytest.mark.sampled(24)


def shifted(x: Any) -> Any:
    """Rows that are one shorter, and begin elsewhere than at multiples of 16 bytes."""
    y = x[:, 1:]
    return y - y.max(axis=1, keepdims=True) + y.min(axis=1, keepdims=True)


def all_but_two(x: Any) -> Any:
    y = x[:, 2:]
    return y / (1 + abs(y).sum(axis=1, keepdims=True))


def two_axes(x: Any) -> Any:
    y = x[:, None, :] + x[:, :2, None]
    return y - y.max(axis=(1, 2), keepdims=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "layernorm": layernorm,
    "weighted": lambda x, w, b: layernorm(x) * w + b,
    "of two": lambda x, y: softmax(x * y) + x,
    "position and share": lambda x: (x.argmax(axis=1), x / x.max(axis=1, keepdims=True), x.argmin(axis=1)),
    "shifted": shifted,
    "all but two": all_but_two,
    "two axes": two_axes,
    "sum": lambda x: np.exp(x).sum(axis=1),
    "extremes": lambda x: (x.max(axis=1), abs(x).min(axis=1)),
    "one long row": lambda x: x / abs(x).sum(),
}
DTYPES = ("float32", "float64", "float16")


def made(name: str, shape: tuple[int, int], dtype: str, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    if name == "weighted":
        return [x, *rng.standard_normal((2, shape[1])).astype(dtype)]
    return [x, rng.standard_normal(shape).astype(dtype)] if name == "of two" else [x]


def inputs_of(graph: Graph, arrays: list[np.ndarray]) -> list[Any]:
    """Of a graph that was captured with other sizes."""
    sizes = {f"s{k}": n for k, n in enumerate(arrays[0].shape)}
    given = iter(arrays)
    return [np.int64(sizes[p.attrs["symbol"]]) if "symbol" in p.attrs else next(given) for p in graph.placeholders]


def plans(graph: Graph, packs: bool = True) -> list[Rows]:
    kernels = [s for s in backend.lower_graph(run_passes(graph)).steps if isinstance(s, Kernel)]
    return [plan for k in kernels if isinstance(plan := schedule(k, packs), Rows)]


def rooms(graph: Graph) -> list[int]:
    return [way.room for plan in plans(graph) for way in plan.fitting if way.room is not None]


@functools.cache
def captured(name: str, shape: tuple[int, int], dtype: str, races: bool) -> tuple[Graph, Callable[..., Any]]:
    graph, _ = graph_of(FUNCTIONS[name], *made(name, shape, dtype), dynamic=True)
    return graph, emulated(graph, races)


def check_at(name: str, shape: tuple[int, int], of: tuple[Graph, Callable[..., Any]], dtype: str, seed: int = 0) -> None:
    graph, run = of
    arrays = made(name, shape, dtype, seed)
    inputs = inputs_of(graph, arrays)
    with np.errstate(all="ignore"):
        want = interpret(graph, inputs)
    for got, expected in zip(run(*inputs), want, strict=True):
        assert_close(got, np.asarray(expected))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_all_lengths_around_what_fits(name: str, dtype: str) -> None:
    of = captured(name, (40, 12), dtype, races=False)
    edges = {edge for room in (*rooms(of[0]), 64) for edge in (room - 1, room, room + 1, room + 2, 4 * room, 10 * room + 3)}
    for n, length in enumerate(sorted({2, 3, 4, 5, 12, 16, 31, 32, 33, *edges})):
        with emulator.order(emulator.ORDERS[n % len(emulator.ORDERS)]):
            check_at(name, (2 + n % 5, length), of, dtype, n)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("hint", [5, 100, 1000, 9000])
def test_rows_of_any_length_have_no_races(name: str, hint: int) -> None:
    """Teams of a part of a warp, a warp, a few warps, and many."""
    of = captured(name, (3, hint), "float32", races=True)
    for length in (2, hint, 3 * hint + 9):
        check_at(name, (3, length), of, "float32")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.integers(2, 70),
    length=st.integers(2, 600),
    name=st.sampled_from(["softmax", "weighted", "position and share", "shifted", "sum"]),
    hint=st.sampled_from([5, 30, 200]),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_rows_of_random_lengths(rows: int, length: int, name: str, hint: int, dtype: str) -> None:
    check_at(name, (rows, length), captured(name, (64, hint), dtype, races=False), dtype)


def test_what_several_passes_read_is_loaded_once_where_it_fits() -> None:
    graph, _ = captured("softmax", (512, 1000), "float32", races=False)
    (plan,) = plans(graph)
    (fits,) = plan.fitting
    assert (plan.team, plan.width, plan.turns) == (128, 1, None)
    assert (fits.team, fits.width, fits.turns, fits.room) == (128, 1, 16, 2048)
    text = print_program(backend.lower_graph(run_passes(graph))).text
    fitting, _, general = text.partition("} else {")
    assert "if (row_length <= 2048)" in fitting
    assert fitting.count("= in0[") == 1 and general.count("= in0[") + general.count("(in0[") == 3


def test_rows_that_are_read_once_are_moved_as_packs_where_they_may_be() -> None:
    """Of rows whose length is a multiple of a pack, each begins at a multiple of it."""
    for dtype, width in (("float32", 4), ("float64", 2), ("float16", 8)):
        graph, _ = captured("sum", (40, 12), dtype, races=False)
        (plan,) = plans(graph)
        (in_packs,) = plan.fitting
        assert (plan.width, in_packs.width, in_packs.turns) == (1, width, None)
        text = print_program(backend.lower_graph(run_passes(graph))).text
        assert f"if ((row_length % {width}) == 0)" in text and text.count("dg_load_pack") == 1
        assert not any(p.fitting for p in plans(graph, packs=False))
    graph, _ = captured("shifted", (40, 12), "float32", races=False)
    assert "dg_load_pack" not in print_program(backend.lower_graph(run_passes(graph))).text


@pytest.mark.parametrize("hint", [2, 7, 33, 256, 257, 1000, 4096, 16384, 16385, 60000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thread_keeps_no_more_than_its_share(hint: int, dtype: str) -> None:
    graph, _ = graph_of(softmax, np.zeros((300, hint), dtype), dynamic=True)
    (plan,) = plans(graph)
    size = max(4, np.dtype(dtype).itemsize)
    longest = 1024 * FITTING_BYTES // size
    assert (plan.fitting[0].turns is not None) == (hint <= longest)
    if hint <= longest:
        (fits,) = plan.fitting
        assert hint <= fits.room <= max(128, 4 * hint) and fits.turns * size <= FITTING_BYTES
        assert fits.room >= 2 * hint or fits.room == longest or fits.turns * size == FITTING_BYTES


VARIANTS = {"wide": Variant(wide=True), "unaligned": Variant(packs=False), "checked": Variant(checked=True)}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_variants_give_the_same(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynagraph.backends.cuda.program.DeviceProgram._variant", lambda *args: variant)
    with dg.config.override(cuda_check=variant.checked):
        for name in ("softmax", "weighted", "sum"):
            graph, _ = graph_of(FUNCTIONS[name], *made(name, (40, 12), "float32"), dynamic=True)
            run = emulated(graph)
            for length in (2, 12, 63, 64, 65, 300):
                check_at(name, (5, length), (graph, run), "float32")


def test_one_kernel_serves_all_lengths() -> None:
    """Through `dg.compile`: the second length is captured as any length, and nothing is compiled for others."""
    module = stand_in.module()
    device = EmulatedDevice(module)
    driver.install(module, device)
    compiled = dg.compile(lambda x: softmax(x))
    with installed(module):
        for rows, length in ((4, 20), (5, 24), (6, 30), (7, 64), (3, 1000), (2, 65), (9, 2)):
            x = np.random.default_rng(length).standard_normal((rows, length)).astype(np.float32)
            assert_close(compiled(module.asarray(x)).get(), softmax(x))
    driver.install(module, None)
    assert driver.driver_of(CuPy("cupy", module)) is not device
    assert compiled.stats.compiles == 2 and len(device.sources) == 2
    assert "row_length <= 128" in device.sources[1]
