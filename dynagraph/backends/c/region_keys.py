"""What a region is known by, so that a later process finds its machine code without the passes, and without printing it.

The key is of all that the C source is made of: the region as it was captured, the compiler, and the files of the passes and of the
printer.  What has no key, or none that was met before, takes the long way.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph.backends import kernel_cache
from dynagraph.backends.kernel_cache import Kernels
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.regions import Block, Region

SOURCES = (".py", ".h")
FOLDERS = ("ir", "ir/passes", "ir/optable", "backends", "backends/c", "_core")  # whose files make source of regions


def key_of(region: Region) -> str | None:
    """What is the same for the same region in another process; None where it cannot be told."""
    out = io.BytesIO()
    try:
        _Pickler(out).dump(_parts(region))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return hashlib.sha256(_compiled_by().encode() + out.getvalue()).hexdigest()


def _parts(region: Region) -> dict[str, Any]:
    """All that a region is, blocks by their numbers."""
    inner = {name: [_parts(r) for r in getattr(region, name)] for name in ("functions", "turns")}
    return {**vars(region), **inner, "blocks": [vars(block) for block in region.blocks]}


# What is written is never read.  Expressions keep their hashes, which are others in each process.
REDUCED: dict[type, Any] = {
    Block: lambda block: (Block, (block.number,)),
    DType: lambda dtype: (DType, (dtype.name,)),
    Expr: lambda e: (Expr, (e.op, e.args, e.dtype, e.value)),
}


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO):
        super().__init__(file, protocol=5)
        self.dispatch_table = REDUCED


def _compiled_by() -> str:
    return "\0".join((kernel_cache.compiler().identity, _version()))


@functools.cache
def _version() -> str:
    """Of what makes source of regions: by the sizes and times of its files, as Python knows modules by."""
    root = Path(__file__).parents[2]
    return repr((sys.version, np.__version__, [sorted(_files(root / folder)) for folder in FOLDERS]))


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SOURCES):
                status = entry.stat()
                yield entry.name, status.st_size, status.st_mtime_ns


def kernels_of(key: str | None) -> Kernels | None:
    """The machine code, with all optimisations, of a region that was compiled before."""
    known = None if key is None else kernel_cache.cache().load(key, kernel_cache.REGION)
    return None if known is None else kernel_cache.kernels_known_as(known.decode())


def remember(key: str | None, source: str) -> None:
    """The region of this key has this source."""
    if key is not None:
        kernel_cache.cache().store(key, kernel_cache.key_of(source).encode(), kernel_cache.REGION)
