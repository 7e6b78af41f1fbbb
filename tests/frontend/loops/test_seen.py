"""What is said of loops: what became of each and why, and why native ones were left; each reason of the tables has a program."""

# ruff: noqa: B007  (as people write them)

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner

import dynagraph as dg
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.loops import builder, calls_out, capture
from dynagraph.frontend.loops.reasons import NOT_NATIVE, SIDE_EXITS
from dynagraph.frontend.loops.seen import LoopSeen
from dynagraph.tools.cli import main

DOCS = Path(__file__).resolve().parents[3] / "docs" / "loops.md"
X = np.linspace(1.0, 2.0, 50)


def seen(compiled: Any) -> dict[int, LoopSeen]:
    """By line of the function; of several programs, what the first says."""
    found: dict[int, LoopSeen] = {}
    for program in compiled.programs:
        for one in program.captured.loops_seen():
            found.setdefault(one.location.line - compiled.__wrapped__.__code__.co_firstlineno, one)
    return found


# -- loops that are not native: (way, reason), and one program for each reason ------------------------------------------


def few_turns(x):
    for k in range(3):
        x = x * k
    return x


def items(x):
    for k in [3, 5, 7]:
        x = x * k
    return x


def shared_iterator(x, n):
    numbers = iter(range(n))
    s = 0.0
    for k in numbers:
        s += x[k]
        if s > 10:
            break
    return s, list(numbers)


def in_handler(x, n):
    s = 0.0
    try:
        raise ValueError
    except ValueError:
        for k in range(n):
            s += x[k]
    return s


def in_comprehension(x, n):
    k = 3
    made = [(lambda: k)() + sum(x[j] for j in range(k)) for k in range(n)]
    return made, (lambda: k)()


def too_large(x, n):  # for a limit that is patched
    s = 0.0
    for k in range(n):
        s += x[k]
    return s


def each_turn_leaves(x, n):
    for k in range(n):
        x = np.sort(x * k)
    return x


def around_break(x):
    for k in range(3):
        x = x * k
        dg.graph_break()
    return x


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int, str]] = {
    "FEW_TURNS": (few_turns, (X,), 1, "unrolled"),
    "ITEMS": (items, (X,), 1, "unrolled"),
    "SHARED_ITERATOR": (shared_iterator, (X, 40), 3, "python"),
    "IN_HANDLER": (in_handler, (X, 40), 5, "unrolled"),
    "IN_COMPREHENSION": (in_comprehension, (X, 40), 2, "unrolled"),
    "TOO_LARGE": (too_large, (X, 40), 2, "unrolled"),
    "EACH_TURN_LEAVES": (each_turn_leaves, (X, 400), 1, "outlined"),
    "AROUND_BREAK": (around_break, (X,), 1, "python"),
    "NOT_FOLLOWED": (too_large, (X, 40), 2, "unrolled"),
}


ELSEWHERE = {"ON_DEVICE"}  # tests/cuda/test_host_loops.py
if sys.version_info < (3, 12):
    ELSEWHERE.add("IN_COMPREHENSION")  # a comprehension is a function of its own there


@pytest.mark.parametrize("name", [name for name in NOT_NATIVE if name not in ELSEWHERE])
def test_loops_that_are_not_native_say_why(name: str) -> None:
    function, args, line, way = CASES[name]
    compiled = dg.compile(function)
    with contextlib.ExitStack() as stack:
        if name == "EACH_TURN_LEAVES":
            stack.enter_context(mock.patch.object(calls_out, "LOST", 10**9))
        if name == "TOO_LARGE":
            stack.enter_context(mock.patch.object(builder, "MAX_BLOCKS", 3))
        elif name == "NOT_FOLLOWED":
            stack.enter_context(mock.patch.object(builder.Builder, "outside", side_effect=Break("UNSUPPORTED_VALUE")))
            stack.enter_context(mock.patch.object(capture.Maker, "outside", side_effect=Break("UNSUPPORTED_VALUE")))
        result = compiled(*args)
    np.testing.assert_equal(result, function(*args))
    found = seen(compiled)[line]
    assert (found.reason and found.reason.name, found.way) == (name, way), found.sentence


# -- loops that are -----------------------------------------------------------------------------------------------------


def inner_turns(x, n):
    t = 0.0
    while t < n:
        t += x[0]
    return t


def several(x, y, n):
    s = 0.0
    for i in range(n):
        for j in range(n):
            x[i] += y[j]
        if x[i] > 1e300:
            print(i)
    for i in range(n):
        s += inner_turns(y, i)
    for _ in (1, 2):
        s += 1
    for i in range(n):
        print(i, end=" ")
    return s


def test_each_loop_is_said_to_be_native_unrolled_or_left_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = dg.compile(several)
    compiled(X.copy(), X, 20)
    capsys.readouterr()
    found = seen(compiled)
    line = inner_turns.__code__.co_firstlineno - several.__code__.co_firstlineno + 2
    assert {k: one.way for k, one in found.items()} == {
        2: "native", 3: "native", 7: "native", line: "native", 9: "unrolled", 11: "python",
    }  # fmt: skip
    left = f"Python does line {several.__code__.co_firstlineno + 6} (a call of print)"
    assert found[2].detail == f"its turns run in parallel; fast copy of the whole nest; {left}"
    assert found[3].detail == "fast copy without checks"
    assert found[line].detail == "fast copy of the whole nest; all checks stay: how often it turns is not known before"
    assert found[11].reason is NOT_NATIVE["EACH_TURN_LEAVES"]
    where = f"test_seen.py:{several.__code__.co_firstlineno + 3}"
    sentence = f"{where}: `for j in range(n):` runs as machine code; fast copy without checks"
    assert sentence in compiled.programs[0].loops
    assert f"  {sentence}\n" in str(dg.explain(several)(X.copy(), X, 20))


def test_a_loop_whose_turns_begin_at_several_places_is_native() -> None:
    @dg.compile
    def f(x, n):
        s = 0.0
        for i in range(n):
            try:
                s += x[i]
                if i % 3 == 0:
                    continue
                s += 1
            finally:
                s -= 0.5
        return s

    assert f(X, 50) == f.__wrapped__(X, 50)
    assert seen(f)[3].way == "native" and not f.stats.side_exits


def test_a_handler_within_the_body_leaves_and_comes_back() -> None:
    @dg.compile
    def f(x, n):
        s = 0.0
        for i in range(n):
            try:
                if i % 16 == 3:
                    raise ValueError
                s += x[i]
            except ValueError:
                s += 1
        return s

    assert f(X, 50) == f.__wrapped__(X, 50)
    assert seen(f)[3].way == "native" and f.stats.side_exits.total() == 3


def test_checks_that_a_fast_copy_keeps_are_counted() -> None:
    @dg.compile
    def f(x, y, n):
        for i in range(n):
            x[i] = y[int(x[i])]

    f(np.zeros(30), X, 30)
    assert seen(f)[2].detail == "its turns run in parallel; fast copy with 2 checks"


# -- side exits ---------------------------------------------------------------------------------------------------------


def adds(x, n):
    s = 0
    for i in range(n):
        s = s * 3 + 1
    return s


def reads(x, n):
    s = 0.0
    try:
        for i in range(n):
            s += x[i * 2]
    except IndexError:
        return s


def divides(x, n):
    s = 0.0
    for i in range(n):
        try:
            s += 1.0 / (i % 4)
        except ZeroDivisionError:
            s += 1
    return s


def shifts(x, n):
    s = 0
    for i in range(n):
        try:
            s += 64 >> (5 - i)
        except ValueError:
            s += 1
    return s


def slices(x, n):
    s = 0.0
    for i in range(n):
        try:
            x[i : i + 3] += x[:3]
        except ValueError:
            s += i
    return s


def fills(x, n):
    s = 0
    for i in range(n):
        try:
            s += len([0] * (1 << 50 * (i % 2)))
        except MemoryError:
            break
    return s


def calls(x, n):
    s = 0.0
    for i in range(n):
        if i % 16 == 5:
            s += float(repr(float(x[0])))
        s += x[i]
    return s


def interrupted(x, n):
    for i in range(n):
        x[0] = i
        if x[1] > 0:
            break
    return i


def descends(x, n):
    s = 0
    for _ in range(9 * n):
        s = descends(x, n - 1) % 5
    return s + (2 - n) * 2**62 * 2


EXITS: dict[str, tuple[Callable[..., Any], int, int, int]] = {
    "INDEX": (reads, 40, 4, 1),
    "OVERFLOW": (adds, 60, 3, 1),
    "ZERO_DIVISION": (divides, 40, 4, 10),
    "DOMAIN": (shifts, 20, 4, 14),
    "CONDITION": (slices, 50, 4, 2),
    "MEMORY": (fills, 20, 4, 1),
    "PYTHON": (calls, 40, 4, 3),
    "CALL": (descends, 1, 3, 1),
    "SIGNAL": (interrupted, 2**31 - 10, 1, 1),
}


@pytest.mark.parametrize("name", SIDE_EXITS)
def test_side_exits_are_counted_by_line_and_reason(name: str) -> None:
    function, n, line, times = EXITS[name]
    compiled = dg.compile(function)
    assert compiled.stats.side_exits == {}
    x = X.copy()
    if name == "SIGNAL":
        for warm in (20, 21, 22):
            compiled(X.copy(), warm)

        def handler(*_: Any) -> None:
            x[1] = x[0] > 100

        x[:2] = 0
        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            assert compiled(x, n) == x[0]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    else:
        assert compiled(x, n) == function(X.copy(), n)
    where = f"test_seen.py:{function.__code__.co_firstlineno + line}: "
    what = "a call of repr" if name == "PYTHON" else SIDE_EXITS[name].what
    taken = compiled.stats.side_exits[where + what]
    assert taken >= 1 if name == "SIGNAL" else taken == times, compiled.stats.side_exits


def test_the_end_of_a_loop_is_no_side_exit() -> None:
    @dg.compile
    def f(x, n):
        s = 0.0
        for i in range(n):
            s += x[i]
        print(end="")
        return s

    f(X, 50)
    assert seen(f)[3].way == "native" and f.stats.side_exits == {}


# -- the tools and the page ---------------------------------------------------------------------------------------------


def test_the_tools_show_loops(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import numpy as np\n\ndef f(x):\n    s = 0.0\n    for v in x:\n        s += v\n    return s\n")
    said = "model.py:5: `for v in x:` runs as machine code; fast copy without checks"
    for command in (["dump", "--loops"], ["explain"]):
        shown = CliRunner().invoke(main, [command[0], f"{file}:f", "--shapes", "f64[40]", *command[1:]])
        assert shown.exit_code == 0 and said in shown.output, shown.output
    shown = CliRunner().invoke(main, ["explain", "--reason", "each-turn-leaves"])
    assert NOT_NATIVE["EACH_TURN_LEAVES"].cure in shown.output


def test_the_page_lists_each_reason() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*?) \|$", DOCS.read_text(), re.M)
    assert rows == [(r.slug, r.what, r.cure) for r in (*SIDE_EXITS.values(), *NOT_NATIVE.values())]
