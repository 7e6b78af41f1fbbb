"""Greenlets (gevent) switch the C stack of a thread inside a broken part, and leave their extents in any order."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core import _frame_hook
from dynagraph._core._frame_hook import call_unwatched, call_watched, set_watcher, watched
from dynagraph.driver import compiler
from dynagraph.markers import is_compiling
from tests.sampling import examples

greenlet = pytest.importorskip("greenlet")


def switch(value: Any = None) -> Any:
    """To whoever resumed this greenlet."""
    return greenlet.getcurrent().parent.switch(value)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """A greenlet that has started, and where it stands: (greenlet, what it switched with)."""
    started = greenlet.greenlet(function)
    return started, started.switch(*args)


@pytest.fixture
def offered() -> list[tuple[Any, str]]:
    """(whose extent it is, the name of the function), for each frame that is offered from now on."""
    seen: list[tuple[Any, str]] = []

    def watcher(function: Any, code: Any, values: Any) -> Any:
        if code.co_filename == __file__ and not code.co_name.startswith("<"):
            seen.append((watched(), function.__name__))
        return None

    set_watcher(watcher)
    return seen


def leaf() -> int:
    return 1


def test_what_another_greenlet_calls_is_not_watched(offered: list) -> None:
    def waits() -> int:
        leaf()
        switch()
        return leaf()

    part = lambda: waits()  # noqa: E731
    suspended, _ = run(call_watched, part)
    n = len(offered)
    assert watched() is None and leaf() == 1 and len(offered) == n
    assert suspended.switch() == 1
    assert {function for function, _ in offered} == {part} and not _frame_hook.is_active()


def test_extents_that_end_in_another_order_let_go_of_their_functions(offered: list) -> None:
    def part() -> Callable[[], int]:
        def waits() -> int:
            switch()
            return leaf()

        return lambda: waits() + leaf()

    first, second = part(), part()
    dead = [weakref.ref(first), weakref.ref(second)]
    one, _ = run(call_watched, first)
    two, _ = run(call_watched, second)
    assert one.switch() == 2  # the outer one ends first
    del first, one
    gc.collect()
    offered.clear()
    assert dead[0]() is None
    assert two.switch() == 2 and {f for f, _ in offered} == {second}
    offered.clear()
    del second, two
    gc.collect()
    assert dead[1]() is None and watched() is None and not _frame_hook.is_active()


def test_the_rest_of_a_part_is_watched_again(offered: list) -> None:
    def waits() -> None:
        switch()

    def part() -> int:
        waits()
        return leaf()

    one, _ = run(call_watched, part)
    two, _ = run(call_watched, part)
    one.switch()
    two.switch()
    assert [name for _, name in offered].count("leaf") == 2


def test_unwatched_calls_and_deep_marks_end_in_any_order(offered: list) -> None:
    def waits() -> int:
        switch()
        return leaf()

    def deep() -> int:
        return waits()

    _frame_hook.skip(deep.__code__, deep=True)
    calls = [lambda: call_unwatched(waits), deep, lambda: call_watched(lambda: waits()), waits]
    for seed in range(20):
        order = random.Random(seed)
        waiting = [run(call_watched, (lambda f: lambda: f() + leaf())(order.choice(calls)))[0] for _ in range(8)]
        order.shuffle(waiting)
        assert [g.switch() for g in waiting] == [2] * 8
        assert not _frame_hook.is_active() and watched() is None


def test_greenlets_that_are_killed(offered: list) -> None:
    waiting = [run(call_watched, lambda: switch() or leaf())[0] for _ in range(5)]
    del waiting
    gc.collect()
    assert not _frame_hook.is_active() and watched() is None and leaf() == 1


@pytest.mark.usefixtures("own_watcher")
def test_generators_and_coroutines_leave_an_extent_later(offered: list) -> None:
    def numbers() -> Any:
        while True:
            yield leaf()

    generator = call_watched(lambda: numbers())
    assert call_watched(lambda: next(generator)) == 1
    n = len(offered)
    assert next(generator) == 1 and len(offered) == n and watched() is None

    async def task() -> int:
        total = leaf()
        await asyncio.sleep(0)
        return total + leaf()

    async def all_tasks() -> list[int]:
        return await asyncio.gather(*(task() for _ in range(4)))

    assert call_watched(lambda: asyncio.run(all_tasks())) == [2] * 4
    assert not _frame_hook.is_active()


def _make(n: int) -> Any:
    def helper(x: np.ndarray) -> np.ndarray:
        return x * n + 1

    def waits(x: np.ndarray) -> np.ndarray:
        switch()
        return helper(x)

    @dg.compile
    def f(x: np.ndarray) -> np.ndarray:
        return helper(waits(x * 2)) + n

    return f


PLAIN = [lambda x, n=n: ((x * 2) * n + 1) * n + 1 + n for n in range(4)]


@pytest.fixture
def dynagraphs_watcher(own_watcher: Any) -> Any:

    set_watcher(compiler._on_frame)


@pytest.mark.usefixtures("dynagraphs_watcher")
def test_compiled_functions_that_die_while_others_wait() -> None:
    rng = random.Random(1)
    waiting: list[tuple[Any, np.ndarray]] = []

    def twice(n: int, x: np.ndarray) -> np.ndarray:
        f = _make(n)
        f(x)
        return f(x)

    def step(position: int) -> None:
        one, expected = waiting[position]
        given = one.switch()
        if one.dead:
            np.testing.assert_array_equal(given, expected)
            del waiting[position]

    for k in range(examples(24, 2)):
        x = np.arange(4.0) + k
        waiting.append((run(twice, k % 4, x)[0], PLAIN[k % 4](x)))
        while len(waiting) > 5:
            step(rng.randrange(len(waiting)))
        gc.collect()
    while waiting:
        step(rng.randrange(len(waiting)))
    assert not _frame_hook.is_active() and watched() is None


@pytest.mark.usefixtures("dynagraphs_watcher")
def test_greenlets_that_switch_within_the_compiler() -> None:
    """A backend that waits: the other greenlet neither waits for its lock nor ends its flag."""
    compiling = []

    def slow(graph: Any, examples: Any) -> Any:
        compiling.append(is_compiling())
        switch()
        compiling.append(is_compiling())
        return lambda x: (x + 1,)

    def h(x: np.ndarray) -> np.ndarray:
        return x + 1

    slowly = dg.compile(h, backend=slow)
    waiting: list[Any] = []

    def opaque(x: np.ndarray) -> np.ndarray:
        for _ in range(2):  # h is compiled now, so h's frame cannot be
            waiting.append(run(slowly, x)[0])
        return h(x)

    @dg.compile
    def f(x: np.ndarray) -> np.ndarray:
        dg.graph_break()
        return opaque(x) * 2

    x = np.arange(3.0)
    np.testing.assert_array_equal(f(x), (x + 1) * 2)
    assert [list(g.switch()) for g in waiting if not g.dead] == [[1, 2, 3]]
    assert compiling == [True, True] and not is_compiling() and slowly.stats.entries == 1


def test_threads_with_greenlets(offered: list) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        try:
            order = random.Random(seed)
            for _ in range(20):
                waiting = [run(call_watched, lambda: (switch(), leaf())[1])[0] for _ in range(4)]
                order.shuffle(waiting)
                if [g.switch() for g in waiting] != [1] * 4 or watched() is not None:
                    failures.append(seed)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not _frame_hook.is_active()


SERVER = """
from gevent import monkey; monkey.patch_all()
import gevent, socket
from gevent.server import StreamServer
import numpy as np, dynagraph as dg

def receive(connection):
    return np.frombuffer(connection.recv(64))

def scale(x):
    return x * 2 + 1

@dg.compile
def answer(connection):
    x = receive(connection) + 1
    gevent.sleep(0.001)
    return scale(x)

def serve(connection, address):
    connection.sendall(answer(connection).tobytes())
    connection.close()

def ask(port, k):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        gevent.sleep(0.0005 * (k % 5))
        connection.sendall(np.full(8, float(k)).tobytes())
        return np.frombuffer(connection.recv(64))

server = StreamServer(("127.0.0.1", 0), serve)
server.start()
jobs = [gevent.spawn(ask, server.server_port, k) for k in range(60)]
gevent.joinall(jobs, raise_error=True)
assert all((job.value == (k + 1) * 2.0 + 1).all() for k, job in enumerate(jobs))
server.stop()
print("served")
"""


def test_a_gevent_server() -> None:
    pytest.importorskip("gevent")
    ran = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "served\n", ran.stderr
