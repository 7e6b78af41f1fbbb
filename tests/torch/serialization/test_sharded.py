"""Checkpoints of many files, by one process and by several ranks."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch.distributed import checkpoint as dcp
from dynagraph.torch.serialization import LoadError
from dynagraph.torch.serialization.sharded import Checkpoint, Part, load_sharded, save_sharded, size_of

STATE = {f"layer{k}": torch.arange(100.0).reshape(10, 10) + k for k in range(5)}
INDEX = "model.safetensors.index.json"


def test_files_by_size_with_an_index(tmp_path: pathlib.Path) -> None:
    state = {**STATE, "tied": STATE["layer1"], "half": torch.ones(3, dtype=torch.bfloat16)}
    save_sharded(state, tmp_path, max_shard_size=900)
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["weight_map"]["layer1"] == "model-00001-of-00003.safetensors" == index["weight_map"]["tied"]
    assert index["metadata"]["total_size"] == 5 * 400 + 6 and len(list(tmp_path.iterdir())) == 4
    found = load_sharded(tmp_path)
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in state.items()}
    assert found["tied"] is found["layer1"] and found["half"].dtype is torch.bfloat16
    assert list(load_sharded(tmp_path, ["layer3"])) == ["layer3"]
    assert Checkpoint(tmp_path).read("layer2", (2, 3), (1, 2)).tolist() == [[25, 26]] and Checkpoint(tmp_path).shape("tied") == (
        10,
        10,
    )
    with pytest.raises(ValueError, match="not within"):
        Checkpoint(tmp_path).read("layer2", (9, 9), (2, 2))
    save_sharded(STATE, tmp_path / "one")
    assert load_sharded(tmp_path / "one")["layer4"].tolist() == STATE["layer4"].tolist()
    (tmp_path / "one" / INDEX).unlink()  # one file alone, as other packages write it
    assert load_sharded(tmp_path / "one")["layer4"].tolist() == STATE["layer4"].tolist()


def parts_of(x: Any, ranks: int, dim: int) -> list[Part]:
    bounds = np.linspace(0, x.shape[dim], ranks + 1).astype(int).tolist()
    found = []
    for low, high in itertools.pairwise(bounds):
        offsets = [0] * x.dim()
        offsets[dim] = low
        found.append(Part(x.narrow(dim, low, high - low), tuple(offsets), tuple(x.shape)))
    return found


@pytest.mark.parametrize("ranks, dim", [(1, 0), (3, 0), (4, 1)])
@pytest.mark.parametrize("readers", [1, 2, 5])
def test_any_ranks_read_what_any_others_wrote(tmp_path: pathlib.Path, ranks: int, dim: int, readers: int) -> None:
    x = torch.arange(70.0).reshape(7, 10)
    for rank in range(ranks):
        own: dict[str, Any] = {"x": parts_of(x, ranks, dim)[rank], "lr": 0.1, "step": {"n": rank}}
        if rank == 0:
            own["whole"] = torch.ones(3)
        dcp.save(own, storage_writer=dcp.FileSystemWriter(tmp_path, rank=rank, ranks=ranks))
    for axis in (0, 1):
        for part in parts_of(torch.zeros(7, 10), readers, axis):
            into = {"x": Part(part.tensor, part.offsets, (7, 10)), "whole": torch.zeros(3), "lr": None, "step": {"n": None}}
            dcp.load(into, storage_reader=dcp.FileSystemReader(tmp_path, rank=ranks - 1))
            low, high = part.offsets, [o + n for o, n in zip(part.offsets, part.tensor.shape)]
            assert part.tensor.tolist() == x[low[0] : high[0], low[1] : high[1]].tolist()
            assert into["lr"] == 0.1 and into["step"] == {"n": ranks - 1} and into["whole"].tolist() == [1, 1, 1]
    assert load_sharded(tmp_path)["x"].tolist() == x.tolist()


def test_a_training_run_goes_on(tmp_path: pathlib.Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    dcp.save({"model": model, "optimizer": optimizer.state_dict()}, checkpoint_id=tmp_path)
    other = torch.nn.Linear(2, 2)
    again = torch.optim.Adam(other.parameters())
    other(torch.ones(2)).sum().backward()
    again.step()
    state = {"model": other, "optimizer": again.state_dict()}
    dcp.load(state, checkpoint_id=tmp_path)
    again.load_state_dict(state["optimizer"])
    assert torch.equal(other.weight, model.weight) and torch.equal(
        again.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"]
    )
    with pytest.raises(KeyError, match=r"no model\.more"):
        dcp.load({"model": {"more": torch.ones(1)}}, checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match="in the checkpoint"):
        dcp.load({"model": {"weight": torch.ones(1)}}, checkpoint_id=tmp_path)
    with pytest.raises(ValueError, match="a folder is needed"):
        dcp.save({})


def test_files_of_torch_with_an_index(tmp_path: pathlib.Path) -> None:
    torch.save({"a": STATE["layer0"]}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": STATE["layer1"]}, tmp_path / "pytorch_model-00002-of-00002.bin")
    index = {"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert load_sharded(tmp_path)["b"].tolist() == STATE["layer1"].tolist()


def test_what_is_not_whole(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_sharded(tmp_path)
    x = torch.arange(8.0)
    for rank, part in enumerate(parts_of(x, 2, 0)):
        save_sharded({"x": part}, tmp_path / "two", rank=rank, ranks=2)
    index = tmp_path / "two" / "model-rank00002-of-00002.safetensors.index.json"
    text = index.read_text()
    index.unlink()
    with pytest.raises(LoadError, match="of 2 ranks there are the indexes of"):
        load_sharded(tmp_path / "two")
    index.write_text(text.replace('"model-rank00002-of-00002.safetensors"', '"../x.safetensors"'))
    with pytest.raises(LoadError, match="no file of the folder"):
        load_sharded(tmp_path / "two")
    for offset, why in ((3, "lie over one another"), (5, "not of the sizes"), (-1, "does not fit")):
        changed = json.loads(text)
        changed["metadata"]["parts"]["x"]["offsets"] = [offset]
        index.write_text(json.dumps(changed))
        with pytest.raises(LoadError, match=why):
            load_sharded(tmp_path / "two")
    for broken in ("", "[]", '{"weight_map": 3}', '{"weight_map": {"x": 3}}', '{"weight_map": {}, "metadata": {"ranks": "a"}}'):
        index.write_text(broken)
        with pytest.raises(LoadError):
            load_sharded(tmp_path / "two")
    save_sharded(STATE, tmp_path, max_shard_size=900)
    file = tmp_path / "model-00002-of-00003.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + b"\x07")
    with pytest.raises(LoadError, match="its checksum is another"):
        load_sharded(tmp_path)
    file.unlink()
    with pytest.raises(LoadError, match="is missing"):
        load_sharded(tmp_path)


def test_sizes_in_words() -> None:
    assert [size_of(s) for s in (5, "5", "5GB", "2 MiB", "7b")] == [5, 5, 5 * 10**9, 2 << 20, 7]
    with pytest.raises(ValueError, match="a number of bytes"):
        size_of("much")
