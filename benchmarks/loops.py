"""Loop programs compiled, against plain Python and Numba: ``python benchmarks/loops.py [NAME ...] [--json FILE] [--no-numba]``.

The programs are those of tests/programs/loops, at their large size.  Each is measured in a process of its own, forked from one in
which the compilers are loaded, with an empty kernel cache: first call, two more calls, then medians of interleaved rounds beside
plain Python; then, once the compiler has done what it does beside the calls (at most --settle seconds of calls), beside Numba,
whose first call waits for its compiler.  A further process has the filled cache.  A program that crashes, gives wrong results or
takes too long is a row that says so.  The compile budget is that of users, unless --unlimited.

Results are compared with plain ones, bit for bit; Numba's (`njit` on the same source) within a tolerance.  Where Numba's are wrong
it is left out of the comparison.  On a shared machine read figures as ratios.  With threads that wait for one another, as on two
cores of a busy machine, set OMP_WAIT_POLICY=passive for NumPy's libraries.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph.backends import kernel_cache

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests are no installed package
from tests.programs.loops import LOOPS, LoopProgram
from tests.programs.loops.exact import check_same
from tests.programs.test_programs import reached

ROUNDS = 5
SEEDS = (1, 2)
CALLS_BEFORE = 3  # after which every choice between compiled and plain calls is to be made
SETTLE = 3.0  # seconds of calls in which the compiler may do what is left to do
QUIET_CALLS = 5  # in a row, after which nothing is left
LIMIT = 60.0  # seconds for one program
Call = Callable[..., Any]
Row = dict[str, Any]


# -- one program, in a process of its own ---------------------------------------------------------------------------------------


def timed(function: Call, arguments: tuple) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def supply(program: LoopProgram) -> Iterator[tuple]:
    """Fresh arguments of several seeds in turn, so that no call may lean on what the last one had, or wrote."""
    for arguments in itertools.cycle([program.arguments(program.large, seed) for seed in SEEDS]):
        yield copy.deepcopy(arguments)


def is_near(got: Any, want: Any) -> bool:
    if isinstance(want, (list, tuple)) and not all(isinstance(w, (int, float, complex, np.generic)) for w in want):
        return len(got) == len(want) and all(map(is_near, got, want))
    if isinstance(want, dict):
        return list(got) == list(want) and is_near(list(got.values()), list(want.values()))
    if want is None or isinstance(want, (str, bytes, int)):
        return bool(got == want)
    return np.shape(got) == np.shape(want) and np.allclose(np.asarray(got), np.asarray(want), rtol=1e-6, atol=1e-9, equal_nan=True)


def interleaved(program: LoopProgram, calls: dict[str, Call], wants: list[tuple], rounds: int) -> Row:
    """Milliseconds of a call of each, in the median."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds):
        for name, call in calls.items():
            arguments = copy.deepcopy(program.arguments(program.large, SEEDS[k % len(SEEDS)]))
            got, seconds = timed(call, arguments)
            samples[name].append(seconds)
            if name in ("compiled", "settled"):
                check_same((got, arguments), wants[k % len(SEEDS)], program.rtol)
    return {f"{name}_ms": 1e3 * statistics.median(found) for name, found in samples.items()}


def settle(program: LoopProgram, compiled: Any, seconds: float) -> None:
    """Call it until the compiler has nothing left to do."""
    quiet, before, stats = 0, None, compiled.stats
    for arguments in supply(program):
        seconds -= timed(compiled, arguments)[1]
        kernel_cache.look()
        state = stats.compiles, stats.put_off, [entry.stays_eager for entry in compiled.entries]
        quiet = quiet + 1 if state == before and not kernel_cache._making else 0
        before = state
        if quiet == QUIET_CALLS or seconds < 0:
            return
        time.sleep(0.01)  # as a program would do something else


def measure(program: LoopProgram, options: argparse.Namespace) -> Iterator[Row]:
    """Parts of the row, as they are known."""
    wants = []
    for seed in SEEDS:
        arguments = program.arguments(program.large, seed)
        result, seconds = timed(program.function, arguments)
        wants.append((result, arguments))
    yield {"plain_ms": 1e3 * seconds}

    compiled = program.decorated(dg.compile)
    arguments_of_calls = supply(program)
    for k in range(CALLS_BEFORE):
        arguments = next(arguments_of_calls)
        gc.collect()
        got, seconds = timed(compiled, arguments)
        check_same((got, arguments), wants[k % len(SEEDS)], program.rtol)
        if k == 0:
            yield {"first_call_s": seconds}
    stats = compiled.stats
    yield {
        "class": reached(compiled),
        "stays_eager": any(entry.stays_eager for entry in compiled.entries),
        "fallbacks": stats.fallbacks,
        "side_exits": getattr(stats, "side_exits", None),
        "breaks": dict(stats.breaks),
    }

    yield interleaved(program, {"plain": program.function, "compiled": compiled}, wants, options.rounds)
    settle(program, compiled, options.settle)  # which fills the cache, too
    if options.no_numba:
        return
    numbas, said = numba_of(program, wants[0])
    yield {"numba": said}
    calls = {"settled": compiled} if numbas is None else {"settled": compiled, "numba": numbas}
    yield interleaved(program, calls, wants, options.rounds)


def numba_of(program: LoopProgram, want: tuple) -> tuple[Call | None, str]:
    """The program by Numba where it can, and the seconds of the first call, or why not."""
    import numba  # an optional peer

    function, arguments = program.decorated(numba.njit), program.arguments(program.large, SEEDS[0])
    try:
        got, seconds = timed(function, arguments)
    except Exception as error:
        return None, type(error).__name__
    if not is_near((got, arguments), want):
        return None, "wrong"
    return function, f"{seconds:.2f} s"


def first_call(program: LoopProgram) -> Iterator[Row]:
    """With the kernels of an earlier process: what the first call takes beyond the third."""
    compiled, arguments_of_calls = program.decorated(dg.compile), supply(program)
    gc.collect()  # as before: a forked process copies each page that it touches
    first, _, third = (timed(compiled, next(arguments_of_calls))[1] for _ in range(3))
    yield {"warm_ms": 1e3 * max(first - third, 0.0)}


def child(sender: Connection, parts: Callable[[], Iterator[Row]], cache: str) -> None:
    dg.config.cache_dir = cache
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for part in parts():
                sender.send(part)
        except BaseException as error:
            sender.send({"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})


def apart(parts: Callable[[], Iterator[Row]], cache: str, limit: float) -> Row:
    """What another process says, until it ends or its time does."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=child, args=(sender, parts, cache))
    process.start()
    sender.close()
    row: Row = {}
    end = time.monotonic() + limit
    try:
        while receiver.poll(max(end - time.monotonic(), 0.0)):
            row |= receiver.recv()
        row["failed"] = f"takes more than {limit:.0f} s"
    except EOFError:
        process.join()
        if process.exitcode:
            row["failed"] = f"crashed: {signal.Signals(-process.exitcode).name}" if process.exitcode < 0 else "ended"
    finally:
        process.kill()
        process.join()
    return row


def measured(program: LoopProgram, options: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory() as cache:
        row: Row = {"program": program.name}
        row |= apart(lambda: measure(program, options), cache, options.limit)
        if "failed" not in row:
            row |= apart(lambda: first_call(program), cache, options.limit)
    if "failed" not in row:
        row["ratio"] = row["plain_ms"] / row["compiled_ms"]
        if "numba_ms" in row:
            row["over_numba"] = row["numba_ms"] / row["settled_ms"]
    return row


# -- the table and the bars -----------------------------------------------------------------------------------------------------


def show(row: Row) -> None:
    plain = f"plain {row['plain_ms']:8.2f} ms" if "plain_ms" in row else ""
    if "failed" in row:
        print(f"{row['program']:40s} {plain}  FAILED: {row['failed']}", flush=True)
        return
    over = f"{row['over_numba']:6.2f}x Numba" if "over_numba" in row else ""
    eager = "  stays eager" if row["stays_eager"] else ""
    print(f"{row['program']:40s} {row['class']}  {plain}  compiled {row['compiled_ms']:8.3f} ms  {row['ratio']:7.2f}x  first call "
          f"{row['first_call_s']:6.3f} s, warm {row['warm_ms']:6.1f} ms  numba {row.get('numba', '-'):>8s} "
          f"{over}, settled {row.get('settled_ms', row['compiled_ms']):8.3f} ms{eager}", flush=True)


def summary(rows: list[Row]) -> Row:
    """Figures, and for each bar whether it is met."""
    good = [row for row in rows if "failed" not in row]
    found: Row = {"programs": len(rows), "failed": {row["program"]: row["failed"] for row in rows if "failed" in row}}
    bars = {"all right": not found["failed"]}
    if good:
        first = [row["first_call_s"] for row in good]
        found["geometric mean over plain"] = statistics.geometric_mean([row["ratio"] for row in good])
        found["slowest"] = {row["program"]: round(row["ratio"], 2) for row in sorted(good, key=lambda row: row["ratio"])[:10]}
        found["below 0.95 of plain"] = sum(row["ratio"] < 0.95 for row in good)
        found["median first call, s"] = statistics.median(first)
        found["longest first calls, s"] = _worst(good, "first_call_s", 0.5)
        found["longest with a filled cache, ms"] = _worst(good, "warm_ms", 20.0)
        bars |= {
            "at least 20x plain in geometric mean": found["geometric mean over plain"] >= 20,
            "none below 0.95x of plain after three calls": not found["below 0.95 of plain"],
            "each first call at most 0.5 s": max(first) <= 0.5,
            "median first call at most 0.2 s": found["median first call, s"] <= 0.2,
            "a filled cache: at most 20 ms": max(row["warm_ms"] for row in good) <= 20,
        }
    if both := [row for row in good if "over_numba" in row]:
        found["both run"] = len(both)
        found["geometric mean over Numba"] = statistics.geometric_mean([row["over_numba"] for row in both])
        found["below 0.7 of Numba"] = {r["program"]: round(r["over_numba"], 2) for r in sorted(both, key=lambda r: r["over_numba"])
                                       if r["over_numba"] < 0.7}
        bars |= {
            "at least 1.3x Numba in geometric mean": found["geometric mean over Numba"] >= 1.3,
            "none below 0.7x of Numba": not found["below 0.7 of Numba"],
        }
    return found | {"bars": bars}


def _worst(rows: list[Row], key: str, bar: float) -> Row:
    beyond = sorted((row for row in rows if row[key] > bar), key=lambda row: -row[key])
    return {"above the bar": len(beyond)} | {row["program"]: round(row[key], 2) for row in beyond[:10]}


def warm_up(numba: bool) -> None:
    """Load what the first use of each compiler loads."""

    def total(x: np.ndarray) -> float:
        s = 0.0
        for v in x:
            s += v
        return s + x.sum()

    with tempfile.TemporaryDirectory() as folder, dg.config.override(cache_dir=folder, compile_budget=None):
        dg.compile(total)(np.ones(3))
    if numba:
        import numba as peer  # an optional peer

        peer.njit(total)(np.ones(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs, or beginnings of their names; all if left out")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--no-numba", action="store_true", help="without the comparison; so too where Numba is not installed")
    parser.add_argument("--unlimited", action="store_true", help="whatever compiling costs: without the compile budget")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--settle", type=float, default=SETTLE, help="seconds of calls before those that are compared with Numba's")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one program")
    options = parser.parse_args()
    if options.unlimited:
        dg.config.compile_budget = None
    options.no_numba |= importlib.util.find_spec("numba") is None
    chosen = [p for name, p in LOOPS.items() if not options.names or name.startswith(tuple(options.names))]
    warm_up(not options.no_numba)
    rows = []
    for program in chosen:
        rows.append(measured(program, options))
        show(rows[-1])
    report = summary(rows)
    for key, value in report.items():
        if key != "bars":
            print(f"{key}: {value}")
    for bar, met in report["bars"].items():
        print(f"{'met   ' if met else 'MISSED'} {bar}")
    if options.json:
        options.json.write_text(json.dumps({"cores": os.cpu_count(), "programs": rows, "summary": report}, indent=2) + "\n")


if __name__ == "__main__":
    main()
