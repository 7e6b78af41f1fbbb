"""The training of examples/char_gpt.py under dynagraph.torch and under PyTorch: tokens per second, and whether the losses agree.

    OMP_WAIT_POLICY=passive python benchmarks/char_gpt.py [--steps 60] [--rounds 3] [--contenders "ours, compiled;torch.compile"]

The example's own text runs in a process for each contender and round, in turn.  All begin with the same weights and see the same
characters: dynagraph.torch draws PyTorch's random numbers for this.  Speeds are medians of a process's steps, the best of its
rounds.  PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import dynagraph.torch

CONTENDERS = ("ours, compiled", "torch.compile", "ours", "torch")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, steps: int, threads: int) -> None:
    """In a process of its own: prints the losses, and the tokens per second of the later half of the steps."""
    own = name.startswith("ours")
    if own:
        dynagraph.torch.install()
    torch: Any = importlib.import_module("torch")
    if own:
        torch.random.torch_compatible(True)
    torch.set_num_threads(threads)
    sys.path.insert(0, str(EXAMPLES))
    example, common = importlib.import_module("char_gpt"), importlib.import_module("common")
    common.compare = lambda *arguments, **options: 0.0  # the other contenders are what it is compared with
    eager = ["--eager"] * ("compile" not in name)
    with contextlib.redirect_stdout(io.StringIO()):
        found = example.main(["--quick", "--steps", str(steps), "--out", "", *eager])
    later = statistics.median(found.times[steps // 2 :])
    print(json.dumps({"losses": found.losses, "speed": example.BATCH * example.LENGTH / later, "first": found.times[0]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contenders", default=";".join(CONTENDERS), help="names, separated by semicolons")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run, options.steps, options.threads)
        return
    names = options.contenders.split(";")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            command = [sys.executable, __file__, "--run", name, "--steps", str(options.steps), "--threads", str(options.threads)]
            environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise SystemExit(f"{name}:\n{done.stderr[-3000:]}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    first = found[names[0]][0]["losses"]
    for name, rows in found.items():
        losses = rows[0]["losses"]
        apart = max(abs(a - b) for a, b in zip(losses, first))
        print(f"{name:16} {max(row['speed'] for row in rows):8.0f} tokens per second, first step {rows[0]['first']:6.2f} s, "
              f"loss {losses[0]:.4f} to {losses[-1]:.4f}, at most {apart:.4f} from that of {names[0]}")  # fmt: skip


if __name__ == "__main__":
    main()
