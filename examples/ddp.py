"""Train one network by several processes, each with its own part of the data: their gradients are averaged.

    mpiexec -n 2 python -m dynagraph.torch examples/ddp.py [--epochs 20] [--eager] [--device cuda] [--checkpoint ddp.pt]

`DistributedDataParallel` adds up gradients over the processes while backward() is still under way, so that all of them take the
same step: that of one process with a batch as large as all of theirs.  The processes may be on several machines.  One process
alone runs as well.  Under PyTorch it is `torchrun --nproc-per-node 2 examples/ddp.py`.
"""

from __future__ import annotations

import argparse

import common
import torch
import torch.distributed as dist
import torch.nn.functional as F
from digits_cnn import Network, load
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

BATCH = 64  # of all processes together


def draw(plt, losses: list[float]):
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.plot(range(1, len(losses) + 1), losses)
    axis.set(xlabel="epoch", ylabel="mean loss of all processes", yscale="log")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "ddp", turns=20, quick=3, unit="epochs"), arguments)
    dist.init_process_group("nccl" if options.device.startswith("cuda") else "gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    options.silent = rank > 0
    if options.device == "cuda":
        options.device = f"cuda:{rank % torch.cuda.device_count()}"

    torch.manual_seed(0)
    train, test = load(options.device)
    model = DistributedDataParallel(Network().to(options.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    torch.manual_seed(rank)  # each process drops others
    sampler = DistributedSampler(train, drop_last=True)
    loader = DataLoader(train, batch_size=BATCH // processes, sampler=sampler, drop_last=True)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer)
    for epoch in run.turns():
        sampler.set_epoch(epoch)
        loss = sum(fast(x, y) for x, y in loader) / len(loader)
        dist.all_reduce(loss)
        run.log(loss / processes)

    model.eval()
    images, labels = test.tensors
    with torch.no_grad():  # each process tests its own part
        right = (model.module(images[rank::processes]).argmax(1) == labels[rank::processes]).sum()
    dist.all_reduce(right)
    accuracy = right.item() / len(test)
    if rank == 0:
        print(f"{processes} process{'es' * (processes > 1)}, {options.turns} epochs in {sum(run.times):.1f} s: loss "
              f"{run.losses[-1]:.4f}, {accuracy:.1%} of {len(test)} test images right")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses))
    model.train()
    ratio = common.compare(options, step, fast, *next(iter(loader)))  # all processes take these steps
    dist.destroy_process_group()
    return argparse.Namespace(losses=run.losses, accuracy=accuracy, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
