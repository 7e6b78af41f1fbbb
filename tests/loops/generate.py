"""Random loop programs: the source of a function from a seed.

`from_seed(seed)` gives a `Program`: a tree of statements, which renders as a module with a function `f`.  The seed chooses one of
PROFILES, which says what loops are made of.  Programs end: trip counts are small by construction, `while` loops count, and ints do
not grow beyond some thousand bits.  Names may be unbound, indices out of bounds, divisors zero; the profile says how often.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

from tests.loops.expressions import PARAMETERS, SCALARS, WIDE, Expressions, Profile
from tests.statements import Statement, every, rendered

HELPERS = {
    "clamp": """
def clamp(v, low, high):
    if v < low:
        return low
    return high if v > high else v
""",
    "mix": """
def mix(a, b, w=0.25):
    return a * w + b * (1 - w)
""",
    "lcg": """
def lcg(h):
    return (h * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
""",
    "gcd": """
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a
""",
    "fact": """
def fact(k):
    return 1 if k <= 1 else k * fact(k - 1)
""",
    "quotient": """
def quotient(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        return 0.0
""",
    "put": """
def put(a, i, v):
    a[i] = v
""",
    "swap": """
def swap(a, i, j):
    a[i], a[j] = a[j], a[i]
""",
    "upto": """
def upto(k):
    i = 0
    while i < k:
        yield i
        i += 1
""",
    "count_below": """
def count_below(a, limit):
    found = 0
    for v in a:
        if v < limit:
            found += 1
    return found
""",
}
ERRORS = [
    "ZeroDivisionError",
    "IndexError",
    "(ArithmeticError, ValueError)",
    "OverflowError",
    "Exception",
    "(IndexError, TypeError)",
]


PROFILES = {
    "scalars": Profile(elements=0.0, risk=0.06, slices=0.0, python=0.0),
    "elements": Profile(elements=0.5, risk=0.05, slices=0.0, python=0.0),
    "exits": Profile(elements=0.25, risk=0.4, slices=0.02, python=0.03),
    "arrays": Profile(elements=0.3, risk=0.05, slices=0.45, python=0.0),
    "everything": Profile(elements=0.3, risk=0.12, slices=0.15, python=0.2),
}


@dataclass
class Program:
    body: list[Statement]
    seed: int
    profile: str
    only: tuple[int, ...] | None = None  # of its calls; None: all
    depth: int = field(default=0)  # of its loops

    @property
    def filename(self) -> str:
        return f"<loops {self.seed}>"

    @property
    def parameters(self) -> list[str]:
        text = "\n".join(rendered(self.body, 1))
        return [name for name in PARAMETERS if re.search(rf"\b{name}\b", text)] or ["n"]

    @property
    def source(self) -> str:
        text = "\n".join(rendered(self.body, 1))
        helpers = [source for name, source in HELPERS.items() if re.search(rf"\b{name}\(", text)]
        return "\n".join(
            [
                "import math",
                "",
                "import numpy as np",
                "",
                "LOG = []",
                *helpers,
                "",
                f"def f({', '.join(self.parameters)}):",
                text,
                "",
            ]
        )


def from_seed(seed: int) -> Program:
    rng = random.Random(seed)
    name = list(PROFILES)[seed % len(PROFILES)]
    generator = Generator(rng, PROFILES[name])
    body = generator.program()
    return Program(body, seed, name, depth=generator.deepest)


class Generator(Expressions):
    """Statements."""

    def program(self) -> list[Statement]:
        body = [*self.starts(), *self.loop()]
        while self.left > 0:
            body += self.one([(3, self.loop), (1, self.simple), (0.5, self.starts)])()
        return [*body, Statement(f"return {self.results()}")]

    # -- statements
    def block(self, statements: int) -> list[Statement]:
        body: list[Statement] = []
        for _ in range(statements):
            if self.left <= 0 and body:
                break
            body += self.statement()
            if re.match(r"(return|raise|break|continue)\b", body[-1].text):
                break
        return body

    def statement(self) -> list[Statement]:
        self.left -= 1
        deep = self.depth > 4
        return self.one(
            [
                (7, self.simple),
                (0 if deep else 2.5, self.branch),
                (0 if deep or self.loops >= 3 or self.left <= 0 else 1.5, self.loop),
                (0 if deep else 0.2 + 2 * self.profile.risk, self.attempt),
                (0.8 if self.loops and self.depth > self.loops else 0, self.leave),
                (0.3, self.starts),
            ]
        )()

    def simple(self) -> list[Statement]:
        p = self.profile
        return [
            Statement(text)
            for text in self.one(
                [
                    (3, self.update_number),
                    (2.5, self.update_int),
                    (0.8, self.update_bool),
                    (0.7 if self.names["N"] else 0, self.update_none),
                    (0.7 if self.names["C"] else 0, self.update_complex),
                    (6 * p.elements, self.store),
                    (5 * p.slices, self.store_slice),
                    (5 * p.python, self.in_python),
                    (0.7, self.assign),
                    (0.5, self.swap),
                    (0.2 + p.risk / 2, self.fail),
                ]
            )()
        ]

    def starts(self) -> list[Statement]:
        """Names that loops carry."""
        made = []
        for _ in range(self.rng.randint(1, 3)):
            kind, prefix, values = self.one(
                [
                    (3, lambda: ("F", "u", ["0", "0.0", "1.0", "0", "-0.0", self.rng.choice(SCALARS), self.float_value(1)])),
                    (3, lambda: ("I", "c", ["0", "1", "0", self.rng.choice(WIDE), self.int_value(1)])),
                    (1, lambda: ("B", "b", ["False", "True"])),
                    (0.6, lambda: ("N", "o", ["None"])),
                    (0.4, lambda: ("C", "w", ["0j", "0.0", "1 + 1j"])),
                    (self.profile.slices, lambda: ("V", "v", [self.vector(1)])),
                    (self.profile.python, lambda: ("L", "l", ["[]"])),
                ]
            )()
            made.append(Statement(self.let(kind, prefix, self.rng.choice(values))))
        return made

    def int_value(self, d: int = 2) -> str:
        """What does not grow from turn to turn but by some bits."""
        self.grows = False
        value = self.number("I", d)
        if not self.grows:
            return value
        return f"{value} {self.of('& 0xFFFFFFFFFFFFFFFF', '% 1000003', '& (2**62 - 1)', '% (2**61 - 1)', '% 97', '& 255')}"

    def float_value(self, d: int = 2) -> str:
        """The same: a number may be an int."""
        self.grows = False
        value = self.number("F", d)
        return value if not self.grows else self.of(f"clamp({value}, -1e6, 1e6)", f"{value} % 1e6", f"float({value})")

    def update_int(self) -> list[str]:
        c = self.target("I")
        if c is None:
            return [self.let("I", "c", self.int_value())]
        return [
            self.one(
                [
                    (3, lambda: f"{c} += {self.int_value(1)}"),
                    (1, lambda: f"{c} -= {self.int_value(1)}"),
                    (1, lambda: f"{c} {self.of('^', '|', '&')}= {self.int_value(1)}"),
                    (0.7, lambda: f"{c} *= {self.of('2', '3', '-1', '5', '1000003')}"),
                    (0.7, lambda: f"{c} {self.of('//', '%')}= {self.divisor('I', 1)}"),
                    (0.5, lambda: f"{c} {self.of('<<', '>>')}= {self.shift()}"),
                    (
                        1,
                        lambda: f"{c} = ({c} * 31 + {self.number('I', 1)}) {self.of('% 1000003', '& 0xFFFFFFFF', '& (2**64 - 1)')}",
                    ),
                    (0.7, lambda: f"{c} = (({c} ^ {self.number('I', 0)}) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF"),
                    (2, lambda: f"{c} = {self.int_value()}"),
                    (1, lambda: f"{c} = {self.of('min', 'max')}({c}, {self.int_value(1)})"),
                    (0.3, lambda: f"{c} = {c} + 1 if {self.number('B', 1)} else {self.number('F', 0)}"),
                ]
            )()
        ]

    def update_number(self) -> list[str]:
        u = self.target("F")
        if u is None:
            return [self.let("F", "u", self.float_value())]
        return [
            self.one(
                [
                    (5, lambda: f"{u} {self.of('+', '-', '+')}= {self.float_value()}"),
                    (1, lambda: f"{u} *= {self.element() or self.of('0.5', '-1.25', '2', '1.1')}"),
                    (0.7, lambda: f"{u} /= {self.divisor('F', 1)}"),
                    (0.4, lambda: f"{u} {self.of('//', '%')}= {self.divisor('F', 1)}"),
                    (2, lambda: f"{u} = {self.of('min', 'max')}({u}, {self.float_value(1)})"),
                    (1, lambda: f"{u} = {self.of('min', 'max')}({self.float_value(1)}, {u})"),
                    (3, lambda: f"{u} = {self.float_value()}"),
                    (1, lambda: f"{u} = {u} * 0.5 + {self.float_value(1)}"),
                    (0.5, lambda: f"{u} = {u} if {self.number('B', 1)} else {self.int_value(1)}"),
                ]
            )()
        ]

    def update_bool(self) -> list[str]:
        b = self.target("B")
        if b is None:
            return [self.let("B", "b", self.number("B"))]
        return [
            self.of(
                f"{b} = {self.number('B')}",
                f"{b} = {b} {self.of('and', 'or')} {self.number('B')}",
                f"{b} = not {b}",
                f"{b} {self.of('|', '&', '^')}= {self.number('B')}",
            )
        ]

    def update_none(self) -> list[str]:
        o = self.target("N")
        if o is None:
            return [self.let("N", "o", self.number("N"))]
        value = self.float_value(1)
        return [
            self.of(
                f"if {o} is None or {value} < {o}:\n    {o} = {value}",
                f"if {o} is None:\n    {o} = {value}\nelse:\n    {o} += {self.number('F', 1)}",
                f"{o} = {value} if {self.number('B', 1)} else None",
                f"{o} = None",
            )
        ]

    def update_complex(self) -> list[str]:
        w = self.target("C")
        if w is None:
            return [self.let("C", "w", self.number("C"))]
        return [
            self.of(
                f"{w} = {w} * {w} + {self.number('C', 1)}",
                f"{w} {self.of('+', '-', '*')}= {self.number('C', 1)}",
                f"{w} = {self.number('C')}",
            )
        ]

    def store(self) -> list[str]:
        element = self.element() or self.element("k") or "LOG[0]"
        other = self.element() or element
        array = self.array("v")
        return [
            self.one(
                [
                    (4, lambda: f"{element} = {self.number('F')}"),
                    (3, lambda: f"{element} {self.of('+', '-', '*')}= {self.number('F', 1)}"),
                    (0.5, lambda: f"{element} {self.of('/', '//', '%')}= {self.divisor('F', 1)}"),
                    (0.7, lambda: f"{element}, {other} = {other}, {element}"),
                    (0.5, lambda: f"{element} = {other} = {self.number('F', 1)}"),
                    (0.3, lambda: f"idx[{self.index()}] = {self.index()}" if self.names["k"] else f"{element} = 1"),
                    (0.4 if array else 0, lambda: f"put({array}, {self.index()}, {self.number('F', 1)})"),
                    (0.3 if array else 0, lambda: f"swap({array}, {self.index()}, {self.index()})"),
                ]
            )()
        ]

    def store_slice(self) -> list[str]:
        view = self.view()
        place = view if "[" in view else f"{view}[{self.slice()}]"
        return [
            self.one(
                [
                    (3, lambda: f"{place} = {self.vector(2)}"),
                    (2, lambda: f"{place} = {self.number('F', 1)}"),
                    (2, lambda: f"{place} {self.of('+', '-', '*')}= {self.vector(1)}"),
                    (1.5, lambda: f"{place} {self.of('+', '-', '*')}= {self.number('F', 1)}"),
                    (1, lambda: f"{(v := self.array('v') or 'x')}[1:] {self.of('', '+')}= {v}[:-1]"),
                    (1, lambda: f"{(v := self.array('v') or 'x')}[:-1] {self.of('', '-')}= {v}[1:]"),
                    (0.7, lambda: f"{(v := self.array('v') or 'x')}[:] = {v}[::-1]"),
                    (1, lambda: self.let("V", "v", self.vector(2))),
                    (
                        0.7,
                        lambda: f"{(a := self.array('a') or 'A')}[{self.index()}] -= {a}[{self.index()}] * {self.number('F', 1)}",
                    ),
                ]
            )()
        ]

    def in_python(self) -> list[str]:
        made = self.array("L") or "LOG"
        return [
            self.one(
                [
                    (2, lambda: f"print({self.number(self.of('I', 'B', 'i'), 1)})"),
                    (1, lambda: f"print({self.number('F', 1)})"),
                    (2, lambda: f"LOG.append({self.number('F', 1)})"),
                    (3, lambda: f"{made}.append({self.float_value(1)})"),
                    (1, lambda: f"{made} = [v * 2 for v in {made}]" if made not in ("LOG", "items") else "LOG.append(LOG[-1:])"),
                    (0.5, lambda: f"{made}.pop()" if self.risky() else f"LOG.append(len({made}))"),
                    (0.5, lambda: self.let("F", "u", f"sum(v for v in {made})")),
                    (0.5, lambda: f"LOG.append(str({self.number('i', 1)}))"),
                ]
            )()
        ]

    def assign(self) -> list[str]:
        """A name of any kind is bound to another kind."""
        kind = self.of("I", "F", "B", "F", "i")
        name = self.target(self.of("F", "I", "B")) or self.new("u")
        if kind == "i" and name in self.frozen:
            return ["pass"]
        value = self.int_value(1) if kind == "I" else self.float_value() if kind == "F" else self.number(kind)
        return [f"{self.bind('I' if kind == 'i' else kind, name)} = {value}"]

    def swap(self) -> list[str]:
        kind = self.of("F", "I")
        a, b = self.target(kind), self.target(kind)
        if a is None or b is None:
            return self.update_number()
        value = self.float_value(1) if kind == "F" else self.int_value(1)
        return [self.of(f"{a}, {b} = {b}, {a}", f"{a}, {b} = {b}, {value}", f"pair = {a}, {value}\n{b} = pair[1]")]

    def fail(self) -> list[str]:
        b = self.number("B", 1)
        return [
            self.of(
                f'if {b} and {self.number("B", 0)}:\n    raise ValueError("no")',
                f"assert {b} or {self.number('B', 0)} or {self.number('B', 0)}, {self.number('i', 0)}",
                f"1 // (3 - {self.number('i', 0)})",
            )
        ]

    # -- compound statements
    def body(self, most: int = 3) -> list[Statement]:
        with self.inside():
            return self.block(self.rng.randint(1, most))

    def branch(self) -> list[Statement]:
        arms = [(f"if {self.number('B')}:", self.body())]
        if self.chance(0.2):
            arms.append((f"elif {self.number('B')}:", self.body(2)))
        if self.chance(0.4):
            arms.append(("else:", self.body(2)))
        return [Statement(arms=arms)]

    def attempt(self) -> list[Statement]:
        counters = list(self.counters)
        arms = [("try:", self.body(3))]
        if self.chance(0.8):
            name = self.new("e") if self.chance(0.3) else ""
            handler = self.body(2)
            if name:
                handler.insert(0, Statement(f"LOG.append(str({name}))"))
            arms.append((f"except {self.rng.choice(ERRORS)}{' as ' + name if name else ''}:", handler))
            if self.chance(0.2):
                arms.append(("else:", self.body(1)))
        if len(arms) == 1 or self.chance(0.3):
            arms.append(
                ("finally:", [s for s in self.body(2) if not re.match(r"(break|continue|return)\b", s.text)] or [Statement("pass")])
            )
        self.counters = counters
        return [Statement(arms=arms)]

    def leave(self) -> list[Statement]:
        return [Statement(self.of("break", "break", "continue", f"return {self.results()}"))]

    def results(self) -> str:
        names = [n for kind in "FIBCNVLi" for n in self.names[kind] if n not in PARAMETERS]
        self.rng.shuffle(names)
        chosen = names[: self.rng.randint(1, 6)]
        if not chosen:
            return self.number("F", 1)
        return ", ".join(chosen) + ("," if len(chosen) > 1 else "")

    def loop(self) -> list[Statement]:
        self.left -= 1
        counters, frozen = list(self.counters), set(self.frozen)
        self.loops += 1
        self.deepest = max(self.deepest, self.loops)
        made = self.one(
            [
                (6, self.over_range),
                (2 if self.names["v"] else 0, self.over_array),
                (0.8 if self.names["v"] else 0, self.over_several),
                (1.5, self.counting),
                (0.6, self.halving),
                (0.5, self.until),
                (0.3 * (self.profile.python > 0), self.over_python),
            ]
        )()
        self.loops -= 1
        self.counters, self.frozen = counters, frozen
        if self.chance(0.15):
            made[-1].arms.append(("else:", self.body(2)))
        return made

    def extent(self) -> tuple[str, bool]:
        """Arguments of range, and whether the loop's counter is an index of an axis of length n."""
        inner = self.rng.choice(self.counters) if self.counters and self.chance(0.5) else None
        if inner is not None:
            ends = ["{0}", "{0} + 1", "{0}, n", "{0} + 1, n", "{0} - 1, -1, -1", "n - {0}", "n - 1, {0}, -1"]
            return self.rng.choice(ends).format(inner), True
        if self.chance(0.1 + self.profile.risk / 2):
            steps = self.of("", ", 1", ", 2", ", -1", ", -2", ", 3")
            ends = [
                self.small(),
                f"{self.small()}, {self.small()}{steps}",
                f"0, n, {self.small(0)}",
                "m",
                "len(x)" if self.names["v"] else "m",
            ]
            return self.rng.choice(ends), self.risky()
        return self.of("n", "n", "n", "1, n", "n - 1, -1, -1", "0, n, 2", "n - 1", "n - 2, -1, -2", "1, n - 1"), True

    def over_range(self) -> list[Statement]:
        i, (extent, valid) = self.new("i"), self.extent()
        iterator = f"reversed(range({extent}))" if self.chance(0.07) else f"range({extent})"
        return [Statement(arms=[(f"for {i} in {iterator}:", self.counted(i, i if valid else ""))])]

    def counted(self, i: str, index: str, *others: tuple[str, str]) -> list[Statement]:
        """A body with a counter, by which arrays are indexed as `index`; other names of the loop have kinds of their own."""
        with self.inside():
            self.bind("i", i)
            if index:
                self.counters.append(index)
            self.frozen.add(i)
            for kind, name in others:
                self.bind(kind, name)
            return self.block(self.rng.randint(1, 4))

    def over_array(self) -> list[Statement]:
        v, i = self.new("u"), self.new("i")
        array = self.array("v") or "x"
        if self.profile.slices and self.chance(0.4):
            array = self.vector(1)
        if self.names["a"] and self.chance(0.15):
            row = self.new("v")
            return [Statement(arms=[(f"for {i}, {row} in enumerate({self.array('a')}):", self.counted(i, i, ("v", row)))])]
        header = self.of(
            f"for {v} in {array}:",
            f"for {i}, {v} in enumerate({array}):",
            f"for {i}, {v} in enumerate({array}):",
            f"for {v} in reversed({array}):",
        )
        if i in header:
            return [Statement(arms=[(header, self.counted(i, i, ("F", v)))])]
        with self.inside():
            self.bind("F", v)
            return [Statement(arms=[(header, self.block(self.rng.randint(1, 4)))])]

    def over_several(self) -> list[Statement]:
        a, b, i = self.new("u"), self.new("u"), self.new("i")
        first, second = self.array("v") or "x", self.array("v") or "x"
        if self.chance(0.4):
            extent, valid = self.extent()
            return [
                Statement(arms=[(f"for {i}, {a} in zip(range({extent}), {first}):", self.counted(i, i if valid else "", ("F", a)))])
            ]
        with self.inside():
            self.bind("F", a)
            self.bind("F", b)
            return [Statement(arms=[(f"for {a}, {b} in zip({first}, {second}):", self.block(self.rng.randint(1, 4)))])]

    def over_python(self) -> list[Statement]:
        v = self.new("u")
        header = self.of(
            f"for {v} in items:",
            f"for {v} in upto({self.small(0)}):",
            f"for {v} in list({self.array('v') or 'x'}):",
            f"for {v} in (1, 2.5, -3):",
        )
        with self.inside():
            self.bind("F", v)
            return [Statement(arms=[(header, self.block(self.rng.randint(1, 3)))])]

    def counting(self) -> list[Statement]:
        """A while loop with a counter; half the time it is an index within."""
        i = self.new("i")
        self.frozen.add(i)
        down, early = self.chance(0.2), self.chance(0.5)
        first = Statement(f"{i} = {'n' if down else '0'}", ends_loop=True)
        step = Statement(f"{i} {'-' if down else '+'}= 1", ends_loop=True)
        limit, valid = self.rng.choice(
            [("n", True), ("n", True), ("n - 1", True), (self.small(0), self.risky()), ("m", self.risky())]
        )
        condition = f"{i} > 0" if down else f"{i} < {limit}"
        if self.chance(0.35):
            condition += f" and {self.number('B')}"
        before = {k: list(v) for k, v in self.names.items()}
        index = i if down == early else f"({i} - 1)"
        body = self.counted(i, index if valid or down else "")
        at_start = early or any(s.text == "continue" for s in every(body))
        body.insert(0 if at_start else len(body), step)
        self.names = before if not self.chance(0.1) else self.names
        return [first, Statement(arms=[(f"while {condition}:", body)])]

    def halving(self) -> list[Statement]:
        first = Statement(self.let("I", "h", self.int_value(1)), ends_loop=True)
        h = first.text.split()[0]
        self.frozen.add(h)
        step = Statement(f"{h} {self.of('//= 2', '//= 10', '>>= 1', '//= 3', f'&= {h} - 1')}", ends_loop=True)
        count = self.target("I") if self.chance(0.25) else None  # of digits, or bits
        body = self.body() if count is None else [Statement(f"{count} += {self.of('1', '3', '-2')}")]
        return [first, Statement(arms=[(f"while {h} > 0:", [step, *body])])]

    def until(self) -> list[Statement]:
        """while True with a counter that ends it."""
        i = self.new("i")
        self.frozen.add(i)
        stop = Statement(
            arms=[(f"if {i} > {self.of('n', '5', '9', 'm')} or {self.number('B')}:", [Statement("break")])], ends_loop=True
        )
        with self.inside():
            self.bind("i", i)
            inner = self.block(self.rng.randint(1, 3))
        return [
            Statement(f"{i} = 0", ends_loop=True),
            Statement(arms=[("while True:", [Statement(f"{i} += 1", ends_loop=True), stop, *inner])]),
        ]
