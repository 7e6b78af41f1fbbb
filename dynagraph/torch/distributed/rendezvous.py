"""How processes that no MPI has started find each other: by a store that ``init_method`` names, which has everybody's address.

Each process listens, puts its address into the store, and connects to those before it.  Processes of one machine use local
sockets.  A number that only the store's readers know keeps others out.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import json
import os
import secrets
import selectors
import socket
import struct
import time
import urllib.parse
from typing import Any

import numpy as np

from dynagraph.torch.distributed import common_memory
from dynagraph.torch.distributed.engines import DistNetworkError, DistStoreError, Engine
from dynagraph.torch.distributed.mesh import Mesh
from dynagraph.torch.distributed.sockets import SocketEngine
from dynagraph.torch.distributed.stores import FileStore, PrefixStore, Store, TCPStore

_HELLO = struct.Struct("<32sQ")  # the token, and the rank
_PAUSE = 0.01
_LONGEST = 512  # bytes of what processes tell all others
_worlds = itertools.count()  # all processes count alike: the names in a store that serves several worlds


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set "
            "(processes that mpiexec starts need none)"
        )
    return value


def _number(value: str, name: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name} is {value!r}, and should be a number") from None


def store_of(method: str, rank: int, size: int, timeout: datetime.timedelta) -> Store:
    """The store that an `init_method` names: ``env://``, ``tcp://host:port`` or ``file:///path``."""
    parsed = urllib.parse.urlparse(method)
    if parsed.scheme == "file":
        return FileStore(parsed.netloc + parsed.path, size)
    if parsed.scheme == "tcp":
        if parsed.hostname is None or parsed.port is None:
            raise ValueError(f"Error initializing torch.distributed using tcp:// rendezvous: no host and port in {method!r}")
        host, port, served = parsed.hostname, parsed.port, False
    elif parsed.scheme == "env":
        host, port = _setting("MASTER_ADDR"), _number(_setting("MASTER_PORT"), "MASTER_PORT")
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by the launcher
    else:
        raise RuntimeError(f"No rendezvous handler for {parsed.scheme}://")
    return TCPStore(host, port, size, is_master=rank == 0 and not served, timeout=timeout, wait_for_workers=False)


def place(method: str, rank: int, size: int) -> tuple[int, int]:
    """The rank and the number of ranks, which an `init_method` may have in it: ``tcp://host:port?rank=0&world_size=2``."""
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(method).query))
    from_environment = method.startswith("env://")
    found = []
    for name, given in (("rank", rank), ("world_size", size)):
        if given < 0:
            text = query.get(name)
            if text is None and from_environment:
                text = _setting(name.upper())
            if text is None:
                kind = method.partition("://")[0]
                raise ValueError(f"Error initializing torch.distributed using {kind}:// rendezvous: {name} parameter missing")
            given = _number(text, name)
        found.append(given)
    if not 0 <= found[0] < found[1]:
        raise ValueError(f"rank is {found[0]}, and should be from 0 to {found[1] - 1}: world_size is {found[1]}")
    return found[0], found[1]


def joined(method: str | None, store: Store | None, rank: int, size: int, timeout: datetime.timedelta) -> Engine:
    """The engine of all processes, once all have come.  DistNetworkError or DistStoreError where some do not within `timeout`."""
    prefix = f"world{next(_worlds)}"
    until = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            base = store_of(method or "env://", rank, size, timeout) if store is None else store
            mesh = _connected(PrefixStore(prefix, base), _own_address(base), rank, size, until)
        except DistNetworkError:
            # the store was that of a world before this one, whose process has ended it: the next one comes
            if store is not None or rank == 0 or time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
            continue
        mesh.store = base
        engine = SocketEngine(mesh, range(size))
        meeting = engine.barrier()  # nobody needs the store any more
        mesh.wait_for(meeting.handle, until - time.monotonic())
        if not meeting.Test():
            raise DistStoreError(f"rank {rank}: other ranks did not come to the end of init_process_group within its timeout")
        engine.share_memory(functools.partial(_told, engine, until))
        return engine


def _told(engine: SocketEngine, until: float, text: str) -> list[str]:
    """What all processes say; all of them call it."""
    own = np.zeros(_LONGEST, np.uint8)
    encoded = np.frombuffer(text.encode()[:_LONGEST], np.uint8)
    own[: encoded.size] = encoded
    every = np.empty((engine.size, _LONGEST), np.uint8)
    running = engine.all_gather(own, every)
    engine.mesh.wait_for(running.handle, until - time.monotonic())
    if not running.Test():
        raise DistStoreError(f"rank {engine.rank}: other ranks did not come to the end of init_process_group within its timeout")
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]


def _own_address(store: Store) -> str:
    """The address of this process in the network of the store."""
    if isinstance(store, PrefixStore):
        return _own_address(store.underlying_store)
    if isinstance(store, TCPStore):
        return str(store._connection.getsockname()[0])
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _connected(store: Store, address: str, rank: int, size: int, until: float) -> Mesh:
    machine = common_memory.machine()
    with contextlib.ExitStack() as held:
        listening: list[socket.socket] = [held.enter_context(socket.create_server((address, 0), backlog=size))]
        about = {"machine": machine, "address": list(listening[0].getsockname()[:2])}
        if os.path.exists("/proc/self/ns/net"):  # Linux: names that are no files
            local = held.enter_context(socket.socket(socket.AF_UNIX))
            name = f"dynagraph-{secrets.token_hex(16)}"
            local.bind(f"\0{name}")
            local.listen(size)
            listening.append(local)
            about["local"] = name
        if rank == 0:
            store.set("token", secrets.token_hex(16))
        store.set(str(rank), json.dumps(about))
        token = _get(store, "token", until)
        connections: dict[int, socket.socket] = {}
        try:
            for other in range(rank):
                theirs = json.loads(_get(store, str(other), until))
                connections[other] = _connect(theirs, machine, until)
                connections[other].sendall(_HELLO.pack(token, rank))
            _accept(listening, token, connections, rank, size, until)
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
    return Mesh(rank, connections)


def _get(store: Store, key: str, until: float) -> bytes:
    try:
        store.wait([key], datetime.timedelta(seconds=max(_PAUSE, until - time.monotonic())))
    except DistStoreError as error:
        raise DistStoreError(
            f"rank {0 if key == 'token' else key} did not come to init_process_group within its timeout ({error})"
        ) from error
    return store.get(key)


def _connect(about: dict[str, Any], machine: str, until: float) -> socket.socket:
    """A connection to a process that listens."""
    left = max(_PAUSE, until - time.monotonic())
    if about["machine"] == machine and "local" in about:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(left)
            connection.connect("\0" + about["local"])
        except OSError as error:
            connection.close()
            raise DistNetworkError(f"a process of this machine cannot be reached: {error}") from error
        return connection
    try:
        return socket.create_connection(tuple(about["address"]), timeout=left)
    except OSError as error:
        raise DistNetworkError(f"the process at {about['address']} cannot be reached: {error}") from error


def _accept(
    listening: list[socket.socket], token: bytes, connections: dict[int, socket.socket], rank: int, size: int, until: float
) -> None:  # fmt: skip
    """Wait for those behind this process, which connect to it."""
    with selectors.DefaultSelector() as selector:
        for each in listening:
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ)
        while len(connections) < size - 1:
            left = until - time.monotonic()
            if left < 0:
                missing = sorted(set(range(size)) - set(connections) - {rank})
                raise DistStoreError(f"ranks {missing} did not come to init_process_group within its timeout")
            for key, _ in selector.select(left):
                try:
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                other = _greeted(connection, token)
                if other is None or other in connections:
                    connection.close()
                else:
                    connections[other] = connection


def _greeted(connection: socket.socket, token: bytes) -> int | None:
    """The rank of who has connected; None of a stranger."""
    connection.settimeout(5.0)
    try:
        given = connection.recv(_HELLO.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if len(given) < _HELLO.size:
        return None
    theirs, rank = _HELLO.unpack(given)
    return int(rank) if secrets.compare_digest(theirs, token) else None


__all__ = ["joined", "place", "store_of"]
