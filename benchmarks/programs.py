"""NumPy programs as people write them, compiled against plain: ``python benchmarks/programs.py [NAME ...] [--json FILE]``.

The programs are those of tests/programs, at the sizes of program_sizes.py; and sweeps of a stencil, against their bars.  Figures
are medians of interleaved rounds in one process; on a shared machine read them as ratios.  A NAME may be the beginning of several.
"""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from program_sizes import SIZES

import dynagraph as dg
from dynagraph._core._dispatch import get_threads

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests are no installed package
from tests.programs.table import PROGRAMS, Program
from tests.programs.test_programs import reached, same

dg.config.compile_budget = None  # it is programs that are measured, whatever they cost
ROUNDS = 9
SEEDS = (1, 2)
WARM_CALLS = 40  # behind which every choice between compiled and plain calls is made, ...
WARM_SECONDS = 2.0  # ... or, where calls are slow, ...
LEAST_WARM_CALLS = 24  # ... behind this many
Call = Callable[..., Any]


def timed(function: Call, arguments: tuple) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def arguments_of(name: str, seed: int) -> tuple:
    maker = SIZES[name]
    assert not isinstance(maker, str), f"{name} is not measured: {maker}"
    return maker(np.random.default_rng(seed))


def is_changed(arguments: tuple, before: tuple) -> bool:
    """Whether a call has written to its arguments: the next one then needs others."""
    try:
        same(arguments, before, 0.0)
    except AssertionError:
        return True
    return False


def checked(program: Program, compiled: Call, seed: int) -> tuple[bool, float]:
    """One call of each, on equal arguments: whether they change them, and the seconds of the compiled one."""
    plainly, given, before = (arguments_of(program.name, seed) for _ in range(3))
    want = program.function(*plainly)
    start = time.perf_counter()
    got = compiled(*given)
    seconds = time.perf_counter() - start
    same(got, want, program.rtol)
    same(given, plainly, program.rtol)
    return is_changed(plainly, before), seconds


def in_turn(name: str, changes: bool) -> Callable[[], tuple]:
    """Gives the arguments of several seeds in turn, so that no call may lean on the values of the last one."""
    sets = itertools.cycle([arguments_of(name, seed) for seed in SEEDS])
    return (lambda: copy.deepcopy(next(sets))) if changes else (lambda: next(sets))


def warm(call: Call, supply: Callable[[], tuple]) -> None:
    start = time.perf_counter()
    for k in range(WARM_CALLS):
        if k >= LEAST_WARM_CALLS and time.perf_counter() - start > WARM_SECONDS:
            break
        call(*supply())


def medians(calls: dict[str, Call], supply: Callable[[], tuple], rounds: int) -> dict[str, float]:
    """Median seconds of a call of each, in turn; arguments are made outside of the timing."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            samples[name].append(timed(call, supply()))
    return {name: statistics.median(found) for name, found in samples.items()}


def measured(program: Program, rounds: int) -> dict[str, Any]:
    compiled = dg.compile(program.function)
    changes, first = checked(program, compiled, SEEDS[0])
    for seed in SEEDS[1:]:
        checked(program, compiled, seed)
    supply = in_turn(program.name, changes)
    warm(compiled, supply)
    stats = compiled.stats
    before = stats.compiles, stats.compile_seconds
    seconds = medians({"plain": program.function, "compiled": compiled}, supply, rounds)
    return {
        "program": program.name,
        "plain_ms": 1e3 * seconds["plain"],
        "compiled_ms": 1e3 * seconds["compiled"],
        "ratio": seconds["plain"] / seconds["compiled"],
        "class": reached(compiled),
        "stays_eager": any(entry.stays_eager for entry in compiled.entries),
        "first_call_s": first,
        "compile_s": stats.compile_seconds,
        "compiles": stats.compiles,
        "settled": (stats.compiles, stats.compile_seconds) == before,
        "fallbacks": stats.fallbacks,
        "breaks": dict(stats.breaks),
    }


def show(row: dict[str, Any]) -> None:
    marks = ("  stays eager" if row["stays_eager"] else "") + ("" if row["settled"] else "  still compiling")
    print(f"{row['program']:38s} {row['class']}  plain {row['plain_ms']:9.3f} ms  compiled {row['compiled_ms']:9.3f} ms  "
          f"ratio {row['ratio']:6.2f}  first call {row['first_call_s']:6.2f} s  {row['compiles']:3d} programs{marks}", flush=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: row["ratio"])
    return {
        "programs": len(rows),
        "geometric mean": statistics.geometric_mean([row["ratio"] for row in rows]),
        "slowest": {row["program"]: round(row["ratio"], 3) for row in rows[:10]},
        "below 0.95": sum(row["ratio"] < 0.95 for row in rows),
        "stay eager": sum(row["stays_eager"] for row in rows),
        "longest first calls [s]": {row["program"]: round(row["first_call_s"], 2)
                                    for row in sorted(rows, key=lambda row: -row["first_call_s"])[:5]},
    }


# -- sweeps of a stencil ------------------------------------------------------------------------------------------------------


def sweep(new: Any, old: Any) -> None:
    new[1:-1, 1:-1] = 0.25 * (old[2:, 1:-1] + old[:-2, 1:-1] + old[1:-1, 2:] + old[1:-1, :-2])


def sweep_in_place(u: Any, _: Any) -> None:
    u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])


def ten_sweeps(new: Any, old: Any) -> None:
    for _ in range(10):
        new[1:-1, 1:-1] = 0.25 * (old[2:, 1:-1] + old[:-2, 1:-1] + old[1:-1, 2:] + old[1:-1, :-2])
        old, new = new, old


def copier(threads: int) -> Call:
    """Copies an array as fast as NumPy and that many threads can."""
    if threads == 1:
        return np.copyto
    pool = ThreadPoolExecutor(threads)

    def copy_by_all(to: Any, of: Any) -> None:
        list(pool.map(np.copyto, np.array_split(to, threads), np.array_split(of, threads)))

    return copy_by_all


def sweeps(rounds: int) -> list[dict[str, Any]]:
    """A sweep over 1000x1000 float64: at least 5 times NumPy's speed, and at most 1.3 times as long as copying the array."""
    a, b = np.random.default_rng(1).random((2, 1000, 1000))
    rows = []
    for function, n in ((sweep, 1), (ten_sweeps, 10), (sweep_in_place, 1)):
        compiled, plainly, given = dg.compile(function), (a.copy(), b.copy()), (a.copy(), b.copy())
        function(*plainly), compiled(*given)
        same(given, plainly, 1e-15)
        calls = {"plain": function, "compiled": compiled, "copy": copier(get_threads())}
        warm(compiled, lambda: given)
        seconds = medians(calls, lambda: given, 5 * rounds)
        milliseconds = {name: 1e3 * t / (1 if name == "copy" else n) for name, t in seconds.items()}
        ratio, copies = milliseconds["plain"] / milliseconds["compiled"], milliseconds["compiled"] / milliseconds["copy"]
        rows.append({"stencil": function.__name__, "ms per sweep": milliseconds, "ratio": ratio, "copies": copies})
        times = "  ".join(f"{name} {ms:6.3f} ms" for name, ms in milliseconds.items())
        print(f"{function.__name__:16s} {times}  ratio {ratio:.2f} (bar 5)  {copies:.2f} copies (bar 1.3)", flush=True)
    return rows


def chosen(names: list[str]) -> list[str]:
    return [name for name, size in SIZES.items() if not isinstance(size, str) and (not names or name.startswith(tuple(names)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="programs, or beginnings of their names; `sweep` for the stencil; all if left out")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--threads", type=int, help="threads that one compiled call may use")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cache", action="store_true", help="use kernels of earlier runs: first calls are then no cold ones")
    options = parser.parse_args()
    assert SIZES.keys() == PROGRAMS.keys(), sorted(SIZES.keys() ^ PROGRAMS.keys())
    if options.threads:
        dg.config.threads = options.threads
    if not options.cache:
        dg.config.cache = False
    report: dict[str, Any] = {"programs": []}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in chosen(options.names):
            row = measured(PROGRAMS[name], options.rounds)
            report["programs"].append(row)
            show(row)
            gc.collect()
    if not options.names or "sweep" in options.names:
        report["sweeps"] = sweeps(options.rounds)
    if report["programs"]:
        report["summary"] = summary(report["programs"])
        for key, value in report["summary"].items():
            print(f"{key}: {value}")
        left_out = sum(isinstance(size, str) for size in SIZES.values())
        print(f"left out as their time does not go into arrays: {left_out} of {len(SIZES)}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
