"""Attributes of objects as Python resolves them: class lookup, descriptors, the instance's own; reading, writing, deleting.

The whole resolution is guarded: the version of the type covers its MRO, and where the class gives the value, the instance is
guarded to have no such attribute.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
from dataclasses import dataclass
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import Raised, is_exception, refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import EXACT, class_function, is_cython_function
from dynagraph.frontend.guards.guards import EmptySlot, Is, NoAttribute
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE, class_namespace, is_volatile, volatile_names
from dynagraph.frontend.guards.sources import Attribute, DictEntry, Known, Returned
from dynagraph.frontend.kinds.values import (
    DELETED,
    Array,
    Const,
    Count,
    Dict,
    Instance,
    Method,
    Object,
    Opaque,
    Sequence,
    Set,
    Traceback,
    Value,
)

MISSING = object()
ATTRIBUTES_IN_C: dict[type, tuple[Any, Any]] = {}  # of types of dynagraph's own, what reads and writes them: (get, set)
TUPLE_GETTER: Any = type(collections.namedtuple("_", "field").field)  # type: ignore[attr-defined]
CACHED: Any = type(functools.lru_cache(len))
WRAPPERS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType)


def in_mro(cls: type, name: str) -> Any:
    """The object that class lookup finds, descriptors unbound; MISSING where there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def lookup(frame: Frame, cls: type, name: str) -> Any:
    """As `in_mro`, but what captured code sets is given as a value, guarded by itself."""
    for base in cls.__mro__:
        stored = frame.ex.class_attributes.get((id(base), name))
        if stored is not None:
            return Given(stored)
        if name in base.__dict__:
            found = base.__dict__[name]
            if name not in volatile_names(base):
                return found
            value = frame.ex.wrap(found, DictEntry(class_namespace(base), name, f"class {base.__name__}'s"))
            if isinstance(value, Object):
                guard_type(frame, value)
            return found if binds(value) else Given(value)
    return MISSING


@dataclass
class Given:
    """A class attribute that is a value already, and no descriptor."""

    value: Any


def binds(value: Any) -> bool:
    """Whether lookup through an instance may give something else than this."""
    if isinstance(value, Const):
        return hasattr(type(value.value), "__get__")
    if isinstance(value, Object):
        return any(in_mro(value.kind, name) is not MISSING for name in ("__get__", "__set__", "__delete__"))
    return not isinstance(value, (Array, Sequence, Dict, Set))


def owner_in_mro(cls: type, name: str) -> type:
    return next(k for k in cls.__mro__ if name in k.__dict__)


def guard_type(frame: Frame, value: Any) -> None:
    """The value's type is this one, and is as it is now."""
    source = getattr(value, "source", None)
    if source is not None and not isinstance(source, Returned):
        frame.ex.guards.instance(source, value.kind)
    else:
        frame.ex.guards.unmodified(value.kind)


def lacks(kind: str, name: str) -> str:
    return f"{kind!r} object has no attribute {name!r}"


def known(frame: Frame, obj: Any, name: str) -> Value:
    """An object that a guarded class holds."""
    if type(obj) in (int, float, str, bool, bytes, type(None), complex):
        return Const(obj)
    return frame.ex.wrap(obj, Known(obj, name))


# -- special methods ----------------------------------------------------------------------------------------------------------


def is_plain_value(value: Any) -> bool:
    """Whether functions written in C take the object for the number or text that it holds."""
    names = [name for name in dir(value.kind) if name[:2] == "__" == name[-2:]]
    return not any(isinstance(in_mro(value.kind, name), types.FunctionType) for name in names)


def special(frame: Frame, value: Any, name: str) -> Any:
    """What implicit lookup of a special method finds in the type, or None."""
    guard_type(frame, value)
    found = in_mro(value.kind, name)
    return None if found is MISSING or found is None else found


def call_special(frame: Frame, value: Any, name: str, *args: Value) -> Value:
    """``type(value).name(value, *args)``."""
    found = special(frame, value, name)
    if found is None:
        throw(AttributeError(f"{value.kind.__name__!r} object has no attribute {name!r}"))
    return call(frame, bound(frame, value, found, name), list(args), {})


# -- reading ------------------------------------------------------------------------------------------------------------------
GENERIC = tuple(k.__getattribute__ for k in (object, BaseException, *EXACT, list, tuple, dict, collections.OrderedDict))


def load_from_instance(frame: Frame, value: Instance, name: str) -> Value:
    """``value.name``, by ``__getattribute__`` and ``__getattr__``."""
    kind = value.kind
    guard_type(frame, value)
    seen = frame.ex.lookups.get((id(kind), name))
    if seen is not None and not frame.ex.class_attributes and not is_volatile(kind):
        return _load(frame, value, name, seen.found, seen.takes_over)
    if name == "__class__":
        return known(frame, kind, kind.__name__)
    getter = in_mro(kind, "__getattribute__")
    try:
        if isinstance(getter, types.FunctionType):
            return call(frame, bound(frame, value, getter, "__getattribute__"), [Const(name)], {})
        if getter not in GENERIC:
            return refuse("ATTRIBUTE", f"{kind.__name__} computes its attributes in C")
        if in_mro(kind, "__getattr__") is MISSING and not frame.ex.class_attributes and not is_volatile(kind):
            found = in_mro(kind, name)
            frame.ex.lookups[id(kind), name] = Seen(kind, found, _takes_over(found))
        return generic_load(frame, value, name)
    except Raised as raised:
        hook = in_mro(kind, "__getattr__")
        if hook is MISSING or not issubclass(raised.value.kind, AttributeError):
            raise
        return call(frame, bound(frame, value, hook, "__getattr__"), [Const(name)], {})


def generic_load(frame: Frame, value: Instance, name: str) -> Value:
    """``object.__getattribute__(value, name)``."""
    found = lookup(frame, value.kind, name)
    return _load(frame, value, name, found, _takes_over(found))


@dataclass
class Seen:
    """What lookup in a class found: `lookups` of a capture has it by class and name, for classes that are guarded as they are."""

    kind: type  # whose identity is the key
    found: Any
    takes_over: bool


def _takes_over(found: Any) -> bool:
    """Whether what stands in a class goes before what the instance has itself."""
    return found is not MISSING and is_data_descriptor(found) and hasattr(type(found), "__get__")


def _load(frame: Frame, value: Instance, name: str, found: Any, takes_over: bool) -> Value:
    if takes_over:
        if type(found) is types.MemberDescriptorType and (field := value.fields.get(name, DELETED)) is not DELETED:
            return frame.ex.resolve(field)
        return bound(frame, value, found, name)
    own = own_attribute(frame, value, name, in_slot=False)
    if own is not None:
        return own
    if found is MISSING:
        throw(_no_attribute(value.kind, name), name=Const(name), obj=value)
    return found.value if isinstance(found, Given) else bound(frame, value, found, name)


def _no_attribute(kind: type, name: str) -> AttributeError:
    return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")


def is_data_descriptor(found: Any) -> bool:
    return hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")


def own_attribute(frame: Frame, value: Instance, name: str, in_slot: bool) -> Value | None:
    """An attribute of the instance itself, guarded to be there or not; None where it has none."""
    entries = getattr(value, "entries", None)
    if not in_slot and entries is not None and _in_namespace(value.kind, name):
        entry = call(frame, Method("get", entries), [Const(name), ABSENT], {})
        return None if entry is ABSENT else entry
    if name in value.fields:
        field = value.fields[name]
        return None if field is DELETED else frame.ex.resolve(field)
    if value.source is None or isinstance(value.source, Returned):
        return None
    obj = frame.ex.objects[value.source]
    found = _in_slot(obj, in_mro(value.kind, name)) if in_slot else namespace(obj).get(name, MISSING)
    if found is not MISSING:
        if name in getattr(value.kind, "__dynagraph_counters__", ()):
            return Count(Attribute(value.source, name), found)
        return frame.ex.wrap(found, Attribute(value.source, name))
    if in_slot:
        frame.ex.guards.require(EmptySlot(value.source, in_mro(value.kind, name)))
    elif value.kind.__dictoffset__:
        frame.ex.guards.require(NoAttribute(value.source, name))
    return None


ABSENT = Opaque("an attribute that is not there")


def _in_namespace(kind: type, name: str) -> bool:
    """Whether an attribute of an instance stands in its ``__dict__``, if anywhere."""
    return not isinstance(in_mro(kind, name), (types.MemberDescriptorType, types.GetSetDescriptorType))


def entries_of_object(frame: Frame, value: Object) -> Dict:
    """``value.__dict__``: from now on its attributes are read and written there."""
    if value.entries is not None:
        return value.entries
    guard_type(frame, value)
    if not value.kind.__dictoffset__:
        throw(_no_attribute(value.kind, "__dict__"))
    if value.source is None:
        made: Any = Dict({}, owner=value)
    else:
        made = frame.ex.wrap(namespace(frame.ex.objects[value.source]), Attribute(value.source, "__dict__"))
    own = [name for name in value.fields if _in_namespace(value.kind, name)]
    made.items.update({name: value.fields.pop(name) for name in own})
    made.added_again.update(value.set_again)
    value.entries = made
    return made


def _in_slot(obj: Any, slot: Any) -> Any:
    try:
        return slot.__get__(obj)
    except AttributeError:
        return MISSING


def namespace(obj: Any) -> dict[str, Any]:
    """``obj.__dict__``, by no code of the user's."""
    found = shown_namespace(obj)
    return found if found is not None else refuse("ATTRIBUTE", f"a {type(obj).__name__} does not show its attributes")


def shown_namespace(obj: Any) -> dict[str, Any] | None:
    """As `namespace`; None where an object does not show it."""
    if not type(obj).__dictoffset__:
        return {}
    in_c = (types.GetSetDescriptorType, types.MemberDescriptorType)
    found = [vars(k)["__dict__"] for k in type(obj).__mro__ if isinstance(vars(k).get("__dict__"), in_c)]
    return found[0].__get__(obj) if found else None


def bound(frame: Frame, value: Any, found: Any, name: str) -> Value:
    """What the class gives for an instance: a method, or what a descriptor's ``__get__`` gives."""
    kind = value.kind
    if isinstance(found, _dispatch.CompiledFunction):
        found = found.__wrapped__
    if isinstance(found, types.FunctionType):
        return Method(class_function(frame.ex, found, owner_in_mro(kind, name), name), value)
    if isinstance(found, staticmethod):
        return known(frame, found.__func__, f"{kind.__name__}.{name}")
    if isinstance(found, classmethod):
        return Method(known(frame, found.__func__, f"{kind.__name__}.{name}"), known(frame, kind, kind.__name__))
    if isinstance(found, property):
        return _property(frame, value, found, name)
    if isinstance(found, functools.cached_property):
        return _cached(frame, value, found, name)
    if isinstance(found, types.MemberDescriptorType):
        slot = own_attribute(frame, value, name, in_slot=True)
        if slot is None and found.__objclass__.__module__ == "builtins" and issubclass(kind, BaseException):
            return Const(None)  # .name of a NameError that nobody gave one
        return slot if slot is not None else throw(AttributeError(name))
    if isinstance(found, types.BuiltinFunctionType):
        return known(frame, found, f"{kind.__name__}.{name}")  # it does not bind
    if isinstance(found, types.ClassMethodDescriptorType):
        return Const(found.__get__(None, kind))
    if isinstance(found, WRAPPERS) or is_cython_function(type(found)):
        return Method(Const(found), value)
    if type(found) is TUPLE_GETTER and isinstance(value, Sequence):
        return frame.ex.resolve(value.items[found.__reduce__()[1][0]])
    if isinstance(found, types.GetSetDescriptorType):
        return _computed_in_c(frame, value, name)
    if isinstance(found, CACHED):
        return Method(known(frame, found, f"{kind.__name__}.{name}"), value)
    getter = in_mro(type(found), "__get__")
    if getter is MISSING:
        return known(frame, found, f"{kind.__name__}.{name}")
    if isinstance(found, (enum.property, types.DynamicClassAttribute)) and isinstance(value.value, enum.Enum):
        return _enum_attribute(frame, value, name)
    if isinstance(getter, types.FunctionType):
        descriptor = known(frame, found, f"{kind.__name__}.{name}")
        return call_special(frame, descriptor, "__get__", value, known(frame, kind, kind.__name__))
    return refuse("ATTRIBUTE", f"{kind.__name__}.{name} is a descriptor written in C")


def _property(frame: Frame, value: Any, found: property, name: str) -> Value:
    if type(found) is not property:
        if isinstance(found, enum.property) and isinstance(value.value, enum.Enum):
            return _enum_attribute(frame, value, name)
        getter = in_mro(type(found), "__get__")
        if isinstance(getter, types.FunctionType):
            descriptor = known(frame, found, f"{value.kind.__name__}.{name}")
            return call_special(frame, descriptor, "__get__", value, known(frame, value.kind, value.kind.__name__))
        if getter is not vars(property)["__get__"] or in_mro(type(found), "fget") is not vars(property)["fget"]:
            return refuse("ATTRIBUTE", f"{value.kind.__name__}.{name} is a subclass of property")
    if found.fget is None:
        throw(AttributeError(f"property {name!r} of {value.kind.__qualname__!r} object has no getter"))
    return call(frame, known(frame, found.fget, f"{value.kind.__name__}.{name}"), [value], {})


def _cached(frame: Frame, value: Any, found: functools.cached_property, name: str) -> Value:
    result = call(frame, known(frame, found.func, f"{value.kind.__name__}.{name}"), [value], {})
    put(frame, value, found.attrname or name, result)
    return result


def _enum_attribute(frame: Frame, value: Object, name: str) -> Value:
    getter = getattr(in_mro(value.kind, name), "fget", None)
    if isinstance(getter, types.FunctionType) and getter.__module__ != "enum":
        return call(frame, known(frame, getter, f"{value.kind.__name__}.{name}"), [value], {})
    if value.source is not None:
        frame.ex.guards.require(Is(value.source, value.value, called=repr(value.value)))
    return known(frame, getattr(value.value, name), f"{value.value}.{name}")


OF_EXCEPTION = ("args", "__cause__", "__context__", "__suppress_context__")


def _computed_in_c(frame: Frame, value: Any, name: str) -> Value:
    own = ATTRIBUTES_IN_C.get(value.kind)
    if own is not None:
        return own[0](frame, value, name)
    fields = value.fields
    if value.source is None and hasattr(value, "remade") and name in fields:
        return frame.ex.resolve(fields[name])
    if issubclass(value.kind, BaseException) and value.source is None:
        if name == "__traceback__":
            return traceback_of(value)
        return frame.ex.resolve(fields.get(name, Const((name == "__suppress_context__" and "__cause__" in fields) or None)))
    if issubclass(value.kind, BaseException) and name in OF_EXCEPTION:
        own = fields.get(name)
        place = Attribute(value.source, name)
        return frame.ex.resolve(own) if own is not None else frame.ex.wrap(getattr(value.value, name), place)
    if name == "__dict__" and isinstance(value, Object):
        return entries_of_object(frame, value)
    return refuse("ATTRIBUTE", f".{name} of a {value.kind.__name__}")


def traceback_of(error: Object) -> Traceback:
    return Traceback("a traceback", tuple(error.raised_at))


# -- writing ------------------------------------------------------------------------------------------------------------------


def store_in_instance(frame: Frame, value: Instance, name: str, new: Value) -> None:
    """``value.name = new``."""
    guard_type(frame, value)
    setter = in_mro(value.kind, "__setattr__")
    if isinstance(setter, types.FunctionType):
        call(frame, bound(frame, value, setter, "__setattr__"), [Const(name), new], {})
    else:
        generic_store(frame, value, name, new)


def generic_store(frame: Frame, value: Instance, name: str, new: Value) -> None:
    """``object.__setattr__(value, name, new)``."""
    found = in_mro(value.kind, name)
    if isinstance(found, property):
        if found.fset is None:
            throw(AttributeError(f"property {name!r} of {value.kind.__qualname__!r} object has no setter"))
        call(frame, known(frame, found.fset, f"{value.kind.__name__}.{name}"), [value, new], {})
    elif found is not MISSING and is_data_descriptor(found) and not isinstance(found, types.MemberDescriptorType):
        if value.kind in ATTRIBUTES_IN_C:
            ATTRIBUTES_IN_C[value.kind][1](frame, value, name, new)
        elif isinstance(found, types.GetSetDescriptorType) and is_exception(value):
            if not _fits_exception(name, new):
                refuse("WOULD_RAISE", f".{name} of an exception cannot be this")
            if name == "__traceback__" and value.source is None:
                value.raised_at[:] = new.places if isinstance(new, Traceback) else ()
            elif isinstance(new, Traceback):
                refuse("SIDE_EFFECT", "the traceback of an exception of the caller's is set")
            else:
                put(frame, value, name, new)
        elif isinstance(in_mro(type(found), "__set__"), types.FunctionType):
            call_special(frame, known(frame, found, f"{value.kind.__name__}.{name}"), "__set__", value, new)
        else:
            refuse("ATTRIBUTE", f"{value.kind.__name__}.{name} is a descriptor written in C")
    elif name == "__class__":
        refuse("SIDE_EFFECT", "__class__ is assigned")
    elif isinstance(found, types.MemberDescriptorType) and not found.__objclass__.__flags__ & HEAP_TYPE:
        refuse("ATTRIBUTE", f"{value.kind.__name__}.{name} is a member of a class written in C")
    elif not isinstance(found, types.MemberDescriptorType) and not value.kind.__dictoffset__:
        refuse("WOULD_RAISE", f"a {value.kind.__name__} has no attribute {name} and no __dict__")
    else:
        put(frame, value, name, new)


def _fits_exception(name: str, new: Value) -> bool:
    none = isinstance(new, Const) and new.value is None
    if name in ("__cause__", "__context__"):
        return none or is_exception(new)
    return name not in ("args", "__traceback__", "__dict__") or (name == "__traceback__" and (none or isinstance(new, Traceback)))


def put(frame: Frame, value: Instance, name: str, new: Value) -> None:
    """Set an attribute of the instance itself."""
    entries = getattr(value, "entries", None)
    if entries is not None and _in_namespace(value.kind, name):
        call(frame, Method("__setitem__", entries), [Const(name), new], {})
        return
    if value.fields.get(name) is DELETED:
        del value.fields[name]
        value.set_again.add(name)
    value.fields[name] = new
    if value.source is not None:
        frame.ex.writes(value)
        frame.ex.effect(_setter_in_c(value.kind), value, Const(name), new)  # hooks in Python were followed already


def _setter_in_c(kind: type) -> Any:
    """What sets attributes of instances below all hooks: `object.__setattr__`, but for classes of C's such as thread-locals."""
    methods = (base.__dict__.get("__setattr__") for base in kind.__mro__)
    return next(m for m in methods if isinstance(m, types.WrapperDescriptorType))


def delete_from_instance(frame: Frame, value: Instance, name: str) -> None:
    """``del value.name``."""
    guard_type(frame, value)
    hook = in_mro(value.kind, "__delattr__")
    if isinstance(hook, types.FunctionType):
        call(frame, bound(frame, value, hook, "__delattr__"), [Const(name)], {})
    else:
        generic_delete(frame, value, name)


def generic_delete(frame: Frame, value: Instance, name: str) -> None:
    found = in_mro(value.kind, name)
    if isinstance(found, property):
        if found.fdel is None:
            throw(AttributeError(f"property {name!r} of {value.kind.__qualname__!r} object has no deleter"))
        call(frame, known(frame, found.fdel, f"{value.kind.__name__}.{name}"), [value], {})
        return
    if found is not MISSING and is_data_descriptor(found) and not isinstance(found, types.MemberDescriptorType):
        refuse("ATTRIBUTE", f"{value.kind.__name__}.{name} is a descriptor")
    if own_attribute(frame, value, name, in_slot=isinstance(found, types.MemberDescriptorType)) is None:
        throw(_no_attribute(value.kind, name))
    entries = getattr(value, "entries", None)
    if entries is not None and _in_namespace(value.kind, name):
        call(frame, Method("__delitem__", entries), [Const(name)], {})
    elif value.source is None:
        del value.fields[name]
    else:
        value.fields[name] = DELETED
        frame.ex.writes(value)
        frame.ex.effect(object.__delattr__, value, Const(name))
