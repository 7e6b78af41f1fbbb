"""Train one classifier of digits by several processes at once, without locks (Hogwild).

    python examples/hogwild.py [--processes 4] [--epochs 30] [--eager] [--device cuda] [--checkpoint hogwild.pt] [--start spawn]

The model is moved into shared memory. Each process computes gradients by its own part of the batches and writes its steps of SGD
into the weights that all of them have. They overwrite one another's now and then, which does little harm: steps are small. One
process then takes the same number of steps alone. The data are scikit-learn's 1797 real 8x8 images. A checkpoint has the weights
and how many epochs they have had; the momentum of each process begins anew.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes share the cores already

import common
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

import dynagraph as dg
import dynagraph.torch.multiprocessing as mp
from dynagraph import torch
from dynagraph.torch import nn
from dynagraph.torch.utils.data import DataLoader, Subset, TensorDataset

RATE, MOMENTUM, BATCH = 0.05, 0.5, 32


def load(seed: int = 0) -> tuple[Any, Any]:
    """A training and a test dataset of images and labels; every fifth image is a test image."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order].astype(np.int64)
    whole = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    test = np.arange(len(images)) % 5 == 0
    return Subset(whole, np.flatnonzero(~test).tolist()), Subset(whole, np.flatnonzero(test).tolist())


def make_model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))


def stepper(model: Any) -> Any:
    """A step of training: images and classes to the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(rank: int, processes: int, epochs: int, compiled: bool, model: Any, data: Any, done: Any, losses: Any) -> None:
    """What one process does: its share of each epoch's batches.

    model, done (steps of each process) and losses (by process and epoch) are in shared memory.
    """
    dg.config.threads = 1
    torch.manual_seed(rank)
    mine = Subset(data, range(rank, len(data), processes))
    loader = DataLoader(mine, batch_size=BATCH, shuffle=True, drop_last=True)
    device = next(model.parameters()).device
    step = stepper(model)
    step = dg.compile(step, mode="max") if compiled else step  # at any price: it is what the example shows
    for epoch in range(epochs):
        total = 0.0
        for x, target in loader:
            total += step(x.to(device), target.to(device)).item()
            done[rank] += 1
        losses[rank, epoch] = total / len(loader)


def accuracy(model: Any, data: Any) -> float:
    device = next(model.parameters()).device
    images, labels = (t.to(device) for t in next(iter(DataLoader(data, batch_size=len(data)))))
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def run(
    processes: int, epochs: int, compiled: bool, start: str, progress: Progress | None = None,
    device: str = "cpu", weights: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Train by so many processes; the model, its accuracy on test images, seconds and losses.  weights: those to begin with."""
    data, test = load()
    model = make_model().to(device)
    if weights is not None:
        model.load_state_dict(weights)
    model.share_memory()
    done = torch.zeros(processes, dtype=torch.int64).share_memory_()
    losses = torch.full((processes, epochs), float("nan")).share_memory_()
    total = processes * epochs * (len(data) // processes // BATCH)
    task = None if progress is None else progress.add_task(f"{processes} process" + "es" * (processes > 1), total=total)
    begun = first = time.perf_counter()
    started: Any = mp.start_processes(
        train, (processes, epochs, compiled, model, data, done, losses), nprocs=processes, join=False, start_method=start
    )
    while not started.join(timeout=0.05):
        steps = int(done.sum())
        first = first if steps >= processes else time.perf_counter()  # until every process is at work, or nearly
        if progress is not None:
            progress.update(task, completed=steps)
    end = time.perf_counter()
    if progress is not None:
        progress.update(task, completed=total)
    return {
        "model": model, "accuracy": accuracy(model, test), "seconds": end - begun, "working": end - first, "steps": int(done.sum()),
        "losses": losses.numpy().mean(axis=0),
    }  # fmt: skip


def draw(plt: Any, runs: dict[str, dict[str, Any]]) -> Any:
    """The mean losses by epoch."""
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, found in runs.items():
        axis.plot(1 + np.arange(len(found["losses"])), found["losses"], label=f"{name}: {found['accuracy']:.1%} right")
    axis.set(xlabel="epoch", ylabel="mean loss of the processes", yscale="log")
    axis.legend(title="the same number of epochs")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    made = common.parser(__doc__, "hogwild", turns=30, quick=4, unit="epochs")
    made.add_argument("--processes", type=int, default=4)
    made.add_argument("--start", choices=["spawn", "fork", "forkserver"], default="spawn")
    options = common.parsed(made, arguments)

    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} steps"))
    runs: dict[str, dict[str, Any]] = {}
    saved: dict[str, Any] = {}
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint)
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        for processes in (options.processes, 1):
            name = f"{processes} process" + "es" * (processes > 1)
            before = saved.get(name, {"weights": None, "losses": []})
            left = max(0, options.turns - len(before["losses"]))
            found = run(processes, left, not options.eager, options.start, progress, options.device, before["weights"])
            found["losses"] = [*before["losses"], *map(float, found["losses"])]
            runs[name] = found
            saved[name] = {"weights": found["model"].state_dict(), "losses": found["losses"]}
            if options.checkpoint:
                torch.save(saved, options.checkpoint)
    for name, found in runs.items():
        print(f"{name:12} {found['seconds']:6.2f} s, of these {found['working']:5.2f} s at work: "
              f"{found['steps'] / found['working']:7.0f} steps/s   loss {found['losses'][-1]:.4f}   "
              f"{found['accuracy']:.1%} of test images right")  # fmt: skip
    many, one = next(iter(runs.values())), runs["1 process"]
    gained = (many["steps"] / many["working"]) / (one["steps"] / one["working"]) if one["steps"] else 1.0
    print(f"{options.processes} processes take {gained:.1f}x as many steps a second as one, on {os.cpu_count()} cores")
    common.picture(options, lambda plt: draw(plt, runs))
    step = stepper(one["model"])
    fast = step if options.eager else dg.compile(step, mode="max")
    x, target = (t.to(options.device) for t in next(iter(DataLoader(load()[0], batch_size=BATCH))))
    with dg.config.override(threads=1):  # as each process has
        ratio = common.compare(options, step, fast, x, target)
    return argparse.Namespace(losses=many["losses"], accuracy=many["accuracy"], step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
