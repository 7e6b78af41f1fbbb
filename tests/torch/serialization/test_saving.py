"""What files are read from and written to, and the options of both."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import pathlib
import pickle
import pickletools
import sys
import threading
import types
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph._core import _dispatch
from dynagraph.torch.serialization import LoadError, pickling
from tests.torch.serialization.cases import Describe


class Point:
    """A class of a user's."""

    def __init__(self, x: Any):
        self.x = x


class Slotted:
    __slots__ = ("a", "b")


def called(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    """A hook."""


def written(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.pt"
    torch.save([1], path)
    os.chmod(path, 0o640)
    with pytest.raises(AttributeError):
        torch.save([torch.ones(2), lambda: 0], path)  # pickle refuses it

    class Full(Exception):
        pass

    def full(*_: Any) -> None:
        raise Full

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Full):
            torch.save([2], path)
    assert torch.load(path) == [1] and os.listdir(tmp_path) == ["x.pt"]
    torch.save([3], path)
    assert torch.load(path) == [3] and path.stat().st_mode & 0o777 == 0o640
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    torch.save([4], link)
    assert link.is_symlink() and torch.load(path) == [4]
    torch.save([5], os.devnull)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        torch.save([6], tmp_path / "no" / "x.pt")


def test_kinds_of_files(tmp_path: pathlib.Path) -> None:
    value = {"a": torch.arange(3.0)}
    for name in ("ü.pt", "no ending", ".hidden", "a.b.pt"):
        torch.save(value, str(tmp_path / name))
        assert Describe(torch)(torch.load(tmp_path / name)) == Describe(torch)(value)
    with gzip.open(tmp_path / "x.gz", "wb") as file:
        torch.save(value, file)
    with gzip.open(tmp_path / "x.gz", "rb") as file:
        assert Describe(torch)(torch.load(file)) == Describe(torch)(value)
    with open(tmp_path / "behind", "wb") as file:  # several, one behind the other: of the old format
        file.write(b"head")
        for k in range(3):
            torch.save(torch.full((2,), k), file, _use_new_zipfile_serialization=False)
    with open(tmp_path / "behind", "rb") as file:
        file.seek(4)
        assert [torch.load(file).tolist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
    with open(tmp_path / "zip behind", "wb") as file:
        file.write(b"head")
        file.write(written(value).getvalue())
    with open(tmp_path / "zip behind", "rb") as file:
        file.seek(4)
        assert Describe(torch)(torch.load(file)) == Describe(torch)(value)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        torch.save(value, file)
    with os.fdopen(read, "rb") as file, pytest.raises(OSError, match=r"seek|Illegal"):
        torch.load(file)


def test_map_location() -> None:
    file = written([torch.ones(2), torch.zeros(3)])
    seen = []

    def mapped(storage: Any, location: str) -> Any:
        seen.append((storage.nbytes(), location))
        return None if len(seen) == 1 else storage

    for where in ("cpu", b"cpu", torch.device("cpu"), {"cpu": "cpu"}, {"cuda:0": "cpu"}, mapped, lambda storage, location: storage):
        file.seek(0)
        assert [x.tolist() for x in torch.load(file, where)] == [[1, 1], [0, 0, 0]]
    assert seen == [(8, "cpu"), (12, "cpu")]
    for where in ("mars", "meta", {"cpu": "mars"}):
        file.seek(0)
        with pytest.raises(RuntimeError):
            torch.load(file, where)
    tagged = written(torch.ones(1))
    data = tagged.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00xpu")  # of a device that is not there
    with pytest.raises(RuntimeError, match="checksum"):
        torch.load(io.BytesIO(data))


def test_a_package_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    from dynagraph.torch.serialization import locations

    monkeypatch.setattr(locations, "_registry", list(locations._registry))
    torch.serialization.register_package(
        5, lambda storage: "here", lambda storage, location: storage if location == "here" else None
    )
    file = written(torch.ones(2))
    assert b"here" in file.getvalue() and torch.load(file).tolist() == [1, 1]
    monkeypatch.setattr(locations, "_registry", [])
    file.seek(0)
    with pytest.raises(
        RuntimeError, match=r"don't know how to restore data location of torch.storage.UntypedStorage .tagged with here"
    ):
        torch.load(file)


def test_mapped_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.zeros(4), "b": torch.ones(2, dtype=torch.bfloat16)}, path)
    found = torch.load(path, mmap=True)
    found["a"].add_(1)
    assert torch.load(path)["a"].tolist() == [0] * 4 and found["b"].tolist() == [1, 1]
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        shared = torch.load(path, mmap=True)
    shared["a"].fill_(7)
    del shared
    assert torch.load(path, mmap=True)["a"].tolist() == [7] * 4
    with pytest.raises(ValueError, match="must be a file path"):
        torch.load(io.BytesIO(path.read_bytes()), mmap=True)
    torch.save([1], path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        torch.load(path, mmap=True)
    with pytest.raises(ValueError, match="MAP_PRIVATE"):
        torch.serialization.set_default_mmap_options(77)


def test_what_users_allow() -> None:
    point = Point(torch.ones(2))
    slotted = Slotted()
    slotted.a = 3
    file = written([point, slotted, torch.nn.ReLU()], pickle_protocol=2)
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[tests.torch.serialization.test_saving.Point\]\)"):
        torch.load(file)
    allowed = [Point, Slotted, (torch.nn.ReLU, "torch.nn.modules.activation.ReLU")]
    with torch.serialization.safe_globals([*allowed, Point]):
        assert torch.serialization.get_safe_globals() == allowed
        file.seek(0)
        found = torch.load(file)
    assert found[0].x.tolist() == [1, 1] and found[1].a == 3 and found[2].inplace is False
    assert torch.serialization.get_safe_globals() == []
    torch.serialization.add_safe_globals([Point])
    torch.serialization.clear_safe_globals()
    assert torch.serialization.get_safe_globals() == []
    with pytest.raises(ValueError, match="length 2"):
        torch.serialization.add_safe_globals([(Point,)])
    with torch.serialization.safe_globals([torch.nn.Linear, set]):  # by this package's own classes, under PyTorch's names
        assert torch.load(written(torch.nn.Linear(1, 1))).in_features == 1


def test_how_files_are_asked_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(Point(1))
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        torch.load(file, pickle_module=pickle, weights_only=True)
    assert torch.load(file, pickle_module=pickle).x == 1
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    file.seek(0)
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert torch.load(file).x == 1
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="Only one"):
        torch.load(file)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=False)
    with pytest.warns(UserWarning, match="pickle_load_args"):
        torch.load(written(1), encoding="ascii")


def test_the_other_byte_order() -> None:
    x = torch.arange(4.0)
    big = written(x, _disable_byteorder_record=True).getvalue()
    swapped = big.replace(x.numpy().tobytes(), x.numpy().byteswap().tobytes())
    torch.serialization.set_default_load_endianness(torch.serialization.LoadEndianness.BIG)
    try:
        with torch.serialization.skip_data():
            assert torch.load(io.BytesIO(swapped)).tolist() == [0] * 4
        with pytest.raises(LoadError, match="checksum"):
            torch.load(io.BytesIO(swapped))
        torch.serialization.set_crc32_options(False)
        swapped = written(torch.from_numpy(x.numpy().byteswap()), _disable_byteorder_record=True)
        assert torch.load(swapped).tolist() == x.tolist()
    finally:
        torch.serialization.set_crc32_options(True)
        torch.serialization.set_default_load_endianness(None)
    with pytest.raises(ValueError, match="Unknown endianness"):
        torch.load(io.BytesIO(written(x).getvalue().replace(b"little", b"middle").replace(*_checksums(b"little", b"middle"))))


def _checksums(*texts: bytes) -> list[bytes]:
    from dynagraph._core import _dispatch

    return [_dispatch.crc32(text).to_bytes(4, "little") for text in texts]


def test_names_in_pickles_are_exact() -> None:
    """Texts that read like this package's names stay as they are, in every protocol."""
    text = "cdynagraph.torch._utils\n_rebuild_tensor_v2\nq"
    for protocol in (1, 2, 3, 4, 5):
        for value in (
            [torch.ones(2), text],
            {text: torch.nn.ReLU(), "m": "dynagraph.torch.core.tensor"},
            [torch.Tensor, torch.float32, torch.nn.functional.relu],
        ):
            file = written(value, pickle_protocol=protocol)
            data = pickling.dumped(value, pickling.Storages(), pickle, protocol)
            named = [str(a) for o, a, _ in pickletools.genops(data) if o.name == "GLOBAL"]
            assert not any("dynagraph" in name for name in named)
            assert Describe(torch)(torch.load(file, weights_only=False)) == Describe(torch)(value)


def test_other_pickle_modules() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    file = written({"f": lambda x: x + 1, "t": torch.ones(2)}, pickle_module=cloudpickle)
    assert torch.load(file, weights_only=False)["f"](1) == 2


def test_views_of_two_dtypes_are_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        written([x, x.view(torch.int32)])


def test_hooks_and_plain_pickles() -> None:
    model = torch.nn.Linear(1, 1)
    model.register_forward_hook(called, with_kwargs=True, always_call=True)
    again = torch.load(written(model), weights_only=False)
    assert again._forward_hooks and again._hooks.with_kwargs and again._hooks.always_called
    again(torch.ones(1))
    assert pickle.loads(pickle.dumps(torch.ones(2, dtype=torch.uint16))).dtype is torch.uint16
    assert pickle.loads(pickle.dumps(torch.FloatStorage)) is torch.FloatStorage
    assert torch._utils._rebuild_tensor_v2(torch.ones(2)._typed_storage(), 0, (2,), (1,), False, None, {"neg": True}).tolist() == [
        -1,
        -1,
    ]
    assert torch.storage._load_from_bytes(written(torch.ones(2)).getvalue()).tolist() == [1, 1]


def test_storages_of_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(8)))
    for shared in (False, True):
        storage = torch.UntypedStorage.from_file(str(path), shared, 8)
        storage[0] = 9
        assert storage.tolist() == [9, *range(1, 8)] and path.read_bytes()[0] == (9 if shared else 0)


def test_storages_are_let_go() -> None:
    import gc
    import weakref

    x = torch.ones(10)
    gone = weakref.ref(x._storage)
    gc.disable()
    try:
        written(x)
        del x
        assert gone() is None
    finally:
        gc.enable()


def test_threads_load_at_once(tmp_path: pathlib.Path) -> None:
    state = {str(k): torch.full((1000,), float(k)) for k in range(20)}
    torch.save(state, tmp_path / "x.pt")
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(torch.load(tmp_path / "x.pt"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(f["7"].tolist() == [7.0] * 1000 for f in found)


def test_versions_of_modules() -> None:
    check = torch.serialization.check_module_version_greater_or_equal
    assert check(np, (1, 20)) and not check(np, (99,))
    with pytest.raises(RuntimeError, match="malformed"):
        check(sys, (1,))
    with pytest.warns(UserWarning, match="malformed"):
        assert check(sys, (1,), error_if_malformed=False)


def test_functions_are_pickled_by_their_names() -> None:
    """All of the namespaces, methods of tensors, and tensors' types, as PyTorch's can be."""
    places = (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.sparse, torch.Tensor)
    for place in places:
        for name, value in vars(place).items():
            if not name.startswith("_") and isinstance(value, (types.FunctionType, type)) and value is not torch.linalg.LinAlgError:
                assert pickle.loads(pickle.dumps(value)) is value, name
    assert torch.sin.__qualname__ == "sin" and torch.Tensor.__add__.__qualname__ == "Tensor.__add__"
    assert pickle.loads(pickle.dumps([torch.add, torch.Tensor.add]))[1] is torch.Tensor.add


def test_bytes_that_are_written_past_the_buffer_have_their_checksum(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 300_001, np.uint8)
    with open(tmp_path / "file", "wb") as file:
        file.write(b"before")
        file.flush()
        assert _dispatch.write_crc32(file.fileno(), data) == zlib.crc32(data)
        file.write(b"behind")
    assert (tmp_path / "file").read_bytes() == b"before" + data.tobytes() + b"behind"
    with open(tmp_path / "file", "rb") as file, pytest.raises(OSError):
        _dispatch.write_crc32(file.fileno(), data)
