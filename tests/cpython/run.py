"""Runs a test module of CPython plainly, and then with every test method compiled; reports as JSON what only fails compiled.

    python tests/cpython/run.py test_generators [--runs 2] [--control] [--only NAME] [--one-in 4] [--seconds 20]

A test method is a function named test* in a class of the module's suite, wherever in its bases it is defined.  Functions that
doctests define are compiled too, as some modules consist of nothing else.  `--control` leaves everything plain: what fails then is
not repeatable within a process, and no fault of the compiler.  `--only` keeps the tests whose id contains NAME, `--one-in` one in
so many, chosen by their ids.  The running test's id is on stderr, so that a crash can be attributed.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import doctest
import faulthandler
import gc
import importlib
import json
import os
import sys
import tempfile
import time
import types
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]  # a script's own folder
sys.path.insert(0, str(HERE.parents[1]))

import dynagraph as dg  # noqa: E402
from tests.cpython.exclusions import excluded  # noqa: E402
from tests.suites import SHOWN, hangs_end, start_clock, stop_clock  # noqa: E402
from tests.suites import short as shortened  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--runs", type=int, default=2, help="of the compiled suite: later ones meet what the first compiled")
    parser.add_argument("--control", action="store_true", help="compile nothing")
    parser.add_argument("--only", default="", help="keep the tests whose id contains this")
    parser.add_argument("--one-in", type=int, default=1, help="keep one in so many tests")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one test")
    options = parser.parse_args()
    report_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print does not belong to the report
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            report = run_module(options)
        finally:
            os.chdir("/")
    json.dump(report, report_to, indent=1)
    report_to.write("\n")
    report_to.close()
    sys.stderr.flush()
    os._exit(0)  # threads and atexit handlers of tests are no business of ours


def run_module(options: argparse.Namespace) -> dict[str, Any]:
    module = importlib.import_module(f"test.{options.module}")
    start = time.perf_counter()
    with warnings.catch_warnings():
        plain = run_suite(module, options, "plain")
    plain_seconds = time.perf_counter() - start
    compiled = [] if options.control else compile_tests(module)
    start = time.perf_counter()
    failures: dict[str, dict[str, str]] = {}
    ran = 0
    with dg.config.override(strict=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.RecompileLimitWarning)
        for number in range(1, options.runs + 1):
            result = run_suite(module, options, f"compiled {number}")
            ran += len(result.passed)
            for name, text in result.failed.items():
                if name in plain.passed:
                    failures.setdefault(name, {"run": str(number), "traceback": text})
    breaks = collections.Counter[str]()
    for function in compiled:
        breaks.update(function.stats.breaks)
    return {
        "module": options.module,
        "python": sys.version.split()[0],
        "plain_passed": len(plain.passed),
        "plain_failed": sorted(plain.failed),
        "compiled_passed": ran,
        "methods_compiled": len(compiled),
        "fallbacks": sum(f.stats.fallbacks for f in compiled),
        "compiles": sum(f.stats.compiles for f in compiled),
        "breaks": sum(breaks.values()),
        "plain_seconds": round(plain_seconds, 2),
        "compiled_seconds": round(time.perf_counter() - start, 2),
        "failures": [{"id": name, **failure} for name, failure in failures.items()],
    }


# -- running ---------------------------------------------------------------------------------------------------------------------


class Result(unittest.TestResult):
    """Names of the tests that passed and the short tracebacks of those that did not; a subtest counts for its test."""

    def __init__(self, phase: str, seconds: float):
        super().__init__()
        self.phase, self.seconds = phase, seconds
        self.passed: set[str] = set()
        self.failed: dict[str, str] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        print(f"{self.phase}: {test.id()}", file=sys.__stderr__, flush=True)
        start_clock(self.seconds)

    def stopTest(self, test: Any) -> None:
        stop_clock()
        super().stopTest(test)

    def addSuccess(self, test: Any) -> None:
        self.passed.add(test.id())

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.passed.add(test.id())

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.failed[test.id()] = "unexpected success"

    def addFailure(self, test: Any, err: Any) -> None:
        self.failed.setdefault(test.id(), short(err))

    addError = addFailure

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.failed.setdefault(test.id(), f"{subtest._subDescription()}\n{short(err)}")


def short(err: tuple) -> str:
    of_example = issubclass(err[0], doctest.DocTestCase.failureException) and "Failed example" in str(err[1])
    return shortened(err, 5 * SHOWN if of_example else SHOWN)


def run_suite(module: types.ModuleType, options: argparse.Namespace, phase: str) -> Result:
    result = Result(phase, options.seconds)
    tests = [t for t in flat(suite_of(module)) if options.only in t.id() and not excluded(t)]
    tests = [t for t in tests if zlib.crc32(t.id().encode()) % options.one_in == 0]
    gc.collect()
    with hangs_end(options.seconds):
        unittest.TestSuite(tests).run(result)
    result.passed -= set(result.failed)
    return result


def suite_of(module: types.ModuleType) -> unittest.TestSuite:
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def flat(suite: Any) -> Iterator[Any]:
    if isinstance(suite, unittest.TestSuite):
        for test in suite:
            yield from flat(test)
    elif suite is not None:
        yield suite


# -- compiling -------------------------------------------------------------------------------------------------------------------


def compile_tests(module: types.ModuleType) -> list[Any]:
    """Replace every test method, where it is defined, and have doctests compile the functions that they define."""
    compiled: list[Any] = []
    done: set[type] = {object, unittest.TestCase}
    for test in flat(suite_of(module)):
        for kind in type(test).__mro__:
            if kind in done or kind.__module__.split(".")[0] in ("unittest", "doctest"):
                continue
            done.add(kind)
            for name, value in list(vars(kind).items()):
                if name.startswith("test") and isinstance(value, types.FunctionType):
                    compiled.append(dg.compile(value, backend="reference"))
                    setattr(kind, name, compiled[-1])
    doctest.exec = exec_of(compiled)  # type: ignore[attr-defined]
    return compiled


def exec_of(compiled: list[Any]) -> Callable:
    """The exec of doctest's runner: examples run plainly, and the functions that they bind to names are compiled."""

    def run(code: types.CodeType, names: dict[str, Any]) -> None:
        before = dict(names)
        try:
            builtins.exec(code, names)
        finally:
            for name, value in list(names.items()):
                if type(value) is not types.FunctionType or before.get(name) is value:
                    continue
                if value.__code__.co_filename == code.co_filename:
                    names[name] = dg.compile(value, backend="reference")
                    compiled.append(names[name])

    return run


if __name__ == "__main__":
    main()
