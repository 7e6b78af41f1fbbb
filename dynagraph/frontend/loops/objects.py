"""How the state of an exit becomes Python objects: boxes, as the dispatcher's NativeLoop takes them."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.frontend.kinds.iterators import iterator_at
from dynagraph.frontend.kinds.values import Const
from dynagraph.frontend.loops import words
from dynagraph.frontend.loops.arrays import Pending, operands_of
from dynagraph.frontend.loops.builder import Frame, Way, n_given, variable
from dynagraph.frontend.loops.comprehensions import begun, made
from dynagraph.frontend.loops.displays import Display
from dynagraph.frontend.loops.exits import Rest, call_unwatched, names_of
from dynagraph.frontend.loops.fields import Place
from dynagraph.frontend.loops.left import KINDS, TAGS, Left, Seen
from dynagraph.frontend.loops.types import (
    NULL,
    Array,
    Bool,
    Bound,
    CellOf,
    Char,
    Complex,
    Composite,
    Comprehension,
    Deque,
    Enumerate,
    Float,
    Generator,
    Held,
    Int,
    Items,
    Known,
    List,
    ListItems,
    Nothing,
    Null,
    PythonList,
    Range,
    RangeObject,
    Rows,
    Scalar,
    Slice,
    Text,
    TextItems,
    Tuple,
    Type,
    Value,
    Zip,
    width_of,
)
from dynagraph.frontend.loops.unions import Either
from dynagraph.frontend.loops.words import UInt, Wide
from dynagraph.ir.expr import Expr
from dynagraph.ir.ops import OPS
from dynagraph.ir.regions import Exit, slots_of
from dynagraph.python_operators import BINARY

Box = tuple[Any, ...]


class Boxes:
    """`argument_of(value)`: the number of the argument that an executor's value is.

    `places`: of attributes and dict items that are variables, by the names of these.  `seen`: the types of what turns leave.
    """

    def __init__(self, argument_of: Callable[[Any], int], places: Mapping[str, Place], seen: Seen):
        self.argument_of, self.places, self.seen = argument_of, places, seen
        self.rests: list[Rest] = []

    def rows(self, exit: Exit, way: Way, more: int) -> list[tuple[tuple[Any, ...], Way]]:
        """The exit's rows, with how each goes on, and the state that it stores.

        The first is its own.  Variables that may be unbound give it further ones, from the number `more` on.
        """
        perhaps = self._perhaps_unbound(way)
        found: list[tuple[tuple[Any, ...], Way]] = []
        for chosen in itertools.product((False, True), repeat=len(perhaps)):
            unbound = {name for (name, _), is_unbound in zip(perhaps, reversed(chosen)) if is_unbound}
            state = _State(exit if not found else Exit(exit.number), self, unbound)
            going = way if not unbound else replace(way, frames=[_without(f, k, unbound) for k, f in enumerate(way.frames)])
            found.append((self._row(state, way, going), going))
            if not found[1:]:
                exit.cases = tuple((state.tags[name], tag) for name, tag in perhaps)
        exit.numbers = (exit.number, *range(more, more + len(found) - 1)) if perhaps else ()
        return found

    def _perhaps_unbound(self, way: Way) -> list[tuple[tuple[int, str], int]]:
        """The variables, by depth and name, and the tags with which they are unbound."""
        names = ((depth, n, frame.locals[n].type) for depth, frame in enumerate(way.frames) for n in names_of(frame))
        return [((depth, n), TAGS[NULL]) for depth, n, kind in names if self.seen.may_be_unbound(kind)]

    def _row(self, state: "_State", way: Way, going: Way) -> tuple[Any, ...]:
        written = tuple(self.written_back(state, self.places[name], value) for name, value in way.fields.items())
        if way.returned is not None:
            returned = state.box(way.returned)
            return ("return after", returned, written) if written else ("return", returned)
        frame = way.frames[0]
        boxes = state.frame(frame, 0)
        if len(way.frames) > 1:
            boxes[len(boxes) - 1 - _callable_depth(frame)] = state.rest(way, going)
        return ("tail after", tuple(boxes), written) if written else ("tail", tuple(boxes))

    def written_back(self, state: "_State", place: Place, value: Value) -> Box:
        owner = ("parameter", self.argument_of(place.owner))
        return ("call", place.setter, (owner, ("const", place.name), state.box(value)))


def _without(frame: Frame, depth: int, unbound: Container[tuple[int, str]]) -> Frame:
    return replace(frame, locals={n: v for n, v in frame.locals.items() if (depth, n) not in unbound})


def _callable_depth(frame: Frame) -> int:
    """How many of the values that are no NULL lie above the callable of the call at which a frame waits."""
    n = n_given(frame.program.instructions[frame.ip])
    above = [v for v in frame.stack[len(frame.stack) - n :] if not isinstance(v.type, Null)]
    first, second = frame.stack[-n - 2], frame.stack[-n - 1]
    return len(above) + (not isinstance(first.type, Null) and not isinstance(second.type, Null))


class _State:
    """`unbound`: variables that are left out, though their parts have slots."""

    def __init__(self, exit: Exit, boxes: Boxes, unbound: Container[tuple[int, str]] = ()):
        self.exit, self.argument_of, self.rests, self.seen = exit, boxes.argument_of, boxes.rests, boxes.seen
        self.unbound = unbound
        self.tags: dict[tuple[int, str], int] = {}  # where the state has those of variables
        self.slots = 0

    def slot(self, part: Expr) -> int:
        first = self.slots
        self.exit.state.append(part)
        self.slots += slots_of(part.dtype)
        return first

    def frame(self, frame: Frame, depth: int) -> list[Box]:
        """The variables that it hands over, then its stack."""
        boxes = []
        for name in names_of(frame):
            self.tags[depth, name] = len(self.exit.state)  # of those that have one
            box = self.cell(frame.locals[name]) if name in frame.plain else self.box(frame.locals[name])
            if (depth, name) not in self.unbound:
                boxes.append(box)
        return boxes + [self.box(v) for v in frame.stack if not isinstance(v.type, Null)]

    def rest(self, way: Way, going: Way) -> Box:
        """What stands in for the callable of a call that was inlined: it runs the rest of that call."""

        boxes: list[Box] = []
        for depth in range(len(way.frames) - 1, 0, -1):
            frame = way.frames[depth]
            made = self.frame(frame, depth)
            if depth < len(way.frames) - 1:
                made[len(made) - 1 - _callable_depth(frame)] = boxes[-1]
            self.rests.append(Rest(going.at_rest(), depth))
            boxes.append(("call", _dispatch.Rest(partial(call_unwatched, self.rests[-1].made)), tuple(made)))
        return boxes[-1]

    def box(self, value: Value) -> Box:
        kind = value.type
        found = _NUMBERS.get(type(kind))
        if found is not None or isinstance(kind, Scalar):
            return _number_box(kind, self.slot(value.only))
        if isinstance(kind, Nothing):
            return ("none",)
        if isinstance(kind, Known):
            return self.known(kind)
        if isinstance(kind, PythonList):
            return ("parameter", self.argument_of(kind.value))
        if isinstance(kind, Array):
            return self.array(value)
        if isinstance(kind, Tuple):
            return ("tuple", tuple(self.box(v) for v in value.items()))
        if isinstance(kind, Display):
            return ("list", tuple(self.box(v) for v in value.items()))
        if isinstance(kind, Slice):
            return ("call", slice, tuple(self.box(v) for v in value.items()))
        if isinstance(kind, Bound):
            return ("call", getattr, (self.box(Value(kind.owner, value.parts)), ("const", kind.name)))
        if isinstance(kind, Composite):
            return self.box(Value(kind.made, value.parts))
        if isinstance(kind, UInt):
            return ("uint", self.slot(value.only))
        if isinstance(kind, Wide):
            return ("call", BINARY[kind.symbol].function, tuple(self.box(v) for v in words.operands_of(value)))
        if isinstance(kind, Pending):
            return ("call", partial(computed, OPS[kind.op].eager), tuple(self.box(v) for v in operands_of(value)))
        if isinstance(kind, List):
            name = "deque" if isinstance(kind, Deque) else "items"
            return (name, self.slot(value.only), width_of(kind.item), item_box(kind.item))
        if isinstance(kind, CellOf):
            return self.cell(Value(kind.held, value.parts))
        if isinstance(kind, Comprehension):
            made_of = (("const", kind.code.code), ("const", kind.globals), self.box(Value(kind.closure, value.parts)))
            return ("call", made, made_of)
        if isinstance(kind, Text):
            return ("object", self.slot(value.parts[0]))
        if isinstance(kind, Generator):
            n = len(kind.function.parts)
            iterator = self.box(Value(kind.iterator, value.parts[n:]))
            return ("call", begun, (self.box(Value(kind.function, value.parts[:n])), iterator))
        if isinstance(kind, Char):
            return ("char", self.slot(value.only))
        if isinstance(kind, Either):
            tag, *slots = (self.slot(p) for p in value.parts)
            return ("choose", tag, tuple(_number_box(k, slots[kind.at(k) - 1]) for k in kind.kinds))
        if isinstance(kind, Left):
            return self.left(kind, value)
        if isinstance(kind, Held):
            return ("owned", self.slot(value.only))
        return self.iterator(kind, value)

    def left(self, kind: Left, value: Value) -> Box:
        kinds = {one: self.seen.as_one(value, one).parts for one in self.seen.of(kind)}
        tag, slots = self.slot(value.parts[0]), {part: -1 for parts in kinds.values() for part in parts}
        for part in slots:
            slots[part] = self.slot(part)
        last = max(TAGS[one] for one in kinds)
        return ("choose", tag, tuple(_number_box(k, slots[kinds[k][0]]) if kinds.get(k) else ("none",) for k in KINDS[: last + 1]))

    def cell(self, value: Value) -> Box:
        held = () if isinstance(value.type, Null) else (self.box(value),)
        return ("call", types.CellType, held)

    def iterator(self, kind: Type, value: Value) -> Box:
        ints = [("int", self.slot(p)) for p in value.parts] if isinstance(kind, (Range, RangeObject)) else []
        if isinstance(kind, Range):
            return ("call", rest_of_range, tuple(ints))
        if isinstance(kind, RangeObject):
            return ("call", range, tuple(ints))
        if isinstance(kind, Rows):
            return ("call", iterator_at, (self.box(Value(kind.array, value.parts[:-1])), ("int", self.slot(value.parts[-1]))))
        if isinstance(kind, ListItems):
            return ("call", iterator_at, (self.box(Value(kind.owner, value.parts[:1])), ("int", self.slot(value.parts[1]))))
        if isinstance(kind, TextItems):
            return ("call", iterator_at, (self.box(Value(kind.owner, value.parts[:3])), ("int", self.slot(value.parts[3]))))
        if isinstance(kind, Items):
            owner = Value(kind.owner, value.parts) if kind.given is None else Value(kind.given)
            return ("call", iterator_at, (self.box(owner), ("const", kind.at)))
        if isinstance(kind, Enumerate):
            count = ("int", self.slot(value.parts[0]))
            return ("call", enumerate, (self.box(Value(kind.inner, value.parts[1:])), count))
        assert isinstance(kind, Zip), kind
        found, at = [], 0
        for inner in kind.inner:
            n = len(inner.parts)
            found.append(self.box(Value(inner, value.parts[at : at + n])))
            at += n
        return ("call", zip, tuple(found))

    def known(self, kind: Known) -> Box:
        value = kind.value
        if isinstance(value, Const) and value.source is None:
            return ("const", value.value)
        return ("parameter", self.argument_of(value))

    def array(self, value: Value) -> Box:
        kind = value.type
        assert isinstance(kind, Array)
        if not kind.is_view:
            return ("made" if kind.made else "object", self.slot(value.owner))
        first, *_ = [self.slot(p) for p in (value.owner, value.data, *value.sizes, *value.strides, value.writeable)]
        return ("view of made" if kind.made else "view", first, kind.dtype.numpy, kind.ndim)


class Packed:
    """Values that Python objects are made of for a call: their boxes, and what the slots from 0 on are given."""

    def __init__(self, values: Iterable[Value], argument_of: Callable[[Any], int]):
        state = _State(Exit(0), Boxes(argument_of, {}, Seen()))
        self.boxes = tuple(state.box(v) for v in values)
        self.args = tuple(state.exit.state)


def item_box(kind: Type | None) -> Box:
    """How an item of a list is built from its slots."""
    if kind is None:
        return ("none",)
    state = _State(Exit(0), Boxes(_no_argument, {}, Seen()))
    return state.box(Value(kind, tuple(variable(f"item{k}", part) for k, (_, part) in enumerate(kind.parts))))


def _no_argument(value: Any) -> int:
    raise AssertionError(f"an item of a list is {value!r}")


def _number_box(kind: Type, slot: int) -> Box:
    return ("scalar", slot, kind.dtype.numpy) if isinstance(kind, Scalar) else (_NUMBERS[type(kind)], slot)


_NUMBERS = {Int: "int", Float: "float", Complex: "complex", Bool: "bool"}


def computed(function: Callable[..., Any], *operands: Any) -> Any:
    """An operation that native code had not done yet; it warns of nothing, as if it had."""
    with np.errstate(all="ignore"):
        return function(np, *operands)


def rest_of_range(start: int, left: int, step: int) -> Any:
    """``iter(range(...))`` with so many numbers left."""
    return iter(range(start, start + left * step, step))
