"""What calling builtins and classes means; NumPy's functions go through their doors."""

from __future__ import annotations

import abc
import math
import operator
import types
from typing import Any

import numpy as np

from dynagraph.doors.numpy import operator_door
from dynagraph.frontend.bytecode.decode import VERSION
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import behind, class_function, load_cell
from dynagraph.frontend.guards.guards import Is, Returns
from dynagraph.frontend.kinds.classes import is_enum_class, members
from dynagraph.frontend.kinds.constants import pure_call
from dynagraph.frontend.kinds.generators import next_of
from dynagraph.frontend.kinds.iterators import (
    Backwards,
    Enumerate,
    Filter,
    Flat,
    Map,
    Reversed,
    RowsBackwards,
    SymbolicNumbers,
    Until,
    Zip,
    length_of,
    listed,
)
from dynagraph.frontend.kinds.lookup import MISSING, call_special, in_mro, special
from dynagraph.frontend.kinds.methods import pairs_of, sorted_items
from dynagraph.frontend.kinds.numbers import as_float, makes_changing_float
from dynagraph.frontend.kinds.sequences import known_index
from dynagraph.frontend.kinds.set_methods import set_of
from dynagraph.frontend.kinds.slots import (
    attribute_or,
    binary,
    delete_attribute,
    items_of,
    iterate,
    key_of,
    length,
    load_attribute,
    plain,
    store_attribute,
    truth,
    type_of,
    unary,
)
from dynagraph.frontend.kinds.texts import formatted
from dynagraph.frontend.kinds.values import (
    NULL,
    Array,
    Const,
    Dict,
    DictView,
    Function,
    Getter,
    Identity,
    Masked,
    Method,
    Number,
    Object,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
    Value,
)
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir.shapes import SymInt, numel

# -- attributes, types ------------------------------------------------------------------------------------------------------------


@meaning(getattr)
def _getattr(frame: Frame, value: Any, name: Any, default: Any = NULL) -> Value:
    attribute = plain(frame, name)
    if default is NULL:
        return load_attribute(frame, value, attribute)
    return frame.ex.resolve(attribute_or(frame, value, attribute, default))


@meaning(hasattr)
def _hasattr(frame: Frame, value: Any, name: Any) -> Value:
    return Const(attribute_or(frame, value, plain(frame, name), NULL) is not NULL)


@meaning(setattr)
def _setattr(frame: Frame, value: Any, name: Any, new: Any) -> Value:
    store_attribute(frame, value, plain(frame, name), frame.ex.resolve(new))
    return Const(None)


@meaning(delattr)
def _delattr(frame: Frame, value: Any, name: Any) -> Value:
    delete_attribute(frame, value, plain(frame, name))
    return Const(None)


def _classes(frame: Frame, kinds: Any) -> tuple[type, ...]:
    kinds = frame.ex.resolve(kinds)
    if isinstance(kinds, Sequence):
        return tuple(c for item in items_of(frame, kinds) for c in _classes(frame, item))
    found = plain(frame, kinds)
    if isinstance(found, types.UnionType):
        return tuple(c for arg in found.__args__ for c in _classes(frame, Const(arg)))
    if isinstance(found, tuple):
        return tuple(c for item in found for c in _classes(frame, Const(item)))
    if not isinstance(found, type):
        throw(TypeError("isinstance() arg 2 must be a type, a tuple of types, or a union"))
    return (found,)


WITH_PURE_HOOKS = ("collections.abc", "typing", "numbers", "contextlib", "os")  # modules of ABCs


def is_subclass(frame: Frame, kind: type, classes: tuple[type, ...]) -> bool:
    """``issubclass``: ABCs are asked now, and guarded by the count of registrations."""
    for cls in classes:
        if type(cls) is not type and type(cls).__instancecheck__ is not type.__instancecheck__:
            hook = in_mro(cls, "__subclasshook__")
            own_hook = isinstance(hook, classmethod) and cls.__module__ not in WITH_PURE_HOOKS
            if not isinstance(cls, abc.ABCMeta) or own_hook or type(cls).__instancecheck__ is not abc.ABCMeta.__instancecheck__:
                refuse("UNSUPPORTED_VALUE", f"isinstance of {cls!r}")
            frame.ex.guards.require(Returns(abc.get_cache_token, abc.get_cache_token(), called="get_cache_token"))
    return any(issubclass(kind, cls) if isinstance(cls, abc.ABCMeta) else cls in kind.__mro__ for cls in classes)


@meaning(isinstance)
def _isinstance(frame: Frame, value: Any, kinds: Any) -> Value:
    value = frame.ex.resolve(value)
    kind, classes = type_of(frame, value), _classes(frame, kinds)
    if isinstance(value, Object) and isinstance(in_mro(kind, "__class__"), property):
        refuse("UNSUPPORTED_VALUE", f"{kind.__name__} says itself what it is")
    return Const(any(_is_instance(frame, value, kind, cls) for cls in classes))


def _is_instance(frame: Frame, value: Any, kind: type, cls: type) -> bool:
    hook = in_mro(type(cls), "__instancecheck__")
    if kind is cls or not isinstance(hook, types.FunctionType) or hook is abc.ABCMeta.__instancecheck__:
        return is_subclass(frame, kind, (cls,))
    frame.ex.guards.unmodified(cls)
    frame.ex.guards.unmodified(type(cls))
    return truth(frame, call(frame, class_function(frame.ex, hook, type(cls), "__instancecheck__"), [Const(cls), value], {}))


@meaning(issubclass)
def _issubclass(frame: Frame, kind: Any, kinds: Any) -> Value:
    given = plain(frame, kind)
    if not isinstance(given, type):
        throw(TypeError("issubclass() arg 1 must be a class"))
    frame.ex.guards.unmodified(given)
    classes = _classes(frame, kinds)
    if any(type(cls).__subclasscheck__ not in (type.__subclasscheck__, abc.ABCMeta.__subclasscheck__) for cls in classes):
        refuse("UNSUPPORTED_VALUE", "a metaclass that says what a subclass is")
    return Const(is_subclass(frame, given, classes))


@meaning(type)
def _type(frame: Frame, value: Any, *more: Any) -> Value:
    return Const(type_of(frame, value)) if not more else refuse("METACLASS", "type() with three arguments")


@meaning(callable)
def _callable(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, (Function, Method, Partial, Getter)):
        return Const(True)
    if isinstance(value, Const):
        return Const(callable(value.value))
    return Const(in_mro(type_of(frame, value), "__call__") is not MISSING)


@meaning(super)
def _super(frame: Frame, cls: Any = None, owner: Any = None) -> Value:
    if cls is None:
        cls = load_cell(frame.ex, frame.cells["__class__"], "__class__")
        first = frame.code.co_varnames[0]
        owner = frame.locals.get(first) if first in frame.locals else frame.cells[first].value
    return make_super(frame, cls, owner)


def make_super(frame: Frame, cls: Any, owner: Any) -> Super:
    owner = frame.ex.resolve(owner)
    of_class = isinstance(owner, Const) and isinstance(owner.value, type)
    if not of_class and not isinstance(owner, (Object, Sequence, Dict)):
        refuse("UNSUPPORTED_VALUE", "super() of this kind of object")
    kind = plain(frame, cls)
    if not isinstance(kind, type):
        refuse("WOULD_RAISE", "super() of something that is not a class")
    if kind not in (owner.value if of_class else owner.kind).__mro__:  # type: ignore[union-attr]
        refuse("WOULD_RAISE", f"super() of {kind.__name__} for an object that may be no instance of it")
    return Super(kind, owner)


@meaning(locals)
def _locals(frame: Frame) -> Value:
    code, found = frame.code, {}
    for name in dict.fromkeys(code.co_varnames + code.co_cellvars + code.co_freevars):
        value = frame.cells[name].value if name in frame.cells else frame.locals.get(name, NULL)
        if name in code.co_freevars and value is NULL:
            value = load_cell(frame.ex, frame.cells[name], name)
        if value is not NULL and " " not in name:  # a slot of the stack after a break
            found[name] = frame.ex.resolve(value)
    if frame.namespace is None or VERSION >= (3, 13):
        frame.namespace = Dict(found)
    for name in code.co_varnames + code.co_cellvars + code.co_freevars:
        if name not in found:
            frame.namespace.items.pop(name, None)
    frame.namespace.items.update(found)
    return frame.namespace


@meaning(eval, exec)
def _frame_access(frame: Frame, *args: Any, **kwargs: Any) -> Value:
    return refuse("FRAME_ACCESS", "")


@meaning(vars)
def _vars(frame: Frame, *args: Any) -> Value:
    return load_attribute(frame, args[0], "__dict__") if args else _locals(frame)


@meaning(dir)
def _names_of(frame: Frame, *args: Any) -> Value:
    return refuse("UNSUPPORTED_FUNCTION" if args else "FRAME_ACCESS", "dir()")


# -- sizes and numbers --------------------------------------------------------------------------------------------------------


@meaning(len)
def _len(frame: Frame, value: Any) -> Value:
    value = behind(frame.ex, frame.ex.resolve(value))
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door("len"), [value])
    if isinstance(value, Masked):
        refuse("DATA_DEPENDENT", "len() of what a mask chooses")
    if isinstance(value, Flat):
        return frame.ex.from_door(numel(value.array.node.shape), "value")
    if isinstance(value, (Object, Sequence, Dict)):
        found = in_mro(value.kind, "__len__")
        if isinstance(found, types.FunctionType):
            return call_special(frame, value, "__len__")
    if isinstance(value, (Sequence, Dict, Set)):
        return Const(length(frame.ex, value))
    if isinstance(value, DictView):
        return Const(length(frame.ex, value.owner))
    if is_enum_class(value):
        return Const(len(members(frame, value.value)))
    if isinstance(value, Object) and found is MISSING:
        throw(TypeError(f"object of type {value.kind.__name__!r} has no len()"))
    return pure_call(frame, len, [value], {})


@meaning(range)
def _range(frame: Frame, *args: Any) -> Value:
    bounds = []
    for arg in args:
        arg = frame.ex.resolve(arg)
        bounds.append(known_index(frame, arg, "the bound of a range") if isinstance(arg, Array) else plain(frame, arg))
    over_at_once = frame.instructions[frame.ip].op == "GET_ITER"
    if over_at_once and any(isinstance(b, SymInt) for b in bounds) and all(isinstance(b, (int, SymInt)) for b in bounds):
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if type(step) is int and step != 0:
            return SymbolicNumbers(start, stop, step)
    try:
        return Const(range(*(operator.index(b) for b in bounds)))
    except (TypeError, ValueError) as error:
        return throw(error)


def _number(kind: type) -> None:
    @meaning(kind)
    def convert(frame: Frame, *args: Any, **kwargs: Any) -> Value:
        given = [frame.ex.resolve(a) for a in args]
        if given and isinstance(given[0], Array):
            known = frame.ex.known(given[0]) if len(given) == 1 and not given[0].node.ndim else None
            if known is None:
                return refuse("DATA_DEPENDENT", f"{kind.__name__}() of an array")
            return pure_call(frame, kind, [Const(known.item())], kwargs)
        if given and isinstance(given[0], Object):
            for name in (f"__{kind.__name__}__", "__index__"):
                if special(frame, given[0], name) is not None:
                    return call_special(frame, given[0], name)
        number = as_float(frame.ex, given[0]) if kind is float and len(given) == 1 and not kwargs else None
        if number is not None:
            return number
        if len(given) == 1 and isinstance(given[0], Const) and isinstance(given[0].value, np.generic):  # of np.finfo
            given = [Const(given[0].value.item())]
        return pure_call(frame, kind, given, kwargs)


_number(int)
_number(float)


@meaning(bool)
def _bool(frame: Frame, value: Any = Const(False)) -> Value:
    return Const(truth(frame, value))


@meaning(abs, operator.abs)
def _absolute(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door("abs"), [value])
    if isinstance(value, Const) and isinstance(value.value, SymInt):
        return value if value.value >= 0 else unary(frame, "neg", value)
    return unary(frame, "abs", value) if isinstance(value, (Object, Number)) else pure_call(frame, abs, [value], {})


@meaning(pow)
def _power(frame: Frame, base: Any, exponent: Any, mod: Any = None) -> Value:
    return binary(frame, "**", base, exponent) if mod is None else pure_call(frame, pow, [base, exponent, mod], {})


@meaning(divmod)
def _divmod(frame: Frame, left: Any, right: Any) -> Value:
    left, right = frame.ex.resolve(left), frame.ex.resolve(right)
    if isinstance(left, (Array, Object)) or isinstance(right, (Array, Object)):
        return binary(frame, "divmod", left, right)
    if isinstance(left, Number) or isinstance(right, Number) or makes_changing_float(frame.ex, "//", left, right):
        return Sequence(tuple, [binary(frame, symbol, left, right) for symbol in ("//", "%")])
    return pure_call(frame, divmod, [left, right], {})


@meaning(round)
def _round(frame: Frame, value: Any, digits: Any = None) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return refuse("UNSUPPORTED_FUNCTION", "round() of an array; use np.round")
    return pure_call(frame, round, [value] if digits is None else [value, digits], {})


@meaning(slice)
def _slice(frame: Frame, *args: Any) -> Value:
    parts = [None, *args] if len(args) == 1 else list(args)
    padded = [Const(None) if p is None else p for p in [*parts, None, None][:3]]
    return Slice((padded[0], padded[1], padded[2]))


# -- iterables ----------------------------------------------------------------------------------------------------------------


@meaning(zip)
def _zip(frame: Frame, *iterables: Any, strict: Any = Const(False)) -> Value:
    return born(frame, Zip([iterate(frame, i) for i in iterables], truth(frame, strict)))


def born(frame: Frame, iterator: Any) -> Any:
    iterator.born = frame.ex.steps
    return iterator


@meaning(enumerate)
def _enumerate(frame: Frame, iterable: Any, start: Any = Const(0)) -> Value:
    return born(frame, Enumerate(iterate(frame, iterable), plain(frame, start)))


@meaning(map)
def _map(frame: Frame, function: Any, *iterables: Any) -> Value:
    return born(frame, Map(call, frame.ex.resolve(function), [iterate(frame, i) for i in iterables]))


@meaning(filter)
def _filter(frame: Frame, function: Any, iterable: Any) -> Value:
    return born(frame, Filter(call, frame.ex.resolve(function), iterate(frame, iterable)))


@meaning(iter)
def _iter(frame: Frame, value: Any, *sentinel: Any) -> Value:
    return born(frame, Until(call, frame.ex.resolve(value), *sentinel)) if sentinel else iterate(frame, value)


OF_REVERSED = ("__reversed__", "__iter__", "__getitem__", "__len__")


def _says_how_reversed(kind: type) -> bool:
    return any(isinstance(in_mro(kind, name), types.FunctionType) for name in OF_REVERSED)


@meaning(reversed)
def _reversed(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Object) and special(frame, value, "__reversed__") is not None:
        return iterate(frame, call_special(frame, value, "__reversed__"))
    if isinstance(value, (Object, Set)) or _says_how_reversed(type_of(frame, value)):
        refuse("UNSUPPORTED_VALUE", "reversed() of an object")
    if isinstance(value, Sequence) and value.kind in (list, tuple):
        length(frame.ex, value)
        return born(frame, Backwards(value))
    if isinstance(value, Array) and value.is_scalar:
        throw(TypeError(f"'numpy.{type_of(frame, value).__name__}' object is not reversible"))
    if isinstance(value, Array):
        if value.node.ndim == 0:
            throw(TypeError("len() of unsized object"))
        return born(frame, RowsBackwards(frame, value, length_of(frame, value)))
    return born(frame, Reversed(items_of(frame, value)[::-1]))


@meaning(next)
def _next(frame: Frame, iterator: Any, default: Any = NULL) -> Value:
    return next_of(frame, iterator, default)


@meaning(math.prod)
def _product(frame: Frame, iterable: Any, *, start: Any = Const(1)) -> Value:
    """The product of sizes that may change is one."""
    total, items = frame.ex.resolve(start), list(map(frame.ex.resolve, items_of(frame, iterable)))
    kinds = {type(i.value) if isinstance(i, Const) else type(i) for i in [total, *items]}
    if SymInt not in kinds or not kinds <= {int, SymInt}:
        return pure_call(frame, math.prod, [Sequence(list, items)], {"start": total})
    for item in items:
        total = binary(frame, "*", total, item)
    return total


@meaning(sum)
def _sum(frame: Frame, iterable: Any, start: Any = Const(0)) -> Value:
    total, items = frame.ex.resolve(start), items_of(frame, iterable)
    if all(isinstance(i, Const) and type(i.value) in (bool, int, float) for i in [total, *items]):
        return pure_call(frame, sum, [Sequence(list, items), total], {})  # floats are not just added, on 3.12 and later
    if VERSION >= (3, 12) and any(isinstance(i, Number) for i in [total, *items]):
        refuse("UNSUPPORTED_VALUE", "sum() of floats that change, which compensates for what is rounded off")
    for item in items:
        total = binary(frame, "+", total, item)
    return total


def _extreme(function: Any, symbol: str) -> None:
    @meaning(function)
    def choose(frame: Frame, *args: Any, key: Any = Const(None), default: Any = NULL) -> Value:
        items = items_of(frame, args[0]) if len(args) == 1 else [frame.ex.resolve(a) for a in args]
        if not items and default is not NULL:
            return frame.ex.resolve(default)
        if not items:
            said = "iterable argument is empty" if EMPTY_EXTREME else "arg is an empty sequence"
            return throw(ValueError(f"{function.__name__}() {said}"))
        no_key = isinstance(key, Const) and key.value is None
        keys = items if no_key else [call(frame, key, [item], {}) for item in items]
        best = 0
        for k in range(1, len(items)):
            if truth(frame, binary(frame, symbol, keys[k], keys[best])):
                best = k
        return items[best]


def _probe_extreme() -> bool:
    try:
        max([])
    except ValueError as error:
        return "iterable argument" in str(error)
    return False


EMPTY_EXTREME = _probe_extreme()  # the text differs between versions
_extreme(min, "<")
_extreme(max, ">")


@meaning(all)
def _all(frame: Frame, iterable: Any) -> Value:
    iterator = iterate(frame, iterable)
    while (item := iterator.step(frame)) is not NULL:
        if not truth(frame, item):
            return Const(False)
    return Const(True)


@meaning(any)
def _any(frame: Frame, iterable: Any) -> Value:
    iterator = iterate(frame, iterable)
    while (item := iterator.step(frame)) is not NULL:
        if truth(frame, item):
            return Const(True)
    return Const(False)


@meaning(sorted)
def _sorted(frame: Frame, iterable: Any, *, key: Any = None, reverse: Any = None) -> Value:
    return Sequence(list, sorted_items(frame, list(listed(frame, iterable)), key, reverse))


# -- containers ---------------------------------------------------------------------------------------------------------------


@meaning(tuple)
def _tuple(frame: Frame, iterable: Any = None) -> Value:
    iterable = frame.ex.resolve(iterable)
    if isinstance(iterable, Sequence) and iterable.kind is tuple:
        return iterable
    return Sequence(tuple, [] if iterable is None else list(listed(frame, iterable)))


@meaning(list)
def _list(frame: Frame, iterable: Any = None) -> Value:
    return Sequence(list, [] if iterable is None else list(listed(frame, iterable)))


@meaning(dict)
def _dict(frame: Frame, *args: Any, **kwargs: Any) -> Value:
    if len(args) > 1:
        throw(TypeError(f"dict expected at most 1 argument, got {len(args)}"))
    entries = {key_of(frame, k): v for arg in args for k, v in pairs_of(frame, arg)}
    return Dict({**entries, **kwargs})


@meaning(set)
def _set(frame: Frame, iterable: Any = None) -> Value:
    return set_of(frame, set, iterable)


@meaning(frozenset)
def _frozenset(frame: Frame, iterable: Any = None) -> Value:
    iterable = frame.ex.resolve(iterable)
    if isinstance(iterable, Set) and iterable.kind is frozenset:
        return iterable
    return set_of(frame, frozenset, iterable)


@meaning(dict.fromkeys)
def _fromkeys(frame: Frame, keys: Any, value: Any = Const(None)) -> Value:
    return Dict({key_of(frame, k): frame.ex.resolve(value) for k in items_of(frame, keys)})


# -- texts --------------------------------------------------------------------------------------------------------------------


@meaning(str)
def _str(frame: Frame, value: Any = Const(""), *more: Any) -> Value:
    return pure_call(frame, str, [value, *more], {}) if more else formatted(frame, value, 1, "")


@meaning(repr)
def _repr(frame: Frame, value: Any) -> Value:
    return formatted(frame, value, 2, "")


@meaning(format)
def _format(frame: Frame, value: Any, specification: Any = Const("")) -> Value:
    return formatted(frame, value, 0, plain(frame, specification))


@meaning(hash)
def _hash(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Object) and isinstance(in_mro(value.kind, "__hash__"), types.FunctionType):
        return call_special(frame, value, "__hash__")
    frame.ex.of_process = "a hash"
    return pure_call(frame, hash, [value], {})


def _is_held(frame: Frame, value: Any) -> bool:
    """Whether a variable keeps the object alive, so that no other has its id."""
    return any(v is value for f in frame.ex.running for v in (*f.locals.values(), *(c.value for c in f.cells.values())))


@meaning(id)
def _id(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    source = getattr(value, "source", None)
    if source is None and isinstance(value, (Object, Sequence, Dict, Array)) and _is_held(frame, value):
        return Identity(value, frame.ex.steps)
    if source is None or source not in frame.ex.objects:
        return refuse("UNSUPPORTED_FUNCTION", "id() of an object made here")
    obj = frame.ex.objects[source]
    frame.ex.guards.require(Is(source, obj))
    frame.ex.of_process = "an identity"
    return Const(id(obj))


__all__ = ["born", "make_super"]
