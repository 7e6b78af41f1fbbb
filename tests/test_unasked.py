"""Functions that nobody asked to have compiled: at no budget's cost, beside the calls, and with the same bits at any time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, toolchain
from dynagraph.driver import budget, loading
from dynagraph.driver.background import WORK, Background
from dynagraph.driver.budget import Ledger
from dynagraph.driver.unasked import NO_COMPILER, compile_unasked, stand_in

from .test_background_compilers import Compiler

pytestmark = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")
X = np.linspace(-3, 3, 1000, dtype=np.float32)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """One that waits for `open`; nothing may be spent on compiling."""
    loading.compiler()
    monkeypatch.setattr(budget, "PROCESS", Ledger(0.0))
    made = Compiler(tmp_path)
    with dg.config.override(cc=str(made.path), cache_dir=str(tmp_path / "cache"), compile_budget=1e-9):
        kernel_cache.compiler()  # is asked what it is
        yield made
        made.open()
        WORK.wait()


def exact() -> Any:
    return compile_unasked(lambda x, y: x * y + y, exact=True)


def inexact() -> Any:
    return compile_unasked(lambda x: np.exp(x), exact=False)


def test_calls_of_an_exact_function_run_plainly_until_it_is_compiled(compiler: Compiler) -> None:
    f = exact()
    for _ in range(3):
        assert (f(X, X) == X * X + X).all()
    assert (f.stats.hits, f.stats.compiles) == (0, 0)
    compiler.open()
    WORK.wait()
    assert (f(X, X) == X * X + X).all() and compiler.begun == 1
    assert f.stats.compiles == 1 and f.stats.hits + f.stats.stayed_eager == 1
    assert budget.PROCESS.spent == 0.0


def test_calls_of_an_inexact_function_wait_for_it(compiler: Compiler) -> None:
    f, plain = inexact(), np.exp(X)
    threading.Timer(0.2, compiler.open).start()
    first = f(X)
    assert f.stats.compiles == 1 and np.allclose(first, plain, rtol=1e-6)
    for _ in range(20):  # never plainly, to see which way is faster
        assert f(X).tobytes() == first.tobytes()
    assert f.stats.stayed_eager == 0


def test_what_cannot_be_compiled_stays_plain(compiler: Compiler) -> None:
    compiler.open(fails=True)
    f, plain = inexact(), np.exp(X)
    for _ in range(40):  # compiled functions of users would be tried again
        assert f(X).tobytes() == plain.tobytes()
    assert (f.stats.compiles, f.stats.fallbacks, compiler.begun) == (0, 1, 1)


def test_a_kind_of_arguments_at_a_time(compiler: Compiler) -> None:
    compiler.open()
    f = inexact()
    for x in (X, X.reshape(10, 100), X.reshape(10, 100).T, X[::-3]):
        assert np.allclose(f(x), np.exp(x))
        before = f.stats.compiles
        f(x)
        assert f.stats.compiles == before


def test_without_a_c_compiler_calls_run_plainly_and_say_so(monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    monkeypatch.setattr("dynagraph.driver.compiler.find_compiler", lambda: None)
    f, g = exact(), inexact()
    for _ in range(3):
        assert (f(X, X) == X * X + X).all() and (g(X) == np.exp(X)).all()
        WORK.wait()
    assert f.stats.breaks == g.stats.breaks == {NO_COMPILER: 1}
    assert not recwarn.list


def test_disabled_functions_and_stances_are_heeded(compiler: Compiler) -> None:
    compiler.open()
    f = inexact()
    with dg.disable():
        f(X)
    with dg.stance("force_eager"):
        f(X)
    assert f.stats.compiles == 0
    with dg.stance("fail_on_recompile"):  # it is about functions of the user's
        f(X), f(X.astype(np.float64))
    assert f.stats.compiles == 2


def test_complex_numbers_stay_with_numpy(compiler: Compiler) -> None:
    f, z = exact(), X + 1j * X
    assert (f(z, z) == z * z + z).all()
    WORK.wait()
    assert compiler.begun == 0


def test_stand_ins_have_the_layout_of_arrays() -> None:
    base = np.zeros((4, 6))
    frozen = np.broadcast_to(np.ones(()), (3,))
    for array in (base, base.T, base[::2, ::-3], base[:, ::-1], frozen, base[:0]):
        other = stand_in(array)
        assert (other.shape, other.strides, other.dtype) == (array.shape, array.strides, array.dtype)
        assert other.flags.writeable == array.flags.writeable and not np.may_share_memory(other, array)


def test_jobs_run_once_and_the_thread_goes() -> None:
    work, ran, gate = Background(), [], threading.Event()
    for key in "aba":
        work.submit(key, lambda key=key: (gate.wait(), ran.append(key)))  # type: ignore[misc]
    assert work.is_busy_with("a")
    gate.set()
    work.wait()
    assert ran == ["a", "b"] and not work.is_busy_with("a") and work._thread is None
    work.end()
    work.submit("c", lambda: ran.append("c"))
    assert work._thread is None and ran == ["a", "b"]


ENDS = """
import os, sys, time
import numpy as np, dynagraph as dg
from dynagraph.driver import loading
from dynagraph.driver.background import WORK
from dynagraph.driver.unasked import compile_unasked
f = compile_unasked(lambda x: x * x + 1, exact=True)
x = np.ones(1000)
f(x)
if sys.argv[1] == "fork":
    pid = os.fork()
    if pid == 0:
        f(x); WORK.wait(); f(x)
        os._exit(0 if f.stats.compiles == 1 else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
if sys.argv[1] == "compiling":
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
"""


@pytest.mark.parametrize("when", ["at once", "compiling", "fork"])
def test_the_process_ends_quietly_whatever_the_thread_does(tmp_path: Path, when: str) -> None:
    made = Compiler(tmp_path)
    if when != "compiling":
        made.open()
    switches = {"DYNAGRAPH_CC": str(made.path), "DYNAGRAPH_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ENDS, when, str(made.log)],
        env={**os.environ, **switches}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("dynagraph-compile-*"))
