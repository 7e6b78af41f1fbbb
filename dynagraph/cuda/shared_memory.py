"""Memory of devices that several processes have, by CUDA's handles, and who still has it.

Memory that is shared is an allocation of its own.  CUDA may divide a block of 2 MiB among small allocations, and a handle opens the
whole block: allocations are multiples of that, so that a process sees nothing else.

With each message goes a `Claim`, the write end of a pipe whose read end stays here.  It is closed when the memory has been let go,
and by the kernel where the process was killed or the message was lost: until the pipe has ended, the memory is kept.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.cuda.devices import on_device
from dynagraph.cuda.memory import empty_cache
from dynagraph.cuda.state import require_cupy, state
from dynagraph.errors import CudaError

BLOCK = 1 << 21  # bytes
_NO_MEMORY = 2  # of cudaError_t
_LEGACY_STREAMS = (0, 1)  # which cannot be captured


class Memory:
    """An allocation: of this process, or (`raw` is None) opened here.  Arrays in it keep it alive."""

    __slots__ = ("__weakref__", "address", "device", "handle", "key", "nbytes", "raw")

    def __init__(self, key: bytes, handle: bytes, device: int, address: int, nbytes: int, raw: Any = None):
        self.key, self.handle, self.device, self.address, self.nbytes, self.raw = key, handle, device, address, nbytes, raw
        _here[device, address] = self

    @property
    def is_received(self) -> bool:
        """Whether it belongs to another process."""
        return self.raw is None

    def array(self, offset: int, nbytes: int) -> Any:
        """A part of it, as an array of bytes."""
        cupy = require_cupy()
        mem = cupy.cuda.UnownedMemory(self.address, self.nbytes, self, self.device)
        return cupy.ndarray((nbytes,), np.uint8, cupy.cuda.MemoryPointer(mem, offset))

    def place(self) -> tuple[bytes, bytes, bytes, int]:
        """What `received` takes."""
        return self.key, self.handle, uuid_of(self.device), self.nbytes


class _Opened(weakref.ref):  # type: ignore[type-arg]
    """Of memory that was opened here.  Its claim outlives it until it is closed."""

    __slots__ = ("address", "claim", "device", "key")
    key: bytes
    device: int
    address: int
    claim: Claim | None


class Claim:
    """A write end: as long as some process has it open, the process that made it keeps `memories`.

    file: one that has arrived.
    """

    __slots__ = ("__weakref__", "file", "memories")
    file: int
    memories: list[Memory]

    def __init__(self, file: int | None = None):
        self.file, self.memories = -1, list[Memory]()
        with _lock:
            if file is None:
                reader, file = os.pipe()
                _sent[reader] = self.memories
            self.file = file
            _claims.add(self)

    def is_orphan(self) -> bool:
        """Whether the process that made it has ended."""
        poll = select.poll()
        poll.register(self.file, 0)
        return bool(poll.poll(0))

    def __del__(self) -> None:
        if self.file >= 0:
            os.close(self.file)


_lock = threading.RLock()  # a garbage collection may come back to it in the same thread
_here: weakref.WeakValueDictionary[tuple[int, int], Memory] = weakref.WeakValueDictionary()  # by device and address
_own: weakref.WeakValueDictionary[bytes, Memory] = weakref.WeakValueDictionary()
_opened: dict[bytes, _Opened] = {}
_sent: dict[int, list[Memory]] = {}  # what others may have, by the read ends
_claims: weakref.WeakSet[Claim] = weakref.WeakSet()
_kept: list[tuple[Callable[[], bool], Claim]] = []
_lost: list[Any] = []  # of a process that was forked: its parent's memory, which cannot be freed here


@functools.lru_cache(16)
def _uuids(runtime: Any, count: int) -> list[bytes]:
    return [bytes(runtime.getDeviceProperties(device)["uuid"]) for device in range(count)]


def uuid_of(device: int) -> bytes:
    """What a device is called in all processes: numbers depend on CUDA_VISIBLE_DEVICES."""
    return _uuids(require_cupy().cuda.runtime, state.count)[device]


def device_of(uuid: bytes) -> int:
    """The number that a device has here; CudaError where this process does not see it."""
    found = _uuids(require_cupy().cuda.runtime, state.count)
    if uuid not in found:
        raise CudaError(
            f"memory of the GPU {uuid.hex()} was sent to a process that does not see this GPU: let CUDA_VISIBLE_DEVICES of both "
            "have it"
        )
    return found.index(uuid)


def memory_of(array: Any) -> Memory | None:
    """The memory of this kind that an array of CuPy's lies in, if it does."""
    pointer = array.data
    return None if pointer.mem is None else _here.get((int(pointer.device_id), int(pointer.mem.ptr)))


# -- in the process that it belongs to --------------------------------------------------------------------------------


def allocate(nbytes: int, device: int) -> Memory:
    """Memory that other processes can open."""
    cuda, size = require_cupy().cuda, -(-nbytes // BLOCK) * BLOCK
    with on_device(device):
        try:
            raw = cuda.Memory(size)
        except cuda.runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            collect()
            empty_cache(device)  # the pool may have it
            raw = cuda.Memory(size)
        made = Memory(os.urandom(16), cuda.runtime.ipcGetMemHandle(raw.ptr), device, int(raw.ptr), size, raw)
    _own[made.key] = made
    return made


def give(memory: Memory, claim: Claim) -> None:
    """Let a claim's holders have a memory: what this thread's current stream writes there has been written then."""
    with on_device(memory.device):
        state.cupy.cuda.get_current_stream().synchronize()
    if not any(memory is each for each in claim.memories):
        claim.memories.append(memory)


def keep_until(is_done: Callable[[], bool], claim: Claim) -> None:
    """Keep a claim open in this process, until a `collect` that finds the condition true."""
    with _lock:
        _kept.append((is_done, claim))


def collect() -> None:
    """Let go of what no other process has any more, and close what nothing here lies in any more."""
    with _lock:
        dropped: list[Any] = [each for each in _kept if each[0]()]
        _kept[:] = [each for each in _kept if not any(each is other for other in dropped)]
        for opened in [each for each in _opened.values() if each() is None]:
            _end(opened)
    dropped.clear()  # write ends of pipes that may be seen to have ended now
    with _lock:
        poll = select.poll()
        for reader in _sent:
            poll.register(reader, select.POLLIN)
        for reader, _ in poll.poll(0):  # nobody writes: each has ended
            os.close(reader)
            dropped.append(_sent.pop(reader))


# -- in the others ----------------------------------------------------------------------------------------------------


def received(place: tuple[bytes, bytes, bytes, int], claim: Claim) -> Memory:
    """The memory that a message has brought: opened once, and the very memory where it is this process's own.

    Raises CudaError where CUDA cannot be used in this process, and where the process that sent it has ended.
    """
    runtime = require_cupy().cuda.runtime
    key, handle, uuid, nbytes = place
    own = _own.get(key)
    if own is not None:
        return own
    device = device_of(uuid)
    with _lock:
        opened = _opened.get(key)
        if opened is not None:
            memory = opened()
            if memory is not None:
                return memory
            _close(opened)
        if claim.is_orphan():
            raise CudaError(
                "memory of a GPU was received after the process that sent it has ended: it has to live as long as others use it"
            )
        with on_device(device):
            address = int(runtime.ipcOpenMemHandle(handle))
        memory = Memory(key, handle, device, address, nbytes)
        opened = _opened[key] = _Opened(memory, _end)
        opened.key, opened.device, opened.address, opened.claim = key, device, address, claim
        return memory


def _end(opened: _Opened) -> None:
    """No array lies in it any more.  What is being captured must not be disturbed: it is closed by a later `collect` then."""
    if sys.is_finalizing() or state.is_lost:
        return
    require_cupy()
    if not any(_is_capturing(device) for device in range(state.count)):
        _close(opened)


def _is_capturing(device: int) -> bool:
    stream = state.cupy.cuda.get_current_stream(device)
    return stream.ptr not in _LEGACY_STREAMS and bool(stream.is_capturing())


def _close(opened: _Opened) -> None:
    with _lock:
        if _opened.get(opened.key) is not opened:
            return
        del _opened[opened.key]
        try:
            with on_device(opened.device):
                state.cupy.cuda.runtime.deviceSynchronize()  # any stream may have used it
                state.cupy.cuda.runtime.ipcCloseMemHandle(opened.address)
        finally:
            opened.claim = None


# -- ends -------------------------------------------------------------------------------------------------------------


def _after_fork() -> None:
    """The child can use none of it, and must not seem to."""
    global _lock
    _lock = threading.RLock()
    for claim in list(_claims):
        if claim.file >= 0:
            os.close(claim.file)
            claim.file = -1
    for reader in _sent:
        os.close(reader)
    _lost.append((dict(_sent), list(_kept), dict(_own), dict(_opened)))
    _sent.clear()
    _kept.clear()
    _opened.clear()


def _at_exit() -> None:
    if _sent:
        collect()
    if any(_sent.values()):
        warnings.warn(
            "a process ends while others still have memory of a GPU that it has sent them: it has to live as long as they use it",
            stacklevel=1,
        )


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

__all__ = [
    "BLOCK", "Claim", "Memory", "allocate", "collect", "device_of", "give", "keep_until", "memory_of", "received", "uuid_of",
]  # fmt: skip
