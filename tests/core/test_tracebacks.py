"""Exceptions that leave a compiled function: the user's frames are there, dynagraph's are not."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dynagraph._core._dispatch import CompiledFunction, Entry, NativePlan, Tail, set_full_tracebacks


def defined_in(module: str, name: str, body: str, **names: Any) -> Callable:
    """A function of that module."""
    namespace = {"__name__": module, **names}
    exec(f"def {name}(*args):\n {body}", namespace)
    return namespace[name]


def fail(*args: Any) -> None:
    raise KeyError("failed")


def frames(function: Callable) -> list[str]:
    with pytest.raises(KeyError, match="failed") as info:
        function()
    return [frame.name for frame in traceback.extract_tb(info.value.__traceback__)][1:]  # without this function's own


def missing(function: Callable) -> CompiledFunction:
    return CompiledFunction(lambda: None, function)


def continuing(function: Callable) -> CompiledFunction:
    cf = CompiledFunction(lambda: None, fail)
    cf.add_entry(Entry((), 0, NativePlan(0, None, 0, (), 0, ("call", function, ()), False, 0)))
    return cf


def test_leading_frames_go() -> None:
    ours = defined_in("dynagraph.api", "ours", "return inner()", inner=defined_in("dynagraph", "too", "return fail()", fail=fail))
    assert frames(missing(ours)) == ["fail"]


def test_frames_in_between_go() -> None:
    user = defined_in("program", "user", "return ours()", ours=defined_in("dynagraph.x.y", "ours", "return fail()", fail=fail))
    assert frames(continuing(user)) == ["user", "fail"]
    again = defined_in("dynagraph", "again", "return user()", user=user)
    assert frames(continuing(defined_in("program", "first", "return again()", again=again))) == ["first", "user", "fail"]


def test_trailing_frames_go() -> None:
    ours = defined_in("dynagraph.api", "ours", "raise KeyError('failed')")
    assert frames(continuing(ours)) == []
    assert frames(continuing(defined_in("program", "user", "return ours()", ours=ours))) == ["user"]


@pytest.mark.parametrize("module", ["dynagraphs", "dynagrap", "my.dynagraph", "__main__", 5, None])
def test_other_modules_stay(module: Any) -> None:
    assert frames(missing(defined_in(module, "user", "return fail()", fail=fail))) == ["user", "fail"]


def test_frames_of_tails() -> None:
    end = missing(defined_in("dynagraph.frontend", "ours", "return fail()", fail=fail))
    assert frames(continuing(lambda: Tail(end))) == ["fail"]


def test_lines_are_kept() -> None:
    user = defined_in("program", "user", "\n\n return ours()", ours=defined_in("dynagraph", "ours", "return fail()", fail=fail))
    with pytest.raises(KeyError) as info:
        continuing(user)()
    lines = [(frame.name, frame.lineno) for frame in traceback.extract_tb(info.value.__traceback__)][1:]
    assert lines == [("user", 4), ("fail", fail.__code__.co_firstlineno + 1)]


def test_a_traceback_that_somebody_keeps_is_not_changed() -> None:
    kept = []

    def on_miss(*args: Any) -> None:
        try:
            ours()
        except KeyError as error:
            kept.append(error.__traceback__)
            raise

    ours = defined_in("dynagraph", "ours", "return fail()", fail=fail)
    assert frames(missing(on_miss)) == ["on_miss", "fail"]
    assert [frame.name for frame in traceback.extract_tb(kept[0])] == ["on_miss", "ours", "fail"]


@pytest.fixture
def full() -> Iterator[None]:
    set_full_tracebacks(True)
    yield
    set_full_tracebacks(False)


def test_full_tracebacks(full: None) -> None:
    assert frames(missing(defined_in("dynagraph", "ours", "return fail()", fail=fail))) == ["ours", "fail"]


def test_exceptions_without_frames() -> None:
    with pytest.raises(ZeroDivisionError):
        continuing(lambda: Tail(divmod, 1, 0))()


def test_nothing_leaks() -> None:
    error = KeyError("failed")

    def raising() -> None:
        raise error

    cf = continuing(defined_in("p", "user", "return ours()", ours=defined_in("dynagraph", "ours", "f()", f=raising)))

    def rounds() -> list[int]:
        for _ in range(500):
            with pytest.raises(KeyError):
                cf()
            error.__traceback__ = None
        gc.collect()
        return [sys.getrefcount(x) for x in (error, raising, cf)]

    assert rounds() == rounds()
