"""What calling builtins and classes means: NumPy's functions go through the door, Python's stand in tables here."""

from __future__ import annotations

import abc
import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.attributes import attribute_or, delete_attribute, load_attribute, store_attribute
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.calls import Arguments, Keywords, call, call_numpy, caller, has_meaning, load_package
from dynagraph.frontend.exceptions import refuse, throw
from dynagraph.frontend.executor import Frame
from dynagraph.frontend.iterators import Backwards, Enumerate, Filter, Flat, Map, Reversed, Until, Zip, items_of, iterate, listed
from dynagraph.frontend.methods import next_of, pairs_of, pure_call, set_of, sorted_items
from dynagraph.frontend.numpy_door import operator_door
from dynagraph.frontend.numpy_source import is_numpys_class
from dynagraph.frontend.objects import (
    MISSING,
    call_special,
    generic,
    generic_delete,
    generic_store,
    in_mro,
    init_exception,
    instantiate,
    is_enum_class,
    members,
    new_object,
    special,
)
from dynagraph.frontend.operations import (
    BINARY,
    binary,
    contains,
    delete,
    formatted,
    key_of,
    known_index,
    plain,
    store,
    subscript,
    text_of,
    unary,
)
from dynagraph.frontend.program import VERSION
from dynagraph.frontend.source import Known
from dynagraph.frontend.truth import length, same, truth, type_of
from dynagraph.frontend.values import (
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
from dynagraph.frontend.wrapping import behind, class_function, held_value, load_cell
from dynagraph.ir.shapes import SymInt, numel

SPECIAL: dict[Any, Callable[..., Value]] = {}
CONTAINERS = (list, tuple, dict, set, frozenset)


def meaning(*functions: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register what calling these objects means: ``(frame, *args, **kwargs) -> value``."""

    def register(implementation: Callable[..., Value]) -> Callable[..., Value]:
        for function in functions:
            SPECIAL[function] = implementation
        return implementation

    return register


@caller(Const)
def call_constant(frame: Frame, function: Const, args: Arguments, kwargs: Keywords) -> Value:
    obj = function.value
    if isinstance(obj, _dispatch.CompiledFunction):
        inner = obj.__wrapped__
        return call(frame, class_function(frame.ex, inner, type(obj), inner.__name__), args, kwargs)
    try:
        found = SPECIAL.get(obj) or _of_package(obj)
        is_pure = obj in PURE_FUNCTIONS
    except TypeError:
        return refuse("UNSUPPORTED_FUNCTION", repr(obj))
    if found is not None:
        return _checked(frame, found, obj, args, kwargs)
    if has_meaning(obj):
        return call_numpy(frame, obj, args, kwargs)
    if is_pure:
        return pure_call(frame, obj, args, kwargs)
    if isinstance(obj, type):
        return _call_class(frame, function, args, kwargs)
    if isinstance(obj, (types.WrapperDescriptorType, types.MethodDescriptorType)) and args:
        return _call_slot(frame, obj, args, kwargs)
    return _unknown(obj)


def _of_package(obj: Any) -> Any:
    """The meaning of an object of a package whose meanings are registered when it is first met."""
    owner = getattr(obj, "__objclass__", None) or type(getattr(obj, "__self__", None))  # of methods in C
    return SPECIAL.get(obj) if load_package(str(getattr(obj, "__module__", None) or owner.__module__)) else None


def _checked(frame: Frame, found: Callable[..., Value], obj: Any, args: Arguments, kwargs: Keywords) -> Value:
    try:
        return found(frame, *args, **kwargs)
    except TypeError as error:  # of the table's function: what the user gave does not fit it
        if "argument" in str(error):
            raise Break("UNSUPPORTED_ARGUMENT", None, f"{getattr(obj, '__name__', obj)}(): {error}") from None
        raise


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
            frame.ex.guards.token(abc.get_cache_token)
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
        refuse("WOULD_RAISE", "super() of something that is no class")
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
        if value is not NULL and " " not in name:  # a slot of the stack behind a break
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
    try:
        return Const(range(*(operator.index(b) for b in bounds)))
    except (TypeError, ValueError) as error:
        return throw(error)


def _number(kind: type) -> Callable[..., Value]:
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
        if kind is int and len(given) == 1 and isinstance(given[0], Const) and isinstance(given[0].value, SymInt):
            return given[0]
        return pure_call(frame, kind, given, kwargs)

    return convert


SPECIAL |= {int: _number(int), float: _number(float)}


@meaning(operator.index)
def _operator_index(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return Const(known_index(frame, value, "an index"))
    if isinstance(value, Const) and type(value.value) is SymInt:
        return value
    return pure_call(frame, operator.index, [value], {})


@meaning(bool)
def _bool(frame: Frame, value: Any = Const(False)) -> Value:
    return Const(truth(frame, value))


@meaning(abs)
def _absolute(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door("abs"), [value])
    return unary(frame, "abs", value) if isinstance(value, Object) else pure_call(frame, abs, [value], {})


@meaning(pow)
def _power(frame: Frame, base: Any, exponent: Any, mod: Any = None) -> Value:
    return binary(frame, "**", base, exponent) if mod is None else pure_call(frame, pow, [base, exponent, mod], {})


@meaning(divmod)
def _divmod(frame: Frame, left: Any, right: Any) -> Value:
    left, right = frame.ex.resolve(left), frame.ex.resolve(right)
    if isinstance(left, (Array, Object)) or isinstance(right, (Array, Object)):
        return binary(frame, "divmod", left, right)
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
    return born(frame, Reversed(items_of(frame, value)[::-1]))


@meaning(next)
def _next(frame: Frame, iterator: Any, default: Any = NULL) -> Value:
    return next_of(frame, iterator, default)


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


def _extreme(name: str, symbol: str) -> Callable[..., Value]:
    def choose(frame: Frame, *args: Any, key: Any = Const(None), default: Any = NULL) -> Value:
        items = items_of(frame, args[0]) if len(args) == 1 else [frame.ex.resolve(a) for a in args]
        if not items and default is not NULL:
            return frame.ex.resolve(default)
        if not items:
            return throw(ValueError(f"{name}() {'iterable argument is empty' if EMPTY_EXTREME else 'arg is an empty sequence'}"))
        no_key = isinstance(key, Const) and key.value is None
        keys = items if no_key else [call(frame, key, [item], {}) for item in items]
        best = 0
        for k in range(1, len(items)):
            if truth(frame, binary(frame, symbol, keys[k], keys[best])):
                best = k
        return items[best]

    return choose


def _probe_extreme() -> bool:
    try:
        max([])
    except ValueError as error:
        return "iterable argument" in str(error)
    return False


EMPTY_EXTREME = _probe_extreme()  # the text differs between versions
SPECIAL |= {min: _extreme("min", "<"), max: _extreme("max", ">")}


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
    frame.ex.guards.add("is", source, obj, says=" is the same object")
    return Const(id(obj))


# -- operator, functools ----------------------------------------------------------------------------------------------------------


def _operator(symbol: str) -> Callable[..., Value]:
    return lambda frame, left, right: binary(frame, symbol, left, right)


def _set_item(frame: Frame, owner: Any, key: Any, value: Any) -> Value:
    store(frame, owner, key, value)
    return Const(None)


def _delete_item(frame: Frame, owner: Any, key: Any) -> Value:
    delete(frame, owner, key)
    return Const(None)


SPECIAL |= {f: _operator(symbol) for symbol, f in BINARY.items()}
SPECIAL |= {
    operator.neg: lambda frame, value: unary(frame, "neg", value),
    operator.not_: lambda frame, value: Const(not truth(frame, value)),
    operator.getitem: lambda frame, owner, key: subscript(frame, owner, key),
    operator.setitem: _set_item,
    operator.delitem: _delete_item,
    operator.contains: lambda frame, owner, item: Const(contains(frame, owner, item)),
    operator.is_: lambda frame, left, right: Const(same(frame, left, right)),
    operator.is_not: lambda frame, left, right: Const(not same(frame, left, right)),
}


@meaning(functools.reduce)
def _reduce(frame: Frame, function: Any, iterable: Any, initial: Any = NULL) -> Value:
    iterator = iterate(frame, iterable)
    total = frame.ex.resolve(initial) if initial is not NULL else iterator.step(frame)
    if total is NULL:
        throw(TypeError("reduce() of empty iterable with no initial value"))
    while (item := iterator.step(frame)) is not NULL:
        total = call(frame, function, [total, item], {})
    return total



__all__ = ["SPECIAL", "born", "make_super", "meaning"]
