"""Python numbers that change from call to call: computed by the program, or by Python before it.

What IEEE 754 says of floats the program does itself.  What Python does in its own way, powers and the functions of `math`, is
done before the program, by Python: from numbers that are there then.  Where Python would raise, or give something that is not
finite, the program bails out, and the call runs eagerly.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

from dynagraph.doors.numpy.builder import Builder
from dynagraph.doors.numpy.elementwise import product_of_scalars
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import Recipe, Recipes
from dynagraph.frontend.executor.wrapping import base_of_value, input_slot
from dynagraph.frontend.guards.guards import Compares, Decides
from dynagraph.frontend.guards.sources import Source
from dynagraph.frontend.kinds.instances import binary_protocol
from dynagraph.frontend.kinds.slots import Slots, slots
from dynagraph.frontend.kinds.values import Array, Const, Number, Object, Value
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Meta, Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import SymInt, settled
from dynagraph.python_operators import BINARY

NATIVE = ("+", "-", "*", "/")
BEFORE = ("+", "-", "*", "/", "**", "//", "%")
ANSWERED_BY_COMPLEX = ("+", "-", "*", "/", "**", "==", "!=")
REFLECTED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
EXACT_OF_COMPLEX: dict[str, Callable[[Builder, Node, Node], Node]] = {
    "+": lambda b, x, y: b.call("add", x, y), "-": lambda b, x, y: b.call("subtract", x, y), "*": product_of_scalars,
}  # fmt: skip  # that Python and the program round alike
OF_ONE: dict[str, tuple[Any, str]] = {"neg": (operator.neg, "negative"), "abs": (abs, "absolute")}
EXACT = 1 << 53  # integers below are floats
LARGEST = float(1 << 62)  # of floats in whose place integers are compared
BEYOND = float(1 << 64)  # all integers that change
WHOLE: dict[str, Callable[[float], int]] = {"<": math.ceil, "<=": math.floor, ">": math.floor, ">=": math.ceil}
TO_INTEGERS: dict[Any, Any] = {int: math.trunc, round: round, math.floor: math.floor, math.ceil: math.ceil, math.trunc: math.trunc}
DEEPEST = 16  # of the formulas of numbers that are compared
OF_FLOATS = frozenset(
    getattr(math, name)
    for name in (
        "sqrt", "exp", "expm1", "log", "log1p", "log2", "log10", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "hypot", "fabs", "copysign", "fmod", "erf", "erfc", "gamma", "lgamma",
        "radians", "degrees",
    )
)  # fmt: skip

DECIDING = frozenset({math.isnan, math.isinf, math.isfinite, math.isclose})  # functions of floats that give True or False

ROWS: dict[Any, str] = {  # what a program may do in Python's place where sizes are floats of its own; within an ULP
    math.sqrt: "sqrt", math.exp: "exp", math.expm1: "expm1", math.log: "log", math.log1p: "log1p", math.log2: "log2",
    math.log10: "log10", math.sin: "sin", math.cos: "cos", math.tanh: "tanh", math.pow: "power", operator.pow: "power",
    operator.floordiv: "floor_divide", operator.mod: "remainder",
}  # fmt: skip


@slots(Number)
class NumberSlots(Slots):
    def type_of(self, frame: Frame, value: Number) -> type:
        return complex if value.node.dtype.is_complex else float

    def rank(self, value: Number, symbol: str, reflected: bool) -> int:
        return 7

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        other = right if isinstance(left, Number) else left
        if isinstance(other, Object) and base_of_value(other.kind) is None and not hasattr(other.kind, "__members__"):
            return binary_protocol(frame, symbol, left, right)  # of a class that knows numbers, not of a number's subclass
        return arithmetic(frame.ex, symbol, left, right)

    def truth(self, frame: Frame, value: Number) -> bool:
        return arithmetic(frame.ex, "!=", value, Const(0.0)).value  # type: ignore[union-attr]

    def unary(self, frame: Frame, name: str, value: Number) -> Value:
        if name not in OF_ONE or not value.node.dtype.is_float:
            return super().unary(frame, name, value)
        function, row = OF_ONE[name]
        return Number(frame.ex.builder.call(row, value.node), computed=(function, (value,)))

    def attribute(self, frame: Frame, value: Number, name: str) -> Value:
        kind = self.type_of(frame, value)
        if not hasattr(kind, name):
            throw(AttributeError(f"{kind.__name__!r} object has no attribute {name!r}"))
        if kind is float and name in ("real", "imag"):
            return value if name == "real" else Const(0.0)
        return super().attribute(frame, value, name)

    def recipe(self, results: Recipes, value: Number) -> Recipe:
        return ("call", complex if value.node.dtype.is_complex else float, (results.output(value.node, True),))


def is_changing_int(ex: Executor, value: Any) -> bool:
    """Whether a value is an integer of the caller's that changes, or is computed from such.  Sizes that change mostly count as
    given: where a float is made of them, the program is for this size.
    """
    if not (isinstance(value, Const) and isinstance(value.value, SymInt)):
        return False
    symbols = value.value.expr.symbols()
    return bool(symbols) and (ex.profile.floats_of_sizes or all(symbol.name in ex.integers for symbol in symbols))


def is_number(ex: Executor, value: Any) -> bool:
    """Whether a value may take part in arithmetic of numbers that change."""
    if isinstance(value, Number):
        return value.node.dtype.is_float
    return (isinstance(value, Const) and type(settled(value.value)) in (int, float)) or is_changing_int(ex, value)


def makes_changing_float(ex: Executor, symbol: str, left: Any, right: Any) -> bool:
    """Whether an operator makes a float of an integer that changes."""
    if not (is_number(ex, left) and is_number(ex, right) and (is_changing_int(ex, left) or is_changing_int(ex, right))):
        return False
    return symbol in BEFORE and (symbol == "/" or type(left.value) is float or type(right.value) is float)


def arithmetic(ex: Executor, symbol: str, left: Any, right: Any) -> Number | Const:
    """``left symbol right``, of which at least one changes and one is a float."""
    if not (is_number(ex, left) and is_number(ex, right)):
        refuse("UNSUPPORTED_VALUE", f"{symbol} of a number that changes")
    if symbol in REFLECTED:
        return _compared(ex, symbol, left, right)
    if symbol in NATIVE and (symbol != "/" or (isinstance(right, Const) and right.value != 0)):
        made = Number(ex.builder.call(BINARY[symbol].ufunc.__name__, _float(ex, left), _float(ex, right)))
        made.computed = BINARY[symbol].function, (left, right)
        return made
    if symbol not in BEFORE:
        refuse("UNSUPPORTED_VALUE", f"{symbol} of a number that changes")
    return before_program(ex, BINARY[symbol].function, (left, right), finite=symbol == "**" and _shrinks(ex, left, right))


def _compared(ex: Executor, symbol: str, left: Any, right: Any) -> Const:
    """What a comparison gives now, of a number of the caller's with one in the code: programs are for either answer."""
    if isinstance(left, Const):
        left, symbol, right = right, REFLECTED[symbol], left
    if not isinstance(right, Const) or isinstance(right.value, SymInt) or left.now is None or left.source is None:
        return _decided(ex, symbol, left, right)
    answer = BINARY[symbol].function(left.now, right.value)
    ex.guards.require(Compares(left.source, symbol, right.value, answer))
    return Const(answer)


# -- what computed numbers decide: guards compute them again --


def _decided(ex: Executor, symbol: str, left: Any, right: Any) -> Const:
    """What a comparison of numbers gives now that are computed of the caller's: programs are for either answer."""
    return _answered(ex, BINARY[symbol].function, symbol, (left, right))


def _answered(ex: Executor, function: Any, name: str, args: tuple[Any, ...]) -> Const:
    """What a function of numbers gives now, True or False: programs are for either answer."""
    places: dict[Source, int] = {}
    nows: list[Any] = []
    formula = (function, *[_formula(ex, arg, places, nows) for arg in args])
    try:
        answer = _computed(formula, nows)
    except (ArithmeticError, TypeError, ValueError) as error:  # TypeError: of complex numbers, which roots of negative ones are
        refuse("UNSUPPORTED_VALUE", f"{name} of a number that cannot be computed: {error}")
    ex.guards.require(Decides(tuple(places), formula, answer))
    return Const(answer)


def _formula(ex: Executor, value: Any, places: dict[Source, int], nows: list[Any], depth: int = 0) -> Any:
    """A number as `Decides` has it, by the places of its sources; what stands there now is added to `nows`."""
    if isinstance(value, Const):
        return _formula_of_int(ex, value.value.expr, places, nows) if isinstance(value.value, SymInt) else (value.value,)
    if value.now is not None and value.source is not None:
        return _placed(value.source, value.now, places, nows)
    if value.computed is None or depth == DEEPEST:
        refuse("UNSUPPORTED_VALUE", "a comparison of a number that the program computes")
    function, args = value.computed
    function = function.function if isinstance(function, Careful) else function
    if not isinstance(function, BuiltinFunctionType):
        refuse("UNSUPPORTED_VALUE", "a comparison of a number that a function in Python computes")
    return (function, *[_formula(ex, arg, places, nows, depth + 1) for arg in args])


def _formula_of_int(ex: Executor, expr: IntExpr, places: dict[Source, int], nows: list[Any]) -> Any:
    """The polynomial, as a sum of products."""
    found: Any = None
    if len(expr.terms) + max(map(len, expr.terms), default=0) > DEEPEST // 2:
        refuse("UNSUPPORTED_VALUE", "a comparison of a number that is computed in so many steps")
    for symbols, coefficient in expr.terms.items():
        term: Any = (coefficient,)
        for symbol in symbols:
            if symbol.name not in ex.integers:
                refuse("UNSUPPORTED_VALUE", "a comparison of a number that is made of a size")
            place = _placed(ex.integers[symbol.name], ex.env.values[symbol.name], places, nows)
            term = place if term == (1,) else (operator.mul, term, place)
        found = term if found is None else (operator.add, found, term)
    return (0,) if found is None else found


def _placed(source: Source, now: Any, places: dict[Source, int], nows: list[Any]) -> int:
    if source not in places:
        places[source] = len(nows)
        nows.append(now)
    return places[source]


def _computed(formula: Any, nows: list[Any]) -> Any:
    if isinstance(formula, int):
        return nows[formula]
    first, *args = formula
    return first(*[_computed(arg, nows) for arg in args]) if args else first


def as_integer(ex: Executor, function: Any, value: Any) -> Const | None:
    """What a function that rounds to an integer gives for an integer that changes, or a float that is made of such.

    Programs are for each integer that floats give.  None where it is another function, or of another value.
    """
    if function not in TO_INTEGERS:
        return None
    if isinstance(value, Const):
        return value if isinstance(value.value, SymInt) else None
    if not isinstance(value, Number) or not value.node.dtype.is_float or value.computed is None:
        return None
    places: dict[Source, int] = {}
    nows: list[Any] = []
    formula = (TO_INTEGERS[function], _formula(ex, value, places, nows))
    if not places.keys() <= set(ex.integers.values()):
        return None
    try:
        answer = _computed(formula, nows)
    except (ArithmeticError, TypeError, ValueError) as error:
        refuse("UNSUPPORTED_VALUE", f"{function.__name__}() of a number that cannot be computed: {error}")
    ex.guards.require(Decides(tuple(places), (operator.eq, formula, (answer,)), True))
    return Const(answer)


def as_float(ex: Executor, value: Any) -> Number | Const | None:
    """What `float` gives for a number that changes; None for another value."""
    if isinstance(value, Number) and value.node.dtype.is_float:
        return value
    return arithmetic(ex, "*", value, Const(1.0)) if is_changing_int(ex, value) else None


def beside_float(symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """The operands of a comparison, an integer that changes beside an integer in place of a float where that says the same."""
    if type(left) is float and isinstance(right, SymInt) and symbol in REFLECTED:
        return beside_float(REFLECTED[symbol], right, left)[::-1]
    if not (isinstance(left, SymInt) and type(right) is float and symbol in REFLECTED):
        return left, right
    if not math.isfinite(right) or abs(right) >= BEYOND:
        return 0, right  # as any integer
    if abs(right) >= LARGEST:
        return left, right
    if symbol in WHOLE:
        return left, WHOLE[symbol](right)
    return (left, int(right)) if right.is_integer() else (0, right)


def is_complex(value: Any) -> bool:
    """Whether a value is a Python complex number."""
    if isinstance(value, Number):
        return value.node.dtype.is_complex
    return isinstance(value, Const) and type(value.value) is complex


def complex_answer(ex: Executor, symbol: str, left: Any, right: Array) -> Any:
    """``left symbol right`` where Python's complex answers: np.float64 is a float, and no subclass of complex goes first.

    None where complex declines, so that NumPy's scalar is asked.
    """
    if symbol not in ANSWERED_BY_COMPLEX:
        return None
    known = ex.known(right)
    if known is not None and isinstance(left, Const):
        try:
            return Const(BINARY[symbol].function(left.value, float(known)))
        except ArithmeticError as error:
            throw(error)
    if symbol not in EXACT_OF_COMPLEX:
        refuse("UNSUPPORTED_VALUE", f"{symbol} of a Python complex number and a np.float64")
    number = left.node if isinstance(left, Number) else ex.builder.scalar(left.value, dtypes.complex128)
    other = ex.builder.cast(ex.memories.present(right), dtypes.complex128)
    return Number(EXACT_OF_COMPLEX[symbol](ex.builder, number, other))


def _shrinks(ex: Executor, base: Any, exponent: Any) -> bool:
    """Whether a power lies between 0 and 1 and is never raised an error for: 0.9**t."""
    if not is_changing_int(ex, exponent) or not isinstance(base, Const) or isinstance(base.value, SymInt):
        return False
    least, _ = exponent.value.expr.bounds()
    return least is not None and least >= 0 and 0 < base.value <= 1


def of_floats(ex: Executor, function: Any, args: list[Any]) -> Number | Const | None:
    """A function of numbers some of which change; None where it is another function, or of other values."""
    digits = function is round and len(args) == 2
    if function not in OF_FLOATS and function not in DECIDING and not digits:
        return None
    given = tuple(map(ex.resolve, args))
    changing = any(isinstance(value, Number) or is_changing_int(ex, value) for value in given)
    if not changing or not all(is_number(ex, value) for value in given):
        return None
    if digits and not (isinstance(given[0], Number) and isinstance(given[1], Const) and type(given[1].value) is int):
        return None
    if function in DECIDING:
        return _answered(ex, function, function.__name__, given)
    return before_program(ex, function, given)


def _float(ex: Executor, value: Any) -> Any:
    """The node of a number as Python makes a float of it."""
    if isinstance(value, Number):
        return value.node
    if not isinstance(value.value, SymInt):
        return ex.builder.scalar(float(value.value), dtypes.float64)
    if not -EXACT < value.value < EXACT:  # guards
        refuse("UNSUPPORTED_VALUE", "an integer that no float is")
    _may_be_needed_as_it_is(ex, value.value)
    return ex.builder.cast(ex.builder.scalar(value.value, dtypes.int64), dtypes.float64)


def _may_be_needed_as_it_is(ex: Executor, value: SymInt) -> None:
    """Where the capture does not go on with a float, it is tried again with the integer as a constant."""
    ex.symbolic_floats.update(ex.integers[s.name] for s in value.expr.symbols() if s.name in ex.integers)


def before_program(ex: Executor, function: Callable[..., Any], args: tuple[Value, ...], finite: bool = False) -> Number:
    """What Python's function gives for numbers, as an input of the program.  `finite`: it always gives a finite float."""
    if ex.profile.floats_of_sizes and function in ROWS and (len(args) == 2) == (OPS[ROWS[function]].arity == 2):
        return Number(ex.builder.call(ROWS[function], *(_float(ex, a) for a in args)))
    given = tuple(_known_before(ex, a) for a in args)
    key = function, *(_identity(a) for a in given)
    if key not in ex.computed:
        ex.computed[key] = _made_before(ex, function, given, finite)
    return ex.computed[key]


def _identity(value: Any) -> Any:
    """The same for the same number."""
    if isinstance(value, Const):
        return type(value.value), repr(value.value)
    return value.source


def _made_before(ex: Executor, function: Callable[..., Any], given: tuple[Value, ...], finite: bool) -> Number:
    name = getattr(function, "__name__", "number")
    step = ex.precede(function if finite else Careful(function), name, *given, seen=False, lasts=False)
    input_slot(ex)
    step.node = ex.graph.placeholder(name, Meta(dtypes.float64, ()))
    made = Number(step.node, step.made, computed=(function, given))
    if not finite:
        ex.builder.bail_out_where(ex.builder.call("logical_not", ex.builder.call("isfinite", made.node)))
    return made


def _known_before(ex: Executor, value: Any) -> Value:
    """A number as something that is there before the program runs."""
    if isinstance(value, Const):
        if isinstance(value.value, SymInt):
            _may_be_needed_as_it_is(ex, value.value)
        return value
    if value.source is not None:
        return value
    if value.computed is None:
        return refuse("UNSUPPORTED_VALUE", "a number that the program computes, where Python has to go on with it")
    function, args = value.computed
    given = tuple(_known_before(ex, a) for a in args)
    step = ex.precede(Careful(function), "number", *given, seen=False, lasts=False)
    return Number(value.node, step.made, value.computed)


class Careful:
    """A function of numbers that gives NaN where it would raise, or gives no float."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *args: Any) -> float:
        try:
            result = self.function(*args)
        except (ArithmeticError, ValueError):
            return math.nan
        return result if type(result) is float else math.nan
