"""Loops of array operations on a device: their turns follow one another without Python, and are right."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.cuda import driver
from dynagraph.frontend.loops import outline
from tests.cuda.device import EmulatedDevice
from tests.cuda.products import QueuedProducts

RNG = np.random.default_rng(0)
X = np.linspace(-1.0, 1.0, 24)
A = RNG.standard_normal((6, 6)) + 12 * np.eye(6)
B = RNG.standard_normal(6)
ROWS, TARGETS, W = RNG.standard_normal((10, 4)), RNG.standard_normal(10), RNG.standard_normal(4)


@pytest.fixture(autouse=True)
def device(cp: Any) -> Iterator[Any]:
    if hasattr(cp, "machine"):
        driver.install(cp, QueuedProducts(cp))
    yield cp
    driver.install(cp, None)


@pytest.fixture
def at_once(cp: Any) -> Any:
    """Kernels are launched by C code: in Python code of an emulator's, signals would be lost."""
    if hasattr(cp, "machine"):
        driver.install(cp, EmulatedDevice(cp))
    return cp


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The host loops that are made."""
    made: list[Any] = []

    class Noted(outline.OutlinedLoop):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self.host)

    monkeypatch.setattr("dynagraph.frontend.executor.capture.OutlinedLoop", Noted)
    return made


def new_array(x: Any, n: int) -> Any:
    for _ in range(n):
        x = x + 0.1 * (x * x - x)
    return x


def by_slices(x: Any, n: int) -> Any:
    for _ in range(n):
        x[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
    return x


def two_buffers(x: Any, n: int) -> Any:
    y = x * 0
    for _ in range(n):
        y[1:-1] = 0.5 * (x[2:] + x[:-2])
        x, y = y, x
    return x, y


def by_index(x: Any, n: int) -> Any:
    for k in range(n):
        x = x + x * (0.5 / (k + 1)) + k % 3
        x = x / abs(x).max()
    return x, k


def jacobi(a: Any, b: Any, n: int) -> Any:
    d = 14.0
    x = b * 0
    for _ in range(n):
        x = x + (b - a @ x) / d
    return x


def descent(w: Any, rows: Any, targets: Any, n: int) -> Any:
    for _ in range(n):
        e = rows @ w - targets
        w = w - 0.01 * (rows.T @ e)
    return w, (e * e).sum()


def keeps_one(x: Any, n: int) -> Any:
    kept = x
    for k in range(n):
        if k == 7:
            kept = x
        x = x * 0.99 + 0.01
    return x, kept


def keeps_a_view(x: Any, n: int) -> Any:
    view = x[2:4]
    for k in range(n):
        if k == 7:
            view = x[2:4]
        x = x * 0.99 + 0.01
    return x, view


def earlier_ones(x: Any, n: int) -> Any:
    a = b = x
    for _ in range(n):
        a, b, x = b, x, x + 0.5 * a - 0.5 * b
    return a, b, x


def shrinks(x: Any, n: int) -> Any:
    for _ in range(n):
        if len(x) > 3:
            x = x[1:] * 0.5 + x[:-1] * 0.5
    return x


def breaks_off(x: Any, n: int) -> Any:
    turns = 0
    for _ in range(n):
        x = x * 0.9
        turns += 1
        if turns == 130:
            break
    else:
        x = x + 1
    return x, turns


def returns(x: Any, n: int) -> Any:
    for k in range(n):
        x = x * 0.9
        if k == 110:
            return x, "early"
    return x, "late"


def of_sums(x: Any, n: int) -> Any:
    total = x.sum()
    for _ in range(n):
        x = x * 0.9 - total / (100 * x.size)
        total = (x * x).sum()
    return x, total


def over_enumerate(x: Any, n: int) -> Any:
    for k, factor in enumerate([0.5, 0.25] * (n // 2)):
        x = x * factor + k
    return x


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    f.__name__: (f, (X,))
    for f in (
        new_array, by_slices, two_buffers, by_index, keeps_one, keeps_a_view, earlier_ones, shrinks, breaks_off, returns, of_sums,
        over_enumerate,
    )
} | {"jacobi": (jacobi, (A, B)), "descent": (descent, (W, ROWS, TARGETS))}  # fmt: skip


QUIET = {"new_array", "by_slices", "two_buffers", "by_index", "jacobi", "descent", "of_sums", "earlier_ones"}


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        if isinstance(other, (int, str)):
            assert one == other and type(one) is type(other)
        else:
            np.testing.assert_allclose(one.get(), other, 1e-9, 1e-12)


def outcome(function: Callable[..., Any], arrays: list[Any], n: int) -> Any:
    try:
        return function(*arrays, n)
    except UnboundLocalError as error:
        return type(error)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", CASES)
def test_loops_are_right_for_any_number_of_turns(cp: Any, name: str, mode: Any) -> None:
    function, values = CASES[name]
    compiled = dg.compile(function, mode=mode)
    for n in (100, 161, 0, 1, 2, 162):
        given, plain = [cp.asarray(v) for v in values], [v.copy() for v in values]
        wanted, found = outcome(function, plain, n), outcome(compiled, given, n)
        if isinstance(wanted, type):
            assert found is wanted
            continue
        same(found, wanted)
        same(tuple(given), tuple(plain))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(QUIET))
def test_no_python_code_runs_in_a_turn(cp: Any, name: str, loops: list[Any]) -> None:
    function, values = CASES[name]
    compiled = dg.compile(function)
    arrays = [cp.asarray(v) for v in values]
    for n in (300, 301, 302):
        compiled(*arrays, n)
    compiles = compiled.stats.compiles
    assert all("[loop-on-device]" in line for line in compiled.stats.breaks)
    turns, quiet = (sum(getattr(loop, what) for loop in loops) for what in ("turns", "quiet_turns"))
    compiled(*arrays, 1000)
    assert compiled.stats.compiles == compiles
    assert sum(loop.turns for loop in loops) - turns == 999  # the first is its own
    assert sum(loop.quiet_turns for loop in loops) - quiet == 999


def test_memory_that_turns_give_up_is_used_again(fake: Any) -> None:
    driver.install(fake, QueuedProducts(fake))
    x = fake.asarray(X)
    compiled = dg.compile(new_array)
    for n in (300, 301, 302):
        compiled(x, n)
    made: list[Any] = []
    allocate = fake.machine.pool.allocate
    fake.machine.pool.allocate = lambda *args: made.append(args) or allocate(*args)
    same(compiled(x, 1000), new_array(X, 1000))
    assert len(made) <= 100  # two at first, and each time that other threads had their turn


def test_the_callers_arrays_are_left_alone(cp: Any) -> None:
    compiled = dg.compile(new_array)
    x = cp.asarray(X)
    view = x[::2]
    results = [compiled(x, n) for n in (200, 201, 300, 301)]
    same((x, view), (X, X[::2]))
    for n, result in zip((200, 201, 300, 301), results):
        same(result, new_array(X, n))


def both(x: Any, y: Any, n: int) -> Any:
    for _ in range(n):
        x[1:] += 0.1 * y[:-1]
        y = y * 0.99
    return y


@pytest.mark.parametrize("shift", [0, 2, 12])
def test_arrays_that_share_memory(cp: Any, shift: int) -> None:
    compiled = dg.compile(both)
    for n in (200, 201, 300):
        given, plain = cp.asarray(X), X.copy()
        found, wanted = (both_of(a[:12], a[shift : shift + 12], n) for both_of, a in ((compiled, given), (both, plain)))
        same((found, given), (wanted, plain))


def raises_late(x: Any, n: int, at: int) -> Any:
    for k in range(n):
        x += 1.0
        if k == at:
            raise ValueError(f"turn {k}")
        x *= 0.5
    return x


def test_errors_leave_what_was_done(cp: Any) -> None:
    compiled = dg.compile(raises_late)
    for n, at in ((300, 999), (300, 250), (300, 0), (300, 299)):
        given, plain = cp.asarray(X), X.copy()
        for function, x in ((compiled, given), (raises_late, plain)):
            if at < n:
                with pytest.raises(ValueError, match=f"turn {at}"):
                    function(x, n, at)
            else:
                function(x, n, at)
        same(given, plain)


def test_a_kernel_that_is_not_launched(fake: Any) -> None:
    """The plain function does the turn."""
    refusing = QueuedProducts(fake)
    driver.install(fake, refusing)
    compiled = dg.compile(new_array)
    x = fake.asarray(X)
    for n in (300, 301):
        compiled(x, n)
    queue, count = refusing._queue, 0

    def refuses(*args: Any) -> int:
        nonlocal count
        count += 1
        return 700 if count % 50 == 7 else queue(*args)

    replaced = driver.LaunchFunction(refuses)
    refusals = compiled.stats.refusals
    compiled.reset()
    refusing._launch = replaced
    same(compiled(x, 300), new_array(X, 300))
    assert count > 200 and compiled.stats.refusals >= refusals


def counts(x: Any, n: int) -> Any:
    for _ in range(n):
        x += 1.0  # here
    return x


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_it_at_the_users_line(at_once: Any, sigint: None) -> None:
    compiled = dg.compile(counts)
    x = at_once.asarray(X)
    for n in (300, 301, 302):
        compiled(x, n)
    x[...] = 0.0
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as raised:
        compiled(x, 10**12)
    assert time.monotonic() - start < 5
    timer.join()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert any(frame.name == "counts" and "range(n)" in (frame.line or "") for frame in frames)
    values = x.get()
    assert values[0] > 100 and (values == values[0]).all()
    same(compiled(x, 300), values + 300)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_handlers_of_signals_run_between_turns(at_once: Any) -> None:
    compiled = dg.compile(counts)
    x = at_once.asarray(X)
    for n in (300, 301, 302):
        compiled(x, n)
    x[...] = 0.0
    seen: list[float] = []

    def handler(*_: Any) -> None:
        values = x.get()
        assert (values == values[0]).all()
        seen.append(values[0])
        if len(seen) == 3:
            x[...] = -1e6  # a handler may do that

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)  # a turn takes 4 us on a GPU
    try:
        compiled(x, 15_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 3 and seen[:3] == sorted(seen[:3])
    assert (x.get() == 15_000 - seen[2] - 1e6).all()


def test_other_threads_have_their_turns(at_once: Any) -> None:
    compiled = dg.compile(counts)
    x = at_once.asarray(X)
    for n in (300, 301, 302):
        compiled(x, n)
    at: list[float] = []
    ended = threading.Event()

    def watches() -> None:
        while not ended.is_set():
            at.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=watches)
    thread.start()
    start = time.monotonic()
    compiled(x, 20_000)
    took = time.monotonic() - start
    ended.set()
    thread.join()
    assert len(at) > took / 0.1


def test_streams_are_looked_up_again(cp: Any) -> None:
    """A turn may make another one current."""
    stream = cp.cuda.Stream(non_blocking=True)

    def switch() -> None:
        dg.cuda.synchronize(0)
        stream.use()

    def switches(x: Any, n: int) -> Any:
        for k in range(n):
            x = x * 0.5 + 1.0
            if k == 150:
                switch()
        return x

    compiled = dg.compile(switches)
    null = cp.cuda.Stream.null
    for n in (300, 301):
        try:
            result = compiled(cp.asarray(X), n)
            dg.cuda.synchronize(0)
        finally:
            null.use()
        wanted = X
        for _ in range(n):
            wanted = wanted * 0.5 + 1.0
        same(result, wanted)


def elements(x: Any, n: int) -> Any:
    s = x[0] * 0
    for i in range(n):
        s = s + x[i % len(x)] * i
    return s


def test_loops_over_elements_are_right(cp: Any) -> None:
    compiled = dg.compile(elements)
    for n in (200, 201, 7, 0):
        same(compiled(cp.asarray(X), n), np.asarray(elements(X, n)))


def seen(compiled: Any) -> list[str]:
    return [line.split(": ", 1)[1] for program in compiled.programs for line in program.loops]


def test_what_is_said_of_loops(cp: Any) -> None:
    compiled = dg.compile(new_array)
    compiled(cp.asarray(X), 200)
    how = "goes from turn to turn in C, and its body is compiled once for all turns; its arrays lie on a device"
    assert f"`for _ in range(n):` {how}" in seen(compiled)


def numbers(x: Any, n: int) -> Any:
    total, k = 0, 1
    while k < n:
        total += k * k % 7
        k += 1
    return x * total


def test_loops_over_numbers_stay_on_the_host(cp: Any) -> None:
    compiled = dg.compile(numbers)
    for n in (500, 501, 1):
        same(compiled(cp.asarray(X), n), numbers(X, n))
    assert any("runs as machine code" in line for line in seen(compiled))


def relaxes(x: Any, n: int) -> Any:
    for _ in range(n):
        for i in range(1, len(x) - 1):
            x[i] = 0.5 * (x[i - 1] + x[i + 1])
    return x * 2


def sums(x: Any, n: int) -> Any:
    for _ in range(n):
        x = x + 0.1 * x.sum() / x.size
    return x


def squares(a: Any, n: int) -> Any:
    for _ in range(n):
        a = a @ a
        a = a / a.max()
    return a


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_loops_over_elements_of_numpys_arrays_are_native(fake: Any, device: str) -> None:
    driver.install(fake, QueuedProducts(fake))
    compiled = dg.compile(relaxes, device=device)
    for n in (40, 41, 0, 300):
        np.testing.assert_allclose(compiled(X.copy(), n), relaxes(X.copy(), n), 1e-13)
    assert sum("runs as machine code" in line for line in seen(compiled)) >= 2


def test_whole_arrays_of_loops_are_placed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = QueuedProducts(fake)
    driver.install(fake, installed)
    for function, device, x, wanted in (
        (sums, "auto", X, "runs as machine code"),
        (sums, "cuda", X, "is unrolled; Python would do a part of each turn: line"),
        (squares, "auto", abs(A), "runs as machine code"),
        (squares, "large", abs(A), "is unrolled; Python would do a part of each turn: line"),
    ):
        monkeypatch.setattr("dynagraph.frontend.loops.capture.LARGE_MATRIX", 1 if device == "large" else 1 << 18)
        launched = installed.launches
        compiled = dg.compile(function, device="auto" if device == "large" else device)
        np.testing.assert_allclose(compiled(x.copy(), 12), function(x.copy(), 12), 1e-10)
        assert any(wanted in line for line in seen(compiled)), seen(compiled)
        assert (installed.launches > launched) is (device == "cuda")  # on paper, these sizes are the host's


def power(a: Any, v: Any, tol: float) -> Any:
    error, turns = 1.0, 0
    while error > tol:
        u = a @ v
        u = u / (u * u).sum()
        error = float(abs(u - v).max())
        v = v * 0.5 + u * 0.5
        turns += 1
        if turns > 400:
            break
    return v, turns


def test_numbers_that_are_read_back(cp: Any) -> None:
    compiled = dg.compile(power)
    symmetric = A + A.T
    compiles = 0
    for tol in (1e-2, 1e-6, 2.0, 1e-9, 1e-3, 1e-5, 3e-5):
        compiles = compiled.stats.compiles if tol == 1e-5 else compiles  # now there is a program for either answer
        same(compiled(cp.asarray(symmetric), cp.asarray(B), tol), power(symmetric, B, tol))
    assert compiled.stats.compiles == compiles and compiled.stats.fallbacks == 0
