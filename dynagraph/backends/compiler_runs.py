"""Runs of the C compiler: its processes, in a folder that goes with them.

A run is waited for, or left to work beside the program's own calls.  It has no thread: whoever asks how far it is takes it a step
further.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = "dynagraph-compile-"  # in the folder for temporary files
SOURCE, IMAGE = "kernel.c", "kernel.so"
LOOK = 0.05  # seconds at most between looks at processes that are waited for


class Failed(Exception):
    """A run that made no image; `what` follows the compiler's name."""

    def __init__(self, what: str):
        super().__init__(what)
        self.what = what


class Refused(Failed):
    """A compiler gave an error; `words` is what it said."""

    def __init__(self, status: int, words: str):
        super().__init__(f"failed (exit {status})\n{words}")
        self.status, self.words = status, words


def start(command: Sequence[str], folder: str | None, environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    """A process in a group of its own: a driver's helpers are in it, and Ctrl-C in the terminal does not reach it."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if folder is None else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        process_group=0,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, with its helpers.  Its number may be another one's as soon as it has been waited for."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class CompilerRun:
    """One source on its way to a shared object.

    `rounds`: for each the arguments of its processes, which run at the same time, in the folder where SOURCE is and IMAGE is to be.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: str,
        source: str,
        rounds: Sequence[Sequence[list[str]]],
    ):
        """`folder`: one of its own, which goes with it.  Raises Failed where the compiler does not start."""
        self.words, self.environment, self.folder = words, environment, folder
        self.begun = self.ended = time.monotonic()
        self.left: float | None = None  # since when nobody has waited for it
        self.background = 0.0  # seconds that it worked since then
        self.stopped = False
        self._waiters = 0
        self._rounds = list(rounds)
        self._running: list[subprocess.Popen[bytes]] = []
        self._said: list[bytes] = []
        self._outcome: bytes | Failed | None = None
        self._lock = threading.Lock()
        try:
            Path(folder, SOURCE).write_text(source)
            self._next_round()
        except OSError as error:
            self.stop()
            raise Failed(f"does not start: {error}") from error
        except BaseException:
            self.stop()
            raise

    def is_done(self) -> bool:
        with self._lock:
            self._listen()
            while self._outcome is None and all(process.poll() is not None for process in self._running):
                self._end_round()
            return self._outcome is not None

    def wait(self, end: float) -> bool:
        """Until it is done; False: it is not by `end`, of time.monotonic()."""
        with self._lock:
            self._waiters += 1
        try:
            while not self.is_done():
                seconds = end - time.monotonic()
                if seconds <= 0:
                    return False
                self._sleep(min(seconds, LOOK))
            return True
        finally:
            with self._lock:
                self._waiters -= 1

    def is_waited_for(self) -> bool:
        return self._waiters > 0

    def image(self) -> bytes:
        """What it made, once it is done.  Raises Failed."""
        assert self._outcome is not None
        if isinstance(self._outcome, Failed):
            raise self._outcome
        return self._outcome

    def leave(self) -> None:
        """Nobody waits for it now: it goes on beside the program's own calls."""
        with self._lock:
            if self.left is None and not self._waiters and self._outcome is None:
                self.left = time.monotonic()

    def stop(self) -> None:
        """End it, with all its processes, wherever it is."""
        with self._lock:
            for process in self._running:
                kill(process)
            if self._outcome is None:
                self.stopped = True
                self._end(Failed("was stopped"))

    def disown(self) -> None:
        """In a forked child: processes and folder are the parent's."""
        self._lock = threading.Lock()
        for process in self._running:
            process.returncode = process.returncode or 0  # nobody asks for it
            process.stderr.close()  # type: ignore[union-attr]
        self._running.clear()
        self.stopped, self._outcome = True, Failed("works for another process")

    # -- its processes --------------------------------------------------------------------------------------------------------
    def _next_round(self) -> None:
        for more in self._rounds.pop(0):
            process = start([*self.words, *more], self.folder, self.environment)
            self._running.append(process)
            os.set_blocking(process.stderr.fileno(), False)  # type: ignore[union-attr]

    def _end_round(self) -> None:
        self._listen()
        status = next((process.returncode for process in self._running if process.returncode != 0), 0)
        if status != 0:
            self._end(Refused(status, b"".join(self._said).decode(errors="replace").strip()[-2000:]))
            return
        self._forget_processes()
        try:
            if self._rounds:
                self._next_round()
            else:
                self._end(Path(self.folder, IMAGE).read_bytes())
        except FileNotFoundError:
            self._end(Failed("made no file, and said nothing"))
        except OSError as error:
            self._end(Failed(f"does not start: {error}"))

    def _end(self, outcome: bytes | Failed) -> None:
        self.ended = self._last_written()
        if self.left is not None:
            self.background = max(0.0, self.ended - self.left)
        self._outcome = outcome
        self._forget_processes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _last_written(self) -> float:
        """When the image was: it may have been there for long."""
        try:
            age = time.time() - os.stat(Path(self.folder, IMAGE)).st_mtime
        except OSError:
            age = 0.0
        return max(self.begun, time.monotonic() - max(0.0, age))

    def _forget_processes(self) -> None:
        for process in self._running:
            kill(process)
            process.stderr.close()  # type: ignore[union-attr]
        self._running.clear()

    def _listen(self) -> None:
        for process in self._running:
            with contextlib.suppress(BlockingIOError):
                while said := os.read(process.stderr.fileno(), 65536):  # type: ignore[union-attr]
                    self._said = [*self._said[-8:], said]

    def _sleep(self, seconds: float) -> None:
        """Until a process says something or ends, or so long."""
        poll = select.poll()
        with self._lock:
            running = [process for process in self._running if process.poll() is None]
            for process in running:  # what one that has ended said is at its end, which would be told again and again
                poll.register(process.stderr.fileno(), select.POLLIN)  # type: ignore[union-attr]
        if running and poll.poll(1e3 * seconds):
            time.sleep(1e-4)  # it has closed its end, and is about to end itself
