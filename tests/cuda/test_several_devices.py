"""Programs over the host and two GPUs, as ``device="auto"`` runs them: on the stand-in with its lazy streams, kernels emulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import device_choice as several
from dynagraph.backends import measured_machine as machine_module
from dynagraph.backends.calibration import Figures
from dynagraph.backends.cuda import driver
from dynagraph.backends.measured_machine import identity, keep
from dynagraph.backends.multi_device import MoveStep, RunStep, compile_placed, schedule
from dynagraph.backends.reference import reference
from dynagraph.backends.registry import backends_here
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.machine_model import CLASSES, on_paper
from dynagraph.ir.passes.place import place
from tests.cuda.device import QueuedDevice

from .placements import call

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((20, 20)), RNG.standard_normal((20, 20))
NBYTES = X.nbytes


@pytest.fixture
def device(fake: Any) -> Iterator[QueuedDevice]:
    emulated = QueuedDevice(fake)
    driver.install(fake, emulated)
    yield emulated
    driver.install(fake, None)


@pytest.fixture
def slow(device: QueuedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueuedDevice]:
    """A machine whose GPUs take seconds for what they do, and whose host takes hours: sharing pays for the smallest arrays."""
    monkeypatch.setattr(machine_module, "_measured", {})
    with dg.config.override(cache_dir=str(tmp_path / "kept")):
        crawling, walking = ({what: dict.fromkeys(CLASSES, rate) for what in ("additions", "products")} for rate in (100.0, 1e4))
        keep(identity(), Figures({"cpu": crawling, "cuda:0": walking, "cuda:1": walking}))
        yield device


def placed_on(compiled: Any) -> list[str]:
    """The devices of the segments of a function's program, in order."""
    text = compiled.programs[-1].executable.artifacts["placement"]
    return [row.split()[1] for row in text.split("segment  device")[1].splitlines()[1:]]


def check(function: Any, *arguments: Any, calls: int = 3) -> Any:
    """Compiled for "auto" it gives what it gives plainly, call after call, without a fallback, and leaves no memory behind."""
    compiled = dg.compile(function, device="auto", fullgraph=True)
    want = function(*(a.copy() for a in arguments))
    for _ in range(calls):
        got = compiled(*(a.copy() for a in arguments))
        for mine, theirs in zip(as_tuple(got), as_tuple(want), strict=True):
            assert type(mine) is type(theirs) and (mine.flags.owndata or not isinstance(mine, np.ndarray))
            np.testing.assert_allclose(mine, theirs, rtol=1e-8)
        del got, mine
    assert compiled.stats.fallbacks == 0 and compiled.stats.compiles == 1
    assert [dg.cuda.memory_allocated(k) for k in range(2)] == [0, 0]
    return compiled


def as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def chain(x: Any) -> Any:
    for _ in range(3):
        x = np.tanh(x @ x)
    return x


def branches(x: Any, y: Any) -> Any:
    return chain(x), chain(y)


def joined(x: Any, y: Any) -> Any:
    return chain(chain(x) + chain(y))


# -- several GPUs in one program --------------------------------------------------------------------------------------------------
def test_branches_run_on_a_gpu_each(slow: QueuedDevice) -> None:
    compiled = check(branches, X, Y)
    assert sorted(placed_on(compiled)) == ["cuda:0", "cuda:1"]
    text = compiled.programs[0].executable.artifacts["placement"]
    assert " by costs measured: " in text and "; shared among GPUs, else overlapped " in text
    assert Counter(slow.machine.copies) == {
        ("cpu", "cuda:0", NBYTES): 3, ("cuda:0", "cpu", NBYTES): 3, ("cpu", "cuda:1", NBYTES): 3, ("cuda:1", "cpu", NBYTES): 3,
    }  # fmt: skip


def test_what_is_joined_crosses_from_gpu_to_gpu(slow: QueuedDevice) -> None:
    compiled = check(joined, X, Y)
    assert set(placed_on(compiled)) == {"cuda:0", "cuda:1"}
    across = [pair for *pair, _ in slow.machine.copies if "cpu" not in pair]
    assert len(across) == 3 and slow.machine.peers == {(0, 1), (1, 0)}  # once for each call
    assert len(slow.machine.copies) == 3 * 4


def test_gpus_that_cannot_reach_each_other_copy_all_the_same(slow: QueuedDevice) -> None:
    slow.machine.peers_can = False
    check(joined, X, Y)
    assert slow.machine.peers == set()


def test_a_value_goes_once_to_each_gpu_that_wants_it(slow: QueuedDevice) -> None:
    def f(x: Any) -> Any:
        return chain(x), chain(x * 2), chain(x + 1), x.sum()

    compiled = check(f, X, calls=1)
    assert {"cuda:0", "cuda:1"} <= set(placed_on(compiled))
    into = Counter(target for source, target, _ in slow.machine.copies if source == "cpu")
    assert into == {"cuda:0": 1, "cuda:1": 1}


def test_the_host_takes_part(slow: QueuedDevice) -> None:
    def f(x: Any, y: Any) -> Any:
        z = np.linalg.solve(chain(x), y)
        return chain(z), chain(y)

    compiled = check(f, X, Y)
    assert {"cpu", "cuda:0", "cuda:1"} == set(placed_on(compiled))


def test_little_is_gained_on_small_arrays_by_paper(device: QueuedDevice) -> None:
    compiled = check(branches, X, Y)
    assert set(placed_on(compiled)) == {"cpu"} and device.sources == [] and device.machine.copies == []


def test_arguments_are_written_to_by_both(slow: QueuedDevice) -> None:
    def step(v: Any, w: Any) -> Any:
        v -= chain(v)
        w -= chain(w)

    compiled = dg.compile(step, device="auto", fullgraph=True)
    ours, plain = (X.copy(), Y.copy()), (X.copy(), Y.copy())
    for _ in range(3):
        compiled(*ours)
        step(*plain)
        for mine, theirs in zip(ours, plain):
            np.testing.assert_allclose(mine, theirs, rtol=1e-8)
    assert set(placed_on(compiled)) >= {"cuda:0", "cuda:1"} and compiled.stats.fallbacks == 0


def test_sizes_that_change(slow: QueuedDevice) -> None:
    compiled = dg.compile(branches, device="auto", dynamic=True)
    for n in (20, 31, 17):
        x, y = RNG.standard_normal((2, n, n))
        for got, want in zip(compiled(x, y), branches(x, y)):
            np.testing.assert_allclose(got, want, rtol=1e-8)
    assert compiled.stats.fallbacks == 0 and compiled.stats.compiles == 1


@pytest.mark.parametrize("number", [0, 1])
def test_streams_that_are_current(slow: QueuedDevice, number: int) -> None:
    """Work of each device goes to its own current stream; what crosses is waited for."""
    with dg.cuda.Stream(device=number):
        check(joined, X, Y)


def test_another_device_is_current(slow: QueuedDevice) -> None:
    with dg.cuda.device(1):
        check(joined, X, Y)
        assert dg.cuda.current_device() == 1


def test_an_error_of_the_hosts_part_is_the_plain_one(slow: QueuedDevice) -> None:
    def f(x: Any, y: Any) -> Any:
        return np.linalg.inv(chain(x)), chain(y)

    compiled = dg.compile(f, device="auto", fullgraph=True)
    for _ in range(2):
        compiled(X, Y)
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            compiled(np.zeros((20, 20)), Y)
    assert [dg.cuda.memory_allocated(k) for k in range(2)] == [0, 0]


def test_a_full_gpu_is_said(slow: QueuedDevice) -> None:
    compiled = dg.compile(branches, device="auto")
    compiled(X, Y)
    slow.machine.memory[1] = 100
    with pytest.raises(MemoryError, match="Out of memory allocating 3,584 bytes"):
        compiled(X, Y)
    slow.machine.memory[1] = 1 << 30
    for got, want in zip(compiled(X, Y), branches(X, Y)):
        np.testing.assert_allclose(got, want, rtol=1e-8)
    assert [dg.cuda.memory_allocated(k) for k in range(2)] == [0, 0]


# -- the device of what no operand says -------------------------------------------------------------------------------------------
def test_what_is_made_of_no_array_is_made_on_its_device(device: QueuedDevice) -> None:
    compiled = dg.compile(lambda s: np.tanh(np.arange(10.0) * s), device="cuda:1", fullgraph=True)
    for s in (1.0, 2.0):
        np.testing.assert_allclose(compiled(s), np.tanh(np.arange(10.0) * s))
    pool = device.machine.pool
    assert compiled.stats.fallbacks == 0 and pool.total[0] == 0 and pool.total[1] > 0


def test_constants_lie_on_each_device_that_uses_them(device: QueuedDevice) -> None:
    """They are laid there when a segment first runs there, and never copied between devices."""
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (20, 20)))
    table = graph.constant(Y)
    one, other = (call(graph, "matmul", call(graph, name, x), call(graph, "add", table, x)) for name in ("tanh", "exp"))
    graph.output([one, other])
    placement = place(graph, on_paper(count=2), {one: "cuda:0", other: "cuda:1"}, outputs=["cpu", "cpu"])
    program = compile_placed(placement, backends_here(), several._move, several._fetch)
    for got, want in zip(program(X), reference(graph)(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert all("cpu" in (source, target) for source, target, _ in device.machine.copies)


# -- order, and what is waited for ------------------------------------------------------------------------------------------------
def test_devices_are_given_their_work_before_the_host_waits() -> None:
    """Uploads one by one, each followed by what it was for; the host's own work; what the caller gets last."""
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(dtypes.float64, (64, 64))) for name in "xy")
    first, second, own = call(graph, "matmul", x, x), call(graph, "matmul", y, y), call(graph, "matmul", x, y)
    graph.output([first, second, own])
    placement = place(graph, on_paper(count=2), {first: "cuda:0", second: "cuda:1", own: "cpu"}, outputs=["cpu"] * 3)
    steps = [s.segment.device if isinstance(s, RunStep) else str(s.copy) for s in schedule(placement).steps]
    assert steps == [
        "x: cpu -> cuda:0", "cuda:0", "y: cpu -> cuda:1", "cuda:1", "cpu",
        "matmul: cuda:0 -> cpu", "matmul_1: cuda:1 -> cpu",
    ]  # fmt: skip


def there_and_back() -> tuple[Graph, Any]:
    """What a GPU made, the host uses, and a GPU again."""
    graph = Graph()
    x = graph.placeholder("x", Meta(dtypes.float64, (20, 20)))
    made = call(graph, "tanh", x)
    changed = call(graph, "matmul", made, made)
    result = call(graph, "exp", changed)
    graph.output([result])
    return graph, place(graph, on_paper(count=2), {made: "cuda:0", changed: "cpu", result: "cuda:1"}, outputs=["cpu"])


def test_only_what_the_caller_does_not_get_is_fetched() -> None:
    _, placement = there_and_back()
    moves = [s for s in schedule(placement).steps if isinstance(s, MoveStep)]
    assert [(str(s.copy), s.fetched) for s in moves] == [
        ("x: cpu -> cuda:0", False), ("tanh: cuda:0 -> cpu", True), ("matmul: cpu -> cuda:1", False),
        ("exp: cuda:1 -> cpu", False),
    ]  # fmt: skip


def test_what_is_fetched_is_page_locked_and_waited_for(device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    _, placement = there_and_back()
    fetched: list[tuple[bool, bool]] = []
    wait = several.Fetched.wait

    def noted(self: several.Fetched) -> np.ndarray:
        before = self.copied.query()
        array = wait(self)
        fetched.append((before, dg.cuda.is_pinned(array)))
        return array

    monkeypatch.setattr(several.Fetched, "wait", noted)
    program = compile_placed(placement, backends_here(), several._move, several._fetch)
    for x in (X, Y):
        (got,) = program(x)
        np.testing.assert_allclose(got, np.exp(np.tanh(x) @ np.tanh(x)), rtol=1e-12)
        assert not dg.cuda.is_pinned(got)
    assert fetched == [(False, True)] * 2  # it had not come when the host began to need it


# -- arrays that live somewhere ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("asked", ["auto", "cuda:0", "cuda", "cpu"])
def test_arrays_of_a_device_are_computed_with_there(device: QueuedDevice, fake: Any, asked: str) -> None:
    """Whatever is asked for, for functions of NumPy's arrays."""
    def f(x: Any, y: Any) -> Any:
        h = fake.tanh(x) + y
        return h, h.sum(axis=0)

    compiled = dg.compile(f, device=asked, fullgraph=True)
    with dg.cuda.device(1):
        x, y = fake.asarray(X), fake.asarray(Y)
    for _ in range(3):
        for got, want in zip(compiled(x, y), (np.tanh(X) + Y, (np.tanh(X) + Y).sum(axis=0))):
            assert got.device.id == 1
            np.testing.assert_allclose(got.get(), want, rtol=1e-12)
    assert compiled.stats.fallbacks == 0 and device.machine.copies == [] and dg.cuda.current_device() == 0


def test_numpys_arrays_and_a_devices_in_one_call(device: QueuedDevice, fake: Any) -> None:
    """Where they meet, CuPy's error; where they do not, each result is where its operands are."""
    with dg.cuda.device(1):
        there = fake.asarray(X)
    together = dg.compile(lambda x, y: x + y, device="auto")
    for _ in range(2):
        with pytest.raises(TypeError):
            together(there, Y)
    apart = dg.compile(lambda x, y: (fake.tanh(x), np.tanh(y)), device="auto")
    for _ in range(2):
        mine, plain = apart(there, Y)
        assert mine.device.id == 1 and type(plain) is np.ndarray
        np.testing.assert_allclose(mine.get(), np.tanh(X))
        np.testing.assert_allclose(plain, np.tanh(Y))


def test_numbers_of_the_hosts_beside_arrays_of_a_device(device: QueuedDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x, s: x * s, device="auto", fullgraph=True)
    with dg.cuda.device(1):
        x = fake.asarray(X)
    for s in (2.0, np.float64(3.0)):
        got = compiled(x, s)
        assert got.device.id == 1
        np.testing.assert_allclose(got.get(), X * s)
    assert device.machine.copies == []


def test_one_function_serves_arrays_of_every_place(slow: QueuedDevice, fake: Any) -> None:
    """A program for each, chosen by what is passed."""
    compiled = dg.compile(lambda x: np.tanh(x @ x), device="auto", fullgraph=True)
    given: list[Any] = [X]
    for number in range(2):
        with dg.cuda.device(number):
            given.append(fake.asarray(X))
    for _ in range(2):
        here, *there = [compiled(x) for x in given]
        assert type(here) is np.ndarray and [x.device.id for x in there] == [0, 1]
        for result in (here, *(x.get() for x in there)):
            np.testing.assert_allclose(result, np.tanh(X @ X))
    assert compiled.stats.compiles == 3 and compiled.stats.fallbacks == 0
