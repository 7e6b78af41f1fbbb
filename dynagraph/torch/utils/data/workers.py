"""Processes that make batches.

Each has a pipe of dynagraph.torch.multiprocessing to the process that iterates.  What a batch holds travels in one piece of shared
memory, which is mapped and not copied, and goes back to the worker when the batch is gone (`multiprocessing/segments.py`); tensors
that are in shared memory already, of the dataset for instance, travel as views of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph.torch.multiprocessing.messages import Connection, Message, Pipe
from dynagraph.torch.multiprocessing.segments import OwnSegments, Room, Segments, enter
from dynagraph.torch.multiprocessing.spawn import signal_name
from dynagraph.torch.random import is_torch_compatible, manual_seed, torch_compatible
from dynagraph.torch.utils.data.fetching import Exhausted, Failure

PATIENCE = 5.0  # seconds that a worker has to end by itself
POLL = 1.0  # seconds between looks at whether a worker lives
SPARE = 2  # segments of a worker beside those of the batches that it makes ahead: one that is used, and one that goes back


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info` gives in a worker.  seed: the loader's base seed plus `id`."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None
__dynagraph_mutable__ = ("_info",)


def get_worker_info() -> WorkerInfo | None:
    """Of the DataLoader's worker that this process is; None in a process that is none."""
    return _info


# -- in a worker ------------------------------------------------------------------------------------------------------


def numpy_seed(base: int, worker: int) -> list[int]:
    """Of NumPy's global generator in a worker: other than what `base + worker` alone would give, which the next epoch may have for
    its next worker."""
    return [int(word) for word in np.random.SeedSequence([base & (1 << 64) - 1, worker]).generate_state(4)]


def seed_batch(base: int, passes: int, number: int) -> None:
    """Start this process's random streams anew for one batch, so that it does not matter which worker makes it."""
    words = np.random.SeedSequence([base & (1 << 64) - 1, passes, number]).generate_state(6)
    first, second = words[:4].view(np.uint64).tolist()
    random.seed(first)
    manual_seed(second)
    np.random.seed(words[2:])


def run(
    pipe: Connection, dataset: Any, make_fetcher: Callable[[Any], Any],
    worker: int, count: int, base_seed: int, init: Callable[[int], Any] | None, compatible: bool, ahead: int,
) -> None:  # fmt: skip
    """Make the batches that are asked for, until the other process goes.

    Random streams start anew with each batch, unless `init` has seeded them or, with `compatible`, PyTorch's numbers are wanted.
    """
    global _info
    torch_compatible(compatible)
    seeds_batches, passes = init is None and not compatible, 0
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that iterates, which ends this one
    with contextlib.suppress(AttributeError, OSError):  # a worker that wakes up does not interrupt who computes with its batches
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    config.threads = 1
    seed = base_seed + worker
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(numpy_seed(base_seed, worker))
    _info = WorkerInfo(worker, count, seed, dataset)
    failure: Failure | None = None
    fetcher: Any = None
    try:
        if init is not None:
            init(worker)
        fetcher = make_fetcher(dataset)
    except Exception:
        failure = Failure(f"in DataLoader worker process {worker}")
    segments = OwnSegments(ahead + SPARE)
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            number, indices, returned = pipe.recv()
            segments.returned(returned)
            if number < 0:  # a new pass
                failure, passes = None, passes + 1
                try:
                    fetcher = make_fetcher(dataset)
                except Exception:
                    failure = Failure(f"in DataLoader worker process {worker}")
                continue
            if failure is None and seeds_batches:
                seed_batch(base_seed, passes, number)
            room = segments.room()
            message = _batch(fetcher, indices, number, worker, room) if failure is None else Message((number, failure))
            failure = None
            if room is not None and not segments.leave(room, message.is_in_room) and message.is_in_room:
                message.leave(room)
            pipe.post(message)


def _batch(fetcher: Any, indices: Any, number: int, worker: int, room: Room | None) -> Message:
    """A batch, packed, or what went wrong."""
    try:
        enter(room)
        reply = fetcher.fetch(indices)
    except Exhausted:
        reply = Exhausted()
    except Exception:
        reply = Failure(f"in DataLoader worker process {worker}")
    finally:
        enter(None)
    try:
        return Message((number, reply), copies=True, room=room)
    except Exception:  # it cannot be pickled
        return Message((number, Failure(f"in DataLoader worker process {worker}")))


# -- in the process that iterates -------------------------------------------------------------------------------------


_own_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_own_ends() -> None:
    """In a process that a fork has made: a worker ends when nobody has the other end of its pipe any more."""
    for end in list(_own_ends):
        end.close()


os.register_at_fork(after_in_child=_close_own_ends)


class Workers:
    """The worker processes of a loader."""

    def __init__(self, context: Any, dataset: Any, make_fetcher: Any, count: int, base_seed: int, init: Any, ahead: int):
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.pid = os.getpid()
        self.segments = [Segments() for _ in range(count)]
        self._finalizer = weakref.finalize(self, _end, self.pipes, self.processes, self.segments, self.pid)
        for k in range(count):
            own, theirs = Pipe(duplex=True)
            _own_ends.add(own)
            process = context.Process(
                target=run, args=(theirs, dataset, make_fetcher, k, count, base_seed, init,
                                  is_torch_compatible(), ahead),
                daemon=True,
            )  # fmt: skip
            process.start()
            theirs.close()
            self.pipes.append(own)
            self.processes.append(process)

    def ask(self, worker: int, number: int, indices: Any) -> None:
        """Ask for a batch."""
        try:
            self.pipes[worker].post(Message((number, indices, self.segments[worker].returned()), copies=True))
        except ConnectionError:
            self._raise_dead(worker)

    def replies(self, timeout: float) -> list[tuple[int, int, Any]]:
        """(worker, number, batch) of those that are there, at least one; RuntimeError after `timeout` seconds, if it is not 0."""
        begun = time.monotonic()
        while True:
            left = POLL if not timeout else min(POLL, timeout - (time.monotonic() - begun))
            ready = connection.wait(self.pipes, max(left, 0.0))
            if ready:
                return [self._received(self.pipes.index(pipe)) for pipe in ready]  # type: ignore[arg-type]
            if timeout and time.monotonic() - begun >= timeout:
                raise RuntimeError(f"DataLoader timed out after {timeout:g} seconds")

    def _received(self, worker: int) -> tuple[int, int, Any]:
        try:
            number, batch = self.pipes[worker].received(self.segments[worker]).value()
        except (EOFError, ConnectionError):
            self._raise_dead(worker)
            raise
        return worker, number, batch

    def _raise_dead(self, worker: int) -> None:
        process = self.processes[worker]
        process.join(PATIENCE)
        code, pid = process.exitcode, process.pid
        exited = code is not None and code >= 0
        how = "is still running" if code is None else f"exited with code {code}" if exited else f"was killed by {signal_name(code)}"
        self.stop()
        raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly: worker {worker} {how}")

    def stop(self) -> None:
        """End all of them."""
        self._finalizer()


def _end(pipes: list[Connection], processes: list[Any], segments: list[Segments], pid: int) -> None:
    for each in segments:
        each.clear()
    if os.getpid() != pid or sys.is_finalizing():  # a fork of the process; or daemons, which multiprocessing ends itself
        return
    for pipe in pipes:
        pipe.close()  # on which a worker ends
    until = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        process.close()


__all__ = ["WorkerInfo", "Workers", "get_worker_info", "numpy_seed", "run", "seed_batch"]
