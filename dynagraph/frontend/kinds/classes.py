"""Slots of classes: attributes, enums, ``super()``, new instances."""

from __future__ import annotations

import enum
import types
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import exception, refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.executor.wrapping import class_function
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE, make_volatile, volatile_names
from dynagraph.frontend.guards.sources import Known
from dynagraph.frontend.kinds.lookup import (
    MISSING,
    WRAPPERS,
    Given,
    binds,
    bound,
    call_special,
    guard_type,
    in_mro,
    is_data_descriptor,
    known,
    lookup,
    owner_in_mro,
)
from dynagraph.frontend.kinds.values import Const, Dict, Method, Object, Sequence, Super, Value


def is_enum_class(value: Any) -> bool:
    """Whether a value is an enum whose metaclass does what EnumType does."""
    if not isinstance(value, Const) or not isinstance(value.value, enum.EnumType):
        return False
    kind = type(value.value)
    return all(in_mro(kind, name) is vars(enum.EnumType)[name] for name in ("__iter__", "__len__", "__getitem__", "__contains__"))


def members(frame: Frame, cls: Any) -> dict[str, Value]:
    """The members of an enum by name, in order, without aliases."""
    frame.ex.guards.unmodified(cls)
    return {member.name: known(frame, member, f"{cls.__name__}.{member.name}") for member in cls}


def member_of(frame: Frame, cls: Any, name: Any) -> Value:
    """``cls[name]`` of an enum."""
    frame.ex.guards.unmodified(cls)
    if name not in cls.__members__:
        throw(KeyError(name))
    return known(frame, cls.__members__[name], f"{cls.__name__}.{name}")


# -- attributes of classes, of super() ------------------------------------------------------------------------------------------
IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of classes written in C that are made at run time
PLAIN_METACLASSES = ("ABCMeta", "EnumType", "EnumMeta", "_ProtocolMeta", "type")
READ_BY_NAME = (types.MemberDescriptorType, types.GetSetDescriptorType)
OF_TYPE = ("__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__base__")


def load_from_class(frame: Frame, value: Const, name: str) -> Value:
    """``cls.name``."""
    cls = value.value
    if "__getattribute__" in vars(type(cls)) and type(cls) is not type:
        refuse("ATTRIBUTE", f".{name} of class {cls.__name__}, whose metaclass computes attributes")
    frame.ex.guards.unmodified(cls)
    if isinstance(cls, enum.EnumType) and name in cls.__members__:
        return known(frame, cls.__members__[name], f"{cls.__name__}.{name}")
    found = lookup(frame, cls, name)
    of_metaclass = in_mro(type(cls), name)
    if of_metaclass is not MISSING and (found is MISSING or is_data_descriptor(of_metaclass)):
        return _of_metaclass(frame, value, of_metaclass, name)
    if found is MISSING:
        if in_mro(type(cls), "__getattr__") is not MISSING:
            refuse("ATTRIBUTE", f".{name} of class {cls.__name__}, whose metaclass computes attributes")
        throw(AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}"))
    return found.value if isinstance(found, Given) else unbound(frame, cls, cls, found, name)


def _of_metaclass(frame: Frame, value: Const, found: Any, name: str) -> Value:
    cls = value.value
    if name == "__dict__":
        return entries_of_class(frame, cls)
    if name in OF_TYPE and type(found) is not property:
        return frame.ex.constant(getattr(cls, name))
    if isinstance(found, types.FunctionType):
        return Method(known(frame, found, f"{type(cls).__name__}.{name}"), value)
    if isinstance(found, WRAPPERS) and not isinstance(found, types.BuiltinFunctionType):
        return Method(Const(found), value)
    if type(found) is property and isinstance(found.fget, types.FunctionType):
        frame.ex.guards.unmodified(type(cls))
        return call(frame, known(frame, found.fget, f"{type(cls).__name__}.{name}"), [value], {})
    return refuse("ATTRIBUTE", f".{name} of class {cls.__name__}")


def entries_of_class(frame: Frame, cls: type) -> Dict:
    """``cls.__dict__``."""
    frame.ex.guards.unmodified(cls)
    if any(id(cls) == owner for owner, _ in frame.ex.class_attributes) or volatile_names(cls):
        refuse("ATTRIBUTE", f"__dict__ of class {cls.__name__}, which is written to")
    items = {name: Lazy(frame.ex, found, Known(found, f"{cls.__name__}.{name}")) for name, found in vars(cls).items()}
    return Dict(items, kind=types.MappingProxyType, owner=Const(cls))


def unbound(frame: Frame, cls: type, owner: type, found: Any, name: str) -> Value:
    """What class lookup gives for the class itself."""
    if isinstance(found, _dispatch.CompiledFunction):
        found = found.__wrapped__
    if isinstance(found, types.FunctionType):
        return class_function(frame.ex, found, owner, name)
    if isinstance(found, staticmethod):
        return known(frame, found.__func__, f"{cls.__name__}.{name}")
    if isinstance(found, classmethod):
        return Method(known(frame, found.__func__, f"{cls.__name__}.{name}"), known(frame, cls, cls.__name__))
    if isinstance(found, types.ClassMethodDescriptorType):
        return Const(found.__get__(None, cls))  # dict.fromkeys; what `cls` has by this name is another where super() asks
    getter = in_mro(type(found), "__get__")
    if isinstance(getter, types.FunctionType):
        descriptor = known(frame, found, f"{cls.__name__}.{name}")
        return call_special(frame, descriptor, "__get__", Const(None), known(frame, cls, cls.__name__))
    return known(frame, found, f"{cls.__name__}.{name}")


def load_from_super(frame: Frame, value: Super, name: str) -> Value:
    """``super().name``: lookup after a class in the MRO."""
    owner = value.owner
    of_class = isinstance(owner, Const) and isinstance(owner.value, type)
    kind = owner.value if of_class else owner.kind
    if value.cls not in kind.__mro__:
        refuse("METACLASS" if of_class else "ATTRIBUTE", f"super() of {value.cls.__name__} for a {kind.__name__}")
    if of_class:
        frame.ex.guards.unmodified(kind)
    else:
        guard_type(frame, owner)
    mro = kind.__mro__
    for base in mro[mro.index(value.cls) + 1 :]:
        if (id(base), name) in frame.ex.class_attributes or name in volatile_names(base):
            refuse("ATTRIBUTE", f"super().{name}, which is written to")
        if name in base.__dict__:
            found = base.__dict__[name]
            return _bound_in(frame, owner, kind, base, found, name, of_class)
    return throw(AttributeError(f"'super' object has no attribute {name!r}"))


def _bound_in(frame: Frame, owner: Any, kind: type, base: type, found: Any, name: str, of_class: bool) -> Value:
    if isinstance(found, types.FunctionType):
        function = class_function(frame.ex, found, base, name)
        return function if of_class else Method(function, owner)
    if isinstance(found, classmethod):
        return Method(known(frame, found.__func__, f"{base.__name__}.{name}"), known(frame, kind, kind.__name__))
    if of_class:
        return unbound(frame, kind, base, found, name)
    if isinstance(found, types.BuiltinFunctionType):  # object.__new__
        return Const(found)
    if isinstance(found, READ_BY_NAME) and in_mro(kind, name) is not found:
        refuse("ATTRIBUTE", f"super().{name}, which {kind.__name__} has another one of")
    return bound(frame, owner, found, name)


def store_in_class(frame: Frame, cls: type, name: str, new: Value) -> None:
    """``cls.name = new``."""
    special_name = name.startswith("__") and name.endswith("__")
    plain_metaclass = in_mro(type(cls), "__setattr__") is type.__setattr__ and in_mro(type(cls), name) is MISSING
    before = in_mro(cls, name)
    slot = before is not MISSING and is_data_descriptor(before)
    may_be_set = cls.__flags__ & HEAP_TYPE and not cls.__flags__ & IMMUTABLE
    if special_name or slot or not plain_metaclass or not may_be_set or binds(new) or cls.__module__ == "builtins":
        refuse("SIDE_EFFECT", f"{cls.__name__}.{name} is set")
    make_volatile(cls, name)
    frame.ex.guards.unmodified(cls)
    frame.ex.class_attributes[id(cls), name] = new
    frame.ex.effect(type.__setattr__, Const(cls), Const(name), new)


# -- new instances ------------------------------------------------------------------------------------------------------------


def instantiate(frame: Frame, cls_value: Const, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """``cls(*args, **kwargs)`` of a class of the user's."""
    cls = cls_value.value
    if in_mro(type(cls), "__call__") is not type.__call__:
        refuse("METACLASS", cls.__name__)
    if getattr(cls, "__abstractmethods__", None):
        refuse("WOULD_RAISE", f"{cls.__name__} is abstract")
    frame.ex.guards.unmodified(cls)
    made = _new(frame, cls_value, args, kwargs)
    if isinstance(made, (Object, Sequence, Dict)) and issubclass(made.kind, cls):
        _init(frame, made, args, kwargs)
    return made


def _new(frame: Frame, cls_value: Const, args: list[Any], kwargs: dict[str, Any]) -> Value:
    cls = cls_value.value
    new = in_mro(cls, "__new__")
    if isinstance(new, staticmethod):
        new = new.__func__
    if isinstance(new, types.FunctionType):
        return call(frame, class_function(frame.ex, new, owner_in_mro(cls, "__new__"), "__new__"), [cls_value, *args], kwargs)
    return new_object(frame, new, cls, args)


def new_object(frame: Frame, new: Any, cls: type, args: list[Any]) -> Value:
    """``new(cls, *args)`` for the ``__new__`` of a base that is written in C."""
    if in_mro(cls, "__del__") is not MISSING:
        refuse("SIDE_EFFECT", f"a {cls.__name__} is finalised when nothing refers to it any more")
    if new is object.__new__:
        return Object(cls)
    if new is BaseException.__new__ or (issubclass(cls, BaseException) and getattr(new, "__self__", None) in cls.__mro__):
        return exception(cls, *args)
    if new is tuple.__new__:
        return Sequence(cls, list(_iterable_items(frame, args)))
    if new is list.__new__:
        return Sequence(cls, [])
    if new is dict.__new__:
        return Dict({}, kind=cls)
    return refuse("UNSUPPORTED_FUNCTION", f"making a {cls.__name__}")


def _iterable_items(frame: Frame, args: list[Any]) -> list[Any]:
    if not args:
        return []
    values = frame.ex.resolve(args[0])
    if not isinstance(values, Sequence):
        refuse("UNSUPPORTED_VALUE", "a tuple made of an iterator")
    return list(values.items)


def _init(frame: Frame, made: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    init = in_mro(made.kind, "__init__")
    if isinstance(init, types.FunctionType):
        result = call(frame, class_function(frame.ex, init, owner_in_mro(made.kind, "__init__"), "__init__"), [made, *args], kwargs)
        if not (isinstance(result, Const) and result.value is None):
            throw(TypeError(f"__init__() should return None, not {type(result).__name__!r}"))
    elif init is object.__init__:
        if (args or kwargs) and in_mro(made.kind, "__new__") is object.__new__:
            throw(TypeError(f"{made.kind.__name__}() takes no arguments"))
    elif isinstance(made, Object) and issubclass(made.kind, BaseException):
        if kwargs:
            refuse("UNSUPPORTED_ARGUMENT", f"keywords of {made.kind.__name__}")
        init_exception(made, args)
    elif isinstance(made, Sequence) and issubclass(made.kind, tuple):
        return
    else:
        call(frame, Method("__init__", made), args, kwargs)


def init_exception(made: Object, args: list[Any]) -> None:
    """What ``BaseException.__init__`` and its C overrides do."""
    made.fields["args"] = Sequence(tuple, list(args))
    if issubclass(made.kind, (ImportError, NameError, AttributeError)):
        for name in ("name", "obj", "path"):
            if isinstance(in_mro(made.kind, name), types.MemberDescriptorType):
                made.fields.pop(name, None)
    if issubclass(made.kind, StopIteration):
        made.fields["value"] = args[0] if args else Const(None)
    elif issubclass(made.kind, SystemExit):
        made.fields["code"] = args[0] if len(args) == 1 else Sequence(tuple, list(args)) if args else Const(None)
    elif issubclass(made.kind, ImportError):
        made.fields["msg"] = args[0] if len(args) == 1 else Const(None)
    elif issubclass(made.kind, (OSError, UnicodeError, SyntaxError, BaseExceptionGroup)):
        refuse("UNSUPPORTED_FUNCTION", f"making a {made.kind.__name__}")
