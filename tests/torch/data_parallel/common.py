"""What the programs share that run on several ranks: models, data, and one process that has it all."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph import torch
from dynagraph.torch import distributed as dist
from dynagraph.torch import nn
from dynagraph.torch.distributed.groups import abort

STEPS, BATCH = 20, 8


def model(norm: bool = False) -> Any:
    """Three layers, the same on all ranks; with `norm` batch norms."""
    torch.manual_seed(0)
    layers: list[Any] = [nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)]
    if norm:
        layers = [layers[0], nn.BatchNorm1d(16), *layers[1:]]
    return nn.Sequential(*layers).double()


def data(steps: int = STEPS, batch: int = BATCH) -> list[tuple[Any, Any]]:
    """Batches of all ranks together."""
    torch.manual_seed(1)
    return [(torch.randn(batch, 6).double(), torch.randn(batch, 3).double()) for _ in range(steps)]


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=1e-2)


def loss_of(module: Any, x: Any, y: Any) -> Any:
    return nn.functional.mse_loss(module(x), y)


def train(module: Any, optimizer: Any, batches: Iterable[tuple[Any, Any]], loss: Callable[..., Any] = loss_of) -> None:
    """Steps over batches."""
    for x, y in batches:
        optimizer.zero_grad()
        loss(module, x, y).backward()
        optimizer.step()


def mine(batches: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """This rank's part of each batch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return [(x[rank::ranks], y[rank::ranks]) for x, y in batches]


def alone(norm: bool = False) -> Any:
    """The model after training in one process, with whole batches."""
    module = model(norm)
    train(module, adam(module.parameters()), data())
    return module


def distance(a: Any, b: Any) -> float:
    """The largest difference of two models' parameters and buffers; dicts and modules."""
    ours, theirs = (m if isinstance(m, dict) else m.state_dict() for m in (a, b))
    assert list(ours) == list(theirs), (list(ours), list(theirs))
    return max(float((x.double() - theirs[name].double()).abs().max()) for name, x in ours.items())


def raises(error: type[BaseException], text: str, function: Callable[[], Any]) -> None:
    """Assert that a call raises an error whose text has another one in it."""
    try:
        function()
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError(f"no {error.__name__}")


def run(checks: Iterable[Callable[[], None]]) -> None:
    """Call the checks that the command line names, all by default; the first that fails ends all ranks."""
    dist.init_process_group("gloo")
    chosen = sys.argv[1:]
    for check in checks:
        if chosen and check.__name__ not in chosen:
            continue
        try:
            check()
        except Exception:
            sys.stderr.write(f"rank {dist.get_rank()}: {check.__name__}\n{traceback.format_exc()}")
            sys.stderr.flush()
            abort(1)
        dist.barrier()
        if dist.get_rank() == 0:
            print(f"ok {check.__name__}", flush=True)
    dist.destroy_process_group()
