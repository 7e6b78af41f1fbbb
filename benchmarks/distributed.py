"""Training on several ranks of this machine, by MPI and over sockets: ``python benchmarks/distributed.py [--trace FOLDER]``.

Of each engine: an all-reduce by size, with alpha and beta; then steps of DistributedDataParallel beside the same steps without it
and beside the all-reduce of their gradients alone, eager and compiled, for batches that compute long and short; and what rings and
trees of more ranks would take.  Each rank computes in one thread.  Ways are measured in turn, and a ratio is the median of those of
the rounds, since other work on the machine makes all ways slower; CPU times are minima.  With `--trace` a step's buckets and
gradients are written for Chrome's ``about:tracing``.  Takes two to three minutes.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.nn.parallel import DistributedDataParallel

RANKS = (2, 4, 8, 16, 64, 256, 1024)
SIZES = tuple(4**k for k in range(3, 12))  # of float32: 256 bytes to 16 MiB
ROUNDS = (7, 200)  # at least, at most
Way = Callable[[], Any]


def rounds(ways: dict[str, Way], seconds: float) -> dict[str, list[float]]:
    """The seconds of each way in each round; of ranks, the slowest counts."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    begun = time.perf_counter()
    goes_on = True
    while goes_on:
        row = []
        for way in ways.values():
            dist.barrier()
            begin = time.perf_counter()
            way()
            row.append(time.perf_counter() - begin)
        done = len(next(iter(took.values()))) + 1
        more = done < ROUNDS[0] or (done < ROUNDS[1] and time.perf_counter() - begun < seconds)
        slowest = torch.tensor([*row, float(more)], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        *row, goes_on = slowest.tolist()
        for name, each in zip(ways, row):
            took[name].append(each)
    return took


def busy(ways: dict[str, Way]) -> dict[str, tuple[float, float]]:
    """The least CPU seconds of each way, which other work on the machine changes little: of the thread that computes, of all."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS[0] + 5):
        for name, way in ways.items():
            dist.barrier()
            thread, whole = time.thread_time(), time.process_time()
            way()
            took[name].append((time.thread_time() - thread, time.process_time() - whole))
    return {name: (min(t for t, _ in each), min(p for _, p in each)) for name, each in took.items()}


# -- the link -----------------------------------------------------------------------------------------------------------


def link(show: Callable[..., None], seconds: float) -> tuple[float, float]:
    """Alpha in seconds and beta in bytes a second, of a ring: ``2 (p - 1) alpha + 2 (p - 1) / p bytes / beta``."""
    p = dist.get_world_size()
    tensors = {size: torch.ones(size) for size in SIZES}
    took = rounds({str(n): lambda t=t: dist.all_reduce(t) for n, t in tensors.items()}, seconds)  # type: ignore[misc]
    middle = {size: statistics.median(took[str(size)]) for size in SIZES}
    show("  all-reduce of bytes: " + ", ".join(f"{4 * n}: {middle[n] * 1e6:.0f} us" for n in SIZES))
    alpha = middle[SIZES[0]] / (2 * (p - 1))
    large, small = SIZES[-1], SIZES[-3]
    beta = 2 * (p - 1) / p * 4 * (large - small) / max(middle[large] - middle[small], 1e-9)
    show(f"  alpha {alpha * 1e6:.1f} us, beta {beta / 1e9:.2f} GB/s")
    return alpha, beta


def ring(p: int, nbytes: float, buckets: int, alpha: float, beta: float) -> float:
    """Seconds of the all-reduces of buckets on a ring: the bandwidth's best, in 2 (p - 1) turns."""
    return buckets * 2 * (p - 1) * alpha + 2 * (p - 1) / p * nbytes / beta


def halving(p: int, nbytes: float, buckets: int, alpha: float, beta: float) -> float:
    """By recursive halving and doubling: the same bytes in 2 log2 p turns (Thakur, Rabenseifner and Gropp 2005)."""
    return buckets * 2 * math.log2(p) * alpha + 2 * (p - 1) / p * nbytes / beta


def step_of(compute: float, last: float, whole: float, backward: float = 2 / 3) -> float:
    """A step whose buckets leave in the course of backward: what that does not hide, at least the last bucket, comes on top."""
    return compute + max(last, whole - backward * compute)


# -- steps --------------------------------------------------------------------------------------------------------------


def model(width: int, layers: int) -> Any:
    torch.manual_seed(0)
    parts: list[Any] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


def step(module: Any, x: Any, compiles: bool) -> Way:
    """Forward, backward and SGD."""
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)

    def plain(x: Any) -> None:
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()

    called = dg.compile(plain, mode="max") if compiles else plain
    return lambda: called(x)


def all_reduces(ddp: Any) -> Way:
    """The all-reduces of a step alone."""

    def run() -> None:
        works: list[Any] = [dist.all_reduce(bucket.flat, async_op=True) for bucket in ddp.reducer.buckets]
        for work in works:
            work.wait()

    return run


class Timed:
    """An engine's request, and when it was seen to have ended."""

    def __init__(self, request: Any, ended: Callable[[], None]):
        self.request, self.ended = request, ended

    def Test(self) -> bool:
        done = bool(self.request.Test())
        if done and self.ended is not None:
            self.ended()
            self.ended = None  # type: ignore[assignment]
        return done

    @property
    def handle(self) -> Any:
        return self.request.handle


def timeline(ddp: Any, run: Way) -> list[dict[str, Any]]:
    """What happens in a step on this rank, for Chrome: the step, gradients as they come, buckets from leaving to arriving."""
    engine: Any = dist.distributed_c10d._get_default_group()._engine
    events: list[dict[str, Any]] = []
    rank = dist.get_rank()
    original, count = engine.all_reduce, 0

    def event(name: str, row: int, begin: float, end: float, **about: Any) -> None:
        events.append({
            "name": name, "ph": "X", "pid": rank, "tid": row, "ts": begin * 1e6, "dur": (end - begin) * 1e6, "args": about,
        })  # fmt: skip

    def timed(buffer: Any, op: str, divisor: int = 1) -> Timed:
        nonlocal count
        number, begin = count, time.perf_counter()
        count += 1
        request = original(buffer, op, divisor)
        return Timed(request, lambda: event(f"bucket {number}", 1, begin, time.perf_counter(), bytes=buffer.nbytes))

    came = [0.0]

    def arrived(name: str) -> Callable[[Any], None]:
        def hook(_: Any) -> None:
            event(f"backward to {name}", 0, came[0], time.perf_counter())
            came[0] = time.perf_counter()

        return hook

    handles = [p.register_post_accumulate_grad_hook(arrived(name)) for name, p in ddp.module.named_parameters()]
    engine.all_reduce = timed
    try:
        for _ in range(2):  # the first one makes a program of the step as it is now
            dist.barrier()
            events.clear()
            count, came[0] = 0, time.perf_counter()
            begin = came[0]
            run()
            event("step", 2, begin, time.perf_counter())
    finally:
        del engine.all_reduce
        for handle in handles:
            handle.remove()
    return events


def overlap(events: list[dict[str, Any]]) -> float:
    """The part of the time in which a bucket is under way that lies before the last gradient."""
    last = max(e["ts"] + e["dur"] for e in events if e["tid"] == 0)
    buckets = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == 1]
    whole = sum(end - begin for begin, end in buckets)
    return sum(max(0.0, min(end, last) - begin) for begin, end in buckets) / whole if whole else 0.0


def measure(options: Any) -> None:
    """What a rank does."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    show = functools.partial(print, flush=True) if rank == 0 else lambda *_: None
    show(f"{options.engine}, {ranks} ranks")
    alpha, beta = link(show, options.seconds)
    for batch in options.batch:
        for compiles in (False, True):
            x = torch.randn(batch, options.width)
            plain, wrapped = model(options.width, options.layers), model(options.width, options.layers)
            ddp = DistributedDataParallel(wrapped, gradient_as_bucket_view=True, bucket_cap_mb=options.bucket_mb)
            ways = {"compute": step(plain, x, compiles), "DDP": step(ddp, x, compiles)}
            for _ in range(3):
                for way in ways.values():
                    way()
            ways["all-reduce"] = all_reduces(ddp)
            took = rounds(ways, options.seconds)
            middle = {name: statistics.median(each) for name, each in took.items()}
            ratios = [d / max(c, a) for c, d, a in zip(took["compute"], took["DDP"], took["all-reduce"])]
            sums = [d / (c + a) for c, d, a in zip(took["compute"], took["DDP"], took["all-reduce"])]
            buckets = [bucket.flat.numel() * 4 for bucket in ddp.reducer.buckets]
            show(
                f"  batch {batch}, {'compiled' if compiles else 'eager'}: "
                + ", ".join(f"{name} {took * 1e3:.2f} ms" for name, took in middle.items())
                + f"; DDP / the slower of both {statistics.median(ratios):.2f}, / their sum {statistics.median(sums):.2f}"
                + f" ({len(buckets)} buckets, {sum(buckets) / 1e6:.1f} MB, {len(ratios)} rounds)"
            )
            cpu = busy({name: ways[name] for name in ("compute", "DDP")})
            thread, whole = (f"{cpu['DDP'][k] / cpu['compute'][k]:.2f}" for k in (0, 1))
            show(f"    CPU time of a step with DDP / without: {thread} (the thread that computes), {whole} (the process)")
            if not compiles:
                every: list[Any] = [None] * ranks
                dist.all_gather_object(every, timeline(ddp, ways["DDP"]))
                shown = ", ".join(f"{overlap(events):.0%}" for events in every)
                show(f"    of the time in which buckets are under way, before the last gradient: {shown} (by rank)")
                if rank == 0 and options.trace:
                    Path(options.trace).mkdir(parents=True, exist_ok=True)
                    file = Path(options.trace) / f"ddp-{options.engine}-{batch}.json"
                    file.write_text(json.dumps({"traceEvents": [event for events in every for event in events]}))
                    show(f"    trace: {file}")
            else:
                show("    more ranks, as a model: ring; halving and doubling; the step with the better one; its efficiency")
                for p in RANKS:
                    ways_of = [way(p, sum(buckets), len(buckets), alpha, beta) for way in (ring, halving)]
                    last = min(way(p, buckets[-1], 1, alpha, beta) for way in (ring, halving))
                    whole = step_of(middle["compute"], last, min(ways_of))
                    show(
                        f"    {p:5}: {ways_of[0] * 1e3:8.2f} ms {ways_of[1] * 1e3:8.2f} ms {whole * 1e3:8.2f} ms "
                        f"{middle['compute'] / whole:5.2f}"
                    )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["mpi", "sockets"], help="only this one")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 32], help="of each rank")
    parser.add_argument("--bucket-mb", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=8, help="for the rounds of one measurement")
    parser.add_argument("--trace", metavar="FOLDER", help="where traces are written")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        measure(options)
        return
    root = Path(__file__).parents[1]
    given = [arg for arg in sys.argv[1:] if arg not in ("--engine", "mpi", "sockets")]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "DYNAGRAPH_THREADS": "1", "OMP_NUM_THREADS": "1"}
    launchers = {
        "mpi": [str(Path(sys.executable).with_name("mpiexec")), "-n", str(options.ranks), sys.executable],
        "sockets": [sys.executable, "-m", "dynagraph.torch.run", "--mpiexec", "none", "--nproc-per-node", str(options.ranks)],
    }
    for engine in [options.engine] if options.engine else launchers:
        subprocess.run([*launchers[engine], __file__, "--as-rank", "--engine", engine, *given], env=environment, check=True)


if __name__ == "__main__":
    main()
