"""Starts the supervisors of ranks on this machine where there is no MPI, with mpiexec's command line: ``-n N command...``.

Ranks find each other over sockets.  It imports nothing of dynagraph, and ends when all that it has started have ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

PLACE = ("_DYNAGRAPH_RUN_RANK", "_DYNAGRAPH_RUN_SIZE")  # in the environment of a supervisor


def run(command: Sequence[str], n: int) -> int:
    """Start a command n times: the first exit code that is not 0, or 0."""
    started: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: object) -> None:
        for process in started:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, hand_on)
    for rank in range(n):
        started.append(subprocess.Popen(command, env={**os.environ, **dict(zip(PLACE, (str(rank), str(n))))}))
    return next((code for code in [process.wait() for process in started] if code), 0)


if __name__ == "__main__":
    sys.exit(run(sys.argv[3:], int(sys.argv[2])))
