"""The C compiler: finding it, its flags, running it.

Finding costs no subprocess: a compiler is known by path, size and time of change, and what its probe said (version, what
``-march=native`` means on this machine) is kept in the kernel cache under that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dynagraph import config
from dynagraph.errors import CompilerError, CompilerTimeoutError

CANDIDATES = ("cc", "gcc", "clang")
# -fno-math-errno lets sqrt vectorise; with -fno-trapping-math it changes no bit of any result.  Contraction is off because
# x*y + z must round twice, as NumPy's does.  Never -ffast-math: it also switches the process to flush-to-zero.
COMMON = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w")
# gcc 12 takes some functions that store through an index that falls for functions that store nothing, and drops their calls; and it
# makes wrong code where it vectorises straight-line code (not loops) with vectors of 512 bits
OPTIONAL = ("-mprefer-vector-width=512", "-fno-ipa-pure-const", "-fno-ipa-modref", "-fno-tree-slp-vectorize")
# The comment with which a source says how many functions it has.  Compiled with DG_PARTS and DG_PART it defines every so many-th of
# them, and declares the others; without, all of them.
FUNCTIONS = "/* functions:"
LEAST_FUNCTIONS = 4  # that a process of its own is worth
MOST_PARTS = 8
_log = logging.getLogger("dynagraph.kernels")


@dataclass(frozen=True)
class Toolchain:
    """A compiler that was probed.  `identity` goes into the key of every kernel that it compiles."""

    path: str  # with symbolic links resolved
    version: str
    flags: tuple[str, ...]  # as resolved: never the literal word native
    target: str  # what the compiler said of -march=native

    @property
    def identity(self) -> str:
        return "\0".join((self.path, self.version, *self.flags, self.target, platform.machine(), cpu_features()))

    def compile(self, source: str, timeout: float | None = None) -> bytes:
        """The image of a shared object.  Raises CompilerError with the compiler's words and where the source was kept.

        timeout: seconds for all of it; after these the compiler is stopped, with all processes that it started, and
        CompilerTimeoutError raised.  The functions of large sources are compiled in several processes at once: see `FUNCTIONS`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            return self._compile(source, deadline)
        except subprocess.TimeoutExpired:
            limit = f"{timeout:.3g} s that it may (at most config.compiler_timeout)"
            raise CompilerTimeoutError(f"the C compiler {self.path} took longer than the {limit}, and was stopped") from None

    def _compile(self, source: str, deadline: float | None) -> bytes:
        with tempfile.TemporaryDirectory(prefix="dynagraph-") as folder:
            text, out = os.path.join(folder, "kernel.c"), os.path.join(folder, "kernel.so")
            Path(text).write_text(source)
            n = _n_parts(source)
            if n > 1:
                objects = [os.path.join(folder, f"part{k}.o") for k in range(n)]
                parts = ([f"-DDG_PARTS={n}", f"-DDG_PART={k}", "-c", text, "-o", o] for k, o in enumerate(objects))
                self._run(source, deadline, *parts)
                self._run(source, deadline, [*objects, "-o", out, "-lm"])
            else:
                self._run(source, deadline, [text, "-o", out, "-lm"])
            if not os.path.exists(out):
                raise CompilerError(f"the C compiler {self.path} made no file, and said nothing")
            return Path(out).read_bytes()

    def _run(self, source: str, deadline: float | None, *arguments: list[str]) -> None:
        """Run the compiler once for each list of arguments, all at the same time; none of its processes outlives this."""
        with contextlib.ExitStack() as stack:
            try:
                running = [stack.enter_context(_process([self.path, *self.flags, *more])) for more in arguments]
                said = [process.communicate(timeout=_left(deadline))[1] for process in running]
            except OSError as error:
                raise CompilerError(f"the C compiler {self.path} does not start: {error}") from error
        for process, words in zip(running, said):
            if process.returncode != 0:
                raise CompilerError(_refusal(self.path, process.returncode, words, source))

    def describe(self) -> dict[str, str]:
        return {"compiler": self.path, "version": self.version, "flags": " ".join(self.flags), "target": self.target}


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is killed where the block ends before the process does."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, process_group=0
    ) as process:
        try:
            yield process
        finally:
            if process.returncode is None:  # a driver's helpers are in its group
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _n_parts(source: str) -> int:
    """In how many processes a source is compiled."""
    found = re.search(rf"^{re.escape(FUNCTIONS)} (\d+) ", source, re.MULTILINE)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_PARTS, processors, int(found[1]) // LEAST_FUNCTIONS)) if found else 1


def _refusal(path: str, status: int, said: bytes, source: str) -> str:
    words = said.decode(errors="replace").strip()[-2000:]
    kept = keep_source(source, ".c")
    return f"the C compiler {path} refused generated code (exit {status}); the source is kept in {kept}\n{words}"


def keep_source(source: str, suffix: str) -> str:
    """Write a source that a compiler refused to a temporary file, for people to look at; gives its path."""
    with tempfile.NamedTemporaryFile("w", prefix="dynagraph-", suffix=suffix, delete=False) as kept:
        kept.write(source)
    return kept.name


def find_compiler() -> str | None:
    """The path of the compiler to use: the switch `cc`, else $CC, cc, gcc, clang; None where there is none."""
    if config.cc is not None:
        return shutil.which(config.cc)
    from_environment = os.environ.get("CC", "").split()
    for name in (*from_environment[:1], *CANDIDATES):
        path = shutil.which(name)
        if path is not None:
            return path
    return None


def toolchain(probe_cache: Path | None = None) -> Toolchain:
    """The compiler, probed: once per process, and once per machine where `probe_cache` is a private folder.

    Raises CompilerError where there is none.
    """
    path = find_compiler()
    if path is None:
        wanted = f"{config.cc!r} (config.cc)" if config.cc is not None else ", ".join(CANDIDATES)
        raise CompilerError(f"found no C compiler: looked for {wanted}; install gcc or clang, or use backend='numpy'")
    return _probed(os.path.realpath(path), probe_cache)


@functools.lru_cache(maxsize=8)
def _probed(path: str, probe_cache: Path | None) -> Toolchain:
    status = os.stat(path)
    stamp = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{cpu_features()}\0{COMMON}{OPTIONAL}"
    memo = probe_cache / f"compiler-{hashlib.sha256(stamp.encode()).hexdigest()[:32]}.json" if probe_cache else None
    if memo is not None:
        try:
            row = json.loads(memo.read_text())
            return Toolchain(row["path"], row["version"], tuple(row["flags"]), row["target"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there, or not what was written: probe again
    found = _probe(path)
    if memo is not None:
        try:
            temporary = memo.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps(asdict(found)))
            temporary.rename(memo)
        except OSError as error:
            _log.debug("the compiler's probe is not kept: %s", str(error))
    return found


def _probe(path: str) -> Toolchain:
    version = _run(path, "--version").splitlines()[:1]
    flags = [*COMMON]
    target = ""
    for march in ("-march=native", "-mcpu=native"):
        said = _run(path, march, "-E", "-v", "-x", "c", os.devnull)
        resolved = next((line for line in said.splitlines() if "cc1" in line), "")
        if resolved:
            target = " ".join(w for w in resolved.split() if w.startswith(("-m", "-target")))
            # gcc names every feature there, which one -march name may not: newer processors are "znver3 and avx512f"
            flags += [march] if "clang" in said else [w for w in target.split() if w.startswith("-m")]
            break
    for flag in OPTIONAL:
        if _accepts(path, flag):
            flags.append(flag)
    return Toolchain(path, version[0] if version else "", tuple(flags), target)


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return result.stdout + result.stderr


def _accepts(path: str, flag: str) -> bool:
    command = [path, flag, "-Werror", "-E", "-x", "c", os.devnull]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


@functools.cache
def cpu_features() -> str:
    """The processor's features: a kernel compiled for others must not be loaded."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.split(":", 1)[1].split()))
    except OSError:
        pass  # not Linux: the machine and processor names have to do
    return f"{platform.machine()} {platform.processor()}"
