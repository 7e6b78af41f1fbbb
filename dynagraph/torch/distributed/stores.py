"""Stores: small values by names, which several processes have in common.

A store is a `_table`: names and values (bytes), under a lock.  `HashStore` has it in this process, `FileStore` in a file, which
is read and written whole under a lock, `TCPStore` in the process that serves it, by messages.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from dynagraph.torch.distributed.engines import DistNetworkError, DistStoreError

_DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)
_PAUSE = 0.01  # between two looks at a table that others write to
_LARGEST = 1 << 30  # of a message
Table = dict[str, bytes]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store:
    """What all stores can do.  `get` and `wait` wait for names that others will set, as long as `timeout` says."""

    def __init__(self) -> None:
        self._seconds = _DEFAULT_TIMEOUT.total_seconds()

    def _table(self) -> contextlib.AbstractContextManager[Table]:
        """The names and values, while no other thread or process changes them; changes are kept.  Of stores that keep them."""
        raise NotImplementedError(f"{type(self).__name__} keeps no values")

    @property
    def timeout(self) -> datetime.timedelta:
        """How long `get` and `wait` wait."""
        return datetime.timedelta(seconds=self._seconds)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Set how long `get` and `wait` wait."""
        self._seconds = timeout.total_seconds()

    def set(self, key: str, value: Any) -> None:
        """Set a value: bytes, or text."""
        with self._table() as table:
            table[key] = _bytes(value)

    def get(self, key: str) -> bytes:
        """A value, once somebody has set it.  DistStoreError after `timeout`."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Several values."""
        self.wait(keys)
        with self._table() as table:
            return [table[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Set several values."""
        with self._table() as table:
            table.update(zip(keys, map(_bytes, values)))

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which is 0 before; the sum."""
        with self._table() as table:
            number = int(table.get(key, b"0")) + amount
            table[key] = str(number).encode()
        return number

    def append(self, key: str, value: Any) -> None:
        """Put bytes behind a value."""
        with self._table() as table:
            table[key] = table.get(key, b"") + _bytes(value)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Set a value if it is the expected one (b"": if there is none); the value that there is then."""
        expected = _bytes(expected_value)
        with self._table() as table:
            if table.get(key, b"") == expected:
                table[key] = _bytes(desired_value)
            return table.get(key, expected)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all names have values."""
        with self._table() as table:
            return all(key in table for key in keys)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Wait until all names have values.  DistStoreError after `timeout`."""
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        end = time.monotonic() + seconds
        while not self.check(keys):
            if time.monotonic() > end:
                raise DistStoreError(f"wait timeout after {seconds * 1000:.0f}ms, keys: {', '.join(keys)}")
            time.sleep(_PAUSE)

    def delete_key(self, key: str) -> bool:
        """Remove a name; whether there was a value."""
        with self._table() as table:
            return table.pop(key, None) is not None

    def num_keys(self) -> int:
        """How many names there are."""
        with self._table() as table:
            return len(table)

    def list_keys(self) -> list[str]:
        """All names."""
        with self._table() as table:
            return list(table)

    def has_extended_api(self) -> bool:
        """True: there are `append`, `multi_get` and `multi_set`."""
        return True


class HashStore(Store):
    """A store in this process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._values: Table = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _table(self) -> Iterator[Table]:
        with self._lock:
            yield self._values


class FileStore(Store):
    """A store in a file, for the processes that can open it.  `world_size` is not used."""

    def __init__(self, file_name: str, world_size: int = -1):
        super().__init__()
        self.path = os.fspath(file_name)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _table(self) -> Iterator[Table]:
        with self._lock, open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            before = file.read()
            table = {k: v.encode("latin-1") for k, v in json.loads(before).items()} if before else {}
            yield table
            after = json.dumps({k: v.decode("latin-1") for k, v in table.items()}).encode()
            if after != before:
                file.truncate(0)
                file.write(after)
                file.flush()


class PrefixStore(Store):
    """The names of another store that begin with ``prefix/``."""

    def __init__(self, prefix: str, store: Store):
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        self._seconds = store._seconds

    def _own(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: Any) -> None:
        self.underlying_store.set(self._own(key), value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return self.underlying_store.multi_get([self._own(key) for key in keys])

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self.underlying_store.multi_set([self._own(key) for key in keys], values)

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._own(key), amount)

    def append(self, key: str, value: Any) -> None:
        self.underlying_store.append(self._own(key), value)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self.underlying_store.compare_set(self._own(key), expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._own(key) for key in keys])

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._own(key))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        start = self._own("")
        return [key.removeprefix(start) for key in self.underlying_store.list_keys() if key.startswith(start)]


# -- over a network ---------------------------------------------------------------------------------------------------
# A request is a JSON list: the name of a method, its arguments (bytes as latin-1 text); an answer is its result, likewise.

_WORKERS = "/workers"
_METHODS = ("set", "multi_set", "add", "append", "compare_set", "check", "delete_key", "num_keys", "list_keys", "_values_of")


def _send(connection: socket.socket, value: Any) -> None:
    data = json.dumps(value, default=lambda b: b.decode("latin-1")).encode()
    connection.sendall(struct.pack("<Q", len(data)) + data)


def _receive(connection: socket.socket) -> Any:
    size = struct.unpack("<Q", _exactly(connection, 8))[0]
    if size > _LARGEST:
        raise ConnectionError(f"a message of {size} bytes is announced: this is no TCPStore")
    return json.loads(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class _Served(HashStore):
    """The table of a server: values come as latin-1 text."""

    def _values_of(self, keys: Sequence[str]) -> list[str]:
        with self._table() as table:
            return [table[key].decode("latin-1") for key in keys]


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value


class _Server:
    """Answers clients, a thread for each of them."""

    def __init__(self, host: str, port: int, listening: int | None):
        self.table = _Served()
        try:
            self.socket = socket.create_server((host, port)) if listening is None else socket.socket(fileno=listening)
        except OSError as error:
            raise DistNetworkError(f"The server socket has failed to listen on {host}:{port}: {error}") from error
        self.port = self.socket.getsockname()[1]
        self.connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:  # closed
                return
            self.connections.add(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while True:
                try:
                    method, *arguments = _receive(connection)
                except (ConnectionError, OSError, ValueError):  # the client has gone, or is none
                    break
                if method not in _METHODS:
                    break
                decoded = [a.encode("latin-1") if k and isinstance(a, str) else a for k, a in enumerate(arguments)]
                if method == "multi_set":
                    decoded[1] = [v.encode("latin-1") for v in arguments[1]]
                with contextlib.suppress(OSError):  # the next turn finds out that the client has gone
                    _send(connection, _encoded(getattr(self.table, method)(*decoded)))
        self.connections.discard(connection)

    def close(self) -> None:
        """End it, also for the clients that there are; `shutdown` wakes the threads that wait."""
        for each in (self.socket, *tuple(self.connections)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class TCPStore(Store):
    """A store that one process serves (`is_master`) and the others ask: for processes of several machines.

    Whoever can connect can read and write: it is for networks that are trusted.  Port 0 is any free one (`port` says which).
    With `wait_for_workers`, the master waits until `world_size` processes have come.
    """

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
        timeout: datetime.timedelta = _DEFAULT_TIMEOUT, wait_for_workers: bool = True, multi_tenant: bool = False,
        master_listen_fd: int | None = None, use_libuv: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.set_timeout(timeout)
        self.host, self.is_master = host_name, is_master
        self._lock = threading.Lock()
        self._server = _Server(host_name, port, master_listen_fd) if is_master else None
        self.port = self._server.port if self._server is not None else port
        self._connection = self._connected()
        self.add(_WORKERS, 1)
        if is_master and wait_for_workers and world_size:
            self._wait_for_workers(world_size)

    def _connected(self) -> socket.socket:
        end = time.monotonic() + self._seconds
        while True:
            try:
                return socket.create_connection((self.host, self.port), timeout=self._seconds)
            except OSError as error:
                if time.monotonic() > end:
                    self._unreachable(error)
                time.sleep(_PAUSE)

    def _unreachable(self, error: OSError) -> NoReturn:
        raise DistNetworkError(
            f"The client socket has failed to connect to {self.host}:{self.port} within {self._seconds:g} s: {error}.  Does the "
            "process with is_master=True run there?"
        ) from error

    def _wait_for_workers(self, count: int) -> None:
        end = time.monotonic() + self._seconds
        while (come := self.add(_WORKERS, 0)) < count:
            if time.monotonic() > end:
                raise DistStoreError(f"Timed out after {self._seconds:g} s waiting for clients. {come}/{count} clients joined.")
            time.sleep(_PAUSE)

    def _ask(self, method: str, *arguments: Any) -> Any:
        with self._lock:
            try:
                _send(self._connection, [method, *arguments])
                return _receive(self._connection)
            except OSError as error:
                raise DistNetworkError(f"the connection to the TCPStore at {self.host}:{self.port} failed: {error}") from error

    def set(self, key: str, value: Any) -> None:
        self._ask("set", key, _bytes(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self.wait(keys)
        return [text.encode("latin-1") for text in self._ask("_values_of", list(keys))]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._ask("multi_set", list(keys), [_bytes(v) for v in values])

    def add(self, key: str, amount: int) -> int:
        return self._ask("add", key, amount)  # type: ignore[no-any-return]

    def append(self, key: str, value: Any) -> None:
        self._ask("append", key, _bytes(value))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        answer: str = self._ask("compare_set", key, _bytes(expected_value), _bytes(desired_value))
        return answer.encode("latin-1")

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask("check", list(keys))  # type: ignore[no-any-return]

    def delete_key(self, key: str) -> bool:
        return self._ask("delete_key", key)  # type: ignore[no-any-return]

    def num_keys(self) -> int:
        return self._ask("num_keys")  # type: ignore[no-any-return]

    def list_keys(self) -> list[str]:
        return [key for key in self._ask("list_keys") if key != _WORKERS]

    def __del__(self) -> None:
        for name in ("_connection", "_server"):
            held = self.__dict__.get(name)
            if held is not None:
                held.close()


__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
