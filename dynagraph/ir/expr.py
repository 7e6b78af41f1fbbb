"""Scalar expressions: what one element of a result is, in terms of loads, constants and functions of scalars.

Rows of the op table give an expression for each elementwise op; lowering composes them; the printers in `backends/`
spell them in C and CUDA C.  Every expression has a dtype and every operand has the dtype that the function says: no
promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.intexpr import IntExpr


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression.  `op` is a key of `FUNCTIONS`, or one of the leaves const, load, var and index."""

    op: str
    args: tuple["Expr", ...]
    dtype: DType
    # const: the Python value; load: (buffer name, IntExpr); gather: buffer name; var: its name; index: an IntExpr
    value: object = None
    _hash: int = field(default=0, compare=False, repr=False)

    def __post_init__(self) -> None:
        value = self.value
        if isinstance(value, (float, complex)):
            value = dtypes.scalar_key(value)  # nan is not nan, 0.0 is -0.0
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.dtype.name, value)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self._hash != other._hash:
            return False
        if not self.args:
            return self._same_but_for_operands(other)
        # expressions are graphs that share much: every pair is compared once, or deep ones would take for ever
        compared: set[tuple[int, int]] = set()
        pairs: list[tuple[Expr, Expr]] = [(self, other)]
        while pairs:
            left, right = pairs.pop()
            if left is right or (id(left), id(right)) in compared:
                continue
            compared.add((id(left), id(right)))
            if not left._same_but_for_operands(right):
                return False
            pairs += zip(left.args, right.args)
        return True

    def _same_but_for_operands(self, other: Expr) -> bool:
        if self._hash != other._hash or self.op != other.op or self.dtype is not other.dtype or len(self.args) != len(other.args):
            return False
        if isinstance(self.value, (float, complex)) and isinstance(other.value, (float, complex)):
            return dtypes.scalar_key(self.value) == dtypes.scalar_key(other.value)
        return self.value == other.value

    def walk(self) -> list["Expr"]:
        """Every distinct subexpression, operands first."""
        return walk(self, lambda e: e.args)


def walk(root: Expr, operands: Callable[[Expr], tuple[Expr, ...]]) -> list[Expr]:
    """The distinct expressions below `root`, operands first; without recursion, as unrolled loops make deep ones."""
    if not operands(root):
        return [root]
    found: dict[Expr, None] = {}
    waiting: list[tuple[Expr, bool]] = [(root, False)]
    entered: set[Expr] = set()
    while waiting:
        e, operands_done = waiting.pop()
        if operands_done:
            found[e] = None
        elif e not in entered:
            entered.add(e)
            waiting.append((e, True))
            waiting += [(arg, False) for arg in reversed(operands(e))]
    return list(found)


@dataclass(frozen=True)
class ScalarFunction:
    """A function of scalars that every printer knows.  `cost` is in units of one addition, for fusion's estimates."""

    name: str
    arity: int
    result: str  # "same" as the first operand, "bool", "real" or "complex" (of its parts, or of which it is one), or "select"
    cost: int = 1
    domain: str = "biufc"  # the kinds of operands it takes
    operator: str = ""  # C's, where it has NumPy's meaning
    builtin: str = ""  # the compiler's own function of floating point: one instruction
    cuda: str = ""  # CUDA's own function of floating point; where there is none, the prelude's is translated
    atomic: str = ""  # the CUDA function dg_atomic_<name> does it in memory; of integers and bools in any order
    keeps_halves: bool = False  # what it gives of halves is a half: nothing to round
    chooses: bool = False  # it gives one of its two operands


FUNCTIONS: dict[str, ScalarFunction] = {}
FLOAT, BITS, REAL, INEXACT, COMPLEX = "f", "biu", "biuf", "fc", "c"


def define(name: str, arity: int, result: str = "same", cost: int = 1, domain: str = "biufc", **facts: Any) -> None:
    """Add a row.  Functions of the names of ops are defined by the rows of these (`optable/elementwise.py`)."""
    FUNCTIONS[name] = ScalarFunction(name, arity, result, cost, domain, **facts)


define("add", 2, operator="+", atomic="add")
define("sub", 2, operator="-")
define("mul", 2, operator="*", atomic="mul")
define("div", 2, cost=4, domain=INEXACT, operator="/")
define("floordiv", 2, cost=12, domain=REAL)  # rounds towards minus infinity; integers: x // 0 == 0
define("pow", 2, cost=40, domain=INEXACT, cuda="pow")
define("pow_int", 2, cost=20, domain=BITS)  # wraps
define("fma", 3, domain=FLOAT)
define("neg", 1, keeps_halves=True)
define("abs", 1, "real", builtin="fabs", keeps_halves=True)
define("conj", 1, domain=COMPLEX)
define("select", 3, "select", keeps_halves=True)  # select(bool, a, b)
define("and", 2, domain=BITS, operator="&", atomic="and")  # bitwise on integers; on bools the logical ones
define("or", 2, domain=BITS, operator="|", atomic="or")
define("xor", 2, domain=BITS, operator="^", atomic="xor")
define("not", 1, "bool", domain=BITS)  # of bools
define("shl", 2, cost=2, domain=BITS)  # NumPy: shifts of at least the width give 0 (or -1)
define("shr", 2, cost=2, domain=BITS)
for _name, _operator in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    define(_name, 2, "bool", operator=_operator)


def call(name: str, *args: Expr) -> Expr:
    """Apply a scalar function, checking arity and operand dtypes once, here."""
    row = FUNCTIONS[name]
    if len(args) != row.arity:
        raise TypeError(f"{name}: takes {row.arity} operands, got {len(args)}")
    operands = args[1:] if row.result == "select" else args
    if len({a.dtype for a in operands}) != 1:
        raise TypeError(f"{name}: operands must have one dtype, got {', '.join(a.dtype.name for a in operands)}")
    if row.result == "select" and not args[0].dtype.is_bool:
        raise TypeError(f"{name}: the condition must be bool, got {args[0].dtype}")
    dtype = operands[0].dtype
    if dtype.kind not in row.domain:
        raise TypeError(f"{name}: takes operands of the kinds {row.domain}, got {dtype}")
    results = {"bool": dtypes.bool_, "real": dtype.real, "complex": dtype.complex}
    return Expr(name, args, results.get(row.result, dtype))


def const(value: bool | int | float | complex, dtype: DType) -> Expr:
    """A literal, converted to `dtype` as NumPy would."""
    return Expr("const", (), dtype, dtype.numpy.type(value).item())


def load(buffer: str, index: IntExpr, dtype: DType) -> Expr:
    """The element of a buffer at a flat offset, in elements."""
    return Expr("load", (), dtype, (buffer, index))


def gather(buffer: str, place: Expr, dtype: DType) -> Expr:
    """The element of a buffer at a flat offset that is computed, in elements."""
    return Expr("gather", (place,), dtype, buffer)


def var(name: str, dtype: DType) -> Expr:
    """A scalar that a statement of the kernel named."""
    return Expr("var", (), dtype, name)


def index(value: IntExpr, dtype: DType = dtypes.int64) -> Expr:
    """A loop variable, or a size, as a value (arange, eye)."""
    return Expr("index", (), dtype, value)


def cast(value: Expr, dtype: DType) -> Expr:
    """C's conversion; to bool: ``value != 0``.  Out-of-range floats to integers do what NumPy does on the machine."""
    if value.dtype is dtype:
        return value
    return Expr("cast", (value,), dtype)


BY_POWERS_OF_TWO = ("floordiv", "remainder")  # of ints, shifts and masks where the divisor is one


def power_of_two(e: Expr) -> int | None:
    """Which one a constant is: 3 for 8."""
    number = e.value if e.op == "const" and e.dtype.is_integer else None
    return number.bit_length() - 1 if isinstance(number, int) and number > 0 and number & (number - 1) == 0 else None
