"""A rank that has a stage: trains, and writes its parameters and losses.  Arguments: a directory, the schedule's name."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


def parts() -> list[torch.nn.Module]:
    """The model's."""
    torch.manual_seed(3)
    return [
        torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh()),
        torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)),
    ]


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(24.0).reshape(8, 3).sin()
    return x, x[:, :2].cos()


def train(folder: str, name: str) -> None:
    dist.init_process_group()
    rank = dist.get_rank()
    stage = PipelineStage(parts()[rank], rank, 2, device="cpu")
    schedule = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[name](stage, 4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.5, momentum=0.9)
    x, target = batch()
    losses: list[torch.Tensor] = []
    for _ in range(3):
        optimizer.zero_grad()
        output = schedule.step(x) if rank == 0 else schedule.step(target=target, losses=losses)
        optimizer.step()
    torch.save([list(stage.submod.parameters()), losses, output, stage.most_kept], os.path.join(folder, f"{rank}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    train(*sys.argv[1:])
