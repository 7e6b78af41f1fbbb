"""The recycling pool: results of 64 KiB and more, and workspaces."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import sys
import threading

import numpy as np
import pytest

from dynagraph._core import _dispatch
from dynagraph._core._dispatch import Entry, NativePlan, pool_set_limit, pool_stats, pool_trim

from .native import address, library

F8 = np.dtype(float)


def maker(*shape: int) -> Entry:
    """An entry that gives an array whose elements nobody has set."""
    return Entry((), 0, NativePlan(address("nothing"), library(), 0, ((F8, shape, False),), 0, ("out", 0), False, 0))


@pytest.fixture(autouse=True)
def as_it_was():
    gc.collect()
    limit = pool_stats()["limit"]
    pool_trim(0)
    yield
    pool_set_limit(limit)
    pool_trim(0)


def data(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_blocks_are_recycled() -> None:
    e = maker(100_000)
    first = e.run(())
    first[:] = 5
    place, before = data(first), pool_stats()
    assert place % 64 == 0
    del first
    assert pool_stats()["kept"] >= 800_000 and pool_stats()["in_use"] == before["in_use"] - pool_stats()["kept"]
    second = e.run(())
    assert data(second) == place and second[7] == 5
    assert pool_stats()["recycled"] == before["recycled"] + 1 and pool_stats()["kept"] == 0
    third = e.run(())
    assert data(third) != place


def test_small_arrays_are_numpys_own() -> None:
    before = pool_stats()["taken"]
    assert maker(8191).run(()).nbytes < 65536
    assert pool_stats()["taken"] == before
    maker(8192).run(())
    assert pool_stats()["taken"] == before + 1


@pytest.mark.parametrize("n", [8192, 8193, 10240, 10241, 16384, 262144, 262136, 262137, 1 << 20, (1 << 20) + 1, 3_000_001])
def test_all_of_a_block_can_be_written(n: int) -> None:
    e = maker(n)
    arrays = [e.run(()) for _ in range(4)]
    for k, array in enumerate(arrays):
        array[:] = k
    assert all((array == k).all() for k, array in enumerate(arrays))
    assert len({data(a) for a in arrays}) == 4
    spans = sorted((data(a), data(a) + a.nbytes) for a in arrays)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))


@pytest.mark.parametrize("shape", [(0,), (7,), (100, 100), (300, 301), (1 << 19,), (3, 1 << 20)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros(shape: tuple[int, ...], dtype: type) -> None:
    for _ in range(3):  # fresh memory, then memory that was written to
        array = _dispatch.new_zeros(shape, dtype)
        assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous and not array.any()
        array[...] = 3
        del array


def test_zeros_of_objects_and_what_is_no_shape() -> None:
    assert (_dispatch.new_zeros((20_000,), object) == 0).all()
    for bad in ((-1,), (1 << 62, 8)):
        with pytest.raises((ValueError, MemoryError)):
            _dispatch.new_zeros(bad, np.float64)


def test_large_blocks_go_back_to_the_system() -> None:
    arrays = [_dispatch.new_zeros((n,), np.uint8) for n in ((2 << 20) - 64, 2 << 20, (3 << 20) + 5, 9_437_184)]
    for array in arrays:
        assert data(array) % 64 == 0
        array[:] = 1
    arrays.clear()
    pool_trim(0)
    assert pool_stats()["kept"] == 0
    assert not _dispatch.new_zeros((9_437_184,), np.uint8).any()


def test_the_limit() -> None:
    pool_set_limit(1 << 20)
    arrays = [maker(32768).run(()) for _ in range(20)]  # 256 KiB each
    arrays.clear()
    assert 0 < pool_stats()["kept"] <= 1 << 20
    pool_set_limit(1 << 19)
    assert pool_stats()["kept"] <= 1 << 19
    pool_set_limit(0)
    assert pool_stats()["kept"] == 0
    del arrays
    maker(32768).run(())
    assert pool_stats()["kept"] == 0


def test_trim() -> None:
    arrays = [maker(n).run(()) for n in (10_000, 50_000, 200_000, 10_000)]
    arrays.clear()
    kept = pool_stats()["kept"]
    pool_trim(kept)
    assert pool_stats()["kept"] == kept
    pool_trim(kept // 2)
    assert pool_stats()["kept"] <= kept // 2
    pool_trim(0)
    assert pool_stats()["kept"] == 0
    assert maker(10_000).run(()).shape == (10_000,)


@pytest.mark.parametrize("bad", [-1, "a", None, 2**70, 1.5])
def test_limits_that_are_refused(bad) -> None:
    for function in (pool_trim, pool_set_limit):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            function(bad)


def test_the_oldest_blocks_go_first() -> None:
    old, new = maker(16384).run(()), maker(32768).run(())
    del old
    kept_old = pool_stats()["kept"]
    del new
    pool_trim(pool_stats()["kept"] - kept_old)
    before = pool_stats()["recycled"]
    maker(32768).run(())
    assert pool_stats()["recycled"] == before + 1


@pytest.mark.parametrize("n", [10_000, 262_137, 1_000_000])
def test_resize(n: int) -> None:
    array = maker(n).run(())
    array[:] = np.arange(n)
    for size in (2 * n, n // 2, 3 * n, 10, 5 * n):
        kept = min(size, array.size)
        start = array[:kept].copy()
        array.resize(size, refcheck=False)
        assert array.shape == (size,) and np.array_equal(array[:kept], start)
        array[:] = np.arange(size)
    in_use = pool_stats()["in_use"]
    del array
    assert pool_stats()["in_use"] < in_use


def test_results_are_arrays_like_any_other() -> None:
    array = maker(300, 100).run(())
    array[:] = np.arange(30_000.0).reshape(300, 100)
    assert array.flags.owndata and array.base is None and array.flags.writeable and array.flags.c_contiguous
    assert np.array_equal(pickle.loads(pickle.dumps(array)), array)
    view = array.T[1:]
    del array
    gc.collect()
    other = maker(300, 100).run(())
    other[:] = 0
    assert view[0, 1] == 101  # its base lives on
    assert view.base.sum() == sum(range(30_000))


def test_arrays_that_die_in_other_threads() -> None:
    e = maker(20_000)
    problems = []

    def work(box: list) -> None:
        for k in range(500):
            array = e.run(())
            array[0] = array[-1] = k
            box.append(array)
            if len(box) > 3:
                gone = box.pop(0)
                if gone[0] != gone[-1]:
                    problems.append(gone[0])

    box: list = []
    threads = [threading.Thread(target=work, args=(box,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_use = pool_stats()["in_use"]
    box.clear()
    assert problems == []
    assert pool_stats()["in_use"] < in_use


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork() -> None:
    e = maker(50_000)
    array = e.run(())
    array[:] = 7
    e.run(())
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            e.run(())

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                good = False
                try:
                    other = e.run(())
                    other[:] = 8
                    good = (array == 7).all() and pool_stats()["in_use"] > 0
                    del array
                    e.run(())
                finally:
                    os._exit(0 if good else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
    assert (array == 7).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_given_back() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    maker(8_000_000).run(())  # what a sanitizer notes of so much memory stays
    pool_trim(0)
    before = resident()
    array = maker(8_000_000).run(())
    array[:] = 1
    assert resident() - before > 60_000_000
    del array
    pool_trim(0)
    assert resident() - before < 10_000_000


def test_stats() -> None:
    assert set(pool_stats()) == {"kept", "in_use", "limit", "taken", "recycled"}
    assert _dispatch.pool_stats()["limit"] > 0
