"""Slots of constants: known numbers and texts, modules, functions written in C."""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.doors.numpy import lookup
from dynagraph.errors import ShapeError
from dynagraph.frontend.executor.calls import Arguments, Keywords, call, call_meaning, call_numpy, is_of_numpy
from dynagraph.frontend.executor.exceptions import is_exception, refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.numpy_source import is_followed_library, is_numpys_class
from dynagraph.frontend.executor.wrapping import class_function, held_value, load_entry
from dynagraph.frontend.guards.guards import NoGlobal
from dynagraph.frontend.guards.profile import LARGEST
from dynagraph.frontend.guards.sources import Known
from dynagraph.frontend.kinds import array_writes
from dynagraph.frontend.kinds.classes import (
    init_exception,
    instantiate,
    is_enum_class,
    load_from_class,
    member_of,
    members,
    new_object,
    store_in_class,
)
from dynagraph.frontend.kinds.iterators import Items, Numbers
from dynagraph.frontend.kinds.lookup import MISSING, generic_delete, generic_store, in_mro
from dynagraph.frontend.kinds.lookup import generic_load as generic
from dynagraph.frontend.kinds.numbers import arithmetic, as_integer, beside_float, makes_changing_float, of_floats
from dynagraph.frontend.kinds.slots import PURE, Slots, binary, items_of, known_number, plain, slots, type_of, unary
from dynagraph.frontend.kinds.texts import text_of, texts_of
from dynagraph.frontend.kinds.values import DELETED, Array, Const, Dict, HostArray, Iterator, Method, Object, Sequence, Set, Value
from dynagraph.frontend.library.registry import instances, meaning
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import SymInt, expr_of
from dynagraph.python_operators import BINARY, COMPARISONS, UNARY

PURE_TYPES = (bool, int, float, complex, str, bytes, type(None), tuple, range, SymInt, frozenset, type(Ellipsis))
WITH_TRUTH = (*PURE_TYPES, type, types.ModuleType, np.dtype)
SAID_OF_SIZES = COMPARISONS.keys() | {"+", "-", "*", "//", "%"}
MAX_DIGITS = 10000  # of results of ** and <<: a capture must not hang
DESCRIBED = (types.MethodDescriptorType, types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType)
MOST_FACTORS = 5  # of powers of sizes
BOUNDS = (1 << 30, 1 << 24, 1 << 19, 1 << 14, 1 << 11)  # of sizes, so that products of two to five of them fit
ITERABLE_CONSTANTS = (str, bytes, range, frozenset, tuple)


@slots(Const)
class ConstantSlots(Slots):
    def type_of(self, frame: Frame, value: Const) -> type:
        return int if isinstance(value.value, SymInt) else type(value.value)

    def truth(self, frame: Frame, value: Const) -> bool:
        if isinstance(value.value, WITH_TRUTH) or callable(value.value):
            return bool(value.value)
        return refuse("UNSUPPORTED_VALUE", f"the truth of {value.value!r}")

    def to_python(self, frame: Frame, value: Const) -> Any:
        return value.value

    def rank(self, value: Const, symbol: str, reflected: bool) -> int:
        return 9 if symbol == "%" and type(value.value) is str and not reflected else 0

    def binary(self, frame: Frame, symbol: str, left: Const, right: Any) -> Any:
        if symbol == "%" and type(left.value) is str:
            return texts_of(frame, left.value.__mod__, [right], {})
        if not isinstance(right, Const):
            return NotImplemented
        if symbol in ("==", "!=") and any(v.value is Ellipsis for v in (left, right)):
            return Const((left.value is right.value) is (symbol == "=="))
        if makes_changing_float(frame.ex, symbol, left, right):
            return arithmetic(frame.ex, symbol, left, right)
        return frame.ex.constant(pure(symbol, left.value, right.value))

    def unary(self, frame: Frame, name: str, value: Const) -> Value:
        if isinstance(value.value, SymInt) and name != "neg":
            return value if name == "pos" else binary(frame, "-", unary(frame, "neg", value), Const(1))
        if not isinstance(value.value, PURE):
            return super().unary(frame, name, value)
        try:
            return Const(UNARY[name].function(value.value))
        except TypeError as error:
            return throw(error)

    def contains(self, frame: Frame, value: Const, item: Any) -> bool:
        try:
            return plain(frame, item) in value.value
        except TypeError as error:
            return throw(error)

    def item(self, frame: Frame, value: Const, key: Any) -> Value:
        held = value.value
        if isinstance(held, (str, bytes, range, tuple)):
            index = frame.ex.to_door(key)
            try:
                return frame.ex.constant(held[index])
            except (IndexError, TypeError) as error:
                throw(error)
        if is_enum_class(value):
            return member_of(frame, held, plain(frame, key))
        if isinstance(held, type):
            refuse("UNSUPPORTED_FUNCTION", f"{held.__name__}[...]")
        if not hasattr(type(held), "__getitem__"):
            throw(TypeError(f"{type(held).__name__!r} object is not subscriptable"))
        return super().item(frame, value, key)

    def set_item(self, frame: Frame, value: Const, key: Any, item: Any) -> None:
        if value.value.__class__ in (str, int, bytes, range, type(None)):
            throw(TypeError(f"{type(value.value).__name__!r} object does not support item assignment"))
        super().set_item(frame, value, key, item)

    def iterate(self, frame: Frame, value: Const) -> Iterator:
        return Numbers(value.value) if type(value.value) is range else Items(self.items(frame, value))

    def items(self, frame: Frame, value: Const) -> list[Value]:
        if is_enum_class(value):
            return list(members(frame, value.value).values())
        if isinstance(value.value, ITERABLE_CONSTANTS):
            return [frame.ex.constant(v) for v in value.value]
        if hasattr(type(value.value), "__iter__"):
            refuse("UNSUPPORTED_VALUE", f"iteration over {value.value!r}")
        return throw(TypeError(f"{type(value.value).__name__!r} object is not iterable"))

    def attribute(self, frame: Frame, value: Const, name: str) -> Value:
        return _attribute_of_constant(frame, value, name)

    def set_attribute(self, frame: Frame, value: Const, name: str, new: Any) -> None:
        if isinstance(value.value, type):
            store_in_class(frame, value.value, name, new)
        elif type(value.value) is types.ModuleType and not hasattr(types.ModuleType, name):
            store_in_module(frame, value.value, name, new)
        else:
            super().set_attribute(frame, value, name, new)


def pure(symbol: str, left: Any, right: Any) -> Any:
    """The operator on Python values that have no side effects."""
    comparable = symbol in ("==", "!=") and (callable(left) or callable(right) or _is_dtype(left) or _is_dtype(right))
    union = symbol == "|" and _may_unite(left) and _may_unite(right)
    if not comparable and not union and not (isinstance(left, PURE) and isinstance(right, PURE)):
        refuse("UNSUPPORTED_VALUE", f"{left!r} {symbol} {right!r}")
    if symbol == "**" and isinstance(left, SymInt) and type(right) is int and 0 < right <= MOST_FACTORS:
        return functools.reduce(functools.partial(pure, "*"), [left] * right)
    left, right = beside_float(symbol, left, right)
    if symbol not in SAID_OF_SIZES or not all(isinstance(v, (int, SymInt)) for v in (left, right)):
        left, right = known_number(left), known_number(right)
    if symbol in ("**", "<<", "*") and type(left) is int and type(right) is int and right > 0:
        digits = left.bit_length() * right if symbol == "**" else left.bit_length() + right
        if symbol != "*" and digits > 4 * MAX_DIGITS:
            refuse("UNSUPPORTED_VALUE", "a number of more than 10000 digits")
    try:
        result = BINARY[symbol].function(left, right)
        if not isinstance(result, SymInt) or expr_of(result).magnitude(LARGEST) < 1 << 63:
            return result
        if result.env.large is not None:
            result.env.large[result.expr] = None
            return result
        if _kept_within_64_bits(result):
            return result
        return BINARY[symbol].function(known_number(left), known_number(right))  # might not fit the 64 bits of a size
    except ShapeError:  # sizes cannot say it
        return pure(symbol, known_number(left), known_number(right))
    except Exception as error:
        return throw(error)


def _kept_within_64_bits(number: SymInt) -> bool:
    """Let guards say that the sizes that a number is made of are so small that it fits.  False: those at hand are not."""
    symbols = sorted(number.expr.symbols(), key=lambda s: s.name)
    bound = next((b for b in BOUNDS if number.expr.magnitude(b) < 1 << 63), 0)
    if any(number.env.values[s.name] > bound for s in symbols):
        return False
    return all(number.env.decide("<=", IntExpr({(s,): 1}), IntExpr.of(bound)) for s in symbols)


def _may_unite(value: Any) -> bool:
    """Whether ``|`` makes a union of types of it, as Python has it."""
    return value is None or isinstance(value, types.UnionType) or (isinstance(value, type) and type(value).__or__ is type.__or__)


def _is_dtype(value: Any) -> bool:
    return type(value).__module__.startswith("numpy")


def _attribute_of_constant(frame: Frame, value: Const, name: str) -> Value:
    obj = value.value
    if isinstance(obj, types.ModuleType):
        return load_from_module(frame, obj, name)
    if isinstance(obj, type):
        return load_from_class(frame, value, name)
    kind = int if isinstance(obj, SymInt) else type(obj)
    found = getattr(kind, name, MISSING)
    if found is MISSING:
        own = getattr(obj, name, MISSING)
        if own is MISSING:
            throw(AttributeError(f"{kind.__name__!r} object has no attribute {name!r}"))
        return Const(own) if isinstance(obj, (np.finfo, np.iinfo)) else refuse("ATTRIBUTE", f".{name} of {obj!r}")
    if isinstance(found, DESCRIBED):
        return Method(name, value)
    if isinstance(obj, SymInt):
        return value if name in ("real", "numerator") else Const(getattr(1 if name == "denominator" else 0, name))
    result = getattr(obj, name)  # numbers, dtypes, ufuncs, builtin functions: immutable, and their attributes are pure
    return frame.ex.constant(result) if type(result) in (tuple, str, int, float, bool, type(None)) else Const(result)


# -- modules ------------------------------------------------------------------------------------------------------------------


def load_from_module(frame: Frame, module: types.ModuleType, name: str) -> Value:
    entries = vars(module)
    stored = frame.ex.stored.get((id(entries), name))
    if stored is not None and stored is not DELETED:
        return frame.ex.resolve(stored)
    if name in entries and stored is None:
        by_numpy = frame.is_of_library and is_followed_library(entries)
        return load_entry(frame.ex, entries, name, _name_of_module(module), by_numpy)
    if "__getattr__" in entries:
        refuse("ATTRIBUTE", f"module {_name_of_module(module)} computes .{name} when asked")
    if hasattr(types.ModuleType, name):
        refuse("ATTRIBUTE", f".{name} of module {_name_of_module(module)}")
    frame.ex.guards.require(NoGlobal(entries, name))
    if type(entries.get("__name__")) is not str:
        refuse("WOULD_RAISE", f"a module without a name has no attribute {name}")
    return throw(AttributeError(f"module {module.__name__!r} has no attribute {name!r}"))


def _name_of_module(module: types.ModuleType) -> str:
    return str(vars(module).get("__name__"))


def store_in_module(frame: Frame, module: types.ModuleType, name: str, new: Value) -> None:
    entries = vars(module)
    frame.ex.stored[id(entries), name] = new
    frame.ex.effect(dict.__setitem__, Const(entries), Const(name), new)


# -- calls ----------------------------------------------------------------------------------------------------------------------

NOTHING = Const(None)


@meaning(instances(Const))
def call_constant(frame: Frame, function: Const, args: Arguments, kwargs: Keywords) -> Value:
    obj = function.value
    if isinstance(obj, _dispatch.CompiledFunction):
        inner = obj.__wrapped__
        return call(frame, class_function(frame.ex, inner, type(obj), inner.__name__), args, kwargs)
    try:
        hash(obj)
    except TypeError:
        return refuse("UNSUPPORTED_FUNCTION", repr(obj))
    found = call_meaning(frame, obj, args, kwargs)
    if found is not None:
        return found
    if is_of_numpy(obj):
        return call_numpy(frame, obj, args, kwargs)
    if obj in PURE_FUNCTIONS:
        return pure_call(frame, obj, args, kwargs)
    if isinstance(obj, type):
        return _call_class(frame, function, args, kwargs)
    if isinstance(obj, (types.WrapperDescriptorType, types.MethodDescriptorType)) and args:
        return _call_slot(frame, obj, args, kwargs)
    return _unknown(obj)


def _unknown(obj: Any) -> Value:
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", repr(obj))
    module = getattr(obj, "__module__", None)
    if not callable(obj):
        throw(TypeError(f"{type(obj).__name__!r} object is not callable"))
    if obj in EFFECTS:
        return refuse("SIDE_EFFECT", f"{name}()")
    return refuse("UNSUPPORTED_FUNCTION", f"{module}.{name}" if module not in (None, "builtins") else str(name))


def _call_class(frame: Frame, function: Const, args: Arguments, kwargs: Keywords) -> Value:
    cls = function.value
    if hasattr(cls, "__members__") and len(args) == 1 and not kwargs and _is_pythons(in_mro(cls, "_missing_")):
        member = plain(frame, args[0])
        try:
            return frame.ex.wrap(cls(member), Known(cls(member), f"{cls.__name__}({member!r})"))
        except (TypeError, ValueError) as error:
            throw(error)
    user = cls.__module__ not in ("builtins", "collections", "itertools", "functools", "types", "weakref", "threading")
    if not user and not issubclass(cls, BaseException):
        return _unknown(cls)
    if is_numpys_class(cls):
        return instantiate(frame, function, args, kwargs)
    if str(cls.__module__).split(".")[0] in ("numpy", "random", "threading", "logging", "decimal", "datetime", "pathlib", "re"):
        return _unknown(cls)
    return instantiate(frame, function, args, kwargs)


def _is_pythons(method: Any) -> bool:
    """Whether a method of an enum is the one that module enum has."""
    return getattr(getattr(method, "__func__", method), "__module__", None) == "enum"


def _call_slot(frame: Frame, obj: Any, args: Arguments, kwargs: Keywords) -> Value:
    """A method of a C type, called with its owner: ``object.__setattr__(self, name, value)``, ``list.append(x, 1)``."""
    owner, rest = frame.ex.resolve(args[0]), args[1:]
    name = obj.__name__
    if isinstance(owner, Object):
        found = OF_OBJECT.get(name)
        of_any_object = obj.__objclass__ is object or issubclass(obj.__objclass__, BaseException)
        if of_any_object and found is not None:
            return found(frame, owner, *rest)
        if obj.__objclass__ in (int, str, float) and hasattr(owner.kind, "__members__"):
            return pure_call(frame, obj, args, kwargs)
        held = held_value(frame.ex, owner)
        if held is not None and obj.__objclass__ in (type(held.value), object):
            return call(frame, Method(name, held), rest, kwargs)
        return refuse("UNSUPPORTED_FUNCTION", f"{obj.__objclass__.__name__}.{name} of a {owner.kind.__name__}")
    if isinstance(owner, (Sequence, Dict, Set, Array, Const)):
        kind = type_of(frame, owner)
        in_c = (vars(k).get(name) for k in kind.__mro__)
        if next((m for m in in_c if isinstance(m, type(obj))), None) is obj:
            return call(frame, Method(name, owner), rest, kwargs)
        return refuse("UNSUPPORTED_FUNCTION", f"{obj.__objclass__.__name__}.{name} of a {kind.__name__}")
    return refuse("UNSUPPORTED_FUNCTION", f"{obj.__objclass__.__name__}.{name}")


def _set_attribute(frame: Frame, owner: Object, name: Any, value: Value) -> Value:
    generic_store(frame, owner, plain(frame, name), value)
    return Const(None)


def _delete_attribute(frame: Frame, owner: Object, name: Any) -> Value:
    generic_delete(frame, owner, plain(frame, name))
    return Const(None)


def _init_object(frame: Frame, owner: Object, *args: Any) -> Value:
    if issubclass(owner.kind, BaseException):
        if owner.source is not None:
            refuse("SIDE_EFFECT", "__init__() of an exception that was made outside")
        init_exception(owner, list(args))
    return Const(None)


OF_OBJECT: dict[str, Callable[..., Value]] = {
    "__setattr__": _set_attribute,
    "__delattr__": _delete_attribute,
    "__getattribute__": lambda frame, owner, name: generic(frame, owner, plain(frame, name)),
    "__init__": _init_object,
    "__eq__": lambda frame, owner, other: Const(True) if owner is frame.ex.resolve(other) else Const(NotImplemented),
    "__ne__": lambda frame, owner, other: Const(False) if owner is frame.ex.resolve(other) else Const(NotImplemented),
    "__str__": lambda frame, owner: Const(text_of(frame, owner, "__str__")),
    "__repr__": lambda frame, owner: Const(text_of(frame, owner, "__repr__")),
}


@meaning(object.__new__, tuple.__new__, list.__new__, dict.__new__, BaseException.__new__, Exception.__new__)
def _new(frame: Frame, cls: Any, *args: Any) -> Value:
    kind = plain(frame, cls)
    frame.ex.guards.unmodified(kind)
    if issubclass(kind, tuple) and args:
        args = (Sequence(list, items_of(frame, args[0])),)
    base = object.__new__ if issubclass(kind, object) and not issubclass(kind, (tuple, list, dict, BaseException)) else None
    return new_object(frame, base or in_c(kind), kind, list(args))


def in_c(kind: type) -> Any:
    """The ``__new__`` of the first base that is written in C."""
    return next(vars(k)["__new__"] for k in kind.__mro__ if isinstance(vars(k).get("__new__"), types.BuiltinFunctionType))


EFFECTS = frozenset({input, open, globals})
PURE_FUNCTIONS = frozenset(
    {divmod, chr, ord, str.maketrans, bin, hex, oct, ascii, complex, hash, bytes, operator.truth}
    | {f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType)}
)


def method_of_constant(frame: Frame, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if isinstance(owner, np.ufunc):
        door = lookup(getattr(owner, name))
        if door is not None:
            return frame.ex.call_door(door, args, kwargs)
        if name == "at" and len(args) == 3 and not kwargs:
            array_writes.combine_at(frame.ex, owner, frame.ex.resolve(args[0]), args[1], args[2])
            return NOTHING
        return refuse("UNSUPPORTED_FUNCTION", f"np.{owner.__name__}.{name}")
    if not isinstance(owner, (str, bytes, int, float, complex, tuple, range, frozenset, SymInt, type(None), type)):
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of {owner!r}")
    if name in ("format", "format_map") and type(owner) is str:
        return texts_of(frame, getattr(owner, name), args, kwargs)
    if name == "join" and args:
        args = [Sequence(list, items_of(frame, args[0]))]
    if isinstance(owner, SymInt):
        owner = int(owner)
    return pure_call(frame, getattr(owner, name), args, kwargs)


def pure_call(frame: Frame, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Value:
    """A function without side effects, on Python values."""
    number: Value | None = None if kwargs else of_floats(frame.ex, function, args)
    if number is None and not kwargs and len(args) == 1:
        number = as_integer(frame.ex, function, frame.ex.resolve(args[0]))
    if number is not None:
        return number
    given = [_plain_argument(frame, a) for a in args]
    named = {k: _plain_argument(frame, v) for k, v in kwargs.items()}
    try:
        result = function(*given, **named)
    except Exception as error:
        return throw(error)
    return of_plain(frame, result)


def _plain_argument(frame: Frame, value: Any) -> Any:
    value = frame.ex.resolve(value)
    if isinstance(value, Object) and value.source is None and not is_exception(value):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as an argument")
    if isinstance(value, Iterator):
        return [_plain_argument(frame, v) for v in items_of(frame, value)]
    obj = plain(frame, value)
    if isinstance(obj, SymInt):
        return int(obj)
    if not isinstance(obj, (*PURE, list, dict, set, slice)) and not isinstance(value, (Object, HostArray)):
        refuse("UNSUPPORTED_VALUE", f"{obj!r} as an argument")
    return obj


def of_plain(frame: Frame, result: Any) -> Value:
    if isinstance(result, (*PURE, list, set, dict)) or result is NotImplemented:
        return frame.ex.constant(result)
    return refuse("UNSUPPORTED_VALUE", f"a result of type {type(result).__name__}")
