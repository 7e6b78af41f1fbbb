"""``torch.utils.serialization.config``: options of `torch.save` and `torch.load`, which are set as attributes."""

from __future__ import annotations

from mmap import MAP_PRIVATE
from typing import Any


class load:
    """Of `torch.load`: `mmap` where the call does not say, the byte order of files that do not say theirs, how files are mapped."""

    mmap: bool = False
    endianness: Any = None
    mmap_flags: int | None = MAP_PRIVATE
    calculate_storage_offsets: bool = False  # (places are always read from the file's directory)


class save:
    """Of `torch.save`: whether checksums are written, and the multiples at which the bytes of storages begin."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64
