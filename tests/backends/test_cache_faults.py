"""The kernel cache under whatever a disk, other processes and `kill` do to it: an entry is what was stored, or there is none."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, toolchain
from dynagraph.backends import measured_machine as machine
from dynagraph.backends.kernel_cache import STALE_SECONDS, KernelCache, get_library
from dynagraph.backends.toolchain import Toolchain
from dynagraph.errors import CompilerError
from tests import sampling

SOURCE = "int answer(void) { return 42; }"


@pytest.fixture
def folder(tmp_path):
    with dg.config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """What waits for ever fails."""

    def stop(*args: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # paths of sockets are short
        made.bind(path.name)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "full folder": lambda path: (path / "inner").mkdir(parents=True),
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
@pytest.mark.parametrize("kind", ["*.kernel", "*.compiler", ".lock"])
def test_what_is_no_file_is_no_entry(folder, monkeypatch, make, kind):
    monkeypatch.setattr(toolchain, "_known", {})
    get_library(SOURCE)
    if kind == ".lock":
        (folder / ".lock").touch()
    (path,) = folder.glob(kind)
    path.unlink()
    make(path)
    toolchain._known.clear()
    with at_most(60):
        for _ in range(2):
            assert get_library(SOURCE).address("answer")
        with dg.config.override(cache_limit=0):
            kernel_cache.cache().store("0" * 64, b"looks through the folder")


def test_an_image_that_does_not_load_is_not_kept(folder, monkeypatch):
    monkeypatch.setattr(Toolchain, "image", lambda *args: b"junk")
    with pytest.raises(CompilerError, match="compiled code does not load"):
        get_library(SOURCE)
    assert not list(folder.glob("*.kernel"))


def test_temporary_files_of_killed_processes_are_taken_out(tmp_path):
    cache = KernelCache(tmp_path / "root", limit=1000)
    old, new = tmp_path / "root" / ".old.tmp", tmp_path / "root" / ".new.tmp"
    for path, age in ((old, 2 * STALE_SECONDS), (new, 0)):
        path.write_text("half an entry")
        os.utime(path, (time.time() - age,) * 2)
    cache.store("0" * 64, b"image")
    assert not old.exists() and new.exists()


# -- at random ------------------------------------------------------------------------------------------------------------


class Disk:
    """A cache whose entries are known, and what may happen to its folder."""

    def __init__(self, root: Path, seed: int):
        self.root, self.random = root, random.Random(seed)
        self.cache = KernelCache(root, limit=20_000)
        self.stored: dict[str, bytes] = {}

    def key(self) -> str:
        return hashlib.sha256(bytes([self.random.randrange(12)])).hexdigest()

    def entry(self) -> Path | None:
        found = sorted(p for p in self.root.iterdir() if p.suffix == ".kernel") if self.root.is_dir() else []
        return self.random.choice(found) if found else None

    def store(self) -> None:
        key = self.key()
        image = self.stored.setdefault(key, key.encode() * self.random.randrange(1, 40))
        self.cache.store(key, image)

    def load(self) -> None:
        key = self.key()
        image = self.cache.load(key)
        assert image is None or image == self.stored[key]

    def damage(self) -> None:
        path = self.entry()
        if path is None or not path.is_file() or path.is_symlink():
            return
        data = path.read_bytes()
        at = self.random.randrange(len(data) + 1)
        kind = self.random.randrange(4)
        path.write_bytes((data[:at], data[:at] + b"?" + data[at + 1 :], data[:at] + b"more" + data[at:], b"")[kind])

    def swap(self) -> None:
        one, other = self.entry(), self.entry()
        if one is not None and other is not None and one != other:
            spare = one.with_suffix(".spare")
            one.rename(spare)
            other.rename(one)
            spare.rename(other)

    def replace(self) -> None:
        path = self.entry()
        if path is not None:
            remove(path)
            self.random.choice(list(NO_FILES.values()))(path)

    def lose(self) -> None:
        path = self.entry() if self.random.random() < 0.9 else self.root
        if path is not None:
            remove(path)

    def change_mode(self) -> None:
        if self.root.exists():
            self.root.chmod(self.random.choice([0o700, 0o700, 0o777, 0o500]))

    def clear(self) -> None:
        if self.random.random() < 0.2:
            self.cache.clear()
        self.cache.info()

    def fail(self, name: str) -> Callable[..., object]:
        """A system call that fails at times."""
        real = getattr(os, name)

        def call(*args: object, **options: object) -> object:
            if self.random.random() < 0.2:
                number = self.random.choice([errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EROFS, errno.EACCES, errno.ESTALE])
                raise OSError(number, os.strerror(number))
            return real(*args, **options)

        return call


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def mistreat(root: Path, seed: int, steps: int) -> None:
    disk = Disk(root, seed)
    events = [disk.damage, disk.swap, disk.replace, disk.lose, disk.change_mode, disk.clear]
    descriptors = len(os.listdir("/proc/self/fd"))
    with at_most(60 + steps / 10):
        for _ in range(steps):
            with pytest.MonkeyPatch.context() as patch:
                for name in ("open", "rename", "unlink", "stat", "fstat", "listdir", "utime", "mkdir"):
                    if disk.random.random() < 0.1:
                        patch.setattr(os, name, disk.fail(name))
                for act in (disk.store, disk.load, disk.load):
                    act()
            disk.random.choice(events)()
    root.mkdir(exist_ok=True)
    root.chmod(0o700)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert not [p for p in root.iterdir() if p.suffix == ".tmp" and p.stat().st_size > 20_000]
    for path in root.glob("*.kernel"):
        remove(path)
    disk.store()
    disk.load()


def test_entries_are_what_was_stored_whatever_happens(tmp_path):
    for seed in range(4):
        mistreat(tmp_path / str(seed), seed, 60)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(10, 10 + max(1, sampling.programs // 1000)))
def test_entries_are_what_was_stored_whatever_happens_at_length(tmp_path, seed):
    mistreat(tmp_path / "cache", seed, 1000)


WRITER = """
import hashlib, sys
from dynagraph.backends.kernel_cache import KernelCache
cache = KernelCache(sys.argv[1], limit=3_000_000)
print("ready", flush=True)
while True:
    for k in range(8):
        key = hashlib.sha256(bytes([k])).hexdigest()
        cache.store(key, key.encode() * 10_000)
        assert cache.load(key) in (None, key.encode() * 10_000)
"""


def test_writers_that_are_killed_leave_whole_entries(tmp_path):
    root = tmp_path / "cache"
    cache = KernelCache(root, limit=3_000_000)
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    found = 0
    for path in root.glob("*.kernel"):
        assert cache.load(path.stem) == path.stem.encode() * 10_000
        found += 1
    assert found


# -- forks ----------------------------------------------------------------------------------------------------------------


def test_locks_are_free_in_a_forked_child():
    """Another thread had them."""
    compiled = dg.compile(lambda x: x, backend="reference")
    compiled(1)
    held = [kernel_cache._locked, machine._locked, compiled.decorated.compilation]
    taken, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for locked in held:
                stack.enter_context(locked.lock)
            taken.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        child = os.fork()
        if child == 0:
            os._exit(0 if all(locked.lock.acquire(timeout=5) for locked in held) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not any(locked.lock.acquire(blocking=False) for locked in held)  # the parent's are as they were
    finally:
        may_go.set()
        thread.join()


def test_no_module_has_a_lock_that_a_fork_leaves_taken():
    renewed = {  # they have hooks of their own
        "dynagraph.backends.cuda.nvrtc": "_compiling", "dynagraph.driver.loading": "_lock", "dynagraph.cuda.shared_memory": "_lock",
        "dynagraph.cuda.late_errors": "_lock",
    }  # fmt: skip
    kinds = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
    found = {(name, attribute) for name, module in sys.modules.items() if name.partition(".")[0] == "dynagraph"
             for attribute, value in vars(module).items() if isinstance(value, kinds)}  # fmt: skip
    assert found <= set(renewed.items())
