"""Slots of instances: their special methods decide operators, truth, iteration and calls."""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Iterable
from typing import Any

from dynagraph.frontend.bytecode.decode import decode
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.recipes import Fills, Recipe, Recipes, new_exception, set_entry, set_traceback
from dynagraph.frontend.executor.wrapping import base_of_value, behind, held_value
from dynagraph.frontend.guards.guards import Dead, HasType, Is
from dynagraph.frontend.guards.sources import Attribute, Referent, Returned
from dynagraph.frontend.kinds.classes import load_from_super
from dynagraph.frontend.kinds.iterators import found_in, iterate_object
from dynagraph.frontend.kinds.lookup import (
    MISSING,
    bound,
    call_special,
    delete_from_instance,
    guard_type,
    in_mro,
    is_plain_value,
    load_from_instance,
    special,
    store_in_instance,
)
from dynagraph.frontend.kinds.slots import (
    PURE,
    Slots,
    binary,
    has_method,
    is_not_implemented,
    known_number,
    own_method,
    plain,
    same,
    slots,
    slots_of,
    truth,
    type_of,
)
from dynagraph.frontend.kinds.values import (
    DELETED,
    Const,
    Dict,
    Iterator,
    Method,
    Object,
    ObjectKey,
    Sequence,
    Super,
    Value,
    WeakReference,
    source_of,
)
from dynagraph.frontend.library.registry import instances, meaning, meaning_of
from dynagraph.python_operators import BINARY, COMPARISONS


@slots(Object)
class ObjectSlots(Slots):
    """Of the caller's objects, and of instances made by the captured code: what their classes say."""

    def type_of(self, frame: Frame, value: Object) -> type:
        if value.source is not None and not isinstance(value.source, Returned):
            frame.ex.guards.require(HasType(value.source, value.kind))
        return value.kind

    def truth(self, frame: Frame, value: Object) -> bool:
        return truth_of_object(frame, value)

    def to_python(self, frame: Frame, value: Object) -> Any:
        if value.source is not None and is_immutable(value):
            frame.ex.guards.require(Is(value.source, value.value, called=repr(value.value)))
            return value.value
        held = held_value(frame.ex, value)
        if held is not None and is_plain_value(value):
            return held.value
        return super().to_python(frame, value)

    def key(self, frame: Frame, value: Object) -> Any:
        if _is_by_identity(value.kind) and not isinstance(value.source, Returned):
            return _identity_key(frame, value)
        if isinstance(in_mro(value.kind, "__hash__"), types.FunctionType) and not is_immutable(value):
            return _object_key(frame, value)
        if value.value is None and value.source is None and in_mro(value.kind, "__hash__") is object.__hash__:
            return _identity_key(frame, value)
        held = held_value(frame.ex, value)
        return super().key(frame, value) if held is None else _value_key(frame, value, held.value)

    def rank(self, value: Object, symbol: str, reflected: bool) -> int:
        return RANK_OF_OBJECTS

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return binary_protocol(frame, symbol, left, right)

    def unary(self, frame: Frame, name: str, value: Object) -> Value:
        if special(frame, value, f"__{name}__") is None:
            return super().unary(frame, name, value)
        return call_special(frame, value, f"__{name}__")

    def contains(self, frame: Frame, value: Object, item: Any) -> bool:
        return found_in(frame, value, item)

    def item(self, frame: Frame, value: Object, key: Any) -> Value:
        if hasattr(value, "remade") and in_mro(value.kind, "__getitem__") is not MISSING:
            return call_special(frame, value, "__getitem__", key)
        return super().item(frame, value, key)

    def iterate(self, frame: Frame, value: Object) -> Iterator:
        return iterate_object(frame, value)

    def attribute(self, frame: Frame, value: Object, name: str) -> Value:
        if value.kind is types.MappingProxyType and has_method(value, name):
            mapping = behind(frame.ex, value)
            return Method(name, mapping) if isinstance(mapping, Dict) else refuse("ATTRIBUTE", f".{name} of a mappingproxy")
        return load_from_instance(frame, value, name)

    def set_attribute(self, frame: Frame, value: Object, name: str, new: Any) -> None:
        store_in_instance(frame, value, name, new)

    def delete_attribute(self, frame: Frame, value: Object, name: str) -> None:
        delete_from_instance(frame, value, name)

    def parts(self, value: Object) -> Iterable[Any]:
        return [*value.fields.values(), *(value.entries.items.values() if value.entries is not None else ())]

    def is_filled_later(self, value: Object) -> bool:
        return True

    def empty(self, results: Recipes, value: Object) -> tuple[Recipe, Fills]:
        if hasattr(value, "remade"):
            return results.remade(value), []
        cls = value.kind
        fields = {k: v for k, v in value.fields.items() if v is not DELETED}
        if issubclass(cls, BaseException):
            made = ("make", new_exception, (("const", cls), results.build(fields.pop("args"))))
            fills: Fills = [(set_traceback, (Const(tuple(value.raised_at)),))] if value.raised_at else []
            return made, fills + [(BaseException.__setattr__, (Const(k), v)) for k, v in fields.items()]
        fills = [(object.__setattr__, (Const(k), v)) for k, v in fields.items()]
        if value.entries is not None:
            fills += [(set_entry, (Const(k), v)) for k, v in value.entries.items.items()]
        return ("make", object.__new__, (("const", cls),)), fills


@slots(Super)
class SuperSlots(Slots):
    def attribute(self, frame: Frame, value: Super, name: str) -> Value:
        return load_from_super(frame, value, name)

    def recipe(self, results: Recipes, value: Super) -> Recipe:
        return ("make", super, (("const", value.cls), results.build(value.owner)))


def truth_of_object(frame: Frame, value: Any) -> bool:
    if special(frame, value, "__bool__") is not None:
        result = call_special(frame, value, "__bool__")
        if not isinstance(result, Const) or type(result.value) is not bool:
            refuse("UNSUPPORTED_VALUE", "__bool__ gave no bool")
        return result.value
    if special(frame, value, "__len__") is not None:
        result = call_special(frame, value, "__len__")
        if not isinstance(result, Const):
            refuse("UNSUPPORTED_VALUE", "__len__ gave no int")
        return bool(result.value)
    return True


def is_immutable(value: Object) -> bool:
    """Whether an object is as good as a constant: members of enums, and hash by identity."""
    return in_mro(value.kind, "__hash__") is object.__hash__ or hasattr(value.kind, "__members__")


# -- operators of classes -----------------------------------------------------------------------------------------------------
RANK_OF_OBJECTS = 6


def redefines_operators(value: Any) -> bool:
    """Whether the class of a container defines operators in Python."""
    kind = getattr(value, "kind", None)
    if kind is None or kind.__module__ == "builtins":
        return False
    return any(own_method(value, name) is not None for row in BINARY.values() for name in (row.method, row.reflected))


def binary_protocol(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """The protocol of binary operators: the left one's method, the right one's reflected one, a subclass's first."""
    name, reflected = BINARY[symbol].method, BINARY[symbol].reflected
    kinds = type_of(frame, left), type_of(frame, right)
    tries = [(left, name, right), (right, reflected, left)]
    if kinds[0] is kinds[1]:
        if symbol not in COMPARISONS:
            tries.pop()
    elif issubclass(kinds[1], kinds[0]) and in_mro(kinds[1], reflected) is not in_mro(kinds[0], reflected):
        tries.reverse()
    for owner, method, other in tries:
        result = _try_operator(frame, owner, method, other)
        if not is_not_implemented(result):
            return result
    if symbol in ("==", "!="):
        return Const(same(frame, left, right) is (symbol == "=="))
    names = [k.__name__ for k in kinds]
    if symbol in COMPARISONS:
        throw(TypeError(f"{symbol!r} not supported between instances of {names[0]!r} and {names[1]!r}"))
    shown = {"**": "** or pow()", "divmod": "divmod()"}.get(symbol, symbol)
    return throw(TypeError(f"unsupported operand type(s) for {shown}: {names[0]!r} and {names[1]!r}"))


COMPARISONS_OF_OBJECT = tuple(vars(object)[name] for name in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__"))


def _try_operator(frame: Frame, owner: Any, name: str, other: Any) -> Value:
    known = isinstance(owner, Const) and isinstance(owner.value, PURE)
    if known and isinstance(other, Object) and isinstance(other.value, enum.Enum):
        given = known_number(owner.value)
        method = getattr(type(given), name, None)
        return Const(NotImplemented) if method is None else frame.ex.constant(method(given, plain(frame, other)))
    if known and base_of_value(getattr(other, "kind", object)) is not None:
        given, right = known_number(owner.value), plain(frame, other)
        method = getattr(type(given), name, None)
        return Const(NotImplemented) if method is None else frame.ex.constant(method(given, right))
    if not isinstance(owner, (Object, Sequence, Dict)):
        return Const(NotImplemented)
    found = special(frame, owner, name)
    if name == "__ne__" and (found is None or found is object.__ne__):
        result = _try_operator(frame, owner, "__eq__", other)
        return result if is_not_implemented(result) else Const(not truth(frame, result))
    if found is None or found in COMPARISONS_OF_OBJECT:
        return Const(NotImplemented)
    if not isinstance(owner, Object) and not isinstance(found, type(_try_operator)):
        symbol = next(row.symbol for row in BINARY.values() if name in (row.method, row.reflected))
        if isinstance(other, (Sequence, Dict)):  # the built-in method does not ask for operators of the other's class
            other = slots_of(other).as_builtin(other)  # type: ignore[attr-defined]
        return binary(frame, symbol, slots_of(owner).as_builtin(owner), other)  # type: ignore[attr-defined]
    return call(frame, bound(frame, owner, found, name), [other], {})


# -- as keys ------------------------------------------------------------------------------------------------------------------


def _object_key(frame: Frame, value: Object) -> ObjectKey:
    """The hash is asked for once, as Python does; what is equal to the key may be asked more often, so nobody may see it."""
    hashed = known_number(plain(frame, call_special(frame, value, "__hash__")))
    equals = in_mro(value.kind, "__eq__")
    if not isinstance(hashed, int) or not isinstance(equals, types.FunctionType) or _writes(equals.__code__):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as a key")
    return ObjectKey(value, hashed, lambda key, other: _is_key(frame, key, other), frame.ex.steps)


def _is_by_identity(kind: type) -> bool:
    """Whether a class says that captured code may have its instances as keys without depending on which these are."""
    declaring = next((base for base in kind.__mro__ if "__dynagraph_by_identity__" in vars(base)), None)
    return declaring is not None and in_mro(kind, "__hash__") is in_mro(declaring, "__hash__")


def _identity_key(frame: Frame, value: Object) -> Any:
    """An object that is equal to itself only: of the caller's such objects those that are keys are known to be several."""
    if value.source is not None:
        guard_type(frame, value)
        if value not in frame.ex.keys:
            frame.ex.keys.append(value)
    return ObjectKey(value, id(value), lambda key, other: isinstance(other, ObjectKey) and other.value is key.value, frame.ex.steps)


def _value_key(frame: Frame, value: Object, held: Any) -> ObjectKey:
    if not is_plain_value(value):
        refuse("UNSUPPORTED_VALUE", f"a {value.kind.__name__} as a key")

    def equal(key: ObjectKey, other: Any) -> bool:
        if not isinstance(other, ObjectKey):
            return bool(held == other)
        right = held_value(frame.ex, other.value)
        return held == right.value if right is not None and other.of_value else _is_key(frame, other, key)

    return ObjectKey(value, hash(held), equal, frame.ex.steps, of_value=True)


def _writes(code: types.CodeType) -> bool:
    return any(i.op.startswith("STORE_") and i.op != "STORE_FAST" for i in decode(code).instructions)


def _is_key(frame: Frame, key: ObjectKey, other: Any) -> bool:
    right = other.value if isinstance(other, ObjectKey) else frame.ex.constant(other)
    if same(frame, key.value, right):
        return True
    before = len(frame.ex.effects)
    found = truth(frame, binary(frame, "==", key.value, right))
    if len(frame.ex.effects) != before:
        refuse("UNSUPPORTED_VALUE", f"a {key.value.kind.__name__} as a key, whose __eq__ is seen outside")
    return found


# -- calls --------------------------------------------------------------------------------------------------------------------


@meaning(instances(Object))
def call_object(frame: Frame, value: Object, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """An object with ``__call__``; a bound method, a partial."""
    if value.kind is types.MethodType:
        source = source_of(value)
        frame.ex.guards.require(HasType(source, value.kind))
        function = frame.ex.wrap(value.value.__func__, Attribute(source, "__func__"))
        owner = frame.ex.wrap(value.value.__self__, Attribute(source, "__self__"))
        return call(frame, function, [owner, *args], kwargs)
    of_kind = meaning_of(instances(value.kind))
    if of_kind is not None:
        return of_kind(frame, value, args, kwargs)
    found = special(frame, value, "__call__")
    if found is None:
        throw(TypeError(f"{value.kind.__name__!r} object is not callable"))
    return call(frame, bound(frame, value, found, "__call__"), args, kwargs)


@meaning(instances(weakref.ReferenceType))
def dereference(frame: Frame, value: Object, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """A call of a weak reference: what it refers to, or None."""
    if value.source is None or args or kwargs:
        refuse("UNSUPPORTED_FUNCTION", "a call of a weak reference")
    frame.ex.guards.require(HasType(value.source, value.kind))
    found = value.value()
    if found is not None:
        return frame.ex.wrap(found, Referent(value.source))
    frame.ex.guards.require(Dead(value.source))
    return Const(None)


@meaning(weakref.ref)
def make_reference(frame: Frame, referent: Any) -> Value:
    """A weak reference to an instance; what it refers to is taken to live as long as the captured code runs."""
    referent = frame.ex.resolve(referent)
    if not isinstance(referent, (Object, Dict)) or not type_of(frame, referent).__weakrefoffset__:
        refuse("UNSUPPORTED_FUNCTION", "a weak reference to this kind of value")
    return WeakReference(referent)


@meaning(instances(WeakReference))
def call_reference(frame: Frame, value: WeakReference, args: list[Any], kwargs: dict[str, Any]) -> Value:
    if args or kwargs:
        refuse("UNSUPPORTED_FUNCTION", "a call of a weak reference with arguments")
    return frame.ex.resolve(value.referent)


@meaning(instances(Super))
def call_super(frame: Frame, value: Super, args: list[Any], kwargs: dict[str, Any]) -> Value:
    throw(TypeError("'super' object is not callable"))
