"""Training steps of models, ours eager and compiled, against PyTorch's: the steps, the first call, the most memory.

    OMP_WAIT_POLICY=passive python benchmarks/models.py [--threads 2] [--rounds 2] [--steps 100] [--only lstm] [--json out.json]

Each contender runs in processes of its own, in turn.  Figures are the least of the processes' medians.  First calls of compiled
steps are given for an empty cache of kernels and programs, and for the one that this has left.  `--neighbour`: PyTorch's threads
spin in the same process, as they do after each of its operations.  PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTENDERS = ("ours", "ours, compiled", "torch", "torch.compile")


def convolutional(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 10),
    )  # fmt: skip
    return model, torch.randn(64, 1, 8, 8), torch.optim.Adam(model.parameters(), lr=1e-3)


def perceptron(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, torch.randn(64, 784), torch.optim.Adam(model.parameters(), lr=1e-3)


def transformer(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    block = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    model = nn.Sequential(block, Mean(torch), nn.Linear(256, 10))
    return model, torch.randn(8, 256, 256), torch.optim.AdamW(model.parameters(), lr=1e-4)


def Mean(torch: Any) -> Any:
    class Mean(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mean(1)

    return Mean()


def block_class(torch: Any) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inner: int, outer: int, stride: int = 1):
            super().__init__()
            self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outer)
            self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outer)
            self.relu = nn.ReLU(inplace=True)
            changes = stride != 1 or inner != outer
            self.shortcut = (
                nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)) if changes else None
            )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            y += x if self.shortcut is None else self.shortcut(x)
            return self.relu(y)

    return Block


def residual_block(torch: Any) -> tuple[Any, Any, Any]:
    nn = torch.nn
    model = nn.Sequential(block_class(torch)(64, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, torch.randn(8, 64, 32, 32), torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def resnet18(torch: Any) -> tuple[Any, Any, Any]:
    nn, Block = torch.nn, block_class(torch)
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for inner, outer, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(inner, outer, stride), Block(outer, outer)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, torch.randn(8, 3, 64, 64), torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def recurrent(torch: Any) -> tuple[Any, Any, Any]:
    class Last(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(256, 256, 2), torch.nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][-1])

    model = Last()
    return model, torch.randn(64, 16, 256), torch.optim.SGD(model.parameters(), lr=1e-2)


WORKLOADS: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
    "digits CNN, 64x1x8x8": convolutional, "MLP 784-256-256-10, Adam": perceptron, "transformer block, 8x256x256": transformer,
    "ResNet basic block, 8x64x32x32": residual_block, "LSTM 2x256, 64 steps, batch 16": recurrent,
    "ResNet-18, 8x3x64x64": resnet18,
}  # fmt: skip


def run(name: str, workload: str, threads: int, steps: int, neighbour: bool) -> None:
    """In a process of its own: prints the seconds of the first call, of a step, and the most memory in MB."""
    own = name.startswith("ours")
    if neighbour or not own:
        other: Any = importlib.import_module("torch")
        other.set_num_threads(threads)
        spinning = other.randn(256, 256)
    torch: Any = importlib.import_module("dynagraph.torch" if own else "torch")
    dg: Any = importlib.import_module("dynagraph")
    dg.config.threads = threads
    torch.manual_seed(0)
    model, x, optimizer = WORKLOADS[workload](torch)
    batch = 16 if workload.startswith("LSTM") else x.shape[0]
    y = torch.randint(0, 10, (batch,))

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    call = step
    if "compile" in name:
        call = dg.compile(step, mode="max") if own else torch.compile(step)
        warm = (lambda a: a + 1) if own else None
        if warm is not None:
            dg.compile(warm, mode="max")(torch.ones(3))  # what a process pays once
    begun = time.perf_counter()
    losses = [call(x, y).item()]
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    losses.append(call(x, y).item())
    second = time.perf_counter() - begun
    for _ in range(2):  # kernels that a thread compiles beside the calls are there from then on
        for _ in range(steps):
            losses.append(call(x, y).item())
        time.sleep(2.0 if own else 0.0)
    samples = []
    for _ in range(steps):
        if neighbour:
            spinning @ spinning  # its threads spin from here on
        begun = time.perf_counter()
        losses.append(call(x, y).item())
        samples.append(time.perf_counter() - begun)
    status = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1e3
    found = {"first": first, "second": second, "step": statistics.median(samples), "memory": memory, "losses": losses[:4]}
    print(json.dumps(found))


def measured(name: str, workload: str, options: argparse.Namespace, cache: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", name, workload, "--threads", str(options.threads), "--steps", str(options.steps)]
    if options.neighbour:
        command.append("--neighbour")
    environment = {**os.environ, "DYNAGRAPH_CACHE_DIR": f"{cache}/own", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{name}, {workload}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", default="", help="workloads whose name has this")
    parser.add_argument("--contenders", default=";".join(CONTENDERS), help="names, separated by semicolons")
    parser.add_argument("--neighbour", action="store_true", help="PyTorch's threads spin in each process")
    parser.add_argument("--run", nargs=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.run:
        run(*options.run, options.threads, options.steps, options.neighbour)
        return
    results: dict[str, Any] = {}
    for workload in WORKLOADS:
        if options.only not in workload:
            continue
        names = options.contenders.split(";")
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(options.rounds):
                for name in names:
                    found[name].append(measured(name, workload, options, cache))
        print(workload)
        for name in names:
            rows = found[name]
            least = {key: min(row[key] for row in rows) for key in ("step", "memory")}
            about = f"first call {rows[0]['first']:6.2f} s, again {rows[-1]['first']:5.2f} s"
            loss = rows[0]["losses"][-1]
            print(f"  {name:16} {1e3 * least['step']:9.2f} ms  {about}  {least['memory']:6.0f} MB  loss {loss:.5f}", flush=True)
        results[workload] = found
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
