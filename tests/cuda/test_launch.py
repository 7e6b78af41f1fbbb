"""Programs of kernels: what is launched, by whom, with which variant, and what happens where something goes wrong."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.array_libraries import CuPy
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda.backend import NotForDevice, compile_graph
from dynagraph.backends.cuda.driver import CuPyDriver, LaunchFunction, Loaded
from dynagraph.backends.cuda.program import DeviceProgram
from dynagraph.cuda.state import state
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.ops import OPS
from tests.cuda import emulator
from tests.cuda.device import EmulatedDevice
from tests.cupy_arrays import stand_in

X = np.linspace(-2, 2, 60).reshape(5, 12)


class CountingDevice(EmulatedDevice):
    """The emulator, with a count of launches; `error` is what the next ones give."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.launches: list[tuple[int, int]] = []  # blocks and threads
        self.error = 0
        really = LaunchFunction(emulator.launch_kernel_address())

        def launch(function: Any, gx: int, gy: int, gz: int, bx: int, *rest: Any) -> int:
            self.launches.append((gx, bx))
            return self.error or really(function, gx, gy, gz, bx, *rest)

        self._launch = LaunchFunction(launch)

    @property
    def launch_address(self) -> int:
        address = ctypes.cast(self._launch, ctypes.c_void_p).value
        assert address is not None
        return address

    def load(self, source: str, kernels: Sequence[str], device: int, mode: str) -> Loaded:
        loaded = super().load(source, kernels, device, mode)
        return Loaded(loaded.functions, (loaded, self), False)


@pytest.fixture
def device(fake: Any) -> Any:
    counting = CountingDevice(fake)
    driver.install(fake, counting)
    yield counting
    driver.install(fake, None)


def put(values: Any, number: int = 0) -> Any:
    return stand_in.laid(np.asarray(values), number)


def test_one_kernel_is_launched_for_a_chain(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x, y: fake.exp(x) * y + fake.sqrt(abs(x)))
    for n in range(1, 4):
        result = compiled(put(X), put(X))
        np.testing.assert_allclose(result.get(), np.exp(X) * X + np.sqrt(abs(X)))
        assert len(device.launches) == n
    assert compiled.stats.hits == 2 and compiled.stats.fallbacks == 0 and len(device.sources) == 1


def test_the_dispatcher_launches_by_itself_from_the_second_call_on(device: CountingDevice, fake: Any, monkeypatch: Any) -> None:
    compiled = dg.compile(lambda x: fake.tanh(x @ x.T) + 1)
    want = np.tanh(X @ X.T) + 1
    np.testing.assert_allclose(compiled(put(X)).get(), want)
    monkeypatch.setattr("dynagraph.backends.cuda.program.DeviceProgram.__call__", None)
    for _ in range(3):
        np.testing.assert_allclose(compiled(put(X)).get(), want)
    assert compiled.stats.refusals == 0


def test_memory_that_begins_anywhere_takes_another_variant(device: CountingDevice, fake: Any) -> None:
    """16 bytes at once are loaded where all memory begins at multiples of 16."""
    compiled = dg.compile(lambda x: x * 2 + 1)
    aligned = put(np.arange(64, dtype=np.float32))
    odd = aligned[1:33]
    assert odd.data.ptr % 16
    np.testing.assert_array_equal(compiled(aligned[:32]).get(), np.arange(32) * 2 + 1)
    np.testing.assert_array_equal(compiled(odd).get(), np.arange(1, 33) * 2 + 1)
    np.testing.assert_array_equal(compiled(aligned[32:]).get(), np.arange(32, 64) * 2 + 1)
    assert len(device.sources) == 2
    assert "dg_load_pack<float, 4>(" in device.sources[0] and "dg_load_pack<float, 4>(" not in device.sources[1]


def test_numbers_of_the_hosts_are_parameters(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x, s: x * s)
    for s in (np.float64(2.0), np.float64(-3.5), np.float64(1e300)):
        np.testing.assert_array_equal(compiled(put(X), s).get(), X * s)
    assert len(device.sources) == 1


def test_numbers_of_the_hosts_stay_there(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x, s: (x + s, s * 2))
    for s in (np.float64(2.0), np.float64(-3.5)):
        array, number = compiled(put(X), s)
        np.testing.assert_array_equal(array.get(), X + s)
        assert type(number) is np.float64 and number == s * 2


def test_temporaries_may_all_be_empty(device: CountingDevice, fake: Any) -> None:
    """There is no memory for them then, neither for kernels nor for CuPy's functions."""
    compiled = dg.compile(lambda x: (fake.sort(x * 2) + 1, fake.cumsum(x + 1).sum(), fake.concatenate([x.sum(axis=1), x[0]])))
    for _ in range(3):
        sorts, total, joined = compiled(put(np.zeros((2, 0))))
        assert sorts.shape == (2, 0) and total.get() == 0
        np.testing.assert_array_equal(joined.get(), np.zeros(2))
    assert compiled.stats.fallbacks == compiled.stats.refusals == 0 and not compiled.stats.breaks


def test_sizes_are_parameters(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: ((x - x.mean(axis=0)).sum(axis=1), x.T + 1, fake.cumsum(x, axis=1)), dynamic=True)
    for shape in ((3, 4), (40, 7), (2, 600), (33, 33), (1, 1), (0, 3)):
        x = np.random.default_rng(1).standard_normal(shape)
        sums, turned, running = compiled(put(x))
        with np.errstate(invalid="ignore"):
            want = (x - x.sum(axis=0) / x.shape[0]).sum(axis=1) if x.size else np.zeros(0)
        np.testing.assert_allclose(sums.get(), want, atol=1e-12)
        np.testing.assert_array_equal(turned.get(), x.T + 1)
        np.testing.assert_allclose(running.get(), np.cumsum(x, axis=1), atol=1e-12)
        assert len(device.sources) == 1 or 0 in shape or 1 in shape  # which are programs of their own


def test_nothing_is_launched_for_no_elements(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: x * 2)
    for _ in range(2):
        assert compiled(put(np.zeros((0, 4)))).shape == (0, 4)
    assert device.launches == []


def test_results_are_written_into_arguments(device: CountingDevice, fake: Any) -> None:
    def step(w: Any, g: Any) -> None:
        w -= g * 0.1
        w[0] = 0

    compiled = dg.compile(step)
    w, want = put(X), X.copy()
    kept = w
    for _ in range(3):
        compiled(w, put(X))
        step(want, X)
        np.testing.assert_array_equal(w.get(), want)
    assert w is kept and compiled.stats.refusals == 0


def test_arrays_of_another_device_are_computed_there(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: x * 2)
    for number in (0, 1, 0, 1):
        result = compiled(put(X, number))
        assert result.device.id == number
        np.testing.assert_array_equal(result.get(), X * 2)
    assert dg.cuda.current_device() == 0


def test_a_launch_that_fails_leaves_the_call_to_the_plain_run(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: x * 2 + 1)
    compiled(put(X))
    device.error = 2
    np.testing.assert_array_equal(compiled(put(X)).get(), X * 2 + 1)
    assert compiled.stats.refusals == 1
    device.error = 0
    np.testing.assert_array_equal(compiled(put(X)).get(), X * 2 + 1)
    assert compiled.stats.refusals == 1 and compiled.stats.hits == 1


def test_errors_of_launches_name_kernel_and_error(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: x * 2 + 1)
    compiled(put(X))
    (program,) = compiled.programs
    device.error = 2
    with pytest.raises(dg.BackendError, match=r"^kernel k0 was not launched: CUDA error 2, "):
        program.executable(put(X))


def test_no_memory_left_is_cupys_own_error_and_the_next_call_works(device: CountingDevice, fake: Any, machine: Any) -> None:
    compiled = dg.compile(lambda x: fake.exp(x) + 1)
    x = put(np.ones(1000))
    compiled(x)
    gc.collect()
    fake.get_default_memory_pool().free_all_blocks()
    used, machine.memory[0] = machine.pool.used[0], machine.pool.used[0] + 100
    with pytest.raises(MemoryError, match=r"^Out of memory allocating 8,192 bytes$"):
        compiled(x)
    gc.collect()
    assert machine.pool.used[0] == used
    machine.memory[0] = 1 << 30
    np.testing.assert_allclose(compiled(x).get(), np.exp(np.ones(1000)) + 1)


def test_a_program_lets_go_of_arrays(device: CountingDevice, fake: Any) -> None:
    compiled = dg.compile(lambda x: (x @ x.T).sum(axis=0))
    for _ in range(3):
        x = put(X)
        result = compiled(x)
        of = weakref.ref(x), weakref.ref(result)
        del x, result
        gc.collect()
        assert of[0]() is None and of[1]() is None


def test_constants_are_uploaded_once(device: CountingDevice, fake: Any, monkeypatch: Any) -> None:
    compiled = dg.compile(lambda x: x * fake.asarray([1.0, 2.0, 3.0]) + 1)
    x = np.arange(6.0).reshape(2, 3)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(put(x)).get(), x * [1, 2, 3] + 1)
    assert len(device.sources) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("order", emulator.ORDERS)
def test_every_order_of_threads_gives_the_same(device: CountingDevice, fake: Any, order: str) -> None:
    def f(x: Any) -> Any:
        e = fake.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True), x.sum(axis=0), x.T * 2, fake.cumsum(x, axis=1), x.argmax(axis=0), x.sum()

    x = np.random.default_rng(0).standard_normal((50, 70)).astype(np.float32)
    compiled = dg.compile(f)
    with emulator.order("forward"):
        want = [r.get() for r in compiled(put(x))]
    with emulator.order(order):
        for got, expected in zip(compiled(put(x)), want):
            np.testing.assert_array_equal(got.get(), expected)


def test_products_of_halves_are_the_librarys(device: CountingDevice, fake: Any) -> None:
    """It sums them in float32, as NumPy does: no operand is widened before."""
    compiled = dg.compile(lambda x, y: x @ y)
    x, y = (np.random.default_rng(n).standard_normal((16, 16)).astype(np.float16) for n in range(2))
    for _ in range(2):
        result = compiled(put(x), put(y)).get()
        assert result.dtype == np.float16
        np.testing.assert_array_equal(result, x @ y)
    assert device.launches == []


def test_what_the_library_has_not_got_is_no_program_of_kernels(fake: Any) -> None:
    graph = Graph(library="cupy")
    x = graph.placeholder("x", Meta(dtypes.float64, (4,)))
    missing = FunctionCall("linalg.nothing", (Slot(0),))
    graph.output([graph.call(OPS["external_call"], x, call=missing, dtype=x.dtype, shape=x.shape)])
    with pytest.raises(NotForDevice, match=r"^cupy has no linalg\.nothing$"):
        compile_graph(graph, CuPy("cupy", fake), EmulatedDevice(fake))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[::-1], lambda x: x.T], ids=["C", "backwards", "Fortran"])
def test_large_arguments_take_indices_of_64_bits(device: CountingDevice, fake: Any, monkeypatch: Any, view: Any) -> None:
    """Also those whose results are small, and in calls that the dispatcher might serve by itself."""
    monkeypatch.setattr("dynagraph.backends.cuda.program.INT32_REACH", 1000)
    compiled = dg.compile(lambda x: x.sum(axis=1)[:2], dynamic=True)
    for n in (10, 12, 600, 14, 500):
        x = view(np.random.default_rng(n).standard_normal((n, 4) if view(np.ones((2, 1))).shape[0] == 2 else (4, n)))
        np.testing.assert_allclose(compiled(stand_in.laid(x)).get(), x.sum(axis=1)[:2], atol=1e-12)
        assert ("typedef int64_t dg_index" in device.sources[-1]) is (n >= 500) or n == 14, "which takes the program of before"
    assert any("typedef int32_t dg_index" in source for source in device.sources)


@pytest.mark.parametrize("call", [0, 1, 2], ids=["the first call", "a call by Python", "a call by the dispatcher"])
def test_an_error_behind_a_write_is_the_callers(device: CountingDevice, fake: Any, monkeypatch: Any, call: int) -> None:
    """The plain run would write to the argument a second time."""

    def step(x: Any, y: Any) -> Any:
        x += 1
        return x @ y

    def full(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError("Out of memory allocating 512 bytes")

    compiled = dg.compile(step)
    x, y = put(X.copy()), put(X.T.copy())
    for _ in range(call):
        compiled(x, y)
    with monkeypatch.context() as patch:
        patch.setattr(fake, "matmul", full)
        with pytest.raises(MemoryError, match=r"^Out of memory allocating 512 bytes$"):
            compiled(x, y)
    np.testing.assert_array_equal(x.get(), X + call + 1)
    np.testing.assert_allclose(compiled(x, y).get(), (X + call + 2) @ X.T)
    assert compiled.stats.refusals == 0


def test_a_forked_child_is_told_so(device: CountingDevice, fake: Any, monkeypatch: Any) -> None:
    """The plain run would only give CUDA's own words."""
    forked = CuPyDriver.__new__(CuPyDriver)
    monkeypatch.setattr(device, "device", lambda: forked.device() if state.is_lost else 0)
    compiled = dg.compile(lambda x: x + 1)
    x = put(X)
    compiled(x)
    monkeypatch.setattr(state, "is_lost", True)
    for _ in range(2):
        with pytest.raises(dg.CudaError, match=r"before it forked process \d+; CUDA does not survive a fork: start processes with"):
            compiled(x)
    assert compiled.stats.refusals == 0


def test_kernels_that_are_not_compiled_are_said_once(device: CountingDevice, fake: Any, monkeypatch: Any, caplog: Any) -> None:
    tried = []

    def refuse(*args: Any) -> Any:
        tried.append(args)
        raise dg.CompilerError("found no NVRTC")

    monkeypatch.setattr(device, "load", refuse)
    compiled = dg.compile(lambda x: x * 2 + 1)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(put(X)).get(), X * 2 + 1)
    assert len(tried) == 1 and caplog.text.count("its kernels were not compiled: found no NVRTC") == 1


# -- many arrays -----------------------------------------------------------------------------------------------------------------


def test_more_arrays_than_lie_on_the_stack(device: CountingDevice, fake: Any) -> None:
    """Kernels have room for so many addresses: what would take more is several ones."""
    n = 450
    with dg.config.override(compile_budget=None):
        compiled = dg.compile(lambda x, s, ys: [y * s for y in ys[:2]] + [x + y for y in ys], fullgraph=True)
        x, ys = put(np.arange(4.0)), [put(np.full(4, float(k))) for k in range(n)]
        for s in (np.float64(2.0), np.float64(-1.0), np.float64(3.0)):
            device.launches.clear()
            *scaled, last = compiled(x, s, ys)
            assert 1 < len(device.launches) < 10
            np.testing.assert_array_equal(last.get(), np.arange(4.0) + n - 1)
            np.testing.assert_array_equal(scaled[1].get(), np.full(4, 1.0) * s)
            assert len(scaled) == n + 1
    assert compiled.stats.hits == 2 and not compiled.stats.breaks and not compiled.stats.fallbacks


# -- signals -------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def handler_raises() -> Iterator[None]:
    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("enough")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def raises_after(function: Any, calls: int) -> Any:
    """The function, behind whose `calls`-th call a signal comes."""
    left = iter(range(calls - 1, -1, -1))

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if next(left, None) == 0:
            signal.raise_signal(signal.SIGUSR1)
        return result

    return disturbed


def times_heard(compiled: Any, want: np.ndarray) -> int:
    heard = 0
    with handler_raises():
        for _ in range(4):
            try:
                np.testing.assert_array_equal(compiled(put(X)).get(), want)
            except TimeoutError:
                heard += 1
    return heard


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_handler_that_raises_in_a_function_of_cupys_is_heard(
    device: CountingDevice, fake: Any, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    monkeypatch.setattr(fake, "sort", raises_after(fake.sort, call))
    assert times_heard(dg.compile(lambda x: fake.sort(x * 2) + 1), np.sort(X * 2) + 1) == 1


@pytest.mark.parametrize("at", ["device", "stream"])
def test_a_handler_that_raises_before_the_launches_is_heard(
    device: CountingDevice, fake: Any, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    monkeypatch.setattr(device, at, raises_after(getattr(device, at), 3))
    assert times_heard(dg.compile(lambda x: x + 1), X + 1) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["_start", "_start_all", "_run", "_prepare_call"])
@pytest.mark.parametrize("second", [False, True], ids=["first step", "second step"])
def test_a_handler_that_raises_has_nothing_written_twice(
    device: CountingDevice, fake: Any, monkeypatch: pytest.MonkeyPatch, name: str, second: bool
) -> None:
    def step(w: Any, g: Any) -> Any:
        total = (w * g).sum()
        w -= g
        return total

    compiled = dg.compile(step)
    memory = np.zeros(61)
    compiled(put(memory)[1:], put(memory)[1:])  # which begin at no multiple of 16: the dispatcher does not launch by itself
    plain, calls = getattr(DeviceProgram, name), 1 + second * (name == "_start")
    monkeypatch.setattr(DeviceProgram, name, raises_after(plain, calls))
    w, g = put(memory)[1:], put(memory + 1)[1:]
    with handler_raises(), pytest.raises(TimeoutError):
        compiled(w, g)
    assert w.get()[0] in (0, -1) and (w.get() == w.get()[0]).all()
