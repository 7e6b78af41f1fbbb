"""Recurrent layers: training steps and plain calls, ours eager and compiled, against PyTorch's.

    OMP_WAIT_POLICY=passive python benchmarks/recurrent.py [--threads 2] [--rounds 15] [--only lstm] [--cpu] [--json out.json]

All in one process, in turn; figures are medians of rounds, with --cpu of the processor time of all threads, which a busy machine
changes less.  Memory is the most that a process of its own held during three steps beyond what it held before, one for each.
PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTENDERS = ("ours", "ours, compiled", "torch", "torch.compile")
# class, options, steps, batch, whether it is trained
WORKLOADS: dict[str, tuple[str, dict[str, Any], int, int, bool]] = {
    "lstm 2x256, 64 steps, batch 16": ("LSTM", {"num_layers": 2}, 64, 16, True),
    "lstm 2x256, 64 steps, batch 32": ("LSTM", {"num_layers": 2}, 64, 32, True),
    "lstm 2x256, batch 16, inference": ("LSTM", {"num_layers": 2}, 64, 16, False),
    "bidirectional gru 256, batch 16": ("GRU", {"bidirectional": True}, 64, 16, True),
    "rnn 256, batch 16": ("RNN", {}, 64, 16, True),
    "lstm 2x256, 200 steps, batch 2": ("LSTM", {"num_layers": 2}, 200, 2, True),
}
SIZE, CLASSES, RATE = 256, 10, 0.01


def step_of(torch: Any, workload: str) -> Callable[..., Any]:
    """A step without arguments."""
    name, about, steps, batch, trained = WORKLOADS[workload]
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(SIZE, SIZE, **about)
    width = SIZE * (2 if module.bidirectional else 1)
    head = torch.nn.Parameter(torch.randn(CLASSES, width) / 16)
    parameters = [*module.parameters(), head]
    x, y = torch.randn(steps, batch, SIZE), torch.randint(0, CLASSES, (batch,))

    def train() -> Any:
        for p in parameters:
            p.grad = None
        out, _ = module(x)
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(out[-1], head), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p.sub_(p.grad, alpha=RATE)
        return loss

    def infer() -> Any:
        with torch.no_grad():
            return module(x)[0]

    return train if trained else infer


def contender(name: str, workload: str, threads: int) -> Callable[..., Any]:
    own = name.startswith("ours")
    torch: Any = importlib.import_module("dynagraph.torch" if own else "torch")
    dg: Any = importlib.import_module("dynagraph")
    if own:
        dg.config.threads = threads
    else:
        torch.set_num_threads(threads)
    step = step_of(torch, workload)
    if name == "ours, compiled":
        return dg.compile(step, mode="max")  # type: ignore[no-any-return]
    return torch.compile(step) if name == "torch.compile" else step  # type: ignore[no-any-return]


def memory_of(name: str, workload: str, threads: int) -> float:
    """MB of a process of its own."""
    command = [sys.executable, __file__, "--threads", str(threads), "--memory-of", name, workload]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def print_memory(name: str, workload: str, threads: int) -> None:
    step = contender(name, workload, threads)
    step()  # compiles, and makes what is made once
    status = Path("/proc/self/status")

    def held(field: str) -> int:
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5")  # the most that was held begins anew
    before = held("VmRSS:")
    for _ in range(3):
        step()
    print(max(0, held("VmHWM:") - before) / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="workloads whose name has this")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--memory-of", nargs=2)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.memory_of:
        print_memory(*options.memory_of, options.threads)
        return
    clock = time.process_time if options.cpu else time.perf_counter
    results: dict[str, Any] = {}
    for workload in WORKLOADS:
        if options.only not in workload:
            continue
        names = CONTENDERS[: -1 if options.no_compile else None]
        steps, first, samples = {}, {}, {name: [] for name in names}  # type: ignore[var-annotated]
        for name in names:
            steps[name] = contender(name, workload, options.threads)
            start = time.perf_counter()
            steps[name]()
            first[name] = time.perf_counter() - start
            steps[name]()
        for _ in range(options.rounds):
            for name in names:
                start = clock()
                steps[name]()
                samples[name].append(clock() - start)
        found = results[workload] = {}
        for name in names:
            seconds = statistics.median(samples[name])
            found[name] = {"median_s": seconds, "least_s": min(samples[name]), "first_s": first[name]}
            if not options.no_memory:
                found[name]["memory_mb"] = memory_of(name, workload, options.threads)
            memory = f", {found[name]['memory_mb']:.0f} MB" if "memory_mb" in found[name] else ""
            speed = statistics.median(samples["torch"]) / seconds
            print(
                f"{workload:32} {name:15} {1e3 * seconds:8.2f} ms (least {1e3 * min(samples[name]):.2f}), {speed:.2f} x torch, "
                f"first {first[name]:.1f} s{memory}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
