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

from dynagraph.driver.background import WORK


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


def large(torch: Any, n: int, dtype: Any) -> dict[str, Callable[[], Any]]:
    """Operations on n numbers, as they are or as rows of 1000, and gradients of some."""
    rng = np.random.default_rng(0)
    x, y = (torch.from_numpy(rng.normal(size=n).astype(dtype)) for _ in range(2))
    rows, positive, mask, changed = x.reshape(-1, 1000), x.abs() + 0.1, x > 0, x.clone()
    row, column, functional = y[:1000].clone(), y[: n // 1000].clone().reshape(-1, 1), torch.nn.functional
    other = torch.float32 if x.dtype is torch.float64 else torch.float64
    halves = [t.to(torch.bfloat16) for t in (x, y)]

    def backward(function: Callable[[Any], Any]) -> Callable[[], None]:
        leaf = x.clone().requires_grad_()

        def run() -> None:
            leaf.grad = None
            function(leaf).sum().backward()

        return run

    return {
        "x + y": lambda: x + y, "x * 2": lambda: x * 2.0, "x - y": lambda: x - y, "x / y": lambda: x / y, "-x": lambda: -x,
        "abs": lambda: x.abs(), "x < y": lambda: x < y, "x > 0": lambda: x > 0, "where": lambda: torch.where(mask, x, y),
        "x + a row": lambda: rows + row, "x * a column": lambda: rows * column,
        "x.add_(y)": lambda: changed.add_(y), "x.mul_(number)": lambda: changed.mul_(0.999),
        "relu": lambda: torch.relu(x), "clamp": lambda: x.clamp(-1, 1), "gelu": lambda: functional.gelu(x),
        "gelu, by tanh": lambda: functional.gelu(x, approximate="tanh"), "silu": lambda: functional.silu(x),
        "exp": lambda: torch.exp(x), "log": lambda: torch.log(positive), "tanh": lambda: torch.tanh(x), "sin": lambda: torch.sin(x),
        "sigmoid": lambda: torch.sigmoid(x), "sqrt": lambda: torch.sqrt(positive), "rsqrt": lambda: torch.rsqrt(positive),
        "pow(2)": lambda: x.pow(2), "pow(2.5)": lambda: positive.pow(2.5),
        "x.sum()": lambda: x.sum(), "x.mean()": lambda: x.mean(), "x.max()": lambda: x.max(), "x.argmax()": lambda: x.argmax(),
        "x.std()": lambda: x.std(), "x.norm()": lambda: x.norm(), "x.cumsum(0)": lambda: x.cumsum(0),
        "rows: sum": lambda: rows.sum(dim=1), "columns: sum": lambda: rows.sum(dim=0), "rows: max": lambda: rows.amax(dim=1),
        "columns: max": lambda: rows.amax(dim=0), "rows: var": lambda: rows.var(dim=1), "rows: cumsum": lambda: rows.cumsum(1),
        "softmax": lambda: torch.softmax(rows, dim=1), "log_softmax": lambda: torch.log_softmax(rows, dim=1),
        "layer_norm": lambda: functional.layer_norm(rows, (1000,), row, row),
        "to the other float": lambda: x.to(other), "bfloat16: x + y": lambda: halves[0] + halves[1],
        "tanh, backward": backward(lambda v: v.tanh()), "relu, backward": backward(torch.relu),
        "x * y, backward": backward(lambda v: v * y),
    }  # fmt: skip


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median seconds of a call of each, in turn."""
    samples: tuple[list[float], list[float]] = ([], [])
    counts = []
    for run in (ours, theirs):
        for _ in range(12):  # kernels of large arrays are compiled beside the first calls, and compared with plain ones
            run()
            WORK.wait()
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
    parser.add_argument("--only", default="", help="groups whose name has this: small, 1e+06, float32...")
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
    groups: dict[str, Callable[[Any], dict[str, Callable[[], Any]]]] = {"small": small}
    for n in (10**6, 10**7):
        for dtype in (np.float32, np.float64):
            groups[f"{n:.0e} {dtype.__name__}"] = lambda library, n=n, dtype=dtype: large(library, n, dtype)
    for group, made in groups.items():
        if options.only not in group:
            continue
        ours, theirs = made(own), made(torch)
        for name, run in ours.items():
            mine, other = compare(run, theirs[name], options.rounds)
            found.setdefault(group, {})[name] = {"ours_s": mine, "torch_s": other}
            times = f"{1e6 * mine:12.2f} us  torch {1e6 * other:12.2f} us  {mine / other:6.2f} of torch's"
            print(f"{group:13} {name:32} {times}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
