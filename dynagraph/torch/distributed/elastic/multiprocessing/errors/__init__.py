"""``torch.distributed.elastic.multiprocessing.errors``: what the launcher is told of an exception."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dynagraph.torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
from dynagraph.torch.missing import getattr_of

_NOT_AVAILABLE = "<N/A>"
_WIDTH = 60


@dataclass
class ProcessFailure:
    """How a process failed: by its exit code, and by the file that it wrote, if it did."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data, self.message, self.timestamp = {"message": "<NONE>"}, "", int(time.time())
        if not os.path.isfile(self.error_file):
            self.error_file = _NOT_AVAILABLE
        else:
            with open(self.error_file) as file:
                self.error_file_data = json.load(file)
            self.message = self.error_file_data["message"]
            holder = self.error_file_data if isinstance(self.message, str) else self.message["extraInfo"]
            self.timestamp = int(holder.get("timestamp", 0))
        if self.message:
            return
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.message = "no traceback: exceptions of functions that `record` decorates are written down"

    def signal_name(self) -> str:
        """The signal that ended the process, or "<N/A>"."""
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return _NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """When it failed."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Processes failed: `failures` by rank; the message lists them, and the first as the cause."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]):
        if not failures:
            raise AssertionError
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The rank that failed first, and how."""
        rank = min(self.failures, key=lambda each: self.failures[each].timestamp)
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The message."""
        first, _ = self.get_first_failure()
        texts = {rank: _text(k, rank, failure) for k, (rank, failure) in enumerate(self.failures.items())}
        title = f"{self.name} FAILED"
        width = min(_WIDTH, max(len(line) for text in (title, *texts.values()) for line in text.split("\n")))
        border, section = boarder_delim * width, section_delim * width
        others = [text for rank, text in texts.items() if rank != first] or ["  <NO_OTHER_FAILURES>"]
        cause = ["Root Cause (first observed failure):", texts[first]]
        return "\n".join(["", border, title, section, "Failures:", *others, section, *cause, border])


def _text(index: int, rank: int, failure: ProcessFailure) -> str:
    message = failure.message
    if isinstance(message, dict):
        message = message.get("extraInfo", {}).get("py_callstack", message.get("message", _NOT_AVAILABLE)).replace("\n", "\n  ")
    name = failure.signal_name()
    rows = {
        "time": failure.timestamp_isoformat(),
        "host": socket.getfqdn(),
        "rank": f"{rank} (local_rank: {failure.local_rank})",
        "exitcode": f"{failure.exitcode} (pid: {failure.pid})" + ("" if name == _NOT_AVAILABLE else f" ({name})"),
        "error_file": failure.error_file,
        "traceback": message,
    }
    return "\n".join([f"[{index}]:", *(f"  {key:<10}: {value}" for key, value in rows.items())])


def get_error_handler() -> ErrorHandler:
    """What writes down exceptions."""
    return ErrorHandler()


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """A decorator for the main function of a script: an exception that it raises is written down for the launcher."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as left:
            if left.code == 0:
                return None
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            if failure.error_file != _NOT_AVAILABLE:
                handler.dump_error_file(failure.error_file, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapper


__getattr__ = getattr_of(__name__)
__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]
