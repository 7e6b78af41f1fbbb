"""How a behaviour is tested: the plain call against compiled ones, in everything that a caller can see, and the class reached.

    @behaviour("1")
    def branch_on_a_shape():
        def f(x):
            return x + 1 if x.shape[0] > 2 else x - 1
        return f, lambda: (np.arange(4.0),)

    test_control_flow = collected(__name__)

The decorated function is a factory: it is called once for the plain run and once for the compiled one, so that state in closures
and classes is each run's own.  It returns the function and a maker of arguments (or of ``(args, kwargs)``, where the second is a
dict), called anew for each call.  Two calls are compared, one after the other.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.reference import reference

from .shortfalls import SHORT

RANKS = {"1": 0, "B": 1, "E": 2}  # one graph; break and resume; eager
_rows: dict[str, list["Behaviour"]] = {}


@dataclass
class Behaviour:
    """One row of the contract.  `asked`: the class that it must reach, or better; `calls`: how many calls are compared."""

    name: str
    asked: str
    factory: Callable[[], tuple]
    calls: int = 2
    reason: str | None = None  # a catalogued reason that must be among the breaks


@dataclass
class Outcome:
    """What callers can see of a call."""

    result: Any = None
    error: BaseException | None = None
    arguments: Any = None
    printed: str = ""
    lines: list[int] = field(default_factory=list)  # of the user's file, in an error's traceback


def behaviour(asked: str, calls: int = 2, reason: str | None = None) -> Callable[[Callable], Callable]:
    """Register a factory as a row of the contract."""

    def register(factory: Callable) -> Callable:
        rows = _rows.setdefault(factory.__module__, [])
        assert all(r.name != factory.__name__ for r in rows), f"{factory.__name__} is there twice"
        rows.append(Behaviour(factory.__name__, asked, factory, calls, reason))
        return factory

    return register


def collected(module: str) -> Callable:
    """The test over all rows of a module."""

    @pytest.mark.parametrize("row", _rows[module], ids=lambda r: r.name)
    def test_rows(row: Behaviour) -> None:
        check(row)

    return test_rows


class RecordingBackend:
    """The reference backend, counting the graphs that hold operations."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, example_inputs: Any = None) -> Any:
        self.graphs.append(graph)
        return reference(graph)


def observe(function: Callable, args: tuple, kwargs: dict, file: str) -> Outcome:
    printed, outcome = io.StringIO(), Outcome()
    with contextlib.redirect_stdout(printed):
        try:
            outcome.result = awaited(function(*args, **kwargs))
        except Exception as error:
            outcome.error = error
            frames = traceback.extract_tb(error.__traceback__)
            outcome.lines = [f.lineno for f in frames if f.filename == file and f.name != "observe"]
    outcome.arguments = (args, kwargs)
    outcome.printed = printed.getvalue()
    return outcome


def awaited(result: Any) -> Any:
    """A coroutine is run to its end, there and then."""
    while isinstance(result, types.CoroutineType):
        try:
            result.send(None)
        except StopIteration as end:
            return ("coroutine", end.value)
    return result


def made(maker: Callable) -> tuple[tuple, dict]:
    given = maker()
    if len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], dict):
        return given
    return given, {}


def run(function: Callable, maker: Callable, calls: int, file: str) -> list[Outcome]:
    return [observe(function, *made(maker), file) for _ in range(calls)]


def reached(compiled: Any, backend: RecordingBackend) -> str:
    """The class: "1" one graph and no break, "B" breaks with graphs around them, "E" no graph."""
    if not backend.graphs:
        return "E"
    return "B" if sum(compiled.stats.breaks.values()) else "1"


def check(row: Behaviour) -> None:
    """A row does compiled what it does plainly, and reaches the class that it asks for, or the one that shortfalls.py admits."""
    found, breaks = compare(row)
    admitted = SHORT.get(f"{row.factory.__module__.rpartition('.test_')[2]}.{row.name}")
    if admitted is None:
        assert RANKS[found] <= RANKS[row.asked], f"{row.name}: class {found}, asked {row.asked}\n" + "\n".join(breaks)
    else:
        assert found == admitted.reached, (
            f"{row.name}: class {found}, shortfalls.py says {admitted.reached}: if it is better now, take it out there\n"
            + "\n".join(breaks)
        )
    if row.reason is not None and found != "1":
        assert any(row.reason in text for text in breaks), breaks


def compare(row: Behaviour) -> tuple[str, list[str]]:
    """Compare a row's plain and compiled calls; the class that was reached, and the breaks."""
    plain, maker = row.factory()
    file = row.factory.__code__.co_filename
    expected = run(plain, maker, row.calls, file)
    function, maker = row.factory()
    backend = RecordingBackend()
    compiled = dg.compile(function, backend=backend)
    with dg.config.override(strict=True):
        got = run(compiled, maker, row.calls, file)
    for number, (e, g) in enumerate(zip(expected, got), 1):
        assert_same(e, g, f"{row.name}, call {number}")
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    return reached(compiled, backend), list(compiled.stats.breaks)


def assert_same(expected: Outcome, got: Outcome, who: str) -> None:
    if expected.error is not None or got.error is not None:
        assert type(got.error) is type(expected.error) or _like(got.error, expected.error), (
            f"{who}: expected {expected.error!r}, got {got.error!r}\n{''.join(traceback.format_exception(got.error))}"
        )
        assert str(got.error) == str(expected.error), who
        assert got.lines == expected.lines, f"{who}: lines of the traceback"
        assert _like(got.error.__cause__, expected.error.__cause__), who
    assert got.printed == expected.printed, who
    ours, theirs = Walk(), Walk()
    same_value(theirs, expected.result, ours, got.result, f"{who}: result")
    same_value(theirs, expected.arguments, ours, got.arguments, f"{who}: arguments")


def _like(a: Any, b: Any) -> bool:
    return type(a).__qualname__ == type(b).__qualname__ and str(a) == str(b)


class Walk:
    """Numbers objects in the order in which they are met, so that sharing can be compared."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []

    def meet(self, obj: Any) -> tuple[int, bool]:
        known = id(obj) in self.numbers
        if not known:
            self.numbers[id(obj)] = len(self.numbers)
            self.kept.append(obj)
        return self.numbers[id(obj)], known


ATOMS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, np.dtype, types.BuiltinFunctionType)


def same_value(theirs: Walk, expected: Any, ours: Walk, got: Any, where: str) -> None:
    """Equal in type, value, structure and sharing of mutable objects."""
    assert type(got).__qualname__ == type(expected).__qualname__, f"{where}: {type(got)} instead of {type(expected)}"
    if isinstance(expected, np.generic):
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=where)
        return
    if isinstance(expected, ATOMS) and type(expected).__module__ in ("builtins", "numpy.dtypes"):
        assert got == expected or (got != got and expected != expected), f"{where}: {got!r} instead of {expected!r}"
        return
    number, known = theirs.meet(expected)
    assert (number, known) == ours.meet(got), f"{where}: sharing of objects differs"
    if known:
        return
    for name, e, g in _parts(expected, got, where):
        same_value(theirs, e, ours, g, f"{where}{name}")


def _parts(expected: Any, got: Any, where: str) -> list[tuple[str, Any, Any]]:
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype and got.shape == expected.shape, f"{where}: {got.dtype}{got.shape}"
        if expected.dtype.kind in "fc":
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-12, err_msg=where)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=where)
        return []
    if isinstance(expected, dict):
        assert [k for k in got if isinstance(k, ATOMS)] == [k for k in expected if isinstance(k, ATOMS)], f"{where}: keys"
        assert len(got) == len(expected), f"{where}: {len(got)} entries"
        return [(f"[{k!r}]", e, g) for (k, e), g in zip(expected.items(), got.values())] + _attributes(expected, got)
    if isinstance(expected, (set, frozenset)):
        assert len(got) == len(expected), where
        return [("{}", e, g) for e, g in zip(sorted(expected, key=repr), sorted(got, key=repr))]
    if isinstance(expected, types.FunctionType):
        assert got.__code__.co_name == expected.__code__.co_name, where
        held, ours = _inside(expected), _inside(got)
        assert [n for n, _ in ours] == [n for n, _ in held], where
        return [(f".{n}", e, g) for (n, e), (_, g) in zip(held, ours)]
    if isinstance(expected, types.MethodType):
        return [(".__self__", expected.__self__, got.__self__), (".__func__", expected.__func__, got.__func__)]
    if isinstance(expected, functools.partial):
        return [(f".{n}", getattr(expected, n), getattr(got, n)) for n in ("func", "args", "keywords")]
    if type(expected).__module__ in ("builtins", "itertools") and hasattr(expected, "__next__"):
        return [(".rest", _rest(expected), _rest(got))]
    if isinstance(expected, (type, types.ModuleType)):
        return []
    if hasattr(expected, "__len__") and hasattr(expected, "__iter__") and hasattr(expected, "__getitem__"):
        assert len(got) == len(expected), f"{where}: {len(got)} items instead of {len(expected)}"
        return [(f"[{k}]", e, g) for k, (e, g) in enumerate(zip(expected, got))] + _attributes(expected, got)
    return _attributes(expected, got)


def _inside(function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function holds: what it closes over, its defaults and its attributes."""
    held: list[tuple[str, Any]] = [("a default", value) for value in function.__defaults__ or ()]
    held.extend((function.__kwdefaults__ or {}).items())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            held.append((name, cell.cell_contents))
        except ValueError:
            held.append((name, "an empty cell"))
    return held + [("__dict__", vars(function))]


def _rest(iterator: Any) -> tuple:
    """What an iterator still gives (a hundred things at most), prints and ends with."""
    given, printed, end = [], io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            given.extend(itertools.islice(iterator, 100))
        except Exception as error:
            end = repr(error)
    return given, printed.getvalue(), end


def _attributes(expected: Any, got: Any) -> list[tuple[str, Any, Any]]:
    theirs, ours = getattr(expected, "__dict__", {}), getattr(got, "__dict__", {})
    assert list(ours) == list(theirs), f"attributes {list(ours)} instead of {list(theirs)}"
    parts = [(f".{k}", v, ours[k]) for k, v in theirs.items()]
    for kind in type(expected).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if hasattr(expected, name) or hasattr(got, name):
                parts.append((f".{name}", getattr(expected, name), getattr(got, name)))
    if isinstance(expected, BaseException):
        parts.append((".args", expected.args, got.args))
    return parts


def outcome(row: Behaviour) -> str:
    """The class that a row reached, or how it failed."""
    try:
        return compare(row)[0]
    except AssertionError as error:
        return f"failed: {str(error).splitlines()[0]}"


def rows(module: str) -> list[Behaviour]:
    return _rows.get(module, [])
