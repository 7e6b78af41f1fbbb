"""Messages between processes that are connected by sockets, each with each.

A message goes to the receive that was posted for its sender and `Key`; one that comes before is kept.  All work is done in
`Mesh.progress`, under one lock, by whichever thread is there: the one that waits for something, and a thread of the mesh's own
where nobody waits (`_Helper`), so that what was started goes on while its process computes.

A process that leaves says so, with the number of the last operation of each group that it has called; one that fails says how;
one whose connection ends without either was killed.  What can no longer end because of it then fails, and names it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Generator, Sequence
from multiprocessing import util
from typing import Any, Literal, NamedTuple

from dynagraph.torch.distributed.common_memory import Blocks, MisfitError
from dynagraph.torch.distributed.engines import DistNetworkError

_HEADER = struct.Struct("<4Q")  # group, operation, part, bytes
_LEAVES = (1 << 64) - 1  # in the place of a group: the process leaves; what follows is JSON
_AT_ONCE = 1 << 22  # bytes that are read from one process before the others have their turn
_BUFFER = 1 << 22  # bytes that the system keeps for each connection and direction, where it allows for as many
_GOODBYE = 10.0  # seconds that the last messages of a process have to leave
_INTERRUPTED = "a signal's handler has raised an exception within an operation, whose messages are lost"
_PAUSE = 0.05  # seconds between two looks at what else is to be done, of a thread that waits


class Key(NamedTuple):
    """What a message is for.  `operation`: the number of a collective in its group, from 1; 0: a message between two."""

    group: int
    operation: int
    part: int  # of a collective's messages, or the tag


class Handle:
    """Something that will end, well or with an error.  `task` is waiting for it."""

    __slots__ = ("done", "error", "task")

    def __init__(self) -> None:
        self.done, self.error = False, None
        self.task: Task | None = None

    error: Exception | None

    def Test(self) -> bool:
        return self.done

    def end(self, error: Exception | None = None) -> None:
        if self.done:
            return
        self.done, self.error = True, error
        if self.task is not None:
            task, self.task = self.task, None
            task.resume()


Steps = Generator[Handle, None, None]
Watch = Literal["driver", "helper"] | None  # which thread waits for the system: one that waits for a handle, or the mesh's own


class Receive(Handle):
    """A message that is to come from `origin`, or from any of several processes.  `nbytes` may be less than the buffer has.

    `among`: the receives of messages between two that have not ended.
    """

    __slots__ = ("among", "buffer", "key", "nbytes", "origin", "origins")

    def __init__(self, buffer: memoryview, key: Key, origins: Sequence[int], among: set[Receive]):
        super().__init__()
        self.buffer, self.key, self.origins, self.among = buffer, key, origins, among
        self.origin, self.nbytes = origins[0], 0

    def end(self, error: Exception | None = None) -> None:
        self.among.discard(self)
        super().end(error)


class Send(Handle):
    """A message that leaves."""

    __slots__ = ("left",)

    def __init__(self, parts: list[memoryview]):
        super().__init__()
        self.left = parts


class Task(Handle):
    """A collective: `steps` gives what is to be waited for, one after the other."""

    __slots__ = ("awaited", "key", "mesh", "ranks", "steps")

    def __init__(self, mesh: Mesh, steps: Steps, ranks: Sequence[int], key: Key):
        super().__init__()
        self.mesh, self.steps, self.ranks, self.key = mesh, steps, ranks, key
        self.awaited: Handle | None = None

    def resume(self) -> None:
        if self.done:
            return
        try:
            while True:
                if self.awaited is not None and self.awaited.error is not None:
                    self.end(self.awaited.error)
                    return
                self.awaited = next(self.steps, None)
                if self.awaited is None:
                    break
                if not self.awaited.done:
                    self.awaited.task = self
                    return
        except Exception as error:  # of arithmetic: whoever waits raises it
            self.end(error)
        except BaseException:
            self.end(DistNetworkError(_INTERRUPTED))
            raise
        self.end()

    def end(self, error: Exception | None = None) -> None:
        self.mesh.tasks.discard(self)
        super().end(error)
        if error is not None and not self.steps.gi_running:
            self.steps.close()  # it may hold what others wait for


class _Peer:
    """The connection to one process."""

    def __init__(self, rank: int, connection: socket.socket):
        self.rank, self.socket = rank, connection
        self.outgoing: deque[Send] = deque()
        self.header = memoryview(bytearray(_HEADER.size))
        self.target, self.filled = self.header, 0  # what is being read, and how far
        self.key: Key | None = None  # of the message whose content is being read
        self.receive: Receive | None = None  # where it goes; None: it is kept
        self.writes = False  # whether the selector says when there is room
        self.gone: str | None = None  # why nothing comes any more
        self.called: dict[int, int] | None = None  # of a process that has left: its last operation in each group


class Mesh:
    """The connections of the process with number `rank` to the others."""

    def __init__(self, rank: int, connections: dict[int, socket.socket]):
        self.rank = rank
        self.blocks: Blocks | None = None  # memory that processes of this machine have in common
        self.store: Any = None  # by which the processes have found each other; who serves it keeps it open
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)  # something may have ended
        self.watch: Watch = None
        self.peers: dict[int, _Peer] = {}
        self.selector = selectors.DefaultSelector()
        self.tasks: set[Task] = set()
        self.receives: dict[tuple[int, Key], deque[Receive]] = {}
        self.messages: set[Receive] = set()  # those between two
        self.early: dict[tuple[int, Key], deque[memoryview]] = {}
        self.called: dict[int, int] = {}
        self.users = 1  # engines
        self.drivers = 0  # threads that wait, and so see to progress
        for other, connection in connections.items():
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            if connection.family != getattr(socket, "AF_UNIX", None):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self.peers[other] = _Peer(other, connection)
            self.selector.register(connection, selectors.EVENT_READ, self.peers[other])
        _meshes.add(self)
        self.helper = _Helper(self)
        # at the end of this process, also of one that multiprocessing has started, and not of a child of it
        self.at_exit = util.Finalize(None, self.leave, exitpriority=0)

    # -- starting --

    def run(self, steps: Steps, ranks: Sequence[int], key: Key) -> Task:
        """Start a collective of processes, `ranks`."""
        with self.lock:
            task = Task(self, steps, ranks, key)
            self.tasks.add(task)
            self.called[key.group] = key.operation
            for other in ranks:
                if other != self.rank:
                    self._fail_if_gone(task, self.peers[other])
            task.resume()
        if not task.done:
            self.helper.needed.set()
        return task

    def part(self, steps: Steps, task: Any) -> Task:
        """Start a part of a collective, for a step of it to wait for."""
        made = Task(self, steps, (), task)
        made.resume()
        return made

    def send(self, to: int, key: Key, content: memoryview) -> Send:
        """Start sending; the content must not change before the end."""
        peer = self.peers[to]
        sent = Send([memoryview(_HEADER.pack(*key, content.nbytes)), content])
        with self.lock:
            if peer.gone is not None:
                sent.end(DistNetworkError(peer.gone))
                return sent
            peer.outgoing.append(sent)
            if not peer.writes:
                self._write(peer)
        if not sent.done:
            self.helper.needed.set()
        return sent

    def receive(self, key: Key, buffer: memoryview, origins: Sequence[int]) -> Receive:
        """Start receiving from one of `origins`."""
        made = Receive(buffer, key, origins, self.messages)
        with self.lock:
            for origin in origins:
                kept = self.early.get((origin, key))
                if kept:
                    self._arrived(made, origin, kept.popleft())
                    if not kept:
                        del self.early[origin, key]
                    return made
            reasons = [self.peers[origin].gone for origin in origins]
            if None not in reasons:
                made.end(DistNetworkError("; ".join(str(r) for r in reasons)))
                return made
            for origin in origins:
                self.receives.setdefault((origin, key), deque()).append(made)
            if not key.operation:
                self.messages.add(made)
                self.helper.needed.set()
        return made

    def _arrived(self, receive: Receive, origin: int, content: memoryview) -> None:
        """Give a message that was kept to whom it is for."""
        receive.origin, receive.nbytes = origin, content.nbytes
        if content.nbytes <= receive.buffer.nbytes:
            receive.buffer[: content.nbytes] = content
        receive.end(_misfit(receive))

    # -- progress --

    def progress(self) -> None:
        """Do what can be done, unless a thread that waits for it is about to."""
        if self.watch != "driver":  # it would not learn what has ended
            self._progress(0.0)

    def _await(self, who: Watch, handle: Handle | None, seconds: float) -> None:
        """Do what can be done; wait for `seconds` at most where there is nothing.  `handle`: what the thread waits for.

        One thread at a time waits for the system, since that wakes one of several; others wait for what that one does.
        """
        with self.lock:
            if handle is not None and handle.done:
                return
            if self.watch is not None:
                self.news.wait(seconds)
                return
            self.watch = who
        try:
            self._progress(seconds)
        finally:
            with self.lock:
                self.watch = None
                self.news.notify_all()

    def _progress(self, seconds: float) -> None:
        events = self.selector.select(seconds)
        if not events:
            return
        with self.lock:
            for key, mask in events:
                peer = key.data
                try:
                    if mask & selectors.EVENT_WRITE and peer.gone is None:
                        self._write(peer)
                    if mask & selectors.EVENT_READ and peer.gone is None:
                        self._read(peer)
                except BaseException:  # what has been read or written is not known any more
                    if peer.gone is None:
                        self._lost(peer, _INTERRUPTED)
                    raise
            self.news.notify_all()

    def wait_for(self, handle: Handle, seconds: float) -> None:
        """Wait until something has ended, for `seconds` at most."""
        until = time.monotonic() + seconds
        with self.lock:
            self.drivers += 1
        try:
            while not handle.done and (left := until - time.monotonic()) > 0:
                self._await("driver", handle, min(left, _PAUSE))
        finally:
            with self.lock:
                self.drivers -= 1
            if self.is_busy():
                self.helper.needed.set()

    def is_busy(self) -> bool:
        """Whether something is under way."""
        return bool(self.tasks or self.messages or any(peer.outgoing for peer in self.peers.values()))

    def _write(self, peer: _Peer) -> None:
        outgoing = peer.outgoing
        ended = []
        try:
            while outgoing:
                parts = outgoing[0].left
                sent = peer.socket.sendmsg(parts)
                while parts and sent >= parts[0].nbytes:
                    sent -= parts.pop(0).nbytes
                if parts:
                    parts[0] = parts[0][sent:]
                else:
                    ended.append(outgoing.popleft())
        except BlockingIOError:
            pass
        except OSError as error:
            self._read(peer)  # its last message says how it has ended
            if peer.gone is None:
                self._lost(peer, _killed(peer.rank, error))
        if peer.gone is None and bool(outgoing) != peer.writes:
            peer.writes = bool(outgoing)
            self.selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE * peer.writes, peer)
        for handle in ended:
            handle.end()

    def _read(self, peer: _Peer) -> None:
        read = 0
        try:
            while True:
                if peer.filled == peer.target.nbytes:  # also of what was read last: nothing else may come to wake this up
                    self._next(peer)
                    if peer.gone is not None:
                        return
                    continue
                if read >= _AT_ONCE:
                    return
                count = peer.socket.recv_into(peer.target[peer.filled :])
                if not count:
                    self._lost(peer, _killed(peer.rank, "it has closed its connection"))
                    return
                peer.filled += count
                read += count
        except BlockingIOError:
            pass
        except OSError as error:
            self._lost(peer, _killed(peer.rank, error))

    def _next(self, peer: _Peer) -> None:
        """What is being read is there: a header, whose message comes next, or a message."""
        content, key, receive = peer.target, peer.key, peer.receive
        if key is None:
            *numbers, size = _HEADER.unpack(content)
            peer.key, peer.filled = Key(*numbers), 0
            peer.receive = self._posted(peer.rank, peer.key)
            if peer.receive is not None and size <= peer.receive.buffer.nbytes:
                peer.target = peer.receive.buffer[:size]
            else:
                peer.target = memoryview(bytearray(size))
            return
        peer.key, peer.receive, peer.target, peer.filled = None, None, peer.header, 0
        if receive is not None:
            receive.origin, receive.nbytes = peer.rank, content.nbytes
            receive.end(_misfit(receive))
        elif key.group == _LEAVES:
            self._left(peer, json.loads(bytes(content)))
        else:
            self.early.setdefault((peer.rank, key), deque()).append(content)

    def _posted(self, origin: int, key: Key) -> Receive | None:
        """The receive that a message is for, which is then no longer posted."""
        posted = self.receives.get((origin, key))
        if not posted:
            return None
        found = posted[0]
        for each in found.origins:
            queue = self.receives[each, key]
            queue.remove(found)
            if not queue:
                del self.receives[each, key]
        return found

    # -- processes that end --

    def _left(self, peer: _Peer, about: dict[str, Any]) -> None:
        if about["error"] is not None:
            self._lost(peer, f"rank {peer.rank} has failed: {about['error']}")
            return
        peer.called = {int(group): number for group, number in about["called"].items()}
        self._lost(peer, f"rank {peer.rank} has left: its process has ended, or has called destroy_process_group")

    def _lost(self, peer: _Peer, why: str) -> None:
        """Nothing comes from a process any more: end what waits for it."""
        peer.gone = why
        self.selector.unregister(peer.socket)
        peer.socket.close()
        waiting = [r for (origin, _), posted in self.receives.items() if origin == peer.rank for r in posted]
        for receive in waiting:
            if all(self.peers[origin].gone is not None for origin in receive.origins):
                for origin in receive.origins:
                    self.receives.pop((origin, receive.key), None)
                receive.end(DistNetworkError(why))
        if peer.receive is not None:
            peer.receive.end(DistNetworkError(why))
        for sent in peer.outgoing:
            sent.end(DistNetworkError(why))
        peer.outgoing.clear()
        for task in tuple(self.tasks):
            if peer.rank in task.ranks:
                self._fail_if_gone(task, peer)

    def _fail_if_gone(self, task: Task, peer: _Peer) -> None:
        """End a collective that a process no longer takes part in.  Of one that has left well, what it has called can end."""
        if peer.gone is None:
            return
        if peer.called is None or peer.called.get(task.key.group, 0) < task.key.operation:
            task.end(DistNetworkError(peer.gone))

    def leave(self, error: str | None = None) -> None:
        """Tell all processes that this one ends, once what it has sent them has left.  `error`: how it fails, if that is known."""
        with self.lock:
            if self.at_exit is None:
                return
            self.at_exit.cancel()
            self.at_exit = None
            about = memoryview(json.dumps({"error": _ending() or error, "called": self.called}).encode())
            last = [self.send(other, Key(_LEAVES, 0, 0), about) for other in self.peers]
        until = time.monotonic() + _GOODBYE
        for sent in last:
            self.wait_for(sent, until - time.monotonic())
        with self.lock:
            for peer in self.peers.values():
                if peer.gone is None:
                    peer.gone = "this process has left"
                    self.selector.unregister(peer.socket)
                    _shut(peer.socket)
            self.store = None
            self.helper.ends = True
            self.helper.needed.set()


def _shut(connection: socket.socket) -> None:
    """Close a connection so that what has been sent arrives: unread bytes would have the system reset it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass
    connection.close()


def _misfit(receive: Receive) -> Exception | None:
    """The error of a message that is larger than its buffer, or, in a collective, smaller."""
    wanted = receive.buffer.nbytes
    if receive.nbytes == wanted or (receive.nbytes < wanted and not receive.key.operation):
        return None
    return MisfitError(f"rank {receive.origin} has sent {receive.nbytes} bytes where {wanted} are expected")


def _ending() -> str | None:
    """The exception that ends this process."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        error = error.__context__ or error  # processes of multiprocessing exit where they have handled one
    return None if error is None else f"{type(error).__name__}: {error}"


def _killed(rank: int, why: Any) -> str:
    return f"rank {rank} was killed, or its connection is broken ({why})"


_meshes: weakref.WeakSet[Mesh] = weakref.WeakSet()


def _close_in_child() -> None:
    """A child that holds connections open would hide from the others that this process has ended."""
    for mesh in _meshes:
        for peer in mesh.peers.values():
            peer.gone = "this process was forked from a rank, and is none"
            peer.socket.close()


os.register_at_fork(after_in_child=_close_in_child)


class _Helper(threading.Thread):
    """Sees to progress while something is under way and no other thread waits."""

    def __init__(self, mesh: Mesh):
        super().__init__(name="torch.distributed", daemon=True)
        self.mesh, self.needed, self.ends = mesh, threading.Event(), False
        self.start()

    def run(self) -> None:
        mesh = self.mesh
        while not self.ends:
            self.needed.wait()
            self.needed.clear()
            while not (mesh.drivers or self.ends) and mesh.is_busy():
                mesh._await("helper", None, _PAUSE)


__all__ = ["Handle", "Key", "Mesh", "MisfitError", "Receive", "Send", "Task"]
