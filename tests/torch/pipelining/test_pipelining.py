"""torch.distributed.pipelining: the numbers of one device, the order of the schedules, what stages keep, several ranks."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest

from dynagraph import torch
from dynagraph.torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    SplitPoint,
    TensorChunkSpec,
    merge_chunks,
    pipeline,
    split_args_kwargs_into_chunks,
)
from dynagraph.torch.nn import functional as F
from dynagraph.torch.run.command import main

SCHEDULES = [ScheduleGPipe, Schedule1F1B]


class Two(torch.nn.Module):
    """Has two results, one of them integers, and takes an option."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, x: Any, factor: float = 1.0) -> Any:
        return self.linear(x) * factor, x.argmax(dim=1)


class Joining(torch.nn.Module):
    """Takes both."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(3, 4)

    def forward(self, y: Any, which: Any) -> Any:
        return (y + self.table(which)).tanh()


def model() -> list[torch.nn.Module]:
    torch.manual_seed(5)
    return [Two(), Joining(), torch.nn.Linear(4, 2)]


def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(3.0 * n).reshape(n, 3).sin()
    return x, x[:, :2].cos()


def on_one_device(parts: list[torch.nn.Module], x: Any, target: Any, n: int, **kwargs: Any) -> tuple[list[Any], list[Any]]:
    """Losses and outputs of the parts of a batch; gradients in the parameters, of the mean of the losses."""
    losses, outputs = [], []
    for part, wanted in zip(torch.tensor_split(x, n), torch.tensor_split(target, n)):
        output = parts[2](parts[1](*parts[0](part, **kwargs)))
        loss = F.mse_loss(output, wanted)
        loss.backward()
        losses.append(loss.detach())
        outputs.append(output.detach())
    for module in parts:
        for parameter in module.parameters():
            parameter.grad.div_(n)
    return losses, outputs


def stages_of(parts: list[torch.nn.Module]) -> list[PipelineStage]:
    return [PipelineStage(part, k, len(parts), device="cpu") for k, part in enumerate(parts)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("rows", "n"), [(8, 4), (7, 3)])
def test_a_step_has_the_numbers_of_one_device(schedule, rows, n):
    ours, plain = model(), model()
    x, target = batch(rows)
    losses: list[Any] = [torch.zeros(())]
    output = schedule(stages_of(ours), n, loss_fn=F.mse_loss).step(x, target=target, losses=losses, factor=2.0)
    expected_losses, expected = on_one_device(plain, x, target, n, factor=2.0)
    np.testing.assert_array_equal(output.numpy(), torch.cat(expected).numpy())
    np.testing.assert_array_equal(torch.stack(losses).numpy(), torch.stack(expected_losses).numpy())
    for a, b in zip(ours, plain):
        for p, q in zip(a.parameters(), b.parameters()):
            np.testing.assert_array_equal(p.grad.numpy(), q.grad.numpy())


def test_the_mean_over_equal_parts_is_that_of_the_batch():
    ours, plain = model(), model()
    x, target = batch(8)
    Schedule1F1B(stages_of(ours), 4, loss_fn=F.mse_loss).step(x, target=target)
    on_one_device(plain, x, target, 1)
    for a, b in zip(ours, plain):
        for p, q in zip(a.parameters(), b.parameters()):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=2e-5, atol=1e-7)


def orders(schedule: Any) -> list[str]:
    return [" ".join(f"{kind}{k}" for stage, kind, k in schedule.history if stage == index) for index in range(schedule.num_stages)]


def test_the_schedules_order_and_memory():
    x, target = batch(8)
    gpipe = ScheduleGPipe(stages_of(model()), 4, loss_fn=F.mse_loss)
    gpipe.step(x, target=target)
    assert orders(gpipe) == ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3
    assert [stage.most_kept for stage in gpipe.stages] == [4, 4, 4]
    one = Schedule1F1B(stages_of(model()), 4, loss_fn=F.mse_loss)
    one.step(x, target=target)
    assert orders(one) == ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
    assert [stage.most_kept for stage in one.stages] == [3, 2, 1]
    assert not any(stage.kept for stage in one.stages)
    # stages work side by side: the second micro-batch is in the first stage while the first one is in the second
    assert [tuple(action) for action in one.history[:3]] == [(0, "F", 0), (0, "F", 1), (1, "F", 0)]


def test_eval_computes_forward_only():
    parts = model()
    x, target = batch(4)
    losses: list[Any] = []
    output = Schedule1F1B(stages_of(parts), 4, loss_fn=F.mse_loss).eval(x, target=target, losses=losses)
    assert output.shape == (4, 2) and len(losses) == 4
    assert all(parameter.grad is None for part in parts for parameter in part.parameters())
    assert ScheduleGPipe(stages_of(parts), 2).step(x).shape == (4, 2)  # no loss, no backward


def test_sums_are_not_scaled():
    ours, plain = model(), model()
    x, target = batch(4)
    ScheduleGPipe(stages_of(ours), 2, loss_fn=F.mse_loss, scale_grads=False).step(x, target=target)
    on_one_device(plain, x, target, 2)
    np.testing.assert_array_equal(ours[2].bias.grad.numpy(), (plain[2].bias.grad * 2).numpy())


def test_pipeline_divides_a_sequential():
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    plain = copy.deepcopy(layers)
    pipe = pipeline(layers, mb_args=(torch.ones(2, 3),), split_spec={"0": SplitPoint.END, "3": SplitPoint.BEGINNING})
    assert pipe.num_stages == 3
    assert [list(dict(pipe.get_stage_module(k).named_parameters())) for k in range(3)] == [
        ["0.weight", "0.bias"], ["2.weight", "2.bias"], ["3.weight", "3.bias"],
    ]  # fmt: skip
    assert pipe.state_dict().keys() == plain.state_dict().keys()
    x, target = batch(6)
    np.testing.assert_array_equal(pipe(x).detach().numpy(), plain(x).detach().numpy())
    Schedule1F1B([pipe.build_stage(k, "cpu") for k in range(3)], 3, loss_fn=F.mse_loss).step(x, target=target)
    F.mse_loss(plain(x), target).backward()
    for p, q in zip(layers.parameters(), plain.parameters()):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_chunks():
    x, y = torch.arange(6).reshape(3, 2), torch.arange(4).reshape(2, 2)
    args, kwargs = split_args_kwargs_into_chunks((x, 7), {"y": y}, 2, kwargs_chunk_spec={"y": TensorChunkSpec(1)})
    assert [a[0].tolist() for a in args] == [[[0, 1], [2, 3]], [[4, 5]]] and [a[1] for a in args] == [7, 7]
    assert [k["y"].tolist() for k in kwargs] == [[[0], [2]], [[1], [3]]]
    assert merge_chunks([k["y"] for k in kwargs], TensorChunkSpec(1)).tolist() == y.tolist()
    whole, _ = split_args_kwargs_into_chunks((x,), None, 3, args_chunk_spec=(None,))
    assert all(part[0] is x for part in whole)


def test_errors():
    parts = model()
    with pytest.raises(ValueError, match=r"^Number of microbatches \(2\) must be greater than or equal to .* stages \(3\)\.$"):
        Schedule1F1B(stages_of(parts), 2)
    with pytest.raises(ValueError, match=r"^a list of stages has all of them, in their order$"):
        ScheduleGPipe(stages_of(parts)[:2], 2)
    with pytest.raises(ValueError, match=r"^Stage index 3 is out of range of 3$"):
        PipelineStage(parts[0], 3, 3, "cpu")
    with pytest.raises(ValueError, match=r"^the last stage needs a target for its loss$"):
        ScheduleGPipe(stages_of(parts), 2, loss_fn=F.mse_loss).step(batch(4)[0])
    with pytest.raises(RuntimeError, match=r"^a tensor of 2 rows cannot be divided into 3 micro-batches$"):
        ScheduleGPipe(stages_of(parts), 3).step(batch(2)[0])
    with pytest.raises(NotImplementedError, match=r"^pipeline\(\) divides nn\.Sequential by split_spec, not Two"):
        pipeline(parts[0], ())
    with pytest.raises(ValueError, match=r"^split_spec names what is no child of the model: 5$"):
        pipeline(torch.nn.Sequential(), (), split_spec={"5": SplitPoint.END})


@pytest.mark.parametrize("name", ["1f1b", pytest.param("gpipe", marks=pytest.mark.soak)])
def test_ranks_have_the_numbers_of_one_process(tmp_path, capfd, name):
    pytest.importorskip("mpi4py")
    script = re.sub("test_pipelining", "ranks", __file__)
    assert main(["--nproc-per-node", "2", script, str(tmp_path), name]) == 0, capfd.readouterr()
    torch.manual_seed(3)
    parts = [
        torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()),
        torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)),
    ]
    schedule = ScheduleGPipe(stages_of(parts), 4, loss_fn=F.mse_loss)
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.5, momentum=0.9)
    x, target = batch(8)
    losses: list[Any] = []
    for _ in range(3):
        optimizer.zero_grad()
        output = schedule.step(x, target=target, losses=losses)
        optimizer.step()
    for rank, part in enumerate(parts):
        parameters, found_losses, found, most_kept = torch.load(tmp_path / f"{rank}.pt")
        for p, q in zip(parameters, part.parameters()):
            np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
        assert most_kept == (2 - rank if name == "1f1b" else 4)
        if rank == 0:
            assert found is None and not found_losses
        else:
            np.testing.assert_array_equal(found.numpy(), output.numpy())
            assert [loss.item() for loss in found_losses] == [loss.item() for loss in losses]
