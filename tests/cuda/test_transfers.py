"""`dg.to_device` and `dg.pinned_empty`: values, layout, when a copy is done, what is kept alive, what is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.cuda import memory, streams, transfers

DTYPES = [np.dtype(c).name for c in "?bhilBHILefdFD"]
X = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x,
    "Fortran": lambda x: np.asfortranarray(x),
    "transposed": lambda x: x.transpose(2, 0, 3, 1),
    "every second": lambda x: x[:, ::2, 1:, ::2],
    "reversed": lambda x: x[::-1, :, ::-1].transpose(1, 3, 0, 2),
    "broadcast": lambda x: np.broadcast_to(x[:, :1, :, :1], (2, 3, 4, 5)),
    "one row": lambda x: x[1:, :, 2:3],
    "Fortran with gaps": lambda x: np.asfortranarray(x)[:, 1:],
    "0-d": lambda x: x[1, 2, 3, 4],
    "0-d array": lambda x: x[1, 2, 3, 4:].reshape(()),
    "empty": lambda x: x[:, :0],
    "empty vector": lambda x: x[0, 0, 0, :0],
    "read-only": lambda x: read_only(x),
}


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def strides(array: Any) -> list[int]:
    """Of the axes whose strides mean something."""
    return [stride for size, stride in zip(array.shape, array.strides) if size > 1 and array.size]


def assert_same(result: Any, source: np.ndarray) -> None:
    """An array on the host or a device, with the values of one on the host, in its order of axes without gaps."""
    assert (result.shape, result.dtype) == (source.shape, source.dtype.newbyteorder("="))
    assert strides(result) == strides(np.array(source, order="K", copy=True))
    values = result if isinstance(result, np.ndarray) else result.get()
    np.testing.assert_array_equal(values, source)


# -- to a device and back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(cp: Any, layout: str, non_blocking: bool, pinned: bool) -> None:
    whole = dg.pinned_empty(X.shape) if pinned else np.empty(X.shape)
    whole[...] = X
    source = np.asarray(LAYOUTS[layout](whole))
    on_device = dg.to_device(source, "cuda:0", non_blocking=non_blocking)
    assert type(on_device) is cp.ndarray and on_device.device.id == 0 and on_device.base is None
    assert_same(on_device, source)
    back = dg.to_device(on_device, "cpu", non_blocking=non_blocking)
    dg.cuda.synchronize()
    assert type(back) is np.ndarray and dg.cuda.is_pinned(back) == (non_blocking and back.size > 0)
    assert_same(back, source)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(cp: Any, dtype: str) -> None:
    source = (np.arange(30).reshape(5, 6) % 7).astype(dtype)
    assert_same(dg.to_device(source), source)
    assert_same(dg.to_device(source.T), source.T)
    assert_same(dg.to_device(dg.to_device(source.T), "cpu"), source.T)


@pytest.mark.parametrize("pinned", [False, True])
def test_the_other_byte_order_becomes_the_machines(cp: Any, pinned: bool) -> None:
    other = X.dtype.newbyteorder()
    source = dg.pinned_empty(X.shape, other) if pinned else np.empty(X.shape, other)
    source[...] = X
    result = dg.to_device(source, non_blocking=True)
    assert result.dtype == np.float64 and result.dtype.isnative
    np.testing.assert_array_equal(result.get(), X)


@pytest.mark.parametrize("shape", [(3, 4), (2, 1, 3), (5,), ()])
def test_strides_are_numpys(cp: Any, shape: tuple[int, ...]) -> None:
    for plain in (np.zeros(shape), np.zeros(shape, order="F")):
        assert dg.to_device(plain).strides == plain.strides


def test_strides_of_empty_arrays_are_cupys(cp: Any) -> None:
    assert dg.to_device(np.zeros((2, 0, 3))).strides == (24, 24, 8)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_device_arrays_come_back(cp: Any, layout: str) -> None:
    made = {
        "every second": lambda x: x[:, ::2, 1:, ::2],
        "reversed": lambda x: x[::-1, :, ::-1].transpose(1, 3, 0, 2),
        "transposed": lambda x: x.transpose(2, 0, 3, 1),
        "0-d": lambda x: x[1, 2, 3, 4],
        "empty": lambda x: x[:, :0],
    }.get(layout, lambda x: x[1:, :, 2:3])  # fmt: skip
    assert_same(dg.to_device(made(dg.to_device(X)), "cpu"), np.asarray(made(X)))


def test_what_is_there_already_is_not_copied(cp: Any) -> None:
    x = dg.to_device(X)
    for device in ("cuda:0", "cuda", 0, cp.cuda.Device(0)):
        assert dg.to_device(x, device) is x
    assert dg.to_device(x[0], 0, non_blocking=True).base is x
    assert dg.to_device(X, "cpu") is X


def test_large_arrays_go_in_parts(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STAGING", 100)
    for count in (1, 12, 13, 25, 26, 1000):
        source = np.arange(float(count))
        kept = source.copy()
        result = dg.to_device(source)
        source[:] = -1
        assert_same(result, kept)


def test_numbers_of_devices(two: Any) -> None:
    for device in (1, "cuda:1", np.int8(1), two.cuda.Device(1)):
        result = dg.to_device(X, device)
        assert result.device.id == 1 and dg.cuda.current_device() == 0
        assert_same(dg.to_device(result, "cpu"), X)
    with dg.cuda.device(1):
        assert dg.to_device(X, "cuda").device.id == 1
        assert dg.to_device(X).device.id == 0


@pytest.mark.parametrize("layout", ["C", "Fortran", "transposed", "every second", "0-d array", "empty"])
def test_between_devices(two: Any, layout: str) -> None:
    source = np.asarray(LAYOUTS[layout](X))
    whole = dg.to_device(X)
    here = whole[:, ::2, 1:, ::2] if layout == "every second" else dg.to_device(source)
    there = dg.to_device(here, "cuda:1")
    assert there.device.id == 1 and there.base is None
    with dg.cuda.device(1):
        assert_same(there, source)
    back = dg.to_device(there, 0, stream=dg.cuda.Stream(device=0))
    dg.cuda.synchronize(0)
    assert back.device.id == 0
    assert_same(back, source)


def test_devices_are_let_reach_each_other_once(machine: Any, fake: Any) -> None:
    """Also where somebody else has done it one way, and where the machine cannot."""
    with dg.cuda.device(0):
        fake.cuda.runtime.deviceEnablePeerAccess(1)
    for _ in range(2):
        np.testing.assert_array_equal(dg.to_device(dg.to_device(np.arange(5.0), "cuda:0"), "cuda:1").get(), np.arange(5.0))
    assert machine.peers == {(0, 1), (1, 0)}


def test_devices_that_cannot_reach_each_other_copy_all_the_same(machine: Any) -> None:
    machine.peers_can = False
    np.testing.assert_array_equal(dg.to_device(dg.to_device(np.arange(5.0), "cuda:1"), "cuda:0").get(), np.arange(5.0))
    assert machine.peers == set()


def test_copies_between_devices_are_ordered_with_the_source(two: Any) -> None:
    here = dg.to_device(X)
    here *= 2
    stream = dg.cuda.Stream(device=1)
    there = dg.to_device(here, 1, stream=stream)
    here[...] = 0
    del here
    stream.synchronize()
    np.testing.assert_array_equal(dg.to_device(there, "cpu"), X * 2)


def test_copies_between_devices_come_after_the_source(two: Any) -> None:
    source = dg.pinned_empty(X.shape)
    source[...] = X
    here = dg.to_device(source, 0, non_blocking=True)
    there = dg.to_device(here, 1)
    dg.cuda.synchronize(1)
    np.testing.assert_array_equal(there.get(), X)


# -- when it is done ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("non_blocking", [False, True])
def test_pageable_sources_may_be_changed_at_once(cp: Any, non_blocking: bool) -> None:
    stream, source = dg.cuda.Stream(), X.copy()
    result = dg.to_device(source, non_blocking=non_blocking, stream=stream)
    source[...] = -1
    stream.synchronize()
    assert_same(result, X)


def test_pinned_sources_may_be_changed_at_once_where_the_copy_blocks(cp: Any) -> None:
    source = dg.pinned_empty(X.shape)
    source[...] = X
    result = dg.to_device(source)
    source[...] = -1
    assert_same(result, X)


def test_pinned_sources_with_gaps_may_be_changed_at_once(cp: Any) -> None:
    source = dg.pinned_empty(X.shape)
    source[...] = X
    result = dg.to_device(source[:, 1:], non_blocking=True)
    source[...] = -1
    assert_same(result, X[:, 1:])


def test_non_blocking_copies_happen_on_the_stream(machine: Any) -> None:
    stream, source = dg.cuda.Stream(), dg.pinned_empty(3)
    source[...] = 1
    result = dg.to_device(source, non_blocking=True, stream=stream)
    assert not stream.query()
    source[...] = 2  # too early
    stream.synchronize()
    np.testing.assert_array_equal(result.get(), [2, 2, 2])


def test_non_blocking_copies_keep_their_memory(cp: Any) -> None:
    stream = dg.cuda.Stream()
    source = dg.pinned_empty(X.shape)
    source[...] = X
    result = dg.to_device(source, non_blocking=True, stream=stream)
    del source
    gc.collect()
    stream.synchronize()
    assert_same(result, X)
    with stream:
        on_host = dg.to_device(result, "cpu", non_blocking=True)
        dg.to_device(result, "cpu", non_blocking=True)
    del result
    stream.synchronize()
    assert_same(on_host, X)


def test_memory_is_let_go_when_the_copies_are_done(machine: Any) -> None:
    source = dg.pinned_empty(100)
    x = dg.to_device(source, non_blocking=True)
    y = dg.to_device(np.ones(100))
    del source
    gc.collect()
    assert len(machine.blocks) == 2 and len(streams._held) == 2
    dg.cuda.synchronize()
    assert dg.cuda.memory_allocated() == 2048 and not streams._held
    gc.collect()
    assert not machine.blocks
    del x, y
    assert dg.cuda.memory_allocated() == 0


def test_to_the_host_without_waiting(machine: Any) -> None:
    stream, x = dg.cuda.Stream(), dg.to_device(X)
    result = dg.to_device(x, "cpu", non_blocking=True, stream=stream)
    result[...] = -1
    assert not stream.query()
    stream.synchronize()
    assert_same(result, X)


def test_to_the_host_comes_after_work_on_the_current_stream(cp: Any) -> None:
    source = dg.pinned_empty(X.shape)
    source[...] = X
    x = dg.to_device(source, non_blocking=True)
    np.testing.assert_array_equal(dg.to_device(x, "cpu", stream=dg.cuda.Stream()), X)


def test_streams_of_cupys(cp: Any) -> None:
    stream = cp.cuda.Stream(non_blocking=True)
    x = dg.to_device(X, stream=stream)
    assert_same(dg.to_device(x[:, ::2], "cpu", stream=stream), X[:, ::2])
    assert_same(dg.to_device(x, "cpu", stream=stream), X)


def test_another_devices_stream_is_refused(two: Any) -> None:
    stream, x = dg.cuda.Stream(device=1), dg.to_device(X)
    text = "^to_device: the stream is one of cuda:1, the copy is made on cuda:0; make a Stream there"
    for array, device in ((X, 0), (x, "cpu")):
        with pytest.raises(dg.CudaError, match=text):
            dg.to_device(array, device, stream=stream)


def test_a_transfer_beside_the_computation(cp: Any) -> None:
    """As docs/cuda.md has it."""
    copies = dg.cuda.Stream()
    buffers = [dg.pinned_empty((100, 100), np.float32) for _ in range(2)]
    sent = [dg.cuda.Event() for _ in range(2)]

    def send(turn: int, rows: np.ndarray) -> Any:
        sent[turn].synchronize()
        buffers[turn][...] = rows
        copies.wait_stream(dg.cuda.current_stream())
        batch = dg.to_device(buffers[turn], "cuda:0", non_blocking=True, stream=copies)
        sent[turn].record(copies)
        return batch

    batches, sums = (np.full((100, 100), k) for k in range(7)), []
    batch = send(0, next(batches))
    number = 0
    for number, rows in enumerate(batches, 1):
        coming = send(number % 2, rows)
        dg.cuda.current_stream().wait_event(sent[(number - 1) % 2])
        sums.append(batch.sum())
        batch = coming
    dg.cuda.current_stream().wait_event(sent[number % 2])
    sums.append(batch.sum())
    assert [float(s) for s in sums] == [10_000 * k for k in range(7)]


def test_threads_copy_at_once(cp: Any) -> None:
    found: list[bool] = []

    def work(number: int) -> None:
        with dg.cuda.Stream() as stream:
            for _ in range(20):
                x = dg.to_device(np.full(1000, number))
                found.append(bool((dg.to_device(x, "cpu") == number).all()))
        stream.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array, error, text",
    [
        (
            np.array([1, "a"], object),
            dg.DTypeError,
            "^to_device: dtype object: devices have booleans, integers, float16 to float64",
        ),
        (np.array(["a"]), dg.DTypeError, "^to_device: dtype <U1: devices have"),
        (np.zeros(3, "M8[s]"), dg.DTypeError, r"^to_device: dtype datetime64\[s\]"),
        (np.zeros(3, [("a", int)]), dg.DTypeError, r"^to_device: dtype \[\('a'"),
        (np.zeros(3, np.longdouble), dg.DTypeError, "^to_device: dtype "),
        (np.ma.array([1, 2], mask=[0, 1]), TypeError, "^to_device: a MaskedArray would lose its mask; pass x.filled"),
        (np.zeros(3).view(np.recarray), TypeError, "^to_device: recarray is a subclass of numpy.ndarray, .*; pass np.asarray"),
        ([1, 2], TypeError, "^to_device: expected a NumPy or CuPy array, got list; np.asarray"),
        (np.float64(3), TypeError, "^to_device: expected a NumPy or CuPy array, got float64"),
        (None, TypeError, "^to_device: expected a NumPy or CuPy array, got NoneType"),
    ],
)
@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
def test_what_is_refused(cp: Any, array: Any, error: type[Exception], text: str, device: str) -> None:
    with pytest.raises(error, match=text):
        dg.to_device(array, device)


@pytest.mark.parametrize("device", ["gpu", "cpu:0", "cuda:x"])
def test_what_is_no_device(cp: Any, device: str) -> None:
    with pytest.raises(ValueError, match=f"^to_device: device '{device}': expected 'cuda', 'cuda:0'.*, or 'cpu'$"):
        dg.to_device(X, device)
    with pytest.raises(dg.CudaError, match=r"^device 'cuda:99': there is no such device"):
        dg.to_device(X, "cuda:99")


@pytest.mark.parametrize("source", [0, 1])
def test_no_memory_on_the_device(fake: Any, machine: Any, source: int) -> None:
    x = X if source else dg.to_device(X, 1)
    dg.cuda.synchronize(1)
    dg.cuda.empty_cache()
    machine.memory[0] = 100
    used = [list(machine.pool.used), dict(machine.blocks)]
    with pytest.raises(MemoryError, match=r"^Out of memory allocating 1,024 bytes$") as caught:
        dg.to_device(x, 0, stream=dg.cuda.Stream())
    assert type(caught.value).__name__ == "OutOfMemoryError"
    del caught
    gc.collect()
    dg.cuda.synchronize(1)
    dg.cuda.empty_cache()
    assert [machine.pool.used, machine.blocks] == used and len(machine.streams) == 0


@pytest.mark.parametrize("staging", [1 << 20, 480])
def test_no_page_locked_memory(fake: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, staging: int) -> None:
    monkeypatch.setattr(transfers, "STAGING", staging)
    machine.page_locked = 500
    with pytest.raises(fake.cuda.runtime.CUDARuntimeError, match=r"cudaErrorMemoryAllocation"), dg.cuda.device(1):
        dg.to_device(X, 0)
    gc.collect()
    dg.cuda.synchronize()
    dg.cuda.empty_cache()
    assert machine.pool.used == [0, 0] and not machine.blocks


def test_no_page_locked_memory_for_the_host(fake: Any, machine: Any) -> None:
    x = dg.to_device(X)
    dg.cuda.synchronize()
    dg.cuda.empty_cache()
    machine.page_locked = 100
    with pytest.raises(fake.cuda.runtime.CUDARuntimeError, match=r"cudaErrorMemoryAllocation"):
        dg.to_device(x, "cpu", non_blocking=True)
    assert_same(dg.to_device(x, "cpu"), X)


# -- page-locked memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [7, (), (3,), [2, 3], (2, 0, 3), (np.int64(4), 5, 6)])
def test_pinned_arrays(cp: Any, shape: Any, order: Any) -> None:
    found, plain = dg.pinned_empty(shape, np.float32, order), np.empty(shape, np.float32, order)
    assert type(found) is np.ndarray and found.flags.writeable and found.flags.aligned
    assert (found.shape, found.dtype, strides(found)) == (plain.shape, plain.dtype, strides(plain))
    assert dg.cuda.is_pinned(found) == (found.size > 0)
    found[...] = 3
    assert (found == 3).all()
    assert dg.pinned_empty(2).dtype == np.float64


def test_views_keep_page_locked_memory(machine: Any) -> None:
    whole = dg.pinned_empty((4, 4))
    row = whole[1]
    del whole
    gc.collect()
    assert len(machine.blocks) == 1 and dg.cuda.is_pinned(row)
    row[:] = 1
    del row
    gc.collect()
    assert not machine.blocks


def test_plain_memory_is_not_page_locked(cp: Any) -> None:
    assert not dg.cuda.is_pinned(X)
    assert not dg.cuda.is_pinned(dg.pinned_empty(3).copy())
    assert dg.cuda.is_pinned(dg.pinned_empty((4, 4))[::-1, ::2])
    with pytest.raises(TypeError, match=r"^is_pinned: expected a NumPy array, got list"):
        dg.cuda.is_pinned([1])  # type: ignore[arg-type]


def test_page_locked_in_part_is_not_page_locked(machine: Any) -> None:
    x = np.zeros(100)
    machine.blocks[x.__array_interface__["data"][0]] = 400
    assert dg.cuda.is_pinned(x[:50]) and not dg.cuda.is_pinned(x[:51]) and not dg.cuda.is_pinned(x[::-1])
    machine.blocks.clear()


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ((-1,), dg.ShapeError, r"^pinned_empty: shape \(-1,\): sizes cannot be negative"),
        (((2, -3),), dg.ShapeError, r"^pinned_empty: shape \(2, -3\): sizes cannot be negative"),
        (
            ((1 << 40, 1 << 40),),
            dg.ShapeError,
            r"^pinned_empty: shape \(.*\) of float64 takes \d+ bytes, more than can be addressed",
        ),
        ((2.5,), TypeError, "^pinned_empty: shape 2.5: expected an int or a sequence of ints"),
        (("ab",), TypeError, "^pinned_empty: shape 'ab': expected"),
        ((3, object), dg.DTypeError, "^pinned_empty: dtype object: devices have"),
        ((3, "U5"), dg.DTypeError, "^pinned_empty: dtype <U5: devices have"),
        ((3, "nonsense"), TypeError, "nonsense"),
        ((3, float, "K"), ValueError, "^pinned_empty: order 'K': expected 'C' or 'F'"),
    ],
)
def test_wrong_shapes_and_dtypes(cp: Any, arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        dg.pinned_empty(*arguments)


def test_too_much_page_locked_memory(fake: Any, machine: Any) -> None:
    machine.page_locked = 100
    with pytest.raises(fake.cuda.runtime.CUDARuntimeError, match=r"cudaErrorMemoryAllocation"):
        dg.pinned_empty(1000)
    assert not machine.blocks


def test_dtypes_are_those_of_the_documentation() -> None:
    assert {np.dtype(c).kind for c in memory.DTYPES} == set("biufc")


# -- in compiled functions ---------------------------------------------------------------------------------------------


def test_compiled_functions_may_transfer(cp: Any) -> None:
    @dg.compile
    def f(x: np.ndarray) -> Any:
        y = dg.to_device(x * 2, "cuda:0")
        return dg.to_device(cp.exp(y) + 1, "cpu")

    for _ in range(3):
        np.testing.assert_allclose(f(X / 100), np.exp(X / 50) + 1, rtol=1e-12)
    assert f.stats.fallbacks == 0, f.stats.last_error


def test_compiled_functions_may_use_streams_and_devices(cp: Any) -> None:
    @dg.compile
    def f(x: Any) -> Any:
        with dg.cuda.Stream() as stream, dg.cuda.device(0):
            y = x * 2
        stream.synchronize()
        return y + 1 if dg.cuda.is_available() else y

    x = dg.to_device(X)
    dg.cuda.synchronize()
    for _ in range(3):
        np.testing.assert_array_equal(f(x).get(), X * 2 + 1)
    assert f.stats.fallbacks == 0, f.stats.last_error
