"""``mode="reduce-overhead"``: what is launched as a CUDA graph, and that nobody's result is ever written again."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core._dispatch import Launcher
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda.replay import (
    CALLS_FOR_ANOTHER,
    FIRST_RECORDINGS,
    MOST_KEYS,
    MOST_SEEN,
    REPLAYS_FOR_ANOTHER,
    Recording,
    Replayer,
)
from dynagraph.backends.registry import get_backend
from dynagraph.driver.decorated import MODES
from tests.cuda.device import QueuedDevice
from tests.cupy_arrays import stand_in


@pytest.fixture
def cp(fake: Any) -> Iterator[Any]:
    with dg.config.override(stay_eager=False):  # no call runs eagerly just to see how long that takes
        yield fake


@pytest.fixture
def device(cp: Any) -> Iterator[QueuedDevice]:
    made = QueuedDevice(cp)
    driver.install(cp, made)
    yield made
    driver.install(cp, None)
    gc.collect()  # what programs have recorded is theirs


def replaying(function: Callable[..., Any], **options: Any) -> Any:
    return dg.compile(function, mode="reduce-overhead", **options)


def replayer_of(compiled: Any) -> Replayer:
    (program,) = compiled.programs
    return program.executable.call.replayer  # type: ignore[no-any-return]


def scaled(x: Any, y: Any) -> Any:
    """Two kernels: sums of columns, then sums of rows."""
    centred = x - (x * y).sum(axis=0)
    return centred / (centred * centred).sum(axis=1, keepdims=True)


def of_numpy(function: Callable[..., Any], *arrays: Any) -> Any:
    return function(*(a.get() if isinstance(a, stand_in.ndarray) else a for a in arrays))


def check(function: Callable[..., Any], result: Any, *arrays: Any) -> None:
    np.testing.assert_allclose(result.get(), of_numpy(function, *arrays), rtol=1e-12)


def arrays(cp: Any, *shape: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return cp.asarray(rng.standard_normal(shape or (5, 8))), cp.asarray(rng.standard_normal(shape or (5, 8)))


def warmed(compiled: Any, *arguments: Any) -> None:
    """Until calls of these arguments are replays: it is compiled, launched kernel by kernel, recorded."""
    for _ in range(3):
        compiled(*arguments)


class Counts:
    """How many kernels and graphs a block launches."""

    def __init__(self, device: QueuedDevice):
        self.device = device

    def __enter__(self) -> Counts:
        self.before = self.device.launches, self.device.machine.graph_launches
        return self

    def __exit__(self, *error: Any) -> None:
        self.kernels = self.device.launches - self.before[0]
        self.graphs = self.device.machine.graph_launches - self.before[1]


# -- what is replayed ----------------------------------------------------------------------------------------------------------


def test_calls_of_the_same_arrays_are_one_launch_each(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    counts = []
    for _ in range(6):
        with Counts(device) as count:
            check(scaled, f(x, y), x, y)
        counts.append((count.kernels, count.graphs))
    kernels = counts[0][0]
    assert kernels > 1
    assert counts == [(kernels, 0)] * 2 + [(0, 1)] * 4
    assert replayer_of(f).recordings == 1 and replayer_of(f).replays == 3
    assert f.stats.refusals == f.stats.fallbacks == 0


def test_a_chain_of_twenty_kernels_is_one_launch(cp: Any, device: QueuedDevice) -> None:
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = x - 0.1 * x.sum(axis=0)
            x = x / (1 + (x * x).sum(axis=1, keepdims=True))
        return x

    f, (x, _) = replaying(chain), arrays(cp)
    with Counts(device) as count:
        f(x)
    assert count.kernels >= 20
    warmed(f, x)
    with Counts(device) as count:
        check(chain, f(x), x)
    assert (count.kernels, count.graphs) == (0, 1)


def test_calls_of_many_arrays_are_one_launch(cp: Any, device: QueuedDevice) -> None:
    def sums(x: Any, ys: Any) -> list[Any]:
        return [(x * y).sum(axis=0) for y in ys]

    f, (x, y) = replaying(sums), arrays(cp, 3, 2)
    ys = [y + k for k in range(150)]
    with dg.config.override(compile_budget=None):
        warmed(f, x, ys)
    with Counts(device) as count:
        check(lambda x, y: (x * y).sum(axis=0), f(x, ys)[-1], x, ys[-1])
    assert (count.kernels, count.graphs) == (0, 1)


def test_checked_kernels_are_launched_as_they_are(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    with dg.config.override(cuda_check=True):
        for _ in range(4):
            check(scaled, f(x, y), x, y)
    assert replayer_of(f).recordings == 0


def test_other_modes_launch_kernel_by_kernel(cp: Any, device: QueuedDevice) -> None:
    x, y = arrays(cp)
    for mode in ("default", "fast"):
        f = dg.compile(scaled, mode=mode)
        warmed(f, x, y)
        check(scaled, f(x, y), x, y)
        assert f.programs[0].executable.call.replayer is None
    assert device.machine.graphs == 0
    assert device.modes == ["strict", "fast"]


def test_reduce_overhead_computes_strictly(cp: Any, device: QueuedDevice) -> None:
    replaying(scaled)(*arrays(cp))
    assert device.modes == ["strict"]


def test_one_kernel_is_launched_as_it_is(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(lambda x, y: x * y + 1), arrays(cp)
    warmed(f, x, y)
    with Counts(device) as count:
        f(x, y)
    assert (count.kernels, count.graphs) == (1, 0)


def test_arguments_that_changed_in_place_are_read_anew(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    for k in range(4):
        x[...] = k + 0.5
        with Counts(device) as count:
            check(scaled, f(x, y), x, y)
        assert count.graphs == 1


def test_a_replay_comes_after_what_its_stream_has_to_do(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    new = np.linspace(1, 2, 40).reshape(5, 8)
    x.data.copy_from_host_async(new.ctypes.data, new.nbytes)
    result = f(x, y)
    x.data.copy_from_host_async(np.zeros(40).ctypes.data, new.nbytes)
    np.testing.assert_allclose(result.get(), scaled(new, y.get()), rtol=1e-12)


def test_results_are_as_in_default_mode(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    with Counts(device) as count:
        first = f(x, y)
    identity = id(first)
    assert count.graphs == 1
    assert first.base is None and first.flags.c_contiguous and first.flags.owndata
    first[...] = 7  # writes to a result change no other one
    del first
    second = f(x, y)
    check(scaled, second, x, y)
    third = f(x, y)
    assert third is not second and third.data.ptr != second.data.ptr, identity


def test_several_results_numbers_and_sizes(cp: Any, device: QueuedDevice) -> None:
    def several(x: Any, y: Any, k: Any) -> Any:
        return (x * k).sum(axis=0), x.sum() * y, (x - x.sum(axis=0)) / k

    f, (x, y) = replaying(several, dynamic=True), arrays(cp, 6, 8)
    number = np.float64(1.5)
    for rows in (6, 4, 6, 4, 6, 4, 6, 4):
        given = x[:rows], y[:rows], number
        results = f(*given)
        for got, want in zip(results, of_numpy(several, *given)):
            np.testing.assert_allclose(got.get(), want, rtol=1e-12)
        del results, got
    assert replayer_of(f).recordings == 2 and replayer_of(f).replays > 0


def test_an_array_of_no_elements(cp: Any, device: QueuedDevice) -> None:
    def both(x: Any, y: Any) -> Any:
        return x + y.sum(), (y - y.sum(axis=0)).sum(axis=1)

    f, (x, y) = replaying(both, dynamic=True), (cp.zeros((0,)), arrays(cp)[0] * 0 + 1.5)
    for _ in range(5):
        first, second = f(x, y)
        assert first.shape == (0,)
        np.testing.assert_allclose(second.get(), both(x.get(), y.get())[1], rtol=1e-12)


# -- results that somebody has ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("hold", [
    lambda y: y, lambda y: y[3:], lambda y: y.reshape(2, 20).T, lambda y: y[1:][0], lambda y: y.data, lambda y: [y],
    lambda y: y.data + 16,
], ids=["itself", "slice", "transposed", "slice of a slice", "pointer", "list", "pointer into it"])  # fmt: skip
def test_a_result_that_is_held_is_not_written(cp: Any, device: QueuedDevice, hold: Callable[[Any], Any]) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    result = f(x, y)
    address, want = result.data.ptr, result.get()
    memory = result._memory.block
    kept = hold(result)
    del result
    for k in range(5):
        x[...] = cp.arange(40.0).reshape(5, 8) + k
        other = f(x, y)
        assert other.data.ptr != address
        check(scaled, other, x, y)
    cp.cuda.get_current_stream().synchronize()
    assert memory[: want.nbytes].tobytes() == want.tobytes()
    del kept, other
    assert f(x, y).data.ptr == address  # nobody has it any more


def test_a_list_of_all_results(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    results, wanted = [], []
    for k in range(12):
        x[...] = cp.arange(40.0).reshape(5, 8) * (k + 1)
        wanted.append(of_numpy(scaled, x, y))
        results.append(f(x, y))
    assert len({r.data.ptr for r in results}) == 12
    for got, want in zip(results, wanted):
        np.testing.assert_allclose(got.get(), want, rtol=1e-12)
    assert replayer_of(f).recordings == 2  # sets of results; the other calls launched kernel by kernel
    results.clear()
    with Counts(device) as count:
        f(x, y)
    assert (count.kernels, count.graphs) == (0, 1)


def test_a_loop_that_holds_the_last_result_is_replayed(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    result = f(x, y)
    result = f(x, y)
    with Counts(device) as count:
        for k in range(10):
            x[...] = cp.arange(40.0).reshape(5, 8) * (k + 1)
            result = f(x, y)
    check(scaled, result, x, y)
    assert (count.kernels, count.graphs) == (0, 10)


def test_one_of_several_results_is_held(cp: Any, device: QueuedDevice) -> None:
    def both(x: Any, y: Any) -> Any:
        return x - (x * y).sum(axis=0), y / x.sum(axis=1, keepdims=True)

    f, (x, y) = replaying(both), arrays(cp)
    warmed(f, x, y)
    kept = f(x, y)[1]
    want = kept.get()
    for k in range(4):
        x[...] = k + 1.0
        f(x, y)
    np.testing.assert_array_equal(kept.get(), want)


def test_a_call_within_a_replay(
    cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a finalizer or a signal's handler may make it, between any two operations."""
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    inner: list[Any] = []
    pointer = type(x.data)
    plain = pointer.__add__

    def add(self: Any, offset: int) -> Any:
        made = plain(self, offset)
        if not inner:
            inner.append(None)
            x[...] = 3.0
            inner[:] = [f(x, y)]
            inner.append(inner[0].get())
            x[...] = 5.0
        return made

    monkeypatch.setattr(pointer, "__add__", add)
    outer = f(x, y)
    check(scaled, outer, x, y)
    assert outer.data.ptr != inner[0].data.ptr
    np.testing.assert_array_equal(inner[0].get(), inner[1])


def test_a_recording_that_is_forgotten_within_its_replay(
    cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a call within it may do that, of other arrays."""
    used: list[int] = []
    take, launch = Recording.take, cp.cuda.Graph.launch

    def take_and_forget(self: Recording, inputs: Any) -> Any:
        taken = take(self, inputs)
        replayer._mine.recorded.clear()
        return taken

    def note_and_launch(self: Any, stream: Any = None) -> None:
        used.append(cp.machine.pool.used_bytes())
        launch(self, stream)

    monkeypatch.setattr(cp.cuda.Graph, "launch", note_and_launch)
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    replayer = replayer_of(f)
    monkeypatch.setattr(Recording, "take", take_and_forget)
    check(scaled, f(x, y), x, y)
    assert not replayer._mine.recorded and replayer.failure is None
    assert len(used) == 2 and used[1] == used[0]  # its workspace was still there


def test_results_as_arguments_again(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    want = x.get()
    for _ in range(30):
        want = scaled(want, y.get())
        x = f(x, y)
        np.testing.assert_allclose(x.get(), want, rtol=1e-9)


# -- in place ----------------------------------------------------------------------------------------------------------------------


def step(w: Any, g: Any) -> Any:
    w -= g * (g * w).sum(axis=0)
    return (w * w).sum(axis=1)


def test_updates_in_place_are_replayed(cp: Any, device: QueuedDevice) -> None:
    f, (w, g) = replaying(step), arrays(cp)
    mine, gradient = w.get(), g.get() * 0.01
    g[...] = cp.asarray(gradient)
    for k in range(8):
        with Counts(device) as count:
            loss = f(w, g)
        assert (count.graphs == 1) is (k >= 2)
        np.testing.assert_allclose(loss.get(), step(mine, gradient), rtol=1e-12)
        np.testing.assert_allclose(w.get(), mine, rtol=1e-12)
        del loss


def test_only_in_place(cp: Any, device: QueuedDevice) -> None:
    def update(w: Any, g: Any) -> None:
        w -= g * (g * w).sum(axis=0)
        g /= 1 + (w * w).sum(axis=1, keepdims=True)

    f, (w, g) = replaying(update), arrays(cp)
    mine, gradient = w.get(), g.get()
    for _ in range(6):
        assert f(w, g) is None
        update(mine, gradient)
        np.testing.assert_allclose(w.get(), mine, rtol=1e-12)
        np.testing.assert_allclose(g.get(), gradient, rtol=1e-12)
    assert replayer_of(f).recordings == 1 and replayer_of(f).replays == 3


# -- other calls -------------------------------------------------------------------------------------------------------------------


def test_other_addresses_launch_kernel_by_kernel(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    others = [arrays(cp, seed=k) for k in range(1, 5)]
    with Counts(device) as count:
        for other in others:
            check(scaled, f(*other), *other)
    assert count.graphs == 0 and count.kernels > 0


def test_other_numbers_launch_kernel_by_kernel(cp: Any, device: QueuedDevice) -> None:
    def shifted(x: Any, k: Any) -> Any:
        return (x * k - (x * k).sum(axis=0)).sum(axis=1)

    f, (x, _) = replaying(shifted), arrays(cp)
    for number in (np.float64(0.5), np.float64(0.5), np.float64(0.5), np.float64(0.5)):
        check(shifted, f(x, number), x, number)
    assert replayer_of(f).replays == 1
    with Counts(device) as count:
        for number in (np.float64(1.5), np.float64(-0.0), np.float64(0.0), np.float64(2.5)):
            check(shifted, f(x, number), x, number)
    assert count.graphs == 0
    with Counts(device) as count:
        check(shifted, f(x, np.float64(0.5)), x, np.float64(0.5))
    assert count.graphs == 1


def test_memory_that_does_not_begin_at_a_multiple_of_16_bytes(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), (flat[1:].reshape(5, 8) for flat in arrays(cp, 41))
    assert x.data.ptr % 16 == 8
    for _ in range(5):
        check(scaled, f(x, y), x, y)
    assert replayer_of(f).recordings == 0


def test_devices_have_graphs_of_their_own(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    with cp.cuda.Device(1):
        there = arrays(cp, seed=1)
        for k in range(4):
            with Counts(device) as count:
                result = f(*there)
            assert result.device.id == 1
            assert (count.graphs == 1) is (k >= 2)
            check(scaled, result, *there)
            del result
    with Counts(device) as count:
        check(scaled, f(x, y), x, y)
    assert count.graphs == 1


def test_arrays_of_a_device_that_is_not_the_current_one(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    with cp.cuda.Device(1), Counts(device) as count:
        result = f(x, y)
    assert count.graphs == 0
    assert result.device.id == 0
    check(scaled, result, x, y)


def test_each_stream_has_results_of_its_own(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    first = f(x, y)
    address = first.data.ptr
    del first  # its stream has not run yet
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for k in range(6):
            with Counts(device) as count:
                result = f(x, y)
            assert result.data.ptr != address
            assert (count.graphs == 1) is (k >= 1)
            check(scaled, result, x, y)
            del result
    check(scaled, f(x, y), x, y)
    assert replayer_of(f).recordings == 2
    used = stream.ptr
    del stream
    gc.collect()
    assert used in cp.machine.streams  # no other stream gets its address


def test_a_handler_that_makes_another_stream_current(cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a signal, or a finalizer: the kernels go to the stream that was current when the call came."""
    f, g, (x, y) = replaying(scaled), replaying(lambda x, y: scaled(x, y)), arrays(cp)
    warmed(f, x, y)
    g(x, y)
    g(x, y)
    other = cp.cuda.Stream(non_blocking=True)
    plain = Replayer.__call__

    def switching(self: Replayer, key: bytes, inputs: tuple[Any, ...]) -> Any:
        other.use()
        return plain(self, key, inputs)

    monkeypatch.setattr(Replayer, "__call__", switching)
    for function in (f, g):
        result = function(x, y)
        assert other.done
        cp.cuda.Stream.null.use()
        check(scaled, result, x, y)
    assert replayer_of(f).replays == 1 and replayer_of(g).recordings == 0


def test_streams_that_were_made_current_stay_so(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    stream = cp.cuda.Stream()
    stream.use()
    warmed(f, x, y)
    assert cp.cuda.get_current_stream() is stream
    assert replayer_of(f).recordings == 1
    stream.synchronize()
    cp.cuda.Stream.null.use()


def test_a_graph_that_the_caller_captures_gets_the_kernels(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        warmed(f, x, y)
        recordings = replayer_of(f).recordings
        assert recordings == 1
        plain, cp.machine.pool.allocate = cp.machine.pool.allocate, _allocating_for(cp, 0)
        stream.begin_capture()
        with Counts(device) as count:
            result = f(x, y)
        cp.machine.pool.allocate = plain
        graph = stream.end_capture()
        assert (count.graphs, replayer_of(f).recordings) == (0, recordings)
        x[...] = 2.0
        graph.launch()
        check(scaled, result, x, y)


def _allocating_for(cp: Any, stream: int) -> Callable[..., Any]:
    """The pool's function for those who allocate while they capture."""
    plain = cp.machine.pool.allocate
    return lambda size, device, _: plain(size, device, stream)


# -- calls of libraries ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def matmul(cp: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """CuPy's matmul, queued, with memory that the product needs while it runs; gives what it allocated, as addresses."""
    plain, allocated = cp.matmul, []

    def queued(a: Any, b: Any, out: Any = None) -> Any:
        if out is None:
            return plain(a, b)
        scratch = cp.cuda.alloc(64)
        allocated.append((scratch.mem.ptr, scratch.mem.stream))
        left, right, result, block = (*(v._ndarray__held for v in (a, b, out)), scratch.mem.block)

        def product() -> None:
            block[:] = 1
            np.matmul(left, right, out=result)

        cp.machine.queue_of(cp.cuda.get_current_stream()).add(product)
        return out

    monkeypatch.setattr(cp, "matmul", queued)
    return allocated


def test_products_of_matrices_are_part_of_the_graph(cp: Any, device: QueuedDevice, matmul: list[Any]) -> None:
    def layer(x: Any, w: Any) -> Any:
        return cp.maximum(x @ w, 0) @ w

    f, (x, w) = replaying(layer), arrays(cp, 8, 8)
    for k in range(6):
        x[...] = cp.arange(64.0).reshape(8, 8) - 10 * k
        result = f(x, w)
        np.testing.assert_allclose(result.get(), np.maximum(x.get() @ w.get(), 0) @ w.get(), rtol=1e-12)
        del result
    assert replayer_of(f).recordings == 1 and replayer_of(f).replays == 3
    assert len(matmul) == 6  # two calls, and the recording
    assert {stream for _, stream in matmul} == {0}  # not the stream that captured


def test_steps_of_training(cp: Any, device: QueuedDevice, matmul: list[Any]) -> None:
    def train(w: Any, x: Any, y: Any) -> Any:
        error = x @ w - y
        w -= 0.01 * (x.T @ error)
        return (error * error).mean()

    rng = np.random.default_rng(0)
    f, mine = replaying(train), np.zeros((3, 2))
    w, x, y = cp.asarray(mine), cp.asarray(np.zeros((8, 3))), cp.asarray(np.zeros((8, 2)))
    for k in range(10):
        rows, targets = rng.standard_normal((8, 3)), rng.standard_normal((8, 2))
        x[...], y[...] = cp.asarray(rows), cp.asarray(targets)
        with Counts(device) as count:
            loss = f(w, x, y)
        assert (count.kernels > 0, count.graphs) == ((True, 0) if k < 2 else (False, 1))
        np.testing.assert_allclose(loss.get(), train(mine, rows, targets), rtol=1e-12)
        np.testing.assert_allclose(w.get(), mine, rtol=1e-12)


def test_memory_of_a_recording_is_kept_with_it(cp: Any, device: QueuedDevice, matmul: list[Any]) -> None:
    f, (x, w) = replaying(lambda x, w: (x @ w) @ (w @ x) + x.sum()), arrays(cp, 8, 8)
    f(x, w)
    f(x, w)
    cp.cuda.Stream.null.synchronize()
    used, products = cp.machine.pool.used_bytes(), len(matmul)
    f(x, w)
    cp.cuda.Stream.null.synchronize()
    assert len(matmul) == products + 3
    held = cp.machine.pool.used_bytes() - used
    assert held >= (3 + 2) * 512  # what the products need, the result and the workspace
    f.reset()
    gc.collect()
    assert cp.machine.pool.used_bytes() <= used


def test_a_symbol_that_only_a_product_reads(cp: Any, device: QueuedDevice, matmul: list[Any]) -> None:
    f = replaying(lambda x, w: x @ w, dynamic=None)
    for inner in (5, 7, 9):
        x, w = cp.asarray(np.ones((4, inner))), cp.asarray(np.ones((inner, 4)))
        for _ in range(3):
            np.testing.assert_array_equal(f(x, w).get(), np.full((4, 4), float(inner)))
    assert f.stats.refusals == 0


# -- bounds ------------------------------------------------------------------------------------------------------------------------


def test_few_keys_are_kept(cp: Any, device: QueuedDevice) -> None:
    f = replaying(scaled)
    many = [arrays(cp, seed=k) for k in range(3 * MOST_KEYS)]
    for given in many:
        for _ in range(4 + REPLAYS_FOR_ANOTHER):
            check(scaled, f(*given), *given)
    mine = replayer_of(f)._mine
    assert len(mine.recorded) == MOST_KEYS
    assert replayer_of(f).recordings > FIRST_RECORDINGS
    with Counts(device) as count:
        check(scaled, f(*many[-1]), *many[-1])
    assert count.graphs == 1
    with Counts(device) as count:
        check(scaled, f(*many[0]), *many[0])
    assert count.kernels > 0 or replayer_of(f).recordings > 3 * MOST_KEYS  # it was forgotten


def test_keys_of_single_calls_are_bounded(cp: Any, device: QueuedDevice) -> None:
    def shifted(x: Any, k: Any) -> Any:
        return (x * k - (x * k).sum(axis=0)).sum(axis=1)

    f, (x, _) = replaying(shifted), arrays(cp)
    for k in range(2 * MOST_SEEN):
        f(x, np.float64(k + 0.5))
    assert len(replayer_of(f)._mine.seen) == MOST_SEEN
    assert replayer_of(f).recordings == 0


def test_recordings_that_do_not_pay_come_to_an_end(cp: Any, device: QueuedDevice) -> None:
    f = replaying(scaled)
    for k in range(4 * FIRST_RECORDINGS):
        given = arrays(cp, seed=k)
        results = [f(*given) for _ in range(2)]
        check(scaled, results[1], *given)
    replayer = replayer_of(f)
    assert replayer.recordings == FIRST_RECORDINGS and replayer.replays < REPLAYS_FOR_ANOTHER
    x, y = arrays(cp)  # from here on it would pay
    for _ in range(CALLS_FOR_ANOTHER + 5):
        f(x, y)
        cp.cuda.Stream.null.synchronize()
    assert replayer.recordings == FIRST_RECORDINGS + 1 and replayer.replays > 0


# -- failures ----------------------------------------------------------------------------------------------------------------------


def test_a_capture_that_fails_is_tried_once(
    cp: Any, device: QueuedDevice, caplog: pytest.LogCaptureFixture
) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    cp.machine.capture_status = 901
    with caplog.at_level(logging.INFO, "dynagraph.kernels"):
        for _ in range(6):
            with Counts(device) as count:
                check(scaled, f(x, y), x, y)
            assert count.kernels > 1 and count.graphs == 0
    replayer = replayer_of(f)
    assert replayer.recordings == 1 and replayer.replays == 0
    assert replayer.failure is not None and "cudaErrorStreamCaptureInvalidated" in replayer.failure
    assert sum("as a CUDA graph of them failed" in r.getMessage() for r in caplog.records) == 1
    assert f.stats.refusals == 0
    assert cp.cuda.get_current_stream() is cp.cuda.Stream.null


def test_a_launch_that_fails_while_it_is_captured(cp: Any, device: QueuedDevice, matmul: list[Any]) -> None:
    f, (x, w) = replaying(lambda x, w: (x @ w).sum() * x), arrays(cp, 8, 8)
    plain = cp.matmul

    def failing(a: Any, b: Any, out: Any = None) -> Any:
        if cp.cuda.get_current_stream().is_capturing():
            raise RuntimeError("operation not permitted when stream is capturing")
        return plain(a, b, out)

    cp.matmul = failing
    for _ in range(4):
        np.testing.assert_allclose(f(x, w).get(), (x.get() @ w.get()).sum() * x.get(), rtol=1e-12)
    assert replayer_of(f).failure == "RuntimeError: operation not permitted when stream is capturing"
    assert cp.cuda.get_current_stream().ptr == 0
    assert all(queue.captured is None for queue in cp.machine.streams.values())


def test_a_graph_that_cannot_be_launched(cp: Any, device: QueuedDevice) -> None:
    f, (w, g) = replaying(step), arrays(cp)
    g *= 0.01
    mine, gradient = w.get(), g.get()
    for k in range(6):
        if k == 4:
            cp.machine.graph_status = 1
        np.testing.assert_allclose(f(w, g).get(), step(mine, gradient), rtol=1e-12)
        np.testing.assert_allclose(w.get(), mine, rtol=1e-12)
    assert replayer_of(f).failure is not None and f.stats.refusals == 0


def test_a_handler_of_a_signal_that_raises_in_a_recording(
    cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, (w, g) = replaying(step), arrays(cp)
    g *= 0.01
    mine, gradient = w.get(), g.get()
    begin, began = cp.cuda.Stream.begin_capture, []

    def interrupted(self: Any, mode: Any = None) -> None:
        begin(self, mode)
        began.append(self)
        if len(began) == 1:
            signal.raise_signal(signal.SIGUSR1)

    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("enough")

    monkeypatch.setattr(cp.cuda.Stream, "begin_capture", interrupted)
    before = signal.signal(signal.SIGUSR1, handler)
    raised = 0
    try:
        for _ in range(6):
            try:
                f(w, g)
            except TimeoutError:
                raised += 1
            step(mine, gradient)
            np.testing.assert_allclose(w.get(), mine, rtol=1e-12)  # once, neither twice nor never
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert raised == 1
    assert len(began) == 2 and began[0] is not began[1] and not began[0].is_capturing()
    assert replayer_of(f).failure is None and replayer_of(f).replays > 0


def test_memory_objects_that_arrays_share(cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of an allocator that gives parts of a whole: nobody can tell whether a result is in use."""
    f, (x, y) = replaying(scaled), arrays(cp)
    f(x, y)
    everything: list[Any] = []
    plain = cp.machine.pool.allocate

    def allocate(*args: Any) -> Any:
        everything.append(plain(*args))
        return everything[-1]

    monkeypatch.setattr(cp.machine.pool, "allocate", allocate)
    for _ in range(4):
        check(scaled, f(x, y), x, y)
    assert replayer_of(f).replays == 0
    assert "shares their memory objects" in str(replayer_of(f).failure)
    everything.clear()


# -- threads -----------------------------------------------------------------------------------------------------------------------


def test_threads_record_for_themselves(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    f(x, y)
    want = of_numpy(scaled, x, y)
    wrong: list[str] = []
    addresses: list[set[int]] = []

    def work() -> None:
        mine = set()
        with cp.cuda.Stream(non_blocking=True) as stream:
            last = None
            for _ in range(12):
                result = f(x, y)
                if not np.allclose(result.get(), want, rtol=1e-12):
                    wrong.append("values")
                last = result
                mine.add(last.data.ptr)
            stream.synchronize()
            addresses.append(mine)
            barrier.wait()
            del result, last

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(addresses) == 4
    assert replayer_of(f).recordings == 8  # two sets of results each
    assert cp.machine.mistakes == []


def test_threads_on_the_same_stream_do_not_share_results(cp: Any, device: QueuedDevice) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    warmed(f, x, y)
    held = f(x, y)
    want = held.get()
    found: list[Any] = []

    def work() -> None:
        x[...] = 4.0
        for _ in range(4):
            found.append(f(x, y))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len({r.data.ptr for r in (held, *found)}) == 5
    np.testing.assert_array_equal(held.get(), want)
    for result in found:
        check(scaled, result, x, y)


# -- the option --------------------------------------------------------------------------------------------------------------------


def test_an_unknown_mode_is_refused() -> None:
    expected = "'default' or 'fast' or 'reduce-overhead' or 'max'"
    with pytest.raises(ValueError, match=rf"^compile: mode='max-autotune': expected {expected}$"):
        dg.compile(lambda x: x, mode="max-autotune")


@pytest.mark.parametrize("mode", MODES)
def test_arrays_of_numpys_run_as_ever(mode: str) -> None:
    f = dg.compile(lambda x: np.exp(x) * x + 1, mode=mode)
    x = np.linspace(0, 1, 7)
    plain = dg.compile(lambda x: np.exp(x) * x + 1)(x)
    assert f(x).tobytes() == plain.tobytes()


def test_backends_of_a_name_and_mode_are_one_object() -> None:
    assert get_backend("cpu", "fast") is get_backend("cpu", "fast")
    assert get_backend("cpu") == get_backend("cpu", "default") != get_backend("cpu", "fast")


# -- the launcher -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"values": ((1, 8),)}, r"^Launcher: value 1 of 1 inputs, of 8 bytes$"),
        ({"values": ((0, 17),)}, r"^Launcher: value 0 of 1 inputs, of 17 bytes$"),
        ({"symbols": (2,)}, r"^Launcher: symbol 2 of 2$"),
    ],
)
def test_a_launcher_refuses_what_it_cannot_read(wrong: dict[str, Any], message: str) -> None:
    right = {
        "launch_address": 1, "n_inputs": 1, "n_symbols": 2, "values": ((0, 8),), "results": (), "workspace": 0, "launches": (),
        "sizes": (), "reach": 1, "most_blocks": 1, "device": 0, "array_type": list, "byte_type": None, "current_device": int,
        "current_stream": int, "on_error": print, "keepalive": None, "symbols": (0, 1),
    }  # fmt: skip
    launcher = Launcher()
    with pytest.raises(ValueError, match=message):
        launcher.prepare(**{**right, **wrong})
    assert not launcher.ready
    launcher.prepare(**right)
    assert launcher.ready


def test_a_replay_that_is_none(cp: Any, device: QueuedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    f, (x, y) = replaying(scaled), arrays(cp)
    f(x, y)
    monkeypatch.setattr(Replayer, "__call__", lambda self, key, inputs: [len])
    for _ in range(2):
        check(scaled, f(x, y), x, y)
    assert "replay gave [<built-in function len>], not [launches, result...] or None" in str(replayer_of(f).failure)
