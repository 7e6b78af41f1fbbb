"""Files of exported programs: another process runs them, and what is no such file is one error."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import safetensors, torch
from tests.export.test_export import BATCH, Net, X

ml_dtypes = pytest.importorskip("ml_dtypes")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A module's program in a file, and the module."""
    net = Net()
    path = tmp_path_factory.mktemp("saved") / "net.dgx"
    program = dg.export(net, (torch.tensor(X, dtype=torch.float32),), dynamic_shapes={"x": {0: BATCH}})
    program.save(path, extra={"for": "tests"})
    return path, net


def test_another_process_runs_it_without_its_python(saved):
    path, net = saved
    script = f"""
import sys, numpy as np, dynagraph as dg
program = dg.load_exported({str(path)!r})
assert not any("test_export" in name for name in sys.modules)
from dynagraph import torch
for n in (1, 5):
    result = program(torch.ones(n, 3))
    print(result["y"].tolist(), int(result["count"]))
print(program.extra, program.range_constraints)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    one, five, last = done.stdout.splitlines()
    expected = net.inner(torch.nn.functional.linear(torch.ones(1, 3), net.weight) * 3).tolist()
    assert np.allclose(json.loads(one.rpartition(" ")[0]), expected) and five.endswith(" 2")
    assert last == "{'for': 'tests'} {'batch': (1, 2147483647)}"


def test_a_program_comes_back_as_it_was(saved):
    path, _ = saved
    program = dg.load_exported(path)
    assert str(dg.load_exported(path)) == str(program)
    other = path.with_name("again.dgx")
    program.save(other)
    assert zipfile.ZipFile(other).read("program.json") == zipfile.ZipFile(path).read("program.json")


def test_weights_are_mapped_and_those_that_are_written_are_copies(saved):
    program = dg.load_exported(saved[0])
    assert not program.state["weight"].flags.writeable and program.state["count"].flags.writeable
    assert program.state["weight"].ctypes.data % 4 == 0
    with zipfile.ZipFile(saved[0]) as archive, open(saved[0], "rb") as file:
        info = archive.getinfo("weights.safetensors")
        file.seek(info.header_offset + 26)
        begin = info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        assert begin % 64 == 0 and archive.testzip() is None


@pytest.mark.parametrize(
    "function, args",
    [
        (lambda x: np.linalg.solve(x, np.sort(x, axis=0)[::-1]), (X[:3] + 3 * np.eye(3),)),
        (lambda x: np.fft.fft(x).imag + np.where(x > 9, np.inf, 1.0), (X,)),
        (lambda x: x.astype(complex) * (2 - 1j), (X,)),
        (lambda x: np.where(np.isnan(x), -0.0, x) % np.nan, (X,)),
        (lambda x, y: (x[y] + np.arange(2)[:, None], x.sum(), np.pad(x, 1)), (X, np.array([0, 2]))),
        (lambda x: np.add.reduce(x.astype("f4"), axis=None) + np.asarray([1 + 2j, np.nan]), (X,)),
        (lambda x: x.astype(ml_dtypes.bfloat16) * 2, (X,)),
    ],
)
def test_what_graphs_hold_comes_back(tmp_path, function, args):
    program = dg.export(function, args)
    program.save(tmp_path / "f.dgx")
    got, expected = dg.load_exported(tmp_path / "f.dgx")(*args), function(*args)
    for a, b in zip(got, expected) if isinstance(got, tuple) else [(got, expected)]:
        np.testing.assert_array_equal(a, b, strict=True)


# -- files that are none ----------------------------------------------------------------------------------------------------------


def test_files_that_are_cut_off(saved, tmp_path):
    data, path = saved[0].read_bytes(), tmp_path / "cut.dgx"
    for n in [0, 1, 30, *range(100, len(data), len(data) // 40)]:
        path.write_bytes(data[:n])
        with pytest.raises(dg.ExportError, match=r"cut\.dgx"):
            dg.load_exported(path)


def test_damaged_bytes_are_an_error_or_another_number(saved, tmp_path):
    data, path = bytearray(saved[0].read_bytes()), tmp_path / "damaged.dgx"
    random = np.random.default_rng(3)
    for _ in range(150):
        copy = data.copy()
        copy[random.integers(len(copy))] ^= 1 << random.integers(8)
        path.write_bytes(copy)
        try:
            dg.load_exported(path)
        except dg.ExportError as error:
            assert "damaged.dgx" in str(error)


def places_in(value, way=()):
    """Every place in a JSON value."""
    yield way
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places_in(item, (*way, key))


def test_hostile_values_in_the_graph_are_an_error(saved, tmp_path):
    """Every value of the JSON replaced by others: an error, or a program whose calls are checked."""
    path = tmp_path / "hostile.dgx"
    with zipfile.ZipFile(saved[0]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    program = json.loads(members["program.json"])
    random = np.random.default_rng(5)
    places = [way for way in places_in(program) if way]
    hostile = [None, -1, 1 << 70, "external_call", [], {}, [[1 << 62, "s0"]], {"$call": ["load", [], [], None, False, False, []]}]
    for number in random.choice(len(places), 120, replace=False):
        copy = json.loads(members["program.json"])
        holder = copy
        for key in places[number][:-1]:
            holder = holder[key]
        holder[places[number][-1]] = hostile[random.integers(len(hostile))]
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in (members | {"program.json": json.dumps(copy).encode()}).items():
                archive.writestr(name, data)
        try:
            dg.load_exported(path)
        except dg.ExportError as error:
            assert "hostile.dgx" in str(error)


def test_a_file_names_no_functions_of_its_own(tmp_path):
    program = dg.export(lambda x: np.sort(x), (X,))
    program.save(tmp_path / "f.dgx")
    with zipfile.ZipFile(tmp_path / "f.dgx") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["program.json"] = members["program.json"].replace(b'["sort"', b'["load"')
    with zipfile.ZipFile(tmp_path / "g.dgx", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(dg.ExportError, match="'load' is no function that programs call"):
        dg.load_exported(tmp_path / "g.dgx")


def test_a_bomb_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.dgx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("program.json", "metadata.json", "weights.safetensors"):
            archive.writestr(name, b" " * 10_000_000)
    assert zlib and (tmp_path / "bomb.dgx").stat().st_size < 100_000
    with pytest.raises(dg.ExportError, match="compressed"):
        dg.load_exported(tmp_path / "bomb.dgx")


def test_another_version_is_refused(saved, tmp_path):
    with zipfile.ZipFile(saved[0]) as archive, zipfile.ZipFile(tmp_path / "new.dgx", "w") as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name).replace(b'{"version":1', b'{"version":2'))
    with pytest.raises(dg.ExportError, match="is of version 2, and this dynagraph reads version 1"):
        dg.load_exported(tmp_path / "new.dgx")


# -- safetensors ------------------------------------------------------------------------------------------------------------------

ARRAYS = {"a": np.arange(6, dtype="i2").reshape(2, 3), "b": np.array(1.5), "c": np.zeros((0, 4), "f4"), "d": np.array([True])}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(len(text).to_bytes(8, "little") + text + data, np.uint8)


def test_safetensors_there_and_back():
    data = b"".join(bytes(chunk) for chunk in safetensors.chunks(ARRAYS, {"k": "v"}))
    assert len(data) == safetensors.size(ARRAYS, {"k": "v"})
    arrays, metadata = safetensors.parsed(np.frombuffer(data, np.uint8))
    assert metadata == {"k": "v"} and arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_safetensors_are_those_of_the_package():
    package = pytest.importorskip("safetensors.numpy")
    data = b"".join(bytes(chunk) for chunk in safetensors.chunks(ARRAYS))
    for name, array in package.load(data).items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
    theirs, _ = safetensors.parsed(np.frombuffer(package.save(ARRAYS), np.uint8))
    for name, array in theirs.items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header, data, message",
    [
        (b"", b"", "header cannot be read"),
        ([], b"", "is no object"),
        ({"a": {**ENTRY, "dtype": "F33"}}, b"12345678", "unknown dtype 'F33'"),
        ({"a": {**ENTRY, "shape": [1 << 40, 1 << 40]}}, b"12345678", "bytes by dtype and shape"),
        ({"a": {**ENTRY, "data_offsets": [0, 9]}}, b"12345678", "outside of the 8 bytes"),
        ({"a": {**ENTRY, "data_offsets": [8, 0]}}, b"12345678", "outside"),
        ({"a": ENTRY, "b": ENTRY}, b"12345678", "begins at 0"),
        ({"a": ENTRY}, b"123456789", "belong to no array"),
        ({"a": {**ENTRY, "data_offsets": [4, 12]}}, b"123456789012", "begins at 4"),
        (b'{"a": 1, "a": 2}', b"", "stands twice"),
        ({"a": {"dtype": "F32"}}, b"", "must have dtype, shape and data_offsets"),
        ({"__metadata__": {"k": 1}}, b"", "metadata are not texts"),
    ],
)
def test_wrong_safetensors(header, data, message):
    with pytest.raises(dg.ExportError, match=message):
        safetensors.parsed(file_of(header, data))


def test_a_header_that_is_longer_than_the_file():
    with pytest.raises(dg.ExportError, match="a header of 9223372036854775807 bytes"):
        safetensors.parsed(np.frombuffer((2**63 - 1).to_bytes(8, "little") + b"{}", np.uint8))
