"""Programs that another process has made: guards, recipe, graph and the key of the machine code, kept beside the kernels.

A later process whose function, arguments and versions are the same reads them instead of capturing: the guards decide, as they do
in the process that made them.  What cannot be told to be the same in another process is not kept (saved_objects.py).  Neither are
programs that end at a break or call native loops, or whose capture has looked at something that each process has
anew: hashes, identities, the order of sets of texts.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import struct
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph.backends import kernel_cache
from dynagraph.backends.executable import Executable, NativeProgram
from dynagraph.backends.kernel_cache import PROGRAM
from dynagraph.backends.tiers import Better
from dynagraph.driver.decorated import Options
from dynagraph.driver.failures import Kind
from dynagraph.driver.saved_objects import Holdings, NotSaved, Stale, function_digest, loaded, saved
from dynagraph.errors import CompilerError
from dynagraph.frontend.bytecode.resume import Target
from dynagraph.frontend.executor.capture import Captured
from dynagraph.frontend.guards.guards import UnreadGuards

MOST = 8  # programs that are kept of one function for one kind of arguments
LEAST_SECONDS = 0.03  # that making it took: reading one takes some milliseconds, too
# switches by which programs are not the same
SWITCHES = ("unroll_limit", "inline_depth", "tape_limit", "threads", "products")
NOT_ASKED = "not asked"
SECONDS = struct.Struct("<d")  # that making a program took: what a file begins with
_log = logging.getLogger("dynagraph.cache")


@functools.cache
def _versions() -> str:
    """Of what makes programs: this package by the sizes and times of its files, the rest by their versions."""
    root = Path(__file__).parents[1]
    return repr((sys.version, np.__version__, sorted(_files(root, root))))


def _files(root: Path, folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(root, Path(entry.path))
            elif entry.name.endswith((".py", ".h", ".so", ".pyd")):
                status = entry.stat()
                yield os.path.relpath(entry.path, root), status.st_size, status.st_mtime_ns


def _kind_text(kind: Kind) -> str:
    return ", ".join(
        f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else repr(part)
        for element in kind
        for part in (element if isinstance(element, tuple) else (element,))
    )


@dataclass
class Found:
    """A program of another process, as it serves this one."""

    captured: Captured
    executable: Executable | None
    seconds: float  # that making it took there


class SavedPrograms:
    """Those of one function for one kind of arguments."""

    def __init__(self, function: types.FunctionType, options: Options, kind: Kind):
        self.key: str | None = None
        self.n_kept = 0  # files that there are
        self.unread: list[bytes] = []  # that have served no call yet
        if not config.cache or not config.cache_programs or not isinstance(options.backend, str) or options.names_device:
            return
        try:
            about = (
                function.__module__, function.__qualname__, function_digest(function), _kind_text(kind), options.key, _versions(),
                kernel_cache.compiler().identity, [(name, getattr(config, name, None)) for name in SWITCHES],
            )  # fmt: skip
        except (NotSaved, CompilerError):
            return
        self.key = hashlib.sha256(repr(about).encode(errors="surrogatepass")).hexdigest()
        for k in range(MOST):
            image = kernel_cache.cache().load(self._name(k), PROGRAM)
            if image is None:
                break
            self.n_kept = k + 1
            self.unread.append(image)

    def _name(self, k: int) -> str:
        return hashlib.sha256(f"{self.key} {k}".encode()).hexdigest()

    def take(self, function: types.FunctionType, values: tuple[Any, ...], serves: Callable[[Found], Any]) -> Any:
        """What `serves` makes of the first program that it takes for a call with these bound parameters; None: of none."""
        for image in list(self.unread):
            try:
                found = _read(image, function, values)
            except Stale as change:
                _log.info("%s: a program of another process is not used: %s", function.__qualname__, change)
                self.unread.remove(image)
                continue
            if found is None:
                self.unread.remove(image)
                continue
            entry = serves(found)
            if entry is not None:
                self.unread.remove(image)  # it is this process's own from now on
                return entry
        return None

    def written(
        self, function: types.FunctionType, captured: Captured, executable: Executable | None, seconds: float
    ) -> bytes | str:
        """A program as later processes read it, or why there is none.  `seconds`: that making it took so far."""
        if self.key is None or self.n_kept >= MOST or (seconds < LEAST_SECONDS and (executable is None or executable.cached)):
            return NOT_ASKED
        reason = _not_kept(captured, executable)
        if reason:
            return reason
        try:
            return _written(function, captured, executable)
        except (
            NotSaved,
            TypeError,
            AttributeError,
            RecursionError,
            ValueError,
        ) as error:  # of pickle: something that it cannot write
            return str(error)

    def keep(self, image: bytes | str, seconds: float) -> str:
        """Keep a written program, which took so many seconds to make, for later processes; gives why it is not kept, or ""."""
        if isinstance(image, str) or seconds < LEAST_SECONDS:
            return image if isinstance(image, str) else NOT_ASKED
        if self.n_kept < MOST and kernel_cache.cache().store(self._name(self.n_kept), SECONDS.pack(seconds) + image, PROGRAM):
            self.n_kept += 1
        return ""


def _not_kept(captured: Captured, executable: Executable | None) -> str:
    if captured.stop is not None:
        return "it ends at a break"
    if captured.loop is not None:
        return "it calls a native loop"
    if captured.prologue:
        return "it draws random numbers"
    if captured.of_process:
        return f"it depends on {captured.of_process}, which each process has anew"
    if executable is not None and executable.native is None:
        return "it is no machine code"
    return ""


Parts = tuple[Any, ...]


def _written(function: types.FunctionType, captured: Captured, executable: Executable | None) -> bytes:
    native = executable.native if executable is not None else None
    machine: Parts | None = None
    if executable is not None and native is not None:
        source = executable.artifacts["kernels"]
        best, at_first = kernel_cache.key_of(source), native.kernels.key
        is_best = at_first == best
        machine = (
            best, None if is_best else at_first, b"" if is_best else zlib.compress(source.encode(), 1),
            native.entry, native.workspace, native.release_gil, native.limits, native.external_call,
        )  # fmt: skip
    program, guards = captured.guards.program(), tuple(captured.guards.each())
    makers = [captured.guards.made_by(k, captured.preparations) for k in range(len(guards) if captured.preparations else 0)]
    made = tuple(frozenset(k for k, by in enumerate(makers) if p in by) for p in range(len(captured.preparations)))
    parts = (
        program, captured.guards.n_registers, made, captured.result, captured.outputs, captured.n_inputs, captured.n_symbols,
        captured.joined, captured.not_joined, captured.preparations, machine,
    )  # fmt: skip
    return saved(parts, captured.graph, Holdings(), guards, function)


def _read(image: bytes, function: types.FunctionType, values: tuple[Any, ...]) -> Found | None:
    """None where the machine code is not there any more."""
    (
        program, n_registers, made, result, outputs, n_inputs, n_symbols, joined, not_joined, preparations, machine,
    ), graph, guards = loaded(image[SECONDS.size :], function, values)  # fmt: skip
    executable = None
    if machine is not None:
        best, quick, source, entry, workspace, release_gil, limits, calls = machine
        kernels, better = kernel_cache.kernels_known_as(best), None
        if kernels is None and quick is not None and config.tiers != "best":
            kernels = kernel_cache.kernels_known_as(quick)
            better = Better(zlib.decompress(source).decode(), entry) if config.tiers == "both" else None
        if kernels is None:
            return None
        native = NativeProgram(kernels, entry, workspace, release_gil, limits, calls, better)
        executable = Executable(call=_not_called, native=native, cached=True)
    captured = Captured(
        graph, UnreadGuards(program, n_registers, made, guards), result, outputs, n_inputs, n_symbols, Target.of(function),
        joined=joined, not_joined=not_joined, preparations=preparations,
    )  # fmt: skip
    return Found(captured, executable, *SECONDS.unpack_from(image))


def _not_called(*arrays: Any) -> tuple[Any, ...]:
    raise AssertionError("native programs are run by the dispatcher")


__all__ = ["Found", "SavedPrograms"]
