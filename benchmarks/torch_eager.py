"""dynagraph.torch run eagerly, against PyTorch in the same process: small operations, backward, import, large operations.

    OMP_WAIT_POLICY=passive python benchmarks/torch_eager.py [--threads 2] [--rounds 9] [--json out.json]

Both in turn; figures are medians of rounds.  PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def small(torch: Any) -> dict[str, Callable[[], Any]]:
    """Operations of 16 floats, and a deep chain."""
    a, b = torch.ones(16), torch.ones(16)
    w = torch.ones(16, requires_grad=True)

    def backward() -> None:
        w.grad = None
        (w * b).tanh().sum().backward()

    def deep() -> None:
        x = torch.ones(1, requires_grad=True)
        y = x
        for _ in range(100_000):
            y = y + x
        y.backward()

    return {
        "a + b, 16 floats": lambda: a + b,
        "a + b, with requires_grad": lambda: w + b,
        "(w*b).tanh().sum().backward()": backward,
        "100 000 adds, backward": deep,
    }


def large(torch: Any, n: int) -> dict[str, Callable[[], Any]]:
    """Elementwise operations and reductions of n floats."""
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(size=n).astype(np.float32)) for _ in range(2))
    m = x.reshape(-1, 1000)
    return {
        "x + y": lambda: x + y,
        "x * 2": lambda: x * 2.0,
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "relu": lambda: torch.relu(x),
        "x.sum()": lambda: x.sum(),
        "x.mean()": lambda: x.mean(),
        "rows: sum": lambda: m.sum(dim=1),
        "columns: sum": lambda: m.sum(dim=0),
        "rows: max": lambda: m.amax(dim=1),
        "softmax": lambda: torch.softmax(m, dim=1),
    }


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median seconds of a call of each, in turn."""
    samples: tuple[list[float], list[float]] = ([], [])
    counts = []
    for run in (ours, theirs):
        for _ in range(12):  # what is compiled for large arrays is compiled once plain calls have earned it
            run()
        start = time.perf_counter()
        run()
        counts.append(max(1, round(0.02 / (time.perf_counter() - start + 1e-9))))
    for _ in range(rounds):
        for run, count, found in zip((ours, theirs), counts, samples):
            start = time.perf_counter()
            for _ in range(count):
                run()
            found.append((time.perf_counter() - start) / count)
    return statistics.median(samples[0]), statistics.median(samples[1])


def import_seconds(module: str) -> float:
    """Of a module in a new process that has imported NumPy, with bytecode: the best of five."""
    script = f"import numpy, time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout for _ in range(5)]
    return min(map(float, runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    found: dict[str, Any] = {"import": {name: import_seconds(name) for name in ("dynagraph.torch", "torch")}}
    print("import beyond NumPy:", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in found["import"].items()))

    import torch

    import dynagraph as dg
    import dynagraph.torch

    torch.set_num_threads(options.threads)
    dg.config.threads = options.threads
    own: Any = dynagraph.torch
    groups = {"small": (small(own), small(torch))}
    groups |= {f"{n:.0e}": (large(own, n), large(torch, n)) for n in (10**6, 10**7)}
    for group, (ours, theirs) in groups.items():
        for name, run in ours.items():
            mine, other = compare(run, theirs[name], options.rounds)
            found.setdefault(group, {})[name] = {"ours_s": mine, "torch_s": other}
            times = f"{1e6 * mine:12.2f} us  torch {1e6 * other:12.2f} us  {mine / other:6.2f} of torch's"
            print(f"{group:6} {name:32} {times}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
