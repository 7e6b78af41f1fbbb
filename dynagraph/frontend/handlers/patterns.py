"""Structural pattern matching."""

from __future__ import annotations

import collections
from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.executor.exceptions import throw
from dynagraph.frontend.executor.executor import Frame, handler, refuse
from dynagraph.frontend.kinds.lookup import MISSING, in_mro
from dynagraph.frontend.kinds.mappings import has_key
from dynagraph.frontend.kinds.slots import attribute_or, items_of, length, plain, type_of
from dynagraph.frontend.kinds.values import NULL, Const, Dict, Sequence

SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
TPFLAGS_SEQUENCE, TPFLAGS_MAPPING = 1 << 5, 1 << 6


def _matches(frame: Frame, value: Any, flag: int) -> bool:
    return bool(type_of(frame, value).__flags__ & flag)


@handler("MATCH_SEQUENCE")
def match_sequence(frame: Frame, i: Instruction) -> None:
    frame.push(Const(_matches(frame, frame.stack[-1], TPFLAGS_SEQUENCE)))


@handler("MATCH_MAPPING")
def match_mapping(frame: Frame, i: Instruction) -> None:
    frame.push(Const(_matches(frame, frame.stack[-1], TPFLAGS_MAPPING)))


@handler("GET_LEN")
def get_len(frame: Frame, i: Instruction) -> None:
    value = frame.ex.resolve(frame.stack[-1])
    if isinstance(value, Const) and isinstance(value.value, range):
        frame.push(Const(len(value.value)))
    elif isinstance(value, (Sequence, Dict)):
        frame.push(Const(length(frame.ex, value)))
    else:
        refuse("UNSUPPORTED_VALUE", f"a pattern on a {type_of(frame, value).__name__}")


@handler("MATCH_KEYS")
def match_keys(frame: Frame, i: Instruction) -> None:
    keys, subject = frame.stack[-1], frame.ex.resolve(frame.stack[-2])
    if not isinstance(subject, Dict) or subject.kind not in (dict, collections.OrderedDict):
        refuse("UNSUPPORTED_VALUE", "a mapping pattern on something that is not a dict")
    seen: dict[Any, Any] = {}
    for name in [plain(frame, k) for k in items_of(frame, keys)]:
        if name in seen:
            throw(ValueError(f"mapping pattern checks duplicate key ({name!r})"))
        if not has_key(frame, subject, name):
            frame.push(Const(None))
            return
        seen[name] = subject.items[name]
    frame.push(Sequence(tuple, list(seen.values())))


@handler("MATCH_CLASS")
def match_class(frame: Frame, i: Instruction) -> None:
    names, cls, subject = plain(frame, frame.pop()), plain(frame, frame.pop()), frame.ex.resolve(frame.pop())
    if not isinstance(cls, type) or type(cls) is not type:
        refuse("UNSUPPORTED_VALUE", f"a class pattern of {cls!r}")
    if not issubclass(type_of(frame, subject), cls):
        frame.push(Const(None))
        return
    found = _attributes(frame, subject, cls, [*_positional(cls, i.value), *names])
    frame.push(Const(None) if found is None else Sequence(tuple, found))


def _positional(cls: type, count: int) -> list[str | None]:
    if count == 1 and cls in SELF_MATCHING:
        return [None]
    names = in_mro(cls, "__match_args__")
    if names is not MISSING and count and not isinstance(names, tuple):
        throw(TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(names).__name__})"))
    names = () if names is MISSING else names
    if len(names) < count:
        plural = "" if len(names) == 1 else "s"
        throw(TypeError(f"{cls.__name__}() accepts {len(names)} positional sub-pattern{plural} ({count} given)"))
    return [(name if name is not None else _NO_NAME) for name in names[:count]]


_NO_NAME: Any = ()  # in the place of a None in __match_args__


def _attributes(frame: Frame, subject: Any, cls: type, names: list[Any]) -> list[Any] | None:
    found: list[Any] = []
    for k, name in enumerate(names):
        if name is not None and not isinstance(name, str):
            given = type(None if name is _NO_NAME else name).__name__
            throw(TypeError(f"__match_args__ elements must be strings (got {given})"))
        if name is not None and name in names[:k]:
            throw(TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}"))
        value = subject if name is None else attribute_or(frame, subject, name, NULL)
        if value is NULL:
            return None
        found.append(value)
    return found
