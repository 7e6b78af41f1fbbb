"""Messages between processes: a pickle, the memory of what it holds, and descriptors of memory that both processes have.

A message is packed where it is sent, and later travels on a Unix socket:

    header      sizes, flags; the descriptors are attached to its first byte, and in the kernel's hands from then on
    lengths     of each part; SHARED and the place in it for a storage that travels as a descriptor
    image       the parts at multiples of ALIGNMENT: the pickle, and buffers outside of it (its protocol 5)

A large image is a memory file of its own and the last of the descriptors: it is mapped, not copied, and no message fills a socket.
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
from dynagraph.torch.core.memory_files import mapping_of, new_file
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.multiprocessing.reductions import REDUCERS, arrived, as_view, rebuild_empty, shared

LEAST_BYTES = 4096  # of an image that is a file
ALIGNMENT = 64
AT_ONCE = 253  # descriptors that the kernel takes at a time
PAUSE = 0.001  # seconds until it is asked again whether it takes more of them

_HEADER = struct.Struct("<QIII")  # bytes of the image, parts, descriptors, whether the image is the last of these
_PART = struct.Struct("<QQ")  # length and, of a storage, its place in its file
_SHARED = 1 << 63  # of lengths
_ROOM = socket.CMSG_SPACE(AT_ONCE * 4)


# -- packing ----------------------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Storages beside the pickle: as descriptors or, with `copies` and where they are in no shared memory, as bytes."""

    def __init__(self, file: io.BytesIO, copies: bool):
        self.buffers: list[pickle.PickleBuffer] = []
        self.places: dict[int, tuple[FileMapping, int, int]] = {}  # of storages, by the number of the buffer
        super().__init__(file, 5, buffer_callback=self.buffers.append)
        registered = reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        table: dict[Any, Any] = {**copyreg.dispatch_table, **registered, **REDUCERS}
        table[Storage] = self._copied if copies else self._shared
        if copies:
            table[Tensor] = _reduce_copy
        self.dispatch_table = table

    def _shared(self, memory: Storage) -> Any:
        if not memory.nbytes():
            return rebuild_empty, ()
        place = self.places[len(self.buffers)] = shared(memory)
        return _of_buffer, (pickle.PickleBuffer(place[0]),)

    def _copied(self, memory: Storage) -> Any:
        mapping = mapping_of(memory.array)
        if mapping is not None and mapping.file >= 0:
            return self._shared(memory)
        return (_of_buffer, (pickle.PickleBuffer(memory.flat(_BYTES)),)) if memory.nbytes() else (rebuild_empty, ())


_BYTES = np.dtype(np.uint8)


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
    """A value on its way: `send` it.  Memory that it shares lives at least as long."""

    __slots__ = ("body", "files", "header", "image", "kept")

    def __init__(self, value: Any, copies: bool = False):
        self.image = -1
        data = io.BytesIO()
        pickler = _Pickler(data, copies)
        pickler.dump(value)
        self.kept = [place[0] for place in pickler.places.values()]
        self.files = [mapping.file for mapping in self.kept]
        parts, views = [_PART.pack(data.tell(), 0)], [data.getbuffer()]
        for k, buffer in enumerate(pickler.buffers):
            place = pickler.places.get(k)
            if place is None:
                view = buffer.raw()
                parts.append(_PART.pack(view.nbytes, 0))
                views.append(view)
            else:
                parts.append(_PART.pack(place[2] | _SHARED, place[1]))
        lengths = b"".join(parts)
        size = sum(_aligned(view.nbytes) for view in views)
        if size < LEAST_BYTES:
            self.body = lengths + b"".join(bytes(view) + bytes(_aligned(view.nbytes) - view.nbytes) for view in views)
        else:
            self.body = lengths
            self.image = new_file()
            self._fill(views, size)
            self.files.append(self.image)
        self.header = _HEADER.pack(size, len(parts), len(self.files), self.image >= 0)

    def _fill(self, views: list[memoryview], size: int) -> None:
        try:
            os.ftruncate(self.image, size)
            place = 0
            for view in views:
                _write(self.image, view, place)
                place += _aligned(view.nbytes)
        except BaseException:
            self.close()
            raise

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


def _aligned(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


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
    """A message as it has come; `value` unpickles it."""

    __slots__ = ("files", "image", "parts")

    def __init__(self, pipe: Connection):
        self.files: list[int] = []
        header = self._with_files(pipe, _HEADER.size)
        size, n, count, is_file = _HEADER.unpack(header)
        body = bytearray(n * _PART.size + (0 if is_file else size))
        _fill(pipe, memoryview(body))
        self.parts = _PART.iter_unpack(memoryview(body)[: n * _PART.size])
        while len(self.files) < count:
            self._with_files(pipe, 1)
        self.image: Any = FileMapping(self.files.pop(), size, keep=False) if is_file else memoryview(body)[n * _PART.size :]

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
        image, place = memoryview(self.image), 0
        files, self.files = iter(self.files), []
        for length, start in self.parts:
            if length & _SHARED:
                yield arrived(next(files), start, length & ~_SHARED)
            else:
                yield image[place : place + length]
                place += _aligned(length)

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

    def received(self) -> Received:
        """The next message."""
        self._check_closed()  # type: ignore[attr-defined]
        self._check_readable()  # type: ignore[attr-defined]
        return Received(self)


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
