"""Messages between processes: a pickle, the memory of what it holds, and descriptors of memory that both processes have.

A message is packed where it is sent, and later travels on a Unix socket:

    header      sizes, flags; the descriptors are attached to its first byte, and in the kernel's hands from then on
    parts       length and place of each; SHARED and the place in it for a storage that travels as a descriptor; CLAIM for the
                descriptor that keeps memory of GPUs, which travels as handles in the pickle (`dynagraph/cuda/shared_memory.py`)
    image       the parts at multiples of ALIGNMENT: the pickle, and buffers outside of it (its protocol 5)

A large image is a memory file of its own and the last of the descriptors: it is mapped, not copied, and no message fills a socket.
A DataLoader's workers have segments (`segments.py`), which are sent once and are the images of many messages.
"""

from __future__ import annotations

import array
import copyreg
import errno
import io
import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing import connection, reduction
from typing import Any

import numpy as np

from dynagraph._core._dispatch import FileMapping
from dynagraph.cuda.shared_memory import Claim
from dynagraph.torch.core.arrays import is_on_gpu
from dynagraph.torch.core.memory_files import mapping_of, new_file
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.multiprocessing.reductions import (
    REDUCERS,
    arrived,
    as_view,
    new_claim,
    rebuild_empty,
    reduce_storage_cuda,
    shared,
)
from dynagraph.torch.multiprocessing.segments import LEAST_BYTES, Room, Segments, aligned

AT_ONCE = 253  # descriptors that the kernel takes at a time
PAUSE = 0.001  # seconds until it is asked again whether it takes more of them

_HEADER = struct.Struct("<QIIII")  # bytes of the image, parts, descriptors, where the image is, the number of its segment
_INLINE, _FILE, _SEGMENT, _NEW_SEGMENT = range(4)  # of files, and of new segments, the descriptor is the last
_PART = struct.Struct("<QQ")  # length, and place in the image or, of a storage, in its file
_SHARED = 1 << 63  # of lengths
_CLAIM = 1 << 62  # beside _SHARED
_ROOM = socket.CMSG_SPACE(AT_ONCE * 4)


# -- packing ----------------------------------------------------------------------------------------------------------


class _Beside:
    """What is beside a pickle: storages as descriptors or, with `copies` and where they are in no shared memory, as bytes.

    Pickler and table refer to this, and not the other way: in a cycle what was pickled would live until a garbage collection.
    """

    def __init__(self, copies: bool, room: Room | None):
        self.buffers: list[pickle.PickleBuffer] = []
        self.places: dict[int, tuple[FileMapping | Claim, int, int]] = {}  # of storages, by the number of the buffer
        self.claim: Claim | None = None  # on all memory of GPUs in the message
        self.in_room: dict[int, int] = {}  # places in the room
        self.copies, self.room = copies, room

    def pickle(self, value: Any) -> memoryview:
        """The pickle."""
        registered = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        table: dict[Any, Any] = {**copyreg.dispatch_table, **registered, **REDUCERS}
        table[Storage] = self._copied if self.copies else self._shared
        table[Claim] = self._claimed
        if self.copies:
            table[Tensor] = _reduce_copy
        data = io.BytesIO()
        pickler = pickle.Pickler(data, 5, buffer_callback=self.buffers.append)
        pickler.dispatch_table = table
        pickler.dump(value)
        return data.getbuffer()

    def _shared(self, memory: Storage) -> Any:
        if is_on_gpu(memory.array):
            self.claim = self.claim or new_claim()
            return reduce_storage_cuda(memory, self.claim)
        if not memory.nbytes():
            return rebuild_empty, ()
        place = self.places[len(self.buffers)] = shared(memory)
        return _of_buffer, (pickle.PickleBuffer(place[0]),)

    def _copied(self, memory: Storage) -> Any:
        mapping = mapping_of(memory.array)
        if is_on_gpu(memory.array) or (mapping is not None and mapping.file >= 0):
            return self._shared(memory)
        if mapping is not None and self.room is not None and mapping is self.room.lease:
            self.in_room[len(self.buffers)] = memory.start() - mapping.address
        return (_of_buffer, (pickle.PickleBuffer(memory.flat(_BYTES)),)) if memory.nbytes() else (rebuild_empty, ())

    def _claimed(self, claim: Claim) -> Any:
        self.places[len(self.buffers)] = claim, 0, _CLAIM
        return _as_it_is, (pickle.PickleBuffer(bytearray(1)),)


_BYTES = np.dtype(np.uint8)


def _as_it_is(claim: Claim) -> Claim:
    return claim


def _reduce_copy(tensor: Tensor) -> Any:
    """Of a part of a storage only its elements."""
    whole = tensor._array
    if isinstance(whole, np.ndarray) and whole.nbytes < tensor._storage.nbytes() and mapping_of(whole) is None:
        part = tensor.detach()
        part._array = np.ascontiguousarray(whole)
        part._storage = Storage(part._array)
        part._requires_grad = tensor._requires_grad
        as_view(tensor)  # refuses what does not pass between processes
        return as_view(part)
    return as_view(tensor)


def _of_buffer(buffer: Any) -> Storage:
    return buffer if isinstance(buffer, Storage) else Storage(np.frombuffer(buffer, _BYTES))


class Message:
    """A value on its way: `send` it.  Memory that it shares lives at least as long.

    `copies`: storages that are not shared are copied.  `room`: where to, and where some of them may have been made.
    """

    __slots__ = ("body", "files", "header", "image", "is_in_room", "kept")

    def __init__(self, value: Any, copies: bool = False, room: Room | None = None):
        self.image, self.is_in_room = -1, False
        beside = _Beside(copies, room)
        data = beside.pickle(value)
        self.kept = [place[0] for place in beside.places.values()]
        self.files = [mapping.file for mapping in self.kept]
        start = room.used if room is not None and beside.in_room else 0
        parts, views, size = [_PART.pack(data.nbytes, start)], [data], start + aligned(data.nbytes)
        for k, buffer in enumerate(beside.buffers):
            if k in beside.places:
                _, place, nbytes = beside.places[k]
                parts.append(_PART.pack(nbytes | _SHARED, place))
                continue
            view = buffer.raw()
            if k in beside.in_room:
                parts.append(_PART.pack(view.nbytes, beside.in_room[k]))
            else:
                parts.append(_PART.pack(view.nbytes, size))
                views.append(view)
                size += aligned(view.nbytes)
        self.body = b"".join(parts)
        kind = self._place(views, start, size, room)
        number = room.number if room is not None and self.is_in_room else 0
        self.header = _HEADER.pack(size, len(parts), len(self.files), kind, number)

    def _place(self, views: list[memoryview], start: int, size: int, room: Room | None) -> int:
        """Make the image of what a room has, as far as `start`, and of more."""
        if size < LEAST_BYTES:
            self.body += b"".join(bytes(view) + bytes(aligned(view.nbytes) - view.nbytes) for view in views)
            return _INLINE
        if room is not None and room.place(size - start) == start:
            assert room.mapping is not None
            self.is_in_room = True
            memory, place = memoryview(room.mapping), start
            for view in views:
                memory[place : place + view.nbytes] = view
                place += aligned(view.nbytes)
            if room.is_new:
                self.files.append(room.mapping.file)
            return _NEW_SEGMENT if room.is_new else _SEGMENT
        made = memoryview(room.mapping)[:start] if room is not None and start else b""  # type: ignore[arg-type]
        self._to_file([memoryview(made), *views], size)
        return _FILE

    def _to_file(self, views: list[memoryview], size: int) -> None:
        self.image = new_file()
        try:
            os.ftruncate(self.image, size)
            place = 0
            for view in views:
                _write(self.image, view, place)
                place += aligned(view.nbytes)
        except BaseException:
            self.close()
            raise
        self.files.append(self.image)

    def leave(self, room: Room) -> None:
        """Take what is in a room to elsewhere, since the segment is not used again."""
        size, n, count, kind, _ = _HEADER.unpack(self.header)
        assert room.mapping is not None
        if kind == _NEW_SEGMENT:
            self.files.pop()
            count -= 1
        self._to_file([memoryview(room.mapping)[:size]], size)
        self.header = _HEADER.pack(size, n, count + 1, _FILE, 0)
        self.is_in_room = False

    def send(self, pipe: Connection) -> None:
        """Hand it to the kernel; waits while there are too many messages or descriptors that nobody has received."""
        try:
            first, rest = self.files[:AT_ONCE], self.files[AT_ONCE:]
            sent = _send(pipe.socket, [self.header, self.body], first)
            message = self.header + self.body if sent < len(self.header) + len(self.body) else b""
            if message:
                pipe.socket.sendall(message[sent:])
            for k in range(0, len(rest), AT_ONCE):
                _send(pipe.socket, [b"\0"], rest[k : k + AT_ONCE])
        finally:
            self.close()

    def close(self) -> None:
        """Done with it."""
        if self.image >= 0:
            os.close(self.image)
            self.image = -1

    __del__ = close


def _write(file: int, view: memoryview, place: int) -> None:
    while view.nbytes:
        written = os.pwrite(file, view, place)
        view, place = view[written:], place + written


def _send(to: socket.socket, data: list[bytes], files: list[int]) -> int:
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    while True:
        try:
            return to.sendmsg(data, extra)
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:  # descriptors in sockets are counted, by user
                raise
        time.sleep(PAUSE)


# -- receiving --------------------------------------------------------------------------------------------------------


class Received:
    """A message as it has come; `value` unpickles it.  `segments`: those of the process that has sent it."""

    __slots__ = ("files", "image", "parts")

    def __init__(self, pipe: Connection, segments: Segments | None = None):
        self.files: list[int] = []
        header = self._with_files(pipe, _HEADER.size)
        size, n, count, kind, number = _HEADER.unpack(header)
        body = bytearray(n * _PART.size + (size if kind == _INLINE else 0))
        _fill(pipe, memoryview(body))
        self.parts = _PART.iter_unpack(memoryview(body)[: n * _PART.size])
        while len(self.files) < count:
            self._with_files(pipe, 1)
        self.image: Any
        if kind == _INLINE:
            self.image = memoryview(body)[n * _PART.size :]
        elif kind == _FILE:
            self.image = FileMapping(self.files.pop(), size, keep=False)
        else:
            assert segments is not None
            self.image = segments.lease(number, self.files.pop() if kind == _NEW_SEGMENT else None)

    def _with_files(self, pipe: Connection, size: int) -> bytes:
        data, extra, flags, _ = pipe.socket.recvmsg(size, _ROOM)
        for _, _, each in extra:
            self.files.extend(array.array("i", each))
        if flags & socket.MSG_CTRUNC:
            raise OSError(
                errno.EMFILE,
                "Too many open files: descriptors of shared tensors did not arrive; raise the limit (ulimit -n), or call "
                "torch.multiprocessing.set_sharing_strategy('file_system'), which does",
            )
        if not data:
            raise EOFError
        if len(data) < size:
            rest = bytearray(size - len(data))
            _fill(pipe, memoryview(rest))
            data += rest
        return data

    def value(self) -> Any:
        """What was sent.  Once."""
        data, *buffers = self._buffers()
        return pickle.loads(data, buffers=buffers)

    def _buffers(self) -> Iterator[Any]:
        image, self.image = memoryview(self.image), None
        self.files.reverse()  # what is left where a value cannot be made is closed
        for length, place in self.parts:
            if length & _CLAIM:
                yield Claim(self.files.pop())
            elif length & _SHARED:
                yield arrived(self.files.pop(), place, length & ~_SHARED)
            else:
                yield image[place : place + length]

    def __del__(self) -> None:
        for file in self.files:
            os.close(file)


def _fill(pipe: Connection, view: memoryview) -> None:
    while view.nbytes:
        n = pipe.socket.recv_into(view)
        if not n:
            raise EOFError
        view = view[n:]


# -- ends of pipes ----------------------------------------------------------------------------------------------------


class Connection(connection.Connection):
    """An end of a pipe, on which tensors travel with their memory: a Unix socket."""

    def __init__(self, handle: int, readable: bool = True, writable: bool = True):
        super().__init__(handle, readable, writable)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, handle)
        self.socket.setblocking(True)

    def _close(self) -> None:
        self.socket.detach()
        super()._close()  # type: ignore[misc]

    def send(self, obj: Any) -> None:
        """Send an object."""
        self.post(Message(obj))

    def post(self, message: Message) -> None:
        """Send what is packed."""
        self._check_closed()  # type: ignore[attr-defined]
        self._check_writable()  # type: ignore[attr-defined]
        message.send(self)

    def recv(self) -> Any:
        """The next object; EOFError where the other end is closed."""
        return self.received().value()

    def received(self, segments: Segments | None = None) -> Received:
        """The next message; `segments` of the process at the other end, if it has any."""
        self._check_closed()  # type: ignore[attr-defined]
        self._check_readable()  # type: ignore[attr-defined]
        return Received(self, segments)


def Pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """Both ends of a pipe; without `duplex` the first only receives and the second only sends."""
    one, other = socket.socketpair()
    return Connection(one.detach(), writable=duplex), Connection(other.detach(), readable=duplex)


def _reduce_connection(end: Connection) -> Any:
    return _rebuild_connection, (reduction.DupFd(end.fileno()), end.readable, end.writable)


def _rebuild_connection(descriptor: Any, readable: bool, writable: bool) -> Connection:
    return Connection(descriptor.detach(), readable, writable)


reduction.ForkingPickler.register(Connection, _reduce_connection)

__all__ = ["Connection", "Message", "Pipe", "Received"]
