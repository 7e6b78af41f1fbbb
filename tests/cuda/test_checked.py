"""`config.cuda_check`: kernels whose indices are checked compute what others do, and say where one of them goes astray."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.array_libraries import CuPy
from dynagraph.backends.cuda import backend, driver, nvrtc
from dynagraph.backends.cuda.schedule import has_places
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.loops import Kernel, LoopProgram, map_body, map_expr
from dynagraph.ir.ops import OPS
from tests.cuda.device import EmulatedDevice, emulated
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed
from tests.cupy_arrays.harness import check

RNG = np.random.default_rng(0)


@pytest.fixture
def cp() -> Iterator[Any]:
    """A stand-in of CuPy, whose kernels run on the emulator: checked ones."""
    module = stand_in.module()
    driver.install(module, EmulatedDevice(module))
    with installed(module), dg.config.override(cuda_check=True):
        yield module
    driver.install(module, None)


def device_of(cp: Any) -> EmulatedDevice:
    device = driver.driver_of(CuPy("cupy", cp))
    assert isinstance(device, EmulatedDevice)
    return device


# -- what is right ------------------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def small_integers(*shape: int, below: int = 9) -> np.ndarray:
    """As floats, whose sums are the same in any order."""
    return RNG.integers(-below, below, shape).astype(np.float64)


def softmax(cp: Any, x: Any) -> Any:
    """A maximum, which is the same in any order, and what comes of it: no sum."""
    return cp.exp2(cp.floor(x - x.max(axis=1, keepdims=True)))


def in_place(cp: Any, x: Any, y: Any) -> Any:
    x += y * 2
    x[1:] = 0
    return x.T


RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "map": (lambda cp, x, y: x * 2 + y, (normal(33, 17), normal(17)), "an element for a thread"),
    "numbers": (lambda cp, x, s: x * s, (normal(33), np.float64(1.5)), "an element for a thread"),
    "halves": (lambda cp, x: x + x, (normal(40, dtype=np.float16),), "an element for a thread"),
    "complex": (lambda cp, x: (cp.conj(x) + 1, x.real + 1), (normal(40) + 1j,), "an element for a thread"),
    "bools": (lambda cp, x: ~(x > 0), (normal(40),), "an element for a thread"),
    "tiled": (lambda cp, x, y: x.T + y, (normal(50, 40), normal(40, 50)), "tiles through shared memory"),
    "short rows": (softmax, (normal(6, 9),), "16 threads for a row"),
    "long rows": (softmax, (normal(3, 3000),), "1024 threads for a row"),
    "columns": (lambda cp, x: x.sum(axis=0), (small_integers(300, 20),), "columns"),
    "columns of several": (
        lambda cp, x, y: ((x * y).sum(axis=0), y.sum(axis=0), y.max(axis=0)), (small_integers(300, 20), small_integers(300, 20)),
        "columns",
    ),
    "scan": (lambda cp, x: cp.cumsum(x, axis=1), (RNG.integers(0, 9, (3, 700)),), "a scan"),
    "between kernels": (lambda cp, x, y: cp.floor(x @ y), (small_integers(6, 5), small_integers(5, 4)), "an element for a thread"),
    "negative strides": (lambda cp, x, y: x + y, (normal(9, 8)[::-1, ::-2], normal(9, 4)[:, ::-1]), "an element for a thread"),
    "in place": (in_place, (normal(6, 7), normal(7)), "an element for a thread"),
    "empty": (lambda cp, x: (x * 2, x.sum(axis=0)), (normal(0, 4),), "columns"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_gives_the_same(cp: Any, name: str) -> None:
    function, values, schedule = RIGHT[name]
    check(cp, with_module(function, cp), *values)
    text = "".join(map(kernels_of, device_of(cp).sources))
    assert schedule in text and text.count("dg_checked(") > 1
    assert "dg_load_pack" not in text and "dg_store_pack" not in text


def kernels_of(source: str) -> str:
    """Without the prelude."""
    return source.partition(" dg_index;")[2]


def with_module(function: Callable[..., Any], cp: Any) -> Callable[..., Any]:
    """The function without its first parameter, which is global."""
    names = list(inspect.signature(function).parameters)[1:]
    space = {"function": function, "cp": cp}
    exec(f"def own({', '.join(names)}):\n    return function(cp, {', '.join(names)})\n", space)
    return space["own"]


def test_symbolic_sizes(cp: Any) -> None:
    @dg.compile(dynamic=True)
    def f(x: Any, y: Any) -> Any:
        return (x * y).sum(axis=0), x.T + 1, x.max(axis=1)

    for rows, columns in ((3, 7), (5, 40), (40, 100), (300, 33)):
        x, y = small_integers(rows, columns), small_integers(rows, columns)
        results = f(cp.asarray(x), cp.asarray(y))
        for got, want in zip(results, ((x * y).sum(axis=0), x.T + 1, x.max(axis=1))):
            np.testing.assert_array_equal(got.get(), want)
    assert f.stats.compiles <= 2 and f.stats.refusals == 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_checked_compiles_for_devices(cp: Any, name: str) -> None:
    function, values, _ = RIGHT[name]
    check(cp, with_module(function, cp), *values, calls=1)
    for source in device_of(cp).sources:
        assert nvrtc.compile_cuda(source, 90).resources


# -- what is wrong ------------------------------------------------------------------------------------------------------


Change = Callable[[Kernel, dict[str, str]], Kernel]  # of a kernel, and of what arguments are called in it


def plant(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Have each kernel changed before it is printed."""
    right = backend.lower_graph

    def wrong(graph: Graph, arithmetic: str, epilogues: bool) -> LoopProgram:
        program = right(graph, arithmetic, epilogues)
        names = {graph.placeholders[b.position].name: b.name for b in program.buffers.values() if b.role == "input"}
        return replace(program, steps=tuple(change(s, names) if isinstance(s, Kernel) else s for s in program.steps))

    monkeypatch.setattr(backend, "lower_graph", wrong)


def with_loads(name: str, by: int, of: str | None = None) -> Change:
    """What is loaded from an argument, or another buffer, is loaded from further on, or from another argument."""

    def change(kernel: Kernel, names: dict[str, str]) -> Kernel:
        def leaf(e: Expr) -> Expr:
            if e.op != "load" or e.value[0] != names.get(name, name):  # type: ignore[index]
                return e
            return replace(e, value=(names.get(of or name, name), e.value[1] + by), _hash=0)  # type: ignore[index]

        return replace(kernel, body=map_body(kernel.body, lambda e: map_expr(e, {}, leaf)))

    return change


def with_stores(by: int) -> Change:
    """All is stored further on."""
    return lambda kernel, names: replace(kernel, body=map_body(kernel.body, lambda e: e, lambda index: index + by))


def with_gathers(by: int) -> Change:
    """What is gathered is gathered from further on."""

    def moved(e: Expr) -> Expr:
        args = tuple(moved(a) for a in e.args)
        if e.op == "gather":
            args = (call("add", args[0], const(by, dtypes.int64)),)
        return replace(e, args=args, _hash=0)

    return lambda kernel, names: replace(kernel, body=map_body(kernel.body, moved))


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(inspect.unwrap(function))
    return first + next(k for k, line in enumerate(lines) if text in line)


def said(function: Callable[..., Any], *arguments: Any) -> str:
    """What is said of a call, which is said of each."""
    words = set()
    for _ in range(30):  # more than it takes to find out whether the plain function is faster
        with pytest.raises(dg.KernelError) as caught:
            function(*arguments)
        words.add(str(caught.value))
    (text,) = words
    assert function.stats.refusals == 0 and function.stats.stayed_eager == 0
    return text


def test_loads_beyond_the_end_of_an_argument(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.compile
    def f(prices: Any, amounts: Any) -> Any:
        return prices + amounts  # the sum

    plant(monkeypatch, with_loads("prices", 1))
    text = said(f, cp.asarray(normal(40)), cp.asarray(normal(40)))
    where = f"test_checked.py:{line_of(f, '# the sum')}"
    assert text == (
        f"kernel k0 reaches for element 40 of argument prices, which has elements 0 to 39: add  ({where}). This is a bug of "
        "dynagraph's: please report it; under dg.disable() the function runs eagerly"
    )


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.max(axis=1), (5, 7)),
        (lambda x: x.max(axis=1), (3, 3000)),
        (lambda x: x.sum(axis=0), (300, 20)),
        (lambda x: x.cumsum(), (700,)),
        (lambda x: x.T + 1, (50, 40)),
    ],
    ids=["short rows", "long rows", "columns", "scan", "tiled"],
)
def test_loads_of_all_schedules(cp: Any, monkeypatch: pytest.MonkeyPatch, function: Any, shape: tuple[int, ...]) -> None:
    plant(monkeypatch, with_loads("x", 1))
    n = int(np.prod(shape))
    text = said(dg.compile(function), cp.asarray(normal(*shape)))
    assert re.match(rf"kernel k\d reaches for element {n} of argument x, which has elements 0 to {n - 1}: ", text)


def test_loads_before_the_start_of_an_argument_with_negative_strides(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dg.compile(lambda x: x * 2)
    x = cp.asarray(normal(20))[::-2]
    plant(monkeypatch, with_loads("x", -1))
    assert "element -19 of argument x, which has elements -18 to 0:" in said(f, x)


def test_loads_of_an_empty_argument(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dg.compile(lambda x, y: y + x.sum(axis=1))
    plant(monkeypatch, with_loads("y", 0, of="x"))
    assert re.search(r"element \d of argument x, which has no elements:", said(f, cp.asarray(normal(5, 0)), cp.asarray(normal(5))))


def test_stores_beyond_the_end_of_a_result(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dg.compile(lambda x: x * 2)
    plant(monkeypatch, with_stores(1))
    start = "kernel k0 reaches for element 40 of result multiply, which has elements 0 to 39: multiply  (test_checked.py:"
    assert said(f, cp.asarray(normal(40))).startswith(start)


def test_stores_outside_of_an_argument_touch_nothing(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.compile
    def f(x: Any) -> None:
        x *= 2

    whole = cp.asarray(np.ones(8))
    plant(monkeypatch, with_stores(-6))
    assert "of argument x, which has elements 0 to 3:" in said(f, whole[2:6])
    assert whole.tolist() == [1] * 8


def goes_astray(kernel: Kernel) -> bool:
    """Stores at computed places; of wrong counts other kernels would be the first to go wrong."""
    return has_places(kernel.body) and not kernel.name.endswith("_counts")


SCATTERS: dict[str, tuple[Any, str, int, str]] = {  # dtype, what combines, updates, and whose memory a wrong store is outside of
    "few": (np.float64, "", 3, "result scatter"),
    "owners that store": (np.float64, "", 40, "result scatter"),
    "owners that add": (np.float64, "add", 40, "result scatter"),
    "any order": (np.int64, "add", 40, "result scatter"),
    "any order, of bytes": (np.uint8, "add", 40, "result scatter"),
    "claims": (np.float64, "", 20000, r"temp t_k\d_last"),
    "sorted": (np.float64, "add", 2000, r"result scatter"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCATTERS)
def test_stores_at_computed_places(cp: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    dtype, combine, n, whose = SCATTERS[name]
    if name == "sorted":
        monkeypatch.setattr(backend, "SORTS", n)
    x, y = (RNG.integers(0, 99, m).astype(dtype) for m in (8, n))
    places = RNG.integers(-8, 8, n)
    places[-1] = 7
    attrs = {"axes": (0,), "at": 0, "combine": combine}
    graph = graph_of("scatter", {"x": x, "y": y, "places": places}, **attrs)
    np.testing.assert_array_equal(emulated(graph)(x, y, places)[0], OPS["scatter"].eager(np, x, y, places, **attrs))
    plant(monkeypatch, lambda kernel, names: with_stores(1)(kernel, names) if goes_astray(kernel) else kernel)
    with pytest.raises(dg.KernelError, match=f"element 8 of {whose}, which has elements 0 to 7: "):
        emulated(graph)(x, y, places)


def test_gathers_beyond_the_end(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, places = normal(8), np.array([0, 7, -8])
    graph = graph_of("gather", {"x": x, "places": places}, axes=(0,), at=0)
    np.testing.assert_array_equal(emulated(graph)(x, places)[0], x[places])
    plant(monkeypatch, with_gathers(5))
    with pytest.raises(dg.KernelError, match="element 12 of argument x, which has elements 0 to 7: gather"):
        emulated(graph)(x, places)


def test_constants(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights = normal(4, 3), normal(3)
    graph = Graph()
    node = graph.placeholder("x", Meta(dtypes.float64, x.shape))
    graph.output([graph.call(OPS["add"], node, graph.constant(weights, "weights"))])
    np.testing.assert_array_equal(emulated(graph)(x)[0], x + weights)
    plant(monkeypatch, with_loads("c_weights", 3))
    with pytest.raises(dg.KernelError, match=r"element 3 of constant c_weights, which has elements 0 to 2: add"):
        emulated(graph)(x)


def graph_of(op: str, arguments: dict[str, np.ndarray], **attrs: Any) -> Graph:
    graph = Graph()
    nodes = [graph.placeholder(name, Meta(dtypes.from_numpy(x.dtype), x.shape)) for name, x in arguments.items()]
    graph.output([graph.call(OPS[op], *nodes, **attrs)])
    return graph


def test_memory_between_kernels(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dg.compile(lambda x, y: cp.tanh(x @ y))
    plant(monkeypatch, with_loads("t_matmul", 24))
    text = said(f, cp.asarray(normal(6, 5)), cp.asarray(normal(5, 4)))
    assert re.search(r"of temp t_matmul, which has elements 0 to 23: tanh", text)


def test_sizes_that_are_symbols(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = dg.compile(lambda x: x * 2, dynamic=True)
    plant(monkeypatch, with_loads("x", 1))
    for n in (40, 50):
        with pytest.raises(dg.KernelError, match=f"element {n} of argument x, which has elements 0 to {n - 1}"):
            f(cp.asarray(normal(n)))


def test_what_is_wrong_in_a_part_behind_a_break_reaches_the_caller(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.compile
    def f(x: Any) -> Any:
        dg.graph_break()
        return x * 2

    plant(monkeypatch, with_loads("x", 1))
    with pytest.raises(dg.KernelError, match="element 40 of argument x"):
        f(cp.asarray(normal(40)))


# -- the switch -----------------------------------------------------------------------------------------------------------


def test_without_the_switch_nothing_is_checked(cp: Any) -> None:
    with dg.config.override(cuda_check=False):
        check(cp, lambda x: x + 1, normal(40))
    (source,) = device_of(cp).sources
    assert "dg_checked(in" not in source and "record" not in source.partition("extern")[2]


def test_what_the_compiler_says_reaches_the_caller(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise dg.CompilerError("no")

    monkeypatch.setattr(device_of(cp), "load", refuse)
    with pytest.raises(dg.CompilerError, match=r"^no$"):
        dg.compile(lambda x: x + 1)(cp.asarray(normal(40)))
