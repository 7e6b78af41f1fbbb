"""Find CUDA's shared libraries: NVIDIA's pip packages, toolkits, the loader's search."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

TOOLKIT = "/usr/local/cuda"
CURE = 'pip install "dynagraph[cuda12]" or "dynagraph[cuda13]" (the CUDA version that nvidia-smi shows, or an older one)'


def candidates(name: str, sonames: Sequence[str], toolkits: Sequence[str | None]) -> Iterator[str]:
    """Paths of a library (``nvrtc``), and names for the loader to look up; those of the CUDA version that the installed CuPy is
    built for come first.

    >>> list(candidates("no-such-library", ("libno-such-library.so.13",), ()))
    ['libno-such-library.so.13']
    """
    found = _newest_first(p for folder in packages() for p in folder.glob(f"*/lib/lib{name}.so*"))
    for toolkit in (*toolkits, TOOLKIT):
        if toolkit:
            found += _newest_first(Path(toolkit, "lib64").glob(f"lib{name}.so*"))
    yield from preferred([*found, *sonames])
    by_loader = ctypes.util.find_library(name)  # last: it asks ldconfig and the C compiler
    if by_loader is not None:
        yield by_loader


def preferred(paths: Sequence[str]) -> list[str]:
    """Paths or names of libraries in their order, those of the CUDA version of CuPy first."""
    wanted = cupy_cuda()
    return sorted(paths, key=lambda path: wanted not in (None, *_version(os.path.realpath(path))[:1]))


def packages() -> list[Path]:
    """Where NVIDIA's pip packages lie: the folders of the namespace package `nvidia`."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:  # some other module of this name, which has no spec
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []


def cupy_cuda() -> int | None:
    """The CUDA version of the installed CuPy package; it is not imported, for that takes long."""
    for version in (13, 12):
        try:
            importlib.metadata.version(f"cupy-cuda{version}x")
        except importlib.metadata.PackageNotFoundError:
            continue
        return version
    return None


def _newest_first(paths: Iterator[Path]) -> list[str]:
    return sorted(map(str, paths), key=_version, reverse=True)


def _version(path: str) -> tuple[int, ...]:
    """That in the name of a shared library: (13, 5) of libnvrtc.so.13.5."""
    return tuple(int(n) for n in re.findall(r"\d+", path.rpartition(".so")[2]))


__all__ = ["CURE", "TOOLKIT", "candidates", "cupy_cuda", "packages", "preferred"]
