"""Guards: what a captured program took for granted, as data, and as a program for the dispatcher.

A guard is asked for by source; the loads that bring the source into a register are emitted once, before its first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.array_libraries import NUMPY, library_of
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.source import (
    LOADS,
    Attribute,
    DictEntry,
    Instruction,
    Known,
    Local,
    Source,
)
from dynagraph.frontend.volatile import HEAP_TYPE, class_namespace, is_volatile, volatile_names
from dynagraph.ir.shapes import Relation
from dynagraph.ir.size_programs import size_program

MAX_REGISTERS = 512  # of a guard program
BINDING = ("array", "device_array", "scalar", "int")  # guards that give the program its inputs


class GuardList:
    """The guards of one capture, in the order in which they were needed."""

    def __init__(self, n_parameters: int):
        self.n_registers = n_parameters
        self._instructions: dict[Any, tuple[Instruction, str]] = {}  # key -> instruction and its description
        self._registers: dict[Source, int] = {}
        self._sources: dict[int, Source] = {}
        self._tail: list[tuple[Instruction, str]] = []
        self._versions: dict[type, int] = {}  # of classes when they were first looked at

    # -- asking for guards --------------------------------------------------------------------------------------------
    def register(self, source: Source) -> int:
        """The register that holds the value of a source."""
        if isinstance(source, Local):
            self._sources[source.index] = source
            return source.index
        found = self._registers.get(source)
        if found is None:
            load = source.load(self.register)
            if load is None:
                raise Break("UNSUPPORTED_VALUE", None, f"what {source} gives is looked at")
            if self.n_registers >= MAX_REGISTERS:
                raise Break("UNSUPPORTED_INPUT", None, f"more than {MAX_REGISTERS} objects of the caller's are looked at")
            found = self._registers[source] = self.n_registers
            self._sources[found] = source
            self.n_registers += 1
            name, *rest = load
            self._add((name, found, *rest), f"{source} is there")
        return found

    def add(self, name: str, source: Source, *operands: Any, says: str) -> None:
        """Guard ``name register *operands``; `says` completes the sentence that starts with the source."""
        if source.is_trusted and name not in BINDING:
            return
        self._add((name, self.register(source), *operands), f"{source}{says}")

    def relate(self, name: str, left: Source, right: Source, says: str) -> None:
        self._add((name, self.register(left), self.register(right)), f"{left} {says} {right}")

    def unmodified(self, cls: type) -> None:
        """The class and its bases are as they are now."""
        if is_volatile(cls):
            self.add("is", Attribute(Known(cls, f"class {cls.__name__}"), "__mro__"), cls.__mro__, says=" is the same object")
            for base in cls.__mro__:
                if is_volatile(base):
                    self._holds_the_same(base)
                elif base.__flags__ & HEAP_TYPE:
                    self._stays(base)
        elif cls.__flags__ & HEAP_TYPE:
            self._stays(cls)

    def _stays(self, cls: type) -> None:
        self._versions.setdefault(cls, _dispatch.type_version(cls))
        self._add(("unmodified", cls), f"class {cls.__name__} is unchanged")

    def changed_class(self) -> type | None:
        """A class that has changed since it was first looked at: an entry takes classes as they are when it is made."""
        return next((cls for cls, version in self._versions.items() if _dispatch.type_version(cls) != version), None)

    def _holds_the_same(self, cls: type) -> None:
        """All attributes of the class itself are as they are now, but for those that captured code sets."""
        entries, names = class_namespace(cls), volatile_names(cls)
        self.add("dict_keys", Known(entries, f"class {cls.__name__}"), tuple(entries), says=f" has the attributes {list(entries)}")
        for name, value in entries.items():
            if name not in names:
                self.add("is", DictEntry(entries, name, f"class {cls.__name__}'s"), value, says=" is the same object")

    def instance(self, source: Source, cls: type) -> None:
        """The object is an instance of exactly this class, which is as it is now."""
        if is_volatile(cls):
            self.add("type", source, cls, says=f" is a {cls.__name__}")
            self.unmodified(cls)
        else:
            self._versions.setdefault(cls, _dispatch.type_version(cls))
            self.add("type_version", source, cls, says=f" is an unchanged {cls.__name__}")

    def token(self, function: Any, name: str | None = None) -> None:
        """``function()`` gives what it gives now."""
        value = function()
        self._add(("token", function, value), f"{name or function.__name__}() is {value}")

    def absent(self, owner: dict[str, Any], key: str) -> None:
        self._add(("absent", owner, key), f"global {key} is not defined")

    def _add(self, instruction: Instruction, description: str) -> None:
        key = tuple(_identity(part) for part in instruction)
        self._instructions.setdefault(key, (instruction, description))

    def finish(
        self, dims: Sequence[tuple[int, int, int]], relations: Sequence[Relation], errors: bool, written: tuple[int, ...] = ()
    ) -> None:
        """The guards that come last: sizes by symbol, what was decided on them, and NumPy's error state."""
        self._tail = [(("dim", symbol, slot, axis), f"s{symbol} is size {axis} of input {slot}") for symbol, slot, axis in dims]
        for r in relations:
            instruction = ("relation", r.op, size_program(r.left), size_program(r.right), r.holds)
            self._tail.append((instruction, str(r)))
        if written:
            self._tail.append((("disjoint", written), "arrays that are written share no memory with others"))
        if errors:
            self._tail.append((("errstate",), "np.errstate asks for nothing but warnings"))

    # -- reading ------------------------------------------------------------------------------------------------------
    def _rows(self) -> list[tuple[Instruction, str]]:
        """Arrays that are arguments first: cheapest and most likely to differ."""
        rows = list(self._instructions.values())
        parameters = [r for r in rows if r[0][0] in ("array", "device_array") and isinstance(self._sources.get(r[0][1]), Local)]
        chosen = {id(r) for r in parameters}
        return parameters + [r for r in rows if id(r) not in chosen] + self._tail

    def program(self) -> tuple[Instruction, ...]:
        """The instructions for `_dispatch.Entry`."""
        return tuple(instruction for instruction, _ in self._rows())

    def describe(self) -> list[str]:
        """A line for each guard; loads are not worth one."""
        return [text for instruction, text in self._rows() if instruction[0] not in LOADS]

    def explain(self, values: tuple[Any, ...], index: int, closure: tuple[Any, ...] = ()) -> str:
        """Why instruction `index` of the program does not hold for bound parameters `values`."""
        instruction, text = self._rows()[index]
        name = instruction[0]
        source = self._sources.get(instruction[1]) if len(instruction) > 1 and isinstance(instruction[1], int) else None
        if source is None or name in ("dim", "relation"):
            return f"no longer true: {text}"
        now = value_at(source, values, closure)
        if name in LOADS or now is MISSING:
            return f"{source}: is not there any more"
        said = text[len(str(source)) :].lstrip(": ")
        got = f"{len(now)} items" if name == "len" else "the class has changed" if name == "type_version" else describe_value(now)
        return f"{source}: expected {said.removeprefix('is ').removeprefix('has ')}, got {got}"


MISSING = object()


def value_at(source: Source, values: tuple[Any, ...], closure: tuple[Any, ...] = ()) -> Any:
    """What stands at a source now, for bound parameters `values`; MISSING where there is nothing."""
    try:
        return source.now(values, closure)
    except (AttributeError, LookupError, TypeError, ValueError):
        return MISSING


def _identity(part: Any) -> Any:
    """A hashable stand-in: objects that are compared by identity count as different."""
    if isinstance(part, (int, str, bool, type(None))):
        return (type(part), part)
    if isinstance(part, tuple):
        return tuple(_identity(p) for p in part)
    return id(part)


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
