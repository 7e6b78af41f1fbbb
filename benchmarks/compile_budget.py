"""What compiling costs programs as people write them: ``python benchmarks/compile_budget.py [NAME ...] [--calls N] [--together]``.

Each program of tests/programs, and the hard ones below, is called with arguments that change from call to call: values, seeds, and
where a program can, lengths and strings.  The price of a program is the time of its compiled calls less twice that of plain ones;
the compile budget promises that it never exceeds half a second, whenever one stops calling.  Every program runs in a process of its
own, with an empty cache; ``--together`` runs them in one, where they may cost 10 s more than twice the plain calls.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph.driver import loading

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests are no installed package
from tests.programs import test_programs  # noqa: F401  (fills the table)
from tests.programs.hard import HARD
from tests.programs.table import PROGRAMS, Program

ALLOWANCE = 0.5  # seconds for each program, ...
TOGETHER = 10.0  # ... and for all of one process
CALLS = 60
SECONDS = 3.0  # of plain calls of one program, behind which no further call is made
ALL = {**PROGRAMS, **HARD}


@dataclass
class Row:
    """One program: seconds of all calls, and the highest price at the end of any of them."""

    name: str
    calls: int
    compiled: float
    plain: float
    worst: float
    first: float
    settled: float  # how many times faster, or slower, the last third of the calls is than plain ones, by medians
    stats: str

    @property
    def price(self) -> float:
        return self.compiled - 2 * self.plain

    def __str__(self) -> str:
        mark = "  TOO DEAR" if self.worst > ALLOWANCE else ""
        return (f"{self.name:38s} {self.calls:5d} {self.compiled:8.3f} {self.plain:8.3f} {self.price:8.3f} {self.worst:8.3f}"
                f" {self.first:8.3f} {self.settled:7.2f}x{mark}")


HEADER = f"{'program':38s} {'calls':>5s} {'compiled':>8s} {'plain':>8s} {'price':>8s} {'worst':>8s} {'first':>8s} {'settled':>8s}"


def seconds_of(function: Callable[..., Any], arguments: tuple) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def measure(program: Program, calls: int, seconds: float) -> Row:
    compiled = dg.compile(program.function)
    spent: list[float] = []
    plain: list[float] = []
    worst = -np.inf
    for k in range(calls):
        ways = [(compiled, spent), (program.function, plain)]
        for function, seconds_each in ways if k % 2 == 0 else reversed(ways):  # who comes second finds warm caches
            seconds_each.append(seconds_of(function, program.maker(np.random.default_rng(k))))
        worst = max(worst, sum(spent) - 2 * sum(plain))
        if sum(plain) > seconds:
            break
    last = max(1, len(plain) // 3)
    settled = float(np.median(plain[-last:]) / np.median(spent[-last:]))  # one call that the machine interrupts says nothing
    return Row(program.name, len(plain), sum(spent), sum(plain), float(worst), spent[0], settled, repr(compiled.stats))


def alone(name: str, options: list[str]) -> Row:
    """A program's row, from a process and a cache of its own."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, name, "--worker", *options], capture_output=True, text=True, check=False,
            env={**os.environ, "DYNAGRAPH_CACHE_DIR": cache},
        )
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def rows_of(names: list[str], args: argparse.Namespace) -> list[Row]:
    options = ["--calls", str(args.calls), "--seconds", str(args.seconds)]
    rows = []
    for name in names:
        rows.append(measure(ALL[name], args.calls, args.seconds) if args.together else alone(name, options))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    loading.compiler()  # its time counts for the process, not for the function that is called first
    np.seterr(all="ignore")
    if args.worker:
        print(json.dumps(asdict(measure(ALL[args.names[0]], args.calls, args.seconds))))
        return
    names = [name for name in ALL if not args.names or any(name.startswith(n) or name.endswith("." + n) for n in args.names)]
    print(HEADER)
    rows = rows_of(names, args)
    dear = [row.name for row in rows if row.worst > ALLOWANCE] if not args.together else []
    price = sum(row.compiled for row in rows) - 2 * sum(row.plain for row in rows)
    slower = [row.name for row in rows if row.settled < 0.9]
    print(f"{len(rows)} programs; {len(dear)} cost more than {ALLOWANCE} s: {', '.join(dear) or 'none'}")
    print(f"in the end slower than plain (below 0.9x): {len(slower)}: {', '.join(slower) or 'none'}")
    if args.together:
        print(f"together {price:.2f} s more than twice the plain calls; {TOGETHER} s are allowed")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if dear or (args.together and price > TOGETHER):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
