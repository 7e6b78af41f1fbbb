"""Random nests of counting loops over elements, plain and compiled, bit for bit: what runs an outer loop's turns as lanes.

    python -m tests.loops.nests SEED        # prints the program of a seed, and what differs
    python -m tests.loops.nests SEED END    # checks a range
    python -m tests.loops.nests walks ...   # of nests that may run in another order

Loops have enough turns for strips and for what is left over.  Arrays may share memory, have any layout, and be too small; bounds
may depend on outer loops; variables are used after the loops.  Of the compiled calls, some are interrupted.
"""

from __future__ import annotations

import linecache
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dynagraph as dg
from tests.loops.compare import Seen, differs, see

SIZES = (18, 20, 33, 35, 17, 4, 1, 0)
CALLS = 4
VECTORS, MATRICES = "xy", "ABC"
LANES, INTERCHANGED = ("lanes of vectors",), ("interchanged: ", "skewed: ")  # what is said of loops


class Nest:
    """The source of a function ``f(A, B, C, x, y, n, m, r)``."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.seed, self.filename = seed, f"<nests {seed}>"
        self.loops: list[str] = []
        self.wild = self.chance(0.2)
        self.branches = self.chance(0.5)  # lanes go different ways
        self.dtype = self.of("float64", "float64", "float64", "float32", "int64", "int32", "mixed")
        self.written = self.of("C", "C", "C", "A", "B", "y")
        body = [line for _ in range(self.of(1, 1, 1, 2)) for line in self.loop(self.of(2, 3, 3))]
        assigned = {line.split()[1 if "for " in line else 0] for line in body}
        names = [name for name in ("s", "t", "last", "count", *"ijkl") if name in assigned]
        start = [f"{name} = {'0' if name in 'ijklcount' and not self.odd() else self.of('0.0', '1.5', '0')}" for name in names]
        if not self.odd():  # what is read behind loops is written out before them, which leaves no nests
            names = []
        start = [line for line in start if line[0] in "stc" or names]
        lines = [*start, *body, f"return {', '.join(names) or 'r'}"]
        head = ["import math", "import numpy as np", "LOG = []", "", "def f(A, B, C, x, y, n, m, r):"]
        self.source = "\n".join([*head, *("    " + line for line in lines), ""])

    def of(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def odd(self) -> bool:
        return self.chance(0.3 if self.wild else 0.04)

    def loop(self, depth: int) -> list[str]:
        counter = "ijkl"[len(self.loops)]
        header = f"for {counter} in range({self.bounds()}):"
        self.loops.append(counter)
        if depth == 1:
            body = [line for _ in range(self.of(1, 1, 1, 2)) for line in self.innermost()]
        else:
            sums = self.chance(0.5)
            body = [self.of("s = 0.0", f"s = {self.element()}", f"t = {self.value()}")] if sums or self.odd() else []
            for _ in range(self.of(1, 1, 1, 1, 2)):
                body += self.loop(depth - 1)
            body += [self.after()] if sums or self.odd() else []
        self.loops.pop()
        return [header, *("    " + line for line in body)]

    def bounds(self) -> str:
        size = self.of("n", "n", "n", "m", "A.shape[0]", "len(x)")
        outer = self.rng.choice(self.loops) if self.loops else "1"
        if self.odd():
            return self.of(outer, f"{outer} + 1, {size}", f"{size} - 1, -1, -1", f"0, {size}, 2", f"{size} - {outer}", "3")
        rest = f"{outer}, {size}" if len(self.loops) == 1 else size
        if self.branches and self.loops and self.chance(0.3):  # as often as the lane says
            return self.of(outer, f"{outer} + 1, {size}", f"min({outer} + 2, {size})")
        return self.of(size, size, size, size, size, f"1, {size}", f"1, {size} - 1", rest)

    def index(self, counter: str) -> str:
        if self.odd():
            other = self.rng.choice(self.loops)
            last = f"n - 1 - {counter}"
            return self.of(f"{counter} - 1", f"{counter} + 1", f"{counter} + {other}", last, "0", "-1", "r", "m - 1")
        return counter

    def element(self, names: str = VECTORS + MATRICES, loops: list[str] | None = None) -> str:
        name, loops = self.rng.choice(names), loops or self.loops
        if name in VECTORS:
            return f"{name}[{self.index(self.rng.choice(loops))}]"
        counters = self.rng.sample(loops, 2) if len(loops) > 1 else [loops[0]] * 2
        return f"{name}[{self.index(counters[0])}, {self.index(counters[1])}]"

    def value(self, deep: int = 1) -> str:
        if deep and self.branches and self.chance(0.25):
            x, y = self.element(), self.value(0)
            whole = self.dtype.startswith("int")
            functions = [f"abs({x})", f"max({x}, {y})", f"min({x}, {y})", f"({x} if {self.test()} else {y})"]
            functions += [] if whole else [f"math.sqrt(abs({x}))", f"np.sqrt({x} * {x})", f"math.exp({x} * 0.01)"]
            return self.of(*functions)
        if deep and self.chance(0.6):
            return f"{self.value(deep - 1)} {self.of('*', '*', '+', '-')} {self.value(deep - 1)}"
        if self.odd():
            return self.of("0.5", "r", self.rng.choice(self.loops), "s", "(-s)", f"abs({self.element()})")
        others = "".join(name for name in VECTORS + MATRICES if name != self.written or self.chance(0.15))
        return self.element(others)

    def test(self) -> str:
        counters = [*self.loops, "0"]
        return self.of(
            f"{self.element()} > {self.of('0', '0.5', self.element())}",
            f"{self.element()} > 0 and {self.element()} < 1",
            f"{self.of(*counters)} {self.of('!=', '<', '>=', '==')} {self.of(*counters)}",
        )

    def branched(self, body: list[str]) -> list[str]:
        """Under a test, or in a loop that turns as often as data says."""
        within = ["    " + line for line in body]
        roll = self.rng.random()
        if roll < 0.4:
            return [f"if {self.test()}:", *within]
        if roll < 0.6:
            other = [f"    s {self.of('+', '-', '*')}= {self.value(0)}"]
            return [f"if {self.test()}:", *within, "else:", *other]
        if roll < 0.75:
            return [f"if {self.test()}:", f"    {self.of('continue', 'count += 1', 'break')}", *body]
        if roll < 0.9:
            return [*body, f"if {self.test()}:", f"    {self.of('count += 1', f'last = {self.loops[-1]}', 's = 0.5')}"]
        rises = [f"while u < {self.of('3.0', '2')} and turn < 9:", "    u = u + 0.75", "    turn += 1"]
        return [f"u = {self.element()}", "turn = 0", *rises, "s += u", *body]

    def innermost(self) -> list[str]:
        if self.branches and self.chance(0.7):
            self.branches = False
            made = self.branched(self.innermost())
            self.branches = True
            return made
        place = self.element(self.written, self.loops[-3:-1] if self.chance(0.8) else None)
        made = [f"{self.of('s', place)} {self.of('+', '+', '-', '*')}= {self.value()}"]
        if self.odd():
            made = [f"{place} = {self.value()}"]
        if self.odd():
            made = [f"if {self.of(self.element(), f'{self.rng.choice(self.loops)} - 2')} > 0:", *("    " + line for line in made)]
        if self.wild and self.chance(0.15):
            made += [f"if {self.element()} > 3.0:", "    break"]
        return made

    def after(self) -> str:
        place = self.element(self.written, self.loops[-2:])
        if self.odd():
            return self.of("t = s", f"last = {self.loops[-1]}", f"{place} /= r", f"t += {place}")
        return self.of(f"{place} = s", f"{place} += s", f"{place} = s * {self.value(0)}", f"{place} = s / 2.0")

    # -- arguments
    def arguments(self, call: int) -> tuple:
        kinds, values = random.Random(self.seed * 7 + call // 2), random.Random(self.seed * 31 + call)
        n = values.choice(SIZES[:5]) if call != 1 else values.choice(SIZES)
        m = n if kinds.random() < 0.7 else values.choice(SIZES)
        made: dict[str, np.ndarray] = {}
        for name in MATRICES + VECTORS:
            size = n + kinds.choice([0, 0, 0, 1, 1, 3]) - (kinds.random() < 0.02)
            dtype = kinds.choice(["float64", "float32", "int64", "uint8", "bool"]) if self.dtype == "mixed" else self.dtype
            made[name] = self.array(kinds, values, (max(size, 0),) * (2 if name in MATRICES else 1), dtype)
        if kinds.random() < 0.25:
            a = made["A"]
            made[kinds.choice("BC")] = kinds.choice([a, a.T, a[:, 1:], a[::-1], a[1:]])
        if kinds.random() < 0.2:
            x = made["x"]
            made["y"] = kinds.choice([x, x[1:], x[::-1], made["A"][0] if len(made["A"]) else x, x[:-1]])
        return (*made.values(), n, m, kinds.choice([1.5, 1.5, 2, 0]))

    @staticmethod
    def array(kinds: random.Random, values: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        made = np.random.default_rng(values.getrandbits(32))
        if dtype[0] != "f":
            x = made.integers(0 if dtype[0] in "ub" else -9, 2 if dtype == "bool" else 20, shape).astype(dtype)
            if dtype[:3] == "int" and x.size and values.random() < 0.1:
                x[tuple(values.randrange(n) for n in shape)] = np.iinfo(dtype).max
        else:
            x = made.standard_normal(shape).astype(dtype)
        if dtype[0] == "f" and x.size and values.random() < 0.3:
            for _ in range(3):
                x[tuple(values.randrange(n) for n in shape)] = values.choice([np.nan, np.inf, -0.0, 0.0, 1e30])
        if kinds.random() < 0.08:
            with np.errstate(all="ignore"):
                x = x.astype(kinds.choice(["float32", "int64"]))
        layout = kinds.random()
        if layout < 0.7:
            return x
        if layout < 0.8:
            return np.asfortranarray(x)
        if layout < 0.87:
            return np.repeat(x, 2, axis=-1)[..., ::2]
        if layout < 0.95:
            return x[::-1].copy()[::-1]
        x.flags.writeable = layout < 0.98
        return x


class Walk(Nest):
    """Perfect nests, or nearly so, in any order of their loops: such as run in another one."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.rng, self.loops = random.Random(seed * 13 + 5), []
        self.wild = self.chance(0.15)
        self.dtype = self.of("float64", "float64", "float32", "int64", "mixed")
        self.written = self.of("C", "C", "C", "y")
        order = self.rng.sample("ijk", self.of(2, 2, 3))
        body = self.statements(order)
        for counter in reversed(order):
            at = order.index(counter)
            body = [f"for {counter} in range({self.bound(order[:at])}):", *("    " + line for line in body)]
            if at and self.chance(0.1):
                body = [f"t = {self.place(self.of('A', 'B', 'x'), order[:at])}", *body]
        names = [name for name in ("s", "t", *order) if self.chance(0.1)]
        set_before = ("s", "t", *(name for name in names if name in order))
        start = [f"{name} = {self.of('0.5', '0') if name in 'st' else '-1'}" for name in set_before]
        lines = [*start, *body, f"return {', '.join(names) or 'r'}"]
        head = ["import math", "import numpy as np", "LOG = []", "", "def f(A, B, C, x, y, n, m, r):"]
        self.source = "\n".join([*head, *("    " + line for line in lines), ""])

    def bound(self, outer: list[str]) -> str:
        size = self.of("n", "n", "m", "n - 1")
        if outer and self.chance(0.4):
            o = self.rng.choice(outer)
            behind = (f"{o}, {size}", f"{o} + 1, {size}", f"{size} - {o}, {size}", f"{o}, {size} - {o}")
            return self.of(o, f"{o} + 1", f"{size} - {o}", *behind)
        return self.of(size, size, f"1, {size}", f"{size} - 1, -1, -1" if self.chance(0.3) else size)

    def place(self, name: str, loops: list[str]) -> str:
        def index() -> str:
            counter = self.rng.choice(loops)
            by = self.of("", "", "", "", " - 1", " + 1") if self.chance(0.5) else ""
            return self.of("0", f"n - 1 - {counter}", "r") if self.odd() else counter + by

        if name in VECTORS or len(loops) < 2:
            return f"{name}[{index()}]" if name in VECTORS else f"{name}[{index()}, 0]"
        counters = self.rng.sample(loops, 2)
        return f"{name}[{', '.join(c + (self.of('', ' - 1', ' + 1') if self.chance(0.2) else '') for c in counters)}]"

    def statements(self, order: list[str]) -> list[str]:
        def value() -> str:
            names = "ABxy" + self.written * self.chance(0.4)
            return self.of("2", "t", "s") if self.chance(0.1) else self.place(self.of(*names), order)

        made = []
        for _ in range(self.of(1, 1, 1, 2)):
            right = f"{value()} {self.of('*', '+', '-')} {value()}"
            made.append(f"{self.place(self.written, order)} {self.of('=', '=', '+=', '-=')} {right}")
        if self.chance(0.2):
            made = [f"if {self.place('A', order)} {self.of('==', '!=')} {value()}:", *("    " + line for line in made)]
        if len(order) > 1 and self.chance(0.15):
            i, j = self.rng.sample(order, 2)
            far = f"C[{i} {self.of('-', '+')} 1, {j} {self.of('-', '+')} 1]"
            near = [f"C[{i} - 1, {j}]", f"C[{i}, {j} - 1]", f"C[{i} + 1, {j}]", far]
            made = [f"C[{i}, {j}] = {' + '.join(near[: self.of(2, 3, 4)])} - {value()}"]
        if self.chance(0.15):
            loop = [f"for l in range({self.of('3', 'n', order[0])}):", f"    s += {self.place('B', [*order, 'l'])}"]
            made = ["s = 0.0", *loop, f"{self.place(self.written, order)} = s"]
        return made

    @staticmethod
    def array(kinds: random.Random, values: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return Nest.array(kinds, values, tuple(n + 2 for n in shape), dtype)


def outcomes(nest: Nest, wrap: Callable) -> Iterator[Seen]:
    names: dict[str, Any] = {"__name__": "generated"}
    exec(compile(nest.source, nest.filename, "exec"), names)
    f = wrap(names["f"])
    for call in range(CALLS):
        yield see(f, nest.arguments(call), names["LOG"], nest.filename)


def difference(nest: Nest, used: list[int] | None = None, says: tuple[str, ...] = LANES) -> str | None:
    """What differs between plain and compiled calls, as a text; None: nothing.  `used`: counts those with a loop that `says` so."""
    linecache.cache[nest.filename] = (len(nest.source), None, nest.source.splitlines(True), nest.filename)
    compiled: list[Any] = []

    def wrap(f: Callable) -> Callable:
        compiled.append(dg.compile(f, dynamic=True))
        return compiled[0]

    switches = dg.config.override(strict=True, unroll_limit=4, compile_budget=None, stay_eager=False, tiers="best")
    with warnings.catch_warnings(), switches, np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = list(outcomes(nest, lambda f: f))
        for call, (wanted, got) in enumerate(zip(expected, outcomes(nest, wrap))):
            text = differs(wanted, got)
            if text is not None:
                return f"call {call}: {text}"
    if compiled[0].stats.fallbacks:
        return f"fallback: {compiled[0].stats.last_error!r}"
    if used is not None:
        used[0] += any(said in loop for program in compiled[0].programs for loop in program.loops for said in says)
    return None


def main() -> int:
    walks = sys.argv[1:2] == ["walks"]
    kind, says = (Walk, INTERCHANGED) if walks else (Nest, LANES)
    seeds = [int(a) for a in sys.argv[1 + walks :]]
    if len(seeds) == 1:
        print(kind(seeds[0]).source, flush=True)
    failed, used = [], [0]
    for seed in range(seeds[0], seeds[-1] + (len(seeds) == 1)):
        print(f"\r{seed}", end="", file=sys.stderr, flush=True)
        text = difference(kind(seed), used, says)
        if text is not None:
            failed.append(seed)
            print(f"\nseed {seed}: {text}\n{kind(seed).source}", flush=True)
    print(f"\n{len(failed)} differ: {failed}; {used[0]} with {says}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
