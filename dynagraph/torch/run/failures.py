"""How ranks failed, as the launcher has seen it."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass
from typing import Any


class Kind(enum.Enum):
    """What happened to a rank."""

    RAISED = "raised"
    EXITED = "exited"
    KILLED = "killed"
    SILENT = "silent"
    LOST = "lost"
    NEVER_STARTED = "never started"
    STARTER = "starter"


# the ranks that an elastic launch goes on without
GONE = frozenset({Kind.KILLED, Kind.SILENT, Kind.LOST})


@dataclass
class Failure:
    """One rank's, or that of what started them (rank None), which is named `starter`.

    `text` says it in a line; `details` is a traceback, or stacks; `after`: seconds.
    """

    attempt: int
    kind: Kind
    rank: int | None
    host: str
    pid: int | None
    text: str
    details: str
    after: float
    starter: str = ""


def signal_name(number: int) -> str:
    """SIGKILL, for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(code: int) -> tuple[Kind, str]:
    """Of an exit code as `subprocess` has them."""
    if code < 0:
        return Kind.KILLED, f"killed by {signal_name(-code)}"
    return Kind.EXITED, f"exited with code {code}"


def message_and_traceback(error: Any) -> tuple[str, str]:
    """What an error file says."""
    message = error.get("message", "") if isinstance(error, dict) else ""
    if isinstance(message, str):
        return message, ""
    return str(message.get("message", "")), str(message.get("extraInfo", {}).get("py_callstack", ""))


__all__ = ["GONE", "Failure", "Kind", "how_it_ended", "message_and_traceback", "signal_name"]
