"""Calling values: by the meaning that the registry has for what is called (library/registry.py); any other Python function is
bound as CPython binds it, and inlined.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np

from dynagraph.doors import cupy as cupy_door
from dynagraph.doors.numpy import Door, Unsupported, lookup, of_python_values
from dynagraph.doors.numpy.table import DISPATCHER
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised, refuse, said, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.host_arrays import call_on_host, constant_of, holds_host_array
from dynagraph.frontend.executor.numpy_source import NO_VALUE, is_followed_library, is_own, source_of_function
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.guards.guards import Is
from dynagraph.frontend.guards.sources import Trusted
from dynagraph.frontend.kinds.values import (
    Array,
    Const,
    Dict,
    Function,
    HostArray,
    Masked,
    Method,
    Number,
    Object,
    Opaque,
    Partial,
    Sequence,
    Value,
)
from dynagraph.frontend.library.registry import instances, meaning, meaning_of
from dynagraph.ir.external_calls import function_of
from dynagraph.ir.shapes import SymInt
from dynagraph.markers import AT_CAPTURE, FOLLOWED, OPEN_MODULES

Arguments = list[Any]
Keywords = dict[str, Any]
TAKES_MORE = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
UNKNOWN = Opaque("an argument that depends on inputs")
DECLINED = ("UNSUPPORTED_ARGUMENT", "UNSUPPORTED_FUNCTION", "DATA_DEPENDENT")  # reasons of doors that others may do without

# Their functions are called, not followed: they lean on C, on locks, on frames, or there is nothing to gain.
OPAQUE_PACKAGES = frozenset(
    {
        "numpy", "scipy", "cupy", "cupyx", "inspect", "random", "warnings", "logging", "os", "threading", "re", "unittest",
        "traceback", "asyncio", "concurrent", "multiprocessing", "subprocess", "importlib", "pathlib", "tempfile", "socket", "json",
        "pickle", "linecache", "dis", "ast", "tokenize", "gc", "weakref", "datetime", "decimal", "queue", "selectors", "signal",
        "io", "dynagraph", "hypothesis", "pytest", "_pytest", "torch", "jax", "numba", "matplotlib", "sklearn", "pandas",
    }
)  # fmt: skip


def call(frame: Frame, function: Any, args: Arguments, kwargs: Keywords) -> Value:
    """``function(*args, **kwargs)``."""
    function = frame.ex.resolve(function)
    if type(function) is Method and type(function.function) is Function and function.function.is_followed:
        return follow(frame, function.function, [function.owner, *args], kwargs)
    if type(function) is Function and function.is_followed:
        return follow(frame, function, args, kwargs)
    own = cupy_door.names()
    if own is not None:
        in_cupy = _call_of_cupy(frame, own, function, args, kwargs)
        if in_cupy is not None:
            return in_cupy
    of_kind = meaning_of(instances(type(function)))
    if of_kind is None:
        return refuse("UNSUPPORTED_VALUE", f"a call of a {type(function).__name__.lower()}")
    return of_kind(frame, function, args, kwargs)


def call_meaning(frame: Frame, called: Any, args: Arguments, kwargs: Keywords) -> Value | None:
    """A call of an object by the meaning that is registered for it; None where none is."""
    found = meaning_of(called)
    if found is None:
        return None
    try:
        return found(frame, *args, **kwargs)
    except TypeError as error:  # of the meaning's function: what the user gave does not fit it
        if "argument" in str(error):
            raise Break("UNSUPPORTED_ARGUMENT", None, f"{getattr(called, '__name__', called)}(): {error}") from None
        raise


# -- CuPy ---------------------------------------------------------------------------------------------------------------------


def _call_of_cupy(frame: Frame, own: cupy_door.Names, function: Any, args: Arguments, kwargs: Keywords) -> Value | None:
    """A call of a function of CuPy's, or of NumPy's with arrays of CuPy's among the arguments; None for any other."""
    ex = frame.ex
    called = function.value if isinstance(function, Const) else getattr(function, "object", None)
    name = None if called is None else own.name_of(called)
    if name == "get_array_module":
        if any(isinstance(ex.resolve(v), Object) for v in args):
            refuse("UNSUPPORTED_ARGUMENT", "cupy.get_array_module of an object that may be of CuPy's")
        ours = [type(v) is Array and not v.is_scalar and ex.library is own.library for v in map(ex.resolve, args)]
        return Const(own.library.module if any(ours) else np)
    if name is not None:
        return _call_in_cupy(frame, own, name, args, kwargs)
    if isinstance(function, Method):
        called = function.owner.value if isinstance(function.owner, Const) else None
        called = called if isinstance(called, np.ufunc) else None
    if called is None or not cupy_door.is_numpys_callable(called):
        return None
    given = _resolved(ex, args, kwargs)
    is_on_device = ex.library is own.library and any(map(_holds_device_array, given))
    has_hosts = ex.library is own.library or ex.hosting
    if frame.is_package and has_hosts and (not is_on_device or any(map(holds_host_array, given))):
        bound = getattr(called, str(function.function)) if isinstance(function, Method) else called
        found = call_on_host(frame, bound, args, kwargs)
        if found is not None:
            return found
    if not is_on_device:
        return None
    if frame.is_package and not isinstance(function, Method):
        return None  # code of ours, and of NumPy's that it calls, means the same by it on either library
    name = None if isinstance(function, Method) else cupy_door.name_in_numpy(called)
    if name is None:
        refuse("UNSUPPORTED_FUNCTION", f"np.{getattr(called, '__name__', called)} of an array of CuPy's")
    return _call_in_cupy(frame, own, name, args, kwargs)


def _call_in_cupy(frame: Frame, own: cupy_door.Names, name: str, args: Arguments, kwargs: Keywords) -> Value:
    """``cupy.name(*args, **kwargs)``."""
    ex = frame.ex
    if own.library.refusal:
        refuse("UNSUPPORTED_INPUT", own.library.refusal)
    given = _resolved(ex, args, kwargs)
    if any(map(holds_host_array, given)) and name not in cupy_door.FROM_NUMBERS:
        refuse("MIXED_LIBRARIES", f"cupy.{name} of an array of NumPy's")
    if not any(map(_holds_device_array, given)) and name not in cupy_door.CREATES:
        refuse("UNSUPPORTED_ARGUMENT", f"cupy.{name} of no array")
    ex.claim(own.library)
    if name in cupy_door.FROM_NUMBERS and args and isinstance(held := ex.resolve(args[0]), HostArray):
        args = [constant_of(ex, held), *args[1:]]
    if name in cupy_door.UFUNCS:
        args, kwargs = cupy_door.ufunc_arguments(name, args, kwargs)
    else:
        args, kwargs = cupy_door.arguments(f"cupy.{name}", cupy_door.FUNCTIONS[name], args, kwargs)
        fill = ex.resolve(kwargs.get("fill_value", args[1] if name in ("full", "full_like") and len(args) > 1 else Const(0)))
        if not (isinstance(fill, (Const, Number, HostArray)) or (frame.is_package and getattr(fill, "is_scalar", False))):
            refuse("UNSUPPORTED_ARGUMENT", f"cupy.{name}: filled with more than one number")
    door = lookup(function_of(np, name))
    assert door is not None
    before, ex.creating = ex.creating, True
    try:
        result = ex.call_door(door, args, kwargs)
    finally:
        ex.creating = before
    if isinstance(result, Sequence) and result.kind is not tuple and issubclass(result.kind, tuple):
        return Sequence(tuple, result.items)  # CuPy names no items
    return result


def _resolved(ex: Executor, args: Arguments, kwargs: Keywords) -> list[Any]:
    return [ex.resolve(v) for v in (*args, *kwargs.values())]


def _holds_device_array(value: Any) -> bool:
    """Whether an argument is an array, no NumPy scalar, or holds one, in a capture of CuPy's arrays."""
    if isinstance(value, Array):
        return not value.is_scalar
    if isinstance(value, Masked):
        return True
    if isinstance(value, Sequence):
        return any(_holds_device_array(item.force() if type(item) is Lazy else item) for item in value.items)
    return False


@meaning(instances(Function))
def call_function(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> Value:
    by_object = call_meaning(frame, function.object, args, kwargs)
    if by_object is not None:
        return by_object
    if is_of_numpy(function.object):
        return call_numpy(frame, function.object, args, kwargs)
    by_code = meaning_of(function.code)
    if by_code is not None:
        return by_code(frame, function, args, kwargs)
    if getattr(function.object, "__dynagraph_disabled__", False):
        refuse("DISABLED", function.name)
    if function.object in AT_CAPTURE:
        given = [known_at_capture(frame, value) for value in args]
        named = {name: known_at_capture(frame, value) for name, value in kwargs.items()}
        if not any(value is UNKNOWN for value in (*given, *named.values())):
            try:
                found = function.object(*given, **named)
            except Exception:  # captured code may handle it: what is followed raises it there
                return follow(frame, function, args, kwargs)
            return frame.ex.wrap(found, Trusted(found, function.name))
    if is_followed_library(function.globals):
        function.is_followed = function.object not in AT_CAPTURE and is_own(function.globals)
        return follow(frame, function, args, kwargs)
    module = str(function.globals.get("__name__", ""))
    if module.split(".")[0] in OPAQUE_PACKAGES and module not in OPEN_MODULES and function.object not in FOLLOWED:
        refuse("UNSUPPORTED_FUNCTION", f"{module}.{function.name}")
    return frame.ex.inline(function, bind(function, args, kwargs), frame.depth + 1)


def known_at_capture(frame: Frame, value: Any) -> Any:
    """What an argument is that stays as it is, or is guarded to; UNKNOWN for any other."""
    value = frame.ex.resolve(value)
    if isinstance(value, Sequence) and value.kind is tuple:
        items = tuple(known_at_capture(frame, item) for item in value.items)
        return UNKNOWN if any(i is UNKNOWN for i in items) else items
    if isinstance(value, Object) and value.source is not None:
        if value.source.is_trusted:
            return value.value
        if getattr(value.kind, "__dynagraph_constant__", False):
            frame.ex.guards.require(Is(value.source, value.value, called=repr(value.value)))
            return value.value
    return value.value if isinstance(value, Const) and not isinstance(value.value, SymInt) else UNKNOWN


# -- NumPy's own source -------------------------------------------------------------------------------------------------------


def follow(frame: Frame, function: Function, args: Arguments, kwargs: Keywords) -> Value:
    """A call of a function of NumPy's that is written in Python: what stops inside of it is a break at the user's call."""
    if frame.is_of_library:
        return frame.ex.inline(function, bind(function, args, kwargs), frame.depth + 1)
    name = f"{function.globals['__name__']}.{function.name}"
    if is_own(function.globals):
        return _inlined_whole(frame, function, bind(function, args, kwargs), name)
    if function.source is not None and function.object not in FOLLOWED and source_of_function(function.object) is None:
        refuse("UNSUPPORTED_FUNCTION", name)
    if any(_takes_over(frame.ex.resolve(a)) for a in [*args, *kwargs.values()]):
        refuse("UNSUPPORTED_ARGUMENT", f"{name} of an object that has __array_function__")
    try:
        bound = bind(function, args, kwargs)
    except Raised as error:  # NumPy's own error tells the parameters of its dispatcher
        refuse("WOULD_RAISE", said(error.value))
    return _inlined_whole(frame, function, bound, name)


def _inlined_whole(frame: Frame, function: Function, bound: dict[str, Any], name: str) -> Value:
    try:
        return frame.ex.inline(function, bound, frame.depth + 1)
    except Break as stop:
        # a capture that has to be whole may stop in a function of the user's that this one calls: that line says more
        place = stop.location if is_own(function.globals) and not frame.ex.may_break else None
        raise Break(stop.reason.name, place, f"in {name}: {stop.detail}" if stop.detail else f"in {name}") from None


def is_of_numpy(function: Any) -> bool:
    """Whether NumPy's meaning of a callable is known by the door, or by its source."""
    return lookup(function) is not None or of_python_values(function) is not None or type(function) is DISPATCHER


def _is_left_out(value: Any) -> bool:
    """Whether an argument is what NumPy's own code gives for one that it was not given."""
    return isinstance(value, Const) and type(value.value) is NO_VALUE


def call_numpy(frame: Frame, function: Any, args: Arguments, kwargs: Keywords) -> Value:
    """A call of a function of NumPy's: by its door; where that declines, as a constant, or as NumPy's own source has it."""
    declined: Unsupported | None = None
    kwargs = {name: value for name, value in kwargs.items() if not _is_left_out(frame.ex.resolve(value))}
    for door in _doors(function):
        checks = len(frame.ex.builder.checks)
        try:
            return frame.ex.call_door(door, args, kwargs)
        except Unsupported as refusal:
            del frame.ex.builder.checks[checks:]
            if door is lookup(function) and refusal.reason not in DECLINED:
                raise
            if declined is None or door is lookup(function):
                declined = refusal.with_traceback(None)  # which holds this frame: a cycle
    source = source_of_function(function)
    if source is None and declined is not None:
        raise Unsupported(declined.reason, declined.detail)
    if source is None:
        raise Unsupported("UNSUPPORTED_FUNCTION", f"np.{function.__name__}")
    implementation = frame.ex.wrap(source, Trusted(source, f"np.{source.__qualname__}"))
    assert isinstance(implementation, Function)
    try:
        return follow(frame, implementation, args, kwargs)
    except Break as stop:
        if declined is None or lookup(function) is None:
            raise
        detail = f"{declined.detail}; and in NumPy's source: {stop.reason.what} ({stop.detail})"
        raise Break(declined.reason, None, detail) from None


def _doors(function: Any) -> list[Door]:
    """The doors of a function, in the order in which they are asked: what is known at capture needs no call."""
    own, constant = lookup(function), of_python_values(function)
    if own is not None and own.calls_out:
        return [constant, own] if constant is not None else [own]
    return [door for door in (own, constant) if door is not None]


def _takes_over(value: Any) -> bool:
    """Whether NumPy would ask an argument, or what is in it, what the call means."""
    if isinstance(value, Object):
        return hasattr(value.kind, "__array_function__")
    return isinstance(value, Sequence) and any(isinstance(i, Object) and _takes_over(i) for i in value.items)


@meaning(instances(Partial))
def call_partial(frame: Frame, partial: Partial, args: Arguments, kwargs: Keywords) -> Value:
    return call(frame, partial.function, [*partial.args, *args], {**partial.kwargs, **kwargs})


# -- binding ----------------------------------------------------------------------------------------------------------------


def bind(function: Function, args: Arguments, kwargs: Keywords) -> dict[str, Any]:
    """The parameters of a call by name, as CPython binds them, with its errors."""
    code = function.code
    n = code.co_argcount
    if not kwargs and len(args) == n and not code.co_kwonlyargcount and not code.co_flags & TAKES_MORE:
        return dict(zip(code.co_varnames, args))
    names = code.co_varnames[: n + code.co_kwonlyargcount]
    bound: dict[str, Any] = dict(zip(names[:n], args))
    extra: dict[str, Any] = {}
    fits = len(args) <= n or bool(code.co_flags & inspect.CO_VARARGS)
    for name, value in kwargs.items():
        if name in names[code.co_posonlyargcount :]:
            fits = fits and name not in bound
            bound[name] = value
        else:
            fits = fits and bool(code.co_flags & inspect.CO_VARKEYWORDS)
            extra[name] = value
    defaults = dict(zip(reversed(names[:n]), reversed(function.defaults))) | function.kwdefaults
    for name in names:
        if name not in bound and name in defaults:
            bound[name] = defaults[name]
        fits = fits and name in bound
    if not fits:
        throw(_binding_error(function, args, kwargs))
    position = len(names)
    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[position]] = Sequence(tuple, list(args[n:]))
        position += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[code.co_varnames[position]] = Dict(extra)
    return bound


def _binding_error(function: Function, args: Arguments, kwargs: Keywords) -> TypeError:
    """What CPython says of a call that does not fit the parameters: a function of the same parameters is called."""
    code = function.code
    made = types.FunctionType(code, {}, argdefs=tuple(function.defaults), closure=tuple(types.CellType() for _ in code.co_freevars))
    made.__kwdefaults__ = dict(function.kwdefaults)
    made.__qualname__ = function.name
    try:
        made(*args, **kwargs)
    except TypeError as error:
        return error.with_traceback(None)
    raise AssertionError(f"a call of {function.name}() that fits")
