"""Operators, comparisons, subscripts and formatting, on values."""

from __future__ import annotations

import enum
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.errors import ShapeError
from dynagraph.frontend import array_writes, masks
from dynagraph.frontend.array_flags import flag_named
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.calls import call
from dynagraph.frontend.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor import Executor, Frame
from dynagraph.frontend.iterators import EQUAL, Flat, held_items, items_of, iterate, says_itself
from dynagraph.frontend.numbers import BEFORE, arithmetic, complex_answer, is_changing_int, is_complex, is_number
from dynagraph.frontend.numpy_door import operator_door
from dynagraph.frontend.numpy_door.indexing import ARRAY_ITEM
from dynagraph.frontend.objects import (
    MISSING,
    bound,
    call_special,
    in_mro,
    is_enum_class,
    is_plain_value,
    member_of,
    special,
)
from dynagraph.frontend.profile import LARGEST
from dynagraph.frontend.program import decode
from dynagraph.frontend.source import Key
from dynagraph.frontend.truth import length, same, truth, type_of
from dynagraph.frontend.values import (
    DELETED,
    NULL,
    Array,
    Const,
    Dict,
    DictView,
    Flags,
    Function,
    Identity,
    Iterator,
    Masked,
    Method,
    Number,
    Object,
    ObjectKey,
    Opaque,
    Sequence,
    Set,
    Slice,
    Value,
)
from dynagraph.frontend.wrapping import KEYS, acts_as_array, base_of_value, behind, complete, guard_order, held_value, is_container
from dynagraph.ir import dtypes
from dynagraph.ir.shapes import SymInt, expr_of

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "@": operator.matmul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "<<": "lshift", ">>": "rshift",
    "&": "and", "|": "or", "^": "xor", "@": "matmul",
}  # fmt: skip
SPECIAL_NAMES = {symbol: (f"__{name}__", f"__r{name}__") for symbol, name in _NAMES.items()}
SPECIAL_NAMES |= {
    "divmod": ("__divmod__", "__rdivmod__"),
    "==": ("__eq__", "__eq__"),
    "!=": ("__ne__", "__ne__"),
    "<": ("__lt__", "__gt__"),
    "<=": ("__le__", "__ge__"),
    ">": ("__gt__", "__lt__"),
    ">=": ("__ge__", "__le__"),
}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
SAID_OF_SIZES = COMPARISONS | {"+", "-", "*", "//", "%"}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}
PURE = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, SymInt, range, slice)
MAX_ITEMS = 100000  # of lists and tuples that are followed
MAX_DIGITS = 10000  # of results of ** and <<: a capture must not hang


# -- binary operators -------------------------------------------------------------------------------------------------------


def binary(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol right``."""
    ex = frame.ex
    left, right = behind(ex, ex.resolve(left)), behind(ex, ex.resolve(right))
    if isinstance(left, Identity) or isinstance(right, Identity):
        return _of_identities(symbol, left, right)
    if symbol == "%" and isinstance(left, Const) and type(left.value) is str and not isinstance(right, Array):
        return texts_of(frame, left.value.__mod__, [right], {})
    if is_complex(left) and isinstance(right, Array) and right.is_scalar and right.node.dtype is dtypes.float64:
        answer = complex_answer(ex, symbol, left, right)
        if answer is not None:
            return answer
    if isinstance(left, (Array, Masked)) or isinstance(right, (Array, Masked)):
        return _of_arrays(frame, symbol, left, right)
    if isinstance(left, Number) or isinstance(right, Number) or _makes_changing_float(ex, symbol, left, right):
        return arithmetic(ex, symbol, left, right)
    if _has_own_operators(left) or _has_own_operators(right):
        return _of_objects(frame, symbol, left, right)
    if isinstance(left, Slice) and isinstance(right, Slice):
        return Const(pure(symbol, plain(frame, left), plain(frame, right)))
    if isinstance(left, Const) and isinstance(right, Const):
        return ex.constant(pure(symbol, left.value, right.value))
    if isinstance(left, Flags) or isinstance(right, Flags):
        return refuse("UNSUPPORTED_VALUE", f"{symbol} of the flags of an array")
    if isinstance(left, DictView) or isinstance(right, DictView):
        return _of_views(frame, symbol, left, right)
    if isinstance(left, Sequence) or isinstance(right, Sequence):
        return _of_sequences(frame, symbol, left, right)
    if isinstance(left, Set) or isinstance(right, Set):
        return _of_sets(frame, symbol, left, right)
    if isinstance(left, Dict) and isinstance(right, Dict):
        return _of_dicts(frame, symbol, left, right)
    if isinstance(left, Method) and isinstance(right, Method) and symbol in ("==", "!="):
        return Const(_same_method(frame, left, right) is (symbol == "=="))
    if symbol in ("==", "!="):
        return Const(same(frame, left, right) is (symbol == "=="))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a {type(left).__name__.lower()} and a {type(right).__name__.lower()}")


EQUAL.append(binary)


def _makes_changing_float(ex: Executor, symbol: str, left: Any, right: Any) -> bool:
    """Whether an operator makes a float of an integer that changes."""
    if not (is_number(ex, left) and is_number(ex, right) and (is_changing_int(ex, left) or is_changing_int(ex, right))):
        return False
    return symbol in BEFORE and (symbol == "/" or type(left.value) is float or type(right.value) is float)


def _of_identities(symbol: str, left: Any, right: Any) -> Value:
    known = all(isinstance(v, Identity) or (isinstance(v, Const) and type(v.value) is int) for v in (left, right))
    if symbol not in ("==", "!=") or not known:
        refuse("UNSUPPORTED_VALUE", f"{symbol} of the id() of an object made here")
    return Const((left == right) is (symbol == "=="))


def _same_method(frame: Frame, left: Method, right: Method) -> bool:
    """Whether two bound methods are equal: one function of one object."""
    functions = left.function, right.function
    if any(isinstance(f, str) for f in functions):
        return functions[0] == functions[1] and same(frame, left.owner, right.owner)
    return same(frame, *functions) and same(frame, left.owner, right.owner)


def _of_arrays(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    array, other = (left, right) if isinstance(left, (Array, Masked)) else (right, left)
    if symbol == "*" and isinstance(array, Array) and array.is_scalar and _may_repeat(other):
        refuse("UNSUPPORTED_VALUE", "a sequence repeated by a NumPy scalar, or an error")
    if isinstance(other, Const) and other.value is None and symbol in ("==", "!="):
        refuse("UNSUPPORTED_ARGUMENT", "an array compared with None")
    if isinstance(other, Object) and not (isinstance(other.value, enum.Enum) and isinstance(other.value, int)):
        name = SPECIAL_NAMES[symbol][0 if other is left else 1]
        kind = other.kind
        declines = in_mro(kind, "__array_ufunc__") is None or other is left
        if declines and isinstance(in_mro(kind, name), type(_of_arrays)):
            result = call_special(frame, other, name, left if other is right else right)
            if not _is_not_implemented(result):
                return result
        held = held_value(frame.ex, other)
        if held is None or isinstance(array, Masked) or array.is_scalar or acts_as_array(kind):
            refuse("UNSUPPORTED_VALUE", f"{symbol} of an array and a {kind.__name__}")
    return frame.ex.call_door(operator_door(symbol), [left, right])


def _may_repeat(value: Value) -> bool:
    return isinstance(value, Sequence) or (isinstance(value, Const) and isinstance(value.value, (str, bytes, tuple)))


def pure(symbol: str, left: Any, right: Any) -> Any:
    """The operator on Python values that have no side effects."""
    comparable = symbol in ("==", "!=") and (callable(left) or callable(right) or _is_dtype(left) or _is_dtype(right))
    union = symbol == "|" and _may_unite(left) and _may_unite(right)
    if not comparable and not union and not (isinstance(left, PURE) and isinstance(right, PURE)):
        refuse("UNSUPPORTED_VALUE", f"{left!r} {symbol} {right!r}")
    if symbol not in SAID_OF_SIZES or not all(isinstance(v, (int, SymInt)) for v in (left, right)):
        left, right = known_number(left), known_number(right)
    if symbol in ("**", "<<", "*") and type(left) is int and type(right) is int and right > 0:
        digits = left.bit_length() * right if symbol == "**" else left.bit_length() + right
        if symbol != "*" and digits > 4 * MAX_DIGITS:
            refuse("UNSUPPORTED_VALUE", "a number of more than 10000 digits")
    try:
        result = BINARY[symbol](left, right)
        if isinstance(result, SymInt) and expr_of(result).magnitude(LARGEST) >= 1 << 63:
            return BINARY[symbol](known_number(left), known_number(right))  # might not fit the 64 bits of a size
        return result
    except ShapeError:  # sizes cannot say it
        return pure(symbol, known_number(left), known_number(right))
    except Exception as error:
        return throw(error)


def _may_unite(value: Any) -> bool:
    """Whether ``|`` makes a union of types of it, as Python has it."""
    return value is None or isinstance(value, types.UnionType) or (isinstance(value, type) and type(value).__or__ is type.__or__)


def _is_dtype(value: Any) -> bool:
    return type(value).__module__.startswith("numpy")


def _of_sequences(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if isinstance(left, Sequence) and isinstance(right, Sequence):
        if symbol == "+" and _base_of(left) is _base_of(right):
            items = last_of([*held_items(frame, left), *held_items(frame, right)], left.maxlen)
            return Sequence(_base_of(left), items, maxlen=left.maxlen)
        if symbol in ("==", "!="):
            return Const(_equal(frame, left, right) is (symbol == "=="))
        if symbol in COMPARISONS:
            return Const(pure(symbol, tuple(plain(frame, left)), tuple(plain(frame, right))))
    if symbol == "*":
        sequence, count = (left, right) if isinstance(left, Sequence) else (right, left)
        if isinstance(count, Const) and isinstance(count.value, int):
            if sequence.kind is tuple and count.value == 1:
                return sequence
            if count.value * length(frame.ex, sequence) > MAX_ITEMS:
                refuse("UNROLL_LIMIT", f"a {sequence.kind.__name__} of more than {MAX_ITEMS} items")
            items = last_of(held_items(frame, sequence) * count.value, sequence.maxlen)
            return Sequence(_base_of(sequence), items, maxlen=sequence.maxlen)
    if symbol in ("==", "!="):
        return Const(symbol == "!=")
    kinds = [type_of(frame, left), type_of(frame, right)]
    if symbol == "+" and isinstance(left, Sequence) and left.kind in (list, tuple):
        name = left.kind.__name__
        throw(TypeError(f'can only concatenate {name} (not "{kinds[1].__name__}") to {name}'))
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {kinds[0].__name__!r} and {kinds[1].__name__!r}"))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a sequence")


def last_of(items: list[Any], maxlen: int | None) -> list[Any]:
    """What a bounded deque keeps."""
    return items if maxlen is None else items[max(len(items) - maxlen, 0) :]


def _base_of(value: Sequence) -> type:
    """The built-in type that + and * of a named tuple give."""
    return tuple if issubclass(value.kind, tuple) else list if issubclass(value.kind, list) else value.kind


def _equal(frame: Frame, left: Sequence, right: Sequence) -> bool:
    if _base_of(left) is not _base_of(right) or length(frame.ex, left) != length(frame.ex, right):
        return False
    k = 0  # comparing may change the lists
    while k < len(left.items) and k < len(right.items):
        if not same_or_equal(frame, left.items[k], right.items[k]):
            break
        k += 1
    return (k >= len(left.items) or k >= len(right.items)) and len(left.items) == len(right.items)


def same_or_equal(frame: Frame, a: Any, b: Any) -> bool:
    a, b = frame.ex.resolve(a), frame.ex.resolve(b)
    return a is b or truth(frame, binary(frame, "==", a, b))


def _of_sets(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if isinstance(left, Set) and isinstance(right, Set):
        return of_sets(frame, BINARY[symbol](left.items, right.items), left, right)
    if symbol in ("==", "!="):
        return Const(symbol == "!=")
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a set and a {type(right).__name__.lower()}")


def of_sets(frame: Frame, result: Any, *operands: Any) -> Value:
    """The result of an operation on sets, whose order depends on theirs."""
    value = frame.ex.constant(result)
    if isinstance(value, Set):
        sets = [o for o in operands if isinstance(o, Set)]
        value.bases = tuple(dict.fromkeys(b for s in sets for b in (s, *s.bases) if b.source is not None))
    return value


def _of_dicts(frame: Frame, symbol: str, left: Dict, right: Dict) -> Value:
    if symbol == "|" and not says_itself(right, "__iter__"):
        return Dict({**entries_of(frame, left), **entries_of(frame, right)}, kind=kind_of_copy(left), factory=left.factory)
    ours, theirs = entries_of(frame, left), entries_of(frame, right)
    if symbol in ("==", "!="):
        equal = ours.keys() == theirs.keys() and all(same_or_equal(frame, v, theirs[k]) for k, v in ours.items())
        return Const(equal is (symbol == "=="))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of dicts")


def kind_of_copy(value: Dict) -> type:
    """The type that ``|`` and ``copy`` of a dict give."""
    if says_itself(value, "__iter__"):
        refuse("UNSUPPORTED_VALUE", f"a copy of a {value.kind.__name__}, which says itself what its keys are")
    return dict if in_mro(value.kind, "copy") is vars(dict)["copy"] else value.kind


def view_object(frame: Frame, view: DictView) -> Any:
    """A view as Python has it: of a dict of the same keys."""
    entries = entries_of(frame, view.owner)
    values = dict.fromkeys(entries) if view.name == "keys" else {k: known_number(plain(frame, v)) for k, v in entries.items()}
    return getattr(_dict_of(view.owner)(values), view.name)()


def _of_views(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    if all(getattr(side, "name", "") == "values" for side in (left, right) if isinstance(side, DictView)):
        if symbol in ("==", "!="):
            return Const(same(frame, left, right) is (symbol == "=="))
        return _no_operator(frame, symbol, left, right)
    given = []
    for side in (left, right):
        if isinstance(side, Set):
            given.append(side.items)
        else:
            given.append(plain(frame, Sequence(list, items_of(frame, side))) if isinstance(side, Iterator) else plain(frame, side))
    try:
        return of_sets(frame, BINARY[symbol](*given), left, right)
    except TypeError as error:
        return throw(error)


def _no_operator(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    names = [type_of(frame, v).__name__ for v in (left, right)]
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {names[0]!r} and {names[1]!r}"))
    return throw(TypeError(f"unsupported operand type(s) for {symbol}: {names[0]!r} and {names[1]!r}"))


# -- operators of classes -----------------------------------------------------------------------------------------------------


def _has_own_operators(value: Any) -> bool:
    if isinstance(value, (Sequence, Dict)):
        return value.kind.__module__ != "builtins" and _redefines(value)
    return isinstance(value, Object)


def _redefines(value: Any) -> bool:
    return any(isinstance(in_mro(value.kind, n), type(_redefines)) for pair in SPECIAL_NAMES.values() for n in pair)


def _is_not_implemented(value: Any) -> bool:
    return isinstance(value, Const) and value.value is NotImplemented


def _of_objects(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """The protocol of binary operators: the left one's method, the right one's reflected one, a subclass's first."""
    name, reflected = SPECIAL_NAMES[symbol]
    kinds = type_of(frame, left), type_of(frame, right)
    tries = [(left, name, right), (right, reflected, left)]
    if kinds[0] is kinds[1]:
        if symbol not in COMPARISONS:
            tries.pop()
    elif issubclass(kinds[1], kinds[0]) and in_mro(kinds[1], reflected) is not in_mro(kinds[0], reflected):
        tries.reverse()
    for owner, method, other in tries:
        result = _try_operator(frame, owner, method, other)
        if not _is_not_implemented(result):
            return result
    if symbol in ("==", "!="):
        return Const(same(frame, left, right) is (symbol == "=="))
    names = [k.__name__ for k in kinds]
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {names[0]!r} and {names[1]!r}"))
    shown = {"**": "** or pow()", "divmod": "divmod()"}.get(symbol, symbol)
    return throw(TypeError(f"unsupported operand type(s) for {shown}: {names[0]!r} and {names[1]!r}"))


COMPARISONS_OF_OBJECT = tuple(vars(object)[name] for name in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__"))


def _try_operator(frame: Frame, owner: Any, name: str, other: Any) -> Value:
    known = isinstance(owner, Const) and isinstance(owner.value, PURE)
    if known and isinstance(other, Object) and isinstance(other.value, enum.Enum):
        given = known_number(owner.value)
        method = getattr(type(given), name, None)
        return Const(NotImplemented) if method is None else frame.ex.constant(method(given, plain(frame, other)))
    if known and base_of_value(getattr(other, "kind", object)) is not None:
        given, right = known_number(owner.value), plain(frame, other)
        method = getattr(type(given), name, None)
        return Const(NotImplemented) if method is None else frame.ex.constant(method(given, right))
    if not isinstance(owner, (Object, Sequence, Dict)):
        return Const(NotImplemented)
    found = special(frame, owner, name)
    if name == "__ne__" and (found is None or found is object.__ne__):
        result = _try_operator(frame, owner, "__eq__", other)
        return result if _is_not_implemented(result) else Const(not truth(frame, result))
    if found is None or found in COMPARISONS_OF_OBJECT:
        return Const(NotImplemented)
    if not isinstance(owner, Object) and not isinstance(found, type(_try_operator)):
        base = Sequence(_base_of(owner), owner.items) if isinstance(owner, Sequence) else Dict(owner.items)
        symbol = next(s for s, pair in SPECIAL_NAMES.items() if name in pair)
        return binary(frame, symbol, base, other)
    return call(frame, bound(frame, owner, found, name), [other], {})


def in_place(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol= right``: on arrays a write, which is followed where nobody else sees the array's memory."""
    ex = frame.ex
    left, right = ex.resolve(left), ex.resolve(right)
    if isinstance(left, Array) and not left.is_scalar and symbol == "@" and ex.library is not NUMPY:
        if hasattr(ex.library.array_type, "__imatmul__"):
            refuse("IN_PLACE_WRITE", "@= of an array of CuPy's")
        return binary(frame, symbol, left, right)  # as Python does without the method: the name gets another array
    if isinstance(left, Array) and not left.is_scalar:
        result = binary(frame, symbol, left, right)
        if symbol == "@":
            array_writes.check_product(left, right, result)
        return array_writes.store_result(ex, left, result, who=f"{symbol}=")
    if isinstance(left, Masked):
        return masks.in_place(ex, left, binary(frame, symbol, left, right), symbol)
    if isinstance(left, (Object, Sequence, Dict)):
        name = f"__i{_NAMES[symbol]}__"
        found = in_mro(left.kind, name)
        if isinstance(found, type(in_place)):
            result = call(frame, bound(frame, left, found, name), [right], {})
            if not _is_not_implemented(result):
                return result
    for kind, symbols in ((list, ("+", "*")), (deque, ("+", "*")), (dict, "|"), (set, ("|", "&", "-", "^"))):
        if isinstance(left, (Sequence, Dict, Set)) and issubclass(left.kind, kind) and symbol in symbols:
            if kind is set and not isinstance(right, Set):
                break
            call(frame, Method(f"__i{_NAMES[symbol]}__", left), [right], {})
            return left
    try:
        return binary(frame, symbol, left, right)
    except Raised as raised:
        _say_in_place(frame, symbol, left, right, raised.value)
        raise


def _say_in_place(frame: Frame, symbol: str, left: Any, right: Any, error: Object) -> None:
    """Let an error of a binary operator name the operator that the code has."""
    args = error.fields.get("args")
    if error.kind is not TypeError or not isinstance(args, Sequence):
        return
    if len(args.items) != 1 or not isinstance(args.items[0], Const):
        return
    names = " and ".join(repr(type_of(frame, v).__name__) for v in (left, right))
    shown = "** or pow()" if symbol == "**" else symbol
    if args.items[0].value == f"unsupported operand type(s) for {shown}: {names}":
        args.items[0] = Const(f"unsupported operand type(s) for {symbol}=: {names}")


def unary(frame: Frame, name: str, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, (Array, Masked)):
        return frame.ex.call_door(operator_door(name), [value])
    if isinstance(value, Const) and isinstance(value.value, SymInt) and name != "neg":
        return value if name == "pos" else binary(frame, "-", unary(frame, "neg", value), Const(1))
    if isinstance(value, Number) and name == "neg":
        return Number(frame.ex.builder.call("negative", value.node), computed=(operator.neg, (value,)))
    if isinstance(value, Const) and isinstance(value.value, PURE):
        try:
            return Const(UNARY[name](value.value))
        except TypeError as error:
            throw(error)
    if isinstance(value, (Object, Sequence, Dict)) and special(frame, value, f"__{name}__") is not None:
        return call_special(frame, value, f"__{name}__")
    return refuse("UNSUPPORTED_VALUE", f"{name} of a {type(value).__name__.lower()}")


def contains(frame: Frame, container: Any, item: Any) -> bool:
    """``item in container``."""
    ex = frame.ex
    container, item = behind(ex, ex.resolve(container)), ex.resolve(item)
    if isinstance(container, Array):
        ex.call_door(operator_door("contains"), [container, item])
    if isinstance(container, (Object, Sequence, Dict)):
        found = in_mro(container.kind, "__contains__")
        if isinstance(found, type(contains)):
            return truth(frame, call_special(frame, container, "__contains__", item))
    if isinstance(container, Dict):
        return has_key(frame, container, key_of(frame, item))
    if isinstance(container, Set):
        return key_of(frame, item) in container.items
    if isinstance(container, DictView) and container.name == "keys":
        return has_key(frame, container.owner, key_of(frame, item))
    if isinstance(container, DictView) and container.name == "items":
        return _has_entry(frame, container.owner, item)
    if isinstance(container, Const):
        try:
            return plain(frame, item) in container.value
        except TypeError as error:
            throw(error)
    if isinstance(container, Sequence):
        return any(same_or_equal(frame, candidate, item) for candidate in held_items(frame, container))
    if isinstance(container, (Object, Iterator, DictView)):
        iterator = iterate(frame, container)
        while (candidate := iterator.step(frame)) is not NULL:
            if same_or_equal(frame, candidate, item):
                return True
        return False
    return refuse("UNSUPPORTED_VALUE", f"`in` of a {type(container).__name__.lower()}")


def _has_entry(frame: Frame, owner: Dict, item: Any) -> bool:
    """``item in owner.items()``."""
    if not isinstance(item, Sequence) or not issubclass(item.kind, tuple) or len(item.items) != 2:
        return False
    key = key_of(frame, item.items[0])
    return has_key(frame, owner, key) and same_or_equal(frame, owner.items[key], item.items[1])


# -- plain Python objects -------------------------------------------------------------------------------------------------------


def plain(frame: Frame, value: Any) -> Any:
    """The Python object that a value of constants stands for."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Sequence):
        items = [known_number(plain(frame, item)) for item in items_of(frame, value)]
        if value.kind is deque:
            return deque(items, value.maxlen)
        if value.kind in (list, tuple):
            return value.kind(items)
        if issubclass(value.kind, tuple) and not is_container(value.kind):
            return tuple.__new__(value.kind, items)
        return refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} where a number or string is needed")
    if isinstance(value, Set):
        guard_order(frame.ex, value)
        return value.kind(value.items)
    if isinstance(value, DictView):
        return view_object(frame, value)
    if isinstance(value, Slice):
        return slice(*(known_number(plain(frame, p)) for p in value.parts))
    if isinstance(value, Dict) and value.kind is dict:
        return {k: known_number(plain(frame, v)) for k, v in entries_of(frame, value).items()}
    if isinstance(value, Object) and value.source is not None and _is_immutable(value):
        frame.ex.guards.add("is", value.source, value.value, says=f" is {value.value!r}")
        return value.value
    if isinstance(value, Function) and value.object is not None:
        return value.object
    held = held_value(frame.ex, value)
    if held is not None and is_plain_value(value):
        return held.value
    return refuse("UNSUPPORTED_VALUE", f"a {type(value).__name__.lower()} where a number or string is needed")


def runs_code(key: Any) -> bool:
    """Whether comparing a key with others runs code of the user's."""
    if isinstance(key, (tuple, frozenset)) and type(key) in (tuple, frozenset):
        return any(map(runs_code, key))
    return any(not isinstance(in_mro(type(key), name), types.WrapperDescriptorType) for name in ("__eq__", "__hash__"))


def key_of(frame: Frame, value: Any) -> Any:
    """A key of a dict or an element of a set, as the Python object that it is."""
    value = frame.ex.resolve(value)
    if isinstance(value, Identity):
        return value
    if isinstance(value, Object) and isinstance(in_mro(value.kind, "__hash__"), types.FunctionType) and not _is_immutable(value):
        return _object_key(frame, value)
    held = held_value(frame.ex, value)
    if held is not None:
        return _value_key(frame, value, held.value)
    key = frozenset(value.items) if isinstance(value, Set) and value.kind is frozenset else known_number(plain(frame, value))
    try:
        hash(key)
    except TypeError as error:
        throw(error)
    return key


def _object_key(frame: Frame, value: Object) -> ObjectKey:
    """The hash is asked for once, as Python does; what is equal to the key may be asked more often, so nobody may see it."""
    hashed = known_number(plain(frame, call_special(frame, value, "__hash__")))
    equals = in_mro(value.kind, "__eq__")
    if not isinstance(hashed, int) or not isinstance(equals, types.FunctionType) or _writes(equals.__code__):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as a key")
    return ObjectKey(value, hashed, lambda key, other: _is_key(frame, key, other), frame.ex.steps)


def _value_key(frame: Frame, value: Object, held: Any) -> ObjectKey:
    if not is_plain_value(value):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as a key")

    def equal(key: ObjectKey, other: Any) -> bool:
        if not isinstance(other, ObjectKey):
            return bool(held == other)
        right = held_value(frame.ex, other.value)
        return held == right.value if right is not None and other.of_value else _is_key(frame, other, key)

    return ObjectKey(value, hash(held), equal, frame.ex.steps, of_value=True)


def _writes(code: types.CodeType) -> bool:
    return any(i.op.startswith("STORE_") and i.op != "STORE_FAST" for i in decode(code).instructions)


def _is_key(frame: Frame, key: ObjectKey, other: Any) -> bool:
    right = other.value if isinstance(other, ObjectKey) else frame.ex.constant(other)
    if same(frame, key.value, right):
        return True
    before = len(frame.ex.effects)
    found = truth(frame, binary(frame, "==", key.value, right))
    if len(frame.ex.effects) != before:
        refuse("UNSUPPORTED_VALUE", f"a {key.value.kind.__name__} as a key, whose __eq__ is seen outside")
    return found


def known_number(value: Any) -> Any:
    """A symbolic size as the number that it is now, guarded; anything else as it is."""
    return int(value) if isinstance(value, SymInt) else value


def _is_immutable(value: Object) -> bool:
    """Whether an object is as good as a constant: members of enums, and hash by identity."""
    return in_mro(value.kind, "__hash__") is object.__hash__ or hasattr(value.kind, "__members__")


# -- subscripts -------------------------------------------------------------------------------------------------------------------


def subscript(frame: Frame, container: Any, key: Any) -> Value:
    """``container[key]``."""
    ex = frame.ex
    container, key = behind(ex, ex.resolve(container)), ex.resolve(key)
    if isinstance(container, Array):
        if isinstance(key, Object):
            key = Const(ex.index_number(key))
        with_rest = not container.is_scalar and _has_ellipsis(ex, key)
        return ex.call_door(ARRAY_ITEM if with_rest else operator_door("getitem"), [container, key])
    if isinstance(container, Flags):
        return flag_named(ex, container, key)
    if isinstance(container, (Object, Sequence, Dict)) and isinstance(in_mro(container.kind, "__getitem__"), type(subscript)):
        return call_special(frame, container, "__getitem__", key)
    if isinstance(container, Masked):
        refuse("DATA_DEPENDENT", "a subscript of what a mask chooses")
    if isinstance(container, Flat):
        return container.item(ex, key)
    if isinstance(container, Object) and hasattr(container, "remade") and in_mro(container.kind, "__getitem__") is not MISSING:
        return call_special(frame, container, "__getitem__", key)
    if isinstance(container, Sequence):
        return item_of(frame, container, key)
    if isinstance(container, Dict):
        return dict_value(frame, container, key)
    if isinstance(container, Const) and isinstance(container.value, (str, bytes, range, tuple)):
        index = ex.to_door(key)
        try:
            return ex.constant(container.value[index])
        except (IndexError, TypeError) as error:
            throw(error)
    if is_enum_class(container):
        return member_of(frame, container.value, plain(frame, key))
    if isinstance(container, Const) and isinstance(container.value, type):
        refuse("UNSUPPORTED_FUNCTION", f"{container.value.__name__}[...]")
    if isinstance(container, Const) and not hasattr(type(container.value), "__getitem__"):
        throw(TypeError(f"{type(container.value).__name__!r} object is not subscriptable"))
    return refuse("UNSUPPORTED_VALUE", f"a subscript of a {type(container).__name__.lower()}")


def _has_ellipsis(ex: Executor, key: Any) -> bool:
    parts = key.items if isinstance(key, Sequence) else key.value if isinstance(key, Const) else ()
    parts = [ex.resolve(p) for p in parts] if isinstance(key, Sequence) else parts if isinstance(parts, tuple) else (parts,)
    return any(p is Ellipsis or (isinstance(p, Const) and p.value is Ellipsis) for p in parts)


def index_of(frame: Frame, key: Any) -> Any:
    """A key of a sequence as an int, or a slice of ints."""
    index = frame.ex.to_door(key) if isinstance(frame.ex.resolve(key), (Const, Slice)) else key
    if isinstance(index, slice):
        return slice(*(None if p is None else operator.index(p) for p in (index.start, index.stop, index.step)))
    if isinstance(index, Array):
        index = known_index(frame, index, "an index into a list")
    if isinstance(index, Object) and isinstance(index.value, enum.Enum):
        index = frame.ex.index_number(index)
    if isinstance(index, Object) and special(frame, index, "__index__") is not None:
        index = plain(frame, call_special(frame, index, "__index__"))
    return operator.index(index)


def known_index(frame: Frame, array: Array, what: str) -> int:
    """``operator.index`` of an array or NumPy scalar that depends on no input."""
    known = frame.ex.known(array)
    if known is None or known.ndim or known.dtype.kind not in "iu":
        return refuse("DATA_DEPENDENT", f"{what} is taken from an array")
    return int(known)


def sure_of_index(container: Sequence, index: int) -> bool:
    """Whether an index means the same item however long a list of the caller's is."""
    return 0 <= index < (len(container.items) if container.sized else min(len(container.items), len(container.object)))


def item_of(frame: Frame, container: Sequence, key: Any) -> Value:
    try:
        index = index_of(frame, key)
    except (TypeError, ValueError):
        name, kind = container.kind.__name__, type_of(frame, key).__name__
        throw(TypeError(f"{name} indices must be integers or slices, not {kind}"))
    if isinstance(index, slice) and container.kind is deque:
        throw(TypeError("sequence index must be integer, not 'slice'"))
    depends = isinstance(index, slice) or not sure_of_index(container, index)
    items = held_items(frame, container) if depends else container.items
    try:
        if isinstance(index, slice):
            return Sequence(_base_of(container), items[index])
        return frame.ex.resolve(items[index])
    except (IndexError, ValueError) as error:
        name = container.kind.__name__
        if isinstance(error, IndexError) and name == "deque":
            throw(IndexError("deque index out of range"))
        if isinstance(error, IndexError) and issubclass(container.kind, tuple):
            throw(IndexError("tuple index out of range"))
        return throw(error)


def has_key(frame: Frame, container: Dict, key: Any) -> bool:
    """Whether a dict has the key, guarded."""
    if key in container.items:
        return container.items[key] is not DELETED
    if container.complete or key in container.absent:
        return False
    assert container.object is not None and container.source is not None
    if type(key) not in KEYS:
        return key in complete(frame.ex, container)
    if any(type(k) not in KEYS and runs_code(k) for k in container.object):
        refuse("UNSUPPORTED_VALUE", f"{container.source} has keys that say themselves what they are equal to")
    if key in container.object:
        container.items[key] = frame.ex.wrap(container.object[key], Key(container.source, key))
        return True
    frame.ex.guards.add("no_item", container.source, key, says=f" has no key {key!r}")
    container.absent.add(key)
    return False


def dict_value(frame: Frame, container: Dict, key: Any) -> Value:
    """``container[key]`` of a dict, by way of ``__missing__``."""
    key = frame.ex.resolve(key)
    name = key_of(frame, key)
    if has_key(frame, container, name):
        return frame.ex.resolve(container.items[name])
    factory = frame.ex.resolve(container.factory)
    if factory is not None and not (isinstance(factory, Const) and factory.value is None):
        made = call(frame, factory, [], {})
        put_key(frame, container, key, made)
        return made
    missing = in_mro(container.kind, "__missing__")
    if missing is not MISSING and isinstance(missing, type(dict_value)):
        return call_special(frame, container, "__missing__", key)
    if issubclass(container.kind, Counter):
        return Const(0)
    return throw(KeyError(name))


def _dict_of(container: Dict) -> Any:
    """The built-in type whose methods change this dict."""
    return OrderedDict if issubclass(container.kind, OrderedDict) else dict


def put_key(frame: Frame, container: Dict, key: Value, value: Value) -> None:
    """``dict.__setitem__``."""
    name = key_of(frame, key)
    if container.source is not None:
        has_key(frame, container, name)  # a guard: whether it is new decides the order
        if container.items.get(name) is DELETED:
            del container.items[name]
            container.added_again.add(name)
        frame.ex.writes(container)
        frame.ex.effect(_dict_of(container).__setitem__, container, key, value)
    container.items[name] = value
    container.absent.discard(name)


def drop_key(frame: Frame, container: Dict, key: Value) -> Value:
    """``dict.pop(key)`` of a key that is there."""
    name = key_of(frame, key)
    value = frame.ex.resolve(container.items[name])
    container.deletions += 1
    if container.complete:
        del container.items[name]
    else:
        container.items[name] = DELETED
    if container.source is not None:
        frame.ex.writes(container)
        frame.ex.effect(_dict_of(container).__delitem__, container, key)
    return value


def entries_of(frame: Frame, value: Dict) -> dict[Any, Any]:
    return complete(frame.ex, value)


def store(frame: Frame, container: Any, key: Any, value: Any) -> None:
    """``container[key] = value``."""
    container, value = frame.ex.resolve(container), frame.ex.resolve(value)
    if isinstance(container, Array):
        array_writes.store_item(frame.ex, container, key, value)
        return
    if isinstance(container, Flat) and not container.position:
        array_writes.store_flat(frame.ex, container.array, key, value)
        return
    if isinstance(container, (Object, Sequence, Dict)) and isinstance(in_mro(container.kind, "__setitem__"), type(store)):
        call_special(frame, container, "__setitem__", key, value)
        return
    if isinstance(container, Const) and container.value.__class__ in (str, int, bytes, range, type(None)):
        throw(TypeError(f"{type(container.value).__name__!r} object does not support item assignment"))
    if isinstance(container, Sequence) and issubclass(container.kind, tuple):
        throw(TypeError(f"{container.kind.__name__!r} object does not support item assignment"))
    if isinstance(container, Opaque) or not isinstance(container, (Sequence, Dict)):
        refuse("SIDE_EFFECT", f"an item of a {type(container).__name__.lower()} is set")
    call(frame, Method("__setitem__", container), [key, value], {})


def delete(frame: Frame, container: Any, key: Any) -> None:
    """``del container[key]``."""
    container = frame.ex.resolve(container)
    if isinstance(container, (Object, Sequence, Dict)) and isinstance(in_mro(container.kind, "__delitem__"), type(delete)):
        call_special(frame, container, "__delitem__", key)
    elif isinstance(container, (Sequence, Dict)):
        call(frame, Method("__delitem__", container), [key], {})
    else:
        refuse("SIDE_EFFECT", f"an item of a {type(container).__name__.lower()} is deleted")


# -- strings --------------------------------------------------------------------------------------------------------------


class Shown:
    """An object of the captured code as `str.format` and its like see it: its texts are those that its class gives."""

    def __init__(self, frame: Frame, value: Any):
        self.frame, self.value = frame, value

    def __str__(self) -> str:
        return text_of(self.frame, self.value, "__str__")

    def __repr__(self) -> str:
        return text_of(self.frame, self.value, "__repr__")

    def __format__(self, specification: str) -> str:
        return text_of(self.frame, self.value, "__format__", specification)


class Hidden:
    """What has no text that is known: a text that needs it is not made."""

    def __init__(self, stop: Break):
        self.stop = stop.with_traceback(None)

    def _refuse(self, *args: Any) -> Any:
        raise self.stop

    __str__ = __repr__ = __format__ = __int__ = __float__ = __index__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        raise self.stop


def shown_if_asked(frame: Frame, value: Any, done: dict[int, Any]) -> Any:
    """As `shown`, for one of several values that a text may name."""
    try:
        return shown(frame, value, done)
    except Break as stop:
        return Hidden(stop)


def shown(frame: Frame, value: Any, done: dict[int, Any] | None = None) -> Any:
    """A Python object that has the texts of a value."""
    done = {} if done is None else done
    value = frame.ex.resolve(value)
    if id(value) in done:
        return done[id(value)]
    if isinstance(value, (Object, Sequence, Dict)) and _has_own_text(value):
        return Shown(frame, value)
    if isinstance(value, Sequence) and value.kind in (list, deque):
        made: Any = [] if value.kind is list else deque(maxlen=value.maxlen)
        done[id(value)] = made
        made += [shown(frame, item, done) for item in items_of(frame, value)]
        return made
    if isinstance(value, Sequence) and issubclass(value.kind, tuple):
        return tuple.__new__(value.kind, [shown(frame, item, done) for item in items_of(frame, value)])
    if isinstance(value, Dict) and value.kind in (dict, OrderedDict):
        made = done[id(value)] = value.kind()
        made.update({k: shown_if_asked(frame, v, done) for k, v in entries_of(frame, value).items()})
        return made
    if isinstance(value, Dict) and value.kind is Counter:
        return Counter({k: known_number(plain(frame, v)) for k, v in entries_of(frame, value).items()})
    if isinstance(value, Dict) and value.kind is defaultdict:
        factory = plain(frame, value.factory or Const(None))
        if type(factory) not in (type, type(None)):
            refuse("UNSUPPORTED_VALUE", "the text of a defaultdict with a factory that is no class")
        return defaultdict(factory, {k: shown(frame, v, done) for k, v in entries_of(frame, value).items()})
    return _with_text(known_number(plain(frame, value)))


def _has_own_text(value: Any) -> bool:
    if isinstance(value, Object):
        return True
    found = [in_mro(value.kind, name) for name in ("__str__", "__repr__", "__format__")]
    return any(isinstance(f, type(_has_own_text)) and f.__module__ != "collections" for f in found)


def _with_text(obj: Any) -> Any:
    """The object itself, if its text is a matter of its value."""
    of_module = isinstance(obj, types.BuiltinFunctionType) and isinstance(obj.__self__, types.ModuleType)
    if not isinstance(obj, (*PURE, *TEXTUAL)) and type(obj) is not type and not of_module:
        refuse("UNSUPPORTED_VALUE", "the text of an object")
    return obj


TEXTUAL: tuple[type, ...] = (
    list, dict, set, deque, np.dtype, type(Ellipsis), type({}.keys()), type({}.values()), type({}.items()),
)  # fmt: skip


def texts_of(frame: Frame, function: Any, args: Any, kwargs: dict[str, Any]) -> Const:
    """``str.format`` or ``%``: a text made of texts."""
    done: dict[int, Any] = {}
    given = [shown(frame, a, done) for a in args]
    named = {k: shown_if_asked(frame, v, done) for k, v in kwargs.items()}
    try:
        return Const(function(*given, **named))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        if any(isinstance(frame.ex.resolve(a), Object) for a in (*args, *kwargs.values())):
            refuse("UNSUPPORTED_VALUE", f"text made of an object ({error})")
        return throw(error)


def formatted(frame: Frame, value: Any, conversion: int, specification: str) -> Const:
    """What an f-string makes of a value."""
    convert = (lambda x: x, str, repr, ascii)[conversion]
    return texts_of(frame, lambda obj: format(convert(obj), specification), [value], {})


def text_of(frame: Frame, value: Any, name: str, specification: str = "") -> str:
    """``str(value)``, ``repr(value)`` or ``format(value)`` of an object whose class says it in Python, or of an exception."""
    found = in_mro(value.kind, name)
    if name == "__format__" and found is object.__format__:
        if specification:
            throw(TypeError(f"unsupported format string passed to {value.kind.__name__}.__format__"))
        return text_of(frame, value, "__str__")
    if name == "__str__" and found is object.__str__:
        return text_of(frame, value, "__repr__")
    if isinstance(found, type(text_of)):
        text = plain(frame, call_special(frame, value, name, *([Const(specification)] if name == "__format__" else [])))
        return text if isinstance(text, str) else throw(TypeError(f"{name} returned non-string (type {type(text).__name__})"))
    if issubclass(value.kind, BaseException) and value.source is None:
        return _text_of_exception(frame, value, name)
    if getattr(value, "value", None) is not None and hasattr(value.kind, "__members__"):
        member = plain(frame, value)
        return format(member, specification) if name == "__format__" else getattr(value.kind, name)(member)
    held = held_value(frame.ex, value) if isinstance(value, Object) else None
    if held is not None and name == "__format__" and not specification:
        return text_of(frame, value, "__str__")
    if held is not None:
        return format(held.value, specification) if name == "__format__" else getattr(type(held.value), name)(held.value)
    return refuse("UNSUPPORTED_VALUE", f"{name} of a {value.kind.__name__}")


def _text_of_exception(frame: Frame, value: Object, name: str) -> str:
    args = plain(frame, value.fields["args"])
    if name == "__repr__":
        return value.kind.__name__ + (repr(args) if len(args) != 1 else f"({args[0]!r})")
    if issubclass(value.kind, KeyError) and len(args) == 1:
        return repr(args[0])
    return "" if not args else str(args[0]) if len(args) == 1 else str(args)
