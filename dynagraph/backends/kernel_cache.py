"""Compiled kernels on disk: source text -> machine code; and other entries that no limit or `clear` takes out.

One file per entry: the image of a shared object, then a trailer of magic, length and SHA-256 over key and image.  Entries
are written under another name and renamed; nothing is ever waited for; every OSError means "no cache", never a failure.  The
folder is private to the user, and what is loaded is checked first and mapped from memory, so that a file which is truncated
or rewritten meanwhile cannot hurt the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import stat
import struct
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from dynagraph import config
from dynagraph.backends.toolchain import toolchain
from dynagraph.errors import CompilerError

FORMAT = "1"  # of entries and keys: a change makes all older entries misses
MAGIC = b"DGK1"
TRAILER = struct.Struct("<4s4xQ32s")
SUFFIX = ".kernel"
STALE_SECONDS = 3600.0  # a temporary file this old was left by a process that died
_log = logging.getLogger("dynagraph.cache")


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds.  `folder` is None where nothing is kept."""

    folder: str | None
    entries: int
    nbytes: int
    limit: int


class Library:
    """Loaded machine code; it stays loaded as long as this object lives."""

    def __init__(self, image: bytes, from_cache: bool):
        self.from_cache = from_cache
        self._file, path = _memory_file(image)
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise CompilerError(f"compiled code does not load: {error}") from error

    def address(self, symbol: str) -> int:
        """The address of an exported function."""
        value = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        assert value is not None
        return value


def _memory_file(image: bytes) -> tuple[object, str]:
    """A file in memory and its path.

    It must stay open: the loader matches libraries by path, so a number that is used again would give the old library.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("dynagraph-kernel", os.MFD_CLOEXEC)
        with open(fd, "wb", closefd=False) as file:
            file.write(image)
        return fd, f"/proc/self/fd/{fd}"
    named = tempfile.NamedTemporaryFile(prefix="dynagraph-", suffix=".so")  # noqa: SIM115  (kept open on purpose)
    named.write(image)
    named.flush()
    return named, named.name


class KernelCache:
    """A folder of entries.  `root` None: nothing is kept."""

    def __init__(self, root: str | os.PathLike[str] | None, limit: int):
        self.limit = limit
        self._unchecked = 0  # bytes that were written since the whole folder was looked through
        self.root: Path | None = None
        self._fd = -1
        if root is not None:
            try:
                self._fd = _open_private(Path(root))
                self.root = Path(root)
            except OSError as error:
                _log.warning("kernels are not kept on disk: %s", error)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    # -- reading ----------------------------------------------------------------------------------------------------
    def load(self, key: str, suffix: str = SUFFIX) -> bytes | None:
        """The image of an entry, or None where there is none that can be trusted; `suffix`: another kind than kernels."""
        if self.root is None:
            return None
        try:
            fd = os.open(key + suffix, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError:
            return None
        try:
            with open(fd, "rb", closefd=True) as file:
                status = os.fstat(fd)
                if not _is_private(status) or not stat.S_ISREG(status.st_mode):
                    _log.warning("entry %s is not private to this user: ignored", key[:16])
                    return None
                data = file.read()
                with contextlib.suppress(OSError):  # a read-only cache still serves
                    os.utime(fd)
        except OSError as error:
            _log.debug("entry %s cannot be read: %s", key[:16], error)
            return None
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
            fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
            try:
                with open(fd, "wb") as file:
                    file.write(seal(key, image))
                os.rename(temporary, key + suffix, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=self._fd)
                raise
        except OSError as error:
            _log.warning("entry %s is not kept: %s", key[:16], error)
            return False
        if suffix != SUFFIX:
            return True
        self._unchecked += len(image)
        # looking through thousands of entries takes longer than compiling one; short processes do it in turn, by the key
        if self._unchecked > self.limit // 64 or key.startswith("0"):
            self._evict()
        return True

    def _evict(self) -> None:
        """Take out the entries that were used longest ago, down to nine tenths of the limit."""
        self._unchecked = 0
        rows = self._rows()
        total = sum(size for _, size, _ in rows)
        if total <= self.limit:
            return
        with self._lock() as mine:
            if not mine:
                return
            for _, size, name in sorted(rows):
                if total <= self.limit * 0.9:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._fd)
                total -= size

    @contextlib.contextmanager
    def _lock(self):  # type: ignore[no-untyped-def]
        """Whether this process may evict; it never waits for another."""
        try:
            fd = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)
        except OSError:
            yield False
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def _rows(self) -> list[tuple[float, int, str]]:
        """(time of last use, size, name) of the entries; temporary files of dead processes are taken out."""
        rows: list[tuple[float, int, str]] = []
        try:
            names = os.listdir(self._fd)
        except OSError:
            return rows
        for name in names:
            try:
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if name.endswith(SUFFIX):
                    rows.append((status.st_mtime, status.st_size, name))
                elif name.endswith(".tmp") and time.time() - status.st_mtime > STALE_SECONDS:
                    os.unlink(name, dir_fd=self._fd)
            except OSError:
                continue  # another process took it
        return rows

    # -- for people -------------------------------------------------------------------------------------------------
    def info(self) -> CacheInfo:
        rows = self._rows() if self.root is not None else []
        return CacheInfo(str(self.root) if self.root else None, len(rows), sum(r[1] for r in rows), self.limit)

    def clear(self) -> int:
        """Take out all entries; gives how many went."""
        gone = 0
        for _, _, name in self._rows() if self.root is not None else []:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._fd)
                gone += 1
        return gone


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
    status = os.fstat(fd)
    if not _is_private(status):
        os.close(fd)
        raise PermissionError(
            f"{root}: must belong to this user and be writable by nobody else "
            f"(owner {status.st_uid}, mode {stat.filemode(status.st_mode)})"
        )
    return fd


# -- the cache of the process -------------------------------------------------------------------------------------------

_lock = threading.Lock()
_current: tuple[tuple[object, ...], KernelCache] | None = None


def default_folder() -> Path:
    """Where kernels are kept unless the switch `cache_dir` says otherwise."""
    return Path(platformdirs.user_cache_dir("dynagraph", appauthor=False))


def cache() -> KernelCache:
    """The cache that the switches ask for."""
    global _current
    wanted = (config.cache, config.cache_dir, config.cache_limit)
    with _lock:
        if _current is None or _current[0] != wanted:
            root = (config.cache_dir or default_folder()) if config.cache else None
            _current = wanted, KernelCache(root, config.cache_limit)
        return _current[1]


def get_library(source: str, timeout: float | None = None) -> Library:
    """Machine code for C source: from the cache, or compiled now.  Raises CompilerError.

    timeout: seconds for the compiler, CompilerTimeoutError after these; None: as the switch `compiler_timeout` says.
    """
    kept = cache()
    tools = toolchain(kept.root)
    key = hashlib.sha256("\0".join((FORMAT, tools.identity, source)).encode()).hexdigest()
    image = kept.load(key)
    if image is not None:
        try:
            return Library(image, from_cache=True)
        except CompilerError as error:
            _log.warning("entry %s does not load, compiled anew: %s", key[:16], error)
    start = time.perf_counter()
    image = tools.compile(source, config.compiler_timeout if timeout is None else timeout)
    _log.info("compiled %d bytes of C in %.0f ms", len(source), 1e3 * (time.perf_counter() - start))
    kept.store(key, image)
    return Library(image, from_cache=False)
