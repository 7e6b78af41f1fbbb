"""One thread for work that nobody waits for, such as compiling a library's kernels.  It lives as long as there is work.

Nothing is begun once the process ends; what is under way is waited for a moment.  A forked child has none of its parent's work.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable

from dynagraph.driver.forks import Locked

LAST_MOMENT = 1.0  # seconds at most that the process's end waits for what is under way


class Background(Locked):
    """Jobs in turn, each once: one whose key is waiting, or under way, is not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self._jobs: deque[tuple[object, Callable[[], None]]] = deque()
        self._keys: set[object] = set()
        self._thread: threading.Thread | None = None

    def submit(self, key: object, job: Callable[[], None]) -> None:
        """Have the thread call `job`, which handles its own errors."""
        with self.lock:
            if key in self._keys or self.ended:
                return
            self._keys.add(key)
            self._jobs.append((key, job))
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="dynagraph", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more threads: it stays undone, which is slower only
                    self._forget()
                else:
                    self._thread = thread

    def _work(self) -> None:
        while True:
            with self.lock:
                if self.ended or not self._jobs:
                    self._thread = None
                    return
                key, job = self._jobs.popleft()
            try:
                job()
            finally:
                del job  # it holds what it is about
                with self.lock:
                    self._keys.discard(key)

    def is_busy_with(self, key: object) -> bool:
        """Whether it is waiting, or under way."""
        return key in self._keys

    def wait(self) -> None:
        """Until all is done that was submitted before."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def end(self) -> None:
        """Begin nothing more, and wait a moment for what is under way."""
        self.ended = True
        thread = self._thread
        if thread is not None:
            thread.join(LAST_MOMENT)

    def _forget(self) -> None:
        self._jobs.clear()
        self._keys.clear()
        self._thread = None


WORK = Background()
atexit.register(WORK.end)
if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=WORK._forget)

__all__ = ["WORK", "Background"]
