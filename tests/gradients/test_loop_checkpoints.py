"""Gradients of loops by checkpoints: those of the whole loop to the last bit, in little memory."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.loops import loop_pieces, nodes
from dynagraph.frontend.loops.loop_calls import LoopGradient
from tests.gradients import test_loops
from tests.gradients.test_random_loops import N, Program

R = np.random.default_rng(17)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces there were, of each gradient; the first ones have one turn."""
    found: list[int] = []
    forward = loop_pieces._Run.forward

    def counted(run: Any) -> Any:
        done = forward(run)
        found.append(len(done))
        return done

    monkeypatch.setattr(loop_pieces, "FIRST_TURNS", 1)
    monkeypatch.setattr(loop_pieces._Run, "forward", counted)
    return found


def bits(values: Any) -> bytes:
    return b"".join(np.asarray(v).tobytes() for v in values)


def lends_arrays(x, out):
    """Arrays that are views, are exchanged, lie where others did, and are written to after they were read."""
    a, b = x.copy(), np.zeros_like(x)
    last = x[1:]
    for t in range(30):
        for i in range(x.size):
            b[i] = 0.9 * a[i] + 0.1 * a[i - 1] * last[t % last.size]
        out[t % 4] += b[t % 4]
        a, b = b, a
        if t % 5 == 4:
            last = a[2:]
        if t == 17:
            b = a
    return (a * b).sum() + out.sum()


def two_loops(x):
    s = 0.3
    for v in x:
        s = np.tanh(s + v)
    y = x * s
    while s > 0.01:
        for i in range(3):
            y[i] *= 1.0 - s * 0.1
        s *= 0.9
    return y.sum()


CHOSEN = ("heat_of_slices", "recurrent", "leaves_early", "what_follows_is_not_native", "of_single_precision")
PROGRAMS = [p for p in test_loops.PROGRAMS if p[0].__name__ in CHOSEN]
PROGRAMS += [(lends_arrays, (R.normal(size=6), R.normal(size=4)), (0,)), (two_loops, (R.normal(size=40),), (0,))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("function", "arguments", "by"), PROGRAMS, ids=[f.__name__ for f, _, _ in PROGRAMS])
def test_bits_of_the_whole_loop(function: Any, arguments: tuple, by: tuple[int, ...], pieces: list[int]) -> None:
    gradient = dg.grad(function, by)

    def given() -> list[Any]:
        return [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]

    whole = gradient(*given())
    assert not pieces
    with dg.config.override(tape_limit=0):
        found = gradient(*given())
    assert pieces and max(pieces) > 2
    assert bits(found) == bits(whole)
    assert not gradient.program.stats.fallbacks


def test_second_derivatives(pieces: list[int]) -> None:
    def smoothed(x):
        x = x.copy()
        for _ in range(20):
            for i in range(1, x.size):
                x[i] = 0.5 * x[i] + 0.5 * np.sin(x[i - 1])
        return x @ x

    second = dg.compile(lambda x, v: dg.hvp(smoothed, (x,), (v,)))
    x, v = R.normal(size=(2, 5))
    whole = second(x, v)
    with dg.config.override(tape_limit=0):
        found = second(x, v)
    assert bits(found) == bits(whole) and len(pieces) == 1 and pieces[0] > 2


@pytest.mark.fuzz
def test_of_many_random_loops(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_OF_SMALL", 1)
    assert all(compare(seed) for seed in range(3000, 3050))
    assert len(pieces) > 25


def compare(seed: int) -> bool:
    """Whether a random program's second derivatives are those of the whole loop."""
    r = np.random.default_rng(seed)
    given, ways = (r.normal(size=N), float(r.normal())), (r.normal(size=N), float(r.normal()))
    f = Program(seed).function()
    second = dg.compile(lambda x, v: dg.hvp(f, x, v))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = second(given, ways)
        with dg.config.override(tape_limit=0):
            found = second(given, ways)
    return bits(found) == bits(whole)


def gradients_called(program: Any) -> list[LoopGradient]:
    graphs = [p.captured.graph for p in program.decorated.programs]
    calls = [node.attrs["call"].function for graph in graphs for node in graph.nodes if node.is_op("external_call")]
    return [c for c in dict.fromkeys(calls) if isinstance(c, LoopGradient)]


def decaying(x, n):
    for _ in range(n):
        x = x * 0.999
    return x


def test_checkpoints_are_for_large_tapes(pieces: list[int]) -> None:
    gradient = dg.grad(decaying)
    short = gradient(1.5, 500)
    with dg.config.override(tape_limit=400_000):
        assert gradient(1.5, 500) == short and not pieces
        long = gradient(1.5, 50_000)
        assert len(pieces) == 1 and pieces[0] > 10
        assert gradient(1.5, 500) == short  # this one shows that tapes have become small again
        assert gradient(1.5, 500) == short and len(pieces) == 2
    assert gradient(1.5, 50_000) == long and len(pieces) == 2
    assert long == pytest.approx(0.999**50_000, rel=1e-9)


def test_functions_without_loops_have_no_checkpoints(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def branch(x):
        return np.sin(x[0]) * x[1] if x[0] > 0.5 else x[1] ** 3

    gradient = dg.grad(branch)
    x = np.array([0.7, 0.2])
    with dg.config.override(tape_limit=0):
        np.testing.assert_allclose(gradient(x), [np.cos(0.7) * 0.2, np.sin(0.7)], rtol=1e-15)
    assert len(gradients_called(gradient.program)) == 1 and not pieces


def test_an_error_is_raised_at_the_users_line(pieces: list[int]) -> None:
    def reads_too_far(x, n):
        s = 0.0
        for i in range(n):
            s += x[i] * x[i]
        return s

    gradient = dg.grad(reads_too_far)
    x = R.normal(size=300)
    with dg.config.override(tape_limit=0):
        np.testing.assert_array_equal(gradient(x, 300), 2 * x)
        with pytest.raises(IndexError, match="index 300 is out of bounds"):
            gradient(x, 301)


def test_handlers_of_signals_run_meanwhile(pieces: list[int]) -> None:
    def slow(x, n):
        for _ in range(n):
            for i in range(1, x.size):
                x[i] = 0.5 * (x[i] + x[i - 1])
        return x.sum()

    x, calls = R.normal(size=50), []
    gradient = dg.grad(lambda x, n: slow(x.copy(), n))
    want = gradient(x, 4000)
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    try:
        with dg.config.override(tape_limit=0):
            gradient(x, 100)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            found = gradient(x, 4000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(calls) > 1 and len(pieces) == 2
    np.testing.assert_array_equal(found, want)


SCRIPT = """
import resource
import numpy as np, dynagraph as dg

def diffuse(u, n):
    u = u.copy()
    for _ in range(n):
        u[1:-1] = u[1:-1] + 0.1 * (u[:-2] - 2 * u[1:-1] + u[2:])
    return u @ u

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

dg.config.compile_budget = None
gradient = dg.grad(diffuse)
u = np.random.default_rng(0).normal(size=1000)
with dg.config.override(tape_limit=0):
    gradient(u, 100)
before = peak()
with dg.config.override(tape_limit=1 << 24):
    found = gradient(u, 100_000)
ones = np.ones(1000)
print(peak() - before, bool(np.isfinite(found).all() and abs(found).max() > 0))
"""


def test_memory_is_bounded() -> None:
    """100 000 steps on 1000 floats, which are 800 MB, and several times as much on a tape."""
    made = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    mebibytes, is_right = made.stdout.split()
    assert int(mebibytes) < 120 and is_right == "True"
