"""A training script as people write them for torchrun; it goes on from its checkpoint.  Arguments: a directory, failures."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

STEPS = 6


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(6.0).reshape(3, 2) / 7 + step - rank
    return x, x.sum(dim=1, keepdim=True).cos()


@record
def main() -> None:
    folder, *failures = sys.argv[1:]
    dist.init_process_group()
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    assert rank == int(os.environ["RANK"])
    with open("/proc/self/maps") as maps:
        segments = {line.split()[-1] for line in maps if "/dev/shm/mpich" in line}
    with open(os.path.join(folder, f"segments.{rank}"), "w") as file:
        file.write("\n".join(segments))
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(0.25)
        model.bias.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    path, first = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(path):
        saved = torch.load(path)
        first = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(first, STEPS):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if rank == 1 and step == 2 * attempt + 1 and attempt < len(failures):
            fail(failures[attempt])
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if rank == 0:
            torch.save({"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
            os.rename(path + ".new", path)
        dist.barrier()
    if rank == 0:
        torch.save([first, *model.parameters()], os.path.join(folder, "result.pt"))
    dist.destroy_process_group()


def fail(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raise":
        raise ArithmeticError("the loss is no number")
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1)


if __name__ == "__main__":
    main()
