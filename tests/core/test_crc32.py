"""Checksums of files, against zlib's."""

from __future__ import annotations

import os
import pathlib
import zlib

import numpy as np
import pytest

from dynagraph._core import _dispatch


def test_checksums_are_those_of_zlib(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    for n in [*range(200), 4095, 300_001]:
        data = rng.integers(0, 256, n + 3, np.uint8).tobytes()[3:]  # at any alignment
        for value in (0, 1, 0xFFFFFFFF):
            assert _dispatch.crc32(data, value) == zlib.crc32(data, value), n
    path = tmp_path / "x"
    path.write_bytes(data)
    into = np.zeros(300_000, np.uint8)
    with open(path, "rb") as file:
        assert _dispatch.read_crc32(file.fileno(), 1, into) == (300_000, zlib.crc32(data[1:]))
        assert into.tobytes() == data[1:]
        assert _dispatch.read_crc32(file.fileno(), 299_991, into) == (10, zlib.crc32(data[-10:]))
    with pytest.raises(OSError):
        _dispatch.read_crc32(os.open(tmp_path, os.O_RDONLY), 0, into)
    with pytest.raises((TypeError, BufferError)):
        _dispatch.read_crc32(0, 0, b"read only")
