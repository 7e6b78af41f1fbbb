"""Training on several ranks of this machine: ``mpiexec -n 2 python benchmarks/distributed.py [--width 1024 --batch 256]``.

Measures alpha and beta of an all-reduce, then a step of DistributedDataParallel beside the same step without it and beside the
all-reduce of its gradients alone; shows when buckets left and arrived within a step, and what a ring of more ranks would take.
Ways are measured in turn and the least time of each counts, since other work on the machine makes all of them slower.  Ranks share
the cores: set DYNAGRAPH_THREADS to the cores of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.nn.parallel import DistributedDataParallel

RANKS = (2, 4, 8, 16, 64, 256, 1024)


def least(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least seconds of each way over all repeats; of ranks, the slowest counts."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            dist.barrier()
            begin = time.perf_counter()
            way()
            took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
            dist.all_reduce(took, dist.ReduceOp.MAX)
            best[name] = min(best[name], took.item())
    return best


def link(repeats: int) -> tuple[float, float]:
    """Alpha in seconds and beta in bytes a second, of the formula of a ring: 2 (n - 1) alpha + 2 (n - 1) / n bytes / beta."""
    n = dist.get_world_size()
    sizes = (2, 1 << 22)
    tensors = {str(size): torch.ones(size) for size in sizes}
    took = least({name: lambda t=t: dist.all_reduce(t) for name, t in tensors.items()}, 10 * repeats)  # type: ignore[misc]
    alpha = took[str(sizes[0])] / (2 * (n - 1))
    beta = 2 * (n - 1) / n * sizes[1] * 4 / (took[str(sizes[1])] - took[str(sizes[0])])
    return alpha, beta


def ring(n: int, bytes_: float, buckets: int, alpha: float, beta: float) -> float:
    """Seconds of the all-reduces of a step among n ranks."""
    return buckets * 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes_ / beta


def model(width: int, layers: int) -> Any:
    torch.manual_seed(0)
    parts: list[Any] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


def timeline(ddp: Any, step: Callable[[], Any]) -> list[tuple[int, int, float, float]]:
    """For each bucket of a step its number, its bytes, and when it left and was seen to have arrived, from the step's begin on."""
    events: list[tuple[int, int, float, float]] = []
    begin = 0.0

    def noted(group: Any, bucket: Any) -> Any:
        index, tensor, sent = bucket.index(), bucket.buffer(), time.perf_counter()
        work: Any = dist.all_reduce(tensor.div_(dist.get_world_size()), group=group, async_op=True)

        def arrived(done: Any) -> Any:
            events.append((index, tensor.numel() * tensor.element_size(), sent - begin, time.perf_counter() - begin))
            return done.value()[0]

        return work.get_future().then(arrived)

    ddp.register_comm_hook(None, noted)
    step()
    events.clear()
    dist.barrier()
    begin = time.perf_counter()
    step()
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    show = print if rank == 0 else lambda *_: None
    alpha, beta = link(options.repeats)
    show(f"{ranks} ranks: alpha {alpha * 1e6:.1f} us, beta {beta / 1e9:.2f} GB/s")

    plain, wrapped = model(options.width, options.layers), model(options.width, options.layers)
    ddp = DistributedDataParallel(wrapped, gradient_as_bucket_view=True, bucket_cap_mb=4)
    x = torch.randn(options.batch, options.width)

    def backward(module: Any) -> Callable[[], None]:
        def step() -> None:
            module(x).square().mean().backward()

        return step

    backward(plain)(), backward(ddp)()
    flats = [torch.zeros(bucket.flat.numel()) for bucket in ddp.reducer.buckets]

    def reduce_alone() -> None:
        works: list[Any] = [dist.all_reduce(flat, async_op=True) for flat in flats]
        for work in works:
            work.wait()

    ways = {"compute": backward(plain), "all-reduce": reduce_alone, "DDP": backward(ddp)}
    best = least(ways, options.repeats)
    bytes_ = sum(flat.numel() * 4 for flat in flats)
    show(f"forward and backward of {bytes_ / 1e6:.1f} MB of parameters, batch {options.batch} on each rank, {len(flats)} buckets")
    for name, took in best.items():
        show(f"  {name:12} {took * 1e3:8.2f} ms")
    slower, both = max(best["compute"], best["all-reduce"]), best["compute"] + best["all-reduce"]
    show(f"  DDP / the slower of both {best['DDP'] / slower:.2f}, / their sum {best['DDP'] / both:.2f}")
    show("one step: buckets, when they left and arrived")
    for index, size, sent, arrived in timeline(ddp, backward(ddp)):
        show(f"  bucket {index} {size / 1e6:6.1f} MB  left {sent * 1e3:8.2f} ms  arrived {arrived * 1e3:8.2f} ms")
    show("a ring of more ranks, with this alpha and beta; hidden: if all but the last bucket's all-reduce is behind backward")
    for n in RANKS:
        took = ring(n, bytes_, len(flats), alpha, beta)
        last = ring(n, flats[-1].numel() * 4, 1, alpha, beta)
        step = max(best["compute"], took) + last
        show(
            f"  {n:5} ranks: all-reduce {took * 1e3:8.2f} ms, step {step * 1e3:8.2f} ms hidden, "
            f"{(best['compute'] + took) * 1e3:8.2f} not; efficiency {best['compute'] / step:.2f}, "
            f"{best['compute'] / (best['compute'] + took):.2f}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
