"""Building and taking apart tuples, lists, dicts and slices."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.decode import Instruction
from dynagraph.frontend.executor import Frame, handler, refuse
from dynagraph.frontend.iteration import items_of
from dynagraph.frontend.operations import entries_of, plain
from dynagraph.frontend.values import Const, Dict, Sequence, Slice


@handler("BUILD_TUPLE")
def build_tuple(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(tuple, frame.popn(i.value)))


@handler("BUILD_LIST")
def build_list(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(list, frame.popn(i.value)))


@handler("BUILD_MAP")
def build_map(frame: Frame, i: Instruction) -> None:
    parts = frame.popn(2 * i.value)
    frame.push(Dict({plain(frame, k): v for k, v in zip(parts[::2], parts[1::2])}))


@handler("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, i: Instruction) -> None:
    keys = plain(frame, frame.pop())
    frame.push(Dict(dict(zip(keys, frame.popn(i.value)))))


@handler("BUILD_SET")
def build_set(frame: Frame, i: Instruction) -> None:
    refuse("UNSUPPORTED_VALUE", "a set")


@handler("BUILD_SLICE")
def build_slice(frame: Frame, i: Instruction) -> None:
    parts = frame.popn(i.value)
    frame.push(Slice((parts[0], parts[1], parts[2] if i.value == 3 else Const(None))))


@handler("LIST_APPEND")
def list_append(frame: Frame, i: Instruction) -> None:
    item = frame.pop()
    frame.stack[-i.value].items.append(item)


@handler("MAP_ADD")
def map_add(frame: Frame, i: Instruction) -> None:
    value, key = frame.pop(), frame.pop()
    frame.stack[-i.value].items[plain(frame, key)] = value


@handler("LIST_EXTEND")
def list_extend(frame: Frame, i: Instruction) -> None:
    more = frame.pop()
    frame.stack[-i.value].items.extend(items_of(frame, more))


@handler("DICT_UPDATE")
def dict_update(frame: Frame, i: Instruction) -> None:
    more = frame.ex.resolve(frame.pop())
    if not isinstance(more, Dict):
        refuse("UNSUPPORTED_VALUE", "** of something that is no dict")
    frame.stack[-i.value].items.update(entries_of(frame, more))


@handler("LIST_TO_TUPLE")
def list_to_tuple(frame: Frame, i: Instruction) -> None:
    frame.push(Sequence(tuple, frame.pop().items))


@handler("CALL_INTRINSIC_1")
def call_intrinsic_1(frame: Frame, i: Instruction) -> None:
    if i.value == 6:  # INTRINSIC_LIST_TO_TUPLE
        list_to_tuple(frame, i)
    elif i.value == 5:  # INTRINSIC_UNARY_POSITIVE
        refuse("UNSUPPORTED_VALUE", "unary +; leave it out")
    else:
        refuse("UNKNOWN_OPCODE", f"CALL_INTRINSIC_1 {i.value}")


@handler("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, i: Instruction) -> None:
    _push_reversed(frame, _exactly(frame, items_of(frame, frame.pop()), i.value))


@handler("UNPACK_EX")
def unpack_ex(frame: Frame, i: Instruction) -> None:
    before, after = i.value & 0xFF, i.value >> 8
    items = items_of(frame, frame.pop())
    if len(items) < before + after:
        refuse("WOULD_RAISE", f"not enough values to unpack (expected at least {before + after}, got {len(items)})")
    middle = Sequence(list, items[before : len(items) - after])
    _push_reversed(frame, [*items[:before], middle, *items[len(items) - after :]])


def _exactly(frame: Frame, items: list[Any], count: int) -> list[Any]:
    if len(items) != count:
        refuse("WOULD_RAISE", f"{len(items)} values to unpack, expected {count}")
    return items


def _push_reversed(frame: Frame, items: list[Any]) -> None:
    for item in reversed(items):
        frame.push(item)
