"""Symbolic integer expressions: sizes of arrays, and loop indices.

An `IntExpr` is a polynomial in canonical form: a sum of integer coefficients times products of atoms. An atom is a
symbol (``s0``, a size; ``i1``, a loop variable) or a floor division, remainder, minimum or maximum that did not
simplify.
Two expressions are equal when their canonical forms are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import gcd, prod
from typing import Union


@dataclass(frozen=True)
class Symbol:
    """A named integer with what is known of its range (``high`` is inclusive; None: no bound)."""

    name: str
    low: int = 0
    high: "IntExpr | int | None" = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Apply:
    """A binary function that is not a polynomial: ``//``, ``%``, ``min`` or ``max``, with Python's meaning."""

    function: str
    left: "IntExpr"
    right: "IntExpr"

    @property
    def name(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return _python_call(self.function, str(self.left), str(self.right))


Atom = Union[Symbol, Apply]
IntLike = Union[int, "IntExpr"]
Monomial = tuple[Atom, ...]
_ONE_TERM: dict[Monomial, int] = {(): 1}


class IntExpr:
    """A canonical integer polynomial.  Immutable and hashable; ``+ - * // %`` build new ones."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]):
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c}
        self._hash = hash(frozenset(self.terms.items()))

    # -- building ---------------------------------------------------------------------------------------------------
    @staticmethod
    def of(value: IntLike) -> "IntExpr":
        return value if isinstance(value, IntExpr) else _constant(operator.index(value))

    @staticmethod
    def symbol(name: str, low: int = 0, high: "IntLike | None" = None) -> "IntExpr":
        return _variable(name) if low == 0 and high is None else IntExpr({(Symbol(name, low, high),): 1})

    def __add__(self, other: IntLike) -> "IntExpr":
        return self._plus(IntExpr.of(other), 1)

    __radd__ = __add__

    def _plus(self, other: "IntExpr", times: int) -> "IntExpr":
        """``self + times * other``."""
        if not other.terms:
            return self
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + times * coefficient
        return IntExpr(terms)

    def __neg__(self) -> "IntExpr":
        return IntExpr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: IntLike) -> "IntExpr":
        return self._plus(IntExpr.of(other), -1)

    def __rsub__(self, other: IntLike) -> "IntExpr":
        return IntExpr.of(other) - self

    def __mul__(self, other: IntLike) -> "IntExpr":
        other = IntExpr.of(other)
        if self.terms == _ONE_TERM:
            return other
        if other.terms == _ONE_TERM:
            return self
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                monomial = tuple(sorted(m1 + m2, key=lambda a: a.name))
                terms[monomial] = terms.get(monomial, 0) + c1 * c2
        return IntExpr(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> "IntExpr":
        return floordiv(self, IntExpr.of(other))

    def __rfloordiv__(self, other: IntLike) -> "IntExpr":
        return floordiv(IntExpr.of(other), self)

    def __mod__(self, other: IntLike) -> "IntExpr":
        return mod(self, IntExpr.of(other))

    def __rmod__(self, other: IntLike) -> "IntExpr":
        return mod(IntExpr.of(other), self)

    # -- looking ----------------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, IntExpr) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    @property
    def constant(self) -> int | None:
        """The value where it is known, else None."""
        if not self.terms:
            return 0
        return self.terms[()] if self.terms.keys() == {()} else None

    def atoms(self) -> Iterator[Atom]:
        seen: set[Atom] = set()
        for monomial in self.terms:
            for atom in monomial:
                if atom not in seen:
                    seen.add(atom)
                    yield atom

    def symbols(self) -> set[Symbol]:
        found: set[Symbol] = set()
        for atom in self.atoms():
            if isinstance(atom, Symbol):
                found.add(atom)
            else:
                found |= atom.left.symbols() | atom.right.symbols()
        return found

    def coefficient(self, symbol: Symbol) -> "IntExpr | None":
        """c where self == c*symbol + rest, neither of which depends on symbol; None where self is not affine in it."""
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            if any(isinstance(a, Apply) and symbol in (a.left.symbols() | a.right.symbols()) for a in monomial):
                return None
            if monomial.count(symbol) > 1:
                return None
            if symbol in monomial:
                rest = list(monomial)
                rest.remove(symbol)
                terms[tuple(rest)] = terms.get(tuple(rest), 0) + coefficient
        return IntExpr(terms)

    def bounds(self) -> tuple[int | None, int | None]:
        """Known lower and upper bound (inclusive), None where there is none."""
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in self.terms.items():
            lo, hi = reduce(_bounds_product, map(_atom_bounds, monomial), _ONE)
            if coefficient < 0:
                lo, hi = hi, lo
            low = None if low is None or lo is None else low + coefficient * lo
            high = None if high is None or hi is None else high + coefficient * hi
        return low, high

    def magnitude(self, largest: int) -> int:
        """What no value is above, with either sign, where no symbol is above `largest`."""
        return sum(abs(c) * prod(_atom_magnitude(a, largest) for a in monomial) for monomial, c in self.terms.items())

    def substitute(self, values: Mapping[str, IntLike]) -> "IntExpr":
        total = IntExpr({})
        for monomial, coefficient in self.terms.items():
            term = IntExpr.of(coefficient)
            for atom in monomial:
                if isinstance(atom, Symbol):
                    term = term * values.get(atom.name, IntExpr({(atom,): 1}))
                else:
                    term = term * apply(atom.function, atom.left.substitute(values), atom.right.substitute(values))
            total = total + term
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value where every symbol is given."""
        try:
            return sum(c * prod(_atom_value(atom, values) for atom in monomial) for monomial, c in self.terms.items())
        except KeyError:
            missing = sorted(s.name for s in self.symbols() if s.name not in values)
            raise KeyError(f"{self}: no value for {', '.join(missing)}") from None

    def fits(self, values: Mapping[str, int], largest: int) -> bool:
        """Whether no number is above `largest`, with either sign, that stands in it or is met where it is evaluated."""
        total = 0
        for monomial, coefficient in self.terms.items():
            term = abs(coefficient)
            for atom in monomial:
                if isinstance(atom, Apply) and not (atom.left.fits(values, largest) and atom.right.fits(values, largest)):
                    return False
                term *= max(1, abs(_atom_value(atom, values)))
            total += term
        return total <= largest

    def render(self, symbol: Callable[[str], str], apply_: Callable[[str, str, str], str]) -> str:
        """Print as an expression of another language; `apply_` gets the function name and two printed operands."""
        parts: list[str] = []
        for monomial, coefficient in sorted(self.terms.items(), key=lambda t: [a.name for a in t[0]], reverse=True):
            factors = [
                symbol(a.name)
                if isinstance(a, Symbol)
                else apply_(a.function, a.left.render(symbol, apply_), a.right.render(symbol, apply_))
                for a in monomial
            ]
            if coefficient != 1 or not factors:
                factors.insert(0, str(coefficient) if coefficient >= 0 or not factors else f"({coefficient})")
            parts.append(" * ".join(factors))
        return " + ".join(parts) if parts else "0"

    def __str__(self) -> str:
        return self.render(lambda s: s, _python_call)

    __repr__ = __str__


@lru_cache(maxsize=4096)
def _variable(name: str) -> IntExpr:
    return IntExpr({(Symbol(name),): 1})


@lru_cache(maxsize=1024)
def _constant(value: int) -> IntExpr:
    return IntExpr({(): value})


def _python_call(function: str, left: str, right: str) -> str:
    return f"{function}({left}, {right})" if function in ("min", "max") else f"(({left}) {function} ({right}))"


Bounds = tuple[int | None, int | None]
_ONE: Bounds = (1, 1)


def _bounds_product(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a product of non-negative ranges; unknown where a factor may be negative."""
    if a[0] is None or b[0] is None or a[0] < 0 or b[0] < 0:
        if None in a or None in b:
            return None, None
        products = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(products), max(products)
    return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]


def _atom_bounds(atom: Atom) -> tuple[int | None, int | None]:
    if isinstance(atom, Symbol):
        return atom.low, IntExpr.of(atom.high).constant if atom.high is not None else None
    (ll, lh), (rl, rh) = atom.left.bounds(), atom.right.bounds()
    if atom.function == "%" and rl is not None and rl > 0:
        return 0, None if rh is None else rh - 1
    if atom.function == "//" and ll is not None and rl is not None and ll >= 0 and rl > 0:
        return 0 if rh is None else ll // rh, None if lh is None else lh // rl
    if atom.function == "min":
        return _both(min, ll, rl), _either(min, lh, rh)
    if atom.function == "max":
        return _either(max, ll, rl), _both(max, lh, rh)
    return None, None


def _atom_value(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return values[atom.name]
    return _FUNCTIONS[atom.function](atom.left.evaluate(values), atom.right.evaluate(values))


_FUNCTIONS: dict[str, Callable[[int, int], int]] = {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}


def _atom_magnitude(atom: Atom, largest: int) -> int:
    if isinstance(atom, Symbol):
        return largest
    left, right = atom.left.magnitude(largest), atom.right.magnitude(largest)
    return left if atom.function == "//" else right if atom.function == "%" else max(left, right)


def _both(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else choose(a, b)


def _either(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    """One bound is enough."""
    return b if a is None else a if b is None else choose(a, b)


def below(value: IntExpr, limit: IntExpr) -> bool:
    """Whether 0 <= value < limit is known, loop variables ranging below their (possibly symbolic) extents."""
    low, high = value.bounds()
    if low is None or low < 0:
        return False
    top = limit.constant
    if top is not None and high is not None:
        return high < top
    greatest = _greatest(value)
    if greatest is None:
        return False
    gap, _ = (limit - greatest - 1).bounds()
    return gap is not None and gap >= 0


def _greatest(value: IntExpr) -> IntExpr | None:
    """An upper bound: each variable replaced by its (symbolic) maximum; None where the value does not grow with all."""
    total = IntExpr({})
    for monomial, coefficient in value.terms.items():
        term = IntExpr.of(coefficient)
        for atom in monomial:
            greatest = _greatest_atom(atom)
            low = _atom_bounds(atom)[0]
            if coefficient < 0 or greatest is None or low is None or low < 0:
                return None
            term = term * greatest
        total = total + term
    return total


def _greatest_atom(atom: Atom) -> IntExpr | None:
    if isinstance(atom, Symbol):
        return IntExpr({(atom,): 1}) if atom.high is None else IntExpr.of(atom.high)
    if any(s.high is not None for s in atom.right.symbols()):
        return None
    least_right, _ = atom.right.bounds()
    if atom.function in ("min", "max"):
        left = _greatest(atom.left)
        return None if left is None else apply(atom.function, left, atom.right)
    if least_right is None or least_right <= 0:
        return None
    if atom.function == "%":
        return atom.right - 1
    left = _greatest(atom.left)
    return None if left is None else floordiv(left, atom.right)


def _divisible_part(value: IntExpr, divisor: IntExpr) -> tuple[IntExpr, IntExpr]:
    """(q, rest) with value == q*divisor + rest, taking out every term that the divisor divides exactly."""
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    single = len(divisor.terms) == 1
    (monomial_d, coefficient_d) = next(iter(divisor.terms.items())) if single else ((), 1)
    for monomial, coefficient in value.terms.items():
        reduced = _remove(monomial, monomial_d) if single else None
        if reduced is not None and coefficient % coefficient_d == 0:
            quotient[reduced] = quotient.get(reduced, 0) + coefficient // coefficient_d
        elif reduced is not None and coefficient > coefficient_d > 1 and not monomial_d:
            # 7*i // 4 stays; a constant term splits: (4*i + 9) // 4 == i + 2 + 1 // 4
            if monomial == ():
                quotient[()] = quotient.get((), 0) + coefficient // coefficient_d
                rest[()] = coefficient % coefficient_d
            else:
                rest[monomial] = coefficient
        else:
            rest[monomial] = coefficient
    return IntExpr(quotient), IntExpr(rest)


def _remove(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def rejoined(value: IntExpr) -> IntExpr:
    """The same value, with a quotient and its remainder as one: ``4*(i // 4) + i % 4`` is i."""
    found = _rejoined_once(value)
    while found is not None:
        value, found = found, _rejoined_once(found)
    return value


def _rejoined_once(value: IntExpr) -> IntExpr | None:
    for monomial, coefficient in value.terms.items():
        for atom in monomial:
            if isinstance(atom, Apply) and atom.function == "%":
                rest = IntExpr({_remove(monomial, (atom,)) or (): coefficient})
                pair = rest * floordiv(atom.left, atom.right) * atom.right
                if all(value.terms.get(m) == c for m, c in pair.terms.items()):
                    return value - pair - IntExpr({monomial: coefficient}) + rest * atom.left
    return None


def solved(zero: IntExpr) -> tuple[Symbol, Symbol | int] | None:
    """A symbol, and the number or the other symbol that it equals where `zero` is 0; None where it says nothing as simple.

    >>> n, m = IntExpr.symbol("n", low=2), IntExpr.symbol("m", low=2)
    >>> solved(2 * n * m - 6 * m)
    (Symbol(name='n', low=2, high=None), 3)
    >>> solved(n - m - 1) is None
    True
    """
    terms = _without_common_factors(zero.terms)
    shared = gcd(*terms.values())
    rest = terms.pop((), 0) // (shared or 1)
    if rest and len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        coefficient //= shared
        if len(monomial) == 1 and isinstance(monomial[0], Symbol) and abs(coefficient) == 1:
            return monomial[0], -rest * coefficient
    elif not rest and len(terms) == 2 and sum(terms.values()) == 0:
        (left, right) = terms
        if len(left) == len(right) == 1 and isinstance(left[0], Symbol) and isinstance(right[0], Symbol):
            return left[0], right[0]
    return None


def _without_common_factors(terms: Mapping[Monomial, int]) -> dict[Monomial, int]:
    """The terms divided by every symbol that divides them all, and is never 0."""
    reduced = dict(terms)
    for atom in next(iter(terms), ()):
        rests = [_remove(monomial, (atom,)) for monomial in reduced]
        if isinstance(atom, Symbol) and atom.low > 0 and None not in rests:
            reduced = dict(zip(rests, reduced.values()))  # type: ignore[arg-type]
    return reduced


def floordiv(value: IntExpr, divisor: IntExpr) -> IntExpr:
    """Python's ``value // divisor`` for a positive divisor, simplified where ranges allow it."""
    a, b = value.constant, divisor.constant
    if b == 0:
        raise ZeroDivisionError(f"{value} // 0")
    if a is not None and b is not None:
        return IntExpr.of(a // b)
    if b == 1:
        return value
    quotient, rest = _divisible_part(value, divisor)
    if below(rest, divisor):
        return quotient
    if rest.terms != value.terms:
        return quotient + floordiv(rest, divisor)
    return IntExpr({(Apply("//", value, divisor),): 1})


def mod(value: IntExpr, divisor: IntExpr) -> IntExpr:
    """Python's ``value % divisor`` for a positive divisor, simplified where ranges allow it."""
    a, b = value.constant, divisor.constant
    if b == 0:
        raise ZeroDivisionError(f"{value} % 0")
    if a is not None and b is not None:
        return IntExpr.of(a % b)
    if b == 1:
        return IntExpr.of(0)
    _, rest = _divisible_part(value, divisor)
    if below(rest, divisor):
        return rest
    if rest.constant is not None and b is not None:
        return IntExpr.of(rest.constant % b)
    return IntExpr({(Apply("%", rest, divisor),): 1})


def apply(function: str, left: IntExpr, right: IntExpr) -> IntExpr:
    """The named function of two expressions."""
    if function == "//":
        return floordiv(left, right)
    if function == "%":
        return mod(left, right)
    if left == right:
        return left
    gap_low, gap_high = (left - right).bounds()
    left_is_less = gap_high is not None and gap_high <= 0
    right_is_less = gap_low is not None and gap_low >= 0
    if left_is_less or right_is_less:
        return (left if left_is_less else right) if function == "min" else (right if left_is_less else left)
    return IntExpr({(Apply(function, left, right),): 1})
