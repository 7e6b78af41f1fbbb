"""What capture, guards and breaks cost, measured: ``python benchmarks/frontend.py [--json FILE]``.

Times are medians of interleaved rounds in one process; on a shared machine read them as ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

# programs are measured, not whether they are worth their compiling
os.environ |= {"DYNAGRAPH_COMPILE_BUDGET": "unlimited", "DYNAGRAPH_STAY_EAGER": "0"}

import dynagraph as dg
from dynagraph.frontend.executor.capture import capture

ROUNDS = 25


def seconds_per_call(function: Callable[[], Any], calls: int = 20_000) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def medians(*functions: Callable[[], Any], calls: int = 20_000) -> list[float]:
    """The median time of a call of each function, in interleaved rounds."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, found in zip(functions, times):
            found.append(seconds_per_call(function, calls))
    return [statistics.median(t) for t in times]


# -- guards -----------------------------------------------------------------------------------------------------------------


class Base:
    bias = 1.0

    def scaled(self, x: Any) -> Any:
        return x * self.scale  # type: ignore[attr-defined]


class Middle(Base):
    gain = 2.0


class Model(Middle):
    def __init__(self) -> None:
        self.scale, self.shift, self.a, self.b, self.c, self.d, self.e = (float(k + 1) for k in range(7))


def guarded_function() -> Callable[..., Any]:
    """A function that reads 20 globals and 10 attributes through 3 classes."""
    scope: dict[str, Any] = {f"g{k}": float(k) for k in range(20)}
    names = " + ".join(scope)
    attributes = " + ".join(f"m.{n}" for n in ("shift", "a", "b", "c", "d", "e", "bias", "gain", "scale"))
    exec(f"def f(x, m):\n    return m.scaled(x) + ({names}) + ({attributes})\n", scope)
    return scope["f"]


def guard_cost() -> dict[str, float]:
    x, model = np.ones(4), Model()
    many = dg.compile(guarded_function(), dynamic=False)
    few = dg.compile(lambda x, m: x * 3.0 + 1.0, dynamic=False)
    for f in (many, few):
        f(x, model), f(x, model)
    assert many.stats.hits == 1, many.stats
    dispatched, plain = medians(lambda: many(x, model), lambda: few(x, model))
    return {"call with 20 globals and 10 attributes [us]": 1e6 * dispatched, "call without [us]": 1e6 * plain}


# -- capture ----------------------------------------------------------------------------------------------------------------


def hundred_operations() -> FunctionType:
    lines = [f"    y = y * {k}.5 + x" if k % 2 else "    y = np.tanh(y) - x" for k in range(50)]
    scope: dict[str, Any] = {"np": np}
    exec("def f(x):\n    y = x\n" + "\n".join(lines) + "\n    return y\n", scope)
    return scope["f"]


def capture_cost() -> dict[str, float]:
    x, times = np.ones(8), []
    for _ in range(ROUNDS):
        function = hundred_operations()  # a new code object: nothing of it is cached
        start = time.perf_counter()
        captured = capture(function, (x,))
        times.append(time.perf_counter() - start)
    operations = sum(n.kind == "call_function" and not n.is_op("constant") for n in captured.graph.nodes)
    return {"operations": operations, "capture [ms]": 1e3 * statistics.median(times)}


# -- breaks -----------------------------------------------------------------------------------------------------------------


def opaque(x: Any) -> Any:
    return x


def break_cost() -> dict[str, float]:
    """One break between two graphs, against the two graphs and the call in between."""
    stop = dg.disable(opaque)

    def broken(x: Any) -> Any:
        y = x * 2.0
        y = stop(y)
        return y + 1.0

    whole = dg.compile(broken)
    first, second = dg.compile(lambda x: x * 2.0, dynamic=False), dg.compile(lambda y: y + 1.0, dynamic=False)
    x = np.ones(16)
    for _ in range(3):
        whole(x), second(first(x))
    assert sum(whole.stats.breaks.values()) == 1, whole.stats
    together, parts = medians(lambda: whole(x), lambda: second(stop(first(x))))
    return {"with a break [us]": 1e6 * together, "its parts [us]": 1e6 * parts, "a break costs [us]": 1e6 * (together - parts)}


# -- other code -------------------------------------------------------------------------------------------------------------


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def other_code(before: float) -> dict[str, float]:
    after = statistics.median(seconds_per_call(lambda: fib(20), 5) for _ in range(ROUNDS))
    return {"fib(20) before [ms]": 1e3 * before, "after [ms]": 1e3 * after, "ratio": after / before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the figures to this file too")
    options = parser.parse_args()
    before = statistics.median(seconds_per_call(lambda: fib(20), 5) for _ in range(ROUNDS))
    found = {
        "python": sys.version.split()[0],
        "guards": guard_cost(),
        "capture": capture_cost(),
        "breaks": break_cost(),
        "other code": other_code(before),
    }
    for section, figures in found.items():
        if isinstance(figures, dict):
            for name, value in figures.items():
                print(f"{section:12s} {name:48s} {value:10.3f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
