"""Train one classifier of digits by several processes at once, without locks (Hogwild).

    python examples/hogwild.py [--processes 4] [--epochs 30] [--eager | --compile] [--start spawn] [--out hogwild.png]

The model is moved into shared memory. Each process computes gradients by its own part of the batches and writes its steps of SGD
into the weights that all of them have. They overwrite one another's now and then, which does little harm: steps are small. One
process then takes the same number of steps alone. The data are scikit-learn's 1797 real 8x8 images.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # processes share the cores already

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


def train(rank: int, processes: int, epochs: int, compiled: bool, model: Any, data: Any, done: Any, losses: Any) -> None:
    """What one process does: its share of each epoch's batches.

    model, done (steps of each process) and losses (by process and epoch) are in shared memory.
    """
    dg.config.threads = 1
    torch.manual_seed(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    mine = Subset(data, range(rank, len(data), processes))
    loader = DataLoader(mine, batch_size=BATCH, shuffle=True, drop_last=True)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = dg.compile(step, mode="max") if compiled else step  # at any price: it is what the example shows
    for epoch in range(epochs):
        total = 0.0
        for x, target in loader:
            total += step(x, target).item()
            done[rank] += 1
        losses[rank, epoch] = total / len(loader)


def accuracy(model: Any, data: Any) -> float:
    images, labels = next(iter(DataLoader(data, batch_size=len(data))))
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def run(processes: int, epochs: int, compiled: bool, start: str, progress: Progress | None = None) -> dict[str, Any]:
    """Train by so many processes; the model, its accuracy on test images, seconds and losses."""
    data, test = load()
    model = make_model()
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


def draw(path: str, runs: dict[str, dict[str, Any]]) -> None:
    """The mean losses by epoch."""
    import matplotlib  # an optional dependency: only the picture needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, found in runs.items():
        axis.plot(1 + np.arange(len(found["losses"])), found["losses"], label=f"{name}: {found['accuracy']:.1%} right")
    axis.set(xlabel="epoch", ylabel="mean loss of the processes", yscale="log")
    axis.legend(title="the same number of epochs")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--compile", action="store_true", default=True, help="compile each process's step (the default)")
    way.add_argument("--eager", action="store_true", help="run the steps as they are")
    parser.add_argument("--start", choices=["spawn", "fork", "forkserver"], default="spawn")
    parser.add_argument("--out", default="hogwild.png")
    options = parser.parse_args()

    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} steps"))
    runs: dict[str, dict[str, Any]] = {}
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        for processes in (options.processes, 1):
            name = f"{processes} process" + "es" * (processes > 1)
            runs[name] = run(processes, options.epochs, not options.eager, options.start, progress)
    for name, found in runs.items():
        print(f"{name:12} {found['seconds']:6.2f} s, of these {found['working']:5.2f} s at work: "
              f"{found['steps'] / found['working']:7.0f} steps/s   loss {found['losses'][-1]:.4f}   "
              f"{found['accuracy']:.1%} of test images right")
    many, one = runs.values()
    gained = (many["steps"] / many["working"]) / (one["steps"] / one["working"])
    print(f"{options.processes} processes take {gained:.1f}x as many steps a second as one, on {os.cpu_count()} cores")
    draw(options.out, runs)
    print(f"wrote {options.out}: the losses by epoch")


if __name__ == "__main__":
    main()
