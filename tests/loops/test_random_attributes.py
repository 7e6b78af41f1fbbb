"""Random programs whose loops set attributes and dict items do compiled what they do plainly: results, errors, lines, state."""

from __future__ import annotations

import linecache
import random
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests import sampling

PROGRAMS, CHUNK = 100, 2
OBJECTS = ("p", "q", "p.kid")
TURNS = 30
MANY_PROGRAMS = pytest.mark.filterwarnings("ignore::dynagraph.RecompileLimitWarning")  # of what stays in Python


class Node:
    def __init__(self, r: random.Random):
        self.a, self.b = r.randint(-3, 9), r.uniform(-2, 2)
        self.c: Any = r.choice([None, 1, 2.5, True])
        self.d = np.arange(4.0) * r.randint(1, 3)
        self.kid: Any = None

    def bump(self, by: float) -> float:
        self.a += 1
        self.b = self.b * 0.5 + by
        return self.b

    def swap(self, other: Any) -> None:
        self.a, other.a = other.a, self.a

    @property
    def half(self) -> float:
        return self.b / 2


class Slotted:
    __slots__ = ("a", "b", "c", "d", "kid")
    __init__ = Node.__init__
    bump, swap, half = Node.bump, Node.swap, Node.half


# -- making ----------------------------------------------------------------------------------------------------------------


def number(r: random.Random, depth: int = 0) -> str:
    if depth < 2 and r.random() < 0.5:
        symbol = r.choice("+-*+-*+-*/%" if r.random() < 0.5 else "+-*")
        return f"({number(r, depth + 1)} {symbol} {number(r, depth + 1)})"
    o = r.choice(OBJECTS)
    known = [f"{o}.a", f"{o}.b", f"{o}.half", f"{o}.d[{r.randint(0, 4)}]", 'd["n"]', 'd["x"]', "x[k % 5]", "k", "t"]
    return r.choice([*known, str(r.randint(-2, 5)), f"{r.uniform(-1, 2):.2f}"])


def compound(r: random.Random, indent: int, depth: int) -> list[str]:
    pad, inside = "    " * indent, body(r, indent + 1, depth + 1)
    kind = r.randrange(4)
    if kind == 0:
        return [f"{pad}if {r.choice(OBJECTS)}.c is None:", *inside]
    if kind == 1:
        handler = body(r, indent + 1, 2)
        return [f"{pad}try:", *inside, f"{pad}except (ZeroDivisionError, IndexError, OverflowError):", *handler]
    otherwise = [f"{pad}else:", *body(r, indent + 1, depth + 1)] if kind == 2 else []
    return [f"{pad}if {number(r)} {r.choice('<>')} {number(r)}:", *inside, *otherwise]


def statement(r: random.Random, indent: int, depth: int) -> list[str]:
    if depth < 2 and r.random() < 0.2:
        return compound(r, indent, depth)
    o, other = r.choice(OBJECTS), r.choice(OBJECTS)
    left = r.choice(["break", "continue", f"return t, {number(r)}"])
    lines = [
        *[f"{o}.{r.choice('ab')} {r.choice(['=', '+=', '-='])} {number(r)}" for _ in range(4)],
        f'd["{r.choice("nx")}"] {r.choice(["=", "+="])} {number(r)}',
        f"t = {o}.bump({number(r)})",
        f"{o}.swap({other})",
        f"{o}.d[{r.choice(['k % 4', '1', 'k'])}] {r.choice(['=', '+='])} {number(r)}",
        f"{o}.c = {r.choice([number(r), 'None', 'True', f'{other}.c', f'({number(r)}, k)'])}",
        f"{o}.d, {other}.d = {other}.d, {o}.d",
        f"if k % 13 == {r.randint(0, 12)}: note({o})",
        f"if k > {r.randint(5, 25)} and {number(r)} > {number(r)}: {left}",
        f"t = {number(r)}",
    ]
    return ["    " * indent + r.choice(lines)]


def body(r: random.Random, indent: int, depth: int) -> list[str]:
    return [line for _ in range(r.randint(1, 3)) for line in statement(r, indent, depth)]


def program(seed: int) -> str:
    r = random.Random(seed)
    lines = [line for _ in range(r.randint(2, 5)) for line in statement(r, 2, 0)]
    start = ["def f(p, q, d, x, n):", "    t = 0.0", "    for k in range(n):"]
    return "\n".join([*start, *lines, "    return t, p.a, q.b", ""])


def arguments(seed: int, variant: int) -> tuple[Any, ...]:
    r = random.Random(7 * seed + variant)
    made = Slotted if seed % 3 == 0 else Node
    p, q = made(r), made(r)
    p.kid, q.kid = q if r.random() < 0.3 else made(r), p
    q = p if r.random() < 0.2 else q
    return p, q, {"n": r.randint(0, 5), "x": r.uniform(-1, 1)}, np.sin(np.arange(5.0)), TURNS


# -- comparing ---------------------------------------------------------------------------------------------------------------


def described(value: Any, seen: dict[int, int]) -> Any:
    """A value with the type of each part, and which objects are the same; all NaNs are one."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist().__repr__()
    if not isinstance(value, (tuple, dict, Node, Slotted)):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, tuple):
        return [described(v, seen) for v in value]
    items = value.items() if isinstance(value, dict) else [(n, getattr(value, n)) for n in Slotted.__slots__]
    order = list(vars(value)) if isinstance(value, Node) else []
    return order, [(name, described(v, seen)) for name, v in items]


def run(f: Callable[..., Any], given: tuple[Any, ...], name: str, noted: list[Any]) -> Any:
    noted.clear()
    try:
        with np.errstate(all="ignore"):
            out = described(f(*given), {})
    except Exception as error:
        out = type(error).__name__, str(error), [t.lineno for t in traceback.extract_tb(error.__traceback__) if t.filename == name]
    return out, described(given, {}), list(noted)


def difference(seed: int) -> str:
    """How a program differs; "" where it does not."""
    source, name, noted = program(seed), f"<program {seed}>", []  # type: ignore[var-annotated]
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"note": dg.disable(lambda o: noted.append(repr((o.a, o.b, o.c))))}
    exec(compile(source, name, "exec"), namespace)
    plain = namespace["f"]
    compiled = dg.compile(plain, backend="c")
    for variant in (0, 1, 0, 2):
        want = run(plain, arguments(seed, variant), name, noted)
        got = run(compiled, arguments(seed, variant), name, noted)
        if got != want or compiled.stats.fallbacks:
            return f"seed {seed}, variant {variant}:\n{source}\nplain:    {want}\ncompiled: {got}\n{compiled.stats.last_error}"
    return ""


@pytest.mark.sampled(25)
@MANY_PROGRAMS
@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_state_is_that_of_plain_python(start: int) -> None:
    for seed in range(start, start + CHUNK):
        assert (found := difference(seed)) == "", found


@pytest.mark.fuzz
@MANY_PROGRAMS
def test_state_of_many_programs() -> None:
    first = random.SystemRandom().randrange(PROGRAMS, 1 << 40)
    for seed in range(first, first + sampling.programs // 10):
        assert (found := difference(seed)) == "", found
