"""Regions: loops and branches of Python code as basic blocks of typed instructions, with exits back to Python.

A region begins at a loop's head with the frame's live values in variables.  It ends in an exit: the function's return, or an
instruction that native code cannot do, which Python then does.  Nothing is undone: when an exit is taken all that came before has
happened, and nothing that comes after.

Variables have a C type each; operands are `Expr` over variables and constants.

Passes let instructions go on with a block, rather than leave by an exit, where what they test does not hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeVar, Union

from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.lazy_dataclasses import dataclass

POINTER = "pointer"  # the type of a variable that holds an address
OWNED = "owned"  # of one that holds the memory of an array which the region makes: freed when no variable holds it any more
VariableType = Union[DType, str]
T = TypeVar("T")


@dataclass(frozen=True)
class LaneType:
    """The type of a variable that holds a value of a dtype for each of `width` turns of a loop, in vectors of `part` lanes."""

    dtype: DType
    width: int
    part: int

    @property
    def parts(self) -> int:
        return self.width // self.part


@dataclass(frozen=True, eq=False)
class Set:
    """``name = value``."""

    name: str
    value: Expr


@dataclass(frozen=True, eq=False)
class Hold:
    """``name = value`` of an owned variable, which lets go of what it held."""

    name: str
    value: Expr


@dataclass(frozen=True, eq=False)
class NewMemory:
    """``name = memory`` for an array of these sizes in C order, or Fortran's; the exit where there is none."""

    name: str
    dtype: DType
    sizes: tuple[Expr, ...]
    exit: "Exit | Block"
    fortran: bool = False


@dataclass(frozen=True, eq=False)
class Checked:
    """``name = function(*args)`` of 64-bit ints or floats; the exit where Python would do more than give such a number.

    `function`: a key of `CHECKED`.
    """

    name: str
    function: str
    args: tuple[Expr, ...]
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Require:
    """The exit unless `test` holds."""

    test: Expr
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Position:
    """``name = index`` of an axis of `extent`, counted from its end where it is negative; the exit where it is out of bounds."""

    name: str
    index: Expr
    extent: Expr
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Place:
    """An element in memory: ``base + sum(index * stride)``; strides are in bytes, or None: the size of an element."""

    base: Expr
    steps: tuple[tuple[Expr, Expr | None], ...]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Load:
    """``name = place``."""

    name: str
    place: Place


@dataclass(frozen=True, eq=False)
class Store:
    """``place = value``.  `kept`: what was there is kept, for a function that may give up."""

    place: Place
    value: Expr
    kept: bool = False


@dataclass(frozen=True, eq=False)
class Address:
    """``name = &place``."""

    name: str
    place: Place


@dataclass(frozen=True, eq=False)
class Interruptible:
    """The exit where a signal waits for its handler, or another thread for its turn.  `turns`: of a loop since the last one.

    `within`: of an array expression, which is left for signals only, and then computed by Python.
    """

    exit: "Exit | Block"
    turns: int = 1
    within: bool = False


@dataclass(frozen=True, eq=False)
class OneByOne:
    """The C compiler shall make no vectors of the loop's turns."""


@dataclass(frozen=True, eq=False)
class Field:
    """``name = owner.field`` of a list: `items`, where they lie, or `length`."""

    name: str
    owner: Expr
    field: str


@dataclass(frozen=True, eq=False)
class SetLength:
    """``owner.length = value`` of a list, which is not above what it has room for."""

    owner: Expr
    value: Expr


@dataclass(frozen=True, eq=False)
class Changed:
    """The items of a list are about to change: the Python list that was given is then written to when the region is left."""

    owner: Expr


@dataclass(frozen=True, eq=False)
class Slot:
    """Slot `at` of an item of a list, of `width` slots each."""

    items: Expr
    index: Expr
    width: int
    at: int


@dataclass(frozen=True, eq=False)
class LoadSlot:
    """``name = slot``."""

    name: str
    slot: Slot


@dataclass(frozen=True, eq=False)
class StoreSlot:
    """``slot = value``, which is an address where `pointer` says so."""

    slot: Slot
    value: Expr
    pointer: bool = False


@dataclass(frozen=True, eq=False)
class CallFunction:
    """``name`` is where the results of one of the region's functions lie, in `width` slots; the exit where it has given up."""

    name: str
    number: int
    args: tuple[Expr, ...]
    width: int
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class CallOut:
    """A Python function is called: ``name`` is where the parts of what it gives lie, in `width` slots.

    `number`: of the region's calls; `args`: what the slots from 0 on are given, of which the call's arguments are made.  Where it
    gives a value of another type (`exit`) or raises (`raising`), ``name`` is that value, or what raises, as an owned object.
    """

    name: str
    number: int
    args: tuple[Expr, ...]
    width: int
    exit: "Exit | Block"
    raising: "Exit"

    @property
    def n_slots(self) -> int:
        return max(sum(slots_of(a.dtype) for a in self.args), self.width, 1)


@dataclass(frozen=True, eq=False)
class Reserve:
    """Room for so many slots on the tape, on which gradients keep what their way back needs; the exit where there is none."""

    slots: int
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Push:
    """`value`, an address where `pointer` says so, as one more slot on the tape."""

    value: Expr
    pointer: bool = False


@dataclass(frozen=True, eq=False)
class Pop:
    """``name`` = the last slot on the tape, which is taken off."""

    name: str


@dataclass(frozen=True, eq=False)
class Release:
    """All that was pushed since the `Reserve` that this belongs to has been popped."""


@dataclass(frozen=True)
class Touched:
    """An array whose elements turns of a loop read, or write.

    `sizes`, `strides`: by axes; a stride of None: the size of an element.  Of what is written, turn k touches only those whose
    index on the axis `axis` is between ``first + step * k + low`` and ``... + high``.
    """

    data: Expr
    dtype: DType
    sizes: tuple[Expr, ...]
    strides: tuple[Expr | None, ...]
    axis: int = 0
    first: Expr | None = None
    step: int = 0
    low: int = 0
    high: int = 0

    def with_operands(self, function: Callable[[Expr], Expr]) -> "Touched":
        strides = tuple(None if s is None else function(s) for s in self.strides)
        first = None if self.first is None else function(self.first)
        return replace(self, data=function(self.data), sizes=tuple(map(function, self.sizes)), strides=strides, first=first)


@dataclass(frozen=True, eq=False)
class Apart:
    """The exit where an element may lie in memory that an array takes."""

    place: Place
    array: Touched
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Separate:
    """The exit where two arrays may share memory."""

    array: Touched
    other: Touched
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class Unfolded:
    """The exit where elements of an array may share memory."""

    array: Touched
    exit: "Exit | Block"


@dataclass(frozen=True, eq=False)
class SetLanes:
    """``name = value``, lane by lane; where an operand is no lanes, it is the same in each."""

    name: str
    value: Expr
    lanes: LaneType


@dataclass(frozen=True, eq=False)
class LoadLanes:
    """``name`` = the elements at a place, and at those that are 1, 2, ... `step` bytes behind it; None: the size of an element.

    `mask`: lanes whose elements are read; None: all.
    """

    name: str
    place: Place
    step: Expr | None
    lanes: LaneType
    mask: Expr | None = None


@dataclass(frozen=True, eq=False)
class StoreLanes:
    """The same elements = `value`, lane by lane."""

    place: Place
    value: Expr
    step: Expr | None
    lanes: LaneType
    mask: Expr | None = None


@dataclass(frozen=True, eq=False)
class CheckedLanes:
    """``name = function(*args)``, as of `Checked`, lane by lane; where one fails it is added to the lanes of `failed`.

    `mask`: lanes in which it may fail; None: all.
    """

    name: str
    function: str
    args: tuple[Expr, ...]
    failed: Expr
    mask: Expr | None
    lanes: LaneType


@dataclass(frozen=True, eq=False)
class RunTurns:
    """Turns 0 to `turns` of a loop, on the thread pool: some of the first are done, and nothing else is.

    ``name`` is where the results lie: how many are done, then `width` slots with what variables are after the last of these.
    `number`: of the region's `turns`, whose slots from 3 on are given `args`.
    `keeps`: they may give up, for which what they write to is kept.
    """

    name: str
    number: int
    turns: Expr
    args: tuple[Expr, ...]
    written: tuple[Touched, ...]
    read: tuple[Touched, ...]
    width: int
    keeps: bool = True


Instruction = Union[
    CallFunction,
    CallOut,
    Set,
    Hold,
    NewMemory,
    Checked,
    Require,
    Position,
    Load,
    Store,
    Address,
    Interruptible,
    Field,
    SetLength,
    Changed,
    LoadSlot,
    StoreSlot,
    Reserve,
    Push,
    Pop,
    Release,
    OneByOne,
    Apart,
    Separate,
    Unfolded,
    SetLanes,
    LoadLanes,
    StoreLanes,
    CheckedLanes,
    RunTurns,
]


@dataclass(frozen=True, eq=False)
class Jump:
    block: "Block"


@dataclass(frozen=True, eq=False)
class Branch:
    test: Expr
    then: "Block"
    otherwise: "Block"


@dataclass(frozen=True, eq=False)
class Leave:
    exit: "Exit"


End = Union[Jump, Branch, Leave]


@dataclass(eq=False, repr=False)
class Block:
    """Instructions in order, then `end`.  `line`: of the user's source."""

    number: int
    line: int = 0
    body: list[Instruction] = field(default_factory=list)
    end: End | None = None

    def successors(self) -> tuple["Block", ...]:
        early = [t for i in self.body if type(t := getattr(i, "exit", None)) is Block]
        if isinstance(self.end, Jump):
            return (*early, self.end.block)
        return (*early, self.end.then, self.end.otherwise) if isinstance(self.end, Branch) else tuple(early)


@dataclass(eq=False)
class Exit:
    """Where control leaves the region.  `state`: what each slot from 0 on is given.

    `cases`: parts of the state, by their places in it, and ints that these may be: bit k of an index into `numbers` says that
    case k is so.  Where there are any, the number is the one there, and not `number`, by which the region knows the exit.
    """

    number: int
    state: list[Expr] = field(default_factory=list)
    cases: tuple[tuple[int, int], ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class CheckedFunction:
    """A function in C with an additional ``int *failed``: `support` names it.

    `exit`: the reason of frontend/loops/reasons.py.  `allocates`: it makes lists, or lets them grow: its first argument is what
    the run has.
    """

    support: str
    doc: str
    exit: str
    allocates: bool = False

    @property
    def takes_long(self) -> bool:
        """Whether its time has no bound, as that of what goes through a list."""
        return self.support.startswith("list_")


CHECKED: dict[str, CheckedFunction] = {
    "int_add": CheckedFunction("add_overflows", "a + b", "OVERFLOW"),
    "int_sub": CheckedFunction("sub_overflows", "a - b", "OVERFLOW"),
    "int_mul": CheckedFunction("mul_overflows", "a * b", "OVERFLOW"),
    "int_floordiv": CheckedFunction("int_floordiv", "a // b; not by zero", "ZERO_DIVISION"),
    "int_mod": CheckedFunction("int_mod", "a % b; not by zero", "ZERO_DIVISION"),
    "int_pow": CheckedFunction("int_pow", "a ** b; b >= 0", "OVERFLOW"),
    "int_lshift": CheckedFunction("int_lshift", "a << b; b >= 0", "OVERFLOW"),
    "int_rshift": CheckedFunction("int_rshift", "a >> b; b >= 0", "DOMAIN"),
    "int_of_float": CheckedFunction("int_of_float", "int(x), towards zero", "OVERFLOW"),
    "int_truediv": CheckedFunction("int_truediv", "a / b of ints; not by zero", "ZERO_DIVISION"),
    "float_div": CheckedFunction("float_div", "a / b; not by zero", "ZERO_DIVISION"),
    "float_floordiv": CheckedFunction("float_floordiv", "a // b; not by zero", "ZERO_DIVISION"),
    "float_mod": CheckedFunction("float_mod", "a % b; not by zero", "ZERO_DIVISION"),
    "float_pow": CheckedFunction("float_pow", "a ** b that is a float", "DOMAIN"),
    "float_floor": CheckedFunction("float_floor", "math.floor(x)", "OVERFLOW"),
    "float_ceil": CheckedFunction("float_ceil", "math.ceil(x)", "OVERFLOW"),
    "float_round": CheckedFunction("float_round", "round(x), half to even", "OVERFLOW"),
    "complex_div": CheckedFunction("python_complex_div", "a / b of complex numbers, which is finite; not by zero", "ZERO_DIVISION"),
    "complex_exp": CheckedFunction("python_complex_exp", "cmath.exp(z), which is finite", "DOMAIN"),
    "list_new": CheckedFunction("list_new", "a list of so many items of so many slots, which are not set", "MEMORY", True),
    "list_repeat": CheckedFunction("list_repeat", "list * n", "MEMORY", True),
    "list_concat": CheckedFunction("list_concat", "list + list", "MEMORY", True),
    "list_tagged": CheckedFunction("list_tagged", "its items with a tag, as slot `at` of items of `width` slots", "MEMORY", True),
    "list_slice": CheckedFunction("list_slice", "list[start:stop], both within bounds", "MEMORY", True),
    "list_append": CheckedFunction("list_append", "the place of one more item", "MEMORY", True),
    "list_append_left": CheckedFunction("list_append_left", "the place of one more item, before all others", "MEMORY", True),
    "list_pop_left": CheckedFunction("list_pop_left", "the deque without its first item", "CONDITION"),
    "list_insert": CheckedFunction("list_insert", "the place of one more item, before others", "MEMORY", True),
    "list_remove": CheckedFunction("list_remove", "the list without the item at an index", "CONDITION"),
    "list_range": CheckedFunction("list_range", "a list of so many ints from the first on", "MEMORY", True),
    "list_extend": CheckedFunction("list_extend", "the list, with all items of another behind its own", "MEMORY", True),
    "list_find_int": CheckedFunction("list_find_int", "the index of the first item that equals an int, or -1", "CONDITION"),
    "list_find_float": CheckedFunction("list_find_float", "the index of the first item that equals a float, or -1", "CONDITION"),
    "list_reverse": CheckedFunction("list_reverse", "the list, whose items are turned round", "CONDITION"),
    "list_sort_int": CheckedFunction("list_sort_int", "the list, whose ints are sorted", "CONDITION"),
    "list_sort_float": CheckedFunction("list_sort_float", "the list, whose floats are sorted; none is a NaN", "CONDITION"),
    "text_equal": CheckedFunction("text_equal", "whether two strings are the same", "CONDITION"),
    "text_find": CheckedFunction("text_find", "the index of a character, or -1", "CONDITION"),
    "bytes_find": CheckedFunction("bytes_find", "the index of a byte, or -1", "CONDITION"),
    "math": CheckedFunction("math", "a function of libm whose result is finite", "DOMAIN"),
}


@dataclass(eq=False, repr=False)
class Region:
    """`variables`: the type of each; `parameters`: the variables that the slots from 0 on are given to.

    `holds_gil`: no other thread runs meanwhile: it works on copies of lists, attributes or dict items, or calls out.  It is left
    now and then.

    `functions`: that it calls.  One of these has `arguments`, the first of its parameters; those that follow are the region's own.
    Its first exit gives up, the others are returns with `width` slots of results.  Where one gives up, its stores are undone, and
    those of all that called it.
    `has_tape`: it keeps values on a tape, and in memory that lives as long.
    `copies`: for loops, by the number of their header, what became of their checks, and of their turns.
    `lanes`: further variables, which passes make.
    `roots`: of parameters that are addresses in memory to which others point, too, or which instructions of the region make: what
    ir/region_memory.py calls that memory.
    `turns`: of loops whose turns may run at the same time: each does those from that in its first slot to that in its second; the
    third says whether they are the last ones.  It leaves by exit 0 where a turn cannot be done, at its end by 1 with what variables
    are after the last ones, and by 2 otherwise.
    """

    name: str
    variables: dict[str, VariableType] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    holds_gil: bool = False
    functions: list["Region"] = field(default_factory=list)
    has_tape: bool = False
    arguments: list[str] = field(default_factory=list)
    number: int = 0
    width: int = 0
    copies: dict[int, str] = field(default_factory=dict)
    turns: list["Region"] = field(default_factory=list)
    lanes: dict[str, LaneType] = field(default_factory=dict)
    roots: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Region({self.name}: {len(self.blocks)} blocks, {len(self.exits)} exits)"

    @property
    def n_parameter_slots(self) -> int:
        return sum(slots_of_variable(self.variables[name]) for name in self.parameters)

    @property
    def n_slots(self) -> int:
        return max([self.n_parameter_slots, *(sum(slots_of(e.dtype) for e in exit.state) for exit in self.exits), 1])

    def instructions(self) -> Iterator[Instruction]:
        for block in self.blocks:
            yield from block.body

    @property
    def keeps(self) -> bool:
        """Whether it keeps what is in memory before it writes there, or one of its functions does."""
        return any(isinstance(i, Store) and i.kept for i in self.instructions()) or any(f.keeps for f in self.functions)


def slots_of_variable(kind: VariableType) -> int:
    return 1 if isinstance(kind, str) else slots_of(kind)


def slots_of(dtype: DType) -> int:
    """How many slots of 8 bytes a value takes."""
    return (dtype.itemsize + 7) // 8


def assigned(i: Instruction) -> str | None:
    """The variable that an instruction sets."""
    return getattr(i, "name", None)


def with_exit(i: Instruction, exit: Exit | Block) -> Instruction:
    """An instruction with another exit, where it has one."""
    return replace(i, exit=exit) if hasattr(i, "exit") else i  # type: ignore[call-arg,arg-type]


def with_operands(i: Instruction, function: Callable[[Expr], Expr]) -> Instruction:
    """An instruction with other operands; itself where they are the same."""
    if isinstance(i, (Set, Hold, SetLanes)):
        return _with(i, value=function(i.value))
    if isinstance(i, NewMemory):
        return _with(i, sizes=_each(i.sizes, function))
    if isinstance(i, (Checked, CallFunction, CallOut)):
        return _with(i, args=_each(i.args, function))
    if isinstance(i, Require):
        return _with(i, test=function(i.test))
    if isinstance(i, Position):
        return _with(i, index=function(i.index), extent=function(i.extent))
    if isinstance(i, (Load, Address)):
        return _with(i, place=_moved(i.place, function))
    if isinstance(i, Store):
        return _with(i, place=_moved(i.place, function), value=function(i.value))
    if isinstance(i, (Field, Changed)):
        return _with(i, owner=function(i.owner))
    if isinstance(i, SetLength):
        return _with(i, owner=function(i.owner), value=function(i.value))
    if isinstance(i, LoadSlot):
        return _with(i, slot=_moved_slot(i.slot, function))
    if isinstance(i, StoreSlot):
        return _with(i, slot=_moved_slot(i.slot, function), value=function(i.value))
    if isinstance(i, Push):
        return _with(i, value=function(i.value))
    if isinstance(i, Apart):
        return _with(i, place=_moved(i.place, function), array=i.array.with_operands(function))
    if isinstance(i, Unfolded):
        return _with(i, array=i.array.with_operands(function))
    if isinstance(i, Separate):
        return _with(i, array=i.array.with_operands(function), other=i.other.with_operands(function))
    if isinstance(i, (LoadLanes, StoreLanes)):
        step, mask = (None if e is None else function(e) for e in (i.step, i.mask))
        made = _with(i, place=_moved(i.place, function), step=step, mask=mask)
        return made if isinstance(made, LoadLanes) else _with(made, value=function(made.value))
    if isinstance(i, CheckedLanes):
        mask = None if i.mask is None else function(i.mask)
        return _with(i, args=_each(i.args, function), failed=function(i.failed), mask=mask)
    if isinstance(i, RunTurns):
        written, read = (tuple(t.with_operands(function) for t in touched) for touched in (i.written, i.read))
        return _with(i, turns=function(i.turns), args=_each(i.args, function), written=written, read=read)
    assert isinstance(i, (Interruptible, Reserve, Pop, Release, OneByOne))
    return i


def _moved(place: Place, function: Callable[[Expr], Expr]) -> Place:
    steps = tuple((function(index), None if stride is None else function(stride)) for index, stride in place.steps)
    if all(new is old for pair, other in zip(steps, place.steps) for new, old in zip(pair, other)):
        steps = place.steps
    return _with(place, base=function(place.base), steps=steps)


def _moved_slot(slot: Slot, function: Callable[[Expr], Expr]) -> Slot:
    return _with(slot, items=function(slot.items), index=function(slot.index))


def _each(operands: tuple[Expr, ...], function: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    made = tuple(map(function, operands))
    return operands if all(map(operator.is_, made, operands)) else made


def _with(made: T, **parts: object) -> T:
    """A copy with other parts; itself where none is another: most are not, and copies take long."""
    return made if all(getattr(made, name) is part for name, part in parts.items()) else replace(made, **parts)  # type: ignore[type-var]


def substituted(values: Mapping[str, Expr]) -> Callable[[Expr], Expr]:
    """A function that puts expressions in the place of variables."""
    known: dict[Expr, Expr] = {}

    def of(e: Expr) -> Expr:
        found = known.get(e)
        if found is None:
            if e.op == "var":
                found = values.get(str(e.value), e)
            else:
                args = tuple(map(of, e.args))
                found = e if args == e.args else Expr(e.op, args, e.dtype, e.value)
            known[e] = found
        return found

    return of
