"""What running the tests of CPython and those of NumPy has in common: a clock for each test, tracebacks, subprocesses."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOWN = 12  # lines of a traceback in a report


class Hang(Exception):
    """A test ran for too long."""


def start_clock(seconds: float) -> None:
    """Have a test end by a Hang, within `hangs_end`; where no signal handler runs, its process ends."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(3 * seconds, exit=True, file=sys.__stderr__)  # type: ignore[arg-type]


def stop_clock() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def hangs_end(seconds: float) -> Iterator[None]:
    def hung(signum: int, frame: Any) -> None:
        raise Hang(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, hung)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def short(err: tuple, shown: int = SHOWN) -> str:
    """A traceback's first lines and its last ones."""
    lines = "".join(traceback.format_exception(*err)).splitlines()
    if len(lines) > shown:
        lines = lines[:2] + ["..."] + lines[3 - shown :]
    return "\n".join(line[:300] for line in lines)


def output_of(script: Path, *arguments: str, seconds: float) -> str:
    """What a runner reports; a test fails where it crashes, or takes too long."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    command = [sys.executable, str(script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"more than {seconds} s; {tail((error.stderr or b'').decode(errors='replace'))}", pytrace=False)
    if done.returncode:
        pytest.fail(f"exit status {done.returncode}; {tail(done.stderr)}", pytrace=False)
    return done.stdout


def fail_with(failures: list[dict[str, str]], n_passed: int) -> None:
    """Fail a test by what its runner reports to fail only when compiled, if anything does."""
    if failures:
        texts = [f"{f['id']} (run {f['run']})\n{f['traceback']}" for f in failures]
        pytest.fail(f"{len(texts)} of {n_passed} pass only plainly:\n\n" + "\n\n".join(texts), pytrace=False)


def tail(text: str) -> str:
    return "the last that it said:\n" + "\n".join(text.splitlines()[-40:])
