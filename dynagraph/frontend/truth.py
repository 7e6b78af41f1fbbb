"""Truth and identity of values, and their types."""

from __future__ import annotations

import collections
import types
from typing import Any

import numpy as np

from dynagraph.frontend.exceptions import refuse
from dynagraph.frontend.executor import Executor, Frame, Generator
from dynagraph.frontend.liveness import reachable
from dynagraph.frontend.numpy_door import Unsupported, operator_door
from dynagraph.frontend.objects import call_special, special
from dynagraph.frontend.program import CONDITIONAL, Program
from dynagraph.frontend.source import Returned
from dynagraph.frontend.values import (
    Array,
    Cell,
    Const,
    Dict,
    DictView,
    Function,
    Getter,
    Identity,
    Iterator,
    Method,
    Number,
    Object,
    Partial,
    Sequence,
    Set,
    Slice,
    source_of,
)
from dynagraph.frontend.wrapping import complete, guard_length
from dynagraph.ir.shapes import SymInt

PURE_TYPES = (bool, int, float, complex, str, bytes, type(None), tuple, range, SymInt, frozenset, type(Ellipsis))


def is_none(frame: Frame, value: Any) -> bool:
    return same(frame, value, Const(None))


def truth(frame: Frame, value: Any) -> bool:
    """``bool(value)``; a branch on data stops the capture."""
    value = frame.ex.resolve(value)
    if isinstance(value, Const):
        if isinstance(value.value, (*PURE_TYPES, type, types.ModuleType, np.dtype)) or callable(value.value):
            return bool(value.value)
        refuse("UNSUPPORTED_VALUE", f"the truth of {value.value!r}")
    if isinstance(value, Array):
        return _of_array(frame, value)
    if isinstance(value, DictView):
        return length(frame.ex, value.owner) > 0
    if isinstance(value, (Sequence, Dict, Set)) and not _overridden(value.kind):
        return length(frame.ex, value) > 0
    if isinstance(value, (Function, Method, Cell, Iterator, Partial, Getter, Slice)):
        return True
    if isinstance(value, (Object, Sequence, Dict)):
        return _of_object(frame, value)
    return refuse("UNSUPPORTED_VALUE", "the truth of an object that defines it itself")


def _of_array(frame: Frame, value: Array) -> bool:
    known = frame.ex.known(value)
    if known is not None and known.size == 1:
        return bool(known)
    try:
        frame.ex.call_door(operator_door("bool"), [value])
    except Unsupported as refusal:
        if refusal.reason != "DATA_DEPENDENT":
            raise
    return refuse("ARRAY_LOOP" if _leaves_loop(frame.program, frame.ip - 1) else "ARRAY_BRANCH")


def _leaves_loop(program: Program, index: int) -> bool:
    """Whether an instruction is, or makes the truth for, a branch of which one arm comes back to it, and the other does not."""
    while program.instructions[index].op in ("TO_BOOL", "NOP"):
        index += 1
    branch = program.instructions[index]
    if branch.op not in CONDITIONAL:
        return False
    # a `while` asks at its beginning and again at its end: two instructions, which stand at one place in the source
    same = (k for k, i in enumerate(program.instructions) if i.op in CONDITIONAL and i.positions == branch.positions)
    twins = {index} if branch.positions is None else set(same)
    comes_back = [not twins.isdisjoint(reachable(program, arm)) for arm in (index + 1, branch.value)]
    return comes_back[0] != comes_back[1]


def _overridden(kind: type) -> bool:
    of_python = [vars(k) for k in kind.__mro__ if k.__module__ not in ("builtins", "collections")]
    return any("__bool__" in names or "__len__" in names for names in of_python)


def _of_object(frame: Frame, value: Any) -> bool:
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


def length(ex: Executor, value: Any) -> int:
    """``len`` of a container."""
    if isinstance(value, Sequence):
        if not value.sized:
            guard_length(ex, value)
        return len(value.items)
    if isinstance(value, Dict):
        if not value.complete and not value.items and value.source is not None and value.object is not None:
            ex.guards.add("len", value.source, len(value.object), says=f" has {len(value.object)} entries")
            return len(value.object)
        return len(complete(ex, value))
    return len(value.items)


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
        ex.guards.relate("same" if found else "not_same", source, other, "is" if found else "is not")
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
    frame.ex.guards.add("is" if found else "is_not", source, other.value, says=f" is {'' if found else 'not '}{kind.__name__}")
    return found


def type_of(frame: Frame, value: Any) -> type:
    """``type(value)``, guarded."""
    value = frame.ex.resolve(value)
    if isinstance(value, Array):
        return value.node.dtype.numpy.type if value.is_scalar else frame.ex.library.array_type
    if isinstance(value, Const):
        return int if isinstance(value.value, SymInt) else type(value.value)
    if isinstance(value, Number):
        return complex if value.node.dtype.is_complex else float
    if isinstance(value, Identity):
        return int
    if isinstance(value, (Sequence, Dict, Set)):
        return value.kind
    if isinstance(value, DictView):
        base = collections.OrderedDict if issubclass(value.owner.kind, collections.OrderedDict) else dict
        return type(getattr(base(), value.name)())
    if isinstance(value, Function):
        return types.FunctionType
    if isinstance(value, Object):
        if value.source is not None and not isinstance(value.source, Returned):
            frame.ex.guards.add("type", value.source, value.kind, says=f" is a {value.kind.__name__}")
        return value.kind
    if isinstance(value, Generator):
        return types.GeneratorType
    if isinstance(value, Method) and not isinstance(value.function, str):
        return types.MethodType
    if isinstance(value, Slice):
        return slice
    return refuse("UNSUPPORTED_VALUE", f"the type of a {type(value).__name__.lower()}")
