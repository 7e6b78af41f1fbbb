"""Reading and writing attributes, by kind of value: of arrays by the door, of containers by table, of objects as Python does."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any, cast

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend import array_writes, cupy_door, objects
from dynagraph.frontend.array_flags import load_flag
from dynagraph.frontend.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor import Frame, Generator
from dynagraph.frontend.iterators import Flat
from dynagraph.frontend.methods import READ_ONLY, has_method
from dynagraph.frontend.numpy_door import ATTRIBUTES, method
from dynagraph.frontend.numpy_source import is_numpys
from dynagraph.frontend.source import Attribute
from dynagraph.frontend.values import (
    DELETED,
    Array,
    Const,
    Dict,
    DictView,
    Flags,
    Function,
    Iterator,
    Masked,
    Method,
    Object,
    Opaque,
    Partial,
    Sequence,
    Set,
    Slice,
    Super,
    Value,
)
from dynagraph.frontend.wrapping import behind, is_container, is_named_tuple, load_entry
from dynagraph.ir.shapes import SymInt

DESCRIBED = (types.MethodDescriptorType, types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType)


def load_attribute(frame: Frame, value: Any, name: str) -> Value:
    """``value.name``."""
    value = frame.ex.resolve(value)
    try:
        return _load(frame, value, name)
    except Raised as raised:
        fields = raised.value.fields
        if issubclass(raised.value.kind, AttributeError) and not {"name", "obj"} & fields.keys() and raised.value.source is None:
            fields.update(name=Const(name), obj=value)  # as Python does for whatever raised it
        raise


def _load(frame: Frame, value: Any, name: str) -> Value:
    if isinstance(value, Array):
        return _of_array(frame, value, name)
    if isinstance(value, Masked):
        return _of_masked(frame, value, name)
    if isinstance(value, Flags):
        return load_flag(frame.ex, value, name)
    if isinstance(value, Const):
        return _of_constant(frame, value, name)
    if isinstance(value, (Sequence, Dict, Set)):
        return _of_container(frame, value, name)
    if isinstance(value, Object) and value.kind is types.MappingProxyType and name in READ_ONLY:
        return _of_proxy(frame, value, name)
    if isinstance(value, Object):
        return objects.load(frame, value, name)
    if isinstance(value, Super):
        return objects.load_from_super(frame, value, name)
    if isinstance(value, Function):
        return _of_function(frame, value, name)
    if isinstance(value, Method):
        return _of_method(frame, value, name)
    if isinstance(value, Partial):
        return _of_partial(frame, value, name)
    if isinstance(value, Slice) and name in ("start", "stop", "step"):
        return frame.ex.resolve(value.parts[("start", "stop", "step").index(name)])
    if isinstance(value, Flat) and name in ("base", "copy"):
        return value.array if name == "base" else Method(name, value)
    if isinstance(value, Iterator) and name in ("__next__", "__iter__", "send", "throw", "close"):
        return Method(name, value)
    if isinstance(value, (DictView, Slice)) and has_method(value, name):
        return Method(name, value)
    if isinstance(value, Opaque):
        return refuse("UNSUPPORTED_VALUE", f".{name} of {value.what}")
    return refuse("ATTRIBUTE", f".{name} of a {type(value).__name__.lower()}")


def _of_proxy(frame: Frame, value: Object, name: str) -> Value:
    mapping = behind(frame.ex, value)
    return Method(name, mapping) if isinstance(mapping, Dict) else refuse("ATTRIBUTE", f".{name} of a mappingproxy")


def _of_partial(frame: Frame, value: Partial, name: str) -> Value:
    if name in ("func", "args", "keywords"):
        if is_partial(value.function):  # which is flattened, unless somebody has asked it for its __dict__
            refuse("ATTRIBUTE", f".{name} of a partial of a partial of the caller's")
        return {"func": value.function, "args": Sequence(tuple, list(value.args)), "keywords": Dict(dict(value.kwargs))}[name]
    if name in value.fields:
        return frame.ex.resolve(value.fields[name])
    if not hasattr(functools.partial, name):
        throw(AttributeError(_lacks("functools.partial", name)))
    return refuse("ATTRIBUTE", f".{name} of a partial")


def _of_array(frame: Frame, array: Array, name: str) -> Value:
    if frame.ex.library is not NUMPY and not array.is_scalar:
        return _of_device_array(frame, array, name)
    if name == "flags" and not array.is_scalar:
        return Flags(array)
    reader = ATTRIBUTES.get(name)
    if name == "flat" and not array.is_scalar:
        return Flat(array, frame.ex.steps)
    if reader is not None:
        found = reader(frame.ex.builder, frame.ex.memories.present(array))
        return frame.ex.from_door(found, "value" if array.is_scalar else "array")
    if method(name) is not None:
        return Method(name, array)
    kind = array.node.dtype.numpy.type if array.is_scalar else np.ndarray
    if not hasattr(kind, name):
        throw(AttributeError(_lacks(f"numpy.{kind.__name__}", name)))
    return refuse("UNSUPPORTED_FUNCTION", f"the array attribute .{name}")


def _of_device_array(frame: Frame, array: Array, name: str) -> Value:
    kind = frame.ex.library.array_type
    if name in cupy_door.METHODS and hasattr(kind, name):
        return Method(name, array)
    if name not in cupy_door.ATTRIBUTES or (name == "imag" and not array.node.dtype.is_complex):
        refuse("UNSUPPORTED_FUNCTION", f".{name} of an array of CuPy's")
    if name == "T" and array.node.ndim < 2:
        return array  # CuPy makes no view of it
    return frame.ex.from_door(ATTRIBUTES[name](frame.ex.builder, frame.ex.memories.present(array)), "array")


def _of_masked(frame: Frame, value: Masked, name: str) -> Value:
    if name in ("dtype", "ndim", "itemsize"):
        data = value.data
        return Const({"dtype": data.dtype.numpy, "ndim": data.ndim - value.mask.ndim + 1, "itemsize": data.dtype.itemsize}[name])
    if method(name) is not None:
        return Method(name, value)
    return refuse("DATA_DEPENDENT", f".{name} of what a mask chooses")


def _of_constant(frame: Frame, value: Const, name: str) -> Value:
    obj = value.value
    if isinstance(obj, types.ModuleType):
        return _of_module(frame, obj, name)
    if isinstance(obj, type):
        return objects.load_from_class(frame, value, name)
    kind = int if isinstance(obj, SymInt) else type(obj)
    found = getattr(kind, name, objects.MISSING)
    if found is objects.MISSING:
        own = getattr(obj, name, objects.MISSING)
        if own is objects.MISSING:
            throw(AttributeError(f"{kind.__name__!r} object has no attribute {name!r}"))
        return Const(own) if isinstance(obj, (np.finfo, np.iinfo)) else refuse("ATTRIBUTE", f".{name} of {obj!r}")
    if isinstance(found, DESCRIBED):
        return Method(name, value)
    if isinstance(obj, SymInt):
        return {"real": value, "numerator": value, "imag": Const(0), "denominator": Const(1)}[name]
    result = getattr(obj, name)  # numbers, dtypes, ufuncs, builtin functions: immutable, and their attributes are pure
    return frame.ex.constant(result) if type(result) in (tuple, str, int, float, bool, type(None)) else Const(result)


def _of_module(frame: Frame, module: types.ModuleType, name: str) -> Value:
    entries = vars(module)
    stored = frame.ex.stored.get((id(entries), name))
    if stored is not None and stored is not DELETED:
        return frame.ex.resolve(stored)
    if name in entries and stored is None:
        by_numpy = is_numpys(frame.function.globals) and is_numpys(entries)
        return load_entry(frame.ex, entries, name, _name_of_module(module), by_numpy)
    if "__getattr__" in entries:
        refuse("ATTRIBUTE", f"module {_name_of_module(module)} computes .{name} when asked")
    if hasattr(types.ModuleType, name):
        refuse("ATTRIBUTE", f".{name} of module {_name_of_module(module)}")
    frame.ex.guards.absent(entries, name)
    if type(entries.get("__name__")) is not str:
        refuse("WOULD_RAISE", f"a module without a name has no attribute {name}")
    return throw(AttributeError(f"module {module.__name__!r} has no attribute {name!r}"))


def _name_of_module(module: types.ModuleType) -> str:
    return str(vars(module).get("__name__"))


def _of_container(frame: Frame, value: Any, name: str) -> Value:
    kind = value.kind
    if not isinstance(value, Set) and is_container(kind) and not is_named_tuple(kind):
        return objects.load(frame, value, name)
    if name == "__class__":
        return Const(kind)
    if isinstance(value, Sequence) and hasattr(kind, "_fields"):
        if name in kind._fields and type(objects.in_mro(kind, name)) is objects.TUPLE_GETTER:
            return frame.ex.resolve(value.items[kind._fields.index(name)])
        if name == "_fields":
            return frame.ex.constant(kind._fields)
    if name == "default_factory" and isinstance(value, Dict) and issubclass(kind, collections.defaultdict):
        return frame.ex.resolve(value.factory) or Const(None)
    if name == "maxlen" and isinstance(value, Sequence) and issubclass(kind, collections.deque):
        return Const(value.maxlen)
    found = objects.in_mro(kind, name)
    if kind.__module__ != "builtins":
        objects.guard_type(frame, value)
    if kind.__module__ != "builtins" and not (isinstance(found, objects.WRAPPERS) or found is objects.MISSING):
        return objects.bound(frame, value, found, name)
    if not isinstance(value, Set) and name in value.fields:
        return objects.own_attribute(frame, value, name, in_slot=False) or throw(AttributeError(_lacks(kind.__name__, name)))
    if has_method(value, name):
        return Method(name, value)
    if found is objects.MISSING:
        throw(AttributeError(f"{kind.__name__!r} object has no attribute {name!r}"))
    return refuse("UNSUPPORTED_FUNCTION", f".{name}() of a {kind.__name__}")


OF_FUNCTION = ("__name__", "__qualname__", "__doc__", "__module__")
PARTS_OF_FUNCTION = ("__annotations__", "__defaults__", "__kwdefaults__", "__type_params__")


def _of_function(frame: Frame, value: Function, name: str) -> Value:
    if name in value.fields:
        field = value.fields[name]
        return frame.ex.resolve(field) if field is not DELETED else throw(AttributeError(_lacks("function", name)))
    if value.source is not None:
        if name in vars(value.object) or name in (*OF_FUNCTION, *PARTS_OF_FUNCTION, "__wrapped__"):
            if hasattr(value.object, name):
                return frame.ex.wrap(getattr(value.object, name), Attribute(value.source, name))
        elif not hasattr(value.object, name):
            frame.ex.guards.add("no_attr", value.source, name, says=f" has no attribute {name}")
            throw(AttributeError(_lacks("function", name)))
    elif name in PARTS_OF_FUNCTION:
        return _part_of_function(frame, value, name)
    elif name in OF_FUNCTION:
        doc = value.code.co_consts[0] if value.code.co_consts else None
        return Const(
            {
                "__name__": value.code.co_name,
                "__qualname__": value.name,
                "__doc__": doc if isinstance(doc, str) else None,
                "__module__": value.globals.get("__name__"),
            }[name]
        )
    if name == "__code__":
        return Const(value.code)
    if name == "__get__":
        return Method("__get__", value)
    if not hasattr(types.FunctionType, name):
        throw(AttributeError(_lacks("function", name)))
    return refuse("ATTRIBUTE", f".{name} of a function")


def _part_of_function(frame: Frame, value: Function, name: str) -> Value:
    """Of a function made by the captured code."""
    if name == "__annotations__":
        made = value.fields[name] = Dict({})
        return made
    if name == "__defaults__":
        return Sequence(tuple, list(value.defaults)) if value.defaults else Const(None)
    if name == "__kwdefaults__" and not value.kwdefaults:
        return Const(None)
    if name == "__type_params__" and hasattr(types.FunctionType, name):
        return Sequence(tuple, [])
    return refuse("ATTRIBUTE", f".{name} of a function")


def _lacks(kind: str, name: str) -> str:
    return f"{kind!r} object has no attribute {name!r}"


def _of_method(frame: Frame, value: Method, name: str) -> Value:
    if name == "__self__":
        return value.owner
    if name == "__func__" and not isinstance(value.function, str):
        return value.function
    if isinstance(value.function, Function) and name in OF_FUNCTION:
        return _of_function(frame, value.function, name)
    return refuse("ATTRIBUTE", f".{name} of a method")


# -- writing --------------------------------------------------------------------------------------------------------------


def store_attribute(frame: Frame, value: Any, name: str, new: Value) -> None:
    """``value.name = new``."""
    value = frame.ex.resolve(value)
    if isinstance(value, Object) or (isinstance(value, (Sequence, Dict)) and is_container(value.kind)):
        objects.store(frame, value, name, new)
    elif isinstance(value, Const) and isinstance(value.value, type):
        objects.store_in_class(frame, value.value, name, new)
    elif isinstance(value, Function) and _may_be_set(name, new):
        value.fields[name] = new
        if name == "__qualname__":
            value.name = new.value  # type: ignore[union-attr]
        if value.source is not None:
            frame.ex.writes(value)
            frame.ex.effect(setattr, value, Const(name), new)
    elif isinstance(value, Partial) and not hasattr(functools.partial, name):
        value.fields[name] = new
    elif isinstance(value, Const) and type(value.value) is types.ModuleType and not hasattr(types.ModuleType, name):
        _store_in_module(frame, value.value, name, new)
    elif isinstance(value, Array) and frame.ex.library is not NUMPY:
        refuse("IN_PLACE_WRITE", f"the attribute .{name} of an array of CuPy's is set")
    elif isinstance(value, Array) and name == "flat" and not value.is_scalar:
        array_writes.store_flat(frame.ex, value, Const(slice(None)), new)
    elif isinstance(value, Array) and name in ("real", "imag") and value.node.dtype.is_complex and not value.is_scalar:
        array_writes.store_item(frame.ex, cast(Array, _of_array(frame, value, name)), Const(Ellipsis), new)
    elif isinstance(value, Array):
        refuse("IN_PLACE_WRITE", f"the attribute .{name} of an array is set")
    else:
        refuse("SIDE_EFFECT", f"the attribute {name} of a {type(value).__name__.lower()} is set")


def _store_in_module(frame: Frame, module: types.ModuleType, name: str, new: Value) -> None:
    entries = vars(module)
    frame.ex.stored[id(entries), name] = new
    frame.ex.effect(dict.__setitem__, Const(entries), Const(name), new)


def _may_be_set(name: str, new: Any) -> bool:
    """Whether a function takes this attribute as it is, and goes on being the same program."""
    if name in ("__name__", "__qualname__"):
        return isinstance(new, Const) and type(new.value) is str
    if name == "__annotations__":
        return isinstance(new, Dict)
    return name in ("__doc__", "__module__") or not hasattr(types.FunctionType, name)


def delete_attribute(frame: Frame, value: Any, name: str) -> None:
    """``del value.name``."""
    value = frame.ex.resolve(value)
    if not isinstance(value, Object) and not (isinstance(value, (Sequence, Dict)) and is_container(value.kind)):
        refuse("SIDE_EFFECT", f"the attribute {name} of a {type(value).__name__.lower()} is deleted")
    objects.delete(frame, value, name)


def attribute_or(frame: Frame, value: Any, name: str, default: Any) -> Any:
    """``getattr(value, name, default)``."""
    try:
        return load_attribute(frame, value, name)
    except Raised as raised:
        if issubclass(raised.value.kind, AttributeError):
            return default
        raise


def is_partial(value: Any) -> bool:
    return isinstance(value, Object) and value.kind is functools.partial


__all__ = ["Generator", "attribute_or", "delete_attribute", "is_partial", "load_attribute", "store_attribute"]
