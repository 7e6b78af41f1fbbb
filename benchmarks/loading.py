"""The DataLoader with worker processes, beside PyTorch's.

    python benchmarks/loading.py [--workers 2] [--batches 400] [--rounds 7] [--json out.json]

Each run is a process of its own; both take turns.  Per batch, in microseconds, the least and the median of rounds, of elapsed time
and of processor time (of this process and its workers together, which other processes of the machine disturb less):

    ready      the dataset gives a whole batch at once: what is left is asking for it, sending it and receiving it
    samples    64 samples of 3x32x32 are fetched one by one, and collated
    consumer   a consumer computes for 2 ms with each batch of `samples`; 2,000 is all that it waits for nothing

PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH, SHAPE, CONSUMED = 64, (3, 32, 32), 0.002
OWN, PYTORCH = "dynagraph.torch", "torch"


class Samples:
    """Images and labels, one by one."""

    def __init__(self, torch: Any, n: int):
        self.images = torch.ones(n * BATCH, *SHAPE)  # not zeros, whose pages might be of no memory yet
        self.labels = torch.arange(n * BATCH)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, k: int) -> Any:
        return self.images[k], self.labels[k]


class Ready:
    """The same as batches."""

    def __init__(self, torch: Any, n: int):
        self.n, self.torch = n, torch
        self.images = np.ones((BATCH, *SHAPE), np.float32)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, k: int) -> Any:
        return self.torch.from_numpy(self.images.copy()), self.torch.arange(BATCH)


def compute(seconds: float) -> None:
    """Be busy."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def processor_time() -> float:
    """Seconds of this process and its workers, all threads."""
    spent = 0
    for pid in [os.getpid(), *(child.pid for child in multiprocessing.active_children())]:
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def measured(library: str, workers: int, batches: int) -> dict[str, tuple[float, float]]:
    """Seconds a batch of each case, elapsed and of processors; the first batches, which wait for the workers, are not counted."""
    if library == OWN:
        from dynagraph import torch
        from dynagraph.torch.utils.data import DataLoader
    else:
        import torch
        from torch.utils.data import DataLoader
    cases: dict[str, tuple[Any, dict[str, Any], float]] = {
        "ready": (Ready(torch, batches), {"batch_size": None}, 0.0),
        "samples": (Samples(torch, batches), {"batch_size": BATCH}, 0.0),
        "consumer": (Samples(torch, batches), {"batch_size": BATCH}, CONSUMED),
    }
    found = {}
    for name, (dataset, options, consumed) in cases.items():
        loader = DataLoader(dataset, num_workers=workers, persistent_workers=True, **options)
        for _ in loader:  # workers have started, and done everything once
            pass
        counted, start, spent = 0, 0.0, 0.0
        for k, _ in enumerate(loader):
            if k == 8:
                start, spent = time.perf_counter(), processor_time()
            compute(consumed)
            counted = k - 7
        found[name] = (time.perf_counter() - start) / counted, (processor_time() - spent) / counted
        del loader
    return found


def child(library: str, workers: int, batches: int) -> dict[str, tuple[float, float]]:
    """`measured` in a process of its own."""
    command = [sys.executable, __file__, "--one", library, "--workers", str(workers), "--batches", str(batches)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=[OWN, PYTORCH], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.workers, options.batches)))
        return
    rounds: dict[str, list[dict[str, tuple[float, float]]]] = {OWN: [], PYTORCH: []}
    for _ in range(options.rounds):
        for library, samples in rounds.items():
            samples.append(child(library, options.workers, options.batches))
    table: dict[str, Any] = {}
    print(f"us per batch, {options.workers} workers: least, median")
    for case in rounds[OWN][0]:
        for k, kind in enumerate(("elapsed", "processors")):
            times = {library: [1e6 * sample[case][k] for sample in samples] for library, samples in rounds.items()}
            own, theirs = ((min(each), statistics.median(each)) for each in times.values())
            ratios = own[0] / theirs[0], own[1] / theirs[1]
            table[f"{case}, {kind}"] = {OWN: own, PYTORCH: theirs, "ratios": ratios}
            print(f"{case:9} {kind:11} {OWN} {own[0]:8.0f} {own[1]:8.0f}   {PYTORCH} {theirs[0]:8.0f} {theirs[1]:8.0f}   "
                  f"{ratios[0]:.2f}x, {ratios[1]:.2f}x")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
