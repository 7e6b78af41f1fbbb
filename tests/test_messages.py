"""What dynagraph says to people: switches, wrong arguments, errors under fullgraph=True."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

X = np.arange(6.0)


# -- switches -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, value",
    [
        ("threads", 2**70), ("threads", 1001), ("threads", 0), ("threads", True), ("threads", np.array([1, 2])),
        ("threads", "many"), ("log", np.zeros(3)), ("log", [1]), ("log", 5), ("log", None), ("log", "nothing"),
        ("strict", np.zeros(2)), ("strict", 1.0), ("cache_limit", 2**63), ("pool_limit", 2**70), ("entry_limit", 2**64),
        ("unroll_limit", 1e3), ("cache_dir", 7), ("cache_dir", np.zeros(2)), ("cache_dir", b"bytes"),
    ],
)  # fmt: skip
def test_a_bad_value_changes_nothing(name: str, value: Any) -> None:
    before = getattr(dg.config, name)
    with pytest.raises(dg.ConfigError, match=rf"^config\.{name}=.*: expected "):
        setattr(dg.config, name, value)
    assert getattr(dg.config, name) is before


def test_threads_up_to_the_most() -> None:
    with dg.config.override(threads=1000):
        assert dg.config.threads == 1000


def test_an_unknown_switch_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"did you mean threads\?"):
        dg.config.thread = 2
    with pytest.raises(AttributeError, match="a switch cannot be deleted"):
        del dg.config.threads


def imported_with(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", "import dynagraph"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


def test_an_unknown_variable_is_told_of_once() -> None:
    done = imported_with(DYNAGRAPH_THREAD="2")
    assert done.returncode == 0
    assert done.stderr.count("the environment variable DYNAGRAPH_THREAD is none of dynagraph's") == 1
    assert "did you mean DYNAGRAPH_THREADS?" in done.stderr
    assert "it knows DYNAGRAPH_THREADS, " in imported_with(DYNAGRAPH_QQQ="").stderr
    assert imported_with("-W", "error", DYNAGRAPH_TYPO="1").returncode == 1
    assert not imported_with(DYNAGRAPH_THREADS="2").stderr


# -- wrong arguments ------------------------------------------------------------------------------------------------------
def plain(x: Any) -> Any:
    return x + 1


class Callable:
    def __call__(self, x: Any) -> Any:
        return x + 1


@pytest.mark.parametrize(
    "thing, cure",
    [
        (functools.partial(plain), r"functools\.partial\(dg\.compile\(p\.func\), \*p\.args, \*\*p\.keywords\)"),
        (np.sin, "compile the Python function that calls it"),
        (X.sum, "compile the Python function that calls it"),
        (print, "compile the Python function that calls it"),
        (functools.lru_cache(plain), "compile the function that it wraps"),
        (Callable(), r"dg\.compile\(lambda \*args: obj\(\*args\)\)"),
        (dict, "compile its methods"),
        (5, "which cannot be called"),
    ],
)  # fmt: skip
def test_what_is_no_function(thing: Any, cure: str) -> None:
    with pytest.raises(TypeError, match=rf"^compile: expected a function written in Python, got .*; .*{cure}"):
        dg.compile(thing)


def test_these_cures_work() -> None:
    p, obj = functools.partial(np.add, 1), Callable()
    q = functools.partial(plain)
    for compiled in (
        functools.partial(dg.compile(q.func), *q.args, **q.keywords),
        dg.compile(lambda *args: obj(*args), fullgraph=True),
        dg.compile(lambda x: p(x), fullgraph=True),
        dg.compile(functools.lru_cache(plain).__wrapped__, fullgraph=True),
        dg.compile(obj.__call__, fullgraph=True),
    ):
        np.testing.assert_array_equal(compiled(X), X + 1)


@pytest.mark.parametrize("thing", [print, np.sin, 5, dict, Callable()])
def test_disable_says_what_it_takes(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"^disable: expected a function written in Python"):
        dg.disable(thing)
    assert not hasattr(thing, "__dynagraph_disabled__")


def test_disable_of_a_method() -> None:
    class Model:
        def step(self, x: Any) -> Any:
            return x * 2

    model = Model()
    assert dg.disable(model.step)(X) is not None
    with pytest.raises(dg.CaptureError, match=r"dg\.disable was applied"):
        dg.compile(lambda x: model.step(x) + 1, fullgraph=True)(X)


# -- errors of the program's own ------------------------------------------------------------------------------------------
def raises_itself(x: Any) -> Any:
    raise KeyError("mine")


CAUGHT = ValueError("made elsewhere")


def catches(x: Any) -> Any:
    try:
        raise CAUGHT
    except ValueError:
        return x + 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + np.ones(4), lambda x: x.reshape(4, 4), lambda x: np.stack([x, x[1:]]), lambda x: x.sum(axis=3),
        lambda x: x[10] + x.reshape(5, 5), raises_itself, lambda x: x if x else 0,
    ],
)  # fmt: skip
def test_fullgraph_raises_what_the_program_raises(function: Any) -> None:
    with pytest.raises(Exception) as wanted:
        function(X)
    compiled = dg.compile(function, fullgraph=True)
    for _ in range(2):
        with pytest.raises(wanted.type) as got:
            compiled(X)
        assert str(got.value) == str(wanted.value) and not isinstance(got.value, dg.DynagraphError)
        assert not any(e.frame.f_globals["__name__"].startswith("dynagraph") for e in got.traceback)
        assert any(e.frame.code.raw is function.__code__ for e in got.traceback)  # at the user's line


def test_fullgraph_never_runs_plainly_unnoticed() -> None:
    with pytest.raises(dg.CaptureError, match="--reason would-raise"):
        dg.compile(catches, fullgraph=True)(X)


# -- tools ----------------------------------------------------------------------------------------------------------------
def tool(folder: Path, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-m", "dynagraph", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_doctor_heeds_columns_when_piped(tmp_path: Path) -> None:
    narrow, wide = (tool(tmp_path, "doctor", COLUMNS=n) for n in ("60", "300"))
    assert max(map(len, narrow.splitlines())) <= 60 < max(map(len, wide.splitlines()))


SEVERAL = """
import numpy as np
import dynagraph as dg

@dg.compile
def several(x):
    x = x + 1
    dg.graph_break()
    if x.sum() > 3:
        x = x - 1
    return x * float(x.sum())
"""


@pytest.mark.parametrize("command", ["dump", "explain"])
def test_all_breaks_of_a_call_that_is_run(command: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SEVERAL)
    target = ("model.py:several", "--shapes", "f64[6]", *(["--breaks"] if command == "dump" else []))
    first = tool(tmp_path, command, *target)
    assert "model.py:8: dg.graph_break() was called" in first and "model.py:9" not in first
    assert "--run runs the call, and shows the breaks after it" in first
    everything = tool(tmp_path, command, *target, "--run")
    for line in (8, 9, 11):
        assert f"model.py:{line}: " in everything
    assert "--run" not in everything


def test_explain_says_what_it_does_not_know_and_what_calls_have_met() -> None:
    def several(x: Any) -> Any:
        dg.graph_break()
        return x * float(x.sum())

    compiled = dg.compile(several)
    assert "call f, see f.stats.breaks" in str(dg.explain(compiled)(X))
    compiled(X)
    text = str(dg.explain(compiled)(X))
    assert "breaks that earlier calls have met:" in text and "[graph-break]" in text and "[data-dependent]" in text


def test_functions_that_were_never_called(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import numpy as np, dynagraph as dg\n@dg.compile\ndef used(x): return x + 1\n"
        "@dg.compile\ndef idle(x): return x\nused(np.ones(2))\n"
    )
    out = tool(tmp_path, "dump", "model.py")
    assert "== used: breaks\nnone: no call ran eagerly" in out
    assert "== idle: breaks\nit was never called" in out
