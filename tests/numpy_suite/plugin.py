"""A plugin of pytest: every test that passes plainly runs again with its function compiled, and what happens is written down.

    python -m pytest -p tests.numpy_suite.plugin --journal FILE [--runs 2] [--control] [--seconds 60] [--backend NAME] ...

The journal has a line of JSON for each test before it starts and one after it ended, so that a crash can be attributed; tests that
it has when the run begins are left out, so that a run can go on behind a crash.  Of the variants of a parametrised test, and of the
methods that classes inherit, the function is compiled once: later ones meet the programs of earlier ones.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import functools
import json
import time
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import dynagraph as dg
from dynagraph.driver import compilation
from tests.numpy_suite.exclusions import reason_for
from tests.suites import hangs_end, start_clock, stop_clock

SHOWN = 25  # lines of a failure


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal", type=Path, required=True)
    parser.addoption("--one-in", type=int, default=1, help="run one in so many tests, chosen by their names")
    parser.addoption("--runs", type=int, default=2, help="of each compiled test: later ones meet what the first compiled")
    parser.addoption("--control", action="store_true", help="compile nothing")
    parser.addoption("--seconds", type=float, default=60.0, help="for one run of a test")
    parser.addoption("--backend", default="cpu")


def pytest_configure(config: pytest.Config) -> None:
    faulthandler.enable()
    # tests look at the warnings that are given: that a function meets many kinds of arguments is no news here
    compilation.warnings = types.SimpleNamespace(warn=lambda *arguments, **named: None)  # type: ignore[assignment]
    config.pluginmanager.register(Runs(config), "runs plainly and compiled")


class Runs:
    """Runs each test plainly and then compiled, and keeps the journal."""

    def __init__(self, config: pytest.Config):
        self.options = config.option
        self.done = started(self.options.journal)
        self.journal = self.options.journal.open("a")
        self.compiled: dict[types.FunctionType, Any] = {}
        self.compiles = False  # the run of a test that is on now

    def write(self, **line: Any) -> None:
        self.journal.write(json.dumps(line) + "\n")
        self.journal.flush()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if zlib.crc32(name_of(item).encode()) % self.options.one_in == 0]
        items[:] = [item for item in items if name_of(item) not in self.done]
        for module in {item.getparent(pytest.Module).obj for item in items}:
            if hasattr(module, "HAS_REFCOUNT"):  # programs, and the parts behind breaks, hold what they were given
                module.HAS_REFCOUNT = False

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        excluded = reason_for(name_of(item))
        self.write(test=name_of(item))
        outcome = {"outcome": "excluded", "text": excluded} if excluded else self.outcome(item, nextitem)
        self.write(test=name_of(item), **outcome)
        return True

    def pytest_sessionfinish(self) -> None:
        self.write(breaks=sum(sum(c.stats.breaks.values()) for c in self.compiled.values()),
                   compiles=sum(c.stats.compiles for c in self.compiled.values()))

    def outcome(self, item: pytest.Item, nextitem: pytest.Item | None) -> dict[str, Any]:
        """What a test came to: how its plain run ended, where it did not pass; otherwise whether the compiled runs passed."""
        start = time.perf_counter()
        plain, text = self.run(item, nextitem)
        plain_seconds = time.perf_counter() - start
        if plain != "passed":
            return {"outcome": f"plainly {plain}", "text": text}
        start = time.perf_counter()
        for number in range(1, self.options.runs + 1):
            self.compiles = not self.options.control
            try:
                compiled, text = self.run(item, nextitem)
            finally:
                self.compiles = False
            if compiled != "passed":
                return {"outcome": "failed", "text": f"{compiled}: {text}", "run": number}
        return {"outcome": "passed", "plain_seconds": plain_seconds, "compiled_seconds": time.perf_counter() - start}

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> tuple[str, str]:
        with hangs_end(self.options.seconds):
            start_clock(self.options.seconds)
            try:
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
            finally:
                stop_clock()
        for report in reports:
            if report.outcome != "passed":
                return report.outcome, short(str(report.longrepr))
        return "passed", ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[Any]:
        if not self.compiles:
            return (yield)
        holder, name, function = inner_function(item)
        compiled = self.compiled.get(function)
        if compiled is None:
            compiled = self.compiled[function] = dg.compile(function, backend=self.options.backend)
        if getattr(compiled.decorated.compilation, "full", False):  # of programs for other variants: this one would run plainly
            compiled.reset()
        fallbacks = compiled.stats.fallbacks
        with replaced(holder, name, in_python(compiled) if holder is not item else compiled):
            result = yield
        if compiled.stats.fallbacks > fallbacks:
            raise AssertionError("the compiler failed") from compiled.stats.last_error
        return result


def inner_function(item: Any) -> tuple[Any, str, types.FunctionType]:
    """The function of a test, and where it stands."""
    if hasattr(item.obj, "hypothesis"):
        return item.obj.hypothesis, "inner_test", item.obj.hypothesis.inner_test
    return item, "obj", getattr(item.obj, "__func__", item.obj)


def in_python(compiled: Any) -> types.FunctionType:
    """What hypothesis takes: it looks at signatures of functions only."""

    @functools.wraps(compiled)
    def call(*arguments: Any, **named: Any) -> Any:
        return compiled(*arguments, **named)

    return call


@contextlib.contextmanager
def replaced(holder: Any, name: str, compiled: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, types.MethodType(compiled, before.__self__) if isinstance(before, types.MethodType) else compiled)
    try:
        yield
    finally:
        setattr(holder, name, before)


def name_of(item: pytest.Item) -> str:
    """A test's id from its package on: _core/tests/test_ufunc.py::TestUfunc::test_sum[f]."""
    return item.nodeid


def short(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(line[:300] for line in (lines if len(lines) <= SHOWN else [*lines[:4], "...", *lines[5 - SHOWN:]]))


def started(journal: Path) -> collections.Counter[str]:
    lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return collections.Counter(line["test"] for line in lines if "test" in line)
