"""Scatters by many threads: to the bit what NumPy's loop over the updates gives, in any order of threads, without races."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.backends.cuda import backend, driver
from dynagraph.backends.cuda.kernels import Launch, Variant
from dynagraph.backends.cuda.nvrtc import compile_cuda
from dynagraph.backends.cuda.printer import print_program
from dynagraph.backends.cuda.program import complete_source
from dynagraph.backends.cuda.schedule import Map, Ordered, Owned, ParallelScan, Rows, Sorting, schedule
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.loops import Kernel
from dynagraph.ir.ops import OPS
from tests.cuda import emulator
from tests.cuda.device import QueuedDevice, emulated
from tests.sampling import examples

pytestmark = pytest.mark.sampled(8)

RNG = np.random.default_rng(5)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
ARITHMETIC = ("", "add", "subtract", "multiply", "maximum", "minimum")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
OF_BOOLS = ("", "add", "multiply", "logical_and", "logical_or", "logical_xor", "maximum", "minimum")


def values(dtype: str, *shape: int) -> np.ndarray:
    """Numbers whose sums depend on their order, zeros of both signs, and whole numbers of all sizes."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return RNG.integers(info.min, info.max, shape, dtype=kind, endpoint=True)
    sizes = 2.0 ** RNG.integers(-6, 6, shape) * RNG.choice([0.0, 1.0, -1.0], shape, p=[0.1, 0.5, 0.4])
    parts = [RNG.standard_normal(shape) * sizes]
    if kind.kind == "c":
        parts.append(1j * RNG.standard_normal(shape))
    return sum(parts).astype(kind)


def places(n: int, below: int) -> np.ndarray:
    """Each of a few is there several times, and some count from the end."""
    return np.where(RNG.random(n) < 0.5, RNG.integers(-below, below, n), RNG.integers(0, min(below, 3), n))


def graph_of(x: np.ndarray, v: np.ndarray, *at: np.ndarray, in_place: bool = False, **attrs: Any) -> Graph:
    graph = Graph()
    metas = {"x": x, "v": v} | {f"i{k}": i for k, i in enumerate(at)}
    nodes = [graph.placeholder(name, Meta(dtypes.from_numpy(a.dtype), a.shape)) for name, a in metas.items()]
    graph.output([graph.call(OPS["scatter"], *nodes, **attrs)], into=[0] if in_place else ())
    return graph


def eager(x: np.ndarray, v: np.ndarray, *at: np.ndarray, **attrs: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return OPS["scatter"].eager(np, x, v, *at, **attrs)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


def kernels_of(graph: Graph) -> list[Kernel]:
    return [s for s in backend.lower_graph(graph).steps if isinstance(s, Kernel) and not s.comment.startswith("copy")]


def ways(graph: Graph) -> list[type]:
    return [type(schedule(kernel, packs=True)) for kernel in kernels_of(graph)]


@pytest.fixture
def few_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """What many updates do is done for few."""
    monkeypatch.setattr(backend, "CLAIMS", 1)


@pytest.fixture
def few_sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, for what is sorted: into few buckets, in short parts."""
    for name, value in (("SORTS", 1), ("PART", 64), ("OWNER_BLOCKS", 5)):
        monkeypatch.setattr(backend, name, value)


# -- which way is taken ---------------------------------------------------------------------------------------------------


def way(dtype: str, combine: str, n: int, size: int = 50, columns: tuple[int, ...] = ()) -> list[type]:
    x, v, i = np.zeros((size, *columns), dtype), np.zeros((n, *columns), dtype), np.zeros(n, np.int64)
    return ways(graph_of(x, v, i, axes=(0,), at=0, combine=combine))


def test_integers_are_combined_in_any_order() -> None:
    for dtype in INTEGERS:
        for combine in (*ARITHMETIC[1:], *BITS):
            assert way(dtype, combine, 100000) == [Map] == way(dtype, combine, 100000, columns=(3,)) == way(dtype, combine, 2)


def test_floats_have_owners() -> None:
    for dtype in FLOATS:
        for combine in ARITHMETIC[1:]:
            assert way(dtype, combine, 100000) == [Owned] == way(dtype, combine, 100, columns=(3,))


def test_many_updates_of_floats_are_sorted() -> None:
    """Into buckets: zeros, counts, their running sums in three kernels, the sort."""
    assert way("float32", "add", 200000) == [Map, Map, Rows, ParallelScan, ParallelScan, Sorting, Owned]
    assert way("float32", "add", 200000, columns=(3,))[-2:] == [Sorting, Owned]
    assert way("float32", "", 200000, size=10**8)[-2:] == [Sorting, Owned]


def test_stores_of_many_updates_are_claimed() -> None:
    for dtype in ("float32", "int8", "complex64"):
        assert way(dtype, "", 100000) == [Map, Map, Map] == way(dtype, "", 100000, columns=(3,))
        assert way(dtype, "", 1000) == [Owned]
        assert way(dtype, "", 20000, size=10**7) == [Owned]  # to write to all places first would take longer


def test_few_updates_are_one_launch() -> None:
    for columns in ((), (4,), (4, 5)):
        for combine in ("", "add"):
            assert way("float32", combine, 8, columns=columns) == [Ordered]


def test_the_order_of_integers_tells_where_rounding_does() -> None:
    assert way("int32", "floor_divide", 1000) == [Owned]


@pytest.mark.usefixtures("few_sorts")
def test_loops_as_text() -> None:
    def text(dtype: str, combine: str, n: int) -> str:
        arrays = np.zeros(50, dtype), np.zeros(n, dtype), np.zeros(n, np.int64)
        return str(backend.lower_graph(graph_of(*arrays, axes=(0,), at=0, combine=combine)))

    assert "= add of it and in1[i0]" in text("int32", "add", 40)
    stores = text("float32", "", 20000)
    assert "= maximum of it and (i0)" in stores and "= in1[i0] if eq(t_k1_last[" in stores
    adds = text("float32", "add", 40)
    assert "for i0 in 0..+40, part by part:" in adds and "for i0 in 0..+40 by t_k1_numbers:" in adds


# -- values ---------------------------------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = {  # of x and of places; axes; at
    "elements": ((40,), (3000,), (0,), 0),
    "rows": ((40, 5), (300,), (0,), 0),
    "long rows": ((30, 300), (60,), (0,), 0),
    "columns": ((7, 40), (200,), (1,), 1),
    "columns in front": ((7, 40), (200,), (1,), 0),
    "pairs": ((6, 5), (400,), (0, 1), 0),
    "pairs around rows": ((6, 3, 5), (40, 3), (0, 2), 0),
    "few": ((6, 3), (5,), (0,), 0),
    "one place": ((1, 3), (50,), (0,), 0),
    "no place": ((6, 3), (0,), (0,), 0),
    "no columns": ((6, 0), (50,), (0,), 0),
    "a number": ((6, 3), (), (0,), 0),
}


def case(dtype: str, combine: str, name: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    shape, n, axes, at = SHAPES[name]
    rest = tuple(d for k, d in enumerate(shape) if k not in axes)
    where = [places(int(np.prod(n)), shape[a]).reshape(n) for a in axes]
    given = [values(dtype, *shape), values(dtype, *rest[:at], *n, *rest[at:]), *where]
    return given, {"axes": axes, "at": at, "combine": combine}


def cases() -> Iterator[tuple[str, str, str]]:
    for name in SHAPES:
        yield from ((dtype, combine, name) for dtype in ("float32", "int32") for combine in ("", "add"))
    for dtype in (*INTEGERS, *FLOATS):
        yield from ((dtype, combine, "elements") for combine in ARITHMETIC)
        yield dtype, "add", "rows"
    for dtype in INTEGERS:
        yield from ((dtype, combine, "elements") for combine in (*BITS, "floor_divide"))
    yield from (("bool", combine, name) for combine in OF_BOOLS for name in ("elements", "rows"))


BATCH = 30  # scatters that one program does: the emulator's compiler takes longer than they do


def together(chosen: list[tuple[str, str, str]]) -> tuple[Graph, list[np.ndarray], list[np.ndarray]]:
    """One graph of several scatters, its inputs, and what comes of them."""
    graph, nodes, inputs, wanted = Graph(), [], [], []
    for dtype, combine, name in chosen:
        arrays, attrs = case(dtype, combine, name)
        given = [graph.placeholder(f"a{len(inputs) + k}", Meta(dtypes.from_numpy(a.dtype), a.shape)) for k, a in enumerate(arrays)]
        nodes.append(graph.call(OPS["scatter"], *given, **attrs))
        inputs += arrays
        wanted.append(eager(*arrays, **attrs))
    graph.output(nodes)
    return graph, inputs, wanted


ALL = list(cases())
BATCHES = [ALL[k : k + BATCH] for k in range(0, len(ALL), BATCH)]


@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_scatters_give_what_numpy_gives_without_races(batch: int) -> None:
    graph, inputs, wanted = together(BATCHES[batch])
    for one, got, want in zip(BATCHES[batch], emulated(graph, races=True)(*inputs), wanted):
        try:
            assert_same_bits(got, want)
        except AssertionError as error:
            raise AssertionError(f"{one}: {error}") from None


@pytest.mark.usefixtures("few_claims")
def test_claimed_stores_give_what_numpy_gives() -> None:
    graph, inputs, wanted = together([(dtype, combine, name) for dtype, combine, name in ALL if combine == ""])
    run = emulated(graph, races=True)
    for order in emulator.ORDERS:
        with emulator.order(order):
            for got, want in zip(run(*inputs), wanted):
                assert_same_bits(got, want)


OWNED = [one for one in ALL if np.dtype(one[0]).kind in "fc" or one[1] in ("", "floor_divide")][::2]


@pytest.mark.parametrize("batch", range(0, len(OWNED), BATCH))
@pytest.mark.usefixtures("few_sorts")
def test_sorted_updates_give_what_numpy_gives(batch: int) -> None:
    chosen = OWNED[batch : batch + BATCH]
    graph, inputs, wanted = together(chosen)
    with emulator.order("warps reverse"):
        for one, got, want in zip(chosen, emulated(graph, races=True)(*inputs), wanted):
            try:
                assert_same_bits(got, want)
            except AssertionError as error:
                raise AssertionError(f"{one}: {error}") from None


SOME = (("float32", "add"), ("int8", "add"), ("float16", ""))


@pytest.mark.parametrize("variant", [Variant(wide=True), Variant(packs=False)], ids=["wide", "unaligned"])
@pytest.mark.parametrize("prepared", ["few_claims", "few_sorts"])
def test_in_every_order_and_variant(
    request: pytest.FixtureRequest, prepared: str, variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue(prepared)
    chosen = [(dtype, combine, name) for dtype, combine in SOME for name in SHAPES]
    graph, inputs, wanted = together(chosen)
    monkeypatch.setattr("dynagraph.backends.cuda.program.DeviceProgram._variant", lambda *args: variant)
    run = emulated(graph)
    for order in emulator.ORDERS:
        with emulator.order(order):
            for got, want in zip(run(*inputs), wanted):
                assert_same_bits(got, want)


def test_blocks_do_more_than_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynagraph.backends.cuda.program.MOST_BLOCKS", 2)
    chosen = [(dtype, combine, name) for dtype, combine in SOME for name in SHAPES]
    graph, inputs, wanted = together(chosen)
    for got, want in zip(emulated(graph, races=True)(*inputs), wanted):
        assert_same_bits(got, want)


@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    where=st.lists(st.integers(-9, 8), min_size=17, max_size=60) | st.lists(st.sampled_from([0, 3, -9]), min_size=17, max_size=60),
    columns=st.sampled_from([(), (1,), (3,)]),
    combine=st.sampled_from(["add", "", "multiply"]),
    seed=st.integers(0, 9),
)
def test_places_may_be_the_same_in_any_way(where: list[int], columns: tuple[int, ...], combine: str, seed: int) -> None:
    """One program for each length: short lists are filled up with the last place."""
    at = np.array(where + where[-1:] * (60 - len(where)))
    rng = np.random.default_rng(seed)
    x, v = rng.standard_normal((9, *columns)), rng.standard_normal((60, *columns))
    attrs = {"axes": (0,), "at": 0, "combine": combine}
    assert_same_bits(emulated(graph_of(x, v, at, **attrs), races=True)(x, v, at)[0], eager(x, v, at, **attrs))


@pytest.mark.parametrize("n", [17, 255, 256, 257, 1023, 1024, 1025, 1536, 1537, 2600])
def test_lists_of_any_length(n: int) -> None:
    """All updates of one place, or of a few, go through the lists of one block."""
    x, v = values("float32", 3), values("float32", n)
    for at in (np.zeros(n, np.int64), RNG.integers(0, 3, n)):
        graph = graph_of(x, v, at, axes=(0,), at=0, combine="add")
        assert_same_bits(emulated(graph, races=True)(x, v, at)[0], eager(x, v, at, axes=(0,), at=0, combine="add"))


def test_lists_grow_over_several_rounds() -> None:
    """Of several blocks each lists a part of what it looks at."""
    x, v, at = values("float32", 500), values("float32", 9000), RNG.integers(0, 500, 9000)
    graph = graph_of(x, v, at, axes=(0,), at=0, combine="add")
    (kernel,) = kernels_of(graph)
    assert schedule(kernel, packs=True) == Owned(columns=1, blocks=4)
    assert_same_bits(emulated(graph, races=True)(x, v, at)[0], eager(x, v, at, axes=(0,), at=0, combine="add"))


def test_an_owner_of_several_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which come in turns: what it has of one is given back before it is wanted again."""
    monkeypatch.setattr("dynagraph.backends.cuda.schedule.OWNER_BLOCKS", 1)
    x, v, at = values("float32", 4, 200), values("float32", 150, 200), RNG.integers(0, 4, 150)
    graph = graph_of(x, v, at, axes=(0,), at=0, combine="add")
    (kernel,) = kernels_of(graph)
    assert schedule(kernel, packs=True) == Owned(columns=256, blocks=1)
    assert_same_bits(emulated(graph, races=True)(x, v, at)[0], eager(x, v, at, axes=(0,), at=0, combine="add"))


# -- memory ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["", "add"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16"])
@pytest.mark.usefixtures("few_claims")
def test_in_place_writes_come_to_the_argument(dtype: str, combine: str) -> None:
    """Whose memory may lie in any way."""
    x, v, i = values(dtype, 40, 6), values(dtype, 300, 3), places(300, 20)
    graph = Graph()
    strides = (-12, 2)  # of x[::-2, ::2]
    target = graph.placeholder("x", Meta(dtypes.from_numpy(x.dtype), (20, 3), strides))
    given = [graph.placeholder(name, Meta(dtypes.from_numpy(a.dtype), a.shape)) for name, a in (("v", v), ("i", i))]
    graph.output([graph.call(OPS["scatter"], target, *given, axes=(0,), at=0, combine=combine)], into=[0])
    mine, theirs = x.copy(), x.copy()
    emulated(graph, races=True)(mine[::-2, ::2], v, i)
    theirs[::-2, ::2] = eager(theirs[::-2, ::2], v, i, axes=(0,), at=0, combine=combine)
    assert_same_bits(mine, theirs)


def test_atomic_steps_on_bytes_leave_their_neighbours_alone() -> None:
    x, v, i = values("uint8", 37), values("uint8", 500), places(500, 37)
    memory = emulator.guarded_copy(x)
    graph = graph_of(x, v, i, in_place=True, axes=(0,), at=0, combine="multiply")
    emulated(graph, races=True)(memory, v, i)
    assert_same_bits(np.array(memory), eager(x, v, i, axes=(0,), at=0, combine="multiply"))


def test_places_that_are_not_there_are_left_alone() -> None:
    """A check refuses such a call, but may be known later."""
    assert kernels_of(graph_of(np.zeros((0, 3)), np.zeros((4, 3)), np.zeros(4, np.int64), axes=(0,), at=0, combine="add")) == []


# -- whole functions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def device(fake: Any) -> Iterator[QueuedDevice]:
    emulated = QueuedDevice(fake)
    driver.install(fake, emulated)
    yield emulated
    driver.install(fake, None)


def histogram(k: Any, w: Any) -> Any:
    sums = np.zeros(10)
    np.add.at(sums, k, w)
    counts = np.zeros(10, np.int64)
    np.add.at(counts, k, 1)
    return sums, counts, np.bincount(k, minlength=10)


def stored_rows(x: Any, k: Any, v: Any) -> Any:
    x[k] = v
    return (x.sum(),)


def trained(table: Any, k: Any, v: Any) -> Any:
    gradient = dg.grad(lambda table: np.sum(table[k] * v))(table)
    table -= 0.5 * gradient
    return (gradient,)


def smallest(x: Any, k: Any, v: Any) -> Any:
    np.minimum.at(x, k, v)
    x[x > 1] = 1
    return (x,)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "histogram": (histogram, (RNG.integers(0, 10, 500), values("float64", 500))),
    "rows": (stored_rows, (np.round(values("float32", 20, 3)), places(300, 20), np.round(values("float32", 300, 3)))),
    "embedding": (trained, (values("float32", 20, 5), places(300, 20), values("float32", 300, 5))),
    "smallest": (smallest, (values("float32", 20), places(300, 20), values("float32", 300))),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpys_arrays_on_a_device(device: QueuedDevice, name: str, dynamic: bool) -> None:
    """What they give, and leave of their arguments, is the same bits."""
    function, arguments = FUNCTIONS[name]
    compiled = dg.compile(function, device="cuda", fullgraph=True, dynamic=dynamic)
    for part in (slice(None), slice(0, 200)):
        for _ in range(2):
            ours, theirs = ([a[part].copy() if len(a) >= 300 else a.copy() for a in arguments] for _ in range(2))
            got, want = compiled(*ours), function(*theirs)
            for a, b in zip((*got, *ours), (*want, *theirs)):
                assert_same_bits(np.asarray(a), np.asarray(b))
    assert compiled.stats.fallbacks == 0 and device.launches


@pytest.mark.usefixtures("few_sorts")
def test_sorts_of_sizes_that_change(device: QueuedDevice) -> None:
    def f(x: Any, k: Any, v: Any) -> Any:
        np.add.at(x, k, v)
        return x * 2

    compiled = dg.compile(f, device="cuda", fullgraph=True, dynamic=True)
    for n, m in ((20, 300), (7, 40), (300, 900)):
        ours, k, v = values("float64", n, 3), places(m, n), values("float64", m, 3)
        theirs = ours.copy()
        assert_same_bits(compiled(ours, k, v), f(theirs, k, v))
        assert_same_bits(ours, theirs)
    assert any("_sort(" in source for source in device.sources)


@pytest.mark.usefixtures("few_claims")
def test_claims_of_sizes_that_change(device: QueuedDevice) -> None:
    compiled = dg.compile(stored_rows, device="cuda", fullgraph=True, dynamic=True)
    for n, m in ((20, 300), (7, 40), (300, 9)):
        ours, k, v = np.zeros((n, 3)), places(m, n), np.round(values("float64", m, 3))
        theirs = ours.copy()
        assert compiled(ours, k, v) == stored_rows(theirs, k, v)
        assert_same_bits(ours, theirs)
    assert any("_last(" in source for source in device.sources)


# -- mode="fast" ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_fast_sums_are_in_any_order(dtype: str) -> None:
    for combine in ("add", "subtract"):
        (x, v, i), attrs = case(dtype, combine, "elements")
        graph = graph_of(x, v, i, **attrs)
        assert "dg_atomic_add(" in print_program(backend.lower_graph(graph, "fast")).text
        assert "dg_atomic" not in print_program(backend.lower_graph(graph)).text
        (got,) = emulated(graph, races=True, mode="fast")(x, v, i)
        tolerance = 1e-3 if x.real.dtype.itemsize == 4 else 1e-10
        np.testing.assert_allclose(got, eager(x, v, i, **attrs), rtol=tolerance, atol=tolerance * 100)


def test_fast_sums_of_halves_and_extremes_keep_their_order() -> None:
    for dtype, combine in (("float16", "add"), ("float32", "maximum"), ("float64", "multiply")):
        arrays, attrs = case(dtype, combine, "elements")
        assert "dg_atomic" not in print_program(backend.lower_graph(graph_of(*arrays, **attrs), "fast")).text


# -- real processors ------------------------------------------------------------------------------------------------------


COMPILED = [(dtype, combine, name) for dtype in ("int8", *FLOATS) for combine in ("", "add") for name in ("elements", "rows")]
COMPILED += [("float32", "add", "pairs around rows"), ("float64", "multiply", "elements"), ("bool", "logical_xor", "rows")]


@pytest.mark.parametrize("architecture", [80, 90])
def test_scatters_compile_and_spill_nothing(architecture: int) -> None:
    graph, _, _ = together(COMPILED)
    found = compile_cuda(complete_source(print_program(backend.lower_graph(graph))), architecture).resources
    assert [name for name, r in found.items() if r.spill_stores or r.spill_loads] == []
    assert max(r.registers for r in found.values()) <= 80 and max(r.shared for r in found.values()) <= 48 * 1024


@pytest.mark.parametrize("architecture", [80, 90])
def test_sorts_compile_and_spill_nothing(architecture: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SORTS", 1)
    graph, _, _ = together([("float32", "add", "elements"), ("complex128", "add", "rows"), ("float16", "add", "pairs")])
    found = compile_cuda(complete_source(print_program(backend.lower_graph(graph))), architecture).resources
    assert [name for name, r in found.items() if r.spill_stores or r.spill_loads] == []
    assert len([name for name in found if name.endswith("_sort")]) == 3


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.usefixtures("few_claims")
def test_claims_and_fast_sums_compile(architecture: int) -> None:
    graph, _, _ = together([(dtype, combine, "rows") for dtype in ("float32", "complex128", "int8") for combine in ("", "add")])
    found = compile_cuda(complete_source(print_program(backend.lower_graph(graph, "fast"))), architecture, "fast").resources
    assert [name for name, r in found.items() if r.spill_stores or r.spill_loads] == []
    assert any(name.endswith("_last") for name in found)


def test_many_updates_have_many_threads() -> None:
    """Updates of a batch of texts to the rows of a table, and of one long list to single elements."""
    for x, v in ((np.zeros((50000, 768), np.float32), np.zeros((32768, 768), np.float32)), (np.zeros(10**5), np.zeros(10**6))):
        graph = graph_of(x, v, np.zeros(len(v), np.int64), axes=(0,), at=0, combine="add")
        launch = print_program(backend.lower_graph(graph)).steps[-1]
        assert isinstance(launch, Launch)
        assert 256 <= (launch.n.constant or 0) // launch.per_block <= 1024 and launch.threads == 256
