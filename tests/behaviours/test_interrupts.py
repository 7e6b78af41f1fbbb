"""Ctrl-C in the midst of kernels that take seconds: at once, with nothing half done, and the function works afterwards."""

from __future__ import annotations

import textwrap

import pytest

from tests.behaviours.test_coexistence import succeeds

START = """
import os, signal, time
import numpy as np
import dynagraph as dg

signal.signal(signal.SIGALRM, signal.default_int_handler)
dg.config.threads = {threads}
SOON = 0.2 * max(1, os.getloadavg()[0] / os.cpu_count())  # seconds from the signal to the exception, on a busy machine more

class Interrupt:
    "Ctrl-C after so many seconds, by the system's timer: it needs no thread of Python's."

    def __init__(self, after):
        self.after, self.came = after, None

    def __enter__(self):
        self.sent = time.perf_counter() + self.after
        signal.setitimer(signal.ITIMER_REAL, max(self.after, 1e-6))
        return self

    def __exit__(self, kind, error, traceback):
        self.came = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0)

def interrupted(after, function, *args):
    "Seconds from the signal to the exception."
    interrupt = Interrupt(after)
    try:
        with interrupt:
            function(*args)
    except KeyboardInterrupt:
        return interrupt.came - interrupt.sent
    raise AssertionError("no interrupt")

def patiently(function, *args):
    "The machine may not run us for a while: the quickest of a few."
    took = []
    for _ in range(4):
        took.append(interrupted(0.15, function, *args))
        if took[-1] < SOON:
            return
    raise AssertionError(f"{{function.__name__}}: {{took}} s from the signal to the exception")
"""


def runs(text: str, threads: int = 1) -> str:
    return succeeds(START.format(threads=threads) + textwrap.dedent(text))


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_every_kind(threads: int) -> None:
    """Each would take seconds."""
    runs(
        """
    def values(n):
        return np.exp(np.sin(np.arange(n) * 1e-9) * np.cos(np.arange(n) * 1e-7))

    def distances(n):
        x = np.arange(n) / n
        return np.exp(-(x[:, None] - x) ** 2)

    def wave(n):
        return values(n)

    def total(n):
        return values(n).sum()

    def spread(n):
        return values(n).std()

    def product(n):
        return np.prod(values(n))

    def largest(n):
        return values(n).max()

    def position(n):
        return values(n).argmax()

    def count(n):
        return (values(n) > 0.5).sum()

    def found(n):
        return (values(n) > 3).any(), (values(n) > 3).argmax()

    def scan(n):
        return np.cumsum(values(n))

    def rows(n):
        return distances(n).sum(axis=1)

    def columns(n):
        return distances(n).max(axis=0)

    def positions(n):
        return distances(n).argmin(axis=0)

    def several(n):
        x = values(n)
        for _ in range(30):
            x = x - x.mean()
        return x

    functions = (total, product, largest, position, count, found, wave, scan, several, rows, columns, positions)
    lengths = {wave: 300_000_000, scan: 300_000_000, several: 50_000_000, rows: 100_000, columns: 100_000, positions: 100_000}
    for f in (total, rows, wave) if THREADS == 2 else functions:
        g = dg.compile(f, dynamic=True)
        wanted = f(50)
        g(50)
        g(60)
        patiently(g, lengths.get(f, 2_000_000_000))
        given = g(50)
        np.testing.assert_allclose(given, wanted, rtol=1e-13)
        assert g.stats.hits >= 1, (f.__name__, g.stats)
    """.replace("THREADS", str(threads)),
        threads,
    )


def test_arguments_are_written_to_as_a_whole_or_not_at_all() -> None:
    runs("""
    def f(x, y):
        z = np.exp(-(x[:, None] - y) ** 2).sum(axis=1)
        x += z - z + 1
        y[::2] = np.sin(y[::2])

    x, y = np.zeros(3000), np.linspace(0, 1, 3000)
    g = dg.compile(f)
    g(x, y)
    for k in range(40):
        before, values = x.copy(), y.copy()
        interrupt = Interrupt(0.002 * k)
        try:
            with interrupt:
                g(x, y)
        except KeyboardInterrupt:
            pass
        assert (x == x[0]).all() and x[0] - before[0] in (0, 1), (k, x)
        assert y[::2].tolist() in (values[::2].tolist(), np.sin(values[::2]).tolist()) or np.allclose(y[::2], np.sin(values[::2]))
        assert (y[::2] == values[::2]).all() == (x == before).all()
    """)


def test_the_functions_own_try_blocks_see_it() -> None:
    output = runs("""
    def heavy(x, y):
        return np.exp(-(x[:, None] - y) ** 2).sum()

    @dg.compile(dynamic=True)
    def whole(x, y, log):
        try:
            log.append("in")
            return heavy(x, y)
        finally:
            log.append("out")

    @dg.compile(dynamic=True)
    def broken(x, y, log):
        try:
            log.append("in")
            if x.sum() > -1:
                x = x + 1
            return heavy(x, y)
        except KeyboardInterrupt:
            log.append("caught")
            raise
        finally:
            log.append("out")

    x = np.linspace(0, 1, 200_000)
    for f in (whole, broken):
        for n in (50, 60, 70):
            f(x[:n], x[:n], [])
        log = []
        print(f"{interrupted(0.3, f, x, x, log) < 1.0}", log)
        assert f(x[:70], x[:70], log) > 0
        print(log)
    """)
    assert output.splitlines() == [
        "True []",
        "['in', 'out']",
        "True ['in', 'caught', 'out']",
        "['in', 'caught', 'out', 'in', 'out']",
    ]


def test_gradients_memory_and_handlers() -> None:
    runs("""
    import resource

    def loss(w, x):
        return (np.exp(-(x[:, None] - w) ** 2) * np.sin(w)).sum()

    small, x = np.linspace(0, 1, 50), np.linspace(0, 1, 15_000)
    gradient = dg.compile(dg.grad(loss), dynamic=True)
    gradient(small[:40], small)
    wanted = gradient(small, small)
    patiently(gradient, x, x)
    assert gradient(small, small).tolist() == wanted.tolist()

    # a hundred interruptions keep nothing
    def f(x):
        y = np.exp(np.sin(x) * np.cos(x)) ** 1.5
        return y - y.mean()

    big, g = np.linspace(0, 1, 1_000_000), dg.compile(f)
    wanted = g(big)
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    n, before = 0, None
    for k in range(100):
        try:
            with Interrupt(0.0002 * (k % 20)):
                g(big)
                time.sleep(0.2)
        except KeyboardInterrupt:
            n += 1
        if k == 20:
            before = peak()
    assert n == 100 and peak() - before < 40, (n, before, peak())
    assert (g(big) == wanted).all()

    # a handler that raises nothing
    calls = []
    def handler(*_):
        calls.append(gradient(small, small).tolist())
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    given = [g(big) for _ in range(10)]
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert calls and all(c == calls[0] for c in calls) and all((y == wanted).all() for y in given)

    # ignored
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    with Interrupt(0.01):
        assert (g(big) == wanted).all()
    """)
