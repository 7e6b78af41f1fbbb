"""Saving and loading of a checkpoint, beside reading and writing its bytes: ``python benchmarks/saving.py [--megabytes 1024]``.

Each is done several times in turn; the least time counts, of the clock and of the processor.  On a machine with other work the
processor's time is the one to look at: all of these are one copy of the bytes by one thread.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import dynagraph.torch as own

try:
    import torch
except ImportError:
    torch = None

TENSOR = 1 << 20  # elements of each


def checkpoint(package: Any, megabytes: int) -> dict[str, Any]:
    """Tensors of 4 MiB with different numbers."""
    return {f"layer{k}.weight": package.arange(TENSOR, dtype=package.float32) * k for k in range(max(1, megabytes // 4))}


def measure(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, tuple[float, float]]:
    """The least seconds of each way, by the clock and by the processor."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            clock, processor = time.perf_counter(), time.process_time()
            result = way()
            took = time.perf_counter() - clock, time.process_time() - processor
            del result
            best[name] = tuple(map(min, best.get(name, took), took))  # type: ignore[assignment]
    return best


def written(path: pathlib.Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def show(title: str, best: dict[str, tuple[float, float]], base: str) -> None:
    print(title)
    for name, (clock, processor) in best.items():
        print(
            f"  {name:24} {clock:7.3f} s {clock / best[base][0]:6.2f}x   "
            f"processor {processor:7.3f} s {processor / best[base][1]:6.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=None, help="where the files are written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, other = pathlib.Path(folder, "own.pt"), pathlib.Path(folder, "other.pt")
        save(path, other, options.megabytes, max(2, options.repeats // 2))
        ways: dict[str, Callable[[], Any]] = {
            "read the bytes": path.read_bytes,
            "torch.load": lambda: own.load(path),
            "torch.load(mmap=True)": lambda: own.load(path, mmap=True),
        }
        if torch:
            ways["PyTorch's"] = lambda: torch.load(path)
        show("loading", measure(ways, options.repeats), "read the bytes")


def save(path: pathlib.Path, other: pathlib.Path, megabytes: int, repeats: int) -> None:
    """Measure saving; the checkpoint stays at `path`."""
    state = checkpoint(own, megabytes)
    own.save(state, path)
    data = path.read_bytes()
    ways: dict[str, Callable[[], Any]] = {
        "write the bytes, atomic": lambda: written(other, data),
        "torch.save": lambda: own.save(state, path),
    }
    if torch:
        theirs = checkpoint(torch, megabytes)
        ways["PyTorch's, in place"] = lambda: torch.save(theirs, other)
    show(f"saving {len(data) / 1e6:.0f} MB", measure(ways, repeats), "write the bytes, atomic")


if __name__ == "__main__":
    main()
