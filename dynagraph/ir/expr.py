"""Scalar expressions: what one element of a result is, in terms of loads, constants and functions of scalars.

Rows of the op table give an expression for each elementwise op; lowering composes them; the printers in `backends/`
spell them in C and CUDA C.  Every expression has a dtype and every operand has the dtype that the function says: no
promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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


FLOAT, BITS, REAL, INEXACT, COMPLEX = "f", "biu", "biuf", "fc", "c"

_UNARY_FLOAT: dict[str, int] = {  # name -> cost
    "sqrt": 4, "cbrt": 15, "floor": 1, "ceil": 1, "trunc": 1, "rint": 1, "exp": 10, "exp2": 10, "expm1": 14,
    "log": 12, "log2": 14, "log10": 14, "log1p": 14, "sin": 14, "cos": 14, "tan": 22, "arcsin": 20, "arccos": 20,
    "arctan": 18, "sinh": 16, "cosh": 16, "tanh": 14, "arcsinh": 22, "arccosh": 22, "arctanh": 20, "erf": 20,
}  # fmt: skip
_OF_REALS = ("cbrt", "floor", "ceil", "trunc", "erf")


def _table() -> dict[str, ScalarFunction]:
    rows: list[ScalarFunction] = []
    for name in ("add", "sub", "mul"):
        rows.append(ScalarFunction(name, 2, "same", 1))
    # NumPy's meaning: floor_divide and remainder round towards minus infinity (integers: x // 0 == 0);
    # pow_int wraps; maximum/minimum propagate NaN, fmax/fmin ignore it
    rows += [
        ScalarFunction("div", 2, "same", 4, INEXACT),
        ScalarFunction("floordiv", 2, "same", 12, REAL),
        ScalarFunction("remainder", 2, "same", 12, REAL),
        ScalarFunction("fmod", 2, "same", 12, REAL),
        ScalarFunction("pow", 2, "same", 40, INEXACT),
        ScalarFunction("pow_int", 2, "same", 20, BITS),
        ScalarFunction("maximum", 2, "same", 1),
        ScalarFunction("minimum", 2, "same", 1),
        ScalarFunction("fmax", 2, "same", 1),
        ScalarFunction("fmin", 2, "same", 1),
        ScalarFunction("neg", 1, "same", 1),
        ScalarFunction("abs", 1, "real", 1),
        ScalarFunction("sign", 1, "same", 2),
        ScalarFunction("copysign", 2, "same", 1, FLOAT),
        ScalarFunction("nextafter", 2, "same", 10, FLOAT),
        ScalarFunction("hypot", 2, "same", 10, FLOAT),
        ScalarFunction("arctan2", 2, "same", 20, FLOAT),
        ScalarFunction("logaddexp", 2, "same", 25, FLOAT),
        ScalarFunction("logaddexp2", 2, "same", 25, FLOAT),
        ScalarFunction("ldexp", 2, "same", 10, FLOAT),  # the second is a whole number
        ScalarFunction("frexp_mantissa", 1, "same", 10, FLOAT),
        ScalarFunction("frexp_exponent", 1, "same", 10, FLOAT),
        ScalarFunction("gcd", 2, "same", 60, BITS),
        ScalarFunction("lcm", 2, "same", 70, BITS),
        ScalarFunction("fma", 3, "same", 1, FLOAT),
        ScalarFunction("select", 3, "select", 1),  # select(bool, a, b)
        ScalarFunction("and", 2, "same", 1, BITS),  # bitwise on integers; on bools the logical ones
        ScalarFunction("or", 2, "same", 1, BITS),
        ScalarFunction("xor", 2, "same", 1, BITS),
        ScalarFunction("invert", 1, "same", 1, BITS),  # ~ of integers
        ScalarFunction("not", 1, "bool", 1, BITS),  # of bools
        ScalarFunction("shl", 2, "same", 2, BITS),  # NumPy: shifts of at least the width give 0 (or -1)
        ScalarFunction("shr", 2, "same", 2, BITS),
        ScalarFunction("isnan", 1, "bool", 1, INEXACT),
        ScalarFunction("isinf", 1, "bool", 1, INEXACT),
        ScalarFunction("isfinite", 1, "bool", 1, INEXACT),
        ScalarFunction("signbit", 1, "bool", 1, FLOAT),
        ScalarFunction("reciprocal", 1, "same", 4, COMPLEX),
        ScalarFunction("conj", 1, "same", 1, COMPLEX),
        ScalarFunction("real", 1, "real", 0, COMPLEX),
        ScalarFunction("imag", 1, "real", 0, COMPLEX),
        ScalarFunction("complex", 2, "complex", 0, FLOAT),  # of its parts
    ]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        rows.append(ScalarFunction(name, 2, "bool", 1))
    for name, cost in _UNARY_FLOAT.items():
        rows.append(ScalarFunction(name, 1, "same", cost, FLOAT if name in _OF_REALS else INEXACT))
    return {row.name: row for row in rows}


FUNCTIONS: dict[str, ScalarFunction] = _table()


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


ScalarRule = Callable[..., Expr]
