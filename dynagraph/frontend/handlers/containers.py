"""Building and taking apart tuples, lists, dicts, sets and slices."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.executor.exceptions import throw
from dynagraph.frontend.executor.executor import Frame, handler
from dynagraph.frontend.executor.wrapping import behind
from dynagraph.frontend.kinds.mappings import has_key, put_key
from dynagraph.frontend.kinds.methods import call_named_method, pairs_of
from dynagraph.frontend.kinds.slots import items_of, key_of, plain, type_of
from dynagraph.frontend.kinds.values import Const, Dict, Sequence, Set, Slice


@handler("BUILD_TUPLE")
def build_tuple(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(tuple, frame.popn(i.value)))


@handler("BUILD_LIST")
def build_list(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(list, frame.popn(i.value)))


@handler("BUILD_SET")
def build_set(frame: Frame, i: Instruction) -> None:
    made = Set(set, set())
    for item in frame.popn(i.value):
        made.items.add(key_of(frame, item))
    frame.push(made)


@handler("BUILD_MAP")
def build_map(frame: Frame, i: Instruction) -> None:
    parts = frame.popn(2 * i.value)
    frame.push(Dict({key_of(frame, k): v for k, v in zip(parts[::2], parts[1::2])}))


@handler("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, i: Instruction) -> None:
    keys = plain(frame, frame.pop())
    frame.push(Dict(dict(zip(keys, frame.popn(i.value)))))


@handler("BUILD_SLICE")
def build_slice(frame: Frame, i: Instruction) -> None:
    parts = frame.popn(i.value)
    frame.push(Slice((parts[0], parts[1], parts[2] if i.value == 3 else Const(None))))


# What is under construction may have been handed over at a break: it is changed as any list is.


def _under_construction(frame: Frame, i: Instruction) -> Any:
    return frame.ex.resolve(frame.stack[-i.value])


@handler("LIST_APPEND")
def list_append(frame: Frame, i: Instruction) -> None:
    item = frame.pop()
    call_named_method(frame, _under_construction(frame, i), "append", [item], {})


@handler("SET_ADD")
def set_add(frame: Frame, i: Instruction) -> None:
    item = frame.pop()
    key_of(frame, item)
    call_named_method(frame, _under_construction(frame, i), "add", [item], {})


@handler("MAP_ADD")
def map_add(frame: Frame, i: Instruction) -> None:
    value, key = frame.pop(), frame.pop()
    key_of(frame, key)
    put_key(frame, _under_construction(frame, i), key, value)


@handler("LIST_EXTEND")
def list_extend(frame: Frame, i: Instruction) -> None:
    more = frame.pop()
    call_named_method(frame, _under_construction(frame, i), "extend", [more], {})


@handler("SET_UPDATE")
def set_update(frame: Frame, i: Instruction) -> None:
    more = frame.pop()
    call_named_method(frame, _under_construction(frame, i), "update", [more], {})


@handler("DICT_UPDATE")
def dict_update(frame: Frame, i: Instruction) -> None:
    more = frame.pop()
    _check_mapping(frame, more)
    call_named_method(frame, _under_construction(frame, i), "update", [more], {})


@handler("DICT_MERGE")
def dict_merge(frame: Frame, i: Instruction) -> None:
    more = frame.pop()
    _check_mapping(frame, more)
    into = _under_construction(frame, i)
    for key, value in pairs_of(frame, more):
        if has_key(frame, into, plain(frame, key)):
            throw(TypeError(f"got multiple values for keyword argument {plain(frame, key)!r}"))
        put_key(frame, into, key, value)


def _check_mapping(frame: Frame, value: Any) -> None:
    if not isinstance(behind(frame.ex, value), Dict):
        throw(TypeError(f"{type_of(frame, value).__name__!r} object is not a mapping"))


@handler("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(tuple, frame.pop().items))


@handler("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, i: Instruction) -> None:
    items = _items_to_unpack(frame)
    if len(items) < i.value:
        throw(ValueError(f"not enough values to unpack (expected {i.value}, got {len(items)})"))
    if len(items) > i.value:
        throw(ValueError(f"too many values to unpack (expected {i.value})"))
    _push_reversed(frame, items)


def _items_to_unpack(frame: Frame) -> list[Any]:
    value = frame.pop()
    if isinstance(value, Const) and not hasattr(type(value.value), "__iter__"):
        throw(TypeError(f"cannot unpack non-iterable {type_of(frame, value).__name__} object"))
    return items_of(frame, value)


@handler("UNPACK_EX")
def unpack_ex(frame: Frame, i: Instruction) -> None:
    before, after = i.value & 0xFF, i.value >> 8
    items = _items_to_unpack(frame)
    if len(items) < before + after:
        throw(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(items)})"))
    middle = Sequence(list, items[before : len(items) - after])
    _push_reversed(frame, [*items[:before], middle, *items[len(items) - after :]])


def _push_reversed(frame: Frame, items: list[Any]) -> None:
    for item in reversed(items):
        frame.push(item)
