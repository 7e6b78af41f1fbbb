"""Runs scripts in processes that need not import dynagraph: forks of one that has it, with its compiler, imported.

    with Forks() as forks:
        done = forks.run(path, {**os.environ, "DYNAGRAPH_CACHE_DIR": folder})

Each finds what a new process finds, its folder first on the path and switches as the environment has them, but for hashes and
addresses, which all have in common: what these matter to is run by `subprocess`.  Imports take longer than a small script by far.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]
SERVER = """
import atexit, gc, importlib, json, os, runpy, sys, threading, traceback
import numpy as np
import dynagraph as dg
from dynagraph.driver import loading, saved_programs
import dynagraph.backends.c.backend
loading.compiler()
gc.freeze()
for line in sys.stdin:
    path, environment, output, errors = json.loads(line)
    child = os.fork()
    if not child:
        os.close(0)
        for stream, file in ((1, output), (2, errors)):
            os.dup2(os.open(file, os.O_WRONLY), stream)
        os.environ.clear()
        os.environ.update(environment)
        for switch in dg.config.SWITCHES:
            text = environment.get(switch.variable)
            setattr(dg.config, switch.name, switch.default if text is None else switch.parse(text))
        sys.argv, sys.path[0] = [path], os.path.dirname(path)
        importlib.invalidate_caches()
        status = 1
        try:
            runpy.run_path(path, run_name="__main__")
            status = 0
        except BaseException:
            traceback.print_exc()
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # taking all modules down takes longer than a small script
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """The process that forks; it starts with the first script."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._process is not None:
            self._process.communicate()  # its loop ends with its input

    def run(self, path: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """What the script's process said, and its exit status."""
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-c", SERVER]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as output, tempfile.NamedTemporaryFile("r") as errors:
            self._process.stdin.write(json.dumps([str(path), dict(environment), output.name, errors.name]) + "\n")
            self._process.stdin.flush()
            status = self._process.stdout.readline()
            return subprocess.CompletedProcess([str(path)], int(status or -1), output.read(), errors.read())
