"""Reading attributes: of arrays by the door, of containers by table, of objects as Python's generic lookup does, guarded.

The whole resolution is guarded: the version of the type covers its MRO, and where the class gives the value, the instance is
guarded to have no such attribute.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.executor import Frame, refuse
from dynagraph.frontend.numpy_door import ATTRIBUTES, method
from dynagraph.frontend.source import Attribute, DictEntry
from dynagraph.frontend.values import Array, Const, Dict, Function, Iter, Method, Object, Sequence, Value

_MISSING = object()
FOLLOWED = (Sequence, Dict, Iter)  # whose methods stand in the table of callables


def load_attribute(frame: Frame, value: Any, name: str) -> Value:
    """``value.name``."""
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return _of_array(frame, value, name)
    if isinstance(value, Const):
        return _of_constant(frame, value, name)
    if isinstance(value, FOLLOWED):
        return Method(name, value)
    if isinstance(value, Object):
        return _of_object(frame, value, name)
    if isinstance(value, Function) and name in ("__name__", "__qualname__", "__doc__"):
        return Const(value.name.rsplit(".", 1)[-1] if name == "__name__" else value.name)
    return refuse("ATTRIBUTE", f".{name} of a {type(value).__name__.lower()}")


def _of_array(frame: Frame, array: Array, name: str) -> Value:
    reader = ATTRIBUTES.get(name)
    if reader is not None:
        return frame.ex.from_door(reader(frame.ex.builder, array.node), "value" if array.is_scalar else "array")
    if method(name) is not None:
        return Method(name, array)
    return refuse("UNSUPPORTED_FUNCTION", f"the array attribute .{name}")


def _of_constant(frame: Frame, value: Const, name: str) -> Value:
    obj = value.value
    if isinstance(obj, types.ModuleType):
        entries = vars(obj)
        if name in entries:
            return frame.ex.wrap(entries[name], DictEntry(entries, name, obj.__name__))
        return refuse("ATTRIBUTE", f"module {obj.__name__} computes .{name} when asked")
    if isinstance(obj, type):
        return _of_class(frame, value, name)
    found = getattr(type(obj), name, _MISSING)
    if found is _MISSING:
        return refuse("WOULD_RAISE", f"{obj!r} has no attribute {name}")
    if isinstance(found, (types.MethodDescriptorType, types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType)):
        return Method(name, value)
    result = getattr(obj, name)  # numbers, dtypes, ufuncs, builtin functions: immutable, and their attributes are pure
    return frame.ex.constant(result) if type(result) in (tuple, str, int, float, bool, type(None)) else Const(result)


def _of_class(frame: Frame, value: Const, name: str) -> Value:
    cls = value.value
    if type(cls) is not type or value.source is None:
        return refuse("ATTRIBUTE", f".{name} of class {cls.__name__}")
    found = _in_mro(cls, name)
    if found is _MISSING:
        return refuse("ATTRIBUTE", f"class {cls.__name__} has no plain attribute {name}")
    if isinstance(found, (property, classmethod)) or (
        hasattr(type(found), "__get__")
        and not isinstance(
            found,
            (staticmethod, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, _dispatch.CompiledFunction),
        )
    ):
        return refuse("ATTRIBUTE", f".{name} of class {cls.__name__} is a descriptor")
    source = Attribute(value.source, name)
    return frame.ex.wrap(getattr(cls, name), source)


def _of_object(frame: Frame, value: Object, name: str) -> Value:
    obj, kind, guards = value.value, type(value.value), frame.ex.guards
    if kind.__getattribute__ is not object.__getattribute__:
        return refuse("ATTRIBUTE", f"{kind.__name__} defines __getattribute__")
    guards.add("type_version", value.source, kind, says=f" is an unchanged {kind.__name__}")
    found = _in_mro(kind, name)
    own = getattr(obj, "__dict__", {})
    data_descriptor = found is not _MISSING and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"))
    if isinstance(found, property):
        return _property(frame, value, found, name)
    if data_descriptor and not isinstance(found, types.MemberDescriptorType):
        return refuse("ATTRIBUTE", f"{kind.__name__}.{name} is a descriptor")
    source = Attribute(value.source, name)
    if (isinstance(found, types.MemberDescriptorType) and data_descriptor) or name in own:
        result = getattr(obj, name, _MISSING)
        if result is _MISSING:
            return refuse("WOULD_RAISE", f"{value.source} has no attribute {name}")
        return frame.ex.wrap(result, source)
    if found is _MISSING:
        return refuse("ATTRIBUTE", f"{value.source} has no attribute {name} of its own")
    if hasattr(obj, "__dict__"):
        guards.add("no_attr", value.source, name, says=f" has no attribute {name} of its own")
    return _of_its_class(frame, value, found, name)


def _of_its_class(frame: Frame, value: Object, found: Any, name: str) -> Value:
    """What the class gives, its version being guarded already."""
    kind = type(value.value)
    if isinstance(found, staticmethod):
        return frame.ex.wrap(found.__func__, Attribute(value.source, name))
    if isinstance(found, classmethod):
        return refuse("ATTRIBUTE", f"{kind.__name__}.{name} is a class method")
    if isinstance(found, _dispatch.CompiledFunction):
        found = found.__wrapped__
    if isinstance(found, types.FunctionType):
        return Method(_class_function(frame, value, found, name), value)
    if hasattr(type(found), "__get__"):
        return refuse("ATTRIBUTE", f"{kind.__name__}.{name} is a descriptor")
    return frame.ex.wrap(found, Attribute(value.source, name))


def _class_function(frame: Frame, value: Object, function: types.FunctionType, name: str) -> Function:
    """A function found in the class: the entry of the class's dict cannot change unseen, the function itself may."""
    owner = next(k for k in type(value.value).__mro__ if name in vars(k))
    return frame.ex.class_function(function, owner, name)


def _property(frame: Frame, value: Object, found: property, name: str) -> Value:
    if type(found) is not property or not isinstance(found.fget, types.FunctionType):
        return refuse("ATTRIBUTE", f"{type(value.value).__name__}.{name} is a property without a plain getter")
    getter = _class_function(frame, value, found.fget, name)
    return frame.ex.inline(getter, {getter.code.co_varnames[0]: value}, frame.depth + 1)


def _in_mro(cls: type, name: str) -> Any:
    """The object that class lookup finds, descriptors unbound."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return _MISSING


def lacks_attribute(frame: Frame, value: Any, name: str) -> bool:
    """Whether a plain object has no such attribute, guarded where it has none."""
    value = frame.ex.resolve(value)
    if not isinstance(value, Object):
        return False
    obj, kind = value.value, type(value.value)
    computed = kind.__getattribute__ is not object.__getattribute__ or _in_mro(kind, "__getattr__") is not _MISSING
    if computed or _in_mro(kind, name) is not _MISSING or name in getattr(obj, "__dict__", {}):
        return False
    frame.ex.guards.add("type_version", value.source, kind, says=f" is an unchanged {kind.__name__}")
    if hasattr(obj, "__dict__"):
        frame.ex.guards.add("no_attr", value.source, name, says=f" has no attribute {name} of its own")
    return True


def is_partial(value: Any) -> bool:
    return isinstance(value, Object) and type(value.value) is functools.partial
