"""Random Python functions over arrays and plain values, as source texts, and the comparison of their plain and compiled calls.

    python -m tests.behaviours.programs SEED      # prints the program of a seed, and what differs
    python -m tests.behaviours.programs SEED END  # checks a range; with the word "plain" besides, without compiling anything

`generate(rng)` gives a `Program`: a tree of statements, which renders as a module with a factory of the function and of a look at
the state around it.  `difference(program)` runs it plainly and compiled, on the same arguments twice, on other values, and on
another size besides, and gives what differs as a text, or None.  `reduced(program)` deletes statements as long as one remains.

Programs end: loops are over a few items, and while loops count.  Names are bound before they are read, and most calls return; what
is raised is nearly always raised on purpose.  Arrays hold small whole numbers, so that no order of evaluation shows in the results.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import dynagraph as dg
from tests import statements
from tests.behaviours.harness import Outcome, RecordingBackend, Walk, assert_same, observe, reached, same_value
from tests.statements import Hang, Statement, limited, rendered

# -- the program -------------------------------------------------------------------------------------------------------------------

PRELUDE = {
    "Stop": """
class Stop(Exception):
    def __init__(self, why, level=0):
        super().__init__(why)
        self.level = level
""",
    "Recorder": """
class Recorder:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow
    def __enter__(self):
        print("enter", self.name)
        return self
    def __exit__(self, kind, error, trace):
        print("exit", self.name, kind.__name__ if kind else None)
        return self.swallow
""",
    "Box": """
class Box:
    def __init__(self, value, data=None):
        self.value, self.data = value, data
    @property
    def double(self):
        return 2 * self.value
    def add(self, by=1):
        self.value += by
        return self
    def __len__(self):
        return abs(self.value) % 4
    def __add__(self, other):
        return Box(self.value + (other.value if isinstance(other, Box) else other), self.data)
""",
    "scale": """
def scale(a, by=2.0):
    return a * by
""",
    "bump": """
def bump(a, *, by=1):
    a += by
""",
    "push": """
def push(items, value):
    items.append(value)
    return len(items)
""",
    "total_of": """
def total_of(*values, **named):
    total = 0
    for value in values:
        total += value
    return total + sum(named.values())
""",
    "countdown": """
def countdown(n):
    while n > 0:
        yield n
        n -= 1
""",
    "running": """
def running():
    total = 0
    try:
        while True:
            total += (yield total) or 1
    except ValueError as error:
        yield -len(str(error))
""",
    "steps": """
def steps(n):
    got = yield from countdown(n)
    yield 10 if got is None else got
""",
    "halvings": """
def halvings(n):
    return 0 if n <= 1 else 1 + halvings(n // 2)
""",
    "check": """
def check(n):
    if n % 3 == 0:
        raise ValueError(f"a multiple of 3: {n}")
    return n
""",
    "guarded": """
def guarded(a, limit):
    if a.sum() > limit:
        raise Stop("above", int(limit))
    return a - limit
""",
    "twice": """
def twice(fn):
    def both(v):
        return fn(fn(v))
    return both
""",
    "either": """
def either(flag, a, b):
    if flag:
        return a + b
    return a - b
""",
}
NEEDS = {"guarded": ("Stop",), "steps": ("countdown",)}
PARAMETERS = {"x": "A", "y": "A", "k": "K", "n": "I", "s": "F", "items": "L", "table": "D", "box": "O"}
CALLS = 4
VARIANTS = (0, 0, 1, 2)  # of the arguments, by call: the same twice, other values, another size besides


@dataclass
class Program:
    body: list[Statement]
    sharing: str = ""  # "same": y is x; "overlap": y starts within x; "strided": neither is contiguous
    seed: int = 0

    @property
    def filename(self) -> str:
        return f"<generated {self.seed}>"

    @property
    def source(self) -> str:
        inner = rendered(self.body, 2)
        text = "\n".join(inner)
        wanted = {name for name in PRELUDE if re.search(rf"\b{name}\b", text) or (name == "Box" and re.search(r"\bbox\b", text))}
        for name in list(wanted):
            wanted.update(NEEDS.get(name, ()))
        declared = [f"{kind} {name}" for kind, name in (("nonlocal", "total"), ("global", "COUNT")) if assigns(name, text)]
        return "\n".join(
            ["import contextlib", "", "import numpy as np", "", "COUNT = 0", ""]
            + [PRELUDE[name] for name in PRELUDE if name in wanted]
            + ["", "def make():", "    total, log = 0, []", f"    def f({', '.join(PARAMETERS)}):"]
            + ["        " + line for line in declared]
            + inner
            + ["    return f, lambda: (COUNT, total, log)", ""]
        )


def assigns(name: str, text: str) -> bool:
    return re.search(rf"(?m)^\s*{name} [-+*]?= ", text) is not None


# -- making one --------------------------------------------------------------------------------------------------------------------

KEYS = ('"a"', '"b"', '"c"', '"d"')
WORDS = ('"left"', '"right"', '"x"', '""')


class Generator:
    """Statements and expressions by kind: A float array, K int array, S array that is one shorter, M matrix, T NumPy scalar,
    I int, F float, B bool, L list of ints, D dict from str to int, Z str, O Box, E exception.  Every expression is an atom or in
    parentheses, and what a statement binds is computed before it is bound here."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.left = rng.randint(5, 15)  # statements
        self.names: dict[str, list[str]] = {kind: [] for kind in "AKSMTIFBLDZOE"}
        self.frozen: set[str] = {"total", "COUNT", "log"}  # not to be rebound
        self.functions: list[tuple[str, list[str], str]] = []  # name, kinds of parameters, kind of the result
        self.fresh = 0
        self.loops = 0  # around this place, in this function
        self.depth = 0
        self.nested = False
        for name, kind in PARAMETERS.items():
            self.names[kind].append(name)
        self.names["L"].append("log")
        self.names["I"].append("total")
        self.about_arrays = rng.random() < 0.75  # some programs have hardly any

    def program(self) -> Program:
        body = self.block(self.left)
        while self.left > 0:
            body += self.block(self.left)
        if not leaves(body):
            body.append(Statement(f"return {self.results()}"))
        return Program(body, self.rng.choices(("", "same", "overlap", "strided"), (85, 5, 5, 5))[0])

    # -- choices
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def one(self, *options: Callable[[], Any]) -> Any:
        return self.rng.choice(options)()

    def new(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def name(self, kind: str) -> str | None:
        names = self.names[kind]
        if not names:
            return None
        return names[-1] if self.chance(0.4) else self.rng.choice(names)  # what was computed last is used

    def target(self, kind: str) -> str:
        """A name to bind: often one that there is."""
        there = [n for n in self.names[kind] if n not in self.frozen]
        if there and self.chance(0.5):
            return self.rng.choice(there)
        return self.new(kind.lower() + "_")

    def bind(self, kind: str, name: str) -> str:
        for names in self.names.values():
            if name in names:
                names.remove(name)
        self.names[kind].append(name)
        return name

    @contextlib.contextmanager
    def inside(self, loops: int = 0) -> Iterator[None]:
        """What is bound within may not be bound after."""
        names, functions = {k: list(v) for k, v in self.names.items()}, list(self.functions)
        self.depth += 1
        self.loops += loops
        yield
        self.depth -= 1
        self.loops -= loops
        self.functions = functions
        if not self.chance(0.02):  # and then an UnboundLocalError is as good a result as any
            self.names = names

    # -- expressions
    def expr(self, kind: str, d: int = 2) -> str:
        name = self.name(kind)
        if name is not None and (d <= 0 or self.chance(0.35)):
            return name
        if d > 0 and self.chance(0.15):
            calls = [f for f in self.functions if f[2] == kind]
            if calls:
                return self.call(self.rng.choice(calls), d - 1)
        return getattr(self, f"_{kind}")(max(d, 0) - 1)

    def call(self, function: tuple[str, list[str], str], d: int = 1) -> str:
        name, kinds, _ = function
        return f"{name}({', '.join(self.expr(k, d) for k in kinds)})"

    def count(self, low: int = 1, high: int = 5) -> int:
        return self.rng.randint(low, high)

    def _A(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return self.rng.choice(self.names["A"] or ["np.ones(k.shape)"])
        return self.one(
            lambda: f"({e('A', d)} {self.rng.choice('+-')} {e('A', d)})",
            lambda: f"({e('A', d)} {self.rng.choice('+-')} {e(self.rng.choice('IFT'), d)})",
            lambda: f"({e('A', d)} * {c(-2, 3)})",
            lambda: f"({e('A', d)} / {c(1, 2) * 2})",
            lambda: f"({e('A', d)} * {e('A', d)} % 11)",
            lambda: f"({e('A', d)} % {c(2, 9)}.0)",
            lambda: f"(-{e('A', d)})",
            lambda: f"({e('A', d)} + {e('K', d)})",
            lambda: f"np.{self.rng.choice(('maximum', 'minimum'))}({e('A', d)}, {e(self.rng.choice('AF'), d)})",
            lambda: f"np.where({e('A', d)} {self.rng.choice('<>')} {e('F', d)}, {e('A', d)}, {e(self.rng.choice('AF'), d)})",
            lambda: f"np.where({e('A', d)} {self.rng.choice('<>')} {e('A', d)}, {e('I', d)}, {e('A', d)})",
            lambda: f"np.{self.rng.choice(('abs', 'cumsum', 'sign', 'floor', 'sort', 'square'))}({e('A', d)})",
            lambda: f"np.clip({e('A', d)}, -{c()}, {c()})",
            lambda: f"np.concatenate([{e('S', d)}, {e('A', d)}[:1]])",
            lambda: f"{e('A', d)}.copy()",
            lambda: f"{e('A', d)}[::-1]",
            lambda: f"np.zeros_like({e('A', d)})",
            lambda: f"np.full({e('A', 0)}.shape, {e('F', d)})",
            lambda: f"{e('K', d)}.astype(float)",
            lambda: f"{e('M', d)}.{self.rng.choice(('sum', 'max'))}(axis={c(0, 1)})",
            lambda: f"{e('M', d)}[{c(0, 1)}]",
            lambda: f"({e('M', d)} @ {e('A', d)} % 7)",
            lambda: f"scale({e('A', d)}" + self.rng.choice(("", f", {e('F', d)}", f", by={e('F', d)}")) + ")",
            lambda: f"either({e('B', d)}, {e('A', d)}, {e('A', d)})",
            lambda: f"({e('A', d)} if {e('B', d)} else {e('A', d)})",
            lambda: f"np.array([v + {e('F', d)} for v in {e('A', 0)}])",
        )

    def _K(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return "k"
        return self.one(
            lambda: f"({e('K', d)} {self.rng.choice('+-')} {e('I', d)} % 50)",
            lambda: f"({e('K', d)} % {c(2, 7)})",
            lambda: f"({e('K', d)} // {c(2, 3)})",
            lambda: f"np.arange({e('A', 0)}.shape[0])",
            lambda: f"({e('A', d)} {self.rng.choice('<>')} {e('F', d)}).astype(int)",
            lambda: f"np.argsort({e('A', d)}, kind=\"stable\")",
            lambda: f"np.cumsum({e('K', d)} % 3)",
        )

    def _S(self, d: int) -> str:
        e = self.expr
        if d < 0:
            return f"{e('A', 0)}[1:]"
        return self.one(
            lambda: f"{e('A', d)}[1:]",
            lambda: f"{e('A', d)}[:-1]",
            lambda: f"np.diff({e('A', d)})",
            lambda: f"({e('S', d)} {self.rng.choice('+-')} {e(self.rng.choice('SI'), d)})",
        )

    def _M(self, d: int) -> str:
        e = self.expr
        if d < 0:
            return f"np.outer({e('A', 0)}, {e('A', 0)})"
        return self.one(
            lambda: f"np.outer({e('A', d)} % 5, {e('A', d)})",
            lambda: f"({e('A', d)}[:, None] {self.rng.choice('+-')} {e('A', d)})",
            lambda: f"({e('M', d)} + {e('A', d)})",
            lambda: f"{e('M', d)}.T",
            lambda: f"({e('M', d)} * 2)",
        )

    def _T(self, d: int) -> str:
        e = self.expr
        return self.one(
            lambda: f"{e('A', d)}.{self.rng.choice(('sum', 'max', 'min'))}()",
            lambda: f"{e('A', d)}[{self.count(-1, 1)}]",
            lambda: f"np.dot({e('A', d)}, {e('A', d)})",
            lambda: f"({e('A', d)}.sum() {self.rng.choice('+-')} {e('F', d)})",
        )

    def _I(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return str(c(-2, 6))
        plain = (
            lambda: str(c(-2, 6)),
            lambda: f"({e('I', d)} {self.rng.choice('+-')} {e('I', d)})",
            lambda: f"({e('I', d)} * {e('I', d)} % 97)",
            lambda: f"({e('I', d)} {self.rng.choice(('//', '%', '&', '|', '^', '>>'))} {c()})",
            lambda: f"len({e(self.rng.choice('LLDZO'), d)})",
            lambda: self.item("L", d),
            lambda: f"{e('D', d)}.get({self.rng.choice(KEYS)}, {e('I', d)})",
            lambda: f'{e("D", 0)}["a"]',
            lambda: f"sum({e('L', d)})",
            lambda: f"{self.rng.choice(('max', 'min'))}({e('L', d)}, default={c()})",
            lambda: f"{self.rng.choice(('max', 'min'))}({e('I', d)}, {e('I', d)})",
            lambda: f"abs({e('I', d)})",
            lambda: f"({e('I', d)} if {e('B', d)} else {e('I', d)})",
            lambda: f"int({e('F', d)})",
            lambda: f"{e('O', 0)}.{self.rng.choice(('value', 'double', 'add().value'))}",
            lambda: f"total_of({e('I', d)}, *{e('L', d)}, by={e('I', d)})",
            lambda: f"total_of(**{e('D', d)})",
            lambda: f"sum(v * {c()} for v in {e('L', d)})",
            lambda: f"{e('L', d)}.count({e('I', d)})",
            lambda: f"next(countdown({e('I', d)}), {c()})",
            lambda: f"halvings({e('I', d)})",
            lambda: f"twice(lambda v: v + {e('I', d)})({e('I', d)})",
            lambda: f"(lambda v, w={e('I', d)}: v - w)({e('I', d)})",
            lambda: f"divmod({e('I', d)}, {c()})[{c(0, 1)}]",
            lambda: f"({e('B', d)} + {e('I', d)})",
            lambda: f"({e('I', d)} or {e('I', d)})",
            lambda: f"int({self.rng.choice(('str', 'repr'))}({e('I', d)}))",
        )
        arrays = (
            lambda: f"{e('A', d)}.shape[0]",
            lambda: f"len({e('A', d)})",
            lambda: f"{e('M', d)}.ndim",
            lambda: f"{e('A', d)}.size",
            lambda: f"int({e('A', d)}.sum())",
            lambda: f"int({e('K', d)}[{c(-1, 1)}])",
            lambda: f"int(np.argmax({e('A', d)}))",
            lambda: f"int({e('T', d)})",
        )
        return self.rng.choice(arrays if self.about_arrays and self.chance(0.25) else plain)()

    def item(self, kind: str, d: int) -> str:
        name = self.name(kind) or "items"
        index = f"{self.expr('I', d)} % len({name})" if self.chance(0.6) else self.rng.choice(("0", "-1"))
        return f"{name}[{index}]" if self.chance(0.1) else f"({name}[{index}] if {name} else {self.count()})"

    def _F(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return f"{c(-3, 6)}.0"
        plain = (
            lambda: f"{c(-3, 6)}.0",
            lambda: f"({e('F', d)} {self.rng.choice('+-')} {e(self.rng.choice('FI'), d)})",
            lambda: f"({e('F', d)} * 0.5)",
            lambda: f"float({e('I', d)})",
            lambda: f"({e('I', d)} / {2 ** c(0, 2)})",
            lambda: f"max({e('F', d)}, {e('F', d)})",
            lambda: f"round({e('F', d)}, 1)",
            lambda: f"({e('F', d)} if {e('B', d)} else {e('F', d)})",
        )
        arrays = (
            lambda: f"float({e('T', d)})",
            lambda: f"{e('A', d)}.item({c(0, 1)})",
            lambda: f"{e('A', d)}.tolist()[{c(-1, 1)}]",
        )
        return self.rng.choice(arrays if self.about_arrays and self.chance(0.25) else plain)()

    def _B(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return self.rng.choice(("True", "False"))
        return self.one(
            lambda: f"({e('I', d)} {self.rng.choice(('<', '<=', '>', '==', '!='))} {e('I', d)})",
            lambda: f"({e('I', d)} % 2 == {c(0, 1)})",
            lambda: f"({e('F', d)} {self.rng.choice('<>')} {e(self.rng.choice('FI'), d)})",
            lambda: f"({c(-3, 1)} < {e('I', d)} <= {c(2, 6)})",
            lambda: f"(not {e('B', d)})",
            lambda: f"({e('B', d)} {self.rng.choice(('and', 'or'))} {e('B', d)})",
            lambda: f"({e('I', d)} {self.rng.choice(('in', 'not in'))} {e('L', d)})",
            lambda: f"({self.rng.choice(KEYS)} in {e('D', d)})",
            lambda: f"({e('L', d)} == {e('L', d)})",
            lambda: f"({e('Z', d)} == {e('Z', d)})",
            lambda: f"{self.rng.choice(('any', 'all'))}(v > {c()} for v in {e('L', d)})",
            lambda: f"({e('A', 0)}.shape[0] {self.rng.choice('<>')} {c(3, 5)})",
            lambda: f"({e('A', 0)} is {e('A', 0)})",
            lambda: f"isinstance({e(self.rng.choice('IFZLO'), 0)}, {self.rng.choice(('int', '(int, float)', 'list', 'str'))})",
            lambda: f"bool({e(self.rng.choice('ILDZO'), d)})",
        )

    def array_condition(self) -> str:
        e = self.expr
        return self.one(
            lambda: f"{e('A', 1)}.sum() > {e('F', 1)}",
            lambda: f"({e('A', 1)} > {e('F', 1)}).{self.rng.choice(('any', 'all'))}()",
            lambda: f"{e('A', 1)}.max() >= {e('I', 1)}",
            lambda: f"{e('A', 0)}[0] < {e('A', 0)}[-1]",
            lambda: f"{e('T', 1)} > 0",
            lambda: f"np.all({e('A', 1)} == {e('A', 1)})",
            lambda: f"{e('B', 1)} and {e('A', 0)}.min() < {self.count()}",
        )

    def condition(self) -> str:
        return self.array_condition() if self.about_arrays and self.chance(0.25) else self.expr("B")

    def _L(self, d: int) -> str:
        e, c = self.expr, self.count
        if d < 0:
            return f"[{c()}, {c()}]"
        return self.one(
            lambda: f"[{e('I', d)}, {e('I', d)}]",
            lambda: f"[v + {e('I', d)} for v in {e('L', d)}]",
            lambda: f"[v for v in {e('L', d)} if v {self.rng.choice('<>')} {e('I', d)}]",
            lambda: f"list(range({e('I', d)} % 4))",
            lambda: f"sorted({e('L', d)}{self.rng.choice(('', ', reverse=True', ', key=lambda v: -v'))})",
            lambda: f"{e('L', d)}[{self.rng.choice(('1:', ':2', '::-1', ':', '-2:'))}]",
            lambda: f"{e('K', d)}.tolist()",
            lambda: f"[int(v) for v in {e('A', d)}]",
            lambda: f"list({e('D', d)}.values())",
            lambda: f"list({self.rng.choice(('countdown', 'steps'))}({e('I', d)} % 4))",
            lambda: f"list(map(lambda v: v {self.rng.choice('+-')} {e('I', d)}, {e('L', d)}))",
            lambda: f"list(filter(lambda v: v > {c()}, {e('L', d)}))",
            lambda: f"[i * v for i, v in enumerate({e('L', d)})]",
            lambda: f"[v - w for v, w in zip({e('L', d)}, {e('L', d)})]",
            lambda: f"({e('L', d)} + {e('L', d)})[:6]",
            lambda: f"[*{e('L', d)}, {e('I', d)}][-6:]",
            lambda: f"[v + w for v in {e('L', d)}[:2] for w in {e('L', d)}[:2]]",
            lambda: f"sorted({{v % 5 for v in {e('L', d)}}})",
        )

    def _D(self, d: int) -> str:
        e = self.expr
        if d < 0:
            return '{"a": 1, "b": 2}'
        return self.one(
            lambda: f'{{"a": {e("I", d)}, "b": {e("I", d)}}}',
            lambda: f"dict({e('D', d)}, a={e('I', d)})",
            lambda: f'{{**{e("D", d)}, "a": {e("I", d)}}}',
            lambda: f'({e("D", d)} | {{"c": {e("I", d)}}})',
            lambda: f'dict(zip("abcd", {e("L", d)}))',
            lambda: f"{{key: v + 1 for key, v in {e('D', d)}.items()}}",
        )

    def _Z(self, d: int) -> str:
        e = self.expr
        error = self.name("E")
        if error is not None and self.chance(0.6):
            return self.rng.choice((f"str({error})", f"type({error}).__name__", f"repr({error}.args)"))
        if d < 0:
            return self.rng.choice(WORDS)
        return self.one(
            lambda: self.rng.choice(WORDS),
            lambda: f"str({e(self.rng.choice('IFB'), d)})",
            lambda: f'f"{{{self.name("I") or "n"}}}:{{{self.name("F") or "s"}:.1f}}:{{{self.name("L") or "items"}}}"[:12]',
            lambda: f"({e('Z', d)}[:3] + {self.rng.choice(WORDS)})",
            lambda: f'",".join(str(v) for v in {e("L", d)}[:4])',
            lambda: f"{e('Z', d)}.{self.rng.choice(('upper', 'title', 'strip'))}()",
            lambda: f'"%s-%d" % ({e("Z", d)}[:4], {e("I", d)})',
        )

    def _O(self, d: int) -> str:
        e = self.expr
        if d < 0:
            return "Box(1)"
        return self.one(
            lambda: f"Box({e('I', d)})",
            lambda: f"({e('O', d)} + {e('I', d)})",
            lambda: f"Box({e('I', d)}, {e('A', d)})",
            lambda: "box.add()",
        )

    def _E(self, d: int) -> str:
        return 'ValueError("made")'

    # -- statements
    def block(self, most: int) -> list[Statement]:
        body: list[Statement] = []
        for _ in range(max(1, most)):
            if self.left <= 0 and body:
                break
            self.left -= 1
            made = self.statement()
            body += made
            if leaves(made):
                break
        return body

    def body(self) -> list[Statement]:
        return self.block(self.rng.randint(1, 3))

    def statement(self) -> list[Statement]:
        choices: list[tuple[float, Callable]] = [
            (10 if self.about_arrays else 2, self.assign_array),
            (14, self.assign_plain),
            (5, self.augment),
            (9 if self.about_arrays else 1, self.write_array),
            (9, self.mutate),
            (4, self.unpack),
            (6, self.say),
            (0.6, self.fail),
            (1, self.assertion),
        ]
        if self.depth < 3:
            choices += [(8, self.branch), (7, self.for_loop), (3, self.while_loop), (7, self.attempt)]
            choices += [(2, self.with_block), (2, self.match)]
        if not self.nested and self.depth < 2:
            choices += [(5, self.define), (2, self.define_generator)]
        if self.loops:
            choices += [(2.5, self.jump)]
        if self.depth:
            choices += [(0.7, self.leave)]
        if self.functions:
            choices += [(3, self.call_one)]
        return self.rng.choices([c for _, c in choices], [w for w, _ in choices])[0]()

    def assign(self, kind: str, value: str | None = None) -> list[Statement]:
        value = self.expr(kind, self.rng.randint(1, 3)) if value is None else value
        return [Statement(f"{self.bind(kind, self.target(kind))} = {value}")]

    def assign_array(self) -> list[Statement]:
        return self.assign(self.rng.choices("AKSMT", (10, 2, 2, 2, 3))[0])

    def assign_plain(self) -> list[Statement]:
        if self.chance(0.15) and not self.nested:
            return [Statement(self.rng.choice(("total += {}", "COUNT = COUNT + {}", "total = total - {}")).format(self.expr("I")))]
        return self.assign(self.rng.choices("IFBLDZO", (10, 5, 4, 5, 2, 3, 2))[0])

    def augment(self) -> list[Statement]:
        kind = self.rng.choice("AIIFLZ")
        there = [n for n in self.names[kind] if n not in self.frozen]
        if self.nested:
            there = [n for n in there if n in self.local]
        if not there:
            return self.assign_plain()
        name = self.rng.choice(there)
        operator = {"A": "+= -= *=", "I": "+= -= |=", "F": "+= -=", "L": "+=", "Z": "+="}[kind].split()
        value = {"L": f"[{self.expr('I')}]", "Z": self.rng.choice(WORDS)}.get(kind) or self.expr(kind, 1)
        if kind == "A" and self.chance(0.5):
            value = self.expr(self.rng.choice("IF"), 1)
        return [Statement(f"{name} {self.rng.choice(operator)} {value}")]

    def write_array(self) -> list[Statement]:
        a, e = self.name("A") or "x", self.expr
        text = self.one(
            lambda: f"{a}[1:] {self.rng.choice(('+=', '-=', '='))} {e('S')}",
            lambda: f"{a}[1:] {self.rng.choice(('+=', '-=', '*='))} {e('I', 1)}",
            lambda: f"{a}[{self.count(-1, 1)}] {self.rng.choice(('=', '+='))} {e(self.rng.choice('IFT'), 1)}",
            lambda: f"{a}[::2] = {e(self.rng.choice('IF'), 1)}",
            lambda: f"{a}[...] = {e('A', 1)}",
            lambda: f"{a}[:] = {e('A', 1)}[::-1]",
            lambda: f"{a}[{e('A', 1)} > {e('F', 1)}] {self.rng.choice(('=', '-='))} {self.count()}",
            lambda: f"{a}[{e('K', 1)} % {a}.shape[0]] = {e('F', 1)}",
            lambda: f"np.add({a}, {e(self.rng.choice('AI'), 1)}, out={a})",
            lambda: f"{a}.fill({e('F', 1)})",
            lambda: f"{a}.sort()",
            lambda: f"bump({a}" + self.rng.choice((")", f", by={e('F', 1)})")),
            lambda: f"for i in range(len({a})):\n    {a}[i] {self.rng.choice(('+=', '='))} i * {self.count()}",
            lambda: f"{self.bind('S', self.new('v_'))} = {a}[:-1]",
            lambda: f"{self.bind('A', self.new('b_'))} = {a}",
            lambda: f"box.data = {e('A', 1)}",
        )
        return [Statement(text)]

    def mutate(self) -> list[Statement]:
        items, table, e = self.name("L") or "items", self.name("D") or "table", self.expr
        text = self.one(
            lambda: f"{items}.append({e('I')})",
            lambda: f"{items}.extend({e('L', 1)}[:2])",
            lambda: f"{items}.insert({self.count(0, 2)}, {e('I', 1)})",
            lambda: f"if {items}:\n    {items}[{self.rng.choice((0, -1))}] {self.rng.choice(('=', '+='))} {e('I', 1)}",
            lambda: f"{items}[1:] = {e('L', 1)}[:3]",
            lambda: f"{items}.{self.rng.choice(('reverse', 'sort', 'copy'))}()",
            lambda: f"{self.bind('I', self.new('i_'))} = {items}.pop() if {items} else 0",
            lambda: f"del {items}[{self.rng.choice(('2:', ':1'))}]",
            lambda: f"push({items}, {e('I', 1)})",
            lambda: f"{table}[{self.rng.choice(KEYS)}] = {e('I')}",
            lambda: f'{table}["a"] += {e("I", 1)}',
            lambda: f"{table}.update({self.rng.choice('bcd')}={e('I', 1)})",
            lambda: f"{table}.pop({self.rng.choice(KEYS[1:])}, None)",
            lambda: f"{table}.setdefault({self.rng.choice(KEYS)}, {e('I', 1)})",
            lambda: f'{table}["e"] = {table}.get("e", 0) + 1',
            lambda: f"box.value {self.rng.choice(('=', '+=', '-='))} {e('I', 1)}",
            lambda: f"box.add({e('I', 1)})",
            lambda: f"box.note = {e('Z', 1)}",
            lambda: f"log.append({e('I', 1)})",
        )
        return [Statement(text)]

    def unpack(self) -> list[Statement]:
        e = self.expr

        def swap() -> str:
            there = [n for n in self.names["I"] if n not in self.frozen and (not self.nested or n in self.local)]
            if len(there) < 2:
                return two()
            a, b = self.rng.sample(there, 2)
            return f"{a}, {b} = {b}, {a}"

        def two() -> str:
            value = f"{e('I')}, {e('F')}"
            return f"{self.bind('I', self.new('i_'))}, {self.bind('F', self.new('f_'))} = {value}"

        def star() -> str:
            value = f"[{e('I', 1)}, *{e('L', 1)}]"
            return f"{self.bind('I', self.new('i_'))}, *{self.bind('L', self.new('l_'))} = {value}"

        def nested() -> str:
            value = f"({e('I', 1)}, {e('I', 1)}), {e('Z', 1)}"
            pair = f"({self.bind('I', self.new('i_'))}, {self.bind('I', self.new('i_'))})"
            return f"{pair}, {self.bind('Z', self.new('z_'))} = {value}"

        def arrays() -> str:
            value = f"{e('A', 1)}, {e('A', 1)}"
            return f"{self.bind('A', self.new('a_'))}, {self.bind('A', self.new('a_'))} = {value}"

        def sent() -> str:
            g, value = self.new("g"), e("I", 1)
            end = f"{g}.close()"
            if self.chance(0.4):
                end = f'{self.bind("I", self.new("i_"))} = {g}.throw(ValueError("thrown"))'
            return f"{g} = running()\nnext({g})\n{self.bind('I', self.new('i_'))} = {g}.send({value})\n{end}"

        return [Statement(self.one(swap, two, star, nested, arrays, sent))]

    def say(self) -> list[Statement]:
        values = [self.expr(self.rng.choice("IIFZBL"), 1) for _ in range(self.count(1, 3))]
        if self.about_arrays and self.chance(0.1):
            values.append(f"{self.expr('A', 1)}.tolist()")
        more = self.rng.choice(("", "", "", ', sep="|"', ', end=";\\n"'))
        return [Statement(f"print({self.rng.choice(WORDS)}, {', '.join(values)}{more})")]

    def call_one(self) -> list[Statement]:
        function = self.rng.choice(self.functions)
        value = self.call(function)
        return [Statement(value)] if self.chance(0.3) else self.assign(function[2], value)

    def results(self) -> str:
        kinds = [k for k in "AAAKSMTIIFBLDZO" if self.names[k]]
        parts = [self.expr(kind, self.rng.choice((0, 0, 1))) for kind in self.rng.sample(kinds, min(len(kinds), self.count(1, 5)))]
        return ", ".join(parts)

    def leave(self) -> list[Statement]:
        if self.nested:
            return [Statement(f"return {self.expr(self.result)}")]
        return [Statement(f"return {self.results()}")]

    def jump(self) -> list[Statement]:
        jump = self.rng.choice(("break", "continue"))
        if self.chance(0.25):
            return [Statement(jump)]
        return [Statement(arms=[(f"if {self.condition()}:", [Statement(jump)])])]

    # -- compound statements
    def arm(self, header: str, loops: int = 0) -> tuple[str, list[Statement]]:
        with self.inside(loops):
            return header, self.body()

    def branch(self) -> list[Statement]:
        if self.chance(0.12):
            name, value = self.new("i_"), self.expr("I")
            self.bind("I", name)
            return [Statement(arms=[self.arm(f"if ({name} := {value}) > {self.count()}:")])]
        arms = [self.arm(f"if {self.condition()}:")]
        if self.chance(0.25):
            arms.append(self.arm(f"elif {self.condition()}:"))
        if self.chance(0.6):
            arms.append(self.arm("else:"))
        return [Statement(arms=arms)]

    def for_loop(self) -> list[Statement]:
        e, v = self.expr, self.new("i_")
        bound = [("I", v)]
        first: list[Statement] = []
        items = self.name("L") or "items"
        i, w = self.new("j_"), self.new("w_")

        def direct() -> str:
            self.frozen.add(items)  # the body may make it longer, by any name; this one stays the list's
            first.append(Statement(arms=[(f"if len({items}) > 9:", [Statement("break", ends_loop=True)])], ends_loop=True))
            return f"for {v} in {items}:"

        def numbered() -> str:
            bound.append(("I", i))
            return f"for {i}, {v} in enumerate({e('L', 1)}[:3]):"

        def zipped() -> str:
            bound.append(("I", i))
            return f"for {i}, {v} in zip({e('L', 1)}, range({self.count(1, 4)})):"

        def entries() -> str:
            bound.append(("Z", w))
            return f"for {w}, {v} in {self.rng.choice(('sorted({})', 'list({})', '{}')).format(e('D', 1) + '.items()')}:"

        def rows() -> str:
            bound[:] = [("A", v)]
            return f"for {v} in {e('M', 1)}[:2]:"

        def scalars() -> str:
            bound[:] = [("T", v)]
            return f"for {v} in {e('A', 1)}[:3]:"

        options = [direct, numbered, zipped, entries]
        options += [lambda: f"for {v} in range({self.count(1, 4)}):", lambda: f"for {v} in range({e('I', 1)} % 4):"]
        options += [lambda: f"for {v} in {self.rng.choice(('countdown', 'steps'))}({e('I', 1)} % 4):"]
        options += [lambda: f"for {v} in reversed({e('L', 1)}[:3]):", lambda: f"for {v} in [{e('I', 1)}, {e('I', 1)}]:"]
        if self.about_arrays:
            options += [rows, scalars]
        header = self.rng.choice(options)()
        with self.inside(loops=1):
            for kind, name in bound:
                self.bind(kind, name)
            arms = [(header, first + self.body())]
        if self.chance(0.15):
            arms.append(self.arm("else:"))
        return [Statement(arms=arms)]

    def while_loop(self) -> list[Statement]:
        i = self.bind("I", self.new("i_"))
        self.frozen.add(i)
        condition = f"{i} < {self.count(1, 4)}"
        if self.chance(0.5):
            condition += f" and {self.condition()}"
        with self.inside(loops=1):
            arms = [(f"while {condition}:", [Statement(f"{i} += 1", ends_loop=True), *self.body()])]
        if self.chance(0.15):
            arms.append(self.arm("else:"))
        return [Statement(f"{i} = 0", arms)]

    def failing(self) -> tuple[str, str]:
        """A statement that raises, mostly, and what."""
        e = self.expr
        return self.one(
            lambda: (f'raise ValueError("no {self.count()}")', "ValueError"),
            lambda: (f'raise ValueError(f"n is {{{self.name("I") or "n"}}}")', "ValueError"),
            lambda: (f"raise KeyError({self.rng.choice(KEYS)})", "KeyError"),
            lambda: (f'raise Stop("enough", {e("I", 1)})', "Stop"),
            lambda: ("raise RuntimeError", "RuntimeError"),
            lambda: (f'raise TypeError("kind") from {self.rng.choice(("None", "ValueError(1)"))}', "TypeError"),
            lambda: (f"{self.new('q')} = {e('L', 1)}[99]", "IndexError"),
            lambda: (f'{self.new("q")} = {e("D", 1)}["missing"]', "KeyError"),
            lambda: (f"{self.new('q')} = {e('I', 1)} // (n - n)", "ZeroDivisionError"),
            lambda: (f'{self.new("q")} = int("x" + {e("Z", 1)})', "ValueError"),
            lambda: (f'assert {e("I", 1)} > 90, "small"', "AssertionError"),
            lambda: (f"check({e('I', 1)})", "ValueError"),
            lambda: (f"check({e('I', 1)} * 3)", "ValueError"),
            lambda: (f"guarded({e('A', 1)}, {e('F', 1)})", "Stop"),
            lambda: ("next(iter([]))", "StopIteration"),
            lambda: ("box.missing", "AttributeError"),
            lambda: (f"{self.new('q')} = {e('Z', 1)} + {e('I', 1)}", "TypeError"),
            lambda: ("total_of(1)(2)", "TypeError"),
            lambda: (f"{self.new('q')} = {e('A', 1)} + np.ones(99)", "ValueError"),
            lambda: (f"{self.new('q')} = {e('A', 1)}.reshape(7, 99)", "ValueError"),
            lambda: (f"{self.new('q')} = {e('A', 1)}[99]", "IndexError"),
        )

    def fail(self) -> list[Statement]:
        return [Statement(arms=[(f"if {self.condition()}:", [Statement(self.failing()[0])])])]

    def assertion(self) -> list[Statement]:
        return [Statement(f"assert {self.expr('I', 0)} > -1000, {self.expr('Z', 1)}")]

    def attempt(self) -> list[Statement]:
        raised = "ValueError"
        with self.inside():
            body = self.body() if self.chance(0.8) else []
            if self.chance(0.85) and not leaves(body):
                text, raised = self.failing()
                one = Statement(text)
                body.append(Statement(arms=[(f"if {self.condition()}:", [one])]) if self.chance(0.4) else one)
        arms = [("try:", body)]
        finally_too = self.chance(0.3)
        if not finally_too or self.chance(0.7):
            others = ["ValueError", "KeyError", "IndexError", "LookupError", "ArithmeticError", "TypeError", "Stop"]
            if self.chance(0.3):
                arms.append(self.handler(self.rng.choice([o for o in others if o != raised])))
            if self.chance(0.95) or len(arms) == 1:
                arms.append(self.handler(self.rng.choice((raised, raised, "Exception", f"({raised}, OSError)"))))
            if self.chance(0.2):
                arms.append(self.arm("else:"))
        if finally_too:
            arms.append(self.arm("finally:"))
        return [Statement(arms=arms)]

    def handler(self, kind: str) -> tuple[str, list[Statement]]:
        error = self.new("e") if self.chance(0.6) else ""
        with self.inside():
            if error:
                self.bind("E", error)
            body = self.body()
            if self.chance(0.06) and not leaves(body):
                again = ("raise", f'raise RuntimeError("wrapped") from {error or None}', 'raise Stop("again")')
                body.append(Statement(self.rng.choice(again)))
        return f"except {kind}{' as ' + error if error else ''}:", body

    def with_block(self) -> list[Statement]:
        manager = self.one(
            lambda: f'Recorder("{self.new("r")}", {self.expr("B", 1)})',
            lambda: f'Recorder("{self.new("r")}") as {self.new("r")}',
            lambda: f'Recorder("outer"), Recorder("inner", {self.expr("B", 0)})',
            lambda: "contextlib.suppress(ValueError, KeyError)",
            lambda: 'np.errstate(all="ignore")',
        )
        with self.inside():
            body = self.body()
            if self.chance(0.35) and not leaves(body) and "errstate" not in manager:
                body.append(Statement(self.failing()[0]))
        return [Statement(arms=[(f"with {manager}:", body)])]

    def match(self) -> list[Statement]:
        subject, cases = self.one(
            lambda: (f"{self.expr('I')} % 3", ["case 0:", "case 1 | 2:"]),
            lambda: (self.expr("L"), ["case []:", "case [_]:", f"case [{self.new('q')}, *_] if {self.expr('B', 1)}:"]),
            lambda: (self.expr("D"), ['case {"d": _}:', f'case {{"a": {self.new("q")}, **{self.new("q")}}}:']),
            lambda: (self.expr("O", 0), [f"case Box(value=0 | {self.count()}):", "case Box():"]),
            lambda: (f"({self.expr('I', 1)}, {self.expr('Z', 1)})", [f"case ({self.count()}, _):", 'case (_, "x" | ""):']),
        )
        arms = [self.arm(case) for case in cases]
        if self.chance(0.5):
            arms.append(self.arm("case _:"))
        return [Statement(arms=[(f"match {subject}:", [Statement(arms=arms)])])]

    def define(self) -> list[Statement]:
        """A function within the function, which may rebind names of the outer one."""
        name = self.new("g")
        kinds = [self.rng.choice("AIIFL") for _ in range(self.count(0, 2))]
        parameters = [self.new("p_") for _ in kinds]
        result = self.rng.choice("AIIFL" if self.about_arrays else "IIFL")
        first: list[Statement] = []
        self.local = set(parameters)
        outer = [n for k in "IFA" for n in self.names[k] if n not in self.frozen]
        if outer and self.chance(0.5):
            rebound = self.rng.choice(outer)
            self.local.add(rebound)
            kind = next(k for k in "IFA" if rebound in self.names[k])
            first = [Statement(f"nonlocal {rebound}"), Statement(f"{rebound} {self.rng.choice(('+=', '='))} {self.expr(kind, 1)}")]
        before, frozen, loops, self.loops = {k: list(v) for k, v in self.names.items()}, set(self.frozen), self.loops, 0
        functions, left = list(self.functions), self.left
        self.nested, self.result, self.depth = True, result, self.depth + 1
        for kind, parameter in zip(kinds, parameters):
            self.bind(kind, parameter)
        self.frozen |= {n for names in before.values() for n in names}  # which would make them local to this one
        self.left = min(left, self.count(1, 4))
        body = first + self.block(self.left)
        if not leaves(body):
            body.append(Statement(f"return {self.expr(result)}"))
        self.left = left - 1
        self.nested, self.depth, self.loops = False, self.depth - 1, loops
        self.names, self.frozen, self.functions = before, frozen, functions
        if parameters and self.chance(0.3) and kinds[-1] in "IF":
            parameters[-1] += f"={self.count()}"
        self.functions.append((name, kinds, result))
        return [Statement(arms=[(f"def {name}({', '.join(parameters)}):", body)])]

    def define_generator(self) -> list[Statement]:
        name, v = self.new("g"), self.new("i_")
        extra = self.rng.choice(([], [Statement(f"log.append({v})")], [Statement(arms=[(f"if {v} > 3:", [Statement("return")])])]))
        body = [Statement(arms=[(f"for {v} in {self.expr('L', 1)}[:4]:", [*extra, Statement(f"yield {v} + {self.expr('I', 1)}")])])]
        if self.chance(0.3):
            body = [Statement(arms=[("try:", body), ("finally:", [Statement("log.append(-1)")])])]
        there = Statement(arms=[(f"def {name}():", body)])
        use = f"list({name}())" if self.chance(0.6) else f"[v for v in {name}() if v % 2]"
        return [there, *self.assign("L", use)]

    local: set[str] = set()  # noqa: RUF012 - names that a nested function may rebind
    result = "I"


def leaves(body: list[Statement]) -> bool:
    return bool(body) and re.match(r"(return|raise|break|continue)\b", body[-1].text) is not None


def generate(rng: random.Random) -> Program:
    return Generator(rng).program()


def from_seed(seed: int) -> Program:
    program = generate(random.Random(seed))
    program.seed = seed
    return program


# -- running one -------------------------------------------------------------------------------------------------------------------


NO_END = "the plain call does not end: no program should be like this"


def arguments(program: Program, names: dict[str, Any], variant: int) -> tuple:
    rng = random.Random(program.seed * 3 + variant)
    size = (4, 4, 6)[variant]
    x = np.array([rng.randint(-4, 7) for _ in range(size)], float)
    y = np.array([rng.randint(-4, 7) for _ in range(size)], float)
    if program.sharing == "same":
        y = x
    elif program.sharing == "overlap":
        base = np.concatenate([x, y[:2]])
        x, y = base[:size], base[2:]
    elif program.sharing == "strided":
        base = np.stack([x, y], axis=1)
        x, y = base[:, 0], base[::-1, 1]
    k = np.array([rng.randint(0, 9) for _ in range(size)])
    items = [rng.randint(-3, 8) for _ in range(3 + variant)]
    table = {key: rng.randint(-3, 8) for key in "abc"[: 3 - variant // 2]}
    box = names["Box"](rng.randint(-3, 8)) if "Box" in names else None
    return x, y, k, rng.randint(0, 6), rng.randint(-6, 9) / 2, items, table, box


def outcomes(program: Program, source: str, wrap: Callable) -> tuple[list[Outcome], Any]:
    """What can be seen of the calls, and the state that they leave around the function."""
    file = program.filename
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names: dict[str, Any] = {"__name__": "generated"}
    exec(compile(source, file, "exec"), names)
    function, state = names["make"]()
    function = wrap(function)
    return [observe(function, arguments(program, names, variant), {}, file) for variant in VARIANTS], state()


@dataclass
class Reached:
    """How far compilation came, over many programs."""

    classes: dict[str, int] = field(default_factory=dict)
    errors: int = 0  # plain calls that raised
    calls: int = 0


def summary(outcome: Outcome) -> str:
    raised = f"raised {outcome.error!r} at lines {outcome.lines}, " if outcome.error is not None else ""
    return f"{raised}printed {outcome.printed!r}, gave {outcome.result!r:.300}"


def difference(program: Program, counts: Reached | None = None, plain_only: bool = False) -> str | None:
    """What differs between plain and compiled calls, as a text; None: nothing."""
    source = program.source
    compiled: list[Any] = []
    backend = RecordingBackend()

    def wrap(function: Callable) -> Callable:
        compiled.append(dg.compile(function, backend=backend))
        return compiled[0]

    try:
        with warnings.catch_warnings(), limited(20.0):
            warnings.simplefilter("ignore")
            try:
                expected, state = outcomes(program, source, lambda function: function)
            except Hang:
                return NO_END
            if counts is not None:
                counts.calls += CALLS
                counts.errors += sum(o.error is not None for o in expected)
            with dg.config.override(strict=True):
                got, state_got = outcomes(program, source, (lambda function: function) if plain_only else wrap)
        for number, (e, g) in enumerate(zip(expected, got), 1):
            try:
                assert_same(e, g, f"call {number}")
            except AssertionError as error:
                raise AssertionError(f"{error}\n  plain: {summary(e)}\n  compiled: {summary(g)}") from None
        same_value(Walk(), state, Walk(), state_got, "state around the function")
        if compiled:
            assert compiled[0].stats.fallbacks == 0, f"fallback: {compiled[0].stats.last_error!r}"
            if counts is not None:
                found = reached(compiled[0], backend)
                counts.classes[found] = counts.classes.get(found, 0) + 1
    except SyntaxError:
        raise
    except (Exception, Hang) as error:
        if isinstance(error, AssertionError) and str(error):
            return str(error)
        return "".join(traceback.format_exception(error)[-8:])
    return None


# -- making it smaller -------------------------------------------------------------------------------------------------------------


def reduced(program: Program, fails: Callable[[Program], bool] | None = None, seconds: float = 20.0) -> Program:
    """The program with statements deleted, or compound ones replaced with a body of theirs, as long as it fails."""
    fails = fails or (lambda p: difference(p) not in (None, NO_END))
    return statements.reduced(program, fails, seconds, lambda p: [Program(p.body, "", p.seed)] if p.sharing else [])


def report(program: Program, shrink: float = 20.0) -> str:
    """A failing program, made smaller, for people."""
    small = reduced(program, seconds=shrink)
    return (
        f"seed {program.seed} (python -m tests.behaviours.programs {program.seed}), sharing {small.sharing or 'none'}:\n\n"
        f"{small.source}\n{difference(small) or 'does not repeat: ' + str(difference(program))}"
    )


def main() -> None:
    seeds = [int(a) for a in sys.argv[1:] if a.isdigit()]
    plain_only = "plain" in sys.argv
    counts, failed = Reached(), []
    if len(seeds) == 1:
        print(from_seed(seeds[0]).source, flush=True)
    for seed in range(seeds[0], seeds[-1] + (len(seeds) == 1)):
        print(f"\r{seed}", end="", file=sys.stderr, flush=True)
        found = difference(from_seed(seed), counts, plain_only)
        if found is not None:
            failed.append(seed)
            print(f"\n{report(from_seed(seed)) if not plain_only else found}", flush=True)
    print(f"\n{len(failed)} differ: {failed}; {counts}")


if __name__ == "__main__":
    main()
