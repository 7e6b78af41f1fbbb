"""Slots: what each kind of value does, a class for each class of `values`, named as the slots of CPython's type objects.

The functions here ask them.  A class of the user's that defines such a method in Python is asked first, as Python does.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

from dynagraph.frontend.executor.exceptions import Raised, refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.recipes import CannotBuild, Fills, Recipe, Recipes
from dynagraph.frontend.executor.wrapping import behind
from dynagraph.frontend.guards.guards import Is, IsNot, NotSame, Same
from dynagraph.frontend.guards.sources import Returned
from dynagraph.frontend.kinds.lookup import call_special, in_mro
from dynagraph.frontend.kinds.values import NULL, Array, Const, Function, Iterator, Object, Sequence, Value, source_of
from dynagraph.ir.shapes import SymInt
from dynagraph.python_operators import BINARY

SLOTS: dict[type, "Slots"] = {}
S = TypeVar("S", bound="type[Slots]")
FEW_KEYS = 16  # to each of which an integer that changes is compared
PLAIN_KEYS = (int, float, str)
# whose operators and methods have no side effects
PURE = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, SymInt, range, slice)


def slots(*classes: type) -> Callable[[S], S]:
    """Register what values of these classes do."""

    def register(implementation: S) -> S:
        for cls in classes:
            SLOTS[cls] = implementation()
        return implementation

    return register


def slots_of(value: Any) -> Slots:
    cls = type(value)
    found = SLOTS.get(cls)
    if found is None:
        found = SLOTS[cls] = next(SLOTS[base] for base in cls.__mro__ if base in SLOTS)
    return found


def named(value: Any) -> str:
    return f"{value.kind.__name__} object" if isinstance(value, Object) else type(value).__name__.lower()


class Slots:
    """What values of one kind do.  A slot that a kind leaves out ends the capture."""

    def type_of(self, frame: Frame, value: Any) -> type:
        return refuse("UNSUPPORTED_VALUE", f"the type of a {named(value)}")

    def truth(self, frame: Frame, value: Any) -> bool:
        return refuse("UNSUPPORTED_VALUE", f"the truth of a {named(value)}")

    def length(self, ex: Executor, value: Any) -> int:
        return refuse("UNSUPPORTED_VALUE", f"the length of a {named(value)}")

    def to_python(self, frame: Frame, value: Any) -> Any:
        """The Python object that a value of constants stands for."""
        return refuse("UNSUPPORTED_VALUE", f"a {named(value)} where a number or string is needed")

    def key(self, frame: Frame, value: Any) -> Any:
        """A key of a dict or an element of a set, as the Python object that it is."""
        key = known_number(plain(frame, value))
        try:
            hash(key)
        except TypeError as error:
            throw(error)
        return key

    def shown(self, frame: Frame, value: Any, done: dict[int, Any]) -> Any:
        """A Python object that has the texts of the value; NotImplemented where that is its `to_python`."""
        return NotImplemented

    # -- operators ------------------------------------------------------------------------------------------------------------
    def rank(self, value: Any, symbol: str, reflected: bool) -> int:
        """Of two operands that whose kind has the higher rank answers; the left one among equals."""
        return 0

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        """``left symbol right``, or NotImplemented."""
        return NotImplemented

    def in_place(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        """``left symbol= right`` where that writes to the left one, or NotImplemented."""
        return NotImplemented

    def unary(self, frame: Frame, name: str, value: Any) -> Value:
        return refuse("UNSUPPORTED_VALUE", f"{name} of a {named(value)}")

    # -- items ----------------------------------------------------------------------------------------------------------------
    def contains(self, frame: Frame, value: Any, item: Any) -> bool:
        return refuse("UNSUPPORTED_VALUE", f"`in` of a {named(value)}")

    def item(self, frame: Frame, value: Any, key: Any) -> Value:
        return refuse("UNSUPPORTED_VALUE", f"a subscript of a {named(value)}")

    def set_item(self, frame: Frame, value: Any, key: Any, item: Any) -> None:
        refuse("SIDE_EFFECT", f"an item of a {named(value)} is set")

    def delete_item(self, frame: Frame, value: Any, key: Any) -> None:
        refuse("SIDE_EFFECT", f"an item of a {named(value)} is deleted")

    def iterate(self, frame: Frame, value: Any) -> Iterator:
        return refuse("UNSUPPORTED_VALUE", f"iteration over a {named(value)}")

    def items(self, frame: Frame, value: Any) -> list[Value]:
        """The items of an iterable, all of them."""
        iterator, items = iterate(frame, value), []
        while (item := iterator.step(frame)) is not NULL:
            items.append(item)
        return items

    # -- attributes -----------------------------------------------------------------------------------------------------------
    def attribute(self, frame: Frame, value: Any, name: str) -> Value:
        return refuse("ATTRIBUTE", f".{name} of a {named(value)}")

    def set_attribute(self, frame: Frame, value: Any, name: str, new: Any) -> None:
        refuse("SIDE_EFFECT", f"the attribute {name} of a {named(value)} is set")

    def delete_attribute(self, frame: Frame, value: Any, name: str) -> None:
        refuse("SIDE_EFFECT", f"the attribute {name} of a {named(value)} is deleted")

    # -- how a program gives it back ------------------------------------------------------------------------------------------
    def parts(self, value: Any) -> Iterable[Any]:
        """The values that one made here holds."""
        return ()

    def recipe(self, results: Recipes, value: Any) -> Recipe:
        raise CannotBuild(f"a {named(value)}")

    def is_filled_later(self, value: Any) -> bool:
        """Whether one is always made empty first, as others may refer to it."""
        return False

    def empty(self, results: Recipes, value: Any) -> tuple[Recipe, Fills]:
        """One that is made before what it holds, and what fills it."""
        raise CannotBuild("an object that holds itself")


SLOTS[object] = Slots()


def own_method(value: Any, name: str) -> types.FunctionType | None:
    """The method that the class of a value defines in Python, if it does."""
    kind = getattr(value, "kind", None)
    if kind is None or kind.__module__ == "builtins":
        return None
    found = in_mro(kind, name)
    return found if isinstance(found, types.FunctionType) else None


Table = dict[str, Callable[..., Value]]
METHODS: dict[type, Callable[[Any], Table]] = {}  # by class of value: its methods, followed by name (methods.py)


def methods_of(value: Any) -> dict[str, Any]:
    for cls in type(value).__mro__:
        if cls in METHODS:
            return METHODS[cls](value)
    return {}


def has_method(value: Any, name: str) -> bool:
    return name in methods_of(value)


def known_number(value: Any) -> Any:
    """A symbolic size as the number that it is now, guarded; anything else as it is."""
    return int(value) if isinstance(value, SymInt) else value


# -- of one value -------------------------------------------------------------------------------------------------------------


def type_of(frame: Frame, value: Any) -> type:
    """``type(value)``, guarded."""
    value = frame.ex.resolve(value)
    return slots_of(value).type_of(frame, value)


def truth(frame: Frame, value: Any) -> bool:
    """``bool(value)``; a branch on data stops the capture."""
    value = frame.ex.resolve(value)
    return slots_of(value).truth(frame, value)


def length(ex: Executor, value: Any) -> int:
    """``len`` of a container."""
    return slots_of(value).length(ex, value)


def plain(frame: Frame, value: Any) -> Any:
    """The Python object that a value of constants stands for."""
    value = frame.ex.resolve(value)
    return slots_of(value).to_python(frame, value)


def key_of(frame: Frame, value: Any) -> Any:
    """A key of a dict or an element of a set, as the Python object that it is."""
    value = frame.ex.resolve(value)
    return slots_of(value).key(frame, value)


def is_none_of(frame: Frame, value: Any, keys: Collection[Any]) -> bool:
    """Whether an integer that changes equals none of a few keys, guarded.  False: not so, or not known, or another value."""
    value = frame.ex.resolve(value)
    if not isinstance(value, Const) or not isinstance(value.value, SymInt) or len(keys) > FEW_KEYS:
        return False
    return all(type(key) in PLAIN_KEYS for key in keys) and not any(value.value == key for key in keys if type(key) is not str)


def unary(frame: Frame, name: str, value: Any) -> Value:
    value = frame.ex.resolve(value)
    return slots_of(value).unary(frame, name, value)


# -- identity -----------------------------------------------------------------------------------------------------------------


def is_none(frame: Frame, value: Any) -> bool:
    return same(frame, value, Const(None))


def same(frame: Frame, left: Any, right: Any) -> bool:
    """``left is right``."""
    ex = frame.ex
    left, right = ex.resolve(left), ex.resolve(right)
    if left is right:
        return True
    if isinstance(left, Const) and isinstance(right, Const):
        if isinstance(left.value, SymInt) or isinstance(right.value, SymInt):
            return False
        return left.value is right.value
    source, other = getattr(left, "source", None), getattr(right, "source", None)
    if source is not None and other is not None and source in ex.objects and other in ex.objects:
        found = ex.objects[source] is ex.objects[other]
        ex.guards.require((Same if found else NotSame)(source, other))
        return found
    for one, another in ((left, right), (right, left)):
        if isinstance(one, Object) and one.source is not None and not isinstance(one.source, Returned):
            return _is_object(frame, one, another)
    if isinstance(left, Array) and isinstance(right, Array) and left.is_scalar and right.is_scalar:
        refuse("DATA_DEPENDENT", "whether two NumPy scalars are one object")
    if isinstance(left, Function) and isinstance(right, Function) and left.object is not None:
        return left.object is right.object
    return False


def _is_object(frame: Frame, value: Object, other: Any) -> bool:
    """Whether one of the caller's objects is something that is none of theirs: a constant, or made by the captured code."""
    kind, source = type_of(frame, value), source_of(value)
    obj = frame.ex.objects[source]
    if not isinstance(other, Const) or type(other.value) is not kind:
        return False
    found = obj is other.value
    frame.ex.guards.require((Is if found else IsNot)(source, other.value, called=kind.__name__))
    return found


# -- operators ----------------------------------------------------------------------------------------------------------------


def binary(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol right``."""
    ex = frame.ex
    left, right = behind(ex, ex.resolve(left)), behind(ex, ex.resolve(right))
    ours, theirs = slots_of(left), slots_of(right)
    asked = theirs if theirs.rank(right, symbol, reflected=True) > ours.rank(left, symbol, reflected=False) else ours
    result = asked.binary(frame, symbol, left, right)
    if result is not NotImplemented:
        return result
    if symbol in ("==", "!="):
        return Const(same(frame, left, right) is (symbol == "=="))
    return refuse("UNSUPPORTED_VALUE", f"{symbol} of a {named(left)} and a {named(right)}")


def same_or_equal(frame: Frame, a: Any, b: Any) -> bool:
    a, b = frame.ex.resolve(a), frame.ex.resolve(b)
    return a is b or truth(frame, binary(frame, "==", a, b))


def in_place(frame: Frame, symbol: str, left: Any, right: Any) -> Value:
    """``left symbol= right``: on arrays a write, which is followed where nobody else sees the array's memory."""
    ex = frame.ex
    left, right = ex.resolve(left), ex.resolve(right)
    name = BINARY[symbol].in_place_method
    if own_method(left, name) is not None:
        result = call_special(frame, left, name, right)
        if not is_not_implemented(result):
            return result
    result = slots_of(left).in_place(frame, symbol, left, right)
    if result is not NotImplemented:
        return result
    try:
        return binary(frame, symbol, left, right)
    except Raised as raised:
        _say_in_place(frame, symbol, left, right, raised.value)
        raise


def is_not_implemented(value: Any) -> bool:
    return isinstance(value, Const) and value.value is NotImplemented


def _say_in_place(frame: Frame, symbol: str, left: Any, right: Any, error: Object) -> None:
    """Let an error of a binary operator name the operator that the code has."""
    args = error.fields.get("args")
    if error.kind is not TypeError or not isinstance(args, Sequence):
        return
    if len(args.items) != 1 or not isinstance(args.items[0], Const):
        return
    names = " and ".join(repr(type_of(frame, v).__name__) for v in (left, right))
    shown = "** or pow()" if symbol == "**" else symbol
    if args.items[0].value == f"unsupported operand type(s) for {shown}: {names}":
        args.items[0] = Const(f"unsupported operand type(s) for {symbol}=: {names}")


# -- items --------------------------------------------------------------------------------------------------------------------


def contains(frame: Frame, container: Any, item: Any) -> bool:
    """``item in container``."""
    ex = frame.ex
    container, item = behind(ex, ex.resolve(container)), ex.resolve(item)
    if own_method(container, "__contains__") is not None:
        return truth(frame, call_special(frame, container, "__contains__", item))
    return slots_of(container).contains(frame, container, item)


def subscript(frame: Frame, container: Any, key: Any) -> Value:
    """``container[key]``."""
    ex = frame.ex
    container, key = behind(ex, ex.resolve(container)), ex.resolve(key)
    if own_method(container, "__getitem__") is not None:
        return call_special(frame, container, "__getitem__", key)
    return slots_of(container).item(frame, container, key)


def store(frame: Frame, container: Any, key: Any, value: Any) -> None:
    """``container[key] = value``."""
    container, value = frame.ex.resolve(container), frame.ex.resolve(value)
    if own_method(container, "__setitem__") is not None:
        call_special(frame, container, "__setitem__", key, value)
    else:
        slots_of(container).set_item(frame, container, key, value)


def delete(frame: Frame, container: Any, key: Any) -> None:
    """``del container[key]``."""
    container = frame.ex.resolve(container)
    if own_method(container, "__delitem__") is not None:
        call_special(frame, container, "__delitem__", key)
    else:
        slots_of(container).delete_item(frame, container, key)


def iterate(frame: Frame, value: Any) -> Iterator:
    """``iter(value)``."""
    value = behind(frame.ex, frame.ex.resolve(value))
    made = slots_of(value).iterate(frame, value)
    made.born = made.born or frame.ex.steps
    return made


def items_of(frame: Frame, value: Any) -> list[Value]:
    """The items of an iterable, all of them."""
    value = behind(frame.ex, frame.ex.resolve(value))
    return slots_of(value).items(frame, value)


# -- attributes ---------------------------------------------------------------------------------------------------------------


def load_attribute(frame: Frame, value: Any, name: str) -> Value:
    """``value.name``."""
    value = frame.ex.resolve(value)
    try:
        return slots_of(value).attribute(frame, value, name)
    except Raised as raised:
        fields = raised.value.fields
        if issubclass(raised.value.kind, AttributeError) and not {"name", "obj"} & fields.keys() and raised.value.source is None:
            fields.update(name=Const(name), obj=value)  # as Python does for whatever raised it
        raise


def store_attribute(frame: Frame, value: Any, name: str, new: Value) -> None:
    """``value.name = new``."""
    value = frame.ex.resolve(value)
    slots_of(value).set_attribute(frame, value, name, new)


def delete_attribute(frame: Frame, value: Any, name: str) -> None:
    """``del value.name``."""
    value = frame.ex.resolve(value)
    slots_of(value).delete_attribute(frame, value, name)


def attribute_or(frame: Frame, value: Any, name: str, default: Any) -> Any:
    """``getattr(value, name, default)``."""
    try:
        return load_attribute(frame, value, name)
    except Raised as raised:
        if issubclass(raised.value.kind, AttributeError):
            return default
        raise
