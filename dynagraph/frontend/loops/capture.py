"""From a frame of the executor's at a loop's head to a region: parameters, exits, and whether the loop is worth it."""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.doors.numpy import Unsupported
from dynagraph.frontend.bytecode.decode import Instruction
from dynagraph.frontend.bytecode.liveness import loop_heads
from dynagraph.frontend.bytecode.resume import Target, stack_effect
from dynagraph.frontend.executor.breaks import Break, Reason
from dynagraph.frontend.executor.exceptions import Raised
from dynagraph.frontend.executor.executor import Frame as CapturedFrame
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.executor.wrapping import load_cell
from dynagraph.frontend.kinds import iterators
from dynagraph.frontend.kinds.values import DELETED, Cell, Const, Iterator, Null, Number, Sequence
from dynagraph.frontend.kinds.values import NULL as EMPTY
from dynagraph.frontend.kinds.values import Array as ArrayValue
from dynagraph.frontend.loops import argument_lists, consumers, deques, fields, instructions, lists, recursion  # noqa: F401  (some register only)
from dynagraph.frontend.loops.builder import Builder, Frame, Restart, TooMany, Way, live_at, variable
from dynagraph.frontend.loops.calls_out import call_out, calls_worthwhile
from dynagraph.frontend.loops.exits import Rest
from dynagraph.frontend.loops.objects import Boxes, item_box
from dynagraph.frontend.loops.outline import Outline, outline
from dynagraph.frontend.loops.plain_cells import AT_ONCE, GENERATOR, plain_cells
from dynagraph.frontend.loops.reasons import NOT_NATIVE
from dynagraph.frontend.loops.sharing import RANGE_ITERATOR, shared_iterator
from dynagraph.frontend.loops.sites import Sites, Stays
from dynagraph.frontend.loops.types import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NULL,
    SMALL_INT,
    Array,
    Bound,
    Bytes,
    Enumerate,
    Known,
    List,
    PythonList,
    Range,
    Rows,
    Scalar,
    Text,
    Type,
    Value,
    Zip,
    tuple_of,
)
from dynagraph.frontend.loops.words import UINT
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import from_numpy
from dynagraph.ir.expr import Expr, const
from dynagraph.ir.region_loops import reached_from
from dynagraph.ir.regions import POINTER, Interruptible, Region
from dynagraph.ir.shapes import SymInt, hint_of

LONGEST_TUPLE = 16
MOST_WRITTEN_OUT = 1200  # instructions: about 0.3 s, and runs 3 to 40 times as fast as a loop left in Python
MOST_SITES = 24  # lists that are empty where they are made
LARGE_MATRIX = 1 << 18  # elements: of smaller ones, a product takes less time than copies
FEW_TURNS = 8  # of a loop that is written out as it ever was: its operations then stand in the graph


@dataclass(eq=False, repr=False)
class NativeLoop:
    """A region, and what is needed to call it from Python.

    `rows`: how each argument is given to it, as the dispatcher's NativeLoop takes them; `arguments`: the executor's values.
    `exits`: rows of the dispatcher's; `ways`: what each exit goes on with; `heads`: where each block begins that may be a loop's.
    """

    region: Region
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    exits: list[tuple[Any, ...]] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)  # of calls that were inlined: what exits within them go on in
    line: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    heads: dict[int, Frame] = field(default_factory=dict)
    calls_out: list[tuple[Any, ...]] = field(default_factory=list)  # rows of the Python functions that it calls
    calls_at: list[Way] = field(default_factory=list)  # where it calls them


class _SharedState(Exception):
    """The loop has lists or attributes that others may see, and calls out."""


@dataclass(frozen=True)
class NotMade:
    """Why a loop is no native one."""

    reason: Reason
    detail: str = ""


def native_loop(frame: CapturedFrame, target: Target, sites: Sites) -> NativeLoop | NotMade:
    """The loop at whose head the frame stands, and all that follows, as a region, unless it is better left to others.

    `sites`: what earlier attempts have found of it.
    """
    if frame.ex.handling:
        return NotMade(NOT_NATIVE["IN_HANDLER"])
    if any(isinstance(v, Cell) for v in frame.stack):
        return NotMade(NOT_NATIVE["IN_COMPREHENSION"])
    short = _few_turns(frame)
    if short is not None:
        return short
    if shared_iterator(frame, target.original, target.index_of):
        return NotMade(NOT_NATIVE["SHARED_ITERATOR"])
    sites.forget_values()
    calls_out = frame.ip in loop_heads(frame.program)  # what comes before a loop is better as a graph
    frame.ex.elsewhere = _elsewhere(frame)
    calls_out = calls_out and not frame.ex.elsewhere
    carried = fields.Fields()
    stay: dict[Any, bool] = {}  # lists that are Python's
    mixed: frozenset[tuple[int, str]] = frozenset()
    for _ in range(MOST_SITES):
        try:
            made = Maker(frame, sites, calls_out, carried, stay, mixed).made()
        except _SharedState:
            calls_out = False
        except Stays as found:
            stay[found.site] = found.stays
        except Restart as restart:
            sites.learn(restart.found)
        except fields.Carried as places:
            carried.add(places.places)
        except TooMany as refusal:
            if sites.narrowed():
                continue
            if not refusal.mixed <= mixed:
                mixed |= refusal.mixed
                continue
            return NotMade(NOT_NATIVE["TOO_LARGE"], str(refusal))
        except (Break, Raised, Unsupported) as refusal:
            return NotMade(NOT_NATIVE["NOT_FOLLOWED"], getattr(refusal, "detail", "") or str(refusal))
        else:
            if not calls_worthwhile(made.region):
                calls_out = any(stay.values())  # it may be what the appends cost
                stay = dict.fromkeys(stay, False)
                continue
            if loops(made.region):
                return made
            if frame.ex.library.name != "numpy":
                return NotMade(NOT_NATIVE["ON_DEVICE"])
            return NotMade(NOT_NATIVE["EACH_TURN_LEAVES"], "; ".join(made.refusals) or "it returns in its first turn")
    return NotMade(NOT_NATIVE["TOO_LARGE"], "it makes too many lists that are empty at first, or sets too many attributes")


def _elsewhere(frame: CapturedFrame) -> str:
    """What of a loop is placed on devices.  Under "auto", what takes longer than to copy its operands to and fro in each turn."""
    device = frame.ex.wanted_device
    if device in (None, "cpu") or frame.ex.library.name != "numpy":
        return ""
    if device != "auto":
        return "all"
    return "products" if any(_elements(v) >= LARGE_MATRIX for v in frame.locals.values()) else ""


def _elements(value: Any) -> int:
    if isinstance(value, Lazy):
        return value.obj.size if isinstance(value.obj, np.ndarray) and value.obj.ndim == 2 else 0
    if isinstance(value, ArrayValue) and value.node.ndim == 2:
        return math.prod(hint_of(n) for n in value.node.shape)
    return 0


def _few_turns(frame: CapturedFrame) -> NotMade | None:
    """Why the loop is written out: its turns are few, and known, and hold no loop themselves."""
    i = frame.instructions[frame.ip]
    if i.op != "FOR_ITER" or _holds_loop(frame.instructions[frame.ip + 1 : i.value], frame.heads, frame.ip + 1):
        return None
    iterator = frame.ex.resolve(frame.stack[-1])
    if isinstance(iterator, iterators.Items):
        return NotMade(NOT_NATIVE["ITEMS"])
    if not isinstance(iterator, Iterator) or any(isinstance(n, SymInt) for n in _numbers_of(iterator)):
        return None
    return NotMade(NOT_NATIVE["FEW_TURNS"], f"{iterator.left()}") if iterator.left() <= FEW_TURNS else None


def _holds_loop(body: SequenceOf[Instruction], heads: AbstractSet[int], start: int) -> bool:
    """Whether the body, from `start` on, has a loop at one of the `heads`, or in a comprehension or generator expression."""
    codes = (i.value for i in body if i.op == "LOAD_CONST")
    return any(start <= head < start + len(body) for head in heads) or any(
        isinstance(code, types.CodeType) and code.co_name in (*AT_ONCE, GENERATOR) for code in codes
    )


def _numbers_of(iterator: Iterator) -> list[Any]:
    if isinstance(iterator, iterators.Rows):
        return [iterator.length]
    if isinstance(iterator, iterators.SymbolicNumbers) and iterator.is_symbolic:
        return list(iterator.bounds)
    if isinstance(iterator, iterators.Zip):
        return [n for part in iterator.parts for n in _numbers_of(part)]
    return _numbers_of(iterator.inner) if isinstance(iterator, iterators.Enumerate) else []


@dataclass(eq=False)
class Derived:
    """An argument that a function makes of one of the executor's values."""

    function: Callable[..., Any]
    values: tuple[Any, ...]


def _range_of(iterator: Any) -> range:
    return iterator.__reduce__()[1][0]  # type: ignore[no-any-return]


def _position_of(iterator: Any) -> int:
    rest = iterator.__reduce__()[2:]
    return (rest[0] or 0) if rest else 0


def next_of(iterator: Any) -> int:
    r = _range_of(iterator)
    return r.start + _position_of(iterator) * r.step


def left_of(iterator: Any) -> int:
    return iterator.__length_hint__()  # type: ignore[no-any-return]


def step_of(iterator: Any) -> int:
    return _range_of(iterator).step


def count_of(start: int, stop: int, step: int) -> int:
    """How many numbers a range has."""
    return len(range(start, stop, step))


def is_long(frame: CapturedFrame, arrivals: int, most: int = MOST_WRITTEN_OUT) -> bool:
    """Whether writing out the loop's turns would be more than `most` instructions; so many times its head was come to."""
    found = outline_at(frame)
    if found is None:
        return False
    turns = arrivals
    if found.is_for:
        iterator = frame.ex.resolve(frame.stack[-1])
        if not isinstance(iterator, Iterator) or any(isinstance(n, SymInt) for n in _numbers_of(iterator)):
            return isinstance(iterator, Iterator)
        turns = iterator.left() + arrivals - 1
    return turns > FEW_TURNS and turns * len(found.inside) > most


def outline_at(frame: CapturedFrame) -> Outline | None:
    """The loop at whose head the frame stands, if its body can be a function of its own."""
    live = live_at(frame.program, frame.ip)
    return outline(frame.program, frame.ip, tuple(n for n in frame.locals if n in live))


class Maker:
    """Makes a region of what follows in a frame."""

    def __init__(
        self,
        frame: CapturedFrame,
        sites: Sites,
        calls_out: bool,
        carried: fields.Fields,
        stay: dict[Any, bool] | None = None,
        mixed: frozenset[tuple[int, str]] = frozenset(),
    ):
        self.frame = frame
        self.stay = stay if stay is not None and calls_out else None
        self.ex = frame.ex
        function = frame.function
        start = Frame(frame.program, function, frame, frame.ip)
        self.builder = b = Builder(self.ex, [start], f"{function.name}_{frame.instructions[frame.ip].line}")
        b.on_parameter, b.on_outside = self.native, self.outside
        b.sites, b.mixed, b.on_text = sites, mixed, self.text_of_code
        b.recursives, b.on_recursion, b.fields = recursion.Recursives(), recursion.call, carried
        b.on_refusal, b.on_generator = self.call_out if calls_out else None, self.generator
        self.generators: dict[tuple[int, str], Expr] = {}
        self.shares_state = False  # that the caller, another thread or a signal's handler may see
        self.loop = NativeLoop(b.region, line=frame.instructions[frame.ip].line)
        self.given: dict[int, Value] = {}
        self.texts: dict[str, Value] = {}  # strings of the code's
        self.kept: list[Any] = []  # values whose id() is a key
        self.objects: dict[int, int] = {}  # the argument that an executor's value is

    def made(self) -> NativeLoop:
        try:
            self.begin()
            with self.builder.fields.hidden(self.ex):
                return self.finished(self.builder.run())
        finally:  # let go of the caller's objects now: what refers to itself would keep them until the next collection
            self.builder.on_parameter = self.builder.on_outside = self.builder.on_text = None
            self.builder.on_refusal = self.builder.on_generator = None

    def begin(self) -> None:
        """Take the frame's values."""
        frame, (start,) = self.frame, self.builder.frames
        start.plain = plain_cells(self.ex, frame.program.code, frame.function.globals)
        live = live_at(frame.program, frame.ip)
        start.stack = [self.outside(v) for v in frame.stack]
        for name in sorted(live):
            value = frame.locals.get(name)
            if name in frame.cells:
                if name in frame.code.co_cellvars:
                    start.locals[name] = self.cell(frame.cells[name], name)
            elif value is not None and value is not EMPTY:
                start.locals[name] = self.outside(value)

        start.locals.update(self.builder.fields.begin(self.builder))
        if self.builder.fields.places:
            self.loop.region.holds_gil = self.shares_state = True

    def cell(self, cell: Cell, name: str) -> Value:
        """One of the function's own: what it holds, where only comprehensions see it."""
        if name not in self.builder.frames[0].plain:
            return Value(Known(cell))
        value = cell.value if cell.source is None else load_cell(self.ex, cell, name)
        return Value(NULL) if value in (EMPTY, DELETED) else self.outside(value)

    def finished(self, region: Region) -> NativeLoop:
        region.functions = self.builder.recursives.regions()
        if region.keeps:  # what is put back must not be what another thread has written meanwhile
            for each in (region, *region.functions):
                each.holds_gil = True
        boxes = Boxes(self.argument_of, self.builder.fields.places, self.builder.seen)
        more: list[tuple[tuple[Any, ...], Way]] = []
        for exit, way in zip(region.exits, self.builder.exits):
            (row, _), *others = boxes.rows(exit, way, len(region.exits) + len(more))
            self.loop.exits.append(row)
            more += others
        self.loop.exits += [row for row, _ in more]
        self.loop.ways = [way.at_rest() for way in (*self.builder.exits, *(way for _, way in more))]
        self.loop.rests = boxes.rests
        self.loop.refusals = self.builder.refusals
        self.loop.heads = {v.block.number: v.frames[-1].at_rest() for v in self.builder.versions.values()}
        return self.loop

    # -- parameters ---------------------------------------------------------------------------------------------------------
    def slot(self, name: str, kind: Any) -> Any:
        self.loop.region.variables[name] = kind
        self.loop.region.parameters.append(name)
        return variable(name, kind)

    def argument(self, value: Any, row: tuple[Any, ...]) -> int:
        self.loop.rows.append(row)
        self.loop.arguments.append(value)
        self.kept.append(value)
        return len(self.loop.arguments) - 1

    def argument_of(self, value: Any) -> int:
        """The argument that hands on an executor's value as it is."""
        found = self.objects.get(id(value))
        if found is None:
            found = self.objects[id(value)] = self.argument(value, ("unused", 0))
        return found

    def parameter(self, value: Any, kind: Type, row: Callable[[int], tuple[Any, ...]]) -> Value:
        """A number as a parameter."""
        first = self.next_slot()
        n = len(self.loop.region.parameters)
        parts = tuple(self.slot(f"p{n + k}_{suffix}", part) for k, (suffix, part) in enumerate(kind.parts))
        self.argument(value, row(first))
        return Value(kind, parts)

    def next_slot(self) -> int:
        return self.loop.region.n_parameter_slots

    def outside(self, value: Any) -> Value:
        """A value of the frame's."""
        if isinstance(value, Null):
            return Value(NULL)
        found = self.given.get(id(value))
        if found is None:
            self.kept.append(value)
            found = self.given[id(value)] = self._outside(value)
        return found

    def _outside(self, value: Any) -> Value:
        if isinstance(value, Lazy):
            kind = type(value.obj)
            if kind is RANGE_ITERATOR:
                return self.handed_over(value)
            if kind is int and -(2**63) <= value.obj < 2**63 and value.source not in self.ex.wrapped:
                return self.parameter(value, INT, lambda s: ("int", s))
            if kind is int and 2**63 <= value.obj < 2**64 and value.source not in self.ex.wrapped:
                return self.parameter(value, UINT, lambda s: ("uint", s))
            if kind is float and value.source not in self.ex.wrapped:
                return self.parameter(value, FLOAT, lambda s: ("float", s))
            if kind is list and value.source not in self.ex.wrapped:
                return self.list(value, lists.type_of(value.obj, id(value)))
            if kind is deque and value.source not in self.ex.wrapped:
                return self.list(value, deques.type_of(value.obj, id(value)))
            if kind in (str, bytes) and value.source not in self.ex.wrapped:
                return self.text(value, kind)
            value = self.ex.resolve(value)
        if isinstance(value, Const):
            held = value.value
            if isinstance(held, SymInt):
                return self.parameter(value, INT, lambda s: ("int", s))
            if type(held) is int and -(2**63) <= held < 2**63:
                return self.parameter(value, INT, lambda s: ("int", s))
            if type(held) is int and 0 <= held < 2**64:
                return self.parameter(value, UINT, lambda s: ("uint", s))
            if type(held) is float:
                return self.parameter(value, FLOAT, lambda s: ("float", s))
            if type(held) is complex:
                return self.parameter(value, COMPLEX, lambda s: ("complex", s))
            if type(held) is bool:
                return self.parameter(value, BOOL, lambda s: ("bool", s))
        if isinstance(value, Iterator):
            return self.iterator(value)
        return self.native(value)

    def native(self, value: Any) -> Value:
        """A value of the executor's that the region meets."""
        known = self.given.get(id(value))
        if known is not None:
            return known
        value = self.ex.resolve(value)
        self.kept.append(value)
        found = self.given[id(value)] = self._native(value)
        return found

    def _native(self, value: Any) -> Value:
        if isinstance(value, Const):
            if isinstance(value.value, SymInt):
                return self.parameter(value, INT, lambda s: ("int", s))
            if value.value is None or type(value.value) in (int, float, bool, complex):
                return instructions.constant(self.builder, value.value)
        if isinstance(value, Number):
            kind = COMPLEX if value.node.dtype.is_complex else FLOAT
            return self.parameter(value, kind, lambda s: ("complex" if kind == COMPLEX else "float", s))
        if isinstance(value, ArrayValue):
            return self.array(value)
        if isinstance(value, Sequence) and value.kind is tuple and value.source is None and len(value.items) <= LONGEST_TUPLE:
            return tuple_of([self.outside(v) for v in value.items])
        if isinstance(value, Sequence) and value.kind is list:
            return self.list(value, lists.type_of_followed(value, id(value)))
        if isinstance(value, Sequence) and value.kind is deque:
            return self.list(value, deques.type_of_followed(value, id(value)))
        return Value(Known(value))

    def list(self, value: Any, kind: Type | None) -> Value:
        """A list as a parameter, where native code takes its items."""
        kind = lists.settled(kind, self.builder.sites)
        is_fresh = isinstance(value, Sequence) and value.source is None and not any(isinstance(v, Sequence) for v in value.items)
        if self.stay is not None and is_fresh and type(kind) is List:
            if self.stay.get(kind.site):
                return Value(PythonList(value, kind.site))
            if kind.site not in self.stay:
                self.builder.may_stay.add(kind.site)
        if kind is None:
            return Value(Known(self.ex.resolve(value)))
        self.loop.region.holds_gil = True
        self.shares_state = self.shares_state or not is_fresh
        if self.shares_state and self.loop.calls_out:
            raise _SharedState
        return self.parameter(value, kind, lambda s: lists.parameter_row(kind, s, item_box))

    def call_out(self, b: Builder, i: Instruction, reason: str) -> bool:
        row = None if self.shares_state else call_out(b, i, self.argument_of)
        if row is None and b.is_in_loop():
            _let_go_of_lists(b, i)
        if row is not None:
            self.loop.calls_out.append(row)
            self.loop.calls_at.append(Way(b.before, reason=reason).at_rest())
            self.loop.region.holds_gil = True
        return row is not None

    def generator(self, value: Any, row: str) -> Expr:
        """Where the state of a generator lies, of which the value is a method."""
        found = self.generators.get((id(value), row))
        if found is None:
            self.loop.region.holds_gil = True
            first, name = self.next_slot(), f"p{len(self.loop.region.parameters)}_bits"
            found = self.generators[id(value), row] = self.slot(name, POINTER)
            self.argument(value, (row, first))
        return found

    def text(self, value: Any, kind: type) -> Value:
        found, row = (Text(), "text") if kind is str else (Bytes(), "bytes")
        first = self.next_slot()
        n = len(self.loop.region.parameters)
        parts = [self.slot(f"p{n}_{suffix}", part) for suffix, part in found.parts]
        self.argument(value, ("object", first))
        self.argument(value, (row, first + 1))
        return Value(found, tuple(parts))

    def text_of_code(self, value: Const) -> Value:
        found = self.texts.get(value.value)
        if found is None:
            found = self.texts[value.value] = self.text(value, str)
        return found

    def array(self, value: Any) -> Value:
        node = value.node
        dtype = node.dtype
        if from_numpy(dtype.numpy) is None or dtype is dtypes.bfloat16 or self.ex.library.name != "numpy":
            return Value(Known(value))
        if value.is_scalar:
            return self.parameter(value, Scalar(dtype), lambda s: ("scalar", s, dtype.numpy))
        strides = node.meta.strides
        last = None if strides is None or not node.ndim else strides[-1]
        packed = node.ndim > 0 and (last is None or (isinstance(last, int) and last == 1))
        kind = Array(dtype, node.ndim, packed)
        first = self.next_slot()
        n = len(self.loop.region.parameters)
        owner, *parts = (self.slot(f"p{n}_{suffix}", part) for suffix, part in kind.parts)
        at = self.argument(value, ("object", first))
        self.objects[id(value)] = at
        self.argument(value, ("array", first + 1, dtype.numpy, node.ndim, packed))
        return Value(kind, (owner, *parts))

    def handed_over(self, value: Lazy) -> Value:
        """An iterator over a range that Python was in the middle of: native code takes its numbers, and nobody else has it."""
        made = [Derived(function, (value,)) for function in (next_of, left_of, step_of)]
        return Value(Range(None), tuple(self.parameter(d, INT, lambda s: ("int", s)).only for d in made))

    # -- iterators ------------------------------------------------------------------------------------------------------------
    def iterator(self, value: Iterator) -> Value:
        if isinstance(value, iterators.Numbers):
            r = value.numbers
            left, step = value.left(), r.step
            if max(abs(r.start), abs(r.start + left * step), abs(left)) > 2**52:
                return Value(Known(value))
            next_ = self.parameter(Const(r.start), SMALL_INT, lambda s: ("int", s))
            count = self.parameter(Const(left), SMALL_INT, lambda s: ("int", s))
            return Value(Range(step), (next_.only, count.only, const(step, dtypes.int64)))
        if isinstance(value, iterators.SymbolicNumbers) and value.is_symbolic:
            bounds = tuple(map(Const, value.bounds))
            first = self.parameter(bounds[0], INT, lambda s: ("int", s))
            turns = self.parameter(Derived(count_of, bounds), INT, lambda s: ("int", s))
            if type(value.bounds[2]) is int:
                return Value(Range(value.bounds[2]), (first.only, turns.only, const(value.bounds[2], dtypes.int64)))
            by = self.parameter(bounds[2], INT, lambda s: ("int", s))
            return Value(Range(None), (first.only, turns.only, by.only))
        if isinstance(value, iterators.Rows):
            array = self.native(value.array)
            if isinstance(array.type, Array):
                at = self.parameter(Const(value.position), SMALL_INT, lambda s: ("int", s))
                return Value(Rows(array.type), (*array.parts, at.only))
        if isinstance(value, iterators.Enumerate) and type(value.count) is int:
            inner = self.iterator(value.inner)
            if not isinstance(inner.type, Known):
                count = self.parameter(Const(value.count), SMALL_INT, lambda s: ("int", s))
                return Value(Enumerate(inner.type), (count.only, *inner.parts))
        if isinstance(value, iterators.Zip) and not value.strict:
            inner_ = [self.iterator(p) for p in value.parts]
            if inner_ and not any(isinstance(v.type, Known) for v in inner_):
                return Value(Zip(tuple(v.type for v in inner_)), tuple(p for v in inner_ for p in v.parts))
        return Value(Known(value))


def _let_go_of_lists(b: Builder, i: Instruction) -> None:
    """A list that Python does more with than to append to it, in each turn, is better a native one."""
    taken, _ = stack_effect(i) or (0, 0)
    for value in b.before[-1].stack[-taken:] if taken else ():
        kind = value.type.owner if isinstance(value.type, Bound) else value.type
        if isinstance(kind, PythonList):
            raise Stays(kind.site, False)


def loops(region: Region) -> bool:
    """Whether the region has a loop of the code's at all, or calls itself: not each way through its body leaves it.  Loops that go
    through the elements of arrays have no back edge at which signals are looked for.
    """
    if region.functions:
        return True
    return any(b in reached_from(b) for b in region.blocks if any(isinstance(i, Interruptible) and not i.within for i in b.body))


__all__ = ["MOST_WRITTEN_OUT", "RANGE_ITERATOR", "Derived", "Maker", "NativeLoop", "NotMade", "loops", "native_loop"]
