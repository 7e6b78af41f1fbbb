"""The disk cache of compiled kernels: source text -> machine code; and entries that no limit or `clear` removes.

One file per entry: the image of a shared object, then a trailer of magic, length and SHA-256 over key and image.  Entries
are written under another name and renamed; nothing is ever waited for; every OSError means "no cache", never a failure.  The
folder is private to the user, and what is loaded is checked first and mapped from memory, so that a file which is truncated
or rewritten meanwhile cannot hurt the process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import logging
import math
import os
import shutil
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn
from weakref import WeakValueDictionary

import platformdirs

from dynagraph import config
from dynagraph._core._dispatch import Library
from dynagraph.backends.compiler_runs import CompilerRun
from dynagraph.backends.loader import load
from dynagraph.backends.toolchain import MEMO, Toolchain, n_processors, toolchain
from dynagraph.driver import deadline
from dynagraph.driver.background import WORK
from dynagraph.driver.forks import Locked
from dynagraph.driver.signals import is_of_signal
from dynagraph.errors import CompilerError

FORMAT = "1"  # of entries and keys: a change makes all older entries misses
MAGIC = b"DGK1"
TRAILER = struct.Struct("<4s4xQ32s")
SUFFIX = ".kernel"
REGION = ".region"  # the key of the kernel that a native loop has
PROGRAM = ".program"  # guards and recipe of a program, and the key of its kernel
STALE_SECONDS = 3600.0  # a temporary file this old was left by a process that died
_log = logging.getLogger("dynagraph.cache")


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds.  `folder` is None where nothing is kept."""

    folder: str | None
    entries: int
    nbytes: int
    limit: int


class KernelCache:
    """A folder of entries.  `root` None: nothing is kept."""

    def __init__(self, root: str | os.PathLike[str] | None, limit: int):
        self.limit = limit
        self._unchecked = 0  # bytes that were written since the whole folder was looked through
        self.root: Path | None = None
        if root is not None:
            try:
                absolute = Path(os.path.abspath(root))  # the program may change its working directory
                os.close(_open_private(absolute))
                self.root = absolute
            except OSError as error:
                _log.warning("kernels are not kept on disk: %s", str(error))

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        """The folder's descriptor, for one operation only: programs close, and use again, numbers that are not theirs.

        Raises OSError, also where nothing is kept.
        """
        if self.root is None:
            raise FileNotFoundError("no kernels are kept on disk")
        fd = _open_private(self.root)
        try:
            yield fd
        finally:
            os.close(fd)

    # -- reading ----------------------------------------------------------------------------------------------------
    def load(self, key: str, suffix: str = SUFFIX) -> bytes | None:
        """The image of an entry, or None where there is none that can be trusted; `suffix`: another kind than kernels."""
        # a FIFO would be waited for
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            with self._folder() as folder:
                fd = os.open(key + suffix, flags, dir_fd=folder)
        except OSError as error:
            _raise_if_of_signal(error)
            return None
        try:
            status = os.fstat(fd)
            if not _is_private(status) or not stat.S_ISREG(status.st_mode):
                _log.warning("entry %s is not a file that is private to this user: ignored", key[:16])
                return None
            with open(fd, "rb", closefd=False) as file:
                data = file.read()
            try:
                os.utime(fd)
            except OSError as error:  # a read-only cache still serves
                _raise_if_of_signal(error)
        except OSError as error:
            _raise_if_of_signal(error)
            _log.debug("entry %s cannot be read: %s", key[:16], str(error))
            return None
        finally:
            os.close(fd)
        image = unseal(key, data)
        if image is None:
            _log.warning("entry %s is damaged: made anew", key[:16])
        return image

    # -- writing ----------------------------------------------------------------------------------------------------
    def store(self, key: str, image: bytes, suffix: str = SUFFIX) -> bool:
        """Publish an entry, whole or not at all; gives whether it was."""
        if self.root is None:
            return False
        temporary = f".{key[:16]}.{os.getpid()}.{threading.get_ident():x}.{time.monotonic_ns():x}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with self._folder() as folder:
                fd = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    with open(fd, "wb") as file:
                        file.write(seal(key, image))
                    os.rename(temporary, key + suffix, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
        except OSError as error:
            _raise_if_of_signal(error)
            _log.warning("entry %s is not kept: %s", key[:16], str(error))
            return False
        if suffix not in (SUFFIX, PROGRAM):
            return True
        self._unchecked += len(image)
        # looking through thousands of entries takes longer than compiling one; short processes do it in turn, by the key
        if self._unchecked > self.limit // 64 or key.startswith("0"):
            self._evict()
        return True

    def _evict(self) -> None:
        """Take out the entries that were used longest ago, down to nine tenths of the limit."""
        self._unchecked = 0
        with contextlib.suppress(OSError), self._folder() as folder:
            rows = _rows(folder)
            total = sum(size for _, size, _ in rows)
            if total <= self.limit or not (lock := _try_lock(folder)):
                return
            with lock:
                for _, size, name in sorted(rows):
                    if total <= self.limit * 0.9:
                        break
                    _remove(name, folder)
                    total -= size

    # -- for people -------------------------------------------------------------------------------------------------
    def info(self) -> CacheInfo:
        rows: list[tuple[float, int, str]] = []
        with contextlib.suppress(OSError), self._folder() as folder:
            rows = _rows(folder)
        kernels = sum(name.endswith(SUFFIX) for _, _, name in rows)
        return CacheInfo(str(self.root) if self.root else None, kernels, sum(r[1] for r in rows), self.limit)

    def clear(self) -> int:
        """Take out all kernels, and what is known of compilers and kept for them; gives how many kernels went."""
        gone = 0
        with contextlib.suppress(OSError), self._folder() as folder:
            gone = sum(_remove(name, folder) and name.endswith(SUFFIX) for _, _, name in _rows(folder))
            for name in os.listdir(folder):
                if name.endswith(MEMO):
                    _remove(name, folder)
            shutil.rmtree("zig", dir_fd=folder, ignore_errors=True)
        return gone


def _raise_if_of_signal(error: OSError) -> None:
    """What a signal's handler raises is no failure of the cache, though a TimeoutError is an OSError."""
    if is_of_signal(error):
        raise error


def _rows(folder: int) -> list[tuple[float, int, str]]:
    """(time of last use, size, name) of the entries; temporary files of dead processes are taken out."""
    rows: list[tuple[float, int, str]] = []
    for name in os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue  # another process took it
        if name.endswith((SUFFIX, REGION, PROGRAM)):
            rows.append((status.st_mtime, status.st_size, name))
        elif name.endswith(".tmp") and time.time() - status.st_mtime > STALE_SECONDS:
            _remove(name, folder)
    return rows


def _remove(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _try_lock(folder: int) -> IO[bytes] | None:
    """The lock of a folder, which closing it gives back; None where another process has it: nobody waits."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = -1
    try:
        fd = os.open(".lock", flags, 0o600, dir_fd=folder)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return open(fd, "rb")
    except OSError:
        if fd >= 0:
            os.close(fd)
        return None


def seal(key: str, image: bytes) -> bytes:
    """An entry's bytes."""
    return image + TRAILER.pack(MAGIC, len(image), _digest(key, image))


def unseal(key: str, data: bytes) -> bytes | None:
    """The image of an entry, or None where it is not what was sealed under this key."""
    if len(data) < TRAILER.size:
        return None
    image = data[: -TRAILER.size]
    magic, length, digest = TRAILER.unpack(data[-TRAILER.size :])
    return image if magic == MAGIC and length == len(image) and digest == _digest(key, image) else None


def _digest(key: str, image: bytes) -> bytes:
    return hashlib.sha256(key.encode() + image).digest()


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _open_private(root: Path) -> int:
    """Open the folder, made if need be; raises OSError where others may write to it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not _is_private(status):
            raise PermissionError(
                f"{root}: must belong to this user and be writable by nobody else "
                f"(owner {status.st_uid}, mode {stat.filemode(status.st_mode)})"
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


# -- the cache of the process -------------------------------------------------------------------------------------------

_locked = Locked()
_current: tuple[tuple[object, ...], KernelCache] | None = None


def default_folder() -> Path:
    """Where kernels are kept unless the switch `cache_dir` says otherwise."""
    return Path(platformdirs.user_cache_dir("dynagraph", appauthor=False))


def cache() -> KernelCache:
    """The cache that the switches ask for."""
    global _current
    wanted = (config.cache, config.cache_dir, config.cache_limit)
    with _locked.lock:
        if _current is None or _current[0] != wanted:
            root = (config.cache_dir or default_folder()) if config.cache else None
            _current = wanted, KernelCache(root, config.cache_limit)
        return _current[1]


def compiler() -> Toolchain:
    """The C compiler; what its probe said is kept in the cache.  Raises CompilerError."""
    return toolchain(cache())


# -- machine code of sources ----------------------------------------------------------------------------------------------

_loaded: WeakValueDictionary[str, Library] = WeakValueDictionary()  # by key: what programs of this process hold
_making: dict[str, "Kernels"] = {}  # by key: begun, and not taken by those who asked for it
_of_making = Locked()
MOST_LEFT = 4  # compilers at work that nobody waits for
MOST_KEPT = 16  # libraries that nobody has taken, where no disk keeps them
_ends_with = 0  # the process at whose end compilers are stopped


class Kernels:
    """Machine code of one source, or the run of the C compiler that makes it.

    `from_cache`: nothing is compiled for it.
    """

    def __init__(
        self, key: str, source: str, tools: Toolchain, kept: KernelCache, timeout: float | None = None, begins: bool = True
    ):
        self.key, self.source, self.tools, self.kept, self.timeout = key, source, tools, kept, timeout
        self.background = 0.0  # seconds that the compiler worked for it while nobody waited
        self._seconds = 0.0
        self._library: Library | None = None
        self._failure: CompilerError | None = None
        self._run: CompilerRun | None = None
        self._is_stored = False
        self.from_cache = self._begun() is None if begins else self._is_found()

    @property
    def library(self) -> Library:
        """Waits for the compiler, until a deadline at most: then it goes on by itself.  Raises CompilerError."""
        while self._library is None:
            if self._failure is not None:
                raise self._failure
            self._wait(self._begun())
        _making.pop(self.key, None)
        return self._library

    @property
    def seconds(self) -> float:
        """That the compiler has worked for it in this process, so far."""
        run = self._run
        if run is None:
            return self._seconds
        return (run.ended if run.is_done() else time.monotonic()) - run.begun

    def address(self, symbol: str) -> int:
        """The address of an exported function."""
        return self.library.address(symbol)

    def is_ready(self) -> bool:
        """Whether `library` need not wait."""
        with contextlib.suppress(CompilerError):  # which `library` raises
            self._begun()
            self.look()
        return self._library is not None or self._failure is not None

    def look(self) -> None:
        """Take what the compiler has made, where nobody waits for it; end it where it takes too long."""
        run = self._run
        if self._library is not None or run is None or run.is_waited_for():
            return
        try:
            if run.is_done():
                self._take(run)
            elif time.monotonic() > self._latest(run):
                self._give_up(run)
        except CompilerError as error:
            _log.warning("%s", error)
        if self._is_stored:
            _making.pop(self.key, None)

    def stop(self) -> None:
        _making.pop(self.key, None)
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def forget_run(self) -> None:
        """In a forked child: it is the parent's."""
        run, self._run = self._run, None
        if run is not None:
            run.disown()

    def _is_found(self) -> bool:
        library = _loaded.get(self.key) or _from_disk(self.kept, self.key)
        self._library = None if library is None else _loaded.setdefault(self.key, library)
        return library is not None

    def _begun(self) -> CompilerRun | None:
        """The run, begun if need be: another process may have had the one before."""
        with _of_making.lock:
            if self._library is None and self._failure is None and (self._run is None or self._run.stopped):
                if self._is_found():
                    return None
                _stop_with_the_process()
                _making[self.key] = self
                try:
                    self._run = self.tools.begin(self.source)
                except CompilerError as error:
                    self._fail(error)
            return self._run

    def _latest(self, run: CompilerRun) -> float:
        limit = config.compiler_timeout if self.timeout is None else self.timeout
        return run.begun + (math.inf if limit is None else limit)

    def _wait(self, run: CompilerRun | None) -> None:
        if run is None:
            return
        latest = self._latest(run)
        end = min(latest, time.monotonic() + deadline.seconds_left())
        try:
            done = run.wait(end)
        except BaseException:  # a KeyboardInterrupt
            if not run.is_waited_for():
                self.stop()
            raise
        if done:
            self._take(run)
        elif end == latest:
            self._give_up(run)
        else:
            self._leave(run)
            deadline.check()

    def _leave(self, run: CompilerRun) -> None:
        """The deadline of whoever waited has passed."""
        others = (k._run for k in list(_making.values()) if k is not self and k._library is None)
        if sum(other is not None and not other.is_waited_for() for other in others) < MOST_LEFT:
            run.leave()
        elif not run.is_waited_for():
            self.stop()

    def _take(self, run: CompilerRun) -> None:
        try:
            library = _load(image := self.tools.image(run, self.source), self.kept)
        except CompilerError as error:
            self._fail(error)
        self._seconds = run.ended - run.begun
        _log.info("compiled %d bytes of C in %.0f ms", len(self.source), 1e3 * self._seconds)
        self._is_stored = self.kept.store(self.key, image)  # what does not load is not kept
        self.background = run.background
        self._library, self._run = _loaded.setdefault(self.key, library), None

    def _give_up(self, run: CompilerRun) -> None:
        run.stop()
        self._fail(self.tools.took_longer(self._latest(run) - run.begun))

    def _fail(self, error: CompilerError) -> NoReturn:
        run = self._run
        if run is not None:
            self._seconds = run.ended - run.begun
        self._failure, self._run = error, None
        _making.pop(self.key, None)
        raise error


def kernels_of(source: str, timeout: float | None = None, quickly: bool = False, beside: bool = False) -> Kernels:
    """Machine code for C source: what is loaded already, from the cache, or what a compiler begins to make now.

    `quickly`: with few optimisations.  `beside`: nobody will wait for it.
    """
    look()
    kept = cache()
    tools = toolchain(kept)
    if quickly:
        tools = tools.quick
    if beside:
        tools = tools.beside
    key = _key_of(source, tools)
    return _making.get(key) or Kernels(key, source, tools, kept, timeout)


def kernels_at_hand(source: str) -> Kernels | None:
    """The same where nothing has to be compiled for it."""
    look()
    kept = cache()
    tools = toolchain(kept)
    return _known_as(_key_of(source, tools), source, tools, kept)


def kernels_known_as(key: str) -> Kernels | None:
    """The same of the source that has a key, which need not be made."""
    kept = cache()
    return _known_as(key, "", toolchain(kept), kept)


def _known_as(key: str, source: str, tools: Toolchain, kept: KernelCache) -> Kernels | None:
    found = Kernels(key, source, tools, kept, begins=False)
    return found if found.from_cache else None


def key_of(source: str) -> str:
    """What the machine code of a source is kept under."""
    return _key_of(source, compiler())


def _key_of(source: str, tools: Toolchain) -> str:
    return hashlib.sha256("\0".join((FORMAT, tools.identity, source)).encode()).hexdigest()


def may_begin_unasked() -> bool:
    """Whether a compiler may begin that nobody will wait for: one processor is the program's."""
    look()  # whoever had one begin may never ask for it again
    at_work = sum(k._run is not None and not k._run.is_waited_for() for k in list(_making.values()))
    return at_work < max(1, min(MOST_LEFT, n_processors() - 1))


def get_library(source: str, timeout: float | None = None) -> Kernels:
    """The same, once it is made.  Raises CompilerError.

    timeout: seconds for the compiler, CompilerTimeoutError after these; None: as the switch `compiler_timeout` says.
    """
    found = kernels_of(source, timeout)
    _ = found.library
    return found


def look() -> None:
    """See how far compilers are that nobody waits for."""
    for kernels in list(_making.values()):
        kernels.look()
    for kernels in [k for k in list(_making.values()) if k._library is not None][:-MOST_KEPT]:
        _making.pop(kernels.key, None)


def stop_compilers() -> None:
    """As the process ends: keep what they have made, and leave nothing behind."""
    look()
    for kernels in list(_making.values()):
        kernels.stop()


def _end() -> None:
    WORK.ended = True
    stop_compilers()


atexit.register(_end)


def _stop_with_the_process() -> None:
    """Processes that multiprocessing has forked end without what `atexit` knows."""
    global _ends_with
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _ends_with != os.getpid():
        _ends_with = os.getpid()
        util.Finalize(None, _end, exitpriority=0)


def _after_fork_in_child() -> None:
    for kernels in list(_making.values()):
        kernels.forget_run()
    _making.clear()


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _from_disk(kept: KernelCache, key: str) -> Library | None:
    image = kept.load(key)
    try:
        return None if image is None else _load(image, kept)
    except CompilerError as error:
        _log.warning("entry %s does not load, compiled anew: %s", key[:16], str(error))
        return None


def _load(image: bytes, kept: KernelCache) -> Library:
    return load(image, *([kept.root] if kept.root else []))
