"""`cupy.cuda` of the stand-in: devices, streams, events, pools and page-locked memory, modelled so that mistakes show.

Streams are lazy: what is queued is done only when somebody waits for it, or looks at an array whose device's current stream has it.
So a copy that nobody waited for has not happened, and one whose source was changed or freed meanwhile is seen: `Machine.mistakes`.
What is queued on a stream that is capturing goes to the graph.  Memory outside of the pool is a file that other processes can open.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import mmap
import os
import struct
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__name__ = "cupy.stand_in_cuda"  # its code is left alone, as CuPy's is

UNIT = 512  # bytes: pools round up to it
SUCCESS, INVALID, NO_MEMORY, NO_INITIALIZATION, OLD_DRIVER, NO_DEVICE, BAD_HANDLE, NOT_READY = 0, 1, 2, 3, 35, 100, 400, 600
BAD_STATE, BAD_CAPTURE, PEER_ALREADY = 401, 901, 704
_TEXTS = {
    INVALID: "cudaErrorInvalidValue: invalid argument",
    NO_MEMORY: "cudaErrorMemoryAllocation: out of memory",
    NO_INITIALIZATION: "cudaErrorInitializationError: initialization error",
    OLD_DRIVER: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    NO_DEVICE: "cudaErrorNoDevice: no CUDA-capable device is detected",
    BAD_HANDLE: "cudaErrorInvalidResourceHandle: invalid resource handle",
    NOT_READY: "cudaErrorNotReady: device not ready",
    BAD_STATE: "cudaErrorIllegalState: the operation cannot be performed in the present state",
    BAD_CAPTURE: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
}  # fmt: skip


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int):
        self.status = status
        super().__init__(_TEXTS.get(status, f"cudaError {status}"))


class OutOfMemoryError(MemoryError):
    pass


def _move(to: int, start: Any, size: int) -> None:
    ctypes.memmove(to, start, size)


class Queue:
    """One stream of the machine: what it has still to do."""

    def __init__(self, machine: Machine, device: int):
        self.machine, self.device = machine, device
        self.work: collections.deque[Callable[[], Any]] = collections.deque()
        self.captured: list[Callable[[], Any]] | None = None  # while it is capturing

    def add(self, step: Callable[[], Any]) -> None:
        (self.work if self.captured is None else self.captured).append(step)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        while self.work and not until():
            step = self.work.popleft()
            self.machine.milliseconds += self.machine.tick
            step()


class Mark:
    """Where an event was recorded last."""

    def __init__(self, queue: Queue):
        self.queue, self.is_reached, self.milliseconds = queue, False, 0.0

    def reach(self) -> None:
        self.is_reached, self.milliseconds = True, self.queue.machine.milliseconds

    def wait(self) -> None:
        self.queue.run(lambda: self.is_reached)


class PerThread(threading.local):
    def __init__(self, machine: Machine):
        self.device = 0
        self.streams: list[Any] = [machine.null] * len(machine.queues)
        self.stacks: list[list[Any]] = [[machine.null] for _ in machine.queues]
        self.entered: list[int] = []
        self.hooks: dict[str, Any] = {}
        self.allocator: Callable[[int], Any] | None = None


class Machine:
    """Devices, and what is wrong with them: tests set `status`, `driver`, `memory`, `page_locked`."""

    def __init__(self, devices: int = 2):
        self.queues = [Queue(self, k) for k in range(devices)]  # of the default streams
        self.status, self.driver, self.built = SUCCESS, 13000, 13020
        self.memory: list[int] = [1 << 30] * devices  # bytes
        self.page_locked = 1 << 30  # bytes
        self.milliseconds, self.tick = 0.0, 1.0  # the time, and what every step takes
        self.copy_milliseconds: Callable[[str, str, int], float] = lambda source, target, size: 0.0  # what a copy takes besides
        self.copies: list[tuple[str, str, int]] = []  # that have been made
        self.peers: set[tuple[int, int]] = set()  # devices that may reach the memory of others
        self.peers_can = True
        self.user: int | None = None  # the process that uses it: forked ones cannot
        self.mistakes: list[str] = []
        self.blocks: dict[int, int] = {}  # page-locked memory: address -> bytes
        self.streams: dict[int, Queue] = {}  # those that were made and not destroyed
        self.next_stream = 0x1000
        self.capture_status = self.graph_status = SUCCESS  # of ends of captures, and launches of graphs
        self.graphs = self.graph_launches = 0
        self.allocations: dict[int, tuple[int, mmap.mmap]] = {}  # outside of the pool: address -> file
        self.opened: dict[int, tuple[bytes, mmap.mmap, int]] = {}  # of other processes: address -> handle, memory, device
        self.null: Any = None
        self.cuda = _namespace(self)
        self.thread = PerThread(self)
        self.pool, self.pinned_pool = MemoryPool(self), PinnedMemoryPool()
        self.allocator: Callable[[int], MemoryPointer] = self.pool.malloc

    def check(self, status: int) -> None:
        if status != SUCCESS:
            raise CUDARuntimeError(status)

    def use(self) -> None:
        self.user = os.getpid() if self.user is None else self.user
        self.check(SUCCESS if self.user == os.getpid() else NO_INITIALIZATION)

    def queue_of(self, stream: Any) -> Queue:
        self.use()
        return self.queue_at(self.thread.device, stream.ptr)

    def catch_up(self, device: int) -> None:
        """Functions on arrays are done at once: after what their stream has to do."""
        self.queue_at(device, self.thread.streams[device].ptr).run()

    def queue_at(self, device: int, address: int) -> Queue:
        """The queue of the stream at an address."""
        return self.queues[device] if address == 0 else self.streams[address]

    def copied(self, source: str, target: str, size: int) -> None:
        self.copies.append((source, target, size))
        self.milliseconds += self.copy_milliseconds(source, target, size)

    def send_to_host(self, queue: Queue, source: int, target: int, size: int) -> None:
        """Queue a copy of a device's memory; to pageable memory it is done at once."""
        is_locked = self.is_page_locked(target, size)

        def copy() -> None:
            self.copied(f"cuda:{queue.device}", "cpu", size)
            if not is_locked or self.is_page_locked(target, size):
                ctypes.memmove(target, source, size)
            else:
                self.mistakes.append("copy to page-locked memory that is freed")

        queue.add(copy)
        if not is_locked:
            queue.run()

    def is_page_locked(self, address: int, size: int) -> bool:
        return any(start <= address and address + size <= start + length for start, length in self.blocks.items())


class Memory:
    """Memory of a device, of its pool and of the arena of one stream."""

    def __init__(self, pool: Any, size: int, device: int, stream: int):
        self.pool, self.size, self.device_id, self.stream = pool, size, device, stream
        self.block = np.zeros(max(size, 16), np.uint8)
        self.ptr = int(self.block.__array_interface__["data"][0])

    def __del__(self) -> None:
        self.pool.freed(self)


class UnownedMemory:
    """Memory at an address, which the owner keeps."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int):
        self.ptr, self.size, self.owner, self.device_id, self.stream = ptr, size, owner, device_id, 0
        self.block = np.frombuffer((ctypes.c_ubyte * size).from_address(ptr), np.uint8)


class MemoryPointer:
    """As CuPy's: copies are queued on a stream; pageable host memory is read at once, as CUDA does."""

    __slots__ = ("_machine", "device_id", "mem", "ptr")

    def __init__(self, mem: Any, offset: int, device_id: int = 0, machine: Any = None, ptr: int | None = None):
        self.mem, self._machine = mem, machine
        self.ptr = ptr if ptr is not None else mem.ptr + offset
        self.device_id = mem.device_id if mem is not None else device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, 0, machine=self._machine, ptr=self.ptr + offset)

    def _queue(self, stream: Any, *, writes: bool) -> Queue:
        queue: Queue = self._machine.queue_of(self._machine.cuda.get_current_stream() if stream is None else stream)
        if queue.device != self.device_id:
            self._machine.mistakes.append(f"copy of memory of device {self.device_id} on a stream of device {queue.device}")
        if writes and self.mem.stream != (0 if stream is None else stream.ptr):
            self._machine.mistakes.append("copy on another stream than that which the memory was allocated for")
        return queue

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        queue, machine = self._queue(stream, writes=True), self._machine
        if not machine.is_page_locked(mem, size):
            data = ctypes.string_at(mem, size)
            queue.add(lambda: (_move(self.ptr, data, size), machine.copied("cpu", f"cuda:{self.device_id}", size)))
            return

        def copy() -> None:
            machine.copied("cpu", f"cuda:{self.device_id}", size)
            if machine.is_page_locked(mem, size):
                ctypes.memmove(self.ptr, mem, size)
            else:
                machine.mistakes.append("copy from page-locked memory that is freed")

        queue.add(copy)

    def copy_to_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        self._machine.send_to_host(self._queue(stream, writes=False), self.ptr, mem, size)

    def copy_from_device_async(self, src: MemoryPointer, size: int, stream: Any = None) -> None:
        queue, machine = self._queue(stream, writes=True), self._machine
        names = [f"cuda:{pointer.device_id}" for pointer in (src, self)]
        queue.add(lambda: (_move(self.ptr, src.ptr, size), machine.copied(*names, size)))


class MemoryPool:
    """Counts by device, in units; memory that arrays give back is kept until `free_all_blocks`."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.used, self.total = [0] * len(machine.queues), [0] * len(machine.queues)
        self.lock = threading.RLock()

    def malloc(self, size: int) -> MemoryPointer:
        thread = self.machine.thread
        return MemoryPointer(self.allocate(size, thread.device, thread.streams[thread.device].ptr), 0, machine=self.machine)

    def allocate(self, size: int, device: int, stream: int) -> Memory:
        rounded, made = -(-size // UNIT) * UNIT, None
        if self.machine.queue_at(device, stream).captured is not None:
            self.machine.mistakes.append("memory was allocated for a stream that is capturing")
        hooks = list(self.machine.thread.hooks.values())
        for hook in hooks:
            hook.malloc_preprocess(device_id=device, size=size, mem_size=rounded)
        try:
            with self.lock:
                if self.used[device] + rounded > self.machine.memory[device]:
                    raise OutOfMemoryError(f"Out of memory allocating {rounded:,} bytes")
                self.used[device] += rounded
                self.total[device] = max(self.total[device], self.used[device])
            made = Memory(self, rounded, device, stream)
        finally:
            pointer, number = (0, 0) if made is None else (made.ptr, id(made))
            for hook in hooks:
                hook.malloc_postprocess(device_id=device, size=size, mem_size=rounded, mem_ptr=pointer, pmem_id=number)
        return made

    def freed(self, memory: Memory) -> None:
        queue = self.machine.queues[memory.device_id] if memory.stream == 0 else self.machine.streams.get(memory.stream)
        if queue is not None and queue.work:  # which may use it
            queue.work.append(lambda block=memory.block: None)
        with self.lock:
            self.used[memory.device_id] -= memory.size

    def used_bytes(self) -> int:
        return self.used[self.machine.thread.device]

    def total_bytes(self) -> int:
        return self.total[self.machine.thread.device]

    def free_all_blocks(self, stream: Any = None) -> None:
        with self.lock:
            self.total[self.machine.thread.device] = self.used[self.machine.thread.device]


class PinnedMemoryPool:
    def __init__(self) -> None:
        self.emptied = 0

    def free_all_blocks(self) -> None:
        self.emptied += 1


class MemoryHook:
    name = "MemoryHook"

    def malloc_preprocess(self, **kwargs: Any) -> None:
        pass

    def malloc_postprocess(self, **kwargs: Any) -> None:
        pass


def _namespace(machine: Machine) -> Any:
    """The modules `cupy.cuda` and `cupy.cuda.runtime` of one machine."""
    cuda: Any = types.ModuleType("cupy.cuda")

    class Device:
        def __init__(self, device: int | None = None):
            self.id = machine.thread.device if device is None else int(device)
            self.before: list[int] = []

        def __enter__(self) -> Device:
            self.before.append(machine.thread.device)
            self.use()
            return self

        def __exit__(self, *error: Any) -> None:
            cuda.runtime.setDevice(self.before.pop())

        def use(self) -> None:
            cuda.runtime.setDevice(self.id)

    class Stream:
        null: Any = None

        def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None):
            self.ptr, self.device_id, self.is_non_blocking = 0, -1, non_blocking
            if not null:
                machine.next_stream += 16
                self.ptr, self.device_id = machine.next_stream, machine.thread.device
                machine.streams[self.ptr] = Queue(machine, self.device_id)

        def __del__(self) -> None:
            machine.use()
            if self.ptr and machine.streams.pop(self.ptr).work:
                machine.mistakes.append("a stream was destroyed while it had work to do")

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and self.ptr == other.ptr

        def __hash__(self) -> int:
            return self.ptr

        def _here(self) -> int:
            current = machine.thread.device
            if self.device_id not in (-1, current):
                raise RuntimeError(f"The device that the stream is created on ({self.device_id}) does not match with ({current})")
            return current

        def __enter__(self) -> Stream:
            device, thread = self._here(), machine.thread
            thread.stacks[device].append(self)
            thread.entered.append(device)
            thread.streams[device] = self
            return self

        def __exit__(self, *error: Any) -> None:
            thread = machine.thread
            device = thread.entered.pop()
            thread.stacks[device].pop()
            before = thread.stacks[device][-1]
            thread.streams[before.device_id if before.device_id >= 0 else thread.device] = before  # as CuPy: by the current device

        def use(self) -> Stream:
            machine.thread.streams[self._here()] = self
            return self

        def begin_capture(self, mode: int | None = None) -> None:
            if self.ptr == 0:
                raise RuntimeError("cannot capture on the default (legacy) stream")
            machine.check(SUCCESS if not self.is_capturing() else BAD_STATE)
            machine.queue_of(self).captured = []

        def end_capture(self) -> Graph:
            queue = machine.queue_of(self)
            steps, queue.captured = queue.captured, None
            machine.check(SUCCESS if steps is not None else BAD_STATE)
            machine.check(machine.capture_status)
            machine.graphs += 1
            made = Graph.__new__(Graph)
            made._steps = tuple(steps or ())
            return made

        def is_capturing(self) -> bool:
            return machine.queue_of(self).captured is not None

        @property
        def done(self) -> bool:
            return not machine.queue_of(self).work

        def synchronize(self) -> None:
            machine.queue_of(self).run()

        def record(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            queue = machine.queue_of(self)
            machine.check(SUCCESS if event._device_id == queue.device else BAD_HANDLE)
            event._mark = Mark(queue)
            queue.add(event._mark.reach)
            return event

        def wait_event(self, event: Any) -> None:
            if event._mark is not None:
                machine.queue_of(self).add(event._mark.wait)

    class Graph:
        _steps: tuple[Callable[[], Any], ...]

        def __init__(self) -> None:
            raise NotImplementedError("it must be created via stream capture")

        def launch(self, stream: Any = None) -> None:
            machine.check(machine.graph_status)
            queue = machine.queue_of(get_current_stream() if stream is None else stream)
            machine.graph_launches += 1
            for step in self._steps:
                queue.add(step)

    class Event:
        def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
            self._device_id, self._has_times, self._mark = machine.thread.device, not disable_timing, None

        def __del__(self) -> None:
            machine.use()

        @property
        def done(self) -> bool:
            machine.use()
            return self._mark is None or self._mark.is_reached

        def record(self, stream: Any = None) -> None:
            (get_current_stream() if stream is None else stream).record(self)

        def synchronize(self) -> None:
            if self._mark is not None:
                self._mark.wait()

    def get_current_stream(device_id: int = -1) -> Any:
        return machine.thread.streams[machine.thread.device if device_id == -1 else device_id]

    def get_elapsed_time(start: Any, end: Any) -> float:
        for event in (start, end):
            machine.check(SUCCESS if event._has_times and event._mark is not None else BAD_HANDLE)
            machine.check(SUCCESS if event.done else NOT_READY)
        return end._mark.milliseconds - start._mark.milliseconds

    def alloc_pinned_memory(size: int) -> Any:
        machine.check(NO_MEMORY if sum(machine.blocks.values()) + size > machine.page_locked else SUCCESS)
        methods = {"__del__": lambda self: machine.blocks.pop(self.ptr, None)}
        made: Any = type("PinnedMemoryPointer", (ctypes.c_ubyte * max(size, 1),), methods)()
        made.ptr = ctypes.addressof(made)
        machine.blocks[made.ptr] = max(size, 1)
        return made

    class Memory:
        def __init__(self, size: int):
            self.device_id, self.size = machine.thread.device, size
            machine.check(SUCCESS if size <= machine.memory[self.device_id] else NO_MEMORY)
            file = os.memfd_create("stand-in")
            os.ftruncate(file, size)
            memory = mmap.mmap(file, size)
            self.ptr = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
            machine.allocations[self.ptr] = file, memory

        def __del__(self) -> None:
            machine.use()
            file, _ = machine.allocations.pop(self.ptr)
            os.close(file)

    def get_memory_hooks() -> dict[str, Any]:
        return machine.thread.hooks

    class Hook(MemoryHook):
        def __enter__(self) -> Any:
            if self.name in machine.thread.hooks:
                raise KeyError(f"memory hook {self.name} already exists")
            machine.thread.hooks[self.name] = self
            return self

        def __exit__(self, *error: Any) -> None:
            del machine.thread.hooks[self.name]

    def get_allocator() -> Callable[[int], Any]:
        return machine.thread.allocator or machine.allocator

    @contextlib.contextmanager
    def using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
        before, machine.thread.allocator = machine.thread.allocator, allocator
        try:
            yield
        finally:
            machine.thread.allocator = before

    Stream.null = machine.null = Stream(null=True)
    for made in (Device, Stream, Event, Graph, get_current_stream, get_elapsed_time, get_allocator, using_allocator):
        setattr(cuda, made.__name__, made)
    cuda.alloc_pinned_memory = alloc_pinned_memory
    cuda.MemoryHook, cuda.memory_hook = Hook, types.SimpleNamespace(get_memory_hooks=get_memory_hooks)
    cuda.set_allocator = lambda allocator: setattr(machine, "allocator", allocator)
    cuda.alloc = lambda size: get_allocator()(size)
    cuda.Memory, cuda.UnownedMemory, cuda.MemoryPointer = Memory, UnownedMemory, functools.partial(MemoryPointer, machine=machine)
    cuda.runtime = _runtime(machine)
    _add_handles(machine, cuda.runtime)
    return cuda


def _add_handles(machine: Machine, runtime: Any) -> None:
    """Handles of allocations, which CUDA opens in other processes only, and once in each."""

    def ipcGetMemHandle(address: int) -> bytes:
        machine.use()
        machine.check(SUCCESS if address in machine.allocations else INVALID)
        file, memory = machine.allocations[address]
        return struct.pack("<QQQ", os.getpid(), file, len(memory)).ljust(64, b"\0")

    def ipcOpenMemHandle(handle: bytes) -> int:
        machine.use()
        owner, file, size = struct.unpack_from("<QQQ", handle)
        is_opened = any(handle == each for each, _, _ in machine.opened.values())
        machine.check(INVALID if owner == os.getpid() or is_opened else SUCCESS)
        try:
            with open(f"/proc/{owner}/fd/{file}", "r+b") as opened:
                memory = mmap.mmap(opened.fileno(), size)
        except FileNotFoundError:
            raise CUDARuntimeError(INVALID) from None
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
        machine.opened[address] = handle, memory, machine.thread.device
        return address

    def ipcCloseMemHandle(address: int) -> None:
        machine.use()
        machine.check(SUCCESS if address in machine.opened else INVALID)
        _, _, device = machine.opened.pop(address)
        if any(queue.work and queue.device == device for queue in (*machine.queues, *machine.streams.values())):
            machine.mistakes.append("memory of another process was closed while there was work to do")

    for function in (ipcGetMemHandle, ipcOpenMemHandle, ipcCloseMemHandle):
        setattr(runtime, function.__name__, function)


def _runtime(machine: Machine) -> Any:
    runtime: Any = types.ModuleType("cupy.cuda.runtime")
    attributes = {
        "MultiProcessorCount": 132, "MaxThreadsPerBlock": 1024, "MaxThreadsPerMultiProcessor": 2048, "WarpSize": 32,
        "MaxSharedMemoryPerBlock": 49152, "MaxSharedMemoryPerBlockOptin": 232448, "MaxRegistersPerMultiprocessor": 65536,
        "L2CacheSize": 62914560, "ClockRate": 1980000, "MemoryClockRate": 3201000, "GlobalMemoryBusWidth": 6144,
    }  # fmt: skip
    for number, name in enumerate(attributes):
        setattr(runtime, f"cudaDevAttr{name}", number)

    def getDeviceCount() -> int:
        machine.check(machine.status)
        machine.use()
        return len(machine.queues)

    def getDevice() -> int:
        machine.use()
        return machine.thread.device  # type: ignore[no-any-return]

    def setDevice(device: int) -> None:
        machine.use()
        machine.check(SUCCESS if 0 <= device < len(machine.queues) else INVALID)
        machine.thread.device = device

    def deviceSynchronize() -> None:
        device = machine.thread.device
        for queue in (machine.queues[device], *(q for q in machine.streams.values() if q.device == device)):
            queue.run()

    def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
        machine.check(SUCCESS if kind == runtime.memcpyDeviceToHost else INVALID)
        machine.use()
        machine.send_to_host(machine.queue_at(machine.thread.device, stream), src, dst, size)

    def deviceCanAccessPeer(device: int, peer: int) -> int:
        return int(machine.peers_can and device != peer)

    def deviceEnablePeerAccess(peer: int) -> None:
        pair = machine.thread.device, peer
        machine.check(SUCCESS if pair not in machine.peers else PEER_ALREADY)
        machine.peers.add(pair)

    def pointerGetAttributes(pointer: int) -> Any:
        is_locked = machine.is_page_locked(pointer, 1)
        return types.SimpleNamespace(type=runtime.memoryTypeHost if is_locked else runtime.memoryTypeUnregistered)

    runtime.CUDARuntimeError = CUDARuntimeError
    runtime.memoryTypeUnregistered, runtime.memoryTypeHost, runtime.memoryTypeDevice = 0, 1, 2
    runtime.memcpyAsync, runtime.memcpyDeviceToHost = memcpyAsync, 2
    runtime.getDeviceCount, runtime.deviceSynchronize = getDeviceCount, deviceSynchronize
    runtime.getDevice, runtime.setDevice = getDevice, setDevice
    runtime.driverGetVersion, runtime.runtimeGetVersion = lambda: machine.driver, lambda: machine.built
    runtime.pointerGetAttributes = pointerGetAttributes
    runtime.deviceCanAccessPeer, runtime.deviceEnablePeerAccess = deviceCanAccessPeer, deviceEnablePeerAccess
    runtime.deviceGetAttribute = lambda attribute, device: list(attributes.values())[attribute]
    runtime.getDeviceProperties = lambda device: {
        "name": f"Stand-in {device}".encode(), "major": 9, "minor": 0, "totalGlobalMem": machine.memory[device],
        "uuid": bytes([device] * 16),
    }  # fmt: skip
    return runtime
