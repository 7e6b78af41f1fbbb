"""copy.copy and copy.deepcopy in captured code."""

from __future__ import annotations

import collections
import copy
import copyreg
import enum
import types
from typing import Any

from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.guards import HEAP_TYPE
from dynagraph.frontend.kinds.lookup import MISSING, call_special, entries_of_object, guard_type, in_mro, own_attribute, special
from dynagraph.frontend.kinds.mappings import entries_of
from dynagraph.frontend.kinds.set_methods import bases_of
from dynagraph.frontend.kinds.slots import attribute_or, items_of
from dynagraph.frontend.kinds.values import (
    DELETED,
    Array,
    Const,
    Dict,
    Function,
    Method,
    Number,
    Object,
    Opaque,
    Sequence,
    Set,
    Value,
)
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir.shapes import SymInt

ATOMIC = (int, float, complex, str, bytes, type(None), bool, range, SymInt, type, types.BuiltinFunctionType, type(Ellipsis))
COPIED = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter)


def _is_atomic(value: Any) -> bool:
    """Whether a copy of the object is the object itself."""
    if isinstance(value, Const):
        return isinstance(value.value, ATOMIC)
    return isinstance(value, (Function, Number)) or (isinstance(value, Object) and isinstance(value.value, enum.Enum))


@meaning(copy.copy)
def _copy(frame: Frame, value: Any) -> Value:
    value = frame.ex.resolve(value)
    if _is_atomic(value) or (isinstance(value, (Sequence, Set)) and value.kind in (tuple, frozenset)):
        return value
    if isinstance(value, Array) or (isinstance(value, (Sequence, Dict, Set)) and value.kind in COPIED):
        return call(frame, Method("copy", value), [], {})
    if isinstance(value, Sequence) and hasattr(value.kind, "_fields") and _reduces_plainly(value.kind):
        return Sequence(value.kind, list(value.items))
    if isinstance(value, Object):
        if special(frame, value, "__copy__") is not None:
            return call_special(frame, value, "__copy__")
        return Object(value.kind, fields=_state(frame, value))
    return refuse("UNSUPPORTED_FUNCTION", "copy.copy of this kind of object")


def _reduces_plainly(kind: type) -> bool:
    """Whether a copy is made as classes that say nothing about it have it made."""
    unset = {"__setstate__", "__getnewargs_ex__", "__getnewargs__"}
    if issubclass(kind, tuple):
        unset = {"__setstate__", "__getnewargs_ex__", "__copy__", "__deepcopy__"}
    as_object = all(in_mro(kind, n) is vars(object).get(n, MISSING) for n in ("__reduce__", "__reduce_ex__", "__getstate__"))
    return as_object and all(in_mro(kind, n) is MISSING for n in unset) and kind not in copyreg.dispatch_table


def _state(frame: Frame, value: Object) -> dict[str, Any]:
    """The attributes that a copy of an object is given."""
    kind = value.kind
    guard_type(frame, value)
    made_by_object = in_mro(kind, "__new__") is object.__new__ and kind.__flags__ & HEAP_TYPE
    slots = [n for n in copyreg._slotnames(kind) if n != "__weakref__"]  # type: ignore[attr-defined]
    hooked = slots and in_mro(kind, "__setattr__") is not object.__setattr__
    if not made_by_object or hooked or not _reduces_plainly(kind):
        refuse("UNSUPPORTED_FUNCTION", f"a copy of a {kind.__name__}")
    if value.source is None and value.entries is None:
        return {k: v for k, v in value.fields.items() if v is not DELETED}
    fields = dict(entries_of(frame, entries_of_object(frame, value))) if kind.__dictoffset__ else {}
    for name in slots:
        found = own_attribute(frame, value, name, in_slot=True)
        if found is not None:
            fields[name] = found
    return fields


class Memo(Opaque):
    """The memo of a deepcopy that is under way, as a ``__deepcopy__`` is given it."""

    def __init__(self) -> None:
        super().__init__("the memo of copy.deepcopy")
        self.done: dict[int, Value] = {}
        self.kept: list[Value] = []  # so that no other value has one's id


@meaning(copy.deepcopy)
def _deepcopy(frame: Frame, value: Any, memo: Any = Const(None)) -> Value:
    memo = frame.ex.resolve(memo)
    if isinstance(memo, Const) and memo.value is None:
        memo = Memo()
    if not isinstance(memo, Memo):
        refuse("UNSUPPORTED_ARGUMENT", "copy.deepcopy with a memo")
    return _deep(frame, value, memo)


def _deep(frame: Frame, value: Any, memo: Memo) -> Value:
    value = frame.ex.resolve(value)
    found = memo.done.get(id(value))
    if found is None and not _is_atomic(value):
        found = _deep_copied(frame, value, memo)
        memo.done[id(value)] = found
        memo.kept.append(value)
    return value if found is None else found


def _deep_copied(frame: Frame, value: Any, memo: Memo) -> Value:
    if isinstance(value, Array):
        return value if value.is_scalar else call(frame, Method("copy", value), [], {})
    if isinstance(value, Sequence):
        return _deep_sequence(frame, value, memo)
    if isinstance(value, Dict) and value.kind in COPIED:
        made = memo.done[id(value)] = Dict({}, kind=value.kind, factory=value.factory)
        made.items.update({k: _deep(frame, v, memo) for k, v in list(entries_of(frame, value).items())})
        return made
    if isinstance(value, Set):
        return Set(value.kind, value.kind(value.items), bases=bases_of(frame, value))
    if isinstance(value, Method) and isinstance(value.function, Function):
        return Method(value.function, _deep(frame, value.owner, memo))
    if isinstance(value, Object):
        copier = attribute_or(frame, value, "__deepcopy__", None)
        if copier is not None:
            return frame.ex.resolve(call(frame, copier, [memo], {}))
        state = _state(frame, value)
        new = memo.done[id(value)] = Object(value.kind)
        new.fields.update({k: _deep(frame, v, memo) for k, v in state.items()})
        return new
    return refuse("UNSUPPORTED_FUNCTION", "copy.deepcopy of this kind of object")


def _deep_sequence(frame: Frame, value: Sequence, memo: Memo) -> Value:
    named = hasattr(value.kind, "_fields") and _reduces_plainly(value.kind)
    if value.kind not in (list, tuple, collections.deque) and not named:
        refuse("UNSUPPORTED_FUNCTION", f"copy.deepcopy of a {value.kind.__name__}")
    made = Sequence(value.kind, [], maxlen=value.maxlen)
    if not issubclass(value.kind, tuple):
        memo.done[id(value)] = made
    items = items_of(frame, value)
    made.items += [_deep(frame, item, memo) for item in items]
    if id(value) in memo.done:
        return memo.done[id(value)]  # a tuple that is reached from itself
    if value.kind is tuple and all(a is b for a, b in zip(made.items, items)):
        return value
    return made
