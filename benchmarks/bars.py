"""Measure every bar of the project against NumPy (and torch.compile, JAX and Numba where they are installed).

    python benchmarks/bars.py [--threads 1,2] [--json out.json] [--peers]

Everything runs in this one process, the contenders in turn, round after round; figures are medians.  On a shared machine
only ratios mean anything.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from workloads import Workload, add3, throughput

import dynagraph as dg

dg.config.compile_budget = None  # it is programs that are measured, whatever they cost
HERE = Path(__file__).resolve().parent


def interleaved(contenders: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> dict[str, float]:
    """Median seconds of one call for each contender, measured in turn."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            for _ in range(calls):
                run()
            samples[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(values) for name, values in samples.items()}


def peers_of(workload: Workload, threads: int) -> dict[str, Callable[[], object]]:
    """torch.compile on tensors, JAX on device arrays, Numba: as far as they are installed and take the function."""
    found: dict[str, Callable[[], object]] = {}
    for name, make in (("torch.compile", _torch), ("jax", _jax), ("numba", _numba)):
        if importlib.util.find_spec(name.split(".")[0]):
            try:
                run = make(workload, threads)
                run()
            except Exception as error:  # a peer that cannot run the function is left out, and said to be
                print(f"  {name} does not run {workload.name}: {type(error).__name__}", flush=True)
            else:
                found[name] = run
    return found


def _torch(workload: Workload, threads: int) -> Callable[[], object]:
    import torch  # an optional peer

    torch.set_num_threads(threads)
    tensors = tuple(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in workload.arguments)
    compiled = torch.compile(workload.written_for(_TorchNamespace(torch)))
    return lambda: compiled(*tensors)


class _TorchNamespace:
    """The NumPy names that the workloads use, as torch spells them."""

    def __init__(self, torch: ModuleType):
        self.tanh, self.exp, self.log, self.sqrt = torch.tanh, torch.exp, torch.log, torch.sqrt
        self.abs, self.where = torch.abs, torch.where
        self.maximum = lambda x, y: torch.clamp(x, min=y)


def _jax(workload: Workload, threads: int) -> Callable[[], object]:
    import jax  # an optional peer

    jax.config.update("jax_enable_x64", True)
    arrays = tuple(jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in workload.arguments)
    compiled = jax.jit(workload.written_for(jax.numpy))
    return lambda: jax.block_until_ready(compiled(*arrays))


def _numba(workload: Workload, threads: int) -> Callable[[], object]:
    import numba  # an optional peer

    numba.set_num_threads(threads)
    compiled = numba.njit(parallel=threads > 1)(workload.function)
    return lambda: compiled(*workload.arguments)


def throughput_rows(threads: int, rounds: int, peers: bool) -> list[dict]:
    dg.config.threads = threads
    rows = []
    for workload in throughput():
        compiled = dg.compile(workload.function, fullgraph=True)
        expected, got = workload.function(*workload.arguments), compiled(*workload.arguments)
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=2e-5, atol=1e-5 * float(np.abs(expected).max()))
        del expected, got
        contenders = {
            "numpy": lambda w=workload: w.function(*w.arguments),
            "dynagraph": lambda w=workload, f=compiled: f(*w.arguments),
        }
        if peers:
            contenders |= peers_of(workload, threads)
        seconds = interleaved(contenders, rounds)
        ratio = seconds["numpy"] / seconds["dynagraph"]
        rows.append(
            {
                "workload": workload.name,
                "threads": threads,
                "ms": {k: v * 1e3 for k, v in seconds.items()},
                "ratio": ratio,
                "bar": workload.bar,
                "GB/s": workload.nbytes / seconds["dynagraph"] / 1e9,
            }
        )
        print(
            f"{workload.name:28s} {threads} thread(s)  "
            + "  ".join(f"{k} {v * 1e3:9.3f} ms" for k, v in seconds.items())
            + f"  ratio {ratio:6.2f}"
            + (f"  bar {workload.bar}" if workload.bar else ""),
            flush=True,
        )
        gc.collect()
    return rows


def hot_call() -> dict:
    x, y, z = (np.arange(16.0) + k for k in range(3))
    compiled = dg.compile(add3, fullgraph=True)
    add = np.add
    compiled(x, y, z)

    def many(function: Callable, *arguments: np.ndarray) -> float:
        start = time.perf_counter()
        for _ in range(20000):
            function(*arguments)
        return (time.perf_counter() - start) / 20000

    samples = [(many(compiled, x, y, z), many(add, x, y), many(add3, x, y, z)) for _ in range(15)]
    ours, one_add, eager = (statistics.median(s) * 1e9 for s in zip(*samples))
    print(
        f"hot call x+y+z, 16 float64: dynagraph {ours:.0f} ns, one np.add {one_add:.0f} ns, eager {eager:.0f} ns, "
        f"ratio to np.add {ours / one_add:.2f} (bar < 1.0)",
        flush=True,
    )
    return {"ns": ours, "np.add ns": one_add, "eager ns": eager, "ratio": ours / one_add}


def sum_error() -> dict:
    import math

    x = np.random.default_rng(1).standard_normal(10_000_000)
    exact = math.fsum(x)
    ours, numpys = abs(float(dg.compile(lambda a: a.sum())(x)) - exact), abs(float(x.sum()) - exact)
    print(f"sum of 1e7 float64: error {ours:.3g}, NumPy's {numpys:.3g}", flush=True)
    return {"ours": ours, "numpy": numpys}


START_UP = """
import sys, time
import numpy as np
t0 = time.perf_counter()
import dynagraph as dg
t1 = time.perf_counter()
@dg.compile(fullgraph=True)
def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
x = np.ones(1000, np.float32)
t2 = time.perf_counter()
gelu(x)
print(t1 - t0, time.perf_counter() - t2)
"""


def start_up() -> dict:
    results: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
    bytecode = tempfile.mkdtemp()
    for _ in range(5):
        with tempfile.TemporaryDirectory() as cache:
            # modules are compiled to bytecode once, as on any machine where that is not switched off
            environment = {**os.environ, "DYNAGRAPH_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": bytecode}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            for kind in ("cold", "warm"):
                output = subprocess.run(
                    [sys.executable, "-c", START_UP], env=environment, check=True, capture_output=True, text=True
                )
                imported, called = map(float, output.stdout.split())
                results[kind].append((imported, called))
    shutil.rmtree(bytecode)
    figures = {
        "import over numpy, ms": 1e3 * statistics.median(i for rows in results.values() for i, _ in rows),
        "first call, empty cache, ms": 1e3 * statistics.median(c for _, c in results["cold"]),
        "first call, warm cache, ms": 1e3 * statistics.median(c for _, c in results["warm"]),
    }
    for name, value in figures.items():
        print(f"{name}: {value:.1f}", flush=True)
    return figures


def digits_step() -> list[dict]:
    sys.path.insert(0, str(HERE.parent / "examples"))
    import digits  # the example is the workload

    rows = []
    for batch in (64, 512):
        eager, compiled, arguments = digits.benchmark_step(batch)
        seconds = interleaved({"numpy": lambda: eager(*arguments), "dynagraph": lambda: compiled(*arguments)}, 41, 20)
        ratio = seconds["numpy"] / seconds["dynagraph"]
        print(
            f"digits training step, batch {batch}: numpy {seconds['numpy'] * 1e6:.0f} us, dynagraph "
            f"{seconds['dynagraph'] * 1e6:.0f} us, ratio {ratio:.2f}",
            flush=True,
        )
        rows.append({"batch": batch, "us": {k: v * 1e6 for k, v in seconds.items()}, "ratio": ratio})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"dynagraph {dg.__version__}"
    )
    report: dict = {"hot call": hot_call(), "sum error": sum_error(), "throughput": []}
    for threads in map(int, options.threads.split(",")):
        report["throughput"] += throughput_rows(threads, options.rounds, options.peers)
    report["digits"] = digits_step()
    report["start-up"] = start_up()
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
