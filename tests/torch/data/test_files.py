"""Datasets in files: mapped arrays, tables, tar shards."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from dynagraph import torch
from dynagraph.torch.utils.data import DataLoader
from dynagraph.torch.utils.data.files import MappedArrays, Shuffled, Table, TarShards, expanded


def test_names_with_braces() -> None:
    assert expanded(["a-{08..10}.tar", "b"]) == ["a-08.tar", "a-09.tar", "a-10.tar", "b"]
    assert expanded("{0..1}/{1..2}") == ["0/1", "0/2", "1/1", "1/2"]


# -- arrays ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[str, str]:
    np.save(tmp_path / "x.npy", np.arange(60.0, dtype=np.float32).reshape(20, 3))
    np.save(tmp_path / "y.npy", np.arange(20))
    return str(tmp_path / "x.npy"), str(tmp_path / "y.npy")


@pytest.mark.parametrize("workers", [0, 2])
def test_mapped_arrays(arrays: Any, workers: int) -> None:
    rows = MappedArrays(*arrays)
    assert len(rows) == 20 and rows[2][0].tolist() == [6, 7, 8] and rows[-1][1].item() == 19
    rows[0][0].fill_(5)  # a copy
    assert rows[0][0].tolist() == [0, 1, 2]
    batches = list(DataLoader(rows, batch_size=8, num_workers=workers))
    assert [len(y) for _, y in batches] == [8, 8, 4]
    assert torch.cat([x for x, _ in batches]).tolist() == rows.arrays[0].tolist()


def test_mapped_arrays_are_pickled_by_name(arrays: Any, tmp_path: Path) -> None:
    raw = np.memmap(tmp_path / "raw", np.int16, "w+", 4, (100, 1000))
    raw[:] = np.arange(100)[:, None]
    raw.flush()
    data = pickle.dumps(MappedArrays(raw))
    assert len(data) < 1000
    assert pickle.loads(data)[7].tolist() == [7] * 1000
    with pytest.raises(ValueError, match="not a part of one"):
        MappedArrays(raw[2:])
    with pytest.raises(ValueError, match=r"different lengths: \[20, 100\]"):
        MappedArrays(arrays[0], raw)


# -- tables ------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "x": np.arange(10.0, dtype=np.float32), "k": np.arange(10), "name": [f"n{k}" for k in range(10)],
    "row": [[k, k + 0.5] for k in range(10)],
}  # fmt: skip


@pytest.fixture(params=["parquet", "arrow"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Two files of 10 rows, in pieces of 4."""
    for k in range(2):
        rows, path = pyarrow.table(COLUMNS), tmp_path / f"{k}.{request.param}"
        if request.param == "parquet":
            pyarrow.parquet.write_table(rows, path, row_group_size=4)
        else:
            pyarrow.feather.write_feather(rows, str(path), chunksize=4, compression="uncompressed")
    return str(tmp_path / f"{{0..1}}.{request.param}")


def test_rows_of_tables(table: str) -> None:
    rows = list(Table(table))
    assert len(rows) == len(Table(table)) == 20
    assert rows[13]["name"] == "n3" and rows[13]["x"].item() == 3 and rows[13]["row"].tolist() == [3, 3.5]
    assert rows[0]["x"].dtype is torch.float32 and rows[0]["k"].dtype is torch.int64
    batch = next(iter(DataLoader(Table(table), batch_size=3)))
    assert batch["k"].tolist() == [0, 1, 2] and batch["name"] == ["n0", "n1", "n2"] and batch["row"].shape == (3, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_divide_the_pieces_of_tables(table: str, workers: int) -> None:
    loader = DataLoader(Table(table, ["k"], batch_size=3), batch_size=None, num_workers=workers)
    batches = [batch["k"].tolist() for batch in loader]
    assert sorted(itertools.chain.from_iterable(batches)) == sorted([*range(10)] * 2)
    assert len(batches) == len(loader) == 10


def test_shuffled_pieces(table: str) -> None:
    rows = Table(table, ["k"], batch_size=4, shuffle=True)
    first = [batch["k"].tolist() for batch in rows]
    assert first == [batch["k"].tolist() for batch in rows]
    rows.set_epoch(1)
    assert first != [batch["k"].tolist() for batch in rows]
    torch.manual_seed(0)
    found = [row["k"].item() for row in DataLoader(Shuffled(Table(table, ["k"]), 8), batch_size=None, num_workers=1)]
    assert sorted(found) == sorted([*range(10)] * 2) and found != sorted(found)


def test_missing_values_and_files_that_are_none(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, None], "k": [1, None]}), tmp_path / "a.parquet")
    assert np.isnan(next(iter(Table(tmp_path / "a.parquet", ["x"], batch_size=2)))["x"].numpy()[1])
    with pytest.raises(ValueError, match="column 'k' of int64 has 1 missing values"):
        list(Table(tmp_path / "a.parquet", ["k"]))
    (tmp_path / "b.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(ValueError, match=r"b\.parquet: not a Parquet file"):
        list(Table(tmp_path / "b.parquet"))


def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "fsspec"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"tables need pyarrow: pip install 'dynagraph\[data\]'"):
        Table("a.parquet")
    with pytest.raises(ImportError, match=r"'s3://bucket/a\.tar' needs fsspec: pip install 'dynagraph\[data\]'"):
        next(iter(TarShards("s3://bucket/a.tar")))


# -- shards ------------------------------------------------------------------------------------------------------------


def add(shard: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    shard.addfile(member, io.BytesIO(data))


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture
def shards(tmp_path: Path) -> str:
    """Three shards of two samples."""
    for k in range(3):
        with tarfile.open(tmp_path / f"{k}.tar", "w") as shard:
            for j in (2 * k, 2 * k + 1):
                add(shard, f"./part/{j:03}.cls", str(j).encode())
                add(shard, f"./part/{j:03}.x.npy", npy(np.full(3, j)))
                add(shard, f"./part/{j:03}.json", json.dumps({"j": j}).encode())
    return str(tmp_path / "{0..2}.tar")


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_shards(shards: str, workers: int) -> None:
    samples = list(DataLoader(TarShards(shards), batch_size=None, num_workers=workers))
    samples.sort(key=lambda sample: sample["__key__"])
    assert [sample["cls"] for sample in samples] == [*range(6)]
    assert samples[4]["__key__"] == "./part/004" and samples[4]["json"] == {"j": 4} and samples[4]["x.npy"].tolist() == [4, 4, 4]


def test_decoders(shards: str) -> None:
    assert next(iter(TarShards(shards, decoders=None)))["cls"] == b"0"
    assert next(iter(TarShards(shards, decoders={"x.npy": len})))["x.npy"] == len(npy(np.zeros(3, int)))


def test_images_in_shards(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    file = io.BytesIO()
    images.fromarray(pixels).save(file, "png")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as shard:
        add(shard, "a.png", file.getvalue())
    (sample,) = TarShards(tmp_path / "a.tar.gz")
    assert sample["png"].tolist() == pixels.transpose(2, 0, 1).tolist()


def test_shards_that_are_cut_off_or_hold_pickles(shards: str, tmp_path: Path) -> None:
    whole = (tmp_path / "0.tar").read_bytes()
    (tmp_path / "0.tar").write_bytes(whole[:700])
    with pytest.raises(ValueError, match=r"0\.tar: not a whole tar file"):
        list(TarShards(tmp_path / "0.tar"))
    with tarfile.open(tmp_path / "b.tar", "w") as shard:
        add(shard, "a.npy", npy(np.array([print], object)))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        list(TarShards(tmp_path / "b.tar"))


def test_addresses(shards: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    with open(expanded(shards)[1], "rb") as file, fsspec.open("memory://shards/1.tar", "wb") as there:
        there.write(file.read())
    assert [sample["cls"] for sample in TarShards("memory://shards/1.tar")] == [2, 3]
