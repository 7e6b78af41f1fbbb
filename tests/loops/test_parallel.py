"""Loops whose turns run on several threads give what they give on one, and in Python: bits, exits, errors, signals."""

from __future__ import annotations

import copy
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c import regions
from tests import sampling
from tests.ir.test_fast_loops import outcome, same
from tests.programs.loops import linear, physics

PARALLEL = "its turns run in parallel"


@pytest.fixture(autouse=True)
def any_loop_is_worth_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(regions, "PARALLEL_NANOSECONDS", 0)
    monkeypatch.setattr(regions, "LOOK_NANOSECONDS", 0)
    with dg.config.override(threads=3):
        yield


def is_parallel(function: Any) -> bool:
    return any(PARALLEL in loop for program in function.programs for loop in program.loops)


def check(function: Callable[..., Any], *calls: tuple, parallel: bool | None = True) -> Any:
    compiled = dg.compile(function)
    for args in calls:
        with np.errstate(all="ignore"):
            want = outcome(function, args)
        for threads in (1, 2, 3):
            with dg.config.override(threads=threads), np.errstate(all="ignore"):
                got = outcome(compiled, args)
            assert same(got, want), (function.__doc__, threads, args, got, want)
    assert parallel is None or is_parallel(compiled) == parallel, [p.loops for p in compiled.programs]
    return compiled


def product(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def escapes(xs, ys, limit, image):
    for i, cy in enumerate(ys):
        for j, cx in enumerate(xs):
            x = y = 0.0
            n = 0
            while x * x + y * y <= 4.0 and n < limit:
                x, y = x * x - y * y + cx, 2.0 * x * y + cy
                n += 1
            image[i, j] = n


def columns(a, out):
    for j in range(a.shape[1]):
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i, j]
        for i in range(a.shape[0]):
            out[i, j] = a[i, j] / s
    return s


def pairs(x, y):
    for i in range(0, len(x) - 1, 2):
        x[i], x[i + 1] = x[i + 1] * y[i], x[i] - y[0]
    return x


def backwards(x, out, n):
    last = 0.0
    for i in range(n - 1, -1, -1):
        out[i] = x[-i - 1] * 2.0
        last = x[i] + 1.0
    return last


R = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (product, [(R.random((9, 7)), R.random((7, 12)), np.zeros((9, 12)))]),
        (product, [(R.random((4, 3)), R.random((3, 6)), np.ones((6, 4)).T)]),
        (escapes, [(np.linspace(-2, 1, 11), np.linspace(-1, 1, 9), 30, np.zeros((9, 11), np.uint8))]),
        (columns, [(R.random((5, 8)), np.zeros((5, 8))), (R.random((8, 5)).T, np.zeros((5, 16))[:, ::2])]),
        (pairs, [(R.random(40), R.random(40)), (R.random(80)[::-2], R.random(40))]),
        (backwards, [(R.random(50), np.zeros(50), 50), (R.random(50), np.zeros(100)[::2], 50)]),
    ],
)
def test_loops_on_threads_do_what_python_does(function, calls) -> None:
    check(function, *calls, *calls)


@pytest.mark.parametrize("seed", range(2))
def test_random_nests(seed: int) -> None:
    """Of indices, of what turns carry, and of what they may leave for."""
    chosen = random.Random(seed)
    made = [random_nest(chosen) for _ in range(8)]
    compiled = [check(function, *calls, parallel=None) for function, calls in made]
    assert any(map(is_parallel, compiled))


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="runs this file where no other threads are: there it is run")
def test_all_of_this_without_other_python_threads() -> None:
    """These keep loops that may give up on one thread."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=", __file__]
    command += ["--all-cases"] * sampling.all_cases
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stdout[-3000:]


def random_nest(chosen: random.Random) -> tuple[Callable[..., Any], list[tuple]]:
    index = chosen.choice(["i", "i", "i", "n - 1 - i", "i - 1", "i + 1", "2 * i"])
    other = chosen.choice([index, index, index, "j", "i - 1", "n - 1", "-1"])
    place = chosen.choice(["A[{0}, j]", "A[j, {0}]", "x[{0}]"]).format(index)
    read = chosen.choice(["A[{0}, j]", "B[{0}, j]", "B[j, {0}]", "y[{0}]", "x[{0}]", place]).format(other)
    values = [f"{read} + t", f"{read} / (j - 2.0)", f"math.sqrt({read} - 0.2)", f"t * {read}", "t + i * k", f"v + {read}"]
    value = chosen.choice(values)
    carried = chosen.choice(["", "", "", "", "k = k * 3 + i", "v = v + 1.0", "if t > 0.7: v = t"])
    source = f"""
def f(A, B, x, y, n, m, k, v):
    t = 0.0
    for i in range({chosen.choice(["n", "1, n", "0, n, 2", "n - 1, -1, -1"])}):
        {chosen.choice(["t = 0.0", "t = y[i]", "t = 2.0", "pass"])}
        for j in range({chosen.choice(["m", "i", "1, m"])}):
            {carried or "pass"}
            t = {read} * 0.5 + t
            {place} {chosen.choice(["=", "+="])} {value}
        {chosen.choice(["x[i] = t", "pass", "if t > 3.0: break", "if t > 9.0: raise ValueError(i)"])}
    return i, t, k, v
"""
    space: dict[str, Any] = {}
    exec("import math\n" + source, space)
    space["f"].__doc__ = source
    calls = []
    for _ in range(3):
        r = np.random.default_rng(chosen.randrange(2**32))
        n, m = chosen.choice([(12, 9), (9, 9), (20, 5)])
        a, b, x, y = r.random((n + 1, n + 1)), r.random((n + 1, n + 1)), r.random(2 * n), r.random(2 * n)
        share = chosen.randrange(5)
        if share == 1:
            b = a.T
        elif share == 2:
            y = x[1:]
        elif share == 3:
            x = a.reshape(-1)[: 2 * n]
        calls.append((a, b, x, y, n, m, 2 ** chosen.choice([3, 40]), 0.5))
    return space["f"], calls


# -- what turns share ----------------------------------------------------------------------------------------------------------


def moves(x, out):
    for i in range(len(out)):
        out[i] = x[i] * 2.0
    return i


@pytest.mark.parametrize("shift", [0, 1, -1, 7])
def test_arrays_that_overlap_are_left_to_the_loop_itself(shift: int) -> None:
    base = R.random(500)
    compiled = dg.compile(moves)
    for held in (copy.deepcopy(base), copy.deepcopy(base)[::-1]):
        want = held.copy()
        for function, a in ((moves, want), (compiled, held)):
            function(a[10 + shift : 400 + shift], a[10:400])
        assert same(held, want)
    assert is_parallel(compiled)


def test_an_array_whose_elements_share_memory_is_left_to_the_loop_itself() -> None:
    def adds(a, b):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] += b[i, j]

    compiled = dg.compile(adds)
    for strides in ((8, 8), (16, 8), (80, 8), (-8, 8)):
        want, got = R.random(400), None
        got = want.copy()
        for function, memory in ((adds, want), (compiled, got)):
            function(np.lib.stride_tricks.as_strided(memory[100:], (9, 10), strides), np.arange(90.0).reshape(9, 10))
        assert same(got, want), strides


@pytest.mark.parametrize(
    "line",
    [
        "x[i] = x[i - 1] + y[i]",
        "x[i] = x[i + 1]",
        "x[int(y[i])] = i",
        "x[0] = y[i]",
        "s += y[i]; x[i] = s",
        "x[i] = x[n - 1 - i]",
    ],
)
def test_loops_whose_turns_depend_on_one_another(line: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def f(x, y, n):\n    s = 0.0\n    for i in range(1, n):\n        {line}\n    return s", space)
    check(space["f"], (R.random(60), R.random(60), 50), parallel=False)


# -- exits ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 17, 39])
def test_errors_leave_arrays_as_python_does(at: int) -> None:
    def divides(x, y, out):
        for i in range(len(x)):
            for j in range(4):
                out[i, j] = 1.0 / int(y[i] * 8) + x[j]

    def gathers(x, y, out):
        for i in range(len(x)):
            for j in range(4):
                out[i, j] += x[int(y[i] * 8)]

    x, y = R.random(40), np.ones(40)
    y[at] = 0.0
    check(divides, (x, y, np.zeros((40, 4))))
    y[at] = 1e6
    check(gathers, (x, y, np.ones((40, 4))), (x, np.ones(40), np.ones((39, 4))), (x, np.ones(40), np.ones((40, 4))))


def test_what_is_written_to_a_read_only_array() -> None:
    out = np.zeros(100)
    out.flags.writeable = False
    check(moves, (R.random(100), out))


def test_exits_that_python_does_and_goes_on_from() -> None:
    def grows(x, out, k):
        for i in range(len(x)):
            n = k
            for _ in range(8):
                n = n * 3 + i
            out[i] = n % 1000

    compiled = check(grows, *((R.random(30), np.zeros(30), k) for k in (2**40, 2**62, 3)))
    assert compiled.stats.side_exits.total() >= 1


def test_what_variables_are_where_a_turn_gives_up() -> None:
    def until(x, out, last):
        for i in range(len(x)):
            if x[i] > 5.0:
                break
            last = x[i] + 1.0
            for j in range(2):
                out[i, j] = last
        return last

    calls = []
    for at in range(50):
        x = R.random(50)
        x[at] = 9.0
        calls.append((x, np.zeros((50, 2)), 0.0))
    check(until, *calls)


def long_turns(out, n, turns):
    for i in range(n):
        s = 0.0
        for j in range(turns):
            s = s * 0.5 + j
        out[i] = s


def test_ctrl_c_leaves_arrays_as_after_the_turns_before() -> None:
    compiled = dg.compile(long_turns)
    out = np.zeros(50)
    compiled(out, 50, 100)
    full = np.zeros(400)
    compiled(full[:1], 1, 2_000_000)
    out = np.full(4000, -1.0)
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    start = time.process_time()  # all threads', whatever else the machine does
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(out, 4000, 2_000_000)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert time.process_time() - start < 0.3 + 0.5
    done = int((out != -1.0).sum())
    assert 0 < done < 4000
    assert (out[:done] == full[0]).all() and (out[done:] == -1.0).all()


def test_signals_that_are_handled_do_not_stop_it() -> None:
    def handled(*_: Any) -> None:
        seen.append(1)

    seen: list[int] = []
    compiled = dg.compile(long_turns)
    out, want = np.zeros(60), np.zeros(60)
    long_turns(want[:1], 1, 20_000)
    compiled(out, 60, 10)
    before = signal.signal(signal.SIGALRM, handled)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        compiled(out, 60, 20_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (out == want[0]).all()


def test_programs() -> None:
    r = np.random.default_rng(1)
    check(linear.matrix_product, (r.random((20, 10)), r.random((10, 15))))
    check(physics.mandelbrot_of_floats, (np.linspace(-2, 1, 30), np.linspace(-1, 1, 20), 20))
