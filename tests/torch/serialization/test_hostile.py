"""Damaged, cut off and hostile files: one error each, no code, no memory, and in time."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch.serialization import LoadError, npz, safetensors
from tests.torch.serialization.hostile import SYSTEM, pickles

MOST_MEMORY = 60_000_000  # bytes, of a file of thousands


def archive(**records: bytes) -> bytes:
    """A checkpoint of these records: data_0 is data/0."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, data in {"version": b"3\n", "byteorder": b"little", **records}.items():
            zipped.writestr("archive/" + name.replace("_pkl", ".pkl").replace("_", "/"), data)
    return file.getvalue()


def refused(load: Callable[[], Any], kind: type[Exception] = pickle.UnpicklingError) -> str:
    """The text of the error of a call that takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            load()
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    return str(caught.value)


HOSTILE = dict(pickles())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(os, "system", ran.append)
    kind: Any = (
        RuntimeError if "mars" in name or "elsewhere" in name or "tensor" in name or "attribute" in name else pickle.UnpicklingError
    )
    data = archive(data_pkl=HOSTILE[name], data_0=bytes(16))
    refused(lambda: torch.load(io.BytesIO(data)), (kind, LoadError) if kind is RuntimeError else kind)  # type: ignore[arg-type]
    refused(lambda: torch.load(io.BytesIO(HOSTILE[name])))
    assert not ran


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 80


def test_errors_say_what_to_do() -> None:
    text = refused(lambda: torch.load(io.BytesIO(archive(data_pkl=SYSTEM))))
    assert "GLOBAL os.system whose module os is blocked" in text
    file = io.BytesIO()
    torch.save(torch.nn.ReLU(), file)
    text = refused(lambda: torch.load(io.BytesIO(file.getvalue())))
    assert "add_safe_globals([torch.nn.modules.activation.ReLU])" in text and "weights_only=False" in text
    assert torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue())) == ["torch.nn.modules.activation.ReLU"]


def checkpoint() -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.arange(5000.0), "b": torch.ones(3, 4), "c": [1, "text"]}, file)
    return file.getvalue()


def cuts(data: bytes) -> list[int]:
    return [*range(0, len(data), 4096), len(data) - 1, len(data) - 23, 1, 100]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("as_path", [False, True])
def test_files_cut_off_at_every_4_kib(old: bool, as_path: bool, tmp_path: pathlib.Path) -> None:
    whole = io.BytesIO()
    torch.save({"a": torch.arange(5000.0), "b": torch.ones(3, 4)}, whole, _use_new_zipfile_serialization=not old)
    data, path = whole.getvalue(), tmp_path / "x.pt"
    for cut in cuts(data):
        path.write_bytes(data[:cut])
        for weights_only in (True, False):
            if old and not weights_only and cut:
                continue  # the errors of pickle's own
            with pytest.raises(LoadError):
                torch.load(path if as_path else io.BytesIO(data[:cut]), weights_only=weights_only)


def test_a_changed_byte_is_noticed() -> None:
    data = checkpoint()
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        infos = {i.filename: i.header_offset for i in zipped.infolist()}
    for name in ("archive/data.pkl", "archive/data/0", "archive/data/1"):
        header = infos[name]
        place = header + 30 + sum(struct.unpack_from("<2H", data, header + 26)) + 5
        wrong = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(LoadError, match="checksum"):
            torch.load(io.BytesIO(wrong))


def test_any_byte_may_be_wrong() -> None:
    """A byte changed anywhere is an error, or in a place that says nothing: never another kind of exception, never other
    numbers."""
    data, rng = checkpoint(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 150).tolist() + list(range(len(data) - 700, len(data), 3)):
        wrong = data[:place] + bytes([data[place] ^ int(rng.integers(1, 256))]) + data[place + 1 :]
        try:
            found = torch.load(io.BytesIO(wrong))
        except (LoadError, pickle.UnpicklingError, ValueError):
            continue
        assert found["a"][4999] == 4999 and found["a"].sum() == 5000 * 4999 / 2 and found["c"] == [1, "text"]


def directory_with(data: bytes, name: str, **changes: int) -> bytes:
    """A zip file whose directory says something else of a record."""
    at = data.index(b"PK\x01\x02")
    while data[at + 46 : at + 46 + len(name)] != name.encode():
        at = data.index(b"PK\x01\x02", at + 1)
    places = {
        "method": (10, "<H"),
        "packed": (20, "<I"),
        "size": (24, "<I"),
        "header": (42, "<I"),
        "flags": (8, "<H"),
        "checksum": (16, "<I"),
    }
    found = bytearray(data)
    for what, value in changes.items():
        offset, form = places[what]
        struct.pack_into(form, found, at + offset, value)
    return bytes(found)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": 8}, {"flags": 1}, {"size": 1 << 30, "packed": 1 << 30}, {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF},
        {"header": 1 << 30}, {"header": 5}, {"size": 1 << 31}, {"checksum": 7},
    ],
    ids=str,
)  # fmt: skip
def test_directories_that_lie(changes: dict[str, int]) -> None:
    data = directory_with(checkpoint(), "archive/data/0", **changes)
    refused(lambda: torch.load(io.BytesIO(data)), LoadError)


def test_zip_bombs_and_paths() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("archive/data.pkl", b"\x80\x02N." + bytes(5_000_000))
    assert "compressed" in refused(lambda: torch.load(io.BytesIO(file.getvalue())), LoadError)
    data = archive(data_pkl=b"\x80\x02N.")
    for name in ("../data.pkl", "/etc/passwd", "other/data.pkl"):
        file = io.BytesIO(data)
        with zipfile.ZipFile(file, "a") as zipped:
            zipped.writestr(name, b"x")
        assert "folder" in refused(lambda f=file: torch.load(io.BytesIO(f.getvalue())), LoadError)  # type: ignore[misc]
    # two records that share their bytes: more in all than the file has
    data = checkpoint()
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x06\x06")
    row = data.index(b"archive/data/0", at) - 46
    entry = data[row : row + 60]
    many = b"".join(entry.replace(b"data/0", b"data/%c" % (65 + k)) for k in range(20))
    longer = data[:end] + many + b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 27, 27, end - at + len(many), at, 0)
    refused(lambda: torch.load(io.BytesIO(longer)), LoadError)


def test_other_files_are_refused(tmp_path: pathlib.Path) -> None:
    for data in (
        b"",
        b"P",
        b"PK\x03\x04",
        b"hello world",
        bytes(100),
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        b"\x80\x02K\x01.",
        os.urandom(3000),
    ):
        path = tmp_path / "x.pt"
        path.write_bytes(data)
        refused(lambda: torch.load(path), LoadError)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "not there.pt")


def test_hostile_arrays(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    for data in (b"", b"\xff" * 8, (1 << 62).to_bytes(8, "little") + b"{}", len(header).to_bytes(8, "little") + header, bytes(8)):
        path.write_bytes(data)
        for mmap in (False, True):
            refused(lambda m=mmap: torch.load(path, mmap=m), LoadError)  # type: ignore[misc]
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(5_000_000, np.int8))
    assert torch.load(path)["a"].shape == (5_000_000,)
    monkeypatch.setattr(npz, "_LARGE", 1 << 20)
    monkeypatch.setattr(npz, "_EXPANDS", 500)
    refused(lambda: torch.load(path), LoadError)
    np.savez(path, a=np.array([object()], dtype=object))
    refused(lambda: torch.load(path), LoadError)
    np.savez(path, a=np.arange(2000))
    data = path.read_bytes()
    for cut in range(0, len(data), 4096):
        path.write_bytes(data[:cut])
        refused(lambda: torch.load(path), LoadError)


def test_arrays_there_and_back(tmp_path: pathlib.Path) -> None:
    state = {
        "a": torch.arange(6.0).reshape(2, 3).t(),
        "h": torch.ones(3, dtype=torch.bfloat16),
        "n": torch.tensor(True),
        "e": torch.zeros(0, 2),
    }
    for package, name in ((safetensors, "x.safetensors"), (npz, "x.npz")):
        package.save_file(state, tmp_path / name)
        for options in ({}, {"mmap": True}, {"map_location": "cpu"}):
            found = torch.load(tmp_path / name, **options)
            assert {k: (v.dtype, v.tolist(), v.shape) for k, v in found.items()} == {
                k: (v.dtype, v.tolist(), v.shape) for k, v in state.items()
            }
            found["a"].add_(1)
        with pytest.raises(RuntimeError, match="share memory"):
            package.save_file({"a": state["a"], "b": state["a"][0]}, tmp_path / name)
        with pytest.raises(RuntimeError, match="map_location is not supported"):
            torch.load(tmp_path / name, map_location={})
    assert np.load(tmp_path / "x.npz")["a"].tolist() == state["a"].tolist()
    assert safetensors.load(safetensors.save(state))["a"].tolist() == state["a"].tolist()
