"""Arrays between the host and devices: `to_device`.

Whatever an array's layout is, its axes in the order of its strides make it one block of bytes in C order, which is what is copied;
the result has the same order of axes, without gaps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY, library_of
from dynagraph.cuda.devices import DeviceLike, check_flag, device_index, on_device
from dynagraph.cuda.memory import check_dtype, is_pinned, pinned_empty
from dynagraph.cuda.state import require_cupy, state
from dynagraph.cuda.streams import as_stream, current_stream, hold
from dynagraph.errors import CudaError

STAGING = 32 << 20  # bytes of each of the two page-locked buffers that pageable memory goes through


def to_device(array: Any, device: DeviceLike = "cuda:0", non_blocking: bool = False, stream: Any = None) -> Any:
    """An array on a device, or on the host: a copy, or the very array where it lies there already.

    array: a NumPy or CuPy array (no subclass or masked array) of booleans, integers, floats or complex numbers, however it lies.
    device: "cuda:0", "cuda:1"..., a number, "cuda" (the current device), or "cpu".
    stream: the stream, `dg.cuda.Stream` or CuPy's, on which it is copied; None: the current one of the device, for "cpu" of the
    source's device.  The result's memory belongs to that stream: another stream that uses it has to `wait_stream` it first.

    Gives a cupy.ndarray, or for "cpu" a numpy.ndarray, of the same shape, dtype (in the machine's byte order) and order of axes in
    memory: C order stays C order, Fortran order Fortran order, and gaps between elements are closed.

    To a device: the source may be changed once the call is back.  Pageable memory goes through page-locked buffers, and the copy
    may still be under way on the stream.  From page-locked memory (`pinned_empty`) without gaps, ``non_blocking=True`` does not
    wait for the copy either: change the source only after ``stream.synchronize()`` or an event.
    To the host: the call waits for the data; with ``non_blocking=True`` it does not, and gives page-locked memory that holds them
    after ``stream.synchronize()``.  Between devices nothing is waited for.
    A copy from a device comes after what the current stream there has been given before; between devices, what that stream is
    given later comes after the copy.

    Raises CudaError where CuPy, a driver or the device is missing and for a stream of another device, DTypeError for other dtypes,
    TypeError for what is not an array and where `non_blocking` is not a bool,
    ValueError for what is not a device's name.  CuPy's OutOfMemoryError comes as it is.

    >>> x = dg.to_device(np.ones(1000), "cuda:0")
    >>> y = dg.to_device(cupy.exp(x), "cpu")
    """
    library = library_of(type(array))
    if library is None:
        raise TypeError(f"to_device: {_refusal(array)}")
    check_dtype("to_device", array.dtype)
    check_flag("to_device", "non_blocking", non_blocking)
    source = library.device_of(array)
    if isinstance(device, str) and device == "cpu":
        return array if library is NUMPY else _to_host(array, source, non_blocking, stream)
    target = _target(device)
    if source == target:
        return array
    with on_device(target):
        on = _stream_of(stream, target)
        return _from_host(array, on, non_blocking) if library is NUMPY else _between(array, source, on)


def _target(device: DeviceLike) -> int:
    try:
        return device_index(device)
    except ValueError as error:
        raise ValueError(f"to_device: {error}, or 'cpu'") from None


def _refusal(array: Any) -> str:
    kind = type(array).__name__
    if isinstance(array, np.ma.MaskedArray):
        return f"a {kind} would lose its mask; pass x.filled(...), or x.data and x.mask"
    if isinstance(array, np.ndarray):
        return f"{kind} is a subclass of numpy.ndarray, which a device cannot hold; pass np.asarray(x)"
    return f"expected a NumPy or CuPy array, got {kind}; np.asarray(x) makes one of numbers and lists"


def _stream_of(stream: Any, device: int) -> Any:
    on = current_stream() if stream is None else as_stream(stream)
    if on.device != device:
        raise CudaError(f"to_device: the stream is one of cuda:{on.device}, the copy is made on cuda:{device}; make a Stream there")
    return on


# -- layout ------------------------------------------------------------------------------------------------------------


def axes_by_stride(array: Any) -> tuple[int, ...]:
    """The axes of an array, of either library, in the order in which they lie in memory: the outermost first.

    >>> axes_by_stride(np.ones((2, 3, 4)).transpose(2, 0, 1))
    (1, 2, 0)
    """
    if array.flags.c_contiguous:
        return tuple(range(array.ndim))
    if array.flags.f_contiguous:
        return tuple(reversed(range(array.ndim)))
    return tuple(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))


def _back(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda place: axes[place]))


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array in C order, as a flat view."""
    return array.reshape(-1).view(np.uint8)


def _empty_like(array: Any, axes: Sequence[int], dtype: np.dtype) -> Any:
    """A new array on the current device, allocated for the current stream, whose axes lie in this order and without gaps."""
    cupy = require_cupy()
    strides, step = [0] * array.ndim, dtype.itemsize
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(array.shape[axis], 1)
    return cupy.ndarray(array.shape, dtype, cupy.cuda.alloc(array.size * dtype.itemsize), tuple(strides))


# -- copies ------------------------------------------------------------------------------------------------------------


def _from_host(array: np.ndarray, on: Any, non_blocking: bool) -> Any:
    axes, native = axes_by_stride(array), array.dtype.newbyteorder("=")
    block = array.transpose(axes)
    is_direct = block.flags.c_contiguous and array.dtype.isnative and is_pinned(array)
    if not is_direct:
        block = np.asarray(block, native, order="C")
    with on:
        result = _empty_like(array, axes, native)
        if array.size == 0:
            return result
        if is_direct:
            _send_pinned(block, result, on.cupy_stream, non_blocking)
        else:
            _send_pageable(_bytes(block), result.data, on.cupy_stream)
    return result


def _send_pinned(block: np.ndarray, result: Any, raw: Any, non_blocking: bool) -> None:
    result.data.copy_from_host_async(_address(block), block.nbytes, raw)
    copied = _event(raw)
    if non_blocking:
        hold(copied, block)  # its memory must not be used for another array meanwhile
    else:
        copied.synchronize()


def _send_pageable(data: np.ndarray, target: Any, raw: Any) -> None:
    """Copy bytes through two buffers in turn; they may be changed at return."""
    cupy = require_cupy()
    buffers: list[tuple[Any, Any]] = []
    for turn, start in enumerate(range(0, data.size, STAGING)):
        part = data[start : start + STAGING]
        if turn < 2:
            copied, memory = cupy.cuda.Event(disable_timing=True), cupy.cuda.alloc_pinned_memory(part.size)
            buffers.append((copied, memory))
        else:
            copied, memory = buffers[turn % 2]
            copied.synchronize()
        np.frombuffer(memory, np.uint8, part.size)[:] = part
        (target + start).copy_from_host_async(memory.ptr, part.size, raw)
        copied.record(raw)
        if turn < 2:
            hold(copied, memory)


def _to_host(array: Any, source: int, non_blocking: bool, stream: Any) -> np.ndarray:
    with on_device(source):
        on, before = _stream_of(stream, source), current_stream()
        axes = axes_by_stride(array)
        if on != before:
            on.wait_stream(before)
        with on:
            block = _block(array, axes)
        shape = tuple(array.shape[axis] for axis in axes)
        result = pinned_empty(shape, array.dtype) if non_blocking else np.empty(shape, array.dtype)
        if array.size:
            block.data.copy_to_host_async(_address(result), result.nbytes, on.cupy_stream)
            copied = _event(on.cupy_stream)
            if non_blocking:
                hold(copied, block, result)
            else:
                copied.synchronize()
    return result if axes == tuple(range(array.ndim)) else result.transpose(_back(axes))


def _between(array: Any, source: int, on: Any) -> Any:
    _join(source, on.device)
    axes = axes_by_stride(array)
    with on_device(source):
        before = current_stream()
        block = _block(array, axes)
        ready = before.record()
    with on:
        result = _empty_like(array, axes, array.dtype)
        if array.size:
            on.wait_event(ready)
            result.data.copy_from_device_async(block.data, array.nbytes, on.cupy_stream)
            before.wait_event(on.record())  # what it does to the source from now on comes after the copy
    return result


def _join(one: int, other: int) -> None:
    """Let two devices reach each other's memory, if they can: copies go straight then, and else through the host."""
    if (one, other) in state.peers:
        return
    runtime = require_cupy().cuda.runtime
    for device, peer in ((one, other), (other, one)):
        if runtime.deviceCanAccessPeer(device, peer):
            with on_device(device), contextlib.suppress(runtime.CUDARuntimeError):  # others may have done it
                runtime.deviceEnablePeerAccess(peer)
    with state.lock:
        state.peers |= {(one, other), (other, one)}


def _block(array: Any, axes: Sequence[int]) -> Any:
    """A device's array in C order: where there are gaps, gathered by work of the current stream."""
    block = array.transpose(axes)
    return block if block.flags.c_contiguous else require_cupy().ascontiguousarray(block)


def _event(raw: Any) -> Any:
    made = require_cupy().cuda.Event(disable_timing=True)
    made.record(raw)
    return made


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
