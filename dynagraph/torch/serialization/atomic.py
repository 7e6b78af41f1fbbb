"""Files are there whole or not at all: a new file is written beside the old one, brought to the disk, and takes its name."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends; where it raises an error the old file stays.

    Pipes and devices are written directly, and so is a file in a folder where none can be made.
    """
    target = os.path.realpath(os.fspath(path))
    mode = _mode_of(target)
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:
            yield file
        return
    folder = os.path.dirname(target)
    if mode is not None and not os.access(folder, os.W_OK):
        with open(target, "wb") as file:
            yield file
        return
    name = os.path.join(folder, f".{os.path.basename(target)[:100]}.{secrets.token_hex(8)}.part")
    try:
        file = open(name, "xb")  # noqa: SIM115  (closed below, before its name is given)
    except FileNotFoundError:
        raise FileNotFoundError(f"{os.fspath(path)}: there is no folder {folder}") from None
    try:
        with file:
            yield file
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def opened(f: Any) -> Any:
    """A context of what to write to: `replaced` of a path, an object with `write` itself, which is flushed."""
    return replaced(f) if isinstance(f, (str, os.PathLike)) else _flushed(f)


@contextlib.contextmanager
def _flushed(file: Any) -> Iterator[Any]:
    yield file
    file.flush()


__all__ = ["opened", "replaced", "sync_folder"]
