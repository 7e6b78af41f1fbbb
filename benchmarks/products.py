"""Products of matrices on dynagraph's threads, against the BLAS that NumPy uses and PyTorch, alone and beside a busy neighbour.

    python benchmarks/products.py [--threads 1 2] [--neighbours none thread torch] [--rounds 5] [--json out.json]

Each contender runs in a process of its own, so that none meets the waiting threads of another.  The processes take turns at each
shape, a twentieth of a second each, and are stopped (SIGSTOP) while it is not theirs: a processor's clock changes within seconds,
by more than what contenders differ.  Figures are medians over rounds of the medians over calls; ratios are medians over rounds of
the ratios of neighbours in time.  OpenBLAS runs with each core type that this processor may have, and its
best one counts.  Neighbours: `thread` is a thread of the same process that computes all the time; `torch` is PyTorch's OpenMP team,
which spins after an operation (OMP_WAIT_POLICY=active).  PyTorch is needed (`pip install -e .[bench]`).

Beside a neighbour figures are means over calls: the system runs a thread for milliseconds, then stops it for milliseconds, so calls
are fast or slow, and a median is one or the other.  PyTorch beside its own team is shown, but not compared: the threads that spin
then multiply, so it has no neighbour there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Shapes = list[tuple[int, int, int]]
SHAPES: Shapes = [
    *((n, n, n) for n in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)),
    (32, 128, 64), (64, 512, 512), (1, 1024, 1024), (8, 4096, 1024), (100_000, 64, 64), (64, 64, 100_000), (20_000, 10, 784),
]  # fmt: skip
CORE_TYPES = ("Haswell", "Zen", "SkylakeX") if platform.machine() in ("x86_64", "AMD64") else ("",)
CONTENDERS = ("dynagraph", *(f"blas {core}".strip() for core in CORE_TYPES), "torch")
SECONDS, BESIDE = 0.05, 0.1  # for each shape in each round, alone and beside a neighbour


def multiplier(contender: str, threads: int) -> Callable[[np.ndarray, np.ndarray, np.ndarray], Callable[[], Any]]:
    if contender == "torch":
        import torch

        torch.set_num_threads(threads)

        def prepared(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Callable[[], Any]:
            x, y, into = map(torch.from_numpy, (a, b, out))
            return lambda: torch.mm(x, y, out=into)

        return prepared
    if contender == "dynagraph":
        import dynagraph as dg
        from dynagraph._core._dispatch import multiply

        dg.config.threads = threads
        return lambda a, b, out: lambda: multiply(a, b, out)
    return lambda a, b, out: lambda: np.matmul(a, b, out=out)


def neighbour(name: str, threads: int) -> Callable[[], Any]:
    """Starts what disturbs; what it gives is called before each call that is timed."""
    if name == "thread":
        threading.Thread(target=lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9), daemon=True).start()
    if name == "torch":
        import torch

        torch.set_num_threads(2)
        x = torch.ones(200_000)
        return lambda: x.add_(1)
    return lambda: None


def serve(contender: str, disturbed_by: str, threads: int, dtype: str) -> None:
    """Answers each shape that it is sent by the seconds of a call: the median, beside a neighbour the mean."""
    multiply, disturb = multiplier(contender, threads), neighbour(disturbed_by, threads)
    rng, prepared_for = np.random.default_rng(0), None
    run: Callable[[], Any] = int
    for line in sys.stdin:
        m, n, k = shape = json.loads(line)
        if shape != prepared_for:
            a, b, out = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype), np.ones((m, n), dtype)
            prepared_for, run = shape, multiply(a, b, out)
            run()
        samples: list[float] = []
        end = time.perf_counter() + (SECONDS if disturbed_by == "none" else BESIDE)
        while not samples or time.perf_counter() < end:
            disturb()
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
        print(statistics.median(samples) if disturbed_by == "none" else statistics.fmean(samples), flush=True)


class Contender:
    """A process that multiplies when it is asked, and is stopped at all other times."""

    def __init__(self, name: str, disturbed_by: str, threads: int, dtype: str) -> None:
        kind, _, core = name.partition(" ")
        policy = "active" if disturbed_by == "torch" else "passive"
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": policy}
        if core:
            environment["OPENBLAS_CORETYPE"] = core
        command = [sys.executable, __file__, "--serve", kind, disturbed_by, str(threads), dtype]
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def seconds(self, shape: tuple[int, int, int]) -> float | None:
        """None: the process died, since OpenBLAS has no such core type here."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.send_signal(signal.SIGCONT)
            print(json.dumps(shape), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            if " " not in self.name:
                raise SystemExit(f"products.py: {self.name} ended with status {self.process.wait()}")
            return None
        self.process.send_signal(signal.SIGSTOP)
        return float(answer)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def compare(disturbed_by: str, threads: int, dtype: str, shapes: Shapes, rounds: int) -> list[dict[str, Any]]:
    contenders = [Contender(name, disturbed_by, threads, dtype) for name in CONTENDERS]
    rows = []
    for m, n, k in shapes:
        times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for _ in range(rounds):
            for contender in list(contenders):
                seconds = contender.seconds((m, n, k))
                if seconds is None:
                    contenders.remove(contender)
                    del times[contender.name]
                else:
                    times[contender.name].append(seconds)
        medians = {name: statistics.median(found) for name, found in times.items()}
        best = min((seconds, name) for name, seconds in medians.items() if name not in ("dynagraph", disturbed_by))[1]
        ratio = statistics.median(other / ours for other, ours in zip(times[best], times["dynagraph"], strict=True))
        rows.append({"shape": (m, n, k), "seconds": medians, "best": best, "ratio": ratio})
        rates = "  ".join(f"{name} {2e-9 * m * n * k / seconds:7.1f}" for name, seconds in medians.items())
        what = f"{dtype} {threads} threads, {disturbed_by:6}  {f'{m}x{n}x{k}':15}"
        print(f"{what} {rates}  GFLOP/s  {ratio:5.2f} of the best", flush=True)
    for contender in contenders:
        contender.end()
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        contender, disturbed_by, threads, dtype = sys.argv[2:]
        serve(contender, disturbed_by, int(threads), dtype)
        os._exit(0)  # the neighbour goes on
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--neighbours", nargs="+", default=["none", "thread", "torch"], choices=("none", "thread", "torch"))
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--shapes", nargs="+", metavar="MxNxK", help="instead of all")
    parser.add_argument("--most", type=float, default=2.0**36, help="leave out shapes of more multiplications")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    wanted: Shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes] if options.shapes else SHAPES  # type: ignore[misc]
    shapes = [shape for shape in wanted if float(np.prod(shape, dtype=float)) <= options.most]
    found = {
        f"{dtype} {threads} {disturbed_by}": compare(disturbed_by, threads, dtype, shapes, options.rounds)
        for dtype in options.dtypes
        for threads in options.threads
        for disturbed_by in options.neighbours
    }
    for name, rows in found.items():
        ratios = [row["ratio"] for row in rows]
        print(f"{name}: {statistics.geometric_mean(ratios):.2f} of the best of the others on average, {min(ratios):.2f} at worst")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
