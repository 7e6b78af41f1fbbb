"""Files of both packages, each read by the other (`make conformance`, and wherever torch is installed)."""

from __future__ import annotations

import io
import pathlib
import zipfile
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as own
from tests.torch.serialization.cases import CASES, CODE, DATA, Describe, outputs
from tests.torch.serialization.record import written

torch = pytest.importorskip("torch")
ALL = {**CASES, **DATA, **CODE}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:TypedStorage is deprecated")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("name", ALL)
def test_each_reads_the_other(name: str, old: bool) -> None:
    expected = Describe(torch)(ALL[name](torch))
    theirs = written(torch, ALL[name](torch), _use_new_zipfile_serialization=not old)
    got = own.load(io.BytesIO(theirs), weights_only=name not in CODE)
    assert Describe(own)(got) == expected
    ours = written(own, ALL[name](own), _use_new_zipfile_serialization=not old)
    if old and name in ("storage", "uint16", "uint32", "uint64"):
        return  # PyTorch does not read its own
    back = torch.load(io.BytesIO(ours), weights_only=name in CASES)
    assert Describe(torch)(back) == expected
    if name in CODE and name != "optimizer":
        np.testing.assert_allclose(outputs(own, got), outputs(torch, back), atol=1e-6)


def test_bytes_are_those_that_torch_writes(tmp_path: pathlib.Path) -> None:
    """All but the number of the file, which is a digest of PyTorch's own."""
    for name in ("views", "training", "many", "leaf", "uint16", "no elements"):
        path = tmp_path / "file.x.pt"
        torch.save(CASES[name](torch), path)
        theirs = path.read_bytes()
        own.save(CASES[name](own), path)
        ours = path.read_bytes()
        number = zipfile.ZipFile(io.BytesIO(theirs)).getinfo("file.x/.data/serialization_id").header_offset
        assert ours[:number] == theirs[:number], name
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("options", [{}, {"mmap": True}, {"map_location": "cpu"}, {"map_location": {"cpu": "cpu"}}])
def test_options(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    torch.save(CASES["views"](torch), tmp_path / "x.pt")
    assert Describe(own)(own.load(tmp_path / "x.pt", **options)) == Describe(own)(CASES["views"](own))


def test_files_without_checksums_and_with_empty_data(tmp_path: pathlib.Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(torch.ones(3), tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert own.load(tmp_path / "x.pt").tolist() == [1, 1, 1]
    with own.serialization.skip_data():
        own.save(torch_like := own.ones(300_000), tmp_path / "y.pt")
    assert torch.load(tmp_path / "y.pt").shape == torch_like.shape


@pytest.mark.parametrize("given", ["text", 5, lambda: 0])
def test_what_cannot_be_written_to(given: Any) -> None:
    for package in (torch, own):
        with pytest.raises((AttributeError, FileNotFoundError, TypeError, RuntimeError)):
            package.save({}, given if given != "text" else "/nowhere/at/all.pt")


def test_safetensors_of_the_package(tmp_path: pathlib.Path) -> None:
    package = pytest.importorskip("safetensors.torch")
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.tensor(True)}
    package.save_file(state, tmp_path / "x.safetensors")
    ours = own.load(tmp_path / "x.safetensors")
    assert Describe(own)(dict(sorted(ours.items()))) == Describe(torch)(
        dict(sorted(torch.load(tmp_path / "x.safetensors").items()))
    )
    own.serialization.safetensors.save_file(ours, tmp_path / "y.safetensors")
    back = package.load_file(tmp_path / "y.safetensors")
    assert all(torch.equal(back[k], v) for k, v in state.items())
