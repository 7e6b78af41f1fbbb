"""The C compiler goes on beside plain calls where an attempt's deadline comes while it works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, toolchain
from dynagraph.backends.kernel_cache import get_library, kernels_of
from dynagraph.driver import budget as accounts
from dynagraph.driver import compilation, deadline, loading
from dynagraph.driver.budget import Ledger
from dynagraph.errors import CompilerError, CompilerTimeoutError

pytestmark = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")
X = np.arange(20.0)
PATIENCE = 30.0  # seconds
KERNELS = 2  # of `program`: its graph's and its loop's
SOURCE = "/* dg_runtime */ int answer(void) {{ return {}; }}"


class Compiler:
    """A C compiler that waits for `open` before it compiles programs; `begun`: how often it was asked to."""

    def __init__(self, folder: Path):
        self.gate, self.log = folder / "gate", folder / "log"
        self.path = folder / "cc"
        self.path.write_text(
            "#!/bin/sh\n"
            f"if grep -q dg_runtime kernel.c 2>/dev/null; then echo $$ >> {self.log}\n"
            f"  while [ ! -e {self.gate} ]; do sleep 0.01; done; [ -s {self.gate} ] && exit 1\n"
            'fi\nexec cc "$@"\n'
        )
        self.path.chmod(0o755)

    def open(self, fails: bool = False) -> None:
        self.gate.with_suffix(".new").write_text("no" if fails else "")
        self.gate.with_suffix(".new").rename(self.gate)

    @property
    def processes(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    @property
    def begun(self) -> int:
        return len(self.processes)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    loading.compiler()
    monkeypatch.setattr(accounts, "PROCESS", Ledger(accounts.FUNCTIONS_WORTH))
    monkeypatch.setattr(accounts, "_of_code", {})
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path / "temporary"))
    made = Compiler(tmp_path)
    with dg.config.override(cc=str(made.path), cache_dir=str(tmp_path / "cache")), warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.CompileBudgetWarning)
        kernel_cache.compiler()  # is asked what it is
        with dg.config.override(compile_budget=0.3):
            yield made
        kernel_cache.stop_compilers()
        assert not kernel_cache._making
    assert not list((tmp_path / "temporary").iterdir())


PROGRAM = """
def program(x):
    s = x.sum()
    for k in range(len(x)):
        s += x[k] * (k + 1)
    return s
"""


def compiled_program() -> Any:
    """Another function each time, with the same kernels."""
    return dg.compile(made())


def made() -> Any:
    names: dict[str, Any] = {}
    exec(compile(PROGRAM, __file__, "exec"), names)
    return names["program"]


program = made()


def wait_for(function: Any, done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        assert function(X) == program(X)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return capture(*args, **kwargs)

    capture = compilation.capture
    monkeypatch.setattr(compilation, "capture", counted)
    return seen


@pytest.mark.parametrize("cache", [True, False])
def test_what_the_compiler_makes_after_the_deadline_is_used(compiler: Compiler, captures: list[Any], cache: bool) -> None:
    f = compiled_program()
    with dg.config.override(cache=cache):
        if not cache:
            kernel_cache.compiler()
        for _ in range(200):
            assert f(X) == program(X)
        assert f.stats.compiles == 0 and f.stats.put_off == 1
        assert any("the C compiler takes longer than plain calls have earned" in reason for reason in f.stats.breaks)
        compiler.open()
        wait_for(f, lambda: f.stats.compiles > 0)
    assert len(captures) == 1 and compiler.begun == KERNELS  # nothing was done twice
    assert f.stats.fallbacks == 0 and len(f.stats.native_loops) == 1


def test_a_kernel_that_nobody_asks_for_again_is_kept(compiler: Compiler) -> None:
    with pytest.raises(deadline.OutOfTime), deadline.within(0.05):
        get_library(SOURCE.format(1))
    compiler.open()
    end = time.monotonic() + PATIENCE
    while kernel_cache._making and time.monotonic() < end:
        time.sleep(0.01)
        kernel_cache.look()
    assert get_library(SOURCE.format(1)).from_cache and compiler.begun == 1


def test_a_deadline_in_python_leaves_the_compiler_at_work(compiler: Compiler) -> None:
    with pytest.raises(deadline.OutOfTime), deadline.within(0.02):
        kernels_of(SOURCE.format(2))
        while True:
            deadline.check()
    compiler.open()
    assert not get_library(SOURCE.format(2)).from_cache and compiler.begun == 1


def test_what_another_thread_has_begun_is_waited_for(compiler: Compiler) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(get_library(SOURCE.format(3)).library)) for _ in range(3)]
    kernels_of(SOURCE.format(3))
    for thread in threads:
        thread.start()
    compiler.open()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == 3 and len(set(map(id, found))) == 1 and compiler.begun == 1


@pytest.mark.parametrize("budget", [0.3, None], ids=["little is left", "no budget"])
def test_a_compiler_that_fails_after_the_deadline_fails_once(compiler: Compiler, budget: float | None) -> None:
    f = compiled_program()
    f(X)
    compiler.open(fails=True)
    with dg.config.override(compile_budget=budget):
        wait_for(f, lambda: f.stats.fallbacks > 0)
    assert isinstance(f.stats.last_error, CompilerError) and "refused generated code" in str(f.stats.last_error)
    assert compiler.begun == KERNELS and f.stats.compiles == 0
    for kept in Path(toolchain.tempfile.gettempdir()).glob(f"{toolchain.REFUSED}*"):
        kept.unlink()


def test_a_compiler_that_does_not_end_is_stopped(compiler: Compiler) -> None:
    f = compiled_program()
    with dg.config.override(compiler_timeout=0.8):
        f(X)
        wait_for(f, lambda: f.stats.fallbacks > 0)
        for pid in compiler.processes:
            ends(pid, kernel_cache.look)
    assert isinstance(f.stats.last_error, CompilerTimeoutError)


def test_few_compilers_work_unasked(compiler: Compiler) -> None:
    for k in range(kernel_cache.MOST_LEFT + 2):
        with pytest.raises(deadline.OutOfTime), deadline.within(0.05):
            get_library(SOURCE.format(100 + k))
    assert len(kernel_cache._making) == kernel_cache.MOST_LEFT


def test_others_may_wait_for_our_processes(compiler: Compiler) -> None:
    """As a program does that calls os.wait() in a loop."""
    f = compiled_program()
    f(X)
    compiler.open()
    left = set(compiler.processes)
    while left:
        left.discard(os.wait()[0])
    wait_for(f, lambda: f.stats.compiles > 0)


def test_what_a_class_was_before_is_captured_anew(compiler: Compiler, captures: list[Any]) -> None:
    class Model:
        def step(self, x: Any) -> Any:
            return np.exp(x) + 1

    def other(self: Any, x: Any) -> Any:
        return np.exp(x) + 2

    model = Model()
    f = dg.compile(lambda x: model.step(x))
    f(X)
    Model.step = other  # type: ignore[method-assign]
    compiler.open()
    end = time.monotonic() + PATIENCE
    with dg.config.override(compile_budget=None):
        while not f.stats.hits:
            assert time.monotonic() < end
            np.testing.assert_allclose(f(X), np.exp(X) + 2)
    assert f.stats.fallbacks == 0 and len(captures) > 1


def test_a_reset_forgets_what_was_begun(compiler: Compiler, captures: list[Any]) -> None:
    f = compiled_program()
    f(X)
    f.reset()
    assert not f.decorated.compilation.begun
    compiler.open()
    with dg.config.override(compile_budget=None):
        wait_for(f, lambda: f.stats.compiles > 0)
    assert len(captures) == 2


def test_a_forked_child_leaves_the_parents_compilers_alone(compiler: Compiler) -> None:
    f = compiled_program()
    f(X)
    begun = compiler.processes
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ok = f(X) == program(X)
            compiler.open()
            with dg.config.override(compile_budget=None):
                wait_for(f, lambda: f.stats.compiles > 0)
            kernel_cache.stop_compilers()
            status = 0 if ok else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_for(f, lambda: f.stats.compiles > 0)
    assert set(begun) <= set(compiler.processes) and f.stats.fallbacks == 0


EXITS = {
    "the end": "",
    "an exception": "raise SystemExit(0)",
    "a process of multiprocessing": """
import multiprocessing
def work():
    begin(78)
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
assert process.exitcode == 0
""",
}


@pytest.mark.parametrize("end", EXITS.values(), ids=EXITS)
def test_nothing_is_left_when_the_process_ends(compiler: Compiler, tmp_path: Path, end: str) -> None:
    script = """
import dynagraph as dg
from dynagraph.backends.kernel_cache import get_library
from dynagraph.driver import deadline
def begin(k):
    try:
        with deadline.within(0.3):
            get_library("/* dg_runtime */ int answer(void) { return %d; }" % k)
    except deadline.OutOfTime:
        pass
begin(77)
"""
    environment = {**os.environ, "DYNAGRAPH_CC": str(compiler.path), "DYNAGRAPH_CACHE_DIR": str(tmp_path / "cache"),
                   "TMPDIR": str(tmp_path / "temporary")}  # fmt: skip
    subprocess.run([sys.executable, "-W", "error", "-c", script + end], env=environment, check=True)
    assert compiler.begun >= 1 + ("multiprocessing" in end)
    for pid in compiler.processes:
        ends(pid)


def test_a_signals_handler_may_come_while_the_compiler_is_waited_for(compiler: Compiler) -> None:
    f = compiled_program()

    def handler(number: int, frame: Any) -> None:
        seen.append(f(X))
        compiler.open()

    seen: list[Any] = []
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with dg.config.override(compile_budget=None):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            assert f(X) == program(X)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [program(X)] and f.stats.compiles == 1


def ends(pid: int, look: Callable[[], None] = lambda: None) -> None:
    give_up = time.monotonic() + PATIENCE
    while is_running(pid):
        assert time.monotonic() < give_up
        time.sleep(0.01)
        look()


def is_running(pid: int) -> bool:
    """Not gone, nor dead and waiting for whoever inherits it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
