"""``python -m dynagraph.torch.run.rank script.py``: a rank, as the launcher starts it.

It is ``python -m dynagraph.torch script.py`` with a thread that tells the supervisor that this process lives, and with a word to it
about an exception before anything else happens: an end of MPI that waits for other ranks, or MPI_Abort.
"""

from __future__ import annotations

import faulthandler
import os
import select
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from dynagraph.torch.__main__ import as_main, install_in_children, main
from dynagraph.torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler
from dynagraph.torch.import_hook import install
from dynagraph.torch.run.supervisor import RANK_FD, STACK_FILE, STACK_SIGNAL

INTERVAL = 0.5  # seconds between two signs of life
ACKNOWLEDGED = 5.0  # seconds that the launcher has to take notice of an exception


def below(trace: types.TracebackType | None, function: Callable[..., Any]) -> types.TracebackType | None:
    """The part of a traceback under a function's frame: the script's own; all of it where the function is not in it."""
    found = trace
    while found is not None:
        if found.tb_frame.f_code is function.__code__:
            return found.tb_next
        found = found.tb_next
    return trace


class Supervised:
    """This rank's end of the connection to its supervisor."""

    def __init__(self, descriptor: int):
        self.connection = socket.socket(fileno=descriptor)
        self.is_ending = False
        os.set_inheritable(descriptor, False)
        threading.Thread(target=self._live, name="heartbeat", daemon=True).start()

    def _live(self) -> None:
        while not self.is_ending:
            try:
                self.connection.send(b".")
            except OSError:  # the supervisor is gone, and this process will be in a moment
                return
            time.sleep(INTERVAL)

    def raised(self, error: BaseException) -> None:
        """Tell the launcher about an exception that the script has left."""
        ErrorHandler().record_exception(error)
        self._tell(b"!")

    def exits(self, code: int) -> None:
        """Tell the launcher that the script has failed, before the end of MPI waits for others, who wait for this rank."""
        self._tell(b"q%d" % code)

    def _tell(self, text: bytes) -> None:
        self.is_ending = True
        try:
            self.connection.send(text)
            select.select([self.connection], [], [], ACKNOWLEDGED)
        except OSError:
            return


def run(arguments: list[str]) -> None:
    """Run the script that the arguments name as a rank."""
    supervised = Supervised(int(os.environ.pop(RANK_FD)))
    stacks = open(os.environ.pop(STACK_FILE), "w")  # noqa: SIM115 (open as long as the process runs)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    install()
    install_in_children()
    try:
        main(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if code & 0xFF:
            supervised.exits(code & 0xFF)
        raise
    except BaseException as error:
        supervised.raised(error.with_traceback(below(error.__traceback__, as_main)))
        raise


if __name__ == "__main__":
    run(sys.argv[1:])
