"""`torch.export` by PyTorch's names."""

import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import nn
from tests.export.test_export import Net


def test_there_and_back(tmp_path):
    net, x = Net(), torch.ones(4, 3)
    batch, = torch.export.dims("batch", min=2)
    program = torch.export.export(net, (x,), dynamic_shapes={"x": {0: batch}})
    assert isinstance(program, torch.export.ExportedProgram)
    assert program.range_constraints == {"batch": (2, 2**31 - 1)}
    torch.export.save(program, tmp_path / "net.pt2", extra_files={"note": "kept"})
    extra = {"note": ""}
    loaded = torch.export.load(tmp_path / "net.pt2", extra_files=extra)
    assert extra == {"note": "kept"}
    assert torch.equal(loaded.module()(torch.ones(2, 3))["y"], net(torch.ones(2, 3))["y"])
    assert torch.equal(loaded.state_dict["weight"], net.weight.detach())


def test_what_is_no_module():
    with pytest.raises(ValueError, match=r"Expected `mod` to be an instance of `torch\.nn\.Module`"):
        torch.export.export(lambda x: x, (torch.ones(2),))
    with pytest.raises(AttributeError, match=r"torch\.export\.draft_export"):
        torch.export.draft_export  # noqa: B018
    assert nn.Module


def test_sizes_that_a_tensor_holds_are_not_exported() -> None:
    def packs(x, lengths):
        return torch.nn.utils.rnn.pack_padded_sequence(x, lengths).data * 2

    with pytest.raises(dg.ExportError, match=r"takes a size from what lengths holds \(the greatest of it\)"):
        dg.export(packs, (torch.ones(3, 2, 1), torch.tensor([3, 2])))
