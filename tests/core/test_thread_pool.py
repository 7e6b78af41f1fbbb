"""The thread pool: every index once, whatever the number of threads and callers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from dynagraph._core._dispatch import Entry, NativePlan, attention, convolve, get_threads, max_pool, multiply, set_threads

from .native import address, library

N = 1_000_000


@pytest.fixture(autouse=True)
def as_it_was():
    n = get_threads()
    yield
    set_threads(n)


def region() -> Entry:
    outputs = ((np.dtype(np.int32), (N,), False), (np.dtype(np.int32), (64,), False))
    result = ("tuple", (("out", 0), ("out", 1)))
    return Entry((), 0, NativePlan(address("in_parallel"), library(), 0, outputs, 0, result, True, 0))


def check(entry: Entry, n_threads: int) -> None:
    """Every index is done once in each of ten regions, by threads that there are."""
    times, threads = entry.run(())
    assert (times == 10).all()
    assert threads[n_threads:].sum() == 0  # the last one: a range that does not start at a multiple of the grain


def meeting(n_threads: int, slow: int = -1) -> np.ndarray:
    """How many iterations each thread did of a region in which that many threads wait for one another, and one goes slowly."""
    scalars = ("scalar", 0, 0, np.int32), ("scalar", 1, 1, np.int32)
    outputs = ((np.dtype(np.int32), (64,), False),)
    entry = Entry(scalars, 2, NativePlan(address("meeting"), library(), 2, outputs, 0, ("out", 0), True, 0))
    done: np.ndarray = entry.run((np.int32(n_threads), np.int32(slow)))
    assert done.sum() == N
    return done


def test_numbers_of_threads() -> None:
    e = region()
    for n in (1, 2, 3, 4, 2, 1, 4):
        set_threads(n)
        assert get_threads() == n
        for _ in range(5):
            check(e, n)
        assert (meeting(n)[:n] > 0).all()


def test_nobody_waits_for_what_a_slow_thread_has_not_begun() -> None:
    set_threads(4)
    for slow in range(4):
        assert meeting(4, slow)[slow] < N / 8  # of its share, a quarter of all, it did one part


def test_all_processors() -> None:
    set_threads(0)
    assert 1 <= get_threads() <= (os.cpu_count() or 1)
    set_threads(10**6)
    assert get_threads() == 64


@pytest.mark.parametrize("bad", [-1, "a", None, 1.5, 2**70])
def test_numbers_that_are_refused(bad) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        set_threads(bad)


def test_callers_at_the_same_time() -> None:
    set_threads(3)
    e = region()
    problems: list = []

    def call() -> None:
        try:
            for _ in range(10):
                check(e, 3)
        except AssertionError as error:
            problems.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_sleeping_workers_wake_up() -> None:
    set_threads(4)
    e = region()
    for pause in (0, 1e-5, 1e-4, 3e-4, 1e-3, 1e-2):
        for _ in range(5):
            check(e, 4)
            time.sleep(pause)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_children_have_workers_of_their_own() -> None:
    set_threads(3)
    e = region()
    check(e, 3)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            e.run(())

    for other_callers in (0, 1):
        threads = [threading.Thread(target=busy) for _ in range(other_callers)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    good = False
                    try:
                        check(e, 3)
                        good = bool((meeting(3)[:3] > 0).all())
                    finally:
                        os._exit(0 if good else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    check(e, 3)


def run_here(code: str) -> None:
    """In a process of its own, which may get stuck."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    start = "import sys; sys.path.insert(0, sys.argv[1]); from tests.core.test_thread_pool import *\n"
    assert subprocess.run([sys.executable, "-c", start + code, root], timeout=60).returncode == 0


def test_a_process_ends_with_workers_around() -> None:
    run_here("set_threads(4); e = region(); check(e, 4); threading.Thread(target=lambda: check(e, 4)).start()")


def many_products(n_threads: int, seconds: float) -> None:
    """Regions of many sizes one after the other; each product has the bits that one thread gives it."""
    shapes = [(64, 256, 64), (1, 3000, 300), (120, 120, 120), (500, 64, 64), (8, 1024, 100)]
    rng, products = np.random.default_rng(0), []
    set_threads(1)
    for m, n, k in shapes:
        a, b, out = rng.normal(size=(m, k)).astype("f"), rng.normal(size=(k, n)).astype("f"), np.empty((m, n), "f")
        multiply(a, b, out)
        products.append((a, b, out, np.empty_like(out)))
    set_threads(n_threads)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            for a, b, _, again in products:
                multiply(a, b, again)
        for *_, out, again in products:
            np.testing.assert_array_equal(again, out)


def test_a_late_worker_finds_nothing_to_do_in_a_region_that_is_being_made() -> None:
    run_here("many_products(8, 6)")


def while_their_number_changes() -> None:
    """Operations whose threads have memory of their own, while another Python thread calls set_threads."""
    rng = np.random.default_rng(0)
    image, filters = (rng.integers(-3, 4, shape).astype("f") for shape in ((2, 16, 40, 40), (32, 16, 3, 3)))
    planes = rng.integers(-3, 4, (16, 1, 3, 3)).astype("f")
    a, b = (rng.integers(-3, 4, shape).astype("f") for shape in ((130, 700), (700, 333)))
    q = rng.standard_normal((2, 4, 130, 32)).astype("f")

    def operations() -> list[np.ndarray]:
        product, attended, sums = np.empty((130, 333), "f"), np.empty_like(q), np.empty((2, 4, 130, 2), "f")
        multiply(a, b, product)
        attention(q, q, q, None, None, None, None, attended, sums, 1.0, False, 0.0)
        geometry = (1, 1), (1, 1), ((1, 1), (1, 1)), (40, 40)
        return [
            product,
            attended,
            convolve(0, image, filters, None, 1, *geometry),
            convolve(2, image, np.repeat(image, 2, 1), None, 1, *geometry[:3], (3, 3)),
            convolve(0, image, planes, None, 16, *geometry),
            max_pool(image, (3, 3), (1, 1), (1, 1), (1, 1), (40, 40))[0],
        ]

    set_threads(1)
    expected, ends = operations(), time.monotonic() + 6

    def change() -> None:
        while time.monotonic() < ends:
            for n in (1, 2, 64, 3):
                set_threads(n)

    threading.Thread(target=change).start()
    while time.monotonic() < ends:
        for k, (was, again) in enumerate(zip(expected, operations())):
            np.testing.assert_array_equal(again, was, err_msg=str(k))


def test_operations_go_on_while_the_number_of_threads_changes() -> None:
    run_here("while_their_number_changes()")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinities are Linux's")
def test_workers_that_were_moved_get_their_affinity_back() -> None:
    run_here("beside_neighbours()")


def beside_neighbours() -> None:
    """Two threads and two that compute all the time, on two processors: see thread_pool.c about what it does with affinities."""
    two = set(sorted(os.sched_getaffinity(0))[:2])
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), two)
    for _ in range(2):
        threading.Thread(target=lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9), daemon=True).start()
    many_products(2, 3)
    end = time.monotonic() + 20
    while affinities() != {frozenset(two)}:
        assert time.monotonic() < end, affinities()
        time.sleep(0.01)
    sys.stdout.flush()
    os._exit(0)  # the neighbours go on


def affinities() -> set[frozenset[int]]:
    """Of the threads of this process."""
    return {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
