"""Checksums of files, against zlib's."""

from __future__ import annotations

import os
import pathlib
import signal
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


MIB = 1 << 20


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_parts_that_several_threads_read_are_joined(tmp_path: pathlib.Path, threads: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 5 * MIB + 7, np.uint8).tobytes()
    path = tmp_path / "x"
    path.write_bytes(data)
    before = _dispatch.get_threads()
    _dispatch.set_threads(threads)
    try:
        with open(path, "rb") as file:
            for offset, n in [(0, MIB - 1), (3, MIB), (0, MIB + 1), (1, 3 * MIB), (5, 4 * MIB + 9), (0, len(data)), (0, 0)]:
                into = np.empty(n, np.uint8)
                assert _dispatch.read_crc32(file.fileno(), offset, into) == (n, zlib.crc32(data[offset : offset + n]))
                assert into.tobytes() == data[offset : offset + n]
            for begin in (2 * MIB + 11, 4 * MIB + 7, 5 * MIB + 7, 9 * MIB):  # it ends in, at, behind a part
                into = np.empty(4 * MIB + 1, np.uint8)
                rest = data[begin : begin + len(into)]
                assert _dispatch.read_crc32(file.fileno(), begin, into) == (len(rest), zlib.crc32(rest))
                assert into[: len(rest)].tobytes() == rest
        with pytest.raises(OSError, match="Is a directory"):
            _dispatch.read_crc32(os.open(tmp_path, os.O_RDONLY), 0, np.empty(3 * MIB, np.uint8))
    finally:
        _dispatch.set_threads(before)


def test_a_signal_interrupts_reading_or_lets_it_go_on(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    with open(path, "wb") as file:
        file.truncate(1 << 26)  # a sparse one
    into = np.empty(1 << 26, np.uint8)
    seen: list[int] = []

    def handler(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) == 3:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        with open(path, "rb") as file, pytest.raises(KeyboardInterrupt):
            while True:
                assert _dispatch.read_crc32(file.fileno(), 0, into)[0] == 1 << 26
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) >= 3
