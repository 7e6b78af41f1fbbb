"""Pickling of compiled functions: by reference if their name leads to them, else as the plain function and the options.

Picklers decide themselves how a plain function travels: pickle by name only, cloudpickle (joblib, dask) by value where a name would
not do in another process: functions of ``__main__``, lambdas, nested ones.  Compiled functions go the same ways.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
import weakref
from collections import OrderedDict
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.api import compile_as
from dynagraph.driver.decorated import Options

MOST_REBUILT = 64
SIMPLE = (bool, int, float, complex, str, bytes, type(None))


def reduced(compiled: Any) -> Any:
    """What ``compiled.__reduce__()`` gives."""
    decorated = getattr(compiled, "decorated", None)
    if decorated is None:  # one without options: not of `compile`
        return compiled.__qualname__
    options = decorated.options
    if not _is_found(compiled):
        return rebuild, (compiled.__wrapped__, options)
    if compiled.__module__ != "__main__" and not _goes_by_value(compiled.__module__):
        return compiled.__qualname__
    return rebuild, (compiled._carrier, options)


_carriers: "weakref.WeakKeyDictionary[Any, types.FunctionType]" = weakref.WeakKeyDictionary()
_carried: "weakref.WeakKeyDictionary[types.FunctionType, weakref.ref[Any]]" = weakref.WeakKeyDictionary()
SUFFIX = "._carrier"


def carrier_of(compiled: Any) -> types.FunctionType:
    """A function like the plain one, under a name that leads to it: pickle takes the name, and cloudpickle the function."""
    plain = compiled.__wrapped__
    carrier = _carriers.get(compiled)
    if carrier is None:
        carrier = types.FunctionType(plain.__code__, plain.__globals__, plain.__name__, None, plain.__closure__)
        _carriers[compiled] = carrier
        _carried[carrier] = weakref.ref(compiled)
    for name in ("__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__module__"):
        setattr(carrier, name, getattr(plain, name))
    carrier.__dict__.update(plain.__dict__)
    carrier.__qualname__ = compiled.__qualname__ + SUFFIX
    return carrier


def _is_found(compiled: Any) -> bool:
    try:
        return named(compiled.__module__, compiled.__qualname__) is compiled
    except (KeyError, AttributeError):
        return False


def named(module: str, qualname: str) -> Any:
    """What stands in a module that is imported, under a name with dots."""
    found: Any = sys.modules[module]
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _goes_by_value(module: str) -> bool:
    """Whether cloudpickle was told to pickle a module, or a package that it is in, by value."""
    cloudpickle = sys.modules.get("cloudpickle")
    registered = set() if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()
    parts = module.split(".")
    return any(".".join(parts[: k + 1]) in registered for k in range(len(parts)))


# -- unpickling ---------------------------------------------------------------------------------------------------------------

_rebuilt: OrderedDict[tuple[Any, ...], Any] = OrderedDict()  # the last ones


def rebuild(function: Any, options: Options) -> Any:
    """The compiled function: the one that a name led to, or `function` compiled.

    A worker is sent the same function with each task: what is the same in all that it can see is compiled once.
    """
    known = _carried.get(function)
    compiled = None if known is None else known()
    if compiled is not None:
        return compiled
    function.__qualname__ = function.__qualname__.removesuffix(SUFFIX)
    key = _sees(function)
    if key is None:
        return compile_as(function, options)
    key = (key, options.key)
    found = _rebuilt.pop(key, None)
    if found is not None and (_sees(found.__wrapped__), options.key) != key:
        found = None  # what it sees was changed since
    _rebuilt[key] = found = compile_as(function, options) if found is None else found
    if len(_rebuilt) > MOST_REBUILT:
        _rebuilt.popitem(last=False)
    return found


def _sees(function: types.FunctionType, within: tuple[types.FunctionType, ...] = ()) -> tuple[Any, ...] | None:
    """All that a function depends on, as a key; None where another function may see another thing by an equal key.

    Functions that it calls are seen whole, unless a name leads to them. within: the functions that led here.
    """
    code = function.__code__
    codes = _with_nested(code)
    steps = [step for each in codes for step in dis.get_instructions(each)]
    names = {i.argval for i in steps if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    if function.__dict__ or any(_writes(i, code.co_freevars) for i in steps):
        return None
    if not all(name in function.__globals__ or hasattr(builtins, name) for name in names):
        return None  # it calls itself, and is not whole yet
    try:
        values = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # one is not filled yet
        return None
    values += [function.__globals__.get(name, getattr(builtins, name, None)) for name in sorted(names)]
    values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    parts = [_as_key(value, (*within, function)) for value in values]
    known = (function.__module__, function.__qualname__, code, tuple(function.__kwdefaults__ or ()), *parts)
    return None if None in parts else known


def _with_nested(code: types.CodeType) -> list[types.CodeType]:
    """The code, and that of the functions and comprehensions that are written in it."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [code, *(each for c in nested for each in _with_nested(c))]


def _writes(step: dis.Instruction, shared: tuple[str, ...]) -> bool:
    """Whether an instruction may change what later calls see."""
    if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
        return step.argval in shared
    return "IMPORT" in step.opname or step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")


def _as_key(value: Any, within: tuple[types.FunctionType, ...]) -> Any:
    if type(value) in SIMPLE:
        return type(value), repr(value)
    if type(value) is tuple:
        items = tuple(_as_key(item, within) for item in value)
        return None if None in items else (tuple, items)
    if isinstance(value, types.ModuleType) or _is_named(value):
        return type(value), id(value)
    decorated = getattr(value, "decorated", None)
    if isinstance(value, _dispatch.CompiledFunction) and decorated is not None:
        seen = _as_key(value.__wrapped__, within)
        return None if seen is None else (type(value), seen, decorated.options.key)
    if type(value) is not types.FunctionType:
        return None
    if value in within:
        return types.FunctionType, within.index(value)
    return _sees(value, within)


def _is_named(value: Any) -> bool:
    """Whether it is what its module has under its name: the same object for all that is unpickled here."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return False
    try:
        return named(module, name) is value
    except AttributeError:
        return False


_dispatch.set_reducer(reduced, carrier_of)
