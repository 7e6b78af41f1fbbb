"""What the C compiler takes long for is compiled quickly first, and with all optimisations beside the calls."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, tiers, toolchain
from dynagraph.backends.c import backend
from dynagraph.driver import loading
from dynagraph.errors import CompilerError
from tests.test_background_compilers import Compiler, ends

pytestmark = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")
X = np.arange(20.0)
PATIENCE = 30.0  # seconds
QUICK, FULL = 1, 2  # runs of the compiler so far


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Which keeps those waiting, until it is opened, who want all optimisations."""
    loading.compiler()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path / "temporary"))
    made = Compiler(tmp_path)
    script = made.path.read_text()
    made.path.write_text(script.replace("  while", '  case "$*" in *-O1*) exec cc "$@";; esac\n  while'))
    with dg.config.override(cc=str(made.path), cache_dir=str(tmp_path / "cache"), tiers="both"):
        kernel_cache.compiler()
        yield made
        kernel_cache.stop_compilers()
        assert not kernel_cache._making
    for kept in (tmp_path / "temporary").glob(f"{toolchain.REFUSED}*"):
        kept.unlink()
    assert not list((tmp_path / "temporary").iterdir())


GRAPH = """
def program(x):
    return (x * 2 - 7).sum()
"""
PROGRAM = """
def program(x, d=3):
    s = 0.0
    for k in range(len(x)):
        s += x[k] * (k + 1) / (d - k if d < 0 else 7)
    return s
"""


def made(source: str = PROGRAM) -> Any:
    """Another function each time, with the same kernel."""
    names: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), names)
    return names["program"]


program = made()


@pytest.fixture(params=[PROGRAM, GRAPH], ids=["loop", "graph"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a native loop, and of a program that is a graph."""
    monkeypatch.setattr(backend, "WORTH_TIERS", 0)
    monkeypatch.setitem(globals(), "program", made(request.param))
    yield request.param


def call_until(f: Any, done: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        assert f(X) == program(X)
        time.sleep(0.003)


def is_improved(f: Any) -> bool:
    return all(better.found for better in f.stats.tiers)


def test_better_code_comes_while_the_first_is_in_use(compiler: Compiler, source: str) -> None:
    f = dg.compile(made(source))
    assert f(X) == program(X)
    call_until(f, lambda: compiler.begun == FULL)
    for _ in range(50):
        assert f(X) == program(X)
    assert not is_improved(f)
    compiler.open()
    call_until(f, lambda: is_improved(f))
    assert f(X) == program(X) and compiler.begun == FULL
    assert f.stats.compiles == 1 and f.stats.fallbacks == f.stats.unimproved == 0
    assert len(f.stats.native_loops) == (source is PROGRAM) and f.stats.improve_seconds > 0


def test_a_later_program_begins_with_the_best_code(compiler: Compiler, source: str) -> None:
    compiler.open()
    f = dg.compile(made(source))
    call_until(f, lambda: f.stats.tiers and is_improved(f))
    begun = compiler.begun
    g = dg.compile(made(source))
    assert g(X) == program(X) and compiler.begun == begun and not g.stats.tiers


def test_code_that_was_made_quickly_is_kept_too(compiler: Compiler) -> None:
    f = dg.compile(made())
    f(X)
    call_until(f, lambda: compiler.begun == FULL)
    kernel_cache.stop_compilers()
    del f
    g = dg.compile(made())
    assert g(X) == program(X) and len(g.stats.tiers) == 1
    call_until(g, lambda: compiler.begun == FULL + 1)  # again with all optimisations
    compiler.open()
    call_until(g, lambda: is_improved(g))


def test_a_failure_is_counted_and_calls_go_on(compiler: Compiler, source: str, caplog: pytest.LogCaptureFixture) -> None:
    f = dg.compile(made(source))
    f(X)
    compiler.open(fails=True)
    with caplog.at_level(logging.WARNING, "dynagraph.kernels"):
        call_until(f, lambda: f.stats.unimproved)
    assert "stays as it was compiled first" in caplog.text
    assert isinstance(f.stats.tiers[0].failure, CompilerError) and "unimproved 1" in repr(f.stats)
    assert f(X) == program(X) and f.stats.fallbacks == 0 and compiler.begun == FULL


def test_a_failure_is_raised_if_asked_for(compiler: Compiler, source: str) -> None:
    f = dg.compile(made(source))
    f(X)
    compiler.open(fails=True)
    with dg.config.override(strict=True), pytest.raises(CompilerError, match="refused generated code"):
        call_until(f, lambda: f.stats.unimproved > 1)
    assert f(X) == program(X) and f.stats.unimproved == 1


def test_a_forked_child_makes_its_own(compiler: Compiler, source: str) -> None:
    f = dg.compile(made(source))
    f(X)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ok = f(X) == program(X)
            compiler.open()
            call_until(f, lambda: is_improved(f))
            kernel_cache.stop_compilers()
            status = 0 if ok else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    call_until(f, lambda: is_improved(f))
    assert f.stats.unimproved == 0


def test_few_compilers_work_beside_the_calls(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "n_processors", lambda: 2)
    functions = []
    for k in range(3):
        names: dict[str, Any] = {}
        exec(PROGRAM.replace("7", "7.0" + k * "0" + "1" if k else "7"), names)
        functions.append((dg.compile(names["program"]), names["program"]))
        functions[k][0](X)
    call_until(functions[0][0], lambda: compiler.begun == 3 + 1)  # the others' turn comes
    compiler.open()
    end = time.monotonic() + PATIENCE
    while not all(is_improved(f) for f, _ in functions):
        assert time.monotonic() < end
        for f, plain in functions:
            assert f(X) == plain(X)
        time.sleep(0.003)
    assert compiler.begun == 3 + 3


def test_a_call_in_what_interrupts_the_compiler_asks_for_nothing(compiler: Compiler) -> None:
    f = dg.compile(made())
    f(X)
    compiler.open()
    time.sleep(0.003)
    tiers.thread.compiling = True
    try:
        assert f(X) == program(X)
    finally:
        tiers.thread.compiling = False
    call_until(f, lambda: is_improved(f))


def left(x: Any, n: int, d: int) -> Any:
    """Is left for an index, a division by zero, an int beyond 64 bits."""
    s, big = 0.0, 1
    for k in range(n):
        s += x[k] / (k - d)
        big *= 3
    return s, big


@pytest.mark.parametrize(("n", "d"), [(10, 30), (25, 30), (10, 5), (20, 20), (45, 60)])
def test_both_leave_by_the_same_exits(n: int, d: int) -> None:
    x = [float(k) for k in range(50 if d == 60 else 20)]
    outcomes = []
    for choice in ("quick", "best"):
        with dg.config.override(tiers=choice):
            f = dg.compile(left)
            outcomes.append((outcome(f, x, n, d), dict(f.stats.side_exits)))
    assert outcomes[0] == outcomes[1] and outcomes[0][0] == outcome(left, x, n, d)


def outcome(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except (IndexError, ZeroDivisionError) as error:
        return repr(error), error.__traceback__.tb_next is not None  # type: ignore[union-attr]


def test_nothing_is_left_when_the_process_ends(compiler: Compiler, source: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    every = "from dynagraph.backends.c import backend; backend.WORTH_TIERS = 0"
    script.write_text(f"import numpy as np, dynagraph as dg\n{every}\n{source}\nprint(dg.compile(program)(np.arange(20.0)))\n")
    environment = {**os.environ, "DYNAGRAPH_CC": str(compiler.path), "DYNAGRAPH_CACHE_DIR": str(tmp_path / "cache"),
                   "DYNAGRAPH_TIERS": "both", "TMPDIR": str(tmp_path / "temporary")}  # fmt: skip
    command = [sys.executable, "-W", "error", script]  # it would wait for the compiler for ever
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert float(done.stdout) == program(X)
    assert QUICK <= compiler.begun <= FULL
    for pid in compiler.processes:
        ends(pid)


def test_programs_that_are_compiled_in_no_time_are_compiled_once(compiler: Compiler) -> None:
    compiler.open()
    f = dg.compile(made(GRAPH))
    assert f(X) == made(GRAPH)(X) and not f.stats.tiers and f.stats.improve_seconds == 0


def test_a_compiler_beside_the_calls_leaves_them_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "n_processors", lambda: 4)
    source = f"{toolchain.FUNCTIONS} {' '.join(['1'] * 64)} */"
    tools = kernel_cache.compiler()
    assert len(toolchain.parts_of(source, tools.most_processes)) == 4
    assert len(toolchain.parts_of(source, tools.beside.most_processes)) == 3
    assert tools.beside.identity == tools.identity


def test_complex_numbers_are_compiled_once(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc 12 contracts their products where it vectorises them."""
    monkeypatch.setattr(backend, "WORTH_TIERS", 0)
    compiler.open()

    def loop(x: Any, y: Any) -> Any:
        for k in range(len(x)):
            y[k] = x[k] * (1 + 2j)
        return y

    for function in (loop, lambda x, y: x * y):
        f = dg.compile(function)
        f(X + 1j, np.zeros(20, complex))
        assert f.stats.compiles == 1 and not f.stats.tiers


def test_code_that_nobody_asks_for_any_more_keeps_none_waiting(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "n_processors", lambda: 2)
    forgotten, f = dg.compile(made(PROGRAM.replace("7", "8"))), dg.compile(made())
    forgotten(X)
    compiler.open()
    call_until(f, lambda: f.stats.tiers and is_improved(f))
    assert f(X) == program(X) and not is_improved(forgotten)
