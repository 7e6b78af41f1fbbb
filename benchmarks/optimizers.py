"""Steps of optimizers, eager and compiled, against PyTorch's (default, foreach, fused) in the same process.

    python benchmarks/optimizers.py [--params 60] [--size 100] [--rounds 15] [--optimizer Adam] [--threads 2] [--json out.json]

All in turn; figures are the least and the median of rounds, in microseconds; `first` is what the first compiled step took, in
seconds of this process.  PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph.driver.background import WORK


def optimizer_of(torch: Any, name: str, n: int, size: int, **options: Any) -> Any:
    """An optimizer of n square parameters with gradients."""
    rng = np.random.default_rng(0)
    params = [torch.tensor(rng.normal(size=(size, size)).astype(np.float32), requires_grad=True) for _ in range(n)]
    for param in params:
        param.grad = torch.tensor(rng.normal(size=(size, size)).astype(np.float32))
    return getattr(torch.optim, name)(params, **options)


def contenders(name: str, n: int, size: int, threads: int) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    import torch

    import dynagraph as dg
    import dynagraph.torch as own

    torch.set_num_threads(threads)
    dg.config.threads = threads
    eager, captured = optimizer_of(own, name, n, size), optimizer_of(own, name, n, size)
    compiled = dg.compile(lambda: captured.step(), mode="max")
    start = time.process_time()
    compiled()
    first = time.process_time() - start
    found = {"dynagraph.torch": eager.step, "dynagraph.torch, compiled": compiled, "torch": optimizer_of(torch, name, n, size).step}
    for option in ("foreach", "fused"):
        try:
            found[f"torch, {option}"] = optimizer_of(torch, name, n, size, **{option: True}).step
        except TypeError:  # it has no such option
            continue
    eager.step()
    WORK.wait()  # until the kernel is there
    return found, {"first": first}


def measure(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """The least and the median time of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            for _ in range(3):
                start = time.perf_counter()
                step()
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: (min(taken), statistics.median(taken)) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--params", type=int, default=60)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--optimizer", default="Adam")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    steps, about = contenders(options.optimizer, options.params, options.size, options.threads)
    measure(steps, 3)
    found = measure(steps, options.rounds)
    print(f"{options.optimizer}, {options.params} parameters of {options.size}x{options.size}")
    print(f"first compiled step: {about['first']:.2f} s")
    for name, (least, median) in found.items():
        print(f"{name:28} {least:10.0f} {median:10.0f}")
    if options.json:
        options.json.write_text(json.dumps({"about": about, "microseconds": found}, indent=1))


if __name__ == "__main__":
    main()
