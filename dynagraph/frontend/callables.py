"""What calling something means: Python functions are inlined, NumPy's go through the door, builtins stand in tables here."""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.frontend.attributes import is_partial, lacks_attribute, load_attribute
from dynagraph.frontend.executor import NULL, Frame, refuse
from dynagraph.frontend.iteration import dict_keys, items_of, iterate
from dynagraph.frontend.numpy_door import lookup, method, operator_door
from dynagraph.frontend.operations import BINARY, PURE, binary, dict_value, entries_of, plain, unary
from dynagraph.frontend.truth import truth
from dynagraph.frontend.values import Array, Const, Dict, Function, Iter, Method, Object, Partial, Sequence, Slice, Value
from dynagraph.ir.shapes import SymInt

Arguments = list[Any]
Keywords = dict[str, Any]


def call(frame: Frame, function: Any, args: Arguments, kwargs: Keywords) -> Value:
    """``function(*args, **kwargs)``."""
    ex = frame.ex
    function = ex.resolve(function)
    if isinstance(function, Function):
        return _call_function(frame, function, args, kwargs)
    if isinstance(function, Method):
        return _call_method(frame, function, args, kwargs)
    if isinstance(function, Const):
        return _call_constant(frame, function, args, kwargs)
    if isinstance(function, Partial):
        return call(frame, function.function, [*function.args, *args], {**function.kwargs, **kwargs})
    if is_partial(function):
        return _call_partial(frame, function, args, kwargs)
    if isinstance(function, Object):
        bound = load_attribute(frame, function, "__call__")
        return call(frame, bound, args, kwargs)
    return refuse("UNSUPPORTED_VALUE", f"a call of a {type(function).__name__.lower()}")


def _call_function(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> Value:
    door = lookup(function.object) if function.object is not None else None
    if door is not None:
        return frame.ex.call_door(door, args, kwargs)
    if getattr(function.object, "__dynagraph_disabled__", False):
        refuse("DISABLED", function.name)
    module = str(function.globals.get("__name__", ""))
    if module.split(".")[0] in OPAQUE_PACKAGES:
        refuse("UNSUPPORTED_FUNCTION", f"{module}.{function.name}")
    return frame.ex.inline(function, bind(frame, function, args, kwargs), frame.depth + 1)


OPAQUE_PACKAGES = frozenset(
    {
        "numpy",
        "scipy",
        "cupy",
        "functools",
        "contextlib",
        "inspect",
        "typing",
        "copy",
        "random",
        "warnings",
        "logging",
        "os",
        "threading",
        "collections",
        "dataclasses",
        "enum",
        "abc",
    }
)


def bind(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> dict[str, Any]:
    """The parameters of a call by name, as CPython binds them."""
    code = function.code
    n, n_all = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    bound: dict[str, Any] = dict(zip(names[:n], args))
    if len(args) > n and not code.co_flags & 4:
        refuse("WOULD_RAISE", f"{function.name} takes {n} positional arguments, {len(args)} were given")
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        position = names.index(name) if name in names[:n_all] else -1
        if position >= code.co_posonlyargcount and name not in bound:
            bound[name] = value
        elif position < code.co_posonlyargcount and code.co_flags & 8:
            extra[name] = value
        else:
            refuse("WOULD_RAISE", f"{function.name} got the argument {name} twice, or does not know it")
    first_default = n - len(function.defaults)
    for position, name in enumerate(names[:n_all]):
        if name in bound:
            continue
        if first_default <= position < n:
            bound[name] = function.defaults[position - first_default]
        elif position >= n and name in function.kwdefaults:
            bound[name] = function.kwdefaults[name]
        else:
            refuse("WOULD_RAISE", f"{function.name} misses the argument {name}")
    position = n_all
    if code.co_flags & 4:
        bound[names[position]] = Sequence(tuple, list(args[n:]))
        position += 1
    if code.co_flags & 8:
        bound[names[position]] = Dict(extra)
    return bound


def _call_partial(frame: Frame, partial: Object, args: Arguments, kwargs: Keywords) -> Value:
    function, given, named = (load_attribute(frame, partial, name) for name in ("func", "args", "keywords"))
    return call(frame, function, [*items_of(frame, given), *args], {**entries_of(frame, named), **kwargs})  # type: ignore[arg-type]


# -- methods ----------------------------------------------------------------------------------------------------------------


def _call_method(frame: Frame, bound: Method, args: Arguments, kwargs: Keywords) -> Value:
    owner = bound.owner
    if isinstance(bound.function, Function):
        return _call_function(frame, bound.function, [owner, *args], kwargs)
    if isinstance(owner, Array):
        door = method(bound.function)
        assert door is not None
        return frame.ex.call_door(door, [owner, *args], kwargs)
    if isinstance(owner, Const):
        return _call_pure_method(frame, owner.value, bound.function, args, kwargs)
    table = LIST_METHODS if isinstance(owner, Sequence) else DICT_METHODS if isinstance(owner, Dict) else {}
    found = table.get(bound.function)
    if found is _dict_update:
        return _dict_update(frame, owner, *args, **kwargs)
    if found is None or kwargs:
        return refuse("UNSUPPORTED_FUNCTION", f".{bound.function}() of a {type(owner).__name__.lower()}")
    return found(frame, owner, *args)


def _call_pure_method(frame: Frame, owner: Any, name: str, args: Arguments, kwargs: Keywords) -> Value:
    if isinstance(owner, np.ufunc):
        door = lookup(getattr(owner, name))
        if door is not None:
            return frame.ex.call_door(door, args, kwargs)
        return refuse("UNSUPPORTED_FUNCTION", f"np.{owner.__name__}.{name}")
    if not isinstance(owner, (str, bytes, int, float, complex, tuple, range, frozenset)):
        return refuse("UNSUPPORTED_FUNCTION", f".{name}() of {owner!r}")
    return _pure(frame, getattr(owner, name), args, kwargs)


def _pure(frame: Frame, function: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Value:
    """A function without side effects, on Python values."""
    given = [_plain_argument(frame, a) for a in args]
    named = {k: _plain_argument(frame, v) for k, v in kwargs.items()}
    try:
        result = function(*given, **named)
    except Exception as error:
        return refuse("WOULD_RAISE", f"{type(error).__name__}: {error}")
    return _of_plain(frame, result)


def _plain_argument(frame: Frame, value: Any) -> Any:
    obj = plain(frame, value)
    if isinstance(obj, SymInt):
        return int(obj)
    if not isinstance(obj, (*PURE, list, dict)):
        refuse("UNSUPPORTED_VALUE", f"{obj!r} as an argument")
    return obj


def _of_plain(frame: Frame, result: Any) -> Value:
    if type(result) is list:
        return Sequence(list, [_of_plain(frame, r) for r in result])
    if isinstance(result, PURE):
        return frame.ex.constant(result)
    return refuse("UNSUPPORTED_VALUE", f"a result of type {type(result).__name__}")


def _own_list(owner: Sequence) -> list[Any]:
    if owner.source is not None or owner.kind is not list:
        refuse("SIDE_EFFECT", "a list of the caller's is changed" if owner.kind is list else "a tuple has no such method")
    return owner.items


def _own_dict(owner: Dict) -> dict[Any, Any]:
    if owner.source is not None:
        refuse("SIDE_EFFECT", "a dict of the caller's is changed")
    return owner.items


def _nothing(result: Any = None) -> Const:
    return Const(None)


def _list_index(frame: Frame, owner: Sequence, item: Any) -> Value:
    for position, candidate in enumerate(owner.items):
        if frame.ex.resolve(candidate) is item or truth(frame, binary(frame, "==", candidate, item)):
            return Const(position)
    return refuse("WOULD_RAISE", "the item is not in the list")


def _list_count(frame: Frame, owner: Sequence, item: Any) -> Value:
    return Const(sum(truth(frame, binary(frame, "==", candidate, item)) for candidate in owner.items))


def _list_pop(frame: Frame, owner: Sequence, position: Any = None) -> Value:
    try:
        return frame.ex.resolve(_own_list(owner).pop(-1 if position is None else plain(frame, position)))
    except IndexError as error:
        return refuse("WOULD_RAISE", str(error))


LIST_METHODS: dict[str, Callable[..., Value]] = {
    "append": lambda frame, owner, item: _nothing(_own_list(owner).append(item)),
    "extend": lambda frame, owner, more: _nothing(_own_list(owner).extend(items_of(frame, more))),
    "insert": lambda frame, owner, at, item: _nothing(_own_list(owner).insert(plain(frame, at), item)),
    "pop": _list_pop,
    "clear": lambda frame, owner: _nothing(_own_list(owner).clear()),
    "reverse": lambda frame, owner: _nothing(_own_list(owner).reverse()),
    "copy": lambda frame, owner: Sequence(owner.kind, list(owner.items)),
    "index": _list_index,
    "count": _list_count,
}


def _dict_get(frame: Frame, owner: Dict, key: Any, default: Any = None) -> Value:
    name = plain(frame, key)
    if owner.object is None:
        known = name in owner.items
    else:
        known = name in owner.object or name in dict_keys(frame.ex, owner)  # absence is guarded by the keys
    if known:
        return dict_value(frame, owner, name)
    return Const(None) if default is None else frame.ex.resolve(default)


def _dict_pop(frame: Frame, owner: Dict, key: Any, default: Any = NULL) -> Value:
    items, name = _own_dict(owner), plain(frame, key)
    if name not in items and default is NULL:
        return refuse("WOULD_RAISE", f"KeyError: {name!r}")
    return frame.ex.resolve(items.pop(name, default))


def _dict_setdefault(frame: Frame, owner: Dict, key: Any, default: Any = None) -> Value:
    return frame.ex.resolve(_own_dict(owner).setdefault(plain(frame, key), Const(None) if default is None else default))


def _dict_update(frame: Frame, owner: Dict, *more: Any, **named: Any) -> Value:
    items = _own_dict(owner)
    for other in map(frame.ex.resolve, more):
        if not isinstance(other, Dict):
            return refuse("UNSUPPORTED_VALUE", "update() with something that is no dict")
        items.update(entries_of(frame, other))
    items.update(named)
    return Const(None)


DICT_METHODS: dict[str, Callable[..., Value]] = {
    "get": _dict_get,
    "keys": lambda frame, owner: Sequence(list, [frame.ex.constant(k) for k in entries_of(frame, owner)]),
    "values": lambda frame, owner: Sequence(list, list(entries_of(frame, owner).values())),
    "items": lambda frame, owner: Sequence(
        list, [Sequence(tuple, [frame.ex.constant(k), v]) for k, v in entries_of(frame, owner).items()]
    ),
    "pop": _dict_pop,
    "setdefault": _dict_setdefault,
    "update": _dict_update,
    "clear": lambda frame, owner: _nothing(_own_dict(owner).clear()),
    "copy": lambda frame, owner: Dict(dict(entries_of(frame, owner))),
}


# -- builtins -----------------------------------------------------------------------------------------------------------------


def _call_constant(frame: Frame, function: Const, args: Arguments, kwargs: Keywords) -> Value:
    obj = function.value
    door = lookup(obj)
    if door is not None:
        return frame.ex.call_door(door, args, kwargs)
    if isinstance(obj, _dispatch.CompiledFunction) and function.source is not None:
        return call(frame, frame.ex.class_function(obj.__wrapped__, type(obj), obj.__wrapped__.__name__), args, kwargs)
    try:
        special = SPECIAL.get(obj)
        pure = obj in PURE_FUNCTIONS
    except TypeError:
        return refuse("UNSUPPORTED_FUNCTION", repr(obj))
    if special is not None:
        return special(frame, *args, **kwargs)
    if pure:
        return _pure(frame, obj, args, kwargs)
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", repr(obj))
    module = getattr(obj, "__module__", None)
    if obj in EFFECTS:
        return refuse("SIDE_EFFECT", f"{name}()")
    return refuse("UNSUPPORTED_FUNCTION", f"{module}.{name}" if module not in (None, "builtins") else str(name))


EFFECTS = frozenset({print, input, open, exec, eval, setattr, delattr, globals, locals, vars})
PURE_FUNCTIONS = frozenset(
    {
        abs,
        round,
        divmod,
        pow,
        chr,
        ord,
        bin,
        hex,
        oct,
        str,
        repr,
        ascii,
        format,
        complex,
        hash,
        bytes,
        slice,
        *(f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType)),
    }
) - {slice}


def _len(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door("len"), [value])
    if isinstance(value, Sequence):
        return Const(len(value.items))
    if isinstance(value, Dict):
        return Const(len(dict_keys(frame.ex, value)))
    if isinstance(value, Object):
        return call(frame, load_attribute(frame, value, "__len__"), [], {})
    return _pure(frame, len, [value], {})


def _range(frame: Frame, *args: Any) -> Value:
    bounds = [plain(frame, a) for a in args]
    try:
        return Const(range(*(operator.index(b) for b in bounds)))
    except (TypeError, ValueError) as error:
        return refuse("WOULD_RAISE", str(error))


def _zip(frame: Frame, *iterables: Any, strict: Any = None) -> Value:
    columns = [items_of(frame, i) for i in iterables]
    if strict is not None and truth(frame, strict) and len({len(c) for c in columns}) > 1:
        refuse("WOULD_RAISE", "zip() of unequal lengths")
    return Iter(iter([Sequence(tuple, list(row)) for row in zip(*columns)]))


def _enumerate(frame: Frame, iterable: Any, start: Any = None) -> Value:
    first = 0 if start is None else plain(frame, start)
    return Iter(iter([Sequence(tuple, [Const(k), v]) for k, v in enumerate(items_of(frame, iterable), first)]))


def _map(frame: Frame, function: Any, *iterables: Any) -> Value:
    return Iter(iter([call(frame, function, list(row), {}) for row in zip(*(items_of(frame, i) for i in iterables))]))


def _filter(frame: Frame, function: Any, iterable: Any) -> Value:
    function = frame.ex.resolve(function)
    keep_true = isinstance(function, Const) and function.value is None
    kept = [v for v in items_of(frame, iterable) if truth(frame, v if keep_true else call(frame, function, [v], {}))]
    return Iter(iter(kept))


def _sum(frame: Frame, iterable: Any, start: Any = None) -> Value:
    total = Const(0) if start is None else frame.ex.resolve(start)
    for item in items_of(frame, iterable):
        total = binary(frame, "+", total, item)
    return total


def _extreme(symbol: str) -> Callable[..., Value]:
    def choose(frame: Frame, *args: Any, key: Any = None, default: Any = NULL) -> Value:
        items = items_of(frame, args[0]) if len(args) == 1 else [frame.ex.resolve(a) for a in args]
        if not items:
            return refuse("WOULD_RAISE", "an extreme of nothing") if default is NULL else frame.ex.resolve(default)
        keys = items if key is None else [call(frame, key, [item], {}) for item in items]
        best = 0
        for k in range(1, len(items)):
            if truth(frame, binary(frame, symbol, keys[k], keys[best])):
                best = k
        return items[best]

    return choose


def _isinstance(frame: Frame, value: Any, kinds: Any) -> Value:
    return Const(issubclass(type_of(frame, value), _classes(frame, kinds)))


def _classes(frame: Frame, kinds: Any) -> tuple[type, ...]:
    kinds = frame.ex.resolve(kinds)
    classes = [plain(frame, k) for k in items_of(frame, kinds)] if isinstance(kinds, Sequence) else [plain(frame, kinds)]
    flat = [c for kind in classes for c in (kind if isinstance(kind, tuple) else (kind,))]
    for c in flat:
        if type(c) is not type:  # ABCs and metaclasses decide by code of their own
            refuse("UNSUPPORTED_VALUE", f"isinstance of {c!r}")
    return tuple(flat)


def type_of(frame: Frame, value: Any) -> type:
    """``type(value)``, guarded."""
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return value.node.dtype.numpy.type if value.is_scalar else np.ndarray
    if isinstance(value, Const):
        return int if isinstance(value.value, SymInt) else type(value.value)
    if isinstance(value, Sequence):
        return value.kind
    if isinstance(value, Dict):
        return dict
    if isinstance(value, Function):
        return types.FunctionType
    if isinstance(value, Object):
        kind = type(value.value)
        frame.ex.guards.add("type", value.source, kind, says=f" is a {kind.__name__}")
        return kind
    return refuse("UNSUPPORTED_VALUE", f"the type of a {type(value).__name__.lower()}")


def _type(frame: Frame, value: Any) -> Value:
    return Const(type_of(frame, value))


def _callable(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, (Function, Method)):
        return Const(True)
    if isinstance(value, Const):
        return Const(callable(value.value))
    return Const("__call__" in dir(type_of(frame, value)))


def _getattr(frame: Frame, value: Any, name: Any, default: Any = NULL) -> Value:
    attribute = plain(frame, name)
    if default is not NULL and lacks_attribute(frame, value, attribute):
        return frame.ex.resolve(default)
    return load_attribute(frame, value, attribute)


def _hasattr(frame: Frame, value: Any, name: Any) -> Value:
    attribute = plain(frame, name)
    if lacks_attribute(frame, value, attribute):
        return Const(False)
    load_attribute(frame, value, attribute)  # guards that it is there
    return Const(True)


def _to_sequence(kind: type) -> Callable[..., Value]:
    def make(frame: Frame, iterable: Any = None) -> Value:
        if iterable is None:
            return Sequence(kind, [])
        iterable = frame.ex.resolve(iterable)
        if kind is tuple and isinstance(iterable, Sequence) and iterable.kind is tuple:
            return iterable
        return Sequence(kind, items_of(frame, iterable))

    return make


def _dict(frame: Frame, *args: Any, **kwargs: Any) -> Value:
    entries: dict[Any, Any] = {}
    for arg in args:
        arg = frame.ex.resolve(arg)
        if isinstance(arg, Dict):
            entries.update(entries_of(frame, arg))
        else:
            for pair in items_of(frame, arg):
                key, value = items_of(frame, pair)
                entries[plain(frame, key)] = value
    return Dict({**entries, **kwargs})


def _number(kind: type) -> Callable[..., Value]:
    def convert(frame: Frame, *args: Any, **kwargs: Any) -> Value:
        given = [frame.ex.resolve(a) for a in args]
        if given and isinstance(given[0], Array):
            return refuse("DATA_DEPENDENT", f"{kind.__name__}() of an array")
        if kind is int and len(given) == 1 and isinstance(given[0], Const) and isinstance(given[0].value, SymInt):
            return given[0]
        return _pure(frame, kind, given, kwargs)

    return convert


def _bool(frame: Frame, value: Any = None) -> Value:
    return Const(False if value is None else truth(frame, value))


def _all(frame: Frame, iterable: Any) -> Value:
    return Const(all(truth(frame, v) for v in items_of(frame, iterable)))


def _any(frame: Frame, iterable: Any) -> Value:
    return Const(any(truth(frame, v) for v in items_of(frame, iterable)))


def _sorted(frame: Frame, iterable: Any, *, key: Any = None, reverse: Any = None) -> Value:
    items = items_of(frame, iterable)
    keys = [plain(frame, item if key is None else call(frame, key, [item], {})) for item in items]
    try:
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse is not None and truth(frame, reverse))
    except TypeError as error:
        return refuse("WOULD_RAISE", str(error))
    return Sequence(list, [items[k] for k in order])


def _next(frame: Frame, iterator: Any, default: Any = NULL) -> Value:
    iterator = frame.ex.resolve(iterator)
    if not isinstance(iterator, Iter):
        return refuse("UNSUPPORTED_VALUE", f"next() of a {type(iterator).__name__.lower()}")
    item = next(iterator.items, default)
    return refuse("WOULD_RAISE", "StopIteration") if item is NULL else frame.ex.resolve(item)


def _reduce(frame: Frame, function: Any, iterable: Any, initial: Any = NULL) -> Value:
    items = items_of(frame, iterable)
    if initial is not NULL:
        items = [frame.ex.resolve(initial), *items]
    if not items:
        return refuse("WOULD_RAISE", "reduce() of nothing")
    total = items[0]
    for item in items[1:]:
        total = call(frame, function, [total, item], {})
    return total


def _absolute(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return frame.ex.call_door(operator_door("abs"), [value])
    return _pure(frame, abs, [value], {})


def _power(frame: Frame, base: Any, exponent: Any) -> Value:
    return binary(frame, "**", base, exponent)


def _round(frame: Frame, value: Any, digits: Any = None) -> Value:
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return refuse("UNSUPPORTED_FUNCTION", "round() of an array; use np.round")
    return _pure(frame, round, [value] if digits is None else [value, digits], {})


def _slice(frame: Frame, *args: Any) -> Value:
    parts = [None, *args] if len(args) == 1 else list(args)
    padded = [Const(None) if p is None else p for p in [*parts, None, None][:3]]
    return Slice((padded[0], padded[1], padded[2]))


def _operator(symbol: str) -> Callable[..., Value]:
    return lambda frame, left, right: binary(frame, symbol, left, right)


SPECIAL: dict[Any, Callable[..., Value]] = {
    len: _len,
    range: _range,
    zip: _zip,
    enumerate: _enumerate,
    map: _map,
    filter: _filter,
    sum: _sum,
    min: _extreme("<"),
    max: _extreme(">"),
    isinstance: _isinstance,
    type: _type,
    callable: _callable,
    getattr: _getattr,
    hasattr: _hasattr,
    tuple: _to_sequence(tuple),
    list: _to_sequence(list),
    dict: _dict,
    int: _number(int),
    float: _number(float),
    bool: _bool,
    all: _all,
    any: _any,
    sorted: _sorted,
    next: _next,
    abs: _absolute,
    pow: _power,
    round: _round,
    slice: _slice,
    reversed: lambda frame, value: Iter(iter(items_of(frame, value)[::-1])),
    iter: lambda frame, value: iterate(frame, value),
    functools.reduce: _reduce,
    functools.partial: lambda frame, function, *args, **kwargs: Partial(function, args, kwargs),
    operator.neg: lambda frame, value: unary(frame, "neg", value),
    **{f: _operator(symbol) for symbol, f in BINARY.items()},
}
