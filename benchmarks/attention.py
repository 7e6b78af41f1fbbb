"""Attention, forward and with its gradients: dynagraph.torch, eager and compiled, against torch and torch.compile.

    python benchmarks/attention.py [--threads 2] [--rounds 15] [--only causal] [--json out.json] [--clock cpu] [--no-memory]

Everything but memory is measured in this one process, the contenders in turn; figures are medians.  Memory is the most that a
process of its own held during two calls beyond what it held before, one process for each contender.  torch is left out where it is
not installed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

CONTENDERS = ("dynagraph", "dynagraph compiled", "torch", "torch.compile")


@dataclass
class Workload:
    shape: tuple[int, int, int, int]  # batch, heads, tokens, width
    groups: int = 0  # heads of keys; 0: as many
    causal: bool = False
    masked: bool = False  # by padding
    learned: bool = False  # a mask that heads share, with a gradient
    gradients: bool = False


WORKLOADS = {
    "forward": Workload((8, 8, 256, 64)),
    "causal": Workload((8, 8, 256, 64), causal=True),
    "masked": Workload((8, 8, 256, 64), masked=True),
    "gradients": Workload((8, 8, 256, 64), gradients=True),
    "causal gradients": Workload((8, 8, 256, 64), causal=True, gradients=True),
    "shared heads": Workload((2, 16, 512, 64), groups=4, causal=True, gradients=True),
    "learned mask": Workload((8, 8, 256, 64), learned=True, gradients=True),
    "one query": Workload((8, 8, 1, 64)),
    "2,048 tokens": Workload((1, 8, 2048, 64), causal=True, gradients=True),
    "16,384 tokens": Workload((1, 1, 16384, 64), causal=True, gradients=True),
    "16,384, padded": Workload((1, 1, 16384, 64), masked=True, gradients=True),
}


def made(contender: str, workload: Workload) -> Callable[[], Any]:
    """A call of the contender's."""
    torch: Any = importlib.import_module("torch" if contender.startswith("torch") else "dynagraph.torch")
    batch, heads, tokens, width = workload.shape
    keys = max(tokens, 256)
    rng = np.random.default_rng(0)
    shapes = ((heads, tokens), *(((workload.groups or heads), keys),) * 2, (heads, tokens))
    q, k, v, g = (torch.from_numpy(rng.standard_normal((batch, h, n, width)).astype(np.float32)) for h, n in shapes)
    about = {"is_causal": workload.causal, "enable_gqa": bool(workload.groups)}
    if workload.masked:
        about["attn_mask"] = torch.from_numpy(rng.random((batch, 1, 1, keys)) > 0.2)
    given = [q, k, v]
    if workload.learned:
        given.append(torch.from_numpy(rng.standard_normal((tokens, keys)).astype(np.float32)))
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward(*given: Any) -> Any:
        return attend(*given, **about)

    def gradients(*given: Any) -> Any:
        given = tuple(x.detach().requires_grad_() for x in given)
        return torch.autograd.grad(attend(*given, **about), given, g)

    def loss(*given: Any) -> Any:
        given = tuple(x.detach().requires_grad_() for x in given)
        return torch.autograd.grad(compiled(*given), given, g)

    function = gradients if workload.gradients else forward
    if contender == "dynagraph compiled":
        function = importlib.import_module("dynagraph").compile(function, mode="max", fullgraph=True)
    elif contender == "torch.compile":  # which does not follow autograd.grad
        torch._dynamo.reset()  # programs of other workloads count against a limit
        compiled = torch.compile(forward)
        function = loss if workload.gradients else compiled
    return lambda: function(*given)


def set_threads(threads: int, contenders: list[str]) -> None:
    if any(c.startswith("dynagraph") for c in contenders):
        importlib.import_module("dynagraph").config.threads = threads
    if any(c.startswith("torch") for c in contenders):
        importlib.import_module("torch").set_num_threads(threads)


def _first(result: Any) -> np.ndarray:
    return np.asarray((result[0] if isinstance(result, tuple) else result).numpy())


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def measure(workload: Workload, contenders: list[str], rounds: int, clock: Callable[[], float]) -> dict[str, dict[str, float]]:
    runs = {c: made(c, workload) for c in contenders}
    expected: np.ndarray | None = None
    calls = {}
    for contender, run in runs.items():
        for _ in range(3):
            found = _first(run())
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        start = clock()
        run()
        calls[contender] = max(1, round(0.02 / (clock() - start)))
    samples: dict[str, list[float]] = {c: [] for c in contenders}
    for _ in range(rounds):
        for contender, run in runs.items():
            start = clock()
            for _ in range(calls[contender]):
                run()
            samples[contender].append((clock() - start) / calls[contender])
    return {c: {"median_s": statistics.median(s), "least_s": min(s)} for c, s in samples.items()}


def peak_memory(name: str, contender: str, threads: int) -> float | None:
    """MB that a process of its own holds at most during two calls, beyond what it held before."""
    script = f"import attention; print(attention.held_by_calls({name!r}, {contender!r}, {threads}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600, check=False
    )
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def held_by_calls(name: str, contender: str, threads: int) -> float:
    set_threads(threads, [contender])
    warm = made(contender, replace(WORKLOADS[name], shape=(1, 1, 8, 8), groups=0))
    for _ in range(3):
        warm()
    run = made(contender, WORKLOADS[name])
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        run()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=list(WORKLOADS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--json")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="cpu: the time of all threads")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    contenders = [c for c in options.contenders.split(",") if importlib.util.find_spec(c.split(".")[0].split()[0])]
    set_threads(options.threads, contenders)
    results: dict[str, Any] = {}
    for name in [options.only] if options.only else list(WORKLOADS):
        found = results[name] = measure(WORKLOADS[name], contenders, options.rounds, CLOCKS[options.clock])
        if not options.no_memory:
            for contender in contenders:
                found[contender]["peak_mb"] = peak_memory(name, contender, options.threads)  # type: ignore[assignment]
        for contender, row in found.items():
            memory = "" if row.get("peak_mb") is None else f"  peak {row['peak_mb']:7.1f} MB"
            times = f"{row['median_s'] * 1e3:9.3f} ms, at least {row['least_s'] * 1e3:9.3f}"
            print(f"{name:18} {contender:20} {times}{memory}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"threads": options.threads, "results": results}, indent=1))


if __name__ == "__main__":
    main()
