"""Truth and identity of values."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.executor import Frame, refuse
from dynagraph.frontend.numpy_door import Unsupported, operator_door
from dynagraph.frontend.values import Array, Cell, Const, Dict, Function, Iter, Method, Object, Sequence
from dynagraph.ir.shapes import SymInt

PURE_TYPES = (bool, int, float, complex, str, bytes, type(None), tuple, range, SymInt, frozenset, type(Ellipsis))


def is_none(value: Any) -> bool:
    return isinstance(value, Const) and value.value is None


def truth(frame: Frame, value: Any) -> bool:
    """``bool(value)``; a branch on data stops the capture."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        if isinstance(value.value, (*PURE_TYPES, type)) or callable(value.value):
            return bool(value.value)
        refuse("UNSUPPORTED_VALUE", f"the truth of {value.value!r}")
    if isinstance(value, Array):
        try:
            frame.ex.call_door(operator_door("bool"), [value])
        except Unsupported as refusal:
            if refusal.reason != "DATA_DEPENDENT":
                raise
        refuse("ARRAY_BRANCH", "")
    if isinstance(value, Sequence):
        return bool(value.items)
    if isinstance(value, Dict):
        if value.object is not None and value.source is not None:
            frame.ex.guards.add("len", value.source, len(value.object), says=f" has {len(value.object)} entries")
            return bool(value.object)
        return bool(value.items)
    if isinstance(value, (Function, Method, Cell, Iter)):
        return True
    if isinstance(value, Object):
        kind = type(value.value)
        if not any("__bool__" in vars(k) or "__len__" in vars(k) for k in kind.__mro__):
            frame.ex.guards.add("type_version", value.source, kind, says=f" is an unchanged {kind.__name__}")
            return True
    return refuse("UNSUPPORTED_VALUE", "the truth of an object that defines it itself")


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
    if source is not None and other is not None:
        found = ex.objects[source] is ex.objects[other]
        ex.guards.relate("same" if found else "not_same", source, other, "is" if found else "is not")
        return found
    return False
