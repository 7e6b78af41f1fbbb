"""Guards: what a captured program took for granted.

One class a guard: its instruction for `_dispatch.Entry`, whose operands are its fields, and how it is told to people.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, field
from types import MemberDescriptorType
from typing import Any, ClassVar, Protocol

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.array_libraries import NUMPY, library_of
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE, class_namespace, is_volatile, volatile_names
from dynagraph.frontend.guards.sources import (
    Attribute,
    DictEntry,
    Instruction,
    Known,
    Local,
    Source,
)
from dynagraph.ir.shapes import Relation
from dynagraph.ir.size_programs import size_program
from dynagraph.lazy_dataclasses import dataclass

MISSING = object()
GONE = "is not there any more"


@dataclass(eq=False)
class Guard:
    """What must hold for the program to serve a call.  Its fields are the operands of its instruction; a source is loaded."""

    instruction: ClassVar[str]
    says: ClassVar[str]  # a format of the fields
    provides: ClassVar[bool] = False  # whether it gives the program a value, and so is there where its source is trusted, too

    _: KW_ONLY
    called: str = ""  # what an operand is called, for people

    def check(self, register_of: Callable[[Source], int]) -> Instruction:
        """The instruction that checks it; `register_of` gives the register that a source is loaded into."""
        fields: tuple[str, ...] = self.__match_args__
        operands = (getattr(self, name) for name in fields)
        return (self.instruction, *(register_of(o) if isinstance(o, Source) else o for o in operands))

    def said(self) -> str:
        return self.says.format(**{name: _shown(value) for name, value in vars(self).items()})

    def __str__(self) -> str:
        return self.said()

    def explain(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> str:
        """Why it does not hold, for bound parameters and the cells of the function."""
        return f"no longer true: {self}"


@dataclass(eq=False)
class SourceGuard(Guard):
    """A guard on what stands at `source`; `says` completes the sentence that starts with it."""

    source: Source

    def __str__(self) -> str:
        return f"{self.source} {self.said()}"

    def got(self, now: Any) -> str:
        """What stands there instead."""
        return describe_value(now)

    def explain(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> str:
        now = value_at(self.source, values, closure)
        if now is MISSING:
            return f"{self.source}: {GONE}"
        return f"{self.source}: expected {self.said().removeprefix('is ').removeprefix('has ')}, got {self.got(now)}"


@dataclass(eq=False)
class Load(SourceGuard):
    """Something stands at the source; from here on it is in a register."""

    register: int
    provides = True

    def check(self, register_of: Callable[[Source], int]) -> Instruction:
        load = self.source.load(register_of)
        if load is None:
            raise Break("UNSUPPORTED_VALUE", None, f"what {self.source} gives is looked at")
        name, *operands = load
        return (name, self.register, *operands)

    def explain(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> str:
        return f"{self.source}: {GONE}"


# -- identity, values and types -------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Is(SourceGuard):
    object: Any
    called: str = field(default="the same object", kw_only=True)
    instruction, says = "is", "is {called}"


class IsNot(Is):
    instruction, says = "is_not", "is not {called}"


@dataclass(eq=False)
class Same(SourceGuard):
    """Two sources hold one object."""

    other: Source
    instruction, says = "same", "is {other}"


class NotSame(Same):
    instruction, says = "not_same", "is not {other}"


@dataclass(eq=False)
class Distinct(Guard):
    """Each of the first sources holds another object than all the rest of them, and than all of the others."""

    written: tuple[Source, ...]
    others: tuple[Source, ...]
    instruction, says = "distinct", "objects that are changed are several"

    def check(self, register_of: Callable[[Source], int]) -> Instruction:
        registers = array.array("I", map(register_of, (*self.written, *self.others)))
        return (self.instruction, registers.tobytes(), len(self.written))

    def explain(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> str:
        seen: dict[int, Source] = {}
        for k, source in enumerate((*self.written, *self.others)):
            now = value_at(source, values, closure)
            if id(now) in seen:
                return f"{source}: expected another object than {seen[id(now)]}, got the same"
            if k < len(self.written):
                seen[id(now)] = source
        return super().explain(values, closure)


@dataclass(eq=False)
class Equal(SourceGuard):
    """A number or text of exactly this type and value."""

    value: Any
    instruction, says = "equal", "is {value!r}"


class HasValue(Equal):
    """An instance of a subclass of a number or text, whose value is this one."""

    instruction, says = "value", "has the value {value!r}"


@dataclass(eq=False)
class Compares(SourceGuard):
    """Comparing the float that stands there with a number gives this."""

    symbol: str
    number: Any
    truth: bool
    instruction, says = "compares", "{symbol} {number} is {truth}"


@dataclass(eq=False)
class Decides(Guard):
    """What a formula gives for the numbers at some sources: nested tuples, (function in C, arguments...), in which an int is the
    place of a source, and (constant,) a constant.
    """

    sources: tuple[Source, ...]
    formula: tuple[Any, ...]
    truth: bool
    instruction = "decides"

    def check(self, register_of: Callable[[Source], int]) -> Instruction:
        return (self.instruction, array.array("I", map(register_of, self.sources)).tobytes(), self.formula, self.truth)

    def __str__(self) -> str:
        return f"{self._spelled(self.formula)} is {self.truth}"

    def _spelled(self, formula: Any) -> str:
        if isinstance(formula, int):
            return str(self.sources[formula])
        first, *args = formula
        return f"{first.__name__}({', '.join(map(self._spelled, args))})" if args else repr(first)


@dataclass(eq=False)
class HasType(SourceGuard):
    kind: type
    instruction, says = "type", "is a {kind.__name__}"


@dataclass(eq=False)
class Unmodified(Guard):
    """Neither the class nor a base has been modified."""

    cls: type
    instruction, says = "unmodified", "class {cls.__name__} is unchanged"

    def __post_init__(self) -> None:
        self.version = _dispatch.type_version(self.cls)


@dataclass(eq=False)
class UnchangedType(SourceGuard):
    """The type is exactly this one, and neither it nor a base has been modified."""

    cls: type
    instruction, says = "type_version", "is an unchanged {cls.__name__}"

    def __post_init__(self) -> None:
        self.version = _dispatch.type_version(self.cls)

    def got(self, now: Any) -> str:
        return "the class has changed"


# -- containers and attributes --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Length(SourceGuard):
    length: int
    instruction, says = "len", "has {length} items"

    def got(self, now: Any) -> str:
        return f"{len(now)} items"


@dataclass(eq=False)
class MaxLength(SourceGuard):
    """Of a deque."""

    length: int | None
    instruction, says = "maxlen", "has maxlen={length}"


@dataclass(eq=False)
class Keys(SourceGuard):
    """All keys of a dict, in order."""

    keys: tuple[Any, ...]
    called: str = field(default="keys", kw_only=True)
    instruction, says = "dict_keys", "has the {called} {keys}"


@dataclass(eq=False)
class NoKey(SourceGuard):
    key: Any
    instruction, says = "no_item", "has no key {key!r}"


@dataclass(eq=False)
class Elements(SourceGuard):
    """All elements of a set."""

    elements: frozenset[Any]
    instruction, says = "set_is", "is {elements}"


@dataclass(eq=False)
class Order(SourceGuard):
    """The elements of a set in the order of iteration."""

    elements: tuple[Any, ...]
    instruction, says = "set_order", "gives {elements} in this order"


@dataclass(eq=False)
class NoAttribute(SourceGuard):
    """The ``__dict__`` of the object lacks the name."""

    name: str
    instruction, says = "no_attr", "has no attribute {name} of its own"


@dataclass(eq=False)
class EmptySlot(SourceGuard):
    slot: MemberDescriptorType
    instruction, says = "no_slot", "has nothing in its slot {slot.__name__}"


class Dead(SourceGuard):
    """A weak reference whose object is gone."""

    instruction, says = "dead", "refers to nothing any more"


@dataclass(eq=False)
class NoGlobal(Guard):
    namespace: dict[str, Any]
    name: str
    instruction, says = "absent", "global {name} is not defined"


@dataclass(eq=False)
class Returns(Guard):
    """A builtin function without arguments returns this value."""

    function: Callable[[], object]
    value: object
    instruction, says = "token", "{called}() is {value}"


# -- inputs of the program ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class InputArray(SourceGuard):
    """An array of NumPy's is the program's input `slot`.  `shape`: None for sizes that may change; `strides`: None for C order."""

    slot: int
    dtype: np.dtype[Any]
    rank: int
    shape: tuple[int | None, ...]
    strides: tuple[int, ...] | None
    writeable: bool
    instruction, says, provides = "array", "{called}", True

    def __str__(self) -> str:
        return f"{self.source}: {self.called}"


@dataclass(eq=False)
class InputDeviceArray(SourceGuard):
    """An array of another library, of exactly this type, on a device."""

    slot: int
    kind: type
    dtype: np.dtype[Any]
    rank: int
    shape: tuple[int | None, ...]
    strides: tuple[int, ...] | None
    device: int
    instruction, says, provides = "device_array", "{called}", True

    def __str__(self) -> str:
        return f"{self.source}: {self.called}"


@dataclass(eq=False)
class InputScalar(SourceGuard):
    """A number of exactly this type is the program's input `slot`."""

    slot: int
    kind: type
    instruction, says, provides = "scalar", "is {called}", True


@dataclass(eq=False)
class SymbolicInteger(SourceGuard):
    """An int that may change: the symbol stands for it."""

    symbol: int
    instruction, says, provides = "int", "is an integer of at least 2, s{symbol}", True


@dataclass(eq=False)
class SymbolicSize(Guard):
    """The symbol stands for a size of an input; this holds always."""

    symbol: int
    slot: int
    axis: int
    instruction, says = "dim", "s{symbol} is size {axis} of input {slot}"


@dataclass(eq=False)
class SymbolicHeld(Guard):
    """The symbol stands for what an input, a vector of int64, holds: its "first" element, the "sum" of all, or the "greatest"."""

    symbol: int
    slot: int
    how: str
    instruction, says = "held", "s{symbol} is the {how} of input {slot}, and at least 2"


@dataclass(eq=False)
class Holds(Guard):
    """As `SymbolicHeld`, of a number below 2."""

    slot: int
    how: str
    number: int
    instruction, says = "holds", "the {how} of input {slot} is {number}"


@dataclass(eq=False)
class SizeRelation(Guard):
    relation: Relation
    says = "{relation}"

    def check(self, register_of: Callable[[Source], int]) -> Instruction:
        r = self.relation
        return ("relation", r.op, size_program(r.left), size_program(r.right), r.holds)


@dataclass(eq=False)
class Disjoint(Guard):
    """The inputs of these slots share no memory with one another or with any other input."""

    written: tuple[int, ...]
    instruction, says = "disjoint", "arrays that are written share no memory with others"


class NoFloatingPointErrors(Guard):
    instruction, says = "errstate", "np.errstate asks for nothing but warnings"


# -- the guards of a capture ----------------------------------------------------------------------------------------------


OF_CLASSES = (Unmodified, UnchangedType)  # guards that know a class by its version


class Makes(Protocol):
    """A preparation, as guards know it."""

    def makes(self, source: Any) -> bool: ...


class GuardList:
    """The guards of one capture, in the order in which they were needed, each once."""

    def __init__(self, n_parameters: int):
        self.n_registers = n_parameters
        self._rows: dict[Any, tuple[Instruction, Guard]] = {}  # by what identifies the instruction
        self._last: list[tuple[Instruction, Guard]] = []
        self._ordered: list[tuple[Instruction, Guard]] | None = None  # all of them, as they are checked, once that was asked for
        self._registers: dict[Source, int] = {}
        self._unmodified: dict[int, type] = {}  # by identity: a metaclass may define its own hash
        self._instances: dict[tuple[int, int], tuple[Source, type]] = {}  # whose guards are in `_rows`, likewise

    @property
    def is_empty(self) -> bool:
        """Whether nothing is taken for granted."""
        return not self._rows and not self._last

    @property
    def count(self) -> int:
        return len(self._rows)

    # -- asking for guards --------------------------------------------------------------------------------------------
    def require(self, guard: Guard) -> None:
        if guard.provides or not (isinstance(guard, SourceGuard) and guard.source.is_trusted):
            instruction = guard.check(self.register)
            self._ordered = None
            self._rows.setdefault(tuple(map(_identity, instruction)), (instruction, guard))

    def register(self, source: Source) -> int:
        """The register that holds the value of a source."""
        if isinstance(source, Local):
            return source.index
        found = self._registers.get(source)
        if found is None:
            if self.n_registers >= _dispatch.MAX_REGISTERS:
                raise Break("TOO_MANY_VALUES", None, f"more than {_dispatch.MAX_REGISTERS} objects of the caller's are looked at")
            found, self.n_registers = self.n_registers, self.n_registers + 1
            self.require(Load(source, found))
            self._registers[source] = found
        return found

    def unmodified(self, cls: type) -> None:
        """The class and its bases are as they are now."""
        if not is_volatile(cls):
            if cls.__flags__ & HEAP_TYPE and id(cls) not in self._unmodified:
                self.require(Unmodified(cls))
                self._unmodified[id(cls)] = cls
            return
        self.require(Is(Attribute(Known(cls, f"class {cls.__name__}"), "__mro__"), cls.__mro__))
        for base in cls.__mro__:
            if is_volatile(base):
                self._holds_the_same(base)
            elif base.__flags__ & HEAP_TYPE:
                self.require(Unmodified(base))

    def _holds_the_same(self, cls: type) -> None:
        """All attributes of the class itself are as they are now, but for those that captured code sets."""
        entries, names = class_namespace(cls), volatile_names(cls)
        self.require(Keys(Known(entries, f"class {cls.__name__}"), tuple(entries), called="attributes"))
        for name, value in entries.items():
            if name not in names:
                self.require(Is(DictEntry(entries, name, f"class {cls.__name__}'s"), value))

    def instance(self, source: Source, cls: type) -> None:
        """The object is an instance of exactly this class, which is as it is now."""
        if is_volatile(cls):
            self.require(HasType(source, cls))
            self.unmodified(cls)
        elif (id(source), id(cls)) not in self._instances:
            self.require(UnchangedType(source, cls))
            self._instances[id(source), id(cls)] = (source, cls)

    def finish(self, guards: Iterable[Guard]) -> None:
        """The guards that come last, and are as they stand when the capture ends."""
        self._last = [(guard.check(self.register), guard) for guard in guards]
        self._ordered = None

    # -- reading ------------------------------------------------------------------------------------------------------
    def _in_order(self) -> list[tuple[Instruction, Guard]]:
        """Arrays that are arguments first: cheapest and most likely to differ."""
        if self._ordered is None:
            first: list[tuple[Instruction, Guard]] = []
            rest: list[tuple[Instruction, Guard]] = []
            for row in self._rows.values():
                (first if isinstance(row[1], InputArray) and isinstance(row[1].source, Local) else rest).append(row)
            self._ordered = [*first, *rest, *self._last]
        return self._ordered

    def program(self) -> tuple[Instruction, ...]:
        """The instructions for `_dispatch.Entry`."""
        return tuple([instruction for instruction, _ in self._in_order()])

    def each(self) -> list[Guard]:
        """The guards in order, loads among them."""
        return [guard for _, guard in self._in_order()]

    def source_of(self, register: int) -> Source | None:
        """The source that a register holds; None: it is a parameter's."""
        return next((source for source, known in self._registers.items() if known == register), None)

    def guard(self, index: int) -> Guard:
        """That of instruction `index` of the program."""
        return self._in_order()[index][1]

    def made_by(self, index: int, preparations: Sequence[Makes]) -> list[int]:
        """The numbers of the preparations that make what the guard of instruction `index` looks at."""
        source = getattr(self.guard(index), "source", None)
        return [k for k, preparation in enumerate(preparations) if preparation.makes(source)]

    def describe(self) -> list[str]:
        """A line for each guard; loads are not worth one."""
        return [str(guard) for _, guard in self._in_order() if not isinstance(guard, Load)]

    def explain(self, values: tuple[Any, ...], index: int, closure: tuple[Any, ...] = ()) -> str:
        """Why instruction `index` of the program does not hold for bound parameters `values`."""
        return self._in_order()[index][1].explain(values, closure)

    def changed_class(self) -> type | None:
        """A class that has changed since it was first looked at: an entry takes classes as they are when it is made."""
        classes = (guard for _, guard in self._rows.values() if isinstance(guard, OF_CLASSES))
        return next((guard.cls for guard in classes if _dispatch.type_version(guard.cls) != guard.version), None)


class UnreadGuards(GuardList):
    """Guards that another process has written down.  Calls need their instructions; the guards themselves, which explain why one
    does not hold, are read when they are asked for first, and take classes as they are then.  `made`: of each preparation, the
    instructions of guards on what it makes.
    """

    def __init__(
        self, program: tuple[Instruction, ...], n_registers: int, made: tuple[frozenset[int], ...],
        read: Callable[[], tuple[Guard, ...]],
    ):  # fmt: skip
        super().__init__(n_registers)
        self._program, self._made, self._read = program, made, read

    def made_by(self, index: int, preparations: Sequence[Makes]) -> list[int]:
        return [k for k, made in enumerate(self._made) if index in made]

    def _in_order(self) -> list[tuple[Instruction, Guard]]:
        if self._ordered is None:
            guards = self._read()
            for guard in guards:
                if isinstance(guard, OF_CLASSES):
                    guard.version = _dispatch.type_version(guard.cls)
            self._ordered = list(zip(self._program, guards, strict=True))
        return self._ordered

    def program(self) -> tuple[Instruction, ...]:
        return self._program

    @property
    def is_empty(self) -> bool:
        return not self._program

    @property
    def count(self) -> int:
        return len(self._program)


def value_at(source: Source, values: tuple[Any, ...], closure: tuple[Any, ...] = ()) -> Any:
    """What stands at a source now, for bound parameters `values`; MISSING where there is nothing."""
    try:
        return source.now(values, closure)
    except (AttributeError, LookupError, TypeError, ValueError):
        return MISSING


def _shown(value: Any) -> Any:
    return list(value) if type(value) is tuple else set(value) if type(value) is frozenset else value


def _identity(part: Any) -> Any:
    """A hashable stand-in: objects that are compared by identity count as different; subclasses may lack a hash."""
    if type(part) in (int, str, bool, type(None)):
        return (type(part), part)
    if type(part) is tuple:
        return tuple(_identity(p) for p in part)
    return id(part)


# -- how guards speak of objects ------------------------------------------------------------------------------------------


def describe_value(value: Any) -> str:
    """A value as the texts of guards speak of it."""
    library = library_of(type(value))
    if library is not None or isinstance(value, np.ndarray):
        layout = "" if value.flags.c_contiguous else f" strides {[s // value.itemsize for s in value.strides]}"
        kind = f"{type(value).__name__} of " if library is None else "" if library is NUMPY else f"{library.name} "
        place = "" if library is None or library is NUMPY else f" on device {library.device_of(value)}"
        return f"{kind}{value.dtype}[{', '.join(map(str, value.shape))}]{layout}{place}"
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return repr(value)
    return f"an object of type {type(value).__name__}"
