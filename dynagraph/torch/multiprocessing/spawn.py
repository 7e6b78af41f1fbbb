"""Processes that run one function together: if one fails, all end."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

from dynagraph.torch.multiprocessing.messages import Connection, Pipe

_SETTLE = 0.1  # seconds in which others fail for the same reason
GRACE = 30.0  # seconds that processes have to end after a signal
_PR_SET_PDEATHSIG = 1


class ProcessException(Exception):
    """A process failed.  error_index: which; error_pid: its number in the system."""

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """A process was ended by a signal (`signal_name`), or exited with a code that is not 0 (`exit_code`)."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def signal_name(code: int) -> str:
    """The name of the signal of a negative exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"<Unknown signal {-code}>"


def end_with_parent() -> None:
    """On Linux: this process is interrupted, or terminated where it ignores that, when the one that started it ends."""
    if sys.platform == "linux":
        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in scripts behind `&` and `nohup`
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM if is_ignored else signal.SIGINT)


def _run(function: Callable[..., Any], index: int, args: Sequence[Any], errors: Connection) -> None:
    end_with_parent()
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass  # the process that waits ended it
    except Exception:
        errors.send((time.monotonic(), traceback.format_exc()))
        sys.exit(1)


class ProcessContext:
    """Processes that are under way; `join` waits for them."""

    def __init__(self, processes: list[Any], error_files: list[Any]):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their numbers in the system."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one ends, or `timeout` seconds: whether all have ended well.

        Of several that fail it is the first: the others often do because of it.

        If one failed, the others end: by themselves within `grace_period` seconds, else by SIGTERM, at last by SIGKILL.
        ProcessRaisedException or ProcessExitedException says how it failed.
        """
        if not self.sentinels:
            return True
        failed = self._ended(timeout)
        if not failed:
            return not self.sentinels
        failed += self._ended(_SETTLE)
        raised = {index: found for index in range(len(self.processes)) if (found := self._raised(index)) is not None}
        self._end(grace_period)
        raise self._error_of(min({*failed, *raised}, key=lambda index: raised.get(index, (0.0, ""))[0]), raised)

    def _ended(self, timeout: float | None) -> list[int]:
        """Which processes have ended by now, or are the first to, and failed."""
        found = []
        for sentinel in connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[arg-type]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                found.append(index)
        return found

    def _end(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_all(GRACE if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()

    def _join_all(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))

    def _raised(self, index: int) -> tuple[float, str] | None:
        """When a process has raised an exception, and its traceback."""
        errors = self.error_files[index]
        try:
            return errors.recv() if errors.poll() else None
        except (EOFError, OSError):
            return None

    def _error_of(self, index: int, raised: dict[int, tuple[float, str]]) -> ProcessException:
        process = self.processes[index]
        code, pid = process.exitcode, process.pid
        if index in raised:
            text = f"\n\n-- Process {index:d} terminated with the following error:\n{raised[index][1]}"
            return ProcessRaisedException(text, index, pid)
        if code < 0:
            name = signal_name(code)
            return ProcessExitedException(f"process {index:d} terminated with signal {name}", index, pid, code, name)
        return ProcessExitedException(f"process {index:d} terminated with exit code {code:d}", index, pid, code)


class SpawnContext(ProcessContext):
    """What ProcessContext was called before."""

    def __init__(self, processes: list[Any], error_files: list[Any]):
        warnings.warn("SpawnContext is renamed to ProcessContext since 1.4 release.", stacklevel=2)
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run ``fn(i, *args)`` in processes 0 to nprocs-1, and wait for them; a ProcessContext without `join`."""
    context: Any = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    errors: list[Any] = []
    try:
        for index in range(nprocs):
            own, theirs = Pipe(duplex=False)
            errors.append(own)
            process = context.Process(target=_run, args=(fn, index, tuple(args), theirs), daemon=daemon)
            process.start()
            theirs.close()
            processes.append(process)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run ``fn(i, *args)`` in `nprocs` new processes: a function of a module, which pickle finds by its name.

    If one fails, the others are ended, and an exception says how it failed.  Without `join` a ProcessContext, which waits later.
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")


__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn",
    "start_processes",
]  # fmt: skip
