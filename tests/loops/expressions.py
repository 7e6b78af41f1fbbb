"""Random expressions over the names that a loop program has bound so far."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Kinds: v vector, a matrix, k vector of indices, i small int, I int, F number, B bool, C complex, N None or a number, L list,
# and of what programs make V, a vector that is an expression.
PARAMETERS = {
    "x": "v", "y": "v", "A": "a", "D": "a", "idx": "k", "n": "i", "m": "i", "p": "I", "q": "I", "s": "F", "r": "F", "t": "F",
    "flag": "B", "z": "C", "maybe": "N", "items": "L",
}  # fmt: skip
WIDE = ["2**31", "(2**32 - 1)", "2**62", "(2**63 - 1)", "-(2**63)", "(2**64 - 1)", "2**63", "10**25", "0x9E3779B97F4A7C15"]
FLOATS = ["0.5", "1.5", "-2.0", "0.1", "3.0", "1e-3", "0.0", "-0.0", "7", "2", "-1", "1"]
ODD_FLOATS = ["1e308", "1e-308", "1e16", 'float("inf")', 'float("nan")']
SCALARS = [
    "np.float64(0.5)", "np.float32(0.1)", "np.int64(3)", "np.int32(2**31 - 1)", "np.uint8(200)", "np.uint64(2**64 - 1)",
    "np.int8(-128)", "np.bool_(True)", "np.float16(2.5)", "np.int64(-2**63)",
]  # fmt: skip
COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")


@dataclass(frozen=True)
class Profile:
    """What programs are made of, as probabilities."""

    elements: float  # a number is an element of an array, a statement writes one
    risk: float  # an operation may raise: no care is taken
    slices: float  # statements and expressions of arrays
    python: float  # what no native code does: prints, lists, dicts


class Expressions:
    """Expressions by kind; each is an atom or in parentheses."""

    def __init__(self, rng: random.Random, profile: Profile):
        self.rng, self.profile = rng, profile
        self.left = rng.randint(6, 16)  # statements
        self.names: dict[str, list[str]] = {kind: [] for kind in "vakiIFBCNLV"}
        self.frozen: set[str] = set()  # not to be rebound: a loop counts by it
        self.fresh = self.loops = self.depth = self.deepest = 0
        self.grows = False  # the expression made last multiplies what may be large
        self.counters: list[str] = []  # of the loops around, which are valid indices
        wanted = {"i", "I", "F"} | ({"v", "a", "k"} if profile.elements or profile.slices else set())
        wanted |= {kind for kind, p in (("B", 0.4), ("C", 0.15), ("N", 0.3)) if self.chance(p)}
        wanted |= {"L"} if profile.python else set()
        for parameter, kind in PARAMETERS.items():
            if kind in wanted:
                self.names[kind].append(parameter)

    # -- choices
    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def risky(self) -> bool:
        return self.chance(self.profile.risk)

    def one(self, options: list[tuple[float, Callable]]) -> Callable:
        weights, made = zip(*options)
        return self.rng.choices(made, weights)[0]

    def of(self, *options: str) -> str:
        return self.rng.choice(options)

    def new(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def name(self, kinds: str) -> str | None:
        there = [n for kind in kinds for n in self.names[kind]]
        if not there:
            return None
        carried = [n for n in there if n not in PARAMETERS]
        return self.rng.choice(carried) if carried and self.chance(0.6) else self.rng.choice(there)

    def target(self, kind: str) -> str | None:
        there = [n for n in self.names[kind] if n not in self.frozen and n not in PARAMETERS]
        return self.rng.choice(there) if there else None

    def bind(self, kind: str, name: str) -> str:
        for names in self.names.values():
            if name in names:
                names.remove(name)
        self.names[kind].append(name)
        return name

    def let(self, kind: str, prefix: str, value: str) -> str:
        return f"{self.bind(kind, self.new(prefix))} = {value}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What is bound within is seldom read after: it may be unbound there."""
        names = {kind: list(v) for kind, v in self.names.items()}
        self.depth += 1
        yield
        self.depth -= 1
        if not self.chance(0.15):
            self.names = names

    # -- small ints, from which trip counts are made
    def small(self, d: int = 1) -> str:
        name = self.name("i")
        if d <= 0 or self.chance(0.5):
            return name if name and self.chance(0.7) else str(self.rng.randint(0, 5))
        return self.one(
            [
                (2, lambda: f"({self.small(0)} {self.of('+', '-', '-')} {self.rng.randint(1, 2)})"),
                (1, lambda: f"({self.small(0)} - {self.small(0)})"),
                (0.5, lambda: f"({self.small(0)} // 2)"),
                (0.3, lambda: f"min({self.small(0)}, {self.small(0)})"),
                (0.7, lambda: f"{self.array('vk')}.size" if self.array("vk") else "3"),
                (0.5, lambda: f"len({self.array('va')})" if self.array("va") else "2"),
                (0.3, lambda: f"({self.small(0)} % 3)"),
                (0.3, lambda: f"-{self.small(0)}"),
            ]
        )()

    def array(self, kinds: str) -> str | None:
        there = [n for kind in kinds for n in self.names[kind]]
        return self.rng.choice(there) if there else None

    def index(self) -> str:
        """Of an axis of n or so: mostly in bounds."""
        inner = self.rng.choice(self.counters) if self.counters and self.chance(0.85) else None
        if self.risky():
            return self.one(
                [
                    (3, lambda: self.small()),
                    (1, lambda: f"({inner or 'n'} * 2)"),
                    (1, lambda: f"({inner or 'n'} + {self.rng.randint(1, 3)})"),
                    (1, lambda: self.number("I", 0)),
                    (0.2, lambda: self.number("F", 0)),
                    (0.2, lambda: self.number("B", 0)),
                ]
            )()
        if inner is None:
            return self.of("0", "-1", "1", "0", "-1", "n - 1", "n // 2")
        return self.one(
            [
                (6, lambda: inner),
                (1, lambda: f"{inner} - 1"),
                (1, lambda: f"-1 - {inner}"),
                (1, lambda: f"n - 1 - {inner}"),
                (0.6, lambda: f"{inner} - n"),
                (0.6, lambda: f"({inner} + {self.rng.randint(1, 4)}) % n"),
                (0.3, lambda: f"({inner} - {self.rng.randint(1, 2)}) % n"),
                (0.6, lambda: f"{inner} // 2"),
                (0.8, lambda: f"idx[{inner}]" if self.names["k"] else inner),
                (0.3, lambda: f"min({inner} + 1, n - 1)"),
                (0.5, lambda: f"{inner} - {self.rng.choice(self.counters)}"),
            ]
        )()

    def element(self, kinds: str = "va") -> str | None:
        name = self.array(kinds)
        if name is None:
            return None
        if name in self.names["a"]:
            return self.of(
                f"{name}[{self.index()}, {self.index()}]",
                f"{name}[{self.index()}, {self.index()}]",
                f"{name}[{self.index()}][{self.index()}]",
            )
        return f"{name}[{self.index()}]"

    # -- numbers
    def number(self, kind: str, d: int = 2) -> str:
        """An expression of a kind."""
        if kind in "FI" and self.chance(self.profile.elements * (1 if kind == "F" else 0.3)):
            element = self.element("va" if kind == "F" else "k")
            if element is not None:
                return element
        name = self.name({"I": "Iii", "F": "FFFi", "i": "i"}.get(kind, kind))
        if name is not None and (d <= 0 or self.chance(0.3)):
            return name
        return getattr(self, f"_{kind}")(d - 1)

    def _i(self, d: int) -> str:
        return self.small()

    def divisor(self, kind: str, d: int) -> str:
        if self.risky():
            return self.number(kind, d)
        literal = str(self.rng.choice([2, 3, 7, -3, 10])) if kind == "I" else self.of("2.0", "3.0", "0.7", "-4", "1e3")
        return literal if self.chance(0.6) else f"(abs({self.number(kind, d)}) + 1)"

    def _I(self, d: int) -> str:
        e = lambda kind="I": self.number(kind, d)  # noqa: E731
        if d < 0:
            return self.rng.choice(WIDE) if self.chance(0.06 + self.profile.risk / 2) else str(self.rng.randint(-3, 12))
        return self.one(
            [
                (5, lambda: f"({e()} {self.of('+', '-', '+')} {e()})"),
                (2, lambda: f"({e()} * {self.of('2', '3', '-1', '31', '7')})"),
                (1, lambda: self.growing(self.of(f"({e()} * {e()})", f"({e()} ** 2)"))),
                (2, lambda: f"({e()} {self.of('&', '|', '^')} {e()})"),
                (2, lambda: f"({e()} {self.of('//', '%')} {self.divisor('I', d)})"),
                (0.7, lambda: f"divmod({e()}, {self.divisor('I', d)})[{self.rng.randint(0, 1)}]"),
                (1.2, lambda: f"({e()} {self.of('<<', '>>')} {self.shift()})"),
                (1, lambda: f"{self.of('-', '~')}{e()}"),
                (0.7, lambda: f"abs({e()})"),
                (1, lambda: f"{self.of('min', 'max')}({e()}, {e()})"),
                (1, lambda: f"({e()} if {self.number('B', d)} else {e()})"),
                (0.5, lambda: f"int({self.number('B', d)})"),
                (
                    1 if self.risky() else 0.2,
                    lambda: f"{self.of('int', 'round', 'math.floor', 'math.ceil')}({self.number('F', d)})",
                ),
                (0.4, lambda: f"({self.small(0)} ** {self.power()})"),
                (0.3, lambda: f"lcg({e()})"),
                (0.2, lambda: f"gcd({self.small()}, {self.small()})"),
                (0.2, lambda: f"fact({self.small(0)})"),
                (0.3, lambda: f"clamp({e()}, {e()}, {e()})"),
                (0.3, lambda: f"({e()} & 0xFFFFFFFF)"),
                (0.2, lambda: f"bool({e()})"),
                (0.2, lambda: f"({e()} {self.of('and', 'or')} {e()})"),
            ]
        )()

    def growing(self, text: str) -> str:
        self.grows = True
        return text

    def shift(self) -> str:
        return self.small() if self.risky() else str(self.rng.choice([0, 1, 2, 3, 5, 8, 13, 31, 33, 63, 64]))

    def power(self) -> str:
        return self.small(0) if self.risky() else str(self.rng.choice([0, 1, 2, 3]))

    def _F(self, d: int) -> str:
        e = lambda kind="F": self.number(kind, d)  # noqa: E731
        if d < 0:
            if self.chance(0.1):
                return self.rng.choice(SCALARS)
            return self.rng.choice(ODD_FLOATS) if self.chance(self.profile.risk / 3) else self.rng.choice(FLOATS)
        return self.one(
            [
                (5, lambda: f"({e()} {self.of('+', '-')} {e()})"),
                (3, lambda: f"({e()} * {self.of('0.5', '0.25', '-1.5', '2', '0.9')})"),
                (2, lambda: self.growing(f"({e()} * {e()})")),
                (2, lambda: f"({e()} / {self.divisor('F', d)})"),
                (1, lambda: f"({e()} {self.of('//', '%')} {self.divisor('F', d)})"),
                (0.4, lambda: f"divmod({e()}, {self.divisor('F', d)})[{self.rng.randint(0, 1)}]"),
                (0.7, lambda: self.growing(f"({e()} ** {self.of('2', '2', '3', '0.5', '-1') if self.risky() else '2'})")),
                (0.7, lambda: f"-{e()}"),
                (1, lambda: f"abs({e()})"),
                (1.3, lambda: f"{self.of('min', 'max')}({e()}, {e()})"),
                (1.3, lambda: f"({e()} if {self.number('B', d)} else {e()})"),
                (0.6, lambda: f"float({e()})"),
                (0.7, lambda: f"math.sqrt({e() if self.risky() else 'abs(' + e() + ')'})"),
                (0.5, lambda: f"math.{self.of('fabs', 'floor', 'trunc', 'ceil') if self.risky() else 'fabs'}({e()})"),
                (
                    0.4,
                    lambda: (
                        f"round(math.{self.of('sin', 'cos', 'tanh', 'atan')}({e()}), 6)"
                        if self.risky()
                        else f"round(math.tanh({e()}), 6)"
                    ),
                ),
                (
                    0.3,
                    lambda: f"round(math.{self.of('log', 'log1p', 'log2')}({e() if self.risky() else 'abs(' + e() + ') + 1'}), 6)",
                ),
                (0.3, lambda: f"math.{self.of('copysign', 'fmod') if self.risky() else 'copysign'}({e()}, {e()})"),
                (0.3, lambda: f"round({e()}{self.of('', ', 1', ', 3')})" if self.risky() else f"round({e()}, 2)"),
                (0.4, lambda: f"clamp({e()}, {e()}, {e()})"),
                (0.4, lambda: f"mix({e()}, {e()})"),
                (0.3, lambda: f"quotient({e()}, {e()})"),
                (0.2, lambda: f"({e()} {self.of('and', 'or')} {e()})"),
                (0.3 if self.names["C"] else 0, lambda: f"{self.of('abs({})', '{}.real', '{}.imag').format(self.number('C', d))}"),
                (self.profile.slices * 3, lambda: self.reduction(d)),
            ]
        )()

    def reduction(self, d: int) -> str:
        v = self.vector(d)
        if self.profile.python and self.chance(0.4):  # what is called out of native loops
            return self.of(
                f"np.median({v})", f"np.{self.of('std', 'prod', 'ptp')}({v})", f"{v}.argsort()[0]", f"np.linalg.norm({v}, 1)",
                f"np.interp({self.number('F', 0)}, np.arange(3), {v}[:3])", f"np.searchsorted({v}, {self.number('F', 0)})",
            )  # fmt: skip
        return self.of(
            f"{v}.sum()", f"{v}.{self.of('max', 'min')}()", f"np.dot({v}, {v})", f"sum({v})", f"{v}.mean()", f"np.abs({v}).max()"
        )

    def _B(self, d: int) -> str:
        e = lambda kind="F": self.number(kind, d)  # noqa: E731
        if d < 0:
            return self.one(
                [
                    (3, lambda: f"({self.number('F', 0)} {self.of(*COMPARISONS)} {self.of('0', '0.5', '1', '-1.0', '3')})"),
                    (2, lambda: f"({self.number('i', 0)} % {self.rng.randint(2, 3)} == {self.rng.randint(0, 1)})"),
                    (0.3, lambda: self.of("True", "False")),
                ]
            )()
        return self.one(
            [
                (4, lambda: f"({e()} {self.of(*COMPARISONS)} {e()})"),
                (2, lambda: f"({e('I')} {self.of('<', '>', '==', '!=')} {e('I')})"),
                (1.2, lambda: f"({e()} {self.of('<', '<=')} {e()} {self.of('<', '<=', '!=')} {e()})"),
                (1.2, lambda: f"({e('B')} {self.of('and', 'or')} {e('B')})"),
                (0.7, lambda: f"(not {e('B')})"),
                (0.6, lambda: f"math.{self.of('isnan', 'isinf', 'isfinite')}({e()})"),
                (0.4, lambda: f"bool({e()})"),
                (0.4, lambda: f"({e('B')} {self.of('&', '|', '^')} {e('B')})"),
                (0.6 if self.names["N"] else 0, lambda: f"({self.name('N')} is {self.of('', 'not ')}None)"),
                (0.3, lambda: f"({e('I')} & {self.rng.choice([1, 2, 4])} != 0)"),
            ]
        )()

    def _C(self, d: int) -> str:
        e = lambda kind="C": self.number(kind, d)  # noqa: E731
        if d < 0:
            return self.of("1j", "(0.5 + 2j)", "-1j", "0j")
        return self.one(
            [
                (3, lambda: f"({e()} {self.of('+', '-')} {e(self.of('C', 'F'))})"),
                (2, lambda: f"({e()} * {e(self.of('C', 'F'))})"),
                (1, lambda: f"({e()} / {self.divisor('F', d)})"),
                (1, lambda: f"complex({e('F')}, {e('F')})"),
                (1, lambda: f"{e()}.conjugate()"),
            ]
        )()

    def _N(self, d: int) -> str:
        return "None" if self.chance(0.5) else self.float_value(d)

    # -- vectors
    def bounds(self) -> str:
        return self.of("", "", "1", "-1", "2", self.small(0), self.index())

    def slice(self) -> str:
        step = self.of("", "", "", "", "", "", "", ":-1", ":2", ":-2", ":" + self.small(0), f":abs({self.small(0)}) + 1")
        return f"{self.bounds()}:{self.bounds()}{step}"

    def view(self) -> str:
        """Of an argument or of an array made before."""
        name = self.array("va") or "x"
        if name in self.names["a"]:
            return self.of(
                f"{name}[{self.index()}]",
                f"{name}[:, {self.index()}]",
                f"{name}[{self.index()}, {self.slice()}]",
                f"{name}[{self.slice()}, {self.index()}]",
            )
        return self.of(name, f"{name}[{self.slice()}]", f"{name}[{self.slice()}]")

    def vector(self, d: int) -> str:
        if d <= 0 or self.chance(0.4):
            return self.array("V") if self.names["V"] and self.chance(0.3) else self.view()
        e, number = (lambda: self.vector(d - 1)), (lambda: self.number("F", d - 1))
        return self.one(
            [
                (3, lambda: f"({e()} {self.of('+', '-', '*')} {number()})"),
                (2, lambda: f"({(v := self.view())} {self.of('+', '-', '*')} {v})"),
                (2, lambda: f"({e()} {self.of('+', '-', '*')} {e()})"),
                (1, lambda: f"np.{self.of('maximum', 'minimum')}({e()}, {number()})"),
                (1, lambda: f"np.where({(v := e())} {self.of('<', '>')} {number()}, {v}, {number()})"),
                (1, lambda: f"{e()}.copy()"),
                (0.6, lambda: f"abs({e()})"),
                (0.6, lambda: f"{e()}[::-1]"),
                (0.3, lambda: f"np.round({e()}, {self.of('0', '1', '3')})"),
                (0.3, lambda: f"({self.rng.choice(self.names['a'] or ['x'])}.T * {number()})[0]"),
                (0.5, lambda: f"np.{self.of('zeros', 'ones')}({self.small(0) if self.risky() else 'n'})"),
                (0.4, lambda: f"np.array([{number()}, {self.number(self.of(*'FIi'), d - 1)}, {number()}])"),
                (0.6 * bool(self.names["a"]), self.along_an_axis),
                (0.2, lambda: f"np.array([{(v := self.view())}, {v}])[{self.of('0', '1', '-1')}]"),
                (0.4, lambda: f"{self.view()}[idx]" if self.risky() else "x[idx]"),
                (0.3, lambda: f"({e()} / {self.divisor('F', d - 1)})"),
                (self.profile.python * 10, lambda: self.called(e(), number())),
            ]
        )()

    def along_an_axis(self) -> str:
        name, function = self.rng.choice(self.names["a"]), self.of("sum", "mean", "max", "min", "argmax", "any")
        return f"{name}{self.of('', f'[{self.slice()}]')}.{function}(axis={self.of('0', '1', '-1')})"

    def called(self, v: str, number: str) -> str:
        """What is called out of native loops."""
        return self.of(
            f"np.sort({v})", f"np.cumsum({v})", f"np.roll({v}, {self.small(0)})", f"np.clip({v}, -2.0, {number})",
            f"{v}[{v} > {number}]", f"{v}[np.argsort({v})]", f"np.diff({v})", f"np.outer({v}, {v})[{self.index()}]",
            f"np.append({v}, {number})", f"{self.view()}.sum(axis=0)", f"np.round({v}, 1)",
        )  # fmt: skip
