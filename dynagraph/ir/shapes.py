"""Sizes of arrays: plain ints, or `SymInt`, which behaves like the int it was seen as and notes what was decided on it.

A shape rule is ordinary Python on ints.  Given a `SymInt`, comparisons answer for the size at hand and are recorded in
its `ShapeEnv` as guards; arithmetic stays symbolic.  So the same rules serve static and symbolic shapes.

Once it is decided, and so guarded, that two symbols are equal, or that one is a constant, every `SymInt` of the environment
speaks of one symbol, or of the constant: those that are in shapes already, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral  # NumPy's integers are registered with it
from typing import Any, Union

from dynagraph.errors import ShapeError
from dynagraph.ir.intexpr import IntExpr, IntLike, Symbol, apply, solved
from dynagraph.location import Location

Dim = Union[int, "SymInt"]
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Relation:
    """A decision taken on symbolic sizes: ``left op right`` was `holds`."""

    op: str  # "==", "<" or "<="
    left: IntExpr
    right: IntExpr
    holds: bool

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}" if self.holds else f"not {self.left} {self.op} {self.right}"


def nowhere() -> Location | None:
    """The place of a decision that no captured code takes."""
    return None


@dataclass
class ShapeEnv:
    """The symbols of one capture, the sizes they were seen as, and the relations decided so far.

    `replacements`: what symbols are equal to by these relations, in terms of symbols that have no replacement.
    `place`: tells where the captured code is; of each relation it is kept where it was decided.
    `large`: numbers made of sizes that might not fit into 64 bits, where who runs the program checks that they do; None: nobody
    does.
    """

    values: dict[str, int] = field(default_factory=dict)
    relations: dict[Relation, Location | None] = field(default_factory=dict)
    decided: dict[tuple[str, IntExpr, IntExpr], bool] = field(default_factory=dict)  # unrolled loops ask the same again
    replacements: dict[str, IntExpr] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    place: Callable[[], Location | None] = nowhere
    large: dict[IntExpr, None] | None = None
    _resolved: dict[IntExpr, IntExpr] = field(default_factory=dict)

    def symbol(self, value: int, number: bool = False) -> "SymInt":
        """A new symbol for a size that was `value` (at least 2: the 0/1-ness of a size is static).

        `number`: it is not a size but an integer of the caller's.  Sizes equal to it go by its name.
        """
        if value < 2:
            raise ValueError(f"a symbolic size must be at least 2, got {value}")
        name = f"s{len(self.values)}"
        self.values[name] = value
        if number:
            self.numbers.add(name)
        return SymInt(IntExpr.symbol(name, low=2), self)

    def resolve(self, expr: IntExpr) -> IntExpr:
        """The expression without symbols that have a replacement."""
        if not self.replacements:
            return expr
        found = self._resolved.get(expr)
        if found is None:
            found = self._resolved[expr] = expr.substitute(self.replacements)
        return found

    def decide(self, op: str, left: IntExpr, right: IntExpr) -> bool:
        question = op, left, right
        answer = self.decided.get(question)
        if answer is None:
            answer = self.decided[question] = self._decide(op, left, right)
            if answer and op == "==":
                self._replace(left - right)
        return answer

    def _replace(self, zero: IntExpr) -> None:
        """Take what it says that `zero` is 0 into `replacements`, and what other equalities then say.

        Sums and multiples of a symbol replace none: divisions by them do not simplify as those by a symbol do, and products of
        them may be too large to be known as symbols, where those of symbols are not.
        """
        waiting = [zero]
        while waiting:
            found = solved(self.resolve(waiting.pop()))
            if found is None:
                continue
            symbol, value = found
            if isinstance(value, Symbol):
                value, symbol = sorted((symbol, value), key=self._seniority)
            step = {symbol.name: IntExpr.of(value) if isinstance(value, int) else IntExpr({(value,): 1})}
            self.replacements = {name: expr.substitute(step) for name, expr in self.replacements.items()} | step
            self._resolved.clear()
            known = {(op, self.resolve(a), self.resolve(b)): answer for (op, a, b), answer in self.decided.items()}
            waiting += [a - b for (op, a, b), answer in known.items() if op == "==" and answer]
            self.decided = known

    def _seniority(self, symbol: Symbol) -> tuple[bool, int]:
        """Of equal symbols the least stays: what the caller's integers can do is more than what sizes can."""
        return symbol.name not in self.numbers, int(symbol.name[1:])

    def _decide(self, op: str, left: IntExpr, right: IntExpr) -> bool:
        difference = left - right
        low, high = difference.bounds()
        if op == "==":
            if difference == 0:
                return True
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
        elif high is not None and (high < 0 or (op == "<=" and high == 0)):
            return True
        elif low is not None and (low > 0 or (op == "<" and low == 0)):
            return False
        holds = bool(_COMPARE[op](left.evaluate(self.values), right.evaluate(self.values)))
        relation = _within_64_bits(left, right) or Relation(op, left, right, holds)
        if relation.left.fits(self.values, MOST) and relation.right.fits(self.values, MOST):
            self.relations[relation] = self.place()
        else:
            self._pin(left.symbols() | right.symbols())
        return holds

    def _pin(self, symbols: Iterable[Symbol]) -> None:
        """The sizes at hand, from now on guarded: no guard computes with numbers beyond 64 bits."""
        for symbol in sorted(symbols, key=self._seniority):
            self.decide("==", IntExpr({(symbol,): 1}), IntExpr.of(self.values[symbol.name]))


LEAST, MOST = -(2**63), 2**63 - 1  # what guards compute with


def _within_64_bits(left: IntExpr, right: IntExpr) -> Relation | None:
    """What says all of a comparison with a number beyond 64 bits: that the other side fits into them."""
    for number, other in ((left.constant, right), (right.constant, left)):
        if number is not None and number > MOST:
            return Relation("<=", other, IntExpr.of(MOST), True)
        if number is not None and number < LEAST:
            return Relation("<=", IntExpr.of(LEAST), other, True)
    return None


_COMPARE = {"==": operator.eq, "<": operator.lt, "<=": operator.le}


class SymInt:
    """A size known by a symbol.  Arithmetic is symbolic; comparisons, ``bool`` and ``int`` decide and are guarded."""

    __slots__ = ("_expr", "env")

    def __init__(self, expr: IntExpr, env: ShapeEnv):
        self._expr = expr
        self.env = env

    @property
    def expr(self) -> IntExpr:
        """What the size is, by all that has been decided: a constant, where it is known to be one."""
        return self.env.resolve(self._expr)

    @property
    def hint(self) -> int:
        return self.expr.evaluate(self.env.values)

    def _wrap(self, expr: IntExpr) -> Dim:
        constant = expr.constant
        return constant if constant is not None else SymInt(expr, self.env)

    def __add__(self, other: Dim) -> Dim:
        return self._wrap(self.expr + expr_of(other))

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return self._wrap(self.expr - expr_of(other))

    def __rsub__(self, other: Dim) -> Dim:
        return self._wrap(expr_of(other) - self.expr)

    def __mul__(self, other: Dim) -> Dim:
        return self._wrap(self.expr * expr_of(other))

    __rmul__ = __mul__

    def __neg__(self) -> Dim:
        return self._wrap(-self.expr)

    def __floordiv__(self, other: Dim) -> Dim:
        return self._divide("//", self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return self._divide("//", other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self._divide("%", self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return self._divide("%", other, self)

    def _divide(self, function: str, left: Dim, right: Dim) -> Dim:
        if not right > 0:  # a decision: IntExpr's division is for positive divisors
            raise ShapeError(f"{left} {function} {right}: the divisor of a symbolic size must be positive")
        return self._wrap(apply(function, expr_of(left), expr_of(right)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if not isinstance(other, (int, Integral, SymInt)):
            return False
        return self.env.decide("==", self.expr, expr_of(other))  # type: ignore[arg-type]

    def __lt__(self, other: Dim) -> bool:
        return self.env.decide("<", self.expr, expr_of(other))

    def __le__(self, other: Dim) -> bool:
        return self.env.decide("<=", self.expr, expr_of(other))

    def __gt__(self, other: Dim) -> bool:
        return self.env.decide("<", expr_of(other), self.expr)

    def __ge__(self, other: Dim) -> bool:
        return self.env.decide("<=", expr_of(other), self.expr)

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """The size at hand, from now on guarded: the program serves this size only."""
        value = self.hint
        self.env.decide("==", self.expr, IntExpr.of(value))
        return value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self._expr)  # the same after a replacement

    def __repr__(self) -> str:
        return str(self.expr)


def expr_of(dim: Dim | IntExpr) -> IntExpr:
    """The expression of a size."""
    return dim.expr if isinstance(dim, SymInt) else IntExpr.of(dim)


def settled(value: Any) -> Any:
    """A size as it is known now: an int where it has become a constant.  Anything else as it is.

    >>> n = ShapeEnv().symbol(4)
    >>> n == 4, n, settled(n)
    (True, 4, 4)
    >>> type(n).__name__, type(settled(n)).__name__
    ('SymInt', 'int')
    """
    return value._wrap(value.expr) if isinstance(value, SymInt) else value


def hint_of(dim: Dim) -> int:
    """The size as seen at capture, without guarding it: for cost estimates only."""
    return dim.hint if isinstance(dim, SymInt) else dim


def numel(shape: Iterable[Dim]) -> Dim:
    """The number of elements."""
    total: Dim = 1
    for dim in shape:
        total = total * dim
    return total


def hint_numel(shape: Iterable[Dim]) -> int:
    """The number of elements as seen at capture, without guarding it."""
    total = 1
    for dim in shape:
        total *= hint_of(dim)
    return total


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two sizes are known to be equal, without guarding anything: for passes, which run after capture.

    What the capture has decided is known, for it is guarded: ``x[:-1] + y`` broadcasts where x has two rows.
    """
    if type(a) is int and type(b) is int:
        return a == b
    left, right = expr_of(a), expr_of(b)
    return left == right or any(
        isinstance(d, SymInt) and (d.env.decided.get(("==", left, right)) or d.env.decided.get(("==", right, left))) for d in (a, b)
    )


def same_shape(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are known to be equal, without guarding anything."""
    return len(a) == len(b) and all(map(same_dim, a, b))


def contiguous_strides(shape: Sequence[Dim]) -> Shape:
    """C-order strides, in elements."""
    strides: list[Dim] = []
    step: Dim = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * dim
    return tuple(reversed(strides))


def broadcast_shapes(*shapes: Shape, who: str = "broadcast") -> Shape:
    """NumPy's broadcasting of shapes.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, start=rank - len(shape)):
            if result[axis] == 1:
                result[axis] = dim
            elif dim != 1 and result[axis] != dim:
                given = " and ".join(str(tuple(s)) for s in shapes)
                raise ShapeError(f"{who}: shapes {given} do not broadcast; from the right, sizes must be equal or 1")
    return tuple(result)


def normalize_axis(axis: int, rank: int, who: str) -> int:
    """A non-negative axis.

    >>> normalize_axis(-1, 3, "sum")
    2
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"{who}: axis {axis} is out of bounds for an array of {rank} dimensions")
    return axis % rank


__all__ = [
    "Dim", "IntExpr", "IntLike", "Relation", "Shape", "ShapeEnv", "SymInt", "broadcast_shapes", "contiguous_strides",
    "expr_of", "hint_numel", "hint_of", "normalize_axis", "numel", "same_dim", "same_shape", "settled",
]
