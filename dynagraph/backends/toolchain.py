"""The C compiler: finding it, its flags, running it.

Finding costs no subprocess: a compiler is known by path, size and time of change, and what its probe said (version, what
``-march=native`` means on this machine) is kept in the kernel cache under that.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import json
import logging
import math
import os
import platform
import re
import shlex
import shutil
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dynagraph import config
from dynagraph.backends.compiler_runs import FOLDER, IMAGE, SOURCE, CompilerRun, Failed, Refused, kill, start
from dynagraph.backends.loader import UNLOADED, load
from dynagraph.driver import deadline
from dynagraph.errors import CompilerError, CompilerTimeoutError

CANDIDATES = ("cc", "gcc", "clang")
WHEEL = "ziglang"  # a compiler that pip installs, as dynagraph[compiler]; after the candidates, or asked for by this name
LAUNCHERS = ("ccache", "sccache", "distcc", "icecc", "buildcache", "env", "nice")  # they run the compiler that they are given
# -fno-math-errno lets sqrt vectorise; with -fno-trapping-math it changes no bit of any result.  Contraction is off because
# x*y + z must round twice, as NumPy's does.  Never -ffast-math: it also switches the process to flush-to-zero.
COMMON = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w")
QUICK = "-O1"  # in place of -O3: takes half the time, and most loops run at three quarters of the speed
QUICKLY = "-DDG_QUICK"  # so that sources leave out what such code need not have
# gcc 12 takes some functions that store through an index that falls for functions that store nothing, and drops their calls; and it
# makes wrong code where it vectorises straight-line code (not loops) with vectors of 512 bits.  It sinks loads that stand before a
# condition into its arm, and makes wrong code of what is then loaded under a mask
OPTIONAL = ("-mprefer-vector-width=512", "-fno-ipa-pure-const", "-fno-ipa-modref", "-fno-tree-slp-vectorize", "-fno-tree-sink")
# What an image is linked with.  Start files, which do nothing in it, and libc, of which the process has found everything already,
# take a linker longer than all else.
LIBRARIES = ("-nostdlib", "-lm", "-lgcc")
USUAL_LIBRARIES = ("-lm",)  # for a compiler that makes nothing so
# Options of a $CC that change results; ours are strict.
UNSAFE = (
    "-Ofast", "-ffast-math", "-funsafe-math-optimizations", "-fassociative-math", "-freciprocal-math", "-ffinite-math-only",
    "-fno-signed-zeros", "-fno-rounding-math",
)  # fmt: skip
# The comment with which a source says how long a compiler takes for each of its functions, roughly.  Compiled with DG_IN_PARTS it
# defines function k where DG_HAS_k is 1, and declares the others; without, it defines all of them.
FUNCTIONS = "/* functions:"
LEAST_FUNCTIONS = 4  # that a process of its own is worth
MOST_PARTS = 8
MEMO = ".compiler"  # what a probe said, in the kernel cache
SAY = ("-E", "-v", "-x", "c", os.devnull)  # compile nothing, and say how the options are understood
PROBE = 2  # its version: a change asks all compilers again
REFUSED = "dynagraph-refused-"  # in the folder for temporary files
DAY = 24 * 3600.0
# In seconds: one that old was left by a process that was killed, or nobody looks at it any more.
LEFT = {FOLDER: DAY, UNLOADED: DAY, REFUSED: 14 * DAY}
MOST_LOOKED_AT = 4096  # names, by each process
_log = logging.getLogger("dynagraph.kernels")


class Memos(Protocol):
    """Where probes are kept: the kernel cache."""

    @property
    def root(self) -> Path | None: ...
    def load(self, key: str, suffix: str) -> bytes | None: ...
    def store(self, key: str, image: bytes, suffix: str) -> bool: ...


@dataclass(frozen=True)
class Command:
    """How a compiler is started.  `options` come before ours; `compiler`: the file that compiles, which a launcher may start."""

    words: tuple[str, ...]
    options: tuple[str, ...]
    compiler: str
    why: str  # it is this one

    def __str__(self) -> str:
        return shlex.join([*self.words, *self.options])

    @property
    def is_zig(self) -> bool:
        """Whether it is Zig's, which keeps folders of its own."""
        return os.path.basename(self.compiler).startswith("zig")


@dataclass(frozen=True)
class Toolchain:
    """A compiler that was probed.  `identity` goes into the key of every kernel that it compiles."""

    command: Command
    version: str
    flags: tuple[str, ...]  # as resolved: never the literal word native, where the compiler says what that means
    target: str  # what the compiler said of -march=native
    libraries: tuple[str, ...] = USUAL_LIBRARIES
    folder: Path | None = None  # where it may keep things
    most_processes: int = MOST_PARTS  # at the same time

    @property
    def words(self) -> tuple[str, ...]:
        """What each of its command lines begins with."""
        return (*self.command.words, *self.command.options, *self.flags)

    @property
    def quick(self) -> Toolchain:
        """The same with few optimisations: the results are the same, bit for bit."""
        return replace(self, flags=(*(QUICK if flag == COMMON[0] else flag for flag in self.flags), QUICKLY))

    @property
    def beside(self) -> Toolchain:
        """The same beside the program's calls: one processor is the program's."""
        return replace(self, most_processes=max(1, n_processors() - 1))

    @property
    def identity(self) -> str:
        of_command = (self.command.compiler, *self.command.options, self.version)
        return "\0".join((*of_command, *self.flags, *self.libraries, self.target, platform.machine(), cpu_features()))

    def begin(self, source: str) -> CompilerRun:
        """Have a shared object be made.  The functions of large sources are compiled in several processes at once: see `FUNCTIONS`.

        Raises CompilerError where the compiler does not start.
        """
        sweep_once()
        parts = parts_of(source, min(self.most_processes, config.compiler_processes or MOST_PARTS))
        link = ["-o", IMAGE, *self.libraries]
        rounds = [[[SOURCE, *link]]]
        if len(parts) > 1:
            objects = [f"part{k}.o" for k in range(len(parts))]
            own = [["-DDG_IN_PARTS", *(f"-DDG_HAS_{k}" for k in part)] for part in parts]
            rounds = [[[*has, "-c", SOURCE, "-o", o] for has, o in zip(own, objects)], [[*objects, *link]]]
        folder = tempfile.mkdtemp(prefix=FOLDER)
        try:
            return CompilerRun(self.words, self.environment(folder), folder, source, rounds)
        except Failed as failed:
            raise CompilerError(f"the C compiler {self.command} {failed.what}") from failed

    def image(self, run: CompilerRun, source: str) -> bytes:
        """Of a run that is done.  Raises CompilerError with the compiler's words and where the source was kept."""
        try:
            return run.image()
        except Refused as refused:
            kept = keep_source(source, ".c")
            raise CompilerError(
                f"the C compiler {self.command} refused generated code (exit {refused.status}); the source is kept in {kept}\n"
                f"{refused.words}"
            ) from None
        except Failed as failed:
            raise CompilerError(f"the C compiler {self.command} {failed.what}") from None

    def compile(self, source: str, timeout: float | None = None) -> bytes:
        """The image of a shared object.  Raises CompilerError as `image` does.

        timeout: seconds for all of it; after these the compiler is stopped, with all processes that it started, and
        CompilerTimeoutError raised.
        """
        run = self.begin(source)
        try:
            if not run.wait(run.begun + (math.inf if timeout is None else timeout)):
                raise self.took_longer(timeout)
            return self.image(run, source)
        finally:
            run.stop()

    def took_longer(self, timeout: float | None) -> CompilerTimeoutError:
        limit = f"{timeout:.3g} s that it may (at most config.compiler_timeout)"
        return CompilerTimeoutError(f"the C compiler {self.command} took longer than the {limit}, and was stopped")

    def environment(self, folder: str | None = None) -> dict[str, str] | None:
        """Of the compiler's processes; None: this one's.  Zig keeps what it made: libraries with us, kernels not at all."""
        if not self.command.is_zig:
            return None
        kept = self.folder / "zig" if self.folder is not None else Path(_folder_of_this_process())
        own = {"ZIG_GLOBAL_CACHE_DIR": str(kept), "ZIG_LOCAL_CACHE_DIR": str(Path(folder, "zig") if folder else kept)}
        return {**own, **os.environ}

    def describe(self) -> dict[str, str]:
        return {"compiler": str(self.command), "version": self.version, "flags": " ".join((*self.command.options, *self.flags)),
                "target": self.target, "why": self.command.why}


@functools.cache
def _folder_of_this_process() -> str:
    made = tempfile.mkdtemp(prefix=FOLDER)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def parts_of(source: str, most: int) -> list[list[int]]:
    """The functions that each of at most so many processes compiles, such that all take about as long; one part if it is small."""
    found = re.search(rf"^{re.escape(FUNCTIONS)} ([\d ]+) \*/", source, re.MULTILINE)
    weights = [int(w) for w in found[1].split()] if found else []
    n = max(1, min(most, MOST_PARTS, n_processors(), len(weights) // LEAST_FUNCTIONS))
    parts: list[list[int]] = [[] for _ in range(n)]
    totals = [0] * n
    for k in sorted(range(len(weights)), key=lambda k: -weights[k]):
        least = totals.index(min(totals))
        parts[least].append(k)
        totals[least] += weights[k]
    return parts


def n_processors() -> int:
    """On which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_source(source: str, suffix: str) -> str:
    """Write a source that a compiler refused to a temporary file, for people to look at; gives its path."""
    with tempfile.NamedTemporaryFile("w", prefix=REFUSED, suffix=suffix, delete=False) as kept:
        kept.write(source)
    return kept.name


# -- what killed processes left -------------------------------------------------------------------------------------------


@functools.cache
def sweep_once() -> None:
    """Take out what killed processes of this user left in the folder for temporary files: once per process, before it compiles."""
    sweep(tempfile.gettempdir())


def sweep(root: str) -> None:
    """Take out old folders of compilations, files to be loaded and refused sources; nothing else, and nobody else's."""
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in itertools.islice(entries, MOST_LOOKED_AT):
            if not entry.name.startswith(tuple(LEFT)):
                continue
            kind = next(k for k in LEFT if entry.name.startswith(k))
            with contextlib.suppress(OSError):
                if _is_old(entry.stat(follow_symlinks=False), kind):
                    shutil.rmtree(entry.path) if kind == FOLDER else os.unlink(entry.path)


def _is_old(status: os.stat_result, kind: str) -> bool:
    is_kind = stat.S_ISDIR(status.st_mode) if kind == FOLDER else stat.S_ISREG(status.st_mode)
    return is_kind and status.st_uid == os.geteuid() and time.time() - status.st_mtime > LEFT[kind]


# -- finding it -----------------------------------------------------------------------------------------------------------


def find_compiler() -> Command | None:
    """The compiler to use: the switch `cc`, else $CC, cc, gcc, clang, the wheel `ziglang`; None where there is none."""
    if config.cc is not None:
        return command_of(config.cc, "config.cc")
    asked = os.environ.get("CC", "").strip()
    missing = ""
    if asked:
        found = command_of(asked, "$CC")
        if found is not None:
            return found
        missing = f"; $CC, {asked!r}, is not there"
    for name in CANDIDATES:
        found = command_of(name, f"{name} is the first of {', '.join(CANDIDATES)} on the PATH{missing}")
        if found is not None:
            return found
    return command_of(WHEEL, f"none of {', '.join(CANDIDATES)} is on the PATH; the wheel {WHEEL} is installed{missing}")


def command_of(text: str, why: str) -> Command | None:
    """The command that a text names: a path or a name, or these after launchers and before options; None: there is none.

    A link to a launcher (``/usr/lib/ccache/gcc``) is run as it is; the compiler is the next one of its name on the PATH.
    """
    which = functools.cache(shutil.which)  # it asks each folder of the PATH
    whole = which(text)  # it may hold spaces
    try:
        words = [text] if whole else shlex.split(text)
    except ValueError:  # quotes that do not end
        return None
    n = 0
    while n < len(words) and (_name(words[n]) in LAUNCHERS or (n and (words[n].startswith("-") or "=" in words[n]))):
        n += 1
    if n == len(words):
        return None
    if words[n] == WHEEL and shutil.which(WHEEL) is None:
        zig = _zig_of_the_wheel()
        compiler, words = (zig, [*words[:n], zig, "cc", *words[n + 1 :]]) if zig else (None, words)
        n += zig is not None
    else:
        compiler = which(words[n])
        n += compiler is not None and _name(words[n]) == "zig" and words[n + 1 : n + 2] == ["cc"]
    first = which(words[0])
    if compiler is None or first is None:
        return None
    options = [w for w in words[n + 1 :] if w not in UNSAFE]
    if len(options) < len(words) - n - 1:
        _say_that_options_are_left_out(text)
    if _name(os.path.realpath(compiler)) in LAUNCHERS:
        compiler = _behind(compiler)
        if compiler is None:
            return None
    started = [os.path.abspath(w) if os.sep in w else w for w in words[1 : n + 1]]  # compilations run in folders of their own
    return Command((os.path.abspath(first), *started), tuple(options), os.path.realpath(compiler), why)


def _name(word: str) -> str:
    return os.path.basename(word)


def _behind(link: str) -> str | None:
    """The compiler that a launcher runs by the name of a link to it: the next one on the PATH, as launchers look for it."""
    launcher = os.path.realpath(link)
    for folder in os.environ.get("CCACHE_PATH", os.environ.get("PATH", os.defpath)).split(os.pathsep):
        found = shutil.which(_name(link), path=folder)
        if found is not None and os.path.realpath(found) != launcher:
            return found
    return None


def _zig_of_the_wheel() -> str | None:
    found = importlib.util.find_spec(WHEEL)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        zig = shutil.which("zig", path=folder)
        if zig is not None:
            return zig
    return None


@functools.cache
def _say_that_options_are_left_out(text: str) -> None:
    _log.warning("the C compiler %r: options that change results (%s) are left out", text, ", ".join(UNSAFE))


# -- asking it ------------------------------------------------------------------------------------------------------------

_known: dict[str, Toolchain] = {}  # of this process, by what the compiler is known by


def toolchain(memos: Memos | None = None) -> Toolchain:
    """The compiler, probed: once per process, and once per machine where `memos` keeps things.

    Raises CompilerError where there is none, or where it makes nothing that can be loaded.
    """
    command = find_compiler()
    if command is None:
        wanted = f"{config.cc!r} (config.cc)" if config.cc is not None else f"{', '.join(CANDIDATES)}, the wheel {WHEEL}"
        raise CompilerError(
            f'found no C compiler: looked for {wanted}; install gcc or clang, or pip install "dynagraph[compiler]", '
            "or use backend='numpy'"
        )
    try:
        status = os.stat(command.compiler)
    except OSError as error:
        raise CompilerError(f"the C compiler {command} does not start: {error}") from error
    known_by = (str(command), command.compiler, status.st_size, status.st_mtime_ns, cpu_features(), COMMON, OPTIONAL, PROBE)
    key = hashlib.sha256(repr(known_by).encode()).hexdigest()
    folder = memos.root if memos is not None else None
    found = _known.get(key) or (memos and _remembered(memos, key, command))
    if not found:
        found = _probe(command, folder)
        if memos is not None:
            row = {"version": found.version, "flags": found.flags, "target": found.target, "libraries": found.libraries}
            memos.store(key, json.dumps(row).encode(), MEMO)
    if len(_known) >= 8:
        _known.clear()
    _known[key] = found
    return replace(found, command=command, folder=folder)


def _remembered(memos: Memos, key: str, command: Command) -> Toolchain | None:
    """What was kept; of the path nothing is: what runs is what was found now."""
    image = memos.load(key, MEMO)
    if image is None:
        return None
    row = json.loads(image)  # sealed: it is what was stored
    return Toolchain(command, row["version"], tuple(row["flags"]), row["target"], tuple(row["libraries"]), memos.root)


def _probe(command: Command, folder: Path | None) -> Toolchain:
    """Ask a compiler what it is and takes.  Raises CompilerError where any question gets no answer: half a probe is none."""
    try:
        found = _probe_all(command, folder)
    except CompilerError:
        _answered.clear()
        raise
    _answered.clear()
    return found


# of a probe under way: one that ended at a deadline goes on where it was
_answered: dict[tuple[str, ...], subprocess.CompletedProcess[bytes]] = {}


def _probe_all(command: Command, folder: Path | None) -> Toolchain:
    bare = Toolchain(command, "", (), "", folder=folder)
    version = _asked(bare, "--version").stdout.decode(errors="replace").splitlines()[:1]
    flags = [*COMMON]
    target = ""
    marches = () if any(o.startswith(("-march=", "-mcpu=")) for o in command.options) else ("-march=native", "-mcpu=native")
    # most often it takes all flags, which one question tells; else each is asked for by itself
    at_once = _ask(bare, *marches[:1], *OPTIONAL, "-Werror", *SAY)
    takes_all = at_once.returncode == 0
    for march in marches:
        if not takes_all and not _accepts(bare, march):
            continue
        result = at_once if takes_all else _asked(bare, march, *SAY)
        said = (result.stdout + result.stderr).decode(errors="replace")
        resolved = next((line for line in said.splitlines() if "cc1" in line), "")
        target = " ".join(w for w in resolved.split() if w.startswith(("-m", "-target")) and w not in OPTIONAL)
        # gcc names every feature there, which one -march name may not: newer processors are "znver3 and avx512f"
        flags += [w for w in target.split() if w.startswith("-m")] if "clang" not in said and target else [march]
        break
    flags += [flag for flag in OPTIONAL if takes_all or _accepts(bare, flag)]
    found = Toolchain(command, version[0] if version else "", tuple(flags), target, LIBRARIES, folder)
    failure = _failure(found)
    if failure is None:
        return found
    usual = replace(found, libraries=USUAL_LIBRARIES)
    otherwise = _failure(usual)
    if otherwise is None and _failure(found) is not None:  # else it failed once, and not because of the libraries
        return usual
    raise otherwise or failure


def _asked(tools: Toolchain, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """What a compiler answers.  Raises CompilerError where it does not start, hangs, is killed, or gives an error."""
    result = _ask(tools, *arguments)
    if result.returncode != 0:
        raise _no_answer(tools, arguments, result)
    return result


def _accepts(tools: Toolchain, flag: str) -> bool:
    """Whether a compiler takes a flag.  Where it fails, and not because of the flag, CompilerError: it may take it after all."""
    arguments = (flag, "-Werror", "-E", "-x", "c", os.devnull)
    result = _ask(tools, *arguments)
    if result.returncode != 0 and flag.lstrip("-").partition("=")[0].encode() not in result.stderr:
        raise _no_answer(tools, arguments, result)
    return result.returncode == 0


def _ask(tools: Toolchain, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [*tools.command.words, *tools.command.options, *arguments]
    if tuple(command) in _answered:
        return _answered[tuple(command)]
    deadline.check()
    try:
        with start(command, None, tools.environment()) as process:
            try:
                out, err = process.communicate(timeout=_seconds_allowed())
            finally:
                kill(process)
    except subprocess.TimeoutExpired:
        deadline.check()  # it may be that of whoever compiles
        limit = f"longer than the {config.compiler_timeout:.3g} s that it may (config.compiler_timeout) for {shlex.join(arguments)}"
        raise CompilerTimeoutError(f"the C compiler {tools.command} took {limit}, and was stopped") from None
    except OSError as error:
        raise CompilerError(f"the C compiler {tools.command} does not start: {error}") from error
    result = subprocess.CompletedProcess(command, process.returncode, out, err)
    if result.returncode == 0:
        _answered[tuple(command)] = result
    return result


def _seconds_allowed() -> float | None:
    """What a question may take: the switch `compiler_timeout`, or what is left till the deadline of whoever compiles."""
    seconds = math.inf if config.compiler_timeout is None else config.compiler_timeout
    seconds = min(seconds, deadline.seconds_left())
    return None if seconds == math.inf else seconds


def _no_answer(tools: Toolchain, arguments: Sequence[str], result: subprocess.CompletedProcess[bytes]) -> CompilerError:
    words = result.stderr.decode(errors="replace").strip()[-2000:]
    asked = f"when asked {shlex.join(arguments)}"
    return CompilerError(f"the C compiler {tools.command} failed (exit {result.returncode}) {asked}\n{words}")


# what generated code may call of each library: libc, libm and libgcc
TRIAL = """
void *malloc(__SIZE_TYPE__), *memcpy(void *, const void *, __SIZE_TYPE__);
double exp(double);
void *copy(const void *from, __SIZE_TYPE__ n) { return memcpy(malloc(n), from, n); }
double power(double x) { return exp(x); }
double _Complex product(double _Complex a, double _Complex b) { return a * b; }
int answer(void) { return 42; }
"""


def _failure(tools: Toolchain) -> CompilerError | None:
    """Why a compiler makes nothing that can be loaded; None: it does."""
    seconds = _seconds_allowed()
    try:
        run = tools.begin(TRIAL)
        try:
            if not run.wait(run.begun + (math.inf if seconds is None else seconds)):
                deadline.check()
                limit = f"longer than the {seconds:.3g} s that it may (config.compiler_timeout) for an empty program"
                raise CompilerTimeoutError(f"the C compiler {tools.command} took {limit}, and was stopped")
            load(run.image(), *([tools.folder] if tools.folder else [])).address("answer")
        finally:
            run.stop()
    except CompilerTimeoutError:
        raise
    except (Failed, CompilerError) as error:
        words = error.words if isinstance(error, Refused) else str(error)
        return CompilerError(
            f"the C compiler {tools.command} ({tools.command.why}) makes no code that this Python ({platform.machine()}, "
            f"{8 * struct.calcsize('P')} bits) can load; name another one: config.cc or $CC\n{words}"
        )
    return None


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
